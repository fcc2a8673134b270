"""Memory of the host that the GPU can reach: it copies from there and to there at full speed, while others go on.

    PinnedBuffer   memory that is used again             .array(n) -> NumPy array
    PinnedPool     the same for what is given away       .take(n, type) -> NumPy array, back when nobody has it
    PinnedRegions  memory that others made, where it lies   .hold(array), .holds(array)

Under the simulator it is memory like any other.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import sys
import weakref
from collections import deque
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.errors import EngineError
from mpi_match.gpu.driver import HeldMemory, call, driver, simulated


class PinnedBuffer:
    """Host memory that the GPU copies from and to at full speed; it is reused and grows by half when it must.

    The arrays it hands out are ordinary NumPy arrays and keep their memory alive.
    """

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._array = np.zeros(0, self._dtype)

    def array(self, size: int) -> Array:
        """The first `size` items; growing forgets what was there."""
        if size > len(self._array):
            self._array = pinned(max(size, len(self._array) * 3 // 2), self._dtype)
        return self._array[:size]


def pinned(size: int, dtype: Any) -> Array:
    """`size` zeros in pinned host memory."""
    dtype = np.dtype(dtype)
    if simulated or size == 0:
        return np.zeros(size, dtype)
    pointer = int(call(driver.cuMemHostAlloc, size * dtype.itemsize, 0))
    raw = (ctypes.c_char * (size * dtype.itemsize)).from_address(pointer)
    # NumPy keeps `raw` alive, and `raw` the memory
    raw.owner = HeldMemory(pointer, size * dtype.itemsize, driver.cuMemFreeHost)
    array = np.frombuffer(raw, dtype)
    array[:] = 0
    return array


class PinnedPool:
    """Pinned arrays to give away: what the GPU has copied there need not be copied out of its way.

    An array comes back by itself when nobody has it or a view of it any more, in whatever thread that is, and its memory is
    handed out again.  At most `most_bytes` are ever pinned; who keeps arrays for good only makes later ones ordinary.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._n_bytes = 0
        self._free: list[Array] = []
        self._returned: deque[Array] = deque()  # appended to at any time, perhaps by the garbage collector

    def take(self, size: int, dtype: Any) -> Array | None:
        """An array of any content; None when there is no room."""
        n_bytes = size * np.dtype(dtype).itemsize
        while self._returned:
            self._free.append(self._returned.popleft())
        fitting = [(len(memory), i) for i, memory in enumerate(self._free) if len(memory) >= n_bytes]
        memory = self._free.pop(min(fitting)[1]) if fitting else self._grow(n_bytes)
        if memory is None:
            return None
        array = np.frombuffer(memory.data, dtype, size)
        weakref.finalize(array, self._returned.append, memory).atexit = False
        return array

    def _grow(self, n_bytes: int) -> Array | None:
        while self._free and self._n_bytes + n_bytes > self._most_bytes:
            self._n_bytes -= len(self._free.pop())  # too small; the memory goes with it
        n_bytes_left = self._most_bytes - self._n_bytes
        if n_bytes > n_bytes_left:
            return None
        memory = pinned(min(n_bytes + n_bytes // 8, n_bytes_left), np.uint8)
        self._n_bytes += len(memory)
        return memory


class PinnedRegions:
    """Memory that is there already and stays as it is, pinned where it lies, so that copies run from it at full speed.

    A mapped file, or memory that other processes have mapped too: the GPU only reads it.
    """

    def __init__(self) -> None:
        self._regions: list[tuple[int, int]] = []  # ascending
        self._memory: list[Array] = []

    def hold(self, memory: Array) -> None:
        """Pin a contiguous array until this object is gone.  Raises EngineError where the driver refuses."""
        first, last = _bounds(memory)
        if first == last:
            return
        if not simulated:
            start = first // mmap.PAGESIZE * mmap.PAGESIZE  # pages are pinned, and a mapping has whole ones
            n_bytes = -(-(last - start) // mmap.PAGESIZE) * mmap.PAGESIZE
            (error,) = driver.cuMemHostRegister(start, n_bytes, _PORTABLE | _READ_ONLY)
            if error != 0:  # not every driver knows the second; then this process must be able to write there
                (error,) = driver.cuMemHostRegister(start, n_bytes, _PORTABLE)
            if error != 0:
                raise EngineError(f"{memory.nbytes / 2**20:,.0f} MiB cannot be pinned where they lie: {error!r}")
            weakref.finalize(self, driver.cuMemHostUnregister, start).atexit = False
        bisect.insort(self._regions, (first, last))
        self._memory.append(memory)

    def holds(self, array: Array) -> bool:
        """Does all of an array lie in memory that is held?"""
        first, last = _bounds(array)
        place = bisect.bisect(self._regions, (first, sys.maxsize)) - 1
        return place >= 0 and last <= self._regions[place][1]


_PORTABLE, _READ_ONLY = 1, 8
"""CU_MEMHOSTREGISTER_*: for all threads; for memory that this process may not write."""


def _bounds(array: Array) -> tuple[int, int]:
    """Addresses of its first byte and of the one after its last."""
    first = int(array.__array_interface__["data"][0])
    return first, first + array.nbytes
