"""Columns of Arrow, pandas, polars and NumPy, encoded as they are: the same codes, and the same bad events, as rows."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterator
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpi_match
from mpi_match import api
from mpi_match.arrays.exact import values_of
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.columns import frames, to_codes
from mpi_match.ingest.columns.typed import ColumnChunk, TypedColumn
from mpi_match.ingest.rows.judge import EventForm, Reject
from mpi_match.model import Type, number_of_digits, value_of
from mpi_match.table.table import Table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def table_of_all_kinds() -> Table:
    on_text = [["=", "Rome"], ["prefix", "Ro"], [">", "b"], ["contains", "o"], ["suffix", "me"], ["=", "é"]]
    on_numbers: list[list[Any]] = [
        ["=", 0],
        ["<", 3.5],
        [">=", 2**53],
        ["<", 2**53 + 1],
        ["=", 2**63 - 1],
        ["!=", 7],
        ["=", math.inf],
        ["in", [1, 2, 30]],
    ]
    constraints: list[list[Any]] = [*on_text, *on_numbers, ["=", True], ["absent"]]
    return api.make_table(
        {"interface": i, "constraints": [[name, *constraint]]}
        for name in ("a", "b", "s", "p.x", "p.q.s", "flag")
        for i, constraint in enumerate(constraints)
    )


TABLE = table_of_all_kinds()
NUMBERS = st.none() | st.sampled_from([0.0, -0.0, 3.5, 7.0, math.inf, -math.inf, math.nan, 1e300]) | st.floats()
INTEGERS = st.none() | st.integers(-8, 32) | st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1])
TEXTS = st.none() | st.sampled_from(["Rome", "Ro", "b", "me", "", "é", "home", "of"]) | st.text(max_size=4)
TYPES: dict[Any, st.SearchStrategy[Any]] = {
    pa.float64(): NUMBERS,
    pa.float32(): st.none() | st.floats(width=32),
    pa.float16(): st.none() | st.sampled_from([0.5, 3.5, 7.0]).map(np.float16),
    pa.int64(): INTEGERS,
    pa.uint64(): st.none() | st.sampled_from([0, 7, 2**53, 2**64 - 1]),
    pa.int8(): st.none() | st.integers(-128, 127),
    pa.bool_(): st.none() | st.booleans(),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.null(): st.none(),
}


@st.composite
def arrays(draw: st.DrawFn, n: int) -> Any:
    """An Arrow array of any type, perhaps with a dictionary, perhaps a slice of a larger one."""
    type_ = draw(st.sampled_from(list(TYPES)))
    before = draw(st.integers(0, 9))
    found = pa.array(draw(st.lists(TYPES[type_], min_size=before + n, max_size=before + n)), type_)
    if not pa.types.is_null(type_) and type_ not in (pa.string_view(), pa.float16()) and draw(st.booleans()):
        found = found.dictionary_encode(null_encoding=draw(st.sampled_from(["mask", "encode"])))
    return found[before:]


@st.composite
def tables(draw: st.DrawFn) -> Any:
    n = draw(st.integers(0, 12))
    made = {name: draw(arrays(n)) for name in draw(st.sets(st.sampled_from(["a", "b", "s", "flag"])))}
    gaps = pa.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), pa.bool_())
    inner = pa.StructArray.from_arrays([draw(arrays(n)), draw(arrays(n))], ["s", "other"], mask=gaps)
    made["p"] = pa.StructArray.from_arrays([draw(arrays(n)), inner], ["x", "q"])
    made["when"] = pa.array([datetime.date(2026, 1, 1)] * n, pa.date32())
    return pa.table(made)


def as_events(table: Any) -> list[dict[str, Any]]:
    """Its rows as JSON has them, without what no filter names."""
    rows: list[dict[str, Any]] = table.drop_columns("when").to_pylist()
    for row in rows:
        if row["p"]["q"] is not None:
            row["p"]["q"].pop("other")
    return rows


def are_same(found: EventBatch, expected: EventBatch) -> bool:
    same = all(map(np.array_equal, found.columns, expected.columns))
    marks = [[] if batch.rejected is None else batch.rejected.tolist() for batch in (found, expected)]
    return same and len(found.columns) == len(expected.columns) and marks[0] == marks[1]


@given(tables())
def test_columns_of_arrow_are_the_events_of_their_rows(table: Any) -> None:
    by_row: list[Reject] = []
    by_column: list[Reject] = []
    expected = api.make_batch(TABLE, as_events(table), rejects=by_row)
    found = api.make_batch(TABLE, table, rejects=by_column)
    assert are_same(found, expected)
    assert [(each.line, each.reason) for each in by_column] == [(each.line, each.reason) for each in by_row]


@given(st.data(), st.integers(0, 12))
def test_locations_are_checked_as_in_rows(data: st.DataObject, n: int) -> None:
    table = pa.table({"p": pa.StructArray.from_arrays([data.draw(arrays(n))], ["x"]), "a": data.draw(arrays(n))})
    rejects: list[list[Reject]] = [[], []]
    located = api.make_table([{"interface": "i", "constraints": [["p.x", ">", 1]], "area": [0, 0, 5]}])
    batches = [
        api.make_batch(located, events, location=("p.x", "a"), rejects=bad)
        for events, bad in zip((table, table.to_pylist()), rejects, strict=True)
    ]
    first, second = batches
    assert np.array_equal(first.attributes, second.attributes)
    assert np.array_equal(first.offsets, second.offsets)
    places = [np.full((n, 2), np.nan) if batch.location is None else batch.location for batch in batches]
    assert np.array_equal(places[0], places[1], equal_nan=True)
    assert [(each.line, each.reason) for each in rejects[0]] == [(each.line, each.reason) for each in rejects[1]]


@given(st.data(), st.integers(0, 12))
def test_ids_that_are_not_wanted_are_only_looked_for(data: st.DataObject, n: int) -> None:
    from mpi_match.ingest.columns.arrow import NeededColumns, read_columns

    batch = pa.record_batch({"a": data.draw(arrays(n)), "i": data.draw(arrays(n))})
    form = EventForm(None, "i")
    needed = NeededColumns.of(batch.schema, frozenset({"a", "i"}), form)
    expected, found = (read_columns(batch, needed, form, with_ids=with_ids) for with_ids in (True, False))
    assert found.ids is None
    assert (found.identified, found.bad) == (expected.identified, expected.bad)
    assert (found.chunk.doubted is None) == (expected.chunk.doubted is None)


def frames_of_all_libraries() -> Iterator[tuple[str, Any]]:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    values: dict[str, Any] = {"a": [1.5, math.nan, 3.0], "s": ["Rome", "home", "é"], "flag": [True, False, True]}
    table = pa.table(values)
    yield "a table", table
    yield "a record batch", table.to_batches()[0]
    yield "a reader", table.to_reader(max_chunksize=2)
    yield "polars", polars.DataFrame(values)
    yield "polars with categories", polars.DataFrame(values).with_columns(polars.col("s").cast(polars.Categorical))
    yield "pandas", pandas.DataFrame(values)
    yield "pandas with categories", pandas.DataFrame(values).astype({"s": "category"})
    yield "pandas of Arrow", table.to_pandas(types_mapper=pandas.ArrowDtype)
    yield "arrays", {name: np.array(each) for name, each in values.items()}


def test_frames_of_every_library_take_the_compiled_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "rows_of", None)
    values = ((1.5, "Rome", True), (math.nan, "home", False), (3, "é", True))
    rows = [dict(zip(("a", "s", "flag"), each, strict=True)) for each in values]
    expected = api.make_batch(TABLE, rows)
    for name, frame in frames_of_all_libraries():
        assert are_same(api.make_batch(TABLE, frame), expected), name


def table_of_steps(*, is_wide: bool) -> Table:
    """Operands that are integers, close together, on two names; and, if it is wide, too many on a third for 16 bits."""
    constraints: list[list[Any]] = [["=", -2], ["<", 3], [">=", 5], ["in", [6, 9]], ["!=", 0]]
    rows = [{"interface": i, "constraints": [[name, *each]]} for name in "mn" for i, each in enumerate(constraints)]
    many = {"interface": 0, "constraints": [["w", "in", list(range(0, 80_000, 2))]]}
    return api.make_table([*rows, many] if is_wide else rows)


STEPS = {is_wide: table_of_steps(is_wide=is_wide) for is_wide in (False, True)}
BETWEEN = st.integers(-4, 11).flatmap(
    lambda i: st.sampled_from([i, i + 0.5, math.nextafter(i, -99.0), math.nextafter(i, 99.0)])
)
FAR = st.sampled_from([-0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, -(2.0**53), 2.0**31])
WHOLE = st.integers(-4, 11) | st.sampled_from([2**53, -(2**53), 2**31, -(2**31) - 1])


@pytest.mark.parametrize("is_wide", STEPS)
@pytest.mark.parametrize("gaps", [st.nothing(), st.none()])
@given(data=st.data())
def test_numbers_among_integers_have_their_codes_from_a_table(
    gaps: st.SearchStrategy[None], is_wide: bool, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, 12))
    types: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
        "m": (pa.float64(), BETWEEN | FAR),
        "n": (pa.int64(), WHOLE),
        "w": (pa.int64(), WHOLE),
    }
    lists = {name: data.draw(st.lists(gaps | each, min_size=n, max_size=n)) for name, (_, each) in types.items()}
    table = pa.table({name: pa.array(lists[name], type_) for name, (type_, _) in types.items()})
    expected = api.make_batch(STEPS[is_wide], table.to_pylist())
    with patch.object(to_codes, "_LEAST_EVENTS", 0):
        found = api.make_batch(STEPS[is_wide], table)
    assert found.attributes.itemsize == (8 if is_wide else 4)
    assert are_same(found, expected)


def test_only_operands_that_are_integers_and_close_together_have_a_table() -> None:
    operands: dict[str, list[float]] = {
        "a": [0, 4094],
        "b": [0, 4096],
        "c": [1, 2.5],
        "d": [2**31 + 1],
        "e": [-(2**31)],
        "f": [math.inf],
        "g": [],
    }
    rows = [{"interface": 0, "constraints": [[name, "=", each]]} for name in operands for each in operands[name]]
    vocabulary = api.make_table([*rows, {"interface": 0, "constraints": [["g", "exists"]]}]).vocabulary
    found = {name: to_codes._steps_of(vocabulary, vocabulary.name_id(name.encode())).codes for name in operands}
    assert [name for name in operands if found[name] is not None] == ["a", "e"]


@pytest.mark.parametrize("mask", [[False, True], [True, True]])
def test_masked_arrays_are_encoded_with_their_gaps(mask: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "rows_of", None)
    rows = [{} if hidden else {"a": 3, "flag": True} for hidden in mask]
    found = api.make_batch(TABLE, {"a": np.ma.array([3, 3], mask=mask), "flag": np.ma.array([True, True], mask=mask)})
    assert are_same(found, api.make_batch(TABLE, rows))


def test_columns_are_encoded_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 20_000
    values = np.arange(n) % 37 - 3.0
    gaps = np.arange(n) % 5 == 0
    table = pa.table({"a": pa.array(values, mask=gaps), "s": pa.array([f"{'o' * (i % 3)}me" for i in range(n)])})
    rows = pa.table(table).slice(0, n).to_pylist()
    expected = api.make_batch(TABLE, rows)
    assert are_same(api.make_batch(TABLE, table), expected)
    monkeypatch.setattr(frames, "find_spec", lambda _: None)
    assert are_same(api.make_batch(TABLE, {"a": np.ma.array(values, mask=gaps), "s": [r["s"] for r in rows]}), expected)


def test_both_ways_to_encode_are_compiled_when_an_encoder_is_made() -> None:
    """Compiling is no part of a rate."""
    encoder = to_codes.ColumnEncoder(TABLE.vocabulary)
    ways = [getattr(to_codes, name) for name in ("_count", "_encode_events", "_encode_whole")]
    compiled = [len(way.signatures) for way in ways]
    assert all(compiled)
    for doubted in (None, np.zeros(3, bool)):
        encoder.encode(ColumnChunk(3, {"a": TypedColumn(Type.NUMBER, np.arange(3))}, doubted))
    assert [len(way.signatures) for way in ways] == compiled


def test_columns_that_no_filter_names_are_not_looked_at() -> None:
    assert len(api.make_batch(TABLE, {"when": np.array(["1970-01-02"], "M8[s]"), "x": [b"no value"]})) == 1
    assert len(api.make_batch(TABLE, pa.table({"when": [datetime.date(2026, 1, 1)] * 3}))) == 3


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([datetime.date(2026, 1, 1)]), "the column 'a' is of type date32.*give texts of RFC 3339"),
        (pa.array([[[b"x"]]]), "the column 'a' is of type large_list<"),
        (pa.array([b"x"]), "the column 'a' is of type binary"),
        (pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64())), "the column 'a' is of type map<"),
        (pa.array([Decimal(2**64)]), r"event 0: attribute 'a': the integer 18446744073709551616 is not between -2\^63 and"),
        (
            pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]),
            "UTF8",
        ),
    ],
)
def test_what_no_attribute_has_is_refused(column: Any, said: str) -> None:
    with pytest.raises(mpi_match.ModelError, match=said):
        api.make_batch(TABLE, pa.table({"a": column}))


def test_decimals_are_the_numbers_that_their_digits_are() -> None:
    """Without a decimal point they are integers, which are not rounded; with one they are rounded, as in JSON."""
    texts = ["0.10", "7.00", "-2.50", None, "9007199254740993.00"]
    column = pa.array(texts).cast(pa.decimal128(30, 2))
    expected = api.make_batch(TABLE, [{"a": 0.1}, {"a": 7}, {"a": -2.5}, {}, {"a": 9007199254740993.0}])
    assert are_same(api.make_batch(TABLE, pa.table({"a": column})), expected)
    rejects: list[Reject] = []
    whole = pa.array(["7", "9007199254740993", str(2**64)]).cast(pa.decimal128(30, 0))
    found = api.make_batch(TABLE, pa.table({"a": whole}), rejects=rejects)
    assert are_same(found, api.make_batch(TABLE, [{"a": 7}, {"a": 2**53 + 1}, {"a": 2**64}], rejects=[]))
    assert [(each.line, "2^64 - 1" in each.reason) for each in rejects] == [(2, True)]


@pytest.mark.parametrize("seed", range(60))
def test_short_decimals_are_the_doubles_of_their_digits(seed: int) -> None:
    generator = random.Random(seed)
    digits, scale = generator.choice([(12, 2), (16, 16), (22, 22), (38, 22), (38, 23), (17, 0), (19, 5)])
    most = min(10**digits - 1, generator.choice([100, 10**15, 2**53, 2**53 + 2]))
    whole = [generator.choice([None, 0, generator.randint(-most, most), most, -most]) for _ in range(30)]
    texts = [None if each is None else f"{Decimal(each).scaleb(-scale, Context(prec=60)):f}" for each in whole]
    column = pa.array(texts).cast(pa.decimal128(digits, scale))[seed % 3 :]
    from mpi_match.ingest.columns.arrow import typed_column  # imports pyarrow

    found, wrong = typed_column(column)
    assert isinstance(found.values, np.ndarray)
    assert wrong is None or not wrong.any()
    there = [(i, text) for i, text in enumerate(texts[seed % 3 :]) if text is not None]
    assert [values_of(found.values)[i] for i, _ in there] == [
        value_of(number_of_digits(Decimal(text)))[1] for _, text in there
    ]


def test_lists_in_columns_are_those_of_rows() -> None:
    asked = [["tags", "has", "a"], ["tags", "any !=", 1], ["n", "any <", 3], ["n", ">", 1], ["tags", "exists"]]
    table = api.make_table({"interface": i, "constraints": [constraint]} for i, constraint in enumerate(asked))
    rows: list[dict[str, Any]] = [
        {"tags": ["a", "b"], "n": 2},
        {"tags": [], "n": 7},
        {"tags": None, "n": 1},
        {"tags": ["b"]},
    ]
    expected = api.make_batch(table, rows)
    assert are_same(api.make_batch(table, pa.Table.from_pylist(rows)), expected)
    assert are_same(api.make_batch(table, {name: [row.get(name) for row in rows] for name in ("tags", "n")}), expected)
    assert are_same(
        api.make_batch(table, {"tags": pa.array([row["tags"] for row in rows])}),
        api.make_batch(table, [{"tags": row["tags"]} for row in rows]),
    )
    nulls = [["a", None, "b"], [None], None, [], ["a"]]
    found = api.make_batch(table, pa.table({"tags": pa.array(nulls)}))
    assert are_same(found, api.make_batch(table, [{"tags": each} for each in nulls]))


def test_views_of_columns_are_those_of_rows() -> None:
    of_a = [["a", "contains i", "ME"], ["a", "any = i", "rome"], ["a", "in net", "10.0.0.0/8"]]
    wanted = [*of_a, ["t", "any before", "2020-01-01"]]
    table = api.make_table({"interface": i, "constraints": [each]} for i, each in enumerate(wanted))
    rows = [{"a": "Rome", "t": "2019-12-31"}, {"a": "10.2.3.4", "t": "soon"}, {"a": "home"}, {"t": "2020-01-01"}, {}]
    columns = pa.Table.from_pylist(rows, pa.schema({"a": pa.string(), "t": pa.string()}))
    found = api.match(table, columns)
    assert found == api.match(table, rows)
    assert [found[i].tolist() for i in range(len(rows))] == [[0, 1, 3], [2], [0], [], []]


def test_frames_and_files_of_columns_have_all_strings_of_an_event(tmp_path: Path) -> None:
    table = api.make_table([{"interface": 0, "constraints": [["*", "contains i", "me"]]}])
    columns = pa.table({"a": ["Rome", "Paris", None], "b": ["x", "some", "y"], "n": [1, 2, 3]})
    pq.write_table(columns, tmp_path / "events.parquet")
    for events in (columns, tmp_path / "events.parquet"):
        found = api.match(table, events)
        assert [found[i].tolist() for i in range(3)] == [[0], [0], []]
