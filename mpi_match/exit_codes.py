"""How a process ends: the exit codes of `mpi-match`, of its ranks, and of the Spark jobs."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; `supervise` reads those of a run, and a shell those of every command."""

    OK = 0
    """Done and, where the command verifies, verified."""
    FAILURE = 1
    """Something failed that is none of the others: a full disk, a lost rank, a wrong answer, a closed standard output."""
    USAGE = 2
    """The command line is wrong."""
    BAD_INPUT = 3
    """An input is missing, damaged, of another format version, or holds nothing usable."""
    INCOMPLETE = 4
    """Some answers are missing; the run can be resumed."""
    ENVIRONMENT = 5
    """The machine lacks something: MPI, a GPU, Java."""
    INTERRUPTED = 130
    """SIGINT or SIGTERM."""
