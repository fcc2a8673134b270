"""The account of the lines of a run: its bad rows, in the order of their numbers, and the counts of the scanner.

    batch answered by ──► its report, in order ──► counts, first rejects, the file of rejects
    an earlier run    ──► its lines are judged again here, for the file alone

The journal has answers, but no reasons of bad rows.  So a resumed run that keeps rejects reads again the lines that earlier
runs have answered, each batch when its turn comes, and its file has every bad row once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.batches.offer import RowsOffer
from mpi_match.ingest.batches.scan_report import ScanReport, ScanTotals
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.journal.reader import EventRange
from mpi_match.table.vocabulary import Vocabulary

JUDGED_AT_ONCE = 2**16
"""Number of rows that are read and judged again at a time."""


class ScanLog:
    """Takes the reports of batches of `rows`, which `path` names, in order, into `rejects`; `earlier` are the events that
    earlier runs have answered, for a `vocabulary`.  Raises ModelError if there are no rows.

    totals   of the rows so far
    """

    def __init__(
        self,
        path: Path,
        rows: LineFiles | ColumnFiles,
        vocabulary: Vocabulary,
        rejects: RejectLog,
        earlier: Sequence[EventRange],
    ) -> None:
        self._rows, self._vocabulary, self._rejects = rows, vocabulary, rejects
        self._left = list(earlier) if rejects.keeps else []
        self._is_whole = not earlier or rejects.keeps
        self._scanner: Any = None  # of batches as `rows` has them
        self.totals = ScanTotals(named=bool(earlier))  # the attributes of earlier events are not known
        rejects.begin(path)
        if not rows.n_events:
            raise rejects.nothing_usable("event")

    def add(self, start: int, report: bytes | memoryview) -> None:
        """The report of the batch that begins with event `start`.  Raises ModelError for a reject under `strict`."""
        self._judge_before(start)
        self._take(ScanReport.from_wire(report))

    def finish(self) -> tuple[str, ...]:
        """Call this after the last batch.  Returns the attributes named for location and id that no event has.

        Raises ModelError when no row is an event.
        """
        self._judge_before(self._rows.n_events)
        if self._rejects.all_bad(self._rows.n_events):
            raise self._rejects.nothing_usable("event")
        return self._rows.form.never_seen(self.totals.located, self.totals.identified) if self._is_whole else ()

    def _take(self, report: ScanReport) -> None:
        self.totals.add(report)
        self._rejects.extend(report.rejects)

    def _judge_before(self, stop: int) -> None:
        while self._left and self._left[0].start < stop:
            for start, end in _cut(self._left.pop(0)):
                if self._scanner is None:
                    self._scanner = RowsOffer(self._rows.index, self._rows.form).scanner(self._vocabulary)
                self._take(self._scanner.scan(self._rows.batch(start, end))[1])


def _cut(events: EventRange) -> Iterator[tuple[int, int]]:
    return ((at, min(at + JUDGED_AT_ONCE, events.stop)) for at in range(events.start, events.stop, JUDGED_AT_ONCE))
