"""The reference engine: tests every constraint of every filter, one after another, in plain Python.

It is slow on purpose: the code is as simple as possible.  It is the naive matcher `model.match_naive` translated to codes,
and the shortest complete definition of encoded constraints and changes; every other engine is a faster way to the same
answers.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from mpi_match.changes.changes import Changes
from mpi_match.engines.base import Engine, matching, updating
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.model import Area, Change, inside
from mpi_match.operators import Form
from mpi_match.table.kinds import parts_of
from mpi_match.table.table import Table


class Reference(Engine):
    """Scans all filters for every event."""

    name = "reference"
    takes_changes = True
    device = "cpu, 1 thread"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        self._table, self._live = table, live
        self._sharing = ScratchSets(self, lambda _: Scratch())
        self._n_filters, self._n_interfaces = table.n_filters, table.n_interfaces
        source = _Source(table)
        self._filters = {i: source.filter(i, interface) for i, interface in enumerate(table.filters.interface.tolist())}

    @updating
    def update(self, changes: Changes) -> None:
        """Apply each change literally to the present filters."""
        source = None if changes.added is None else _Source(changes.added)
        self._n_filters, self._n_interfaces = changes.n_filters, changes.n_interfaces
        for i, target in enumerate(changes.target.tolist()):
            match Change(int(changes.kind[i])):
                case Change.MOVE:
                    self._filters[target] = self._filters[target]._replace(area=Area(*changes.area[i].tolist()))
                case Change.ADD if source is not None:
                    self._filters[target] = source.filter(int(changes.row[i]), int(changes.interface[i]))
                case Change.REMOVE:
                    del self._filters[target]
                case Change.REMOVE_INTERFACE:
                    self._filters = {f: item for f, item in self._filters.items() if item.interface != target}

    @property
    def nbytes(self) -> int:
        """An estimate, because the filters are Python objects."""
        return sum(sys.getsizeof(item) + sys.getsizeof(item.rows) for item in self._filters.values())

    @matching
    def match(self, batch: EventBatch, _: Scratch, filters: bool) -> Matches:
        bounds, found = batch.bounds, []
        shift = self._table.vocabulary.shift
        for event in range(batch.n_events):
            packed = batch.attributes[bounds[event] : bounds[event + 1]].tolist()
            codes = {attribute >> shift: attribute & ((1 << shift) - 1) for attribute in packed}
            x, y = (np.nan, np.nan) if batch.location is None else batch.location[event].tolist()
            location = None if x != x else (x, y)
            hits = [f for f, item in self._filters.items() if item.matches(codes, location)]
            found.append(hits if filters else [self._filters[f].interface for f in hits])
        return Matches.of(found, self._n_filters if filters else self._n_interfaces)


class _Filter(NamedTuple):
    """A present filter: its interface, its area, and its constraints as rows of a table."""

    interface: int
    area: Area | None
    source: _Source
    rows: list[int]

    def matches(self, codes: dict[int, int], location: tuple[float, float] | None) -> bool:
        """Tells whether the filter matches an event with these codes (name id -> code) at this location."""
        if self.area is not None and not inside(location, self.area):
            return False
        return all(self.source.satisfied(row, codes) for row in self.rows)


class _Source:
    """A table whose filters the engine matches: the engine's own, or the added filters of an update."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._offsets, self._rows = table.by_filter
        self._name_id = table.constraints.name_id
        self._areas = {
            int(f): Area(*circle.tolist()) for f, circle in zip(table.filters.area_filter, table.filters.area, strict=True)
        }

    def filter(self, filter_id: int, interface: int) -> _Filter:
        """One filter of the table, assigned to an interface."""
        rows = self._rows[self._offsets[filter_id] : self._offsets[filter_id + 1]]
        return _Filter(interface, self._areas.get(filter_id), self, rows.tolist())

    def satisfied(self, row: int, codes: dict[int, int]) -> bool:
        """Tells whether an event with these codes (name id -> code) satisfies constraint `row`."""
        constraints, vocabulary = self._table.constraints, self._table.vocabulary
        name, lo, hi = int(self._name_id[row]), int(constraints.lo[row]), int(constraints.hi[row])
        type_, op = parts_of(int(constraints.kind[row]))
        form = op.record.form
        if form is Form.ATOM:
            return vocabulary.n_names + int(vocabulary.atom_offsets[name]) + lo in codes
        code = codes.get(name)
        if form is Form.ABSENT or code is None:
            return form is Form.ABSENT and code is None
        first, last = (int(bound[name]) for bound in vocabulary.segment(type_))
        if not first <= code <= last:
            return False
        if op.record.is_listed:
            at = int(constraints.set_offsets[name]) + lo
            listed = constraints.set_codes[constraints.set_code_offsets[at] : constraints.set_code_offsets[at + 1]]
            return (code in listed.tolist()) == (form is Form.IN_LIST)
        return (lo <= code <= hi) != (form is Form.UNEQUAL)
