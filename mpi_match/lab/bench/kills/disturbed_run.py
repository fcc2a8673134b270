"""A run of several ranks for fault injection: its input, its processes, and their messages with times.

    files = Files.make(directory)
    with DisturbedRun.of(files, output, n_workers=3) as run:
        run.begun(limit_s)
        os.kill(run.pids()[2], signal.SIGKILL)
        assert run.wait(limit_s)
    output.read_bytes() == files.expected.read_bytes()

Only ranks of this host can be found and killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from mpi_match.environment import mpi_launcher
from mpi_match.environment.machine import origin
from mpi_match.journal.manifest import COMPLETE, read_manifest
from mpi_match.lab.bench.scaling import importing_this
from mpi_match.lab.workloads.files import write_workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

_N_FILTERS, _N_EVENTS, _BATCH = 300, 3000, 25
"""About ten milliseconds a batch for the slowest engine, 120 batches."""
_SCENARIO = replace(
    SCENARIOS["clcb-area-1"], name="disturbed", n_filters=_N_FILTERS, n_interfaces=50, filter_size=(0, 2), area=0.5
)
"""Large areas and hardly any constraints: answers of tens of interfaces."""
BEGUN = re.compile(r"\d+ workers?: |engine \S+ on ")
"""Message of the master, or of a run of one process, when matching begins."""
RANK = re.compile(rb"(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)$")


@dataclass
class Files:
    """The input of all runs, and the answers of an undisturbed one."""

    table: Path
    events: Path
    expected: Path

    @classmethod
    def make(cls, directory: Path, n_events: int = _N_EVENTS, n_filters: int = _N_FILTERS) -> Files:
        """Some filters and events; the engine `reference` takes some tenths of a millisecond for each event."""
        files = cls(*(directory / f"{name}.h5" for name in ("table", "events", "expected")))
        write_workload(_SCENARIO.scaled(n_filters), directory, n_events)
        alone = [sys.executable, "-m", "mpi_match", *files.arguments(files.expected), "--engine", "counting"]
        subprocess.run(alone, check=True, env=_environment(), capture_output=True)
        return files

    def arguments(self, output: Path) -> list[str]:
        """A run of these files."""
        paths = ("--table", self.table, "--events", self.events, "-o", output)
        return [*map(str, ("run", *paths, "--engine", "reference", "--batch", _BATCH))]


def _environment(**more: str) -> dict[str, str]:
    """The environment for a process that must not count as a rank of an outer launcher."""
    own = {key: value for key, value in importing_this().items() if not key.startswith(("OMPI_COMM", "PMI_", "PMIX_"))}
    return {**own, **more}


def tolerant_flags() -> tuple[str, ...]:
    """The launcher's flags for going on without a worker, if it has any.  Raises LaunchError."""
    if not mpi_launcher.is_open_mpi():
        return ("-disable-auto-cleanup",)
    return ("--enable-recovery",) if " 4." in mpi_launcher.version() else ("--with-ft", "ulfm")


def record(what: str, began: float, **found: object) -> Json:
    """The record of what was done and `found` since `began`, a time of the monotonic clock."""
    minutes = round((time.monotonic() - began) / 60, 1)
    return {"what": what, "scenario": _SCENARIO.name, "mpi": mpi_launcher.version(), "minutes": minutes, **found, **origin()}


def is_complete(output: Path) -> bool:
    """Returns whether the manifest of `output` says that the run is complete."""
    manifest = read_manifest(output)
    return manifest is not None and manifest["state"] == COMPLETE


class DisturbedRun:
    """A run of several ranks, and their messages with times."""

    def __init__(self, command: Sequence[object], output: Path) -> None:
        self.output = output
        self._tmpdir = tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True)
        self._shared_memory = ExitStack()
        shm = self._shared_memory.enter_context(mpi_launcher.own_shared_memory())
        own = _environment(TMPDIR=self._tmpdir.name, **shm)
        self.process = subprocess.Popen(
            [*map(str, command)], env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.said: list[tuple[float, str]] = []
        self._begun = threading.Event()
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @classmethod
    def of(cls, files: Files, output: Path, n_workers: int, *more: str, flags: Sequence[str] | None = None) -> DisturbedRun:
        """A run of these files by the command line; `flags` are flags of the launcher, besides those for one host; default
        `tolerant_flags`.  Raises LaunchError."""
        wanted = tolerant_flags() if flags is None else tuple(flags)
        return cls(mpi_launcher.command(1 + n_workers, wanted, [*files.arguments(output), "-v", *more], local=True), output)

    def _read(self, stderr: IO[str]) -> None:
        for line in stderr:
            self.said.append((time.monotonic(), line.rstrip()))
            if BEGUN.search(line):
                self._begun.set()
        self._begun.set()

    def begun(self, limit_s: float) -> float:
        """Wait until matching begins; returns the time."""
        self._begun.wait(limit_s)
        return self.said[-1][0] if self.said else time.monotonic()

    def ended(self, limit_s: float) -> float:
        """Wait for the first answers, or until no rank is left; returns the time."""
        started = time.monotonic()
        while not self.output.exists() and self.process.poll() is None and time.monotonic() < started + limit_s:
            time.sleep(0.01)
        return time.monotonic()

    def pids(self) -> dict[int, int]:
        """The processes of the ranks."""
        return ranks_of(self.output)

    def wait(self, limit_s: float) -> bool:
        """Wait for the end; returns False after killing a run that takes longer than `limit_s`."""
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
            self._tmpdir.cleanup()
            self._shared_memory.close()
        return True

    def __enter__(self) -> DisturbedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(0)


def ranks_of(output: Path) -> dict[int, int]:
    """The process numbers of the ranks that write an output, by rank."""
    found = {}
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdecimal() and bytes(output) in (each / "cmdline").read_bytes().split(b"\0"):
                ranks = [RANK.match(word) for word in (each / "environ").read_bytes().split(b"\0")]
                found.update({int(rank[1]): int(each.name) for rank in ranks if rank})
    return found


def is_running(pid: int) -> bool:
    """Returns whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
