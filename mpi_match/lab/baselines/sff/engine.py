"""Siena Fast Forwarding: the counting algorithm with an index of predicates and pruning.

Carzaniga and Wolf, *Forwarding in a content-based network*, SIGCOMM 2003, and their program SFF, which the papers of CCM and
CLCB compare with (versions 1.9.4 and 1.9.5).

For each attribute of an event the index (`index`) gives the predicates that it satisfies, and each of these the filters that
share it; a filter that is counted as often as it has constraints matches, and so does its interface.  An interface is done
when it has matched, or when the event lacks a name that all of its filters constrain, which is checked before matching (the
selectivity table); its filters are no longer counted.  An event is done when all interfaces are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.lab.baselines.boxes import boxes_of_all
from mpi_match.lab.baselines.event_by_event import EncodedEvents, EventByEvent, EventScratch, areas_of
from mpi_match.lab.baselines.sff import search
from mpi_match.lab.baselines.sff.index import PredicateIndex, selectivity_table
from mpi_match.operators import Form
from mpi_match.table.table import Table

NARROW_NEED = 30
"""The most constraints of a filter for which counters are bytes; then at least four events fit between two resets."""


class Sff(EventByEvent):
    """The forwarding table of one table of filters."""

    name = "sff"

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(table, options)
        constraints, filters, n = table.constraints, table.filters, table.n_filters
        index, (circle, circles) = PredicateIndex.of(table), areas_of(table)
        is_absent = constraints.form == Form.ABSENT
        need = (filters.size - np.bincount(constraints.filter_id[is_absent], minlength=n)).astype(np.uint32)
        sides, side_filter = _sides(table, as_constraints=options["area"] == "constraints")
        need[side_filter[0]] += len(sides)
        names, exclude_offsets, exclude = selectivity_table(table, int(options["rounds"]))
        largest = int(need.max(initial=0))
        self._counter = np.dtype(np.uint8 if largest <= NARROW_NEED else np.uint32)
        state = np.zeros(search.SFF_N_STATE, np.int64)
        state[search.SFF_N_INTERFACES] = len(np.unique(filters.interface))
        state[search.SFF_LEAST_NEED] = need[need > 0].min(initial=largest)
        state[search.SFF_STEP] = 2 * (largest + 1)
        state[search.SFF_MOST] = 2 ** (8 * self._counter.itemsize) - 1
        self._first_state, self._n_names, self._most_runs = state, len(index.group_offsets) - 1, index.most_runs
        arrays: dict[int, tuple[Array, Any]] = {
            search.SFF_GROUP_OFFSETS: (index.group_offsets, np.int64),
            search.SFF_GROUPS: (index.groups, np.int64),
            search.SFF_LO: (index.lo, np.uint32),
            search.SFF_HI: (index.hi, np.uint32),
            search.SFF_ROWS: (index.rows, np.int64),
            search.SFF_ABSENT: (index.absent, np.int64),
            search.SFF_MEMBER_OFFSETS: (index.member_offsets, np.int64),
            search.SFF_MEMBER_CODE: (index.member_code, np.uint32),
            search.SFF_MEMBER_LIST: (index.member_list, np.uint32),
            search.SFF_FILTER: (constraints.filter_id, np.uint32),
            search.SFF_NEED: (need, np.uint32),
            search.SFF_INTERFACE: (filters.interface, np.uint32),
            search.SFF_CIRCLE: (circle, np.int32),
            search.SFF_CIRCLES: (circles, np.float64),
            search.SFF_ALWAYS: (np.flatnonzero(need == 0).astype(np.uint32), np.uint32),
            search.SFF_SELECTIVE: (names, np.int64),
            search.SFF_EXCLUDE_OFFSETS: (exclude_offsets, np.int64),
            search.SFF_EXCLUDE: (exclude, np.uint32),
            search.SFF_SIDES: (sides, np.float64),
            search.SFF_SIDE_FILTER: (side_filter, np.uint32),
        }
        self.bind(arrays, shared=(search.SFF_FILTER, search.SFF_INTERFACE, search.SFF_CIRCLES))

    def new_scratch(self) -> tuple[EventScratch, dict[int, tuple[Array, object]]]:
        scratch = SffScratch(self._first_state.copy(), np.zeros(self._table.n_filters, self._counter))
        return scratch, {
            search.SFF_PRESENCE: (np.zeros(self._n_names, np.int64), np.int64),
            search.SFF_DONE: (np.zeros(self._table.n_interfaces, np.int64), np.int64),
            search.SFF_RUNS: (np.empty((self._most_runs, 2), np.int64), np.int64),
            search.SFF_STATE: (scratch.state, np.int64),
            search.SFF_PROGRESS: (scratch.progress, np.int64),
        }

    def find(self, filters: bool, events: EncodedEvents, scratch: SffScratch) -> None:
        search.match_events(filters, events, scratch.counters, scratch.bound.table, scratch.pairs)


def _sides(table: Table, *, as_constraints: bool) -> tuple[Array, Array]:
    """The constraints on coordinates, one for each side of a box around an area.

    Returns, for each of least x, least y, greatest x and greatest y, the ends f64[4, k], ascending, and the filters with
    these ends u32[4, k]; k is 0 unless areas are constraints.
    """
    ends = boxes_of_all(table.filters.area if as_constraints else table.filters.area[:0]).T
    order = np.argsort(ends, axis=1, kind="stable")
    filters = table.filters.area_filter.astype(np.uint32)
    return np.take_along_axis(ends, order, axis=1), filters[order] if len(filters) else order.astype(np.uint32)


class SffScratch(EventScratch):
    """Scratch with the counters of the current event."""

    def __init__(self, state: Array, counters: Array) -> None:
        super().__init__(state)
        self.counters = counters

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.counters.nbytes
