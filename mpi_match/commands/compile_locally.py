"""Compiling subscriptions, events and new versions of tables in this process, without Spark: the same arrays as Spark
writes, in one file.

All of it is in memory: about 700 bytes for each filter of four constraints, 250 for each event of five numbers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.events.event_table import save_events
from mpi_match.ingest.batches.published_events import read_events
from mpi_match.ingest.batches.unnamed import Missing, doubts_of
from mpi_match.ingest.codes.patterns import n_slow_patterns, slow_patterns
from mpi_match.ingest.columns.python import needed_names
from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.json.subscription_scanner import read_subscriptions
from mpi_match.ingest.rows.judge import (
    PLAIN,
    ChangeRow,
    EventForm,
    Reject,
    change_of_row,
    parse_subscription,
    read_lines,
    row_text,
)
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.ingest.rows.row_files import check_form_of_files, event_files, is_columnar, is_compiled, row_files
from mpi_match.model import ModelError
from mpi_match.storage import Reader, StorageError, check_output
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table, load_vocabulary
from mpi_match.table.versions import check_newest, newest_version, next_version, save_version

_PART = "part-00000.json"


class LocalCompile(NamedTuple):
    """The result of `compile_locally`; the fields are those of the Spark stage's summary."""

    rows: int
    filters: int
    constraints: int
    interfaces: int
    rejected: int
    rejects: Path | None
    wall_s: float
    doubts: tuple[str, ...] = ()


class LocalEvents(NamedTuple):
    """The result of `compile_events_locally`; the fields are those of the Spark stage's summary."""

    rows: int
    events: int
    rejected: int
    rejects: Path | None
    wall_s: float
    never_seen: tuple[str, ...]
    left_out: Mapping[str, int]
    doubts: tuple[str, ...]


class TableUpdate(NamedTuple):
    """The result of `update_table`: the new version, its counts, and those of the rows of changes."""

    table: Path
    counts: LocalCompile


def compile_locally(inputs: list[str], output: Path, *, rejects: Path | None = None, strict: bool = False) -> LocalCompile:
    """Compile subscriptions of JSON lines (files, directories, globs) into a table.

    Bad rows go to the directory `rejects`, by default `<output>.rejects`, which exists only if there are any.  Raises
    ModelError for inputs without a good row, and under `strict` for any bad row; StorageError, OSError.
    """
    started = time.perf_counter()
    files = sorted({file for each in inputs for file in _files(each, row_files)})
    place = _rejects_of(output, rejects)
    check_output(output, files)
    with _rejects_in(place) as part, RejectLog(part, strict) as log:
        log.begin(Path(inputs[0]))
        found = read_subscriptions(files, log)
        if not found.subscriptions.n_filters:
            raise log.nothing_usable("subscription")
        table = Table.from_subscriptions(found.subscriptions)
        replaced = _parts_of(output)
        table.save(output)
        _remove(replaced)
    return LocalCompile(
        found.n_rows,
        table.n_visible_filters,
        table.n_visible_constraints,
        table.n_visible,
        log.count,
        place if log.count else None,
        time.perf_counter() - started,
        slow_patterns(n_slow_patterns(table.vocabulary)),
    )


def compile_events_locally(
    inputs: list[str],
    table: Path,
    output: Path,
    form: EventForm = PLAIN,
    *,
    rejects: Path | None = None,
    strict: bool = False,
) -> LocalEvents:
    """Compile events of JSON lines, CSV, Parquet and Arrow (files, directories, globs) into an event table for `table`.

    Files are read in the order of their paths.  Bad rows, `strict` and errors are as in `compile_locally`.
    """
    started = time.perf_counter()
    files = sorted({file for each in inputs for file in _files(each, _event_files)})
    check_form_of_files(inputs[0], files, form)
    check_output(output, [*files, table])
    vocabulary = load_vocabulary(table)
    place = _rejects_of(output, rejects)
    with _rejects_in(place) as part, RejectLog(part, strict) as log:
        log.begin(Path(inputs[0]))
        events = read_events(files, form, needed_names(vocabulary.attribute_names, form), log)
        if log.all_bad(len(events)):
            raise log.nothing_usable("event")
        never_seen = form.never_seen(events.location is not None, events.ids is not None)
        batch = EventsEncoder(vocabulary).encode(events)
        is_named = len(batch.attributes) > 0 or batch.location is not None
        lines = (file for file in files if not is_columnar(file))
        doubts = doubts_of(vocabulary, is_named, lambda: {name.decode() for name in events.names}, lines, form.id)
        if strict:
            Missing(never_seen, doubts).refuse(inputs[0])
        save_events(events, output, vocabulary, batch=batch)
    rejected = place if log.count else None
    wall_s = time.perf_counter() - started
    n = len(events)
    return LocalEvents(n, n, log.count, rejected, wall_s, never_seen, events.left_out, doubts)


def update_table(
    table: Path, inputs: list[str], output: Path | None = None, *, rejects: Path | None = None, strict: bool = False
) -> TableUpdate:
    """Write the next version of a table, with changes of JSON lines (files, directories, globs) applied in order.

    `table` is a table, or a directory of versions (`table.versions`), whose newest is meant.  `output` is the directory for
    the new version, by default that of the table, or its path.  Rows that have a `before_event` take effect in its order,
    behind those that have none.  The new version is the same table as one that is compiled from its subscriptions.

    Bad rows, including changes that cannot be applied, `strict` and errors are as in `compile_locally`.
    """
    started = time.perf_counter()
    old = newest_version(table) if table.is_dir() else table
    if not old.exists():  # before a name for the next version is looked for
        raise StorageError(f"{old}: no such file")
    new = next_version(old, output or old.parent) if output is None or output.is_dir() else output
    files = sorted({file for each in inputs for file in _files(each, row_files)})
    check_output(new, [*files, old])
    check_newest(new)
    live = LiveTable(Table.load(old))
    place = _rejects_of(new, rejects)
    with _rejects_in(place) as part, RejectLog(part, strict) as log:
        log.begin(Path(inputs[0]))
        rows, places, n_rows = list[ChangeRow](), list[tuple[str, int, str]](), 0
        for file, number, line in read_lines(files):
            n_rows += 1
            at = (file, number, row_text(line))
            try:
                row = parse_subscription(line)
                rows.append(change_of_row(row, stamped=isinstance(row, dict) and "before_event" in row))
                places.append(at)
            except ModelError as error:
                log.append(Reject(str(error), *at))
        order = sorted(range(len(rows)), key=lambda i: rows[i].before_event)
        refused: list[Refusal] = []
        live.apply((rows[i] for i in order), refused)
        for item in refused:
            log.append(Reject(item.reason, *places[order[item.place]]))
        if log.all_bad(n_rows):
            raise log.nothing_usable("change")
        made = live.compiled()
        if not made.n_filters:
            raise ModelError(f"{inputs[0]}: the changes leave no filter in {old}")
        save_version(made, new)
    rejected = place if log.count else None
    counts = made.n_visible_filters, made.n_visible_constraints, made.n_visible
    doubts = slow_patterns(n_slow_patterns(made.vocabulary))
    return TableUpdate(new, LocalCompile(n_rows, *counts, log.count, rejected, time.perf_counter() - started, doubts))


def _event_files(path: Path) -> list[Path]:
    if not is_columnar(path) and is_compiled(path):
        raise ModelError(f"{path}: is compiled already, or another HDF5 file; rows are expected here")
    return event_files(path, PLAIN, mixed=True)


def _rejects_of(output: Path, rejects: Path | None) -> Path:
    return rejects if rejects is not None else output.with_name(output.name + ".rejects")


def _files(name: str, files_of: Callable[[Path], list[Path]]) -> Iterator[Path]:
    """The files that a name or a glob means."""
    paths = [Path(name)]
    if not paths[0].exists():
        anchor = paths[0].anchor
        paths = sorted(Path(anchor or ".").glob(name.removeprefix(anchor)))
    if not paths:
        raise ModelError(f"{name}: no such file")
    for path in paths:
        yield from files_of(path)


@contextmanager
def _rejects_in(place: Path) -> Iterator[Path]:
    """The file for bad rows in the directory `place`, which replaces those of an earlier compile; removed if empty."""
    if place.exists() and not (place.is_dir() and all(_is_ours(item) for item in place.iterdir())):
        raise ModelError(f"{place}: exists and is not a rejects dataset; move it away or give another path for the rejects")
    part = place.with_name(f"{place.name}.{_PART}")
    try:
        yield part
        if place.exists():
            shutil.rmtree(place)
        if part.stat().st_size:
            place.mkdir()
            part.rename(place / _PART)
    finally:
        part.unlink(missing_ok=True)


def _parts_of(output: Path) -> list[Path]:
    """The parts of an earlier table of Spark under this name; none if the name is that of another file, or of an incomplete
    one."""
    with suppress(StorageError, OSError), Reader(output, TABLE) as reader:
        return [source.path for source in reader.sources if source.path != output]
    return []


def _remove(parts: list[Path]) -> None:
    """Remove parts that no file names any more, and their directory if it is empty then."""
    for part in parts:
        part.unlink(missing_ok=True)
    for directory in {part.parent for part in parts}:
        with suppress(OSError):
            directory.rmdir()


def _is_ours(item: Path) -> bool:
    return item.name.startswith(("part-", "_SUCCESS", ".part-", "._SUCCESS"))
