"""The only door to CUDA: which GPU, its memory, and launches that do not cost Python's time.

Numba compiles the kernels, and its simulator runs them where there is no GPU.  Everything on the way of an event
(copies, launches, graphs, waiting) calls the driver through `cuda.bindings`, because Numba's own launch costs 30 µs
and 8 µs more for each array:

    numba:   kernel[grid, block](a, b, c)            types, wraps and unpacks every argument, each time
    here:    launch = kernel.bind(grid, block, args)   unpacks them once
             launch(stream)                            one driver call
             Graph(stream, record).launch()            one driver call for copies and kernels together

A kernel takes one-dimensional contiguous arrays and 64-bit integers, nothing else: then its arguments are seven words
for an array (of which the pointer and the length matter) and one for an integer, and binding is filling in a table of
words.

Nothing here touches a GPU before `open_gpu`.  Under the simulator (`NUMBA_ENABLE_CUDASIM=1`) device memory is NumPy
arrays, a launch runs the kernel's Python, a graph repeats what was recorded, and a warp is one lane wide: `WARP` is 1, so
that code which is right for every width of a warp is tested, and the intrinsics have one-line twins.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from mpi_match.arrays import Array
from mpi_match.engines import EngineError

try:
    from cuda.bindings import driver
    from numba import cuda as _numba_cuda
    from numba.cuda.core import config as _numba_config
except ImportError as _error:
    raise EngineError(f"GPU engines need numba-cuda ({_error}); install mpi-match[gpu], or use --engine keyed") from None

cuda: Any = _numba_cuda
"""Numba's CUDA for the bodies of kernels (`cuda.blockIdx`, `cuda.shared`, `cuda.atomic`); to a type checker it is made of
stubs."""

LOCAL_RANK_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""Where a launcher tells a rank its number on this host.  The order matters: under mpirun inside a Slurm job
SLURM_LOCALID is 0 for every rank, and what mpirun itself set is right."""

simulated: bool = bool(_numba_config.ENABLE_CUDASIM)
"""Do kernels run as Python (`NUMBA_ENABLE_CUDASIM=1`)?"""


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """A driver call: its result, or RuntimeError with the driver's own words."""
    error, *values = function(*args)
    if error != 0:
        reason = driver.cuGetErrorString(error)[1]
        text = reason.decode() if reason else "unknown error"
        raise RuntimeError(f"{function.__name__}: {text} ({error!r})")
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class GpuInfo:
    """A GPU: `index` among the visible ones, `memory_bytes` in all, `compute_capability` such as (9, 0)."""

    index: int
    name: str
    uuid: str
    compute_capability: tuple[int, int]
    n_multiprocessors: int
    l2_bytes: int
    memory_bytes: int


_SIMULATED_GPU = GpuInfo(0, "CUDA simulator", "GPU-00000000-0000-0000-0000-000000000000", (5, 2), 1, 1 << 20, 1 << 30)


def driver_versions() -> tuple[str, str]:
    """Version of the NVIDIA driver ("580.159.03", empty if unknown) and the newest CUDA that it runs ("13.0").  Raises
    EngineError."""
    if simulated:
        return "", "simulator"
    _initialise()
    version = _call(driver.cuDriverGetVersion)
    module = Path("/sys/module/nvidia/version")
    return module.read_text().strip() if module.exists() else "", f"{version // 1000}.{version % 1000 // 10}"


def visible_gpus() -> list[GpuInfo]:
    """The GPUs that this process may use, without starting work on any.  Raises EngineError, in one line, when there is
    none."""
    if simulated:
        return [_SIMULATED_GPU]
    _initialise()
    attribute = driver.CUdevice_attribute
    found = []
    for index in range(_call(driver.cuDeviceGetCount)):
        gpu = _call(driver.cuDeviceGet, index)
        major, minor, n_multiprocessors, l2_bytes = (
            _call(driver.cuDeviceGetAttribute, each, gpu)
            for each in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            )
        )
        name = _call(driver.cuDeviceGetName, 128, gpu).split(b"\0", 1)[0].decode()
        raw = bytes(_call(driver.cuDeviceGetUuid, gpu).bytes).hex()
        uuid = f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        memory_bytes = _call(driver.cuDeviceTotalMem, gpu)
        found.append(GpuInfo(index, name, uuid, (major, minor), n_multiprocessors, l2_bytes, memory_bytes))
    if not found:
        raise EngineError("no GPU is visible to this process (CUDA_VISIBLE_DEVICES?); use --engine keyed")
    return found


@lru_cache(maxsize=1)
def _initialise() -> None:
    try:
        _call(driver.cuInit, 0)
    except Exception as error:  # cuda.bindings raises various errors when there is no driver library
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EngineError(f"no usable GPU on this machine: {reason}; use --engine keyed") from None


def local_rank(environment: dict[str, str] | None = None) -> int | None:
    """This process's number on its host, as its launcher says; None outside a launcher."""
    source = os.environ if environment is None else environment
    for variable in LOCAL_RANK_VARIABLES:
        if source.get(variable, "").isdigit():
            return int(source[variable])
    return None


def open_gpu(device: int | None = None) -> Gpu:
    """Choose a GPU and make it this thread's: number `device` of the visible ones, or the local rank modulo how many
    there are.

    Raises EngineError, in one line, when there is no such GPU.  That two processes do not share one is the launcher's and
    the cluster's business (they compare `Gpu.info.uuid`).
    """
    gpus = visible_gpus()
    if device is None:
        device = (local_rank() or 0) % len(gpus)
    if not 0 <= device < len(gpus):
        raise EngineError(f"there is no GPU {device}: {len(gpus)} visible, numbered from 0")
    return Gpu(gpus[device])


class Gpu:
    """One GPU: where buffers and streams come from.  `info` says which; `n_bytes` is what is taken of its memory through
    it."""

    def __init__(self, info: GpuInfo) -> None:
        self.info = info
        self._held: weakref.WeakSet[_Memory] = weakref.WeakSet()
        self.make_current()

    def make_current(self) -> None:
        """Let the calling thread use this GPU."""
        if not simulated:
            cuda.select_device(self.info.index)

    @property
    def n_bytes(self) -> int:
        return sum(memory.n_bytes for memory in self._held)

    @property
    def free_bytes(self) -> int:
        """Device memory that no process has taken."""
        return self.info.memory_bytes if simulated else int(_call(driver.cuMemGetInfo)[0])

    def buffer(self, dtype: Any) -> DeviceBuffer:
        """Device memory that grows on demand."""
        return DeviceBuffer(np.dtype(dtype), self._held)

    def upload(self, array: Array) -> DeviceArray:
        """A copy of an array in device memory of its own; returns when it is there."""
        flat = np.ascontiguousarray(array).reshape(-1)
        device = self.buffer(flat.dtype).array(max(len(flat), 1))
        stream = self.stream()
        stream.copy_in(device, flat)
        stream.synchronize()
        return device

    def stream(self) -> Stream:
        """A new stream."""
        return Stream()


class DeviceArray:
    """`size` items of `dtype` in device memory, from a buffer (which it keeps alive) or a part of another array."""

    __slots__ = ("dtype", "memory", "owner", "pointer", "size")

    def __init__(self, pointer: int, size: int, dtype: np.dtype[Any], owner: object, memory: Any = None) -> None:
        self.pointer, self.size, self.dtype, self.owner = pointer, size, dtype, owner
        self.memory = memory  # the simulator's stand-in for device memory

    @property
    def n_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def part(self, start: int, stop: int) -> DeviceArray:
        """Items `start` to `stop`, sharing the memory."""
        if not 0 <= start <= stop <= self.size:
            raise IndexError(f"items {start} to {stop} of {self.size}")
        memory = self.memory[start:stop] if simulated else None
        return DeviceArray(self.pointer + start * self.dtype.itemsize, stop - start, self.dtype, self.owner, memory)

    def viewed(self, dtype: Any) -> DeviceArray:
        """The same bytes as items of another type."""
        dtype = np.dtype(dtype)
        memory = cuda.to_device(self.memory.copy_to_host().view(dtype)) if simulated else None
        return DeviceArray(self.pointer, self.n_bytes // dtype.itemsize, dtype, self.owner, memory)


class DeviceBuffer:
    """Device memory that is reused and grows by half when it must; growing forgets what was in it."""

    def __init__(self, dtype: np.dtype[Any], held: weakref.WeakSet[_Memory]) -> None:
        self._dtype, self._held = dtype, held
        self._array = DeviceArray(0, 0, dtype, None)

    def array(self, size: int) -> DeviceArray:
        """The first `size` items.  Raises EngineError when the GPU has no room."""
        if size > self._array.size:
            grown = max(size, self._array.size * 3 // 2)
            self._array = DeviceArray(0, 0, self._dtype, None)  # give the old memory back before taking more
            self._array = self._allocate(grown)
        return self._array.part(0, size)

    def _allocate(self, size: int) -> DeviceArray:
        n_bytes = size * self._dtype.itemsize
        stand_in, pointer = None, 0
        if simulated:
            stand_in = cuda.device_array(size, self._dtype)
        else:
            error, address = driver.cuMemAlloc(n_bytes)
            if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                free = _call(driver.cuMemGetInfo)[0]
                raise EngineError(
                    f"the GPU has no room for {n_bytes / 2**20:,.0f} MiB more: {free / 2**20:,.0f} MiB are free"
                )
            if error != 0:
                raise RuntimeError(f"cuMemAlloc of {n_bytes} bytes: {error!r}")
            pointer = int(address)
        memory = _Memory(pointer, n_bytes, None if simulated else driver.cuMemFree)
        self._held.add(memory)
        return DeviceArray(pointer, size, self._dtype, memory, stand_in)


class _Memory:
    """Gives memory back when the last array that uses it is gone.  At the process's end the driver does that itself."""

    def __init__(self, pointer: int, n_bytes: int, free: Callable[[int], Any] | None) -> None:
        self.n_bytes = n_bytes
        if free is not None:
            weakref.finalize(self, free, pointer).atexit = False


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
    pointer = int(_call(driver.cuMemHostAlloc, size * dtype.itemsize, 0))
    raw = (ctypes.c_char * (size * dtype.itemsize)).from_address(pointer)
    # NumPy keeps `raw` alive, and `raw` the memory
    raw.owner = _Memory(pointer, size * dtype.itemsize, driver.cuMemFreeHost)
    array = np.frombuffer(raw, dtype)
    array[:] = 0
    return array


class Stream:
    """Work in order.  Copies are asynchronous when the host array is pinned."""

    def __init__(self) -> None:
        self.handle = 0
        if not simulated:
            flags = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
            self.handle = int(_call(driver.cuStreamCreate, flags))
            weakref.finalize(self, driver.cuStreamDestroy, self.handle).atexit = False
            self._synchronize = partial(driver.cuStreamSynchronize, driver.CUstream(self.handle))

    def copy_in(self, to: DeviceArray, source: Array) -> None:
        """Host to device: all of `source` (contiguous) to the start of `to`."""
        _check_copy(to, source)
        if simulated:
            to.memory[: source.size].copy_to_device(source.reshape(-1))
        elif source.size:
            _call(driver.cuMemcpyHtoDAsync, to.pointer, source.ctypes.data, source.nbytes, self.handle)

    def copy_out(self, to: Array, source: DeviceArray) -> None:
        """Device to host: the start of `source` to all of `to` (contiguous)."""
        _check_copy(source, to)
        if simulated:
            source.memory[: to.size].copy_to_host(to.reshape(-1))
        elif to.size:
            _call(driver.cuMemcpyDtoHAsync, to.ctypes.data, source.pointer, to.nbytes, self.handle)

    def zero(self, array: DeviceArray) -> None:
        """Fill with zero bytes."""
        if simulated:
            array.memory[:] = 0
        elif array.size:
            _call(driver.cuMemsetD8Async, array.pointer, 0, array.n_bytes, self.handle)

    def synchronize(self) -> None:
        """Wait for all work given so far."""
        if not simulated:
            (error,) = self._synchronize()
            if error != 0:
                raise RuntimeError(f"the GPU failed: {error!r}")

    def wait(self, mark: Mark) -> None:
        """Let what comes next on this stream wait for a mark on another."""
        if not simulated:
            _call(driver.cuStreamWaitEvent, self.handle, mark.handle, 0)


def _check_copy(device: DeviceArray, host: Array) -> None:
    if host.size > device.size or host.dtype != device.dtype or not host.flags.c_contiguous:
        raise ValueError(f"cannot copy between {host.size} x {host.dtype} and {device.size} x {device.dtype} on the device")


class Mark:
    """A point in a stream (CUDA calls it an event; here that word is taken): to wait for and to measure between."""

    def __init__(self) -> None:
        self.handle = 0
        self._at_s = 0.0
        if not simulated:
            self.handle = int(_call(driver.cuEventCreate, 0))
            weakref.finalize(self, driver.cuEventDestroy, self.handle).atexit = False

    def record(self, stream: Stream) -> Mark:
        """Put the mark behind all work given to the stream so far."""
        if simulated:
            self._at_s = time.perf_counter()
        else:
            _call(driver.cuEventRecord, self.handle, stream.handle)
        return self

    def synchronize(self) -> None:
        """Wait until the stream has come here."""
        if not simulated:
            _call(driver.cuEventSynchronize, self.handle)

    def seconds_since(self, start: Mark) -> float:
        """Device time from another mark to this one, both passed."""
        if simulated:
            return self._at_s - start._at_s
        return float(_call(driver.cuEventElapsedTime, start.handle, self.handle)) / 1e3


class Kernel:
    """A kernel of one signature, compiled at its first `bind` and cached on disk (in NUMBA_CACHE_DIR, else beside its
    file)."""

    def __init__(self, function: Callable[..., None], signature: str, max_registers: int | None = None) -> None:
        self.function = function
        self.signature = signature
        self._max_registers = max_registers
        self.__doc__ = function.__doc__
        self.name = function.__name__

    @cached_property
    def _dispatcher(self) -> Any:
        if simulated:
            return cuda.jit(self.function)
        try:
            return cuda.jit(cache=True)(self.function)
        except RuntimeError:  # there is no directory to cache in
            return cuda.jit(self.function)

    @cached_property
    def _types(self) -> Any:
        from numba.cuda.core.sigutils import normalize_signature

        return normalize_signature(self.signature)[0]

    @cached_property
    def _handles(self) -> dict[int, int]:
        return {}

    def _handle(self) -> int:
        """The driver's handle of the compiled kernel on the current GPU."""
        index = int(cuda.get_current_device().id)
        if index not in self._handles:
            try:
                compiled = self._dispatcher.compile(self._types)
            except (ImportError, OSError, RuntimeError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise EngineError(
                    f"the kernel {self.name} does not compile here: {reason}; is mpi-match[gpu] installed?"
                ) from error
            self._handles[index] = int(compiled._codelibrary.get_cufunc().handle)
        return self._handles[index]

    def bind(self, grid: Sequence[int], block: int, args: Sequence[DeviceArray | int]) -> Launch:
        """Arguments and shape of a launch, made ready once: `grid` one to three extents in blocks, `block` threads."""
        return Launch(self, tuple(grid), block, args)

    def ptx(self, compute_capability: tuple[int, int]) -> str:
        """The kernel's assembly for a GPU that need not be there.  Needs the compiler's libraries."""
        from numba.cuda import dispatcher

        absent = SimpleNamespace(compute_capability=compute_capability)
        # Numba asks the current GPU, which there may not be, for what it compiles the functions that a kernel calls
        with mock.patch.object(dispatcher, "get_current_device", return_value=absent):
            text, _ = cuda.compile_ptx(self.function, self._types, cc=compute_capability)
        return str(text)


def kernel(signature: str, max_registers: int | None = None) -> Callable[[Callable[..., None]], Kernel]:
    """Decorator: a kernel, `signature` such as "void(int64[::1], uint32[::1], int64)"; `max_registers` of a thread."""
    return partial(Kernel, signature=signature, max_registers=max_registers)


def device_function(function: Callable[..., Any]) -> Any:
    """Decorator: a function that kernels of the same module call."""
    return function if simulated else cuda.jit(device=True)(function)


class Launch:
    """A kernel with its arguments.  `launch.args[i]` of an integer may be changed between launches with `set`."""

    def __init__(self, kernel_: Kernel, grid: tuple[int, ...], block: int, args: Sequence[DeviceArray | int]) -> None:
        self._kernel = kernel_
        self._args = list(args)  # also keeps the arrays alive
        self._block = block
        words: list[int] = []
        self._word_of: list[int] = []
        for arg in args:
            self._word_of.append(len(words))
            if isinstance(arg, DeviceArray):
                # Numba's form of an array: meminfo, parent, items, bytes of one, data, then the extent and the stride
                words += [0, 0, arg.size, arg.dtype.itemsize, arg.pointer, arg.size, arg.dtype.itemsize]
            else:
                words.append(arg)
        self._words = (ctypes.c_int64 * len(words))(*words)
        first = ctypes.addressof(self._words)
        self._pointers = (ctypes.c_void_p * len(words))(*(first + 8 * i for i in range(len(words))))
        self.resize(grid)

    def resize(self, grid: Sequence[int]) -> None:
        """Change the extents of the grid."""
        x, y, z = (*grid, 1, 1)[:3]
        self._grid = (x, y, z)
        if not simulated:
            function = driver.CUfunction(self._kernel._handle())
            parameters = ctypes.addressof(self._pointers)
            self._call = lambda stream: driver.cuLaunchKernel(function, x, y, z, self._block, 1, 1, 0, stream, parameters, 0)

    def set(self, index: int, value: int) -> None:
        """Change the integer argument `index`."""
        self._args[index] = value
        self._words[self._word_of[index]] = value

    def __call__(self, stream: Stream) -> None:
        """Launch.  A grid without blocks is nothing to do."""
        if 0 in self._grid:
            return
        if simulated:
            self._kernel._dispatcher[self._grid, self._block](
                *(a.memory if isinstance(a, DeviceArray) else a for a in self._args)
            )
            return
        (error,) = self._call(stream.handle)
        if error != 0:
            raise RuntimeError(f"launch of {self._kernel.name} with grid {self._grid} and block {self._block}: {error!r}")


class Graph:
    """Copies and launches recorded once and repeated with one driver call.

    `record` gives its work to `stream`.  It runs once for real before it is captured (that loads its kernels, which must
    not happen during capture), so what it does must be harmless then.
    """

    def __init__(self, stream: Stream, record: Callable[[], None]) -> None:
        record()
        stream.synchronize()
        if simulated:
            self._again = record
            return
        # relaxed: Python may free other device memory meanwhile, which stricter modes answer by spoiling the capture
        _call(driver.cuStreamBeginCapture, stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            record()
        finally:
            captured = _call(driver.cuStreamEndCapture, stream.handle)
        executable = _call(driver.cuGraphInstantiate, captured, 0)
        _call(driver.cuGraphDestroy, captured)
        weakref.finalize(self, driver.cuGraphExecDestroy, executable).atexit = False
        self._keep = record  # the arguments and buffers that the graph refers to
        self._launch = partial(driver.cuGraphLaunch, executable, driver.CUstream(stream.handle))

    def launch(self) -> None:
        """Give the recorded work to the stream again."""
        if simulated:
            self._again()
            return
        (error,) = self._launch()
        if error != 0:
            raise RuntimeError(f"cuGraphLaunch: {error!r}")


if simulated:
    WARP = 1
    """Lanes of a warp."""

    def lane() -> int:
        """This thread's number in its warp."""
        return 0

    def ballot(predicate: Any) -> int:
        """Bits of the lanes whose predicate holds."""
        return int(bool(predicate))

    def shuffle(value: Any, source: int) -> Any:
        """The value of lane `source`."""
        return value

    def sync_warp() -> None:
        """Wait for the other lanes."""

    def multiply(a: float, b: float) -> Any:
        """`a * b` rounded once: never fused with an addition."""
        return np.float64(a) * np.float64(b)

    def add(a: float, b: float) -> Any:
        """`a + b` rounded once: never fused with a multiplication."""
        return np.float64(a) + np.float64(b)

    def double_of(bits: int) -> Any:
        """The IEEE double with these 64 bits."""
        return np.int64(bits).view(np.float64)

else:
    WARP = 32
    _ALL_LANES = 0xFFFFFFFF

    @device_function
    def lane() -> int:
        return cuda.laneid

    @device_function
    def ballot(predicate: Any) -> int:
        return cuda.ballot_sync(_ALL_LANES, predicate)

    @device_function
    def shuffle(value: Any, source: int) -> Any:
        return cuda.shfl_sync(_ALL_LANES, value, source)

    @device_function
    def sync_warp() -> None:
        cuda.syncwarp()

    @device_function
    def multiply(a: float, b: float) -> Any:
        return cuda.libdevice.dmul_rn(a, b)

    @device_function
    def add(a: float, b: float) -> Any:
        return cuda.libdevice.dadd_rn(a, b)

    @device_function
    def double_of(bits: int) -> Any:
        return cuda.libdevice.longlong_as_double(bits)
