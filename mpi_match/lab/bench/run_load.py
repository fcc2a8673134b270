"""Latency of whole runs against offered load: events come as files into a directory that a run follows.

    closed loop    all events in one file: the rate at which they are answered
    open loop      files of lines, renamed every `RENAMED_EVERY_S`, with as many events as a Poisson process brings meanwhile

A latency is from the rename of an event's file until its answer is written, as the run itself reports it (`run --follow`):
scanning, messages between master and workers, matching and writing are in it.  One event, without which workers would still
compile, comes before.  The knee is that of `load`.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.cluster.follow.answer_files import answered_in
from mpi_match.cluster.followed_files import FOLLOWING
from mpi_match.environment import mpi_launcher
from mpi_match.environment.machine import origin
from mpi_match.environment.mpi_launcher import LaunchError
from mpi_match.journal.manifest import read_manifest
from mpi_match.lab.bench.end_to_end import EndToEndFiles, make_files
from mpi_match.lab.bench.load import offered_shares
from mpi_match.lab.bench.scaling import ScalingPlan, importing_this, own_lines
from mpi_match.model import Json

RUN_SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.1)
"""Offered load as shares of the rate of the closed loop."""
RENAMED_EVERY_S = 0.005
"""Seconds between two renames."""
_FILE_AGE_S = 0.2
_START_S, _END_S = 120.0, 60.0
"""Seconds in which a run has to start, and to answer what is left."""
LEAST_OFFERED = 2000
"""Events of a run, so that the first one is not among the 99.9 %."""
LASTS_S, CLOSED_EVENTS = 3.0, 500_000
"""Seconds that a run with a load lasts, and least events of one without; events are repeated."""


class ServedRun(NamedTuple):
    """The outcome of a run: seconds from the first event to the last answer, and its last manifest."""

    seconds: float
    manifest: Json


def commit_lines(directory: Path, name: str, lines: Sequence[bytes]) -> None:
    """Write lines, each with its line feed, beside a file's name, and rename the file."""
    writing = directory / f".{name}"
    writing.write_bytes(b"".join(lines))
    writing.rename(directory / name)


def repeated(lines: Sequence[bytes], n: int) -> list[bytes]:
    """The lines, again and again, until there are at least n."""
    return list(lines) * max(-(-n // len(lines)), 1)


def offer(directory: Path, lines: Sequence[bytes], rate: float, seed: int = 0) -> None:
    """Commit lines as a Poisson process of `rate` a second brings them, in files that are renamed every `RENAMED_EVERY_S`.

    Files that should have been renamed already, because writing takes longer, follow at once.
    """
    ends = np.minimum(
        np.random.default_rng(seed).poisson(rate * RENAMED_EVERY_S, 4 * round(len(lines) / (rate * RENAMED_EVERY_S)) + 64),
        2**31,
    )
    began, at = time.perf_counter(), 0
    for tick, n in enumerate(itertools.chain(ends.tolist(), itertools.repeat(len(lines))), 1):
        wait = began + tick * RENAMED_EVERY_S - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        if n:
            commit_lines(directory, f"events-{tick:09}.jsonl", lines[at : at + n])
        at += n
        if at >= len(lines):
            return


def served(plan: ScalingPlan, files: EndToEndFiles, lines: Sequence[bytes], rate: float | None) -> ServedRun:
    """Start a run of `plan.workers` and offer it lines at a rate, or all at once.  Raises LaunchError."""
    with tempfile.TemporaryDirectory(prefix="mpi-match-load-", dir=files.table.parent) as place:
        events, output = Path(place) / "events", Path(place) / "answers"
        events.mkdir()
        how = ["--batch", str(plan.batch), "--threads", str(plan.threads_each), "--file-age", str(_FILE_AGE_S), *plan.how]
        form = ["--location", ",".join(files.form.location)] if files.form.location else []
        words = ["run", "--follow", "--table", str(files.table), "--events", str(events), "-o", str(output), *how, *form]
        with _started(plan, words, Path(place) / "log") as process:
            _wait(process, _START_S, lambda: (read_manifest(output) or {}).get("state") == FOLLOWING)
            commit_lines(events, "events-000000000.jsonl", lines[:1])
            _wait(process, _START_S, lambda: answered_in(output) == 1)
            began = time.perf_counter()
            if rate is None:
                commit_lines(events, "events-000000001.jsonl", lines)
            else:
                offer(events, lines, rate, plan.seed)
            _wait(process, _END_S + len(lines) / (rate or len(lines)), lambda: answered_in(output) == 1 + len(lines))
            seconds = time.perf_counter() - began
            process.send_signal(signal.SIGTERM)
            process.wait(_END_S)
        return ServedRun(seconds, read_manifest(output) or {})


@contextmanager
def _started(plan: ScalingPlan, words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of a master and workers, which is killed if it has not ended at the end of the block."""
    command = mpi_launcher.command(plan.workers[-1] + 1, plan.flags, words)
    with mpi_launcher.own_shared_memory(wanted=not plan.flags) as shm, log.open("wb") as to:
        process = subprocess.Popen(command, env={**importing_this(), **shm}, stdout=to, stderr=to, start_new_session=True)
        try:
            yield process
        except _LateError:
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            why = " ".join(own_lines(said) or said.splitlines()[-1:]) or "it is late"
            raise LaunchError(f"a followed run of {plan.workers[-1]} workers failed: {why}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class _LateError(Exception):
    """A run has ended early, or does not answer."""


def _wait(process: subprocess.Popen[bytes], seconds: float, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > until:
            raise _LateError
        time.sleep(0.01)


Serve = Callable[[ScalingPlan, EndToEndFiles, Sequence[bytes], float | None], ServedRun]


def measure_run_load(
    plan: ScalingPlan,
    directory: Path,
    shares: Sequence[float] = RUN_SHARES,
    tell: Callable[[str], None] = lambda text: None,
    serve: Serve = served,
) -> Iterator[Json]:
    """Measure runs of the most workers of a plan without load, then at each share of the rate that they served, and beyond;
    yields a record of each as soon as it is measured.

    The workload is written to `directory`, and found there again.  A record has `what` ("run load"), `scenario`,
    `n_filters`, `workers`, `threads`, `batch`, `n_events`, `share` (None for the closed loop), `rate`, `events_per_s`,
    `latency_us` (p50, p99, p99.9), `engine`, `device` and its origin.  Raises LaunchError, StorageError, OSError.
    """
    files = make_files(plan, directory, lines=True)
    lines = files.events.read_bytes().splitlines(keepends=True)
    found: list[Json] = []
    rate = 0.0
    for share in itertools.chain((None,), offered_shares(shares, found)):
        offered = None if share is None else share * rate
        tell("as fast as it can" if offered is None else f"{share:g} of {rate:,.0f} events/s")
        mine = repeated(lines, CLOSED_EVENTS if offered is None else round(offered * LASTS_S))
        seconds, manifest = serve(plan, files, mine, offered)
        rate = rate or len(mine) / seconds
        found.append(
            {
                "what": "run load",
                "scenario": plan.scenario,
                "n_filters": plan.drawn_from.n_filters,
                "workers": plan.workers[-1],
                "threads": plan.threads_each,
                "batch": plan.batch,
                "n_events": len(mine),
                "share": share,
                "rate": offered,
                "events_per_s": len(mine) / seconds,
                **{key: manifest[key] for key in ("latency_us", "engine", "device")},
                **origin(),
            }
        )
        yield found[-1]
