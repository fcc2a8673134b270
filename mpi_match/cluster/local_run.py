"""A run of one process: the same job, feed and answers, without a launcher and without MPI."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import replace

from mpi_match.cluster.engine_runner import match_changing
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.ordered_writer import WriteBehind
from mpi_match.cluster.prefetch import ReadAhead
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
    with terminate_as_interrupt(), RunFiles(options) as job:
        compiled_before_s = compile_s()
        engine = open_engine(
            options.engine,
            job.division.read(job.division.parts[0]),
            threads=options.threads,
            live=options.changes is not None,
        )
        compiled_s = compile_s() - compiled_before_s
        log.info("engine %s on %s", engine.name, engine.device)
        opened = Opened(engine.name, engine.device, engine.gpu, socket.gethostname(), compile_s=compiled_s)
        with job.watched({ALONE: opened}):
            job.begin()
            _match(job, engine)
            return job.finish([opened])


def _match(job: RunFiles, engine: Engine) -> None:
    """Match all events and write the answers; interruptions wait while this thread talks to others."""
    options = job.options
    n_threads = 0 if options.short_batches else None
    with (
        held() as interruptions,
        ReadAhead(lambda batch: job.events.batch(*job.extent(batch)), n_threads) as feed,
        WriteBehind[tuple[int, Matches]](
            lambda found: job.write(found[0], found[1].counts, found[1].ids), threaded=not options.short_batches
        ) as answers,
    ):
        with interruptions.heeded():
            for batch, found in enumerate(_answers(job, engine, _batches(job, feed, interruptions))):
                job.standing.answered(ALONE, batch, len(found))
                with interruptions.held():
                    answers.put((batch, found))
        answers.finish()


def _batches(job: RunFiles, feed: ReadAhead[EventBatch], interruptions: Interruptions) -> Iterator[EventBatch]:
    for batch in range(job.n_batches):
        with interruptions.held():
            feed.want(range(batch, min(batch + 1 + BATCHES_AHEAD, job.n_batches)))
            events = feed.take(batch)
        job.standing.sent(ALONE, batch, events.wire_bytes)
        yield events


def _answers(job: RunFiles, engine: Engine, batches: Iterator[EventBatch]) -> Iterator[Matches]:
    filters, known = job.options.filters, None
    if job.options.changes is None:
        yield from match_all(engine, batches, filters=filters)
        return
    for batch, events in enumerate(batches):
        changes = job.changes_for(batch, known)
        _, known = job.extent(batch)
        yield match_changing(engine, events, changes, filters=filters)
