"""What a run survives under the MPI of this Python, with a launcher's flags as they are and with those for fault tolerance.

Runs of one master and three workers, with `--deadline 2`, meet each of these so many times, at a random moment within a
second of when they began to match:

    worker killed    SIGKILL to a worker
    worker stopped   SIGSTOP to a worker, for good
    master killed    SIGKILL to rank 0

and one of these is what came out, in that order of preference:

    goes on    the answers are all there, the same bytes as those of an undisturbed run
    resumes    the run ended without them, and the same command with `--resume` completed them to the same bytes
    lost       neither

and behind it ", mpirun stays" when the launcher had not ended `limit_s` seconds after the blow and was ended.  To survive
the loss of a host is another matter, for it takes hosts.
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

_N_WORKERS, _N_EVENTS = 3, 6000
_DEADLINE = ("--deadline", "2")
_LATEST_S = 1.0
_RESUMED_S = 600.0
"""A run that nothing happens to has ended by then on any machine."""


class Blow(NamedTuple):
    """What happens to a run: a signal to a rank."""

    name: str
    rank: int
    signal: signal.Signals


BLOWS = (
    Blow("worker killed", 2, signal.SIGKILL),
    Blow("worker stopped", 2, signal.SIGSTOP),
    Blow("master killed", 0, signal.SIGKILL),
)


def sets_of_flags() -> list[tuple[str, ...]]:
    """None, and the launcher's flags for going on without a rank; MPICH's goes on with the ranks of other hosts only."""
    if not is_open_mpi():
        hosts = ",".join(f"127.0.0.{number}:1" for number in range(1, _N_WORKERS + 2))
        return [(), tolerant_flags(), (*tolerant_flags(), "-launcher", "fork", "-hosts", hosts)]
    return [(), tolerant_flags()]


def outcome(files: Files, directory: Path, flags: Sequence[str], blow: Blow, after_s: float, limit_s: float) -> str:
    """What a run does to which this happens so long after it has begun to match."""
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
) -> list[dict[str, Any]]:
    """The outcomes of each blow under each set of flags, so many times.  Raises LaunchError."""
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
