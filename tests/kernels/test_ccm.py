"""CCM's kernel, event by event and in batches, against `model.match_naive` and `model.matches`."""

from __future__ import annotations

from typing import Any

import pytest
from case_groups import assert_cases, every_group
from cases import CONJUNCTIONS, event_of, filters_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judge import KINDS, answers, expected
from strategies import subscriptions_and_events

from mpi_match.engines import EngineError, open_engine
from mpi_match.engines.ccm import batch as ccm_batch
from mpi_match.engines.ccm import engine as ccm
from mpi_match.engines.ccm import one_or_many
from mpi_match.engines.ccm.options import CcmVariant
from mpi_match.engines.ccm.published import published_batch
from mpi_match.errors import OptionError
from mpi_match.events.events import Events
from mpi_match.model import Event, Filter, make_event, make_filter
from mpi_match.table.table import Table


@pytest.fixture(params=KINDS)
def answer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "list":
        monkeypatch.setattr(ccm, "MASK_INTERFACES", 0)
    kind: str = request.param
    return kind


@every_group
def test_cases(group: list[dict[str, Any]]) -> None:
    assert_cases("ccm", group)


@pytest.mark.parametrize("at_once", [1, 1000], ids=["one by one", "batched"])
def test_all_cases_in_one_table(answer: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every filter of every case against some of the events, in three kinds of answer."""
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", 4 if at_once == 1 else 0)
    filters = [f for case in CONJUNCTIONS[::12] for f in filters_of(case)]
    events = [event_of(case) for case in CONJUNCTIONS[::27]][:6]
    table = Table.from_filters(filters)
    engine = open_engine("ccm", table)
    batch = Events.of(events).encode(table.vocabulary)
    found = [a for i in range(0, len(events), at_once) for a in answers(engine, table, batch[i : i + at_once], answer)]
    assert found == expected(table, events, answer)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(given_=subscriptions_and_events(max_filters=8, max_events=3, max_constraints=4), few=st.sampled_from([0, 4]))
def test_agrees_with_the_model(given_: tuple[list[Filter], list[Event]], few: int, answer: str) -> None:
    filters, events = given_
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_or_many, "SINGLE_EVENTS", few)
        engine = open_engine("ccm", table)
        assert answers(engine, table, batch, answer) == expected(table, events, answer)


def test_counters_are_reset_between_events_and_batches(answer: str) -> None:
    """A filter that is half satisfied again and again must never come to be satisfied."""
    filters = [make_filter("both", [["a", "=", 1], ["b", "=", 1]]), make_filter("a", [["a", "=", 1]])]
    table = Table.from_filters(filters)
    engine = open_engine("ccm", table)
    events = [make_event(e) for e in ({"a": 1}, {"b": 1}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1}, {"b": 1}, {"b": 1})]
    batch = Events.of(events).encode(table.vocabulary)
    wanted = expected(table, events, answer)
    for start, stop in ((0, 7), (0, 1), (1, 2), (2, 7), (3, 4), (3, 4), (0, 7), (4, 6), (0, 7)):
        assert answers(engine, table, batch[start:stop], answer) == wanted[start:stop]


@pytest.mark.parametrize("n_constraints", [255, 256], ids=["bytes", "16 bits"])
def test_counters_are_as_wide_as_the_largest_filter(n_constraints: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", 0)
    monkeypatch.setattr(ccm_batch, "ROWS_PER_THREAD", 80)
    filters = [make_filter("many", [["a", ">", i] for i in range(n_constraints)]), make_filter("few", [["a", "=", 0.5]])]
    table = Table.from_filters(filters)
    batch = Events.of([make_event({"a": a}) for a in (0.5, n_constraints - 1, n_constraints)]).encode(table.vocabulary)
    assert open_engine("ccm", table).match(batch).labels(table.labels) == [["few"], [], ["many"]]


def test_wide_packed_attributes() -> None:
    """More codes on a name than 16 bits hold."""
    filters = [make_filter(str(i % 3), [["a", "in", list(range(i, 60000, 3))], ["b", "exists"]]) for i in range(3)]
    table = Table.from_filters(filters)
    assert table.vocabulary.shift == 32
    events = [make_event({"a": a, "b": True}) for a in (0, 1, 59999, 60000, 0.5, "0")]
    batch = Events.of(events).encode(table.vocabulary)
    assert open_engine("ccm", table).match(batch).labels(table.labels) == [["0"], ["1"], ["2"], [], [], []]


def test_a_batch_of_no_events() -> None:
    table = Table.from_filters([make_filter("all")])
    engine = open_engine("ccm", table)
    assert engine.match(Events.of([]).encode(table.vocabulary)).n_events == 0


TEXTS, NUMBERS = ["", "ab", "b\u00e9"], [-1.0, 0.0, 2.5]
PUBLISHED_FILTERS = [
    *(
        make_filter(f"{op} {text}", [["x", op, text]])
        for op in ("=", "!=", "prefix", "suffix", "contains")
        for text in TEXTS
    ),
    *(
        make_filter(f"{op} {text}", [["x", op, text], ["y", "exists"]])
        for op in ("<", "<=", ">", ">=")
        for text in TEXTS[1:]
    ),
    *(make_filter(f"{op} {number}", [["x", op, number]]) for op in ("=", "!=", "<", "<=", ">", ">=") for number in NUMBERS),
    make_filter("between numbers", [["x", "between", [-1, 2]]]),
    make_filter("absent", [["x", ">=", "a"], ["y", "absent"]]),
    *(make_filter(f"{op} true", [["x", op, True]]) for op in ("=", "!=")),
    make_filter("area", [["x", "exists"], ["y", "<", 5]], [0, 0, 1]),
    make_filter("twice", [["x", ">", 0], ["x", "<", 2]]),
    make_filter("everything", []),
]
PUBLISHED_EVENTS = [
    *(make_event({"x": text}) for text in ("", "a", "ab", "abab", "b\u00e9")),
    *(make_event({"x": number, "y": 1}, location=[0.5, 0.5]) for number in (-1, -0.0, 1, 2.5, 1e9)),
    make_event({"x": float("nan"), "y": 7}),
    make_event({"x": True, "z": "unknown", "y": "text"}),
    make_event({"x": ["ab"]}),
    make_event({"y": None}),
]


@pytest.mark.parametrize("few", [0, 4], ids=["batched", "one by one"])
@pytest.mark.parametrize("order", ["sorted", "given"])
def test_published_evaluation_agrees_with_the_model(few: int, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types, operators, numbers and the bytes of strings, compared by the kernel, with events in two chunks."""
    monkeypatch.setattr(one_or_many, "SINGLE_EVENTS", few)
    table = Table.from_filters(PUBLISHED_FILTERS)
    options = {"sat": "published", "order": order, "input": "global" if few else "shared"}
    engine = open_engine("ccm", table, options=options, measured=True)
    chunks = [Events.of(PUBLISHED_EVENTS[:6]), Events.of(PUBLISHED_EVENTS[6:])]
    batch = published_batch(chunks, table.vocabulary)
    for answer in ("mask", "filters"):
        step = 1 if few else len(batch)
        found = [a for i in range(0, len(batch), step) for a in answers(engine, table, batch[i : i + step], answer)]
        assert found == expected(table, PUBLISHED_EVENTS, answer)


def test_published_evaluation_takes_only_what_it_can_compare() -> None:
    for constraint in (["x", "in", [1, 2]], ["x", "any =", "a"], ["x", "=", 2**60 + 1]):
        with pytest.raises(EngineError, match=r"ccm\.sat=codes does"):
            ccm.Ccm(Table.from_filters([make_filter("i", [constraint])]), options={"sat": "published"})
    table = Table.from_filters([make_filter("i", [["x", "=", 1]])])
    with pytest.raises(OptionError, match="only for measuring"):
        open_engine("ccm", table, options={"sat": "published"})
    assert CcmVariant().sat == "codes"
    engine = open_engine("ccm", table, options={"sat": "published"}, measured=True)
    with pytest.raises(EngineError, match="which only bench keeps"):
        engine.match(Events.of([make_event({"x": 1})]).encode(table.vocabulary))
