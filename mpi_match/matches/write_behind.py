"""Writes answers in order in a thread, while the next ones are computed.

Checksums, copies and system calls release Python's lock, so one thread can write as fast as another computes answers.  The
queue is short: if the disk is the bottleneck, `put` blocks, and memory stays bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Item = TypeVar("Item", contravariant=True)

MOST_WAITING = 8
"""Most items that wait to be written."""


class WriteBehind(Generic[T]):
    """Calls `write` in a thread with each item that is `put`, in order; at most `most_waiting` items wait.

    A later `put`, or `finish`, raises an error of `write`, and nothing is written after it.  Leaving the block without
    `finish` drops the queue.
    """

    def __init__(self, write: Callable[[T], None], most_waiting: int = MOST_WAITING) -> None:
        self._write = write
        self._waiting: Queue[T | None] = Queue(most_waiting)
        self._dropping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="answers")

    def __enter__(self) -> WriteBehind[T]:
        try:
            self._thread.start()
        except BaseException:  # an interrupt, after which the thread runs
            self._waiting.put(None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._dropping = True
        self._end()

    def put(self, item: T) -> None:
        """Queue an item; blocks while the queue is full."""
        self._raise()
        self._waiting.put(item)

    def finish(self) -> None:
        """Wait until everything is written."""
        self._end()
        self._raise()

    def _end(self) -> None:
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            if self._error is None and not self._dropping:
                try:
                    self._write(item)
                except BaseException as error:
                    self._error = error


class Writing(Protocol[Item]):
    """The interface of `WriteBehind`, for writers in this thread or in another; a context manager."""

    def put(self, item: Item, /) -> None:
        """Write an item after those before it, now or later."""
        ...

    def finish(self) -> None:
        """Wait until all is written."""
        ...

    def __enter__(self) -> Writing[Item]: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


Writer = Callable[[Callable[[Any], None]], Writing[Any]]
"""Makes a `Writing` of the function that writes an item."""
