"""Files of events as they were published, of lines and of columns, in compiled code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mpi_match.events.events import Events
from mpi_match.ingest.column_file import ColumnFile
from mpi_match.ingest.joined_events import JoinedEvents
from mpi_match.ingest.line_blocks import read_blocks
from mpi_match.ingest.line_columns import LineColumns
from mpi_match.ingest.row_files import is_columnar
from mpi_match.ingest.rows import EventForm, Reject, Rejects, row_text
from mpi_match.model import ModelError

_ROWS_AT_ONCE = 2**16


def read_events(
    files: Iterable[Path], form: EventForm, required: frozenset[str], rejects: Rejects, left_out: set[str]
) -> Events:
    """The events of files, in the order of their paths; bad rows go to `rejects`.

    `required` and `left_out` belong to columns, see `arrow_events`.  Raises ModelError for a file that is damaged, or has a
    required column of a type that attributes do not have; OSError.
    """
    joined, lines = JoinedEvents(), None
    for file in sorted(files):
        if is_columnar(file):
            _add_columns(file, form, required, rejects, left_out, joined)
            continue
        lines = lines or LineColumns(form)
        for block in read_blocks([file], form):
            lines.scan(block, rejects, joined)
    return joined.take()


def _add_columns(
    file: Path, form: EventForm, required: frozenset[str], rejects: Rejects, left_out: set[str], to: JoinedEvents
) -> None:
    with ColumnFile(file.open("rb"), str(file), required, form) as found:
        from mpi_match.ingest.arrow_events import events_of_batch, usable_columns  # loads pyarrow

        try:
            usable, others = usable_columns(found.schema, form)
        except ModelError as error:
            raise ModelError(f"{file}: {error}") from None
    left_out.update(others)
    row = 0
    with ColumnFile(file.open("rb"), str(file), frozenset(usable.paths), form) as found:
        for piece in range(found.n_pieces):
            for batch in found.read(piece).to_batches(_ROWS_AT_ONCE):
                events, bad = events_of_batch(batch, usable, required, form, left_out)
                to.add(events)
                for at, reason in bad:
                    (shown,) = batch.slice(at, 1).to_pylist()
                    rejects.append(Reject(reason, str(file.absolute()), row + at + 1, row_text(shown)))
                row += batch.num_rows
