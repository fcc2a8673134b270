"""What is pickled or copied gives the same answers, in another process too, or refuses and says what to do instead."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engine_names import CPU

from mpi_match import RowMatcher, make_batch, make_events, make_table, open_engine
from mpi_match.changes.live_table import LiveTable
from mpi_match.ingest.rows.judge import change_of_row

ROWS: list[dict[str, Any]] = [
    {"interface": "taxi", "constraints": [["seats", ">=", 2]], "area": [0, 0, 5], "id": "t1"},
    {"interface": "desk", "predicate": "city prefix 'Mi' or city contains 'om'", "id": 7},
    {"interface": "desk", "constraints": [["seats", "in", [1, 3]]]},
]
EVENTS: list[dict[str, Any]] = [{"seats": 3, "x": 1, "y": 1}, {"city": "Milan"}, {"city": "Rome", "seats": 2}]
ANSWERS = [["desk", "taxi"], ["desk"], ["desk"]]
TAKES: list[Callable[[Any], Any]] = [copy.deepcopy, copy.copy, lambda item: pickle.loads(pickle.dumps(item))]
every_way = pytest.mark.parametrize("take", TAKES, ids=("deepcopy", "copy", "pickle"))


@every_way
@pytest.mark.parametrize("name", [*CPU, "auto"])
def test_an_engine_for_a_fixed_table_is_opened_again(name: str, take: Callable[[Any], Any]) -> None:
    table = make_table(ROWS)
    engine = take(open_engine(name, table, threads=1))
    if name != "auto":
        assert (engine.name, engine.device) == (name, open_engine(name, table, threads=1).device)
    batch = make_batch(table, EVENTS, location="x,y")
    assert [sorted(row) for row in engine.match(batch).labels(table.labels)] == ANSWERS


@every_way
def test_options_are_kept(take: Callable[[Any], Any]) -> None:
    table = make_table([{"interface": "a", "constraints": [["x", "exists"]]}])
    options = {"variant": "cpu", "max_p": 7}
    assert (
        take(open_engine("tagmatch", table, options=options)).options
        == open_engine("tagmatch", table, options=options).options
    )


@every_way
def test_an_engine_that_takes_changes_says_what_to_pickle(take: Callable[[Any], Any]) -> None:
    engine = open_engine("keyed", make_table(ROWS), live=True)
    with pytest.raises(TypeError, match=r"engine 'keyed' cannot be pickled or copied, .* pickle its LiveMatcher"):
        take(engine)


@every_way
def test_tables_batches_events_and_answers(take: Callable[[Any], Any]) -> None:
    table = make_table(ROWS)
    again = take(table)
    assert again.digest == table.digest
    batch, events = take(make_batch(table, EVENTS, location="x,y")), take(make_events(EVENTS, location="x,y"))
    engine = open_engine("reference", again)
    answers = take(engine.match(batch))
    assert [sorted(row) for row in answers.labels(again.labels)] == ANSWERS
    assert engine.match(events.encode(again.vocabulary)) == answers


def answers_of(matcher: RowMatcher) -> list[list[str]]:
    return [sorted(matcher.match(event)) for event in EVENTS]


@every_way
def test_a_matcher_of_rows(take: Callable[[Any], Any]) -> None:
    table = make_table(ROWS)
    matcher = RowMatcher(table, open_engine("keyed", table), location="x,y")
    assert answers_of(take(matcher)) == answers_of(matcher) == ANSWERS


def test_in_a_process_of_its_own() -> None:
    table = make_table(ROWS)
    matcher = RowMatcher(table, open_engine("counting", table), location="x,y")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(answers_of, [matcher] * 2) == [ANSWERS] * 2


@every_way
def test_a_live_table_keeps_its_ids(take: Callable[[Any], Any]) -> None:
    live = LiveTable(make_table(ROWS))
    rows = [
        {"move": "t1", "area": [9, 9, 1]},
        {"add": {"interface": "bus", "constraints": [["seats", ">", 8]], "area": [1, 1, 1], "id": "b"}},
        {"remove": 7},
        {"add": {"interface": "van", "constraints": [], "id": "v"}},
        {"move": "b", "area": [2, 2, 2]},
        {"remove_interface": "van"},
    ]
    live.apply([change_of_row(row, stamped=False) for row in rows], [])
    again = take(live)
    for each in (live, again):  # each goes its own way
        before = dict(each.filters())
        assert len(before) == 3
        each.apply([change_of_row({"add": {"interface": "new", "constraints": []}}, stamped=False)], [])
        assert len(dict(each.filters())) == 4
    assert dict(again.filters()) == dict(live.filters())
    assert again.registry.labels == live.registry.labels
    assert np.array_equal(again.areas(), live.areas(), equal_nan=True)
