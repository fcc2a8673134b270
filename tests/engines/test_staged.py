"""Tables with conditions are matched in stages, slice by slice."""

from __future__ import annotations

import random
from typing import Any

import pytest
from judge import expected, in_words

from mpi_match import make_table
from mpi_match.engines import open_engine, staged
from mpi_match.events import extended
from mpi_match.events.events import Events
from mpi_match.model import make_event

RULES: list[dict[str, Any]] = [
    {"interface": "a", "where": {"or": [["n", "=", 1], {"and": [["m", ">", 2], {"not": ["n", "=", 3]}]}]}},
    {"interface": "b", "where": {"not": {"or": [["n", "=", 2], ["m", "=", 4]]}}},
    {"interface": "c", "where": {"and": [{"or": [["n", "<", 2], ["m", "<", 2]]}, {"not": {"and": [["m", "exists"]]}}]}},
    {"interface": "d", "constraints": [["n", "=", 1]]},
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize("answer", ["list", "filters"])
def test_slices_and_threads_do_not_matter(answer: str, size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "STAGED_TOGETHER", size)
    monkeypatch.setattr(extended, "LEAST_EXTENDED", 1)
    table, rng = make_table(RULES), random.Random(size)
    kinds: list[dict[str, Any]] = [{}, {"n": 1}, {"n": 3, "m": 5}, {"m": 1}, {"m": 4}, {"n": 0, "m": 3}, {"other": "x"}]
    events = [make_event(rng.choice(kinds)) for _ in range(40)]
    engine = open_engine("keyed", table, threads=threads)
    found = engine.match(Events.of(events).encode(table.vocabulary), filters=answer == "filters")
    assert in_words(found, table, answer) == expected(table, events, answer)
    assert found.n_matches > 20
