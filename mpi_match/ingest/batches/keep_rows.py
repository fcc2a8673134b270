"""Keeps the rows of events as they were given, so that they can be written beside the answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import LineScanner, ScannedEvents
from mpi_match.ingest.rows.judge import EventForm, Rejects, trimmed
from mpi_match.ingest.rows.row_files import are_columnar, event_files, is_compiled
from mpi_match.model import ModelError


def check_rows(events: Path, form: EventForm) -> None:
    """Refuse events if their rows are not available as JSON.  Raises ModelError, OSError."""
    if is_compiled(events) or are_columnar(event_files(events, form)):
        raise ModelError(f"{events}: holds columns, no rows of JSON to write beside answers; leave out --with-rows")


class RowKeeper:
    """A scanner of lines that keeps the rows: `ScannedEvents.rows`."""

    def __init__(self, scanner: LineScanner) -> None:
        self._scanner = scanner

    def scan(self, block: LineBlock, rejects: Rejects) -> ScannedEvents:
        """See `LineScanner.scan`."""
        scanned = self._scanner.scan(block, rejects)
        return scanned._replace(rows=rows_of(block, scanned.batch.rejected))


def rows_of(block: LineBlock, rejected: Array | None) -> Strings:
    """The rows of a block, byte for byte, without blanks around them; `rejected` rows, which may not be JSON, are empty."""
    rows = [b""] if block.overlong else list(filter(None, map(trimmed, block.data.tobytes().split(b"\n"))))
    for row in () if rejected is None else np.asarray(rejected).tolist():
        rows[row] = b""
    return Strings.of(rows)
