"""A run of several ranks that is to be disturbed: its input, its processes, their messages and the times of these.

files = Files.make(directory)
with Run.of(files, output, n_workers=3) as run:
    run.begun(limit_s)
    os.kill(run.pids()[2], signal.SIGKILL)
    assert run.wait(limit_s)
output.read_bytes() == files.expected.read_bytes()
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mpirun import FLAGS, MPIRUN, ULFM, environment, launchers_directory
from random_tables import Shape, random_subscriptions

from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.table.table import Table

N_FILTERS, N_EVENTS, BATCH = 300, 3000, 25
"""About ten milliseconds a batch for the slowest engine, 120 batches."""
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
    def make(cls, directory: Path, n_events: int = N_EVENTS, n_filters: int = N_FILTERS) -> Files:
        """Random filters and events; the engine `reference` takes some tenths of a millisecond for each event."""
        files = cls(*(directory / f"{name}.h5" for name in ("table", "events", "expected")))
        filters, events = random_subscriptions(11, Shape(n_filters=n_filters, n_events=n_events, areas=0.3, sizes=(0, 3)))
        table = Table.from_filters(filters)
        table.save(files.table)
        save_events(Events.of(events), files.events, table.vocabulary)
        alone = [sys.executable, "-m", "mpi_match", *files.arguments(files.expected), "--engine", "counting"]
        subprocess.run(alone, check=True, env=environment(), capture_output=True)
        return files

    def arguments(self, output: Path) -> list[str]:
        """A run of these files."""
        paths = ("--table", self.table, "--events", self.events, "-o", output)
        return [*map(str, ("run", *paths, "--engine", "reference", "--batch", BATCH))]


class Run:
    """A run of several ranks, and their messages with times."""

    def __init__(self, command: Sequence[object], output: Path) -> None:
        self.output = output
        self._tmpdir = launchers_directory()
        own = environment(TMPDIR=self._tmpdir.name)
        self.process = subprocess.Popen(
            [*map(str, command)], env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.said: list[tuple[float, str]] = []
        self._begun = threading.Event()
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @classmethod
    def of(cls, files: Files, output: Path, n_workers: int, *more: str, flags: Sequence[str] = ULFM) -> Run:
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
        """Wait for the first answers, or until no rank is left; returns when that was."""
        started = time.monotonic()
        while not self.output.exists() and self.process.poll() is None and time.monotonic() < started + limit_s:
            time.sleep(0.01)
        return time.monotonic()

    def pids(self) -> dict[int, int]:
        """The processes of the ranks."""
        return ranks_of(self.output)

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
            self._tmpdir.cleanup()
        return True

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(0)


def ranks_of(output: Path) -> dict[int, int]:
    """The processes of the ranks that write an output."""
    found = {}
    for each in Path("/proc").iterdir():
        with suppress(OSError):
            if each.name.isdecimal() and bytes(output) in (each / "cmdline").read_bytes().split(b"\0"):
                ranks = [RANK.match(word) for word in (each / "environ").read_bytes().split(b"\0")]
                found.update({int(rank[1]): int(each.name) for rank in ranks if rank})
    return found


def is_running(pid: int) -> bool:
    """Is there such a process, and has it not ended?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
