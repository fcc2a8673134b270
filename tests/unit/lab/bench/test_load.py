"""Latency against offered load, and its knee."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mpi_match.cli.main import commands
from mpi_match.lab.bench import load
from mpi_match.lab.bench.engines import BenchOptions
from mpi_match.lab.bench.load import knee_of, load_table, measure_load, offered_shares
from mpi_match.model import Json


def at(share: float | None, served: float, p99: float) -> Json:
    latency = {"p50": p99 / 2, "p99": p99, "p99.9": 2 * p99}
    return {"share": share, "rate": 1000 * (share or 1), "events_per_s": served, "latency_us": latency}


def test_the_knee_has_the_most_events_for_its_latency() -> None:
    curve = [at(None, 1000, 1), at(0.1, 100, 20), at(0.5, 500, 25), at(0.8, 800, 35), at(0.9, 900, 90), at(1.1, 1000, 9000)]
    assert curve[knee_of(curve)]["share"] == 0.8
    queue = [at(load, 1000 * load, 20 / (1 - load)) for load in (0.1, 0.3, 0.5, 0.7, 0.9)]  # M/M/1: half of its capacity
    assert queue[knee_of(queue)]["share"] == 0.5


def test_an_engine_is_measured_at_shares_of_the_rate_that_it_serves() -> None:
    options = BenchOptions(n_filters=50, n_events=40, batch=8, repetitions=1, threads=1, warm_up_s=0.0, check=2)
    closed, *offered = measure_load("sff", "ccm-strings", options, shares=(0.2, 0.5))
    assert (closed["share"], "rate" in closed) == (None, False)
    assert [record["rate"] for record in offered] == [share * closed["events_per_s"] for share in (0.2, 0.5)]
    assert sum(line.endswith("knee") for line in load_table([closed, *offered]).splitlines()) == 1


def test_a_load_is_given_as_soon_as_it_is_measured(tmp_path: Path) -> None:
    """An interruption leaves the records of the loads before, in the file and on standard output."""
    measured: list[Json] = []

    def interrupted(*_: object, **__: object) -> list[Json]:
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(at(None, 1000.0, 1))
        return [measured[-1]]

    for to in (["-o", str(tmp_path / "load.jsonl")], []):
        measured.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(load, "compare", interrupted)
            done = CliRunner().invoke(commands, ["bench", "load", "ccm", "--filters", "20", "--events", "30", *to])
        assert done.exit_code != 0
        lines = (tmp_path / "load.jsonl").read_text(encoding="utf-8") if to else done.stdout
        assert [json.loads(line)["share"] for line in lines.splitlines()] == [None, 0.1]


def test_loads_grow_until_one_is_not_served() -> None:
    found = [at(None, 1000, 1)]
    for share in offered_shares((0.5, 1.0), found):
        found.append(at(share, min(1000 * share, 1400), 20))
    assert [record["share"] for record in found[1:]] == [0.5, 1.0, 1.25, 1.5625]
    assert list(offered_shares((0.1, 0.5), found[:2])) == [0.1, 0.5], "loads below the closed loop's are all"


def test_short_runs_are_told() -> None:
    curve = [{**at(share, 1000 * share, 20), "n_events": 500} for share in (0.1, 1.0)]
    assert "runs as short as 0.5 s: latencies vary; `--events 1000` makes each last 1 s" in load_table(curve)
    assert "short" not in load_table([{**record, "n_events": 1000} for record in curve])
