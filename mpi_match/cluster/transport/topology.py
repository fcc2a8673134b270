"""Which ranks share a host, and what of the host each worker may use."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass, replace

from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.transport.collectives import RankGroup
from mpi_match.cluster.transport.shares import has_own_core, local_ranks_in, places_on_host, thread_share
from mpi_match.environment import source_digest


@dataclass(frozen=True)
class Topology:
    """A rank's place.

    ranks, node, leaders  all ranks; those of this host; one rank of each host (None on the others).  Of what only some ranks
                          hold, `node` and `leaders` are those among them (`among`), and None on the others
    threads               this worker's share of its host's cores (meaningless on the master)
    number                this worker's among those of its host, in the order of their local ranks: who gets which GPU
    own_core              whether this rank may keep a core busy without taking it from another
    """

    ranks: RankGroup
    node: RankGroup | None
    leaders: RankGroup | None
    threads: int
    number: int
    own_core: bool

    @property
    def leads_node(self) -> bool:
        """Is this the rank of its host that fetches what the host has once?"""
        return self.leaders is not None

    @property
    def holds(self) -> bool:
        """Is this one of the ranks that hold it?"""
        return self.node is not None

    def among(self, holds: bool) -> Topology:
        """The same for what only those ranks hold that say so; all ranks call it."""
        holders = self.ranks.parted(0 if holds else None)
        if holders is None:
            return replace(self, node=None, leaders=None)
        node = holders.on_host()
        return replace(self, node=node, leaders=holders.parted(0 if node.rank == 0 else None))

    @classmethod
    def find(cls, ranks: RankGroup) -> Topology:
        """Ask all ranks.  Raises Ended when they do not run the same program."""
        _check_same_program(ranks)
        node = ranks.on_host()
        leaders = ranks.parted(0 if node.rank == 0 else None)
        here = node.gather((ranks.rank, frozenset(os.sched_getaffinity(0)), local_ranks_in(os.environ)))
        cores = [each for _, each, _ in here]
        workers = [each for rank, each, _ in here if rank]
        before = sum(rank > 0 for rank, _, _ in here[: node.rank])
        threads = int(os.environ.get("NUMBA_NUM_THREADS", 0)) or (thread_share(before, workers) if ranks.rank else 1)
        places = places_on_host([told for _, _, told in here])
        number = sum(rank > 0 and place < places[node.rank] for (rank, _, _), place in zip(here, places, strict=True))
        return cls(ranks, node, leaders, threads, number, has_own_core(node.rank, cores))


def _check_same_program(ranks: RankGroup) -> None:
    """Ranks with another version of this package would read the same bytes differently."""
    programs = ranks.gather((source_digest.digest(), socket.gethostname()))

    def compare() -> None:
        others = Counter(host for digest, host in programs if digest != programs[0][0])
        if others:
            where = ", ".join(sorted(others))
            raise ClusterError(
                f"{where} and {programs[0][1]} have different versions of mpi_match; install one everywhere", 5
            )

    ranks.agree("comparing versions", compare)
