"""The launcher of MPI jobs: where it is and what it wants to be told, for commands that start runs themselves, and in which
variables launchers tell ranks who they are.

`launch/` starts runs for people, in the shell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_OPEN_MPI = ("Open MPI", "OpenRTE", "PRRTE")
_LOCAL_FLAGS = ("--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "vader,tcp,self")
"""For Open MPI on one host: more ranks than cores, none of them bound; shared memory, without a search for fabrics."""


class RankVariables(NamedTuple):
    """Where a launcher tells a process of how many ranks it is one, as which, and as which on its host; None: nowhere."""

    by: str
    size: str | None
    rank: str
    local_rank: str | None


RANK_VARIABLES = (
    RankVariables("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    RankVariables("mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"),  # MPICH, Intel; also srun --mpi=pmi2
    RankVariables("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
    RankVariables("a PMIx launcher", None, "PMIX_RANK", None),  # only MPI knows the size
)
"""Innermost first, since each launcher leaves its variables to what it starts: under mpirun inside a Slurm job SLURM_LOCALID
is 0 for every rank, and what mpirun itself set is right."""
LOCAL_RANK_VARIABLES = tuple(each.local_rank for each in RANK_VARIABLES if each.local_rank is not None)


class LaunchError(Exception):
    """Ranks cannot be launched, or those that were have failed; the text says why."""


def find() -> str | None:
    """The launcher to use: MPIRUN in the environment, the one beside this Python (a wheel's), else PATH's; None: none."""
    beside = Path(sys.executable).with_name("mpirun")
    here = str(beside) if beside.exists() else None
    return os.environ.get("MPIRUN") or here or shutil.which("mpirun") or shutil.which("mpiexec")


@cache
def version() -> str:
    """What the launcher says that it is, in one line.  Raises LaunchError when there is none, or it does not start."""
    launcher = find()
    if launcher is None:
        raise LaunchError("no mpirun beside this Python or in PATH; `mpi-match doctor` says how to get one")
    try:
        done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"{launcher} --version failed ({error}); set MPIRUN to a launcher that works") from error
    return next((line.strip() for line in done.stdout.splitlines() if line.strip()), "unknown")


def command(n_ranks: int, flags: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The words that start `mpi-match` with `arguments` as so many ranks; `flags` are for the launcher.

    Without any, those of Open MPI for one host are used.  Raises LaunchError.
    """
    told = list(flags)
    if any(name in version() for name in _OPEN_MPI):
        told = [*(told or _LOCAL_FLAGS), *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return [find() or "", *told, "-n", str(n_ranks), sys.executable, "-m", "mpi4py", "-m", "mpi_match", *arguments]
