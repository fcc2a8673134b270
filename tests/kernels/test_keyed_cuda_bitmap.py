"""The bitmap of `keyed_cuda`: with all filters in it, every case and table of the tests agrees with `model`."""

from __future__ import annotations

from typing import Any

import pytest
from cases import CONJUNCTIONS, event_of, filters_of, one_in_three
from hypothesis import HealthCheck, given, settings
from judge import KINDS, answers, expected
from live_machine import run_machine
from random_tables import shaped
from strategies import subscriptions_and_events

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine
from mpi_match.engines.keyed import cuda as keyed_cuda
from mpi_match.engines.keyed.bitmap import choice, live_bitmap
from mpi_match.engines.keyed.cuda import KeyedCuda
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Change, Event, Filter, make_event, make_filter, matches
from mpi_match.table.table import Table


@pytest.fixture(params=KINDS)
def answer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "list":
        monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    kind: str = request.param
    return kind


@pytest.fixture(autouse=True)
def _everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """All filters without an area are put into the bitmap, whatever that costs."""
    monkeypatch.setattr(choice, "ENTERING_COST", -1e9)
    monkeypatch.setattr(choice, "ROW_COST", 0.0)


def assert_agrees(filters: list[Filter], events: list[Event], answer: str) -> KeyedCuda:
    table = Table.from_filters(filters)
    engine = open_engine("keyed_cuda", table)
    assert isinstance(engine, KeyedCuda)
    batch = Events.of(events).encode(table.vocabulary)
    assert answers(engine, table, batch, answer) == expected(table, events, answer)
    return engine


@one_in_three
def test_case(case: dict[str, Any]) -> None:
    assert_agrees(filters_of(case), [event_of(case)], "mask")


def test_many_filters_and_slices(answer: str) -> None:
    filters = [f for case in CONJUNCTIONS[::5] for f in filters_of(case)]
    engine = assert_agrees(filters, [event_of(case) for case in CONJUNCTIONS[::20]], answer)
    assert engine.has_bitmap


@pytest.mark.parametrize("shape", ["every type", "numbers"])
def test_random_tables(shape: str, answer: str) -> None:
    filters, events = shaped(shape)
    assert_agrees(filters[:150], events[:8], answer)


def test_hypothesis_tables(answer: str) -> None:
    @settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
    @given(subscriptions_and_events())
    def agree(drawn: tuple[list[Filter], list[Event]]) -> None:
        assert_agrees(*drawn, answer)

    agree()


def test_changes_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Added filters that ask for no value are put into the bitmap too, whatever that costs."""
    monkeypatch.setattr(live_bitmap, "LATER_ROW_COST", -1.0)
    run_machine("keyed_cuda", 5, 8)


def test_filters_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the table and later ones; slots of removed ones are given to others, of ranges or not."""
    monkeypatch.setattr(live_bitmap, "LATER_ROW_COST", -1.0)
    scenario = SCENARIOS["intervals"].scaled(90)
    ranges = Table.from_subscriptions(scenario.subscriptions()).iter_filters()
    filters = [item._replace(id=str(i)) for i, item in enumerate(ranges)]
    equal = [make_filter(f"e{i}", [("attribute-00", "=", 1000 * i)], id_=f"e{i}") for i in range(9)]
    live = LiveTable(Table.from_filters(filters[:40]), expected=[*filters, *equal])
    engine = open_engine("keyed_cuda", live.table, live=True)
    events = scenario.events(6)
    batch = events.encode(live.vocabulary)
    add = [ChangeRow(Change.ADD, filters=(item,)) for item in filters[40:70]]
    remove = [ChangeRow(Change.REMOVE, str(i)) for i in range(0, 70, 3)]
    others = [ChangeRow(Change.ADD, filters=(item,)) for item in [*equal, *filters[70:]]]
    for rows in (add, remove, others, [ChangeRow(Change.REMOVE, "80"), ChangeRow(Change.REMOVE, "e7")]):
        changes = live.apply(rows, [])
        assert changes is not None
        engine.update(changes)
        known = dict(live.filters())
        found = engine.match(batch, filters=True)
        assert [found[i].tolist() for i in range(6)] == [
            [f for f, item in known.items() if matches(item, events.event(i))] for i in range(6)
        ]
    assert found.n_matches


def test_more_lines_than_a_warp_looks_into_at_once(answer: str) -> None:
    """In the order of their narrowest masks, so that events leave out lines, and several candidates are in a word."""
    scenario = SCENARIOS["intervals-narrow"].scaled(1200)
    table = Table.from_subscriptions(scenario.subscriptions())
    filters = [f._replace(interface=f"i{i % 50}") for i, f in enumerate(table.iter_filters())]
    filters += [make_filter("all", [("attribute-00", "exists")])] * 70
    events = scenario.events(4)
    drawn = [event for event in (events.event(i) for i in range(4)) if event is not None]
    assert_agrees(filters, [*drawn, make_event({"attribute-00": 5, "attribute-07": 100_000}), make_event({})], answer)
