"""Whether a launcher started this process as one of several ranks, from the environment alone, without starting MPI.

Two mistakes are to be avoided.  Starting MPI in a process without a launcher loads a library that may be missing, or that
waits for a server that is.  And *not* noticing that N processes were started, each as a world of one rank: N times the same
run, one output file, exit code 0.  That happens when `srun` speaks another PMI than the MPI library.

SLURM_NTASKS alone says nothing: `salloc` and `sbatch` set it in a shell where one process runs.  A *step* is what srun
starts; the numbers from 0xFFFFFFF0 on are Slurm's own steps (the batch script, an interactive shell), and those are
not launched ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mpi_match.environment.mpi_launcher import RANK_VARIABLES

_FIRST_OWN_STEP = 0xFFFFFFF0


class LaunchedBy(NamedTuple):
    """The launcher of this process, the number of ranks (None: unknown) and the number of this one (None: unknown)."""

    by: str
    size: int | None
    rank: int | None


def found_in(environment: Mapping[str, str]) -> LaunchedBy | None:
    """The launch described by the environment, or None when this process was started by hand."""
    for by, size_name, rank_name, _ in RANK_VARIABLES:
        size, rank = (_number(environment.get(name or "")) for name in (size_name, rank_name))
        if by == "srun" and not _is_step(environment):
            continue
        if size is not None or (size_name is None and rank is not None):
            return LaunchedBy(by, size, rank)
    return None


def singleton_refusal(launch: LaunchedBy) -> str | None:
    """The error message when MPI has a world of one rank although `launch` has several; None when there is no error."""
    if launch.size is None or launch.size == 1:
        return None
    other = "and the MPI library of mpi4py are not of one installation; use the one beside this Python"
    cure = {
        "srun": "use srun --mpi=pmix (Open MPI), srun --mpi=pmi2 (MPICH), or mpirun inside the allocation",
        "mpirun": f"this mpirun {other}",
        "mpiexec": f"this mpiexec {other}",
    }[launch.by]
    return f"{launch.by} started {launch.size} processes, but each finds itself alone (MPI world size 1): {cure}"


def survives_deaths(environment: Mapping[str, str]) -> bool:
    """Was the job started with MPI's fault tolerance, Open MPI's `mpirun --with-ft ulfm`?"""
    return environment.get("OMPI_MCA_mpi_ft_enable", "0").lower() in ("1", "true")


def _is_step(environment: Mapping[str, str]) -> bool:
    step = _number(environment.get("SLURM_STEP_ID"))
    return step is not None and step < _FIRST_OWN_STEP


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
