"""Is a run that ended to be started again?  Decided from what is known for certain, without doing anything.

    how it ended: manifest, code, answers ──► after ──► Done │ Again(wait_s) │ GiveUp(why, code)

The manifest says whether a run succeeded.  A launcher's exit code does not (mpirun ends with 0 when a host is lost), but
some codes can only come from mpi-match: those say that starting again would end in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from mpi_match.exit_codes import ExitCode

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""Between two starts: at once after a run that got on; twice as long each time after one that did not."""
START_LIMIT_S = 900.0
"""How long a start may take until its master has opened the files.  What a rank may take (`--setup-limit`) is shorter, so
that the run itself can say what it waited for."""
FRUITLESS = 3
"""Starts in a row that answered nothing."""
_HOPELESS: dict[int, str] = {
    ExitCode.USAGE: "wrong usage",
    ExitCode.BAD_INPUT: "bad input",
    ExitCode.ENVIRONMENT: "the environment lacks something",
}


class RunOutcome(NamedTuple):
    """What is left of a start: does the manifest say complete; the launcher's code; events answered, in all starts."""

    complete: bool
    code: int
    answered: int


class Done(NamedTuple):
    """The run is complete."""


class Again(NamedTuple):
    """Start it again after a while."""

    wait_s: float


class StopRestarting(NamedTuple):
    """Do not; end with a code."""

    why: str
    code: int


class Restarts:
    """The starts of one run, of which `most` may come after the first; `made` have."""

    def __init__(self, most: int) -> None:
        self.most, self.made = most, 0
        self._answered = 0
        self._fruitless = 0

    def after(self, end: RunOutcome, *, hosts_left: bool = True) -> Done | Again | StopRestarting:
        """What to do when a start has ended; `hosts_left` says whether there is a host to start on."""
        if end.complete:
            return Done()
        self._fruitless = 0 if end.answered > self._answered else self._fruitless + 1
        self._answered = max(self._answered, end.answered)
        if end.code in _HOPELESS:
            return StopRestarting(f"{_HOPELESS[end.code]}: it would end in the same way", end.code)
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
