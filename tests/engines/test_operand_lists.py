"""Lists of operands of any length: what an event looks at, and how large the index is, do not jump with it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from live_machine import Naive

from mpi_match import make_batch, make_table, open_engine
from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import Engine
from mpi_match.engines.keyed.index import value_classes as module
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.engines.keyed.index.value_classes import value_classes
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.rows.judge import change_of_row
from mpi_match.model import make_event, match_naive
from mpi_match.table.table import Table


def lists_of(length: int, n: int = 400) -> tuple[Table, list[dict[str, Any]]]:
    """A table of `n` filters with an `in` of so many values each, and events that each satisfy a few of them."""
    generator = random.Random(length)
    values = [f"v{k}" for k in range(n * length // 2)]
    rows = [{"interface": f"i{k}", "constraints": [["a", "in", generator.sample(values, length)]]} for k in range(n)]
    return make_table(rows), [{"a": value} for value in generator.sample(values, min(200, len(values)))] + [
        {"a": "none"}
    ] * 50


@pytest.mark.parametrize("length", [2, 15, 16, 17, 33, 100, 1000])
def test_an_event_looks_at_the_filters_whose_list_has_its_value(length: int) -> None:
    table, events = lists_of(length)
    engine = open_engine("keyed", table, threads=1)
    before = engine.candidates or 0
    found = engine.match(make_batch(table, events), filters=True)
    assert (engine.candidates or 0) - before == len(found.ids) > 100


def test_the_index_grows_with_the_values_of_the_table() -> None:
    sizes = []
    for length in (16, 17, 100, 1000):
        table, _ = lists_of(length)
        sizes.append(open_engine("keyed", table, threads=1).nbytes / table.nbytes)
    assert max(sizes) < 8, sizes


@pytest.mark.lasting
def test_a_list_of_100_000_values_and_one_that_many_filters_share_are_one_class() -> None:
    values = [f"v{k}" for k in range(100_000)]
    rows: list[dict[str, Any]] = [
        {"interface": f"i{k}", "constraints": [["a", "in", values], ["b", "=", k]]} for k in range(50)
    ]
    table = make_table(rows)
    classes = value_classes(FilterRows.of(table))
    assert (np.diff(classes.offsets).tolist(), classes.is_filed.tolist()) == ([1], [True])
    engine = open_engine("keyed", table, threads=1)
    assert engine.nbytes < 3 * table.nbytes
    events: list[dict[str, Any]] = [
        {"a": "v77777", "b": 7},
        {"a": "v0", "b": 8},
        {"a": "w", "b": 7},
        {"a": "v0", "b": 50},
        {"a": "v99999"},
    ]
    assert [*engine.match(make_batch(table, events)).labels(table.labels)] == [["i7"], ["i8"], [], [], []]


def random_rows(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lists that overlap, share classes and stand beside other constraints on their values."""
    generator = random.Random(seed)
    values = [*range(30), *(f"v{k}" for k in range(30))]
    some = [generator.sample(each, generator.randint(1, 28)) for each in (values[:30], values[30:]) for _ in range(4)]
    rows = []
    for k in range(60):
        constraints: list[list[Any]] = [["a", "in", generator.choice(some)]]
        if generator.random() < 0.5:
            constraints.append([generator.choice("ab"), generator.choice(("in", "not in")), generator.choice(some)])
        if generator.random() < 0.4:
            constraints.append([generator.choice("ab"), generator.choice(("=", "!=", ">")), generator.choice(values)])
        rows.append({"interface": f"i{k % 20}", "constraints": constraints})
    events = [
        {name: value for name in "ab" if (value := generator.choice([*values, "w", -1, None])) is not None}
        for _ in range(80)
    ]
    return rows, events


ENGINES = ["keyed", pytest.param("keyed_cuda", marks=pytest.mark.gpu)]


def check(seed: int, engine: str = "keyed") -> None:
    rows, events = random_rows(seed)
    table = make_table(rows)
    expected = [match_naive(table.iter_filters(), make_event(event)) for event in events]
    assert sum(map(bool, expected)) > 10
    batch = make_batch(table, events)
    assert [*open_engine(engine, table).match(batch).labels(table.labels)] == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(8))
def test_answers_are_those_of_the_model(seed: int, engine: str) -> None:
    check(seed, engine)


# Prefixes, which are lists of their codes


@pytest.mark.parametrize("live", [False, True])
def test_an_event_looks_at_the_filters_whose_prefix_it_has(live: bool) -> None:
    """It looked at all filters with a prefix on its name, 8 us of an event of five texts and 2,000 filters."""
    generator = random.Random(0)
    words = sorted({"".join(generator.choices("abcdefgh", k=generator.randint(4, 9))) for _ in range(600)})
    rows = [{"interface": f"i{k}", "constraints": [["a", "prefix", word]]} for k, word in enumerate(words)]
    table = make_table(rows)
    engine = open_engine("keyed", table, threads=1, live=live)
    events = [{"a": f"{word} and more"} for word in words[::6]] + [{"a": "none"}] * 25
    before = engine.candidates or 0
    found = engine.match(make_batch(table, events), filters=True)
    assert [*engine.match(make_batch(table, events)).labels(table.labels)] == [
        match_naive(table.iter_filters(), make_event(event)) for event in events
    ]
    if not live:
        assert (engine.candidates or 0) - before == 2 * len(found.ids) > 200


def prefix_rows(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Prefixes within one another, of few codes and of many, beside other constraints on their values."""
    generator = random.Random(seed)
    values = ["".join(generator.choices("ab", k=generator.randint(0, 7))) for _ in range(200)]
    rows = []
    for k in range(150):
        constraints: list[list[Any]] = [["a", "prefix", generator.choice(values)]]
        for op in generator.sample(
            ["=", "prefix", "any prefix", "suffix", "in", "not in", "!=", ">"], generator.randrange(3)
        ):
            operand = generator.sample(values, 3) if op.endswith("in") else generator.choice(values)
            constraints.append([generator.choice("ab"), op, operand])
        area = {"area": [0, 0, 9]} if k % 5 == 0 else {}
        rows.append({"interface": f"i{k % 40}", "constraints": constraints} | area)
    events = [{name: generator.choice([*values, "w", 3, ["aab", "b"]]) for name in "ab"} for _ in range(80)]
    return rows, events


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_answers_for_prefixes_are_those_of_the_model(seed: int, engine: str) -> None:
    rows, events = prefix_rows(seed)
    table = make_table(rows)
    expected = [match_naive(table.iter_filters(), make_event(event, (1, 0))) for event in events]
    assert sum(map(bool, expected)) > 20
    batch = make_batch(table, [event | {"x": 1, "y": 0} for event in events], location="x,y")
    assert [*open_engine(engine, table).match(batch).labels(table.labels)] == expected
    live = LiveTable(make_table(rows[:50]), expected=[*table.iter_filters()])
    opened = open_engine(engine, live.table, threads=1, live=True)
    changes = live.apply([change_of_row({"add": row}, stamped=False) for row in rows[50:]], [])
    assert changes is not None
    opened.update(changes)
    batch = make_batch(live.table, [event | {"x": 1, "y": 0} for event in events], location="x,y")
    assert answers_of(opened, live, batch) == expected


def test_lists_that_are_not_filed_are_looked_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_A_ROW", 0)
    monkeypatch.setattr(module, "SHORT_LIST", 0)
    rows, _ = random_rows(0)
    assert not value_classes(FilterRows.of(make_table(rows))).is_filed.any()
    for seed in range(3):
        check(seed)


def test_classes_that_share_a_hash_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same:
        def integers(self, _: int, *, size: int, dtype: type) -> np.ndarray[Any, Any]:
            return np.zeros(size, dtype)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Same())
    rows = FilterRows.of(make_table(random_rows(0)[0]))
    assert np.array_equal(value_classes(rows).codes, rows.set_codes)
    for seed in range(3):
        check(seed)


def test_many_filters_that_share_lists_of_many_classes_do_not_make_the_index_large() -> None:
    """Each of 300 values is told apart by an equality, so a list of all of them has 300 classes for each of its filters."""
    values = [f"v{k}" for k in range(300)]
    rows: list[dict[str, Any]] = [{"interface": value, "constraints": [["a", "=", value]]} for value in values]
    rows += [{"interface": f"i{k}", "constraints": [["a", "in", values], ["b", ">", k]]} for k in range(3000)]
    table = make_table(rows)
    engine = open_engine("keyed", table, threads=1)
    assert engine.nbytes < 12 * table.nbytes
    assert [*engine.match(make_batch(table, [{"a": "v5", "b": 2}])).labels(table.labels)] == [["i0", "i1", "v5"]]


# Filters that are added later


def answers_of(engine: Engine, live: LiveTable, batch: EventBatch) -> list[list[str]]:
    found, labels = engine.match(batch), live.registry.labels
    return [sorted(labels[i] for i in found[event].tolist()) for event in range(len(batch))]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", [2, 17, 300])
def test_an_event_looks_at_the_added_filters_whose_list_has_its_value(length: int, engine: str) -> None:
    generator = random.Random(length)
    values = [f"v{k}" for k in range(60 * length)]
    rows = [{"interface": f"i{k}", "constraints": [["a", "in", generator.sample(values, length)]]} for k in range(200)]
    table = make_table([{"interface": "other", "constraints": [["b", "=", 1]]}])
    live = LiveTable(table, expected=make_table(rows).iter_filters())
    opened = open_engine(engine, live.table, threads=1, live=True)
    changes = live.apply([change_of_row({"add": row}, stamped=False) for row in rows], [])
    assert changes is not None
    opened.update(changes)
    events = [{"a": value} for value in generator.sample(values, 100)]
    batch, before = make_batch(live.table, events), opened.candidates or 0
    found = opened.match(batch, filters=True)
    if engine == "keyed":
        assert 100 < len(found.ids) <= (opened.candidates or 0) - before < 1.2 * len(found.ids), "or other keys of a block"
    there = [item for _, item in live.filters()]
    assert answers_of(opened, live, batch) == [match_naive(there, make_event(event)) for event in events]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_added_filters_with_lists_come_and_go_in_one_update(seed: int, engine: str) -> None:
    """Each has a slot for each value of its list; ids, slots and interfaces are taken again within one update."""
    generator, (rows, events) = random.Random(seed), random_rows(seed)
    for k, row in enumerate(rows):
        row |= {"id": f"f{k}"} | ({"area": [0, 0, 9]} if k % 7 == 0 else {})
    live = LiveTable(make_table(rows[:20]), expected=[*make_table(rows).iter_filters()])
    opened, naive = open_engine(engine, live.table, threads=2, live=True), Naive(list(make_table(rows[:20]).iter_filters()))
    for _ in range(12):
        changes = []
        for _ in range(12):
            there = [str(item.id) for item in naive.filters]
            absent = [row for row in rows if row["id"] not in there]
            kind = generator.choice(("add", "add", "remove", "remove_interface", "move"))
            change: dict[str, Any] = {kind: generator.choice(there)} if there else {}
            if kind == "add" or not there:
                change = {"add": generator.choice(absent or rows)}
            elif kind == "remove_interface":
                change = {kind: generator.choice(naive.filters).interface}
            elif kind == "move":
                change = {kind: generator.choice(there), "area": [1, 1, 9]}
            changes.append(change_of_row(change, stamped=False))
            naive.apply(changes[-1])
        for_engine = live.apply(changes, [])
        assert for_engine is not None
        opened.update(for_engine)
        batch = make_batch(live.table, [event | {"x": 1, "y": 0} for event in events], location="x,y")
        assert answers_of(opened, live, batch) == [match_naive(naive.filters, make_event(event, (1, 0))) for event in events]
        found = opened.match(batch, filters=True)
        assert all(len(set(ids)) == len(ids) for ids in (found[k].tolist() for k in range(len(events))))


def test_added_filters_that_share_a_long_list_do_not_have_a_slot_for_each_value() -> None:
    values = [f"v{k}" for k in range(500)]
    live = LiveTable(make_table([{"interface": "all", "constraints": [["a", "in", values], ["b", "in", [*range(300)]]]}]))
    engine = open_engine("keyed", live.table, threads=1, live=True)
    rows = [{"add": {"interface": f"i{k}", "constraints": [["a", "in", values], ["b", ">", k]]}} for k in range(300)]
    changes = live.apply([change_of_row(row, stamped=False) for row in rows], [])
    assert changes is not None
    engine.update(changes)
    assert vars(engine)["live_filters"].n_slots < 300 * len(values) / 20
    assert answers_of(engine, live, make_batch(live.table, [{"a": "v5", "b": 2}])) == [["all", "i0", "i1"]]
