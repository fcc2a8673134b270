"""A followed run of one process, which matches arrived events immediately and without MPI."""

from __future__ import annotations

import socket

from mpi_match.cluster.follow.changes import ChangingEngine
from mpi_match.cluster.follow.rows import FollowedOffer
from mpi_match.cluster.followed_files import THIS_PROCESS, FollowedFiles
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.run_files import Opened
from mpi_match.cluster.signals import held, terminate_as_interrupt
from mpi_match.engines import Engine, compile_s, open_engine
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

ARRIVAL_WAIT_S = 0.1
"""Longest wait for events, in seconds, between two checks for a signal."""


def follow_alone(options: RunOptions) -> RunSummary:
    """See `cluster.run`."""
    with terminate_as_interrupt(), FollowedFiles(options) as files:
        before_s = compile_s()
        table = files.division.read(files.division.parts[0])
        threads, is_live = options.threads, files.changes is not None
        rows = FollowedOffer(options.form)
        scanner = rows.scanner(table.vocabulary, threads)

        def renew(vocabulary: Vocabulary) -> None:
            nonlocal scanner
            scanner = rows.scanner(vocabulary, threads)

        def open_table(table: Table) -> Engine:
            engine = open_engine(options.engine, table, threads=threads, live=is_live, options=options.engine_options)
            scanner.choose(engine.scanner)
            engine.warm_up(lambda: scanner.scan(rows.first())[0], filters=options.filters)
            return engine

        changing = None
        if files.changes is not None:
            changing = ChangingEngine(table, open_table, renew, reuse_ids=not options.filters)
        engine = open_table(table) if changing is None else changing.engine
        opened = Opened(
            *(engine.name, engine.device, engine.gpu, socket.gethostname()),
            compile_s=compile_s() - before_s,
            engine_options=dict(engine.options),
        )
        with files.watched({THIS_PROCESS: opened}), held() as interruptions:
            files.begin()
            batch = 0
            while not files.ended:
                if interruptions.heed():
                    files.stop()
                if not files.take_up(ARRIVAL_WAIT_S):
                    continue
                if files.changes is not None and changing is not None:
                    due = files.changes.due_with(THIS_PROCESS, batch)[1]
                    if due is not None:
                        changing.obey(due)
                        engine = changing.engine
                files.status.sent(THIS_PROCESS, batch, files.events.read(batch).wire_bytes)
                events, report = scanner.scan(files.events.read(batch))
                found = engine.match(events, filters=options.filters)
                files.status.answered(THIS_PROCESS, batch, len(found))
                files.answers.report(batch, report.to_wire().data)
                files.answers.write(batch, found.counts, found.ids)
                batch += 1
            return files.finish([opened])
