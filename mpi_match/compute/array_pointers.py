"""Arrays that stay as they are from batch to batch, handed to compiled code once, as addresses.

The walk of `keyed` reads and writes some fifteen arrays, the same ones whatever the batch.  To hand arrays to a compiled
function is work: for each of them, at every call, Numba finds out its type, reads its shape and strides and notes its owner.
Nobody sees that beside a thousand events.  Beside one it is half: the default scenario of the CCM paper took 5.4 µs for an
event like that, 2.6 µs without.  So these arrays are handed over once, as numbers in one array:

    table i64[n, 4]    address, and lengths of up to three dimensions, of array 0
                       address, and lengths ...                      , of array 1
                       ...

and the compiled function makes arrays of them again (`line`, `rows`, `sheets`), which costs a few loads.  Such arrays have
no owner, and that is worth as much: Numba counts references to an array that has one whenever it is handed on, sliced or
taken out of a tuple, with instructions that are atomic, and an event would cost more counting than matching.

The price is what Numba did for that time.  It kept the memory, and it knew the types.  Here `PointerTable` keeps the memory
for as long as there is its table, and looks once that every array is of the type that the compiled function takes it for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined

MOST_DIMENSIONS = 3


class PointerTable:
    """The addresses of contiguous arrays of at most three dimensions, each by its number and with the type it must have.

    `table` is for compiled code, while there is this object.  Raises TypeError for an array that is not as it must be.
    """

    def __init__(self, arrays: Mapping[int, tuple[Array, Any]]) -> None:
        self._kept = [arrays[k][0] for k in range(len(arrays))]
        self.table = np.ones((len(arrays), 1 + MOST_DIMENSIONS), np.int64)
        for k, (array, dtype) in arrays.items():
            if array.dtype != dtype or array.ndim > MOST_DIMENSIONS or not array.flags.c_contiguous:
                raise TypeError(f"array {k} is {array.dtype}{list(array.shape)}, expected contiguous {np.dtype(dtype)}")
            self.table[k, 0] = array.ctypes.data
            self.table[k, 1 : 1 + array.ndim] = array.shape


@intrinsic
def _pointer_at(_: Any, address: Any) -> Any:
    """An address as what `numba.carray` makes an array of."""

    def generate(__: Any, builder: Any, ___: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = _pointer_at  # whose callers do not give the first argument


@inlined
def line(table: Any, k: Any, dtype: Any) -> Any:
    """Array k, of one dimension."""
    return numba.carray(_pointer(table[k, 0]), table[k, 1], dtype)


@inlined
def rows(table: Any, k: Any, dtype: Any) -> Any:
    """Array k, of two dimensions."""
    return numba.carray(_pointer(table[k, 0]), (table[k, 1], table[k, 2]), dtype)


@inlined
def sheets(table: Any, k: Any, dtype: Any) -> Any:
    """Array k, of three dimensions."""
    return numba.carray(_pointer(table[k, 0]), (table[k, 1], table[k, 2], table[k, 3]), dtype)


@inlined
def unowned(array: Any) -> Any:
    """The same one-dimensional array without its owner, who must keep it meanwhile."""
    return numba.carray(_pointer(array.ctypes.data), len(array), array.dtype)
