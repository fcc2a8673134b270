"""A pipeline slot of `keyed_cuda`: two streams with the buffers of one slice, from its events to its ids.

    start    events in │ match │                                          submitted to the streams at once
                               │ counts, sums, scan │ totals out
    wait                                            until that is done
    finish                                          ids compacted │ counts and ids out, straight to the answer

The work after matching takes microseconds and runs on an urgent stream.  Otherwise it would wait until the kernels launched
meanwhile for other slots have begun, and this slot would be idle for as long.

The number of ids is known only when a slice has been matched, so a second copy fetches them.  A slice with events whose
answers did not fit is not finished: `cuda_pipeline` starts these events again, or all.

Events in pinned memory (`Engine.pin`) are copied in directly, others through the slot's pinned buffers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import copy
from mpi_match.engines.keyed.cuda_bitmap import BitmapOnGpu
from mpi_match.engines.keyed.cuda_grid import GridOnGpu
from mpi_match.engines.keyed.cuda_results import Answers
from mpi_match.engines.keyed.kernels.compact import ANSWERS_SHARED, KEYED_BLOCK, MOST_SHARERS, SCAN_THREADS, scan_kernel
from mpi_match.engines.keyed.kernels.grid_search import events_a_warp
from mpi_match.engines.keyed.kernels.tidy import DIGIT_WARPS, TIDIED_TOGETHER, digit_kernel, digit_shape, tidy_kernel
from mpi_match.engines.keyed.kernels.trie_thread import MASKS, SORTED_ANSWERS, AnswerArrays, EventArrays
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.event_batch import GpuBatch
from mpi_match.gpu.intrinsics import WARP
from mpi_match.gpu.kernels import DeviceArray, DeviceBuffer, Gpu, Kernel, Mark, PinnedBuffer

SHARING_WARPS = 2**13
"""Warps for which a slice of few events has several warps for each: about as many as a GPU runs at once."""


class SlicePlan(NamedTuple):
    """The kernels and arrays that match a batch.

    kind           kind of answer: MASKS, INTERFACES or FILTER_IDS
    trie_kernel    kernel for the trie or for tag sets, None if neither has filters; `is_wide`: it uses a warp for each
                   event, or for tag sets up to `most_warps`
    bitmap_kernel  None if no filter is in a bitmap
    grid_kernel    None if there is no grid
    count_dtype    dtype of the number of answers of an event
    n_ids          upper bound, exclusive, of the ids
    """

    kind: int
    trie_kernel: Kernel | None
    is_wide: bool
    most_warps: int
    bitmap_kernel: Kernel | None
    grid_kernel: Kernel | None
    count_kernel: Kernel
    write_kernel: Kernel
    count_dtype: np.dtype[Any]
    n_ids: int
    index_arrays: Any  # `IndexArrays`, or `TagSetArrays`
    bitmap: BitmapOnGpu | None
    grid: GridOnGpu | None


class PipelineSlot:
    """Matches slices, one after another, whose attributes have dtype `packed`.

    `room` is the capacity in answers of each event of the slice; `began` and `ended` are marks before and after its matching
    kernels.
    """

    def __init__(self, gpu: Gpu, packed: np.dtype) -> None:
        self._stream, self._urgent = gpu.stream(keeps_lock=True), gpu.stream(urgent=True, keeps_lock=True)
        self._regions = gpu.pinned_regions
        inputs = {"offsets": np.dtype(np.uint32), "attributes": packed, "location": np.dtype(np.float64)}
        self._staged = {name: _both(gpu, dtype) for name, dtype in inputs.items()}
        self._found, self._sums, self._mosts = (gpu.buffer(np.uint64) for _ in range(3))
        self._slots = gpu.buffer(np.uint32)
        self._spare = gpu.buffer(np.uint32)
        self._counts = {dtype: _both(gpu, dtype) for dtype in _ID_DTYPES}
        self._ids = {dtype: _both(gpu, dtype) for dtype in _ID_DTYPES}
        self._totals = PinnedBuffer(np.uint64)
        self._host_found = PinnedBuffer(np.uint64)
        self.began, self.ended = Mark(), Mark()
        self.room = 0

    def mark(self) -> Mark:
        """A mark at the end of the stream's present work, after waiting for it."""
        mark = Mark().record(self._stream)
        mark.synchronize()
        return mark

    def reserve(self, n_attributes: int) -> None:
        """Allocate memory for a slice whose events have `n_attributes` attributes in all."""
        for buffer in self._staged["attributes"]:
            buffer.array(n_attributes)

    def start(self, part: EventBatch, plan: SlicePlan, room: int) -> None:
        """Launch all work of a slice except fetching its ids."""
        n, stream, grid = len(part), self._stream, plan.grid
        self.room, self._n = room, n
        events, location = self._inputs(part, located=grid is not None)
        is_mask = plan.kind == MASKS
        found = self._found.array(n)
        slots = self._slots.array(1 if is_mask else n * room)
        n_groups = -(-n // KEYED_BLOCK)
        sums, mosts = self._sums.array(n_groups + 2), self._mosts.array(n_groups)
        counts = self._counts[plan.count_dtype][1].array(n)
        self.began.record(stream)
        shape = [n, room, plan.n_ids if is_mask else 0]
        if plan.trie_kernel is None or plan.is_wide:
            stream.zero(found)
        warps, given = -(-n * WARP // KEYED_BLOCK), AnswerArrays(found, slots)
        if plan.trie_kernel is not None:
            n_blocks = warps if plan.is_wide else n_groups
            n_sharers = 1 if is_mask or room <= SORTED_ANSWERS else max(1, min(SHARING_WARPS // n, plan.most_warps))
            plan.trie_kernel.bind((n_blocks, n_sharers), KEYED_BLOCK, [events, plan.index_arrays, given, *shape])(stream)
        most_blocks = 0
        if plan.bitmap_kernel is not None and plan.bitmap is not None:
            for words, bitmap, n_blocks in plan.bitmap.parts(None if grid is None else grid.words):
                most_blocks = max(n_blocks, most_blocks)
                args: list[Any] = [events, plan.index_arrays._replace(words=words), given, bitmap, *shape]
                plan.bitmap_kernel.bind((warps, n_blocks), KEYED_BLOCK, args)(stream)
        if plan.grid_kernel is not None and grid is not None and location is not None:
            n_each = events_a_warp(n)
            index_arrays = plan.index_arrays._replace(words=grid.words)
            args = [events, index_arrays, given, location, grid.arrays, n, room, n_each]
            plan.grid_kernel.bind((-(-n * WARP // (n_each * KEYED_BLOCK)),), KEYED_BLOCK, args)(stream)
        if not is_mask and (room > SORTED_ANSWERS or most_blocks > 1):
            self._tidy(given, plan.n_ids)
        self.ended.record(stream)
        urgent = self._urgent
        urgent.wait(self.ended)
        plan.count_kernel.bind((n_groups,), KEYED_BLOCK, [found, counts, sums, mosts, n, room])(urgent)
        scan_kernel.bind((1,), SCAN_THREADS, [sums, mosts, n_groups])(urgent)
        urgent.copy_out(self._totals.array(2), sums.part(n_groups, n_groups + 2))
        self._work = (found, counts, sums, slots)

    def _tidy(self, given: AnswerArrays, n_ids: int) -> None:
        """Sort the answers of the slice's events."""
        n, room, stream = self._n, self.room, self._stream
        tidy_kernel.bind((-(-n * WARP // KEYED_BLOCK),), KEYED_BLOCK, [given, n, room])(stream)
        if room > TIDIED_TOGETHER:
            n_blocks, n_digits = digit_shape(n, room, n_ids)
            spare = self._spare.array(n_blocks * room)
            digit_kernel.bind((n_blocks,), DIGIT_WARPS * WARP, [given, spare, n, room, n_digits])(stream)

    def _inputs(self, part: EventBatch, *, located: bool) -> tuple[EventArrays, DeviceArray | None]:
        """The events of a slice on the device, and their locations."""
        if isinstance(part, GpuBatch):
            events, location = EventArrays(part.events.offsets, part.events.attributes), part.events.location
        else:
            events = EventArrays(self._stage("offsets", part.offsets), self._stage("attributes", part.attributes))
            location = self._stage("location", part.location) if located and part.location is not None else None
        return events, self._stage("location", _NOWHERE) if located and location is None else location

    def _stage(self, name: str, values: Array) -> DeviceArray:
        """Copy an input to the device: directly if it is in pinned memory, otherwise through the slot's buffer."""
        host_buffer, device_buffer = self._staged[name]
        flat = values.reshape(-1)
        device = device_buffer.array(max(len(flat), 1))
        if self._regions.holds(flat):
            self._stream.copy_in(device, flat)
            return device
        host = host_buffer.array(max(len(flat), 1))
        copy(host[: len(flat)], flat)
        self._stream.copy_in(device, host)
        return device

    def wait(self) -> None:
        """Wait until the slice is matched and its number of answers is known."""
        self._urgent.synchronize()

    def settle(self) -> None:
        """Wait for the work of an abandoned slice, and ignore its errors."""
        for stream in (self._stream, self._urgent):
            with suppress(RuntimeError):
                stream.synchronize()

    @property
    def most(self) -> int:
        """The most answers of an event of the slice, which has been waited for; may exceed `room`; 0 for masks."""
        return int(self._totals.array(2)[1])

    @property
    def n_answers(self) -> int:
        """The answers of the slice, which has been waited for, without those of events with more than `room`."""
        return int(self._totals.array(2)[0])

    def found(self) -> Array:
        """The number of answers of each event of the slice, which has been waited for, u64; they may exceed `room`."""
        host = self._host_found.array(self._n)
        self._urgent.copy_out(host, self._work[0])
        self._urgent.synchronize()
        return host.copy()

    def finish(self, plan: SlicePlan, answers: Answers) -> None:
        """Add the slice, which has been waited for, to the answers."""
        counts, ids = self._written(plan, answers)
        by_way = self._counts[plan.count_dtype][0], self._ids[answers.id_dtype][0]
        answers.take(counts, ids, self._urgent, by_way)

    def fetch(self, plan: SlicePlan, answers: Answers) -> tuple[Array, Array]:
        """The counts and ids of the slice, which has been waited for, on the host: 0 for an event with more answers than
        `room`."""
        given = self._written(plan, answers)
        places = self._counts[plan.count_dtype][0], self._ids[answers.id_dtype][0]
        found = [place.array(each.size) for place, each in zip(places, given, strict=True)]
        for to, each in zip(found, given, strict=True):
            self._urgent.copy_out(to, each)
        self._urgent.synchronize()
        return found[0].copy(), found[1].copy()

    def _written(self, plan: SlicePlan, answers: Answers) -> tuple[DeviceArray, DeviceArray]:
        """The counts and ids of the slice on the device, valid after the present work of the urgent stream."""
        ids = self._ids[answers.id_dtype][1].array(self.n_answers)
        found, counts, sums, slots = self._work
        if ids.size:
            n_sharers = min(max(min(self.most, self.room) // ANSWERS_SHARED, 1), MOST_SHARERS)
            plan.write_kernel.bind(
                (-(-self._n // KEYED_BLOCK), n_sharers),
                KEYED_BLOCK,
                [found, counts, sums, slots, ids, self._n, self.room],
            )(self._urgent)
        return counts, ids


def _both(gpu: Gpu, dtype: np.dtype) -> tuple[PinnedBuffer, DeviceBuffer]:
    """Buffers of one dtype on the host and on the GPU."""
    return PinnedBuffer(dtype), gpu.buffer(dtype)


_ID_DTYPES = [np.dtype(each) for each in (np.uint8, np.uint16, np.uint32)]
_NOWHERE = np.full(1, np.nan)
