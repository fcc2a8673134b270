"""Numba's CUDA simulator without its waiting, which takes four fifths of its time.

The simulator starts a thread of Python for each thread of each block, asks all of them without a pause whether they are
done, and wraps each array twice.  Here a block's threads go on with the next block, the last that arrives at `syncthreads`
wakes the others, the last that ends wakes the launcher, and kernels get NumPy's arrays.  Threads begin and go on in any
order.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.gpu.kernels import cuda

# They are there twice, under Numba's name and numba-cuda's; those that the engines use are meant.
kernels: Any = import_module(f"{cuda.__name__}.simulator.kernel")
api: Any = import_module(f"{cuda.__name__}.simulator.kernelapi")

_order = random.Random(0)


class Block:
    """The threads of one block: those that run, those that wait for the others, and the first error."""

    def __init__(self, n: int) -> None:
        self._lock = threading.Lock()
        self._running = n
        self._waiting: list[threading.Lock] = []
        self._error: BaseException | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def wait(self) -> None:
        """Return when all threads have ended, or raise the first error as soon as there is one."""
        self._ended.acquire()
        if self._error is not None:
            raise self._error

    def arrive(self, turn: threading.Lock) -> None:
        """Return when all running threads have arrived; `turn` is the calling thread's own lock, which it holds."""
        with self._lock:
            self._waiting.append(turn)
            self._go_on()
        turn.acquire()
        if self._error is not None:
            raise RuntimeError("another thread of the block failed")

    def leave(self, error: BaseException | None = None) -> None:
        """The calling thread has ended."""
        with self._lock:
            self._running -= 1
            if self._error is None and (error is not None or self._running == 0):
                self._error = error
                self._ended.release()
            self._go_on()

    def abandon(self, error: BaseException) -> None:
        """Have the threads fail at the next `syncthreads`."""
        with self._lock:
            self._error = self._error or error
            self._go_on()

    def _go_on(self) -> None:
        if self._error is not None or len(self._waiting) == self._running:
            _order.shuffle(self._waiting)
            for turn in self._waiting:
                turn.release()
            self._waiting.clear()


class Thread(threading.Thread):
    """A thread of blocks, one after the other; kernels find it, and their indices in it, by `threading.current_thread`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ends = False
        self._given, self._turn = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._turn.acquire()
        self.start()

    def give(self, block: Block, kernel: Callable[[], None], block_index: tuple[int, ...], index: tuple[int, ...]) -> None:
        """Have it run a kernel as this thread of a block."""
        self._block, self._kernel, self._index = block, kernel, index
        self.blockIdx, self.threadIdx = api.Dim3(*block_index), api.Dim3(*index)
        self._given.release()

    def end(self) -> None:
        """Have it end when it runs no kernel any more."""
        self._ends = True
        with suppress(RuntimeError):  # it was given something that it has not begun
            self._given.release()

    def run(self) -> None:
        while True:
            self._given.acquire()
            if self._ends:
                return
            block, kernel = self._block, self._kernel
            del self._kernel  # which has the arrays
            try:
                kernel()
            except BaseException as error:
                error.add_note(f"in thread {self._index} of block {tuple(self.blockIdx)}")
                block.leave(error)
                return
            del kernel
            block.leave()

    def syncthreads(self) -> None:
        self._block.arrive(self._turn)


class Module(api.FakeCUDAModule):  # type: ignore[misc]  # Numba has no types
    """The `cuda` of a kernel that runs; two threads that ask for shared memory at once get the same, unlike there."""

    def __init__(self, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        self.gridDim, self.blockDim = api.Dim3(*grid), api.Dim3(*block)
        self._local, self._atomic, self._shared = api.FakeCUDALocal(), api.FakeCUDAAtomic(), Shared()


class Shared:
    """Shared memory; an array is known by the line that asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allocations: dict[tuple[str, int], Array] = {}

    def array(self, shape: Any, dtype: Any) -> Array:
        asking = sys._getframe(1)
        place = asking.f_code.co_filename, asking.f_lineno
        with self._lock:
            if place not in self._allocations:
                self._allocations[place] = np.empty(shape, dtype)
            return self._allocations[place]


_threads: list[Thread] = []
os.register_at_fork(after_in_child=_threads.clear)


def launch(kernel: Any, *args: Any) -> None:
    """`FakeCUDAKernel.__call__` of a kernel, whose blocks run one after the other."""
    grid, block = kernel.grid_dim, kernel.block_dim
    indices = list(np.ndindex(*block))
    while len(_threads) < len(indices):
        _threads.append(Thread())
    given = [_plain(arg) for arg in args]
    module = Module(grid, block)
    with kernels._push_kernel_context(module), api.swapped_cuda_module(kernel.fn, module):
        for block_index in np.ndindex(*grid):
            running = Block(len(indices))
            try:
                _order.shuffle(indices)
                for thread, index in zip(_threads, indices, strict=False):
                    thread.give(running, partial(kernel.fn, *given), block_index, index)
                running.wait()
            except BaseException as error:
                running.abandon(error)
                _end_threads()
                raise


def _end_threads() -> list[Thread]:
    ended = _threads.copy()
    _threads.clear()
    for thread in ended:
        thread.end()
    return ended


def _plain(arg: Any) -> Any:
    """An array of NumPy for a stand-in of one on a device, also in a tuple."""
    if isinstance(arg, tuple):
        return type(arg)(*map(_plain, arg)) if hasattr(arg, "_fields") else tuple(map(_plain, arg))
    return arg._item._ary if hasattr(arg, "_item") else arg._ary if hasattr(arg, "_ary") else arg


@contextmanager
def quick_simulator() -> Iterator[None]:
    """Have kernels launched by `launch` in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels.FakeCUDAKernel, "__call__", launch)
        yield
    for thread in _end_threads():  # Python must not end while they wait
        thread.join()
