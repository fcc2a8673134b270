"""SIGTERM is Ctrl-C: launchers and Slurm's time limit send the one, people the other, and both want files left clean.

The master is interrupted, by an exception.  A worker is not: whoever ends a job signals all its ranks, and one that left at
once would have the launcher kill the master while it puts its files in order.  A worker only takes note, and leaves when
the master says so or has gone, or after a while by itself.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AGAIN_S = 5.0
"""A signal that follows an earlier one within this time says the same: launchers send two, and a terminal one of its own."""


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Within the block SIGTERM, like Ctrl-C, raises KeyboardInterrupt, once in 5 s, so that what cleans up is not
    interrupted.

    Only the main thread can set that; in others nothing changes.
    """
    noted = Noted()

    def interrupt(number: int) -> None:
        before_s = noted.seconds()
        if before_s is None or before_s > AGAIN_S:
            noted.note()
            raise KeyboardInterrupt(signal.Signals(number).name)

    with _handled_by(interrupt):
        yield


class Noted:
    """When an interruption was asked for, if it was."""

    def __init__(self) -> None:
        self._at: float | None = None

    def note(self) -> None:
        """Now."""
        self._at = time.monotonic()

    def seconds(self) -> float | None:
        """How long ago; None: not yet."""
        return None if self._at is None else time.monotonic() - self._at


@contextmanager
def interrupts_noted() -> Iterator[Noted]:
    """Within the block SIGTERM and Ctrl-C do nothing but show in the result."""
    noted = Noted()
    with _handled_by(lambda _: noted.note()):
        yield noted


@contextmanager
def _handled_by(handle: Callable[[int], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def called(number: int, frame: FrameType | None) -> None:
        handle(number)

    heeded = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]  # nohup, or in the background
    before = [signal.signal(number, called) for number in heeded]
    try:
        yield
    finally:
        for number, handler in zip(heeded, before, strict=True):
            signal.signal(number, handler)
