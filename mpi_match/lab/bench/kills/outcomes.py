"""Tests which failures a run survives under this MPI, with default flags and with those for fault tolerance.

Runs of one master and three workers, with `--deadline 2`, suffer each of these failures several times, within a second after
matching begins:

    worker killed    SIGKILL to a worker
    worker stopped   SIGSTOP to a worker, for good
    master killed    SIGKILL to rank 0

with one of these outcomes, best first:

    goes on    the run completes with the bytes of an undisturbed run
    resumes    the run ended without them, and the same command with `--resume` completed them to the same bytes
    lost       neither

followed by ", mpirun stays" if the launcher was still running `limit_s` seconds later and had to be killed.  The loss of a
host needs several hosts and is tested elsewhere.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpi_match.environment.mpi_launcher import is_open_mpi
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files, tolerant_flags
from mpi_match.model import Json

_N_WORKERS, _N_EVENTS = 3, 6000
_DEADLINE = ("--deadline", "2")
_LATEST_S = 1.0
_RESUMED_S = 600.0
"""Seconds within which an undisturbed run ends on any machine."""


class Blow(NamedTuple):
    """A failure: a signal to a rank."""

    name: str
    rank: int
    signal: signal.Signals


BLOWS = (
    Blow("worker killed", 2, signal.SIGKILL),
    Blow("worker stopped", 2, signal.SIGSTOP),
    Blow("master killed", 0, signal.SIGKILL),
)


def sets_of_flags() -> list[tuple[str, ...]]:
    """Sets of flags: none, and those for going on without a rank; MPICH goes on only with the ranks of other hosts."""
    if not is_open_mpi():
        hosts = ",".join(f"127.0.0.{number}:1" for number in range(1, _N_WORKERS + 2))
        return [(), tolerant_flags(), (*tolerant_flags(), "-launcher", "fork", "-hosts", hosts)]
    return [(), tolerant_flags()]


def outcome(files: Files, directory: Path, flags: Sequence[str], blow: Blow, after_s: float, limit_s: float) -> str:
    """The outcome of a run with this failure, some seconds after it has begun to match."""
    output, expected = directory / "matches.h5", files.expected.read_bytes()
    with DisturbedRun.of(files, output, _N_WORKERS, *_DEADLINE, flags=flags) as run:
        run.begun(limit_s)
        pids = run.pids()
        time.sleep(after_s)
        os.kill(pids[blow.rank], blow.signal)
        stays = "" if run.wait(limit_s) else ", mpirun stays"
    if output.exists() and output.read_bytes() == expected:
        return f"goes on{stays}"
    with DisturbedRun.of(files, output, _N_WORKERS, "--resume", flags=()) as run:
        run.wait(_RESUMED_S)
    right = output.exists() and output.read_bytes() == expected
    return f"{'resumes' if right else 'lost'}{stays}"


def survey(
    times: int, directory: Path, *, seed: int = 0, limit_s: float = 60.0, tell: Callable[[str], None] = lambda text: None
) -> list[Json]:
    """The outcomes of each failure under each set of flags, `times` times.  Raises LaunchError."""
    rng, files, found = random.Random(seed), Files.make(directory, _N_EVENTS), list[dict[str, Any]]()
    for flags in sets_of_flags():
        for blow in BLOWS:
            outcomes = []
            for _ in range(times):
                with tempfile.TemporaryDirectory(dir=directory) as place:
                    outcomes.append(outcome(files, Path(place), flags, blow, rng.uniform(0, _LATEST_S), limit_s))
            found.append({"flags": " ".join(flags), "what": blow.name, "outcomes": outcomes})
            tell(f"{blow.name}, flags {' '.join(flags) or 'as they are'}: {', '.join(outcomes)}")
    return found
