"""Copies a few words to the GPU and a few back, for one event, with kernels instead of the copy engines.

    host, pinned    words: an event | 0                                  answer: count, first items
                         | fetch_kernel                                       ^ deliver_kernel, or the kernel before it
    device          words           | count | items ...  ── other kernels ────'

A GPU has separate copy engines, and handing work from a multiprocessor to a copy engine and back takes longer than copying a
few hundred bytes: on an H200 a graph of an empty kernel between two copies took 10.3 µs, between two kernels that copy 6.7,
alone 1.9 (back to back, 378e1ef).  Pinned memory has the same address for the GPU as for the host, so a kernel can read and
write it.

A kernel can replace `deliver_kernel`: its last block to finish copies the answer (`Home`).  This saves a launch, for which
the answer would wait.

An answer may be a bit mask instead of a list: its words are then the items, and their number the count.

Waiting for a stream through the driver takes microseconds as well.  So the host polls the count, which is written last,
after a fence that covers host memory: once it is no longer NOT_YET, the items have been written.  Only if that takes very
long does the host wait for the stream, which raises an error if the GPU has failed.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.gpu.intrinsics import WARP, atomic_add
from mpi_match.gpu.kernels import DeviceArray, Gpu, KernelLaunch, Stream, cuda, device_function, kernel, pinned

NOT_YET = -1
"""Value of the count until it is written."""
FETCH_THREADS = 4 * WARP
"""Threads of `fetch_kernel`, one word each for most events: a second iteration would wait for host memory again."""
LOOKS = 20_000
"""Polls before the host waits for the stream: about a millisecond."""


class Home(NamedTuple):
    """Destination to which a kernel copies the answer of its event: `host` i64[1 + n_first], pinned, empty if it copies
    none; `done` u32[1], the number of finished blocks, 0 before and after."""

    host: Any
    done: Any


HOME_TYPE = "Home(int64[::1], uint32[::1])"


@device_function
def put_items(host: Array, items: Any, first: int, n: int, zero: Any, thread: Any, n_threads: int) -> None:
    """Copy items[first : first + n], as far as they fit, after the count in `host`, which is written later.

    Other blocks have written them: atomic additions of `zero` read the written values, not those that this multiprocessor
    has cached.
    """
    i, end = thread, min(n, np.int64(host.size) - 1)
    while i < end:
        host[1 + i] = np.int64(atomic_add(items, first + i, zero))
        i += n_threads


@kernel("void(int64[::1], int64[::1], int64)")
def fetch_kernel(host: Array, words: Array, n: int) -> None:
    """Copy `host` i64[n] to the start of `words`.  Launch: one block; a thread copies several words."""
    i = np.int64(cuda.threadIdx.x)
    while i < n:
        words[i] = host[i]
        i += cuda.blockDim.x


@kernel("void(int64[::1], int64[::1], int64)")
def deliver_kernel(words: Array, host: Array, first: int) -> None:
    """Copy a count, words[first], and as many of the items after it as fit, to `host` i64[n]; the count is written last.

    Launch: one block; a thread copies several words.
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


@kernel("void(uint32[::1], int64[::1], int64, int64)")
def deliver_mask_kernel(mask: Array, host: Array, first: int, n: int) -> None:
    """Copy the words mask[first : first + n] as items, and their number as the count, to `host` i64[1 + n]; the count is
    written last.

    Launch: one block; a thread copies several words.
    """
    i = np.int64(cuda.threadIdx.x)
    while i < n:
        host[1 + i] = np.int64(mask[first + i])
        i += cuda.blockDim.x
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence_system()
        host[0] = n


@lru_cache(1024)
def _event_form(n_attributes: int) -> struct.Struct:
    return struct.Struct(f"<q2d{n_attributes}Q")


def no_home() -> Home:
    """The `Home` of a launch that copies no answer."""
    return Home(DeviceArray.empty(np.int64), DeviceArray.empty(np.uint32))


class Mailbox:
    """Copies `n_words` words to the GPU, and a count and up to `capacity` items back, the first `n_first` of them at once.

    words       i64[n_words], pinned: the input
    on_device   i64[n_words + 1 + capacity]: the input, the count, initially 0, and the items
    home        for a kernel that copies the answer itself
    """

    def __init__(self, gpu: Gpu, n_words: int, capacity: int, n_first: int) -> None:
        outgoing = pinned(n_words + 1, np.int64)
        self.words = outgoing[:n_words]
        self.on_device = gpu.buffer(np.int64).array(n_words + 1 + capacity)
        self._items = self.on_device.part(n_words + 1, n_words + 1 + capacity)
        self._answer = pinned(1 + min(n_first, capacity), np.int64)
        self._count, self._answer_bytes = self._answer.data, self._answer.data.cast("B")
        self._word_bytes = self.words.data.cast("B")
        self.home = Home(DeviceArray.of_pinned(self._answer), gpu.upload(np.zeros(1, np.uint32)))
        self._fetch = fetch_kernel.bind((1,), FETCH_THREADS, (DeviceArray.of_pinned(outgoing), self.on_device, n_words + 1))
        self._deliver = deliver_kernel.bind((1,), WARP, (self.on_device, DeviceArray.of_pinned(self._answer), n_words))

    def fetch(self, stream: Stream) -> None:
        """Launch the copy of the words to the device."""
        self._fetch(stream)

    def deliver(self, stream: Stream) -> None:
        """Launch the copy of the count and the first items to the host."""
        self._deliver(stream)

    def mask_delivery(self, mask: DeviceArray, first: int, n: int) -> KernelLaunch:
        """A launch that copies `n` words of a mask u32, from its word `first` on, to the host; `n` is at most `n_first`."""
        return deliver_mask_kernel.bind((1,), WARP, (mask, DeviceArray.of_pinned(self._answer), first, n))

    def put_event(self, at: int, packed: tuple[int, ...], place: tuple[float, float]) -> None:
        """Write an event (see `EventBatch`) to the words from `at` on: its number of attributes, x, y, and the
        attributes."""
        _event_form(len(packed)).pack_into(self._word_bytes, 8 * at, len(packed), *place, *packed)

    def expect(self) -> None:
        """Reset the count; must be called before the work that writes the answer is launched."""
        self._count[0] = NOT_YET

    def receive(self, stream: Stream) -> Array:
        """Wait for the answer from `stream`: its items i64[count], valid until the next `expect`."""
        n = self._wait(stream)
        if n < len(self._answer):
            return self._answer[1 : 1 + n]
        found = np.empty(n, np.int64)
        stream.copy_out(found, self._items)
        stream.synchronize()
        return found

    def receive_bytes(self, stream: Stream) -> bytes:
        """Wait for an answer of at most `n_first` items, and return the items as bytes."""
        return self._answer_bytes[8 : 8 + 8 * self._wait(stream)].tobytes()

    def _wait(self, stream: Stream) -> int:
        """Wait for the answer; returns its count."""
        count = self._count
        for _ in range(LOOKS):
            if count[0] != NOT_YET:
                break
        else:
            stream.synchronize()
            if count[0] == NOT_YET:
                raise RuntimeError("the GPU has ended its work on an event without delivering an answer")
        return count[0]
