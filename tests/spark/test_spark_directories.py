"""Directories of rows through Spark: the same files, columns and types as `run` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_inputs import in_memory

from mpi_match.events.event_table import EventTable
from mpi_match.ingest.batches.open import open_events
from mpi_match.table.table import Table
from spark_prep import SparkPrepError, job, sources

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("temp", "Temp", "zip", "city", "wind")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    in_memory([{"interface": name, "constraints": [[name, "exists"]]} for name in NAMES]).save(tmp_path / "t.h5")
    return tmp_path / "t.h5"


def write(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def events_of(path: Path, table: Path) -> list[dict[str, Any] | None]:
    with open_events(path, Table.load(table).vocabulary) as found:
        every = [found.event(i) for i in range(found.n_events)]
    return [None if event is None else dict(event.attributes) for event in every]


def write_partitions(place: Path) -> None:
    write(place / "zip=01234" / "city=S%C3%A3o+Paulo%2FSP" / "a b.parquet", {"temp": pa.array([31, None])})
    write(place / "zip=2024-05-01" / "city=__HIVE_DEFAULT_PARTITION__" / "b.parquet", {"temp": [33.5], "wind": [2**53 - 1]})
    write(place / "zip=%zz" / "c.parquet", {"Temp": ["x"], "temp": [True]})
    write(place / "_temporary" / "d.parquet", {"temp": [9]})
    (place / "notes.txt").write_text("no rows\n")
    (place / "_SUCCESS").touch()


def test_partitions_and_schemas_that_differ_are_as_in_a_run(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Numbers that are long in one file and double in another, names that differ in case, and directories as strings."""
    write_partitions(tmp_path / "in")
    summary = job.compile_events([str(tmp_path / "in")], table, tmp_path / "e.h5")
    assert (summary.events, summary.rejected) == (4, 0)
    expected = [
        {"temp": 31, "zip": "01234", "city": "São+Paulo/SP"},
        {"temp": None, "zip": "01234", "city": "São+Paulo/SP"},
        {"temp": 33.5, "zip": "2024-05-01", "city": None, "wind": 2**53 - 1},
        {"Temp": "x", "temp": True, "zip": "%zz"},
    ]
    expected = [expected[3], *expected[:3]]  # % sorts before digits
    assert events_of(tmp_path / "in", table) == expected
    assert events_of(tmp_path / "e.h5", table) == expected


def test_files_of_other_systems_have_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    """`read` is what reads an object store."""
    place = tmp_path / "in"
    write(place / "zip=01234" / "city=S%C3%A3o+Paulo%2FSP" / "a b.parquet", {"temp": [31]})
    write(place / "zip=2024-05-01" / "city=__HIVE_DEFAULT_PARTITION__" / "b.parquet", {"temp": [33]})
    write(place / "zip=%zz" / "part-00000", {"temp": [34], "city": ["own"]})
    write(place / "zip=7" / "_d.parquet", {"temp": [35]})
    source = sources.read(spark, [str(place)], "parquet")
    found = sorted(json.dumps(row["row"].asDict(), sort_keys=True) for row in source.rows.collect())
    rows = [{"temp": 31, "zip": "01234", "city": None}, {"temp": 33, "zip": "2024-05-01", "city": None}]
    rows.append({"temp": 34, "zip": "%zz", "city": "own"})
    assert found == sorted(json.dumps(row, sort_keys=True) for row in rows)
    (place / "zip=%zz" / "part-00000").unlink()
    source = sources.read(spark, [str(place)], "parquet")
    pairs = sorted((row["row"]["zip"], row["row"]["city"] or "") for row in source.rows.collect())
    assert pairs == [("01234", "São+Paulo/SP"), ("2024-05-01", "")]


def test_lines_in_hidden_and_other_files_are_not_read(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    for name in (".old.jsonl", "_x.jsonl", "_a/b.jsonl", "notes.txt", "c.JSONL", "d/part-00000", "e.jsonl"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(json.dumps({"city": name}) + "\n")
    job.compile_events([str(tmp_path / "in")], table, tmp_path / "e.h5")
    names = ["c.JSONL", "d/part-00000", "e.jsonl"]
    assert [event and event["city"] for event in events_of(tmp_path / "e.h5", table)] == names
    assert [event and event["city"] for event in events_of(tmp_path / "in", table)] == names
    lines = sources.read(spark, [str(tmp_path / "in")]).rows.collect()
    assert sorted(json.loads(bytes(row["value"]))["city"] for row in lines) == names
    assert sources.read(spark, [str(tmp_path / "in" / "notes.txt")]).rows.count() == 1  # it is named


def test_names_that_differ_in_case_are_two_columns_of_a_frame(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    frame = spark.createDataFrame([(1.0, "x")], "temp double, Temp string")
    spark.conf.set("spark.sql.caseSensitive", "false")
    job.compile_events(frame, table, tmp_path / "e.h5")
    with EventTable(tmp_path / "e.h5", Table.load(table).vocabulary) as found:
        event = found.event(0)
    assert event is not None
    assert dict(event.attributes) == {"temp": 1.0, "Temp": "x"}
    assert spark.conf.get("spark.sql.caseSensitive") == "false"


@pytest.mark.parametrize("scheme", ["", "file://", "remote"])
def test_tables_with_a_log_are_refused(
    spark: SparkSession, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    write(tmp_path / "d/city=a/p.parquet", {"temp": [31.0]})
    (tmp_path / "d/_delta_log").mkdir()
    if scheme == "remote":  # files that only Hadoop sees
        monkeypatch.setattr(sources, "local_inputs", lambda inputs: None)
    for name in ("d", "d/city=a/p.parquet"):
        given = [("" if scheme == "remote" else scheme) + str(tmp_path / name)]
        said = r"a table of Delta.*spark\.read\.format\('delta'\)"
        with pytest.raises(SparkPrepError, match=said):
            job.compile_events(given, table, tmp_path / "o.h5")
        with pytest.raises(SparkPrepError, match=said):
            job.compile_subscriptions(given, tmp_path / "o.h5")
    assert not (tmp_path / "o.h5").exists()
