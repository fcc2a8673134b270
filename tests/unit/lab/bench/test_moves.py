"""`bench --moves`: every engine that takes moves is measured, and its answers afterwards are judged."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.errors import OptionError
from mpi_match.lab.bench.engines import BenchOptions, WrongAnswer, compare
from mpi_match.lab.bench.sweep import Sweep
from mpi_match.lab.workloads.scenarios import SCENARIOS

TOWNS = SCENARIOS["clcb-area-1"].scaled(3000)
ENGINES = ["sff", "keyed", *(["rtree"] if find_spec("rtree") else [])]


def test_moves_are_measured_of_engines_that_take_them() -> None:
    found = compare(TOWNS, ENGINES, BenchOptions(n_events=60, repetitions=1, warm_up_s=0, moves=20))
    assert "one_move_us" not in found[0], "sff serves tables that do not change"
    for record in found[1:]:
        assert record["moves"] == 200
        spread = record["one_move_us_spread"]
        assert 0 < spread["min"] <= record["one_move_us"] <= spread["max"]
        assert record["batch_move_us"] > 0
    assert len({record["matches"] for record in found}) == 1


def test_an_engine_that_forgets_its_moves_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyed, "update", lambda self, changes: None)
    with pytest.raises(WrongAnswer, match="keyed is wrong about event"):
        compare(TOWNS, ["keyed"], BenchOptions(n_events=60, repetitions=1, warm_up_s=0, moves=200, check=60))


def test_nothing_moves_without_areas() -> None:
    with pytest.raises(OptionError, match="ccm has no areas to move"):
        Sweep("ccm", ("keyed",), options=BenchOptions(moves=1)).points()
    with pytest.raises(OptionError, match="ccm has no moves"):
        compare(SCENARIOS["ccm"].scaled(50), ["counting"], BenchOptions(n_events=5, repetitions=1, warm_up_s=0, moves=1))
