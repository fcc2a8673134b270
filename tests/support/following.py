"""Followed runs for tests: files are committed meanwhile, and the run ends when all of their events are answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from mpirun import MPIRUN, OPEN_MPI_FLAGS, TIMEOUT_S, environment

from mpi_match.cluster import RunOptions, RunSummary, run
from mpi_match.cluster.follow.answer_files import AnswerFiles
from mpi_match.cluster.followed_files import FOLLOWING
from mpi_match.journal.manifest import read_manifest

WAIT_S = float(TIMEOUT_S)


def commit(directory: Path, name: str, rows: Iterable[bytes]) -> None:
    """Write a file beside its name and rename it."""
    writing = directory / f".{name}.writing"
    writing.write_bytes(b"".join(row + b"\n" for row in rows))
    writing.rename(directory / name)


def answers_in(output: Path) -> list[dict[str, Any]]:
    """All answers that are committed, in the order of the names of their files."""
    files = sorted(output.glob("answers-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def n_answered(output: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in output.glob("answers-*.jsonl"))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        assert process is None or process.poll() is None, "the run has ended"
        time.sleep(0.01)


def follow(options: RunOptions, until: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> RunSummary:
    """Follow in this process until the condition holds; `meanwhile` is called in a thread first."""
    failed: list[BaseException] = []

    def control() -> None:
        try:
            meanwhile()
            wait_for(lambda: _is_running(options.output) and until())
        except BaseException as error:
            failed.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=control)
    thread.start()
    try:
        summary = run(options)
    finally:
        thread.join()
    assert not failed, failed
    assert summary is not None
    return summary


def _is_running(output: Path) -> bool:
    manifest = read_manifest(output)
    return manifest is not None and manifest["state"] == FOLLOWING


def start(ranks: int, table: Path, events: Path, output: Path, *more: object) -> subprocess.Popen[bytes]:
    """Start a followed run of so many ranks."""
    launcher = [str(MPIRUN), *OPEN_MPI_FLAGS, "--with-ft", "ulfm", "-n", str(ranks)] if ranks > 1 else []
    words = [*launcher, *_alone(table, events, output, *more)]
    return subprocess.Popen(words, env=environment(), start_new_session=True)


def run_until_the_writer_dies(options: RunOptions, n_files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in this process; the writer of answers dies after `n_files` files."""

    class DiesError(Exception):
        pass

    own, calls = AnswerFiles._commit, iter(range(100))

    def die(files: AnswerFiles, found: object) -> None:
        if next(calls) == n_files:
            raise DiesError
        own(files, found)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(AnswerFiles, "_commit", die)
        with pytest.raises(DiesError):
            run(options)


def supervise(table: Path, events: Path, output: Path, *more: object) -> subprocess.Popen[bytes]:
    """Start the supervisor of a followed run of one process."""
    words = [sys.executable, "-m", "mpi_match", "supervise", "--", *_alone(table, events, output, *more)]
    return subprocess.Popen(words, env=environment(), start_new_session=True)


def _alone(table: Path, events: Path, output: Path, *more: object) -> list[str]:
    words = ["-m", "mpi4py", "-m", "mpi_match", "run", "--follow", "--table", table, "--events", events, "-o", output, *more]
    return [sys.executable, *map(str, words)]


def ranks_of(process: subprocess.Popen[bytes]) -> dict[int, int]:
    """The process numbers of the ranks that a launcher has started, by rank."""
    found = {}
    for number in children_of(process.pid):
        try:
            words = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            if word.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(word.partition(b"=")[2])] = number
    return found


def children_of(number: int) -> Sequence[int]:
    listed = subprocess.run(["pgrep", "-P", str(number)], capture_output=True, text=True, check=False).stdout.split()
    own = [int(each) for each in listed]
    return [*own, *(below for each in own for below in children_of(each))]
