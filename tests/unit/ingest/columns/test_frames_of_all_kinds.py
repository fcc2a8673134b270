"""Columns of every kind that a program may pass: the same events on every path, those of the rows that they stand for."""

from __future__ import annotations

import datetime
import enum
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from mpi_match import api, match_naive
from mpi_match.ingest.columns import frames
from mpi_match.ingest.rows.judge import PLAIN, Reject, event_of_row, names_of
from mpi_match.live import LiveMatcher
from mpi_match.model import Filter, ModelError, make_filter

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

ASKED: list[list[Any]] = [
    *(
        ["v", op, *operand]
        for op, *operand in (["exists"], ["absent"], ["=", "5"], ["=", 5], ["=", True], [">", 1], ["!=", 7])
    ),
    *(
        ["v", op, operand]
        for op, operand in (["has", 5], ["has", "a"], ["any >", 1], ["contains", "e"], ["prefix", "00000000-"])
    ),
    *(["v.x", op, *operand] for op, *operand in (["=", 1], ["exists"], ["absent"], ["=", "a"])),
    ["v.y.z", "=", "deep"],
]
FILTERS: list[Filter] = [make_filter(i, [each]) for i, each in enumerate(ASKED)]
TABLE = api.make_table(FILTERS)
LIVE = LiveMatcher(TABLE, engine="reference")


class City(str, enum.Enum):  # noqa: UP042  the kind whose `str()` is not its value
    A = "a"


NONE: Any = None
NAN = math.nan
NAME = uuid.UUID(int=5)
DAY = datetime.date(2026, 1, 2)


def series(values: list[Any], dtype: Any = None) -> Any:
    return pd.DataFrame({"v": pd.Series(values, dtype=dtype)})


def of_arrow(values: list[Any], type_: Any = None) -> Any:
    return pa.table({"v": pa.array(values, type_)})


def of_pandas_arrow(values: list[Any], type_: Any) -> Any:
    return series(values, pd.ArrowDtype(type_))


STRUCT = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])
STRUCTS = [{"x": 1, "y": {"z": "deep"}}, None, {"x": None, "y": None}]
DEEP = np.array([(1, ("deep",)), (2, ("",))], [("x", "i4"), ("y", [("z", "U9")])])

KINDS: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    # NumPy
    "float64": (lambda: {"v": np.array([5, NAN])}, [5, NAN]),
    "float32": (lambda: {"v": np.array([5.5, NAN], "f4")}, [5.5, NAN]),
    "float16": (lambda: {"v": np.array([5, 0.5], "f2")}, [5, 0.5]),
    "longdouble": (lambda: {"v": np.array([5, 0.5], np.longdouble)}, [5, 0.5]),
    "longdouble that no double equals": (lambda: {"v": np.array([5, np.longdouble(1) / 3])}, [5, np.longdouble(1) / 3]),
    "big-endian": (lambda: {"v": np.array([5, 2], ">i8")}, [5, 2]),
    "int64": (lambda: {"v": np.array([5, 2**53])}, [5, 2**53]),
    "int64 beyond": (lambda: {"v": np.array([5, 2**53 + 1])}, [5, 2**53 + 1]),
    "uint64 beyond": (lambda: {"v": np.array([5, 2**64 - 1], np.uint64)}, [5, 2**64 - 1]),
    "bool": (lambda: {"v": np.array([True, False])}, [True, False]),
    "U": (lambda: {"v": np.array(["5", "a"])}, ["5", "a"]),
    "S": (lambda: {"v": np.array([b"5", b"a"])}, [b"5", b"a"]),
    "complex": (lambda: {"v": np.array([1j])}, [1j]),
    "object": (lambda: {"v": np.array(["5", 5, None, True, NAN, [1, "a"]], object)}, ["5", 5, NONE, True, NAN, [1, "a"]]),
    "object of dicts": (lambda: {"v": np.array(STRUCTS, object)}, STRUCTS),
    "StringDType": (lambda: {"v": np.array(["5", "a"], np.dtypes.StringDType())}, ["5", "a"]),
    "masked": (lambda: {"v": np.ma.array([5.0, 9], mask=[False, True])}, [5, NONE]),
    "masked strings": (lambda: {"v": np.ma.array(["5", "a"], mask=[False, True])}, ["5", NONE]),
    "structured column": (lambda: {"v": DEEP}, [{"x": 1, "y": {"z": "deep"}}, {"x": 2, "y": {"z": ""}}]),
    "structured": (lambda: np.array([(5,), (2,)], [("v", "i4")]), [5, 2]),
    "record array": (lambda: np.rec.array([("5",), ("a",)], dtype=[("v", "U2")]), ["5", "a"]),
    # lists
    "list of numbers": (lambda: {"v": [5, 0.5, None]}, [5, 0.5, NONE]),
    "list of numbers and booleans": (lambda: {"v": [1.5, True]}, [1.5, True]),
    "list of strings": (lambda: {"v": ["5", None]}, ["5", NONE]),
    "tuple": (lambda: {"v": (True, None)}, [True, NONE]),
    "list of anything": (lambda: {"v": [5, "5", [5, "a"], {"x": 1}, b"?", City.A]}, [5, "5", [5, "a"], {"x": 1}, b"?", "a"]),
    "list of Decimals": (lambda: {"v": [Decimal("5.00"), Decimal("0.1")]}, [5, 0.1]),
    "list of large Decimals": (lambda: {"v": [Decimal(2**53 + 1), Decimal("0.1")]}, [2**53 + 1, 0.1]),
    "list of dates": (lambda: {"v": [DAY, None]}, [DAY, NONE]),
    "list of UUIDs": (lambda: {"v": [NAME]}, [str(NAME)]),
    "list of Fractions": (lambda: {"v": [Fraction(1, 2), Fraction(1, 3)]}, [0.5, Fraction(1, 3)]),
    "list of lists with nulls": (lambda: {"v": [[5, None], [5], []]}, [[5, NONE], [5], []]),
    "list with a lone surrogate": (lambda: {"v": ["a", "\ud800"]}, ["a", "\ud800"]),
    "range": (lambda: {"v": range(4, 6)}, [4, 5]),
    "rows": (lambda: [{"v": 5}, {"v": {"x": 1}}], [5, {"x": 1}]),
    # pandas
    "pandas float": (lambda: series([5.0, NAN]), [5, NAN]),
    "pandas strings with NaN": (lambda: series(["5", NAN], object), ["5", NAN]),
    "pandas object": (lambda: series([5, "5", None, pd.NA, pd.NaT, True]), [5, "5", NONE, NONE, NONE, True]),
    "pandas dicts": (lambda: series([{"x": 1, "y": {"z": "deep"}}, None, {"x": "a"}]), [STRUCTS[0], NONE, {"x": "a"}]),
    "pandas lists": (lambda: series([[5, 1], ["a"], []]), [[5, 1], ["a"], []]),
    "pandas arrays": (lambda: series([np.array([5, 1]), None]), [[5, 1], NONE]),
    "pandas Decimals": (lambda: series([Decimal("5.0"), Decimal("7")]), [5, 7]),
    "pandas Int64": (lambda: series([5, None], "Int64"), [5, NONE]),
    "pandas Int64 beyond": (lambda: series([5, 2**53 + 1], "Int64"), [5, 2**53 + 1]),
    "pandas Float64": (lambda: series([5.0, None], "Float64"), [5, NONE]),
    "pandas boolean": (lambda: series([True, None], "boolean"), [True, NONE]),
    "pandas string": (lambda: series(["5", None], "string"), ["5", NONE]),
    "pandas string of Arrow": (lambda: series(["5", None], "string[pyarrow]"), ["5", NONE]),
    "pandas category": (lambda: series(["5", None, "a"], "category"), ["5", NONE, "a"]),
    "pandas string with NaN": (lambda: series(["5", None], pd.StringDtype(na_value=np.nan)), ["5", NONE]),
    "pandas category of numbers": (lambda: series([5, 1, None], "category"), [5, 1, NONE]),
    "pandas Sparse": (lambda: series([5.0, 0.0], pd.SparseDtype("float64", 0.0)), [5, 0]),
    "pandas index": (lambda: {"v": pd.Index(["5", "a"])}, ["5", "a"]),
    "pandas Series": (lambda: {"v": pd.Series([5, 1], index=[7, 8])}, [5, 1]),
    "pandas without columns": (lambda: pd.DataFrame(index=range(3)), [NONE, NONE, NONE]),
    "pandas Arrow int": (lambda: of_pandas_arrow([5, None], pa.int64()), [5, NONE]),
    "pandas Arrow float": (lambda: of_pandas_arrow([5.5, None], pa.float64()), [5.5, NONE]),
    "pandas Arrow list": (lambda: of_pandas_arrow([[5, None], [5, 1]], pa.list_(pa.int64())), [[5, NONE], [5, 1]]),
    "pandas Arrow struct": (lambda: of_pandas_arrow(STRUCTS, STRUCT), STRUCTS),
    "pandas Arrow decimal": (lambda: of_pandas_arrow([Decimal("5.00"), None], pa.decimal128(9, 2)), [5, NONE]),
    "pandas Arrow dictionary": (
        lambda: of_pandas_arrow(["5", None], pa.dictionary(pa.int8(), pa.string())),
        ["5", NONE],
    ),
    # Arrow
    "Arrow int8": (lambda: of_arrow([5, None], pa.int8()), [5, NONE]),
    "Arrow uint64 beyond": (lambda: of_arrow([5, 2**64 - 1], pa.uint64()), [5, 2**64 - 1]),
    "Arrow halffloat": (lambda: of_arrow([np.float16(5), None], pa.float16()), [5, NONE]),
    "Arrow double": (lambda: of_arrow([5.0, NAN, None], pa.float64()), [5, NAN, NONE]),
    "Arrow bool": (lambda: of_arrow([True, None]), [True, NONE]),
    "Arrow null": (lambda: of_arrow([None, None]), [NONE, NONE]),
    "Arrow string": (lambda: of_arrow(["5", None]), ["5", NONE]),
    "Arrow large_string": (lambda: of_arrow(["5", None], pa.large_string()), ["5", NONE]),
    "Arrow string_view": (lambda: of_arrow(["5", None], pa.string_view()), ["5", NONE]),
    "Arrow string_view in lists": (
        lambda: of_arrow([["a", None], None, []], pa.list_(pa.string_view())),
        [["a", NONE], NONE, []],
    ),
    "Arrow string_view in structs in lists": (
        lambda: of_arrow([[{"x": "a"}, None, {"x": None}], None], pa.list_(pa.struct([("x", pa.string_view())]))),
        [[{"x": "a"}, NONE, {"x": NONE}], NONE],
    ),
    "Arrow dictionary of string_view": (
        lambda: pa.table({"v": pa.DictionaryArray.from_arrays([0, 1], pa.array(["5", None], pa.string_view()))}),
        ["5", NONE],
    ),
    "Arrow decimal128": (lambda: of_arrow([Decimal("5.00"), None], pa.decimal128(10, 2)), [5, NONE]),
    "Arrow decimal256": (lambda: of_arrow([Decimal("5.00"), Decimal("0.10")], pa.decimal256(40, 2)), [5, 0.1]),
    "Arrow decimal beyond": (lambda: of_arrow([Decimal(2**53 + 1)], pa.decimal128(20, 0)), [2**53 + 1]),
    "Arrow dictionary": (lambda: of_arrow(["5", None], pa.dictionary(pa.int32(), pa.string())), ["5", NONE]),
    "Arrow dictionary with a null": (
        lambda: pa.table({"v": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["5", None]))}),
        ["5", NONE],
    ),
    "Arrow struct": (lambda: of_arrow(STRUCTS, STRUCT), STRUCTS),
    "Arrow list": (lambda: of_arrow([[5, 1], [], None, [None]], pa.list_(pa.int64())), [[5, 1], [], NONE, [NONE]]),
    "Arrow large_list": (lambda: of_arrow([["a"], None], pa.large_list(pa.string())), [["a"], NONE]),
    "Arrow list of nulls": (lambda: of_arrow([[None] * 3, None], pa.large_list(pa.null())), [[NONE] * 3, NONE]),
    "Arrow fixed_size_list": (lambda: of_arrow([[5, 1], None], pa.list_(pa.int64(), 2)), [[5, 1], NONE]),
    "Arrow list_view": (lambda: of_arrow([[5, 1], None, []], pa.list_view(pa.int64())), [[5, 1], NONE, []]),
    "Arrow run-end encoded": (
        lambda: pa.table({"v": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), pa.array(["5", None]))}),
        ["5", "5", NONE],
    ),
    "Arrow bool8": (
        lambda: pa.table({"v": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))}),
        [True, False, NONE],
    ),
    "Arrow uuid": (
        lambda: pa.table({"v": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([NAME.bytes, None], pa.binary(16)))}),
        [str(NAME), NONE],
    ),
    "Arrow in chunks": (lambda: pa.table({"v": pa.chunked_array([["5"], [], ["a", None]])}), ["5", "a", NONE]),
    "Arrow record batch": (lambda: pa.record_batch({"v": pa.array([5, None])}), [5, NONE]),
    "Arrow array in a dict": (lambda: {"v": pa.array([5, None])}, [5, NONE]),
    "Arrow structs in a dict": (lambda: {"v": pa.array(STRUCTS, STRUCT)}, STRUCTS),
    "Arrow without columns": (lambda: pa.table({"w": [1, 2, 3]}).select([]), [NONE, NONE, NONE]),
    # polars
    "polars Int64": (lambda: pl.DataFrame({"v": [5, None]}), [5, NONE]),
    "polars String": (lambda: pl.DataFrame({"v": ["5", None]}), ["5", NONE]),
    "polars Boolean": (lambda: pl.DataFrame({"v": [True, None]}), [True, NONE]),
    "polars Categorical": (lambda: pl.DataFrame({"v": pl.Series(["5", "a"], dtype=pl.Categorical)}), ["5", "a"]),
    "polars Enum": (lambda: pl.DataFrame({"v": pl.Series(["5", "a"], dtype=pl.Enum(["5", "a"]))}), ["5", "a"]),
    "polars Decimal": (lambda: pl.DataFrame({"v": [Decimal("5.00"), Decimal("0.10")]}), [5, 0.1]),
    "polars List": (lambda: pl.DataFrame({"v": [[5, None], [5]]}), [[5, NONE], [5]]),
    "polars List of String": (lambda: pl.DataFrame({"v": [["5", None], None, ["a"]]}), [["5", NONE], NONE, ["a"]]),
    "polars List of Categorical": (
        lambda: pl.DataFrame({"v": pl.Series([["a", None], None], dtype=pl.List(pl.Categorical))}),
        [["a", NONE], NONE],
    ),
    "polars Array": (lambda: pl.DataFrame({"v": pl.Series([[5, 1]], dtype=pl.Array(pl.Int64, 2))}), [[5, 1]]),
    "polars Struct": (lambda: pl.DataFrame(of_arrow(STRUCTS, STRUCT)), STRUCTS),
    "polars Null": (lambda: pl.DataFrame({"v": [None, None]}), [NONE, NONE]),
    "polars Series in a dict": (lambda: {"v": pl.Series(["5", None])}, ["5", NONE]),
}  # fmt: skip
assert len(KINDS) > 60


def expected_of(values: list[Any]) -> tuple[list[list[str]], list[tuple[int, str]]]:
    answers, bad = [], []
    for i, value in enumerate(values):
        try:
            answers.append(match_naive(FILTERS, event_of_row({"v": value}, PLAIN, names_of(TABLE.vocabulary, PLAIN))))
        except ModelError as error:
            answers.append([])
            bad.append((i, str(error)))
    return answers, bad


def places(rejects: list[Reject]) -> list[tuple[int, str]]:
    return [(each.line, each.reason) for each in rejects]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_column_is_its_rows_on_every_path(kind: str, tmp_path: Path) -> None:
    make, values = KINDS[kind]
    answers, bad = expected_of(values)
    as_rows = api._as_rows(make(), PLAIN)  # for filters on all strings
    assert expected_of([row.get("v") for row in as_rows]) == (answers, bad)
    by_batch: list[Reject] = []
    assert LIVE.match(api.make_batch(TABLE, make(), rejects=by_batch)) == answers
    assert places(by_batch) == bad
    events = api.make_events(make())
    if bad:
        assert set(events.left_out) == {"v"}
        with pytest.raises(ModelError, match="the attribute 'v', which filters name, cannot be read in"):
            events.encode(TABLE.vocabulary)
        for refuse in (LIVE.match, lambda found: api.match(TABLE, found)):
            with pytest.raises(ModelError) as error:
                refuse(make())
            assert str(error.value) == str(ModelError(f"event {bad[0][0]}: {bad[0][1]}"))
    else:
        assert LIVE.match(events.encode(TABLE.vocabulary)) == answers
        assert LIVE.match(make()) == answers
    _by_file(make(), answers, bad, tmp_path / "e.parquet")


def _by_file(found: Any, answers: list[list[str]], bad: list[tuple[int, str]], path: Path) -> None:
    """The same as a file of Parquet, where it can be one."""
    import pyarrow.parquet as pq

    if not (frames.has_arrow(found) or isinstance(found, pd.DataFrame)):
        return
    try:
        table = pa.table(found) if frames.has_arrow(found) else pa.Table.from_pandas(found, preserve_index=False)
        pq.write_table(table, path)
    except (pa.ArrowException, TypeError, ValueError):  # Parquet has no columns of this type
        return
    if not table.num_columns or (isinstance(found, pd.DataFrame) and found["v"].dtype == object):
        return  # a file has its own types
    by_file: list[Reject] = []
    batch = api.make_batch(TABLE, path, rejects=by_file)
    if isinstance(found, pd.DataFrame) and found["v"].dtype.kind == "f":
        return  # NaN of pandas is null in its Arrow table
    assert LIVE.match(batch) == answers
    assert [(line - 1, reason) for line, reason in places(by_file)] == bad


@pytest.mark.parametrize("kind", [name for name, (make, _) in KINDS.items() if isinstance(make(), dict)])
def test_columns_of_a_dict_need_no_pyarrow(kind: str) -> None:
    make, values = KINDS[kind]
    answers, bad = expected_of(values)
    rejects: list[Reject] = []
    with patch.object(frames, "find_spec", lambda _: None):
        assert LIVE.match(api.make_batch(TABLE, make(), rejects=rejects)) == answers
    assert places(rejects) == bad


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "NumPy dates": (lambda: {"v": np.array(["2026-01-01"], "M8[s]")}, "the column 'v' is of type timestamp"),
    "NumPy durations": (lambda: {"v": np.array([5], "m8[s]")}, "the column 'v' is of type duration"),
    "pandas dates": (lambda: series([pd.Timestamp(0)]), "the column 'v' is of type timestamp"),
    "Arrow dates": (lambda: of_arrow([DAY]), "the column 'v' is of type date32"),
    "Arrow binary": (lambda: of_arrow([b"?"]), "the column 'v' is of type binary"),
    "Arrow maps": (lambda: of_arrow([[("x", 1)]], pa.map_(pa.string(), pa.int64())), "the column 'v' is of type map<"),
    "polars dates": (lambda: pl.DataFrame({"v": [DAY]}), "the column 'v' is of type date32"),
    "pandas periods": (lambda: series([pd.Period("2026")]), "the column 'v' is of type extension<pandas.period"),
    "two dimensions": (lambda: {"v": np.zeros((2, 2))}, "column 'v': a column has one dimension, found 2"),
    "one event": (
        lambda: {"v": 5},
        "column 'v': needs an array or a list of values, found int; one event is a list of one row",
    ),
    "one text": (lambda: {"v": "Milan"}, "column 'v': needs an array or a list of values, found str"),
    "an iterator": (lambda: {"v": iter([1])}, "column 'v': needs an array or a list of values, found list_iterator"),
    "a set": (lambda: {"v": {1}}, "column 'v': needs an array or a list of values, found set"),
    "two lengths": (lambda: {"v": [1], "w": [1, 2]}, "columns must have one length, found 'v': 1, 'w': 2"),
    "a name of another type": (lambda: {"v": [1], 5: [1]}, "a name must be a string, found int 5"),
    "several levels of names": (lambda: pd.DataFrame({("v", "x"): [1]}), "a name must be a string, found tuple"),
    "a name twice": (lambda: pd.DataFrame([[1, 2]], columns=["v", "v"]), "two columns have the name 'v'"),
    "a name twice in Arrow": (lambda: pa.table([[1], [2]], names=["v", "v"]), "two columns have the name 'v'"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_column_is_refused_on_every_path(kind: str) -> None:
    make, said = REFUSED[kind]
    is_of_a_type = said.startswith("the column 'v' is of type")
    if is_of_a_type:  # nothing names it so far
        left_out = api.make_events(make()).left_out
        assert {name: n for name, n in left_out.items() if name != "v."} == {"v": 1}, "and all that a map may hold"
    paths: list[Callable[[], Any]] = [lambda: api.make_batch(TABLE, make(), rejects=[]), lambda: LIVE.match(make())]
    for path in paths if is_of_a_type else [*paths, lambda: api.make_events(make(), rejects=[])]:
        with pytest.raises(ModelError) as error:
            path()
        assert str(error.value).startswith(said)
        assert "\n" not in str(error.value)


def test_a_relation_of_duckdb_is_its_rows() -> None:
    duckdb = pytest.importorskip("duckdb")
    for query, values in (
        ("select '5' as v", ["5"]),
        ("select {'x': 1, 'y': {'z': 'deep'}} as v", STRUCTS[:1]),
        ("select 5.00 as v", [5]),
    ):
        answers, _ = expected_of(values)
        assert LIVE.match(duckdb.sql(query)) == answers
        assert LIVE.match(api.make_events(duckdb.sql(query)).encode(TABLE.vocabulary)) == answers


def test_ids_may_be_a_dictionary_of_views() -> None:
    column = pa.DictionaryArray.from_arrays([0, 1, 0], pa.array(["a", "b"], pa.string_view()))
    ids = api.make_events(pa.table({"v": column}), id="v").ids
    assert list(ids or ()) == [b"a", b"b", b"a"]


def test_a_native_time_is_bad_where_a_filter_also_asks_for_its_text() -> None:
    when, rest = datetime.datetime(2026, 1, 2), make_filter("rest", [["w", "absent"]])
    for other in (["v", "=", "a"], ["v", "has", "a"], ["v", "= i", "a"], ["v", "in net", "10.0.0.0/8"], ["v", ">", 5]):
        filters = [make_filter("time", [["v", "after", "2026-01-01"], other]), rest]
        table, rejects = api.make_table(filters), list[Reject]()
        assert LiveMatcher(table, engine="reference").match(api.make_batch(table, [{"v": when}], rejects=rejects)) == [[]]
        assert len(rejects) == 1
        assert match_naive(filters, event_of_row({"v": when})) == []
        with pytest.raises(ModelError, match="native time"):
            api.make_batch(table, of_arrow([when]))
