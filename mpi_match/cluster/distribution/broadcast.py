"""The table or its parts, and the events, from the master to one copy on every host, before the clock starts.

    master  ──Bcast over one rank per host──►  leader of host 1: memory file ◄─ mapped read-only by the host's other ranks
                                               leader of host 2: memory file ◄─ ...

Only the master needs the files, and a host with eight workers holds the arrays once (`shared_memory`).  A sharded table is
sent shard by shard, each to the workers that hold it, so the master never holds more than one.

Events are copied with the feed `shared` alone: as wire forms, one batch after the other.  So a batch of the run is a range
of memory that every rank has mapped: the master sends its number, a worker makes views of it, and no event is copied again.
The memory is constant from then on, so an engine may pin it.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array
from mpi_match.cluster.batches import BatchedEvents
from mpi_match.cluster.distribution.partition import Division
from mpi_match.cluster.distribution.shard import Shard, laid_out, plan
from mpi_match.cluster.distribution.shared_memory import HostMemory, protect
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.prefetch import Buffers, MakeWorkers, ReadAhead, n_readers
from mpi_match.cluster.transport.collectives import RankGroup
from mpi_match.cluster.transport.topology import Topology
from mpi_match.events.batch import EventBatch, unmarked
from mpi_match.table.table import Table


def share_parts(
    topology: Topology, groups: Sequence[range], parts: Sequence[Shard], division: Division | None
) -> tuple[Any, Any]:
    """Share every shard in turn, on the ranks that hold it; `division` is rank 0's, None elsewhere.  Raises Ended.

    Returns a worker's Shard and Table.  On rank 0 (None, None), and the shared copy of a whole table replaces the private
    one.
    """
    ranks = topology.ranks
    mine: tuple[Any, Any] = (None, None)
    for part in parts:
        holds = ranks.rank == 0 or any(group[part.member] == ranks.rank for group in groups)
        holders = topology if len(parts) == 1 else topology.among(holds)
        read = None if division is None else partial(division.read, part)
        table = share_table(holders, ranks.step("reading the table", master=read))
        if division is None:
            mine = mine if table is None else (part, table)
        elif isinstance(division.table, Table) and table is not None:
            division.table = table
    return mine


def share_table(topology: Topology, table: Table | None) -> Table | None:
    """`table` (of rank 0; None elsewhere) on each rank that holds it, its arrays shared within a host and read-only."""
    ranks, leaders = topology.ranks, topology.leaders
    places = ranks.bcast(plan(table) if table is not None else None)
    n_bytes = max(place.at + place.n_bytes for place in places)
    on_host = HostMemory(topology, "the table", "give the job more memory per host")
    ranks.agree("having memory for the table", lambda: on_host.reserve(n_bytes) if leaders is not None else None)
    memory = on_host.map(n_bytes)
    if leaders is not None:
        if table is not None:
            for place, (_, array) in zip(places, table.arrays(in_memory=True), strict=True):
                memory[place.at : place.at + place.n_bytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        leaders.copy(memory)
    crc = ranks.agree("checking the table", lambda: crc32(memory.data) if leaders is not None else None)
    expected = ranks.bcast(crc)

    def compare() -> None:
        if crc is not None and crc != expected:
            raise ClusterError(f"the table was damaged on its way: CRC-32 found {crc:08x}, expected {expected:08x}")

    ranks.agree("comparing the table", compare)
    if not topology.holds:
        return None
    protect(memory)
    return laid_out(unmarked(memory), places)  # compiled code is of one kind, for these tables and for any other


class EventCopy:
    """Wire forms end to end: `memory` u8, read-only; batch b at bytes `starts[b]` to `starts[b + 1]`, i64[n_batches + 1]."""

    def __init__(self, memory: Array, starts: Array) -> None:
        self.memory, self.starts = memory, starts
        self._unmarked = unmarked(memory)

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return len(self.starts) - 1

    def wire(self, batch: int) -> Array:
        """The wire form of a batch, a view."""
        return self._unmarked[self.starts[batch] : self.starts[batch + 1]]


def share_events(topology: Topology, events: BatchedEvents | None, workers: MakeWorkers) -> EventCopy:
    """The events of a run on every host; `events` on rank 0, None elsewhere.

    Raises Ended when the table is damaged or a host lacks the memory.
    """
    ranks, leads = topology.ranks, topology.leads_node
    on_host = HostMemory(topology, "the events", "use --feed file or --feed master, which need none")
    n_bytes: int = ranks.bcast(None if events is None else events.table.wire_bytes(events.n_batches))
    ranks.agree("having memory for the events", lambda: on_host.reserve(n_bytes) if leads else None)
    leaders = topology.leaders
    wires = None if events is None else partial(_wires, events, workers)
    sizes, crc = ranks.agree("copying the events", lambda: _fill(leaders, on_host, wires) if leaders else (None, None))
    sizes, expected = ranks.bcast((sizes, crc))

    def compare() -> None:
        if crc is not None and crc != expected:
            raise ClusterError(f"the events were damaged on their way: CRC-32 found {crc:08x}, expected {expected:08x}")

    ranks.agree("comparing the events", compare)
    starts = np.append(0, np.cumsum(np.frombuffer(sizes, np.int64), dtype=np.int64))
    return EventCopy(on_host.map(int(starts[-1]), finished=True), starts)


def _fill(leaders: RankGroup, on_host: HostMemory, read: Callable[[], Generator[Array]] | None) -> tuple[bytes, int]:
    """Leaders: copy the master's batches, which it `read`s, into memory.  Returns the size of each, as bytes of i64, and the
    CRC-32 of all.

    A leader that fails still receives the rest, because the broadcast is collective, and raises then.
    """
    sizes, crc, error = array.array("q"), 0, None
    several = leaders.size > 1
    with closing(_received(leaders) if read is None else _sent(leaders, read())) as wires:
        try:
            for wire in wires:
                on_host.append(wire)
                sizes.append(len(wire))
                crc = crc32(wire.data, crc) if several else 0
        except Exception as caught:
            error = caught
            if read is None:
                for _ in wires:
                    pass
    if error is not None:
        raise error
    return sizes.tobytes(), crc


def _sent(leaders: RankGroup, wires: Generator[Array]) -> Generator[Array]:
    """The master's wire forms, each sent to the other leaders before it is yielded; always sends the end."""
    try:
        for wire in wires:
            leaders.bcast(len(wire))
            if leaders.size > 1:
                leaders.copy(wire)
            yield wire
    finally:
        leaders.bcast(None)


def _received(leaders: RankGroup) -> Generator[Array]:
    """The wire forms that the master sends; each is valid until the next is requested."""
    buffer = np.empty(0, np.uint8)
    while (n_bytes := leaders.bcast()) is not None:
        if n_bytes > len(buffer):
            buffer = np.empty(n_bytes, np.uint8)
        leaders.copy(buffer[:n_bytes])
        yield buffer[:n_bytes]


def _wires(batches: BatchedEvents, workers: MakeWorkers) -> Generator[Array]:
    """The wire form of every batch in turn, read ahead; each is valid until the next is requested."""
    buffers, ahead = Buffers(), 2 * n_readers()

    def read(batch: int) -> tuple[Array, Array]:
        events = batches.read(batch)
        if isinstance(events, EventBatch):
            _ = events.widest  # computed once, here, and kept in the wire form
        buffer = buffers.take(events.wire_bytes)
        return events.to_wire(buffer), buffer

    with ReadAhead(read, workers(n_readers())) as feed:
        for batch in range(batches.n_batches):
            feed.want(range(batch, min(batch + 1 + ahead, batches.n_batches)))
            wire, buffer = feed.take(batch)
            yield wire
            buffers.give(buffer)
