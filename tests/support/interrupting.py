"""Exceptions and signals at a chosen step of a program, which a random signal hits once in a thousand runs."""

from __future__ import annotations

import ast
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import mpi_match

WHERE_THREADS_MEET = {threading.__file__, thread.__file__}


class Steps:
    """Lines and calls that a block has reached in this thread."""

    def __init__(self) -> None:
        self.n = 0


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


@contextmanager
def _traced(entered: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Trace this thread within the block, and as before it afterwards."""
    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def signalled_at(step: int | None, files: set[str]) -> Iterator[Steps]:
    """Within the block, this process gets SIGTERM before the n-th line of the files that this thread reaches."""
    steps = Steps()

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return looked_at if frame.f_code.co_filename in files else None

    def looked_at(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            steps.n += 1
            if steps.n == step:
                os.kill(os.getpid(), signal.SIGTERM)
        return looked_at

    with _traced(entered):
        yield steps


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


PACKAGE = str(Path(mpi_match.__file__).parent)


class Interrupt(BaseException):
    """What is raised in place of KeyboardInterrupt, which would end the tests."""


@contextmanager
def raised_at(step: int | None, error: BaseException) -> Iterator[Steps]:
    """Within the block, an error is raised before the n-th step of the package, a line or the beginning of a call.

    Left out are lines that the interpreter reaches without looking for signals after the call before them: that of a
    `with`, to which it comes back at the end, and the first of a `finally`.
    """
    steps = Steps()

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:  # which is entered to be closed, too
            stepped()
        return looked_at

    def looked_at(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno not in _sheltered(frame.f_code.co_filename):
            stepped()
        return looked_at

    def stepped() -> None:
        steps.n += 1
        if steps.n == step:
            sys.settrace(None)
            raise error

    with _traced(entered):
        yield steps


@cache
def _sheltered(path: str) -> frozenset[int]:
    """The lines of a file that `raised_at` leaves out."""
    tree = ast.parse(Path(path).read_bytes())
    entered = (node.lineno for node in ast.walk(tree) if isinstance(node, ast.With))
    lasts = (node.finalbody[0].lineno for node in ast.walk(tree) if isinstance(node, ast.Try) and node.finalbody)
    return frozenset((*entered, *lasts))
