"""GPU memory, and the streams that copy between it and host memory.

    DeviceBuffer   device memory that grows and is reused          .array(n) -> DeviceArray: pointer, length, dtype
    Rows           device memory that is overwritten a few bytes at a time
    Stream         copies, launches and waiting, in order
    Mark           a point in a stream, to wait for and to measure between

A device array is a pointer and a length, which is all that a launch needs; Numba's own arrays cost 100 µs of bookkeeping.
Under the simulator, device memory is NumPy arrays, and every copy has completed when its call returns.
"""

from __future__ import annotations

import copy
import ctypes
import time
import weakref
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mpi_match.arrays.csr import Array
from mpi_match.errors import EngineError
from mpi_match.gpu.driver import HeldMemory, Intake, call, driver, simulated, words_of
from mpi_match.gpu.pinned_memory import pinned


class DeviceArray:
    """`size` items of `dtype` in device memory, from a buffer (which it keeps alive) or a part of another array."""

    __slots__ = ("dtype", "memory", "owner", "pointer", "size")

    def __init__(self, pointer: int, size: int, dtype: np.dtype[Any], owner: object, memory: Any = None) -> None:
        self.pointer, self.size, self.dtype, self.owner = pointer, size, dtype, owner
        self.memory = memory  # the simulator's stand-in for device memory

    @classmethod
    def of_pinned(cls, array: Array) -> DeviceArray:
        """Wrap pinned host memory, which kernels access in place, over the bus."""
        return cls(0 if simulated else address_of(array), array.size, array.dtype, array, array)

    @classmethod
    def empty(cls, dtype: npt.DTypeLike) -> DeviceArray:
        """An array without items."""
        return cls(0, 0, np.dtype(dtype), None, np.empty(0, dtype))

    @property
    def n_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def address(self) -> int:
        """Address of the first item, for `compute.memory` in kernels; under the simulator, in host memory."""
        return int(self.memory.ctypes.data) if simulated else self.pointer

    def part(self, start: int, stop: int) -> DeviceArray:
        """Items `start` to `stop`, sharing the memory."""
        if not 0 <= start <= stop <= self.size:
            raise IndexError(f"items {start} to {stop} of {self.size}")
        memory = self.memory[start:stop] if simulated else None
        return DeviceArray(self.pointer + start * self.dtype.itemsize, stop - start, self.dtype, self.owner, memory)

    def viewed(self, dtype: npt.DTypeLike) -> DeviceArray:
        """The same bytes as items of another dtype."""
        dtype = np.dtype(dtype)
        memory = self.memory.view(dtype) if simulated else None
        return DeviceArray(self.pointer, self.n_bytes // dtype.itemsize, dtype, self.owner, memory)


class DeviceBuffer:
    """Device memory that is reused and grows by half when necessary; growing discards its content."""

    def __init__(self, dtype: np.dtype[Any], held: weakref.WeakSet[HeldMemory]) -> None:
        self._dtype, self._held = dtype, held
        self._nothing = self._array = DeviceArray.empty(dtype)

    def array(self, size: int) -> DeviceArray:
        """The first `size` items.  Raises EngineError if the GPU runs out of memory."""
        if size > self._array.size:
            grown = max(size, self._array.size * 3 // 2)
            self._array = self._nothing  # free the old memory before allocating more
            self._array = self._allocate(grown)
        return self._array.part(0, size)

    def _allocate(self, size: int) -> DeviceArray:
        n_bytes = size * self._dtype.itemsize
        stand_in, pointer = None, 0
        if simulated:
            stand_in = np.empty(size, self._dtype)
        else:
            error, address = driver.cuMemAlloc(n_bytes)
            if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                free = call(driver.cuMemGetInfo)[0]
                raise EngineError(
                    f"the GPU has no room for another {n_bytes / 2**20:,.0f} MiB: {free / 2**20:,.0f} MiB are free"
                )
            if error != 0:
                raise RuntimeError(f"cuMemAlloc of {n_bytes} bytes: {error!r}")
            pointer = int(address)
        memory = HeldMemory(pointer, n_bytes, None if simulated else driver.cuMemFree)
        self._held.add(memory)
        return DeviceArray(pointer, size, self._dtype, memory, stand_in)


class Rows:
    """A device array as rows of `width` items, which are overwritten one at a time.

    For so few bytes, `Stream.copy_in` takes as long to determine the addresses as the driver takes to copy.  Here they are
    known: rows are copied through a ring of `n_under_way` pinned buffers.
    """

    def __init__(self, stream: Stream, array: DeviceArray, width: int, n_under_way: int) -> None:
        self._stream, self._array, self._width = stream, array, width
        self._places, self._next = pinned(n_under_way * width, array.dtype).reshape(n_under_way, width), 0
        self._n_places, self._row_bytes = n_under_way, width * array.dtype.itemsize
        if not simulated:
            self._from, self._to = address_of(self._places), array.pointer
            self._copy, self._handle = stream.intake.cuMemcpyHtoDAsync, stream.handle

    def put(self, row: int, values: Array) -> None:
        """Overwrite a row, after all work submitted to the stream so far; `values` may be changed once this returns."""
        place = self._next
        if place == self._n_places:
            self._stream.synchronize()
            place = 0
        self._next = place + 1
        self._places[place] = values
        if simulated:
            self._array.memory[row * self._width : (row + 1) * self._width] = values
            return
        n = self._row_bytes
        error = self._copy(self._to + row * n, self._from + place * n, n, self._handle)
        if error:
            raise RuntimeError(f"copy of {n} bytes to row {row}: {words_of(error)}")


class Stream:
    """A sequence of GPU work that runs in order.  Copies are asynchronous if the host array is pinned.

    The blocks of `urgent` kernels run before those of other kernels that have not started.  Without this, kernels get the
    GPU in the order in which they became ready, each when all blocks of the one before have started.

    With `keeps_lock`, work is submitted with Python's lock held (see `Intake`): the stream must then never have a thousand
    pending launches, and may copy only from and to pinned memory.
    """

    def __init__(self, *, urgent: bool = False, keeps_lock: bool = False) -> None:
        self.handle, self.intake = 0, _INTAKES[keeps_lock]
        self._same: Stream | None = None  # the stream that owns this handle; both are destroyed together
        if not simulated:
            flags = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
            priority = call(driver.cuCtxGetStreamPriorityRange)[1] if urgent else 0
            self.handle = int(call(driver.cuStreamCreateWithPriority, flags, priority))
            weakref.finalize(self, driver.cuStreamDestroy, self.handle).atexit = False
            self._synchronize = partial(driver.cuStreamSynchronize, driver.CUstream(self.handle))

    def releasing_lock(self) -> Stream:
        """The same stream, whose calls release Python's lock: for copies from and to memory that is not pinned."""
        same = copy.copy(self)
        same.intake, same._same = _INTAKES[False], self
        return same

    def copy_in(self, to: DeviceArray, source: Array) -> None:
        """Copy all of `source` (contiguous, on the host) to the start of `to` on the device."""
        _check_copy(to, source)
        if simulated:
            to.memory[: source.size] = source.reshape(-1)
        elif source.size:
            _taken(self.intake.cuMemcpyHtoDAsync(to.pointer, address_of(source), source.nbytes, self.handle), "copy in")

    def copy_out(self, to: Array, source: DeviceArray) -> None:
        """Copy the start of `source` on the device to all of `to` (contiguous, on the host)."""
        _check_copy(source, to)
        if simulated:
            to.reshape(-1)[:] = source.memory[: to.size]
        elif to.size:
            _taken(self.intake.cuMemcpyDtoHAsync(address_of(to), source.pointer, to.nbytes, self.handle), "copy out")

    def copy_within(self, to: DeviceArray, source: DeviceArray) -> None:
        """Copy all of `source` to the start of `to`, of the same dtype; both are on the device."""
        if simulated:
            to.memory[: source.size] = source.memory
        elif source.size:
            _taken(self.intake.cuMemcpyDtoDAsync(to.pointer, source.pointer, source.n_bytes, self.handle), "copy within")

    def zero(self, array: DeviceArray) -> None:
        """Fill with zero bytes."""
        if simulated:
            array.memory[:] = 0
        elif array.size:
            _taken(self.intake.cuMemsetD8Async(array.pointer, 0, array.n_bytes, self.handle), "zero")

    def synchronize(self) -> None:
        """Wait for all work submitted so far."""
        if not simulated:
            (error,) = self._synchronize()
            if error != 0:
                raise RuntimeError(f"the GPU failed: {words_of(error)}")

    def wait(self, mark: Mark) -> None:
        """Let later work on this stream wait for a mark on another."""
        if not simulated:
            _taken(self.intake.cuStreamWaitEvent(self.handle, mark.handle, 0), "wait")


_INTAKES = {keeps_lock: Intake(keeps_lock=keeps_lock) for keeps_lock in (False, True)}


def _taken(error: int, what: str) -> None:
    """Raise RuntimeError if the driver has refused the work."""
    if error:
        raise RuntimeError(f"{what}: {words_of(error)}")


def address_of(array: Array) -> int:
    """Address of a contiguous array of at least one byte.  `array.ctypes.data` takes twice as long, a microsecond."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data)) if array.flags.writeable else int(array.ctypes.data)


def _check_copy(device: DeviceArray, host: Array) -> None:
    if host.size > device.size or host.dtype != device.dtype or not host.flags.c_contiguous:
        raise ValueError(f"cannot copy between {host.size} x {host.dtype} and {device.size} x {device.dtype} on the device")


class Mark:
    """A point in a stream to wait for and to measure between.  CUDA calls it an event, which means something else here."""

    def __init__(self) -> None:
        self.handle = 0
        self._at_s = 0.0
        if not simulated:
            self.handle = int(call(driver.cuEventCreate, 0))
            weakref.finalize(self, driver.cuEventDestroy, self.handle).atexit = False

    def record(self, stream: Stream) -> Mark:
        """Place the mark after all work submitted to the stream so far."""
        if simulated:
            self._at_s = time.perf_counter()
        else:
            _taken(stream.intake.cuEventRecord(self.handle, stream.handle), "record")
        return self

    def synchronize(self) -> None:
        """Wait until the stream has reached the mark."""
        if not simulated:
            call(driver.cuEventSynchronize, self.handle)

    def seconds_since(self, start: Mark) -> float:
        """Device time in seconds from another mark to this one; both must have passed."""
        if simulated:
            return self._at_s - start._at_s
        ms = ctypes.c_float()
        _taken(_INTAKES[True].cuEventElapsedTime(ctypes.addressof(ms), start.handle, self.handle), "elapsed time")
        return ms.value / 1e3
