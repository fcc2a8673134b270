"""Recall and precision of an engine that is not exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mpi_match.lab.bench.engines import BenchOptions, Contender, accuracy_of, compare
from mpi_match.matches.matches import Matches


def answered(*events: list[int]) -> Contender:
    contender = Contender(cast("Any", SimpleNamespace(name="engine")), 0.0)
    contender.answers = Matches.of(list(events), 10)
    return contender


def test_recall_and_precision_are_of_pairs_of_event_and_answer() -> None:
    right = answered([1, 2], [], [3, 4])
    assert accuracy_of(answered([1, 2, 5], [], [3]), right) == pytest.approx({"recall": 0.75, "precision": 0.75})
    assert accuracy_of(answered([2], [1], [3]), right) == pytest.approx({"recall": 0.5, "precision": 2 / 3})
    assert accuracy_of(answered([], [], []), answered([], [], [])) == {"recall": 1.0, "precision": 1.0}


def test_an_engine_without_its_check_finds_all_and_more() -> None:
    given = {"tagmatch.variant": "cpu", "tagmatch.exact": "off"}
    options = BenchOptions(
        n_filters=300, n_events=20, repetitions=1, threads=1, warm_up_s=0.0, check=2, engine_options=given
    )
    exact, fast = compare("tagmatch", ["counting", "tagmatch"], options)
    assert "recall" not in exact
    assert fast["recall"] == 1
    assert 0 < fast["precision"] <= 1
