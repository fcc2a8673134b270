"""Export of answers as JSON lines, CSV, Parquet or Arrow.

    {"event": 0, "interfaces": ["mobile-7", "mobile-8"]}
    {"event": 1, "id": "reading-44", "interfaces": []}            where events have ids

Every event has a row, also one without matches; in CSV every match has one (`matches.csv_lines`).  A file of matched filters
has `filters`, their numbers in the table, instead of `interfaces`.  JSON lines have the events' rows on request.  Answers
of `match --id` have the ids of events; those of a run are in its event table.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice, repeat
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from mpi_match.arrays.strings import Strings
from mpi_match.errors import MpiMatchError
from mpi_match.events.event_table import EventTable
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.columns.python import needed_names
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.rows.formats import JSON_LINES
from mpi_match.ingest.rows.judge import PLAIN, EventForm
from mpi_match.ingest.rows.row_files import are_columnar, event_files, is_compiled
from mpi_match.matches.arrow import ArrowAnswers, batch_bounds
from mpi_match.matches.file import MatchesFile
from mpi_match.storage import StorageError, atomic_write, check_output
from mpi_match.table.table import Table

PARQUET, ARROW_ENDINGS, CSV = ".parquet", (".arrow", ".feather"), ".csv"
FORMS_WITH_ROWS = (*JSON_LINES.endings, *(f"{ending}.gz" for ending in JSON_LINES.endings))
ENDINGS = (*FORMS_WITH_ROWS, CSV, PARQUET, *ARROW_ENDINGS)
"""Endings of an output's name, by which its form is chosen."""


class ExportError(MpiMatchError):
    """The answers cannot be written in this form on this machine; the text says what is missing."""

    exit_code = ExitCode.ENVIRONMENT


def export(
    matches: Path, output: Path | None, events: Path | None = None, form: EventForm = PLAIN, *, with_rows: bool = False
) -> dict[str, int]:
    """Write the answers in `matches` to `output`, in the form of its name's ending (`ENDINGS`).

    Without an `output` JSON lines go to standard output. `events` is the event table, or files of rows of this `form`, whose
    ids of events replace those in `matches`, and whose rows are written beside answers `with_rows`. `output` is written
    atomically. Returns counts. Raises what `check_export` does, OSError.
    """
    check_export(output, [each for each in (matches, events) if each])
    answers = MatchesFile.load(matches)
    ids: EventIds | None = answers.event_ids
    rows: Iterator[Strings | None] = repeat(None)
    if events is not None and with_rows:
        rows = _rows_of_lines(_EventsNamed(events, form), answers, matches)
    if events is not None and (not with_rows or form.id is not None):
        ids = _event_ids_in(_EventsNamed(events, form), answers, matches)
    if output is None:
        sys.stdout.flush()
        _write_lines(sys.stdout.buffer, answers, ids, rows)
        sys.stdout.buffer.flush()  # before what is said on standard error
    else:
        with atomic_write(output) as temporary:
            if is_columnar(output):
                _write_columns(temporary, answers, ids, output.suffix.lower())
            else:
                open_ = gzip.open if output.suffix.lower() == ".gz" else open
                with open_(temporary, "wb") as file:
                    _write_lines(cast(BinaryIO, file), answers, ids, rows, is_csv=output.suffix.lower() == CSV)
    return {"events": answers.matches.n_events, "matches": answers.matches.n_matches}


def check_export(output: Path | None, inputs: Iterable[Path], others: Iterable[Path] = ()) -> None:
    """Refuse an output that `export` could not write, before any work is done.

    Raises ValueError for a name without one of ENDINGS, StorageError for a place that cannot be
    written or is an input, ExportError.
    """
    if output is None:
        return
    if not says_form(output):
        raise ValueError(f"{output}: ends in none of {', '.join(ENDINGS)}, which select the form")
    check_output(output, inputs, others=others)
    if is_columnar(output) and not find_spec("pyarrow"):
        raise ExportError(
            f"{output.suffix} needs pyarrow: {sys.executable} -m pip install pyarrow; or name the output .jsonl"
        )


def is_columnar(output: Path) -> bool:
    """Tells whether the name is that of a form that pyarrow writes."""
    return output.suffix.lower() in (PARQUET, *ARROW_ENDINGS)


def says_form(output: Path) -> bool:
    """Tells whether a name ends in one of `ENDINGS`."""
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
    from mpi_match.ingest.batches.scan_columns import ColumnScanner  # loads Numba
    from mpi_match.ingest.json.event_scanner import EventScanner

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


def has_rows(output: Path) -> bool:
    """Tells whether the name is that of a form with rows beside answers."""
    return output.name.lower().endswith(FORMS_WITH_ROWS)


def _rows_of_lines(events: _EventsNamed, answers: MatchesFile, matches: Path) -> Iterator[Strings]:
    """The rows of all events, as many at a time as answers are written."""
    from mpi_match.ingest.batches.event_queue import EventQueue  # loads Numba
    from mpi_match.ingest.batches.keep_rows import RowKeeper, check_rows
    from mpi_match.ingest.json.event_scanner import EventScanner

    check_rows(events.path, events.form)
    blocks = read_blocks(event_files(events.path, events.form), events.form)
    scanner = RowKeeper(EventScanner(Table.from_filters(()).vocabulary, events.form))
    queue, n_events = EventQueue(scanner.scan(block, []) for block in blocks), 0
    for _, stop in batch_bounds(answers.matches):
        pieces: list[Strings] = []
        while n_events < stop and (taken := queue.take(stop - n_events)):
            assert taken[2] is not None
            pieces.append(taken[2])
            n_events += len(taken[2])
        _check_events(n_events, events.path, answers, matches, so_far=n_events == stop)
        yield Strings.concat(pieces)
    n_events += 0 if queue.take(1) is None else 1
    _check_events(n_events, events.path, answers, matches, so_far=True)


def _check_events(n_events: int, events: Path, answers: MatchesFile, matches: Path, *, so_far: bool = False) -> None:
    expected = answers.matches.n_events
    if n_events > expected or (n_events < expected and not so_far):
        more = "at least " if so_far else ""
        raise StorageError(f"{matches}: answers {expected:,} events, {events} holds {more}{n_events:,}")


def _write_lines(
    file: BinaryIO, answers: MatchesFile, ids: EventIds | None, rows: Iterator[Strings | None], *, is_csv: bool = False
) -> None:
    from mpi_match.matches.csv_lines import CsvWriter  # loads Numba
    from mpi_match.matches.json_lines import LineWriter

    matches, unit = answers.matches, str(answers.attributes["unit"])
    csv = CsvWriter(unit, answers.labels) if is_csv else None
    lines = LineWriter(unit, answers.labels)
    if csv is not None:
        file.write(csv.head(ids is not None))
    for start, stop in batch_bounds(matches):
        of_batch, beside = matches[start:stop], _ids_between(ids, start, stop)
        for piece in lines.lines(start, of_batch, beside, next(rows)) if csv is None else csv.lines(start, of_batch, beside):
            file.write(piece.data)
    _end(ids)
    next(rows, None)  # as for ids


def _ids_between(ids: EventIds | None, start: int, stop: int) -> Strings | None:
    if ids is None or isinstance(ids, Strings):
        return None if ids is None else ids.between(start, stop)
    found = Strings.of((id_ or "").encode() for id_ in islice(ids, stop - start))
    assert len(found) == stop - start
    return found


def _end(ids: EventIds | None) -> None:
    """Call this after the last id: raises if the source has more events than there are answers."""
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
