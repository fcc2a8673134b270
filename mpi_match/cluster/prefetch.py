"""Reading ahead: the next batches are read before they are needed.

Reading a batch has three parts: reading its blocks from the file, checking their CRC, and copying them (or, when the events
were compiled for another table, encoding them).  NumPy and ISA-L do this without Python's lock, so threads do it
while the main thread communicates: a few of them, because one core reads, checks and copies 70 million events a second and
a GPU matches ten times as many.  Short batches are read without a thread, in less time than it takes to wake one.

Buffers are few and reused: memory stays bounded, their pages are faulted in once, and a network that pins the memory it
sends finds the same pages every time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


READERS = 4
"""Most threads that read, if there are cores for them."""


def n_readers(most: int = READERS) -> int:
    """Number of threads of this process that may read."""
    return min(most, len(os.sched_getaffinity(0)))


class Reading(Protocol[T_co]):
    """A read in progress."""

    def done(self) -> bool:
        """Tells whether `result` returns without waiting."""
        ...

    def result(self) -> T_co:
        """The result.  Raises what the call raised."""
        ...


class ReadWorkers(Protocol):
    """Executors that read batches."""

    def submit(self, do: Callable[..., T], /, *arguments: object) -> Reading[T]:
        """See `concurrent.futures.Executor.submit`."""
        ...

    def shutdown(self, *, cancel_futures: bool = False) -> None:
        """See `concurrent.futures.Executor.shutdown`."""
        ...


MakeWorkers = Callable[[int], ReadWorkers]
"""Makes an executor with a number of threads."""


class ReadAhead(Generic[T]):
    """Reads batches ahead: `workers` call `read(batch)` in the order of `want`; a context manager, which shuts them down."""

    def __init__(self, read: Callable[[int], T], workers: ReadWorkers) -> None:
        self._read, self._workers = read, workers
        self._ready: dict[int, Reading[T]] = {}

    def __enter__(self) -> ReadAhead[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._workers.shutdown(cancel_futures=True)

    def want(self, batches: Iterable[int]) -> None:
        """Start reading these; batches wanted before are not read again."""
        for batch in batches:
            if batch not in self._ready:
                self._ready[batch] = self._workers.submit(self._read, batch)

    def is_ready(self, batch: int) -> bool:
        """Tells whether `take` returns (or raises) at once."""
        return self._ready[batch].done()

    def take(self, batch: int) -> T:
        """A wanted batch, once; waits for it.  Raises what reading it raised."""
        return self._ready.pop(batch).result()


_NO_REPORT = np.empty(0, np.uint8)


class Expected(NamedTuple, Generic[T]):
    """A value that has arrived or will arrive: any thread may `get` it once, which waits for it; `is_here` tells whether it
    has arrived.

    `confirm` raises when the value may have changed since `get`.  `report`, after `get`: the wire form u8 of the report
    about a batch's rows (`scan_report.ScanReport`), or empty.
    """

    get: Callable[[], T]
    is_here: Callable[[], bool] = lambda: True
    confirm: Callable[[], None] = lambda: None
    report: Callable[[], Array] = lambda: _NO_REPORT


class Buffers:
    """A pool of buffers: `take` one, `give` it back.  It holds at most as many as were ever taken at the same time."""

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of free buffers."""
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
        """Return a buffer for reuse; its content must not be read any more."""
        with self._lock:
            self._free.append(buffer)


class InOrder(Generic[T]):
    """Reorders results: operations that end in any order give their results in the order in which they began."""

    def __init__(self) -> None:
        self._begun: deque[int] = deque()
        self._ended: dict[int, T] = {}

    def __len__(self) -> int:
        """Number of operations that have begun and have not given their results."""
        return len(self._begun)

    def begin(self, number: int) -> None:
        """Begin an operation, after all earlier ones."""
        self._begun.append(number)

    def end(self, number: int, result: T) -> list[T]:
        """End an operation with a result.  Returns the results that are now next in order."""
        self._ended[number] = result
        found = []
        while self._begun and self._begun[0] in self._ended:
            found.append(self._ended.pop(self._begun.popleft()))
        return found
