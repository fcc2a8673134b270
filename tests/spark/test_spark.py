"""The Spark stage against the in-memory builder: the same rows must give the same table, to the last array."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from command_line import mpi_match, only_line
from hostile_rows import lines
from mpirun import TIMEOUT_S
from random_rows import random_subscription

import spark_prep
from mpi_match.commands.compile_locally import compile_locally
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import event_of_row
from mpi_match.storage import StorageError, parts_directory
from mpi_match.table.table import Table
from spark_prep import CompileOptions, SparkFailure, SparkPrepError

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = pytest.mark.spark

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import pyspark  # noqa: E402
from pyspark import TaskContext  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_inputs import assert_same_events, in_memory, names_in, read_rejects, write_lines  # noqa: E402

from spark_prep import job, parcels, sources, subscriptions, table_writer  # noqa: E402
from spark_prep.held_events import FEW_ROWS  # noqa: E402
from spark_prep.java_errors import in_one_line  # noqa: E402
from spark_prep.part_files import PartFiles, PartSet, Write, WrittenPart, write_parts  # noqa: E402

BAD_LINES = [
    ('{"interface": "i", "constraints": [["temp", "~", 3]]}', "unknown operator"),
    ('{"interface": "i", "constraints": [["temp", ">", 18446744073709551616]]}', "not between"),
    ('{"interface": "i"', "not JSON"),
    ('{"interface": "i", "filters": [{"constraints": []}, {"constraints": [["a"]]}]}', "a constraint is"),
    ('{"interface": "i", "predicate": "temp >"}', "expected a value"),
]


@pytest.mark.parametrize("partitions", [1, 4])
def test_the_table_is_the_one_built_in_memory(
    spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path, partitions: int, small_blocks: None
) -> None:
    shuffled = random.Random(partitions).sample(rows, len(rows))
    write_lines(tmp_path / "in" / "a.jsonl", shuffled[:300])
    write_lines(tmp_path / "in" / "deep" / "b.jsonl.gz", shuffled[300:500])
    write_lines(tmp_path / "more" / "c 1.jsonl", shuffled[500:600])
    write_lines(tmp_path / "more" / "c 2.jsonl", shuffled[600:])
    output = tmp_path / "table.h5"
    summary = job.compile_subscriptions(
        [str(tmp_path / "in"), f"{tmp_path}/more/c*"], output, CompileOptions(partitions=partitions)
    )
    table = Table.load(output)
    assert table == in_memory(rows)
    assert summary[:6] == (len(rows), table.n_visible_filters, table.n_visible_constraints, table.n_visible, 0, 0)
    assert summary.rejects is None
    assert names_in(output) == {"in", "more", "table.h5", "table.h5.parts"}
    n_filter_parts = sum("-filters-" in name for name in names_in(parts_directory(output) / "any"))
    assert n_filter_parts == partitions


def test_many_rows_are_scanned(spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    of_one_object = {"interface": "o", "constraints": [["l.x", "has", 1], ["l.y", "any >", 2]], "arrays": "consistent"}
    many = [*rows * 4, of_one_object]
    assert len(many) > 8 * FEW_ROWS, "each of eight tasks should have more than it judges"
    path = write_lines(tmp_path / "in.jsonl", [*many, {"interface": "i", "constraints": [["x", "?", 1]]}])
    summary = job.compile_subscriptions([str(path)], tmp_path / "table.h5")
    assert Table.load(tmp_path / "table.h5") == in_memory(many)
    assert (summary.rows, summary.rejected) == (len(many) + 1, 1)
    assert [row["line"] for row in read_rejects(summary.rejects)] == [len(many) + 1]
    local = compile_locally([str(path)], tmp_path / "local.h5")
    assert Table.load(tmp_path / "local.h5").digest == Table.load(tmp_path / "table.h5").digest
    assert (*local[:4], local.rejected) == (*summary[:4], summary.rejected)
    assert read_rejects(local.rejects) == read_rejects(summary.rejects)


@pytest.mark.parametrize(
    "rows",
    [
        [{"interface": "i", "constraints": []}, {"interface": "j", "area": [0, 0, 1]}],
        [{"interface": str(i % 3), "constraints": [["temp", ">", i]]} for i in range(200)],
    ],
    ids=["no constraints", "one name"],
)
def test_degenerate_inputs(spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", rows)
    summary = job.compile_subscriptions([str(path)], tmp_path / "table.h5", CompileOptions(partitions=3))
    assert Table.load(tmp_path / "table.h5") == in_memory(rows)
    assert summary.rows == len(rows)


def test_hostile_rows_are_the_rejects_of_match(spark: SparkSession, tmp_path: Path) -> None:
    """They do not end the compile, and their rejects are the same for every reader."""
    content, bad = lines()
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(content))
    (tmp_path / "events.jsonl").write_text('{"x": 1}\n')
    summary = job.compile_subscriptions([str(tmp_path / "in.jsonl")], tmp_path / "table.h5")
    found = read_rejects(summary.rejects)
    assert [row["line"] for row in found] == [line for line, _ in bad]
    inputs = [tmp_path / "in.jsonl", tmp_path / "events.jsonl", "-o", tmp_path / "m.h5", "--engine", "counting"]
    mpi_match("match", *inputs, "--rejects", tmp_path / "rejects.jsonl")
    assert found == [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    made = {str(item) for item in Table.load(tmp_path / "table.h5").iter_filters()}
    assert made == {"7: everything", "7: smile = '\U0001f600'"}


def test_rejects_name_file_and_line_of_files_read_in_pieces(spark: SparkSession, tmp_path: Path, small_blocks: None) -> None:
    generator = random.Random(3)
    expected, good = [], []
    for name in ("a.jsonl", "b.jsonl.gz", "c%20d+e f.jsonl"):
        lines: list[str] = []
        for number in range(1, 121):
            if number % 7 == 0:
                lines.append(generator.choice(["", "   "]))
            elif number % 11 == 0:
                text, reason = generator.choice(BAD_LINES)
                lines.append(text)
                expected.append((str(tmp_path / "in" / name), number, text, reason))
            else:
                good.append(random_subscription(generator))
                lines.append(json.dumps(good[-1]) + "\r" * (number % 2))
        (tmp_path / "in").mkdir(exist_ok=True)
        data = "\n".join(lines).encode()
        (tmp_path / "in" / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    output = tmp_path / "table.h5"
    summary = job.compile_subscriptions([str(tmp_path / "in")], output)
    assert Table.load(output) == in_memory(good)
    assert summary.rows == len(good) + len(expected)
    assert (summary.rejected, summary.rejects) == (len(expected), tmp_path / "table.h5.rejects")
    found = read_rejects(summary.rejects)
    assert [(row["file"], row["line"], row["row"]) for row in found] == [item[:3] for item in sorted(expected)]
    assert all(reason in row["reason"] for row, (*_, reason) in zip(found, sorted(expected), strict=True))

    write_lines(tmp_path / "good.jsonl", good)
    job.compile_subscriptions([str(tmp_path / "good.jsonl")], output)
    assert not (tmp_path / "table.h5.rejects").exists()


def test_strict_refuses_and_leaves_nothing_new(spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    output = tmp_path / "table.h5"
    good = write_lines(tmp_path / "good.jsonl", rows[:50])
    job.compile_subscriptions([str(good)], output)
    before = names_in(parts_directory(output) / "any")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join([json.dumps(rows[0]), BAD_LINES[0][0], "", BAD_LINES[2][0]]))
    with pytest.raises(SparkPrepError) as caught:
        job.compile_subscriptions([str(bad)], output, CompileOptions(strict=True))
    assert str(caught.value).splitlines()[0] == "2 of 3 rows are bad, and strict allows none:"
    assert f"{bad}, line 2: unknown operator" in str(caught.value)
    assert f"{bad}, line 4: not JSON" in str(caught.value)
    assert names_in(output) == {"good.jsonl", "bad.jsonl", "table.h5", "table.h5.parts"}
    assert names_in(parts_directory(output) / "any") == before
    assert Table.load(output) == in_memory(rows[:50])


def test_no_filters_are_an_error_and_no_output(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("[]\n1\n")
    with pytest.raises(SparkPrepError, match=r"no usable subscription, all 2 rows .*line 1: .* are in .*bad rows$"):
        job.compile_subscriptions([str(path)], tmp_path / "table.h5", CompileOptions(rejects=tmp_path / "bad rows"))
    assert [row["line"] for row in read_rejects(tmp_path / "bad rows")] == [1, 2]
    path.write_text("\n")
    with pytest.raises(SparkPrepError, match=r"^/.*/in\.jsonl: holds no subscription$"):
        job.compile_subscriptions([str(path)], tmp_path / "table.h5")
    assert names_in(tmp_path / "any") == {"in.jsonl", "bad rows"}


def test_nothing_else_is_ever_overwritten_by_rejects(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    path = write_lines(tmp_path / "in.jsonl", [])
    with pytest.raises(SparkPrepError, match="is not a rejects dataset"):
        job.compile_subscriptions([str(path)], tmp_path / "table.h5", CompileOptions(rejects=tmp_path / "mine"))


@pytest.mark.parametrize(
    ("inputs", "match"),
    [([], "no input"), (["absent.jsonl"], "cannot read"), (["a.parquet", "b.jsonl"], "mix JSON lines and Parquet")],
)
def test_inputs_that_cannot_be_read(spark: SparkSession, tmp_path: Path, inputs: list[str], match: str) -> None:
    with pytest.raises(SparkPrepError, match=match):
        job.compile_subscriptions([str(tmp_path / name) for name in inputs], tmp_path / "table.h5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cut.jsonl.gz", r"^Encountered error while reading file file:\S+cut\.jsonl\.gz\. Unexpected end of input stream$"),
        ("text.parquet", r"^cannot read \S+text\.parquet: is not a whole Parquet file: Parquet magic bytes not found"),
    ],
)
def test_a_damaged_file_is_one_line_and_no_traceback(
    spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path, name: str, said: str
) -> None:
    whole = write_lines(tmp_path / "whole.gz", rows).read_bytes()
    (tmp_path / name).write_bytes(whole[:500])
    with pytest.raises(SparkPrepError, match=said) as caught:
        job.compile_subscriptions([str(tmp_path / name)], tmp_path / "table.h5")
    assert (caught.value.exit_code, "\n" in str(caught.value)) == (3, False)
    assert names_in(tmp_path / "any") == {"whole.gz", name}


def test_what_no_input_is_to_blame_for_is_a_failure(spark: SparkSession) -> None:
    with pytest.raises(SparkFailure, match=r"^No value present$") as caught, in_one_line():
        cast(Any, spark.sparkContext)._jvm.java.util.Optional.empty().get()  # any Java exception will do
    assert caught.value.exit_code == 1


def test_predicates_and_parquet_say_the_same_as_json(spark: SparkSession, tmp_path: Path) -> None:
    plain = [
        {
            "interface": "a",
            "constraints": [["temp", ">", 30], ["city", "in", ["Rome", "Milan"]], ["x", "exists"]],
            "id": "f1",
        },
        {"interface": "b", "filters": [{"constraints": [["temp", ">", 30]], "area": [1, 2, 3]}, {"area": [0, 0, 1]}]},
        {"interface": "c", "filters": [{"constraints": [["on", "=", True]]}, {"constraints": [["city", "prefix", "M"]]}]},
        {"interface": "7", "constraints": [["temp", "between", [1, 2]]], "area": [1, 2, 3], "tags": ["gpu", "é"]},
    ]
    texts = [
        {"interface": "a", "predicate": "temp > 30 and city in ('Milan', 'Rome') and x exists", "id": "f1"},
        plain[1],
        {"interface": "c", "predicate": "on = true or city prefix 'M'"},
        {"interface": 7, "predicate": "tags has 'é' and temp between 1 and 2 and tags any = 'gpu'", "area": [1, 2, 3]},
    ]
    write_lines(tmp_path / "texts.jsonl", texts)
    job.compile_subscriptions([str(tmp_path / "texts.jsonl")], tmp_path / "texts.h5")
    assert Table.load(tmp_path / "texts.h5") == in_memory(plain)

    operand = [("number", pa.float64()), ("strings", pa.list_(pa.string())), ("numbers", pa.list_(pa.float64()))]
    constraints = pa.list_(pa.struct([("name", pa.string()), ("op", pa.string()), *operand]))
    circle = pa.struct([("x", pa.float64()), ("y", pa.float64()), ("r", pa.float64())])
    one = pa.struct([("constraints", constraints), ("area", circle)])
    typed = {
        "interface": pa.array(["a", "b", "c", "7"]),
        "constraints": pa.array(
            [
                [
                    {"name": "temp", "op": ">", "number": 30},
                    {"name": "city", "op": "in", "strings": ["Rome", "Milan"]},
                    {"name": "x", "op": "exists"},
                ],
                None,
                None,
                [{"name": "temp", "op": "between", "numbers": [1, 2]}],
            ],
            constraints,
        ),
        "filters": pa.array(
            [
                None,
                [
                    {"constraints": [{"name": "temp", "op": ">", "number": 30}], "area": {"x": 1, "y": 2, "r": 3}},
                    {"area": {"x": 0, "y": 0, "r": 1}},
                ],
                None,
                None,
            ],
            pa.list_(one),
        ),
        "predicate": pa.array([None, None, "on = true or city prefix 'M'", None]),
        "tags": pa.array([None, None, None, ["gpu", "é"]]),
        "area": pa.array([None, None, None, [1.0, 2.0, 3.0]]),
        "id": pa.array(["f1", None, None, None]),
    }
    bad = {"interface": "z", "constraints": [{"name": "temp", "op": ">", "number": 1, "strings": ["x"]}]}
    table = pa.table(typed)
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([bad], schema=table.schema)]), tmp_path / "typed.parquet")
    summary = job.compile_subscriptions([str(tmp_path / "typed.parquet")], tmp_path / "typed.h5")
    assert Table.load(tmp_path / "typed.h5") == in_memory(plain)
    (reject,) = read_rejects(summary.rejects)
    assert (reject["line"], reject["reason"]) == (5, "a constraint has one operand; not null are: number, strings")


def test_parquet_files_have_each_their_own_schema(spark: SparkSession, tmp_path: Path) -> None:
    """Long and double, text and integer, other order, columns that one lacks, and names in directories."""
    (tmp_path / "in" / "id=f1").mkdir(parents=True)
    operand = [("name", pa.string()), ("op", pa.string())]
    for name, label, number, more in (("a", "x", pa.int64(), {}), ("b", 7, pa.float64(), {"area": [[1, 2, 3]]})):
        constraint = pa.struct([*operand, ("operand", number)])
        columns = {
            "interface": [label],
            "constraints": pa.array([[{"name": "t", "op": ">", "operand": 3}]], pa.list_(constraint)),
        }
        pq.write_table(pa.table(more | columns), tmp_path / "in" / f"{name}.parquet")
    texts = pa.table(
        {"interface": pa.array(["y"]).dictionary_encode(), "predicate": pa.array(["Temp > 1"], pa.large_string())}
    )
    pq.write_table(texts, tmp_path / "in" / "id=f1" / "c.parquet")
    summary = job.compile_subscriptions([str(tmp_path / "in")], tmp_path / "table.h5")
    assert (summary.rows, summary.rejected) == (3, 0)
    assert Table.load(tmp_path / "table.h5") == in_memory(
        [
            {"interface": "x", "constraints": [["t", ">", 3]]},
            {"interface": "7", "constraints": [["t", ">", 3]], "area": [1, 2, 3]},
            {"interface": "y", "constraints": [["Temp", ">", 1]], "id": "f1"},
        ]
    )


def test_a_data_frame_is_an_input_too(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", "temp > 3"), ("b", "temp >"), ("c", None)], "interface string, predicate string")
    frame = frame.repartition(3)
    summary = job.compile_subscriptions(frame, tmp_path / "table.h5")
    assert Table.load(tmp_path / "table.h5") == in_memory([{"interface": "a", "constraints": [["temp", ">", 3]]}])
    found = read_rejects(summary.rejects)
    assert {(row["file"], row["line"]) for row in found} == {("", 0)}
    assert {json.loads(row["row"])["interface"] for row in found} == {"b", "c"}

    published = spark.createDataFrame([(25.0, "Milan"), (None, "Rome")], "temp double, city string").coalesce(1)
    job.compile_events(published, tmp_path / "table.h5", tmp_path / "events.h5")
    expected = Events.of(event_of_row(row) for row in ({"temp": 25.0, "city": "Milan"}, {"temp": None, "city": "Rome"}))
    assert_same_events(tmp_path / "events.h5", tmp_path / "table.h5", expected)


def test_columns_of_a_data_frame_are_named(spark: SparkSession, tmp_path: Path) -> None:
    tree = {"not": ["temp", ">", 3]}
    few = [(1, "temp > 3 or wind < 2", "Q"), (2, json.dumps(tree), "q"), (3, json.dumps(["temp", "exists"]), None)]
    texts = [(i, f"temp > {i}", str(i)) for i in range(4, FEW_ROWS + 10)]
    frame = spark.createDataFrame([*few, *texts], "rule_id long, `a.condition` string, Id string").coalesce(1)
    named = partial(spark_prep.compile_subscriptions, interface="rule_id", where="a.condition", id="Id")
    do = spark_prep.compile_subscriptions
    named(frame, tmp_path / "table.h5")
    of_texts = [{"interface": i, "predicate": text, "id": id_} for i, text, id_ in [few[0], *texts]]
    of_trees = [{"interface": 2, "where": tree, "id": "q"}, {"interface": 3, "constraints": [["temp", "exists"]]}]
    assert Table.load(tmp_path / "table.h5") == in_memory([*of_texts, *of_trees])

    row = {"interface": "o", "where": {"and": [["l.x", "has", 1], ["l.y", "has", 2]]}, "arrays": "consistent"}
    consistent = [("o", json.dumps(row["where"]), "consistent"), ("p", '["temp", "exists"]', None)]
    do(spark.createDataFrame(consistent, "interface string, where string, arrays string"), tmp_path / "table.h5")
    assert Table.load(tmp_path / "table.h5") == in_memory([row, {"interface": "p", "constraints": [["temp", "exists"]]}])

    for frame_, columns, text in (
        (frame, {"condition": "a.condition"}, "subscriptions have no column 'condition'; they have: area, "),
        (frame, {"area": "circle"}, "there is no column 'circle' for 'area'; there are: 'rule_id', 'a.condition', 'Id'"),
        (frame.withColumn("row", frame.Id), {}, "metadata cannot be called 'row'"),
        (frame.selectExpr("*", "current_date() as due"), {}, "the column 'due' is of type date, which metadata do not"),
        (frame.replace("Q", "q").withColumn("n", frame.rule_id), {}, "the id 'q' has two subscriptions with other metadata"),
        ([tmp_path / "in.jsonl"], {}, "files have columns with names of their own; interface= is for a DataFrame"),
    ):
        with pytest.raises(SparkPrepError, match=text):
            named(frame_, tmp_path / "other.h5", **columns)


def test_columns_that_no_subscription_has_are_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", "temp > 3", 1)], "interface string, predicate string, priority int")
    with pytest.raises(SparkPrepError, match="the column 'priority' is none of a subscription; name the column"):
        job.compile_subscriptions(frame, tmp_path / "table.h5")


def test_a_task_that_fails_after_writing_is_run_again_and_leaves_no_stray_part(
    spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "table.h5"
    source = sources.read(spark, [str(write_lines(tmp_path / "in.jsonl", rows))])

    def write_then_lose(rows: DataFrame, write: Write, files: PartFiles) -> list[WrittenPart]:
        def written_then_lost(batches: Iterator[pa.RecordBatch], files: PartFiles) -> Iterator[WrittenPart]:
            written = list(write(batches, files))
            if cast(TaskContext, TaskContext.get()).attemptNumber() == 0:
                raise RuntimeError("lost after the part was written")
            yield from written

        return write_parts(rows, written_then_lost, files)

    with PartSet(output, "table") as parts, job._Held() as held:
        records = held.keep(subscriptions.parse(source.rows))
        found = parcels.RecordSummary.of(records)
        sorted_ = held.keep(parcels.in_ranges(records, found.first_keys(2), found.first_names(2)))
        ranges, totals = parcels.ranges(sorted_)
        with monkeypatch.context() as patched:
            patched.setattr(table_writer, "write_parts", write_then_lose)
            named = table_writer.write_constraints(sorted_, ranges, 2, parts.files, presence=True, residues=False)
        assert len(names_in(parts_directory(output) / "any")) == 4
        filed = table_writer.write_filters(sorted_, ranges, parts.files)
        counts = {"n_names": sum(w.distinct for w in named), "n_constraints": sum(w.rows for w in named)}
        parts.commit([*named, *filed], {**counts, "n_filters": totals.filters, "n_interfaces": totals.interfaces})
    assert names_in(parts_directory(output) / "any") == {w.part for w in (*named, *filed)}
    assert Table.load(output) == in_memory(rows)


def test_a_missing_part_is_refused(spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    output = tmp_path / "table.h5"
    job.compile_subscriptions([str(write_lines(tmp_path / "in.jsonl", rows[:20]))], output)
    next(parts_directory(output).iterdir()).unlink()
    with pytest.raises(StorageError, match="is missing"):
        Table.load(output)


def test_the_driver_refuses_parts_that_it_does_not_see(tmp_path: Path) -> None:
    with (
        pytest.raises(SparkPrepError, match="on a file system that the driver and all executors share"),
        PartSet(tmp_path / "table.h5", "table") as parts,
    ):
        parts.commit([WrittenPart("elsewhere.h5", 0, 1, "0" * 64, 1)], {})
    assert list(tmp_path.iterdir()) == []


def test_the_command_line(spark: SparkSession, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", rows[:30])
    output = tmp_path / "table.h5"
    printed = mpi_match("compile", "subscriptions", path, "-o", output, "--json")
    assert json.loads(printed.stdout)["rows"] == 30
    assert "from 30 rows" in printed.stderr
    printed = mpi_match("compile", "events", path, "--table", output, "-o", tmp_path / "e.h5", "--location", "x,y")
    assert "no event has 'x' or 'y', which --location or --id names" in printed.stderr
    assert "no event has an attribute that a filter names" in printed.stderr
    assert "mpi-match: cannot read" in only_line(mpi_match("compile", "subscriptions", "absent", "-o", output, code=3))


def test_many_patterns_without_literals_are_said(spark: SparkSession, tmp_path: Path) -> None:
    """They are counted in all parts: half of them are of one name, half of the elements of another."""
    patterns = [f"^[a-z]{{{1 + i // 40}}}[0-9]{{{1 + i % 40}}}$" for i in range(1000)]
    rows = [
        {"interface": "i", "constraints": [["xy"[i % 2], ["regexp", "any regexp"][i % 2], each]]}
        for i, each in enumerate([*patterns, "error [0-9]+"])
    ]
    options = ("--partitions", 2, "-o", tmp_path / "t.h5")
    said = mpi_match("compile", "subscriptions", write_lines(tmp_path / "many.jsonl", rows), *options).stderr
    assert "1,000 patterns (wildcard, regexp) lack 2 bytes that" in said
    assert (
        "patterns ("
        not in mpi_match("compile", "subscriptions", write_lines(tmp_path / "few.jsonl", rows[1:]), *options).stderr
    )


def test_spark_submit_runs_the_same_commands(rows: list[dict[str, Any]], tmp_path: Path, repository: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", rows[:30])
    submit = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[1]"]
    submit += ["--conf", "spark.sql.shuffle.partitions=1", repository / "spark_prep" / "job.py"]
    environment = {**os.environ, "PYTHONPATH": str(repository), "PYSPARK_PYTHON": sys.executable}
    words = [str(word) for word in (*submit, "subscriptions", path, "-o", tmp_path / "table.h5")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
    assert done.returncode == 0, done.stdout
    assert Table.load(tmp_path / "table.h5") == in_memory(rows[:30])
    assert "from 30 rows" in done.stdout  # spark-submit writes both streams there
