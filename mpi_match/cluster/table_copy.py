"""The table, from the master's memory to one copy on every host.

    master  ──Bcast over one rank per host──►  leader of host 1: memory file ◄─ mapped read-only by the host's other ranks
                                               leader of host 2: memory file ◄─ ...

No rank but the master needs the file, and a host with eight workers holds the arrays once.  The memory has no name in
any file system (memfd), so it is gone with the last process that has it mapped, however that ends, and no limit of
/dev/shm applies.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array
from mpi_match.cluster import ClusterError
from mpi_match.cluster.channel import pieces
from mpi_match.cluster.consensus import agree, meet
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
    memory = _host_memory(topology, n_bytes)
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


def _host_memory(topology: Topology, n_bytes: int) -> Array:
    """u8[n_bytes], the same memory on all ranks of a host; the leader alone may write."""

    def create() -> int:
        if not topology.leads_node:
            return -1
        descriptor = os.memfd_create("mpi-match table")
        try:
            os.posix_fallocate(descriptor, 0, n_bytes)  # here and now, rather than a SIGBUS at the first touch
        except OSError as error:
            raise ClusterError(f"no memory for the table ({n_bytes:,} bytes): {error.strerror}") from error
        return descriptor

    descriptor = agree(topology.comm, create)
    path = topology.node.bcast(f"/proc/{os.getpid()}/fd/{descriptor}")

    def attach() -> Array:
        if topology.leads_node:
            return np.frombuffer(mmap.mmap(descriptor, n_bytes), np.uint8)
        try:
            mine = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ClusterError(
                f"cannot map the table at {path} ({error.strerror}); run the ranks of a host as one user, in one container"
            ) from error
        try:
            return np.frombuffer(mmap.mmap(mine, n_bytes, prot=mmap.PROT_READ), np.uint8)
        finally:
            os.close(mine)

    memory = agree(topology.comm, attach)
    if topology.leads_node:
        os.close(descriptor)
    return memory
