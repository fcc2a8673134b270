"""The reference: look at every constraint of every filter, one after the other, in plain Python.

Slow on purpose: nothing here is clever enough to be wrong.  It is the naive matcher `model.covers` moved to code space,
and the shortest complete statement of what an encoded constraint means; every other engine is a faster way to the same
answers.
"""

from __future__ import annotations

import numpy as np

from mpi_match.batch import EventBatch
from mpi_match.changes import Changes
from mpi_match.engines import check_batch, refuse_changes
from mpi_match.matches import Matches
from mpi_match.model import Area, Op, Type, inside
from mpi_match.table import Table
from mpi_match.vocabulary import ATOM_OPS


class Reference:
    """Scans the table for every event."""

    name = "reference"
    device = "cpu, 1 thread"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        refuse_changes(self.name, live)
        self._table = table
        self._offsets, self._rows = table.by_filter
        self._name_id = table.constraints.name_id
        self._areas = {
            int(f): Area(*circle.tolist()) for f, circle in zip(table.filters.area_filter, table.filters.area, strict=True)
        }

    def update(self, changes: Changes) -> None:
        """See `Engine.update`."""
        refuse_changes(self.name, True)

    @property
    def nbytes(self) -> int:
        """See `Engine.nbytes`."""
        return self._name_id.nbytes

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """See `Engine.match`."""
        check_batch(self._table, batch)
        interface = self._table.filters.interface
        bounds, found = batch.bounds, []
        shift = self._table.vocabulary.shift
        for event in range(batch.n_events):
            packed = batch.attributes[bounds[event] : bounds[event + 1]].tolist()
            codes = {attribute >> shift: attribute & ((1 << shift) - 1) for attribute in packed}
            x, y = (np.nan, np.nan) if batch.location is None else batch.location[event].tolist()
            location = None if x != x else (x, y)
            hits = [f for f in range(self._table.n_filters) if self._matches(f, codes, location)]
            found.append(hits if filters else [int(interface[f]) for f in hits])
        return Matches.of(found, self._table.n_filters if filters else self._table.n_interfaces)

    def _matches(self, filter_id: int, codes: dict[int, int], location: tuple[float, float] | None) -> bool:
        area = self._areas.get(filter_id)
        if area is not None and not inside(location, area):
            return False
        rows = self._rows[self._offsets[filter_id] : self._offsets[filter_id + 1]]
        return all(self._satisfied(int(row), codes) for row in rows)

    def _satisfied(self, row: int, codes: dict[int, int]) -> bool:
        """Is constraint `row` satisfied by an event with these codes (name id -> code)?"""
        constraints, vocabulary = self._table.constraints, self._table.vocabulary
        name, lo, hi = int(self._name_id[row]), int(constraints.lo[row]), int(constraints.hi[row])
        op, type_ = Op(int(constraints.op[row])), Type(int(constraints.type[row]))
        if op in ATOM_OPS:
            return vocabulary.n_names + int(vocabulary.atom_offsets[name]) + lo in codes
        code = codes.get(name)
        if op is Op.ABSENT or code is None:
            return op is Op.ABSENT and code is None
        first, last = (int(bound[name]) for bound in vocabulary.segment(type_))
        if not first <= code <= last:
            return False
        if op in (Op.IN, Op.NOT_IN):
            at = int(constraints.set_offsets[name]) + lo
            listed = constraints.set_codes[constraints.set_code_offsets[at] : constraints.set_code_offsets[at + 1]]
            return (code in listed.tolist()) == (op is Op.IN)
        return (lo <= code <= hi) != (op is Op.NE)


ENGINE = Reference
