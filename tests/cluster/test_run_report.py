"""The report of a run: writing, reading, refusals, and the figure."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from clock import Clock
from mpirun import TIMEOUT_S, execute, launch, needs_mpirun
from run_inputs import Inputs, plain_events

from mpi_match.environment.machine import place_of
from mpi_match.events.event_table import save_events
from mpi_match.events.schema import BLOCK_EVENTS
from mpi_match.lab import run_plot as plot
from mpi_match.monitor.report import TICKS, Recorded, RunReport, gap_s, read_report
from mpi_match.monitor.status import INCIDENTS, KEPT, RunStatus, Share
from mpi_match.storage import StorageError
from mpi_match.table.table import Table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def made_up(clock: Clock) -> RunStatus:
    status = RunStatus(1000, clock)
    status.shares = {rank: Share("keyed", "cpu", "here") for rank in (1, 2)}
    return status


def reported(path: Path, clock: Clock, seconds: int = 20) -> None:
    """Write the report of a run with one look per second; worker 2 is lost after half of them."""
    status = made_up(clock)
    with RunReport(path, {"table": Path("t.h5"), "batch": 1}) as report:
        report.begin(status)
        status.begin()
        for second in range(seconds):
            for worker in (1, 2) if second < seconds // 2 else (1,):
                status.sent(worker, second, 100)
                status.answered(worker, second, 10)
                status.wrote(10, 0)
            clock.now += 1
            if second == seconds // 2:
                status.sent(2, second, 100)
                status.happened("lost", 2)
            report.look(status)
        report.end(status, None)
        report.finish({"events": status.written})


def test_a_report_is_read_as_it_was_written(path: Path, clock: Clock) -> None:
    reported(path, clock)
    (found,) = read_report(path)
    assert found.run["options"] == {"table": "t.h5", "batch": 1}
    assert [worker["rank"] for worker in found.run["workers"]] == [1, 2]
    assert {"machine", "versions", "commit", "command", "date"} < found.run.keys()
    assert [tick["at_s"] for tick in found.ticks] == [0, *range(1, 21), 20]
    assert found.ticks[5]["answered"] == [50, 50]
    assert found.ticks[-1]["answered"] == [200, 100]
    assert [found.ticks[second]["events_per_s"] for second in (1, 10, 20)] == [20, 20, 10]
    assert [(i["at_s"], i["kind"], i["worker"], i["text"]) for i in found.incidents] == [(11, "lost", 2, "worker 2 is lost")]
    assert found.summary == {"what": "summary", "complete": True, "events": 300}


def test_a_run_adds_its_report_to_those_before_it(path: Path, clock: Clock) -> None:
    reported(path, clock)
    with path.open("a", encoding="utf-8") as handle:
        handle.write('{"what": "run", "format_version": 1}\n{"what": "ti')  # killed
    reported(path, clock, seconds=3)
    first, killed, last = read_report(path)
    assert (len(first.ticks), len(killed.ticks), len(last.ticks)) == (22, 0, 5)
    assert killed.summary is None


def test_the_report_of_a_failed_run_has_the_reason(path: Path, clock: Clock) -> None:
    status = made_up(clock)
    with RunReport(path, {}) as report:
        report.begin(status)
        status.happened("lost", 1)
        report.end(status, KeyboardInterrupt())
    (found,) = read_report(path)
    assert found.summary == {"what": "summary", "complete": False, "why": "KeyboardInterrupt"}
    assert [incident["kind"] for incident in found.incidents] == ["lost"]


def test_incidents_beyond_the_limit_are_counted(path: Path, clock: Clock) -> None:
    status = made_up(clock)
    with RunReport(path, {}) as report:
        report.begin(status)
        for batch in range(KEPT + 70):
            status.happened("dropped", 2, batch)
        report.look(status)
        status.happened("lost", 2)
        report.end(status, None)
    (found,) = read_report(path)
    assert [i["number"] for i in found.incidents] == list(range(70, KEPT + 71))
    assert '{"what": "left out", "incidents": 70}' in path.read_text(encoding="utf-8")


def test_the_interval_of_ticks_grows() -> None:
    at_s, n = 0.0, 0
    while at_s < 24 * 3600:
        at_s += max(0.25, gap_s(at_s))
        n += 1
    assert TICKS < n < 10 * TICKS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no run's report"),
        ("\x89HDF\r\n", "line 1: not a line of a run's report"),
        ('{"what": "tick"}\n', "line 1: not the first line"),
        ('{"what": "run", "format_version": 2}\n', "line 1: format version 2, expected 1"),
        ('{"what": "run", "format_version": 1}\ngarbage\n{"what": "tick"}\n', "line 2: not a line"),
    ],
)
def test_other_files_are_refused(path: Path, text: str, why: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match=why):
        read_report(path)


def test_a_report_is_never_added_to_another_file(path: Path, clock: Clock) -> None:
    path.write_bytes(b"\x89HDF\r\n and so on")
    with pytest.raises(StorageError, match="is not a run's report"), RunReport(path, {}) as report:
        report.begin(made_up(clock))
    assert path.read_bytes() == b"\x89HDF\r\n and so on"


# A real one


COMMAND = ("-m", "mpi4py", "-m", "mpi_match", "run")


@pytest.mark.mpi
@needs_mpirun
def test_a_run_of_three_ranks_reports(inputs: Inputs, tmp_path: Path, path: Path) -> None:
    files = ("--table", inputs.table, "--events", inputs.events, "-o", tmp_path / "matches.h5")
    done = execute(launch(3, *files, "--engine", "counting", "--batch", 7, "--report", path, "--json", python=COMMAND))
    assert done.returncode == 0, done.stderr
    (found,) = read_report(path)
    assert [(w["rank"], w["engine"]) for w in found.run["workers"]] == [(1, "counting"), (2, "counting")]
    assert (found.run["n_events"], found.run["options"]["batch"]) == (300, 7)
    assert found.ticks[0]["written"] == found.ticks[0]["at_s"] == 0
    last = found.ticks[-1]
    assert (last["written"], sum(last["answered"]), last["held"], last["in_flight_bytes"]) == (300, 300, [0, 0], 0)
    assert last["memory_bytes"] > 10_000_000
    assert 0 < last["at_s"] < TIMEOUT_S
    assert found.incidents == []
    assert found.summary == {"what": "summary", "complete": True, **json.loads(done.stdout)}


@pytest.mark.mpi
@needs_mpirun
def test_a_report_that_cannot_be_written_ends_the_run_before_it_begins(inputs: Inputs, tmp_path: Path) -> None:
    files = ("--table", inputs.table, "--events", inputs.events, "-o", tmp_path / "matches.h5")
    taken = tmp_path / "events.jsonl"
    taken.write_text('{"temp": 31}\n')
    done = execute(launch(3, *files, "--engine", "counting", "--report", taken, python=COMMAND))
    assert done.returncode == 3
    assert f"{taken}: exists and is not a run's report" in done.stderr
    assert taken.read_text() == '{"temp": 31}\n'
    assert not (tmp_path / "matches.h5").exists()


@pytest.mark.mpi
@needs_mpirun
def test_a_failed_run_of_several_ranks_is_reported(inputs: Inputs, tmp_path: Path, path: Path) -> None:
    damaged = tmp_path / "events.h5"
    save_events(plain_events(2 * BLOCK_EVENTS), damaged, Table.load(inputs.table).vocabulary)
    with h5py.File(damaged) as file:
        at = file["encoded/attributes"].id.get_offset() + file["encoded/attributes"].nbytes - 1
    events = bytearray(damaged.read_bytes())
    events[at] ^= 1
    damaged.write_bytes(events)
    files = ("--table", inputs.table, "--events", damaged, "-o", tmp_path / "matches.h5")
    done = execute(launch(3, *files, "--engine", "counting", "--batch", "8192", "--report", path, python=COMMAND))
    assert done.returncode == 3
    (found,) = read_report(path)
    assert found.summary is not None
    assert (found.summary["complete"], "are damaged: CRC-32" in found.summary["why"]) == (False, True)
    assert found.ticks[-1]["written"] <= BLOCK_EVENTS


def test_the_format_page_has_every_key(repository: Path, path: Path, clock: Clock) -> None:
    reported(path, clock)
    (found,) = read_report(path)
    page = (
        (repository / "mpi_match" / "docs" / "format.md")
        .read_text(encoding="utf-8")
        .split(". The report of a run")[1]
        .split("\n## ")[0]
    )
    rows = {row[0]: set(row[1:]) for row in (re.findall(r"`(\w+)`", line) for line in page.splitlines()) if row}
    for line in (found.run, found.ticks[0], found.incidents[0]):
        assert line.keys() - {"what"} <= rows[line["what"]]
    assert rows["incident"] > set(INCIDENTS)


def test_a_run_of_one_process_is_reported(inputs: Inputs, tmp_path: Path, path: Path) -> None:
    files = ("--table", inputs.table, "--events", inputs.events, "-o", tmp_path / "matches.h5")
    words = ["run", *files, "--engine", "counting", "--report", path]
    done = execute([str(word) for word in (sys.executable, "-m", "mpi_match", *words)])
    assert done.returncode == 0, done.stderr
    (found,) = read_report(path)
    assert [worker["rank"] for worker in found.run["workers"]] == [0]
    assert found.ticks[-1]["answered"] == [300]


# The figure


def recorded(path: Path, clock: Clock, **how: Any) -> Recorded:
    reported(path, clock, **how)
    return read_report(path)[-1]


def test_rates_are_of_the_intervals_between_ticks(path: Path, clock: Clock) -> None:
    bounds, written, answered = plot.rates(recorded(path, clock))
    assert bounds.tolist() == list(range(21))
    assert written.tolist() == [20.0] * 10 + [10.0] * 10
    assert answered.tolist() == [[10.0] * 20, [10.0] * 10 + [0.0] * 10]


def test_a_long_run_is_drawn_in_few_intervals(path: Path, clock: Clock) -> None:
    found = recorded(path, clock, seconds=1000)
    bounds, written, answered = plot.rates(found)
    assert len(bounds) == plot.MOST + 1
    assert (bounds[0], bounds[-1]) == (0, found.ticks[-1]["at_s"])
    assert float(written @ np.diff(bounds)) == pytest.approx(found.ticks[-1]["written"])
    assert answered @ np.diff(bounds) == pytest.approx(found.ticks[-1]["answered"])


def test_large_batches_are_drawn_in_longer_intervals(path: Path, clock: Clock) -> None:
    found = recorded(path, clock)
    found.run["options"]["batch"] = 1000 / (9 * 2 * plot.BATCHES)
    bounds, _, _ = plot.rates(found)
    assert len(bounds) == 9 + 1


def test_the_figure_has_workers_and_incidents(path: Path, clock: Clock, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    found = recorded(path, clock)
    plot.draw(found, tmp_path / "run.svg")
    drawn = (tmp_path / "run.svg").read_text(encoding="utf-8")
    place, _, made = place_of(found.run).partition("; ")
    assert f"<!-- {place} -->" in drawn
    assert f"<!-- {made} -->" in drawn
    assert all(f"<!-- {word} -->" in drawn for word in ("worker 1", "worker 2", "lost", "events per second"))
    assert "<!-- overdue -->" not in drawn
    done = execute([sys.executable, "-m", "mpi_match", "plot", str(path)])
    assert (done.returncode, done.stderr) == (0, f"{tmp_path / 'run.png'} written\n")
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_a_run_without_two_ticks_is_not_drawn(path: Path, clock: Clock, tmp_path: Path) -> None:
    path.write_text('{"what": "run", "format_version": 1}\n', encoding="utf-8")
    done = execute([sys.executable, "-m", "mpi_match", "plot", str(path), "-o", str(tmp_path / "run.png")])
    assert done.returncode == 3
    assert done.stderr == "mpi-match: the report has no two ticks at different times: there is nothing to draw\n"


def test_without_matplotlib_one_line_says_so(path: Path, clock: Clock, tmp_path: Path) -> None:
    reported(path, clock)
    hide = "import sys; sys.modules['matplotlib'] = None; from mpi_match.cli.main import main; main()"
    done = execute([sys.executable, "-c", hide, "plot", str(path), "-o", str(tmp_path / "run.png")])
    assert done.returncode == 5
    assert done.stderr == "mpi-match: plot needs matplotlib: pip install 'mpi-match[plot]'\n"
