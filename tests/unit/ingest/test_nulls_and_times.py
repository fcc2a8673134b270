"""Nulls, and native times of which operators ask the instant at most: the same rows through every door, and the naive
matcher."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_match import LiveMatcher, RowMatcher, make_batch, make_events, make_table, match_naive, open_engine
from mpi_match.events.event_table import EventTable, save_events
from mpi_match.ingest.rows.judge import event_of_row
from mpi_match.model import Filter, ModelError, make_event
from mpi_match.storage import StorageError
from mpi_match.table.table import Table

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
feather, pq = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")

ROWS: list[dict[str, Any]] = [
    {"interface": "null", "constraints": [["x", "null"]]},
    {"interface": "absent", "constraints": [["x", "absent"]]},
    {"interface": "exists", "constraints": [["x", "exists"]]},
    {"interface": "text", "constraints": [["x", "suffix", "b"], ["x", "contains", "a"]]},
    {"interface": "both", "predicate": "x null and y = 1 or y null"},
    {"interface": "object", "constraints": [["s", "null"]]},
    {"interface": "inside", "constraints": [["s.x", "null"]]},
    {"interface": "not inside", "constraints": [["s.x", "absent"]]},
    {"interface": "list", "constraints": [["l", "null"]]},
]
OF_ELEMENTS = {"interface": "element", "constraints": [["l", "has", 2], ["x", "null"]]}
"""With it, the attributes of events are looked up one by one."""
SCHEMA = pa.schema(
    [("x", pa.string()), ("y", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.int64()))]
)
EVENTS: list[dict[str, Any]] = [
    {"x": None, "y": 1, "s": {"x": 1}, "l": []},
    {"x": "ab", "y": None, "s": None, "l": None},
    {"x": None, "y": 2, "s": {"x": None}, "l": [None]},
    {"x": "b", "y": 1, "s": {"x": 3}, "l": [1, 2]},
    {"x": None, "y": None, "s": {"x": 1}, "l": [2]},
]
SPARSE: list[dict[str, Any]] = [{}, {"x": None}, {"y": 1}, {"s": {}}, {"l": [{"x": None}], "y": None}]
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


def naive(rows: list[dict[str, Any]], table: Table) -> list[list[str]]:
    filters = list(table.iter_filters())
    return [match_naive(filters, event_of_row(row)) for row in rows]


def answers(table: Table, batch: Any) -> list[list[str]]:
    return [*open_engine("counting", table).match(batch).labels(table.labels)]


def arrow() -> Any:
    return pa.Table.from_pylist(EVENTS, schema=SCHEMA)


def flat(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {"s": [row["s"] for row in EVENTS], "l": [row["l"] for row in EVENTS]}


FORMS: dict[str, Callable[[], Any]] = {
    "rows": lambda: EVENTS,
    "many rows": lambda: EVENTS * 30,
    "lines": lambda: "".join(json.dumps(row) + "\n" for row in EVENTS).encode(),
    "arrow": arrow,
    "polars": lambda: pl.from_arrow(arrow()),
    "pandas": lambda: arrow().to_pandas(types_mapper={pa.string(): pd.StringDtype(), pa.int64(): pd.Int64Dtype()}.get),
    "lists": lambda: flat({"x": [row["x"] for row in EVENTS], "y": [row["y"] for row in EVENTS]}),
    "masked": lambda: flat(
        {
            "x": np.array([row["x"] for row in EVENTS], object),
            "y": np.ma.masked_array([row["y"] or 0 for row in EVENTS], [row["y"] is None for row in EVENTS]),
        }
    ),
}


@pytest.mark.untraced
@pytest.mark.parametrize("rows", [ROWS, [*ROWS, OF_ELEMENTS]], ids=["by columns", "by events"])
@pytest.mark.parametrize("form", FORMS)
def test_nulls_are_nulls_through_every_door(form: str, rows: list[dict[str, Any]]) -> None:
    table, times = make_table(rows), 30 if form == "many rows" else 1
    expected = naive(EVENTS, table) * times
    assert {"null", "both", "object", "inside", "list"} <= set().union(*expected)
    assert answers(table, make_batch(table, FORMS[form]())) == expected
    assert answers(table, make_events(FORMS[form]()).encode(table.vocabulary)) == expected


def test_arrays_of_numbers_have_nulls_where_they_are_masked() -> None:
    table = make_table(
        [{"interface": "n", "constraints": [["y", "null"]]}, {"interface": "a", "constraints": [["z", "null"]]}]
    )
    columns = {"y": np.ma.masked_array([1, 2, 3], [True, False, True]), "z": np.array([0.0, np.nan, 1.0])}
    assert answers(table, make_batch(table, columns)) == [["n"], [], ["n"]]
    assert answers(table, make_events(columns).encode(table.vocabulary)) == [["n"], [], ["n"]]


@pytest.mark.parametrize("name", ["events.jsonl", "events.parquet", "events.arrow"])
def test_files_have_nulls_and_event_tables_keep_them(name: str, tmp_path: Path) -> None:
    table, path = make_table(ROWS), tmp_path / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in EVENTS + SPARSE))
    elif name.endswith(".parquet"):
        pq.write_table(arrow(), path)
    else:
        feather.write_feather(arrow(), path)
    expected = naive(EVENTS + SPARSE if name.endswith(".jsonl") else EVENTS, table)
    assert answers(table, make_batch(table, path)) == expected
    events = make_events(path)
    save_events(events, tmp_path / "events.h5", table.vocabulary)
    for rows in (ROWS, ROWS[:1], [{"interface": "y", "constraints": [["y", "null"]]}]):  # as encoded, and encoded again
        other = make_table(rows)
        with EventTable(tmp_path / "events.h5", other.vocabulary) as found:
            assert found.encoded_for_vocabulary == (rows is ROWS)
            assert answers(other, found.batch(0, len(found))) == naive(
                EVENTS + SPARSE if name.endswith(".jsonl") else EVENTS, other
            )
            assert [found.event(i) for i in range(len(found))] == [events.event(i) for i in range(len(events))]


def test_an_empty_cell_of_csv_is_no_null(tmp_path: Path) -> None:
    path, table = tmp_path / "events.csv", make_table(ROWS[:3])
    path.write_text('x,y\n,1\n"",2\nnull,3\n')
    assert answers(table, make_batch(table, path)) == [["absent"], ["exists"], ["exists"]]


def test_one_row_at_a_time_and_changes() -> None:
    table = make_table(ROWS)
    matcher = RowMatcher(table, open_engine("counting", table))
    rows = EVENTS + SPARSE
    assert [matcher.match(row) for row in rows] == naive(rows, table)
    assert [matcher.match(json.dumps(row).encode()) for row in rows] == naive(rows, table)
    for expected_rows in (ROWS, ()):  # the operator is in the vocabulary from the beginning, or comes with a change
        live = LiveMatcher(ROWS[1:3], engine="keyed", expected=expected_rows)
        live.update([{"add": row} for row in (ROWS[0], *ROWS[3:])])
        assert live.match(rows) == naive(rows, table)
        live.update([{"remove_interface": "null"}, {"remove_interface": "object"}])
        left = make_table([row for row in ROWS if row["interface"] not in ("null", "object")])
        assert live.match(rows) == naive(rows, left)


def test_null_takes_no_operand_and_is_of_no_element() -> None:
    for wrong, said in (
        (["x", "null", 1], "'null' on 'x' takes no operand"),
        (["x", "any null"], "unknown operator 'any null'"),
        (["x", "any null", None], "unknown operator 'any null'"),
        (["x", "=", None], "a value must be a number, a string or a boolean, found null"),
    ):
        with pytest.raises(ModelError, match=said):
            make_table([{"interface": "i", "constraints": [wrong]}])


def test_a_table_with_a_text_for_null_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match.arrays.strings import Strings

    table = make_table(ROWS[:1])
    object.__setattr__(table.vocabulary, "atoms", Strings.of([b"text"]))
    table.save(tmp_path / "table.h5")
    with pytest.raises(StorageError, match="hold a string for an atom that nulls satisfy"):
        Table.load(tmp_path / "table.h5")


TIMES = {
    "timestamp": pa.array([NOW, None], pa.timestamp("us")),
    "zoned": pa.array([NOW, None], pa.timestamp("ns", "Europe/Rome")),
    "day": pa.array([NOW.date(), None], pa.date32()),
    "day64": pa.array([NOW.date(), None], pa.date64()),
    "clock": pa.array([NOW.time(), None], pa.time64("ns")),
    "clock32": pa.array([NOW.time(), None], pa.time32("s")),
    "dictionary": pa.array([NOW, None], pa.timestamp("us")).dictionary_encode(),
}
PRESENCE: list[dict[str, Any]] = [
    {"interface": "there", "constraints": [["t", "exists"]]},
    {"interface": "not there", "constraints": [["t", "absent"]]},
    {"interface": "null", "constraints": [["t", "null"]]},
    {"interface": "boolean", "constraints": [["t", "!=", True]]},
]
VALUES: list[list[Any]] = [
    ["t", ">", 1],
    ["t", "=", "2026-01-02"],
    ["t", "prefix", "2026"],
    ["t", "suffix", "5"],
    ["t", "any =", 1],
]


@pytest.mark.untraced
@pytest.mark.parametrize("kind", TIMES)
def test_columns_of_times_satisfy_exists(kind: str, tmp_path: Path) -> None:
    table, columns = make_table(PRESENCE), pa.table({"t": TIMES[kind], "y": [1, 2]})
    expected = [["there"], ["not there", "null"]]
    frames = [columns, pl.from_arrow(columns)]
    if kind not in ("day64", "dictionary"):
        frames.append(columns.to_pandas(types_mapper=pd.ArrowDtype))
    pq.write_table(columns, tmp_path / "events.parquet")
    for form in (*frames, tmp_path / "events.parquet", {"t": TIMES[kind], "y": [1, 2]}):
        assert answers(table, make_batch(table, form)) == expected
    unnamed = make_table([{"interface": "y", "constraints": [["y", "=", 2]]}])
    for form in (*frames, tmp_path / "events.parquet"):
        assert answers(unnamed, make_batch(unnamed, form)) == [[], ["y"]]
        events = make_events(form)
        assert (dict(events.left_out), answers(unnamed, events.encode(unnamed.vocabulary))) == ({"t": 1}, [[], ["y"]])
        with pytest.raises(ModelError, match="the attribute 't', which filters name, cannot be read in 1 event"):
            events.encode(table.vocabulary)


@pytest.mark.parametrize("wanted", VALUES, ids=[each[1] for each in VALUES])
def test_a_time_whose_value_is_asked_is_an_error(wanted: list[Any], tmp_path: Path) -> None:
    table = make_table([{"interface": "i", "constraints": [wanted]}])
    columns = pa.table({"t": TIMES["timestamp"]})
    pq.write_table(columns, tmp_path / "events.parquet")
    for form in (columns, columns.to_pandas(), tmp_path / "events.parquet"):
        with pytest.raises(ModelError, match="the column 't' is of type timestamp"):
            make_batch(table, form)
    for rows in ([{"t": NOW}], [{"t": NOW}] * 100):
        with pytest.raises(
            ModelError, match="event 0: attribute 't': a native time satisfies only 'exists', found datetime"
        ):
            make_batch(table, rows)


@pytest.mark.parametrize(
    "value", [NOW, NOW.date(), NOW.time(), pd.Timestamp(NOW), np.datetime64(NOW), np.datetime64("30000", "Y")]
)
def test_times_in_rows_satisfy_exists(value: Any) -> None:
    table = make_table(PRESENCE)
    for times in (1, 100):
        rows = [{"t": value, "y": 1}, {"t": None}, {"t": np.datetime64("NaT")}, {"y": value}] * times
        expected = [["there"], ["not there", "null"], ["not there", "null"], ["not there"]] * times
        assert answers(table, make_batch(table, rows)) == expected
    filters: list[Filter] = list(table.iter_filters())
    assert match_naive(filters, make_event({"t": value})) == ["there"]
    greater = make_table([{"interface": "i", "constraints": [["t", ">", 1]]}, {"interface": "e", "constraints": []}])
    assert match_naive(greater.iter_filters(), make_event({"t": value})) == []
    assert make_events([{"t": value}, {"y": 1}]).left_out == {"t": 1}
    assert make_events([{"t": value}, {"y": 1}] * 100).left_out == {"t": 100}


INSTANTS: list[dict[str, Any]] = [
    {"interface": "before", "constraints": [["t", "before", "2026-01-02T03:04:05Z"]]},
    {"interface": "after", "constraints": [["t", "after", "2026-01-02T01:00:00+01:00"]]},
    {"interface": "at", "constraints": [["t", "at", "2026-01-02T00:00:00Z"]]},
    {"interface": "between", "constraints": [["t", "between", ["2026-01-02", "2026-01-03"]], ["t", "exists"]]},
    {"interface": "not", "where": {"not": ["t", "before", "2026-06-01"]}},
    {"interface": "null", "constraints": [["t", "null"]]},
]
NIGHT = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "day", "day64", "clock"])
def test_columns_of_times_have_instants(unit: str, tmp_path: Path) -> None:
    """Every door gives what the naive matcher gives for the values as a program has them."""
    table = make_table(INSTANTS)
    if unit in TIMES:
        columns = [TIMES[unit]]
    else:
        times = [NOW.replace(microsecond=0), None, NIGHT.replace(tzinfo=None), datetime.datetime(1969, 12, 31, 23)]
        columns = [pa.array(times, pa.timestamp(unit)), pa.array([NIGHT, None, NOW], pa.timestamp(unit, "Europe/Rome"))]
        columns.append(columns[0].dictionary_encode())
    for column in columns:
        filters: list[Filter] = list(table.iter_filters())
        expected = [sorted(match_naive(filters, make_event({"t": value}))) for value in column.to_pylist()]
        assert unit == "clock" or len({*map(str, expected)}) > 1
        frame = pa.table({"t": column})
        pq.write_table(frame, tmp_path / "events.parquet")
        others = [] if pa.types.is_date64(column.type) or pa.types.is_dictionary(column.type) else [pl.from_arrow(frame)]
        for form in (frame, frame.to_pandas(), tmp_path / "events.parquet", *others):
            assert [sorted(each) for each in answers(table, make_batch(table, form))] == expected


def test_a_time_whose_instant_and_text_are_asked_is_an_error() -> None:
    table = make_table([*INSTANTS, {"interface": "text", "constraints": [["t", "prefix", "2026"]]}])
    with pytest.raises(ModelError, match="the column 't' is of type timestamp"):
        make_batch(table, pa.table({"t": TIMES["zoned"]}))
