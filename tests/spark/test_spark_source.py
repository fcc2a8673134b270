"""The format `mpi-match` of `spark.read` and `df.write` on real Spark: what is written reads back, or nothing is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import format_judge
import numpy as np
import pytest

import mpi_match
from mpi_match import make_table
from mpi_match.arrays.strings import Strings
from mpi_match.commands.compile_locally import compile_events_locally
from mpi_match.events.event_table import EventTable
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.to_json import event_rows
from mpi_match.matches.file import MatchesWriter
from mpi_match.table.table import Table

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import spark_prep
from spark_prep import CompileOptions
from spark_prep.data_source import MpiMatchSource
from spark_prep.held_events import FEW_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
FORMAT = "mpi-match"
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "hot", "constraints": [["temp", ">", 30]], "id": "f-hot"},
    {"interface": "hot", "constraints": [["temp", ">", 100]]},
    {"interface": "milan", "where": {"or": [["city", "=", "Milan"], ["n", "=", 2**53 + 1]]}, "area": [0, 0, 5]},
]
EVENTS: list[dict[str, Any]] = [
    {"uuid": "a", "temp": 31, "city": "Milan", "n": 2**53 + 1, "x": 1.5, "y": 0, "tags": ["p", "q"], "odd": 1},
    {"uuid": "b", "temp": 20.5, "ok": True, "sizes": [1, 2], "odd": "one", "x": 0, "y": 0},
    {"uuid": "c", "temp": None, "big": 2**63 + 1, "sizes": [], "odd": [True, "x"]},
    {"uuid": "d", "x": 1},
]
FORM = EventForm(("x", "y"), "uuid")


@pytest.fixture(scope="module")
def known(spark: SparkSession) -> SparkSession:
    spark_prep.register(spark)
    return spark


@pytest.fixture(scope="module")
def table() -> Table:
    return make_table(SUBSCRIPTIONS, metadata={"f-hot": {"severity": 3}})


@pytest.fixture
def place(tmp_path: Path, table: Table) -> Path:
    """A directory with a table and an event table."""
    table.save(tmp_path / "table.h5")
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in EVENTS))
    compile_events_locally([str(tmp_path / "events.jsonl")], tmp_path / "table.h5", tmp_path / "events.h5", FORM)
    return tmp_path


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load(str(path))


def save(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format(FORMAT).mode(mode).options(**options).save(str(path))


def arrays(path: Path) -> dict[str, list[Any]]:
    return {name: array.tolist() for name, array in Table.load(path).arrays()}


def names_in(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def test_a_table_is_rows_from_which_it_is_made_again(known: SparkSession, rows: Any, tmp_path: Path) -> None:
    make_table(rows, rejects=[]).save(tmp_path / "table.h5")
    read = load(known, tmp_path / "table.h5")
    assert read.columns == ["interface", "constraints", "where", "area", "id"]
    save(read.repartition(5), tmp_path / "again.h5")
    assert arrays(tmp_path / "again.h5") == arrays(tmp_path / "table.h5")
    assert names_in(tmp_path) == {"table.h5", "again.h5"}


def test_other_columns_are_metadata_that_answers_show(known: SparkSession, tmp_path: Path) -> None:
    """Compiled by a job and by the format, read and shown by both, and by a desk."""
    n = 2 * FEW_ROWS
    frame = known.createDataFrame(
        [(f"r{i % 7}", f"f{i}", f"n = {i}", f"o{i}", i, [i / 2], math.nan if i == 3 else 1.0) for i in range(n)]
        + [("r", None, "n = 1", "lost", 1, None, None)],
        "rule string, id string, condition string, owner string, severity int, scores array<float>, weight double",
    ).repartition(3)
    path, options = tmp_path / "table.h5", {"interface": "rule", "where": "condition"}
    summary = spark_prep.compile_subscriptions(frame, path, CompileOptions(partitions=2), **options)
    assert (summary.rejected, summary.filters) == (1, n)
    assert summary.metadata == ("owner", "severity", "scores", "weight")
    assert format_judge.table(path).digest == Table.load(path).digest
    save(frame, tmp_path / "other.h5", **options)
    save(load(known, path).repartition(3), tmp_path / "again.h5")
    for name in ("other.h5", "again.h5"):
        other, made = arrays(tmp_path / name), arrays(path)
        assert [each for each in made if other[each] != made[each]] == [], name  # a difference of long lists takes hours
    expected = {i: (f"o{i}", i, [i / 2], 1.0) for i in range(n) if i != 3}
    read = load(known, path)
    assert [kind for _, kind in read.dtypes[5:]] == ["string", "bigint", "array<double>", "double"]
    rows = {row["id"]: tuple(row)[5:] for row in read.collect()}
    assert rows == {None: (None,) * 4} | {f"f{i}": row for i, row in expected.items()}

    events = known.range(n).withColumnRenamed("id", "n")
    found = {row["n"]: tuple(row)[4:] for row in spark_prep.matched(events, path, id="n", filters=True).collect()
             if row["filter_id"]}  # fmt: skip
    assert found == expected
    versions = tmp_path / "versions"
    versions.mkdir()
    planned = {"owner": "o", "gone": 1}
    make_table([{"interface": "a", "constraints": [], "id": "f"}], metadata={"f": planned}).save(versions / "1.h5")
    answers = spark_prep.matched(known.range(1), versions, keep=["id"], filters=True)
    later = make_table([{"interface": "a", "constraints": [], "id": "f"}], metadata={"f": {"new": 1, "owner": "p"}})
    later.save(versions / "2.h5")
    assert [row.asDict() for row in answers.select("owner", "gone", "_table_version").collect()] == [
        {"owner": "p", "gone": None, "_table_version": "2.h5"}
    ]
    make_table([{"interface": "a", "constraints": [], "id": "f"}], metadata={"f": {"owner": 1}}).save(versions / "3.h5")
    with pytest.raises(Exception, match="the metadata 'owner' of the newest version are of another type than planned"):
        answers.collect()


def test_a_large_table_is_read_in_ranges(
    known: SparkSession, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.datasource import InputPartition

    from spark_prep import source_reading

    monkeypatch.setattr(source_reading, "READ_FILTERS", 100)
    monkeypatch.setattr(source_reading, "READ_ROWS", 30)
    table = make_table(rows, rejects=[])
    table.save(tmp_path / "table.h5")
    schema = source_reading.schema_of("table", tmp_path / "table.h5", {})
    reader: Any = source_reading.reader_of("table", tmp_path / "table.h5", {}, schema, schema)
    pieces = reader.partitions()
    assert len(pieces) > 4
    assert isinstance(pieces[0], InputPartition)
    found = [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]
    again = make_table(
        {
            name: json.loads(value) if name in ("constraints", "where") else value
            for name, value in row.items()
            if value is not None
        }
        for row in found
    )
    assert again.digest == table.digest


def test_events_are_columns_of_their_types(known: SparkSession, place: Path) -> None:
    read = load(known, place / "events.h5", id="uuid", location="x,y", number="n_of")
    assert [(name, kind) for name, kind in read.dtypes] == [
        *(("x", "double"), ("y", "double"), ("uuid", "string"), ("n_of", "bigint"), ("big", "string")),
        *(("city", "string"), ("n", "bigint"), ("odd", "string"), ("ok", "boolean"), ("sizes", "array<bigint>")),
        *(("tags", "array<string>"), ("temp", "double")),
    ]
    found = {
        row["uuid"]: {name: value for name, value in row.asDict().items() if value is not None} for row in read.collect()
    }
    assert found == {
        "a": {"uuid": "a", "n_of": 0, "x": 1.5, "y": 0.0, "temp": 31.0, "city": "Milan", "n": 2**53 + 1, "tags": ["p", "q"],
              "odd": "1"},
        "b": {"uuid": "b", "n_of": 1, "x": 0.0, "y": 0.0, "temp": 20.5, "ok": True, "sizes": [1, 2], "odd": '"one"'},
        "c": {"uuid": "c", "n_of": 2, "big": str(2**63 + 1), "sizes": [], "odd": '[true, "x"]'},
    }  # fmt: skip


def test_events_that_are_written_read_back(known: SparkSession, place: Path, table: Table) -> None:
    read = load(known, place / "events.h5", id="uuid", location="x,y").drop("odd", "big").repartition(3)
    save(read, place / "again.h5", table=str(place / "table.h5"), id="uuid", location="x,y")
    with EventTable(place / "again.h5", table.vocabulary) as made:
        assert made.encoded_for_vocabulary
        rows = [row for part in range(made.n_parts) for row in event_rows(made.raw_part(part), FORM)]
    expected = [{k: v for k, v in row.items() if v is not None and k not in ("odd", "big")} for row in EVENTS[:3]]
    plain = [{k: v for k, v in row.items() if v is not None} for row in rows if row is not None]
    assert sorted(plain, key=lambda row: str(row["uuid"])) == expected
    assert names_in(place / "again.h5.parts")


@pytest.mark.parametrize("unit", ["interface", "filter"])
def test_answers_are_pairs(unit: str, known: SparkSession, place: Path, table: Table) -> None:
    with EventTable(place / "events.h5", table.vocabulary) as events:
        answers = mpi_match.open_engine("keyed", table).match(events.batch(0, 4), filters=unit == "filter")
    labels = table.labels if unit == "interface" else Strings.of(())
    with MatchesWriter(
        place / "answers.h5", answers.n_ids, labels, unit, with_event_ids=True, table_digest=table.digest
    ) as writer:
        writer.append(answers, Strings.of([b"a", b"", b"c", b"d"]))
    options = {"table": str(place / "table.h5")} if unit == "filter" else {}
    found = [tuple(row) for row in load(known, place / "answers.h5", **options).collect()]
    assert found == {
        "interface": [(0, "a", "hot"), (0, "a", "milan")],
        "filter": [(0, "a", 0, "hot", "f-hot", 3), (0, "a", 2, "milan", None, None)],
    }[unit]  # fmt: skip


def test_bad_rows_are_set_aside_and_replaced_by_those_of_the_next(known: SparkSession, tmp_path: Path) -> None:
    rules = known.createDataFrame(
        [("a", "temp > 1"), ("b", "temp >"), (None, "temp > 2")], "rule string, condition string"
    ).repartition(2)
    save(rules, tmp_path / "table.h5", interface="rule", where="condition", id="rule")
    assert [label.decode() for label in Table.load(tmp_path / "table.h5").labels] == ["a"]
    bad = [json.loads(line) for file in (tmp_path / "table.h5.rejects").iterdir() for line in file.read_text().splitlines()]
    assert [list(row) for row in bad] == [["reason", "file", "line", "row"]] * 2
    assert {json.loads(row["row"])["predicate" if "predicate" in row["row"] else "where"] for row in bad} == {
        "temp >",
        "temp > 2",
    }
    save(rules.where("rule = 'a'"), tmp_path / "table.h5", "overwrite", interface="rule", where="condition", id="rule")
    assert names_in(tmp_path) == {"table.h5"}


def test_a_task_that_fails_leaves_nothing(known: SparkSession, place: Path) -> None:
    before = names_in(place)

    def fail_in_one(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if 9_999 in batch.column(0).to_pylist():
                raise ValueError("lost")

    frame = known.range(10_000).selectExpr("id as n", "1.0 as temp").repartitionByRange(2, "n")
    failing = frame.mapInArrow(fail_in_one, frame.schema)
    with pytest.raises(Exception, match="lost"):
        save(failing, place / "new.h5", table=str(place / "table.h5"))
    assert names_in(place) == before
    digest = Table.load(place / "table.h5").digest
    rules = known.createDataFrame([(None,)], "interface string")
    with pytest.raises(Exception, match="1 of 1 rows are bad, and strict allows none: a subscription needs an 'interface'"):
        save(rules, place / "table.h5", "overwrite", strict="true")
    assert Table.load(place / "table.h5").digest == digest
    assert names_in(place) == before


def ddl(schema: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(schema)


def reads(path: Path, *schema: str, **options: str) -> Any:
    """As Spark plans a read."""
    source = MpiMatchSource({"path": str(path), **options})
    return source.reader(ddl(*schema)) if schema else source.schema()


def writes(path: Path, schema: str, *, overwrite: bool = False, **options: str) -> Any:
    """As Spark plans a write."""
    return MpiMatchSource({"path": str(path), **options}).writer(ddl(schema), overwrite)


MISTAKES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda p: reads(p / "none.h5"), "none.h5: no such file"),
    "rows": (lambda p: reads(p / "events.jsonl"), "events.jsonl: is none of our files; the format 'mpi-"),
    "path": (lambda p: MpiMatchSource({}).schema(), "the format 'mpi-match' needs a path: load('table.h5'), "),
    "option": (lambda p: reads(p / "table.h5", ID="uuid"), "there is no option 'id' for reading a table; there are"),
    "id": (lambda p: reads(p / "events.h5"), "these events have a location; name the column for it: option('loca"),
    "taken": (lambda p: reads(p / "events.h5", id="temp", location="x,y"), "the events have an attribute 'temp' too; give "),
    "no column": (lambda p: reads(p / "table.h5", "temp string"), "has no column 'temp'; there are: 'interface', "),
    "type": (lambda p: reads(p / "table.h5", "id bigint"), "the column 'id' is of type string, not bigint; "),
    "append": (lambda p: writes(p / "table.h5", "interface string"), "table.h5: exists and cannot be appended to"),
    "columns": (lambda p: writes(p / "t.h5", "temp double"), "the column 'temp' is none of a subscription; name the col"),
    "events": (lambda p: writes(p / "t.h5", "temp double"), "; for events name their table: option('table', PATH)"),
    "renamed": (lambda p: writes(p / "t.h5", "rule string", interface="id"), "there is no column 'id' for 'interface'; "),
    "strict": (lambda p: writes(p / "t.h5", "interface string", strict="yes"), "the option 'strict' is true or"),
    "no names": (lambda p: writes(p / "e.h5", "id bigint", table=f"{p}/table.h5"), "no filter names a column"),
    "date": (lambda p: writes(p / "e.h5", "temp date", table=f"{p}/table.h5"), "the column 'temp' is of type date"),
    "location": (lambda p: writes(p / "e.h5", "temp double", table=f"{p}/table.h5", location="x,y"), "no column 'x'; "),
    "no directory": (lambda p: writes(p / "none" / "t.h5", "interface string"), "does not exist; create it first"),
    "rejects": (lambda p: writes(p / "t.h5", "interface string", rejects=f"{p}/table.h5"), "exists and is not a rejects "),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_have_one_line_and_write_nothing(mistake: str, place: Path) -> None:
    do, text = MISTAKES[mistake]
    before = names_in(place)
    with pytest.raises(mpi_match.errors.MpiMatchError) as caught:
        do(place)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names_in(place) == before


def test_the_line_is_the_last_that_spark_says(known: SparkSession, place: Path) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as caught:
        load(known, place / "none.h5")
    lines = [line for line in str(caught.value).splitlines() if line.strip() and "SQLSTATE" not in line]
    assert lines[-1].endswith(f"{place / 'none.h5'}: no such file")


def test_streams_are_refused_in_a_line(known: SparkSession, place: Path, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    stream = known.readStream.format("rate").load()
    reading = known.readStream.format("mpi-match").load(str(place / "table.h5")).writeStream.format("noop")
    writing = stream.writeStream.format("mpi-match").option("path", str(tmp_path / "o.h5"))
    for each, said in (
        (reading, "'mpi-match' reads no stream; spark.read"),
        (writing, "'mpi-match' writes no stream; write"),
    ):
        with pytest.raises(PySparkException, match=said):
            each.option("checkpointLocation", str(tmp_path / said.split()[1])).start().awaitTermination()


def test_a_directory_of_versions_means_the_newest(known: SparkSession, tmp_path: Path, table: Table) -> None:
    table.save(tmp_path / "t-1.h5")
    make_table([{"interface": "new", "constraints": []}]).save(tmp_path / "t-2.h5")
    assert [tuple(row) for row in load(known, tmp_path).select("interface", "constraints").collect()] == [("new", "[]")]


def test_exact_integers_are_not_rounded() -> None:
    from spark_prep.source_reading import _Kinds

    assert _Kinds(frozenset("wr"), None).type.simpleString() == "bigint"  # type: ignore[union-attr]
    assert _Kinds(frozenset("rd"), None).type is None
    assert _Kinds(frozenset("wd"), None).type.simpleString() == "double"  # type: ignore[union-attr]
    assert (_Kinds(frozenset(), frozenset("w")) | _Kinds(frozenset("s"), None)).type is None
    assert np.float64(2**53 + 1) == 2**53
