"""The exit report of a run: the exit code of its rank 0, in a file that the program that started the run reads.

The exit code of a launcher may be another.  Once a rank has failed, `srun --kill-on-bad-exit` sends SIGTERM to the others
and ends with 143, as after the loss of a node.

    4 full      the exit code, and `full` when a disk was: a new start would end in the same way

If rank 0 was killed or interrupted, there is no report.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mpi_match.cluster.transport.launcher import found_in
from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode

EXIT_REPORT = "MPI_MATCH_EXIT_REPORT"
"""Environment variable with the path of the file; without it none is written."""
_FULL = "full"


class ExitReport(NamedTuple):
    """The exit code of rank 0, and whether it stands for a full disk."""

    code: int
    full: bool


def write_exit_report(code: int, error: BaseException | None) -> None:
    """Write the exit report of this process, if it is rank 0; `error` is what it ends with.  A file system may refuse it."""
    path, launch = os.environ.get(EXIT_REPORT), found_in(os.environ)
    if path and code != ExitCode.INTERRUPTED and (launch is None or not launch.rank):
        with suppress(OSError):
            Path(path).write_text(f"{code} {_FULL if _is_of_full_disk(error) else ''}".rstrip() + "\n", encoding="ascii")


def read_exit_report(path: Path) -> ExitReport | None:
    """The exit report in a file; None when there is none."""
    try:
        code, *more = path.read_text(encoding="ascii").split()
        return ExitReport(int(code), _FULL in more)
    except (OSError, ValueError):
        return None


def _is_of_full_disk(error: BaseException | None) -> bool:
    """Tells whether a full disk caused `error`."""
    while error is not None:
        if isinstance(error, MpiMatchError) and error.disk_full:
            return True
        error = error.__cause__ or error.__context__
    return False
