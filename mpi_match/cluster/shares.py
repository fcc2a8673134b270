"""A host's cores and GPUs, divided among the workers on it.  Pure: every worker computes the same from the same list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction


def thread_share(worker: int, cores: Sequence[frozenset[int]]) -> int:
    """CPU threads for `worker`, when worker i of this host may run on the cores `cores[i]`; at least 1.

    A core that k workers may use counts 1/k for each, so ranks bound to cores of their own get those and unbound
    ranks an even share.  The master is no part of it: it mostly waits.
    """
    return max(1, int(_fair_share(worker, cores)))


def has_own_core(rank: int, cores: Sequence[frozenset[int]]) -> bool:
    """May `rank` keep a core busy, when rank i of this host may run on the cores `cores[i]`?"""
    return _fair_share(rank, cores) >= 1


def device_share(worker: int, environment: Mapping[str, str]) -> int:
    """GPU number, among those that the process sees, for a host's worker number `worker`.

    A launcher that shows each task its own GPU (Slurm's --gpus-per-task) shows one, which is then number 0 for all of them.
    """
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
