"""The NVIDIA driver: the visible GPUs, and the choice of this process's GPU.

    choice of a GPU   --gpu-map or an argument, else the local rank modulo the number of visible GPUs
    local rank        as set by mpirun, else as set by Slurm: never a mixture

No context is created here: GPUs are only counted and described.  Most of the driver is called through `cuda.bindings`, by
`call`; calls that submit work to a GPU, batch after batch, go through `Intake`.  Under Numba's CUDA simulator
(`NUMBA_ENABLE_CUDASIM=1`) there is one simulated GPU.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpi_match.environment.mpi_launcher import LOCAL_RANK_VARIABLES
from mpi_match.errors import EngineError
from mpi_match.gpu.presence import LIBRARY, SIMULATED

try:
    from cuda.bindings import driver as driver  # other modules import it from here
except ImportError as _error:
    raise EngineError(f"GPU engines need numba-cuda ({_error}); install mpi-match[gpu], or use --engine keyed") from None

simulated: bool = SIMULATED

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # queues for streams; those that share one wait for one another


def words_of(error: Any) -> str:
    """The driver's text for an error."""
    reason = b""
    with suppress(ValueError):  # an error that the bindings do not know
        reason = driver.cuGetErrorString(driver.CUresult(int(error)))[1]
    return f"{reason.decode() if reason else 'unknown error'} ({int(error)})"


def call(function: Callable[..., Any], *args: object) -> Any:
    """Return the result of a driver call.  Raises RuntimeError with the driver's text."""
    error, *values = function(*args)
    if error != 0:
        raise RuntimeError(f"{function.__name__}: {words_of(error)}")
    return values[0] if len(values) == 1 else values


class Intake:
    """The driver calls that submit work to a GPU, which take microseconds: `intake.cuEventRecord(mark, stream)` and so on,
    as in C; each returns its error code.

    With `keeps_lock`, calls keep Python's lock.  Releasing it costs nothing while no other thread waits for it.  But the
    writing and communicating threads of a worker take the lock every time it is released, and getting it back takes as long
    as ten such calls; a slice makes fifteen.  Only a call that may wait for the GPU must release the lock: a copy from
    memory that is not pinned, or work for a stream with a thousand pending launches.
    """

    def __init__(self, *, keeps_lock: bool) -> None:
        self._loader = ctypes.PyDLL if keeps_lock else ctypes.CDLL

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in _INTAKE:
            raise AttributeError(name)
        symbol, *types = _INTAKE[name]
        found: Any = getattr(self._loader(LIBRARY), symbol)
        found.argtypes, found.restype = types, ctypes.c_int
        function: Callable[..., int] = found
        setattr(self, name, function)  # the next access finds it directly
        return function


_ADDRESS, _HANDLE, _SIZE, _COUNT = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
_INTAKE: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": ("cuCtxGetCurrent", _HANDLE),
    "cuLaunchKernel": ("cuLaunchKernel", _HANDLE, *[_COUNT] * 7, _HANDLE, _HANDLE, _HANDLE),
    "cuGraphLaunch": ("cuGraphLaunch", _HANDLE, _HANDLE),
    "cuMemcpyHtoDAsync": ("cuMemcpyHtoDAsync_v2", _ADDRESS, _HANDLE, _SIZE, _HANDLE),
    "cuMemcpyDtoHAsync": ("cuMemcpyDtoHAsync_v2", _HANDLE, _ADDRESS, _SIZE, _HANDLE),
    "cuMemcpyDtoDAsync": ("cuMemcpyDtoDAsync_v2", _ADDRESS, _ADDRESS, _SIZE, _HANDLE),
    "cuMemsetD8Async": ("cuMemsetD8Async", _ADDRESS, ctypes.c_ubyte, _SIZE, _HANDLE),
    "cuEventRecord": ("cuEventRecord", _HANDLE, _HANDLE),
    "cuEventElapsedTime": ("cuEventElapsedTime", _HANDLE, _HANDLE, _HANDLE),
    "cuStreamWaitEvent": ("cuStreamWaitEvent", _HANDLE, _HANDLE, _COUNT),
}
"""For each call: its name in the library, and the types of its arguments."""
_ASKING = Intake(keeps_lock=True)


def current_context() -> int:
    """The context of the calling thread, 0 if there is none.  The call takes a third of a microsecond."""
    found = ctypes.c_void_p()
    error = _ASKING.cuCtxGetCurrent(ctypes.addressof(found))
    if error:
        refuse_forked()
        raise RuntimeError(f"cuCtxGetCurrent: {words_of(error)}")
    return found.value or 0


class HeldMemory:
    """Frees memory when the last array that uses it is gone.  At the end of the process the driver frees it."""

    def __init__(self, pointer: int, n_bytes: int, free: Callable[[int], object] | None) -> None:
        self.n_bytes = n_bytes
        if free is not None:
            weakref.finalize(self, free, pointer).atexit = False


@dataclass(frozen=True)
class GpuInfo:
    """A GPU: `index` among the visible ones, total `memory_bytes`, `compute_capability` such as (9, 0)."""

    index: int
    name: str
    uuid: str
    compute_capability: tuple[int, int]
    n_multiprocessors: int
    l2_bytes: int
    memory_bytes: int


SIMULATED_GPU = GpuInfo(0, "CUDA simulator", "GPU-00000000-0000-0000-0000-000000000000", (5, 2), 1, 1 << 20, 1 << 30)


def driver_versions() -> tuple[str, str]:
    """Version of the NVIDIA driver ("580.159.03", empty if unknown) and the newest CUDA version that it supports ("13.0").
    Raises EngineError."""
    if simulated:
        return "", "simulator"
    _initialise()
    version = call(driver.cuDriverGetVersion)
    module = Path("/sys/module/nvidia/version")
    return module.read_text().strip() if module.exists() else "", f"{version // 1000}.{version % 1000 // 10}"


def visible_gpus() -> list[GpuInfo]:
    """The GPUs that this process may use, without starting work on any.  Raises EngineError, in one line, if there is
    none."""
    if simulated:
        return [SIMULATED_GPU]
    _initialise()
    attribute = driver.CUdevice_attribute
    found = []
    for index in range(call(driver.cuDeviceGetCount)):
        gpu = call(driver.cuDeviceGet, index)
        major, minor, n_multiprocessors, l2_bytes = (
            call(driver.cuDeviceGetAttribute, each, gpu)
            for each in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            )
        )
        name = call(driver.cuDeviceGetName, 128, gpu).split(b"\0", 1)[0].decode()
        raw = bytes(call(driver.cuDeviceGetUuid, gpu).bytes).hex()
        uuid = f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        memory_bytes = call(driver.cuDeviceTotalMem, gpu)
        found.append(GpuInfo(index, name, uuid, (major, minor), n_multiprocessors, l2_bytes, memory_bytes))
    if not found:
        raise EngineError("no GPU is visible to this process (CUDA_VISIBLE_DEVICES?); use --engine keyed")
    return found


def refuse_forked() -> None:
    """Raise EngineError in a child that was forked after its parent had used the driver, because such a child cannot use
    it."""
    if _is_forked:
        raise EngineError(
            "the process was forked after its parent had used a GPU, which a child cannot use; start it by 'spawn' or "
            "'forkserver', or use --engine keyed"
        )


_is_forked = False


def _forked() -> None:
    global _is_forked
    _is_forked = _is_forked or _initialise.cache_info().currsize > 0


os.register_at_fork(after_in_child=_forked)


@lru_cache(maxsize=1)
def _initialise() -> None:
    try:
        call(driver.cuInit, 0)
    except Exception as error:  # cuda.bindings raises various errors when there is no driver library
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise EngineError(f"no usable GPU on this machine: {reason}; use --engine keyed") from None


def local_rank(environment: dict[str, str] | None = None) -> int | None:
    """This process's number on its host, from the launcher's environment variables; None outside a launcher."""
    source = os.environ if environment is None else environment
    for variable in LOCAL_RANK_VARIABLES:
        if source.get(variable, "").isdigit():
            return int(source[variable])
    return None
