"""Adds attributes to the events of a batch that is on a GPU, as `events.extended` does on CPUs; and copies batches there."""

from __future__ import annotations

import weakref
from collections import deque
from functools import lru_cache

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.events.batch import EventBatch
from mpi_match.gpu.event_batch import EventsOnGpu, GpuBatch
from mpi_match.gpu.kernels import Argument, DeviceArray, Gpu, Kernel, cuda, kernel
from mpi_match.matches.matches import Matches

EXTENDED_BLOCK = 128
"""Threads of a block of `extend`."""


@lru_cache
def extend_kernel(packed: str, id_type: str) -> Kernel:
    """The kernel for attributes of dtype `packed` and ids of dtype `id_type` (such as "uint16")."""
    signature = f"void(uint32[::1], {packed}[::1], uint32[::1], {id_type}[::1], {packed}[::1], {packed}[::1], int64)"

    @kernel(signature)
    def extend(
        offsets: Array, attributes: Array, joint_offsets: Array, ids: Array, attribute_of: Array, joint: Array, n: int
    ) -> None:
        """Merge the attributes of n events with attribute_of[id] for each of their ids, both ascending, into `joint`.

        offsets, joint_offsets   u32[n + 1]: the events' bounds in `attributes`, from any number on, and in `joint`, from 0

        Launch: one thread per event.
        """
        event = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if event >= n:
            return
        i, end = np.int64(offsets[event] - offsets[0]), np.int64(offsets[event + 1] - offsets[0])
        to, last = np.int64(joint_offsets[event]), np.int64(joint_offsets[event + 1])
        k, n_more = to - i, last - to - (end - i)
        for _ in range(n_more):
            more = attribute_of[ids[k]]
            while i < end and attributes[i] < more:
                joint[to] = attributes[i]
                i += 1
                to += 1
            joint[to] = more
            k += 1
            to += 1
        while i < end:
            joint[to] = attributes[i]
            i += 1
            to += 1

    return extend


class EventExtender:
    """Extends batches on a GPU, and copies batches to it; their attributes have dtype `packed`.  Any number of threads may
    use it."""

    def __init__(self, gpu: Gpu, packed: np.dtype) -> None:
        self._gpu, self._packed, self._stream = gpu, packed, gpu.stream()
        self._attribute_of: tuple[Array | None, DeviceArray] = (None, DeviceArray.empty(packed))
        self._free: deque[_Memory] = deque()

    def extended(self, batch: GpuBatch, found: Matches, attribute_of: Array) -> GpuBatch:
        """The batch with attribute_of[id] for each of an event's ids, in answers of a GPU; see `events.extended`."""
        n, stream = len(batch), self._stream
        known, on_gpu = self._attribute_of
        if known is not attribute_of:
            on_gpu = self._gpu.upload(attribute_of.astype(self._packed, copy=False))
            self._attribute_of = attribute_of, on_gpu
        memory, lease = self._leased()
        bounds = batch.bounds + found.offsets
        ids = memory.ids[found.ids.dtype].array(max(len(found.ids), 1))
        offsets, joint = memory.offsets.array(n + 1), memory.attributes.array(int(bounds[-1]))
        stream.copy_in(offsets, bounds.astype(np.uint32))
        stream.copy_in(ids, found.ids)
        events = batch.events
        arguments: list[Argument] = [events.offsets, events.attributes, offsets, ids, on_gpu, joint, n]
        kernel_ = extend_kernel(self._packed.name, found.ids.dtype.name)
        kernel_.bind((-(-n // EXTENDED_BLOCK),), EXTENDED_BLOCK, arguments)(stream)
        stream.synchronize()
        extended = EventsOnGpu(n, offsets, joint, events.location, (lease, events.kept))
        return GpuBatch(extended, int(np.diff(bounds).max(initial=0)), stream, batch.fingerprint)

    def placed(self, batch: EventBatch) -> GpuBatch:
        """A copy on the GPU of a batch without rejected rows."""
        (memory, lease), n, location = self._leased(), len(batch), None
        offsets, attributes = memory.offsets.array(n + 1), memory.attributes.array(max(batch.n_attributes, 1))
        self._stream.copy_in(offsets, np.ascontiguousarray(batch.offsets))
        self._stream.copy_in(attributes, np.ascontiguousarray(batch.attributes))
        if batch.location is not None:
            location = memory.location.array(2 * n)
            self._stream.copy_in(location, np.ascontiguousarray(batch.location))
        self._stream.synchronize()
        events = EventsOnGpu(n, offsets, attributes.part(0, batch.n_attributes), location, lease)
        return GpuBatch(events, batch.widest, self._stream, batch.fingerprint)

    def _leased(self) -> tuple[_Memory, _Lease]:
        """Memory that is not reused while the lease exists."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = _Memory(self._gpu, self._packed)
        lease = _Lease()
        weakref.finalize(lease, self._free.append, memory).atexit = False
        return memory, lease


class _Memory:
    """Memory for the events of a batch, and the ids that they are extended by."""

    def __init__(self, gpu: Gpu, packed: np.dtype) -> None:
        self.offsets, self.attributes = gpu.buffer(np.uint32), gpu.buffer(packed)
        self.location = gpu.buffer(np.float64)
        self.ids = {np.dtype(name): gpu.buffer(name) for name in ("uint8", "uint16", "uint32")}


class _Lease:
    """Prevents memory from being reused while it exists."""
