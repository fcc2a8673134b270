"""The table, from the master's memory to one copy on every host.

    master  ──Bcast over one rank per host──►  leader of host 1: memory file ◄─ mapped read-only by the host's other ranks
                                               leader of host 2: memory file ◄─ ...

No rank but the master needs the file, and a host with eight workers holds the arrays once (`host_memory`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array
from mpi_match.cluster import ClusterError
from mpi_match.cluster.channel import pieces
from mpi_match.cluster.consensus import agree, meet
from mpi_match.cluster.host_memory import HostMemory
from mpi_match.cluster.topology import Topology
from mpi_match.table import Table

ALIGNMENT = 64


class _Place(NamedTuple):
    """Where an array lies in the shared memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    at: int
    n_bytes: int


class _Views:
    """The arrays of a table as views of one memory; `Table.from_arrays` reads it like a file."""

    def __init__(self, memory: Array, places: Sequence[_Place]) -> None:
        self._memory = memory
        self._places = {place.name: place for place in places}

    def array(self, name: str) -> Array:
        place = self._places[name]
        return self._memory[place.at : place.at + place.n_bytes].view(place.dtype).reshape(place.shape)


def share_table(topology: Topology, table: Table | None) -> Table:
    """`table` (of rank 0; None elsewhere) as every rank's own, its arrays shared within each host and read-only."""
    comm = topology.comm
    places = comm.bcast(_plan(table) if table is not None else None)
    n_bytes = max(place.at + place.n_bytes for place in places)
    on_host = HostMemory(topology, "the table", "give the job more memory per host")
    agree(comm, lambda: on_host.reserve(n_bytes) if topology.leads_node else None)
    memory = on_host.map(n_bytes)
    if topology.leads_node:
        if table is not None:
            for place, (_, array) in zip(places, table.arrays(), strict=True):
                memory[place.at : place.at + place.n_bytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for piece in pieces(memory):
            topology.leaders.Bcast([piece, MPI.BYTE])
    meet(comm)
    crc = zlib.crc32(memory.data) if topology.leads_node else None
    expected = comm.bcast(crc)

    def compare() -> None:
        if crc is not None and crc != expected:
            raise ClusterError(f"the table was damaged on its way: CRC-32 found {crc:08x}, expected {expected:08x}")

    agree(comm, compare)
    memory.flags.writeable = False
    return Table.from_arrays(_Views(memory, places))


def _plan(table: Table) -> list[_Place]:
    places, at = [], 0
    for name, array in table.arrays():
        places.append(_Place(name, array.dtype.str, array.shape, at, array.nbytes))
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return places
