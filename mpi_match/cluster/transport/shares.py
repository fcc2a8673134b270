"""A host's cores and GPUs, divided among the workers on it.  Pure: every worker computes the same from the same list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from mpi_match.cluster.options import ClusterError

LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""Where launchers tell a rank its number on its host: Open MPI's mpirun, MPICH's and Intel's mpiexec, srun."""


def local_ranks_in(environment: Mapping[str, str]) -> dict[str, int]:
    """What launchers said of this process's number on its host, by LOCAL_RANKS; not all of it is true."""
    found = {name: environment.get(name, "") for name in LOCAL_RANKS}
    return {name: int(value) for name, value in found.items() if value.isdecimal()}


def places_on_host(told: Sequence[Mapping[str, int]]) -> list[int]:
    """The place of each rank of a host, 0, 1, ..., when rank i, in the order of the world, was told `told[i]`.

    Places follow the launcher's numbers, by which it also binds ranks to cores.  Each launcher numbers in its own way, so
    one source has to serve all ranks of the host: the innermost launcher that gave every rank a number of its own.  One
    that did not is further out: in a Slurm allocation mpirun starts one task on each host, so that all ranks there
    inherit SLURM_LOCALID=0.  Without any, places follow the order of the world.
    """
    numbers: list[int | None] = []
    for name in LOCAL_RANKS:
        numbers = [each.get(name) for each in told]
        if None not in numbers and len(set(numbers)) == len(told):
            ordered = sorted(number for number in numbers if number is not None)
            return [ordered.index(number) for number in numbers if number is not None]
    return list(range(len(told)))


def thread_share(worker: int, cores: Sequence[frozenset[int]]) -> int:
    """CPU threads for `worker`, when worker i of this host may run on the cores `cores[i]`; at least 1.

    A core that k workers may use counts 1/k for each, so ranks bound to cores of their own get those and unbound
    ranks an even share.  The master is no part of it: it mostly waits.
    """
    return max(1, int(_fair_share(worker, cores)))


def has_own_core(rank: int, cores: Sequence[frozenset[int]]) -> bool:
    """May `rank` keep a core busy, when rank i of this host may run on the cores `cores[i]`?"""
    return _fair_share(rank, cores) >= 1


def device_share(worker: int, environment: Mapping[str, str], gpu_map: Sequence[int] | None = None) -> int:
    """GPU number, among those that the process sees, for a host's worker number `worker`.

    `gpu_map`, if given, has it for workers 0, 1, ...; raises ClusterError when it ends before `worker`.  A launcher that
    shows each task its own GPU (Slurm's --gpus-per-task) shows one, which is then number 0 for all of them.
    """
    if gpu_map is not None:
        if worker >= len(gpu_map):
            raise ClusterError(
                f"--gpu-map has GPUs for {len(gpu_map)} workers of a host, but there are more here; name one for each", 2
            )
        return gpu_map[worker]
    visible = [each for each in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    return worker % len(visible) if visible else worker


def shared_gpu(gpus: Sequence[tuple[str, str | None]]) -> str | None:
    """What is wrong when workers 1, 2, ... have these hosts and GPUs (UUIDs, None for a CPU); None if no two share one."""
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
