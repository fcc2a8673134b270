"""SIGTERM is Ctrl-C: launchers and Slurm's time limit send the one, people the other, and both want files left clean.

The master is interrupted, by an exception.  A worker is not: whoever ends a job signals all its ranks, and one that left at
once would have the launcher kill the master while it puts its files in order.  A worker only takes note, and leaves when
the master says so or has gone, or after a while by itself.

An exception between any two instructions is more than most code bears.  `threading.Condition.wait` has given its lock away
for three of them before it looks to what becomes of it, and ends in "release unlocked lock" when the exception comes there;
a request that MPI has begun is lost if it comes before the request is noted.  So where a process talks to its threads or to
MPI, interruptions are `held`, and let through where they do no harm.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LEAVE_S = 5.0
"""How long a rank that was asked to end waits for others: for the master, which was perhaps asked as well, to say how."""
AGAIN_S = 5.0
"""A signal that follows an earlier one within this time says the same: launchers send two, and a terminal one of its own."""


class SignalFlag:
    """When an interruption was asked for, if it was."""

    def __init__(self) -> None:
        self._at: float | None = None

    def note(self) -> None:
        """Now."""
        self._at = time.monotonic()

    def seconds(self) -> float | None:
        """How long ago; None: not yet."""
        return None if self._at is None else time.monotonic() - self._at


class Interruptions:
    """Those of this process, which come through at once or wait while they are held.

    Signals are handled by the main thread alone, so only there anything is held.
    """

    def __init__(self) -> None:
        self._last = SignalFlag()
        self._holders = 0
        self._waiting: str | None = None

    def arrive(self, number: int) -> None:
        """A signal has come; one in 5 s is an interruption."""
        before_s = self._last.seconds()
        if before_s is None or before_s > AGAIN_S:
            self._last.note()
            self._waiting = signal.Signals(number).name
            if not self._holders:
                self.let_through()

    def let_through(self) -> None:
        """Raise KeyboardInterrupt if an interruption waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            raise KeyboardInterrupt(waiting)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block they wait; an error that ends it takes their place."""
        self._holders += 1
        try:
            yield
        except BaseException:
            self._waiting = None
            raise
        finally:
            self._holders -= 1
        if not self._holders:
            self.let_through()

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Within the block, in one where they are held, they come at once: it takes long and talks to nobody."""
        holders, self._holders = self._holders, 0
        try:
            self.let_through()
            yield
        finally:
            self._holders = holders


_interruptions: Interruptions | None = None
"""Those of the outermost `terminate_as_interrupt`."""


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Within the block SIGTERM, like Ctrl-C, raises KeyboardInterrupt, once in 5 s, so that what cleans up is not
    interrupted; where they are `held`, later.

    Only the main thread can set that; in others nothing changes.
    """
    global _interruptions
    if _interruptions is not None or not _is_main_thread():
        yield
        return
    _interruptions = Interruptions()
    try:
        with _handled_by(_interruptions.arrive):
            yield
    finally:
        _interruptions = None


class RanksNotified(KeyboardInterrupt):
    """A run was interrupted, and all of its ranks have been told."""


@contextmanager
def held() -> Iterator[Interruptions]:
    """Within the block interruptions wait for its end, unless it says before that they may come."""
    interruptions = _interruptions if _is_main_thread() else None
    if interruptions is None:
        yield Interruptions()  # that nobody will ever see
    else:
        with interruptions.held():
            yield interruptions


@contextmanager
def interrupts_noted(noted: SignalFlag) -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C do nothing but show in `noted`."""
    with _handled_by(lambda _: noted.note()):
        yield


@contextmanager
def _handled_by(handle: Callable[[int], None]) -> Iterator[None]:
    if not _is_main_thread():
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


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
