"""Latency of whole runs against offered load: events come at their rate, and every load is measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from mpi_match.environment import mpi_launcher
from mpi_match.environment.mpi_launcher import LaunchError
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.lab.bench import run_load
from mpi_match.lab.bench.end_to_end import EndToEndFiles
from mpi_match.lab.bench.load import knee_of, load_table
from mpi_match.lab.bench.run_load import ServedRun, measure_run_load, offer, repeated, served
from mpi_match.lab.bench.scaling import ScalingPlan


def test_lines_come_in_order_at_their_rate(tmp_path: Path) -> None:
    lines = [b"%d\n" % i for i in range(1000)]
    began = time.perf_counter()
    offer(tmp_path, lines, 4000.0)
    assert 0.2 < time.perf_counter() - began < 2
    files = sorted(tmp_path.iterdir())
    assert b"".join(file.read_bytes() for file in files) == b"".join(lines)
    assert 30 < len(files) < 80
    assert not [file for file in files if file.name.startswith(".")]
    assert len({file.read_bytes().count(b"\n") for file in files}) > 5, "arrivals are random"


def test_lines_are_repeated() -> None:
    assert [len(repeated([b"a", b"b"], n)) for n in (0, 2, 3, 8)] == [2, 2, 4, 8]


def test_a_run_is_measured_at_shares_of_the_rate_that_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that serves 1,000 events/s."""
    monkeypatch.setattr(run_load, "CLOSED_EVENTS", 100)
    offered: list[tuple[int, float | None]] = []

    def serve(plan: ScalingPlan, files: EndToEndFiles, lines: Sequence[bytes], rate: float | None) -> ServedRun:
        offered.append((len(lines), rate))
        load = (rate or 0) / 1000
        latency = {"p50": 10.0, "p99": 20 / max(1 - load, 0.001), "p99.9": 9e4}
        return ServedRun(len(lines) / min(rate or 1000, 1000), {"latency_us": latency, "engine": "keyed", "device": "cpu"})

    plan = ScalingPlan("ccm", (2,), 50, n_filters=20, threads=1)
    found = list(measure_run_load(plan, tmp_path, (0.2, 0.5, 1.1), serve=serve))
    assert offered == [(100, None), (600, 200), (1500, 500), (3300, 1100), (4150, 1375)], "one load is not served"
    assert [record["events_per_s"] for record in found] == pytest.approx([1000, 200, 500, 1000, 1000])
    assert knee_of(found) == 2
    assert {(record["what"], record["workers"], record["n_filters"]) for record in found} == {("run load", 2, 20)}
    assert sum(line.endswith("knee") for line in load_table(found).splitlines()) == 1


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("mpi-match: keyed has no option x\\n-----\\n", "failed: mpi-match: keyed has no option x"),
        ("one\\nthe launcher fails\\n", "failed: the launcher fails"),
        ("", "failed: it is late"),
    ],
)
def test_a_run_that_fails_says_what_its_ranks_said(
    printed: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launchers print rules and more behind it."""
    monkeypatch.setattr(mpi_launcher, "command", lambda *_: ["sh", "-c", f"printf '{printed}'; exit 2"])
    files = EndToEndFiles(tmp_path / "table.h5", tmp_path / "events.jsonl", EventForm())
    with pytest.raises(LaunchError, match=f"{words}$"):
        served(ScalingPlan("ccm", (2,), 50), files, [b"{}\n"], None)
