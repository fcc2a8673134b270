"""A run of several ranks, from the first call of MPI to the last, however it ends.

    same program everywhere? ─► set-up (`set_up`) ─► match

Until the end of set-up all ranks go on or all leave (`collectives`).  After it master and workers communicate only through
the channel.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from mpi4py import MPI

from mpi_match.cluster.execution import Execution, execution_for
from mpi_match.cluster.local_run import run_alone
from mpi_match.cluster.options import ClusterError, RunOptions, RunSummary
from mpi_match.cluster.run_files import Opened
from mpi_match.cluster.set_up import Ready, set_up
from mpi_match.cluster.signals import (
    RanksNotified,
    SignalFlag,
    held,
    signals_recorded,
    terminate_as_interrupt,
)
from mpi_match.cluster.transport.backoff import Backoff, sleep_exactly
from mpi_match.cluster.transport.channel import Traffic, dead_ranks
from mpi_match.cluster.transport.collectives import Ended, RankGroup
from mpi_match.cluster.transport.finalize import abort, finalize, rank_was_lost
from mpi_match.cluster.transport.initialize import loaded_library
from mpi_match.cluster.transport.launcher import LaunchedBy, singleton_refusal
from mpi_match.cluster.transport.liveness import GRACE_S, RankDied, RankStalled, StartupBarrier
from mpi_match.cluster.transport.topology import Topology
from mpi_match.cluster.transport.watchdog import Watchdog
from mpi_match.exit_codes import ExitCode

log = logging.getLogger(__name__)

LAST_LINE_S = 2.0
"""Seconds that the other ranks of a failed run wait for the one that prints the reason."""


def run_ranks(options: RunOptions, launch: LaunchedBy) -> RunSummary | None:
    """See `cluster.run`."""
    world = MPI.COMM_WORLD
    if world.size == 1:
        refusal = singleton_refusal(launch, loaded_library(), os.environ)
        if refusal is not None:
            finalize()
            raise ClusterError(refusal, ExitCode.ENVIRONMENT, quiet=launch.rank not in (0, None))
        return run_alone(options)
    world.Set_errhandler(MPI.ERRORS_RETURN)  # and so of those that are made from it
    interrupted = SignalFlag()
    watchdog = Watchdog(world.rank, options.setup_limit + 2 * GRACE_S)
    barrier = StartupBarrier(Traffic(world), options.setup_limit, interrupted, watchdog.beat)
    try:
        with terminate_as_interrupt() if world.rank == 0 else signals_recorded(interrupted), watchdog:
            return _run(options, barrier, interrupted, watchdog)
    except Ended as ended:
        barrier.close()
        _leave_in_peace(after_another=world.rank != 0)
        raise ended.error from ended.error.__cause__
    except KeyboardInterrupt as error:
        if world.rank == 0:
            log.error("interrupted")
        abort(ExitCode.INTERRUPTED, awaited=not isinstance(error, RanksNotified))
    except RankStalled as error:
        rank_was_lost()
        _leave_in_peace(after_another=not str(error))
        raise ClusterError(str(error), quiet=not str(error)) from None
    except Exception as error:
        dead = dead_ranks(world)
        if isinstance(error, MPI.Exception | RankDied) and dead:
            raise _lost_during_set_up(world, dead) from error
        log.exception("rank %d of %d failed outside of any step", world.rank, world.size)
        abort(1)
    return None


def _lost_during_set_up(comm: MPI.Comm, dead: Sequence[int]) -> ClusterError:
    """The error of a run with dead ranks: the first living rank reports it; MPI ends the steps of all others as well."""
    rank_was_lost()
    first = min(rank for rank in range(comm.size) if rank not in dead)
    _leave_in_peace(after_another=comm.rank != first)
    numbers = ", ".join(str(rank) for rank in dead)
    return ClusterError(f"rank {numbers} died before the first batch; start the run again", quiet=comm.rank != first)


def _run(options: RunOptions, barrier: StartupBarrier, interrupted: SignalFlag, watchdog: Watchdog) -> RunSummary | None:
    sleep_exactly()
    comm, request = MPI.COMM_WORLD.Idup()
    barrier.wait(request)
    ranks = RankGroup(comm, barrier)
    topology = Topology.find(ranks)
    shared = ranks.bcast(replace(options, progress=None, watch=None))  # the master's options hold for all ranks
    with ExitStack() as stack:
        execution = execution_for(shared)
        ready = set_up(options if ranks.rank == 0 else shared, execution, topology, stack)
        backoff = Backoff(spins=execution.spins and topology.own_core)
        if ranks.rank == 0:
            watchdog.limit_s = None  # it may wait for a disk; its workers leave when they have heard nothing for long
            return _lead(ranks, ready, execution, backoff, barrier)
        barrier.close()
        _serve(ranks, ready, backoff, interrupted, watchdog)
    return None


def _lead(ranks: RankGroup, ready: Ready, execution: Execution, backoff: Backoff, barrier: StartupBarrier) -> RunSummary:
    """The master after set-up."""
    from mpi_match.cluster.master import Master

    master = Master(ranks.comm, ready.files, execution, backoff)
    with held() as interruptions:  # ready workers wait for the master's orders, also after an interruption
        master.meet(interruptions)
        barrier.close()
        _log_engines(ready.opened)
        gc.freeze()
        return master.run(ready.opened)


def _log_engines(opened: Sequence[Opened]) -> None:
    workers = "; ".join(f"{each.engine} on {each.device}" for each in opened)
    # Different engines (`auto` where not every worker has a GPU) give the same answers, but may not be intended.
    level = logging.WARNING if len({each.engine for each in opened}) > 1 else logging.INFO
    log.log(level, "%d workers: %s", len(opened), workers)


def _serve(ranks: RankGroup, ready: Ready, backoff: Backoff, interrupted: SignalFlag, watchdog: Watchdog) -> None:
    """A worker after set-up.  Raises Ended when the run has failed."""
    from mpi_match.cluster.worker import SILENCE_S, Worker

    watchdog.limit_s = SILENCE_S + GRACE_S
    gc.freeze()  # these objects stay; collecting them takes longer than matching a short batch
    last = Worker(ranks.comm, ready.matcher, backoff, interrupted, ready.source, watchdog.beat).serve()
    if last.attempt:
        rank_was_lost()
    if last.number:
        raise Ended(ClusterError("the master ended the run", last.number, quiet=True))


def _leave_in_peace(*, after_another: bool = False) -> None:
    """Finalise MPI before a non-zero exit; otherwise `python -m mpi4py` would abort it with a message of its own.

    Launchers kill a job at the first non-zero exit of a rank, so the rank that prints the reason exits first; the others
    wait for LAST_LINE_S, or until they are killed.
    """
    finalize()
    if after_another:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(LAST_LINE_S)
