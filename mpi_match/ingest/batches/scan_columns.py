"""Encoding of rows of columns for a vocabulary, with the account of bad rows that scanners of lines give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.batches.column_batch import tables_of
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.columns.file import ColumnFile
from mpi_match.ingest.json.event_scanner import EventScanner, ScannedEvents
from mpi_match.ingest.json.passed_rows import blocks_of_rows
from mpi_match.ingest.rows.judge import EventForm, Reject, Rejects, row_text
from mpi_match.ingest.rows.rejects import ListedRejects
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

    from mpi_match.ingest.columns.arrow_to_codes import ArrowEncoder

_ROWS_AT_ONCE = 2**17


class ColumnScanner:
    """Encodes the `needed` columns of `files` into the code space of a vocabulary; compiles when it is created.

    `needed` may include further names; a row is bad if one of them cannot be read.  Without ids, only their presence is
    noted.  For a vocabulary that asks for whole rows (`Vocabulary.asks_of_rows`), columns are written as JSON lines, and
    these are scanned.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        form: EventForm,
        needed: frozenset[str],
        files: Sequence[str],
        threads: int | None = None,
        *,
        with_ids: bool = True,
    ) -> None:
        self._form, self._needed, self._files, self._vocabulary = form, needed, files, vocabulary
        self._rows: EventScanner | None = None
        self._columns: ArrowEncoder | None = None
        if vocabulary.asks_of_rows:
            self._rows = EventScanner(vocabulary, form, threads, with_ids=with_ids)
        else:
            from mpi_match.ingest.columns.arrow_to_codes import ArrowEncoder  # loads pyarrow

            self._columns = ArrowEncoder(vocabulary, form, threads, with_ids=with_ids)

    is_on_gpu = False

    def choose(self, scanner: object) -> None:
        """Nothing: no engine has a scanner of columns."""

    def scan(self, batch: RowBatch) -> tuple[EventBatch, ScanReport]:
        """The events of a batch."""
        rejects: list[Reject] = []
        scanned = [self.scan_rows(rows, file, first, rejects) for file, first, rows in tables_of(batch)]
        batches = [each.batch for each in scanned] or [Events.of(()).encode(self._vocabulary)]
        events = batches[0] if len(batches) == 1 else EventBatch.concat(batches)
        located, identified = any(each.located for each in scanned), any(each.identified for each in scanned)
        return events, ScanReport(0, 0, located, identified, events.n_attributes > 0, ListedRejects(rejects))

    def scan_files(self, rejects: Rejects) -> Iterator[ScannedEvents]:
        """The events of all files, some thousand at a time.

        Raises ModelError for a file that is damaged, or has a needed column of a type that attributes do not have, OSError.
        """
        for number, name in enumerate(self._files):
            with ColumnFile(Path(name).open("rb"), name, self._needed, self._form) as file:
                row = 0
                for piece in range(file.n_pieces):
                    for batch in file.read(piece).to_batches(_ROWS_AT_ONCE):
                        yield self.scan_rows(batch, number, row, rejects)
                        row += batch.num_rows

    def scan_rows(self, rows: pa.RecordBatch, file: int, first: int, rejects: Rejects) -> ScannedEvents:
        """The events of the rows of a file from number `first` on, counted from 0; bad rows go to `rejects`.

        Raises ModelError for strings that are not UTF-8.
        """
        from mpi_match.ingest.columns.arrow import NeededColumns

        needed = NeededColumns.of(rows.schema, self._needed, self._form)
        if self._columns is None:
            return self._scan_whole(rows, file, first, rejects)
        events, ids, identified, bad = self._columns.encode(rows, needed)
        for row, reason, values in bad:
            rejects.append(Reject(reason, self._files[file], first + row + 1, row_text(values)))
        return ScannedEvents(events, ids, events.location is not None, identified, 0)

    def _scan_whole(self, rows: pa.RecordBatch, file: int, first: int, rejects: Rejects) -> ScannedEvents:
        """As `scan_rows`, from the rows as JSON lines."""
        assert self._rows is not None
        bad: list[Reject] = []
        found = [self._rows.scan(block, bad) for block in blocks_of_rows(rows.to_pylist())]
        for each in bad:
            rejects.append(each._replace(file=self._files[file], line=first + each.line + 1))
        batch = EventBatch.concat([each.batch for each in found] or [Events.of(()).encode(self._vocabulary)])
        ids = [each.ids for each in found if each.ids is not None]
        located, identified = any(each.located for each in found), any(each.identified for each in found)
        return ScannedEvents(batch, Strings.concat(ids) if ids else None, located, identified, 0)
