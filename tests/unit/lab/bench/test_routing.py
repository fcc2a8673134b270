"""Routing measured against broadcast: what is left out, sent and matched, and that a lost answer is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpi_match.cluster.distribution.routing import Router
from mpi_match.events.batch import EventBatch
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.bench.routing import RoutingPlan, measure_routing
from mpi_match.lab.workloads.parameters import with_parameters
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json


def measured(scenario: str, n_filters: int, directory: Path, engine: str = "keyed") -> dict[tuple[int, str], Json]:
    names = {"names": "500"} if scenario == "tagmatch" else {}
    drawn = with_parameters(SCENARIOS[scenario], {"filters": str(n_filters), **names})
    plan = RoutingPlan(drawn, 300, batch=128, n_shards=(2, 16), engine=engine, repetitions=1)
    return {(each["shards"], each["how"]): each for found in measure_routing(plan, directory) for each in found}


@pytest.mark.parametrize(("scenario", "least"), [("clcb", 0.85), ("ccm", 0.5), ("tagmatch", 0.5)])
def test_routing_sends_less_than_a_broadcast(scenario: str, least: float, tmp_path: Path) -> None:
    found = measured(scenario, 5000, tmp_path)
    assert set(found) == {(n, how) for n in (2, 16) for how in ("broadcast", "route")}
    for n in (2, 16):
        sent, routed = found[n, "broadcast"], found[n, "route"]
        assert (sent["left_out"], sent["busiest"]) == (0, 1)
        assert 0 <= routed["left_out"] <= routed["no_answer"] <= 1
        assert routed["busiest"] >= 1 - routed["left_out"]
        assert min(each[name] for each in (sent, routed) for name in ("divide_s", "master_us", "workers_us")) > 0
    assert found[16, "route"]["left_out"] > least
    assert found[16, "broadcast"]["bytes_per_event"] == 8 * found[2, "broadcast"]["bytes_per_event"]
    assert found[16, "route"]["bytes_per_event"] < 0.7 * found[16, "broadcast"]["bytes_per_event"]


def test_a_lost_answer_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(router: Router, batch: EventBatch) -> np.ndarray:
        return np.zeros(batch.n_events, np.uint64)

    monkeypatch.setattr(Router, "shards", nowhere)
    with pytest.raises(WrongAnswer, match="the shards' answers are not those of the whole table"):
        measured("tagmatch", 500, tmp_path)
