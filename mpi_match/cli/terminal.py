"""Messages and a progress bar on standard error; standard output has only data."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from mpi_match.humanize import visible

PROGRESS_AFTER_S = 1.0
"""Seconds of work after which a bar appears."""
LOOK_S = 0.2
"""Seconds between two looks at the progress of compiling."""


def say(text: str) -> None:
    """Print a message to standard error, with control characters escaped: names and values in it may be a stranger's."""
    click.echo(visible(text), err=True)


@contextmanager
def standard_output_to(device: Path) -> Iterator[None]:
    """Within the block standard output is a device or a pipe.  Raises OSError."""
    with device.open("w") as file, redirect_stdout(file):
        yield


def print_json(summary: Mapping[str, object]) -> None:
    """Print an object as JSON to standard output."""
    click.echo(json.dumps(summary, ensure_ascii=False, default=str))


@contextmanager
def compiling(done: Callable[[], int], total: int) -> Iterator[None]:
    """Say that code is being compiled, if the body takes longer than `PROGRESS_AFTER_S`, and show the progress."""
    ended = threading.Event()

    def watch() -> None:
        if ended.wait(PROGRESS_AFTER_S):
            return
        _say_compiling()
        with Progress("compiling") as step:
            while not ended.wait(LOOK_S):
                step(min(done(), total), total)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


@cache
def _say_compiling() -> None:
    """Print a message, once in a process."""
    say("compiling for this machine, which takes some seconds, once")


class Progress:
    """A bar on the terminal once the work has lasted `PROGRESS_AFTER_S`; no output elsewhere (a pipe, a log).

    `with Progress("events") as progress: ... progress(done, total)` with counts from 0, any number of times.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._shown = sys.stderr.isatty()
        self._started = time.monotonic()
        self._bar: Any = None
        self._done = 0

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        if not self._shown or (self._bar is None and time.monotonic() - self._started < PROGRESS_AFTER_S):
            return
        if self._bar is None:
            self._bar = click.progressbar(length=total, label=self._label, file=sys.stderr, show_pos=True)
            self._bar.__enter__()
        self._bar.update(done - self._done)
        self._done = done

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
