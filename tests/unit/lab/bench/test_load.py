"""Latency against offered load, and its knee."""

from __future__ import annotations

from mpi_match.lab.bench.engines import BenchOptions
from mpi_match.lab.bench.load import knee_of, load_table, measure_load
from mpi_match.model import Json


def at(share: float | None, served: float, p99: float) -> Json:
    latency = {"p50": p99 / 2, "p99": p99, "p99.9": 2 * p99}
    return {"share": share, "rate": 1000 * (share or 1), "events_per_s": served, "latency_us": latency, "is_knee": False}


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
    assert sum(record["is_knee"] for record in offered) == 1
    assert sum(line.endswith("knee") for line in load_table([closed, *offered]).splitlines()) == 1
