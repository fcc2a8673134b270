"""The bench of growth adds the filters asked for, judges answers, and fails where matching paused for too long."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from mpi_match.cli.main import commands
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.bench.live import growth, judge
from mpi_match.lab.workloads.scenarios import SCENARIOS

SMALL = SCENARIOS["clcb-area-1"].scaled(400)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_LEAST", 100)
    monkeypatch.setattr(growth, "_CONTENTS", 50)


def test_filters_are_added_and_answers_judged() -> None:
    record = growth.grow(SMALL, "keyed", 0.5, 10)
    assert (record["n_filters"], record["came"]) == (400, 200)
    assert record["answers_judged"] > 0
    for part in growth._PARTS:
        assert max(each["ms"] for each in record["worst"][part]) == pytest.approx(record[f"{part}_ms"]["max"], abs=0.01)


def test_too_long_a_pause_fails() -> None:
    words = ["growth", "clcb-area-1", "--filters", "400", "--at-once", "100", "--engine", "reference", "--bound", "0.0001"]
    done = CliRunner().invoke(commands, ["bench", *words])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("mpi-match: matching paused for ")


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "match_naive", lambda filters, event: {"another"})
    with pytest.raises(WrongAnswer, match=r"expected \['another'\]"):
        growth.grow(SMALL, "reference", 0.5, 100)
