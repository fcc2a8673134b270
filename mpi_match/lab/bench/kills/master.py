"""Kills the master of a run again and again, goes on with --resume, and compares the answers.

Every start resumes the previous one.  At a random moment after it has begun to match, or (two times in three)
after it has added to the journal, rank 0 gets a SIGKILL, which ends mpirun.  A completed run is compared, by SHA-256, with
an undisturbed one, and started again, until `n_kills` kills are done.  The seed determines
moments, batch sizes and schedules.  With one rank, a run of one process is killed.  Ctrl-C ends it early with a partial
record:

    kills, starts  kills that hit a living master; starts of the launcher
    runs           runs completed by these starts
    resumed        for each run, the number of events that its last start took from the journal
    digests        digests of the answers: only that of the undisturbed run if all is `right`
    hangs          starts that had not ended `limit_s` seconds later
    left           names of files left at the end
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

from mpi_match.journal.manifest import read_manifest
from mpi_match.journal.reader import journal_of
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files, is_complete, is_running
from mpi_match.model import Json

_N_FILTERS = 600
_BATCHES = (7, 40, 600)
"""Batch sizes; answers to the largest bypass the journal (`output.LONG_ANSWER_BYTES`)."""
_LONGEST_S = 1.5
"""The latest moment of a kill, in seconds."""
_HEAD_BYTES = 400
"""Size in bytes that only a journal with answers exceeds."""


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def start(files: Files, output: Path, ranks: int, rng: random.Random) -> DisturbedRun:
    """Resume a run with random options that do not affect its answers."""
    how = ("--batch", str(rng.choice(_BATCHES)), "--schedule", rng.choice(("dynamic", "static")), "--resume")
    if ranks > 1:
        return DisturbedRun.of(files, output, ranks - 1, *how, flags=())
    return DisturbedRun((sys.executable, "-m", "mpi_match", *files.arguments(output), "-v", *how), output)


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def kill_master(run: DisturbedRun, after_s: float, limit_s: float, *, grown: bool) -> bool:
    """Kill rank 0 some time after matching has begun or the journal has grown; returns whether it was still working."""
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
) -> Json:
    """Kill masters until `n_kills` are done; returns the record."""
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
