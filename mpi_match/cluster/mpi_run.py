"""A run of several ranks: the steps that all of them take, in this order, together.

    same program everywhere? ─► master opens the files ─► table to every host ─► events, if workers have them from elsewhere
    than the master ─► workers open engines ─► match

Each arrow is a place where all ranks go on or all leave (see `collectives`).  After the last one master and workers only
speak through the channel.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from mpi4py import MPI

from mpi_match.cluster.distribution.broadcast import receive_part, send_parts
from mpi_match.cluster.distribution.event_source import offer_events, open_source
from mpi_match.cluster.engine_runner import Holdings, Matcher, ShortMatcher
from mpi_match.cluster.local_run import run_alone
from mpi_match.cluster.options import ClusterError, RunOptions, RunSummary
from mpi_match.cluster.results.worker_writer import offer_parts, open_part
from mpi_match.cluster.run_files import Job, Opened
from mpi_match.cluster.signals import (
    EverybodyKnows,
    Noted,
    held,
    interrupts_noted,
    terminate_as_interrupt,
)
from mpi_match.cluster.transport.backoff import Backoff, sleep_exactly
from mpi_match.cluster.transport.channel import dead_ranks
from mpi_match.cluster.transport.collectives import Circle, Ended
from mpi_match.cluster.transport.finalize import abort, finalize, rank_was_lost
from mpi_match.cluster.transport.launcher import Launch, singleton_refusal
from mpi_match.cluster.transport.liveness import Died, Roll, StandsStill
from mpi_match.cluster.transport.shares import device_share, shared_gpu
from mpi_match.cluster.transport.topology import Topology
from mpi_match.engines import Engine, open_engine, pin, warm_up
from mpi_match.exit_codes import ExitCode
from mpi_match.table.table import Table

log = logging.getLogger(__name__)

LAST_WORD_S = 2.0
"""What the ranks of a failed run give the one that says why."""


def run_ranks(options: RunOptions, launch: Launch) -> RunSummary | None:
    """See `cluster.run`."""
    world = MPI.COMM_WORLD
    if world.size == 1:
        refusal = singleton_refusal(launch)
        if refusal is not None:
            finalize()
            raise ClusterError(refusal, ExitCode.ENVIRONMENT, quiet=launch.rank not in (0, None))
        return run_alone(options)
    world.Set_errhandler(MPI.ERRORS_RETURN)  # and so of those that are made from it
    interrupted = Noted()
    roll = Roll(world, options.setup_limit, interrupted)
    try:
        with terminate_as_interrupt() if world.rank == 0 else interrupts_noted(interrupted):
            return _run(options, roll, interrupted)
    except Ended as ended:
        roll.close()
        _leave_in_peace(after_another=world.rank != 0)
        raise ended.error from ended.error.__cause__
    except KeyboardInterrupt as error:
        if world.rank == 0:
            log.error("interrupted")
        abort(ExitCode.INTERRUPTED, awaited=not isinstance(error, EverybodyKnows))
    except StandsStill as error:
        rank_was_lost()
        _leave_in_peace(after_another=not str(error))
        raise ClusterError(str(error), quiet=not str(error)) from None
    except Exception as error:
        dead = dead_ranks(world)
        if isinstance(error, MPI.Exception | Died) and dead:
            raise _lost_during_set_up(world, dead) from error
        log.exception("rank %d of %d failed outside of any step", world.rank, world.size)
        abort(1)
    return None


def _lost_during_set_up(comm: MPI.Comm, dead: Sequence[int]) -> ClusterError:
    """What the first rank that is left says; MPI ends the steps of all others as well."""
    rank_was_lost()
    first = min(rank for rank in range(comm.size) if rank not in dead)
    _leave_in_peace(after_another=comm.rank != first)
    who = ", ".join(str(rank) for rank in dead)
    return ClusterError(f"rank {who} died before the first batch; start the run again", quiet=comm.rank != first)


def _run(options: RunOptions, roll: Roll, interrupted: Noted) -> RunSummary | None:
    sleep_exactly()
    comm, request = MPI.COMM_WORLD.Idup()
    roll.wait(request)
    ranks = Circle(comm, roll)
    topology = Topology.find(ranks)
    told = ranks.tell(replace(options, progress=None, watch=None))  # the master's options are everybody's
    if ranks.rank == 0:
        return _lead(options, topology, roll)
    with ExitStack() as stack:
        _serve(told, topology, roll, interrupted, stack)
    return None


def _lead(options: RunOptions, topology: Topology, roll: Roll) -> RunSummary:
    """The master's side of the steps."""
    from mpi_match.cluster.master import Master

    ranks = topology.ranks
    with ExitStack() as stack:
        job = ranks.agree("opening the files", lambda: stack.enter_context(Job(options, ranks.size - 1)))
        send_parts(topology, job.division)
        offer_events(topology, job)
        offer_parts(topology, job)
        ranks.attend()  # while the workers open their engines
        opened: list[Opened] = ranks.gather(None)[1:]
        ranks.agree("comparing GPUs", lambda: _refuse_shared_gpu(options, opened))
        watched = job.watched(dict(enumerate(opened, 1)))
        ranks.agree("opening what watches the run", lambda: stack.enter_context(watched))
        master = Master(ranks.comm, job, Backoff(tireless=options.short_batches and topology.own_core))
        with held() as interruptions:  # workers that are ready wait for the master's word, also for that of an interruption
            master.meet(interruptions)
            roll.close()
            _log_engines(opened)
            gc.freeze()
            return master.run(opened)


def _log_engines(opened: Sequence[Opened]) -> None:
    workers = "; ".join(f"{each.engine} on {each.device}" for each in opened)
    # Different engines (`auto` where not every worker has a GPU) give the right answers, but are perhaps not meant.
    level = logging.WARNING if len({each.engine for each in opened}) > 1 else logging.INFO
    log.log(level, "%d workers: %s", len(opened), workers)


def _refuse_shared_gpu(options: RunOptions, opened: Sequence[Opened]) -> None:
    wrong = None if options.share_gpus else shared_gpu([(each.host, each.gpu) for each in opened])
    if wrong is not None:
        raise ClusterError(wrong, ExitCode.ENVIRONMENT)


def _serve(options: RunOptions, topology: Topology, roll: Roll, interrupted: Noted, stack: ExitStack) -> None:
    """A worker's side of the same steps; what it opens for the run, `stack` closes."""
    from mpi_match.cluster.worker import Worker

    ranks = topology.ranks
    ranks.attend()  # while the master opens the files
    part, table = receive_part(topology)
    source = stack.enter_context(open_source(options, topology, table.vocabulary))
    threads = options.threads or topology.threads
    way = ShortMatcher if options.short_batches else Matcher
    live, gpu_map = options.changes is not None, options.gpu_map

    def open_table(table: Table) -> Engine:
        device = device_share(topology.number, os.environ, gpu_map)
        engine = open_engine(options.engine, table, device, threads, live=live)
        if source is not None:
            pin(engine, source.memory)
            warm_up(engine, source.first, filters=options.filters)
        return engine

    holdings = Holdings(part, table, open_table)
    roll.begin("opening its engine")  # in a thread, from now on
    began = time.perf_counter()
    matcher = open_part(options, topology, way(holdings, table.vocabulary, filters=options.filters), stack)
    engine = ranks.agree("opening its engine", matcher.engine)
    ranks.gather(Opened(engine.name, engine.device, engine.gpu, socket.gethostname(), time.perf_counter() - began))
    del engine  # the matcher's alone: it may have to open another, which has no room beside this one
    ranks.attend()  # while the master sees who has which GPU
    ranks.attend()  # while those who watch the run get ready
    roll.close()
    backoff = Backoff(tireless=options.short_batches and topology.own_core)
    gc.freeze()  # what is there stays; to look through it for garbage would hold up a batch for longer than to match it
    last = Worker(ranks.comm, matcher, backoff, interrupted, source).serve()
    if last.attempt:
        rank_was_lost()
    if last.number:
        raise Ended(ClusterError("the master ended the run", last.number, quiet=True))


def _leave_in_peace(*, after_another: bool = False) -> None:
    """Finalise MPI before a non-zero exit, which would otherwise make `python -m mpi4py` abort it, loudly.

    Launchers kill a job at the first non-zero exit of a rank, so the one that has yet to print the reason goes first; the
    others wait for that, and for being killed.
    """
    finalize()
    if after_another:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(LAST_WORD_S)
