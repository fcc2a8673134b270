"""`run --metrics`: the file is valid in the text exposition format at every moment, and has the run's state."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import h5py
import pytest
from clock import Clock
from lasting import lasting
from mpirun import TIMEOUT_S, environment, execute, launch, needs_mpirun
from run_inputs import Inputs, plain_events

from mpi_match.events.event_table import save_events
from mpi_match.events.schema import BLOCK_EVENTS
from mpi_match.monitor.metrics import WORKER_METRICS, Metric, MetricsFile, RunState, exposition, metrics_of
from mpi_match.monitor.observer import Watch
from mpi_match.monitor.status import INCIDENTS, RunStatus, Share
from mpi_match.storage import StorageError
from mpi_match.table.table import Table

COMMAND = ("-m", "mpi4py", "-m", "mpi_match", "run")
NAME = "[a-z][a-z0-9_]*"
LABEL = rf'({NAME})="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ([0-9][0-9.e+-]*)")

Sample = tuple[str, frozenset[tuple[str, str]]]


class Parsed(NamedTuple):
    """An exposition: the type of each family, and the value of each name with a set of labels."""

    kinds: dict[str, str]
    values: dict[Sample, float]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name that has these labels among its own."""
        found = [v for (n, own), v in self.values.items() if n == f"mpi_match_{name}" and labels.items() <= set(own)]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    @property
    def state(self) -> str:
        """The state that is 1, where all others are 0."""
        found = {state: self.value("run_state", state=state) for state in RunState}
        assert sorted(found.values()) == [0, 0, 1]
        return next(state for state, value in found.items() if value)


def parsed(text: str) -> Parsed:
    """An exposition, each family as HELP, TYPE and samples in one group; anything else fails."""
    kinds: dict[str, str] = {}
    values: dict[Sample, float] = {}
    assert text.endswith("\n")
    lines = text[:-1].split("\n")
    while lines:
        about = re.fullmatch(rf"# HELP (mpi_match_{NAME}) (\S.*)", lines.pop(0))
        assert about is not None
        family = about[1]
        typed = re.fullmatch(rf"# TYPE {family} (counter|gauge)", lines.pop(0))
        assert typed is not None
        assert family not in kinds
        kinds[family] = typed[1]
        assert (typed[1] == "counter") == family.endswith("_total"), family
        before = len(values)
        while lines and not lines[0].startswith("#"):
            sample = SAMPLE.fullmatch(lines.pop(0))
            assert sample is not None
            assert sample[1] == family
            pairs = re.findall(LABEL, sample[2] or "")
            key = family, frozenset(pairs)
            assert len(dict(pairs)) == len(pairs)
            assert key not in values, f"{key} is given twice"
            values[key] = float(sample[sample.re.groups])
        assert len(values) > before, f"{family} has no sample"
    return Parsed(kinds, values)


def read(path: Path) -> Parsed:
    return parsed(path.read_text(encoding="utf-8"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.prom"


@pytest.fixture
def status(clock: Clock) -> RunStatus:
    """A run of 1,000 events and 500 resumed ones: worker 1 has answered 10, worker 2 is lost."""
    made = RunStatus(1000, clock, n_resumed=500)
    made.shares = {1: Share("keyed", "cpu", "node-1"), 2: Share("ccm", 'a "GPU"\\\n', "node-2")}
    made.begin()
    for worker in (1, 2):
        made.sent(worker, 0, 700)
    made.sent(1, 1, 300)
    made.answered(1, 0, 10)
    made.wrote(10, 25)
    made.happened("overdue", 1, 1)
    made.happened("lost", 2)
    clock.now += 1.5
    return made


def test_every_number_of_the_status_is_a_sample(status: RunStatus) -> None:
    found = parsed(exposition(metrics_of(status, RunState.RUNNING, 100.25, 103.0)))
    single = {
        "run_start_time_seconds": 100.25,
        "last_update_time_seconds": 103,
        "run_duration_seconds": 1.5,
        "run_events": 1000,
        "run_events_resumed": 500,
        "events_matched_total": 10,
        "matches_total": 25,
        "queue_events": 990,
    }
    assert {name: found.value(name) for name in single} == single
    assert found.value("master_resident_memory_bytes") > 0
    incidents = {kind: found.value("incidents_total", kind=kind) for kind in INCIDENTS}
    assert incidents == {**dict.fromkeys(INCIDENTS, 0), "overdue": 1, "lost": 1}
    workers = [[found.value(name, rank=rank, host=f"node-{rank}") for name, *_ in WORKER_METRICS] for rank in "12"]
    assert workers == [[1, 1, 1, 10, 1, 300], [0, 0, 0, 0, 0, 0]]


def test_labels_are_escaped(status: RunStatus) -> None:
    text = exposition(metrics_of(status, RunState.RUNNING, 0, 0))
    assert r'{rank="2",host="node-2",engine="ccm",device="a \"GPU\"\\\n"} 1' in text
    assert parsed(text).value("worker_info", rank="2", device=r"a \"GPU\"\\\n") == 1


@pytest.mark.parametrize("value", [0, True, 2**60, 0.1, 1e300, 1e-300, 1795420129.9773529])
def test_numbers_are_exact(value: float) -> None:
    text = exposition([Metric("x", "gauge", "A number.", [({}, value)])])
    assert parsed(text).value("x") == value


@pytest.mark.parametrize(
    ("error", "state"), [(None, "complete"), (KeyboardInterrupt(), "incomplete"), (StorageError("damaged"), "incomplete")]
)
def test_the_last_state_is_how_the_run_ended(path: Path, status: RunStatus, error: BaseException | None, state: str) -> None:
    metrics = MetricsFile(path)
    metrics.check()
    assert not path.exists()
    metrics.begin(status)
    assert read(path).state == "running"
    status.wrote(990, 0)
    metrics.look(status)
    assert (read(path).state, read(path).value("queue_events")) == ("running", 0)
    metrics.end(status, error)
    assert read(path).state == state
    assert list(path.parent.iterdir()) == [path]


def test_a_killed_runs_half_written_file_is_removed(path: Path, status: RunStatus) -> None:
    left = path.with_name(f".{path.name}.0123456789abcdef.writing")
    left.write_text("# HELP mpi_match_bu")
    MetricsFile(path).begin(status)
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(path: Path, status: RunStatus) -> None:
    path.write_text(exposition(metrics_of(status, RunState.INCOMPLETE, 0, 0)), encoding="utf-8")
    with Watch([MetricsFile(path)], tick_s=0.0001)(status):
        for _ in range(300):
            assert read(path).state in ("incomplete", "running")
    assert read(path).state == "complete"


def test_the_page_has_every_metric(repository: Path, status: RunStatus) -> None:
    page = (repository / "mpi_match" / "docs" / "cluster.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in page.split("\n## Metrics")[1].split("\n## ")[0].splitlines() if row.startswith("| `")]
    status.latency_us = lambda: {"p50": 1.0}
    documented = {name: cells[2].strip() for cells in rows for name in re.findall(r"`(\w+)`", cells[1])}
    assert documented == {metric.name: metric.kind for metric in metrics_of(status, RunState.RUNNING, 0, 0)}


# Real ones


def files_of(inputs: Inputs, directory: Path) -> tuple[object, ...]:
    return ("--table", inputs.table, "--events", inputs.events, "-o", directory / "matches.h5", "--engine", "counting")


def test_one_process_keeps_its_metrics(inputs: Inputs, tmp_path: Path, path: Path) -> None:
    words = (sys.executable, "-m", "mpi_match", "run", *files_of(inputs, tmp_path), "--metrics", path)
    done = execute([str(word) for word in words])
    assert done.returncode == 0, done.stderr
    found = read(path)
    assert (found.state, found.value("events_matched_total"), found.value("worker_events_total", rank="0")) == (
        "complete",
        300,
        300,
    )


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("results", ["master", "local"])
def test_a_run_of_three_ranks_keeps_its_metrics(results: str, inputs: Inputs, tmp_path: Path, path: Path) -> None:
    options = ("--batch", 7, "--results", results, "--metrics", path)
    done = execute(launch(3, *files_of(inputs, tmp_path), *options, python=COMMAND))
    assert done.returncode == 0, done.stderr
    found = read(path)
    assert found.state == "complete"
    assert (found.value("events_matched_total"), found.value("queue_events"), found.value("run_events")) == (300, 0, 300)
    (n_matches,) = re.findall(r"300 events, ([\d,]+) matches", done.stderr)
    assert found.value("matches_total") == int(n_matches.replace(",", "")) > 0
    for name, total in (("worker_events_total", 300), ("worker_batches_total", 43), ("worker_in_flight_batches", 0)):
        assert sum(found.value(name, rank=rank) for rank in "12") == total
    assert found.value("last_update_time_seconds") - found.value("run_start_time_seconds") >= found.value(
        "run_duration_seconds"
    )


@pytest.mark.mpi
@needs_mpirun
def test_a_run_that_fails_ends_as_incomplete(inputs: Inputs, tmp_path: Path, path: Path) -> None:
    damaged = tmp_path / "events.h5"
    save_events(plain_events(2 * BLOCK_EVENTS), damaged, Table.load(inputs.table).vocabulary)
    with h5py.File(damaged) as file:
        at = file["encoded/attributes"].id.get_offset() + file["encoded/attributes"].nbytes - 1
    content = bytearray(damaged.read_bytes())
    content[at] ^= 1
    damaged.write_bytes(content)
    files = files_of(replace(inputs, events=damaged), tmp_path)
    done = execute(launch(3, *files, "--batch", 8192, "--metrics", path, python=COMMAND))
    assert done.returncode == 3
    found = read(path)
    assert (found.state, found.value("run_events")) == ("incomplete", 2 * BLOCK_EVENTS)
    assert found.value("events_matched_total") <= BLOCK_EVENTS


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("number", [signal.SIGTERM, *lasting(signal.SIGINT)])
def test_an_interrupted_run_ends_as_incomplete(number: int, inputs: Inputs, tmp_path: Path, path: Path) -> None:
    events = tmp_path / "events.h5"
    save_events(plain_events(2 * BLOCK_EVENTS), events, Table.load(inputs.table).vocabulary)
    files = files_of(replace(inputs, events=events), tmp_path)
    command = launch(3, *files, "--batch", 1, "--credits", 1, "--metrics", path, python=COMMAND)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and not (path.exists() and read(path).value("events_matched_total")):
            time.sleep(0.05)
        assert read(path).state == "running"
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode != 0
    found = read(path)
    assert found.state == "incomplete"
    assert 0 < found.value("events_matched_total") < 2 * BLOCK_EVENTS
    assert not list(tmp_path.glob("*.writing"))


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere/run.prom", "nowhere does not exist; create it first"),
        pytest.param("taken", "cannot be written: it is a directory", marks=pytest.mark.lasting),
        ("matches.h5", "does not end in .prom, which says what is written"),
        ("matches", "is an input and would be overwritten"),
    ],
)
def test_a_file_that_cannot_be_written_ends_the_run_in_one_line(name: str, why: str, inputs: Inputs, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    files = ("--table", inputs.table, "--events", inputs.events, "-o", tmp_path / "matches")
    done = execute(launch(3, *files, "--engine", "counting", "--metrics", tmp_path / name, python=COMMAND))
    assert done.returncode == (2 if "end in" in why else 3)
    assert why in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("mpi-match: ")]) == (done.returncode == 3)
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]
