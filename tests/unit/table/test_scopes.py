"""Filters that ask for one object of a list: the model, the scopes that tables have, and answers by every reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_match import api
from mpi_match.engines.registry import open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.offer import RowsOffer
from mpi_match.ingest.rows.judge import EventForm, event_of_row, subscription_filters
from mpi_match.ingest.rows.to_json import subscription_rows
from mpi_match.model import Condition, Constraint, Event, Join, ModelError, holds, holds_consistently, match_naive
from mpi_match.table.conditions import decompose, recompose
from mpi_match.table.scopes import Scopes, condition_of, is_scope
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

NAMES = ("a.x", "a.y", "a.b.x", "a.b.y", "c.x", "z")


def scalars() -> st.SearchStrategy[Any]:
    return st.sampled_from([1, 2, "1", True, None, [1, 2], []])


def objects(depth: int) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {"x": scalars(), "y": scalars()}
    if depth:
        inner = objects(depth - 1)
        fields["b"] = inner | st.lists(inner | st.just(1), max_size=3)
    return st.fixed_dictionaries({}, optional=fields)


ROWS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.lists(objects(1) | st.lists(objects(1), max_size=2), max_size=3) | objects(1),
        "c": objects(0),
        "z": scalars(),
    },
)
LEAVES = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(
        [
            ("any =", 1),
            ("any !=", 1),
            ("any in", [1, 2]),
            ("exists",),
            ("absent",),
            ("null",),
            ("=", 2),
            ("any = i", "1"),
            ("has", "1"),
        ]
    ),
)
TREES = st.recursive(
    LEAVES.map(lambda each: [each[0], *each[1]]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([{"and": parts}, {"or": parts}, {"not": parts[0]}])
    ),
    max_leaves=6,
)


def choices(event: Event) -> Iterator[dict[int, int]]:
    """All choices of one object of each list that some value lies in."""
    n_of: dict[int, int] = {}
    for places in (event.places or {}).values():
        for of, number in (pair for place in places for pair in place):
            n_of[of] = max(n_of.get(of, 0), number + 1)
    for chosen in product(*map(range, n_of.values())):
        yield dict(zip(n_of, chosen, strict=True))


def is_true(tree: Condition | Constraint, event: Event) -> bool:
    """What the model says, by trying everything."""
    return any(_is_true(tree, event, chosen) for chosen in choices(event))


def _is_true(tree: Condition | Constraint, event: Event, chosen: dict[int, int]) -> bool:
    if isinstance(tree, Condition):
        if tree.join is Join.NOT:
            return not is_true(tree.parts[0], event)
        return (all if tree.join is Join.AND else any)(_is_true(part, event, chosen) for part in tree.parts)
    places = (event.places or {}).get(tree.name)
    if not places or not (tree.any_element or tree.symbol == "exists"):
        return holds(tree, event.attributes)
    there = [all(chosen[of] == number for of, number in place) for place in places]
    if not tree.any_element:
        return any(there)
    value = event.attributes[tree.name]
    assert isinstance(value, tuple)
    kept = tuple(each for each, is_there in zip(value, there, strict=True) if is_there)
    return holds(tree, {tree.name: kept})


@given(tree=TREES, row=ROWS)
def test_some_choice_of_objects_makes_a_condition_true(tree: Any, row: dict[str, Any]) -> None:
    (item,) = subscription_filters({"interface": "i", "where": tree, "arrays": "consistent"})
    event = event_of_row(row)
    wanted = Condition(Join.AND, (*item.constraints, *([item.where] if item.where else [])))
    assert holds_consistently(wanted, event) == is_true(wanted, event)
    assert match_naive([item], event) == (["i"] if is_true(wanted, event) else [])


@settings(max_examples=examples(20))
@given(trees=st.lists(TREES, min_size=1, max_size=8), rows=st.lists(ROWS, min_size=1, max_size=6))
def test_engines_and_readers_agree_with_the_model(trees: list[Any], rows: list[dict[str, Any]]) -> None:
    wanted = [{"interface": str(i), "where": tree, "arrays": "consistent"} for i, tree in enumerate(trees)]
    filters = [item for row in wanted for item in subscription_filters(row)]
    expected = [match_naive(filters, event_of_row(row)) for row in rows]
    table = api.make_table(wanted)
    assert [match_naive(table.iter_filters(), event_of_row(row)) for row in rows] == expected
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    for batch in (api.make_batch(table, lines), api.make_batch(table, rows)):
        for engine in ("keyed", "counting", "reference"):
            assert open_engine(engine, table).match(batch).labels(table.labels) == expected


@given(tree=TREES)
def test_filters_of_a_table_are_those_that_it_was_made_of(tree: Any) -> None:
    (item,) = subscription_filters({"interface": "i", "where": tree, "arrays": "consistent"})
    first, *parts = decompose(item)
    asked = [each.name for part in (first, *parts) for each in part.constraints if is_scope(each.name)]
    again = recompose(first, {part.interface: [one for one in parts if one.interface == part.interface] for part in parts})
    assert again.consistent == bool(asked)
    assert {each for part in decompose(again) for each in part.constraints if is_scope(each.name)} == {
        each for part in (first, *parts) for each in part.constraints if is_scope(each.name)
    } or not any(is_scope(each.name) for each in first.constraints)
    for name in asked:
        assert Scopes([name]).paths
        assert condition_of(name)


def test_rows_are_written_again_and_a_failure_is_explained() -> None:
    rows: list[dict[str, Any]] = [
        {"interface": "i", "constraints": [["a.x", "has", 1], ["a.y", "any >", 2]], "arrays": "consistent"},
        {
            "interface": "k",
            "constraints": [["z", "=", 1]],
            "where": {"not": {"and": [["a.x", "has", 1], ["a.y", "has", 3]]}},
        },
    ]
    rows[1]["arrays"] = "consistent"
    table = api.make_table(rows)
    again = list(subscription_rows(Subscriptions.of(item for row in rows for item in subscription_filters(row))))
    assert api.make_table(again) == table
    assert [row["arrays"] for row in again] == ["consistent", "consistent"]
    explained = api.explain(table, {"a": [{"x": 1}, {"y": 3}], "z": 1}, filter=0)
    assert "each holds, but not in one object of `a`" in str(explained)


def test_columns_with_lists_of_objects_and_with_every_string_are_read_as_rows(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "e0", "a": [{"x": 1, "y": "p"}, {"x": 2, "y": "q"}], "at": datetime(2026, 5, 1, tzinfo=UTC)},
        {"id": "e1", "a": [{"x": 1, "y": "q"}], "at": datetime(2025, 5, 1, tzinfo=UTC)},
        {"id": None, "a": None, "at": None},
        {"id": "e3", "a": [{"x": 2, "y": "q"}, {"x": 1, "y": "q"}], "at": datetime(2026, 5, 1, tzinfo=UTC)},
    ]
    wanted: list[dict[str, Any]] = [
        {"interface": "one", "constraints": [["a.x", "has", 1], ["a.y", "has", "q"]], "arrays": "consistent"},
        {"interface": "new", "constraints": [["a.x", "has", 1], ["at", "after", "2026-01-01"]]},
        {"interface": "text", "constraints": [["*", "= i", "P"]]},
    ]
    frame, path = pa.Table.from_pylist(rows), tmp_path / "e.parquet"
    pq.write_table(frame, path, row_group_size=3)
    for kept, expected in ((wanted[:2], [["new"], ["one"], [], ["new", "one"]]), (wanted, None)):
        expected = expected or [["new", "text"], ["one"], [], ["new", "one"]]
        table = api.make_table(kept)
        for events in (frame, frame.to_pandas(), path):
            assert open_engine("keyed", table).match(api.make_batch(table, events)).labels(table.labels) == expected
        with ColumnFiles.open([path], EventForm(id="id"), table.vocabulary) as files:
            filters = list(table.iter_filters())
            assert [sorted(match_naive(filters, files.event(i))) for i in range(4)] == expected
            offer = RowsOffer(files.index, files.form)
            batch, report = offer.scanner(table.vocabulary).scan(files.batch(1, 4))
        assert open_engine("keyed", table).match(batch).labels(table.labels) == expected[1:]
        assert report.identified
        assert not report.rejects
    bad: list[Any] = []
    api.make_batch(table, write(tmp_path / "bad.parquet", [{"a": [{"x": Decimal("1e60"), "y": "q"}]}]), rejects=bad)
    assert [(each.line, each.file) for each in bad] == [(1, str(tmp_path / "bad.parquet"))]
    maps = pa.table({"m": pa.array([[("k", "p")]], pa.map_(pa.string(), pa.string()))})
    pq.write_table(maps, path)
    with pytest.raises(ModelError, match=r"ask for '\*', all strings, and the column 'm' holds maps"):
        api.make_batch(table, path)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_events_without_known_objects_are_refused() -> None:
    table = Table.from_filters(
        subscription_filters(
            {"interface": "i", "constraints": [["a.x", "has", 1], ["a.y", "has", 2]], "arrays": "consistent"}
        )
    )
    assert len(Events.of([event_of_row({"a": {"x": 1, "y": 2}})]).encode(table.vocabulary)) == 1
    with pytest.raises(ModelError, match=r"one object of a list, and those of 'a.x' are not known; match the rows"):
        Events.of([event_of_row({"a": [{"x": 1, "y": 2}]})]).encode(table.vocabulary)
    with pytest.raises(ModelError, match="'arrays' may be 'consistent', found str 'one'"):
        subscription_filters({"interface": "i", "constraints": [], "arrays": "one"})


@pytest.mark.untraced
def test_too_many_choices_make_a_bad_row() -> None:
    lists = [f"l{i}" for i in range(6)]
    row = {name: [{"x": k, "y": k} for k in range(12)] for name in lists}
    alike: list[Any] = [{"or": [[f"{name}.x", "any =", k] for k in range(12)]} for name in lists]
    never = {"or": [{"and": [[f"{name}.x", "any =", 0], [f"{name}.y", "any =", 1]]} for name in lists]}
    wanted: dict[str, Any] = {"interface": "i", "arrays": "consistent", "where": {"and": [*alike, never]}}
    rejects: list[Any] = []
    batch = api.make_batch(api.make_table([wanted]), [row], rejects=rejects)
    assert batch.rejected is not None
    assert [each.reason for each in rejects] == ["more than 32,768 steps to choose objects in lists for a filter"]
    assert match_naive(subscription_filters(wanted), event_of_row(row)) == []
    wanted["where"]["and"][-1] = never["or"][0]
    assert match_naive(subscription_filters(wanted), event_of_row(row)) == []
