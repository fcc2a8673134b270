"""Pauses of matching, and what their time was spent on.

A process pauses for its own work, and for other processes of the machine: the clock goes on while its processor time does
not.  So of the longest pauses both are noted, and what the system counted for the thread:

    ms            by the clock
    cpu_ms        of this thread: what is missing it slept, waited for a device or other threads, or was kept waiting
    collector_ms  of Python's collector of garbage
    faults        pages that the thread touched for the first time
    preempted     how often it was taken off its core
    round_ms      all parts of the round that it was in

A virtual machine is slow now and then without noticing: its processor time goes on as well.  So
each round ends with work that is always the same, SAME, some thousand reads all over memory and a sum.  When that takes
several times as long, in the middle of a round or at worst, so does everything.
"""

from __future__ import annotations

import gc
import heapq
import resource
import time
from array import array
from typing import Any, NamedTuple

import numpy as np

LONGEST = 5
SAME = "same"
READS, READ_FROM = 4096, 2**23
"""Items that are read, of as many, eight bytes each."""


class Moment(NamedTuple):
    """Readings of the clocks and counters: milliseconds, and numbers."""

    ms: float
    cpu_ms: float
    collector_ms: float
    faults: int
    preempted: int

    def since(self, before: Moment) -> Moment:
        """What there was of each between two moments."""
        times = self.ms - before.ms, self.cpu_ms - before.cpu_ms, self.collector_ms - before.collector_ms
        return Moment(*times, self.faults - before.faults, self.preempted - before.preempted)


class Pauses:
    """Takes the times of parts that follow each other, round after round: a context manager.

    `start` begins a round, `stop` ends a part of it, in the order of `parts`; `keep` counts the round, and `at` says which
    one it was.  Of all rounds the times are kept, of the longest all that is known.  `parts` are those, and SAME.
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
        """A round begins."""
        self._spent = []
        self._since = self._now()

    def stop(self) -> None:
        """A part of it is over."""
        now = self._now()
        self._spent.append(now.since(self._since))
        self._since = now

    def keep(self, at: float) -> None:
        """The round is over, and counts."""
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
        """All rounds together."""
        return sum(self._ms[part])

    def spread(self, part: str) -> dict[str, float]:
        """Milliseconds at the middle, in the tail, and at worst."""
        tail = {f"p{p:g}": round(float(np.percentile(self._ms[part], p)), 3) for p in (50, 99, 99.9)}
        return tail | {"max": round(max(self._ms[part]), 3)}

    def longest(self, part: str) -> list[dict[str, Any]]:
        """The longest rounds of a part, in their order."""
        found = sorted(self._longest[part], key=lambda each: each[1])
        return [
            {"at": at}
            | {what: round(n, 2) for what, n in spent._asdict().items()}
            | {"round_ms": {name: round(each.ms, 2) for name, each in zip(self.parts, of_round, strict=True)}}
            for _, at, spent, of_round in found
        ]
