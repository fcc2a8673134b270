"""CLCB's kernels: single events, batches, a changing table; against `model.match_naive` and `model.matches`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from case_groups import assert_cases, every_group
from cases import CONJUNCTIONS, event_of, filters_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judge import answers, expected
from live_machine import run_machine
from strategies import subscriptions_and_events

from mpi_match.changes.changes import Changes
from mpi_match.engines import EngineError, open_engine
from mpi_match.engines.ccm import one_or_many
from mpi_match.engines.clcb import batch as clcb_batch
from mpi_match.engines.clcb import engine as clcb
from mpi_match.engines.clcb import segment
from mpi_match.engines.clcb.updates import union
from mpi_match.events.events import Events
from mpi_match.model import Change, Event, Filter, make_event, make_filter, match_naive
from mpi_match.table.table import Table

answer = pytest.mark.parametrize("answer", ["list", "filters"])
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@every_group
def test_cases(group: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", 0)
    assert_cases("clcb", group)


@answer
@pytest.mark.parametrize("at_once", [1, 1000], ids=["one by one", "batched"])
def test_all_cases_in_one_table(answer: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every filter of some cases, with and without areas, against some of the events."""
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", 4 if at_once == 1 else 0)
    filters = [f for case in CONJUNCTIONS[::24] for f in filters_of(case)]
    filters += [f for case in CONJUNCTIONS for f in filters_of(case) if f.area is not None][::3]
    events = [*(event_of(case) for case in CONJUNCTIONS[::54]), make_event({"temp": 25}, (0.5, 0.5)), make_event({}, (3, 4))]
    table = Table.from_filters(filters)
    engine = open_engine("clcb", table)
    batch = Events.of(events).encode(table.vocabulary)
    found = [a for i in range(0, len(events), at_once) for a in answers(engine, table, batch[i : i + at_once], answer)]
    assert found == expected(table, events, answer)


@answer
@settings(max_examples=8, deadline=None, suppress_health_check=SLOW)
@given(given_=subscriptions_and_events(max_filters=8, max_events=6, max_constraints=4), few=st.sampled_from([0, 8]))
def test_agrees_with_the_model(given_: tuple[list[Filter], list[Event]], few: int, answer: str) -> None:
    filters, events = given_
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_or_many, "SINGLE_EVENTS", few)
        engine = open_engine("clcb", table)
        assert answers(engine, table, batch, answer) == expected(table, events, answer)


@answer
def test_counters_are_reset_between_events_and_batches(answer: str) -> None:
    """A filter that is half satisfied again and again must never come to be satisfied, in whichever run of a word."""
    filters = [make_filter("both", [["a", "=", 1], ["b", "=", 1]]), make_filter("a", [["a", "=", 1]])]
    table = Table.from_filters([*filters, make_filter("here", [], [0, 0, 1]), make_filter("not b", [["b", "absent"]])])
    engine = open_engine("clcb", table)
    values = ({"a": 1}, {"b": 1}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1}, {"b": 1}, {"b": 1})
    events = [make_event(value, (0, i % 3)) for i, value in enumerate(values)]
    batch = Events.of(events).encode(table.vocabulary)
    wanted = expected(table, events, answer)
    for start, stop in ((0, 7), (0, 1), (1, 2), (2, 7), (3, 4), (3, 4), (0, 7), (4, 6), (0, 4), (0, 7)):
        assert answers(engine, table, batch[start:stop], answer) == wanted[start:stop]


@pytest.mark.parametrize("n_constraints", [255, 256], ids=["bytes", "16 bits"])
def test_counters_are_as_wide_as_the_largest_filter(n_constraints: int) -> None:
    filters = [make_filter("many", [["a", ">", i] for i in range(n_constraints)]), make_filter("few", [["a", "=", 0.5]])]
    table = Table.from_filters(filters)
    events = [make_event({"a": a}) for a in (0.5, n_constraints - 1, n_constraints, 0.5, n_constraints)]
    batch = Events.of(events).encode(table.vocabulary)
    engine = open_engine("clcb", table)
    wanted = [["few"], [], ["many"], ["few"], ["many"]]
    assert engine.match(batch).labels(table.labels) == wanted
    assert [engine.match(batch[i : i + 1]).labels(table.labels)[0] for i in range(5)] == wanted


def test_more_events_than_a_launch_and_a_pass_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clcb_batch, "COUNTER_BYTES", 1 << 20)
    monkeypatch.setattr(segment, "BLOCKS_PER_MULTIPROCESSOR", 4)
    filters = [make_filter(str(i % 3), [["a", "=", i % 5]], [i % 4, 0, 1]) for i in range(9)]
    table = Table.from_filters(filters)
    events = [make_event({"a": i % 6}, (i % 7, 0)) for i in range(40)]
    monkeypatch.setattr(clcb_batch, "CLCB_PASS_EVENTS", 37)
    batch = Events.of(events).encode(table.vocabulary)
    assert open_engine("clcb", table).match(batch).labels(table.labels) == [match_naive(filters, event) for event in events]


def test_a_batch_of_no_events() -> None:
    table = Table.from_filters([make_filter("all")])
    engine = open_engine("clcb", table)
    assert engine.match(Events.of([]).encode(table.vocabulary)).n_events == 0


@pytest.mark.parametrize(
    "filters", [[], [make_filter("i")], [make_filter("i", [["a", "absent"]])]], ids=["none", "all", "absent"]
)
def test_tables_at_their_edges(filters: list[Filter]) -> None:
    table = Table.from_filters(filters)
    events = [make_event(value, place) for value in ({}, {"a": 1}, {"b": 1}) for place in (None, (0, 0))]
    batch = Events.of(events).encode(table.vocabulary)
    engine = open_engine("clcb", table)
    for part in (slice(0, 6), slice(2, 3)):
        for answer in ("list", "filters"):
            assert answers(engine, table, batch[part], answer) == expected(table, events[part], answer)


# While the table changes.


Step = tuple[Change, int, list[float] | None, int | None, int]


def changes_of(steps: Sequence[Step], everything: Table, n_filters: int, n_interfaces: int) -> Changes:
    """Changes from (kind, target, area, filter of `everything`, interface)."""
    rows = sorted(step[3] for step in steps if step[3] is not None)
    return Changes(
        kind=np.array([step[0] for step in steps], np.uint8),
        target=np.array([step[1] for step in steps], np.uint32),
        area=np.array([step[2] or [np.nan] * 3 for step in steps], np.float64).reshape(-1, 3),
        row=np.array([-1 if step[3] is None else rows.index(step[3]) for step in steps], np.int32),
        interface=np.array([step[4] for step in steps], np.uint32),
        added=everything.take(np.array(rows)) if rows else None,
        n_filters=n_filters,
        n_interfaces=n_interfaces,
    )


@pytest.mark.parametrize(("few", "examples"), [(0, 3), (4, 1)], ids=["batched", "one by one"])
def test_changes_in_any_order(few: int, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", few)
    run_machine("clcb", examples, 12)


def test_the_last_of_many_moves_of_a_filter_wins() -> None:
    table = Table.from_filters([make_filter(str(i), [], [0, 0, 1]) for i in range(5)])
    engine = open_engine("clcb", table, live=True)
    batch = Events.of([make_event({}, (i, 0)) for i in range(40)]).encode(table.vocabulary)
    for turn in range(3):
        moves: list[Step] = [(Change.MOVE, i % 4, [i, 0, 0.5], None, 0) for i in range(20 + turn)]
        engine.update(changes_of(moves, table, 5, 5))
        engine.update(changes_of([(Change.MOVE, 4, [30 + turn, 0, 0], None, 0)], table, 5, 5))
        last = {i % 4: i for i in range(20 + turn)} | {4: 30 + turn}
        wanted = [sorted(f for f, x in last.items() if x == i) for i in range(40)]
        found = engine.match(batch)
        assert [found[i].tolist() for i in range(40)] == wanted


def test_segments_stay_few_and_removed_filters_are_dropped() -> None:
    """Endless coming and going needs no more memory than what is there."""
    table = Table.from_filters([make_filter(f"{i:02}", [["a", "=", i]], [i, 0, 1]) for i in range(16)])
    engine = clcb.Clcb(table, live=True)
    sizes = []
    for turn in range(60):
        swap: list[Step] = [(Change.REMOVE, turn % 16, None, None, 0), (Change.ADD, turn % 16, None, turn % 16, turn % 16)]
        engine.update(changes_of(swap, table, 16, 16))
        assert len(engine._slots.segments) <= 4
        sizes.append(sum(segment.n_filters for segment in engine._slots.segments))
    assert max(sizes) <= 32
    events = [make_event({"a": i}, (i, 1)) for i in range(16)]
    found = engine.match(Events.of(events).encode(table.vocabulary))
    assert [found[i].tolist() for i in range(16)] == [[i] for i in range(16)]


def test_the_union_of_parts_is_the_whole() -> None:
    table = Table.from_filters([f for case in CONJUNCTIONS[::3] for f in filters_of(case)])
    cuts = [0, 10, 11, table.n_filters // 2, table.n_filters]
    whole = union([table.take(np.arange(a, b)) for a, b in pairwise(cuts)])
    ids = replace(table.filters, id_filter=whole.filters.id_filter, ids=whole.filters.ids)
    assert list(whole.iter_filters()) == list(replace(table, filters=ids).iter_filters())


def test_only_an_engine_that_was_opened_for_it_takes_changes() -> None:
    table = Table.from_filters([make_filter("i", [["a", "=", 1]])])
    other = Table.from_filters([make_filter("i", [["a", "=", 2]])])
    nothing, foreign = changes_of([], table, 1, 1), changes_of([(Change.ADD, 1, None, 0, 0)], other, 2, 1)
    with pytest.raises(EngineError, match="live=True"):
        open_engine("clcb", table).update(nothing)
    with pytest.raises(EngineError, match="another"):
        open_engine("clcb", table, live=True).update(foreign)


def test_it_says_that_added_filters_make_matching_wait(caplog: pytest.LogCaptureFixture) -> None:
    filters = [make_filter("i", [["x", ">", i]], [0, 0, 1]) for i in range(3)]
    open_engine("clcb", Table.from_filters(filters))
    open_engine("clcb", Table.from_filters(filters[:1]), live=True)  # so few that matching hardly waits
    assert not caplog.records
    open_engine("clcb", Table.from_filters(filters), live=True)
    (record,) = caplog.records
    assert "clcb rebuilds a table when filters are added, and matching waits" in record.message
