"""The soak goes round, and stops at a wrong answer, at a change that is refused, and where memory grows."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from click.testing import CliRunner

from mpi_match.changes.live_table import Refusal
from mpi_match.cli.main import commands
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.bench.live import soak
from mpi_match.lab.bench.live.crowd import Crowd, identified
from mpi_match.lab.bench.live.judge import JUDGED_EVENTS
from mpi_match.lab.bench.live.soak import MIB, ChangeRefused, Soak, SoakPlan, flatness
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Change
from mpi_match.table.table import Table

CROWDED = replace(SCENARIOS["clcb-area-1"], n_filters=600, n_interfaces=60, filter_size=(0, 1))
"""Some twenty answers for every event."""
SHORT = SoakPlan(0.03, batch_events=200, bound=0.5, note_every=0.05, judge_every=0.2)


def test_a_short_soak() -> None:
    record = soak.soak(SCENARIOS["clcb-area-1"].scaled(500), "keyed", SHORT)
    counts = record["counts"]
    assert record["engine"] == "keyed"
    assert record["flat"]
    assert counts["rows"] * 201 == counts["events"] * 20 > 0  # in each round 200 events, and one alone
    assert all(counts[kind.name.lower()] > 0 for kind in Change if kind is not Change.CONSOLIDATE)
    assert record["checked"]["naive"] >= 2 * JUDGED_EVENTS
    assert record["checked"]["answers"] > 0
    assert all(worst["max"] >= worst["p99"] >= worst["p50"] > 0 for worst in record["pauses_ms"].values())
    assert max(record["over_time"]["filter_ids"]) <= 500  # given again, however many new ids there were
    assert record["memory"]["engine"]["last_mib"] > 0


def test_growing_memory_fails_and_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = count(100 * MIB, 10 * MIB)
    monkeypatch.setattr(soak, "resident_bytes", lambda: next(sizes))
    size = ["--engine", "reference", "--filters", "500", "--batch", "20", "--minutes", "0.01", "--note-every", "0.05"]
    done = CliRunner().invoke(commands, ["bench", "soak", "clcb-area-1", *size])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "mpi-match: memory is not flat: it rose by more than 2.0%")
    record = json.loads(done.stdout)
    assert not record["flat"]
    assert record["memory"]["resident"]["risen"] > 0.1


def test_filters_without_areas_are_refused() -> None:
    done = CliRunner().invoke(commands, ["bench", "soak", "ccm"])
    assert done.exit_code == 2
    assert "the filters of ccm have no areas; these have: clcb, " in done.stderr


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
    with pytest.raises(WrongAnswer, match="expected"):
        found.run(2.0, 1.0, 0.5)


def test_a_refused_change_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Soak(CROWDED, "reference", 200, 0.1)
    monkeypatch.setattr(found.live, "apply", lambda rows, refused: refused.append(Refusal(0, "no such filter")))
    with pytest.raises(ChangeRefused, match="no such filter"):
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
