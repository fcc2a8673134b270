"""A lane of `keyed_cuda`: two streams with the buffers of one slice, from its events to its ids.

    start    events in │ match │                                          all of it given to the streams at once
                               │ counts, sums, scan │ counts, total out
    wait                                            until that is done
    finish                                          ids written end to end │ ids out, straight to where they stay

What comes after the matching takes some microseconds and is urgent: else it would wait until all that was matched meanwhile,
the slices of the other lanes, has begun, and this lane would stand still for as long.

How many ids there are is known only when a slice has been matched, so they are fetched by a second go.  A slice with an
event of more answers than it had slots for is not finished but started again, with the room that it needs.

Events in memory that the engine was told of (`pin`) are copied in from there, others by way of the lane's pinned buffers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import copy
from mpi_match.engines.keyed.cuda_grid import GridOnGpu
from mpi_match.engines.keyed.cuda_results import Answers
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK, SCAN_THREADS, count_dtype, scan_kernel
from mpi_match.engines.keyed.kernels.trie_thread import MASKS
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.intrinsics import WARP
from mpi_match.gpu.kernels import DeviceArray, DeviceBuffer, Gpu, Kernel, Mark, PinnedBuffer


class SlicePlan(NamedTuple):
    """What a batch needs.

    The kind of answer; the kernels, where the trie, or the grid, has filters, and whether events are so wide that the trie's
    needs a warp for each; the number of ids; the index and the grid.
    """

    kind: int
    trie_kernel: Kernel | None
    is_wide: bool
    grid_kernel: Kernel | None
    count_kernel: Kernel
    write_kernel: Kernel
    n_ids: int
    index_arrays: tuple[DeviceArray, ...]
    grid: GridOnGpu | None


class PipelineSlot:
    """Takes slices, one after the other, whose attributes are of the type `packed`.

    `room` is how many slots each event of the slice has for its answers; `began` and `ended` are marks before and behind its
    matching kernels.
    """

    def __init__(self, gpu: Gpu, packed: np.dtype) -> None:
        self._stream, self._urgent = gpu.stream(keeps_lock=True), gpu.stream(urgent=True, keeps_lock=True)
        self._regions = gpu.pinned_regions
        inputs = {"offsets": np.dtype(np.uint32), "attributes": packed, "location": np.dtype(np.float64)}
        self._staged = {name: _both(gpu, dtype) for name, dtype in inputs.items()}
        self._found, self._sums, self._slots = gpu.buffer(np.uint64), gpu.buffer(np.uint64), gpu.buffer(np.uint32)
        self._counts = {is_mask: _both(gpu, count_dtype(is_mask)) for is_mask in (False, True)}
        self._ids = {dtype: _both(gpu, dtype) for dtype in _ID_DTYPES}
        self._total = PinnedBuffer(np.uint64)
        self.began, self.ended = Mark(), Mark()
        self.room = 0

    def mark(self) -> Mark:
        """A mark where the stream is now, passed."""
        mark = Mark().record(self._stream)
        mark.synchronize()
        return mark

    def reserve(self, n_attributes: int) -> None:
        """Take the memory for a slice whose events have so many attributes in all."""
        for buffer in self._staged["attributes"]:
            buffer.array(n_attributes)

    def start(self, part: EventBatch, plan: SlicePlan, room: int) -> None:
        """Give a slice to the GPU: all but fetching its ids."""
        n, stream, grid = len(part), self._stream, plan.grid
        self.room, self._n = room, n
        events = [self._stage("offsets", part.offsets), self._stage("attributes", part.attributes)]
        location = None
        if grid is not None:
            location = self._stage("location", _NOWHERE if part.location is None else part.location)
        is_mask = plan.kind == MASKS
        found = self._found.array(n)
        slots = self._slots.array(1 if is_mask else n * room)
        n_groups = -(-n // KEYED_BLOCK)
        sums = self._sums.array(n_groups + 1)
        host_counts, counts_buffer = self._counts[is_mask]
        counts = counts_buffer.array(n)
        self.began.record(stream)
        shape = [n, room, plan.n_ids if is_mask else 0]
        if plan.trie_kernel is None or plan.is_wide:
            stream.zero(found)
        if plan.trie_kernel is not None:
            n_blocks = -(-n * (WARP if plan.is_wide else 1) // KEYED_BLOCK)
            plan.trie_kernel.bind((n_blocks,), KEYED_BLOCK, [*events, *plan.index_arrays, found, slots, *shape])(stream)
        if plan.grid_kernel is not None and grid is not None and location is not None:
            plan.grid_kernel.bind(
                (-(-n * WARP // KEYED_BLOCK),),
                KEYED_BLOCK,
                [*events, location, *plan.index_arrays[:2], *grid.arrays, found, slots, n, room, grid.n_levels],
            )(stream)
        self.ended.record(stream)
        urgent = self._urgent
        urgent.wait(self.ended)
        plan.count_kernel.bind((n_groups,), KEYED_BLOCK, [found, counts, sums, n])(urgent)
        scan_kernel.bind((1,), SCAN_THREADS, [sums, n_groups])(urgent)
        urgent.copy_out(host_counts.array(n), counts)
        urgent.copy_out(self._total.array(1), sums.part(n_groups, n_groups + 1))
        self._work = (found, counts, sums, slots)

    def _stage(self, name: str, values: Array) -> DeviceArray:
        """Bring an input to the device: as it lies in pinned memory, or by way of the lane's."""
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
        """Wait until the slice is matched and its counts are here."""
        self._urgent.synchronize()

    def settle(self) -> None:
        """The same for a slice that nobody wants any more, whatever became of it."""
        for stream in (self._stream, self._urgent):
            with suppress(RuntimeError):
                stream.synchronize()

    def most(self, plan: SlicePlan) -> int:
        """The largest count of the slice, which has been waited for: perhaps more than there was room for; 0 for masks."""
        return 0 if plan.kind == MASKS else int(self._counts[False][0].array(self._n).max(initial=0))

    def finish(self, plan: SlicePlan, answers: Answers) -> None:
        """Add the slice, which has been waited for, to the answers."""
        host_ids, ids_buffer = self._ids[answers.id_dtype]
        ids = ids_buffer.array(int(self._total.array(1)[0]))
        if ids.size:
            found, counts, sums, slots = self._work
            plan.write_kernel.bind(
                (-(-self._n // KEYED_BLOCK),), KEYED_BLOCK, [found, counts, sums, slots, ids, self._n, self.room]
            )(self._urgent)
        answers.take(self._counts[plan.kind == MASKS][0].array(self._n), ids, self._urgent, host_ids)


def _both(gpu: Gpu, dtype: np.dtype) -> tuple[PinnedBuffer, DeviceBuffer]:
    """Memory for the same on the host and on the GPU."""
    return PinnedBuffer(dtype), gpu.buffer(dtype)


_ID_DTYPES = [np.dtype(each) for each in (np.uint8, np.uint16, np.uint32)]
_NOWHERE = np.full(1, np.nan)
