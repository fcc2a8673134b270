"""The launcher of MPI jobs: where it is and what it wants to be told, for commands that start runs themselves, and in which
variables launchers tell ranks who they are.

`launch/` starts runs for people, in the shell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

_OPEN_MPI = ("Open MPI", "OpenRTE", "PRRTE")
_LOCAL_FLAGS = ("--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "vader,self")
"""For Open MPI on one host: more ranks than cores, none of them bound; shared memory, without a search for fabrics and
without ports of ranks that others can reach."""
_LOCAL_FLAGS_OF_HYDRA = ("-iface", "lo", "-genv", "UCX_TLS", "sm,self")
"""The same for MPICH, and for Intel MPI, which knows no UCX and ignores the last."""
_SHARED_MEMORY = Path("/dev/shm")


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

    Without any, those for one host are used.  Raises LaunchError.
    """
    if any(name in version() for name in _OPEN_MPI):
        told = [*(flags or _LOCAL_FLAGS), *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    else:
        told = list(flags or _LOCAL_FLAGS_OF_HYDRA)
    return [find() or "", *told, "-n", str(n_ranks), sys.executable, "-m", "mpi4py", "-m", "mpi_match", *arguments]


@contextmanager
def own_shared_memory(*, wanted: bool = True) -> Iterator[dict[str, str]]:
    """Variables for ranks of this host, by which Open MPI keeps their shared memory in a directory that is removed behind
    the block; none if it is not `wanted`.  Each rank has 16 MiB there, and those that are killed leave theirs.
    """
    if not (wanted and _SHARED_MEMORY.is_dir()):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="mpi-match.", dir=_SHARED_MEMORY, ignore_cleanup_errors=True) as directory:
        yield {f"OMPI_MCA_btl_{name}_backing_directory": directory for name in ("sm", "vader")}  # in 5, in 4.1
