"""How long batches take from the master to a worker and back, in bounded memory.

A run may have a hundred million batches, so times are counted in steps of 1 % instead of kept: some two thousand numbers
for everything between a microsecond and an hour, and a percentile that is right to half a step.
"""

from __future__ import annotations

import math
from collections import Counter

_STEP = math.log(1.01)


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
