"""The constraint table: millions of subscriptions as flat arrays, in memory and in HDF5 (docs/format.md specifies the file).

    vocabulary     names and operands, which define the codes       vocabulary.py
    constraints    every constraint once, grouped by name           constraints.py
    filters        size, interface, area and id                     filters.py
    interfaces     labels
    metadata       columns that answers show                         metadata.py

Ids are dense and mean the same in every table of the same subscriptions: names, operands and interface labels are numbered
in the order of their bytes, filters by (interface, content key).
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from mpi_match.arrays.csr import Array, ArraySource, NamedArrays, offsets_of, places_in, take_ranges
from mpi_match.arrays.strings import Strings, sort_distinct
from mpi_match.humanize import plural
from mpi_match.model import Area, Filter, Type
from mpi_match.storage import Reader, Writer
from mpi_match.table.conditions import PART_LABEL, by_label, recompose
from mpi_match.table.constraints import FILTER_ID, Constraints, encode
from mpi_match.table.filters import FilterColumns
from mpi_match.table.kinds import parts_of
from mpi_match.table.metadata import Metadata
from mpi_match.table.schema import (
    OUTLINE,
    TABLE,
    constraint_arrays,
    filter_arrays,
    label_arrays,
    read_constraints,
    read_filters,
    read_labels,
    read_vocabulary,
    vocabulary_arrays,
)
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.virtual_names import PART_MARK, SCOPE_MARK, forms_of, name_of
from mpi_match.table.vocabulary import Vocabulary


class TableRecoder(Protocol):
    """Recodes a table into a larger vocabulary (`recode.Recoding`)."""

    def table(self, table: Table) -> Table: ...


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A constraint table.  Make one with `from_filters`, `from_subscriptions` or `load`."""

    vocabulary: Vocabulary
    constraints: Constraints
    filters: FilterColumns
    labels: Strings
    metadata: Metadata | None = None

    def __repr__(self) -> str:
        counts = (plural(self.n_visible_filters, "filter"), plural(self.n_visible_constraints, "constraint"))
        return f"<table of {' with '.join(counts)} on {plural(self.n_visible, 'interface')}>"

    @property
    def n_filters(self) -> int:
        """Number of filters, which all ids are below; it includes the filters of parts of conditions (`conditions`)."""
        return len(self.filters.size)

    @property
    def n_interfaces(self) -> int:
        """Number of interfaces, which all ids are below; it includes parts of conditions."""
        return len(self.labels)

    @property
    def n_constraints(self) -> int:
        return len(self.constraints)

    @cached_property
    def n_visible(self) -> int:
        """Number of interfaces, without the parts of conditions (`conditions`), which come after them."""
        return bisect_left(self.labels, PART_LABEL.encode())

    @property
    def n_visible_constraints(self) -> int:
        """Number of constraints that filters were subscribed with; the others ask for parts of conditions and for scopes."""
        names, offsets, n = self.vocabulary.names, self.constraints.offsets, self.n_constraints
        for mark in (PART_MARK, SCOPE_MARK):
            first, end = (bisect_left(names, each) for each in (mark, mark[:-1] + bytes([mark[-1] + 1])))
            n -= int(offsets[end] - offsets[first])
        return n

    @cached_property
    def part_names(self) -> Array:
        """i64: the name of each part, in the order of their interfaces."""
        labels = self.labels.slice(self.n_visible, self.n_interfaces)
        return np.array([self.vocabulary.name_id(name_of(label.decode())) for label in labels], np.int64)

    @property
    def n_visible_filters(self) -> int:
        """Number of filters that were subscribed to; those on parts of conditions come after them."""
        return int(places_in(self.filters.interface, self.n_visible))

    @property
    def has_areas(self) -> bool:
        """Tells whether any filter has an area."""
        return len(self.filters.area) > 0

    @property
    def area_filter(self) -> Array:
        """u32: the filters that have an area, ascending."""
        return self.filters.area_filter

    def interfaces(self, filters: Array) -> Array:
        """u32: the interfaces of some filters."""
        return self.filters.interface[filters]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory."""
        return sum(array.nbytes for _, array in self.arrays(in_memory=True))

    @classmethod
    def from_filters(cls, filters: Iterable[Filter]) -> Table:
        """The table of checked filters (`model.make_filter`), in any order."""
        return cls.from_subscriptions(Subscriptions.of(filters))

    @classmethod
    def from_subscriptions(cls, subscriptions: Subscriptions) -> Table:
        """The table of subscriptions: filters sorted, unused names dropped, constraints encoded."""
        labels, label_rank = sort_distinct(subscriptions.labels)
        interface = label_rank[subscriptions.interface]
        keys = subscriptions.content_keys
        return cls._ordered(subscriptions, _order_of(interface, keys), interface, labels)

    @classmethod
    def from_subscriptions_in_order(cls, subscriptions: Subscriptions) -> Table:
        """The filters in the given order, all on one interface without a label.

        For filters that get their ids and interfaces elsewhere: those that are added to another table (`changes`).
        """
        n = subscriptions.n_filters
        return cls._ordered(subscriptions, np.arange(n), np.zeros(n, np.int64), Strings.of((b"",)))

    @classmethod
    def _ordered(cls, subscriptions: Subscriptions, order: Array, interface: Array, labels: Strings) -> Table:
        """The table with filter `order[i]` of the subscriptions as filter i."""
        rank = np.empty(subscriptions.n_filters, FILTER_ID)
        rank[order] = np.arange(subscriptions.n_filters, dtype=FILTER_ID)
        sizes = np.diff(subscriptions.constraint_offsets)
        used, written = np.flatnonzero(np.bincount(subscriptions.name)), subscriptions.names
        names, name_rank = sort_distinct(written.take(used) if len(used) < len(written) else written)
        to_rank = np.zeros(len(written), np.uint32)
        to_rank[used] = name_rank
        vocabulary, constraints = encode(
            names,
            to_rank[subscriptions.name],
            subscriptions.kind,
            subscriptions.operand_offsets,
            subscriptions.number,
            subscriptions.string,
            subscriptions.strings,
            np.repeat(rank, sizes),
        )
        id_ = subscriptions.id[order]
        has_id = np.flatnonzero(id_ >= 0)
        area = subscriptions.area[order] if any(subscriptions.area.strides) else subscriptions.area  # all alike
        columns = FilterColumns.of(sizes[order], interface[order], area, has_id, subscriptions.ids.take(id_[has_id]))
        return cls(vocabulary, constraints, columns, labels)

    def arrays(self, *, in_memory: bool = False) -> Iterator[tuple[str, Array]]:
        """Every array with the name of its dataset in the file; `in_memory`, as `from_arrays` takes them without a copy."""
        yield from vocabulary_arrays(self.vocabulary)
        yield from constraint_arrays(self.constraints, whole=in_memory)
        yield from filter_arrays(self.filters)
        yield from label_arrays(self.labels)
        if self.metadata is not None:
            yield from self.metadata.arrays()

    def faults(self) -> Iterator[str]:
        """The faults in the arrays, one sentence for each; those after the first may be consequences of it."""
        return TABLE.faults(dict(self.arrays()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as one file.  Raises StorageError."""
        with Writer(path, TABLE.kind) as writer:
            for name, value in self.counts().items():
                writer.attribute(name, value)
            for name, array in self.arrays():
                writer.array(name, array)

    def counts(self) -> dict[str, int]:
        """The counts that every table file states and a reader checks."""
        return {
            "n_names": self.vocabulary.n_names,
            "n_constraints": self.n_constraints,
            "n_filters": self.n_filters,
            "n_interfaces": self.n_interfaces,
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Table:
        """Read a table (one file, or an index and its parts) and check it.  Raises StorageError."""
        with Reader(path, TABLE) as reader:
            arrays = NamedArrays((c.name, reader.array(c.name)) for c in TABLE.columns if c.name in reader)
            for fault in TABLE.faults(arrays, reader.attributes):
                reader.refuse(fault)
        return cls.from_arrays(arrays)

    @classmethod
    def from_arrays(cls, reader: ArraySource) -> Table:
        """Assemble a table from its arrays (`schema`), which must be valid."""
        vocabulary = read_vocabulary(reader)
        return cls(
            vocabulary,
            read_constraints(reader, vocabulary.n_codes),
            read_filters(reader),
            read_labels(reader),
            Metadata.read(reader),
        )

    def take(self, filters: Array) -> Table:
        """The filters with these ids (ascending, distinct) as a table with the same vocabulary and labels, without
        subscribers' ids and metadata.

        Only their own data is copied: the work is proportional to the filters taken, plus one pass over the names.
        """
        filters = np.asarray(filters, np.int64)
        offsets, rows = self.by_filter
        size = self.filters.size[filters]
        picked = rows[take_ranges(offsets[filters], size)]
        order = np.argsort(picked)
        constraints = self.constraints.take(picked[order], np.repeat(np.arange(len(filters)), size)[order])
        circle = np.searchsorted(self.filters.area_filter, filters)
        has_area = np.flatnonzero(circle < len(self.filters.area_filter))
        has_area = has_area[self.filters.area_filter[circle[has_area]] == filters[has_area]]
        columns = FilterColumns(
            size=size,
            interface=self.filters.interface[filters],
            area_filter=has_area.astype(FILTER_ID),
            area=self.filters.area[circle[has_area]],
            id_filter=np.zeros(0, FILTER_ID),
            ids=Strings.of(()),
        )
        return Table(self.vocabulary, constraints, columns, self.labels)

    def recoded(self, recoding: TableRecoder) -> Table:
        """The same filters and interfaces under the same ids, in the recoding's larger vocabulary."""
        return recoding.table(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all arrays: tables with one digest have the same content under the same ids, however they are
        stored.
        """
        digest = hashlib.sha256()
        for name, array in self.arrays():
            digest.update(b"%s %d;" % (name.encode(), len(array)))
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    @cached_property
    def by_filter(self) -> tuple[Array, Array]:
        """The constraint rows of each filter: `(offsets i64[n_filters + 1], rows i64[n_constraints])`."""
        return offsets_of(self.filters.size), np.argsort(self.constraints.filter_id, kind="stable")

    def filter(self, filter_id: int) -> Filter:
        """One filter as an object of the model, with its condition."""
        return (
            recompose(self.conjunction(filter_id), self.parts)
            if self.n_visible < self.n_interfaces or self.vocabulary.scopes
            else self.conjunction(filter_id)
        )

    @cached_property
    def parts(self) -> dict[str, list[Filter]]:
        """The filters of each part, by label."""
        return by_label(self.conjunction(i) for i in range(self.n_visible_filters, self.n_filters))

    def conjunction(self, filter_id: int) -> Filter:
        """One filter as the table has it: with the names of parts instead of its condition."""
        if not 0 <= filter_id < self.n_filters:
            raise IndexError(f"filter {filter_id} of {self.n_filters}")
        offsets, rows = self.by_filter
        found = [
            self.constraints.decode(int(row), self.vocabulary) for row in rows[offsets[filter_id] : offsets[filter_id + 1]]
        ]
        at = int(places_in(self.filters.area_filter, filter_id))
        has_area = at < len(self.filters.area_filter) and self.filters.area_filter[at] == filter_id
        circle = Area(*self.filters.area[at].tolist()) if has_area else None
        return Filter(self.label(int(self.filters.interface[filter_id])), tuple(found), circle, self.filter_name(filter_id))

    def filter_name(self, filter_id: int) -> str | None:
        """The id that the subscriber gave to a filter, if any."""
        at = int(places_in(self.filters.id_filter, filter_id))
        named = at < len(self.filters.id_filter) and self.filters.id_filter[at] == filter_id
        return self.filters.ids[at].decode() if named else None

    def filter_names(self, filters: Array) -> list[str | None]:
        """The ids that subscribers gave to some filters i64[n]; None for a filter without one."""
        named = self.filters.id_filter
        if not len(named):
            return [None] * len(filters)
        at = np.minimum(np.searchsorted(named, filters), len(named) - 1)
        found = list(self.filters.ids.take(at))
        return [each.decode() if is_named else None for each, is_named in zip(found, named[at] == filters, strict=True)]

    def iter_filters(self) -> Iterator[Filter]:
        """Every visible filter as an object of the model, in table order: the input of the naive matcher."""
        return (self.filter(i) for i in range(self.n_visible_filters))

    def label(self, interface: int) -> str:
        """The label of an interface id."""
        return self.labels[interface].decode()

    @cached_property
    def op_counts(self) -> dict[tuple[Type, str], int]:
        """Number of constraints of each type and operator, as subscriptions write it."""
        found: dict[tuple[Type, str], int] = {}
        virtual = list(forms_of(self.vocabulary.names))
        first = virtual[0][1] if virtual else self.vocabulary.n_names
        for form, start, stop in [(None, 0, first), *virtual]:
            rows = slice(int(self.constraints.offsets[start]), int(self.constraints.offsets[stop]))
            for kind, n in zip(*(each.tolist() for each in np.unique_counts(self.constraints.kind[rows])), strict=True):
                type_, op = parts_of(kind)
                if form is not None:
                    type_, op = form.type, form.op if form.op is not None else op
                symbol = op.symbol if form is None else f"any {op.symbol}"
                found[type_, symbol] = found.get((type_, symbol), 0) + n
        return found

    @cached_property
    def is_tag_table(self) -> bool:
        """Tells whether every filter only asks for presence: of tags, or of attributes of any type."""
        return self.constraints.only_presence and not self.has_areas

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        mine, others = dict(self.arrays()), dict(other.arrays())
        return mine.keys() == others.keys() and all(
            a.dtype == others[name].dtype and np.array_equal(a, others[name]) for name, a in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]


def _order_of(interface: Array, keys: Array) -> Array:
    """i64[n]: filters by interface, then by content key u64[n, 2].

    The interface and the first bits of the key are packed into one number, which nearly always decides; ties are sorted
    again.
    """
    width = int(interface.max(initial=0)).bit_length()
    first = interface.astype(np.uint64) << np.uint64(64 - width) if width else np.zeros(len(interface), np.uint64)
    first |= keys[:, 0] >> np.uint64(width)
    order = np.argsort(first)
    first = first[order]
    tied = np.append(first[1:] == first[:-1], False)
    tied[1:] |= tied[:-1].copy()
    again = np.flatnonzero(tied)
    rows = order[again]
    order[again] = rows[np.lexsort((keys[rows, 1], keys[rows, 0], first[again]))]
    return order


def load_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """The vocabulary of a table file, without its constraints and filters.  Raises StorageError."""
    with Reader(path, TABLE) as reader:
        vocabulary = read_vocabulary(reader)
        for fault in OUTLINE.faults(dict(vocabulary_arrays(vocabulary)), reader.attributes, reader.declared):
            reader.refuse(fault)
    return vocabulary
