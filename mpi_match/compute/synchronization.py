"""Atomics, a mutex and a barrier for threads that stay inside compiled code.

The phases of matching one event last some 20 µs, less than a Python lock takes, or than Numba needs to start a parallel
loop.  So threads meet here without leaving compiled code.  Each spins on a word of memory, at first without pause; then it
yields its core between two polls, and after a millisecond it sleeps briefly.  More threads than cores are therefore slow,
but they never hang.

A *cell* is an i64 on its own cache lines, so that threads that use different cells do not slow each other down.  It is
passed as an address (`Cells.address`).  A mutex is one cell, a barrier two consecutive ones:

    arrived      number of waiting threads
    generation   number of times the barrier has opened; waiting threads poll it

All waiting threads also poll a cell `stop`.  Once it is not 0, no thread waits any longer, for instance for a thread that
failed.

Only for compiled code, except `Cells`.  Addresses are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.llvm import BaseContext, Typed, ir

CELL_BYTES = 128
"""Bytes of a cell: two cache lines, because processors fetch them in pairs."""
BARRIER_CELLS = 2

SPINS, YIELDS = 500, 2000
"""Polls of a cell before a thread yields its core between two polls, and before it sleeps between them."""
SLEEP_US = 50

LAST_ARRIVED, PASSED, STOPPED = range(3)
"""Results of `arrive`."""


class Cells:
    """Array of n cells, initially 0, which exist as long as this object."""

    def __init__(self, n: int) -> None:
        self._memory = np.zeros((n + 1) * CELL_BYTES // 8, np.int64)
        first = -self._memory.ctypes.data % CELL_BYTES
        self._cells = self._memory[first // 8 :][: n * CELL_BYTES // 8 : CELL_BYTES // 8]

    def address(self, i: int = 0) -> int:
        """The address of cell i; the next one is CELL_BYTES further."""
        return int(self._cells.ctypes.data) + i * CELL_BYTES

    def __getitem__(self, i: int) -> int:
        return int(self._cells[i])

    def __setitem__(self, i: int, value: int) -> None:
        self._cells[i] = value


def _pointer(builder: ir.IRBuilder, context: BaseContext, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, context.get_value_type(types.int64).as_pointer())


@intrinsic
def _load(_: object, cell: object) -> Typed:
    def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
        return builder.load_atomic(_pointer(builder, context, values[0]), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _store(_: object, cell: object, value: object) -> Typed:
    def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
        builder.store_atomic(values[1], _pointer(builder, context, values[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _exchange(_: object, cell: object, expected: object, value: object) -> Typed:
    def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
        pointer = _pointer(builder, context, values[0])
        return builder.extract_value(builder.cmpxchg(pointer, values[1], values[2], "acq_rel", "acquire"), 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


def _update(operation: str) -> Callable:
    """`update(address, operand)`: apply an operation of LLVM's `atomicrmw`; returns the old value."""

    def update(_: Any, address: Any, operand: Any) -> Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, __: object, values: Sequence[ir.Value]) -> ir.Value:
            return builder.atomic_rmw(operation, _pointer(builder, context, values[0]), values[1], "acq_rel")

        return types.int64(types.int64, types.int64), generate

    return intrinsic(update)


atomic_load: Any = _load
"""`(cell)`: the value of a cell; later reads see what its writer had written before."""
atomic_store: Any = _store
"""`(cell, value)`: write a cell; a thread that reads the value sees all that was written before it."""
compare_exchange: Any = _exchange
"""`(cell, expected, value)`: write `value` to a cell if it holds `expected`; returns True if it did."""
atomic_add = _update("add")
"""`(cell, value)`: add to a cell; returns the old value."""
atomic_or = _update("or")
"""`(address, bits)`: set bits of the word at an address."""
atomic_and = _update("and")
"""`(address, bits)`: clear all other bits of the word at an address."""

_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())
_usleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


@nested
def relax(looks: int) -> None:
    """Pause between two polls of a cell, after `looks` unsuccessful polls: at first none, then a yield, then a short
    sleep."""
    if looks >= YIELDS:
        _usleep(SLEEP_US)
    elif looks >= SPINS:
        _sched_yield()


@inlined
def lock(mutex: int, stop: int) -> bool:
    """Wait for a mutex and take it.  Returns False, without it, once `stop` is set."""
    looks = 0
    while atomic_load(mutex) != 0 or not compare_exchange(mutex, 0, 1):
        if atomic_load(stop) != 0:
            return False
        relax(looks)
        looks += 1
    return True


@inlined
def unlock(mutex: int) -> None:
    """Release a mutex that this thread holds."""
    atomic_store(mutex, 0)


@inlined
def arrive(barrier: int, n: int, stop: int) -> int:
    """Wait for n threads at a barrier.

    LAST_ARRIVED   this thread arrived last: the others wait until it calls `release`
    PASSED         the last thread has released this one
    STOPPED        `stop` is set
    """
    generation = atomic_load(barrier + CELL_BYTES)
    if atomic_add(barrier, 1) == n - 1:
        return LAST_ARRIVED
    looks = 0
    while atomic_load(barrier + CELL_BYTES) == generation:
        if atomic_load(stop) != 0:
            return STOPPED
        relax(looks)
        looks += 1
    return PASSED


@inlined
def release(barrier: int) -> None:
    """Release the threads that wait at a barrier; called by the one that arrived last."""
    atomic_store(barrier, 0)
    atomic_add(barrier + CELL_BYTES, 1)
