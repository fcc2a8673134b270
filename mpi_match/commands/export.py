"""Export of answers as JSON lines or Parquet.

    {"event": 0, "interfaces": ["mobile-7", "mobile-8"]}
    {"event": 1, "id": "reading-44", "interfaces": []}            where events have ids

Every event has a row, also one without matches.  A file of matched filters has `filters`, their numbers in the table,
instead of `interfaces`.  Answers of `match --id` have the ids of events; for those of a run they are in its event table.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.events.event_table import EventTable
from mpi_match.ingest.line_blocks import read_blocks
from mpi_match.ingest.row_files import is_compiled, row_files
from mpi_match.ingest.rows import ROW_ENDINGS, EventForm
from mpi_match.matches.file import MatchesFile
from mpi_match.storage import StorageError, atomic_write, check_output
from mpi_match.table.table import Table

PARQUET = ".parquet"
ENDINGS = (*ROW_ENDINGS, PARQUET)
"""Endings of an output's name, by which its form is chosen."""
LINES_AT_ONCE, IDS_AT_ONCE = 2**16, 2**20
"""Events, and ids in their answers, that are written as lines at a time."""
ROWS_OF_GROUP = 2**16
"""Rows of a Parquet row group; only these are in memory as Python objects."""


class ExportError(Exception):
    """The answers cannot be written in this form on this machine; the text says what is missing."""


def export(matches: Path, output: Path | None, events: Path | None = None, id_: str | None = None) -> dict[str, int]:
    """Write the answers in `matches` to `output`, in the form of its name's ending (`ENDINGS`).

    Without an `output` JSON lines go to standard output.  `events` is the event table, or JSON lines with ids named `id_`,
    whose ids of events replace those in `matches`.  `output` is written atomically.  Returns counts.  Raises what
    `check_export` does, OSError.
    """
    check_export(output, [each for each in (matches, events) if each])
    answers = MatchesFile.load(matches)
    noun = "filters" if answers.attributes["unit"] == "filter" else "interfaces"
    ids = answers.event_ids if events is None else _event_ids_in(_EventsNamed(events, id_), answers, matches)
    if output is None:
        sys.stdout.flush()
        _write_lines(sys.stdout.buffer, answers, ids)
    else:
        with atomic_write(output) as temporary:
            if output.suffix.lower() == PARQUET:
                _write_parquet(temporary, _rows(answers, noun, ids), noun)
            else:
                open_ = gzip.open if output.suffix.lower() == ".gz" else open
                with open_(temporary, "wb") as file:
                    _write_lines(cast(BinaryIO, file), answers, ids)
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
    if output.suffix.lower() == PARQUET and not find_spec("pyarrow"):
        raise ExportError(f"Parquet needs pyarrow: {sys.executable} -m pip install pyarrow; or name the output .jsonl")


def says_form(output: Path) -> bool:
    """Does a name end in one of `ENDINGS`?"""
    return output.name.lower().endswith(ENDINGS)


class _EventsNamed(NamedTuple):
    """The events that ids are taken from, and the attribute of lines that holds them."""

    path: Path
    id: str | None


EventIds = Strings | Iterator[str | None]
"""The publishers' ids of all events: packed, empty for an event without one, or one after the other."""


def _rows(answers: MatchesFile, noun: str, ids: EventIds | None) -> Iterator[dict[str, Any]]:
    found = answers.rows() if noun == "interfaces" else (ids.tolist() for ids in _ids(answers))
    if ids is None:
        yield from ({"event": number, noun: labels} for number, labels in enumerate(found))
        return
    each = (id_.decode() or None for id_ in ids) if isinstance(ids, Strings) else ids
    for number, (id_, labels) in enumerate(zip(each, found, strict=True)):
        yield {"event": number, "id": id_, noun: labels}


def _event_ids_in(events: _EventsNamed, answers: MatchesFile, matches: Path) -> Iterator[str | None]:
    if not is_compiled(events.path) and events.path.exists():
        yield from _ids_of_lines(events, answers, matches)
        return
    with EventTable(events.path, Table.from_filters(()).vocabulary) as table:  # raw columns only: any vocabulary does
        _check_events(table.n_events, events.path, answers, matches)
        yield from table.ids()


def _ids_of_lines(events: _EventsNamed, answers: MatchesFile, matches: Path) -> Iterator[str | None]:
    from mpi_match.ingest.event_scanner import EventScanner  # loads Numba

    files = row_files(events.path)
    if events.id is None:
        raise StorageError(f"{events.path}: holds JSON lines: which attribute is the id? (--id)")
    scanner, n_events = EventScanner(Table.from_filters(()).vocabulary, EventForm(None, events.id)), 0
    for block in read_blocks(files):
        ids = scanner.scan(block, []).ids
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


def _ids(answers: MatchesFile) -> Iterator[Any]:
    return (answers.matches[event] for event in range(answers.matches.n_events))


def _write_lines(file: BinaryIO, answers: MatchesFile, ids: EventIds | None) -> None:
    from mpi_match.matches.json_lines import LineWriter  # loads Numba

    writer, matches = LineWriter(str(answers.attributes["unit"]), answers.labels), answers.matches
    start = 0
    while start < matches.n_events:
        most_ids = int(matches.offsets[start]) + IDS_AT_ONCE
        stop = int(np.searchsorted(matches.offsets, most_ids, "right")) - 1
        stop = max(start + 1, min(stop, start + LINES_AT_ONCE, matches.n_events))
        for piece in writer.lines(start, matches[start:stop], _ids_between(ids, start, stop)):
            file.write(piece.data)
        start = stop
    if ids is not None and not isinstance(ids, Strings):
        next(ids, None)  # raises if there are too many, or too few


def _ids_between(ids: EventIds | None, start: int, stop: int) -> Strings | None:
    if ids is None or isinstance(ids, Strings):
        return None if ids is None else ids.between(start, stop)
    found = Strings.of((id_ or "").encode() for id_ in islice(ids, stop - start))
    assert len(found) == stop - start
    return found


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]], noun: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    listed = pa.list_(pa.uint32() if noun == "filters" else pa.string())
    first = next(rows, None)
    fields = [("event", pa.int64()), *([("id", pa.string())] if first is None or "id" in first else []), (noun, listed)]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema) as writer:
        block = [] if first is None else [first, *islice(rows, ROWS_OF_GROUP - 1)]
        while block:
            writer.write_table(pa.Table.from_pylist(block, schema))
            block = list(islice(rows, ROWS_OF_GROUP))
