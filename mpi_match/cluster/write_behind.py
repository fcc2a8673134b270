"""Answers written while the next ones are received: the other end of `feed.ReadAhead`.

Of writing an answer, the checksum, the copies and the system's part are done without Python's lock, so a thread can write as
fast as the main thread receives.  Only a few answers may wait for it: if the disk is slower than all else, whoever puts the
next one waits, and memory stays bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_WAITING = 8


class WriteBehind(Generic[T]):
    """Calls `write` with what is `put`, in order: in a thread, or, if not `threaded`, at once.

    What `write` raises is raised by a later `put` or by `finish`, and nothing is written after that.  Leaving the block
    without `finish` drops what waits.
    """

    def __init__(self, write: Callable[[T], None], *, threaded: bool = True) -> None:
        self._write = write
        self._waiting: Queue[T | None] = Queue(MOST_WAITING)
        self._dropping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="answers") if threaded else None

    def __enter__(self) -> WriteBehind[T]:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._dropping = True
        self._end()

    def put(self, item: T) -> None:
        """Have it written; waits while too much waits already."""
        self._raise()
        if self._thread is None:
            self._write(item)
        else:
            self._waiting.put(item)

    def finish(self) -> None:
        """Wait until all is written."""
        self._end()
        self._raise()

    def _end(self) -> None:
        if self._thread is not None and self._thread.is_alive():
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
