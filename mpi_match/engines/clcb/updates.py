"""What stands on which shelf while the table changes: books on the host, for everything but the areas themselves.

    change              in the books                                      on the GPU
    MOVE                                                                  24 bytes, in constant time
    REMOVE              the id is free                                    the filter moves to nowhere
    REMOVE_INTERFACE    finds its filters                                 as REMOVE
    ADD                 the filters of an `update` become a shelf         that shelf, perhaps joined with smaller ones

The paper moves areas, which is what happens all the time, and leaves the rest to making tables anew.  Anew is what shelves
are, but not the whole table each time: a new shelf takes the one before it with it when that is not much larger, and so on,

    before     2,500,000   40,000   3,000           add 200:   3,000 + 200
    after      2,500,000   40,000   3,200           there are few shelves, and a filter is on the move only now and then

so that shelves are few (each costs an event two launches), and the work for an added filter grows with the logarithm of the
number of filters.  What was removed is left behind when its shelf is joined with another.

A filter's *number* counts through all shelves, one after the other; filters that an update adds have the numbers after
those until they are on a shelf.
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
from mpi_match.model import LISTS, Change
from mpi_match.table.constraints import CODE, FILTER_ID, Constraints
from mpi_match.table.table import Table

GROWTH = 8
"""A shelf is joined with the one before it unless that is this many times as large ..."""
JOINED_AT_ONCE = 4096
"""... and has more filters than this."""
_GONE = -1
_MOVE = int(Change.MOVE)  # NumPy takes four microseconds to compare an item with an enum


class Stand(NamedTuple):
    """Filters that are there: their table (with interfaces and present areas) and their ids."""

    table: Table
    ids: Array


class SegmentSlots:
    """The shelves of an engine, and where each filter is.

    `make(table, ids)` puts filters on a new shelf.  `shelves` begins with that of the table; `n_filters` and `n_interfaces`
    bound the ids.
    """

    def __init__(self, table: Table, make: Callable[[Table, Array], Segment]) -> None:
        self._make = make
        self.n_filters, self.n_interfaces = table.n_filters, table.n_interfaces
        self.shelves = [make(table, np.arange(table.n_filters))]
        self._first = offsets_of(np.array([table.n_filters]))

    @cached_property
    def _where(self) -> Array:
        """i64[at least n_filters]: number of the filter with each id, or _GONE."""
        return np.arange(self.n_filters)

    def update(self, changes: Changes) -> bool:
        """Let changes take effect, in order.  Are the shelves others now, or the bounds of ids?"""
        if changes.kind.size == 1 and changes.kind.item(0) == _MOVE:  # one move: some microseconds, so each counts
            number, shelf = self._where.item(changes.target.item(0)), self.shelves[0]
            if number >= shelf.n_filters:
                at = int(np.searchsorted(self._first, number, side="right")) - 1
                number, shelf = number - int(self._first[at]), self.shelves[at]
            shelf.circles.put(number, changes.area)
            return False
        bounds = self.n_filters, self.n_interfaces
        self.n_filters, self.n_interfaces = changes.n_filters, changes.n_interfaces
        if len(self._where) < self.n_filters:
            more = max(self.n_filters, len(self._where) * 9 // 8) - len(self._where)
            self._where = np.append(self._where, np.full(more, _GONE))
        coming = _Coming(changes, int(self._first[-1]))
        for kind, run in runs(changes.kind):
            target = changes.target[run].astype(np.int64)
            if kind == Change.MOVE:
                self._place(self._where[target], changes.area[run], coming)
            elif kind == Change.ADD:
                self._where[target] = coming.take(run)
            else:
                gone = target if kind == Change.REMOVE else self._filters_of(target, coming)
                self._place(self._where[gone], np.tile(NOWHERE, (len(gone), 1)), coming)
                self._where[gone] = _GONE
        if (came := coming.stand()) is not None:
            self._shelve(came)
        return came is not None or bounds != (self.n_filters, self.n_interfaces)

    def _place(self, numbers: Array, circles: Array, coming: _Coming) -> None:
        """Let filters have new circles."""
        shelf_of = np.searchsorted(self._first, numbers, side="right") - 1
        for at, shelf in enumerate(self.shelves):
            some = np.flatnonzero(shelf_of == at) if len(self.shelves) > 1 or coming.any else slice(None)
            if len(numbers[some]):
                shelf.move(numbers[some] - self._first[at], circles[some])
        if coming.any:
            some = np.flatnonzero(shelf_of == len(self.shelves))
            coming.area[numbers[some] - self._first[-1]] = circles[some]

    def _filters_of(self, interfaces: Array, coming: _Coming) -> Array:
        """Ids of the filters that are there on these interfaces."""
        found = [coming.ids[np.isin(coming.interface, interfaces)]] if coming.any else []
        numbers = [self._first[-1] + np.flatnonzero(np.isin(coming.interface, interfaces))] if coming.any else []
        for first, shelf in zip(self._first, self.shelves, strict=False):
            order, interface = shelf.by_interface
            left, right = np.searchsorted(interface, interfaces), np.searchsorted(interface, interfaces, side="right")
            some = order[take_ranges(left, right - left)]
            found.append(shelf.ids[some])
            numbers.append(first + some)
        ids, number = np.concatenate(found).astype(np.int64), np.concatenate(numbers)
        return np.unique(ids[self._where[ids] == number])

    def _shelve(self, came: Stand) -> None:
        """Put filters on a new shelf, together with those of the shelves before it that are not much larger."""
        size = came.table.n_filters
        stands = [came]
        while self.shelves and self.shelves[-1].n_filters <= max(GROWTH * size, JOINED_AT_ONCE):
            shelf = self.shelves.pop()
            areas = shelf.areas()
            there = np.flatnonzero(~np.isnan(areas[:, 2]))
            stands.insert(0, Stand(_with_areas(shelf.table.take(there), areas[there]), shelf.ids[there]))
            size += len(there)
            del shelf  # its memory is free before the new one needs as much
        ids = np.concatenate([stand.ids for stand in stands])
        self.shelves.append(self._make(union([stand.table for stand in stands]), ids))
        self._first = offsets_of(np.array([shelf.n_filters for shelf in self.shelves]))
        self._where[ids] = self._first[-2] + np.arange(len(ids))


class _Coming:
    """The filters that changes add, until they are on a shelf: in the order of the changes, with numbers from `first`."""

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
        """The numbers of the filters that a run of changes adds; from here on they are there."""
        numbers = self._number[run]
        self.area[numbers - self._first] = self._areas[self._row[numbers - self._first]]
        return numbers

    def stand(self) -> Stand | None:
        """Those that are still there; None when there are none."""
        there = np.flatnonzero(~np.isnan(self.area[:, 2]))
        if not len(there) or self._added is None:
            return None
        there = there[np.argsort(self._row[there])]
        table = self._added.take(self._row[there])
        table = replace(table, filters=replace(table.filters, interface=self.interface[there]))
        return Stand(_with_areas(table, self.area[there]), self.ids[there])


def _with_areas(table: Table, areas: Array) -> Table:
    """The table with other areas f64[n_filters, 3]."""
    has_area = np.flatnonzero(np.isfinite(areas[:, 2]))
    return replace(table, filters=replace(table.filters, area_filter=has_area.astype(FILTER_ID), area=areas[has_area]))


def union(tables: Sequence[Table]) -> Table:
    """The filters of tables with one vocabulary, one table after the other, as a table; interfaces are taken as they are.

    Rows are grouped by name and kind, and not sorted beyond that.
    """
    if len(tables) == 1:
        return tables[0]
    parts = [table.constraints for table in tables]
    n_names = tables[0].vocabulary.n_names
    bases = offsets_of(np.array([table.n_filters for table in tables]))[:-1].astype(FILTER_ID)
    n_sets = np.array([np.diff(part.set_offsets) for part in parts])
    sets_before = np.cumsum(n_sets, axis=0) - n_sets  # of a name, in the tables before

    def renumbered(field: str) -> Array:
        """`lo` or `hi` of all rows, where the number of a set counts those of the tables before."""
        columns = (
            getattr(part, field) + before[part.name_id] * np.isin(part.op, list(LISTS))
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
