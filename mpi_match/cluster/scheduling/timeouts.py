"""How long batches take to the workers and back, and how long the master waits: the clock that the dispatcher does not have.

    sent, or the answer before it ── limit_s ──► overdue    the batch goes to another worker too; the answer may still come
    only overdue workers are busy ── limit_s ──► hopeless   they are taken for dead

An MPI with fault tolerance says which rank died; this works without, and also for a worker that was stopped, or sits behind
a cut cable.  A dead worker cannot be told from a slow one by waiting, so waiting too short must be harmless: a batch that is
given to two workers is answered once.  Only when the run cannot go on without silent workers are they given up.

The limit is what the user says, else ten times what 99 of 100 batches took so far, and never less than half a minute; ten
minutes before the first answer, which has kernels to compile.

Time counts only while the master looks at the clock.  If it was stopped itself, or waited for its disk, the answers that are
there by now are not late.

A run may have a hundred million batches, so round trips are counted in steps of 1 % instead of kept: some two thousand
numbers for everything between a microsecond and an hour, and a percentile that is right to half a step.
"""

from __future__ import annotations

import math
from collections import Counter

from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.groups import Flight

_STEP = math.log(1.01)
LOOK_EVERY_S = 0.25
"""How often to look at the clock."""
LONGEST_STEP_S = 1.0
"""So much time has passed at most between two looks."""
LEAST_S, FIRST_S = 30.0, 600.0
TIMES = 10.0


class RoundTrips:
    """Counts of times, by their logarithm."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        """How many there were."""
        return self._counts.total()

    def add(self, seconds: float) -> None:
        """One more."""
        self._counts[round(math.log(max(seconds, 1e-9)) / _STEP)] += 1

    def percentile(self, percent: float) -> float:
        """Seconds within which so many per cent of the batches came back (to 0.5 %); NaN when there were none."""
        left = self._counts.total() * percent / 100
        for step, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return math.exp(step * _STEP)
        return math.nan

    def in_us(self) -> dict[str, float] | None:
        """Median and tail, in microseconds; None when there were no batches."""
        if not self._counts:
            return None
        return {f"p{percent}": round(1e6 * self.percentile(percent), 2) for percent in (50, 99)}


class Deadlines:
    """The clock of a dispatcher.  `given_s` is the limit that the user wants; None: it follows from the round trips."""

    def __init__(self, dispatcher: Dispatcher, round_trips: RoundTrips, given_s: float | None = None) -> None:
        self._dispatcher, self._round_trips, self._given_s = dispatcher, round_trips, given_s
        self._ready: dict[int, float] = {}
        self._heard: dict[int, float] = {}
        self._now = 0.0
        self._last_look: float | None = None
        self._silent_since: float | None = None
        self.limit_s = FIRST_S if given_s is None else given_s

    def sent(self, worker: int, flight: Flight, more_s: float = 0.0) -> None:
        """A worker got a batch, before which it has something else to do that takes `more_s`."""
        ready = self._ready.get(worker, 0.0)
        if more_s:
            ready = max(self._now, ready) + more_s
        self._ready[worker] = ready
        flight.waited_since = max(self._now, ready)

    def came(self, worker: int, flight: Flight | None) -> None:
        """It has answered (None: what nobody expects any more), and has the whole time for the next one."""
        self._heard[worker] = self._now
        if flight is not None and (flight.waited_since or 0.0) > self._now:  # what came before it took less than was thought
            self._ready[worker] = self._now
            for each in self._dispatcher.flights(worker):
                if each.waited_since is not None:
                    each.waited_since = min(each.waited_since, self._now)

    def look(self, now_s: float) -> bool:
        """Look at a clock of seconds.  False when it is too early for another look."""
        if self._last_look is None:
            self._last_look = now_s
        if now_s - self._last_look < LOOK_EVERY_S:
            return False
        self._now += min(now_s - self._last_look, LONGEST_STEP_S)
        self._last_look = now_s
        if self._given_s is None and self._round_trips:
            self.limit_s = max(LEAST_S, TIMES * self._round_trips.percentile(99))
        return True

    def overdue(self) -> list[tuple[int, int]]:
        """Workers that have just become overdue, each with the batch that it should have answered."""
        found = []
        for worker in self._ready:
            oldest = next(self._dispatcher.flights(worker, wanted=True), None)
            if oldest is None or oldest.waited_since is None or self._dispatcher.is_overdue(worker):
                continue
            if self._now - max(oldest.waited_since, self._heard.get(worker, 0.0)) > self.limit_s:
                found.append((worker, oldest.batch))
        return found

    def hopeless(self) -> list[int]:
        """Workers that the run has waited for long enough while it could do nothing else."""
        silent = self._dispatcher.silent
        if not silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._now
        elif self._now - self._silent_since > self.limit_s:
            self._silent_since = None
            return silent
        return []
