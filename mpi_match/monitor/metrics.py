"""A run's metrics: a file in the text exposition format of Prometheus, replaced atomically while the run lasts.

    # HELP mpi_match_events_matched_total Events whose answers are written.
    # TYPE mpi_match_events_matched_total counter
    mpi_match_events_matched_total 17104896
    ...
    mpi_match_worker_events_total{rank="1",host="node-1"} 10616832

The textfile collector of Prometheus' node exporter reads such files.  A reader sees one whole snapshot or the next, never a
part of one.  Counters start at 0 with every run; docs/cluster.md has every metric.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import mpi_match
from mpi_match.environment.machine import resident_bytes
from mpi_match.monitor.status import INCIDENTS, RunStatus, Share
from mpi_match.storage import atomic_write, check_output, remove_half_written, reported

Labels = Mapping[str, str]


class RunState(StrEnum):
    """The state of a run; after SIGKILL the file keeps `running`, and its last update grows old."""

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


class Metric(NamedTuple):
    """A family of samples: its name without the prefix, its type, its description, and a value for each set of labels."""

    name: str
    kind: str
    text: str
    samples: Sequence[tuple[Labels, float]]


WORKER_METRICS: tuple[tuple[str, str, str, Callable[[Share], float]], ...] = (
    ("worker_up", "gauge", "1 until the worker is lost, 0 from then on.", lambda share: not share.lost),
    ("worker_straggling", "gauge", "1 while a batch of the worker is past its deadline.", lambda share: share.straggling),
    ("worker_batches_total", "counter", "Batches that the worker has answered.", lambda share: share.batches),
    ("worker_events_total", "counter", "Events that the worker has answered.", lambda share: share.events),
    ("worker_in_flight_batches", "gauge", "Batches sent to the worker and not answered.", lambda share: share.held),
    ("worker_in_flight_bytes", "gauge", "Encoded size of the batches in flight.", lambda share: share.held_bytes),
)


def metrics_of(status: RunStatus, state: RunState, started_at: float, now: float) -> Iterator[Metric]:
    """All metrics of a run; `started_at` and `now` are Unix times in seconds."""
    yield _single("build_info", "gauge", "Version of mpi-match.", 1, {"version": _version()})
    yield Metric("run_state", "gauge", "1 for the state of the run.", [({"state": s}, s == state) for s in RunState])
    yield _single("run_start_time_seconds", "gauge", "Unix time at which all workers were ready.", started_at)
    yield _single("last_update_time_seconds", "gauge", "Unix time of these values.", now)
    yield _single("run_duration_seconds", "gauge", "Time since the first batch was sent.", status.at_s)
    yield _single("run_events", "gauge", "Events that this run has to match.", status.n_events)
    yield _single("run_events_resumed", "gauge", "Events answered by earlier runs, from the journal.", status.n_resumed)
    yield _single("events_matched_total", "counter", "Events whose answers are written.", status.written)
    yield _single("matches_total", "counter", "Pairs of an event and a matched id that are written.", status.matches)
    yield _single("queue_events", "gauge", "Events whose answers are not written yet.", status.n_events - status.written)
    latency = status.latency_us()
    if latency is not None:
        shares = [({"quantile": f"{float(name[1:]) / 100:g}"}, us / 1e6) for name, us in latency.items()]
        yield Metric("event_latency_seconds", "gauge", "Time from the arrival of an event until its answer.", shares)
    yield _single("master_resident_memory_bytes", "gauge", "Resident memory of the master.", resident_bytes())
    counts = status.happened_so_far.copy()
    incidents = [({"kind": kind}, counts[kind]) for kind in INCIDENTS]
    yield Metric("incidents_total", "counter", "Failures that the run survived, by kind.", incidents)
    workers = status.shares
    about = [(_labels(r, w) | {"engine": w.engine, "device": w.device}, 1) for r, w in workers.items()]
    yield Metric("worker_info", "gauge", "Engine and device of the worker.", about)
    for name, kind, text, value in WORKER_METRICS:
        yield Metric(name, kind, text, [(_labels(rank, share), value(share)) for rank, share in workers.items()])


@cache
def _version() -> str:
    return str(mpi_match.__version__)


def _single(name: str, kind: str, text: str, value: float, labels: Labels | None = None) -> Metric:
    return Metric(name, kind, text, [(labels or {}, value)])


def _labels(rank: int, share: Share) -> dict[str, str]:
    return {"rank": str(rank), "host": share.host}


def exposition(metrics: Iterable[Metric]) -> str:
    """The metrics in the text exposition format, version 0.0.4."""
    lines: list[str] = []
    for name, kind, text, samples in metrics:
        lines += [f"# HELP mpi_match_{name} {text}", f"# TYPE mpi_match_{name} {kind}"]
        lines += [f"mpi_match_{name}{_label_text(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _label_text(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return f"{int(value)}" if isinstance(value, int) else repr(value)


class MetricsFile:
    """An observer that replaces `path` with a run's metrics at every look; `inputs` are files that `path` must not name."""

    def __init__(self, path: Path, inputs: Sequence[Path] = ()) -> None:
        self._path, self._inputs = path, inputs
        self._started_at = 0.0

    def check(self) -> None:
        """Raise StorageError if the file cannot be written."""
        check_output(self._path, self._inputs)

    def begin(self, status: RunStatus) -> None:
        """Write the file for the first time; raises StorageError."""
        remove_half_written(self._path)  # of runs that were killed
        self._started_at = time.time()
        self._write(status, RunState.RUNNING)

    def look(self, status: RunStatus) -> None:
        """Write the file; raises StorageError."""
        self._write(status, RunState.RUNNING)

    def end(self, status: RunStatus, error: BaseException | None) -> None:
        """Write the file for the last time; raises StorageError."""
        self._write(status, RunState.COMPLETE if error is None else RunState.INCOMPLETE)

    def _write(self, status: RunStatus, state: RunState) -> None:
        text = exposition(metrics_of(status, state, self._started_at, time.time()))
        with reported(self._path), atomic_write(self._path) as temporary:
            temporary.write_text(text, encoding="utf-8")
