"""Matching JSON lines on this machine: no Spark, no MPI, one process.

The subscriptions become a table in memory; the events stream past it in blocks, so the table bounds the memory.  Changes,
if there are any, are read beforehand, and a block ends where one takes effect.  The answers are those of the long way
(compile with Spark, then run under MPI) for the same rows in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.changes.stream import ChangeStream
from mpi_match.engines import Engine, compile_s, open_engine
from mpi_match.engines.registry import check_options
from mpi_match.ingest.event_scanner import EventQueue, EventScanner, ScannedEvents
from mpi_match.ingest.line_blocks import read_blocks
from mpi_match.ingest.reject_log import RejectLog
from mpi_match.ingest.row_files import row_files
from mpi_match.ingest.rows import (
    EventForm,
    Reject,
    Rejects,
    change_of_row,
    looks_like_subscription,
    parse_json,
    read_lines,
    read_rows,
    row_text,
    subscription_filters,
)
from mpi_match.matches.file import MatchesWriter
from mpi_match.model import ModelError
from mpi_match.storage import check_output
from mpi_match.table.subscriptions import SubscriptionsBuilder
from mpi_match.table.table import Table

MATCHED_AT_ONCE = 2**15
"""Events matched at a time; they are read and encoded a block of the file at a time."""

Row = TypeVar("Row")
Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""`with progress("events") as step: step(done, total)`"""


@dataclass(frozen=True)
class LocalSummary:
    """The result of `match_rows`.

    wall_s            from the first event to the last answer
    build_s           before that: reading the subscriptions, building table and engine
    compile_s         compiling the engine, which is in neither of these
    engine_options    the options of the engine, by its name; empty where it has none
    rejected          number of bad subscriptions, changes and events; `first_rejects` holds the first of them
    flagged           lines of events that the scanner flagged; `rows` judged them, good or bad
    never_seen        attributes named for location and id that no event has
    unlocated         filters with an area, which match nothing because no location is named
    """

    events: int
    matches: int
    wall_s: float
    events_per_s: float
    engine: str
    device: str
    workers: int
    rejected: int
    build_s: float
    compile_s: float
    filters: int
    constraints: int
    interfaces: int
    flagged: int
    never_seen: tuple[str, ...]
    unlocated: int
    first_rejects: tuple[Reject, ...]
    engine_options: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class MatchOptions:
    """How `match_rows` reads events and answers.

    form                      names the location and id of events
    engine, engine_options, threads   as in `open_engine`
    filters                   answer with filters instead of interfaces
    strict                    stop at a bad row
    """

    form: EventForm
    engine: str = "auto"
    engine_options: Mapping[str, object] = field(default_factory=dict)
    threads: int | None = None
    filters: bool = False
    strict: bool = False


def match_rows(
    subscriptions: Path,
    events: Path,
    output: Path,
    options: MatchOptions,
    *,
    changes: Path | None = None,
    rejects: Path | None = None,
    progress: Progress | None = None,
) -> LocalSummary:
    """Match the events of JSON lines files against the subscriptions of others.

    Parameters: `changes` are JSON lines too (`rows.change_of_row`), stamped with numbers of good events; `rejects` is the
    file for bad rows; `progress` is called with the number of rows that are done.
    Nothing is written to `output` unless all goes well.  Raises ModelError (also for an input without one good row, and
    under `strict` for any bad row and for a location or id that no event has), StorageError, EngineError, OSError.
    """
    check_options([options.engine], options.engine_options)  # before an hour of work, not after it
    subscription_files, event_files = row_files(subscriptions), row_files(events)
    change_files = row_files(changes) if changes is not None else []
    inputs = [*subscription_files, *event_files, *change_files]
    check_output(output, inputs)  # before an hour of work, not after it
    if rejects is not None:
        check_output(rejects, [*inputs, output], streamed=True)
    started = time.perf_counter()
    with RejectLog(rejects, options.strict) as log:
        log.begin(subscriptions)
        table = _table(subscription_files, log, progress)
        if not table.n_filters and (log.count or changes is None):
            raise log.nothing_usable("subscription", _exchanged(event_files))
        if changes is not None:
            log.begin(changes)
        stream = _changes(table, change_files, log)
        if changes is not None and not len(stream.changes):
            raise log.nothing_usable("change")
        compiled_before_s = compile_s()
        matcher = open_engine(
            options.engine,
            stream.table,
            threads=options.threads,
            live=changes is not None,
            options=options.engine_options,
        )
        scanner = EventScanner(stream.table.vocabulary, options.form, options.threads)
        compiled_s = compile_s() - compiled_before_s
        built = time.perf_counter()
        log.begin(events)
        with (
            _writer(output, stream, options) as writer,
            _scanned(event_files, scanner, log, progress) as blocks,
        ):
            queue = EventQueue(blocks)
            _match(matcher, stream, queue, writer, options)
            never_seen = options.form.never_seen(queue.located, queue.identified)
            if log.all_bad(writer.n_events):
                raise log.nothing_usable("event")
            if options.strict and never_seen:
                raise ModelError(f"{events}: no event has {' or '.join(map(repr, never_seen))} (--strict)")
        wall_s = time.perf_counter() - built
        return LocalSummary(
            events=writer.n_events,
            matches=writer.n_matches,
            wall_s=wall_s,
            events_per_s=writer.n_events / wall_s,
            engine=matcher.name,
            engine_options={matcher.name: dict(matcher.options)} if matcher.options else {},
            device=matcher.device,
            workers=1,
            rejected=log.count,
            build_s=built - started - compiled_s,
            compile_s=compiled_s,
            filters=table.n_filters,
            constraints=table.n_constraints,
            interfaces=table.n_interfaces,
            flagged=queue.n_flagged,
            never_seen=never_seen,
            unlocated=0 if options.form.location is not None else len(table.filters.area),
            first_rejects=tuple(log.first),
        )


def _table(files: Sequence[Path], log: RejectLog, progress: Progress | None) -> Table:
    builder = SubscriptionsBuilder()
    with _rows(files, subscription_filters, log, "subscriptions", progress) as rows:
        for predicate in rows:
            for item in predicate or ():
                builder.add(item)
    return Table.from_subscriptions(builder.build())


def _writer(output: Path, stream: ChangeStream[Table], options: MatchOptions) -> MatchesWriter:
    n_ids, labels = (stream.n_filters, Strings.of(())) if options.filters else (stream.n_interfaces, stream.labels)
    unit = "filter" if options.filters else "interface"
    return MatchesWriter(output, n_ids, labels, unit, with_event_ids=options.form.id is not None)


def _match(
    matcher: Engine,
    stream: ChangeStream[Table],
    events: EventQueue,
    writer: MatchesWriter,
    options: MatchOptions,
) -> None:
    """Match all events; a batch ends where changes take effect."""
    for changes, end in _change_batches(stream):
        if changes is not None:
            matcher.update(changes)
        while taken := events.take(min(MATCHED_AT_ONCE, MATCHED_AT_ONCE if end is None else end - writer.n_events)):
            batch, ids = taken
            writer.append(matcher.match(batch, filters=options.filters), ids)


def _exchanged(event_files: Sequence[Path]) -> str:
    """The hint of the error when the rows of the events are subscriptions: the files may be exchanged."""
    with suppress(ModelError):  # of a damaged file
        _, _, line = next(read_lines(event_files), ("", 0, b""))
        if looks_like_subscription(line):
            return f"; the rows of {event_files[0]} are subscriptions: are two files exchanged?"
    return ""


def _changes(table: Table, files: Sequence[Path], rejects: Rejects) -> ChangeStream[Table]:
    """The table with the changes in the rows of files; bad rows and refused changes go to `rejects`."""
    rows, places = [], []
    for file, number, line in read_lines(files):
        place = (file, number, row_text(line))
        try:
            rows.append(change_of_row(parse_json(line)))
            places.append(place)
        except ModelError as error:
            rejects.append(Reject(str(error), *place))
    refused: list[Refusal] = []
    changes = ChangeLog.of(table, rows, refused)
    for item in refused:
        rejects.append(Reject(item.reason, *places[item.place]))
    return changes.stream(table)


def _change_batches(stream: ChangeStream[Table]) -> Iterator[tuple[Changes | None, int | None]]:
    """Changes for the engine, and the number of the event before which the next ones take effect; None is the end."""
    if not len(stream.changes):
        yield None, None
        return
    runs = list(stream.changes.runs())
    ends = [*(event for event, _ in runs), None]
    yield stream.within(0, 0).changes, ends[0]
    yield from zip((changes for _, changes in runs), ends[1:], strict=True)


@contextmanager
def _scanned(
    files: Sequence[Path], scanner: EventScanner, rejects: Rejects, progress: Progress | None
) -> Iterator[Iterator[ScannedEvents]]:
    """The events of files, block by block; reports to `progress` when the number of lines can be counted beforehand."""
    blocks = read_blocks(files)
    total = _total_lines(files) if progress is not None else None
    if progress is None or total is None:
        yield (scanner.scan(block, rejects) for block in blocks)
        return
    with progress("events") as step:

        def counted() -> Iterator[ScannedEvents]:
            done = 0
            for block in blocks:
                yield scanner.scan(block, rejects)
                done += int(np.count_nonzero(block.data == _LINE_FEED))
                step(min(done, total), total)

        yield counted()
        step(total, total)


_LINE_FEED = ord("\n")


@contextmanager
def _rows(
    files: Sequence[Path], convert: Callable[[Any], Row], rejects: Rejects, label: str, progress: Progress | None
) -> Iterator[Iterator[Row | None]]:
    """`read_rows`, which reports to `progress` when the number of rows can be counted beforehand."""
    total = _total_lines(files) if progress is not None else None
    if progress is None or total is None:
        yield read_rows(files, convert, rejects)
        return
    with progress(label) as step:
        done = 0

        def counted(row: Any) -> Row:
            nonlocal done
            done += 1
            if done % 1000 == 0:
                step(done, total)
            return convert(row)

        yield read_rows(files, counted, rejects)
        step(total, total)


def _total_lines(files: Sequence[Path]) -> int | None:
    """Lines of all files; None when that would be work to know."""
    countable = all(file.is_file() and file.suffix != ".gz" for file in files)
    return sum(map(_count_lines, files)) if countable else None


def _count_lines(path: Path) -> int:
    with path.open("rb") as handle:
        return sum(block.count(b"\n") for block in iter(lambda: handle.read(2**20), b""))
