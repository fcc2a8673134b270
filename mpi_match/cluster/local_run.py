"""A run of one process: the same files, feed and answers, without a launcher and without MPI."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace

from mpi_match.cluster.engine_runner import match_changing
from mpi_match.cluster.execution import execution_for
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.prefetch import ReadAhead, n_readers
from mpi_match.cluster.run_files import Opened, RunFiles
from mpi_match.cluster.signals import Interruptions, held, terminate_as_interrupt
from mpi_match.engines import Engine, compile_s, match_all, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches

log = logging.getLogger(__name__)

BATCHES_AHEAD = 2
"""Batches that are read while others are matched."""
ALONE = 0
"""The rank of a process that has no others."""


def run_alone(options: RunOptions) -> RunSummary:
    """See `cluster.run`."""
    options = replace(options, results="master")  # one process writes one file
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
        with files.watched({ALONE: opened}):
            files.begin()
            _match(files, engine)
            return files.finish([opened])


def _match(files: RunFiles, engine: Engine) -> None:
    """Match all events and write the answers; interruptions wait while this thread talks to others."""
    execution = execution_for(files.options)
    with (
        held() as interruptions,
        ReadAhead(files.events.read, execution.workers(n_readers())) as feed,
        execution.writer(lambda found: files.answers.write(found[0], found[1].counts, found[1].ids)) as answers,
    ):
        with interruptions.heeded():
            for batch, found in enumerate(_answers(files, engine, _batches(files, feed, interruptions))):
                files.standing.answered(ALONE, batch, len(found))
                with interruptions.held():
                    answers.put((batch, found))
        answers.finish()


def _batches(files: RunFiles, feed: ReadAhead[EventBatch], interruptions: Interruptions) -> Iterator[EventBatch]:
    for batch in range(files.events.n_batches):
        with interruptions.held():
            feed.want(range(batch, min(batch + 1 + BATCHES_AHEAD, files.events.n_batches)))
            events = feed.take(batch)
        files.standing.sent(ALONE, batch, events.wire_bytes)
        yield events


def _answers(files: RunFiles, engine: Engine, batches: Iterator[EventBatch]) -> Iterator[Matches]:
    filters = files.options.filters
    if files.changes is None:
        yield from match_all(engine, batches, filters=filters)
        return
    for batch, events in enumerate(batches):
        _, changes = files.changes.told_with(ALONE, batch)
        yield match_changing(engine, events, changes, filters=filters)
