"""Finds the ranks that share a host, and divides its cores and GPUs among the workers on it.

The division is a pure function: every worker computes the same from the same list.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.transport.launcher import found_in
from mpi_match.environment import source_digest
from mpi_match.environment.mpi_launcher import LOCAL_RANK_VARIABLES

if TYPE_CHECKING:
    from mpi_match.cluster.transport.collectives import RankGroup  # which loads MPI

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Topology:
    """The place of a rank on its host and in the job.

    ranks, node, leaders  all ranks; those of this host; one rank of each host (None on the others).  For data that only some
                          ranks hold, `node` and `leaders` are restricted to those (`among`), and None on the others
    threads               this worker's share of its host's cores (meaningless on the master)
    number                this worker's among those of its host, in the order of their local ranks; it selects the GPU
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
        """Tells whether this is the rank that fetches data shared on its host."""
        return self.leaders is not None

    @property
    def holds(self) -> bool:
        """Tells whether this rank holds the data."""
        return self.node is not None

    def among(self, holds: bool) -> Topology:
        """The topology of the ranks that hold some data, as `holds` says; all ranks call it."""
        holders = self.ranks.parted(0 if holds else None)
        if holders is None:
            return replace(self, node=None, leaders=None)
        node = holders.on_host()
        return replace(self, node=node, leaders=holders.parted(0 if node.rank == 0 else None))

    @classmethod
    def find(cls, ranks: RankGroup) -> Topology:
        """Gather it from all ranks.  Raises Ended when they do not run the same program."""
        _check_same_program(ranks)
        node = ranks.on_host()
        leaders = ranks.parted(0 if node.rank == 0 else None)
        here = node.gather((ranks.rank, frozenset(os.sched_getaffinity(0)), local_ranks_in(os.environ)))
        cores = [each for _, each, _ in here]
        workers = [each for rank, each, _ in here if rank]
        before = sum(rank > 0 for rank, _, _ in here[: node.rank])
        threads = int(os.environ.get("NUMBA_NUM_THREADS", 0)) or (thread_share(before, workers) if ranks.rank else 1)
        places = places_on_host([numbers for _, _, numbers in here])
        _warn_of_binding(ranks, bound_host(socket.gethostname(), workers, launcher_cores(), os.environ))
        number = sum(rank > 0 and place < places[node.rank] for (rank, _, _), place in zip(here, places, strict=True))
        return cls(ranks, node, leaders, threads, number, has_own_core(node.rank, cores))


class BoundHost(NamedTuple):
    """A host whose workers may use few of its cores, `n_used` of `n_cores`."""

    name: str
    n_used: int
    n_cores: int


def bound_host(
    name: str, workers: Sequence[frozenset[int]], cores: frozenset[int], environment: Mapping[str, str]
) -> BoundHost | None:
    """This host, if Open MPI's mpirun lets its workers use half of its cores or less; None otherwise.

    `workers` are the cores that each may use, `cores` those of the launcher.  None, too, if NUMBA_NUM_THREADS is set: the
    user has decided.
    """
    used, launch = frozenset[int]().union(*workers), found_in(environment)
    by_mpirun = launch is not None and launch.by == "mpirun" and "NUMBA_NUM_THREADS" not in environment
    return BoundHost(name, len(used), len(cores)) if by_mpirun and 0 < 2 * len(used) <= len(cores) else None


def launcher_cores() -> frozenset[int]:
    """The cores of the nearest process above this one that may use others; those of this process if there is none.

    A launcher binds its ranks and not itself, and a shell between them is bound as they are.
    """
    own = found = frozenset(os.sched_getaffinity(0))
    pid = os.getpid()
    with suppress(OSError, ValueError):
        while found == own and pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found = frozenset(os.sched_getaffinity(pid)) if pid else own
    return found


def _warn_of_binding(ranks: RankGroup, here: BoundHost | None) -> None:
    """Have the master warn if the workers of any host are bound to few of its cores."""
    bound = sorted({each for each in ranks.gather(here) if each is not None})
    if bound and ranks.rank == 0:
        name, n_used, n_cores = bound[0]
        others = f" (and {len(bound) - 1} more hosts are alike)" if len(bound) > 1 else ""
        log.warning(
            "the workers of %s may use %d of its %d cores%s: mpirun binds every rank; mpirun --bind-to none does not",
            *(name, n_used, n_cores, others),
        )


def _check_same_program(ranks: RankGroup) -> None:
    """Raise an error if ranks run different versions of this package: they would read the same bytes differently."""
    programs = ranks.gather((source_digest.digest(), socket.gethostname()))

    def compare() -> None:
        others = Counter(host for digest, host in programs if digest != programs[0][0])
        if others:
            where = ", ".join(sorted(others))
            raise ClusterError(
                f"{where} and {programs[0][1]} have different versions of mpi_match; install one everywhere", 5
            )

    ranks.agree("comparing versions", compare)


def local_ranks_in(environment: Mapping[str, str]) -> dict[str, int]:
    """The local rank of this process by each of LOCAL_RANK_VARIABLES that is set; not all of them are right."""
    found = {name: environment.get(name, "") for name in LOCAL_RANK_VARIABLES}
    return {name: int(value) for name, value in found.items() if value.isdecimal()}


def places_on_host(local_ranks: Sequence[Mapping[str, int]]) -> list[int]:
    """The place of each rank of a host, 0, 1, ..., from the local ranks of each (`local_ranks_in`), in world order.

    Places follow the launcher's numbers, by which it also binds ranks to cores.  Each launcher numbers in its own way, so
    one source has to serve all ranks of the host: the innermost launcher that gave every rank a number of its own.  One
    that did not is further out: in a Slurm allocation mpirun starts one task on each host, so that all ranks there
    inherit SLURM_LOCALID=0.  Without any, places follow the order of the world.
    """
    numbers: list[int | None] = []
    for name in LOCAL_RANK_VARIABLES:
        numbers = [each.get(name) for each in local_ranks]
        if None not in numbers and len(set(numbers)) == len(local_ranks):
            ordered = sorted(number for number in numbers if number is not None)
            return [ordered.index(number) for number in numbers if number is not None]
    return list(range(len(local_ranks)))


def thread_share(worker: int, cores: Sequence[frozenset[int]]) -> int:
    """CPU threads for `worker`, when worker i of this host may run on the cores `cores[i]`; at least 1.

    A core that k workers may use counts 1/k for each, so ranks bound to cores of their own get those and unbound
    ranks an even share.  The master gets none: it mostly waits.
    """
    return max(1, int(_fair_share(worker, cores)))


def has_own_core(rank: int, cores: Sequence[frozenset[int]]) -> bool:
    """Tells whether `rank` may keep a core busy, when rank i of this host may run on the cores `cores[i]`."""
    return _fair_share(rank, cores) >= 1


def device_share(
    worker: int, environment: Mapping[str, str], gpu_map: Sequence[int] | None = None, n_gpus: int | None = None
) -> int:
    """GPU number, among those that the process sees, for a host's worker number `worker`.

    `n_gpus`, if given, is their number, in case CUDA_VISIBLE_DEVICES does not limit them: worker `n_gpus` has the first
    again.

    `gpu_map`, if given, lists the numbers for workers 0, 1, ...; raises ClusterError when it ends before `worker`.  A
    launcher that shows each task its own GPU (Slurm's --gpus-per-task) shows one, which is then number 0 for all of them.
    """
    if gpu_map is not None:
        if worker >= len(gpu_map):
            raise ClusterError(
                f"--gpu-map has GPUs for {len(gpu_map)} workers of a host, but there are more here; name one for each", 2
            )
        return gpu_map[worker]
    visible = [each for each in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    return worker % (len(visible) or n_gpus or worker + 1)


def shared_gpu(gpus: Sequence[tuple[str, str | None]]) -> str | None:
    """The error message if two of the workers 1, 2, ..., with these hosts and GPUs (UUIDs, None for a CPU), share a GPU;
    else None."""
    first: dict[str, int] = {}
    for rank, (host, gpu) in enumerate(gpus, 1):
        if gpu is not None and first.setdefault(gpu, rank) != rank:
            return (
                f"ranks {first[gpu]} and {rank} are on the same GPU of {host} ({gpu}), which makes each half as fast; start "
                "fewer workers there, let CUDA_VISIBLE_DEVICES show more GPUs, or allow it with --share-gpus"
            )
    return None


def _fair_share(rank: int, cores: Sequence[frozenset[int]]) -> Fraction:
    return sum((Fraction(1, sum(core in others for others in cores)) for core in cores[rank]), Fraction(0))
