"""A table that is never held whole: its outline, and ranges of its filters, each a table of its own.

    file       constraints by name:   temp temp temp city city city     of the filters  3 0 2 1 0 3
    outline    vocabulary, labels, and a few bytes for each filter
    range      filters 2 to 4:        temp      temp           city                     1   0     1

The constraints of a filter are all over the file, because the file has them by name.  So a range of filters is read by
looking at every constraint and keeping those that belong to it: blocks of rows go by, and memory is that of the range and
of a block, however large the file.  Each range costs a pass over the file, at the speed of the disk or of the page cache; to
keep the file whole and read it once would cost the memory that is not there.

A range has the vocabulary and the interfaces of the whole table, so events are encoded once for all ranges, and answers with
interfaces mean the same from each.  Its filters are numbered from 0, and have no ids of subscribers, which no engine looks
at.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from typing import NoReturn

import numpy as np

from mpi_match.arrays.csr import Array, are_bounds, offsets_of, take_ranges
from mpi_match.arrays.strings import Strings
from mpi_match.model import Op
from mpi_match.storage import Reader, StorageError
from mpi_match.table.constraints import FILTER_ID, OP_MASK, Constraints
from mpi_match.table.filters import FilterColumns
from mpi_match.table.recode import Recoding
from mpi_match.table.schema import label_arrays, read_labels, read_vocabulary, vocabulary_arrays
from mpi_match.table.table import TABLE_FILE, Table
from mpi_match.table.validate import dtype_of, faults
from mpi_match.table.vocabulary import Vocabulary

READ_AT_ONCE = 2**20
"""Rows that go by at a time."""
MOST_GRAINS = 2**18
_COLUMNS = ("constraints/kind", "constraints/lo", "constraints/hi", "constraints/filter")
_PER_CONSTRAINT = (*_COLUMNS, "sets/offsets", "sets/codes")
_PER_FILTER = ("filters/size", "filters/interface", "filters/area_filter", "filters/area")


class RangeReader:
    """A table file, open for ranges of it; a context manager.

    labels               those of every range
    sizes                u32[n_filters]: constraints of each filter
    name_offsets         i64[n_names + 1]: constraints of each name
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._recoding: Recoding | None = None
        self._reader = Reader(path, TABLE_FILE)
        try:
            self._vocabulary = read_vocabulary(self._reader)
            self.labels = read_labels(self._reader)
            self.sizes = self._array("filters/size")
            self.name_offsets = self._array("constraints/name_offsets")
            self._set_offsets = self._array("sets/name_offsets")
            self._check_outline()
        except BaseException:
            self._reader.close()
            raise

    def recoded(self, recoding: Recoding) -> RangeReader:
        """The same table in a larger vocabulary, into which each range is recoded; the file is open for both."""
        larger = copy.copy(self)
        larger._recoding = recoding
        return larger

    @property
    def vocabulary(self) -> Vocabulary:
        """That of every range."""
        return self._vocabulary if self._recoding is None else self._recoding.target

    @property
    def n_codes(self) -> Array:
        """i64[n_names]: size of each name's code space, for `rows`."""
        return self._vocabulary.n_codes

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @property
    def n_filters(self) -> int:
        """Number of filters."""
        return len(self.sizes)

    @property
    def n_interfaces(self) -> int:
        """Number of interfaces."""
        return len(self.labels)

    @property
    def n_constraints(self) -> int:
        """Number of constraints."""
        return int(self.name_offsets[-1])

    @property
    def outline_bytes(self) -> int:
        """Bytes that every range has, were it of no filter."""
        arrays = [array for _, array in (*vocabulary_arrays(self.vocabulary), *label_arrays(self.labels))]
        return sum(array.nbytes for array in (*arrays, self.name_offsets, self._set_offsets))

    @property
    def grain(self) -> int:
        """How many filters are taken together where the table is divided: a power of two, 1 for all but large tables."""
        return 1 << (max(self.n_filters - 1, 0) // MOST_GRAINS).bit_length()

    @property
    def grain_bytes(self) -> Array:
        """i64: about how many bytes each grain of filters adds to a range; lists and areas are spread over all filters."""
        per_constraint = self._bytes_of(_PER_CONSTRAINT) / max(self.n_constraints, 1)
        per_filter = self._bytes_of(_PER_FILTER) / max(self.n_filters, 1)
        first = np.arange(0, self.n_filters, self.grain)
        sizes = np.add.reduceat(self.sizes, first, dtype=np.int64) if len(first) else first
        numbers = np.diff(np.append(first, self.n_filters))
        return np.ceil(sizes * per_constraint + numbers * per_filter).astype(np.int64)

    @property
    def n_bytes(self) -> int:
        """About how many bytes the whole table would take in memory."""
        return self.outline_bytes + int(self.grain_bytes.sum())

    @property
    def area_filter(self) -> Array:
        """u32: the filters that have an area, ascending."""
        return self._array("filters/area_filter")

    def interfaces(self, filters: Array) -> Array:
        """u32: the interfaces of some filters, ascending."""
        return self._pick("filters/interface", filters)

    def areas(self, filters: Array) -> tuple[Array, Array]:
        """Of some filters, ascending: bool, which have an area, and f64[k, 3], the areas of those."""
        owner = self.area_filter
        at = np.searchsorted(owner, filters)
        has_area = np.append(owner, np.iinfo(owner.dtype).max)[at] == filters
        return has_area, self._pick("filters/area", at[has_area])

    @cached_property
    def digest(self) -> str:
        """`Table.digest` of the whole table."""
        digest = hashlib.sha256()
        for name, _ in Table.from_filters(()).arrays():
            digest.update(b"%s %d;" % (name.encode(), self._reader.length(name)))
            for block in self._reader.blocks(name, READ_AT_ONCE):
                digest.update(block.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def rows(self) -> Iterator[tuple[int, Array, Array, Array, Array]]:
        """The constraints as the file has them, in blocks: the number of the first, and of all kind, lo, hi and filter.

        What they say may be relied on when the last block has come.  Raises StorageError for damage.
        """
        at = 0
        for block in zip(*(self._blocks(name) for name in _COLUMNS), strict=True):
            yield at, *block
            at += len(block[0])

    def part(self, start: int, stop: int) -> Table:
        """Filters `start` to `stop` as a table, checked.  One pass over the constraints.  Raises StorageError."""
        areas = self.area_filter
        circles = np.arange(*np.searchsorted(areas, (start, stop)))
        filters = FilterColumns(
            size=self.sizes[start:stop].copy(),
            interface=self._pick("filters/interface", np.arange(start, stop)),
            area_filter=areas[circles] - FILTER_ID.type(start),
            area=self._pick("filters/area", circles),
            id_filter=np.zeros(0, FILTER_ID),
            ids=Strings.of(()),
        )
        table = Table(self._vocabulary, self._constraints(start, stop), filters, self.labels)
        for fault in faults(table):
            self._refuse(fault)
        return table if self._recoding is None else self._recoding.table(table)

    def _constraints(self, start: int, stop: int) -> Constraints:
        """The constraints of filters `start` to `stop`."""
        n = int(self.sizes[start:stop].sum(dtype=np.int64))
        columns = [np.empty(n, dtype_of(name)) for name in _COLUMNS]
        offsets, filled = np.full(len(self.name_offsets), n), 0
        for at, *block in self.rows():
            mine = np.flatnonzero((block[-1] >= start) & (block[-1] < stop))
            if filled + len(mine) > n:
                break  # the sizes are wrong, which is found below
            first, last = np.searchsorted(self.name_offsets, (at, at + len(block[-1])))
            offsets[first:last] = filled + np.searchsorted(mine, self.name_offsets[first:last] - at)
            for column, values in zip(columns, block, strict=True):
                column[filled : filled + len(mine)] = values[mine]
            filled += len(mine)
        kind, lo, hi, filter_id = columns
        if filled != n:
            self._refuse("constraints do not add up to filters/size")
        filter_id -= FILTER_ID.type(start)
        return self._with_sets(offsets, kind, lo, hi, filter_id)

    def _with_sets(self, offsets: Array, kind: Array, lo: Array, hi: Array, filter_id: Array) -> Constraints:
        """Constraints with those of the sets that they refer to, numbered anew."""
        listed = np.flatnonzero(np.isin(kind & OP_MASK, (Op.IN, Op.NOT_IN)))
        name = np.searchsorted(offsets, listed, side="right") - 1
        sets, place = np.unique(self._set_offsets[name] + lo[listed], return_inverse=True)
        set_offsets = np.searchsorted(sets, self._set_offsets)
        lo[listed] = hi[listed] = place - set_offsets[name]
        bounds = self._pick("sets/offsets", np.stack([sets, sets + 1], axis=1).reshape(-1)).reshape(-1, 2)
        lengths = np.diff(bounds)[:, 0]
        if int(lengths.min(initial=0)) < 0 or int(bounds.max(initial=0)) > self._reader.length("sets/codes"):
            self._refuse("sets/offsets do not fit sets/codes")
        codes = self._pick("sets/codes", take_ranges(bounds[:, 0], lengths))
        return Constraints(offsets, kind, lo, hi, filter_id, set_offsets, offsets_of(lengths), codes)

    def _pick(self, name: str, rows: Array) -> Array:
        """Some rows of a dataset, ascending."""
        picked, at = None, 0
        for block in self._blocks(name):
            if picked is None:
                picked = np.empty((len(rows), *block.shape[1:]), block.dtype)
            first, last = np.searchsorted(rows, (at, at + len(block)))
            picked[first:last] = block[rows[first:last] - at]
            at += len(block)
        if len(rows) and (picked is None or not 0 <= rows[0] <= rows[-1] < at):
            self._refuse(f"{name} has {at} rows, others refer to more")
        return picked if picked is not None else self._array(name)

    def _blocks(self, name: str) -> Iterator[Array]:
        for block in self._reader.blocks(name, READ_AT_ONCE):
            if block.dtype != dtype_of(name):
                self._refuse(f"{name} is {block.dtype}, expected {dtype_of(name)}")
            yield block

    def _array(self, name: str) -> Array:
        array = self._reader.array(name)
        if array.dtype != dtype_of(name):
            self._refuse(f"{name} is {array.dtype}, expected {dtype_of(name)}")
        return array

    def _bytes_of(self, names: tuple[str, ...]) -> int:
        """Bytes of some datasets, whose columns are 1 wide but for the three of an area."""
        return sum(
            self._reader.length(name) * dtype_of(name).itemsize * (3 if name == "filters/area" else 1) for name in names
        )

    def _check_outline(self) -> None:
        """What is relied on before a range is read; of a range, `part` checks the rest."""
        counts = {
            "n_names": self._vocabulary.n_names,
            "n_constraints": self.n_constraints,
            "n_filters": self.n_filters,
            "n_interfaces": self.n_interfaces,
        }
        for name, value in counts.items():
            if self._reader.attributes.get(name) != value:
                self._refuse(f"the attribute {name} says {self._reader.attributes.get(name)}, the arrays hold {value}")
        lengths = {name: self._reader.length(name) for name in _COLUMNS}
        if set(lengths.values()) != {self.n_constraints} or not are_bounds(self.name_offsets, self.n_constraints):
            self._refuse("constraints/name_offsets do not fit")
        if self._reader.length("filters/interface") != self.n_filters:
            self._refuse("filters/size and filters/interface differ in length")
        areas = self.area_filter
        if self._reader.length("filters/area") != len(areas):
            self._refuse("filters/area does not fit filters/area_filter")
        if np.any(areas[:-1] >= areas[1:]):
            self._refuse("filters/area_filter is not sorted")

    def _refuse(self, fault: str) -> NoReturn:
        raise StorageError(f"{self._path}: is not a valid table: {fault}; compile it again")
