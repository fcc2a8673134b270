"""What a run survives under the MPI of this Python, with a launcher's flags as they are and with those for fault tolerance.

    python tests/bench/what_survives.py [--times 5] [--limit 60] [--seed 0] [-o records.jsonl]

Runs of one master and three workers, with `--deadline 2`, meet each of these so many times, at a random moment within a
second of when they began to match:

    worker killed    SIGKILL to a worker
    worker stopped   SIGSTOP to a worker, for good
    master killed    SIGKILL to rank 0

and one of these is what came out, in that order of preference:

    goes on    the answers are all there, the same bytes as those of an undisturbed run
    resumes    the run ended without them, and the same command with `--resume` completed them to the same bytes
    lost       neither

and behind it ", mpirun stays" when the launcher had not ended `--limit` seconds after the blow and was ended.  To survive
the loss of a host is another matter, for it takes hosts: `host_kills`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "support")]

from bench.run_of_ranks import Files, Run
from bench.survival import mpi_version, record, write
from mpirun import OPEN_MPI, ULFM

N_WORKERS, N_EVENTS = 3, 6000
DEADLINE = ("--deadline", "2")
LATEST_S = 1.0
RESUMED_S = 600.0
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
    if not OPEN_MPI:
        tolerant = ("-disable-auto-cleanup",)
        hosts = ",".join(f"127.0.0.{number}:1" for number in range(1, N_WORKERS + 2))
        return [(), tolerant, (*tolerant, "-launcher", "fork", "-hosts", hosts)]
    return [(), ("--enable-recovery",) if " 4." in mpi_version() else ULFM]


def outcome(files: Files, directory: Path, flags: Sequence[str], blow: Blow, after_s: float, limit_s: float) -> str:
    """What a run does to which this happens so long after it has begun to match."""
    output, expected = directory / "matches.h5", files.expected.read_bytes()
    with Run.of(files, output, N_WORKERS, *DEADLINE, flags=flags) as run:
        run.begun(limit_s)
        pids = run.pids()
        time.sleep(after_s)
        os.kill(pids[blow.rank], blow.signal)
        stays = "" if run.wait(limit_s) else ", mpirun stays"
    if output.exists() and output.read_bytes() == expected:
        return f"goes on{stays}"
    with Run.of(files, output, N_WORKERS, "--resume", flags=()) as run:
        run.wait(RESUMED_S)
    right = output.exists() and output.read_bytes() == expected
    return f"{'resumes' if right else 'lost'}{stays}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60, help="seconds until a launcher stays")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="append the record to this file too")
    options = parser.parse_args()
    rng, began, found = random.Random(options.seed), time.monotonic(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="what-survives-") as scratch:
        files = Files.make(Path(scratch), N_EVENTS)
        for flags in sets_of_flags():
            for blow in BLOWS:
                outcomes = []
                for _ in range(options.times):
                    with tempfile.TemporaryDirectory(dir=scratch) as directory:
                        moment = rng.uniform(0, LATEST_S)
                        outcomes.append(outcome(files, Path(directory), flags, blow, moment, options.limit))
                found.append({"flags": " ".join(flags), "what": blow.name, "outcomes": outcomes})
                sys.stderr.write(f"{found[-1]}\n")
    write(record("what survives", began, limit_s=options.limit, seed=options.seed, outcomes=found), options.output)


if __name__ == "__main__":
    main()
