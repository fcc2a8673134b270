"""Arrays that stay the same from batch to batch, passed to compiled code once, as addresses.

The search of `keyed` reads and writes some fifteen arrays, the same ones for every batch.  Passing arrays to a compiled
function takes time: for each of them, at every call, Numba determines its type, reads its shape and strides and notes its
owner.  That is negligible for a thousand events and half of the time for one: the default scenario of the CCM paper took
5.4 µs for an event with it, 2.6 µs without.  So these arrays are passed once, as numbers in one array:

    table i64[n, 4]    address, and lengths of up to three dimensions, of array 0
                       address, and lengths ...                      , of array 1
                       ...

and the compiled function makes arrays of them again (`line`, `rows`, `sheets`), which costs a few loads.  Such arrays have
no owner, which saves as much again: Numba counts references to an array with an owner whenever it is passed on, sliced or
taken out of a tuple, with atomic instructions, and an event would cost more counting than matching.

Numba then neither keeps the memory alive nor checks the types.  `PointerTable` does both: it keeps the memory for as long as
it exists, and checks once that every array has the type that the compiled function assumes.
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

    `table` i64[n, 4] is for compiled code, valid while this object exists.  Raises TypeError for an array of another dtype,
    of more dimensions, or that is not contiguous.
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
    """An address as a pointer that `numba.carray` accepts."""

    def generate(__: Any, builder: Any, ___: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = _pointer_at  # Numba passes the first argument
_carray: Any = vars(numba)["carray"]


@inlined
def line(table: Any, k: Any, dtype: Any) -> Any:
    """Array k, of one dimension."""
    return _carray(_pointer(table[k, 0]), table[k, 1], dtype)


@inlined
def rows(table: Any, k: Any, dtype: Any) -> Any:
    """Array k, of two dimensions."""
    return _carray(_pointer(table[k, 0]), (table[k, 1], table[k, 2]), dtype)


@inlined
def sheets(table: Any, k: Any, dtype: Any) -> Any:
    """Array k, of three dimensions."""
    return _carray(_pointer(table[k, 0]), (table[k, 1], table[k, 2], table[k, 3]), dtype)


@inlined
def unowned(array: Any) -> Any:
    """The same one-dimensional array without its owner, which must keep it alive."""
    return _carray(_pointer(array.ctypes.data), len(array), array.dtype)
