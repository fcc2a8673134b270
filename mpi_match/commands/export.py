"""Export of answers as JSON lines, CSV, Parquet or Arrow.

    {"event": 0, "interfaces": ["mobile-7", "mobile-8"]}
    {"event": 1, "id": "reading-44", "interfaces": []}            where events have ids

Every event has a row, also one without matches; in CSV every match has one (`matches.csv_lines`).  A file of matched filters
has `filters`, their numbers in the table, instead of `interfaces`.  Answers of `match --id` have the ids of events; those of
a run are in its event table.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from mpi_match.arrays.strings import Strings
from mpi_match.events.event_table import EventTable
from mpi_match.ingest.columns import needed_names
from mpi_match.ingest.line_blocks import read_blocks
from mpi_match.ingest.row_files import are_columnar, event_files, is_compiled
from mpi_match.ingest.rows import LINE_ENDINGS, PLAIN, EventForm
from mpi_match.matches.arrow import ArrowAnswers, batch_bounds
from mpi_match.matches.file import MatchesFile
from mpi_match.storage import StorageError, atomic_write, check_output
from mpi_match.table.table import Table

PARQUET, ARROW_ENDINGS, CSV = ".parquet", (".arrow", ".feather"), ".csv"
ENDINGS = (*LINE_ENDINGS, *(f"{ending}.gz" for ending in LINE_ENDINGS), CSV, PARQUET, *ARROW_ENDINGS)
"""Endings of an output's name, by which its form is chosen."""


class ExportError(Exception):
    """The answers cannot be written in this form on this machine; the text says what is missing."""


def export(matches: Path, output: Path | None, events: Path | None = None, form: EventForm = PLAIN) -> dict[str, int]:
    """Write the answers in `matches` to `output`, in the form of its name's ending (`ENDINGS`).

    Without an `output` JSON lines go to standard output.  `events` is the event table, or files of rows of this `form`,
    whose ids of events replace those in `matches`.  `output` is written atomically.  Returns counts.  Raises what
    `check_export` does, OSError.
    """
    check_export(output, [each for each in (matches, events) if each])
    answers = MatchesFile.load(matches)
    ids = answers.event_ids if events is None else _event_ids_in(_EventsNamed(events, form), answers, matches)
    if output is None:
        sys.stdout.flush()
        _write_lines(sys.stdout.buffer, answers, ids)
        sys.stdout.buffer.flush()  # before what is said on standard error
    else:
        with atomic_write(output) as temporary:
            if is_columnar(output):
                _write_columns(temporary, answers, ids, output.suffix.lower())
            else:
                open_ = gzip.open if output.suffix.lower() == ".gz" else open
                with open_(temporary, "wb") as file:
                    _write_lines(cast(BinaryIO, file), answers, ids, is_csv=output.suffix.lower() == CSV)
    return {"events": answers.matches.n_events, "matches": answers.matches.n_matches}


def check_export(output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse, before any work is done, an output that `export` could not write.

    Raises ValueError for a name without one of ENDINGS, StorageError for a place that cannot be written or is an input,
    ExportError.
    """
    if output is None:
        return
    if not says_form(output):
        raise ValueError(f"{output}: ends in none of {', '.join(ENDINGS)}, which say the form")
    check_output(output, inputs)
    if is_columnar(output) and not find_spec("pyarrow"):
        raise ExportError(
            f"{output.suffix} needs pyarrow: {sys.executable} -m pip install pyarrow; or name the output .jsonl"
        )


def is_columnar(output: Path) -> bool:
    """Is it a name of a form that pyarrow writes?"""
    return output.suffix.lower() in (PARQUET, *ARROW_ENDINGS)


def says_form(output: Path) -> bool:
    """Does a name end in one of `ENDINGS`?"""
    return output.name.lower().endswith(ENDINGS)


class _EventsNamed(NamedTuple):
    """The events that ids are taken from, and the form of their rows."""

    path: Path
    form: EventForm


EventIds = Strings | Iterator[str | None]
"""The publishers' ids of all events: packed, empty for an event without one, or one after the other."""


def _event_ids_in(events: _EventsNamed, answers: MatchesFile, matches: Path) -> Iterator[str | None]:
    if not is_compiled(events.path) and events.path.exists():
        yield from _ids_of_lines(events, answers, matches)
        return
    with EventTable(events.path, Table.from_filters(()).vocabulary) as table:  # raw columns only: any vocabulary does
        _check_events(table.n_events, events.path, answers, matches)
        yield from table.ids()


def _ids_of_lines(events: _EventsNamed, answers: MatchesFile, matches: Path) -> Iterator[str | None]:
    from mpi_match.ingest.column_scanner import ColumnScanner  # loads Numba
    from mpi_match.ingest.event_scanner import EventScanner

    files = event_files(events.path, events.form)
    if events.form.id is None:
        raise StorageError(f"{events.path}: holds rows: which attribute is the id? (--id)")
    nothing, n_events = Table.from_filters(()).vocabulary, 0
    if are_columnar(files):
        names = [str(file.absolute()) for file in sorted(files)]
        scanned = ColumnScanner(nothing, events.form, needed_names((), events.form), names).scan_files([])
    else:
        scanner = EventScanner(nothing, events.form)
        scanned = (scanner.scan(block, []) for block in read_blocks(files, events.form))
    for ids in (each.ids for each in scanned):
        if ids is not None:
            n_events += len(ids)
            _check_events(n_events, events.path, answers, matches, so_far=True)
            yield from (id_.decode() or None for id_ in ids)
    _check_events(n_events, events.path, answers, matches)


def _check_events(n_events: int, events: Path, answers: MatchesFile, matches: Path, *, so_far: bool = False) -> None:
    expected = answers.matches.n_events
    if n_events > expected or (n_events < expected and not so_far):
        more = "at least " if so_far else ""
        raise StorageError(f"{matches}: answers {expected:,} events, {events} holds {more}{n_events:,}")


def _write_lines(file: BinaryIO, answers: MatchesFile, ids: EventIds | None, *, is_csv: bool = False) -> None:
    from mpi_match.matches.csv_lines import CsvWriter  # loads Numba
    from mpi_match.matches.json_lines import LineWriter

    matches, unit = answers.matches, str(answers.attributes["unit"])
    writer: CsvWriter | LineWriter = LineWriter(unit, answers.labels)
    if is_csv:
        writer = CsvWriter(unit, answers.labels)
        file.write(writer.head(ids is not None))
    for start, stop in batch_bounds(matches):
        for piece in writer.lines(start, matches[start:stop], _ids_between(ids, start, stop)):
            file.write(piece.data)
    _end(ids)


def _ids_between(ids: EventIds | None, start: int, stop: int) -> Strings | None:
    if ids is None or isinstance(ids, Strings):
        return None if ids is None else ids.between(start, stop)
    found = Strings.of((id_ or "").encode() for id_ in islice(ids, stop - start))
    assert len(found) == stop - start
    return found


def _end(ids: EventIds | None) -> None:
    """All ids were taken: let their source refuse if there are more."""
    if ids is not None and not isinstance(ids, Strings):
        next(ids, None)


def _write_columns(path: Path, answers: MatchesFile, ids: EventIds | None, form: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    matches, is_parquet = answers.matches, form == PARQUET
    made = ArrowAnswers(str(answers.attributes["unit"]), answers.labels, matches.n_ids)
    schema = made.batch(0, matches[:0], None if ids is None else Strings.of(()), decoded=is_parquet).schema
    with pq.ParquetWriter(path, schema) if is_parquet else pa.ipc.new_file(str(path), schema) as writer:
        for start, stop in batch_bounds(matches):
            writer.write_batch(made.batch(start, matches[start:stop], _ids_between(ids, start, stop), decoded=is_parquet))
    _end(ids)
