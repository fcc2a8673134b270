"""Scans `RowBatch`es of lines into events in a vocabulary, with a report of each batch (`scan_report`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner, LineScanner, ScannedEvents
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import EventForm, Rejects
from mpi_match.ingest.rows.rejects import HeldRejects
from mpi_match.storage import StorageError
from mpi_match.table.vocabulary import Vocabulary


class BatchScanner:
    """Scans batches of lines of `files` into the code space of a vocabulary, without ids; compiles when it is created."""

    def __init__(self, vocabulary: Vocabulary, form: EventForm, files: Sequence[str], threads: int | None = None) -> None:
        self._on_cpu = EventScanner(vocabulary, form, threads, with_ids=False)
        self._scanner: LineScanner = self._on_cpu
        self._files: Sequence[str] = ()
        self._are_made = np.zeros(0, bool)
        self.of_files(files)

    def of_files(self, files: Sequence[str]) -> None:
        """From now on, the pieces of batches refer to these files by number."""
        if files == self._files:
            return
        self._files = files
        self._are_made = np.array([not lines_format(Path(name)).is_plain for name in files], bool)

    @property
    def is_on_gpu(self) -> bool:
        """Tells whether batches are scanned on a GPU.  Several threads may then scan at a time."""
        return self._scanner is not self._on_cpu

    def choose(self, choice: Callable[[LineScanner], LineScanner]) -> None:
        """Scan with the choice of an engine (`Engine.scanner`)."""
        self._scanner = choice(self._on_cpu)

    def scan(self, batch: RowBatch) -> tuple[EventBatch, ScanReport]:
        """The events of a batch.  Raises StorageError when its number of rows is wrong."""
        rejects = HeldRejects()
        scanned = [self._scan(batch.data[bounds], pieces, rejects) for bounds, pieces in _runs(batch, self._are_made)]
        events = scanned[0].batch if len(scanned) == 1 else EventBatch.concat([each.batch for each in scanned])
        if len(events) != batch.n_events:
            raise StorageError(
                f"{self._files[int(batch.pieces[0, 0])]}: found {len(events):,} rows, expected {batch.n_events:,}"
            )
        located, identified = any(each.located for each in scanned), any(each.identified for each in scanned)
        n_flagged, n_on_gpu = sum(each.n_flagged for each in scanned), sum(each.n_on_gpu for each in scanned)
        return events, ScanReport(n_flagged, n_on_gpu, located, identified, events.n_attributes > 0, rejects.joined())

    def _scan(self, data: Array, pieces: Array, rejects: Rejects) -> ScannedEvents:
        """Scan pieces that lie end to end: lines of any files, or one overlong line."""
        file, line, _, _, is_overlong = pieces[0].tolist()
        if len(pieces) == 1:
            return self._scanner.scan(LineBlock(data, self._files[file], line + 1, bool(is_overlong)), rejects)
        bad = HeldRejects()
        found = self._scanner.scan(LineBlock(data, self._files[file], 0), bad)
        ends = np.cumsum(pieces[:, 2])
        for part in bad.parts:
            of_pieces = np.searchsorted(ends, part.lines, "right")
            for piece in np.unique(of_pieces).tolist():
                first, last = np.searchsorted(of_pieces, [piece, piece + 1]).tolist()
                file, line, n_lines, *_ = pieces[piece].tolist()
                moved = part.lines[first:last] + (line + 1 - int(ends[piece]) + n_lines)
                rejects.extend(part.placed(self._files[file], moved, first))
        return found


def _runs(batch: RowBatch, are_made: Array) -> Iterator[tuple[slice, Array]]:
    """Pieces that can be scanned together, and the positions of their lines.  An overlong line stands alone, and lines made
    of another format are apart from others; `are_made` bool marks the files with such lines.
    """
    if len(batch.pieces) == 1:
        yield slice(0, len(batch.data)), batch.pieces
        return
    bounds = np.append(0, np.cumsum(batch.pieces[:, 3]))
    overlong = np.flatnonzero(batch.pieces[:, 4])
    others = np.flatnonzero(np.diff(are_made[batch.pieces[:, 0]])) + 1
    cuts = np.unique([0, *overlong, *(overlong + 1), *others, len(batch.pieces)])
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        yield slice(int(bounds[first]), int(bounds[last])), batch.pieces[first:last]
