"""Files for launchers that are in the package: scripts, hostfiles, recipes for containers.

    the project's tree                in an installation
    launch/slurm.sbatch               mpi_match/launch/slurm.sbatch
    hostfiles/two-hosts.openmpi       mpi_match/hostfiles/two-hosts.openmpi

In the tree `mpi_match/launch` and `mpi_match/hostfiles` are links, so there is one copy.  A script there sources
`mpi-env.sh` beside it; a printed script includes that text, and the path of the interpreter that printed it, so that it runs
from any directory.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import mpi_match

FILES = {
    "slurm": "launch/slurm.sbatch",
    "local": "launch/local.sh",
    "hosts": "launch/mpirun.sh",
    "hostfile-openmpi": "hostfiles/two-hosts.openmpi",
    "hostfile-mpich": "hostfiles/two-hosts.mpich",
    "docker": "launch/Dockerfile",
    "apptainer": "launch/apptainer.def",
}
"""Name and place of each file that can be used without the project's tree."""

_SHARED = "launch/mpi-env.sh"
_SOURCED = re.compile(r"^# shellcheck source=launch/mpi-env\.sh\nsource .*\n", re.MULTILINE)


class LaunchFile(NamedTuple):
    """The name of a file, and the first sentence of the comment at its head."""

    name: str
    about: str


def launch_files() -> list[LaunchFile]:
    """All files of FILES."""
    return [LaunchFile(name, _about(_read(place))) for name, place in FILES.items()]


def launch_file(name: str, python: str = sys.executable) -> str:
    """Text of the file `name`, one of FILES, complete in itself; ranks run the interpreter `python`."""
    text = _read(FILES[name])
    shared = _read(_SHARED).removeprefix("# shellcheck shell=bash\n")
    whole = f"MPI_MATCH_PYTHON=${{MPI_MATCH_PYTHON:-{shlex.quote(python)}}}\n{shared}"
    return _SOURCED.sub(lambda _: whole, text)


def _read(place: str) -> str:
    return (Path(mpi_match.__file__).parent / place).read_text(encoding="utf-8")


def _about(text: str) -> str:
    first = next(line for line in text.splitlines() if line.startswith("# "))
    return re.split(r"\.(?: |$)", first.removeprefix("# "))[0]
