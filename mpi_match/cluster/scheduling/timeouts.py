"""Round trips of batches, and the timeouts that follow from them: the dispatcher has no clock of its own.

    sent, or the answer before it ── limit_s ──► straggler   speculative execution: the batch goes to another worker too
    only stragglers hold batches  ── limit_s ──► hopeless    the stragglers are treated as dead

An MPI with fault tolerance reports dead ranks; timeouts work without it, and also find a worker that was stopped or is
unreachable.  A timeout cannot distinguish a dead worker from a slow one, so a timeout that is too short must be harmless: a
batch that is sent to two workers is answered once.  Stragglers are given up only when the run cannot go on without them.

The limit is the user's, else ten times the 99th percentile of the round trips so far, and at least 30 s; 600 s before the
first answer, because the worker may compile kernels.

Time counts only while the master calls `look`.  If the master itself was stopped, or waited for its disk, answers that have
arrived by then are not late.

A run may have a hundred million batches, so round trips are counted in a histogram with steps of 1 %: about two thousand
counters between a microsecond and an hour, and percentiles that are right to half a step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.groups import Flight

_STEP = math.log(1.01)
LOOK_EVERY_S = 0.25
"""Interval between two looks at the clock."""
LONGEST_STEP_S = 1.0
"""Most seconds that the time between two looks counts for."""
LEAST_S, FIRST_S = 30.0, 600.0
TIMES = 10.0
COUNTED_TOGETHER = 256
"""Number of round trips that are counted in one go, which takes half as long."""


class RoundTrips:
    """A histogram of round trip times, with logarithmic steps."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._uncounted: list[float] = []

    def __len__(self) -> int:
        """The number of round trips."""
        return self._counts.total() + len(self._uncounted)

    def add(self, seconds: Iterable[float]) -> None:
        """Count more round trips."""
        self._uncounted += seconds
        if len(self._uncounted) >= COUNTED_TOGETHER:
            self._count()

    def _count(self) -> None:
        log, step = math.log, _STEP
        self._counts.update([round(log(each if each > 1e-9 else 1e-9) / step) for each in self._uncounted])
        self._uncounted.clear()

    def percentile(self, percent: float) -> float:
        """Seconds within which a percentage of the batches came back (to 0.5 %); NaN when there were none."""
        self._count()
        left = self._counts.total() * percent / 100
        for step, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return math.exp(step * _STEP)
        return math.nan

    def in_us(self) -> dict[str, float] | None:
        """Median and tail, in microseconds; None when there were no batches."""
        if not len(self):
            return None
        return {f"p{percent}": round(1e6 * self.percentile(percent), 2) for percent in (50, 99)}


class Deadlines:
    """The clock of a dispatcher.  `given_s` is the user's limit; None: it follows from the round trips."""

    def __init__(self, dispatcher: Dispatcher, round_trips: RoundTrips, given_s: float | None = None) -> None:
        self._dispatcher, self._round_trips, self._given_s = dispatcher, round_trips, given_s
        self._ready: dict[int, float] = {}
        self._heard: dict[int, float] = {}
        self._now = 0.0
        self._last_look: float | None = None
        self._silent_since: float | None = None
        self.limit_s = FIRST_S if given_s is None else given_s

    def sent(self, worker: int, flight: Flight, more_s: float = 0.0) -> None:
        """Note that a batch was sent to a worker, which first has other work that takes `more_s` seconds."""
        ready = self._ready.get(worker, 0.0)
        if more_s:
            ready = max(self._now, ready) + more_s
        self._ready[worker] = ready
        flight.waited_since = max(self._now, ready)

    def came(self, worker: int, flight: Flight | None) -> None:
        """Note that a worker has answered, with None a batch that it was not expected to answer; its next batch has the
        whole limit."""
        self._heard[worker] = self._now
        if flight is not None and (flight.waited_since or 0.0) > self._now:  # the other work took less than estimated
            self._ready[worker] = self._now
            for each in self._dispatcher.flights(worker):
                if each.waited_since is not None:
                    each.waited_since = min(each.waited_since, self._now)

    def exchanged(self, worker: int, flight: Flight) -> None:
        """Note that a worker has answered the batch of a flight, which is now that of another batch; equals `came` and
        `sent`."""
        now = self._now
        self._heard[worker] = now
        if (flight.waited_since or 0.0) > now:
            self.came(worker, flight)
        flight.waited_since = max(now, self._ready.get(worker, 0.0))

    def look(self, now_s: float) -> bool:
        """Advance to `now_s`.  False when it is too early for another look."""
        if self._last_look is None:
            self._last_look = now_s
        if now_s - self._last_look < LOOK_EVERY_S:
            return False
        self._now += min(now_s - self._last_look, LONGEST_STEP_S)
        self._last_look = now_s
        if self._given_s is None and self._round_trips:
            self.limit_s = max(LEAST_S, TIMES * self._round_trips.percentile(99))
        return True

    def stragglers(self) -> list[tuple[int, int]]:
        """Workers that are newly past a deadline, each with the batch that it should have answered."""
        found = []
        for worker in self._ready:
            oldest = next(self._dispatcher.flights(worker, wanted=True), None)
            if oldest is None or oldest.waited_since is None or self._dispatcher.is_straggler(worker):
                continue
            if self._now - max(oldest.waited_since, self._heard.get(worker, 0.0)) > self.limit_s:
                found.append((worker, oldest.batch))
        return found

    def hopeless(self) -> list[int]:
        """Stragglers that the run has waited for longer than the limit, unable to go on without them."""
        silent = self._dispatcher.silent
        if not silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self._now
        elif self._now - self._silent_since > self.limit_s:
            self._silent_since = None
            return silent
        return []
