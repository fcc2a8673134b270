"""Engines whose compiled code matches one event after the other, on the calling thread, as the published baselines do.

The code finds pairs (event, id), u64 `event << 32 | id`, in any order within an event.  It counts all pairs and stores as
many as fit; the next call has more room and begins with the first event whose pairs did not fit.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.array_pointers import PointerTable
from mpi_match.compute.circle import in_circle_of
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.search import lower_bound as lower_bound_of
from mpi_match.engines.base import Engine, matching
from mpi_match.engines.option import OptionValue
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

NEXT_EVENT, PAIRS_BEFORE, PAIRS_COUNTED = range(3)
"""Words of the progress i64[3]: the first unmatched event, the number of pairs before it, and that number with its own
pairs."""
FIRST_PAIRS = 1024
"""Initial room, in pairs."""
_ID = np.uint64(2**32 - 1)
_NOWHERE = np.full((1, 2), np.nan)

in_circle: Any = in_circle_of(numba.njit, operator.add, operator.mul)
lower_bound: Any = nested(lower_bound_of)


class EncodedEvents(NamedTuple):
    """Events in the form that the compiled code reads.

    bounds      i64[n + 1]  events in `attributes`
    attributes  u64, packed
    location    f64[n, 2], or f64[1, 2] of NaN for all
    shift       width of a code
    """

    bounds: Array
    attributes: Array
    location: Array
    shift: int


@nested
def event_at(events: EncodedEvents, number: int) -> tuple:
    """The attributes of an event, with its number, x and y."""
    bounds, attributes, location, _ = events
    place = min(number, len(location) - 1)
    return attributes[bounds[number] : bounds[number + 1]], (number, location[place, 0], location[place, 1])


@nested
def is_in_area(f: Any, event: Any, circle: Any, circles: Any) -> Any:
    """Returns whether an event is in the area of filter f, or the filter has none.  `circle` and `circles` are from
    `areas_of`."""
    if len(circle) == 0 or circle[f] < 0:
        return True
    c, (_, x, y) = circle[f], event
    return in_circle(x - circles[c, 0], y - circles[c, 1], circles[c, 2])


@nested
def note(event: tuple, id_: Int, progress: Array, pairs: Array) -> None:
    """Count a pair, and store it if there is room."""
    if progress[PAIRS_COUNTED] < len(pairs):
        pairs[progress[PAIRS_COUNTED]] = event[0] << 32 | np.int64(id_)
    progress[PAIRS_COUNTED] += 1


def areas_of(table: Table) -> tuple[Array, Array]:
    """The circle of each filter, i32[n_filters] (-1: none; empty if no filter has one), and the circles f64[k, 3]."""
    circle = np.full(table.n_filters if table.has_areas else 0, -1, np.int32)
    circle[table.filters.area_filter] = np.arange(len(table.filters.area))
    return circle, table.filters.area


class EventScratch(Scratch):
    """The scratch arrays of a match.

    progress   i64[3], see above
    pairs      u64, room for the pairs that are found
    state      i64, words of the engine's own
    bound      all arrays of the engine, and those that only this match writes
    """

    bound: PointerTable

    def __init__(self, state: Array) -> None:
        super().__init__()
        self.progress, self.pairs, self.state = np.zeros(3, np.int64), np.empty(FIRST_PAIRS, np.uint64), state
        self.n_bytes = 0

    @property
    def nbytes(self) -> int:
        return self.n_bytes + self.pairs.nbytes


class EventByEvent(Engine):
    """An engine that implements `find` and `new_scratch`, with the arrays that its compiled code reads and writes.

    Arrays that are `shared` with the table are counted in `shared_nbytes`, not in `nbytes`.
    """

    device = "cpu, 1 thread"
    compiles = True
    _sharing: ScratchSets[EventScratch]

    def __init__(self, table: Table, options: Mapping[str, OptionValue]) -> None:
        self._table, self.options = table, dict(options)

    def bind(self, arrays: Mapping[int, tuple[Array, object]], shared: tuple[int, ...]) -> None:
        """Set the arrays that matches read, by number, each with its type; called once, at the end of the constructor."""
        self._arrays = dict(arrays)
        self._nbytes = sum(array.nbytes for k, (array, _) in arrays.items() if k not in shared)
        self._shared_nbytes = sum(array.nbytes for k, (array, _) in arrays.items() if k in shared)
        self._sharing = ScratchSets(self, EventByEvent._bound_scratch)

    @abstractmethod
    def new_scratch(self) -> tuple[EventScratch, dict[int, tuple[Array, object]]]:
        """New scratch, and the arrays that a match writes, in the form that `bind` takes."""

    def _bound_scratch(self) -> EventScratch:
        scratch, own = self.new_scratch()
        scratch.n_bytes = sum(array.nbytes for array, _ in own.values())
        scratch.bound = PointerTable({**self._arrays, **own})
        return scratch

    @property
    def nbytes(self) -> int:
        return self._nbytes + sum(scratch.nbytes for scratch in self._sharing.sets)

    @property
    def shared_nbytes(self) -> int:
        return self._shared_nbytes

    @abstractmethod
    def find(self, filters: bool, events: EncodedEvents, scratch: Any) -> None:
        """Find pairs of the events from `progress` on, until the last event or the end of `pairs`."""

    @matching
    def match(self, batch: EventBatch, scratch: Any, filters: bool) -> Matches:
        table, progress = self._table, scratch.progress
        location = _NOWHERE if batch.location is None else batch.location.copy()
        events = EncodedEvents(batch.bounds, batch.attributes.astype(np.uint64), location, table.vocabulary.shift)
        progress[:] = 0
        while True:
            self.find(filters, events, scratch)
            n_found = int(progress[PAIRS_BEFORE])
            if progress[NEXT_EVENT] == batch.n_events:
                break
            more = np.empty(2 * int(progress[PAIRS_COUNTED]), np.uint64)
            more[:n_found] = scratch.pairs[:n_found]
            scratch.pairs = more
        found = np.sort(scratch.pairs[:n_found])
        if batch.n_events == 1:
            counts = np.array([n_found])
        else:
            counts = np.bincount((found >> np.uint64(32)).astype(np.int64), minlength=batch.n_events)
        return Matches.from_counts(counts, found & _ID, table.n_filters if filters else table.n_interfaces)
