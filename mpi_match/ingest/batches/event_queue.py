"""A queue of scanned events between blocks, of the size in which the file is read, and batches, of the size that the engine
matches."""

from __future__ import annotations

from collections.abc import Iterator

from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.batches.scan_report import ScanTotals
from mpi_match.ingest.json.event_scanner import ScannedEvents


class EventQueue:
    """Scanned events, which are taken in batches of any size; `totals` sums up the blocks that were begun."""

    def __init__(self, blocks: Iterator[ScannedEvents]) -> None:
        self._blocks, self._taken = blocks, 0
        self._current: ScannedEvents | None = None
        self.totals = ScanTotals()

    def take(self, most: int) -> tuple[EventBatch, Strings | None, Strings | None] | None:
        """The next events, at most `most`, up to the end of a block, their ids and their rows; None without events or if
        `most` is 0.  The rest of a block is divided evenly: a short last batch costs threads as much as a long one.
        """
        if not most:
            return None
        while self._current is None or self._taken == self._current.batch.n_events:
            self._current, self._taken = next(self._blocks, None), 0
            if self._current is None:
                return None
            self.totals.add(self._current)
        batch, beside = self._current.batch, (self._current.ids, self._current.rows)
        start, n_left = self._taken, batch.n_events - self._taken
        stop = start + -(-n_left // -(-n_left // most))
        self._taken = stop
        ids, rows = (None if each is None else each.between(start, stop) for each in beside)
        return batch[start:stop], ids, rows
