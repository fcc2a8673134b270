"""Subscriptions that are added and removed in Python: the examples, refusals, and when the engine is opened again."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_machine import Naive, change_rows
from strategies import events, subscriptions

from mpi_match import RowMatcher, live, make_table, open_engine
from mpi_match.engines import EngineError
from mpi_match.ingest.rows.judge import ChangeRow, Reject
from mpi_match.live import LiveMatcher
from mpi_match.model import Area, Filter, ModelError, make_filter, match_naive
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


@pytest.mark.parametrize("rows", [5, None, 3.5, "changes.jsonl", b"{}"])
def test_rows_that_are_no_rows_are_refused_in_one_line(matcher: LiveMatcher, rows: Any) -> None:
    with pytest.raises(ModelError, match=r"^changes are one row or an iterable of rows, found \w+.*$"):
        matcher.update(rows)
    with pytest.raises(ModelError, match=r"^expected subscriptions are one row or an iterable of rows, found \w+.*$"):
        LiveMatcher([], expected=rows, engine="reference")


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
    with pytest.raises(ModelError, match="the id '1' exists already"):
        matcher.update({"add": {"interface": "c", "predicate": "x exists", "id": 1}})
    matcher.update([{"remove": 1}, {"add": {"interface": "c", "predicate": "x exists or y exists", "id": 1}}])
    assert matcher.match([event], location="lat,lon") == [["c"]]
    matcher.update({"remove": 1})
    assert list(matcher.filters()) == []


def in_threads(n: int, work: Callable[[int], None]) -> None:
    """Do work in n threads at once; raises what the first of them raised."""
    with ThreadPoolExecutor(n) as pool:
        for done in [pool.submit(work, i) for i in range(n)]:
            done.result(timeout=120)


N_THREADS, N_ROUNDS = 8, 8


@pytest.mark.untraced
@pytest.mark.parametrize("engine", ["keyed", "reference"])
def test_many_threads_match_while_one_updates(engine: str) -> None:
    """Each update moves all of a generation's filters at once, so that an answer shows one generation only: some with new
    names, operands and interfaces, which open the engine again."""

    def generation(g: int) -> list[dict[str, Any]]:
        shared = [{"interface": f"{g}.{i}", "constraints": [["x", "=", i % 3]], "id": f"{g}.{i}"} for i in range(9)]
        return [
            *shared,
            {"interface": f"{g}.new", "constraints": [[f"n{g % 5}", "=", f"v{g}"], ["x", ">", g]], "id": f"{g}.n"},
        ]

    matcher, done = LiveMatcher(generation(0), engine=engine, threads=2), Event()
    expected = [f"{i}" for i in range(9) if i % 3 == 1]
    n_matched = [0] * N_THREADS

    def update() -> None:
        try:
            for g in range(1, N_ROUNDS + 1):
                gone = [{"remove": row["id"]} for row in generation(g - 1)]
                matcher.update([*gone, *({"add": row} for row in generation(g))])
        finally:
            done.set()

    def one_generation(answer: list[str]) -> int:
        generations = {label.partition(".")[0] for label in answer}
        assert len(generations) == 1, answer
        assert sorted(label.partition(".")[2] for label in answer) == expected
        return int(generations.pop())

    def match(thread: int) -> None:
        last, many = 0, [{"x": 1}] * (1 + 300 * (thread % 3))
        while not done.is_set() or not n_matched[thread]:
            if thread % 2:
                found = one_generation(matcher.match_one(b'{"x": 1}' if thread % 4 == 1 else {"x": 1}))
            else:
                (found,) = set(map(one_generation, matcher.match(many)))
            assert found >= last, "an update that was seen is seen from then on"
            last, n_matched[thread] = found, n_matched[thread] + 1

    in_threads(N_THREADS + 1, lambda i: match(i) if i < N_THREADS else update())
    assert min(n_matched) > 0
    assert [int(label.partition(".")[0]) for label in matcher.match_one({"x": 1})] == [N_ROUNDS] * 3


def test_many_threads_update() -> None:
    matcher = LiveMatcher([], engine="keyed", threads=1)

    def change(thread: int) -> None:
        for i in range(4):
            matcher.update({"add": {"interface": f"i{thread}", "constraints": [["x", ">", i]], "id": f"{thread}.{i}"}})
            assert f"i{thread}" in matcher.match([{"x": i + 0.5}])[0]
            if i % 2:
                matcher.update({"remove": f"{thread}.{i - 1}"})

    in_threads(N_THREADS, change)
    assert matcher.match_one({"x": 100}) == [f"i{i}" for i in range(N_THREADS)]
    assert len(list(matcher.filters())) == N_THREADS * 2


def test_many_threads_read_rows() -> None:
    """One event at a time, of a table that does not change, bad ones and long ones among them."""
    table = make_table([{"interface": f"i{i}", "constraints": [["x", "=", i], ["y", "suffix", "z"]]} for i in range(50)])
    matcher = RowMatcher(table, open_engine("keyed", table, threads=1))

    def match(thread: int) -> None:
        for i in range(400):
            row = {"x": (i * 7 + thread) % 50, "y": "a" * (5000 * (i % 50 == 0)) + "z"}
            assert matcher.match(row) == [f"i{row['x']}"]
            if i % 20 == 0:
                with pytest.raises(ModelError):
                    matcher.match(b'{"x": ')

    in_threads(N_THREADS, match)
    assert len(matcher._free) <= N_THREADS


def test_events_may_update_the_matcher_that_matches_them(matcher: LiveMatcher) -> None:
    """A generator of events runs within `match`."""

    def events() -> Iterator[dict[str, Any]]:
        yield {"seats": 1}
        matcher.update({"remove": 7})
        yield {"seats": 2}

    assert matcher.match(events()) == [[], []]


def test_filters_are_those_of_the_moment(matcher: LiveMatcher) -> None:
    before = matcher.filters()
    matcher.update([{"remove": 7}, {"move": "t1", "area": [1, 1, 1]}])
    assert [item.area for item in before] == [None, Area(0, 0, 5)]
    assert [item.area for item in matcher.filters()] == [Area(1, 1, 1)]


def test_a_signal_handler_cannot_use_a_matcher_within_its_update(
    matcher: LiveMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(matcher.engine), "update", lambda *_: matcher.match_one(b"{}"))
    with pytest.raises(EngineError, match="used within an update of its own"):
        matcher.update({"remove": 7})
    monkeypatch.undo()
    assert matcher.match([{"seats": 1}]) == [["desk"]]


@pytest.mark.parametrize("first", [[["a", "=", 1]], [["b", "=", 1], {"or": [["c", "=", 1], ["d", "=", 1]]}]])
def test_a_part_with_branches_of_two_depths_is_added(first: list[Any]) -> None:
    """A part was matched in the stage that its first branch alone asks for."""
    branches = [[["a", "=", 1]], [["b", "=", 1], {"or": [["c", "=", 1], ["d", "=", 1]]}], [["z", "=", 1]]]
    branches.sort(key=lambda each: each != first)
    row = {"interface": "i", "where": {"or": [{"and": each} for each in branches]}}
    live = LiveMatcher([{"interface": "k", "constraints": [["q", "=", 1]]}], engine="reference")
    live.update({"add": row})
    events = [{"a": 1}, {"b": 1, "d": 1}, {"b": 1}, {"z": 1}]
    assert live.match(events) == [["i"], ["i"], [], ["i"]]


def test_filters_of_one_object_of_a_list_are_added_removed_and_moved() -> None:
    """With an area, which moves; the last one takes its scope with it."""

    def row(name: str, y: int) -> dict[str, Any]:
        constraints = [["l.x", "has", 1], ["l.y", "has", y]]
        return {"interface": name, "id": name, "constraints": constraints, "arrays": "consistent", "area": [0, 0, 1]}

    apart, together = [{"x": 1, "y": 3}, {"x": 2, "y": 2}], [{"x": 1, "y": 2}, {"x": 1, "y": 3}]
    events = [{"l": each, "p": x, "q": 0} for each in (apart, together) for x in (0, 9)]
    for engine in ("keyed", "reference"):
        live = LiveMatcher([row("a", 2)], engine=engine)
        assert live.match(events, location="p,q") == [[], [], ["a"], []]
        live.update({"add": row("b", 3)})
        assert live.match(events, location="p,q") == [["b"], [], ["a", "b"], []]
        live.update({"move": "b", "area": [9, 0, 1]})
        assert live.match(events, location="p,q") == [[], ["b"], ["a"], ["b"]]
        live.update({"remove": "a"})
        assert live.match(events, location="p,q") == [[], ["b"], [], ["b"]]
        live.update({"remove": "b"})
        assert live.match(events, location="p,q") == [[], [], [], []]
