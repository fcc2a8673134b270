"""Every engine against the naive matcher: one suite, run on each.

The judge is `model.match_naive` on the filters as they were written, never another engine, except where thousands of
filters meet hundreds of events: there the counting engine judges, which this file holds to `match_naive` too.  GPU engines
take the same suite with `-m gpu` on a machine that has a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from cases import CASES, event_of, filters_of
from engine_names import CPU, GPU, SLOW, TAGS, chief_engines, every_engine, quickly_opened
from examples import examples
from hypothesis import given, settings
from lasting import lasting
from random_tables import SHAPES, judged, shaped
from strategies import subscriptions_and_events

from mpi_match import engines
from mpi_match.engines import Engine, EngineError, open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.matches.matches import Matches
from mpi_match.model import Event, Filter, make_event, make_filter, match_naive, matches
from mpi_match.table.table import Table


def encode(events: Sequence[Event], table: Table) -> EventBatch:
    return Events.of(events).encode(table.vocabulary)


def labels(engine: Engine, batch: EventBatch, table: Table) -> list[list[str]]:
    return engine.match(batch).labels(table.labels)


class Expected(NamedTuple):
    """A table, encoded events, and the answers of the model to each: labels of interfaces, and filters."""

    table: Table
    batch: EventBatch
    labels: list[list[str]]
    filters: list[list[int]]

    @classmethod
    def of(cls, filters: Sequence[Filter], events: Sequence[Event]) -> Expected:
        """Interfaces as `match_naive` gives them, filters as `matches` does."""
        table = Table.from_filters(filters)
        kept = list(table.iter_filters())
        return cls(
            table,
            encode(events, table),
            [match_naive(filters, event) for event in events],
            [[i for i, item in enumerate(kept) if matches(item, event)] for event in events],
        )

    def assert_of(self, name: str, every: int = 1) -> None:
        """An engine gives these answers, to one in so many of the events."""
        engine, picked = open_engine(name, self.table), range(0, len(self.labels), every)
        batch = self.batch if every == 1 else EventBatch.concat([self.batch[i : i + 1] for i in picked])
        assert labels(engine, batch, self.table) == [self.labels[i] for i in picked]
        found = engine.match(batch, filters=True)
        assert [found[i].tolist() for i in range(len(found))] == [self.filters[i] for i in picked]
        assert found.n_ids == self.table.n_filters


def assert_agrees(name: str, filters: Sequence[Filter], events: Sequence[Event]) -> None:
    Expected.of(filters, events).assert_of(name)


# The answers.


def cases_in_turn() -> Iterator[Any]:
    """`keyed` has all cases, `counting` and `twophase` every other one; the rest is `lasting`."""
    turn = {"counting": (0,), "twophase": (1,), "keyed": (0, 1)}
    for name in (*(name for name in CPU if name != "duckdb"), *GPU):
        for at, case in enumerate(CASES):
            left_out = [] if at % 2 in turn.get(name, ()) else [pytest.mark.lasting]
            yield pytest.param(name, case, marks=pytest.mark.gpu if name in GPU else left_out, id=f"{name}-{case['name']}")


@pytest.mark.parametrize(("name", "case"), [*cases_in_turn()])
def test_case(name: str, case: dict[str, Any]) -> None:
    filters, event = filters_of(case), event_of(case)
    assert match_naive(filters, event) == case["expect"], "the case itself is broken"
    assert_agrees(name, filters, [event])


@every_engine
@settings(max_examples=examples(25))
@given(inputs=subscriptions_and_events())
def test_hypothesis(name: str, inputs: tuple[list[Filter], list[Event]]) -> None:
    assert_agrees(name, *inputs)


@quickly_opened
@given(inputs=subscriptions_and_events(max_filters=6, max_events=4, max_constraints=3, with_conditions=True))
def test_conditions(name: str, inputs: tuple[list[Filter], list[Event]]) -> None:
    assert_agrees(name, *inputs)


def joined(cases: Sequence[dict[str, Any]]) -> tuple[list[Filter], list[Event]]:
    """The subscriptions of several cases in one list, each on interfaces of its own, and their events."""
    filters = [item._replace(interface=f"{case['name']}/{item.interface}") for case in cases for item in filters_of(case)]
    return filters, [event_of(case) for case in cases]


@cache
def all_cases() -> Expected:
    """Made once, as is what follows: the tests of all engines share it."""
    return Expected.of(*joined(CASES))


@every_engine
def test_all_cases_in_one_table(name: str) -> None:
    table, batch, expected, _ = all_cases()
    found = labels(open_engine(name, table), batch, table)
    for case, answer, right in zip(CASES, found, expected, strict=True):
        own = [label.removeprefix(f"{case['name']}/") for label in answer if label.startswith(f"{case['name']}/")]
        assert own == case["expect"], case["why"]
        assert answer == right, case["name"]


@every_engine
def test_more_events_than_any_block(name: str) -> None:
    table, batch, *_ = all_cases()
    engine = open_engine(name, table)
    if name in SLOW:
        batch = batch[:30]
    copies = 2 if name in SLOW else 40
    once, many = engine.match(batch), engine.match(EventBatch.concat([batch] * copies))
    assert many == Matches.concat([once] * copies)
    assert many.n_matches > 0


def tables_in_turn() -> Iterator[Any]:
    """`reference`, which is slow and evaluates filters with the model itself, has every fourth; the rest is `lasting`."""
    for shape, name in product(SHAPES, (*CPU, *GPU)):
        is_further = name == "reference" and [*SHAPES].index(shape) % 4
        marks = pytest.mark.gpu if name in GPU else pytest.mark.lasting if is_further else ()
        yield pytest.param(name, shape, marks=marks, id=f"{shape}-{name}")


@pytest.mark.parametrize(("name", "shape"), [*tables_in_turn()])
def test_random_tables(name: str, shape: str) -> None:
    case = judged(shape)
    engine = open_engine(name, case.table)
    if name in SLOW:
        filters, events = shaped(shape)
        assert labels(engine, case.batch[:8], case.table) == [match_naive(filters, event) for event in events[:8]]
        return
    assert engine.match(case.batch) == case.interfaces
    assert case.filters.n_matches > 0
    assert engine.match(case.batch, filters=True) == case.filters


@cache
def many_codes() -> Expected:
    many = make_filter("many", [["x", "in", list(range(0, 70_000, 2))], ["y", "=", "a"]])
    filters = [
        *(many, make_filter("few", [["x", ">", 69_000]]), make_filter("none", [["x", "absent"], ["y", "contains", "b"]])),
        *(make_filter("not", [["x", "not in", [69_999, 5]]]), make_filter("text", [["x", "prefix", "a"]])),
    ]
    values = [0, 1, 5, 32_768, 65_536, 69_001, 69_998, 69_999, 80_000, -1, float("nan"), "a", "b", True]
    events = [make_event({"x": value, "y": y}) for value in values for y in ("a", "ab")]
    events += [make_event({}), make_event({"y": "b"})]
    return Expected.of(filters, events)


@chief_engines
def test_more_codes_than_sixteen_bits(name: str) -> None:
    assert many_codes().table.vocabulary.packed_dtype == np.uint64
    many_codes().assert_of(name)


@cache
def many_names() -> Expected:
    n_names = 66_000
    names = [f"n{i}" for i in range(n_names)]
    filters = [make_filter(str(i % 7), [[n, "absent"] for n in names[i : i + 60]]) for i in range(0, n_names, 60)]
    filters += [make_filter("last", [["n65999", ">", 3], ["n0", "=", "a"]]), make_filter("zz", [["zz", "suffix", "a"]])]
    events = [
        make_event({"n65999": 4, "n0": "a"}),
        make_event({"n65999": 3, "n0": "a", "zz": "ba"}),
        make_event({names[i]: 1 for i in range(0, n_names, 60) if i // 60 % 7 != 3}),
        make_event({}),
    ]
    return Expected.of(filters, events)


@chief_engines
def test_more_names_than_sixteen_bits(name: str) -> None:
    assert many_names().table.vocabulary.packed_dtype == np.uint64
    many_names().assert_of(name)


@cache
def thick_filter(size: int) -> Expected:
    """A filter of `size` constraints, nearly all on one name, beside two thin ones."""
    thick = make_filter("thick", [["x", ">", -i] for i in range(size - 1)] + [["y", "exists"]])
    filters = [thick, make_filter("thin", [["x", ">", 0]]), make_filter("y", [["y", "=", 1]])]
    return Expected.of(filters, [make_event(each) for each in ({"x": 1, "y": 1}, {"x": 0, "y": 1}, {"x": 1}, {})])


@every_engine
@pytest.mark.parametrize("size", [255, 256, 1023, 1024, *lasting(254, 257, 1000, 1025)])
def test_more_constraints_than_a_byte_counts(name: str, size: int) -> None:
    thick_filter(size).assert_of(name)


@chief_engines
def test_more_constraints_than_two_bytes_count(name: str) -> None:
    thick_filter(65_537).assert_of(name)


@cache
def many_checks(size: int) -> Expected:
    """Of every kind, here and there, beside filters of few; and an event that spoils the last of them."""
    present, absent = [f"p{i:04}" for i in range(size)], [f"a{i:04}" for i in range(size)]
    negative: list[tuple[str, object]] = [("not in", [-1, -2]), ("!=", -3)]
    long: dict[str, list[list[object]]] = {
        "present": [[each, ">=", 0] for each in present],
        "absent": [[each, "absent"] for each in absent],
        "listed": [[each, "in", [0, i, i + 7]] for i, each in enumerate(present)],
        "not": [[each, op, operand] for op, operand in negative for each in present],
    }
    areas = (None, [0, 0, 5])
    filters = [make_filter(f"{label} {area}", checks, area) for label, checks in long.items() for area in areas]
    filters += [make_filter("few", [[present[-1], "=", 0]]), make_filter("listed None", [[present[0], "=", -1]])]
    full = dict.fromkeys(present, 0)
    events = [
        make_event(full | {present[-1]: value}, place) for value in (0, -1, -3, 2.5) for place in (None, (3, 4), (3, 5))
    ]
    events += [
        make_event(full | {absent[-1]: 1}),
        make_event({present[-1]: 0}),
        make_event({}, (0, 0)),
        make_event({absent[0]: 1}),
    ]
    return Expected.of(filters, events)


@chief_engines
@pytest.mark.parametrize("size", [1023, 1024, 1030])
def test_filters_with_more_checks_than_ten_bits_count(name: str, size: int) -> None:
    many_checks(size).assert_of(name, every=3 if name in SLOW else 1)


@every_engine
def test_wide_events(name: str) -> None:
    """Hundreds of attributes in an event, most of which no filter names."""
    filters = [make_filter(str(i % 5), [[f"n{i}", "=", 1], [f"n{(7 * i) % 300}", "exists"]]) for i in range(300)]
    events = [make_event({f"n{i}": i % step for i in range(600)}) for step in (1, 2, 3)]
    assert_agrees(name, filters, events)


# Tables and batches at their edges.


@every_engine
@pytest.mark.parametrize(
    "filters",
    [
        pytest.param([], id="no filters"),
        pytest.param([make_filter("i")], id="one filter that matches everything"),
        pytest.param([make_filter("i", [], [0, 0, 1]), make_filter("j", [], [0, 0, 0])], id="only areas"),
        pytest.param([make_filter("i", [["a", "absent"]])], id="only absent"),
        pytest.param([make_filter("i", [["a", "contains", ""]])], id="only an atom"),
        pytest.param([make_filter("i", [["a", "exists"]])] * 5, id="the same filter five times"),
        pytest.param([make_filter("i", [["a", ">", 1], ["a", "<", 1]])], id="never satisfied"),
    ],
)
def test_small_tables(name: str, filters: list[Filter]) -> None:
    values: list[dict[str, object]] = [{}, {"a": 1}, {"a": "x"}, {"b": 1}]
    events = [make_event(value, location) for value in values for location in (None, (0, 0), (1, 1))]
    assert_agrees(name, filters, events)


@every_engine
@pytest.mark.parametrize("filters", [[], [make_filter("i")], [make_filter("i", [["a", "exists"]], [0, 0, 1])]])
def test_no_events(name: str, filters: list[Filter]) -> None:
    table = Table.from_filters(filters)
    engine, batch = open_engine(name, table), encode([], table)
    for answer in (engine.match(batch), engine.match(batch, filters=True)):
        assert answer.n_events == 0
        assert answer.n_matches == 0


@pytest.fixture(scope="module")
def mixed() -> tuple[Table, EventBatch, Matches]:
    """A table of every third case, the events of these, and the answers of the naive matcher."""
    filters, events = joined(CASES[::3])
    table = Table.from_filters(filters)
    number = {table.label(i): i for i in range(table.n_interfaces)}
    expected = [[number[label] for label in match_naive(filters, event)] for event in events]
    return table, encode(events, table), Matches.of(expected, table.n_interfaces)


@every_engine
def test_slices_join_to_the_whole(name: str, mixed: tuple[Table, EventBatch, Matches]) -> None:
    table, batch, expected = mixed
    engine = open_engine(name, table)
    cuts = [0, 1, 1, 2, 50, 64, len(batch)]
    pieces = [batch[a:b] for a, b in pairwise(cuts)]
    assert any(int(piece.offsets[0]) > 0 for piece in pieces)
    assert Matches.concat([engine.match(piece) for piece in pieces]) == expected


@every_engine
def test_wire_form_matches_the_same(name: str, mixed: tuple[Table, EventBatch, Matches]) -> None:
    table, batch, expected = mixed
    received = EventBatch.from_wire(batch.to_wire())
    assert open_engine(name, table).match(received) == expected


@every_engine
@pytest.mark.parametrize("start", [1, 2**31, 2**32 - 1, 2**32 - 40])
def test_offsets_start_anywhere(name: str, start: int, mixed: tuple[Table, EventBatch, Matches]) -> None:
    """A batch may be a range of a table with more than 2^32 attributes: offsets are counted modulo 2^32."""
    table, batch, expected = mixed
    moved = EventBatch(batch.offsets + np.uint32(start), batch.attributes, batch.location, batch.fingerprint)
    engine = open_engine(name, table)
    assert engine.match(moved) == expected
    assert engine.match(moved[3:]) == engine.match(batch[3:])


@every_engine
def test_read_only_and_mapped_input_is_left_alone(name: str, mixed: tuple[Table, EventBatch, Matches]) -> None:
    table, batch, expected = mixed
    for array in (batch.offsets, batch.attributes, batch.location):
        assert array is not None
        array.flags.writeable = False
    try:
        assert open_engine(name, table).match(batch) == expected
    finally:
        for array in (batch.offsets, batch.attributes, batch.location):
            array.flags.writeable = True  # type: ignore[union-attr]


@every_engine
def test_a_batch_without_locations_meets_areas(name: str) -> None:
    table = Table.from_filters([make_filter("near", [], [0, 0, 1e9]), make_filter("any")])
    batch = encode([make_event({})], table)
    assert batch.location is None
    assert labels(open_engine(name, table), batch, table) == [["any"]]


@every_engine
def test_one_engine_answers_many_batches(name: str, mixed: tuple[Table, EventBatch, Matches]) -> None:
    """Nothing of one batch shows in the next: large, small, interfaces, filters, in any order."""
    table, batch, expected = mixed
    engine = open_engine(name, table)
    for _ in range(2):
        assert engine.match(batch) == expected
        engine.match(batch[5:6], filters=True)
        assert engine.match(batch[:0]).n_events == 0
        assert np.array_equal(engine.match(batch[7:8])[0], expected[7])


@every_engine
def test_threads_do_not_change_answers(name: str, mixed: tuple[Table, EventBatch, Matches]) -> None:
    table, batch, expected = mixed
    for threads in (1, 2, 3):
        assert open_engine(name, table, threads=threads).match(batch) == expected


# Attributes of engines, and refusals.


@every_engine
def test_a_batch_of_another_vocabulary_is_refused(name: str) -> None:
    table = Table.from_filters([make_filter("i", [["x", ">", 1]])])
    other = Table.from_filters([make_filter("i", [["x", ">", 2]])])
    with pytest.raises(EngineError, match="another table's vocabulary; encode the events with this table"):
        open_engine(name, table).match(encode([make_event({"x": 5})], other))


@every_engine
@pytest.mark.parametrize("events", [[{"x": 5}], {"x": [5]}, None])
def test_events_that_are_no_batch_are_refused(name: str, events: Any) -> None:
    engine = open_engine(name, Table.from_filters([make_filter("i", [["x", ">", 1]])]))
    for ask in (engine.match, engine.begin):
        with pytest.raises(EngineError, match=r"an engine matches a batch of make_batch, found (list|dict|null)"):
            ask(events)


@every_engine
def test_attributes_of_an_engine(name: str, mixed: tuple[Table, EventBatch, Matches]) -> None:
    engine = open_engine(name, mixed[0])
    assert engine.name == name
    assert isinstance(engine.device, str)
    assert engine.device
    assert engine.nbytes > 0


def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(EngineError, match=r"unknown engine 'quick'; there are: reference, counting, .*auto"):
        open_engine("quick", Table.from_filters([]))


def test_every_registered_engine_is_tested() -> None:
    assert {*CPU, *GPU, *TAGS, "rtree", "duckdb"} == set(engines.REGISTRY)
