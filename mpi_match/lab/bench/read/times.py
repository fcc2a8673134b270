"""Repeated timings of readers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


class Times:
    """Rows per second of repeated work, and its processor time."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.cpu_ns: list[float] = []

    def add(self, work: Callable[[], int]) -> None:
        """Time one call of `work`, which returns the number of rows that it has read."""
        wall, cpu = time.perf_counter(), time.process_time()
        n_rows = work()
        self.rates.append(n_rows / (time.perf_counter() - wall))
        self.cpu_ns.append((time.process_time() - cpu) / n_rows * 1e9)

    def record(self) -> dict[str, float]:
        """Rows per second (`median`, `min`, `max`), and the least processor time of a row, in nanoseconds."""
        return {
            "median": statistics.median(self.rates),
            "min": min(self.rates),
            "max": max(self.rates),
            "cpu_ns_per_line": min(self.cpu_ns),
        }


def median_s(work: Callable[[], object], times: int) -> float:
    """The median of `times` timings of some work, in seconds, after a first call that is not counted."""
    found = []
    for _ in range(times + 1):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])
