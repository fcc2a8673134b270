"""The command line as one rank of several, of which one dies or is stopped before MPI has started.

    python -m mpi4py faulty_start.py RANK SIGNAL SECONDS run --table ...

Rank RANK gets SIGNAL at once when SECONDS is `before`, else so many seconds after it has begun to start MPI.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from mpi_match.cli.main import main
from mpi_match.cluster.transport import initialize
from mpi_match.cluster.transport.launcher import found_in


def _after_a_signal(extension: Callable[[], str], number: int, seconds: str) -> Callable[[], str]:
    def later() -> str:
        line, null = f"sleep {seconds}; kill -{number} {os.getpid()}", subprocess.DEVNULL
        subprocess.Popen(["sh", "-c", line], start_new_session=True, stdin=null, stdout=null, stderr=null)
        return extension()

    return later


if __name__ == "__main__":
    rank, number, when, *arguments = sys.argv[1:]
    launch = found_in(os.environ)
    if launch is not None and launch.rank == int(rank):
        if when == "before":
            os.kill(os.getpid(), int(number))
        else:
            initialize._extension = _after_a_signal(initialize._extension, int(number), when)
    sys.argv[1:] = arguments
    main()
