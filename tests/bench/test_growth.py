"""The bench of growth adds the filters asked for, judges answers, and fails where matching paused for too long."""

from __future__ import annotations

import json

import pytest
from bench import growth

SHORT = ["growth.py", "--filters", "400", "--scenario", "clcb-area-1", "--more", "0.5", "--at-once", "10"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LEAST", 100)
    monkeypatch.setattr(growth, "CONTENTS", 50)


def test_filters_are_added_and_answers_judged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", SHORT)
    growth.main()
    record = json.loads(capsys.readouterr().out)
    assert (record["n_filters"], record["came"]) == (400, 200)
    assert record["answers_judged"] > 0
    for part in growth.PARTS:
        assert max(each["ms"] for each in record["worst"][part]) == pytest.approx(record[f"{part}_ms"]["max"], abs=0.01)


def test_too_long_a_pause_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [*SHORT, "--engine", "reference", "--bound", "0.0001"])
    with pytest.raises(SystemExit, match="matching stood still"):
        growth.main()


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", SHORT)
    monkeypatch.setattr("bench.live_judge.match_naive", lambda filters, event: {"another"})
    with pytest.raises(SystemExit, match="WRONG ANSWER"):
        growth.main()
