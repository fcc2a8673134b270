"""`spark_prep.matched` on real Spark: batches and streams; answers are those of `mpi_match.matched`."""

from __future__ import annotations

import datetime
import random
import shutil
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mpi_match
from mpi_match import StorageError, make_table
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.table import Table

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from spark_prep import SparkPrepError, matched  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "hot", "constraints": [["temp", ">", 30]], "id": "f-hot"},
    {"interface": "hot", "constraints": [["temp", ">", 100]]},
    {"interface": "milan", "constraints": [["city", "=", "Milan"]], "area": [0, 0, 5]},
]
SCHEMA = "uuid string, temp double, city string, x double, y double, when date, tags array<string>"
OTHER = make_table([{"interface": "cold", "constraints": [["temp", "<", 30]]}])


@pytest.fixture(scope="module")
def table() -> Table:
    return make_table(SUBSCRIPTIONS)


@pytest.fixture(scope="module")
def columns() -> dict[str, list[Any]]:
    """Events; every seventh is a bad one."""
    dice, n = random.Random(5), 300
    return {
        "uuid": [f"e{i}" for i in range(n)],
        "temp": [dice.choice([None, 20.0, 31.0, 200.0]) for _ in range(n)],
        "city": [dice.choice(("Milan", "Rome", None)) for _ in range(n)],
        "x": [dice.uniform(0, 6) for _ in range(n)],
        "y": [None if i % 7 == 6 else 0.0 for i in range(n)],
        "when": [None] * n,
        "tags": [["a"]] * n,
    }


@pytest.fixture(scope="module")
def frame(spark: SparkSession, columns: dict[str, list[Any]]) -> DataFrame:
    return spark.createDataFrame(list(zip(*columns.values(), strict=True)), SCHEMA).repartition(5)


def rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a DataFrame of Spark or a table of Arrow, in an order of their own."""
    found = [row.asDict() for row in frame.collect()] if hasattr(frame, "collect") else frame.to_pylist()
    return sorted(found, key=str)


@pytest.mark.parametrize("filters", [False, True])
@pytest.mark.parametrize("how", ["pairs", "lists"])
def test_answers_are_those_on_a_desk(how: str, filters: bool, frame: DataFrame, columns: Any, table: Table) -> None:
    desk, bad = mpi_match.matched(pa.table(columns), table, location="x,y", id="uuid", how=how, filters=filters)
    rejects = dict(zip(bad["uuid"].to_pylist(), bad["reason"].to_pylist(), strict=True))
    good = [row for row in rows(desk) if row["uuid"] not in rejects]
    do = partial(matched, frame, table, location="x,y", id="uuid", how=how, filters=filters)
    assert rows(do(rejects="drop")) == good
    found = rows(do(rejects="rows"))
    assert [{k: v for k, v in row.items() if k != "_reject"} for row in found if row["_reject"] is None] == good
    assert {row["uuid"]: row["_reject"] for row in found if row["_reject"] is not None} == rejects
    assert len(found) == len(good) + len(rejects) > len(rejects) > 40


def test_semi_anti_and_rejects_divide_the_frame(frame: DataFrame, table: Table) -> None:
    semi, anti = (rows(matched(frame, table, location="x,y", how=how, rejects="drop")) for how in ("semi", "anti"))
    with_bad = rows(matched(frame, table, location="x,y", how="semi", rejects="rows"))
    bad = [row for row in with_bad if row.pop("_reject") is not None]
    assert sorted(semi + anti + bad, key=str) == rows(frame)
    assert min(map(len, (semi, anti, bad))) > 10


def test_a_bad_row_makes_the_job_fail_unless_told(frame: DataFrame, table: Table) -> None:
    with pytest.raises(
        Exception, match=r"uuid = 'e\d+': the location needs both 'x' and 'y'; 'y' is absent; rejects='rows'"
    ):
        matched(frame.coalesce(1), table, location="x,y", id="uuid").collect()


def test_a_row_without_an_id_is_rejected(spark: SparkSession, table: Table) -> None:
    frame = spark.createDataFrame([(None, 50.0), ("e", 50.0)], "uuid string, temp double")
    reason = "column 'uuid' of the ids is null"
    assert rows(matched(frame, table, id="uuid", rejects="rows")) == [
        {"uuid": "e", "interface": "hot", "_reject": None},
        {"uuid": None, "interface": None, "_reject": reason},
    ]
    assert rows(matched(frame, table, id="uuid", rejects="drop")) == [{"uuid": "e", "interface": "hot"}]


def test_columns_are_kept_along(spark: SparkSession, table: Table) -> None:
    frame = spark.createDataFrame([("e", 50.0, {"k": 1}, 3)], "uuid string, temp double, `a.b` map<string, int>, n int")
    assert rows(matched(frame, table, keep=["a.b", "n"])) == [{"a.b": {"k": 1}, "n": 3, "interface": "hot"}]


def test_filters_of_a_table_without_ids(frame: DataFrame) -> None:
    found = matched(frame, OTHER, id="uuid", filters=True).collect()
    assert {tuple(row)[1:] for row in found} == {("cold", 0, None)}


def test_names_that_differ_by_case_are_two_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, "ax", 40.0)], "TEMP double, `a.b` string, temp double")
    assert spark.conf.get("spark.sql.caseSensitive") == "false"
    both = [
        {"interface": "low", "constraints": [["TEMP", "=", 1]]},
        {"interface": "high", "constraints": [["temp", "=", 40]]},
    ]
    assert rows(matched(frame, make_table(both), keep=["a.b"])) == [
        {"a.b": "ax", "interface": "high"},
        {"a.b": "ax", "interface": "low"},
    ]


def test_filters_on_all_strings_read_every_column(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("e", "ax", {"t": "z"}, 1), ("f", "b", {"t": "x"}, 2)], "uuid string, s string, d struct<t: string>, n int"
    )
    every = make_table([{"interface": "x", "constraints": [["*", "contains", "x"]]}])
    assert {row["uuid"] for row in rows(matched(frame, every, id="uuid"))} == {"e", "f"}


def test_columns_of_all_types_are_kept_along(spark: SparkSession, table: Table) -> None:
    types = "temp int, at timestamp, local timestamp_ntz, day date, b binary, s struct<p: int, q: string>, d decimal(10, 2)"
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    frame = spark.createDataFrame([(40, at, at, at.date(), b"x", (1, "u"), Decimal("1.25"))], types)
    assert matched(frame, table, how="semi").collect() == frame.collect()
    assert matched(frame, table, keep=frame.columns[1:]).drop("interface").collect() == frame.drop("temp").collect()


def test_it_only_plans_and_reads_only_what_is_named(
    spark: SparkSession, frame: DataFrame, table: Table, tmp_path: Path
) -> None:
    frame.write.parquet(str(tmp_path / "events"))
    ran = spark.sparkContext.statusTracker().getJobIdsForGroup()
    planned = matched(spark.read.schema(SCHEMA).parquet(str(tmp_path / "events")), table, id="uuid")
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == ran
    plan = planned._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<uuid:string,temp:double,city:string>" in plan, plan


def test_a_table_in_a_file_and_many_empty_partitions(frame: DataFrame, table: Table, tmp_path: Path) -> None:
    table.save(tmp_path / "table.h5")
    do = partial(matched, location="x,y", id="uuid", rejects="drop")
    assert rows(do(frame.repartition(20).limit(3), str(tmp_path / "table.h5"))) is not None
    assert rows(do(frame, tmp_path / "table.h5")) == rows(do(frame, table))
    assert rows(do(frame.where("false"), tmp_path / "table.h5")) == []


def test_rules_are_a_data_frame_too(spark: SparkSession, frame: DataFrame) -> None:
    """With their metadata; a bad one is an error at once."""
    few = [("hot", "temp > 30", "f-hot", "ops"), ("milan", "city = 'Milan'", "m", "it")]
    many = [("never", f"temp = {-i}", f"f{i}", "") for i in range(1, 300)]
    schema = "interface string, where string, id string, owner string"
    rules = spark.createDataFrame([*few, *many, ("hot", '["temp", ">", 100]', "", "")], schema)
    rules = rules.replace([""], [None]).repartition(3)
    do = partial(matched, frame, id="uuid", filters=True)
    same: list[dict[str, Any]] = [
        *({"interface": label, "predicate": text, "id": id_} for label, text, id_, _ in (*few, *many)),
        SUBSCRIPTIONS[1],
    ]
    metadata = {id_: {"owner": owner or None} for _, _, id_, owner in (*few, *many)}
    found = rows(do(rules))
    assert found == rows(do(make_table(same, metadata=metadata)))
    assert {row["owner"] for row in found} == {"ops", "it", None}
    with pytest.raises(SparkPrepError, match=r"a rule is bad: .*temp >"):
        do(rules.replace(["temp > 30"], ["temp >"]))


def test_a_file_that_was_replaced_is_not_taken_for_the_table_of_the_plan(frame: DataFrame, tmp_path: Path) -> None:
    make_table([{"interface": "no other test's", "constraints": [["temp", "=", 1]]}]).save(tmp_path / "table.h5")
    planned = matched(frame.coalesce(1), tmp_path / "table.h5", id="uuid")
    make_table([{"interface": "a", "constraints": [["replaced", "=", 1]]}]).save(tmp_path / "table.h5")
    with pytest.raises(Exception, match="is not the table that the plan was made for; plan again"):
        planned.collect()


MISTAKES: dict[str, tuple[Callable[[Any, Table], Any], str]] = {
    "frame": (lambda f, t: matched(pa.table({}), t), "matched takes a DataFrame of Spark, found pyarrow.Table; "),
    "how": (lambda f, t: matched(f, t, how="left"), "how is one of 'pairs', 'lists', 'semi', 'anti', found str 'left'"),
    "rejects": (lambda f, t: matched(f, t, rejects="no"), "rejects is one of 'fail', 'rows', 'drop', found str 'no'"),
    "no id": (lambda f, t: matched(f, t), "rows of a DataFrame have no numbers; name the column to join by, id="),
    "id": (lambda f, t: matched(f, t, id="uid"), "there is no column 'uid'; there are: 'uuid', 'temp', "),
    "keep": (lambda f, t: matched(f, t, keep=["uid"]), "there is no column 'uid'; there are: 'uuid', 'temp', "),
    "keep a text": (lambda f, t: matched(f, t, keep="uuid"), "keep is a list of names of columns, found str 'uuid'"),
    "keep rows": (lambda f, t: matched(f, t, keep=["uuid"], how="semi"), "keep is for how='pairs' and how='lists'; "),
    "location": (lambda f, t: matched(f, t, id="uuid", location="x,z"), "there is no column 'z'; there are: 'uuid', "),
    "a date": (lambda f, t: matched(f.withColumnRenamed("temp", "t").withColumnRenamed("when", "temp"), t, id="uuid"),
               "the column 'temp' is of type date32[day], and filters, "),
    "no names": (lambda f, t: matched(f.select("uuid", "x"), t, id="uuid"), "no filter names a column of the frame; "),
    "twice": (lambda f, t: matched(f.join(f.select("uuid", "temp"), "uuid"), t, id="uuid"), "two columns have the name "),
    "own names": (lambda f, t: matched(f.withColumnRenamed("uuid", "interface"), t, id="interface"), "answers have a "),
    "a reject": (lambda f, t: matched(f.withColumnRenamed("uuid", "_reject"), t, id="_reject", rejects="rows"),
                 "the result would have two columns '_reject'; rename"),
    "table": (lambda f, t: matched(f, 3, id="uuid"), "a table is one of make_table or load_table, a path, or a Dat"),
    "rules": (lambda f, t: matched(f, f, id="uuid"), "the column 'uuid' is none of a subscription; name the colum"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_have_one_line_before_the_job(mistake: str, frame: DataFrame, table: Table) -> None:
    do, text = MISTAKES[mistake]
    with pytest.raises(SparkPrepError) as caught:
        do(frame, table)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_not_there(frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.h5: no such file"):
        matched(frame, tmp_path / "none.h5", id="uuid")
    with pytest.raises(StorageError, match=r"holds no version of a table"):
        matched(frame, tmp_path, id="uuid")


def test_a_worker_that_is_killed_loses_and_repeats_nothing(frame: DataFrame, table: Table, tmp_path: Path) -> None:
    mark = str(tmp_path / "killed")
    copies = frame.crossJoin(frame.sparkSession.range(60)).coalesce(2)

    def kill_once(batches: Any) -> Any:
        """Kills its process in the middle of the first task that comes so far."""
        import os
        import signal

        for i, batch in enumerate(batches):
            yield batch
            if i == 0:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

    uneasy = copies.mapInArrow(kill_once, copies.schema)
    do = partial(matched, table=table, id="uuid", rejects="drop")
    expected = rows(do(copies))
    assert rows(do(uneasy)) == expected
    assert Path(mark).exists()
    assert len(expected) > 10_000


# Streams


def test_a_stream_is_matched_and_takes_up_new_versions(
    spark: SparkSession, frame: DataFrame, table: Table, tmp_path: Path
) -> None:
    tables, source, sink = tmp_path / "tables", tmp_path / "in", tmp_path / "out"
    tables.mkdir()
    source.mkdir()

    def publish(version: Table, name: str) -> None:
        version.save(tmp_path / "new.h5")
        (tmp_path / "new.h5").rename(tables / name)

    def feed(name: str) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(str(tmp_path / "batch"))
        (written,) = (tmp_path / "batch").glob("*.parquet")
        shutil.move(written, source / f"{name}.parquet")

    publish(table, "table-1.h5")
    stream = spark.readStream.schema(SCHEMA).parquet(str(source))
    planned = matched(stream, tables, location="x,y", id="uuid", rejects="rows")
    assert planned.isStreaming
    query = (
        planned.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "log")).start(str(sink))
    )  # fmt: skip
    try:
        for name, new in (("a", None), ("b", None), ("c", OTHER)):
            if new is not None:
                publish(new, "table-2.h5")
            feed(name)
            query.processAllAvailable()
    finally:
        query.stop()
    found = rows(spark.read.parquet(str(sink)))
    first, second = (
        [dict(row, _table_version=name) for row in rows(matched(frame, t, location="x,y", id="uuid", rejects="rows"))]
        for name, t in (("table-1.h5", table), ("table-2.h5", OTHER))
    )
    assert {row["interface"] for row in second} == {"cold", None}
    assert found == sorted(first + first + second, key=str)


def test_a_memory_stream_of_rate(spark: SparkSession) -> None:
    """Column names and types of another source; every event exactly once."""
    every = make_table([{"interface": "odd", "constraints": [["value", "in", [1, 3, 5, 7]]]}])
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 3).load()
    query = matched(stream, every, id="value").writeStream.format("memory").queryName("of_rate").start()
    try:
        while query.lastProgress is None or query.lastProgress["batchId"] < 2:
            assert query.exception() is None
    finally:
        query.stop()
    assert rows(spark.table("of_rate")) == [{"value": i, "interface": "odd"} for i in (1, 3, 5, 7)]


def test_the_page_matches_rows_of_kafka(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but source and sink of the page's program, with rows that have the connector's columns."""
    page = Path(mpi_match.__file__).parent.joinpath("docs/following.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    for before, after in (
        ('readStream.format("kafka").options', "readStream.schema(schema).format('parquet').options"),
        (".load()", ".load(topic)"),
        ('writeStream.format("kafka")', "writeStream.trigger(availableNow=True).format('parquet')"),
        ('"topic": "answers"', '"path": answers_path'),
        ("/shared/checkpoint", str(tmp_path / "log")),
    ):
        assert program.count(before) == 1
        program = program.replace(before, after)
    schema = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    values = ['{"temp": 31}', '{"temp": 2, "city": "Milan"}', "no JSON"]
    told = [(None, value.encode(), "events", 0, i, datetime.datetime(2026, 1, 1), 0) for i, value in enumerate(values)]
    spark.createDataFrame(told, schema).write.parquet(str(tmp_path / "topic"))
    monkeypatch.chdir(tmp_path)
    make_table([{**row, "area": None} for row in SUBSCRIPTIONS]).save(tmp_path / "table.h5")
    paths = {"topic": str(tmp_path / "topic"), "answers_path": str(tmp_path / "answers")}
    exec(program, {"schema": schema, **paths})
    assert rows(spark.read.parquet(str(tmp_path / "answers"))) == [
        {"key": "events-0-0", "value": '{"interfaces":["hot"]}'},
        {"key": "events-0-1", "value": '{"interfaces":["milan"]}'},
        {"key": "events-0-2", "value": '{"interfaces":[]}'},
    ]


def test_a_worker_opens_an_engine_once(monkeypatch: pytest.MonkeyPatch, columns: Any, table: Table) -> None:
    from mpi_match.frames import HeldEngines
    from spark_prep import matching
    from spark_prep.matching import _table_of, _Task

    opened: list[str] = []
    open_engine = mpi_match.open_engine

    def counted(*given: Any, **more: Any) -> Any:
        opened.append(given[0])
        return open_engine(*given, **more)

    monkeypatch.setattr("mpi_match.frames.open_engine", counted)
    monkeypatch.setattr(matching, "HELD", HeldEngines())
    source = _table_of(table, None)  # type: ignore[arg-type]
    form, read = EventForm(("x", "y"), "uuid"), ("temp", "city", "x", "y")
    task = _Task(source, form, tuple(columns), read, ("uuid",), "pairs", False, "drop")
    for _ in range(3):
        n = sum(each.num_rows for each in task.run(iter(pa.table(columns).to_batches(max_chunksize=50))))
        assert n > 50
    assert list(task.run(iter([]))) == []
    assert opened == ["keyed"]
