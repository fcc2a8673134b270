"""The grid of `keyed_cuda` in GPU memory: its arrays, and the changes to them.

Changes wait on the host until the next batch is matched, which does not affect any answer, so that many small changes are
copied together.  If many are waiting, they are copied at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import copy
from mpi_match.engines.keyed.cuda_bitmap import BitmapOnGpu
from mpi_match.engines.keyed.grid.hash_grid import BLOCK_WORDS, SLOT_WORDS, n_blocks
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.grid import GridArrays, GridState, enter_kernel, note_kernel, put_kernel, step_kernel
from mpi_match.engines.keyed.live_filters import Effects, LiveFilters
from mpi_match.gpu.kernels import DeviceArray, Gpu, PinnedBuffer

MOST_MARKS_WAITING = 2**20
"""Most steps that wait for the next batch."""
LEAST_SPARE = 1024
"""Least spare room, in filters or words; more for large grids: a quarter of their number."""


class Lists(NamedTuple):
    """The words of the trie's lists on a GPU, n of them."""

    words: DeviceArray
    n: int


class GridOnGpu:
    """The grid of one table as arrays for kernels, with spare room if the table is `live`.

    It also applies changes of filters that are in lists or in a bitmap.
    """

    def __init__(
        self,
        gpu: Gpu,
        live_filters: LiveFilters,
        area: Array,
        lists: Lists,
        bitmap: BitmapOnGpu | None,
        *,
        live: bool,
    ) -> None:
        self._gpu, self._live_filters, self._stream = gpu, live_filters, gpu.stream()
        self._lists, self._bitmap = lists, bitmap
        self._staging, self._steps = PinnedBuffer(np.uint64), gpu.buffer(np.uint64)
        self._where, self._values = gpu.buffer(np.int64), gpu.buffer(np.uint32)
        self._sub_buckets = gpu.upload(live_filters.sub_buckets)
        n_slots, n_words = live_filters.n_slots, live_filters.n_words
        self._words = gpu.upload(live_filters.words[: _with_spare(n_words) if live else n_words])
        self._take_slots(_with_spare(n_slots) if live else max(n_slots, 1))
        self._take_blocks()
        self._waiting: list[Effects] = []
        self._n_waiting = 0
        self._send_levels()
        self._send(Effects(live_filters.first_steps(area)))

    @property
    def arrays(self) -> GridArrays:
        """The grid as `grid_kernel` takes it."""
        views = (self._slots.viewed(np.uint32), self._slots.viewed(np.float64))
        return GridArrays(self._blocks, *views, self._sub_buckets, self._levels)

    @property
    def words(self) -> DeviceArray:
        """The checks of the grid's filters."""
        return self._words

    @property
    def _state(self) -> GridState:
        views = (self._slots.viewed(np.uint32), self._slots.viewed(np.float64))
        return GridState(self._blocks, *views, self._keys, self._sub_buckets)

    def put(self, effects: Effects) -> None:
        """Apply changes no later than the next `flush`."""
        self._waiting.append(effects)
        self._n_waiting += len(effects.steps)
        if self._n_waiting > MOST_MARKS_WAITING:
            self.flush()

    def flush(self) -> None:
        """Apply the waiting changes."""
        if not self._waiting:
            return
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        self._grow()
        self._send(self._live_filters.joined(waiting))

    def _grow(self) -> None:
        """Make room for as many words and slots as the slot tables have."""
        live_filters, stream = self._live_filters, self._stream
        if live_filters.n_words > self._words.size:
            words = self._words
            self._words = self._gpu.buffer(words.dtype).array(_with_spare(live_filters.n_words))
            stream.copy_within(self._words.part(0, words.size), words)
        if live_filters.n_slots > self._keys.size:
            n, slots, keys = self._keys.size, self._slots, self._keys
            self._take_slots(_with_spare(live_filters.n_slots))
            stream.copy_within(self._slots.part(0, slots.size), slots)
            stream.copy_within(self._keys.part(0, n), keys)
            if n_blocks(self._keys.size) > n_blocks(n):
                self._take_blocks()
                enter_kernel.bind((-(-n // KEYED_BLOCK),), KEYED_BLOCK, [self._state, n])(stream)
            stream.synchronize()

    def _take_slots(self, n: int) -> None:
        """Allocate empty arrays for n slots."""
        self._slots = self._gpu.buffer(np.uint64).array(SLOT_WORDS * n)
        self._keys = self._gpu.buffer(np.uint64).array(n)
        self._last = self._gpu.buffer(np.uint32).array(n)
        for array in (self._slots, self._keys, self._last):
            self._stream.zero(array)

    def _take_blocks(self) -> None:
        """Allocate as many empty blocks as the slots need."""
        self._blocks = self._gpu.buffer(np.uint64).array(BLOCK_WORDS * n_blocks(self._keys.size))
        self._stream.zero(self._blocks)

    def _send(self, effects: Effects) -> None:
        live_filters, stream = self._live_filters, self._stream
        if len(effects.words):
            self._put(self._words, effects.words, live_filters.words[effects.words])
        for bucket_key in effects.bucket_keys.tolist():
            stream.copy_in(
                self._sub_buckets.part(bucket_key, bucket_key + 1), live_filters.sub_buckets[bucket_key : bucket_key + 1]
            )
        in_lists = effects.marks[effects.marks < self._lists.n]
        if len(in_lists):
            self._put(self._lists.words, in_lists, np.ones(len(in_lists), self._lists.words.dtype))
        if len(in_lists) < len(effects.marks) and self._bitmap is not None and self._bitmap.places is not None:
            positions = effects.marks[effects.marks >= self._lists.n] - self._lists.n
            self._put(self._bitmap.places, positions, np.zeros(len(positions), np.uint32))
        n = len(effects.steps)
        if n:
            host, steps = self._staging.array(effects.steps.size), self._steps.array(effects.steps.size)
            copy(host, effects.steps.reshape(-1))
            stream.copy_in(steps, host)
            n_groups = (-(-n // KEYED_BLOCK),)
            note_kernel.bind(n_groups, KEYED_BLOCK, [steps, self._last, n])(stream)
            step_kernel.bind(n_groups, KEYED_BLOCK, [steps, self._last, self._slots, self._state, n])(stream)
            if self._bitmap is not None:
                self._bitmap.hold(effects.steps, stream)
                self._bitmap.enter(steps, n, self._state, self._words, stream)
        if live_filters.levels.sum() > self._n_levels:  # a level is never removed
            self._send_levels()
        stream.synchronize()

    def _send_levels(self) -> None:
        levels = np.flatnonzero(self._live_filters.levels)
        self._n_levels, self._levels = len(levels), self._gpu.upload(levels)

    def _put(self, into: DeviceArray, where: Array, values: Array) -> None:
        """Overwrite items `where` i64[n] of an array with `values` of its type."""
        n = values.nbytes // 4
        places, words = self._where.array(len(where)), self._values.array(n)
        self._stream.copy_in(places, where)
        self._stream.copy_in(words, values.view(np.uint32))
        put_kernel.bind(
            (-(-n // KEYED_BLOCK),), KEYED_BLOCK, [places, words, into.viewed(np.uint32), n, into.dtype.itemsize // 4]
        )(self._stream)


def _with_spare(n: int) -> int:
    return n + max(n // 4, LEAST_SPARE)
