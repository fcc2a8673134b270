"""Pauses of matching, and how their time was spent.

A process pauses for its own work and for other processes, which take wall-clock time but none of its processor time. The
longest pauses are recorded with both, and with the system's counters of the thread:

    ms            wall-clock time
    cpu_ms        processor time of this thread; the rest is waiting for a device, threads or a core
    collector_ms  time of Python's garbage collector
    faults        pages that the thread touched for the first time
    preempted     number of times it was taken off its core
    round_ms      all parts of the round

A virtual machine is sometimes slowed without noticing, so its processor time grows as well.  Each round therefore ends with
a constant piece of work, SAME: thousands of reads all over memory, and a sum.  If its median or maximum grows, the machine
was slow.
"""

from __future__ import annotations

import gc
import heapq
import resource
import time
from array import array
from typing import NamedTuple

import numpy as np

from mpi_match.model import Json

LONGEST = 5
SAME = "same"
READS, READ_FROM = 4096, 2**23
"""Number of items read, and of items in memory, eight bytes each."""


class Moment(NamedTuple):
    """Readings of the clocks, in milliseconds, and of the counters."""

    ms: float
    cpu_ms: float
    collector_ms: float
    faults: int
    preempted: int

    def since(self, before: Moment) -> Moment:
        """The differences between two moments."""
        times = self.ms - before.ms, self.cpu_ms - before.cpu_ms, self.collector_ms - before.collector_ms
        return Moment(*times, self.faults - before.faults, self.preempted - before.preempted)


class Pauses:
    """A context manager that times consecutive parts of rounds.

    `start` begins a round, `stop` ends a part of it, in the order of `parts`; `keep` counts the round, and `at` names it.
    The times of all rounds are kept, and all readings of the longest. `parts` includes SAME.
    """

    def __init__(self, *parts: str) -> None:
        self.parts = (*parts, SAME)
        self._ms = {part: array("d") for part in self.parts}
        self._longest: dict[str, list[tuple[float, float, Moment, list[Moment]]]] = {part: [] for part in self.parts}
        self._spent: list[Moment] = []
        self._memory, self._places = np.ones(READ_FROM), np.random.default_rng(0).integers(0, READ_FROM, READS)
        self._collecting_since = self._collector_ms = 0.0
        self._since = self._now()

    def __enter__(self) -> Pauses:
        gc.callbacks.append(self._collects)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collects)

    def start(self) -> None:
        """Begin a round."""
        self._spent = []
        self._since = self._now()

    def stop(self) -> None:
        """End a part of the round."""
        now = self._now()
        self._spent.append(now.since(self._since))
        self._since = now

    def keep(self, at: float) -> None:
        """End the round and count it."""
        self._since = self._now()
        assert self._memory[self._places].sum() == READS
        self.stop()
        for part, each in zip(self.parts, self._spent, strict=True):
            self._ms[part].append(each.ms)
            heapq.heappush(self._longest[part], (each.ms, at, each, self._spent))
            if len(self._longest[part]) > LONGEST:
                heapq.heappop(self._longest[part])

    def _now(self) -> Moment:
        used = resource.getrusage(resource.RUSAGE_THREAD)
        clocks = time.perf_counter() * 1e3, time.thread_time() * 1e3, self._collector_ms
        return Moment(*clocks, used.ru_minflt + used.ru_majflt, used.ru_nivcsw)

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter() * 1e3
        if phase == "start":
            self._collecting_since = now
        else:
            self._collector_ms += now - self._collecting_since

    def total_ms(self, part: str) -> float:
        """Milliseconds of all rounds."""
        return sum(self._ms[part])

    def spread(self, part: str) -> dict[str, float]:
        """Median, tail and maximum in milliseconds."""
        tail = {f"p{p:g}": round(float(np.percentile(self._ms[part], p)), 3) for p in (50, 99, 99.9)}
        return tail | {"max": round(max(self._ms[part]), 3)}

    def longest(self, part: str) -> list[Json]:
        """The longest rounds of a part, in order of time."""
        found = sorted(self._longest[part], key=lambda each: each[1])
        return [
            {"at": at}
            | {what: round(n, 2) for what, n in spent._asdict().items()}
            | {"round_ms": {name: round(each.ms, 2) for name, each in zip(self.parts, of_round, strict=True)}}
            for _, at, spent, of_round in found
        ]
