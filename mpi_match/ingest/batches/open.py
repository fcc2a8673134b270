"""Opens published events, in the form that a path names: compiled, or rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpi_match.events.event_table import EventTable
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.rows.judge import PLAIN, EventForm, names_of
from mpi_match.ingest.rows.row_files import STDIN, are_columnar, event_files, is_compiled
from mpi_match.model import ModelError
from mpi_match.table.vocabulary import Vocabulary


def open_events(
    path: Path, vocabulary: Vocabulary, form: EventForm = PLAIN, directory: Path | None = None
) -> EventTable | LineFiles | ColumnFiles:
    """The events of an event table, of files of rows (one, or those of a directory), or of STDIN.

    `form` belongs to rows; `directory` is where packed lines are unpacked.  Raises ModelError, StorageError, OSError.
    """
    if path == STDIN:
        return _lines([path], form, vocabulary, directory)
    if not is_compiled(path):
        files = event_files(path, form)
        if are_columnar(files):
            return ColumnFiles.open(files, form, vocabulary)
        return _lines(files, form, vocabulary, directory)
    if form != PLAIN:
        given = ", ".join(("--location", "--id", *form.csv_options))
        raise ModelError(f"{path}: is an event table, compiled with its locations and ids; leave out {given}")
    return EventTable(path, vocabulary)


def _lines(files: Sequence[Path], form: EventForm, vocabulary: Vocabulary, directory: Path | None) -> LineFiles:
    found = LineFiles.open(files, form, directory)
    found.names = names_of(vocabulary, form)
    return found
