"""Atomics, mutex and barrier, by threads that run compiled code, also by more of them than there are cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mpi_match.compute.clock import monotonic_ns
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.synchronization import (
    BARRIER_CELLS,
    CELL_BYTES,
    LAST_ARRIVED,
    STOPPED,
    Cells,
    arrive,
    atomic_add,
    atomic_and,
    atomic_load,
    atomic_or,
    atomic_store,
    compare_exchange,
    lock,
    release,
    unlock,
)

TOO_LONG_S = 20.0
MUTEX, BARRIER, STOP, COUNTER = 0, 1, 1 + BARRIER_CELLS, 2 + BARRIER_CELLS
N_CELLS = COUNTER + 1
several = pytest.mark.parametrize("n_threads", [1, 2, 3, 8 * (os.cpu_count() or 1)])


def by_threads(n: int, share: Callable[[int], Any]) -> list[Any]:
    """What n threads return; none may hang."""
    pool = ThreadPoolExecutor(n)
    futures: list[Future[Any]] = [pool.submit(share, thread) for thread in range(n)]
    try:
        return [future.result(TOO_LONG_S) for future in futures]
    finally:
        pool.shutdown(wait=False)


@jit
def _count(cells: int, n_threads: int, n: int, counts: Any) -> None:
    """Add to a number that is not atomic, under the mutex, and to one that is, without it; all threads at a time."""
    mutex, stop = cells + MUTEX * CELL_BYTES, cells + STOP * CELL_BYTES
    if arrive(cells + BARRIER * CELL_BYTES, n_threads, stop) == LAST_ARRIVED:
        release(cells + BARRIER * CELL_BYTES)
    for _ in range(n):
        atomic_add(cells + COUNTER * CELL_BYTES, 3)
        if lock(mutex, stop):
            before = counts[0]
            for _ in range(200):  # time for another thread to come between
                atomic_load(stop)
            counts[0] = before + 1
            unlock(mutex)


@several
def test_a_mutex_lets_one_thread_in_and_an_atomic_addition_needs_none(n_threads: int) -> None:
    cells, counts, n = Cells(N_CELLS), np.zeros(1, np.int64), 2_000_000 // n_threads
    by_threads(n_threads, lambda _: _count(cells.address(), n_threads, n, counts))
    assert counts[0] == n * n_threads
    assert cells[COUNTER] == 3 * n * n_threads
    assert cells[MUTEX] == 0


@jit
def _meet(cells: int, thread: int, n_threads: int, n_rounds: int, rounds: Any) -> Any:
    """Go through the barrier again and again; the last thread of each round alone looks at where all are.

    Returns the rounds of which this thread was the last, and how often it saw a thread in another round.
    """
    barrier, stop = cells + BARRIER * CELL_BYTES, cells + STOP * CELL_BYTES
    n_last = n_wrong = 0
    for number in range(n_rounds):
        rounds[thread] = number
        arrived = arrive(barrier, n_threads, stop)
        if arrived == LAST_ARRIVED:
            n_last += 1
            for each in range(n_threads):
                n_wrong += rounds[each] != number
            atomic_store(cells + COUNTER * CELL_BYTES, number)
            release(barrier)
        n_wrong += atomic_load(cells + COUNTER * CELL_BYTES) != number
        if arrive(barrier, n_threads, stop) == LAST_ARRIVED:
            release(barrier)
    return n_last, n_wrong


@several
def test_no_thread_leaves_a_barrier_before_all_have_come_and_the_last_has_released_them(n_threads: int) -> None:
    cells, rounds = Cells(N_CELLS), np.full(n_threads, -1)
    found = by_threads(n_threads, lambda thread: _meet(cells.address(), thread, n_threads, 300, rounds))
    assert sum(n_last for n_last, _ in found) == 300
    assert sum(n_wrong for _, n_wrong in found) == 0


@jit
def _wait(cells: int, at_barrier: bool) -> Any:
    if at_barrier:
        return arrive(cells + BARRIER * CELL_BYTES, 100, cells + STOP * CELL_BYTES)
    return lock(cells + MUTEX * CELL_BYTES, cells + STOP * CELL_BYTES)


@pytest.mark.parametrize("at_barrier", [True, False])
def test_nobody_waits_once_they_are_stopped(at_barrier: bool) -> None:
    cells = Cells(N_CELLS)
    cells[MUTEX] = 1
    threading.Timer(0.2, cells.__setitem__, (STOP, 1)).start()
    started = time.monotonic()
    assert set(by_threads(3, lambda _: _wait(cells.address(), at_barrier))) == {STOPPED if at_barrier else 0}
    assert time.monotonic() - started >= 0.15
    assert cells[MUTEX] == 1


def test_threads_that_wait_long_leave_the_cores_to_others() -> None:
    cells = Cells(N_CELLS)
    threading.Timer(1.0, cells.__setitem__, (STOP, 1)).start()
    before = time.process_time()
    by_threads(3, lambda _: _wait(cells.address(), at_barrier=True))
    assert time.process_time() - before < 0.6


@jit
def _update(cell: int) -> Any:
    missed, done = compare_exchange(cell, 5, 6), compare_exchange(cell, 12, 10)
    return missed, done, atomic_or(cell, 5), atomic_and(cell, 6), atomic_add(cell, -7), atomic_load(cell)


def test_an_update_returns_the_value_before_it() -> None:
    cells = Cells(1)
    cells[0] = 12
    assert _update(cells.address()) == (False, True, 10, 15, 6, -1)


def test_cells_have_cache_lines_of_their_own() -> None:
    cells = Cells(3)
    assert [cells.address(i) % CELL_BYTES for i in range(3)] == [0, 0, 0]
    cells[2] = 7
    assert [cells[i] for i in range(3)] == [0, 0, 7]
    assert cells.address(2) - cells.address() == 2 * CELL_BYTES


@jit
def _clock() -> Any:
    return monotonic_ns()


def test_the_clock_is_the_one_of_python() -> None:
    _clock()
    before, now, after = time.monotonic_ns(), _clock(), time.monotonic_ns()
    assert before <= now <= after
