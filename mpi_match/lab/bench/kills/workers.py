"""Kills workers of runs at random moments and checks that every event is answered exactly once.

Run after run is started, as a user would, under `mpirun` with its flags for fault tolerance, with one master and a random
number of workers.  While it matches, 1 to W - 1 of the W workers are killed (SIGKILL), each at a random moment; some die
together, some in a row, some on the last batch.
If stops are wanted and there are more than two workers, another worker is stopped (SIGSTOP) for up to five seconds, longer
than its deadline (`--deadline 2`).  One worker is never disturbed.

The answers must be the bytes of an undisturbed run of one process, and the exit code 0.  A run that has not ended `limit_s`
seconds after it was started hangs.  Ctrl-C ends it early with a partial record:

    kills, stops   signals that hit a living worker while its run matched
    runs           number of runs
    lost, doubled  events without an answer; answers without an event, or second ones
    wrong          events with a different answer than in the undisturbed run
    hangs, failed  runs that did not end; runs that ended with another exit code than 0, and their last messages
    noticed_ms     from a kill until the master reports the rank lost and resends its batches: p50, p99, max
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mpi_match.environment.mpi_launcher import LaunchError
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files, is_running
from mpi_match.matches.file import MatchesFile
from mpi_match.model import Json

LONGEST_STOP_S, DEADLINE_S = 5.0, 2.0
COUNTED = ("kills", "stops", "runs", "lost", "doubled", "wrong", "hangs")
How = tuple[str, ...]
LOST = re.compile(r"rank (\d+) is lost")


@dataclass
class Tally:
    """The totals over all runs."""

    counts: Counter[str] = field(default_factory=Counter)
    noticed_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Returns whether no run hung, failed, or lost or changed an answer."""
        return not self.failed and not any(self.counts[what] for what in ("lost", "doubled", "wrong", "hangs"))

    def __str__(self) -> str:
        numbers = ", ".join(f"{self.counts[name]} {name}" for name in COUNTED)
        return f"{numbers}, {len(self.failed)} failed"

    def judge(self, run: DisturbedRun, files: Files, killed: dict[int, float], ended: bool) -> None:
        """Add the outcome of a run whose ranks were killed at these times."""
        self.counts["runs"] += 1
        said = [(at, LOST.search(line)) for at, line in run.said]
        for rank, at in killed.items():
            self.noticed_s += [max(0.0, then - at) for then, found in said if found and int(found[1]) == rank][:1]
        if not ended:
            self.counts["hangs"] += 1
        elif run.process.returncode:
            self.failed.append(f"exit code {run.process.returncode}: {run.said[-1][1] if run.said else 'nothing said'}")
        elif run.output.read_bytes() != files.expected.read_bytes():
            found, expected = (MatchesFile.load(path).matches for path in (run.output, files.expected))
            difference = len(found) - len(expected)
            self.counts["lost"] += max(-difference, 0)
            self.counts["doubled"] += max(difference, 0)
            same = (found[i].tolist() == expected[i].tolist() for i in range(min(len(found), len(expected))))
            self.counts["wrong"] += sum(not each for each in same)

    def record(self) -> Json:
        """The totals as a record."""
        noticed_ms = 1e3 * np.percentile(self.noticed_s, (50, 99, 100)) if self.noticed_s else ()
        return {
            **{name: self.counts[name] for name in COUNTED},
            "failed": self.failed,
            "noticed_ms": dict(zip(("p50", "p99", "max"), (round(float(ms), 1) for ms in noticed_ms), strict=False)),
        }


def one_run(
    files: Files, tally: Tally, rng: random.Random, n_workers: int, horizon_s: float, limit_s: float, how: How, *, stop: bool
) -> float:
    """Run once, kill some workers and perhaps stop another for a while.  Returns the seconds of matching."""
    output = files.table.parent / f"matches-{tally.counts['runs']}.h5"
    more = (*how, "--deadline", str(DEADLINE_S)) if stop else how
    killed: dict[int, float] = {}
    with DisturbedRun.of(files, output, n_workers, *more) as run:
        begun, pids = run.begun(limit_s), run.pids()
        spared = 2 if stop else 1  # one that is neither killed nor stopped
        victims = rng.sample(range(1, n_workers + 1), rng.randint(1, n_workers - spared))
        deeds = [(rng.uniform(0, horizon_s), signal.SIGKILL, rank) for rank in victims]
        if stop:
            rank = rng.choice([rank for rank in range(1, n_workers + 1) if rank not in victims])
            at = rng.uniform(0, horizon_s)
            deeds += [(at, signal.SIGSTOP, rank), (at + rng.uniform(0, LONGEST_STOP_S), signal.SIGCONT, rank)]
        for at, what, rank in sorted(deeds):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            if not output.exists() and rank in pids and is_running(pids[rank]):
                os.kill(pids[rank], what)
                tally.counts["stops"] += what == signal.SIGSTOP
                if what == signal.SIGKILL:
                    killed[rank] = time.monotonic()
            elif what == signal.SIGCONT and rank in pids and is_running(pids[rank]):
                os.kill(pids[rank], what)
        matched_s = run.ended(limit_s) - begun
        ended = run.wait(limit_s)
    tally.counts["kills"] += len(killed)
    tally.judge(run, files, killed, ended)
    output.unlink(missing_ok=True)
    return matched_s


def undisturbed_s(files: Files, n_workers: int, limit_s: float, how: How) -> float:
    """Seconds of matching in an undisturbed run.  Raises LaunchError when such a run does not succeed."""
    output = files.table.parent / "undisturbed.h5"
    with DisturbedRun.of(files, output, n_workers, *how) as run:
        begun = run.begun(limit_s)
        matched_s = run.ended(limit_s) - begun
        ended = run.wait(limit_s)
    if not ended or not output.exists() or output.read_bytes() != files.expected.read_bytes():
        last = run.said[-1][1] if run.said else "nothing was said"
        raise LaunchError(f"an undisturbed run of {n_workers} workers {'fails' if ended else 'hangs'}: {last}")
    output.unlink()
    return matched_s


def measure(
    n_kills: int,
    n_stops: int,
    workers: tuple[int, int],
    seed: int,
    limit_s: float,
    directory: Path,
    how: How = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Tally:
    """Run with the options `how` until enough kills and stops have hit a rank, or Ctrl-C."""
    files, rng, tally = Files.make(directory), random.Random(seed), Tally()
    horizons: dict[int, float] = {}
    counts = tally.counts
    with suppress(KeyboardInterrupt):
        while counts["kills"] < n_kills or counts["stops"] < n_stops:
            n_workers = rng.randint(*workers)
            if n_workers not in horizons:
                horizons[n_workers] = undisturbed_s(files, n_workers, limit_s, how)
            stop, horizon_s = counts["stops"] < n_stops and n_workers > 2, horizons[n_workers]
            matched_s = one_run(files, tally, rng, n_workers, horizon_s, limit_s, how, stop=stop)
            horizons[n_workers] = min(horizon_s, matched_s)  # the machine may have been busy before
            tell(str(tally))
    return tally
