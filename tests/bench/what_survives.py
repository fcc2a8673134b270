"""What a run survives under the MPI of this Python, with a launcher's flags as they are and with those for fault tolerance.

    python tests/bench/what_survives.py [--limit 60] [-o records.jsonl]

A run of one master and three workers meets each of these once, when it has just begun to match:

    worker killed    SIGKILL to a worker
    worker stopped   SIGSTOP to a worker, for good; `--deadline 1`
    master killed    SIGKILL to rank 0

and one of these is what came out, in that order of preference:

    goes on    the answers are all there, the same bytes as those of an undisturbed run
    resumes    the run ended without them, and the same command with `--resume` completed them to the same bytes
    lost       neither

with the exit code of the launcher, or "hangs" when it had to be ended after `--limit` seconds.  To survive the loss of a
host is another matter, for it takes hosts: tests/hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS)]

from bench.worker_kills import Files, Run
from mpirun import MPIRUN, OPEN_MPI

from mpi_match.machine import command, commit, machine

N_WORKERS = 3


class Blow(NamedTuple):
    """What happens to a run: a signal to a rank; `options` of the run that are meant for it."""

    name: str
    rank: int
    signal: signal.Signals
    options: tuple[str, ...] = ()


BLOWS = (
    Blow("worker killed", 2, signal.SIGKILL),
    Blow("worker stopped", 2, signal.SIGSTOP, ("--deadline", "1")),
    Blow("master killed", 0, signal.SIGKILL),
)


def version() -> str:
    """The first line of what the launcher says of itself that has a number."""
    said = subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=True).stdout
    return next(line.strip() for line in said.splitlines() if any(map(str.isdigit, line)))


def tolerant_flags() -> tuple[str, ...]:
    """The launcher's flags for going on without a rank."""
    if not OPEN_MPI:
        return ("-disable-auto-cleanup",)
    return ("--enable-recovery",) if " 4." in version() else ("--with-ft", "ulfm")


def outcome(files: Files, directory: Path, flags: Sequence[str], blow: Blow, limit_s: float) -> dict[str, Any]:
    """What a run does that this happens to."""
    output, expected = directory / "matches.h5", files.expected.read_bytes()
    with Run.of(files, output, N_WORKERS, *blow.options, flags=flags) as run:
        run.begun(limit_s)
        os.kill(run.pids()[blow.rank], blow.signal)
        ended = run.wait(limit_s)
        code = run.process.returncode if ended else "hangs"
    what = "goes on"
    if not output.exists() or output.read_bytes() != expected:
        with Run.of(files, output, N_WORKERS, "--resume", flags=()) as run:
            run.wait(limit_s)
        what = "resumes" if output.exists() and output.read_bytes() == expected else "lost"
    return {"flags": " ".join(flags), "what": blow.name, "outcome": what, "launcher": code}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60, help="seconds until a run hangs")
    parser.add_argument("-o", "--output", type=Path, help="where to append a record (JSON lines)")
    arguments = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        files = Files.make(Path(scratch), n_events=1500)
        for flags in ((), tolerant_flags()):
            for blow in BLOWS:
                with tempfile.TemporaryDirectory(dir=scratch) as directory:
                    outcomes.append(outcome(files, Path(directory), flags, blow, arguments.limit))
                print(json.dumps(outcomes[-1]), flush=True)  # noqa: T201
    if arguments.output is not None:
        at = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit(), "command": command()}
        with arguments.output.open("a") as file:
            file.write(json.dumps({**at, "machine": machine(), "mpi": version(), "outcomes": outcomes}) + "\n")


if __name__ == "__main__":
    main()
