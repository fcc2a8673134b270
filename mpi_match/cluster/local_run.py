"""A run of one process: the same files, feed and answers, without a launcher and without MPI."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from mpi_match.cluster.execution import execution_for
from mpi_match.cluster.match_in_order import DueChanges, answers_to
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.prefetch import ReadAhead, n_readers
from mpi_match.cluster.run_files import Opened, RunFiles
from mpi_match.cluster.signals import Interruptions, held, terminate_as_interrupt
from mpi_match.engines import Engine, compile_s, open_engine
from mpi_match.engines.registry import compile_engine_ahead
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.ingest.batches.offer import RowsOffer, Scanner
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.rows.row_files import is_columnar, is_compiled
from mpi_match.matches.matches import Matches

log = logging.getLogger(__name__)

BATCHES_AHEAD, AHEAD_OF_GPU = 2, 8
"""Batches that are read ahead.  Lines for a GPU are also scanned ahead, by this number of threads if there are cores for
them."""
WRITE_S = 5e-3
"""Interval of writing answers to short batches."""
ALONE = 0
"""The rank of a run of one process."""


def run_alone(options: RunOptions) -> RunSummary:
    """See `cluster.run`."""
    if options.follow:
        from mpi_match.cluster.followed_alone import follow_alone

        return follow_alone(options)
    options = replace(options, results="master")  # one process writes one file
    with suppress(OSError):  # opening the files tells
        if options.changes is None and options.events.exists():
            are_lines = not is_compiled(options.events) and not is_columnar(options.events)
            compile_engine_ahead(options.engine, options.form if are_lines else None)
    with terminate_as_interrupt(), RunFiles(options) as files:
        compiled_before_s = compile_s()
        engine = open_engine(
            options.engine,
            files.division.read(files.division.parts[0]),
            threads=options.threads,
            live=options.changes is not None,
            options=options.engine_options,
        )
        compiled_s = compile_s() - compiled_before_s
        log.info("engine %s on %s", engine.name, engine.device)
        host = socket.gethostname()
        opened = Opened(
            engine.name, engine.device, engine.gpu, host, compile_s=compiled_s, engine_options=dict(engine.options)
        )
        scanner = None
        rows = files.events.table
        rows.read_into(engine.host_memory)
        if not isinstance(rows, EventTable):
            scanner = RowsOffer(rows.index, rows.form).scanner(files.division.table.vocabulary, options.threads)
            scanner.choose(engine.scanner)
        with files.watched({ALONE: opened}):
            files.begin()
            try:
                _match(files, engine, scanner)
            except Exception:
                files.answers.confirm(0, files.events.table.n_events)  # else the cause may be a changed file
                raise
            return files.finish([opened])


def _match(files: RunFiles, engine: Engine, scanner: Scanner | None) -> None:
    """Match all events and write the answers; interruptions wait while this thread synchronises with others."""
    execution = execution_for(files.options)
    is_on_gpu = scanner is not None and scanner.is_on_gpu
    ahead, n_threads = (AHEAD_OF_GPU, n_readers(AHEAD_OF_GPU)) if is_on_gpu else (BATCHES_AHEAD, n_readers())

    def read(batch: int) -> _Read:
        found = files.events.read(batch)
        if scanner is None or not scanner.is_on_gpu or isinstance(found, EventBatch):
            return _Read(found, found.wire_bytes, None)
        events, report = scanner.scan(found)
        return _Read(events, found.wire_bytes, report)

    with (
        held() as interruptions,
        ReadAhead(read, execution.workers(n_threads)) as feed,
        execution.writer(lambda found: files.answers.write(found[0], found[1].counts, found[1].ids)) as answers,
        _JoinedAnswers(files, answers.put, WRITE_S if execution.joins else 0.0) as joined,
    ):
        with interruptions.heeded():
            batches = _batches(files, feed, ahead, scanner, interruptions)
            for batch, found in enumerate(answers_to(batches, engine, _due(files), filters=files.options.filters)):
                files.status.answered(ALONE, batch, len(found))
                with interruptions.held():
                    joined.put(batch, found)
        joined.flush()
        answers.finish()


class _JoinedAnswers:
    """Joins the answers to consecutive batches, and puts them as one every `seconds`.

    Writing an answer takes as long as matching an event.
    """

    def __init__(self, files: RunFiles, put: Callable[[tuple[int, Matches]], None], seconds: float) -> None:
        self._ranges, self._put, self._seconds = files.events.ranges, put, seconds
        self._kept: list[Matches] = []
        self._first = self._end = 0
        self._next = 0.0

    def __enter__(self) -> _JoinedAnswers:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def put(self, batch: int, found: Matches) -> None:
        """Add the answers of the next batch."""
        start, stop = self._ranges.of(batch)
        if start != self._end:
            self.flush()
        if not self._kept:
            self._first = batch
        self._kept.append(found)
        self._end = stop
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            self.flush()

    def flush(self) -> None:
        """Put the answers kept so far."""
        if self._kept:
            kept, self._kept = self._kept, []
            self._put((self._first, kept[0] if len(kept) == 1 else Matches.concat(kept)))


class _Read(NamedTuple):
    """A batch as it was read: rows that are still to be scanned, or events; `report` of lines that a GPU has scanned."""

    batch: EventBatch | RowBatch
    wire_bytes: int
    report: ScanReport | None


def _batches(
    files: RunFiles, feed: ReadAhead[_Read], ahead: int, scanner: Scanner | None, interruptions: Interruptions
) -> Iterator[EventBatch]:
    """The batches in order; rows are scanned."""
    for batch in range(files.events.n_batches):
        with interruptions.held():
            feed.want(range(batch, min(batch + 1 + ahead, files.events.n_batches)))
            events, wire_bytes, report = feed.take(batch)
        files.status.sent(ALONE, batch, wire_bytes)
        if not isinstance(events, EventBatch):
            assert scanner is not None
            events, report = scanner.scan(events)
        if report is not None:
            files.answers.report(batch, report.to_wire().data)
        yield events


def _due(files: RunFiles) -> DueChanges | None:
    if (changes := files.changes) is None:
        return None
    numbers = count()
    return lambda _: changes.due_with(ALONE, next(numbers))[1]
