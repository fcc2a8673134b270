"""Matching JSON lines on this machine: no Spark, no MPI, one process.

The subscriptions become a table in memory; the events stream past it in blocks, so the table bounds the memory.  Changes,
if there are any, are read beforehand.  Batches are matched as a run of one process matches them (`match_in_order`).  The
answers are those of the long way (compile with Spark, then run under MPI) for the same rows in the same order.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.changes.stream import ChangeStream
from mpi_match.cluster.at_once.in_place import WriteAtOnce
from mpi_match.cluster.match_in_order import answers_to, due_in_order
from mpi_match.cluster.options import Summary, of_rows
from mpi_match.cluster.signals import held
from mpi_match.commands.scan_ahead import Progress, ahead_of_cpu, ahead_of_gpu, scanned_ahead
from mpi_match.compute.compile_parts import Part, compile_ahead
from mpi_match.engines import Engine, compile_s, open_engine
from mpi_match.engines.registry import check_options, compile_engine_ahead
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.batches.event_queue import EventQueue
from mpi_match.ingest.batches.keep_rows import RowKeeper, check_rows
from mpi_match.ingest.batches.scan_columns import ColumnScanner
from mpi_match.ingest.batches.scan_report import ScanTotals
from mpi_match.ingest.batches.unnamed import Missing, doubts_of, names_in_files
from mpi_match.ingest.columns.python import needed_by
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.files.line_pass import compile_count
from mpi_match.ingest.json.event_scanner import EventScanner, LineScanner, ScannedEvents, SharedScanner
from mpi_match.ingest.json.subscription_scanner import read_subscriptions
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import (
    EventForm,
    Reject,
    Rejects,
    change_of_row,
    looks_like_subscription,
    parse_subscription,
    read_lines,
    row_text,
)
from mpi_match.ingest.rows.packed_files import is_packed
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.ingest.rows.row_files import are_columnar, event_files, is_plain, row_files
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.json_lines import LinesOut, LineWriter, compile_lines
from mpi_match.matches.matches import Matches
from mpi_match.matches.write_behind import WriteBehind, Writing
from mpi_match.model import ModelError
from mpi_match.storage import check_output
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary
from mpi_match.texts.characters import LINE_FEED

AHEAD = (
    Part("scanner", "mpi_match.ingest.json.event_scanner:compile_scanner"),
    Part("json-lines", "mpi_match.matches.json_lines:compile_lines"),
)
"""The parts of compiled code that are needed after the engine."""
MATCHED_AT_ONCE, MATCHED_ON_GPU = 2**17, 2**20
"""Most events matched at a time; they are read and encoded a block of the file at a time."""
ANSWERS_WAITING = 2
"""Batches whose answers wait to be written while others are matched."""


Answered = tuple[Matches, Strings | None, Strings | None]
"""The answers of a batch, with the ids of its events and their rows on request."""
Reader = TypeVar("Reader")


@dataclass(frozen=True, kw_only=True)
class LocalSummary(Summary):
    """The result of `match_rows`.

    wall_s            from the first event to the last answer, without what was compiled meanwhile
    build_s           before that: reading the subscriptions, building table and engine
    compile_s         compiling, which is in neither of these
    rejected          number of bad subscriptions, changes and events; `first_rejects` holds the first of them
    filters, constraints, interfaces   of the table
    unlocated         filters with an area, which match nothing because no location is named
    untaken           events of connections that ended, or were closed, before their answers were taken
    cut_off           events whose answers were not taken before the command ended
    """

    build_s: float
    filters: int
    constraints: int
    interfaces: int
    unlocated: int
    untaken: int = 0
    cut_off: int = 0


@dataclass(frozen=True)
class MatchOptions:
    """The way in which `match_rows` reads events and writes answers.

    form                      names the location and id of events
    engine, engine_options, threads   as in `open_engine`
    filters                   answer with filters instead of interfaces
    with_rows                 write the rows of events beside the answers, where these are lines
    strict                    stop at a bad row
    """

    form: EventForm
    engine: str = "auto"
    engine_options: Mapping[str, object] = field(default_factory=dict)
    threads: int | None = None
    filters: bool = False
    with_rows: bool = False
    strict: bool = False


def match_rows(
    subscriptions: Path,
    events: Path,
    output: Path | None,
    options: MatchOptions,
    *,
    changes: Path | None = None,
    rejects: Path | None = None,
    progress: Progress | None = None,
) -> LocalSummary:
    """Match the events of JSON lines files against the subscriptions of others.

    Parameters: `changes` are JSON lines too (`rows.change_of_row`), stamped with numbers of good events; `rejects` is the
    file for bad rows; `progress` is called with the number of rows that are done.
    Nothing is written to `output` unless all goes well; None is standard output, to which JSON lines go as events are
    answered.  Raises ModelError (also for an input without one good row, and
    under `strict` for any bad row and for a location or id that no event has), StorageError, EngineError, OSError.
    """
    check_options([options.engine], options.engine_options)  # before an hour of work, not after it
    subscription_files, files = row_files(subscriptions), event_files(events, options.form)
    change_files = row_files(changes) if changes is not None else []
    inputs = [*subscription_files, *files, *change_files]
    if options.with_rows:
        check_rows(events, options.form)
    if output is not None:
        check_output(output, inputs)  # before an hour of work, not after it
    if rejects is not None:
        check_output(rejects, inputs, others=[output] if output is not None else [], streamed=True)
    _compile_ahead(options, lines=not are_columnar(files), live=changes is not None, printed=output is None)
    with RejectLog(rejects, options.strict) as log:

        def reader(engine: Engine, vocabulary: Vocabulary) -> AbstractContextManager[Iterator[ScannedEvents]]:
            if output is None:
                compile_lines()
            if are_columnar(files):
                return nullcontext(_columns(files, vocabulary, options).scan_files(log))
            for format_ in set(map(lines_format, files)):
                format_.compile()
            lines = line_scanner(engine, vocabulary, options)
            if isinstance(lines, RowKeeper) or not all(map(is_plain, files)):
                return _scanned(files, options.form, lines, log, progress)
            compile_count()
            if not isinstance(lines, EventScanner):
                return scanned_ahead(files, lines, engine.host_memory, log, progress, ahead_of_gpu())
            how = ahead_of_cpu(options.threads)
            if how.threads == 1:
                return _scanned(files, options.form, lines, log, progress)
            return scanned_ahead(files, SharedScanner(lines), engine.host_memory, log, progress, how)

        prepared = prepare(subscriptions, changes, options, log, reader, progress, lambda: _exchanged(files))
        log.begin(events)
        with (
            held() as interruptions,
            _writer(output, prepared.stream, options) as writer,
            prepared.reader as blocks,
            _written(output, writer) as answers,
        ):
            queue = EventQueue(blocks)

            def put(*found: Any) -> None:
                with nullcontext() if output is None else interruptions.held():  # a thread writes to a file
                    answers.put(found)

            with interruptions.heeded():
                match_all(prepared, queue, put, options, overlapped=prepared.engine.gpu is not None)
            answers.finish()
            if log.all_bad(writer.n_events):
                raise log.nothing_usable("event")
            missing = missing_in(prepared, queue.totals, options.form, files)
            if options.strict:
                missing.refuse(events)
        return prepared.summary(Counts(writer.n_events, writer.n_matches), queue.totals, log, options, missing)


def _compile_ahead(options: MatchOptions, *, lines: bool, live: bool, printed: bool) -> None:
    """Have other processes compile, while subscriptions are read, what a table that changes (`live`) or not, events in lines
    or in columns, and answers that are `printed` or stored will need."""
    if not live:
        compile_engine_ahead(options.engine, options.form if lines else None)
    if lines:
        compile_ahead(AHEAD if printed else AHEAD[:1])


def line_scanner(engine: Engine, vocabulary: Vocabulary, options: MatchOptions) -> LineScanner:
    """The scanner of lines of events."""
    scanner = engine.scanner(EventScanner(vocabulary, options.form, options.threads))
    return RowKeeper(scanner) if options.with_rows else scanner


class Counts(NamedTuple):
    """Numbers of events and of matches."""

    events: int
    matches: int


def missing_in(prepared: Prepared[Any], totals: ScanTotals, form: EventForm, files: Sequence[Path] = ()) -> Missing:
    """The warnings about the rows in `totals`, which came from `files`, if they can be read again."""
    vocabulary, lines = prepared.stream.table.vocabulary, files if files and not are_columnar(files) else ()
    is_named = totals.named or totals.located
    doubts = doubts_of(vocabulary, is_named, lambda: names_in_files(files, form) if files else (), lines, form.id)
    return Missing(form.never_seen(totals.located, totals.identified), doubts)


@dataclass(frozen=True)
class Prepared(Generic[Reader]):
    """The table and its changes, the engine, and the reader of events.

    build_s, compile_s   as in `LocalSummary`, until it was ready
    began                when it was ready, by `time.perf_counter`
    compiled_s           seconds that the process had spent on compiling by then
    """

    table: Table
    stream: ChangeStream[Table]
    engine: Engine
    reader: Reader
    build_s: float
    compile_s: float
    began: float
    compiled_s: float

    def summary(
        self, counts: Counts, totals: ScanTotals, log: RejectLog, options: MatchOptions, missing: Missing
    ) -> LocalSummary:
        """The result, after all events are answered."""
        later_s = compile_s() - self.compiled_s  # kernels of a GPU are compiled when they are first needed
        wall_s, engine, table = time.perf_counter() - self.began - later_s, self.engine, self.table
        return LocalSummary(
            events=counts.events,
            matches=counts.matches,
            wall_s=wall_s,
            events_per_s=counts.events / wall_s,
            engine=engine.name,
            engine_options={engine.name: dict(engine.options)} if engine.options else {},
            device=engine.device,
            workers=1,
            build_s=self.build_s,
            compile_s=self.compile_s + later_s,
            filters=table.n_visible_filters,
            constraints=table.n_visible_constraints,
            interfaces=table.n_visible,
            unlocated=0 if options.form.location is not None else len(table.filters.area),
            **of_rows(log, totals, missing),
        )


def prepare(
    subscriptions: Path,
    changes: Path | None,
    options: MatchOptions,
    log: RejectLog,
    make_reader: Callable[[Engine, Vocabulary], Reader],
    progress: Progress | None = None,
    hint: Callable[[], str] = str,
) -> Prepared[Reader]:
    """Read subscriptions and changes, and make the engine and the reader of events.

    `hint` is added to the error of subscriptions without a good row.  Raises ModelError, EngineError, OSError.
    """
    started, compiled_before_s = time.perf_counter(), compile_s()
    log.begin(subscriptions)
    table = _table(row_files(subscriptions), log, progress)
    if not table.n_filters and (log.count or changes is None):
        raise log.nothing_usable("subscription", hint())
    if changes is not None:
        log.begin(changes)
    stream = _changes(table, row_files(changes) if changes is not None else [], log)
    if changes is not None and not len(stream.changes):
        raise log.nothing_usable("change")
    engine = open_engine(
        options.engine,
        stream.table,
        threads=options.threads,
        live=changes is not None,
        options=options.engine_options,
    )
    reader = make_reader(engine, stream.table.vocabulary)
    compiled_s, began = compile_s(), time.perf_counter()
    spent_s = compiled_s - compiled_before_s
    return Prepared(table, stream, engine, reader, began - started - spent_s, spent_s, began, compiled_s)


def _table(files: Sequence[Path], log: RejectLog, progress: Progress | None) -> Table:
    total = _total_lines(files) if progress is not None else None
    if progress is None or total is None:
        return Table.from_subscriptions(read_subscriptions(files, log).subscriptions)
    with progress("subscriptions") as step:
        found = read_subscriptions(files, log, lambda done: step(min(done, total), total))
        return Table.from_subscriptions(found.subscriptions)


def answers_in(options: MatchOptions) -> str:
    """The unit of answers, as files name it."""
    return "filter" if options.filters else "interface"


def _writer(
    output: Path | None, stream: ChangeStream[Table], options: MatchOptions
) -> AbstractContextManager[MatchesWriter | LinesOut]:
    if output is None:
        labels = Strings.of(()) if options.filters else stream.labels
        return nullcontext(LinesOut(LineWriter(answers_in(options), labels), sys.stdout.buffer.write))
    n_ids, labels = (stream.n_filters, Strings.of(())) if options.filters else (stream.n_interfaces, stream.labels)
    return MatchesWriter(output, n_ids, labels, answers_in(options), with_event_ids=options.form.id is not None)


def _written(output: Path | None, writer: MatchesWriter | LinesOut) -> Writing[Answered]:
    """Write answers: to a file in a thread, to standard output in the main thread, because a write to it may block for ever
    and a signal interrupts only the main thread."""

    def write(found: Answered) -> None:
        writer.append(*found)

    return WriteAtOnce(write) if output is None else WriteBehind(write, ANSWERS_WAITING)


def match_all(
    prepared: Prepared[Any],
    events: EventQueue,
    write: Callable[[Matches, Strings | None, Strings | None], object],
    options: MatchOptions,
    *,
    overlapped: bool = False,
) -> None:
    """Match all events and `write` their answers, in order.

    Unless `overlapped`, every batch is answered before the next events are taken.
    """
    engine, at_once = prepared.engine, MATCHED_AT_ONCE if prepared.engine.gpu is None else MATCHED_ON_GPU
    beside: deque[tuple[Strings | None, Strings | None]] = deque()

    def batches() -> Iterator[EventBatch]:
        while taken := events.take(at_once):
            beside.append(taken[1:])
            yield taken[0]

    due = due_in_order(prepared.stream)
    for found in answers_to(batches(), engine, due, filters=options.filters, overlapped=overlapped):
        write(found, *beside.popleft())


def _columns(files: Sequence[Path], vocabulary: Vocabulary, options: MatchOptions) -> ColumnScanner:
    needed = needed_by(vocabulary, options.form)
    names = [str(file.absolute()) for file in sorted(files)]
    return ColumnScanner(vocabulary, options.form, needed, names, options.threads)


def _exchanged(event_files: Sequence[Path]) -> str:
    """The hint of the error when the rows of the events are subscriptions: the files may be exchanged."""
    if are_columnar(event_files):
        return ""
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
            rows.append(change_of_row(parse_subscription(line)))
            places.append(place)
        except ModelError as error:
            rejects.append(Reject(str(error), *place))
    refused: list[Refusal] = []
    changes = ChangeLog.of(table, rows, refused)
    for item in refused:
        rejects.append(Reject(item.reason, *places[item.place]))
    return changes.stream(table)


@contextmanager
def _scanned(
    files: Sequence[Path], form: EventForm, scanner: LineScanner, rejects: Rejects, progress: Progress | None
) -> Iterator[Iterator[ScannedEvents]]:
    """The events of files, block by block; reports to `progress` when the number of lines can be counted beforehand."""
    blocks = read_blocks(files, form)
    total = _total_lines(files) if progress is not None else None
    if progress is None or total is None:
        yield (scanner.scan(block, rejects) for block in blocks)
        return
    with progress("events") as step:

        def counted() -> Iterator[ScannedEvents]:
            done = 0
            for block in blocks:
                yield scanner.scan(block, rejects)
                done += int(np.count_nonzero(block.data == LINE_FEED))
                step(min(done, total), total)

        yield counted()
        step(total, total)


def _total_lines(files: Sequence[Path]) -> int | None:
    """Number of lines of all files; None if finding it would mean reading them."""
    countable = all(file.is_file() and not is_packed(file) for file in files)
    return sum(map(_count_lines, files)) if countable else None


def _count_lines(path: Path) -> int:
    with path.open("rb") as handle:
        return sum(block.count(b"\n") for block in iter(lambda: handle.read(2**20), b""))
