"""Passes arrays that stay the same from batch to batch to compiled code once, as addresses.

The search of `keyed` reads and writes some fifteen arrays, the same ones for every batch.  Passing arrays to a compiled
function takes time: for each of them, at every call, Numba determines its type, reads its shape and strides and records its
owner.  This is negligible for a thousand events but half of the time for one: in the default scenario of the CCM paper an
event took 5.4 µs with it and 2.6 µs without.  So these arrays are passed once, as numbers in one array:

    table i64[n, 4]    address, and lengths of up to three dimensions, of array 0
                       address, and lengths ...                      , of array 1
                       ...

The compiled function turns them into arrays again (`DeclaredArrays`; `line`, `rows`, `sheets`), which costs a few loads.
Such arrays have no owner, which saves as much again: Numba counts references to an array with an owner whenever it is
passed on, sliced or taken out of a tuple, with atomic instructions, and counting would cost more than matching an event.

Numba then neither keeps the memory alive nor checks the types.  `PointerTable` does both: it keeps the memory alive for its
own lifetime, and checks once that every array has the type that the compiled function assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from mpi_match.arrays.csr import Array
from mpi_match.compute.llvm import BaseContext, Typed, ir

MOST_DIMENSIONS = 3
_TABLE = types.int64[:, ::1]
"""The type of `PointerTable.table`."""


class PointerTable:
    """The addresses of contiguous arrays of at most three dimensions, each with its number and required dtype.

    `table` i64[n, 4] is for compiled code and valid while this object exists.  Raises TypeError for an array of another
    dtype, of more dimensions, or that is not contiguous.
    """

    def __init__(self, arrays: Mapping[int, tuple[Array, object]]) -> None:
        self._kept: list[object] = [arrays[k][0] for k in range(len(arrays))]
        self.table = np.ones((len(arrays), 1 + MOST_DIMENSIONS), np.int64)
        self._enter(arrays)

    def replaced(self, arrays: Mapping[int, tuple[Array, object]]) -> PointerTable:
        """A table in which some arrays are replaced; it keeps the old and the new arrays alive."""
        other = copy(self)
        other._kept, other.table = [self, *(array for array, _ in arrays.values())], self.table.copy()
        other._enter(arrays)
        return other

    def _enter(self, arrays: Mapping[int, tuple[Array, Any]]) -> None:
        for k, (array, dtype) in arrays.items():
            if array.dtype != dtype or array.ndim > MOST_DIMENSIONS or not array.flags.c_contiguous:
                raise TypeError(f"array {k} is {array.dtype}{list(array.shape)}, expected contiguous {np.dtype(dtype)}")
            self.table[k, 0] = array.ctypes.data
            self.table[k, 1 : 1 + array.ndim] = array.shape


def _made(
    context: BaseContext, builder: ir.IRBuilder, array: types.Array, address: ir.Value, lengths: Sequence[ir.Value]
) -> ir.Value:
    """Build an array of the given type at an address, without an owner."""
    made, itemsize = make_array(array)(context, builder), context.get_abi_sizeof(context.get_data_type(array.dtype))
    strides = [context.get_constant(types.intp, itemsize)]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(length, strides[0]))
    pointer = builder.bitcast(address, context.get_data_type(array.dtype).as_pointer())
    populate_array(made, data=pointer, shape=lengths, strides=strides, itemsize=itemsize, meminfo=None)
    return made._getvalue()


def _array_at(context: BaseContext, builder: ir.IRBuilder, array: types.Array, table: ir.Value, k: ir.Value) -> ir.Value:
    """Build array k of a table."""
    first = builder.gep(
        make_array(_TABLE)(context, builder, table).data,
        [builder.mul(k, context.get_constant(types.int64, 1 + MOST_DIMENSIONS))],
    )
    words = [builder.load(builder.gep(first, [context.get_constant(types.int64, i)])) for i in range(1 + array.ndim)]
    return _made(context, builder, array, builder.inttoptr(words[0], cgutils.voidptr_t), words[1:])


def _of_table(n_dimensions: int) -> Callable:
    """Make the intrinsic `(table, k, dtype)`, which returns array k of a table, with `n_dimensions` dimensions."""

    def typed(_: object, table: types.Array, k: object, dtype: types.DType) -> Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
            return _array_at(context, builder, array, values[0], values[1])

        array = types.Array(dtype.dtype, n_dimensions, "C")
        return array(table, types.int64, dtype), generate

    return intrinsic(typed)


class DeclaredArrays:
    """The arrays of a table, declared one after the other.

    Each is known by the function that reads it in compiled code: `blocks = declare(np.uint64)` makes `blocks(table)`, and
    `words = declare()` makes `words(table, dtype)`, for an array whose dtype varies.
    """

    def __init__(self) -> None:
        self._declared: dict[Any, tuple[int, Any]] = {}

    def declare(self, own: Any = None, dimensions: int = 1) -> Any:
        """Declare the next array, of dtype `own`; returns the function that reads it, an intrinsic, which Numba need not
        compile."""
        number = len(self._declared)

        def built(array: types.Array) -> Callable[..., ir.Value]:
            def generate(context: BaseContext, builder: ir.IRBuilder, _: object, values: Sequence[ir.Value]) -> ir.Value:
                return _array_at(context, builder, array, values[0], context.get_constant(types.int64, number))

            return generate

        def typed(_: object, table: types.Array) -> Typed:
            array = types.Array(from_dtype(np.dtype(own)), dimensions, "C")
            return array(table), built(array)

        def typed_as(_: object, table: types.Array, dtype: types.DType) -> Typed:
            array = types.Array(dtype.dtype, dimensions, "C")
            return array(table, dtype), built(array)

        read = intrinsic(typed_as if own is None else typed)
        self._declared[read] = number, own
        return read

    def entries(self, arrays: Mapping[Any, Array], dtype: object = None) -> dict[int, tuple[Array, object]]:
        """Arrays by the functions that read them, as `PointerTable` takes them; `dtype` is that of arrays whose dtype
        varies."""
        declared = ((self._declared[read], array) for read, array in arrays.items())
        return {number: (array, own or dtype) for (number, own), array in declared}


line, rows, sheets = _of_table(1), _of_table(2), _of_table(3)
"""`(table, k, dtype)` in compiled code: array k, of one, two or three dimensions.

These add no function that Numba would have to compile for each type; nor does `unowned`.
"""


@intrinsic
def _unowned(_: object, array: types.Array) -> Typed:
    def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
        given = make_array(array)(context, builder, values[0])
        return _made(context, builder, bare, given.data, cgutils.unpack_tuple(builder, given.shape))

    bare = types.Array(array.dtype, 1, "C")
    return bare(array), generate


unowned: Any = _unowned
"""`(array)` in compiled code: the same one-dimensional array without its owner, which must keep it alive."""
