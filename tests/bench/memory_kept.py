"""A run of very many batches: does the memory of its ranks grow?

    python tests/bench/memory_kept.py [--batches 1000000] [--stop 20] [--bound 64] [-o records.jsonl]

One master and two workers under mpirun match a batch for each event (`mpi-match run --batch 1`): as many orders, answers
and records of the journal as a run of the largest batches has in a day.  At about a quarter of the run worker 2 is stopped
(SIGSTOP) for longer than its deadline, so batches are sent again and late answers dropped.

Each rank's resident memory is read from /proc several times a second.  `at_tenth_mib` is what it was when a tenth of the
events had been written, by when the first of everything has been made; `last_mib` what it was at the end, `most_mib` the
most in between.  Pages of mapped files are counted apart (`files_mib`): they are the page cache's, which the
system takes back on demand.

The record is one JSON line; the script ends with 1 if a rank's memory has grown by more than `--bound` MiB since the first
tenth, if the stop was not noticed, or if the answers are not the bytes of a run of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "support")]

from mpirun import FLAGS, MPIRUN, environment

from mpi_match.environment.machine import command, commit, machine
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun
from mpi_match.lab.workloads.files import write_workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.monitor.report import read_report

N_FILTERS, N_WORKERS, STOPPED, DEADLINE_S = 50, 2, 2, 5.0
LOOK_S = 0.2
LIMIT_S = 3600.0
MIB = 2**20
_SIZES = re.compile(r"^Rss(Anon|Shmem|File):\s+(\d+) kB", re.MULTILINE)


class Memory(NamedTuple):
    """What a process has resident, in bytes: of its own or shared with others, and pages of mapped files."""

    own: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Raises OSError when there is no such process."""
        sizes = {name: 1024 * int(kib) for name, kib in _SIZES.findall(Path(f"/proc/{pid}/status").read_text())}
        return cls(sizes.get("Anon", 0) + sizes.get("Shmem", 0), sizes.get("File", 0))


class Look(NamedTuple):
    """Events written at a moment, and every rank's memory."""

    written: int
    memory: dict[int, Memory]


def watched(run: DisturbedRun, report: Path, n_events: int, stop_s: float) -> list[Look]:
    """Look at a run until it ends, and stop a worker meanwhile."""
    run.begun(LIMIT_S)
    pids, looks, goes_on_at = run.pids(), list[Look](), None
    began = time.monotonic()
    while run.process.poll() is None and time.monotonic() - began < LIMIT_S:
        written = _written(report)
        try:
            looks.append(Look(written, {rank: Memory.of(pid) for rank, pid in sorted(pids.items())}))
        except OSError:
            break  # a rank has left: the run is over
        if goes_on_at is None and written >= n_events // 4:
            os.kill(pids[STOPPED], signal.SIGSTOP)
            goes_on_at = time.monotonic() + stop_s
        elif goes_on_at is not None and time.monotonic() > goes_on_at:
            os.kill(pids[STOPPED], signal.SIGCONT)
            goes_on_at = float("inf")
        time.sleep(LOOK_S)
    with suppress(ProcessLookupError):
        os.kill(pids[STOPPED], signal.SIGCONT)
    assert run.wait(LIMIT_S), "the run hangs"
    assert run.process.returncode == 0, run.said
    return looks


def _written(report: Path) -> int:
    """Events written by the last tick of a report."""
    if not report.exists():
        return 0
    with report.open("rb") as lines:
        lines.seek(max(0, report.stat().st_size - 8192))
        found = re.findall(rb'"what": "tick".*?"written": (\d+)', lines.read())
    return int(found[-1]) if found else 0


def growth(looks: list[Look], n_events: int) -> list[dict[str, Any]]:
    """Of each rank: its memory when a tenth was written, at last, the most in between, and by how much that has grown."""
    later = [look for look in looks if look.written >= n_events // 10]
    assert len(later) > 1, "the run is too short to be looked at"
    found = []
    for rank in sorted(later[0].memory):
        own = [look.memory[rank].own for look in later]
        sizes = {"at_tenth": own[0], "last": own[-1], "most": max(own), "grown": max(own) - own[0]}
        sizes["files"] = later[-1].memory[rank].files
        found.append({"rank": rank, **{f"{name}_mib": round(size / MIB, 2) for name, size in sizes.items()}})
    return found


def measure(n_events: int, stop_s: float, directory: Path) -> dict[str, Any]:
    """A run in a directory that files may be left in, and what became of its ranks' memory."""
    write_workload(SCENARIOS["ccm"].scaled(N_FILTERS), directory, n_events)
    files = ("--table", directory / "table.h5", "--events", directory / "events.h5", "--engine", "reference")
    expected, output, report = (directory / name for name in ("expected.h5", "matches.h5", "run.jsonl"))
    ranks = (sys.executable, "-m", "mpi4py", "-m", "mpi_match", "run", *files, "--batch", 1, "-o", output, "-v")
    more = ("--deadline", DEADLINE_S, "--report", report)
    with DisturbedRun((MPIRUN, *FLAGS, "-n", 1 + N_WORKERS, *ranks, *more), output) as run:
        looks = watched(run, report, n_events, stop_s)
    alone = (sys.executable, "-m", "mpi_match", "run", *files, "-o", expected)
    subprocess.run([*map(str, alone)], check=True, env=environment(), capture_output=True)
    (recorded,) = read_report(report)
    assert recorded.summary is not None
    happened = [incident["kind"] for incident in recorded.incidents]
    return {
        "batches": n_events,
        "wall_s": round(recorded.summary["wall_s"], 1),
        "stopped_s": stop_s,
        "happened": {kind: happened.count(kind) for kind in sorted(set(happened))},
        "same_bytes": output.read_bytes() == expected.read_bytes(),
        "ranks": growth(looks, n_events),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--stop", type=float, default=20.0, help="seconds that a worker stands still")
    parser.add_argument("--bound", type=float, default=64.0, help="MiB that a rank's memory may grow")
    parser.add_argument("-o", "--output", type=Path, help="where to append the record (JSON lines)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memory-kept-") as directory:
        found = measure(options.batches, options.stop, Path(directory))
    record = {
        "what": "memory kept",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": command(),
        "machine": machine(),
        "mpi": subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0],
        **found,
    }
    line = json.dumps(record)
    sys.stdout.write(line + "\n")
    if options.output is not None:
        with options.output.open("a") as records:
            records.write(line + "\n")
    grown = max(rank["grown_mib"] for rank in found["ranks"])
    sys.exit(not (found["same_bytes"] and found["happened"].get("overdue") and grown <= options.bound))


if __name__ == "__main__":
    main()
