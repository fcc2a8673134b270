"""Latency: the time from the arrival of an event until its answer is written, as a histogram with steps of 1 %."""

from __future__ import annotations

import math

import numpy as np

_STEP = math.log(1.01)
_LEAST_S, _N_STEPS = 1e-6, 2400
PERCENTS = (50, 99, 99.9)
"""The percentiles that reports have."""


class Latencies:
    """A histogram; one thread adds, any thread reads."""

    def __init__(self) -> None:
        self._counts = np.zeros(_N_STEPS, np.int64)

    def add(self, seconds: float, n: int) -> None:
        """Count `n` events."""
        step = round(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _STEP)
        self._counts[min(step, _N_STEPS - 1)] += n

    def percentile(self, percent: float) -> float:
        """Seconds within which `percent` per cent of the events were answered (to 0.5 %); NaN without events."""
        counts = np.cumsum(self._counts)
        if not counts[-1]:
            return math.nan
        return _LEAST_S * math.exp(int(np.searchsorted(counts, counts[-1] * percent / 100)) * _STEP)

    def in_us(self) -> dict[str, float] | None:
        """The percentiles of PERCENTS in µs, by `p50`, ...; None when there were no events."""
        if not self._counts.any():
            return None
        return {f"p{percent}": round(1e6 * self.percentile(percent), 1) for percent in PERCENTS}
