"""The waiting of a rank: it polls MPI, which makes progress only when called, and yields the core between polls."""

from __future__ import annotations

import ctypes
import os
import sys
import time

SPARE_CORES = 8
"""Least number of cores with which a rank may keep one busy."""
_PR_SET_TIMERSLACK = 29


def sleep_exactly() -> None:
    """Set the timer slack of this thread, and of those that it starts, to 1 ns.

    Linux lets a sleep end up to 50 µs late, so that one wake-up serves several timers.  That is five times what a poll of
    MPI is worth waiting for; with a slack of 1 ns a sleep of 1 µs takes 5 to 15 µs.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def pause(seconds: float) -> None:
    """Sleep; for 0 seconds only yield the core, because the shortest sleep takes as long as ten polls."""
    if seconds:
        time.sleep(seconds)
    else:
        os.sched_yield()


class Silence:
    """Time since the last message of a peer, as far as this process was able to receive one.

    A scheduler or a debugger may stop all processes of a job; that time is not the peer's silence.  So the time between two
    calls of `seconds` counts for at most LOOK_S.
    """

    LOOK_S = 1.0

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._seconds = 0.0

    def reset(self) -> None:
        """Record that a message has arrived."""
        self._seconds = 0.0

    def seconds(self) -> float:
        """Seconds of silence until now."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, self.LOOK_S)
        self._looked = now
        return self._seconds


class Backoff:
    """Exponential backoff between polls: sleeps of 1 µs, doubled each time, at most 1 ms.

    `soon` is for while a transfer is in flight: a large one needs many polls on both sides, so the sleep stays at 32 µs, or
    at 1 µs on a host with many cores.  A rank with other threads always sleeps.  A thread that polls without sleeping holds
    Python's lock nearly all the time, and a thread that released the lock waits for it at every return: a thread making
    calls of 20 µs was four to six times slower beside a rank that polled without sleeping, and a fifth slower beside one
    that slept.

    The round trip of a short batch takes less than two sleeps.  So a rank with a core and a main thread of its own `spins`:
    it polls without sleeping until nothing has happened for SPIN_S, and only yields the core between polls.
    """

    SHORTEST_S, LONGEST_S = 1e-6, 1e-3
    SOON_S = 1e-6 if len(os.sched_getaffinity(0)) >= SPARE_CORES else 32e-6
    SPIN_S = 10e-3
    LOOKS = 20

    def __init__(self, *, spins: bool = False) -> None:
        self._spins = spins
        self.looks = self.LOOKS if spins else 1
        """The number of polls to make at a time."""
        self.reset()

    def reset(self, now: float | None = None) -> None:
        """Poll again soon, because something happened at the time `now` of `time.monotonic`."""
        self._next_s = self.SHORTEST_S
        self._spin_until = (time.monotonic() if now is None else now) + self.SPIN_S if self._spins else 0.0

    def next_s(self, *, soon: bool = False) -> float:
        """The seconds to sleep now."""
        if self._spin_until and time.monotonic() < self._spin_until:
            return 0.0
        now_s = min(self._next_s, self.SOON_S) if soon else self._next_s
        self._next_s = min(2 * now_s, self.LONGEST_S)
        return now_s

    def wait(self, *, soon: bool = False) -> None:
        """Sleep for `seconds`."""
        pause(self.next_s(soon=soon))
