"""The table or its parts, from the master's memory to one copy on every host.

    master  ──Bcast over one rank per host──►  leader of host 1: memory file ◄─ mapped read-only by the host's other ranks
                                               leader of host 2: memory file ◄─ ...

No rank but the master needs the file, and a host with eight workers holds the arrays once (`host_memory`).  A table in parts
is sent part by part, each to the workers that have it, so the master never has more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.cluster import ClusterError
from mpi_match.cluster.division import Division
from mpi_match.cluster.host_memory import HostMemory
from mpi_match.cluster.parcel import laid_out, plan
from mpi_match.cluster.part import Part
from mpi_match.cluster.topology import Topology
from mpi_match.table import Table


def send_parts(topology: Topology, division: Division) -> None:
    """The master's side of `receive_part`; a whole table is then the shared copy, and the private one is freed."""
    topology.ranks.tell((division.groups, division.parts))
    for table in _shared(topology, division.groups, division.parts, division.read):
        if isinstance(division.table, Table) and table is not None:
            division.table = table


def receive_part(topology: Topology) -> tuple[Part, Table]:
    """This worker's part of the table.  Raises Ended, like all steps."""
    groups, parts = topology.ranks.tell()
    shared = _shared(topology, groups, parts, lambda part: None)
    ((part, table),) = [(part, table) for part, table in zip(parts, shared, strict=True) if table is not None]
    return part, table


def _shared(
    topology: Topology, groups: Sequence[range], parts: Sequence[Part], read: Callable[[Part], Table | None]
) -> Iterator[Table | None]:
    """Every part in turn, on the ranks that hold it; `read` has it on rank 0."""
    ranks = topology.ranks
    for part in parts:
        holds = ranks.rank == 0 or any(group[part.member] == ranks.rank for group in groups)
        holders = topology if len(parts) == 1 else topology.among(holds)
        yield share_table(holders, ranks.agree("reading the table", partial(read, part)))


def share_table(topology: Topology, table: Table | None) -> Table | None:
    """`table` (of rank 0; None elsewhere) on each rank that holds it, its arrays shared within a host and read-only."""
    ranks, leaders = topology.ranks, topology.leaders
    places = ranks.tell(plan(table) if table is not None else None)
    n_bytes = max(place.at + place.n_bytes for place in places)
    on_host = HostMemory(topology, "the table", "give the job more memory per host")
    ranks.agree("having memory for the table", lambda: on_host.reserve(n_bytes) if leaders is not None else None)
    memory = on_host.map(n_bytes)
    if leaders is not None:
        if table is not None:
            for place, (_, array) in zip(places, table.arrays(), strict=True):
                memory[place.at : place.at + place.n_bytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        leaders.copy(memory)
    crc = ranks.agree("checking the table", lambda: crc32(memory.data) if leaders is not None else None)
    expected = ranks.tell(crc)

    def compare() -> None:
        if crc is not None and crc != expected:
            raise ClusterError(f"the table was damaged on its way: CRC-32 found {crc:08x}, expected {expected:08x}")

    ranks.agree("comparing the table", compare)
    if not topology.holds:
        return None
    memory.flags.writeable = False
    return laid_out(memory, places)
