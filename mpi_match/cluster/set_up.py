"""Set-up of a run of several ranks: one list of phases, which every rank goes through from the first to the last.

    files open ─► plan to all ─► table to every host ─► events ─► parts of the output ─► engines ─► GPUs, observers ─► match

A phase is a step with two sides, the master's and the workers' (`RankGroup.step`; all ranks go on when all have done it), or
a collective call, which is the same on all ranks.  No rank takes a branch of its own, so the two sides cannot differ in
their phases and deadlock.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from mpi_match.cluster.distribution.broadcast import share_events, share_parts
from mpi_match.cluster.distribution.event_source import EventOffer, EventSource, ScannedSource, open_source
from mpi_match.cluster.distribution.shard import Shard
from mpi_match.cluster.engine_runner import EngineRunner, Matcher, OpenChangingEngine, ShardsHeld
from mpi_match.cluster.execution import Execution
from mpi_match.cluster.followed_files import FollowedFiles
from mpi_match.cluster.options import ClusterError, RunOptions
from mpi_match.cluster.results.worker_output import PartPlaces
from mpi_match.cluster.results.worker_writer import look_for_parts, open_parts
from mpi_match.cluster.run_files import Opened, RunFiles
from mpi_match.cluster.transport.topology import Topology, device_share, shared_gpu
from mpi_match.engines import Engine, compile_s, open_engine
from mpi_match.engines.registry import compile_engine_ahead
from mpi_match.errors import EngineError
from mpi_match.events.event_table import EventTable
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.batches.offer import RowsOffer
from mpi_match.ingest.rows.row_files import STDIN
from mpi_match.table.table import Table


class Plan(NamedTuple):
    """The plan that the master broadcasts when it has opened the files.

    groups, parts   see `partition.Division`
    offer           the events, and which of them are in which batch
    places          where workers write their answers; None when the master writes them
    """

    groups: Sequence[range]
    parts: Sequence[Shard]
    offer: EventOffer
    places: PartPlaces | None


class Ready(NamedTuple):
    """The results of set-up: `files` on the master, `matcher` and `source` on a worker; `opened`: the workers' engines."""

    files: RunFiles | FollowedFiles
    matcher: Matcher
    source: EventSource | None
    opened: list[Opened]


def set_up(options: RunOptions, execution: Execution, topology: Topology, stack: ExitStack) -> Ready:
    """Go through all phases on this rank; `stack` closes what they open.  Raises Ended when one has failed on a rank."""
    ranks, threads = topology.ranks, options.threads or topology.threads
    files: RunFiles | FollowedFiles = ranks.step("opening the files", master=lambda: _files(options, ranks.size - 1, stack))
    plan: Plan = ranks.bcast(None if files is None else _plan(options, files))
    if ranks.rank != 0 and topology.number == 0 and options.changes is None:  # one worker of each host
        rows = plan.offer.rows
        compile_engine_ahead(options.engine, None if rows is None else options.form)
    part, table = share_parts(topology, plan.groups, plan.parts, None if files is None else files.division)
    copy = None
    if options.feed == "shared":
        events = files.events if isinstance(files, RunFiles) else None
        copy = share_events(topology, events, execution.workers)

    def opened_source() -> EventSource | None:
        found = open_source(options, plan.offer, copy, table.vocabulary, execution.workers, threads)
        return stack.enter_context(found)

    source: EventSource | None = ranks.step("opening the events", worker=opened_source)
    parts = ranks.step(
        "opening its part of the output",
        worker=lambda: open_parts(plan.places, ranks.rank, min(execution.most_parts, max(threads // 2, 1)), stack),
    )
    ranks.step("looking for the parts of the output", master=lambda: look_for_parts(plan.places, ranks.size))

    def matcher_and_engine() -> tuple[Matcher, Opened]:
        began = time.perf_counter()
        shards = ShardsHeld(part, table, _opening(options, topology, source, threads))
        if options.follow and options.changes is not None:
            assert isinstance(source, ScannedSource)
            opens = partial(OpenChangingEngine, source.renew)
            matcher: Any = EngineRunner(shards, table.vocabulary, filters=options.filters, opens=opens)
        else:
            matcher = execution.matcher(shards, table.vocabulary, filters=options.filters)
        written: Matcher = matcher
        if parts and plan.offer.ranges is not None:
            written = execution.written(matcher, parts, plan.offer.ranges)
        engine = written.engine()
        opening_s = time.perf_counter() - began
        what = engine.name, engine.device, engine.gpu, socket.gethostname()
        return written, Opened(*what, opening_s, compile_s(), dict(engine.options))

    # The matcher alone keeps a reference to the engine: it may have to open another, which would not fit beside this one.
    made: Any = ranks.step("opening its engine", worker=matcher_and_engine) or (None, None)
    matcher, mine = made
    opened = ranks.gather(mine)[1:]
    ranks.step("comparing GPUs", master=lambda: _refuse_shared_gpu(options, opened))
    watched = dict(enumerate(opened, 1))
    ranks.step("opening the observers", master=lambda: stack.enter_context(files.watched(watched)))
    return Ready(files, matcher, source, opened)


def _files(options: RunOptions, n_workers: int, stack: ExitStack) -> RunFiles | FollowedFiles:
    if options.follow:
        return stack.enter_context(FollowedFiles(options, range(1, n_workers + 1)))
    if options.events == STDIN:
        raise ClusterError(
            "standard input does not reach the master of several ranks to its end with every launcher; "
            "name a file, or a pipe made with mkfifo",
            ExitCode.USAGE,
        )
    return stack.enter_context(RunFiles(options, n_workers))


def _plan(options: RunOptions, files: RunFiles | FollowedFiles) -> Plan:
    return Plan(files.division.groups, files.division.parts, _offer(options, files), files.places)


def _offer(options: RunOptions, files: RunFiles | FollowedFiles) -> EventOffer:
    if isinstance(files, FollowedFiles):
        return files.offer()
    events = files.events.table
    rows = None if isinstance(events, EventTable) else RowsOffer(events.index, events.form)
    return EventOffer(options.events.absolute(), events.digest, files.events.ranges, rows)


def _opening(options: RunOptions, topology: Topology, source: EventSource | None, threads: int) -> Callable[[Table], Engine]:
    """The function that opens a worker's engine for a table, on this worker's device."""

    def open_table(table: Table) -> Engine:
        n_gpus = _n_gpus() if options.share_gpus else None
        device = device_share(topology.number, os.environ, options.gpu_map, n_gpus)
        live = options.changes is not None
        engine = open_engine(options.engine, table, device, threads, live=live, options=options.engine_options)
        if source is not None:
            source.open_for(engine)
            engine.pin(source.memory)
            engine.warm_up(source.first, filters=options.filters)
        return engine

    return open_table


def _n_gpus() -> int:
    """The number of GPUs visible to this process; 0 without a GPU or a driver."""
    from mpi_match.gpu.presence import require_driver

    try:
        require_driver()
        from mpi_match.gpu.driver import visible_gpus

        return len(visible_gpus())
    except EngineError:
        return 0


def _refuse_shared_gpu(options: RunOptions, opened: Sequence[Opened]) -> None:
    wrong = None if options.share_gpus else shared_gpu([(each.host, each.gpu) for each in opened])
    if wrong is not None:
        raise ClusterError(wrong, ExitCode.ENVIRONMENT)
