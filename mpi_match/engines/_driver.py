"""The NVIDIA driver: which GPUs there are, and which of them is this process's.

    choice of a GPU   --gpu-map or an argument, else the local rank modulo the number of visible GPUs
    local rank        what mpirun says, else what Slurm says: never a mixture

Nothing happens to a GPU here: counting and naming them makes no context.  What the driver answers is checked in one
place, `call`. Under Numba's CUDA simulator (`NUMBA_ENABLE_CUDASIM=1`) there is one pretended GPU.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpi_match.engines import EngineError

try:
    from cuda.bindings import driver
except ImportError as _error:
    raise EngineError(f"GPU engines need numba-cuda ({_error}); install mpi-match[gpu], or use --engine keyed") from None

simulated: bool = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
"""Do kernels run as Python?  Numba reads the same variable."""

LOCAL_RANK_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""Where a launcher tells a rank its number on this host.  The order matters: under mpirun inside a Slurm job
SLURM_LOCALID is 0 for every rank, and what mpirun itself set is right."""


def call(function: Callable[..., Any], *args: Any) -> Any:
    """A driver call: its result, or RuntimeError with the driver's own words."""
    error, *values = function(*args)
    if error != 0:
        reason = driver.cuGetErrorString(error)[1]
        text = reason.decode() if reason else "unknown error"
        raise RuntimeError(f"{function.__name__}: {text} ({error!r})")
    return values[0] if len(values) == 1 else values


class HeldMemory:
    """Gives memory back when the last array that uses it is gone.  At the process's end the driver does that itself."""

    def __init__(self, pointer: int, n_bytes: int, free: Callable[[int], Any] | None) -> None:
        self.n_bytes = n_bytes
        if free is not None:
            weakref.finalize(self, free, pointer).atexit = False


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


SIMULATED_GPU = GpuInfo(0, "CUDA simulator", "GPU-00000000-0000-0000-0000-000000000000", (5, 2), 1, 1 << 20, 1 << 30)


def driver_versions() -> tuple[str, str]:
    """Version of the NVIDIA driver ("580.159.03", empty if unknown) and the newest CUDA that it runs ("13.0").  Raises
    EngineError."""
    if simulated:
        return "", "simulator"
    _initialise()
    version = call(driver.cuDriverGetVersion)
    module = Path("/sys/module/nvidia/version")
    return module.read_text().strip() if module.exists() else "", f"{version // 1000}.{version % 1000 // 10}"


def visible_gpus() -> list[GpuInfo]:
    """The GPUs that this process may use, without starting work on any.  Raises EngineError, in one line, when there is
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


@lru_cache(maxsize=1)
def _initialise() -> None:
    try:
        call(driver.cuInit, 0)
    except Exception as error:  # cuda.bindings raises various errors when there is no driver library
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise EngineError(f"no usable GPU on this machine: {reason}; use --engine keyed") from None


def local_rank(environment: dict[str, str] | None = None) -> int | None:
    """This process's number on its host, as its launcher says; None outside a launcher."""
    source = os.environ if environment is None else environment
    for variable in LOCAL_RANK_VARIABLES:
        if source.get(variable, "").isdigit():
            return int(source[variable])
    return None
