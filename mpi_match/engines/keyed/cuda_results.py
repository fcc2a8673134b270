"""The answers of a batch, copied from a GPU slice by slice.

    GPU    counts 0 | ids 0      counts 1 | ids 1      ...
              │        └───────┐    │        └──────────────┐
    host   counts of the batch │                            │
           ids of the batch   ◄┴────────────────────────────┴──   pinned: the GPU writes them to their final location

The answer is a page-locked array, so the host need not touch every id: with a kilobyte of ids per event, copying them into
fresh memory took longer than matching.  When no pinned memory is left, ids are copied through the slot's buffer.  Counts are
always copied, also into pinned memory: reused memory has its pages, whereas fresh memory, a megabyte per batch, would get
them one by one while other threads of the process wait for theirs.
"""

from __future__ import annotations

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
        self.id_dtype = id_dtype(n_ids)
        self._n_ids, self._n_events, self._n_found, self._pool = n_ids, 0, 0, pool
        self._counts, _ = self._array(n_events, id_dtype(n_ids + 1))
        self._ids, self._is_pinned = np.empty(0, self.id_dtype), False

    def take(self, counts: Array, ids: DeviceArray, stream: Stream, by_way: PinnedBuffer) -> None:
        """Add the answers of the next events: their counts, and their ids of dtype `id_dtype`, which are still on the GPU.

        `by_way` is a buffer for ids that cannot be copied directly.  Waits for the stream.
        """
        self._counts[self._n_events : self._n_events + len(counts)] = counts
        self._n_events += len(counts)
        end = self._n_found + ids.size
        if end > len(self._ids):
            self._grow(end)
        place = self._ids[self._n_found : end]
        self._n_found = end
        if self._is_pinned:
            stream.copy_out(place, ids)
            stream.synchronize()
        else:
            host = by_way.array(ids.size)
            stream.copy_out(host, ids)
            stream.synchronize()
            copy(place, host)

    def _grow(self, end: int) -> None:
        """Make room for `end` ids, plus as many per remaining event as the events so far have, and an eighth more."""
        size = end + end * (len(self._counts) - self._n_events) * 9 // (8 * self._n_events)
        grown, self._is_pinned = self._array(size, self.id_dtype)
        copy(grown[: self._n_found], self._ids[: self._n_found])
        self._ids = grown

    def _array(self, size: int, dtype: np.dtype) -> tuple[Array, bool]:
        """Allocate an array; returns it, and True if it is pinned."""
        taken = self._pool.take(size, dtype) if size * dtype.itemsize >= LEAST_BYTES else None
        return (np.empty(size, dtype), False) if taken is None else (taken, True)

    def matches(self) -> Matches:
        """The answers of the whole batch."""
        return Matches.from_counts(self._counts, self._ids[: self._n_found], self._n_ids)
