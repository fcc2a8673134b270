"""A run of one process: the same job, feed and answers, without a launcher and without MPI."""

from __future__ import annotations

import logging
import socket
from dataclasses import replace

from mpi_match.cluster import RunOptions, RunSummary
from mpi_match.cluster.changing import match_changing
from mpi_match.cluster.feed import ReadAhead
from mpi_match.cluster.interruption import held, terminate_as_interrupt
from mpi_match.cluster.job import Job, Opened
from mpi_match.cluster.write_behind import WriteBehind
from mpi_match.engines import Engine, open_engine
from mpi_match.matches import Matches

log = logging.getLogger(__name__)

AHEAD = 2
"""Batches that are read while one is matched."""
ALONE = 0
"""The rank of a process that has no others."""


def run_alone(options: RunOptions) -> RunSummary:
    """See `cluster.run`."""
    options = replace(options, results="master")  # one process writes one file
    with terminate_as_interrupt(), Job(options) as job:
        engine = open_engine(
            options.engine,
            job.division.read(job.division.parts[0]),
            threads=options.threads,
            live=options.changes is not None,
        )
        log.info("engine %s on %s", engine.name, engine.device)
        opened = Opened(engine.name, engine.device, engine.gpu, socket.gethostname())
        with job.watched({ALONE: opened}):
            job.begin()
            _match(job, engine)
            return job.finish([opened])


def _match(job: Job, engine: Engine) -> None:
    """Match all events and write the answers; interruptions are heeded between what is read and what is written."""
    options, known = job.options, None
    n_threads = 0 if options.short_batches else None
    with (
        held() as interruptions,
        ReadAhead(lambda batch: job.events.batch(*job.extent(batch)), n_threads) as feed,
        WriteBehind[tuple[int, Matches]](
            lambda found: job.write(found[0], found[1].counts, found[1].ids), threaded=not options.short_batches
        ) as answers,
    ):
        for batch in range(job.n_batches):
            feed.want(range(batch, min(batch + 1 + AHEAD, job.n_batches)))
            events, changes = feed.take(batch), job.changes_for(batch, known)
            _, known = job.extent(batch)
            job.standing.sent(ALONE, batch, events.wire_bytes)
            with interruptions.heeded():
                found = match_changing(engine, events, changes, filters=options.filters)
            job.standing.answered(ALONE, batch, len(events))
            answers.put((batch, found))
        answers.finish()
