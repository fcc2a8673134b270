"""The next batches, ready before they are asked for.

Reading a batch is three things: bringing its pages in from the file, checking their CRC, copying them (or, when the
events were compiled for another table, encoding them).  NumPy and ISA-L do all of that without Python's lock, so threads
do it while the main thread talks: a few of them, because one core reads, checks and copies 70 million events a second and
a GPU matches ten times as many.  Short batches are read without a thread, in less time than to wake one.

Buffers are few and used again: memory stays bounded, their pages are touched once, and a network that has to pin what
it sends finds the same ones every time.  (Sending straight from the mapped file would save the copy, but networks
refuse to pin a read-only mapping.)
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array

T = TypeVar("T")


READERS = 4
"""Threads that read, where there are as many cores."""


def n_readers() -> int:
    """How many threads of this process may read."""
    return min(READERS, len(os.sched_getaffinity(0)))


class _Done(Generic[T]):
    """What an executor's `submit` would return, done at once; a `Future` has locks, which take longer to make than this."""

    def __init__(self, do: Callable[..., T], *arguments: Any) -> None:
        self._error: Exception | None = None
        try:
            self._found = do(*arguments)
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        """Yes."""
        return True

    def result(self) -> T:
        """What came of it.  Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._found


class AtOnce:
    """An executor that does what is submitted at once, in the thread that submits it."""

    def __init__(self, n_threads: int = 0) -> None:
        """The number is not looked at."""

    def submit(self, do: Callable[..., T], *arguments: Any) -> _Done[T]:
        """See `concurrent.futures.Executor.submit`."""
        return _Done(do, *arguments)

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        """There is nothing to end."""


Workers = ThreadPoolExecutor | AtOnce
"""What reads batches."""


class ReadAhead(Generic[T]):
    """Makes batches ready: `read(batch)` is done by `workers`, begun in the order asked for; a context manager, which ends
    them.
    """

    def __init__(self, read: Callable[[int], T], workers: Workers) -> None:
        self._read, self._workers = read, workers
        self._ready: dict[int, Future[T] | _Done[T]] = {}

    def __enter__(self) -> ReadAhead[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._workers.shutdown(cancel_futures=True)

    def want(self, batches: Iterable[int]) -> None:
        """Have these read; those asked for before are not read again."""
        for batch in batches:
            if batch not in self._ready:
                self._ready[batch] = self._workers.submit(self._read, batch)

    def is_ready(self, batch: int) -> bool:
        """Would `take` return (or raise) at once?"""
        return self._ready[batch].done()

    def take(self, batch: int) -> T:
        """A wanted batch, once; waits for it.  Raises what reading it raised."""
        return self._ready.pop(batch).result()


class Expected(NamedTuple, Generic[T]):
    """What is here, or will be: `get` waits for it, once, from any thread; `is_here` tells whether it need not wait.

    `confirm` raises when what `get` gave may have changed since then.
    """

    get: Callable[[], T]
    is_here: Callable[[], bool] = lambda: True
    confirm: Callable[[], None] = lambda: None


class Buffers:
    """Buffers that are used again: `take` one, `give` it back.  Not more exist than were ever taken at the same time."""

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are free."""
        return len(self._free)

    def take(self, n_bytes: int) -> Array:
        """u8[at least n_bytes], 8-byte aligned, with any content."""
        with self._lock:
            fitting = [i for i, buffer in enumerate(self._free) if len(buffer) >= n_bytes]
            if fitting:
                return self._free.pop(fitting[-1])
            if self._free:
                self._free.pop()  # too small: a larger one takes its place
        return np.empty((n_bytes + n_bytes // 8) // 8 * 8 + 8, np.uint8)

    def give(self, buffer: Array) -> None:
        """Let a buffer be used again; nobody may look at its content any more."""
        with self._lock:
            self._free.append(buffer)


class InOrder(Generic[T]):
    """What begins in one order and ends in another, given on in the first."""

    def __init__(self) -> None:
        self._begun: deque[int] = deque()
        self._ended: dict[int, T] = {}

    def begin(self, number: int) -> None:
        """Number so-and-so has begun, after all before."""
        self._begun.append(number)

    def end(self, number: int, result: T) -> list[T]:
        """It has ended, with a result; those results whose turn it is now."""
        self._ended[number] = result
        found = []
        while self._begun and self._begun[0] in self._ended:
            found.append(self._ended.pop(self._begun.popleft()))
        return found
