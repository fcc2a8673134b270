"""The launcher of MPI jobs: its path and flags, for commands that start runs themselves, and the environment variables with
the numbers of ranks.

Users start runs with the scripts in `launch/`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode

_OPEN_MPI = ("Open MPI", "OpenRTE", "PRRTE")
_LOCAL_FLAGS = ("--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "vader,self")
"""For Open MPI on one host: more ranks than cores, none of them bound; shared memory, without a search for fabrics and
without ports of ranks that others can reach."""
_LOCAL_FLAGS_OF_HYDRA = ("-iface", "lo", "-genv", "UCX_TLS", "sm,self")
"""The same for MPICH, and for Intel MPI, which does not use UCX and ignores the last variable."""
_SHARED_MEMORY = Path("/dev/shm")


LAUNCHERS = ("mpirun", "srun", "sbatch")


class RankVariables(NamedTuple):
    """The variables of a launcher `by` for the number of ranks, the rank and the local rank; None: it sets none."""

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
"""The launchers, innermost first, because processes inherit the variables of outer launchers: under mpirun inside a Slurm
job SLURM_LOCALID is 0 for every rank, and the variables of mpirun are right."""
LOCAL_RANK_VARIABLES = tuple(each.local_rank for each in RANK_VARIABLES if each.local_rank is not None)


class LaunchError(MpiMatchError):
    """Ranks cannot be launched, or have failed; the text says why."""

    exit_code = ExitCode.ENVIRONMENT


def find() -> str | None:
    """The launcher to use: MPIRUN in the environment, the one beside this Python (a wheel's), else PATH's; None: none."""
    beside = Path(sys.executable).with_name("mpirun")
    here = str(beside) if beside.exists() else None
    return os.environ.get("MPIRUN") or here or shutil.which("mpirun") or shutil.which("mpiexec")


@cache
def version() -> str:
    """The launcher's version: the first line of its description that has a number.

    Raises LaunchError when there is none, or it does not start.
    """
    launcher = find()
    if launcher is None:
        raise LaunchError("no mpirun beside this Python or in PATH; `mpi-match doctor` says how to get one")
    try:
        done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"{launcher} --version failed ({error}); {cure_of(launcher)}") from error
    return next((line.strip() for line in done.stdout.splitlines() if any(map(str.isdigit, line))), "unknown")


def cure_of(launcher: str) -> str:
    """The advice for a launcher that fails to start."""
    directory, path = str(Path(launcher).parent), os.environ.get("PATH", "").split(os.pathsep)
    # Intel MPI's mpirun is a script that looks in PATH for its own launcher.
    if os.sep in launcher and Path(launcher).exists() and directory not in path:
        return (
            f"Intel MPI needs its directory in PATH (export PATH={directory}:$PATH); or set MPIRUN to a launcher that works"
        )
    return "set MPIRUN to a launcher that works"


def is_open_mpi() -> bool:
    """Tells whether the launcher is Open MPI's.  Raises LaunchError."""
    return any(name in version() for name in _OPEN_MPI)


def command(n_ranks: int, flags: Sequence[str], arguments: Sequence[str], *, local: bool = False) -> list[str]:
    """The command that starts `mpi-match` with `arguments` on `n_ranks` ranks; `flags` are for the launcher.

    Without `flags`, and before them when the run is `local`, those for one host are used.  Raises LaunchError.
    """
    of_this_host = _LOCAL_FLAGS if is_open_mpi() else _LOCAL_FLAGS_OF_HYDRA
    used = [*(of_this_host if local or not flags else ()), *flags]
    if is_open_mpi() and os.geteuid() == 0:
        used.append("--allow-run-as-root")
    return [find() or "", *used, "-n", str(n_ranks), sys.executable, "-m", "mpi4py", "-m", "mpi_match", *arguments]


def slurm_command(n_ranks: int, flags: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The same by `srun`, in an allocation or for one of its own; without `flags`, with the PMI of this MPI.

    Raises LaunchError.
    """
    if shutil.which("srun") is None:
        raise LaunchError("there is no srun in PATH")
    pmi = "pmix" if is_open_mpi() else "pmi2"
    used = flags or (f"--mpi={pmi}",)
    return ["srun", f"--ntasks={n_ranks}", *used, sys.executable, "-m", "mpi4py", "-m", "mpi_match", *arguments]


def batch_command(n_ranks: int, flags: Sequence[str], arguments: Sequence[str], log: Path) -> list[str]:
    """The command that submits the same to Slurm and waits for its end; `flags` are for `sbatch`.

    Standard output and error are in `log` and in that name with ".err".  Raises LaunchError.
    """
    if shutil.which("sbatch") is None:
        raise LaunchError("there is no sbatch in PATH")
    files = (f"--output={log}", f"--error={log}.err")
    job = f"exec {shlex.join(slurm_command(n_ranks, (), arguments))}"
    return ["sbatch", "--wait", f"--ntasks={n_ranks}", *files, *flags, "--wrap", job]


@contextmanager
def own_shared_memory(*, wanted: bool = True) -> Iterator[dict[str, str]]:
    """Environment variables with which Open MPI keeps the shared memory of ranks of this host in a directory that is removed
    after the block; none if it is not `wanted`.  Each rank has 16 MiB there, which a killed rank does not remove.
    """
    if not (wanted and _SHARED_MEMORY.is_dir()):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="mpi-match.", dir=_SHARED_MEMORY, ignore_cleanup_errors=True) as directory:
        yield {f"OMPI_MCA_btl_{name}_backing_directory": directory for name in ("sm", "vader")}  # in 5, in 4.1
