"""Open-loop load: events wait for the engine and not the engine for the next event."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from mpi_match.engines import open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.lab.bench.engines import BenchOptions, bench
from mpi_match.lab.bench.open_loop import arrivals, serve
from mpi_match.lab.bench.sweep_report import lines, sweep_table
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.matches import Matches
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table


class Slow:
    """The counting engine, every call of which takes at least `seconds`; `sizes` of its batches."""

    def __init__(self, table: Table, seconds: float) -> None:
        self._engine, self._seconds = open_engine("counting", table), seconds
        self.sizes: list[int] = []

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.sizes.append(len(batch))
        time.sleep(self._seconds)
        return self._engine.match(batch, filters=filters)


@pytest.fixture(scope="module")
def workload() -> tuple[Table, EventBatch]:
    scenario = SCENARIOS["ccm-10-names"].scaled(100)
    table = Table.from_subscriptions(scenario.subscriptions())
    return table, scenario.events(40).encode(table.vocabulary)


def test_arrivals_are_a_poisson_process() -> None:
    times = arrivals(20_000, 1000.0, 3)
    gaps = np.diff(times)
    assert times[-1] == pytest.approx(20, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05), "exponential, not even"
    assert not np.array_equal(times, arrivals(20_000, 1000.0, 4))


def test_events_that_wait_are_matched_together_and_their_waiting_counts(workload: tuple[Table, EventBatch]) -> None:
    table, events = workload
    engine: Any = Slow(table, 0.05)
    at_once = np.array([0.0] + [0.01] * 39)
    served = serve(engine, events, at_once, most=30)
    assert engine.sizes == [1, 30, 9]
    assert served.answers == open_engine("counting", table).match(events)
    assert served.latency_s[0] >= 0.05
    assert served.latency_s[1] >= 0.09, "it waited for the first one"
    assert served.latency_s[-1] >= 0.14, "and the last for both"
    assert served.latency_s[1] == served.latency_s[30]


def test_the_engine_waits_for_events(workload: tuple[Table, EventBatch]) -> None:
    table, events = workload
    engine: Any = Slow(table, 0.0)
    served = serve(engine, events[:3], np.array([0.05, 0.1, 0.15]), most=30)
    assert engine.sizes == [1, 1, 1]
    assert 0.1 <= served.seconds < 5


@pytest.mark.parametrize("timeout_ms", [0.0, 40.0])
def test_events_that_an_engine_lets_wait_are_answered_after_its_time_out(timeout_ms: float) -> None:
    """Without one they wait until no more come."""
    table = Table.from_filters([make_filter("i", [["a", "exists"]])])
    events = Events.of([make_event({"a": 1})] * 4).encode(table.vocabulary)
    engine = open_engine("tagmatch", table, options={"variant": "cpu", "timeout_ms": timeout_ms})
    served = serve(engine, events, np.array([0.0, 0.3, 0.6, 0.601]), most=30)
    assert served.answers == engine.match(events)
    assert served.latency_s[0] >= (timeout_ms / 1e3 or 0.6)
    if timeout_ms:
        assert served.latency_s[0] < 0.3, "before the next one came"


def test_a_result_has_its_rate_and_the_latencies() -> None:
    scenario = SCENARIOS["ccm-10-names"].scaled(100)
    options = BenchOptions(n_events=60, batch=16, repetitions=2, check=4, rate=2_000.0, warm_up_s=0)
    found = bench(scenario, "counting", options)
    assert (found["rate"], list(found["latency_us"])) == (2_000.0, ["p50", "p99", "p99.9", "max"])
    assert found["latency_us"]["p50"] <= found["latency_us"]["p99"] <= found["latency_us"]["max"]
    assert found["events_per_s"] <= 4_000
    assert found["checked"] == {"reference": 4, "covers": 4}
    again = {**found, "parameters": {"rate": "2000"}}
    assert lines([again], "rate", y="p99")["counting"][0].median == found["latency_us"]["p99"]
    assert "p99.9 (us)" in sweep_table([again])
