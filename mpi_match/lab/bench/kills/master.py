"""Kills the master of a run again and again, goes on with --resume, and compares the answers.

Every start takes up what the one before has left.  At a random moment after it has begun to match, or (two times in three)
after it has added to the journal, rank 0 gets a SIGKILL, and mpirun ends with it.  A run that comes to its end is compared,
by SHA-256, with an undisturbed one, and begun anew, until there were as many kills as asked for.  The seed decides on
moments, batch sizes and schedules.  With one rank it is a run of one process that is killed.  Ctrl-C ends it early, with the
record of what was done until then:

    kills, starts  that met a living master; starts of the launcher
    runs           that were completed in these starts
    resumed        for each run, how many events its last start had from the journal
    digests        of the answers: one, that of the undisturbed run, if all is `right`
    hangs          starts that had not ended `limit_s` seconds later
    left           names of files that are there at the end
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpi_match.journal.manifest import read_manifest
from mpi_match.journal.reader import journal_of
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files, is_complete, is_running

_N_FILTERS = 600
_BATCHES = (7, 40, 600)
"""The answers of the largest are so long that they go past the journal (`output.LONG_ANSWER_BYTES`)."""
_LONGEST_S = 1.5
"""The last moment for a kill, in seconds after what it is counted from."""
_HEAD_BYTES = 400
"""A journal that holds answers is longer."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def start(files: Files, output: Path, ranks: int, rng: random.Random) -> DisturbedRun:
    """Go on with a run, with options that its answers do not depend on."""
    how = ("--batch", str(rng.choice(_BATCHES)), "--schedule", rng.choice(("dynamic", "static")), "--resume")
    if ranks > 1:
        return DisturbedRun.of(files, output, ranks - 1, *how, flags=())
    return DisturbedRun((sys.executable, "-m", "mpi_match", *files.arguments(output), "-v", *how), output)


def size_of(path: Path) -> int:
    """Of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def kill_master(run: DisturbedRun, after_s: float, limit_s: float, *, grown: bool) -> bool:
    """Kill rank 0 so long after matching has begun, or the journal has grown; was it still there, and not done?"""
    journal, end = journal_of(run.output), time.monotonic() + limit_s
    before = max(size_of(journal), _HEAD_BYTES)
    run.begun(limit_s)
    master = run.pids().get(0, run.process.pid)
    while grown and size_of(journal) <= before and is_running(master) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(after_s)
    if not is_running(master) or is_complete(run.output):
        return False
    os.kill(master, signal.SIGKILL)
    return True


def kill_masters(
    n_kills: int,
    ranks: int,
    directory: Path,
    *,
    n_events: int = 3000,
    seed: int = 0,
    longest_s: float = _LONGEST_S,
    limit_s: float = 300.0,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Do so; what came of it."""
    rng, output = random.Random(seed), directory / "matches.h5"
    files = Files.make(directory, n_events, _N_FILTERS)
    kills = starts = hangs = 0
    digests: list[str] = []
    resumed: list[int] = []
    with suppress(KeyboardInterrupt):
        while kills < n_kills or not is_complete(output):
            starts += 1
            with start(files, output, ranks, rng) as run:
                if kills < n_kills:
                    kills += kill_master(run, rng.uniform(0, longest_s), limit_s, grown=rng.random() < 2 / 3)
                hangs += not run.wait(limit_s)
            if is_complete(output):
                digests.append(digest_of(output))
                resumed.append((read_manifest(output) or {})["resumed"])
                if kills < n_kills:
                    output.unlink()
            tell(f"{kills} kills in {starts} starts, {hangs} of which hang, of {len(digests)} runs")
    return {
        "ranks": ranks,
        "seed": seed,
        "kills": kills,
        "starts": starts,
        "runs": len(digests),
        "resumed": resumed,
        "digests": sorted(set(digests)),
        "right": set(digests) == {digest_of(files.expected)},
        "hangs": hangs,
        "left": sorted(path.name for path in directory.iterdir() if path.name.startswith((".", output.name))),
    }
