"""The restart policy: whether to restart a run that has ended, as a pure function of its outcome.

    outcome: manifest, exit code, answers ──► after ──► Done │ Again(wait_s) │ StopRestarting(why, code)

The manifest says whether a run succeeded.  A launcher's exit code does not (mpirun exits with 0 when a host is lost), but
some codes can only come from mpi-match, and mean that a restart would end in the same way.  A full disk means that too, and
has no code of its own; it is in the exit report of rank 0.
"""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.exit_codes import ExitCode

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""Exponential backoff between starts: FIRST_WAIT_S after a start with progress, doubled after each start without."""
START_LIMIT_S = 900.0
"""Time limit of a start until its master has opened the files.  The limit of a rank (`--setup-limit`) is shorter, so that
the run itself can report its cause."""
FRUITLESS = 3
"""The most consecutive starts without progress."""
_HOPELESS: dict[int, str] = {
    ExitCode.USAGE: "wrong usage",
    ExitCode.BAD_INPUT: "bad input",
    ExitCode.ENVIRONMENT: "the environment lacks something",
}


class RunOutcome(NamedTuple):
    """The outcome of a start: whether the manifest is complete; the exit code of rank 0, or else of the launcher; the number
    of events answered in all starts; whether a disk was full."""

    complete: bool
    code: int
    answered: int
    disk_full: bool = False


class Done(NamedTuple):
    """The run is complete."""


class Again(NamedTuple):
    """Restart the run after `wait_s`."""

    wait_s: float


class StopRestarting(NamedTuple):
    """Do not restart; exit with a code."""

    why: str
    code: int


class Restarts:
    """The restarts of one run: `made` so far, and at most `most`."""

    def __init__(self, most: int) -> None:
        self.most, self.made = most, 0
        self._answered = 0
        self._fruitless = 0

    def after(self, end: RunOutcome, *, hosts_left: bool = True) -> Done | Again | StopRestarting:
        """The decision after a start has ended; `hosts_left` says whether any host answers."""
        if end.complete:
            return Done()
        self._fruitless = 0 if end.answered > self._answered else self._fruitless + 1
        self._answered = max(self._answered, end.answered)
        if end.code in _HOPELESS:
            return StopRestarting(f"{_HOPELESS[end.code]}: it would end in the same way", end.code)
        if end.disk_full:
            return StopRestarting("a disk is full; make room, and go on with --resume", end.code)
        if end.code == ExitCode.INTERRUPTED:
            return StopRestarting("it was interrupted", ExitCode.INTERRUPTED)
        failed = ExitCode.INCOMPLETE if self._answered else ExitCode.FAILURE
        if not hosts_left:
            return StopRestarting("no host answers any more", failed)
        if self._fruitless == FRUITLESS:
            return StopRestarting(f"{FRUITLESS} starts in a row answered nothing", failed)
        if self.made == self.most:
            return StopRestarting(
                f"it has been started again {self.most} times" if self.most else "--max-restarts is 0", failed
            )
        self.made += 1
        return Again(min(FIRST_WAIT_S * 2**self._fruitless, LONGEST_WAIT_S))
