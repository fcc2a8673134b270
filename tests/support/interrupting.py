"""SIGTERM between two chosen lines of a run, which a random signal hits once in a thousand runs."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread
from contextlib import contextmanager
from types import FrameType
from typing import Any

WHERE_THREADS_MEET = {threading.__file__, thread.__file__}


@contextmanager
def terminated_before(chosen: Callable[[FrameType], bool]) -> Iterator[None]:
    """Within the block, before the first line of the library's threads that is chosen, this process gets SIGTERM."""

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return looked_at if frame.f_code.co_filename in WHERE_THREADS_MEET else None

    def looked_at(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and chosen(frame):
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGTERM)
            return None
        return looked_at

    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(None)


def waiting_at(line: int) -> Callable[[FrameType], bool]:
    """Is it this line of `Condition.wait`?"""
    return lambda frame: frame.f_code is threading.Condition.wait.__code__ and frame.f_lineno == line


def lines_of_waiting() -> list[int]:
    """The lines of `Condition.wait` with code."""
    return sorted({line for *_, line in threading.Condition.wait.__code__.co_lines() if line})[1:]


def line_without_lock() -> int:
    """The line of `Condition.wait` after the release of the lock, before the code that acquires it again."""
    lines, first = inspect.getsourcelines(threading.Condition.wait)
    return next(number for number, line in enumerate(lines, first + 1) if "_release_save()" in line)
