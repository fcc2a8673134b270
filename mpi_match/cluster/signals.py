"""SIGTERM is handled as Ctrl-C: launchers and Slurm's time limit send the one, users the other; so are SIGHUP, which the end
of a connection sends, and SIGQUIT.

The master is interrupted by an exception, and closes its files.  A worker is not interrupted: signals go to all ranks of a
job, and if a worker exited at once, the launcher would kill the master while it closes its files.  A worker only records the
signal, and leaves when the master orders it or has gone, or after a time limit.

Most code does not survive an exception between any two instructions.  `threading.Condition.wait` is without its lock for
three instructions, and ends in "release unlocked lock" when the exception comes there; a request that MPI has begun is lost
if the exception comes before the request is recorded.  So while a process synchronises with its threads or calls MPI,
interruptions are `held`, and let through where they are safe.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
LEAVE_S = 5.0
"""Seconds that a signalled rank waits for the order of the master, which may have been signalled as well."""
AGAIN_S = 5.0
"""A signal within this time after an earlier one is a repetition: launchers send two, and a terminal one of its own."""


_heard_at = 0.0


def heard_at() -> float:
    """When a handler of this module ran last, by `time.monotonic`; 0 if none did."""
    return _heard_at


class SignalFlag:
    """The time of the last signal, if there was one."""

    def __init__(self) -> None:
        self._at: float | None = None

    def set(self) -> None:
        """Record a signal."""
        self._at = time.monotonic()

    def seconds(self) -> float | None:
        """Seconds since the signal, or None without one."""
        return None if self._at is None else time.monotonic() - self._at


class Interruptions:
    """Interruptions of this process, which are raised at once or wait while they are held.

    The main thread alone handles signals, so interruptions are held only there.
    """

    def __init__(self) -> None:
        self._last = SignalFlag()
        self._holders = 0
        self._waiting: str | None = None

    def arrive(self, number: int) -> None:
        """Handle a signal; at most one in AGAIN_S is an interruption."""
        before_s = self._last.seconds()
        if before_s is None or before_s > AGAIN_S:
            self._last.set()
            self._waiting = signal.Signals(number).name
            if not self._holders:
                self.let_through()

    def heed(self) -> bool:
        """Take an interruption that is waiting, so that it is not raised.  Returns False if none is waiting."""
        waiting, self._waiting = self._waiting, None
        return waiting is not None

    def let_through(self) -> None:
        """Raise KeyboardInterrupt if an interruption is waiting."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            raise KeyboardInterrupt(waiting)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block interruptions wait; an error that ends the block replaces them."""
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
        """Within the block, nested in `held`, interruptions are raised at once: for long work without communication."""
        holders, self._holders = self._holders, 0
        try:
            self.let_through()
            yield
        finally:
            self._holders = holders


_interruptions: Interruptions | None = None
"""The interruptions of the outermost `terminate_as_interrupt`."""


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Within the block SIGTERM, like Ctrl-C, raises KeyboardInterrupt, once in AGAIN_S, so that cleaning up is not
    interrupted; while interruptions are `held`, later.

    Only the main thread can set signal handlers; in other threads nothing changes.
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
    """A run was interrupted, and all of its ranks have been notified."""


@contextmanager
def held() -> Iterator[Interruptions]:
    """Within the block interruptions wait for its end, or for a call of `let_through`."""
    interruptions = _interruptions if _is_main_thread() else None
    if interruptions is None:
        yield Interruptions()  # which never has any
    else:
        with interruptions.held():
            yield interruptions


@contextmanager
def signals_recorded(flag: SignalFlag) -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C only set `flag`."""
    with _handled_by(lambda _: flag.set()):
        yield


@contextmanager
def _handled_by(handle: Callable[[int], None]) -> Iterator[None]:
    if not _is_main_thread():
        yield
        return

    def called(number: int, frame: FrameType | None) -> None:
        global _heard_at
        _heard_at = time.monotonic()
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
