"""The soak goes round, and stops at a wrong answer, at a change that is refused, and where memory grows."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from bench import soak
from bench.crowd import Crowd, identified
from bench.live_judge import JUDGED
from bench.soak import MIB, Soak, flatness

from mpi_match.changes.live_table import Refusal
from mpi_match.model import Change
from mpi_match.table.table import Table
from mpi_match.workloads.scenarios import SCENARIOS

CROWDED = replace(SCENARIOS["clcb-area-1"], n_filters=600, n_interfaces=60, filter_size=(0, 1))
"""Some twenty answers for every event."""
SHORT = ["--filters", "500", "--batch-events", "200", "--minutes", "0.01", "--note-every", "0.05", "--judge-every", "0.2"]


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["soak.py", *SHORT, *words])
    soak.main()


def test_a_short_soak(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_main(monkeypatch, "--bound", "0.5", "--scenario", "clcb-area-1", "--minutes", "0.03")
    record = json.loads(capsys.readouterr().out)
    counts = record["counts"]
    assert record["engine"] == "keyed"
    assert record["flat"]
    assert counts["rows"] * 201 == counts["events"] * 20 > 0  # in each round 200 events, and one alone
    assert all(counts[kind.name.lower()] > 0 for kind in Change if kind is not Change.CONSOLIDATE)
    assert record["checked"]["naive"] >= 2 * JUDGED
    assert record["checked"]["answers"] > 0
    assert all(worst["max"] >= worst["p99"] >= worst["p50"] > 0 for worst in record["pauses_ms"].values())
    assert max(record["over_time"]["filter_ids"]) <= 500  # given again, however many new ids there were
    assert record["memory"]["engine"]["last_mib"] > 0


def test_growing_memory_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = count(100 * MIB, 10 * MIB)
    monkeypatch.setattr(soak, "resident", lambda: next(sizes))
    with pytest.raises(SystemExit, match="memory is not flat"):
        run_main(monkeypatch, "--engine", "reference", "--batch-events", "20")
    record = json.loads(capsys.readouterr().out)
    assert not record["flat"]
    assert record["memory"]["resident"]["risen"] > 0.1


def test_flatness_is_that_of_the_line() -> None:
    seconds = np.arange(60.0, 120.0, 5.0)
    rising = flatness(seconds, 200 * MIB + (seconds - 60) * MIB)
    assert rising == pytest.approx(
        {"first_mib": 200, "last_mib": 255, "most_mib": 255, "mib_per_hour": 3600, "risen": 0.275}
    )
    level = flatness(seconds, np.where(np.arange(len(seconds)) % 2, 201, 200) * MIB)
    assert abs(level["risen"]) < 0.005
    assert level["most_mib"] == 201


def test_a_filter_that_is_not_removed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Soak(CROWDED, "reference", 200, 0.1)
    monkeypatch.setattr(found.engine, "update", lambda changes: None)
    with pytest.raises(SystemExit, match="WRONG ANSWER"):
        found.run(2.0, 1.0, 0.5)


def test_a_refused_change_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Soak(CROWDED, "reference", 200, 0.1)
    monkeypatch.setattr(found.live, "apply", lambda rows, refused: refused.append(Refusal(0, "no such filter")))
    with pytest.raises(SystemExit, match="no such filter"):
        found.run(1.0, 1.0, 1.0)


def test_about_half_of_the_guests_are_away_in_the_end() -> None:
    table = identified(Table.from_subscriptions(CROWDED.subscriptions()))
    crowd = Crowd(table, CROWDED, 0)
    assert crowd.n_there == 600
    rows = list(crowd.rows(20_000))
    assert 0.85 < sum(row.kind is Change.MOVE for row in rows) / len(rows) < 0.97
    came = [item.id for row in rows for item in row.filters]
    assert len(set(came)) == len(came) > 1000  # all of them new ids
    assert 550 < crowd.n_there < 590  # 60 filters are those of guests
