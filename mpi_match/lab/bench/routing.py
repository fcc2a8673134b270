"""Measures a run's routing of events to shards against broadcast, in one process: the work of all workers, and the bytes.

    broadcast   shards are ranges of filters, and each gets every event
    route       `run --route`: shards of filters that ask for the same, each with the events that it can match

A run's own code divides, sends and matches, one shard after the other.  So CPU times add up what ranks do at the same time;
they are without MPI, which waits by polling.  The answers have to be those of one engine for the whole table, and another
engine judges the first of these.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.distribution.merge import merge
from mpi_match.cluster.distribution.partition import Division
from mpi_match.cluster.distribution.routing import Router
from mpi_match.cluster.distribution.shard import ShardEngine
from mpi_match.cluster.options import RunOptions
from mpi_match.engines import Engine, open_engine
from mpi_match.environment.machine import origin
from mpi_match.events.batch import EventBatch
from mpi_match.lab.bench.engines import require
from mpi_match.lab.workloads.scenarios import Scenario
from mpi_match.matches.matches import Matches
from mpi_match.model import Json
from mpi_match.table.table import Table

JUDGED_FIRST = 20
"""Events whose answers are judged."""
WAYS = ("broadcast", "route")


class RoutingPlan(NamedTuple):
    """`n_events` events of a scenario in batches of `batch`, matched by an `engine` of one thread for each of `n_shards`
    shards; each is measured `repetitions` times, in turn."""

    scenario: Scenario
    n_events: int = 2**18
    batch: int = 65_536
    n_shards: tuple[int, ...] = (2, 4, 8, 16)
    engine: str = "keyed"
    repetitions: int = 5
    seed: int = 0


class _Way:
    """A division of the table among `n_shards` shards, and the events' way to them."""

    def __init__(self, plan: RoutingPlan, table: Path, n_shards: int, way: str) -> None:
        options = RunOptions(table, table, table, placement="shard", engine=plan.engine, route=way == "route")
        began = time.process_time()
        with Division(options, n_shards) as division:
            self.divide_s = time.process_time() - began
            self.router = None if division.routes is None else Router(division.routes, division.table.vocabulary)
            self.engines: list[Engine] = [
                ShardEngine(open_engine(plan.engine, division.read(part), threads=1), part) for part in division.parts
            ]
        self._buffers: list[Array] = []
        self.master_s: list[float] = []
        self.workers_s: list[float] = []

    def wires(self, batch: EventBatch, at: int) -> Sequence[Array]:
        """The wire form for each shard, in the memory of batch number `at`."""
        if self.router is None:
            return [batch.to_wire(self._buffer(at, batch.wire_bytes))] * len(self.engines)
        return self.router.wires(batch, lambda n_bytes: self._buffer(at, n_bytes))[0]

    def match(self, batches: Sequence[EventBatch]) -> Iterator[tuple[Sequence[Array], list[Matches]]]:
        """Yield what is sent of each batch, and the shards' answers; adds the CPU times."""
        began = time.process_time()
        sent = [self.wires(batch, at) for at, batch in enumerate(batches)]
        self.master_s.append(time.process_time() - began)
        began = time.process_time()
        found = [[engine.match(EventBatch.from_wire(wires[i])) for wires in sent] for i, engine in enumerate(self.engines)]
        self.workers_s.append(time.process_time() - began)
        for number, wires in enumerate(sent):
            yield wires, [answers[number] for answers in found]

    def _buffer(self, at: int, n_bytes: int) -> Array:
        while len(self._buffers) <= at:
            self._buffers.append(np.empty(0, np.uint8))
        if len(self._buffers[at]) < n_bytes:
            self._buffers[at] = np.empty(n_bytes, np.uint8)
        return self._buffers[at]


def measure_routing(
    plan: RoutingPlan, directory: Path, tell: Callable[[str], None] = lambda text: None
) -> Iterator[list[Json]]:
    """Yield two records for each number of shards, of a broadcast and of routing; the table is written to `directory`.

    A record has `shards`, `how`; the shares of (event, shard) pairs `left_out` and with `no_answer`, which no routing
    exceeds; `busiest`, the share of all events that the busiest shard gets; `bytes_per_event` of messages to workers; and
    the CPU times `divide_s`, `master_us` and `workers_us` (of an event: its wire forms, and matching at all workers;
    medians).  Raises WrongAnswer if the answers are not those of the whole table.
    """
    table = Table.from_subscriptions(plan.scenario.subscriptions(plan.seed))
    path = directory / "table.h5"
    table.save(path)
    events = plan.scenario.events(plan.n_events, plan.seed).encode(table.vocabulary)
    batches = [events[at : at + plan.batch] for at in range(0, plan.n_events, plan.batch)]
    expected = open_engine(plan.engine, table).match(events)
    judged = expected.counts[:JUDGED_FIRST].sum(dtype=np.int64)
    first = open_engine("counting", table).match(events[:JUDGED_FIRST])
    right = np.array_equal(first.counts, expected.counts[:JUDGED_FIRST]) and np.array_equal(first.ids, expected.ids[:judged])
    require(right, f"{plan.engine} gives a wrong answer")
    for n_shards in plan.n_shards:
        tell(f"{n_shards} shards")
        ways = {way: _Way(plan, path, n_shards, way) for way in WAYS}
        found = {way: _checked(plan, each, batches, expected) for way, each in ways.items()}
        for each in ways.values():
            each.master_s.clear()  # of the first time, in which code is compiled
            each.workers_s.clear()
        for _ in range(plan.repetitions):
            for each in ways.values():
                for _ in each.match(batches):
                    pass
        yield [
            {
                "what": "routing",
                "scenario": plan.scenario.name,
                "n_filters": table.n_filters,
                "n_events": plan.n_events,
                "batch": plan.batch,
                "engine": plan.engine,
                "shards": n_shards,
                "how": way,
                **found[way],
                "divide_s": each.divide_s,
                "master_us": 1e6 * statistics.median(each.master_s) / plan.n_events,
                "workers_us": 1e6 * statistics.median(each.workers_s) / plan.n_events,
                "repetitions": plan.repetitions,
                **origin(),
            }
            for way, each in ways.items()
        ]


def _checked(plan: RoutingPlan, way: _Way, batches: Sequence[EventBatch], expected: Matches) -> Json:
    """The counts of a record, after the answers were compared.  Raises WrongAnswer."""
    n_shards = len(way.engines)
    n_bytes, n_answered, sent = 0, 0, np.zeros(n_shards, np.int64)
    columns = []
    for wires, answers in way.match(batches):
        n_bytes += sum(map(len, wires))
        n_answered += sum(int(np.count_nonzero(each.counts)) for each in answers)
        sent += [EventBatch.from_wire(wire).accepted.n_events for wire in wires]
        columns.append(merge([(each.counts, np.ascontiguousarray(each.ids)) for each in answers]))
    counts, ids = (np.concatenate(column) for column in zip(*columns, strict=True))
    require(Matches(counts, ids, expected.n_ids) == expected, "the shards' answers are not those of the whole table")
    pairs = n_shards * plan.n_events
    return {
        "left_out": float(1 - sent.sum() / pairs),
        "no_answer": float(1 - n_answered / pairs),
        "busiest": float(sent.max() / plan.n_events),
        "bytes_per_event": n_bytes / plan.n_events,
    }
