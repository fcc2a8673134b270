"""Operations of kernels that Python lacks: those of a warp's lanes, and arithmetic that is rounded as written.

Under the simulator a warp is one lane wide: `WARP` is 1, which tests that code is correct for any warp width, and each
operation has a one-line stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.circle import in_circle_of
from mpi_match.compute.llvm import BaseContext, Signature, Typed, ir
from mpi_match.gpu.kernels import cuda, device_function, simulated


@intrinsic
def _address_of(_: object, array: types.Array) -> Typed:
    def generate(context: BaseContext, builder: ir.IRBuilder, _signature: Signature, values: Sequence[ir.Value]) -> ir.Value:
        data = context.make_array(array)(context, builder, values[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.int64))

    return types.int64(array), generate


_address: Any = _address_of  # callers omit the first argument

if simulated:
    WARP = 1
    """Lanes of a warp."""

    def lane() -> Any:
        """This thread's number within its warp."""
        return 0

    def ballot(predicate: object) -> int:
        """Mask of the lanes whose predicate holds."""
        return int(bool(predicate))

    def shuffle(value: object, source: object) -> Any:
        """The value of lane `source`."""
        return value

    def shuffle_up(value: Int, apart: int) -> Int:
        """The value of the lane `apart` before this one; of the first lanes, their own."""
        return value

    def sync_warp() -> None:
        """Wait for the other lanes."""

    def atomic_add(array: Array, index: object, value: object) -> Int:
        """Add to an item of an array that other threads add to; returns the old value.

        The simulator provides `cuda.atomic` only to functions of the kernel's own module.
        """
        return cuda.simulator.kernelapi.FakeCUDAAtomic().add(array, index, value)

    def popcount(bits: Int) -> Any:
        """Number of set bits of an unsigned integer."""
        return np.int64(int(bits).bit_count())

    def multiply(a: float, b: float) -> float:
        """`a * b` rounded once: never fused with an addition."""
        with np.errstate(over="ignore"):
            return np.float64(a) * np.float64(b)

    def add(a: float, b: float) -> float:
        """`a + b` rounded once: never fused with a multiplication."""
        with np.errstate(over="ignore"):
            return np.float64(a) + np.float64(b)

    def double_of(bits: int) -> float:
        """The IEEE double with these 64 bits."""
        return np.int64(bits).view(np.float64)

    def address_of(array: Array) -> Any:
        """Address of an array in local or shared memory, for `compute.memory`."""
        return int(array.ctypes.data)

else:
    WARP = 32
    _ALL_LANES = 0xFFFFFFFF

    @device_function
    def lane() -> int:
        return cuda.laneid

    @device_function
    def ballot(predicate: object) -> np.int64:
        return np.int64(np.uint32(cuda.ballot_sync(_ALL_LANES, predicate)))

    @device_function
    def shuffle(value: object, source: object) -> int:
        return cuda.shfl_sync(_ALL_LANES, value, source)

    @device_function
    def shuffle_up(value: Int, apart: int) -> Int:
        return cuda.shfl_up_sync(_ALL_LANES, value, apart)

    @device_function
    def sync_warp() -> None:
        cuda.syncwarp()

    @device_function
    def atomic_add(array: Array, index: object, value: object) -> int:
        return cuda.atomic.add(array, index, value)

    @device_function
    def popcount(bits: object) -> np.int64:
        return np.int64(cuda.popc(bits))

    @device_function
    def multiply(a: float, b: float) -> float:
        return cuda.libdevice.dmul_rn(a, b)

    @device_function
    def add(a: float, b: float) -> float:
        return cuda.libdevice.dadd_rn(a, b)

    @device_function
    def double_of(bits: int) -> float:
        return cuda.libdevice.longlong_as_double(bits)

    @device_function
    def address_of(array: Array) -> int:
        return _address(array)


in_circle = in_circle_of(device_function, add, multiply)
