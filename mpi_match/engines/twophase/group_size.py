"""Number of threads that match an event together, set by the technique or by a target time per event.

Section 4.3 of Farroukh et al. divides threads into groups so that the matching time of an event stays acceptable while
throughput is high.  Larger groups match an event in less time; smaller ones waste less time on waiting.  So with a target,
groups start with one thread, are doubled while events take longer than the target, and are halved when events take less than
half of it: with half the threads, an event takes at most twice as long.
"""

from __future__ import annotations

from mpi_match.engines.twophase.options import TwoPhaseVariant


class GroupSize:
    """The number of threads, `size`, of a group in the next batch."""

    def __init__(self, variant: TwoPhaseVariant, n_threads: int) -> None:
        self._n_threads = n_threads
        self._target_s = variant.target_us / 1e6 if variant.technique == "me-cp" else 0.0
        of_technique = {"me-ip": 1, "se-cp": n_threads, "me-cp": min(variant.group, n_threads)}
        self.size = 1 if self._target_s else of_technique[variant.technique]

    def took(self, event_s: float) -> None:
        """Adapt to the average time, in seconds, that a group took for an event of a batch in which all groups had
        events."""
        if not self._target_s:
            return
        if event_s > self._target_s:
            self.size = min(2 * self.size, self._n_threads)
        elif 2 * event_s <= self._target_s:
            self.size = max(self.size // 2, 1)
