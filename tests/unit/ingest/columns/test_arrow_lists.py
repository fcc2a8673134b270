"""Lists in lists, and structs in lists, in columns of Arrow are what they are in rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mpi_match import LiveMatcher, api
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.rows.judge import PLAIN, event_of_row
from mpi_match.model import ModelError, make_filter, match_naive

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TEXT, NUMBER = pa.string(), pa.float64()
INNER = pa.struct([("arn", TEXT), ("tags", pa.list_(TEXT)), ("at", pa.struct([("n", NUMBER)]))])
SCHEMA = pa.schema(
    [
        ("r", pa.list_(INNER)),
        ("rr", pa.large_list(pa.list_(INNER))),
        ("s", pa.struct([("r", pa.list_(pa.struct([("b", pa.bool_())])))])),
        ("m", pa.list_(pa.list_(pa.list_(NUMBER)))),
        ("pair", pa.list_(pa.list_(NUMBER), 2)),
        ("words", pa.list_(pa.dictionary(pa.int32(), TEXT))),
        ("n", NUMBER),
    ]
)
PATHS = ["r", "rr", "s.r", "m", "pair", "words", "n"]
PATHS += [f"{name}.{inner}" for name in ("r", "rr") for inner in ("arn", "tags", "at.n", "at")] + ["s.r.b"]


def value_of(type_: Any, generator: random.Random) -> Any:
    """A random value of a type of Arrow; null every fourth time."""
    if generator.random() < 0.25:
        return None
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_fixed_size_list(type_):
        return [value_of(type_.value_type, generator) for _ in range(2)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [value_of(type_.value_type, generator) for _ in range(generator.randrange(4))]
    if pa.types.is_struct(type_):
        return {field.name: value_of(field.type, generator) for field in type_}
    return generator.choice(["a", "b", ""] if type_ == TEXT else [True, False] if type_ == pa.bool_() else [1.0, 2.5])


def rows_of(seed: int, n: int = 60) -> tuple[list[dict[str, Any]], Any]:
    generator = random.Random(seed)
    rows = [{field.name: value_of(field.type, generator) for field in SCHEMA} for _ in range(n)]
    return rows, pa.Table.from_pylist(rows, SCHEMA)


FILTERS = [
    make_filter(f"{name} {' '.join(map(str, rest))}", [[name, *rest]])
    for name in (*PATHS, "s")
    for rest in (
        *(["exists"], ["absent"], ["null"], ["has", "a"], ["any >", 1], ["any !=", "b"], ["has", True], ["=", 1]),
        *(["any <", "b"], ["any not in", ["b"]], ["any contains", "a"], ["any !=", 1]),
    )
]


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(8))
def test_columns_are_their_rows(seed: int, tmp_path: Path) -> None:
    rows, table = rows_of(seed)
    table = table.slice(seed, 50)
    rows = rows[seed : seed + 50]
    events = [event_of_row(row) for row in rows]
    expected = [match_naive(FILTERS, event) for event in events]
    assert sum(map(len, expected)) > 500
    live = LiveMatcher(FILTERS, engine="reference")
    assert live.match(table) == live.match(rows) == expected
    made = api.make_events(table)
    events = [event._replace(places=None) for event in events]  # columns do not know the objects of elements
    assert [made.event(i) for i in range(len(made))] == events
    assert made.left_out == {}
    if seed < 2:
        pq.write_table(table, tmp_path / "e.parquet", row_group_size=20)
        assert live.match(tmp_path / "e.parquet") == expected
        with ColumnFiles.open([tmp_path / "e.parquet"], PLAIN, api.make_table(FILTERS).vocabulary) as files:
            assert [files.event(i) for i in range(50)] == events


def test_what_lists_hold_is_refused_only_where_it_is_named() -> None:
    maps = pa.array([[{"m": [("a", 1)], "n": 1}]], pa.list_(pa.struct([("m", pa.map_(TEXT, NUMBER)), ("n", NUMBER)])))
    table = pa.table({"r": maps})
    assert LiveMatcher([make_filter("i", [["r.n", "has", 1]])]).match(table) == [["i"]]
    for name in ("r.m", "r.m.a"):
        with pytest.raises(ModelError, match=r"the column 'r\.m' is of type large_list<item: map<"):
            LiveMatcher([make_filter("i", [[name, "exists"]])]).match(table)
    with pytest.raises(ModelError, match="location"):
        api.make_batch(api.make_table([make_filter("i")]), table, location=("r.n", "r.n2"))


def test_variants_are_refused_where_they_are_named(tmp_path: Path) -> None:
    binary = pa.struct({"value": pa.binary(), "metadata": pa.binary()})
    value = {"value": b"\x0c\x05", "metadata": b"\x01\0\0"}
    for type_, held in ((binary, value), (pa.list_(binary), [value]), (pa.struct({"x": binary}), {"x": value})):
        table = pa.table({"v": pa.array([held], type_), "n": [1.0]})
        assert LiveMatcher([make_filter("i", [["n", "=", 1]])]).match(table) == [["i"]]
        assert [each.attributes["n"] for each in [api.make_events(table).event(0)] if each] == [1.0]
        pq.write_table(table, tmp_path / "e.parquet")
        for name, rest in (("v.x", ["=", 5]), ("v.x.y", ["absent"]), ("*", ["any =", "a"])):
            with pytest.raises(ModelError, match=r"(is of type|holds) variant"):
                LiveMatcher([make_filter("i", [[name, *rest]])]).match(tmp_path / "e.parquet" if name == "*" else table)
