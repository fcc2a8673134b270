"""The memory of the ranks of a run with very many batches, one of whose workers is stopped for a while.

One master and two workers match a batch for each event: a million batches make as many commands, replies and records of the
journal as a day of the largest batches.  After a quarter of the run a worker is stopped (SIGSTOP) for longer than its
deadline, so batches are sent again and late answers are dropped.

Each rank's resident memory is read from /proc several times a second: `at_tenth_mib` when a tenth of the events has been
written, by which time all buffers exist; `last_mib` at the end; `most_mib` the maximum in between.  Pages of mapped files
are counted apart (`files_mib`): they belong to the page cache, which the system takes back on demand.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mpi_match.lab.bench.engines import require
from mpi_match.lab.bench.kills.disturbed_run import DisturbedRun, Files
from mpi_match.model import Json
from mpi_match.monitor.report import read_report

_N_WORKERS, _STOPPED = 2, 2
"""Workers of the run, and the rank that is stopped."""
_DEADLINE_S, _LOOK_S, _LIMIT_S = 5.0, 0.2, 3600.0
"""Seconds until a batch is overdue, between two looks at memory, and until a run hangs."""
_N_FILTERS = 50
_MIB = 2**20
_SIZES = re.compile(r"^Rss(Anon|Shmem|File):\s+(\d+) kB", re.MULTILINE)


class Memory(NamedTuple):
    """Resident memory of a process in bytes: anonymous and shared pages (`own`), and pages of mapped files (`files`)."""

    own: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Raises OSError when the process does not exist."""
        sizes = {name: 1024 * int(kib) for name, kib in _SIZES.findall(Path(f"/proc/{pid}/status").read_text())}
        return cls(sizes.get("Anon", 0) + sizes.get("Shmem", 0), sizes.get("File", 0))


class Look(NamedTuple):
    """The number of events written at a moment, and the memory of every rank."""

    written: int
    memory: dict[int, Memory]


def watched(run: DisturbedRun, report: Path, n_events: int, stop_s: float) -> list[Look]:
    """Look at a run until it ends, and stop a worker for `stop_s` seconds meanwhile."""
    run.begun(_LIMIT_S)
    pids, looks, goes_on_at = run.pids(), list[Look](), None
    began = time.monotonic()
    while run.process.poll() is None and time.monotonic() - began < _LIMIT_S:
        written = _written(report)
        try:
            looks.append(Look(written, {rank: Memory.of(pid) for rank, pid in sorted(pids.items())}))
        except OSError:
            break  # a rank has left: the run is over
        if goes_on_at is None and written >= n_events // 4:
            os.kill(pids[_STOPPED], signal.SIGSTOP)
            goes_on_at = time.monotonic() + stop_s
        elif goes_on_at is not None and time.monotonic() > goes_on_at:
            os.kill(pids[_STOPPED], signal.SIGCONT)
            goes_on_at = float("inf")
        time.sleep(_LOOK_S)
    with suppress(ProcessLookupError):
        os.kill(pids[_STOPPED], signal.SIGCONT)
    require(run.wait(_LIMIT_S), "the run hangs")
    require(run.process.returncode == 0, "the run failed: " + " / ".join(line for _, line in run.said[-3:]))
    return looks


def _written(report: Path) -> int:
    """Events written by the last tick of a report."""
    if not report.exists():
        return 0
    with report.open("rb") as lines:
        lines.seek(max(0, report.stat().st_size - 8192))
        found = re.findall(rb'"what": "tick".*?"written": (\d+)', lines.read())
    return int(found[-1]) if found else 0


def growth(looks: list[Look], n_events: int) -> list[Json]:
    """For each rank its memory at a tenth of the events, at the end and at most, and the growth since the tenth, in MiB."""
    later = [look for look in looks if look.written >= n_events // 10]
    require(len(later) > 1, "the run is too short for two looks at its memory")
    found = []
    for rank in sorted(later[0].memory):
        own = [look.memory[rank].own for look in later]
        sizes = {"at_tenth": own[0], "last": own[-1], "most": max(own), "grown": max(own) - own[0]}
        sizes["files"] = later[-1].memory[rank].files
        found.append({"rank": rank, **{f"{name}_mib": round(size / _MIB, 2) for name, size in sizes.items()}})
    return found


def measure(n_events: int, stop_s: float, directory: Path) -> Json:
    """Run `n_events` batches with files in `directory`; returns what happened and the memory of each rank.

    Raises WrongAnswer when the run hangs or fails, LaunchError.
    """
    files = Files.make(directory, n_events, _N_FILTERS)
    output, report = directory / "matches.h5", directory / "run.jsonl"
    more = ("--batch", "1", "--deadline", str(_DEADLINE_S), "--report", str(report))
    with DisturbedRun.of(files, output, _N_WORKERS, *more, flags=()) as run:
        looks = watched(run, report, n_events, stop_s)
    (recorded,) = read_report(report)
    assert recorded.summary is not None, "a run that succeeds has a summary"
    happened = [incident["kind"] for incident in recorded.incidents]
    return {
        "batches": n_events,
        "wall_s": round(recorded.summary["wall_s"], 1),
        "stopped_s": stop_s,
        "happened": {kind: happened.count(kind) for kind in sorted(set(happened))},
        "same_bytes": output.read_bytes() == files.expected.read_bytes(),
        "ranks": growth(looks, n_events),
    }
