"""A few words to the GPU and a few back, for one event, by kernels instead of copies.

    host, pinned    words: an event | 0                                  answer: count, first items
                         | fetch_kernel                                       ^ deliver_kernel
    device          words           | count | items ...  ── other kernels ────'

A GPU's copies are made by engines of their own, and handing work from a multiprocessor to a copy engine and back takes
longer than to copy some hundred bytes: on an H200 a graph of an empty kernel between two copies took 10.3 µs, between two
kernels that copy 6.7, alone 1.9 (back to back, 378e1ef).  Pinned memory has the same address for the GPU as for the host,
so a kernel can read and write there.

Waiting for the driver to say that all is done takes some microseconds as well.  The count is written last, behind a fence
that the host's memory takes part in, so the host looks at it: where it is no longer NOT_YET, the items are there.  Only
when that takes very long the driver is asked, which says so if the GPU has failed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.gpu.intrinsics import WARP
from mpi_match.gpu.kernels import DeviceArray, Gpu, Stream, cuda, kernel, pinned

NOT_YET = -1
"""Stands for the count until it is there."""
LOOKS = 20_000
"""How often to look before the driver is asked: about a millisecond."""


@kernel("void(int64[::1], int64[::1], int64)")
def fetch_kernel(host: Any, words: Any, n: int) -> None:
    """Copy `host` i64[n] to the start of `words`.  Launch: one block, threads walk."""
    i = np.int64(cuda.threadIdx.x)
    while i < n:
        words[i] = host[i]
        i += cuda.blockDim.x


@kernel("void(int64[::1], int64[::1], int64)")
def deliver_kernel(words: Any, host: Any, first: int) -> None:
    """Copy a count, words[first], and as many of the items behind it as there is room for, to `host` i64[n]; the count last.

    Launch: one block, threads walk.
    """
    n = min(words[first] + 1, np.int64(host.size))
    i = np.int64(cuda.threadIdx.x) + 1
    while i < n:
        host[i] = words[first + i]
        i += cuda.blockDim.x
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence_system()
        host[0] = words[first]


class Mailbox:
    """The way of `n_words` words there, and of a count and up to `capacity` items back, the `n_first` first of them at once.

    words       i64[n_words], pinned: what the GPU is to get
    on_device   i64[n_words + 1 + capacity]: the same, the count, which comes as 0, and the items
    """

    def __init__(self, gpu: Gpu, n_words: int, capacity: int, n_first: int) -> None:
        outgoing = pinned(n_words + 1, np.int64)
        self.words = outgoing[:n_words]
        self.on_device = gpu.buffer(np.int64).array(n_words + 1 + capacity)
        self._items = self.on_device.part(n_words + 1, n_words + 1 + capacity)
        self._answer = pinned(1 + min(n_first, capacity), np.int64)
        self._count = self._answer.data
        self._fetch = fetch_kernel.bind((1,), WARP, (DeviceArray.of_pinned(outgoing), self.on_device, n_words + 1))
        self._deliver = deliver_kernel.bind((1,), WARP, (self.on_device, DeviceArray.of_pinned(self._answer), n_words))

    def fetch(self, stream: Stream) -> None:
        """Have the words brought to the device."""
        self._fetch(stream)

    def deliver(self, stream: Stream) -> None:
        """Have the count and the first items brought back."""
        self._deliver(stream)

    def expect(self) -> None:
        """An answer will come; before the work that brings it is given to the GPU."""
        self._count[0] = NOT_YET

    def receive(self, stream: Stream) -> Array:
        """Wait for the answer from `stream`: its items i64[count], until the next one is expected."""
        count = self._count
        for _ in range(LOOKS):
            if count[0] != NOT_YET:
                break
        else:
            stream.synchronize()
        n = count[0]
        if n < len(self._answer):
            return self._answer[1 : 1 + n]
        found = np.empty(n, np.int64)
        stream.copy_out(found, self._items)
        stream.synchronize()
        return found
