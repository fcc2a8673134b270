"""The segments of CLCB while the table changes.  The host keeps everything except the areas.

    change              on the host                                       on the GPU
    MOVE                                                                  24 bytes, in constant time
    REMOVE              the id becomes free                               the filter moves to NOWHERE
    REMOVE_INTERFACE    finds the interface's filters                     as REMOVE
    ADD                 the filters of an `update` become a segment       that segment, perhaps merged with smaller ones

The paper moves areas, the most frequent change, and rebuilds tables for other changes.  Here only a segment is rebuilt.  A
new segment is merged with the one before it unless that is much larger, and so on, as in an LSM tree:

    before     2,500,000   40,000   3,000           add 200:   3,000 + 200
    after      2,500,000   40,000   3,200

So segments stay few (each costs an event two launches), and the work for an added filter grows with the logarithm of the
number of filters.  Removed filters are dropped when their segment is merged.

The *number* of a filter counts through all segments in order; filters that an update adds have the numbers after those until
they are in a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners, take_ranges
from mpi_match.changes.changes import Changes, runs
from mpi_match.engines.clcb.segment import ANYWHERE, NOWHERE, Segment
from mpi_match.model import Change
from mpi_match.table.constraints import CODE, FILTER_ID, Constraints
from mpi_match.table.kinds import IS_LISTED
from mpi_match.table.table import Table

GROWTH = 8
"""A segment is merged with the one before it unless that is more than this many times as large ..."""
JOINED_AT_ONCE = 4096
"""... and has more filters than this."""
_GONE = -1
_MOVE = int(Change.MOVE)  # NumPy takes four microseconds to compare an item with an enum


class LiveSubset(NamedTuple):
    """The present filters: their table (with interfaces and present areas) and their ids."""

    table: Table
    ids: Array


class SegmentSlots:
    """The segments of an engine, and the position of each filter in them.

    `make(table, ids)` makes a segment of filters.  The first of `segments` is that of the table; `n_filters` and
    `n_interfaces` bound the ids.
    """

    def __init__(self, table: Table, make: Callable[[Table, Array], Segment]) -> None:
        self._make = make
        self.n_filters, self.n_interfaces = table.n_filters, table.n_interfaces
        self.segments = [make(table, np.arange(table.n_filters))]
        self._first = offsets_of(np.array([table.n_filters]))

    @cached_property
    def _where(self) -> Array:
        """i64[at least n_filters]: the number of the filter with each id, or _GONE."""
        return np.arange(self.n_filters)

    def update(self, changes: Changes) -> bool:
        """Apply changes in order.  Returns True if the segments or the bounds of ids have changed."""
        if changes.kind.size == 1 and changes.kind.item(0) == _MOVE:  # one move takes microseconds, so each counts
            number, segment = self._where.item(changes.target.item(0)), self.segments[0]
            if number >= segment.n_filters:
                at = int(np.searchsorted(self._first, number, side="right")) - 1
                number, segment = number - int(self._first[at]), self.segments[at]
            segment.put(number, changes.area)
            return False
        bounds = self.n_filters, self.n_interfaces
        self.n_filters, self.n_interfaces = changes.n_filters, changes.n_interfaces
        if len(self._where) < self.n_filters:
            more = max(self.n_filters, len(self._where) * 9 // 8) - len(self._where)
            self._where = np.append(self._where, np.full(more, _GONE))
        added = _AddedFilters(changes, int(self._first[-1]))
        for kind, run in runs(changes.kind):
            target = changes.target[run].astype(np.int64)
            if kind == Change.MOVE:
                self._place(self._where[target], changes.area[run], added)
            elif kind == Change.ADD:
                self._where[target] = added.take(run)
            elif kind != Change.CONSOLIDATE:  # segments are never staged
                gone = target if kind == Change.REMOVE else self._filters_of(target, added)
                self._place(self._where[gone], np.tile(NOWHERE, (len(gone), 1)), added)
                self._where[gone] = _GONE
        if (new := added.subset()) is not None:
            self._add_segment(new)
        return new is not None or bounds != (self.n_filters, self.n_interfaces)

    def _place(self, numbers: Array, circles: Array, added: _AddedFilters) -> None:
        """Set the circles of filters."""
        segment_of = np.searchsorted(self._first, numbers, side="right") - 1
        for at, segment in enumerate(self.segments):
            some = np.flatnonzero(segment_of == at) if len(self.segments) > 1 or added.any else slice(None)
            if len(numbers[some]):
                segment.move(numbers[some] - self._first[at], circles[some])
        if added.any:
            some = np.flatnonzero(segment_of == len(self.segments))
            added.area[numbers[some] - self._first[-1]] = circles[some]

    def _filters_of(self, interfaces: Array, added: _AddedFilters) -> Array:
        """Ids of the filters of these interfaces."""
        found = [added.ids[np.isin(added.interface, interfaces)]] if added.any else []
        numbers = [self._first[-1] + np.flatnonzero(np.isin(added.interface, interfaces))] if added.any else []
        for first, segment in zip(self._first, self.segments, strict=False):
            order, interface = segment.by_interface
            left, right = np.searchsorted(interface, interfaces), np.searchsorted(interface, interfaces, side="right")
            some = order[take_ranges(left, right - left)]
            found.append(segment.ids[some])
            numbers.append(first + some)
        ids, number = np.concatenate(found).astype(np.int64), np.concatenate(numbers)
        return np.unique(ids[self._where[ids] == number])

    def _add_segment(self, new: LiveSubset) -> None:
        """Make a segment of added filters, merged with the preceding segments that are not much larger."""
        size = new.table.n_filters
        subsets = [new]
        while self.segments and self.segments[-1].n_filters <= max(GROWTH * size, JOINED_AT_ONCE):
            segment = self.segments.pop()
            areas = segment.areas()
            there = np.flatnonzero(~np.isnan(areas[:, 2]))
            subsets.insert(0, LiveSubset(_with_areas(segment.table.take(there), areas[there]), segment.ids[there]))
            size += len(there)
            del segment  # frees its memory before the new one needs as much
        ids = np.concatenate([subset.ids for subset in subsets])
        self.segments.append(self._make(union([subset.table for subset in subsets]), ids))
        self._first = offsets_of(np.array([segment.n_filters for segment in self.segments]))
        self._where[ids] = self._first[-2] + np.arange(len(ids))


class _AddedFilters:
    """The filters that changes add, until they are in a segment: in the order of the changes, numbered from `first`."""

    def __init__(self, changes: Changes, first: int) -> None:
        adds = np.flatnonzero(changes.kind == Change.ADD)
        self._added, self._first, self._row = changes.added, first, changes.row[adds]
        self._number = np.zeros(len(changes), np.int64)
        self._number[adds] = first + np.arange(len(adds))
        self.any = len(adds) > 0
        self.ids, self.interface = changes.target[adds], changes.interface[adds]
        self.area = np.tile(NOWHERE, (len(adds), 1))
        self._areas = np.tile(ANYWHERE, (0 if self._added is None else self._added.n_filters, 1))
        if self._added is not None:
            self._areas[self._added.filters.area_filter] = self._added.filters.area

    def take(self, run: slice) -> Array:
        """The numbers of the filters that a run of changes adds; from here on they exist."""
        numbers = self._number[run]
        self.area[numbers - self._first] = self._areas[self._row[numbers - self._first]]
        return numbers

    def subset(self) -> LiveSubset | None:
        """The added filters that still exist; None if there are none."""
        there = np.flatnonzero(~np.isnan(self.area[:, 2]))
        if not len(there) or self._added is None:
            return None
        there = there[np.argsort(self._row[there])]
        table = self._added.take(self._row[there])
        table = replace(table, filters=replace(table.filters, interface=self.interface[there]))
        return LiveSubset(_with_areas(table, self.area[there]), self.ids[there])


def _with_areas(table: Table, areas: Array) -> Table:
    """The table with other areas f64[n_filters, 3]."""
    has_area = np.flatnonzero(np.isfinite(areas[:, 2]))
    return replace(table, filters=replace(table.filters, area_filter=has_area.astype(FILTER_ID), area=areas[has_area]))


def union(tables: Sequence[Table]) -> Table:
    """Concatenate the filters of tables with one vocabulary into one table; interface ids are kept.

    Rows are grouped by name and kind, and otherwise unsorted.
    """
    if len(tables) == 1:
        return tables[0]
    parts = [table.constraints for table in tables]
    n_names = tables[0].vocabulary.n_names
    bases = offsets_of(np.array([table.n_filters for table in tables]))[:-1].astype(FILTER_ID)
    n_sets = np.array([np.diff(part.set_offsets) for part in parts])
    sets_before = np.cumsum(n_sets, axis=0) - n_sets  # for each name, in the tables before

    def renumbered(field: str) -> Array:
        """`lo` or `hi` of all rows, with the numbers of sets shifted by those of the tables before."""
        columns = (
            getattr(part, field) + before[part.name_id] * IS_LISTED[part.kind]
            for part, before in zip(parts, sets_before, strict=True)
        )
        return np.concatenate([column.astype(CODE) for column in columns])

    name = np.concatenate([part.name_id for part in parts])
    kind = np.concatenate([part.kind for part in parts])
    order = np.argsort(name << 8 | kind, kind="stable")
    set_name = np.concatenate([owners(part.set_offsets) for part in parts])
    set_order = np.argsort(set_name, kind="stable")
    lengths = np.concatenate([np.diff(part.set_code_offsets) for part in parts])
    starts = offsets_of(lengths)[:-1]
    constraints = Constraints(
        offsets=offsets_of(np.bincount(name, minlength=n_names)),
        kind=kind[order],
        lo=renumbered("lo")[order],
        hi=renumbered("hi")[order],
        filter_id=np.concatenate([part.filter_id + base for part, base in zip(parts, bases, strict=True)])[order],
        set_offsets=offsets_of(np.bincount(set_name, minlength=n_names)),
        set_code_offsets=offsets_of(lengths[set_order]),
        set_codes=np.concatenate([part.set_codes for part in parts])[take_ranges(starts[set_order], lengths[set_order])],
    )
    columns = [table.filters for table in tables]
    filters = replace(
        columns[0],
        size=np.concatenate([column.size for column in columns]),
        interface=np.concatenate([column.interface for column in columns]),
        area_filter=np.concatenate([column.area_filter + base for column, base in zip(columns, bases, strict=True)]),
        area=np.concatenate([column.area for column in columns]),
        id_filter=columns[0].id_filter[:0],
        ids=columns[0].ids.take(np.zeros(0, np.int64)),
    )
    return Table(tables[0].vocabulary, constraints, filters, tables[0].labels)
