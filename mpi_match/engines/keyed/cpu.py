"""The engine `keyed`, on CPU threads: one index of the table, which threads search for blocks of events (`cpu_search`).

Each block has room for some answers in one shared array: slightly more than the blocks of the last batch had.  The answers
of a block are always *counted*.  A block with more answers than fit is matched again with the room that it needs:

    places    0             2048          4096                       after growing    0             2048                 6000
    ids       | block 0 ... | block 1 ... |     counts: 1800, 3952   ids              | block 0 ... | block 1 .......... |

An event takes a core about a microsecond, and making these arrays forty.  So a batch of a single block, typical of
latency-critical events, reuses arrays that were made once, and the calling thread matches it.  The arrays belong to the
scratch of a match (`sharing`), so each thread that matches at the same time has its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.compute.array_pointers import PointerTable
from mpi_match.compute.compile_parts import Part
from mpi_match.compute.parallel import by_threads
from mpi_match.engines.base import Engine, matching, updating
from mpi_match.engines.keyed import search_arrays as arrays
from mpi_match.engines.keyed.answers import CPU_ANSWER_ROOM, AnswerBlocks
from mpi_match.engines.keyed.bitmap.bins import Bins
from mpi_match.engines.keyed.bitmap.choice import divide
from mpi_match.engines.keyed.bitmap.live_bitmap import LiveBitmap
from mpi_match.engines.keyed.bitmap.rows import Bitmap
from mpi_match.engines.keyed.cpu_bitmap_search import scratch_words
from mpi_match.engines.keyed.cpu_search import TASK_EVENTS, compile_search, match_blocks
from mpi_match.engines.keyed.cpu_walk import WalkScratch, sparse_words
from mpi_match.engines.keyed.grid.geometry import n_threes
from mpi_match.engines.keyed.grid.hash_grid import Grid
from mpi_match.engines.keyed.grid.resize import Resize, ready, roomy
from mpi_match.engines.keyed.index.build import build_index
from mpi_match.engines.keyed.index.features import feature_weights
from mpi_match.engines.keyed.index.filter_rows import FilterRows, too_large
from mpi_match.engines.keyed.index.layout import KeyedIndex
from mpi_match.engines.keyed.index.value_classes import value_classes
from mpi_match.engines.keyed.live_filters import Bits, LiveFilters
from mpi_match.engines.keyed.search_arrays import APART
from mpi_match.engines.keyed.tag_sets.index import TagSetIndex
from mpi_match.engines.keyed.tag_sets.matcher import TagSetMatcher, TagSetScratch
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.events.batch import EventBatch, unmarked
from mpi_match.matches.matches import Matches, id_dtype
from mpi_match.table.table import Table

_ONE_BLOCK = np.zeros(1, np.int64)
_NOWHERE = np.full((1, 2), np.nan)
_NO_ROWS = np.zeros((0, 0), np.int64)
_ALL_TAKEN = 2**62
"""Value of the counter of taken blocks that stops all threads."""
_MOST_THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]


class Keyed(Engine):
    """The index of one table and the threads that search it."""

    name = "keyed"
    takes_changes = compiles = True
    n_functions = 50
    _sharing: ScratchSets[_Scratch] | ScratchSets[TagSetScratch]

    def __init__(
        self,
        table: Table,
        device: int | None = None,
        threads: int | None = None,
        *,
        live: bool = False,
        built: tuple[KeyedIndex, LiveFilters, Bitmap | None] | None = None,
        sets: TagSetIndex | None = None,
    ) -> None:
        self._table, self._live = table, live
        self._threads = max(1, min(threads or len(os.sched_getaffinity(0)), _MOST_THREADS))
        self.device = f"cpu, {self._threads} thread{'s' if self._threads > 1 else ''}"
        self.n_filters, self.n_interfaces = table.n_filters, table.n_interfaces
        if not live and built is None and sets is None:
            sets = TagSetIndex.of(table)
        self._tag_sets = None if sets is None else TagSetMatcher(sets, self._threads)
        if self._tag_sets is None:
            self._build(table, built or consolidated(table, live=live), live=live)
        else:
            self._sharing = ScratchSets(self, lambda _: TagSetScratch())

    def _build(self, table: Table, built: tuple[KeyedIndex, LiveFilters, Bitmap | None], *, live: bool) -> None:
        """Set the index and the arrays that a search needs."""
        self.index, self.live_filters, bitmap = built
        self.bitmap = bitmap or Bitmap.none(self.index, self.live_filters.bins)
        self._later = LiveBitmap(self.bitmap.bins)
        self._grid = Grid(self.live_filters.n_slots, self.live_filters.sub_buckets)
        self._resize: Resize | None = None
        if live:
            ready(self._grid)
            self._later.ready(self.live_filters.words, table.vocabulary.shift)
        self._grid.apply(self.live_filters.first_steps(table.filters.area))
        self._blocks = AnswerBlocks(TASK_EVENTS)
        self._n_updates = 0
        self._sharing = ScratchSets(self, lambda _: _Scratch())

    @classmethod
    def compiled_apart(cls, packed: str) -> Sequence[Part]:
        return (Part(f"keyed_search-{packed}", f"{compile_search.__module__}:{compile_search.__name__}", packed),)

    @classmethod
    def serves(cls, table: Table) -> str | None:
        return too_large(table)

    @updating
    def update(self, changes: Changes) -> None:
        self._n_updates += 1
        effects = self.live_filters.update(changes)
        if len(effects.marks):
            in_lists = effects.marks < len(self.index.words)
            self.index.words[effects.marks[in_lists]] = 1
            self.bitmap.remove(effects.marks[~in_lists] - len(self.index.words))
        n_slots = self.live_filters.n_slots
        self._grid, self._resize = roomy(self._grid, self._resize, n_slots)
        self._grid.apply(effects.steps)
        if self.live_filters.bins is not None and np.count_nonzero(changes.kind):  # unless all changes are moves
            self._later.apply(effects.steps, self.live_filters.words, self._table.vocabulary.shift)
        if self._resize is not None:
            self._resize.note(effects.steps, n_slots)
        self.n_filters, self.n_interfaces = changes.n_filters, changes.n_interfaces

    @property
    def nbytes(self) -> int:
        if self._tag_sets is not None:
            return self._tag_sets.sets.nbytes
        return (
            self.index.nbytes
            + self.bitmap.nbytes
            + self._later.nbytes
            + self.live_filters.nbytes
            + self._grid.nbytes
            + sum(scratch.nbytes for scratch in self._sharing.sets)
        )

    @property
    def candidates(self) -> int:
        return sum(scratch.candidates for scratch in self._sharing.sets)

    @matching
    def match(self, batch: EventBatch, scratch: Any, filters: bool) -> Matches:
        n, n_ids = batch.n_events, self.n_filters if filters else self.n_interfaces
        if self._tag_sets is not None:
            return self._tag_sets.match(batch, self._table.vocabulary.shift, n_ids, scratch, filters=filters)
        is_block, widest = n <= TASK_EVENTS, batch.widest
        n_rows = 1 if is_block else min(self._threads, -(-n // TASK_EVENTS))
        if scratch.n_updates != self._n_updates or widest > scratch.widest or n_rows > scratch.n_rows:
            self._bind(scratch, n_rows, widest)
        location = _NOWHERE if batch.location is None else batch.location
        columns = batch.offsets, batch.attributes, location
        if n > 1:  # a single event was just encoded, and is to be matched in microseconds
            columns = unmarked(columns[0]), unmarked(columns[1]), unmarked(location)
        given = (filters, *columns)
        counts, ids = (self._match_block if is_block else self._match_blocks)(n, given, id_dtype(n_ids), scratch)
        return Matches(counts.astype(id_dtype(n_ids + 1)), ids, n_ids)

    def _match_block(self, n: int, given: tuple[object, ...], dtype: np.dtype, scratch: _Scratch) -> tuple[Array, Array]:
        """Counts and ids, of `dtype`, of n events that form one block; the counts are valid until the next block."""
        while True:
            found = match_blocks(0, scratch.serial, *given, scratch.bound.table)
            scratch.serial += n
            if found <= len(scratch.ids):
                return scratch.counts[:n], scratch.ids[:found].astype(dtype)
            scratch.hold_answers(found)
            self._bind(scratch, scratch.n_rows, scratch.widest)

    def _match_blocks(self, n: int, given: tuple[object, ...], dtype: np.dtype, scratch: _Scratch) -> tuple[Array, Array]:
        """Counts and ids, of `dtype`, of n events that form several blocks."""

        def match(to_match: Array, places: Array, counts: Array, ids: Array) -> None:
            n_taken = np.zeros(1, np.int64)
            answers = {
                arrays.blocks_to_match: to_match,
                arrays.n_taken: n_taken,
                arrays.places: places,
                arrays.counts: counts,
                arrays.ids: ids,
            }
            serial, bound = scratch.serial, scratch.bound.replaced(arrays.ARRAYS.entries(answers))
            scratch.serial += n
            by_threads(
                min(self._threads, len(to_match)),
                lambda thread: match_blocks(thread, serial, *given, bound.table),
                stop=lambda: n_taken.fill(_ALL_TAKEN),
            )

        return self._blocks.match(n, dtype, match)

    def _bind(self, scratch: _Scratch, n_rows: int, widest: int) -> None:
        """Bind the arrays of `match_blocks` that remain the same until an update, a wider event or a block with more
        answers."""
        scratch.hold(self, n_rows, widest)
        t32, t64 = self.index.views
        grid, live_filters, packed = self._grid, self.live_filters, self.index.words.dtype
        bitmap, later = self.bitmap, self._later
        scratch.bound = PointerTable(
            arrays.ARRAYS.entries(
                {
                    arrays.t32: t32,
                    arrays.t64: t64,
                    arrays.words: self.index.words,
                    arrays.blocks: grid.blocks,
                    arrays.circles: grid.slots.view(np.float64),
                    arrays.records: grid.slots.view(np.uint32),
                    arrays.checks: live_filters.words,
                    arrays.sub_buckets: live_filters.sub_buckets,
                    arrays.levels: np.flatnonzero(live_filters.levels),
                    arrays.by_name: scratch.by_name,
                    arrays.sparse: scratch.sparse,
                    arrays.members: scratch.walks.members,
                    arrays.waiting: scratch.walks.waiting,
                    arrays.node_levels: scratch.walks.levels,
                    arrays.slots: scratch.walks.slots,
                    arrays.lists: scratch.walks.lists,
                    arrays.seen: scratch.seen,
                    arrays.n_interfaces: np.array([self.n_interfaces]),
                    arrays.column_of_name: bitmap.bins.column,
                    arrays.bin_bounds: bitmap.bins.bounds,
                    arrays.n_bins: bitmap.bins.n_bins,
                    arrays.first_row: bitmap.bins.first_row,
                    arrays.row_places: scratch.rows,
                    arrays.position_bits: bitmap.rows.bits,
                    arrays.position_summary: bitmap.rows.summary,
                    arrays.positions: bitmap.places,
                    arrays.position_filters: bitmap.filters,
                    arrays.position_interfaces: bitmap.interfaces,
                    arrays.position_words: bitmap.words,
                    arrays.later_bits: later.rows.bits,
                    arrays.later_summary: later.rows.summary,
                    arrays.later_positions: later.places,
                    arrays.later_filters: later.filters,
                    arrays.later_interfaces: later.interfaces,
                    arrays.verified: scratch.verified,
                    arrays.id_marks: scratch.marks,
                    arrays.blocks_to_match: _ONE_BLOCK,
                    arrays.n_taken: _ONE_BLOCK,
                    arrays.places: scratch.places,
                    arrays.counts: scratch.counts,
                    arrays.ids: scratch.ids,
                },
                packed,
            )
        )
        scratch.n_updates = self._n_updates


class _Scratch(Scratch):
    """Working memory of a match of `Keyed`, with a row for each of its threads, and the bound arrays of `match_blocks`.

    bound      the arrays, as they were after `n_updates` updates
    widest     attributes of the widest event that fits
    serial     number of the next event; 0 means no event
    """

    bound: PointerTable

    def __init__(self) -> None:
        super().__init__()
        self.n_updates = self.widest = -1
        self.n_rows, self.serial = 0, 1
        self.seen = self.by_name = self.rows = self.marks = self.sparse = _NO_ROWS
        self.walks = WalkScratch.of(0, 0, 0)
        self.verified = np.zeros((0, APART), np.int64)
        self.counts = np.empty(TASK_EVENTS, np.int64)
        self.hold_answers(CPU_ANSWER_ROOM * TASK_EVENTS)

    @property
    def nbytes(self) -> int:
        own = (self.seen, self.marks, self.rows, self.by_name, self.sparse, self.ids, *self.walks)
        return sum(array.nbytes for array in own)

    @property
    def candidates(self) -> int:
        """Number of filters verified so far."""
        return int(self.verified[:, 0].sum())

    def hold(self, engine: Keyed, n_rows: int, widest: int) -> None:
        """Make room for `n_rows` threads, for events of `widest` attributes, and for all ids of the engine."""
        more_rows, more_width = n_rows > self.n_rows, widest > self.widest
        n = self.n_rows = max(n_rows, self.n_rows)
        if more_rows:
            index, n_columns = engine.index, len(engine.bitmap.bins.n_bins)
            absent = np.iinfo(index.words.dtype).max  # larger than any packed attribute
            self.by_name = np.full((n, index.n_virtual + 1 + APART), absent, index.words.dtype)
            self.rows = np.zeros((n, scratch_words(n_columns) + APART), np.int64)
            before, self.verified = self.verified, np.zeros((n, APART), np.int64)
            self.verified[: len(before)] = before
        if more_rows or more_width:
            self.widest = widest = max(widest, self.widest)
            self.sparse = np.empty((n, sparse_words(widest) + n_threes(widest) + APART), np.int64)
            self.walks = WalkScratch.of(n, engine.index.depth, widest)
        n_seen = max(self.seen.shape[1] - APART, 0)
        more_interfaces = engine.n_interfaces > n_seen
        if more_interfaces:  # as many again for added ones, once there are any
            n_seen = 2 * engine.n_interfaces if n_seen else engine.n_interfaces
        if more_rows or more_interfaces:
            self.seen = np.zeros((n, n_seen + APART), np.int64)
        n_ids = max(engine.n_filters, engine.n_interfaces)
        if more_rows or 64 * self.marks.shape[1] < n_ids:  # a bit for each id, and as many again for added ones
            self.marks = np.zeros((n, n_ids // 32 + APART), np.uint64)

    def hold_answers(self, n: int) -> None:
        """Make room for n answers per block."""
        self.places, self.ids = np.array((0, n)), np.empty(n, np.uint32)


def consolidated(table: Table, *, live: bool, with_bitmap: bool = True) -> tuple[KeyedIndex, LiveFilters, Bitmap | None]:
    """Build the index of a table, the slot tables of its filters with areas and its changes, and the bitmap, if there is
    one."""
    rows = FilterRows.of(table)
    weight, classes = feature_weights(rows), value_classes(rows)
    listed, bitmap = divide(table, rows, weight, classes) if with_bitmap else (None, None)
    index = build_index(table, rows, weight, classes, listed)
    bins = Bins.of_codes(rows) if live and with_bitmap and bitmap is None else None if bitmap is None else bitmap.bins
    if bins is not None and not bins.n_rows:
        bins = None
    return index, LiveFilters(table, rows, weight, index, Bits(bitmap, bins), live=live), bitmap
