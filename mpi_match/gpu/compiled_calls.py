"""Driver calls of compiled code: it copies, launches and waits without Python's lock, for less than a microsecond a call.

    calls = driver_calls()                          addresses, made once
    call_at(calls[COPY_IN], (to, source, n, stream))     in compiled code; returns the driver's error code

Python needs 5 to 10 µs for such a call, and one thread at a time.  Under the simulator the addresses are those of Python
functions that do the same to host memory, one call at a time.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from mpi_match.arrays.csr import Array
from mpi_match.compute.llvm import BaseContext, Signature, Typed, ir
from mpi_match.gpu.device_memory import Stream
from mpi_match.gpu.driver import simulated
from mpi_match.gpu.kernels import KernelLaunch

COPY_IN, SET_ZERO, RECORD, LAUNCH, COPY_OUT, SYNCHRONIZE, ELAPSED = range(7)
"""Positions in `driver_calls`.

COPY_IN      to (device), source (host), bytes, stream
SET_ZERO         address, 0, bytes, stream
RECORD       mark, stream
LAUNCH       `LaunchWords.kernel`, extents of the grid (3) and of a block (3), 0, stream, `LaunchWords.parameters`, 0
COPY_OUT     to (host), source (device), bytes, stream
SYNCHRONIZE  stream
ELAPSED      address of a float32 for the milliseconds, mark before, mark after
"""
_SYMBOLS = (
    *("cuMemcpyHtoDAsync_v2", "cuMemsetD8Async", "cuEventRecord", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"),
    *("cuStreamSynchronize", "cuEventElapsedTime"),
)
_N_ARGUMENTS = (4, 4, 2, 11, 4, 1, 3)
_FAILED = 999
"""The driver's code for an unknown error."""


def _call_at(_: object, address: types.Type, arguments: types.Type) -> Typed | None:
    """Generate the call of a C function.

    All arguments are passed as 64-bit words, of which a function with narrower ones reads the lower part.
    """
    if not isinstance(arguments, types.UniTuple) or arguments.dtype != types.int64:
        return None

    def generate(_: BaseContext, builder: ir.IRBuilder, __: Signature, values: Sequence[ir.Value]) -> ir.Value:
        words = cgutils.unpack_tuple(builder, values[1], len(arguments))
        function = ir.FunctionType(ir.IntType(32), [ir.IntType(64)] * len(arguments))
        return builder.call(builder.inttoptr(values[0], function.as_pointer()), words)

    return types.int32(types.int64, arguments), generate


call_at: Any = intrinsic(_call_at)
"""`call_at(address, arguments)`: the result, int32, of the C function at an address; its arguments are a tuple of int64."""


@cache
def driver_calls() -> Array:
    """i64[7]: the addresses of the calls."""
    if simulated:
        return np.array([ctypes.cast(each, ctypes.c_void_p).value for each in _simulated_calls], np.int64)
    library = ctypes.CDLL("libcuda.so.1")
    return np.array([ctypes.cast(getattr(library, each), ctypes.c_void_p).value for each in _SYMBOLS], np.int64)


def words_of_launch(launch: KernelLaunch) -> tuple[int, int]:
    """The kernel and the parameters of a launch, for LAUNCH.  The launch must exist as long as they are used."""
    if simulated:
        _launches[id(launch)] = launch
        return id(launch), 0
    return launch.handle, launch.parameters


_launches: weakref.WeakValueDictionary[int, KernelLaunch] = weakref.WeakValueDictionary()
_elapsed_ms = 0.0


def _made_calls() -> list[Any]:
    """The calls in Python, in the order of the positions."""
    stream = Stream()

    def launch(kernel: int, x: int, y: int, *_: int) -> None:
        global _elapsed_ms
        began, found = time.perf_counter(), _launches[kernel]
        found.resize((x, y))
        found(stream)
        _elapsed_ms = 1e3 * (time.perf_counter() - began)

    def elapsed(to: int, *_: int) -> None:
        ctypes.c_float.from_address(to).value = _elapsed_ms

    def copy(to: int, source: int, n_bytes: int, _: int) -> None:
        ctypes.memmove(to, source, n_bytes)

    def zero(address: int, _: int, n_bytes: int, __: int) -> None:
        ctypes.memset(address, 0, n_bytes)

    functions: list[Callable[..., None]] = [copy, zero, _nothing, launch, copy, _nothing, elapsed]
    return [
        ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * n)(_returning_code(function))
        for function, n in zip(functions, _N_ARGUMENTS, strict=True)
    ]


def _nothing(*_: int) -> None:
    """Marks and waiting: every call has ended when it returns."""


def _returning_code(function: Callable[..., None]) -> Callable[..., int]:
    def call(*arguments: int) -> int:
        try:
            function(*arguments)
        except Exception:  # which compiled code does not let through
            return _FAILED
        return 0

    return call


_simulated_calls = _made_calls() if simulated else []
"""The calls under the simulator.  The import makes them once, because several threads may call `driver_calls` for the first
time at once, and their addresses must stay valid."""
