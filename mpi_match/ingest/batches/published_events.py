"""Files of events as they were published, of lines and of columns, in compiled code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mpi_match.events.events import Events
from mpi_match.ingest.columns.file import ColumnFile
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.json.join_events import JoinedEvents
from mpi_match.ingest.json.line_columns import LineColumns
from mpi_match.ingest.rows.judge import EventForm, Reject, Rejects, row_text
from mpi_match.ingest.rows.row_files import is_columnar
from mpi_match.model import ModelError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 2**15
"""Rows of a batch: few enough that the results for a hundred columns stay in cache, and their memory is used again."""


def read_events(files: Iterable[Path], form: EventForm, required: frozenset[str], rejects: Rejects) -> Events:
    """The events of files, in the order of their paths; bad rows go to `rejects`.

    A row is bad if a `required` attribute of it cannot be read; other attributes that cannot be read are left out
    (`Events.left_out`).  Raises ModelError for a damaged file or a required column of a type that attributes do not have;
    OSError.
    """
    joined, lines = JoinedEvents(), None
    for file in sorted(files):
        if is_columnar(file):
            _add_columns(file, form, required, rejects, joined)
            continue
        lines = lines or LineColumns(form, required)
        for block in read_blocks([file], form):
            lines.scan(block, rejects, joined)
    return joined.take()


def _add_columns(file: Path, form: EventForm, required: frozenset[str], rejects: Rejects, to: JoinedEvents) -> None:
    from mpi_match.ingest.columns.arrow_to_events import events_of_batch  # loads pyarrow

    with PublishedColumns(file, form, required) as found:
        for row, batch in found.batches(range(found.n_pieces)):
            events, bad = events_of_batch(batch, found.columns, required, form)
            to.add(events)
            for at, reason in bad:
                rejects.append(found.reject(batch, row, at, reason))


class PublishedColumns:
    """A Parquet or Arrow file of events with all its columns: `columns`; the names of those of maps: `maps`.

    A context manager.  `required` as in `columns.arrow_to_events`.  Raises ModelError as `read_events` does, OSError.
    """

    def __init__(self, file: Path, form: EventForm, required: frozenset[str]) -> None:
        from pyarrow.types import is_map  # slow to load

        from mpi_match.ingest.columns.arrow import is_list, is_scalar
        from mpi_match.ingest.columns.arrow_lists import leaves

        self._name = str(file.absolute())
        with ColumnFile(file.open("rb"), str(file), required, form) as found:
            if not any(is_scalar(type_) or is_list(type_) for _, type_ in leaves(found.schema)):
                has = ", ".join(f"{field.name!r} of type {field.type}" for field in found.schema)
                raise ModelError(f"{file}: no column is a number, a string, a boolean or a list of these; there are: {has}")
        self._file = ColumnFile(file.open("rb"), str(file), None, form)
        self.columns = self._file.needed
        self.maps = tuple(".".join(path) for path, type_ in leaves(self._file.schema) if is_map(type_))
        self.n_pieces = self._file.n_pieces

    def __enter__(self) -> PublishedColumns:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def batches(self, pieces: range) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of pieces in batches, each with the number of rows of the file before it."""
        row = sum(map(self._file.n_rows, range(pieces.start)))
        for piece in pieces:
            for batch in self._file.read(piece).to_batches(_ROWS_AT_ONCE):
                yield row, batch
                row += batch.num_rows

    def reject(self, batch: pa.RecordBatch, row: int, at: int, reason: str) -> Reject:
        """The reject for row `at` of a batch that follows `row` rows."""
        (shown,) = batch.slice(at, 1).to_pylist()
        return Reject(reason, self._name, row + at + 1, row_text(shown))
