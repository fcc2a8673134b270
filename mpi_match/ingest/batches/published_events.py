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
"""Rows of a batch: few enough that what is made of a hundred columns stays in cache, and its memory is used again."""


def read_events(
    files: Iterable[Path], form: EventForm, required: frozenset[str], rejects: Rejects, left_out: set[str]
) -> Events:
    """The events of files, in the order of their paths; bad rows go to `rejects`.

    Rows of which a `required` attribute cannot be read are bad ones; the names of others that cannot be read are added to
    `left_out`.  Raises ModelError for a damaged file or a
    required column of a type that attributes do not have; OSError.
    """
    joined, lines = JoinedEvents(), None
    for file in sorted(files):
        if is_columnar(file):
            _add_columns(file, form, required, rejects, left_out, joined)
            continue
        lines = lines or LineColumns(form, required)
        for block in read_blocks([file], form):
            lines.scan(block, rejects, joined)
    events = joined.take()
    left_out.update(events.left_out)
    return events


def _add_columns(
    file: Path, form: EventForm, required: frozenset[str], rejects: Rejects, left_out: set[str], to: JoinedEvents
) -> None:
    from mpi_match.ingest.columns.arrow_to_events import events_of_batch  # loads pyarrow

    with PublishedColumns(file, form, required) as found:
        left_out.update(found.others)
        for row, batch in found.batches(range(found.n_pieces)):
            events, bad = events_of_batch(batch, found.usable, required, form, left_out)
            to.add(events)
            for at, reason in bad:
                rejects.append(found.reject(batch, row, at, reason))


class PublishedColumns:
    """A Parquet or Arrow file of events with all columns that can be attributes: `usable`, without `others`.

    A context manager.  `required` as in `columns.arrow_to_events`.  Raises ModelError as `read_events` does, OSError.
    """

    def __init__(self, file: Path, form: EventForm, required: frozenset[str]) -> None:
        from mpi_match.ingest.columns.arrow_to_events import usable_columns  # loads pyarrow

        self._name = str(file.absolute())
        with ColumnFile(file.open("rb"), str(file), required, form) as found:
            try:
                self.usable, self.others = usable_columns(found.schema, form)
            except ModelError as error:
                raise ModelError(f"{file}: {error}") from None
        self._file = ColumnFile(file.open("rb"), str(file), frozenset(self.usable.paths), form)
        self.n_pieces = self._file.n_pieces

    def __enter__(self) -> PublishedColumns:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def batches(self, pieces: range) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of pieces, and before each batch the number of rows of the file before it."""
        row = sum(map(self._file.n_rows, range(pieces.start)))
        for piece in pieces:
            for batch in self._file.read(piece).to_batches(_ROWS_AT_ONCE):
                yield row, batch
                row += batch.num_rows

    def reject(self, batch: pa.RecordBatch, row: int, at: int, reason: str) -> Reject:
        """Row `at` of a batch that `row` rows are before, with what is wrong with it."""
        (shown,) = batch.slice(at, 1).to_pylist()
        return Reject(reason, self._name, row + at + 1, row_text(shown))
