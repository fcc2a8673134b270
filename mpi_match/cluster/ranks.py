"""A run of several ranks: the steps that all of them take, in this order, together.

    same program everywhere? ─► master opens the files ─► table to every host ─► workers open engines ─► match

Each arrow is a place where all ranks go on or all leave (see `consensus`).  After the last one master and workers only speak through the
channel.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from mpi4py import MPI

from mpi_match.cluster import ClusterError, RunOptions, RunSummary
from mpi_match.cluster.alone import run_alone
from mpi_match.cluster.consensus import Ended, agree
from mpi_match.cluster.interruption import terminate_as_interrupt
from mpi_match.cluster.job import Job, Opened
from mpi_match.cluster.launcher import Launch, singleton_refusal
from mpi_match.cluster.matcher import Matcher
from mpi_match.cluster.table_copy import share_table
from mpi_match.cluster.topology import Topology
from mpi_match.engines import open_engine
from mpi_match.table import Table

log = logging.getLogger(__name__)

INTERRUPTED = 130


def run_ranks(options: RunOptions, launch: Launch) -> RunSummary | None:
    """See `cluster.run`."""
    world = MPI.COMM_WORLD
    if world.size == 1:
        refusal = singleton_refusal(launch)
        if refusal is not None:
            raise ClusterError(refusal, 5, quiet=launch.rank not in (0, None))
        return run_alone(options)
    try:
        with terminate_as_interrupt():
            return _run(options, world.Dup())
    except Ended as ended:
        # All ranks are here, so MPI can end in peace; a non-zero exit would otherwise make `python -m mpi4py` abort it, loudly.
        MPI.Finalize()
        raise ended.error from ended.error.__cause__
    except KeyboardInterrupt:
        if world.rank == 0:
            log.error("interrupted; nothing was written")
        world.Abort(INTERRUPTED)
    except Exception:
        log.exception("rank %d of %d failed outside of any step", world.rank, world.size)
        world.Abort(1)
    return None


def _run(options: RunOptions, comm: MPI.Comm) -> RunSummary | None:
    topology = Topology.find(comm)
    options = comm.bcast(replace(options, progress=None)) if comm.rank else _told(options, comm)
    with ExitStack() as stack:
        job = agree(comm, lambda: None if comm.rank else stack.enter_context(Job(options)))
        table = share_table(topology, job.table if job else None)
        if job is not None:
            job.table = table  # the shared copy; the private one is freed
        matcher = _open_matcher(options, topology, table)
        opened = comm.gather(agree(comm, lambda: _describe(matcher, topology)))
        if job is not None:
            from mpi_match.cluster.master import Master

            found = [each for each in opened if each is not None]
            log.info("%d workers: %s", len(found), "; ".join(f"{each.engine} on {each.device}" for each in found))
            return Master(comm, job).run(found)
    if matcher is not None:
        from mpi_match.cluster.worker import Worker

        exit_code = Worker(comm, matcher).serve()
        if exit_code:
            raise Ended(ClusterError("the master ended the run", exit_code, quiet=True))
    return None


def _told(options: RunOptions, comm: MPI.Comm) -> RunOptions:
    """The master's options are everybody's; its progress display stays its own."""
    comm.bcast(replace(options, progress=None))
    return options


def _open_matcher(options: RunOptions, topology: Topology, table: Table) -> Matcher | None:
    if topology.comm.rank == 0:
        return None
    threads = options.threads or topology.threads
    return Matcher(lambda: open_engine(options.engine, table, topology.device, threads), filters=options.filters)


def _describe(matcher: Matcher | None, topology: Topology) -> Opened | None:
    """The open engine, in words; on the master, which has none, None."""
    if matcher is None:
        return None
    engine = matcher.engine()
    return Opened(engine.name, engine.device)
