"""A followed run of one process, which matches arrived events immediately and without MPI."""

from __future__ import annotations

import socket

from mpi_match.cluster.follow.rows import FollowedOffer
from mpi_match.cluster.followed_files import FollowedFiles
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.run_files import Opened
from mpi_match.cluster.signals import held, terminate_as_interrupt
from mpi_match.engines import compile_s, open_engine

ARRIVAL_WAIT_S = 0.1
"""Longest wait for events, in seconds, between two checks for a signal."""
THIS_PROCESS = 0
"""The rank of a run of one process."""


def follow_alone(options: RunOptions) -> RunSummary:
    """See `cluster.run`."""
    with terminate_as_interrupt(), FollowedFiles(options) as files:
        before_s = compile_s()
        table = files.division.read(files.division.parts[0])
        engine = open_engine(options.engine, table, threads=options.threads, options=options.engine_options)
        host = socket.gethostname()
        compiled_s = compile_s() - before_s
        opened = Opened(
            engine.name, engine.device, engine.gpu, host, compile_s=compiled_s, engine_options=dict(engine.options)
        )
        scanner = FollowedOffer(options.form).scanner(table.vocabulary, options.threads)
        scanner.choose(engine.scanner)
        engine.warm_up(lambda: scanner.scan(FollowedOffer(options.form).first())[0], filters=options.filters)
        with files.watched({THIS_PROCESS: opened}), held() as interruptions:
            files.begin()
            batch = 0
            while not files.ended:
                if interruptions.heed():
                    files.stop()
                if not files.take_up(ARRIVAL_WAIT_S):
                    continue
                files.status.sent(THIS_PROCESS, batch, files.events.read(batch).wire_bytes)
                events, report = scanner.scan(files.events.read(batch))
                found = engine.match(events, filters=options.filters)
                files.status.answered(THIS_PROCESS, batch, len(found))
                files.answers.report(batch, report.to_wire().data)
                files.answers.write(batch, found.counts, found.ids)
                batch += 1
            return files.finish([opened])
