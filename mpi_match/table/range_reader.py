"""Reading ranges of the filters of a table file, each as a table of its own, without holding the whole table.

    file       constraints by name:   temp temp temp city city city     of the filters  3 0 2 1 0 3
    outline    vocabulary, labels, and a few bytes for each filter
    range      filters 2 to 4:        temp      temp           city                     1   0     1

The file has the constraints sorted by name, so those of one filter are spread over all of it.  A range is read by scanning
every constraint in blocks and keeping its own: memory is that of the range and one block, whatever the size of the file.
Each range costs one pass over the file, at the speed of the disk or of the page cache.

A range has the vocabulary and the interfaces of the whole table, so events are encoded once for all ranges, and matched
interfaces have the same ids in each.  Its filters are numbered from 0 and have no subscribers' ids, which engines do not
use.
"""

from __future__ import annotations

import copy
import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.arrays.strings import Strings
from mpi_match.storage import Reader
from mpi_match.storage.schema import Content
from mpi_match.table.conditions import PART_LABEL
from mpi_match.table.constraints import CODE, FILTER_ID, KIND, Constraints
from mpi_match.table.filters import FilterColumns
from mpi_match.table.kinds import IS_LISTED, KIND_OF_PRESENCE
from mpi_match.table.recode import Recoding
from mpi_match.table.schema import OUTLINE, TABLE, label_arrays, read_labels, read_vocabulary, vocabulary_arrays
from mpi_match.table.table import Table
from mpi_match.table.validate import names_of
from mpi_match.table.vocabulary import Vocabulary

READ_AT_ONCE = 2**20
"""Rows read at a time."""
MOST_GRAINS = 2**18
_COLUMNS = ("constraints/kind", "constraints/lo", "constraints/hi", "constraints/filter")
_PRESENCE = "presence/filter"
_PER_CONSTRAINT = (*_COLUMNS, _PRESENCE, "sets/offsets", "sets/codes")
_PER_FILTER = ("filters/size", "filters/interface", "filters/area_filter", "filters/area")


class _Chosen(NamedTuple):
    """Filters `start` to `stop`, and those from `last` to `n_filters`, numbered in this order."""

    start: int
    stop: int
    last: int
    n_filters: int

    @property
    def ids(self) -> Array:
        """The ids of these filters, i64, ascending."""
        return np.concatenate([np.arange(self.start, self.stop), np.arange(self.last, self.n_filters)])

    def of(self, column: Array) -> Array:
        """A copy of the filters' rows of a column."""
        return np.concatenate([column[self.start : self.stop], column[self.last :]])

    def has(self, filters: Array) -> Array:
        """bool: marks the filters that are chosen."""
        found: Array = (filters >= self.start) & (filters < self.stop)
        if self.last < self.n_filters:
            found |= (filters >= self.last) & (filters < self.n_filters)
        return found

    def renumbered(self, filters: Array) -> Array:
        """u32: the new numbers of chosen filters."""
        found: Array = filters - FILTER_ID.type(self.start)
        if self.last < self.n_filters:
            found[filters >= self.last] -= FILTER_ID.type(self.last - self.stop)
        return found


class _Listed:
    """Filters by their `ids`, ascending, among `n_filters`; numbered in this order."""

    def __init__(self, ids: Array, n_filters: int) -> None:
        self.ids = ids.astype(np.int64)
        self._is_one = np.zeros(n_filters + 1, bool)
        self._is_one[self.ids] = True

    def of(self, column: Array) -> Array:
        """See `_Chosen.of`."""
        return column[self.ids]

    def has(self, filters: Array) -> Array:
        """See `_Chosen.has`."""
        return self._is_one[np.minimum(filters, len(self._is_one) - 1)]

    def renumbered(self, filters: Array) -> Array:
        """See `_Chosen.renumbered`."""
        return np.searchsorted(self.ids, filters).astype(FILTER_ID)


class RangeReader:
    """A table file, open for reading ranges of it; a context manager.

    labels               those of every range
    sizes                u32[n_filters]: constraints of each filter
    name_offsets         i64[n_names + 1]: constraints of each name
    area_filter          u32: the filters that have an area, ascending
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._recoding: Recoding | None = None
        self._reader = Reader(path, TABLE)
        try:
            self._vocabulary = read_vocabulary(self._reader)
            self.labels = read_labels(self._reader)
            self.sizes = self._reader.array("filters/size")
            self._others = self._reader.array("constraints/name_offsets")
            has_presence = _PRESENCE in self._reader
            self._presence = self._reader.array("presence/name_offsets") if has_presence else 0 * self._others
            self._set_offsets = self._reader.array("sets/name_offsets")
            self.area_filter = self._reader.array("filters/area_filter")
            self._check_outline()
            self.name_offsets = self._others + self._presence
            if self.sizes.sum(dtype=np.int64) != self.n_constraints:
                self._reader.refuse("constraints do not add up to filters/size")
        except BaseException:
            self._reader.close()
            raise

    def recoded(self, recoding: Recoding) -> RangeReader:
        """The same table in a larger vocabulary: each range is recoded when it is read.  Both share the open file."""
        larger = copy.copy(self)
        larger._recoding = recoding
        return larger

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of every range."""
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
        return len(self.sizes)

    @property
    def n_interfaces(self) -> int:
        return len(self.labels)

    @property
    def n_constraints(self) -> int:
        return int(self.name_offsets[-1])

    @property
    def outline_bytes(self) -> int:
        """Bytes that every range takes beside those of its filters."""
        arrays = [array for _, array in (*vocabulary_arrays(self.vocabulary), *label_arrays(self.labels))]
        return sum(array.nbytes for array in (*arrays, self.name_offsets, self._set_offsets))

    @property
    def grain(self) -> int:
        """The number of filters that partitioning treats as one unit: a power of two, 1 for all but large tables."""
        return 1 << (max(self.n_filters - 1, 0) // MOST_GRAINS).bit_length()

    @property
    def grain_bytes(self) -> Array:
        """i64: approximate number of bytes that each unit of filters adds to a range; lists and areas are spread evenly."""
        left_out = int(self._presence[-1]) * (KIND.itemsize + 2 * CODE.itemsize) if self._others[-1] else 0
        per_constraint = (self._bytes_of(_PER_CONSTRAINT) + left_out) / max(self.n_constraints, 1)
        per_filter = self._bytes_of(_PER_FILTER) / max(self.n_filters, 1)
        first = np.arange(0, self.n_filters, self.grain)
        sizes = np.add.reduceat(self.sizes, first, dtype=np.int64) if len(first) else first
        numbers = np.diff(np.append(first, self.n_filters))
        return np.ceil(sizes * per_constraint + numbers * per_filter).astype(np.int64)

    @cached_property
    def n_of_parts(self) -> int:
        """Number of filters of parts of conditions (`conditions`): the last ones."""
        n_visible = bisect_left(self.labels, PART_LABEL.encode())
        if n_visible == self.n_interfaces:
            return 0
        return sum(int((block >= n_visible).sum()) for block in self._reader.blocks("filters/interface", READ_AT_ONCE))

    @property
    def visible_bytes(self) -> Array:
        """`grain_bytes` of the units that hold filters other than those of parts."""
        return self.grain_bytes[: -(-(self.n_filters - self.n_of_parts) // self.grain)]

    @property
    def parts_bytes(self) -> int:
        """Approximate number of bytes that the filters of parts add to a range."""
        return int(self.grain_bytes[(self.n_filters - self.n_of_parts) // self.grain :].sum()) if self.n_of_parts else 0

    @property
    def n_bytes(self) -> int:
        """Approximate size of the whole table in memory, bytes."""
        return self.outline_bytes + int(self.grain_bytes.sum())

    def interfaces(self, filters: Array) -> Array:
        """u32: the interfaces of some filters, ascending."""
        return self._checked("filters/interface", self._pick("filters/interface", filters))

    def areas(self, filters: Array) -> tuple[Array, Array]:
        """For some filters, ascending: bool, which of them have an area, and f64[k, 3], those areas."""
        owner = self.area_filter
        at = np.searchsorted(owner, filters)
        has_area = np.append(owner, np.iinfo(owner.dtype).max)[at] == filters
        return has_area, self._checked("filters/area", self._pick("filters/area", at[has_area]))

    @cached_property
    def digest(self) -> str:
        """`Table.digest` of the whole table."""
        digest = hashlib.sha256()
        for name in (column.name for column in TABLE.columns if column.name in self._reader):
            digest.update(b"%s %d;" % (name.encode(), self._reader.length(name)))
            for block in self._reader.blocks(name, READ_AT_ONCE):
                digest.update(block.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def rows(self) -> Iterator[tuple[int, Array, Array, Array, Array]]:
        """The constraints in the order of `Constraints`, in blocks: number of the first row, and kind, lo, hi and filter of
        all.

        They are verified only when the last block has been read.  Raises StorageError for damage.
        """
        presence = _Rows(self._reader, _PRESENCE) if _PRESENCE in self._reader else None
        others = [_Rows(self._reader, name) for name in _COLUMNS]
        last_code = (self.n_codes - 1).astype(CODE)
        for at in range(0, self.n_constraints, READ_AT_ONCE):
            stop = min(at + READ_AT_ONCE, self.n_constraints)
            if presence is None:
                yield at, *(rows.take(stop - at) for rows in others)  # type: ignore[misc]
                continue
            name = names_of(self.name_offsets, slice(at, stop))
            asks = np.arange(at, stop) < (self.name_offsets[:-1] + np.diff(self._presence))[name]
            n = int(np.count_nonzero(asks))
            of_presence = (KIND_OF_PRESENCE, CODE.type(0), last_code[name[asks]], presence.take(n))
            yield (
                at,
                *(_merged(asks, each, rows.take(stop - at - n)) for each, rows in zip(of_presence, others, strict=True)),
            )  # type: ignore[misc]
        for rows in (*others, *((presence,) if presence is not None else ())):
            rows.end()

    def part(self, start: int, stop: int, n_last: int = 0) -> Table:
        """Filters `start` to `stop`, and the last `n_last`, as a table, checked.  One pass over the constraints.

        Raises StorageError.
        """
        return self._table(_Chosen(start, stop, max(stop, self.n_filters - n_last), self.n_filters))

    def some(self, ids: Array) -> Table:
        """The filters with these ids, ascending, as a table, checked; otherwise as `part`."""
        return self._table(_Listed(ids, self.n_filters))

    def _table(self, chosen: _Chosen | _Listed) -> Table:
        areas = self.area_filter
        circles = np.flatnonzero(chosen.has(areas))
        filters = FilterColumns(
            size=chosen.of(self.sizes),
            interface=self._pick("filters/interface", chosen.ids),
            area_filter=chosen.renumbered(areas[circles]),
            area=self._pick("filters/area", circles),
            id_filter=np.zeros(0, FILTER_ID),
            ids=Strings.of(()),
        )
        table = Table(self._vocabulary, self._constraints(chosen), filters, self.labels)
        for fault in table.faults():
            self._reader.refuse(fault)
        return table if self._recoding is None else self._recoding.table(table)

    def _constraints(self, chosen: _Chosen | _Listed) -> Constraints:
        """The constraints of the chosen filters."""
        n = int(chosen.of(self.sizes).sum(dtype=np.int64))
        only_presence = not self._others[-1]
        columns = [np.empty(0 if only_presence else n, dtype) for dtype in (KIND, CODE, CODE)] + [np.empty(n, FILTER_ID)]
        offsets, filled = np.full(len(self.name_offsets), n), 0
        for at, *block in self.rows():
            mine = np.flatnonzero(chosen.has(block[-1]))
            if filled + len(mine) > n:
                break  # the sizes are wrong, which the comparison below reports
            first, last = np.searchsorted(self.name_offsets, (at, at + len(block[-1])))
            offsets[first:last] = filled + np.searchsorted(mine, self.name_offsets[first:last] - at)
            for column, values in zip(
                columns[-1:] if only_presence else columns, block[-1:] if only_presence else block, strict=True
            ):
                column[filled : filled + len(mine)] = values[mine]
            filled += len(mine)
        kind, lo, hi, filter_id = columns
        if filled != n:
            self._reader.refuse("constraints do not add up to filters/size")
        filter_id = chosen.renumbered(filter_id)
        if only_presence:
            return Constraints.of_presence(offsets, filter_id, self.n_codes)
        return self._with_sets(offsets, kind, lo, hi, filter_id)

    def _with_sets(self, offsets: Array, kind: Array, lo: Array, hi: Array, filter_id: Array) -> Constraints:
        """Constraints with the sets that they refer to, renumbered."""
        listed = np.flatnonzero(IS_LISTED[kind])
        name = np.searchsorted(offsets, listed, side="right") - 1
        sets, place = np.unique(self._set_offsets[name] + lo[listed], return_inverse=True)
        set_offsets = np.searchsorted(sets, self._set_offsets)
        lo[listed] = hi[listed] = place - set_offsets[name]
        bounds = self._pick("sets/offsets", np.stack([sets, sets + 1], axis=1).reshape(-1)).reshape(-1, 2)
        lengths = np.diff(bounds)[:, 0]
        flat = bounds.reshape(-1)
        if np.any(flat[1:] < flat[:-1]) or (len(flat) and not 0 <= flat[0] <= flat[-1] <= self._reader.length("sets/codes")):
            self._reader.refuse("sets/offsets do not fit sets/codes")
        codes = self._pick("sets/codes", take_ranges(bounds[:, 0], lengths))
        return Constraints(offsets, kind, lo, hi, filter_id, set_offsets, offsets_of(lengths), codes)

    def _pick(self, name: str, rows: Array) -> Array:
        """Some rows of a dataset, ascending."""
        picked, at = None, 0
        for block in self._reader.blocks(name, READ_AT_ONCE):
            if picked is None:
                picked = np.empty((len(rows), *block.shape[1:]), block.dtype)
            first, last = np.searchsorted(rows, (at, at + len(block)))
            picked[first:last] = block[rows[first:last] - at]
            at += len(block)
        if len(rows) and (picked is None or not 0 <= rows[0] <= rows[-1] < at):
            self._reader.refuse(f"{name} has {at} rows, others refer to more")
        return picked if picked is not None else self._reader.array(name)

    def _checked(self, name: str, some: Array) -> Array:
        """Some rows of a column, checked by its rules."""
        sizes = {"interfaces": self.n_interfaces}
        (column,) = (each for each in TABLE.columns if each.name == name)
        for rule in column.rules:
            if fault := rule(name, Content({name: some}, sizes)):
                self._reader.refuse(f"{name} {fault}")
        return some

    def _bytes_of(self, names: tuple[str, ...]) -> int:
        return sum(self._reader.n_bytes(name) for name in names if name in self._reader)

    def _check_outline(self) -> None:
        """Check the columns used before a range is read; `part` checks the rest of each range."""
        arrays = dict((*vocabulary_arrays(self._vocabulary), *label_arrays(self.labels)))
        arrays |= {"constraints/name_offsets": self._others, "sets/name_offsets": self._set_offsets}
        if _PRESENCE in self._reader:
            arrays["presence/name_offsets"] = self._presence
        arrays |= {"filters/size": self.sizes, "filters/area_filter": self.area_filter}
        for fault in OUTLINE.faults(arrays, self._reader.attributes, self._reader.declared):
            self._reader.refuse(fault)


class _Rows:
    """Reads the rows of a dataset in order, as many at a time as the caller asks for."""

    def __init__(self, reader: Reader, name: str) -> None:
        self._blocks = reader.blocks(name, READ_AT_ONCE)
        self._rest = reader.array(name) if not reader.length(name) else next(self._blocks)

    def take(self, n: int) -> Array:
        """The next n rows, which the dataset must still have."""
        pieces = []
        while n > len(self._rest):
            pieces.append(self._rest)
            n -= len(self._rest)
            self._rest = next(self._blocks)
        pieces.append(self._rest[:n])
        self._rest = self._rest[n:]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def end(self) -> None:
        """Verify what was read.  Raises StorageError for damage."""
        for _ in self._blocks:
            pass


def _merged(asks: Array, presence: object, others: Array) -> Array:
    """A column of rows; some rows only ask for presence."""
    column = np.empty(len(asks), others.dtype)
    column[asks], column[~asks] = presence, others
    return column
