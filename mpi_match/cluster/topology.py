"""Which ranks share a host, and what of the host each worker may use."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass, replace

from mpi4py import MPI

from mpi_match import program
from mpi_match.cluster import ClusterError
from mpi_match.cluster.consensus import agree, meet
from mpi_match.cluster.shares import has_own_core, local_ranks_in, places_on_host, thread_share


@dataclass(frozen=True)
class Topology:
    """A rank's place.

    comm, node, leaders   all ranks; those of this host; one rank of each host (COMM_NULL on the others).  Of what only some
                          ranks hold, `node` and `leaders` are those among them (`among`), and COMM_NULL on the others
    threads               this worker's share of its host's cores (meaningless on the master)
    number                this worker's among those of its host, in the order of their local ranks: who gets which GPU
    own_core              whether this rank may keep a core busy without taking it from another
    """

    comm: MPI.Comm
    node: MPI.Comm
    leaders: MPI.Comm
    threads: int
    number: int
    own_core: bool

    @property
    def leads_node(self) -> bool:
        """Is this the rank of its host that fetches what the host has once?"""
        return self.holds and bool(self.node.rank == 0)

    @property
    def holds(self) -> bool:
        """Is this one of the ranks that hold it?"""
        return bool(self.node != MPI.COMM_NULL)

    def among(self, holds: bool) -> Topology:
        """The same for what only those ranks hold that say so; all ranks call it."""
        holders = self.comm.Split(0 if holds else MPI.UNDEFINED, key=self.comm.rank)
        if holders == MPI.COMM_NULL:
            return replace(self, node=MPI.COMM_NULL, leaders=MPI.COMM_NULL)
        node = holders.Split_type(MPI.COMM_TYPE_SHARED, key=holders.rank)
        return replace(self, node=node, leaders=holders.Split(0 if node.rank == 0 else MPI.UNDEFINED, key=holders.rank))

    @classmethod
    def find(cls, comm: MPI.Comm) -> Topology:
        """Ask all ranks.  Raises Ended when they do not run the same program."""
        meet(comm)
        _check_same_program(comm)
        node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        leaders = comm.Split(0 if node.rank == 0 else MPI.UNDEFINED, key=comm.rank)
        ranks = node.allgather((comm.rank, frozenset(os.sched_getaffinity(0)), local_ranks_in(os.environ)))
        cores = [each for _, each, _ in ranks]
        workers = [each for rank, each, _ in ranks if rank]
        before = sum(rank > 0 for rank, _, _ in ranks[: node.rank])
        threads = int(os.environ.get("NUMBA_NUM_THREADS", 0)) or (thread_share(before, workers) if comm.rank else 1)
        places = places_on_host([told for _, _, told in ranks])
        number = sum(rank > 0 and place < places[node.rank] for (rank, _, _), place in zip(ranks, places, strict=True))
        return cls(comm, node, leaders, threads, number, has_own_core(node.rank, cores))


def _check_same_program(comm: MPI.Comm) -> None:
    """Ranks with another version of this package would read the same bytes differently."""
    programs = comm.allgather((program.digest(), socket.gethostname()))

    def compare() -> None:
        others = Counter(host for digest, host in programs if digest != programs[0][0])
        if others:
            where = ", ".join(sorted(others))
            raise ClusterError(
                f"{where} and {programs[0][1]} have different versions of mpi_match; install one everywhere", 5
            )

    agree(comm, compare)
