"""The answers of a batch, copied from a GPU slice by slice.

    GPU    counts 0 | ids 0      counts 1 | ids 1      ...
              │        └───────┐    │        └──────────────┐
    host   counts of the batch │                            │
           ids of the batch   ◄┴────────────────────────────┴──   pinned: the GPU writes them to their final location

Both are page-locked arrays, so the host need not touch every id: with a kilobyte of ids per event, copying them into fresh
memory took longer than matching.  When no pinned memory is left, they are copied through the slot's buffers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import copy
from mpi_match.gpu.kernels import DeviceArray, PinnedBuffer, PinnedPool, Stream
from mpi_match.matches.matches import Matches, id_dtype

LEAST_BYTES = 2**16
"""Bytes of the smallest array in pinned memory: for smaller ones, the pool costs more than a copy."""


class Answers:
    """The answers of a batch of `n_events` events with ids below `n_ids`, filled slice by slice, in order."""

    def __init__(self, n_events: int, n_ids: int, pool: PinnedPool) -> None:
        self.id_dtype, self.count_dtype = id_dtype(n_ids), id_dtype(n_ids + 1)
        self._n_ids, self._n_events, self._n_found, self._pool = n_ids, 0, 0, pool
        self._counts = self._array(n_events, self.count_dtype)
        self._ids = _Memory(np.empty(0, self.id_dtype), False)

    def take(self, counts: DeviceArray, ids: DeviceArray, stream: Stream, by_way: tuple[PinnedBuffer, PinnedBuffer]) -> None:
        """Add the answers of the next events: their counts and ids, which are still on the GPU.

        `by_way` are buffers for counts and ids that cannot be copied directly.  Waits for the stream.
        """
        places = self._places(counts.size, ids.size)
        are_pinned = self._counts.is_pinned, self._ids.is_pinned
        through = []
        for place, source, is_pinned, buffer in zip(places, (counts, ids), are_pinned, by_way, strict=True):
            host = place if is_pinned else buffer.array(source.size)
            stream.copy_out(host, source)
            if not is_pinned:
                through.append((place, host))
        stream.synchronize()
        for place, host in through:
            copy(place, host)

    def put(self, counts: Array, ids: Array) -> None:
        """Add the answers of the next events, which are on the host."""
        for place, array in zip(self._places(len(counts), len(ids)), (counts, ids), strict=True):
            copy(place, array)

    def _places(self, n_events: int, n_ids: int) -> tuple[Array, Array]:
        """The places of the counts and ids of the next events."""
        first, begin = self._n_events, self._n_found
        self._n_events, self._n_found = first + n_events, begin + n_ids
        if self._n_found > len(self._ids.array):
            self._grow(self._n_found, begin)
        return self._counts.array[first : self._n_events], self._ids.array[begin : self._n_found]

    def _grow(self, end: int, n_kept: int) -> None:
        """Make room for `end` ids, plus as many per remaining event as the events so far have, and an eighth more; keep the
        first `n_kept`."""
        n_left = len(self._counts.array) - self._n_events
        grown = self._array(end + end * n_left * 9 // (8 * self._n_events), self.id_dtype)
        copy(grown.array[:n_kept], self._ids.array[:n_kept])
        self._ids = grown

    def _array(self, size: int, dtype: np.dtype) -> _Memory:
        taken = self._pool.take(size, dtype) if size * dtype.itemsize >= LEAST_BYTES else None
        return _Memory(np.empty(size, dtype), False) if taken is None else _Memory(taken, True)

    @property
    def counts(self) -> Array:
        """The number of ids of each event so far."""
        return self._counts.array[: self._n_events]

    @property
    def n_found(self) -> int:
        """The number of ids so far."""
        return self._n_found

    def matches(self) -> Matches:
        """The answers of the whole batch."""
        return Matches.from_counts(self._counts.array, self._ids.array[: self._n_found], self._n_ids)


class _Memory(NamedTuple):
    """An array on the host, and whether it is pinned."""

    array: Array
    is_pinned: bool
