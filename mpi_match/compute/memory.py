"""Loads and stores at addresses, for compiled code that walks through many arrays a byte at a time.

Numba passes an array as seven values and counts references to its owner at every call; a function with twenty arrays passes
140 values.  The scanner of JSON lines calls a dozen functions per line; with arrays as arguments it took eight times as long
as with addresses.  Its arrays are in an `AddressTable`, and its functions take one integer for all of them:

    load_u8(load_i64(tables, NAME_BYTES), 7)      byte 7 of the array that is number NAME_BYTES

Nothing is checked: an index beyond an array reads or writes other memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numba.core import types
from numba.core.cpu import CPUContext
from numba.extending import intrinsic

from mpi_match.arrays.csr import Array
from mpi_match.compute.llvm import BaseContext, Signature, Typed, ir


class AddressTable:
    """The addresses of contiguous arrays, i64 each; `address` is the table's own.  The table keeps `arrays` alive."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        self.arrays = [np.ascontiguousarray(array) for array in arrays]
        self._table = np.array([array.ctypes.data for array in self.arrays], np.int64)
        self.address = self._table.ctypes.data


pread: Any = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))
"""The system's `pread(descriptor, address, n_bytes, at)`: the bytes that it has read, -1 after an error.  Compiled code that
reads piece by piece does not take Python's lock after each piece, which would make threads wait."""
utf8_of: Any = types.ExternalFunction("PyUnicode_AsUTF8AndSize", types.intp(types.intp, types.intp))
"""CPython's `utf8_of(text, size)`: the address of the UTF-8 of the string at an address, whose length it writes to `size`; 0
and an error, which `clear_error` takes back, if there is none.  The caller holds Python's lock."""
clear_error: Any = types.ExternalFunction("PyErr_Clear", types.void())


def _load_anywhere(of: types.Type, as_: types.Type) -> Callable:
    """`load(address)`: the item of type `of` at any address, as a value of type `as_`."""

    def load(_: object, address: object) -> Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
            item = builder.load(builder.inttoptr(values[0], context.get_value_type(of).as_pointer()), align=1)
            return context.cast(builder, item, of, as_)

        return as_(types.int64), generate

    return intrinsic(load)


def _load(of: types.Type, as_: types.Type, *, constant: bool = False) -> Callable:
    """`load(base, i)`: item i of the items of type `of` at the address `base`, as a value of type `as_`."""

    def load(_: object, base: object, i: object) -> Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
            pointer = builder.inttoptr(values[0], context.get_value_type(of).as_pointer())
            item = builder.load(builder.gep(pointer, [values[1]]))
            if constant:
                item.set_metadata("invariant.load", builder.module.add_metadata([]))
            return context.cast(builder, item, of, as_)

        return as_(types.int64, types.int64), generate

    return intrinsic(load)


def _load_pair() -> Callable:
    """`load(base, i)`: the two u64 of pair i, 16 bytes each, at the address `base`, a multiple of 16; the pairs never
    change."""

    def load(_: object, base: object, i: object) -> Typed:
        def generate(
            context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: Sequence[ir.Value]
        ) -> ir.Value:
            vector = ir.VectorType(ir.IntType(64), 2)
            item = builder.load(builder.gep(builder.inttoptr(values[0], vector.as_pointer()), [values[1]]), align=16)
            item.set_metadata("invariant.load", builder.module.add_metadata([]))
            halves = [builder.extract_element(item, ir.Constant(ir.IntType(32), half)) for half in (0, 1)]
            return context.make_tuple(builder, signature.return_type, halves)

        return types.UniTuple(types.uint64, 2)(types.int64, types.int64), generate

    return intrinsic(load)


def _f64_bits() -> Callable:
    """`bits(value)`: the 64 bits of a double."""

    def bits(_: object, value: object) -> Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
            return builder.bitcast(values[0], context.get_value_type(types.uint64))

        return types.uint64(types.float64), generate

    return intrinsic(bits)


def _is_on_cpu() -> Callable:
    """`on_cpu()`: a constant, true in code for a CPU, false in code for a GPU."""

    def on_cpu(_: object) -> Typed:
        def generate(context: BaseContext, _builder: ir.IRBuilder, __: object, ___: Sequence[ir.Value]) -> ir.Value:
            return context.get_constant(types.boolean, isinstance(context, CPUContext))

        return types.boolean(), generate

    return intrinsic(on_cpu)


def _store(of: types.Type, as_: types.Type) -> Callable:
    """`store(base, i, value)`: write `value`, of type `as_`, to item i of the items of type `of` at the address `base`."""

    def store(_: object, base: object, i: object, value: object) -> Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
            pointer = builder.inttoptr(values[0], context.get_value_type(of).as_pointer())
            builder.store(context.cast(builder, values[2], as_, of), builder.gep(pointer, [values[1]]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, as_), generate

    return intrinsic(store)


load_u8: Callable[[Any, Any], int] = _load(types.uint8, types.int64)
load_i32: Callable[[Any, Any], int] = _load(types.int32, types.int64)
load_u32: Callable[[Any, Any], int] = _load(types.uint32, types.int64)
load_i64: Callable[[Any, Any], int] = _load(types.int64, types.int64)
any_u32: Callable[[Any], int] = _load_anywhere(types.uint32, types.int64)
any_u64: Callable[[Any], np.uint64] = _load_anywhere(types.uint64, types.uint64)
constant_i64: Callable[[Any, Any], int] = _load(types.int64, types.int64, constant=True)
constant_pair: Callable[[Any, Any], tuple[np.uint64, np.uint64]] = _load_pair()
f64_bits: Callable[[Any], np.uint64] = _f64_bits()
is_on_cpu: Callable[[], bool] = _is_on_cpu()
load_u64: Callable[[Any, Any], np.uint64] = _load(types.uint64, types.uint64)
load_f64: Callable[[Any, Any], float] = _load(types.float64, types.float64)
store_u8 = _store(types.uint8, types.int64)
store_u32 = _store(types.uint32, types.int64)
store_i64 = _store(types.int64, types.int64)
store_u64 = _store(types.uint64, types.uint64)
store_f64 = _store(types.float64, types.float64)
