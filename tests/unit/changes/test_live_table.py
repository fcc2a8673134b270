"""A live table is the result of its changes; impossible ones are refused, and no structure grows without bound."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interrupting import Interrupt, raised_at
from live_machine import Naive, change_rows
from small_changes import row, small_table
from strategies import events, subscriptions

from mpi_match.api import make_table
from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow, change_of_row
from mpi_match.model import Change, Event, Filter, make_filter, match_naive
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table


@pytest.fixture
def table() -> Table:
    return small_table()


def in_any_order(found: Sequence[Filter]) -> list[str]:
    """Filters as texts, sorted; the constraints of a filter have no order."""
    return sorted(str(item._replace(constraints=tuple(sorted(item.constraints, key=str)))) + str(item.id) for item in found)


@pytest.mark.parametrize("reuse_ids", [True, False])
@given(found=subscriptions(max_filters=6, max_constraints=3), rows=st.lists(change_rows(), max_size=12))
def test_a_live_table_is_what_changes_made_of_it(reuse_ids: bool, found: list[Filter], rows: list[ChangeRow]) -> None:
    naive, live = Naive(found), LiveTable(Table.from_filters(found), reuse_ids=reuse_ids)
    for change in rows:
        refused: list[Refusal] = []
        live.apply([change], refused)
        assert (refused == []) == naive.apply(change)
        there = dict(live.filters())
        assert in_any_order(list(there.values())) == in_any_order(naive.filters)
        registry = live.registry
        assert all(registry.labels[registry.interface_of(i)] == item.interface for i, item in there.items())
        assert all(i < registry.n_filters for i in there)
        assert live.compiled() == Table.from_filters(naive.filters)
        areas = [item.area if (item := there.get(i)) else None for i in range(registry.n_filters)]
        assert np.array_equal(live.areas(), [each or (np.nan,) * 3 for each in areas] or np.empty((0, 3)), equal_nan=True)


@given(found=subscriptions(max_filters=5, max_constraints=3), rows=st.lists(change_rows(), max_size=8), data=st.data())
def test_engines_are_told_one_by_one_or_all_at_once(found: list[Filter], rows: list[ChangeRow], data: st.DataObject) -> None:
    live = LiveTable(Table.from_filters(found))
    told = open_engine("reference", live.table, live=True)
    for change in rows:
        changes = live.apply([change], [])
        if changes is None:
            told = open_engine("reference", live.table, live=True)
            changes = live.since()
        told.update(changes)
    there = [item for _, item in live.filters()]
    judged = data.draw(st.lists(events(aimed_at=there), max_size=4))
    anew = open_engine("reference", live.table, live=True)
    anew.update(live.since())
    batch = Events.of(judged).encode(live.vocabulary)
    for engine in (told, anew):
        answers = engine.match(batch)
        assert [[live.registry.labels[i] for i in answers[e]] for e in range(len(judged))] == [
            sorted(match_naive(there, event), key=live.registry.labels.index) for event in judged
        ]


def test_parts_of_filters_go_with_them_and_no_others() -> None:
    """Also those of filters without an id, which go with their interface; equal parts of other filters stay."""
    trees: list[object] = [
        {"or": [["x", "=", 1], {"and": [["y", ">", 2], {"not": ["z", "exists"]}]}]},
        {"not": {"and": [["x", "=", 1], ["y", "=", 1]]}},
    ]
    filters = [make_filter(label, [], None, None, tree) for label in "abc" for tree in trees[: 1 + (label == "b")]]
    filters += [make_filter(label, [], None, label * 2, trees[0]) for label in "ade"]
    live = LiveTable(Table.from_filters(filters[:-2]))
    later = [*filters[-2:], make_filter("e", where=trees[1])]
    live.apply([ChangeRow(Change.ADD, filters=(item,)) for item in later], [])
    left = [*filters, later[-1]]
    for kind, target in ((Change.REMOVE_INTERFACE, "a"), (Change.REMOVE, "ee"), (Change.REMOVE_INTERFACE, "b")):
        live.apply([ChangeRow(kind, target)], [])
        left = [item for item in left if target not in (item.interface, item.id)]
        assert live.compiled() == Table.from_filters(left)
        live.apply([ChangeRow(Change.REMOVE_INTERFACE, "e"), ChangeRow(Change.REMOVE, "dd")], [])
        live.take_back()
        assert live.compiled() == Table.from_filters(left)
    live.apply([ChangeRow(Change.REMOVE_INTERFACE, label) for label in "cde"], [])
    assert live.compiled() == Table.from_filters([])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"remove": "missing"}', "no filter has the id 'missing'"),
        ('{"move": "missing", "area": [0, 0, 1]}', "no filter has the id 'missing'"),
        ('{"move": "cold", "area": [0, 0, 1]}', "the filter with the id 'cold' has no area that could move"),
        ('{"add": {"interface": "z", "constraints": [], "id": "walk"}}', "the id 'walk' exists already"),
        ('{"remove_interface": "z"}', "no filter is on an interface 'z'"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_rest_is_done(table: Table, text: str, reason: str) -> None:
    live = LiveTable(table)
    refused: list[Refusal] = []
    changes = live.apply([row('{"remove_interface": "desk"}') if "cold" not in text else row(text), row(text)], refused)
    assert [item.place for item in refused] == ([1] if "cold" not in text else [0, 1])
    assert reason in refused[-1].reason
    assert changes is not None
    assert len(changes) == ("cold" not in text)


def test_ids_are_given_again_and_memory_is_bounded(table: Table) -> None:
    live, engine = LiveTable(table), None
    engine = open_engine("reference", live.table, live=True)
    for i in range(300):
        text = f'{{"add": {{"interface": "guest-{i}", "constraints": [["temp", "<", 20]], "id": "g{i}"}}}}'
        for change in (row(text), row(f'{{"remove": "g{i}"}}')):
            changes = live.apply([change], [])
            assert changes is not None
            engine.update(changes)
    assert (live.registry.n_filters, live.registry.n_interfaces) == (4, 3)
    assert live.vocabulary is table.vocabulary
    registry = live.registry
    assert [sum(map(len, names._chunks)) for names in (registry._named, registry._interface_ids)] == [2, 3]
    assert not any(list(registry._joined.of(interface)) for interface in range(3))
    assert list(live._came) == [None] * 4


def test_the_vocabulary_forgets_what_missing_asks_for_any_more(table: Table) -> None:
    live = LiveTable(table)
    for i in range(50):
        text = f'{{"add": {{"interface": "guest", "constraints": [["temp", "<", {i}.5]], "id": "g"}}}}'
        assert live.apply([row(text)], []) is None
        assert len(live.vocabulary.numbers) == len(table.vocabulary.numbers) + 1
        assert live.apply([row('{"remove": "g"}')], []) is not None


def test_expected_operands_are_there_from_the_beginning(table: Table) -> None:
    later = make_filter("guest", [["temp", "<", 0.5], ["new", "suffix", "x"]])
    live = LiveTable(table, expected=[later])
    assert list(live.table.iter_filters()) == list(table.iter_filters())
    assert live.apply([ChangeRow(Change.ADD, filters=(later,))], []) is not None


def test_filters_with_new_operands_are_encoded_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times, with a search for every value in Python, 3,000 filters with lists of 100 values took 12 s."""
    encoded, ordered = list[int](), Table.from_subscriptions_in_order

    def counted(found: Subscriptions) -> Table:
        encoded.append(found.n_filters)
        return ordered(found)

    live = LiveTable(table)
    monkeypatch.setattr(Table, "from_subscriptions_in_order", counted)
    rows = [
        row(json.dumps({"add": {"interface": "x", "constraints": [["city", "in", [f"{i}a", f"{i}b"]]]}})) for i in range(9)
    ]
    assert live.apply(rows, []) is None
    since = live.since()
    assert encoded == [9]
    live.keep()
    assert since.added == live.since().added
    assert encoded == [9, 9]


@given(subscriptions(max_filters=6), st.lists(events(), max_size=3))
def test_a_live_reference_without_changes_is_the_reference(found: list[Filter], judged: list[Event]) -> None:
    table = Table.from_filters(found)
    batch = Events.of(judged).encode(table.vocabulary)
    for answer in (False, True):
        fixed, live = (open_engine("reference", table, live=live).match(batch, filters=answer) for live in (False, True))
        assert fixed == live


@given(found=subscriptions(max_filters=5, max_constraints=3), rows=st.lists(change_rows(), min_size=1, max_size=8))
def test_what_was_done_is_taken_back_as_a_whole(found: list[Filter], rows: list[ChangeRow]) -> None:
    """Also after changes that were kept, and no later change notices."""
    live, never = LiveTable(Table.from_filters(found)), LiveTable(Table.from_filters(found))
    for each in (live, never):
        each.apply(rows[:2], [])
    live.keep()
    live.apply(rows, [])
    live.take_back()
    assert dict(live.filters()) == dict(never.filters())
    assert live.registry.labels == never.registry.labels
    refused, expected = list[Refusal](), list[Refusal]()
    again = [ChangeRow(Change.ADD, filters=tuple(item._replace(id=None) for item in found)), *rows[::-1]]
    changes, others = live.apply(again, refused), never.apply(again, expected)
    assert refused == expected
    assert (changes is None) == (others is None)
    assert in_any_order([item for _, item in live.filters()]) == in_any_order([item for _, item in never.filters()])
    assert (live.registry.n_filters, live.registry.n_interfaces) == (never.registry.n_filters, never.registry.n_interfaces)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.lasting)])
def test_an_apply_that_fails_at_any_step_changes_nothing(every: int, table: Table) -> None:
    """Also where taking it back is interrupted in turn."""
    rows = [
        row('{"add": {"interface": "new", "constraints": [["temp", "<", 0.5]], "area": [0, 0, 1], "id": "n"}}'),
        row('{"move": "n", "area": [1, 1, 1]}'),
        row('{"remove_interface": "desk"}'),
        row('{"remove": "n"}'),
        row('{"add": {"interface": "newer", "predicate": "temp > 1 or wind > 1", "id": "m"}}'),
    ]
    live, never, draw = LiveTable(table), LiveTable(table), random.Random(0)
    for step in count(1, every):
        with suppress(Interrupt), raised_at(step, Interrupt()) as steps:
            live.apply(rows, [])
        if steps.n < step:
            break
        if step % 3 == 0:
            with suppress(Interrupt), raised_at(draw.randrange(1, step + 50), Interrupt()):
                live.apply(rows, [])
            live.take_back()
        assert list(live.filters()) == list(never.filters())
        assert live.registry.labels == never.registry.labels
    assert step > 200
    live.take_back()
    changes, others = live.apply(rows, []), never.apply(rows, [])
    assert (changes is None) == (others is None)
    assert dict(live.filters()) == dict(never.filters())


def test_many_filters_with_one_id_take_memory_in_proportion() -> None:
    """A condition has a filter for each of its constraints, all with its id; their list was kept once for each."""
    where = {"or": [["a", "=", i] for i in range(5000)]}
    rows = [
        {"add": {"interface": "many", "where": where, "id": "x"}},
        {"remove": "x"},
        {"add": {"interface": "o", "where": where}},
    ]
    tracemalloc.start()
    try:
        live = LiveTable(make_table([{"interface": f"i{i}", "constraints": [], "id": "same"} for i in range(5000)]))
        refused: list[Refusal] = []
        live.apply(
            [change_of_row(row, stamped=False) for row in [*rows, {"remove": "same"}, {"remove_interface": "o"}]], refused
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not refused
    assert list(live.filters()) == []
    assert peak < 80 * 2**20
