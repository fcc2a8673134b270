"""Determines from the environment alone, without starting MPI, whether a launcher started this process as one of several
ranks.

It avoids two mistakes.  Starting MPI in a process without a launcher loads a library that may be missing, or that waits for
a missing server.  If nothing noticed that N processes were started, each as a world of one rank, the same run would happen N
times, with one output file and exit code 0.  That happens when `srun` speaks another PMI than the MPI library.

SLURM_NTASKS alone proves nothing: `salloc` and `sbatch` set it in a shell where one process runs.  A *step* is what srun
starts; the numbers from 0xFFFFFFF0 on are Slurm's own steps (the batch script, an interactive shell), and those are
not launched ranks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
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


class Library(NamedTuple):
    """The MPI library that mpi4py has loaded: its own description, and whether it can speak PMIx."""

    description: str
    has_pmix: bool

    @property
    def name(self) -> str:
        """The name of the MPI, such as "Open MPI"."""
        return next((name for words, name in _LIBRARIES.items() if words in self.description), "another MPI")


_LIBRARIES = {"Open MPI": "Open MPI", "Intel(R) MPI": "Intel MPI", "MVAPICH": "MVAPICH", "MPICH": "MPICH"}
_NEEDS_PMIX = re.compile(r"Open MPI v(?:[5-9]|\d\d)\.")
"""Tells whether the library may speak PMI-2: Open MPI 4 may have been built with it."""


def mismatch(launch: LaunchedBy, library: Library, environment: Mapping[str, str]) -> str | None:
    """The error message when this library does not start under this launcher; None when it may.

    MPICH ends the process in MPI_Init when it finds PMIx and was built without; Open MPI 5 knows nothing else.
    """
    by_srun = _by_srun(launch, environment)
    pmix, pmi = "PMIX_RANK" in environment, "PMI_RANK" in environment
    if (pmix or launch.by == "mpirun") and library.name != "Open MPI" and not library.has_pmix:
        return _wrong_launcher(library, by_srun, "Open MPI's mpirun")
    if pmi and not pmix and _NEEDS_PMIX.match(library.description):
        return _wrong_launcher(library, by_srun, "the launcher of MPICH or Intel MPI")
    return None


def singleton_refusal(launch: LaunchedBy, library: Library, environment: Mapping[str, str]) -> str | None:
    """The error message when MPI has a world of one rank although `launch` has several; None otherwise."""
    if launch.size is None or launch.size == 1:
        return None
    by_srun = _by_srun(launch, environment)
    cure = _wrong_launcher(library, by_srun, f"the {launch.by} of another installation")
    by = "srun" if by_srun else launch.by
    return f"{by} started {launch.size} processes, but each finds itself alone (MPI world size 1): {cure}"


def _wrong_launcher(library: Library, by_srun: bool, what: str) -> str:
    """The fault and its cure: the PMI that srun must speak, or the launcher that belongs to the library."""
    if by_srun:
        pmi = "pmix" if library.name == "Open MPI" else "pmi2"
        return f"mpi4py has loaded {library.name}: use srun --mpi={pmi}, or mpirun inside the allocation"
    beside = Path(sys.executable).with_name("mpirun")
    where = f" ({beside})" if beside.exists() else ""
    return (
        f"this is {what}, and mpi4py has loaded {library.name}: start the run with the mpirun of {library.name}{where}, "
        "or use a Python whose mpi4py loads the launcher's MPI"
    )


def _by_srun(launch: LaunchedBy, environment: Mapping[str, str]) -> bool:
    """Tells srun from other launchers.  With PMI-2 it sets the variables of mpiexec, which uses srun to reach hosts."""
    numbers = tuple(_number(environment.get(name)) for name in ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"))
    return launch.by != "mpirun" and _is_step(environment) and numbers == (launch.size, launch.rank)


def survives_deaths(environment: Mapping[str, str]) -> bool:
    """Tells whether the job was started with MPI's fault tolerance, Open MPI's `mpirun --with-ft ulfm`."""
    return environment.get("OMPI_MCA_mpi_ft_enable", "0").lower() in ("1", "true")


def _is_step(environment: Mapping[str, str]) -> bool:
    step = _number(environment.get("SLURM_STEP_ID"))
    return step is not None and step < _FIRST_OWN_STEP


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
