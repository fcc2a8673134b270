"""`keyed` on CPU threads: one index of the table, blocks of events for numba's threads to match with it (`keyed_walk`).

Each block has room for some answers, in one array for all.  What a block found is always *counted*; one that found more than
fits is matched again with the room it needs:

    places    0             2048          4096                       after growing    0             2048                 6000
    ids       | block 0 ... | block 1 ... |     counts: 1800, 3952   ids              | block 0 ... | block 1 .......... |

An event takes a core about a microsecond, and making these arrays forty.  So a batch of one block, which is how events come
that cannot wait for others, uses a place that is made once and kept.
"""

from __future__ import annotations

import os

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, take_ranges
from mpi_match.batch import EventBatch
from mpi_match.changes import Changes
from mpi_match.engines import check_batch, check_changes
from mpi_match.engines.keyed_assembly import build_index
from mpi_match.engines.keyed_filing import feature_weights
from mpi_match.engines.keyed_grid import Grid, n_threes
from mpi_match.engines.keyed_index import KeyedIndex
from mpi_match.engines.keyed_live import Residents
from mpi_match.engines.keyed_rows import FilterRows
from mpi_match.engines.keyed_walk import BLOCK_EVENTS, match_blocks
from mpi_match.matches import Matches
from mpi_match.table import Table

ROOM = 4
"""Answers per event that a block first has room for."""
APART = 16
"""Words between the rows of two threads: they must not write to the same cache line."""
_NOWHERE = np.full((1, 2), np.nan)
_FIRST = np.zeros(1, np.int64)
_MOST_THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]


class Keyed:
    """The index of one table and the threads that walk it."""

    name = "keyed"
    gpu = None

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        built: tuple[KeyedIndex, Residents] | None = None,
    ) -> None:
        self._table, self._live = table, live
        self._threads = max(1, min(threads or len(os.sched_getaffinity(0)), _MOST_THREADS))
        self.device = f"cpu, {self._threads} thread{'s' if self._threads > 1 else ''}"
        self.index, self.residents = built or consolidated(table, live=live)
        self._grid = Grid(self.residents.capacity, self.residents.stripes)
        self._grid.apply(self.residents.first_steps(table.filters.area))
        self._n_filters, self._n_interfaces = table.n_filters, table.n_interfaces
        self._seen = np.full((self._threads, table.n_interfaces), -1, np.int64)
        absent = np.iinfo(self.index.words.dtype).max  # more than any packed attribute
        self._by_name = np.full((self._threads, self.index.n_virtual + 1), absent, self.index.words.dtype)
        self._sparse, self._stack = np.empty((self._threads, 0), np.int64), np.empty((self._threads, 0, 3), np.int64)
        self._places, self._ids = np.array((0, ROOM * BLOCK_EVENTS)), np.empty(ROOM * BLOCK_EVENTS, np.uint32)
        self._walked: tuple[tuple[Array, ...], tuple[Array, ...]] | None = None
        self._serial = 0

    def update(self, changes: Changes) -> None:
        """See `Engine.update`."""
        check_changes(self.name, self._live, self._table, changes)
        self._walked = None
        effects = self.residents.update(changes)
        for words in effects.marks:
            self.index.words[words] = 1
        if self.residents.capacity > len(self._grid.keys):
            self._grid.grow(self.residents.capacity)
        self._grid.apply(effects.steps)
        self._n_filters, self._n_interfaces = changes.n_filters, changes.n_interfaces
        if changes.n_interfaces > self._seen.shape[1]:
            self._seen = np.full((self._threads, 2 * changes.n_interfaces), -1, np.int64)

    @property
    def nbytes(self) -> int:
        """See `Engine.nbytes`."""
        own = (self._seen, self._by_name, self._sparse, self._stack, self._ids)
        return self.index.nbytes + self.residents.nbytes + self._grid.nbytes + sum(array.nbytes for array in own)

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """See `Engine.match`."""
        check_batch(self._table, batch)
        counts = np.empty(batch.n_events, np.int64)
        match = self._match_block if batch.n_events <= BLOCK_EVENTS else self._match_blocks
        ids = match(batch, filters, counts)
        return Matches.from_counts(counts, ids, self._n_filters if filters else self._n_interfaces)

    def _match_block(self, batch: EventBatch, filters: bool, counts: Array) -> Array:
        """Count and return the answers of a batch that is one block."""
        while True:
            self._run(_FIRST, batch, filters, self._places, counts, self._ids)
            found = counts.item() if len(counts) == 1 else int(counts.sum())
            if found <= len(self._ids):
                return self._ids[:found].copy()
            self._places, self._ids = np.array((0, found)), np.empty(found, np.uint32)

    def _match_blocks(self, batch: EventBatch, filters: bool, counts: Array) -> Array:
        """Count and return the answers of a batch of several blocks."""
        starts = np.arange(0, batch.n_events, BLOCK_EVENTS)
        todo, found = np.arange(len(starts)), np.zeros(len(starts), np.int64)
        places = offsets_of(np.full(len(starts), ROOM * BLOCK_EVENTS))
        ids = np.empty(int(places[-1]), np.uint32)
        while len(todo):
            self._run(todo, batch, filters, places, counts, ids)
            found, room = np.add.reduceat(counts, starts), np.diff(places)
            todo = np.flatnonzero(found > room)
            if len(todo):
                places, ids = _grow(places, ids, found)
        return ids[take_ranges(places[:-1], found)]

    def _run(self, todo: Array, batch: EventBatch, filters: bool, places: Array, counts: Array, ids: Array) -> None:
        """Match the blocks `todo` (`match_blocks`)."""
        location = _NOWHERE if batch.location is None else batch.location
        self._reserve(batch)
        events = (batch.offsets, batch.attributes, location)
        if self._walked is None:
            self._walked = self._what_is_walked()
        scratch = (self._by_name, self._sparse, self._stack, self._seen)
        threads_of_others = numba.get_num_threads()  # this also starts them: `get_thread_id` needs that
        threads = min(self._threads, len(todo))
        if threads != threads_of_others:
            numba.set_num_threads(threads)
        try:
            match_blocks(todo, self._serial, filters, events, *self._walked, scratch, (places, counts, ids))
        finally:
            if threads != threads_of_others:
                numba.set_num_threads(threads_of_others)
        self._serial += batch.n_events

    def _what_is_walked(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """`index` and `grid` of `match_blocks`: the same arrays until the next update."""
        slots, residents = self._grid.slots, self.residents
        circles, records = slots.view(np.float64), slots.view(np.uint32)
        levels = np.flatnonzero(residents.levels)
        grid = (self._grid.blocks, circles, records, residents.words, residents.stripes, levels)
        return (*self.index.views, self.index.words), grid

    def _reserve(self, batch: EventBatch) -> None:
        """Have room for the features of the batch's widest event."""
        widest = batch.widest
        n_features = 2 * widest + n_threes(widest) + APART
        if self._sparse.shape[1] < n_features:
            self._sparse = np.empty((self._threads, n_features), np.int64)
            self._stack = np.empty((self._threads, 1 + self.index.depth * 2 * widest, 3), np.int64)


def consolidated(table: Table, *, live: bool) -> tuple[KeyedIndex, Residents]:
    """The index of a table, and the books on its filters with areas and its changes."""
    rows = FilterRows.of(table)
    weight = feature_weights(rows)
    index = build_index(table, rows, weight)
    return index, Residents(table, rows, weight, index, live=live)


def _grow(places: Array, ids: Array, found: Array) -> tuple[Array, Array]:
    """Room for `found` answers in every block; blocks that had enough keep theirs."""
    room = np.diff(places)
    kept = np.where(found > room, 0, found)
    grown = offsets_of(np.maximum(room, found))
    moved = np.empty(int(grown[-1]), np.uint32)
    moved[take_ranges(grown[:-1], kept)] = ids[take_ranges(places[:-1], kept)]
    return grown, moved


ENGINE = Keyed
