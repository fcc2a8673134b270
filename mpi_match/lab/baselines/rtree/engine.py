"""An R*-tree of the filters' areas, whose candidates are checked filter by filter.

Beckmann, Kriegel, Schneider and Seeger, *The R*-tree: an efficient and robust access method for points and rectangles*,
SIGMOD 1990; the baseline in figures 3 to 5 of CLCB's paper.  The tree is that of libspatialindex (PyPI `rtree`), with its
own defaults, loaded in bulk; it holds the bounding boxes of all circles.  Filters without an area, or with an area whose
square overflows, are candidates of every event.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.changes.changes import Changes
from mpi_match.compute.forks import renew_in_child
from mpi_match.engines.base import fixed_only, updating
from mpi_match.engines.keyed.index.filter_rows import FilterRows, too_large
from mpi_match.environment.machine import resident_bytes
from mpi_match.errors import EngineError
from mpi_match.lab.baselines.boxes import LARGEST, LEAST, WIDER, boxes, fits
from mpi_match.lab.baselines.candidate_check import OF_TABLE, candidate_arrays, candidate_scratch
from mpi_match.lab.baselines.event_by_event import (
    NEXT_EVENT,
    PAIRS_COUNTED,
    EncodedEvents,
    EventByEvent,
    EventScratch,
    areas_of,
)
from mpi_match.lab.baselines.rtree import check
from mpi_match.model import Change
from mpi_match.table.table import Table

try:
    from rtree import index
except (ImportError, OSError) as error:  # OSError: without libspatialindex
    raise EngineError(f"engine 'rtree' needs the package rtree ({error}): pip install 'mpi-match[bench]'") from error

EVENTS_AT_ONCE = 256
"""Number of events whose candidates are in memory together."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Within the block, the error by which ctypes replaces a KeyboardInterrupt while it converts arguments is turned back
    into one."""
    try:
        yield
    except ctypes.ArgumentError as error:
        if "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise


_LEFT: list[Any] = []
"""Trees that a forked child does not use and cannot free, because a thread of its parent was using them."""


class RTree(EventByEvent):
    """The boxes of a table's areas.  It takes moves of areas, even if it is opened for a fixed table, and no other
    changes."""

    name = "rtree"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None, *, live: bool = False) -> None:
        super().__init__(table, {})
        circle, circles = areas_of(table)
        self._circle, self._circles = circle, circles.copy()
        rows = FilterRows.of(table)
        self._n_names = rows.n_virtual
        arrays: dict[int, tuple[Array, Any]] = {
            **candidate_arrays(rows, np.arange(table.n_filters), circle, self._circles),
            check.BOX_INTERFACE: (table.filters.interface, np.uint32),
        }
        self._searching = threading.Lock()  # the library's searches and its changes share what they work in
        self._is_left = False
        renew_in_child(self)
        self.bind(arrays, shared=OF_TABLE)
        before = resident_bytes()
        self._load()
        self._tree_bytes = max(resident_bytes() - before, 0)

    def _load(self) -> None:
        """Make the tree of the present circles."""
        boxed = fits(self._circles)
        of_circles = boxes(self._circles[boxed])
        ids = self._table.filters.area_filter[boxed].astype(np.int64)
        columns = (ids, np.ascontiguousarray(of_circles[:, :2]), np.ascontiguousarray(of_circles[:, 2:]))
        with _interruptible():
            how = index.Property(variant=index.RT_Star)
            self._tree = index.Index(columns, properties=how) if len(ids) else index.Index(properties=how)
        self._is_boxed = np.zeros(self._table.n_filters, np.bool_)
        self._is_boxed[ids] = True
        self._everywhere = np.flatnonzero(~self._is_boxed)

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return too_large(table)

    @property
    def nbytes(self) -> int:
        """The size of the tree is the growth of the process, because the library does not report it."""
        return super().nbytes + self._tree_bytes

    @property
    def candidates(self) -> int:
        return sum(int(scratch.state[check.BOX_CANDIDATES]) for scratch in self._sharing.sets)

    def new_scratch(self) -> tuple[EventScratch, dict[int, tuple[Array, object]]]:
        scratch = EventScratch(np.zeros(2, np.int64))
        return scratch, {
            **candidate_scratch(self._n_names),
            check.BOX_DONE: (np.zeros(self._table.n_interfaces, np.int64), np.int64),
            check.BOX_STATE: (scratch.state, np.int64),
            check.BOX_PROGRESS: (scratch.progress, np.int64),
        }

    def forked(self) -> None:
        """Make another tree if a thread of the parent was using this one."""
        if self._searching.locked():
            _LEFT.append(self._tree)
            self._is_left = True
        self._searching = threading.Lock()

    def find(self, filters: bool, events: EncodedEvents, scratch: EventScratch) -> None:
        n_events, progress, pairs = len(events.bounds) - 1, scratch.progress, scratch.pairs
        while progress[NEXT_EVENT] < n_events and progress[PAIRS_COUNTED] <= len(pairs):
            first = int(progress[NEXT_EVENT])
            with self._searching:
                if self._is_left:
                    self._load()
                    self._is_left = False
                with _interruptible():
                    found = self._candidates(events.location, first, min(first + EVENTS_AT_ONCE, n_events))
            check.check_events(filters, events, found, self._everywhere, scratch.bound.table, pairs)

    def _candidates(self, location: Array, first: int, last: int) -> tuple[Array, Array]:
        """Filters whose boxes hold the locations of events, i64, and their bounds i64[last - first + 1]."""
        places = location[first:last]
        if len(places) == 1 and np.isfinite(places).all():
            x, y = places[0].tolist()
            ids = np.fromiter(self._tree.intersection((x, y, x, y)), np.int64)
            return ids, np.array([0, len(ids)])
        counts = np.zeros(last - first, np.int64)
        located = np.flatnonzero(np.isfinite(places).all(axis=1))
        if not len(located) or not self._is_boxed.any():
            return np.zeros(0, np.int64), offsets_of(counts)
        corners = np.ascontiguousarray(places[located])
        ids, found = self._tree.intersection_v(corners, corners)
        counts[located] = found
        return ids.astype(np.int64), offsets_of(counts)

    def _check_changes(self, changes: Changes) -> None:
        if (changes.kind != Change.MOVE).any():
            raise EngineError(fixed_only(self.name))

    @updating
    def update(self, changes: Changes) -> None:
        """Move areas, one after the other; raises EngineError for other changes, before any of these."""
        with _interruptible():
            for filter_id, area in zip(changes.target.tolist(), changes.area, strict=True):
                self._move(filter_id, area)

    def _move(self, filter_id: int, area: Array) -> None:
        row = self._circle[filter_id]
        x, y, r = self._circles[row].tolist()
        was_boxed = self._is_boxed[filter_id]
        if was_boxed:
            self._tree.delete(filter_id, _box(x, y, r))
        self._circles[row] = area
        x, y, r = area.tolist()
        boxed = abs(x) < LARGEST and abs(y) < LARGEST and r < LARGEST
        if boxed:
            self._tree.insert(filter_id, _box(x, y, r))
        if boxed != was_boxed:
            self._is_boxed[filter_id] = boxed
            self._everywhere = np.flatnonzero(~self._is_boxed)


def _box(x: float, y: float, r: float) -> tuple[float, float, float, float]:
    """The box of one circle, bit for bit as in `boxes`."""
    r = r * WIDER + LEAST
    below, above = -math.inf, math.inf
    return (
        math.nextafter(x - r, below),
        math.nextafter(y - r, below),
        math.nextafter(x + r, above),
        math.nextafter(y + r, above),
    )
