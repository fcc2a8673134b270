"""Atomics, a mutex and a barrier for threads that stay inside compiled code.

The phases of matching one event last some 20 µs, less than a lock of Python takes, or than Numba needs to begin a parallel
loop.  So threads meet here without leaving compiled code: each spins on a word of memory, at first without pause, then it
gives its core to others between two looks, and after a millisecond it sleeps a little.  More threads than cores are
therefore slow, but they never hang.

A *cell* is an i64 with cache lines of its own, so that threads that use different cells do not slow each other down.  It is
given by its address (`Cells.address`).  A mutex is a cell, a barrier two in a row:

    arrived      how many threads wait
    generation   how often the barrier has opened: waiting threads look at it

All that wait also look at a cell `stop`.  Once it is not 0 nobody waits any longer, for instance for a thread that failed.

Only for compiled code, apart from `Cells`.  Addresses are not checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from mpi_match.compute.compile_cache import inlined, nested

CELL_BYTES = 128
"""Two cache lines: processors fetch them in pairs."""
BARRIER_CELLS = 2

SPINS, YIELDS = 500, 2000
"""Looks at a cell before the core is given to others between two looks, and before a thread sleeps between them."""
SLEEP_US = 50

LAST_ARRIVED, PASSED, STOPPED = range(3)
"""Results of `arrive`."""


class Cells:
    """n cells, 0 at first; they exist as long as this object does."""

    def __init__(self, n: int) -> None:
        self._memory = np.zeros((n + 1) * CELL_BYTES // 8, np.int64)
        first = -self._memory.ctypes.data % CELL_BYTES
        self._cells = self._memory[first // 8 :][: n * CELL_BYTES // 8 : CELL_BYTES // 8]

    def address(self, i: int = 0) -> int:
        """The address of cell i; the next one is CELL_BYTES behind it."""
        return int(self._cells.ctypes.data) + i * CELL_BYTES

    def __getitem__(self, i: int) -> int:
        return int(self._cells[i])

    def __setitem__(self, i: int, value: int) -> None:
        self._cells[i] = value


def _pointer(builder: Any, context: Any, address: Any) -> Any:
    return builder.inttoptr(address, context.get_value_type(types.int64).as_pointer())


@intrinsic
def _load(_: Any, cell: Any) -> Any:
    def generate(context: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.load_atomic(_pointer(builder, context, values[0]), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def _store(_: Any, cell: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, __: Any, values: Any) -> Any:
        builder.store_atomic(values[1], _pointer(builder, context, values[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _exchange(_: Any, cell: Any, expected: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, __: Any, values: Any) -> Any:
        pointer = _pointer(builder, context, values[0])
        return builder.extract_value(builder.cmpxchg(pointer, values[1], values[2], "acq_rel", "acquire"), 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


def _update(operation: str) -> Any:
    """`update(address, operand)`: apply an operation of LLVM's `atomicrmw`; returns the value before."""

    def update(_: Any, address: Any, operand: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, values: Any) -> Any:
            return builder.atomic_rmw(operation, _pointer(builder, context, values[0]), values[1], "acq_rel")

        return types.int64(types.int64, types.int64), generate

    return intrinsic(update)


atomic_load: Any = _load
"""The value of a cell; later reads see what its writer had written before."""
atomic_store: Any = _store
"""Write a cell; who reads the value sees all that was written before it."""
compare_exchange: Any = _exchange
"""`(cell, expected, value)`: make `value` the value of a cell if it is `expected` now.  Was it?"""
atomic_add = _update("add")
"""Add to a cell; returns the value before."""
atomic_or = _update("or")
"""Set bits of the word at an address."""
atomic_and = _update("and")
"""Keep bits of the word at an address, clear the others."""

_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())
_usleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


@nested
def relax(looks: Any) -> None:
    """Between two looks at a cell, `looks` of which were in vain: nothing, then a yield, then a short sleep."""
    if looks >= YIELDS:
        _usleep(SLEEP_US)
    elif looks >= SPINS:
        _sched_yield()


@inlined
def lock(mutex: Any, stop: Any) -> Any:
    """Wait for a mutex and take it.  False, without it, once `stop` is set."""
    looks = 0
    while atomic_load(mutex) != 0 or not compare_exchange(mutex, 0, 1):
        if atomic_load(stop) != 0:
            return False
        relax(looks)
        looks += 1
    return True


@inlined
def unlock(mutex: Any) -> None:
    """Free a mutex that this thread holds."""
    atomic_store(mutex, 0)


@inlined
def arrive(barrier: Any, n: Any, stop: Any) -> Any:
    """Wait for n threads at a barrier.

    LAST_ARRIVED       this thread came last: the others wait on, until it calls `release`
    PASSED     the last thread has released this one
    STOPPED    `stop` is set
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
def release(barrier: Any) -> None:
    """Let the threads go that wait at a barrier; by the one that came last."""
    atomic_store(barrier, 0)
    atomic_add(barrier + CELL_BYTES, 1)
