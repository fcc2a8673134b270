"""Published events in whatever form a path names: compiled, or JSON lines as they are."""

from __future__ import annotations

from pathlib import Path

from mpi_match.events.event_table import EventTable
from mpi_match.ingest.line_files import LineFiles
from mpi_match.ingest.row_files import STDIN, is_compiled, row_files
from mpi_match.ingest.rows import PLAIN, EventForm
from mpi_match.model import ModelError
from mpi_match.table.vocabulary import Vocabulary


def open_events(
    path: Path, vocabulary: Vocabulary, form: EventForm = PLAIN, directory: Path | None = None
) -> EventTable | LineFiles:
    """The events of an event table, of JSON lines files (one, or those of a directory), or of STDIN.

    `form` belongs to lines; `directory` is where packed lines are unpacked.  Raises ModelError, StorageError, OSError.
    """
    if path == STDIN:
        return LineFiles.open([path], form, directory)
    if not is_compiled(path):
        return LineFiles.open(row_files(path), form, directory)
    if form != PLAIN:
        raise ModelError(f"{path}: is an event table, compiled with its locations and ids; leave out --location and --id")
    return EventTable(path, vocabulary)
