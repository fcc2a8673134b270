"""Machine code of kernels (cubins): kept on disk, and found in the wheel.

    compile_cache.directory()/cubins-VERSION/LABEL-sm_90.cubin      kept by the process that compiled it
    mpi_match/compiled/DIGEST-sm_80-VERSIONS/LABEL-sm_80.cubin      in a wheel, for the GPUs of `SHIPPED_GPUS`

A kernel is launched through the driver, which needs its machine code and its name.  So nothing of Numba's is kept: neither
the intermediate code, which takes longer to load than a small kernel to compile, nor its own wrappers.  Code for a GPU runs
on later ones of the same major version, unless it is compiled for one version alone (`sm_90a`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np

from mpi_match.compute import compile_cache
from mpi_match.compute.code_files import read_checked, write_checked
from mpi_match.environment import source_digest

Capability = tuple[int, int]
"""A GPU's compute capability, such as (9, 0)."""
SHIPPED_GPUS: tuple[Capability, ...] = ((8, 0), (9, 0))
"""GPUs that a wheel has code for: A100, and the later ones with 8 (A10, L4, RTX 30 and 40); H100, H200."""
ONE_VERSION_ALONE = 9
"""From this major version on, code is compiled for one version alone."""


class KernelCode(NamedTuple):
    """A compiled kernel: its name in the machine code, and the machine code."""

    name: str
    cubin: bytes


def shipped_directory(capability: Capability) -> Path:
    """The directory of the code that came with the package for a GPU, these sources and this compiler; it need not exist."""
    versions = f"numba{numba.__version__}-numba_cuda{version('numba-cuda')}"
    return compile_cache.SHIPPED_CODE / f"{source_digest.digest()}-{named(capability)}-{versions}"


def named(capability: Capability) -> str:
    """The compiler's name of the GPUs of a capability, such as sm_90."""
    return "sm_{}{}".format(*capability)


def runs_as(capability: Capability) -> Capability | None:
    """The GPU of `SHIPPED_GPUS` whose code runs on one of this capability; None if there is none."""
    major, minor = capability
    for each in reversed(SHIPPED_GPUS):
        if each == capability or (each[0] == major < ONE_VERSION_ALONE and each[1] <= minor):
            return each
    return None


def use_shipped(capability: Capability) -> None:
    """Count as compiled what the package has for a GPU, if it also has code for this machine's processor."""
    shipped = runs_as(capability)
    if shipped is not None and compile_cache.shipped_directory() is not None:
        compile_cache.shipped_marks.add(shipped_directory(shipped))


def find(label: str, capability: Capability) -> KernelCode | None:
    """The code of a kernel for a GPU, kept on this machine or shipped; None if it has to be compiled."""
    kept, shipped = _kept_in(), runs_as(capability)
    found = None if kept is None else _read(kept, label, capability)
    if found is None and shipped is not None:
        found = _read(shipped_directory(shipped), label, shipped)
    return found


def keep(label: str, capability: Capability, code: KernelCode) -> None:
    """Keep compiled code, if the directory can be written."""
    if (place := _kept_in()) is not None:
        with suppress(OSError):
            place.mkdir(exist_ok=True)
            write(place, label, capability, code)


def write(place: Path, label: str, capability: Capability, code: KernelCode) -> None:
    """Write code into a directory.  Raises OSError."""
    write_checked(_path(place, label, capability), code.name.encode() + b"\0" + code.cubin)


def _kept_in() -> Path | None:
    place = compile_cache.directory()
    return None if place is None else place / f"cubins-numba_cuda{version('numba-cuda')}"


def _path(place: Path, label: str, capability: Capability) -> Path:
    return place / f"{label}-{named(capability)}.cubin"


def _read(place: Path, label: str, capability: Capability) -> KernelCode | None:
    content = read_checked(_path(place, label, capability))
    if content is None:
        return None
    name, _, cubin = content.partition(b"\0")
    return KernelCode(name.decode(), cubin)


def described(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """The parts of a text that tells a function from all others of these sources: its code, and what its closure holds.
    Raises TypeError for an object in a closure whose text may differ from process to process."""
    seen = set() if seen is None else seen
    function = getattr(value, "py_func", value)
    if isinstance(function, FunctionType):
        code = function.__code__
        yield f"{function.__module__}.{function.__qualname__}:{code.co_firstlineno}"
        if id(function) not in seen:
            seen.add(id(function))
            yield code.co_code.hex()
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
                yield name
                yield from described(cell.cell_contents, seen)
    elif isinstance(value, type | int | str | float | np.generic | np.dtype | None):
        yield repr(value)
    else:
        raise TypeError(f"a kernel's closure holds {value!r}")
