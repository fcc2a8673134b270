"""`matched`: a frame of any library in, one of the same library out; answers are those of the judge."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import format_judge
import numpy as np
import pytest

import mpi_match
from mpi_match import ModelError, StorageError, make_table, match_naive, matched
from mpi_match.arrays.strings import Strings
from mpi_match.commands.compile_locally import update_table
from mpi_match.frames import MOST_HELD, HeldEngines
from mpi_match.table.table import Table

pa = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "hot", "constraints": [["temp", ">", 30]], "id": "f-hot"},
    {"interface": "hot", "constraints": [["temp", ">", 100]]},
    {"interface": "milan", "constraints": [["city", "=", "Milan"]], "area": [0, 0, 5]},
    {"interface": "never", "constraints": [["city", "=", "nowhere"]]},
]
CITIES = ("Milan", "Rome", None)


@pytest.fixture(scope="module")
def table() -> Table:
    return make_table(SUBSCRIPTIONS)


@pytest.fixture(scope="module")
def columns() -> dict[str, list[Any]]:
    """Events; every seventh has half a location, which makes it a bad one."""
    dice = random.Random(3)
    n = 200
    return {
        "uuid": [f"e{i}" for i in range(n)],
        "temp": [dice.choice([None, 20.0, 31.0, 200.0]) for _ in range(n)],
        "city": [dice.choice(CITIES) for _ in range(n)],
        "x": [dice.uniform(0, 6) for _ in range(n)],
        "y": [None if i % 7 == 6 else 0.0 for i in range(n)],
        "when": [np.datetime64(i, "s") for i in range(n)],
    }


def of_pandas(columns: dict[str, list[Any]]) -> Any:
    frame = pandas.DataFrame({**columns, "when": np.array(columns["when"], "datetime64[s]")})
    return frame.astype({"temp": "Float64", "city": "string", "y": "Float64"}).set_index(np.arange(len(frame)) * 3 + 5)


KINDS: dict[str, tuple[Callable[[Any], Any], type]] = {
    "pandas": (of_pandas, pandas.DataFrame),
    "polars": (lambda columns: polars.from_arrow(pa.table(columns)), polars.DataFrame),
    "lazy": (lambda columns: polars.from_arrow(pa.table(columns)).lazy(), polars.LazyFrame),
    "table": (pa.table, pa.Table),
    "batch": (lambda columns: pa.table(columns).to_batches()[0], pa.Table),
    "reader": (lambda columns: pa.table(columns).to_reader(max_chunksize=17), pa.Table),
    "duckdb": (lambda columns: duckdb.connect().from_arrow(pa.table(columns)), duckdb.DuckDBPyRelation),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame of any library."""
    if isinstance(frame, polars.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pandas.DataFrame):
        frame = pa.Table.from_pandas(frame, preserve_index=False)
    found: list[dict[str, Any]] = pa.RecordBatchReader.from_stream(frame).read_all().to_pylist()
    return found


def judged(columns: dict[str, list[Any]], table: Table) -> list[list[int] | None]:
    """The filters of every event, by the judge; None for a bad one."""
    filters = list(table.iter_filters())
    found: list[list[int] | None] = []
    for temp, city, x, y in zip(*(columns[name] for name in ("temp", "city", "x", "y")), strict=True):
        if y is None:
            found.append(None)
            continue
        attributes = {"temp": temp, "city": city, "x": x, "y": y}
        event = mpi_match.make_event({k: v for k, v in attributes.items() if v is not None}, (x, y))
        found.append([i for i, item in enumerate(filters) if match_naive([item], event)])
    return found


@pytest.mark.untraced
@EVERY_KIND
@pytest.mark.parametrize("key", ["uuid", None])
def test_pairs_and_lists_are_those_of_the_judge(kind: str, key: str | None, columns: Any, table: Table) -> None:
    make, made = KINDS[kind]
    keys = columns[key] if key else range(len(columns["uuid"]))
    name, expected = key or "row", judged(columns, table)
    label = [table.label(int(i)) for i in table.filters.interface]

    pairs, rejects = matched(make(columns), table, location="x,y", id=key)
    assert isinstance(pairs, made)
    assert isinstance(rejects, made)
    every = [
        {name: k, "interface": each}
        for k, found in zip(keys, expected, strict=True)
        for each in sorted({label[i] for i in found or ()})
    ]
    assert rows(pairs) == every
    bad = [i for i, found in enumerate(expected) if found is None]
    assert [row["row"] for row in rows(rejects)] == bad
    assert bad
    assert {row["reason"] for row in rows(rejects)} == {"the location needs both 'x' and 'y'; 'y' is absent"}
    assert key is None or [row[key] for row in rows(rejects)] == [keys[i] for i in bad]

    by_filter, _ = matched(make(columns), table, location="x,y", id=key, filters=True)
    ids = [table.filter_name(i) for i in range(table.n_filters)]
    assert rows(by_filter) == [
        {name: k, "interface": label[i], "filter": i, "filter_id": ids[i]}
        for k, found in zip(keys, expected, strict=True)
        for i in found or ()
    ]

    lists, _ = matched(make(columns), table, location="x,y", id=key, filters=True, how="lists")
    assert rows(lists) == [
        {name: k, "interfaces": None if found is None else [label[i] for i in found], "filters": found}
        for k, found in zip(keys, expected, strict=True)
    ]
    plain, _ = matched(make(columns), table, location="x,y", id=key, how="lists")
    assert [row["interfaces"] for row in rows(plain)] == [
        None if found is None else sorted({label[i] for i in found}) for found in expected
    ]


@EVERY_KIND
def test_semi_anti_and_rejects_divide_the_frame(kind: str, columns: Any, table: Table) -> None:
    make, made = KINDS[kind]
    expected = judged(columns, table)
    for how, wanted in (("semi", True), ("anti", False)):
        kept, rejects = matched(make(columns), table, location="x,y", how=how)
        assert isinstance(kept, made)
        places = [i for i, found in enumerate(expected) if found is not None and bool(found) == wanted]
        assert rows(kept) == [row for i, row in enumerate(rows(make(columns))) if i in places]
        assert len(rows(kept)) + len(rows(rejects)) < len(expected)


def test_pandas_keeps_its_index_and_types(columns: Any, table: Table) -> None:
    frame = of_pandas(columns).assign(key=pandas.array(range(len(columns["uuid"])), "Int64"))
    kept, _ = matched(frame, table, location="x,y", how="semi")
    assert kept.equals(frame.loc[kept.index])
    pairs, _ = matched(frame, table, location="x,y", id="key")
    assert pairs.dtypes.astype(str).to_dict() == {"key": "Int64", "interface": "category"}
    assert len(frame.merge(pairs, on="key")) == len(pairs)


def test_a_lazy_frame_computes_only_what_is_named(columns: Any, table: Table) -> None:
    def fail(_: Any) -> Any:
        raise AssertionError("computed")

    lazy = polars.from_arrow(pa.table(columns)).lazy()
    lazy = lazy.with_columns(other=polars.col("uuid").map_batches(fail, return_dtype=polars.String))
    assert len(rows(matched(lazy, table, location="x,y").frame)) > 0


def test_columns_that_nothing_names_are_not_looked_at(columns: Any, table: Table) -> None:
    """Names that are not text, two of one name, objects: such columns stay in rows that are given back."""
    frame = of_pandas(columns)
    frame = pandas.concat(
        [frame, pandas.DataFrame({7: [object()] * len(frame)}, index=frame.index), frame[["when"]]], axis=1
    )
    kept, _ = matched(frame, table, location="x,y", how="semi")
    assert list(kept.columns) == list(frame.columns)
    assert len(kept)


@EVERY_KIND
def test_a_frame_without_rows_has_answers_without_rows(kind: str, columns: Any, table: Table) -> None:
    make, _ = KINDS[kind]
    if kind == "batch":
        frame = pa.RecordBatch.from_pydict({name: pa.array(each)[:0] for name, each in columns.items()})
    else:
        frame = make({name: pa.array(each)[:0] for name, each in columns.items()})
    for how in ("pairs", "lists", "semi", "anti"):
        assert list(map(rows, matched(frame, table, location="x,y", how=how))) == [[], []]


@EVERY_KIND
def test_filters_without_names_match_every_row(kind: str, columns: Any) -> None:
    every = make_table([{"interface": "all", "constraints": []}])
    assert len(rows(matched(KINDS[kind][0](columns), every).frame)) == len(columns["uuid"])


def test_fields_of_structs_have_dotted_names() -> None:
    frame = polars.DataFrame({"v": [{"x": 1, "z": 0}, {"x": 5, "z": 0}], "w": [1, 1]})
    found, _ = matched(frame, make_table([{"interface": "a", "constraints": [["v.x", ">", 2]]}]))
    assert rows(found) == [{"row": 1, "interface": "a"}]


MISTAKES: dict[str, tuple[Callable[[Any, Table], Any], str]] = {
    "how": (lambda f, t: matched(f, t, how="left"), "how is one of 'pairs', 'lists', 'semi', 'anti', found str 'left'"),
    "filters": (lambda f, t: matched(f, t, how="semi", filters=True), "filters=True is for how='pairs' and how='lists'"),
    "id": (lambda f, t: matched(f, t, id="uid"), "there is no column 'uid'; there are: 'uuid', 'temp', "),
    "id in the index": (
        lambda f, t: matched(f.set_index("uuid"), t, id="uuid"),
        "'uuid' is the index of the frame, and no ",
    ),
    "id of rows": (lambda f, t: matched(f, t, id="uid", how="anti"), "there is no column 'uid'; there are: 'uuid'"),
    "location": (lambda f, t: matched(f, t, location="x,z"), "there is no column 'z'; there are: 'uuid', 'temp', "),
    "nulls": (lambda f, t: matched(f, t, id="city"), "column 'city' of the ids is null in row "),
    "own names": (
        lambda f, t: matched(f.rename(columns={"uuid": "interface"}), t, id="interface"),
        "answers have a column 'interface' of their own; rename",
    ),
    "no names": (lambda f, t: matched(f[["x"]], t), "no filter names a column of the frame; filters name 'city', 'temp'; "),
    "no columns": (
        lambda _, t: matched(pandas.DataFrame(), t),
        "no filter names a column of the frame; filters name 'city', ",
    ),
    "twice": (lambda f, t: matched(pandas.concat([f, f], axis=1), t), "two columns have the name 'temp'"),
    "id twice": (
        lambda f, t: matched(pandas.concat([f, f[["uuid"]]], axis=1), t, id="uuid"),
        "two columns have the name 'uuid'",
    ),
    "type": (lambda f, t: matched(f.assign(temp=pandas.Timedelta(1)), t), "the column 'temp' is of type duration"),
    "rows": (lambda f, t: matched([{"temp": 3}], t), "a frame is one of pandas, polars, Arrow or DuckDB, found list; "),
    "series": (lambda f, t: matched(f["temp"], t), "a frame is one of pandas, polars, Arrow or DuckDB, found Series; "),
    "table": (
        lambda f, t: matched(f, 3),  # type: ignore[arg-type]
        "a table is one of make_table or load_table, its path, an engine, or a LiveMatcher, ",
    ),
    "live": (
        lambda f, t: matched(f, mpi_match.open_engine("reference", t, live=True)),
        "the engine's table may have changed",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_have_one_line(mistake: str, columns: Any, table: Table) -> None:
    do, text = MISTAKES[mistake]
    with pytest.raises(ModelError) as caught:
        do(of_pandas(columns), table)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda f, t: mpi_match.make_table(f), "found DataFrame; a frame has rows too: to_dict('records') of pandas, "),
        (lambda f, t: mpi_match.make_batch(t, f["temp"]), "pyarrow cannot read the columns of a polars.Series ("),
        (lambda f, t: mpi_match.make_batch(t, f), "a polars.DataFrame (Invalid or unsupported format string: '_pli128')"),
        (lambda f, t: matched(f, t), "pyarrow cannot read the columns of a polars.DataFrame ("),
    ],
)
def test_what_arrow_does_not_read_has_one_line(do: Callable[[Any, Table], Any], text: str, table: Table) -> None:
    with pytest.raises(ModelError) as caught:
        do(polars.DataFrame({"temp": polars.Series([2**100], dtype=polars.Int128)}), table)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_not_there(columns: Any, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.h5: no such file"):
        matched(of_pandas(columns), tmp_path / "none.h5")


def test_a_path_an_engine_and_a_table_answer_alike(columns: Any, table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "table.h5")
    frame = pa.table(columns)
    engine = mpi_match.open_engine("counting", table)
    found = [rows(matched(frame, each, location="x,y").frame) for each in (table, engine, tmp_path / "table.h5")]
    assert found[0] == found[1] == found[2]


def test_a_table_written_again_is_read_again(table: Table, tmp_path: Path) -> None:
    path, frame = tmp_path / "table.h5", pa.table({"temp": [50]})
    table.save(path)
    assert rows(matched(frame, str(path)).frame) == [{"row": 0, "interface": "hot"}]
    make_table([{"interface": "other", "constraints": [["temp", "=", 50]]}]).save(path)
    assert rows(matched(frame, str(path)).frame) == [{"row": 0, "interface": "other"}]


@pytest.mark.parametrize("filters", [False, True])
def test_a_table_that_changes(columns: Any, filters: bool) -> None:
    """Ids of interfaces and filters are reused, and a new operand makes the vocabulary larger."""
    live = mpi_match.LiveMatcher(SUBSCRIPTIONS, engine="reference")
    new: list[dict[str, Any]] = [
        {"interface": "rome", "constraints": [["city", "=", "Rome"]], "id": "r"},
        {"interface": "warm", "constraints": []},
    ]
    live.update([{"remove_interface": "never"}, {"remove": "f-hot"}, *({"add": row} for row in new)])
    still = make_table([*SUBSCRIPTIONS[1:3], *new])
    do = partial(mpi_match.matched, pa.table(columns), location="x,y", filters=filters)
    (found, bad), (expected, bad_too) = do(live), do(still)
    assert bad == bad_too
    assert found.num_rows == expected.num_rows > 200
    pairs = [sorted(map(str, each.drop_columns("filter" if filters else []).to_pylist())) for each in (found, expected)]
    assert pairs[0] == pairs[1]
    lists = [
        [sorted(each or ()) for each in do(table, how="lists").frame["interfaces"].to_pylist()] for table in (live, still)
    ]
    assert lists[0] == lists[1]


def test_the_engines_of_the_last_two_tables_are_held(table: Table) -> None:
    held = HeldEngines()
    loaded: list[str] = []

    def load(key: str) -> Table:
        loaded.append(key)
        return table

    for key in "aabacab":
        held.get(key, partial(load, key))
    assert MOST_HELD == 2
    assert loaded == ["a", "b", "c", "b"]


def test_notebooks_show_both_frames(columns: Any, table: Table) -> None:
    shown = matched(of_pandas(columns), table, location="x,y")._repr_html_()
    assert shown.count("<table") == 2
    assert "set aside: 28" in shown
    fine = matched(pa.table({"temp": [50]}), table)._repr_html_()
    assert fine.startswith("<pre>")
    assert "set aside" not in fine


EVERYWHERE = make_table(
    [{"interface": "x", "constraints": [["*", "contains", "x"]]}, {"interface": "n", "constraints": [["n", ">", 3]]}]
)


@pytest.mark.parametrize("n", [1, 100])
def test_filters_on_all_strings_see_every_column(n: int) -> None:
    """Also those that no filter names; frames of numbers, of texts and of structs."""
    given = {"n": [1, 5, 6] * n, "s": ["ax", "b", None] * n, "deep": [{"t": ["y"]}, {"t": ["", "x"]}, None] * n}
    expected = [["x"], ["n", "x"], ["n"]] * n
    for frame in (pa.table(given), pandas.DataFrame(given), polars.DataFrame(given)):
        assert mpi_match.match(EVERYWHERE, frame).labels(EVERYWHERE.labels) == expected
        found = mpi_match.matched(frame, EVERYWHERE, how="lists").frame
        assert (
            [sorted(each) for each in found["interfaces"].to_pylist()] == expected if isinstance(frame, pa.Table) else True
        )
        numbers = frame.select(["n"]) if isinstance(frame, (pa.Table, polars.DataFrame)) else frame[["n"]]
        assert mpi_match.match(EVERYWHERE, numbers).labels(EVERYWHERE.labels) == [[], ["n"], ["n"]] * n
    assert mpi_match.match(EVERYWHERE, {"n": [1], "s": ["x"]}).labels(EVERYWHERE.labels) == [["x"]]


METADATA: dict[str, dict[str, Any]] = {
    "f-hot": {"owner": "Jörg\n", "severity": 2**62 + 1, "on": True, "groups": ["a", None], "weight": 1},
    "f-milan": {"severity": None, "weight": 2.5, "sizes": []},
}


def test_metadata_of_subscriptions_are_columns_of_answers_by_filter(columns: Any, tmp_path: Path) -> None:
    """In memory, from a file that the judge of the format takes, and behind changes."""
    named = [*SUBSCRIPTIONS[:2], SUBSCRIPTIONS[2] | {"id": "f-milan"}]
    table = make_table(named, metadata=METADATA)
    table.save(tmp_path / "table.h5")
    assert format_judge.table(tmp_path / "table.h5").digest == table.digest == Table.load(tmp_path / "table.h5").digest
    do = partial(matched, location="x,y", id="uuid")
    plain = do(pa.table(columns), make_table(named), filters=True).frame
    assert set(plain["filter_id"].to_pylist()) == {"f-hot", None, "f-milan"}
    names = ["owner", "severity", "on", "groups", "weight", "sizes"]
    expected = [row | dict.fromkeys(names) | METADATA.get(row["filter_id"] or "", {}) for row in plain.to_pylist()]
    for each in (table, tmp_path / "table.h5"):
        found = do(pa.table(columns), each, filters=True).frame
        assert found.to_pylist() == expected
        kinds = ["string", "int64", "bool", "list<item: string>", "double", "list<item: string>"]
        assert list(map(str, found.schema.types[-6:])) == kinds
    of_polars = do(polars.from_arrow(pa.table(columns)), table, filters=True).frame
    assert of_polars.select(plain.column_names).to_dicts() == plain.to_pylist()
    assert of_polars["severity"].dtype == polars.Int64
    assert do(pa.table(columns), table).frame.column_names == ["uuid", "interface"]

    live = mpi_match.LiveMatcher(table, engine="reference")
    live.update([{"remove": "f-hot"}, {"add": {"interface": "hot", "constraints": [["temp", ">", 500]], "id": "new"}}])
    found = do(pa.table(columns), live, filters=True).frame.to_pylist()
    assert {(row["filter_id"], row["weight"]) for row in found} == {(None, None), ("f-milan", 2.5)}


def test_a_new_version_has_the_metadata_of_the_ids_that_stay(tmp_path: Path) -> None:
    table = make_table([{"interface": "a", "constraints": [], "id": i} for i in "rs"], metadata={i: {"n": 1} for i in "rs"})
    table.save(tmp_path / "t.h5")
    (tmp_path / "changes.jsonl").write_text('{"remove": "r"}\n{"add": {"interface": "a", "constraints": [], "id": "t"}}\n')
    made = Table.load(update_table(tmp_path / "t.h5", [str(tmp_path / "changes.jsonl")]).table)
    assert made.metadata is not None
    assert list(made.metadata.pairs()) == [(b"s", b'{"n":1}')]
    with pytest.raises(StorageError, match=r"nowhere\.h5: no such file$"):  # and not that a name for the next is taken
        update_table(tmp_path / "nowhere.h5", [str(tmp_path / "changes.jsonl")])


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"f-hot": {"a": 1}, "f": {"a": "x"}}, "metadata 'a' of 'f': is of another type than others"),
        ({"f-hot": {"a": {"b": 1}}}, "metadata 'a' of 'f-hot': is dict {'b': 1}; metadata are texts"),
        ({"f-hot": {"a": 2**63}}, "metadata 'a' of 'f-hot': is int 9223372036854775808; metadata are"),
        ({"f-hot": {"a": [[1]]}}, "metadata 'a' of 'f-hot': is a list of lists"),
        ({"f-hot": {"a": float("nan")}}, "metadata has a number that is not finite"),
        ({"f-hot": {"row": 1}}, "metadata cannot be called 'row'"),
        ({"f-hot": 1}, "metadata has a dict for each id"),
        ({"other": {"a": 1}}, "metadata has the id 'other', which no subscription has"),
        ({1: {"a": 1}, "1": {"a": 2}}, "metadata has the id '1' twice, as an integer and as a text"),
        ({1.5: {"a": 1}}, "id must be a string or an integer, found float 1.5"),
    ],
)
def test_mistakes_in_metadata_have_one_line(metadata: Any, text: str) -> None:
    with pytest.raises(ModelError, match=re.escape(text)) as caught:
        make_table(SUBSCRIPTIONS, metadata=metadata)
    assert "\n" not in str(caught.value)


def test_an_integer_is_the_id_of_its_digits_in_metadata_too() -> None:
    table = make_table([{"interface": "i", "constraints": [["temp", ">", 30]], "id": 7}], metadata={7: {"owner": "ops"}})  # type: ignore[dict-item]
    found = matched(pa.table({"temp": [50]}), table, filters=True).frame.to_pylist()
    assert [(row["filter_id"], row["owner"]) for row in found] == [("7", "ops")]


def test_metadata_that_a_frame_has_too_and_damaged_ones_are_refused() -> None:
    table = make_table(SUBSCRIPTIONS, metadata={"f-hot": {"temp": 1}})
    with pytest.raises(ModelError, match="the metadata of the table have a column 'temp' too; rename that of the frame"):
        matched(pa.table({"temp": [50]}), table, id="temp", filters=True)
    assert table.metadata is not None
    for text in (b'{"temp":"x"}', b'{"other":1}', b'{"temp":1} {"temp":2}', b"{}}"):
        damaged = replace(table, metadata=replace(table.metadata, rows=Strings.of([text])))
        with pytest.raises(ModelError, match="metadata of the table are not "):
            matched(pa.table({"temp": [50]}), damaged, filters=True)


def test_rows_of_views_are_taken_as_those_of_strings() -> None:
    view, table = pa.string_view(), make_table([{"interface": "milan", "constraints": [["city", "=", "Milan"]]}])
    events = pa.table(
        {
            "city": pa.array(["Rome", "Milan", None], view),
            "id": pa.array(["a", "b", "c"], view),
            "tags": pa.array([["x", None], None, []], pa.list_(view)),
            "at": pa.array(
                [None, {"x": "y", "z": [["q"]]}, None], pa.struct([("x", view), ("z", pa.list_(pa.list_(view)))])
            ),
        }
    )
    assert matched(events, table, id="id").frame.to_pylist() == [{"id": "b", "interface": "milan"}]
    for how, rows in (("semi", [1]), ("anti", [0, 2])):
        assert matched(events, table, how=how).frame.equals(pa.concat_tables([events.slice(i, 1) for i in rows]))
    ends = pa.RunEndEncodedArray.from_arrays([3], ["x"])
    with pytest.raises(ModelError, match="pyarrow takes no rows of a column of type run_end_encoded"):
        matched(events.append_column("ends", ends), table, how="semi")


def test_columns_that_only_case_tells_apart_are_refused_in_duckdb(table: Table) -> None:
    relation = duckdb.connect().sql("select 31 as temp, 5 as Temp, 6 as other")
    with pytest.raises(ModelError, match=r"DuckDB ignores case and finds 'temp' in several columns: .*; rename"):
        matched(relation, table)
