"""Runs whose workers are killed at random moments: does every event get its answer, once?

    python tests/bench/worker_kills.py [--kills 500] [--stops 50] [--workers 2 5] [--seed 1] [--limit 120] [-o records.jsonl]

Run after run is started, as a user would, under `mpirun --with-ft ulfm`, with one master and a random number of workers.
From when matching begins until it would end undisturbed, 1 to W - 1 of the W workers are killed (SIGKILL), each at a moment
of its own, drawn evenly; so some die with others, some twice in a row, some on the last batch.  While there are stops to be
done, another of more than two workers is stopped (SIGSTOP) for up to five seconds, long enough to be late (`--deadline 2`),
and then goes on; one worker is left alone.

The answers must be the bytes of an undisturbed run of one process, and the exit code 0.  A run that has not ended `--limit`
seconds after it was started hangs.  The record is one JSON line; the script ends with 1 if anything in it is not as it
should be:

    kills, stops   that met a living worker while its run matched; who was too late does not count
    runs           how many it took
    lost, doubled  events without an answer; answers without an event, or second ones
    wrong          events that are answered otherwise than undisturbed
    hangs, failed  runs that did not end; runs that ended with another exit code than 0, and what they said last
    noticed_ms     from a kill until the master says that the rank is lost, as it gives its batches to others: p50, p99, max
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS)]

import numpy as np
from mpirun import FLAGS, MPIRUN, environment
from random_tables import random_subscriptions

from mpi_match.event_table import save_events
from mpi_match.events import Events
from mpi_match.machine import command, commit, machine
from mpi_match.matches import MatchesFile
from mpi_match.table import Table

N_FILTERS, N_EVENTS, BATCH = 200, 3000, 25
"""About ten milliseconds a batch for the slowest engine, 120 batches."""
LONGEST_STOP_S, DEADLINE_S = 5.0, 2.0
BEGUN = re.compile(r"\d+ workers?: ")
LOST = re.compile(r"rank (\d+) is lost")
RANK = re.compile(rb"(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)$")


@dataclass
class Files:
    """What all runs match, and the answers of one that nobody disturbed."""

    table: Path
    events: Path
    expected: Path

    @classmethod
    def make(cls, directory: Path, n_events: int = N_EVENTS) -> Files:
        files = cls(*(directory / f"{name}.h5" for name in ("table", "events", "expected")))
        filters, events = random_subscriptions(11, n_filters=N_FILTERS, n_events=n_events, areas=0.3, sizes=(0, 3))
        table = Table.from_filters(filters)
        table.save(files.table)
        save_events(Events.of(events), files.events, table.vocabulary)
        alone = [sys.executable, "-m", "mpi_match", *files.arguments(files.expected)]
        subprocess.run(alone, check=True, env=environment(), capture_output=True)
        return files

    def arguments(self, output: Path) -> list[str]:
        """A run of these files."""
        paths = ("--table", self.table, "--events", self.events, "-o", output)
        return [*map(str, ("run", *paths, "--engine", "reference", "--batch", BATCH))]


class Run:
    """A run of several ranks, and when they said what."""

    def __init__(self, command: Sequence[object], output: Path) -> None:
        self.output = output
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self.said: list[tuple[float, str]] = []
        self._begun = threading.Event()
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @classmethod
    def of(cls, files: Files, output: Path, n_workers: int, *more: str, flags: Sequence[str] = ("--with-ft", "ulfm")) -> Run:
        """A run of these files by the command line."""
        ranks = (sys.executable, "-m", "mpi4py", "-m", "mpi_match", *files.arguments(output), "-v", *more)
        return cls((MPIRUN, *FLAGS, *flags, "-n", 1 + n_workers, *ranks), output)

    def _read(self, stderr: IO[str]) -> None:
        for line in stderr:
            self.said.append((time.monotonic(), line.rstrip()))
            if BEGUN.search(line):
                self._begun.set()
        self._begun.set()

    def begun(self, limit_s: float) -> float:
        """Wait until matching begins; when that was."""
        self._begun.wait(limit_s)
        return self.said[-1][0] if self.said else time.monotonic()

    def ended(self, limit_s: float) -> float:
        """Wait until there are answers, or nobody to give them; when that was."""
        started = time.monotonic()
        while not self.output.exists() and self.process.poll() is None and time.monotonic() < started + limit_s:
            time.sleep(0.01)
        return time.monotonic()

    def pids(self) -> dict[int, int]:
        """The processes of the ranks."""
        found = {}
        for each in Path("/proc").iterdir():
            with suppress(OSError):
                if each.name.isdecimal() and str(self.output).encode() in (each / "cmdline").read_bytes():
                    ranks = [RANK.match(word) for word in (each / "environ").read_bytes().split(b"\0")]
                    found.update({int(rank[1]): int(each.name) for rank in ranks if rank})
        return found

    def wait(self, limit_s: float) -> bool:
        """Did it end in time?  If not, it is ended."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            for pid in (*self.pids().values(), self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            return False
        finally:
            self._reader.join(5)
            if self.process.stderr is not None:
                self.process.stderr.close()
        return True

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(0)


def is_running(pid: int) -> bool:
    """Is there such a process, and has it not ended?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@dataclass
class Tally:
    """What came out, over all runs."""

    counts: Counter[str] = field(default_factory=Counter)
    noticed_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.failed and not any(self.counts[what] for what in ("lost", "doubled", "wrong", "hangs"))

    def judge(self, run: Run, files: Files, killed: dict[int, float], ended: bool) -> None:
        """Count what a run has done, in which ranks were killed at these times."""
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

    def record(self) -> dict[str, Any]:
        names = ("kills", "stops", "runs", "lost", "doubled", "wrong", "hangs")
        noticed_ms = 1e3 * np.percentile(self.noticed_s, (50, 99, 100)) if self.noticed_s else ()
        return {
            **{name: self.counts[name] for name in names},
            "failed": self.failed,
            "noticed_ms": dict(zip(("p50", "p99", "max"), (round(float(ms), 1) for ms in noticed_ms), strict=False)),
        }


def one_run(
    files: Files, tally: Tally, rng: random.Random, n_workers: int, horizon_s: float, limit_s: float, *, stop: bool
) -> float:
    """A run in which some workers are killed, and perhaps another is stopped for a while.  Returns how long it matched."""
    output = files.table.parent / f"matches-{tally.counts['runs']}.h5"
    deadline = ("--deadline", str(DEADLINE_S)) if stop else ()
    killed: dict[int, float] = {}
    with Run.of(files, output, n_workers, *deadline) as run:
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


def undisturbed_s(files: Files, n_workers: int, limit_s: float) -> float:
    """How long matching takes when nobody is killed; it must succeed."""
    output = files.table.parent / "undisturbed.h5"
    with Run.of(files, output, n_workers) as run:
        begun = run.begun(limit_s)
        matched_s = run.ended(limit_s) - begun
        assert run.wait(limit_s), "an undisturbed run hangs"
    assert output.read_bytes() == files.expected.read_bytes(), run.said
    output.unlink()
    return matched_s


def measure(n_kills: int, n_stops: int, workers: tuple[int, int], seed: int, limit_s: float, directory: Path) -> Tally:
    """Runs until so many kills and stops have met somebody."""
    files, rng, tally = Files.make(directory), random.Random(seed), Tally()
    horizons: dict[int, float] = {}
    while tally.counts["kills"] < n_kills or tally.counts["stops"] < n_stops:
        n_workers = rng.randint(*workers)
        if n_workers not in horizons:
            horizons[n_workers] = undisturbed_s(files, n_workers, limit_s)
        stop, horizon_s = tally.counts["stops"] < n_stops and n_workers > 2, horizons[n_workers]
        matched_s = one_run(files, tally, rng, n_workers, horizon_s, limit_s, stop=stop)
        horizons[n_workers] = min(horizon_s, matched_s)  # the machine may have been busy before
        counts = tally.counts
        sys.stderr.write(f"{counts['kills']} kills and {counts['stops']} stops in {counts['runs']} runs: {tally.record()}\n")
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--workers", type=int, nargs=2, default=(2, 5), metavar=("LEAST", "MOST"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a run may take")
    parser.add_argument("-o", "--output", type=Path, help="append the record to this file too")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="worker-kills-") as directory:
        least, most = options.workers
        tally = measure(options.kills, options.stops, (least, most), options.seed, options.limit, Path(directory))
    record = {
        "what": "workers killed",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": command(),
        "machine": machine(),
        "mpi": subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0],
        "workers": [least, most],
        "seed": options.seed,
        "minutes": round((time.monotonic() - started) / 60, 1),
        **tally.record(),
    }
    line = json.dumps(record)
    sys.stdout.write(line + "\n")
    if options.output is not None:
        with options.output.open("a") as records:
            records.write(line + "\n")
    sys.exit(not tally.good)


if __name__ == "__main__":
    main()
