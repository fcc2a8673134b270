"""The exit codes of `mpi-match`, of its ranks, and of the Spark jobs."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """Exit codes, each with its `meaning`; `supervise` reads those of a run, and a shell those of every command."""

    meaning: str

    OK = 0, "done and, where the command verifies, verified"
    FAILURE = 1, "failed, in none of the ways below: a full disk, a lost rank, a wrong answer, a closed standard output"
    USAGE = 2, "wrong usage"
    BAD_INPUT = (
        3,
        "an input is missing, damaged, of another version, or holds nothing usable; or an output has no place",
    )
    INCOMPLETE = 4, "some answers are missing; a run can be resumed"
    ENVIRONMENT = 5, "the machine lacks something: MPI, a GPU, Java"
    NO_MATCH = 6, "no filter matches the event that `explain` was asked about"
    INTERRUPTED = 130, "interrupted by SIGINT, SIGTERM, SIGHUP or SIGQUIT"

    def __new__(cls, value: int, meaning: str) -> Self:
        """A member of that value."""
        found = int.__new__(cls, value)
        found._value_, found.meaning = value, meaning
        return found
