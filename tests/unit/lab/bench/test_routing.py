"""Routing of events to shards: nothing is lost, and what is left out follows from how filters are divided."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_match.lab.bench import routing
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.bench.routing import measure_routing
from mpi_match.lab.workloads.parameters import with_parameters
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json


def shares(scenario: str, n_filters: int) -> dict[tuple[str, int], Json]:
    names = {"names": "500"} if scenario == "tagmatch" else {}
    drawn = with_parameters(SCENARIOS[scenario], {"filters": str(n_filters), **names})
    found = measure_routing(drawn, 300, (2, 16))
    return {(each["order"], each["shards"]): each for each in found}


def test_what_is_left_out_depends_on_how_filters_are_divided() -> None:
    ccm = shares("ccm", 8_000)
    assert {order for order, _ in ccm} == {"interface", "feature"}
    assert ccm["interface", 16]["left_out"] < 0.2
    assert 0.6 < ccm["feature", 16]["left_out"] <= ccm["feature", 16]["no_answer"]
    assert ccm["feature", 2]["busiest"] > ccm["feature", 16]["busiest"]
    clcb = shares("clcb", 5_000)
    assert clcb["place", 16]["left_out"] > 0.9


@pytest.mark.parametrize("scenario", ["ccm-strings", "stock", "tagmatch"])
def test_no_answer_is_lost(scenario: str) -> None:
    assert all(each["left_out"] <= each["no_answer"] for each in shares(scenario, 1_000).values())


def test_a_lost_answer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "by_features", lambda rarest, shard, events: np.zeros(len(events.offsets) - 1, np.uint64))
    with pytest.raises(WrongAnswer, match="loses an answer"):
        shares("tagmatch", 500)
