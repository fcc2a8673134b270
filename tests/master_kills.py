"""Kills the master of a run again and again, goes on with --resume, and compares the answers.

    python tests/master_kills.py [--kills 200] [--ranks 3] [--seed 0] [--events 1000] [--directory DIR]

Every start takes up what the one before has left.  At a random moment after its first answers rank 0 gets a SIGKILL, and
mpirun ends with it.  A run that comes to its end is compared, by SHA-256, with one that nobody disturbed, and begun anew,
until there were as many kills as asked for.  The seed decides on moments, batch sizes and schedules.  Prints one JSON line;
exit code 1 if any answers differ.  With --ranks 1 it is a run of one process that is killed.

`test_restarts` does a few of these; this is the way to do many.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpirun import TIMEOUT_S, environment, launch
from random_tables import random_subscriptions

from mpi_match.event_table import save_events
from mpi_match.events import Events
from mpi_match.journal_file import journal_of
from mpi_match.run_manifest import read_manifest
from mpi_match.table import Table

RUN = ("-m", "mpi4py", "-m", "mpi_match", "run")
LONGEST_RUN_S = 600
HEAD_BYTES = 350
"""A journal that holds answers is longer."""
RANK_0 = (b"OMPI_COMM_WORLD_RANK=0", b"PMI_RANK=0", b"PMIX_RANK=0")


def make_inputs(directory: Path, n_events: int) -> list[str]:
    """A table and events that the slowest engine takes some milliseconds for each; the options that name them."""
    filters, events = random_subscriptions(11, n_filters=400, n_events=n_events, areas=0.3, sizes=(0, 3))
    table = Table.from_filters(filters)
    table.save(directory / "table.h5")
    save_events(Events.of(events), directory / "events.h5", table.vocabulary)
    return ["--table", str(directory / "table.h5"), "--events", str(directory / "events.h5")]


def masters(output: Path) -> Iterator[int]:
    """Process ids of the ranks 0 that write an output."""
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if bytes(output) not in words or b"mpi_match" not in words or b"python" not in words[0]:
                continue
            if any(each in RANK_0 for each in (process / "environ").read_bytes().split(b"\0")):
                yield int(process.name)
        except (OSError, ValueError):
            continue


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def kill_master(process: subprocess.Popen[bytes], output: Path, after_s: float, *, alone: bool) -> bool:
    """Kill rank 0, so long after it has added to the journal for the first time; was it still there?"""
    journal, deadline = journal_of(output), time.monotonic() + TIMEOUT_S
    before = max(size_of(journal), HEAD_BYTES)
    while size_of(journal) <= before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after_s)
    killed = False
    for master in [process.pid] if alone else masters(output):
        if process.poll() is None:
            os.kill(master, signal.SIGKILL)
            killed = True
    return killed


def kill_masters(
    n_kills: int, ranks: int, directory: Path, *, n_events: int = 1000, seed: int = 0, longest_s: float = 1.5
) -> dict[str, Any]:
    """Do so; what came of it."""
    rng = random.Random(seed)
    inputs = make_inputs(directory, n_events)
    undisturbed, output = directory / "undisturbed.h5", directory / "matches.h5"
    command = [sys.executable, "-m", "mpi_match", "run", *inputs, "-o", str(undisturbed), "--engine", "counting"]
    subprocess.run(command, check=True, env=environment(), stderr=subprocess.DEVNULL)
    expected = hashlib.sha256(undisturbed.read_bytes()).hexdigest()
    kills = starts = 0
    digests: list[str] = []
    resumed: list[int] = []
    began = time.monotonic()
    while kills < n_kills or not output.exists():
        how = ["--batch", str(rng.choice((1, 7, 20))), "--schedule", rng.choice(("dynamic", "static")), "--resume"]
        words = [*inputs, "-o", str(output), "--engine", "reference", *how]
        command = launch(ranks, *words, python=RUN) if ranks > 1 else [sys.executable, "-m", "mpi_match", "run", *words]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        starts += 1
        with subprocess.Popen(command, env=environment(), **quiet) as process:
            if kills < n_kills:
                kills += kill_master(process, output, rng.uniform(0, longest_s), alone=ranks == 1)
            process.wait(LONGEST_RUN_S)
        manifest = read_manifest(output)
        if manifest is not None and manifest["state"] == "complete":
            digests.append(hashlib.sha256(output.read_bytes()).hexdigest())
            resumed.append(manifest["resumed"])
            if kills < n_kills:
                output.unlink()
    return {
        "kills": kills,
        "starts": starts,
        "runs": len(digests),
        "ranks": ranks,
        "digests": sorted(set(digests)),
        "right": set(digests) == {expected},
        "resumed": resumed,
        "left": sorted(path.name for path in directory.iterdir() if path.name.startswith((".", "matches"))),
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        found = kill_masters(options.kills, options.ranks, directory, n_events=options.events, seed=options.seed)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["right"] else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
