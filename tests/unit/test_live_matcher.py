"""Subscriptions that are added and removed in Python: the examples, refusals, and when the engine is opened again."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_machine import Naive, change_rows
from strategies import events, subscriptions

from mpi_match import live
from mpi_match.engines import EngineError
from mpi_match.ingest.rows.judge import ChangeRow, Reject
from mpi_match.live import LiveMatcher
from mpi_match.model import Filter, ModelError, make_filter, match_naive
from mpi_match.table.table import Table

ROWS: list[dict[str, Any]] = [
    {"interface": "taxi", "constraints": [["seats", ">=", 2]], "area": [0, 0, 5], "id": "t1"},
    {"interface": "desk", "constraints": [["seats", "exists"]], "id": 7},
]


@pytest.fixture
def matcher() -> LiveMatcher:
    return LiveMatcher(ROWS, engine="reference")


def test_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(live)
    assert result.attempted >= 8
    assert result.failed == 0


@given(subscriptions(max_filters=5, max_constraints=3), st.lists(st.lists(change_rows(), max_size=4), max_size=3), st.data())
def test_it_is_what_the_model_says(found: list[Filter], told: list[list[ChangeRow]], data: st.DataObject) -> None:
    matcher, naive = LiveMatcher(Table.from_filters(found), engine="reference"), Naive(found)
    for rows in told:
        rejects: list[Reject] = []
        matcher.update(rows, rejects=rejects)
        assert [reject.line for reject in rejects] == [i for i, row in enumerate(rows) if not naive.apply(row)]
        judged = data.draw(st.lists(events(aimed_at=naive.filters), max_size=3))
        assert matcher.match(judged) == [match_naive(naive.filters, event) for event in judged]
        assert len(list(matcher.filters())) == len(naive.filters)


def test_a_bad_change_is_raised_after_the_others_took_effect(matcher: LiveMatcher) -> None:
    with pytest.raises(ModelError, match=r"^change 1: no filter has the id 'missing'$"):
        matcher.update([{"remove": 7}, {"remove": "missing"}, {"move": "t1", "area": [9, 9, 1]}, {"away": 1}])
    assert matcher.match([{"seats": 2, "x": 9, "y": 9}], location="x,y") == [["taxi"]]


def test_bad_changes_go_to_a_list_in_their_order(matcher: LiveMatcher) -> None:
    rejects: list[Reject] = []
    matcher.update([{"remove": "missing"}, {"away": 1}, {"remove": 7}, {"remove": 7}], rejects=rejects)
    assert [(reject.line, reject.row) for reject in rejects] == [
        *((0, '{"remove": "missing"}'), (1, '{"away": 1}'), (3, '{"remove": 7}'))
    ]
    assert "a change has one of 'move', 'add', 'remove', 'remove_interface'" in rejects[1].reason


def test_the_engine_is_opened_again_only_for_new_operands(matcher: LiveMatcher) -> None:
    first, batch = matcher.engine, matcher.batch([{"seats": 9}])
    matcher.update({"add": {"interface": "bus", "constraints": [["seats", "<", 2]]}})
    assert matcher.engine is first
    assert matcher.match(batch) == [["desk"]]
    matcher.update({"add": {"interface": "coach", "constraints": [["seats", ">", 8]]}})
    assert matcher.engine is not first
    with pytest.raises(EngineError, match="encode the events with this table"):
        matcher.match(batch)
    assert matcher.match([{"seats": 9}, {"seats": 1}]) == [["coach", "desk"], ["bus", "desk"]]


def test_expected_operands_keep_the_engine_open() -> None:
    later = {"interface": "coach", "constraints": [["seats", ">", 8], ["wifi", "=", True]]}
    matcher = LiveMatcher(ROWS, engine="reference", expected=[later, make_filter("x", [["seats", "=", 11]])])
    first = matcher.engine
    matcher.update([{"add": later}, {"add": {"interface": "z", "constraints": [["seats", "between", [8, 11]]]}}])
    assert matcher.engine is first
    assert matcher.match([{"seats": 9, "wifi": True}]) == [["coach", "desk", "z"]]


def test_an_engine_that_cannot_change_is_refused() -> None:
    with pytest.raises(EngineError, match="serves tables that do not change"):
        LiveMatcher(ROWS, engine="counting")


def test_rows_may_share_an_id_and_what_changes_it_changes_them_all() -> None:
    near = {"area": [0, 0, 1], "id": 1}
    matcher = LiveMatcher(
        [{"interface": "a", "predicate": "x > 0 or y > 0", **near}, {"interface": "b", "constraints": [], **near}],
        engine="reference",
    )
    event = {"x": 1, "lat": 5.0, "lon": 5.0}
    matcher.update({"move": "1", "area": [5, 5, 1]})
    assert matcher.match([event], location="lat,lon") == [["a", "b"]]
    with pytest.raises(ModelError, match="the id '1' is there already"):
        matcher.update({"add": {"interface": "c", "predicate": "x exists", "id": 1}})
    matcher.update([{"remove": 1}, {"add": {"interface": "c", "predicate": "x exists or y exists", "id": 1}}])
    assert matcher.match([event], location="lat,lon") == [["c"]]
    matcher.update({"remove": 1})
    assert list(matcher.filters()) == []
