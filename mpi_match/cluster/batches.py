"""The events and changes of a run in batches.

Batches are numbered from 0 and cover the events that are still to be matched: all of them, or, in a resumed run, those that
its journal does not hold.  No batch spans a gap between them.

    answered       ██████████       ███
    to be matched            0001112   3334445      in batches of three events
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from mpi_match.changes.stream import ChangeStream, StampedChanges
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.journal.reader import EventRange
from mpi_match.storage import StorageError
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table


class BatchRanges:
    """Disjoint ascending ranges of events, cut into batches of `size` events; the last batch of a range may be shorter."""

    def __init__(self, ranges: Sequence[EventRange], size: int) -> None:
        self._ranges = [each for each in ranges if each.n_events]
        self.size = size
        self._first = list(accumulate((-(-each.n_events // size) for each in self._ranges), initial=0))

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return self._first[-1]

    def of(self, batch: int) -> tuple[int, int]:
        """First event of a batch, and the one after its last."""
        if len(self._ranges) == 1:
            start = self._ranges[0].start + batch * self.size
            return start, min(start + self.size, self._ranges[0].stop)
        place = bisect.bisect(self._first, batch) - 1
        found = self._ranges[place]
        start = found.start + (batch - self._first[place]) * self.size
        return start, min(start + self.size, found.stop)

    def gap_after(self, batch: int) -> int:
        """The first batch after a batch that does not begin where the batch before it ends."""
        return self._first[bisect.bisect(self._first, batch)]

    def consecutive(self, batch: int, n: int) -> tuple[int, int]:
        """The events of a batch and of the batches that follow it without a gap, `n` in all at most: the first event, and
        the one after the last."""
        place = bisect.bisect(self._first, batch) - 1
        start, _ = self.of(batch)
        return start, min(start + n * self.size, self._ranges[place].stop)


class BatchedEvents:
    """The events of a `table`, or of lines, in the batches of some `ranges`."""

    def __init__(self, table: EventTable | LineFiles | ColumnFiles, ranges: BatchRanges) -> None:
        self.table, self.ranges = table, ranges

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return self.ranges.n_batches

    def read(self, batch: int) -> EventBatch | RowBatch:
        """The events of a batch; rows if they are not encoded.  Raises StorageError when they are damaged."""
        return self.table.batch(*self.ranges.of(batch))

    def read_wires(self, batch: int, n: int) -> Iterator[bytes]:
        """The wire forms of a batch of encoded events and of up to `n` - 1 batches after it, if they can be read together.

        Raises StorageError when the batch is damaged.
        """
        assert isinstance(self.table, EventTable)
        try:
            events = self.table.batch(*self.ranges.consecutive(batch, n))
        except StorageError:  # of which batch?
            events = self.table.batch(*self.ranges.of(batch))
        return events.to_wires(self.ranges.size)

    def check_unchanged(self, batch: int) -> None:
        """Raise FileChanged if the events of a batch may have changed since they were read."""
        self.table.check_unchanged(*self.ranges.of(batch))


class BatchedChanges:
    """The changes of a run, sent with batches: every worker gets all of them, each once and in order.

    A batch comes with all changes before its last event that its worker still lacks, including those of other workers'
    batches.
    """

    def __init__(self, stream: ChangeStream[Table | RangeReader], ranges: BatchRanges) -> None:
        self._stream, self._ranges = stream, ranges
        self._known: dict[int, int] = {}  # by worker: it has had all changes before that event

    def due_with(self, worker: int, batch: int) -> tuple[bool, StampedChanges | None]:
        """The changes to send to a worker with a batch, with stamps counted from its first event, or None.

        The first value says whether the worker's engine has to be opened anew and gets all changes again: changes cannot be
        undone, and the worker has applied one that comes after events of this batch.
        """
        start, stop = self._ranges.of(batch)
        known = self._known.get(worker)
        afresh = known is not None and start + 1 < known and len(self._stream.within(start + 1, known)) > 0
        if afresh:
            known = None
        self._known[worker] = stop
        found = self._stream.within(known or 0, stop)
        if known is not None and not len(found):
            return afresh, None
        return afresh, StampedChanges(np.maximum(found.before_event - start, 0), found.changes)

    def forget(self, worker: int) -> None:
        """A worker starts over: its next batch comes with all changes."""
        self._known.pop(worker, None)
