"""How a rank waits: by looking at MPI, which moves nothing while nobody looks, and leaving the core to others in between."""

from __future__ import annotations

import ctypes
import os
import sys
import time

SPARE_CORES = 8
"""With so many cores a rank may keep one busy."""
_PR_SET_TIMERSLACK = 29


def sleep_exactly() -> None:
    """Have the sleeps of this thread, and of those that it starts, end when they should.

    Linux lets them end 50 µs late, to wake up for several at once.  That is five times as long as a look at MPI is worth
    waiting for; without it a sleep of 1 µs takes some five to fifteen.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def pause(seconds: float) -> None:
    """Sleep; for no time at all only let others go first, because the shortest sleep takes as long as ten looks."""
    if seconds:
        time.sleep(seconds)
    else:
        os.sched_yield()


class Silence:
    """How long nothing was heard of somebody, in time that this process could have heard it.

    A process that was stopped, with the others of its job, by a scheduler or a debugger has been deaf, and nobody silent;
    so the time between two looks counts for a second at most.
    """

    LOOK_S = 1.0

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._seconds = 0.0

    def broken(self) -> None:
        """Something was heard."""
        self._seconds = 0.0

    def seconds(self) -> float:
        """Look at the clock: so long it is by now."""
        now = time.monotonic()
        self._seconds += min(now - self._looked, self.LOOK_S)
        self._looked = now
        return self._seconds


class Backoff:
    """Sleeps between looks: 1 µs, twice as long each time, at most 1 ms.

    `soon` is for while a transfer is under way: a large one needs many turns of both sides, so the sleep stays at 32 µs, and
    where cores are plenty at 1 µs.  It is never left out where there are other threads.  Who does nothing but look has the
    lock of Python nearly all the time, and a thread that works without it waits for it at every return: one of calls of
    20 µs was four to six times as slow beside a rank that looked without sleeping, and a fifth slower beside one that slept.

    An event is there and back in less than two sleeps.  So a rank that has a core for itself and no other thread to leave it
    to is `tireless`: it looks without sleeping until nothing has happened for 10 ms, and only lets others go first who wait
    for the core after all.
    """

    SHORTEST_S, LONGEST_S = 1e-6, 1e-3
    SOON_S = 1e-6 if len(os.sched_getaffinity(0)) >= SPARE_CORES else 32e-6
    TIRED_S = 10e-3
    LOOKS = 20

    def __init__(self, *, tireless: bool = False) -> None:
        self._tireless = tireless
        self.looks = self.LOOKS if tireless else 1
        """How many looks to take at a time."""
        self.reset()

    def reset(self) -> None:
        """Something happened: look again soon."""
        self._next_s = self.SHORTEST_S
        self._awake_until = time.monotonic() + self.TIRED_S if self._tireless else 0.0

    def next_s(self, *, soon: bool = False) -> float:
        """How long to sleep now."""
        if self._awake_until and time.monotonic() < self._awake_until:
            return 0.0
        now_s = min(self._next_s, self.SOON_S) if soon else self._next_s
        self._next_s = min(2 * now_s, self.LONGEST_S)
        return now_s

    def wait(self, *, soon: bool = False) -> None:
        """Sleep that long."""
        pause(self.next_s(soon=soon))
