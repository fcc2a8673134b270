"""Page-locked host memory, from and to which the GPU copies at full speed and asynchronously.

    PinnedBuffer   memory that is reused                 .array(n) -> NumPy array
    PinnedPool     arrays that are given away            .take(n, type) -> NumPy array, returned when no reference is left
    PinnedRegions  all pinned memory that is read        .hold(array), .holds(array)

Under the simulator it is ordinary memory.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mpi_match.arrays.csr import Array
from mpi_match.errors import EngineError
from mpi_match.gpu.driver import HeldMemory, call, driver, simulated

_LEAST_PAGES_BYTES = 2**22
"""Bytes of the smallest memory for which huge pages are asked."""


class PinnedBuffer:
    """Host memory that the GPU copies from and to at full speed; it is reused and grows by half when necessary.

    Its arrays are ordinary NumPy arrays and keep their memory alive.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._array = np.zeros(0, self._dtype)

    def array(self, size: int) -> Array:
        """The first `size` items; growing discards the content."""
        if size > len(self._array):
            self._array = pinned(max(size, len(self._array) * 3 // 2), self._dtype)
        return self._array[:size]


def pinned(size: int, dtype: npt.DTypeLike) -> Array:
    """Allocate `size` zeros in pinned host memory."""
    array = _allocated(size, np.dtype(dtype))
    array[:] = 0
    return array


def _allocated(size: int, dtype: np.dtype) -> Array:
    """Allocate `size` uninitialised items in pinned host memory."""
    if simulated or size == 0:
        return np.empty(size, dtype)
    n_bytes = size * dtype.itemsize
    pointer, free = _pinned_pages(n_bytes) if n_bytes >= _LEAST_PAGES_BYTES else (0, None)
    if free is None:
        pointer, free = int(call(driver.cuMemHostAlloc, n_bytes, 0)), driver.cuMemFreeHost
    raw: Any = (ctypes.c_char * n_bytes).from_address(pointer)
    raw.owner = HeldMemory(pointer, n_bytes, free)  # NumPy keeps `raw` alive, and `raw` the memory
    return np.frombuffer(raw, dtype)


def _pinned_pages(n_bytes: int) -> tuple[int, Callable[[int], object] | None]:
    """Allocate and pin huge pages.  Several threads may do so at a time, and it takes a fifth of the time of the driver's
    own allocation.  Returns the address and the function that frees it; None if the driver refuses."""
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[:: mmap.PAGESIZE] = 0
    pointer, _ = _bounds(memory)
    (error,) = driver.cuMemHostRegister(pointer, n_bytes, _PORTABLE)
    return pointer, None if error != 0 else partial(_unpin, memory)


def _unpin(memory: Array, pointer: int) -> None:
    """Unpin the pages of `memory`, which are freed with the last reference to it."""
    driver.cuMemHostUnregister(pointer)


class PinnedPool:
    """Pinned arrays that become answers: the GPU copies straight into them.

    The memory of an array returns to the pool, and is reused, when no reference to it or to a view of it is left in any
    thread.  At most `most_bytes` are ever pinned; while arrays that use all of them are alive, `take` returns None.  Any
    thread may call `take`.  If the pool has `regions`, its arrays are registered there as pinned.
    """

    def __init__(self, most_bytes: int, regions: PinnedRegions | None = None) -> None:
        self._most_bytes, self._regions = most_bytes, PinnedRegions() if regions is None else regions
        self._n_bytes = 0
        self._taking = threading.Lock()
        self._free: list[Array] = []
        self._returned: deque[Array] = deque()  # appended to at any time, perhaps by the garbage collector

    def take(self, size: int, dtype: npt.DTypeLike) -> Array | None:
        """An uninitialised array; None without room for it."""
        n_bytes = size * np.dtype(dtype).itemsize
        with self._taking:
            while self._returned:
                self._free.append(self._returned.popleft())
            fitting = [(len(memory), i) for i, memory in enumerate(self._free) if len(memory) >= n_bytes]
            memory = self._free.pop(min(fitting)[1]) if fitting else None
            n_more = self._reserved(n_bytes) if memory is None else 0
        if memory is None:
            if n_more < n_bytes:
                return None
            memory = self._pinned(n_more)
        array = np.frombuffer(memory.data, dtype, size)
        weakref.finalize(array, self._returned.append, memory).atexit = False
        return array

    def _reserved(self, n_bytes: int) -> int:
        """Reserve `n_bytes`, plus an eighth if there is room, as pinned; returns the number of bytes reserved, 0 if there is
        no room."""
        while self._free and self._n_bytes + n_bytes > self._most_bytes:
            dropped = self._free.pop()  # too small; its memory is freed
            self._regions.drop(dropped)
            self._n_bytes -= len(dropped)
        found = min(n_bytes + n_bytes // 8, self._most_bytes - self._n_bytes)
        if n_bytes > found:
            return 0
        self._n_bytes += found
        return found

    def _pinned(self, n_bytes: int) -> Array:
        """Pin `n_bytes` that have been reserved; several threads may do so at a time, which takes milliseconds."""
        try:
            memory = _allocated(n_bytes, np.dtype(np.uint8))
        except BaseException:
            with self._taking:
                self._n_bytes -= n_bytes
            raise
        with self._taking:
            self._regions.add(memory)
        return memory


class PinnedRegions:
    """Pinned memory, from which copies run at full speed: that of pools, and memory allocated elsewhere, pinned in place.

    The latter may be a mapped file, or memory shared with other processes: the GPU only reads it.
    """

    def __init__(self) -> None:
        self._regions: list[tuple[int, int]] = []  # ascending, never modified in place: other threads search it
        self._memory: list[Array] = []

    def hold(self, memory: Array) -> None:
        """Pin a contiguous array until this object is gone.  Raises EngineError if the driver refuses."""
        first, last = _bounds(memory)
        if first == last:
            return
        if not simulated:
            start = first // mmap.PAGESIZE * mmap.PAGESIZE  # whole pages are pinned
            n_bytes = -(-(last - start) // mmap.PAGESIZE) * mmap.PAGESIZE
            (error,) = driver.cuMemHostRegister(start, n_bytes, _PORTABLE | _READ_ONLY)
            if error != 0:  # some drivers do not support read-only memory
                (error,) = driver.cuMemHostRegister(start, n_bytes, _PORTABLE)
            if error != 0:
                raise EngineError(f"{memory.nbytes / 2**20:,.0f} MiB cannot be pinned in place: {error!r}")
            weakref.finalize(self, driver.cuMemHostUnregister, start).atexit = False
        self.add(memory)
        self._memory.append(memory)

    def add(self, memory: Array) -> None:
        """Register an array that is already pinned."""
        self._regions = sorted([*self._regions, _bounds(memory)])

    def drop(self, memory: Array) -> None:
        """Remove an array that was added, before it is freed."""
        self._regions = [region for region in self._regions if region != _bounds(memory)]

    def holds(self, array: Array) -> bool:
        """Tells whether all of an array is in registered memory."""
        first, last = _bounds(array)
        regions = self._regions
        place = bisect.bisect(regions, (first, sys.maxsize)) - 1
        return place >= 0 and last <= regions[place][1]


_PORTABLE, _READ_ONLY = 1, 8
"""CU_MEMHOSTREGISTER_*: for all threads; for memory that this process may not write."""


def _bounds(array: Array) -> tuple[int, int]:
    """Addresses of its first byte and of the one after its last."""
    first = int(array.__array_interface__["data"][0])
    return first, first + array.nbytes
