"""Which events are in which batch.

Batches are numbered from 0 and cover the events that are still to be matched: all of them, or, when a run is taken up again,
those that its journal does not hold.  No batch reaches over a gap between them.

    answered       ██████████       ███
    to be matched            0001112   3334445      in batches of three events
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate

from mpi_match.journal.reader import EventRange


class BatchRanges:
    """Stretches of events, ascending and apart, cut into batches of `size` events; the last of each may be shorter."""

    def __init__(self, stretches: Sequence[EventRange], size: int) -> None:
        self._stretches = [each for each in stretches if each.n_events]
        self._size = size
        self._first = list(accumulate((-(-each.n_events // size) for each in self._stretches), initial=0))

    @property
    def n_batches(self) -> int:
        """How many batches there are."""
        return self._first[-1]

    def of(self, batch: int) -> tuple[int, int]:
        """First event of a batch, and the one after its last."""
        place = bisect.bisect(self._first, batch) - 1
        stretch = self._stretches[place]
        start = stretch.start + (batch - self._first[place]) * self._size
        return start, min(start + self._size, stretch.stop)
