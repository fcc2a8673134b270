"""Tables with conditions are matched in stages, slice by slice."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from judge import expected, in_words

from mpi_match import LiveMatcher, make_table
from mpi_match.changes.changes import PART_INTERFACES
from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine, staged
from mpi_match.errors import EngineError
from mpi_match.events import extended
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import change_of_row, subscription_filters
from mpi_match.model import make_event, match_naive

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


@pytest.mark.parametrize("engine", ["keyed", "reference"])
@pytest.mark.parametrize("freed", [6, 9, 14])
def test_numbers_that_are_assigned_again_do_not_change_the_stages(engine: str, freed: int) -> None:
    """The numbers of filters that went are given to parts of a later one, the last first, and its operands open the engine
    again: parts come before those that they ask for."""
    first = {"interface": "first", "where": {"or": [["n", "=", each] for each in range(freed)]}, "id": "1"}
    tree: Any = ["x", "=", 1]
    for depth in range(2, 7):
        tree = {"or": [{"not": [f"x{depth}", "=", depth]}, {"not": {"or": [tree, ["y", "=", depth]]}}]}
    later = {"interface": "later", "where": tree, "id": "2"}
    matcher = LiveMatcher([first], engine=engine)
    matcher.update([{"remove": "1"}])
    matcher.update([{"add": later}])
    rng = random.Random(freed)
    rows = [
        {"x": 1, **{f"x{depth}": rng.choice((depth, 0)) for depth in range(2, 7)}, "y": rng.randrange(9)} for _ in range(60)
    ]
    filters = subscription_filters(later)
    found = matcher.match(rows)
    assert found == [match_naive(filters, make_event(row)) for row in rows]
    assert 0 < sum(map(len, found)) < 60


def test_parts_that_ask_for_each_other_are_refused() -> None:
    """A file of changes might hold them, with two parts under one number."""
    row = {
        "interface": "later",
        "where": {"or": [{"and": [["n", "=", 1], {"or": [["m", "=", 1], ["m", "=", 2]]}]}, ["n", "=", 2]]},
    }
    live = LiveTable(make_table(RULES), expected=subscription_filters(row))
    engine = open_engine("reference", live.table, live=True)
    changes = live.apply([change_of_row({"add": row}, stamped=False)], [])
    assert changes is not None
    parts = changes.interface >= PART_INTERFACES
    assert len(np.unique(changes.interface[parts])) > 1
    with pytest.raises(EngineError, match=r"ask for each other in a circle; compile it again$"):
        engine.update(replace(changes, interface=np.where(parts, changes.interface.max(), changes.interface)))
