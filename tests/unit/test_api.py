"""The Python interface of notebooks: its examples, its conventions, and that columns mean what rows mean."""

import ast
import doctest
import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpi_match
from mpi_match import api
from mpi_match.commands.compile_locally import compile_locally
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import EventForm, Reject, event_of_row
from mpi_match.model import Type, make_event, make_filter, match_naive
from mpi_match.table.table import Table

Column = tuple[str, Any, Any]
"""A column of three entries, the second null, by name; and the value of the other two."""

ROWS: list[dict[str, Any]] = [
    {"interface": "hot", "constraints": [["temp", ">", 30]]},
    {"interface": "near", "constraints": [], "area": [0, 0, 5]},
    {"interface": "milan", "filters": [{"constraints": [["city", "=", "Milan"]]}, {"constraints": [["city", "absent"]]}]},
]


def attributes_of(events: Events, i: int) -> dict[str, Any]:
    event = events.event(i)
    assert event is not None
    return dict(event.attributes)


@pytest.fixture(scope="module")
def table() -> Table:
    return api.make_table(ROWS)


def test_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(api)
    assert result.attempted >= 12
    assert result.failed == 0


def test_every_public_name_is_there_and_described() -> None:
    for name in mpi_match.__all__:
        assert getattr(mpi_match, name).__doc__, name
    assert set(api.__all__) <= set(mpi_match.__all__)
    assert set(mpi_match.__all__) <= set(dir(mpi_match))
    with pytest.raises(AttributeError, match="nonsense"):
        mpi_match.nonsense  # type: ignore[attr-defined]  # noqa: B018 - looking the name up is the test


def test_the_stub_has_every_public_name() -> None:
    stub = ast.parse(Path(mpi_match.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    found = {alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert found == {name: f"mpi_match.{module}" for name, module in vars(mpi_match)["_MODULE_OF"].items()}


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, mpi_match; print(sorted({'numpy', 'numba', 'h5py', 'mpi4py', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rows_filters_and_a_file_give_the_same_table(tmp_path: Path, table: Table) -> None:
    filters = [make_filter("hot", [["temp", ">", 30]]), make_filter("near", [], [0, 0, 5])]
    assert api.make_table([ROWS[2], *filters]) == table
    plain, packed = tmp_path / "rows.jsonl", tmp_path / "rows.jsonl.gz"
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    plain.write_text(lines)
    packed.write_bytes(gzip.compress(lines.encode()))
    assert api.make_table(plain) == table
    assert api.make_table(str(packed)) == table
    packed.unlink()
    assert api.make_table(tmp_path) == table


def test_files_of_other_kinds_are_no_subscriptions(tmp_path: Path, table: Table) -> None:
    table.save(tmp_path / "t.h5")
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    for name, said in (
        ("t.h5", "is an HDF5 file, not JSON lines"),
        ("a.json", "`jq -c '.\\[\\]'` makes such lines of an array"),
    ):
        with pytest.raises(mpi_match.ModelError, match=said):
            api.make_table(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        api.make_table(tmp_path / "none.jsonl")


def test_a_table_survives_its_file(tmp_path: Path, table: Table) -> None:
    table.save(tmp_path / "table.h5")
    assert api.load_table(tmp_path / "table.h5") == table


def test_match_answers_like_the_naive_matcher(table: Table) -> None:
    events: list[dict[str, Any]] = [
        {"temp": 31, "city": "Milan"},
        {"temp": 30, "x": 3, "y": 4},
        {"city": "Rome", "x": 3, "y": 4.1},
    ]
    answers = api.match(table, events, engine="counting", location="x,y")
    naive = [match_naive(table.iter_filters(), event_of_row(row, EventForm(("x", "y")))) for row in events]
    assert answers.labels(table.labels) == naive == [["hot", "milan"], ["milan", "near"], []]
    assert api.match(table, api.make_batch(table, events, location="x,y"), engine="counting") == answers
    filters = api.match(table, events, engine="counting", location=("x", "y"), filters=True)
    assert [str(table.filter(int(i))) for i in filters[0]] == ["hot: temp > 30.0", "milan: city = 'Milan'"]


def test_bad_rows_are_named_or_collected(tmp_path: Path) -> None:
    bad = {"interface": "a", "constraints": [["x", "~", 1]]}
    with pytest.raises(mpi_match.ModelError, match=r"^subscription 1: unknown operator '~'"):
        api.make_table([ROWS[0], bad])
    with pytest.raises(mpi_match.ModelError, match=r"^event 1: an event must be an object"):
        api.make_events([{"x": 1}, b"7"])
    rejects: list[Reject] = []
    assert api.make_table([bad, ROWS[0]], rejects=rejects).n_filters == 1
    assert [(r.line, r.file) for r in rejects] == [(0, "")]
    assert "'~'" in rejects[0].reason

    file = tmp_path / "rows.jsonl"
    for lines in ([ROWS[0], bad], [bad, ROWS[0]]):  # the bad one last, and followed by a good one
        file.write_text("".join(json.dumps(row) + "\n" for row in lines))
        with pytest.raises(mpi_match.ModelError, match=rf"rows\.jsonl, line {1 + lines.index(bad)}: unknown operator"):
            api.make_table(file)
    rejects = []
    assert api.make_table(file, rejects=rejects).n_filters == 1
    assert [r.line for r in rejects] == [1]


def test_events_come_as_rows_objects_columns_or_a_file(tmp_path: Path) -> None:
    rows = [{"temp": 31, "place": {"city": "Milan"}, "n": "e1"}, {"temp": 2, "place": {"city": None}, "n": 7}]
    expected = [
        make_event({"temp": 31, "place.city": "Milan"}, None, "e1"),
        make_event({"temp": 2, "place.city": None}, None, 7),
    ]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    by_column = {"temp": [31, 2], "place.city": ["Milan", None], "n": ["e1", 7]}
    for source in (rows, expected, file, by_column):
        events = api.make_events(source, id="n")
        assert [events.event(i) for i in range(len(events))] == expected


def test_columns_keep_types_apart_and_nan_is_a_number() -> None:
    events = api.make_events(
        {
            "float": np.array([1.5, math.nan]),
            "integer": np.array([1, 2], np.int8),
            "boolean": np.array([True, False]),
            "text": np.array(["a", ""]),
            "masked": np.ma.array([7, 8], mask=[False, True]),
            "mixed": [True, "x"],
            "absent": [None, None],
        }
    )
    first, second = (attributes_of(events, i) for i in range(2))
    assert first.pop("absent", 0) is second.pop("absent", 0) is second.pop("masked", 0) is None
    assert first == {"float": 1.5, "integer": 1, "boolean": True, "text": "a", "masked": 7, "mixed": True}
    assert math.isnan(second.pop("float"))
    assert second == {"integer": 2, "boolean": False, "text": "", "mixed": "x"}
    assert type(first["boolean"]) is bool
    assert type(first["integer"]) is float


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"a": [1, 2], "b": [1]}, "one length, found 'a': 2, 'b': 1"),
        ({"a": [0, -(2**63) - 1]}, r"event 1: attribute 'a': the integer -9223372036854775809 is not between -2\^63 and"),
        ({"a": np.zeros((2, 2))}, "column 'a': a column has one dimension, found 2"),
        ({"a": [1, b"x"]}, "event 1: attribute 'a': a value must be .* found bytes"),
        ({"a": ["\ud800"]}, "event 0: attribute 'a': .*lone surrogate"),
        ({3: [1]}, "a name must be a string"),
    ],
)
def test_bad_columns_are_refused_with_their_place(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(mpi_match.ModelError, match=said):
        api.make_batch(api.make_table([{"interface": "i", "constraints": [["a", "exists"], ["b", "exists"]]}]), bad)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"x": [1.0]}, "no column 'y'; there are: 'x'"),
        ({"x": [1.0, 2.0], "y": [1.0, None]}, "event 1: the location needs both 'x' and 'y'"),
        (
            {"x": [1.0, math.nan], "y": [1.0, 1.0]},
            "event 1: the coordinates of a location must be finite numbers, found float nan",
        ),
        ({"x": [1.0], "y": ["1"]}, "event 0: the coordinates of a location must be finite numbers, found str '1'"),
        ({"x": [True], "y": [1.0]}, "event 0: the coordinates of a location must be finite numbers, found bool True"),
    ],
)
def test_bad_locations_in_columns_are_refused(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(mpi_match.ModelError, match=said):
        api.make_events(bad, location=("x", "y"))


ENTRIES = st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3)


@given(st.integers(0, 4).flatmap(lambda n: st.dictionaries(st.text(max_size=3), st.lists(ENTRIES, min_size=n, max_size=n))))
def test_columns_mean_what_their_rows_mean(found: dict[str, list[Any]]) -> None:
    n = len(next(iter(found.values()), []))
    rows = [{name: values[i] for name, values in found.items()} for i in range(n)]
    by_column, by_row = api.make_events(found), api.make_events(rows)
    assert len(by_column) == len(by_row) == n
    for i in range(n):
        # as text, because NaN differs from itself
        assert repr(by_column.event(i)) == repr(by_row.event(i))


PRESENCE = [
    {"interface": "absent", "constraints": [["x", "absent"]]},
    {"interface": "there", "constraints": [["x", "exists"]]},
]


def columns_with_nulls() -> Iterator[Column]:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for value, types in {
        1.5: ("Float64", "double[pyarrow]", "category"),
        7: ("Int64", "UInt8", "int64[pyarrow]", "category"),
        "a": ("string", "string[pyarrow]", "category"),
        True: ("boolean", "bool[pyarrow]"),
    }.items():
        for dtype in types:
            yield f"pandas {value!r} {dtype}", pandas.Series([value, None, value], dtype=dtype), value
        yield f"pandas array {value!r}", pandas.array([value, None, value], dtype=types[0]), value
        yield f"Arrow {value!r}", arrow.array([value, None, value]), value
        yield f"Arrow chunks {value!r}", arrow.chunked_array([[value, None], [value]]), value
        yield f"Arrow dictionary {value!r}", arrow.array([value, None, value]).dictionary_encode(), value
        yield f"masked {value!r}", np.ma.array([value] * 3, mask=[False, True, False]), value
        for null in (None, pandas.NA, pandas.NaT, np.ma.masked):
            yield f"list {value!r} {null!r}", [value, null, value], value
    yield "pandas index", pandas.Index([7, None, 7], dtype="Int64"), 7
    yield "strings of NumPy", np.array(["a", None, "a"], np.dtypes.StringDType(na_object=None)), "a"


def columns_of_polars_with_nulls() -> Iterator[Column]:
    polars = pytest.importorskip("polars", reason="polars is one of the extra 'dev'")
    for value in (1.5, 7, "a", True):
        yield f"polars {value!r}", polars.Series([value, None, value]), value
    yield "polars categories", polars.Series(["a", None, "a"], dtype=polars.Categorical), "a"


@pytest.mark.untraced
@pytest.mark.parametrize("source", [columns_with_nulls, columns_of_polars_with_nulls])
def test_null_is_a_null_in_columns_of_every_library(source: Callable[[], Iterator[Column]]) -> None:
    """NumPy has no null: converted to NumPy, such a column has NaN instead, which satisfies `exists`."""
    table = api.make_table(PRESENCE)
    for name, column, value in source():
        events = api.make_events({"x": column})
        assert [attributes_of(events, i) for i in range(3)] == [{"x": value}, {"x": None}, {"x": value}], name
        assert type(attributes_of(events, 0)["x"]) is (float if value == 7 else type(value)), name
        found = api.match(table, events, engine="counting").labels(table.labels)
        assert found == [["there"], ["absent"], ["there"]], name
        asked = api.make_table([{"interface": "null", "constraints": [["x", "null"]]}])
        for each in (events, {"x": column}):
            assert api.match(asked, each, engine="counting").labels(asked.labels) == [[], ["null"], []], name


def test_nan_beside_nulls_is_a_number() -> None:
    arrow, pandas, polars = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))
    column = arrow.array([math.nan, None])
    for each in (column, column.to_pandas(types_mapper=pandas.ArrowDtype), polars.Series([math.nan, None])):
        events = api.make_events({"x": each})
        assert math.isnan(attributes_of(events, 0)["x"])
        assert attributes_of(events, 1) == {"x": None}


def test_integers_beside_nulls_are_not_rounded() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = api.make_table([{"interface": i, "constraints": [["a", "=", 2**53 + i]]} for i in range(3)])
    batch = api.make_batch(table, {"a": arrow.array([None, 2**53 + 1, 2**53])})
    assert api.open_engine("counting", table).match(batch).labels(table.labels) == [[], ["1"], ["0"]]
    assert api.make_events({"a": arrow.array([None, None, b"x"])}).left_out == {"a": 1}


@pytest.mark.parametrize(
    "dates",
    [
        np.array(["1970-01-02"], "M8[ns]"),
        np.array([5], "m8[ns]"),
        np.ma.array(np.array([5], "m8[s]"), mask=[False]),
        [np.timedelta64(5, "s")],
    ],
)
def test_dates_and_durations_are_not_taken_for_integers(dates: Any) -> None:
    with pytest.raises(
        mpi_match.ModelError,
        match=r"the column 'a' is of type (timestamp|duration)|event 0: attribute 'a': a value must be a number",
    ):
        api.make_batch(api.make_table([{"interface": "i", "constraints": [["a", ">", 0]]}]), {"a": dates})


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars"])
def test_a_data_frame_is_its_columns(library: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"temp": [31, None, 12], "city": ["Milan", "Rome", None], "n": [7, None, 9], "x": [0.5, 1, None]})
    frame = table
    if library == "pandas":
        frame = table.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)
    elif library == "polars":
        frame = pytest.importorskip("polars").from_arrow(table)
    events = api.make_events(frame, id="n")
    assert [events.event(i) for i in range(3)] == [
        make_event({"temp": 31, "city": "Milan", "x": 0.5}, None, 7),
        make_event({"temp": None, "city": "Rome", "x": 1}),
        make_event({"temp": 12, "city": None, "x": None}, None, 9),
    ]


def test_two_columns_of_one_name_are_refused() -> None:
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(mpi_match.ModelError, match="two columns have the name 'a'"):
        api.make_events(arrow.table([[1], [2]], ["a", "a"]))


def test_nulls_in_rows_are_nulls() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.array([1, None], "Int64"), "when": [pandas.NaT, pandas.NaT]})
    events = api.make_events(frame.to_dict("records"))
    assert [attributes_of(events, i) for i in range(2)] == [{"x": 1, "when": None}, {"x": None, "when": None}]


@pytest.mark.parametrize("ids", [[1.0], [True], [[1, 2]], np.array([1.0])])
def test_ids_in_columns_are_strings_or_integers(ids: Any) -> None:
    with pytest.raises(mpi_match.ModelError, match="event 0: id must be a string or an integer"):
        api.make_events({"n": ids}, id="n")


def test_a_numeric_column_is_not_looped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "rows_of", None)
    monkeypatch.setattr(api, "reader_of_columns", None)
    events = api.make_events({"a": np.arange(1000), "b": np.ones(1000, bool)})
    assert events.type.tolist() == [Type.NUMBER, Type.BOOLEAN] * 1000


def test_what_a_prompt_shows_says_how_many_and_a_few(table: Table) -> None:
    events: list[dict[str, Any]] = [{"temp": 31, "city": "Milan"}, {"temp": 3}, {"city": "Milan"}, {"x": 1}]
    batch = api.make_batch(table, events)
    assert repr(table) == "<table of 4 filters with 3 constraints on 3 interfaces>"
    assert repr(api.make_events(events)) == "<4 events with 5 attributes>"
    assert repr(batch).startswith("<batch of 4 events with 4 attributes, vocabulary ")
    answers = mpi_match.open_engine("counting", table).match(batch)
    assert (
        repr(answers)
        == f"<4 events, {answers.n_matches} matches: {', '.join(str(a.tolist()) for a in cast(Any, answers[:3]))}, ...>"
    )
    assert repr(answers[:0]) == "<0 events, 0 matches>"


def test_counts_are_those_of_what_was_written(tmp_path: Path) -> None:
    """An `or` of two constraints counted as three, one of which asks for a part."""
    objects = {"and": [["l.x", "has", 1], ["l.y", "has", 2]]}
    rows: list[dict[str, Any]] = [{"interface": "a", "where": {"or": [["x", "=", 1], {"not": ["y", "=", 2]}]}}]
    rows.append({"interface": "b", "where": objects, "arrays": "consistent"})
    assert repr(api.make_table(rows)) == "<table of 2 filters with 4 constraints on 2 interfaces>"
    file = tmp_path / "rules.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert compile_locally([str(file)], tmp_path / "table.h5")[:4] == (2, 2, 4, 2)


EVERY = mpi_match.make_table(
    [
        {"interface": "y", "constraints": [["*", "=", "y"]]},
        {"interface": "x", "constraints": [["*", "=", "x"]]},
        {"interface": "no y", "constraints": [{"not": ["*", "=", "y"]}]},
    ]
)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"b": "y"}, ["y"]),
        ({"*": "x", "b": "y"}, ["x", "y"]),
        ({"*": {"a": ["y"]}}, ["y"]),
        ({"*": ["x", "y"]}, ["x", "y"]),
        ({"*": 5}, ["no y"]),
        ({}, ["no y"]),
    ],
)
def test_all_strings_are_those_of_rows_whatever_the_names(row: dict[str, Any], expected: list[str]) -> None:
    engine = mpi_match.open_engine("keyed", EVERY)
    filters = list(EVERY.iter_filters())
    for passed in ([row], json.dumps(row).encode(), [json.dumps(row)]):
        assert engine.match(mpi_match.make_batch(EVERY, passed)).labels(EVERY.labels) == [sorted(expected)]
    flat = {name: value for name, value in row.items() if not isinstance(value, dict)}
    event = mpi_match.make_event(flat)
    unknown: Any
    for unknown in (mpi_match.make_events([row]), [event], [row, event], mpi_match.make_events(json.dumps(row).encode())):
        with pytest.raises(mpi_match.ModelError, match=r"filters ask for .*, which only rows have; match the rows$"):
            mpi_match.make_batch(EVERY, unknown)
    with pytest.raises(mpi_match.ModelError, match=r"which only rows have; match the rows$"):
        mpi_match.match_naive(filters, event)
    absent = mpi_match.make_filter("i", [["b", "absent"]])
    assert mpi_match.match_naive([absent], event) == ([] if "b" in row else ["i"])


def test_rejected_rows_have_no_strings_and_stop_nothing() -> None:
    rejects: list[Any] = []
    batch = mpi_match.make_batch(EVERY, [{"b": "y"}, 5, "{}x"], rejects=rejects)  # type: ignore[list-item]
    assert mpi_match.open_engine("counting", EVERY).match(batch).labels(EVERY.labels) == [["y"], [], []]
    assert len(rejects) == 2
    assert mpi_match.make_batch(EVERY, mpi_match.make_events([])).n_events == 0
