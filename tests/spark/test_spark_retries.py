"""Tasks that fail, are killed or run twice after they have produced output: no row is lost and none is there twice.

Speculation needs executors on two hosts.  What it leaves is made here: two attempts of a task that have both written
everything, of which Spark takes one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mpi_match import make_table
from mpi_match.events.event_table import EventTable
from mpi_match.storage import Reader, parts_directory
from mpi_match.table.table import Table

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import spark_prep
from spark_prep import events, job, matched, part_files, table_writer
from spark_prep.data_source import MpiMatchSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
N = 400
SUBSCRIPTIONS = [{"interface": f"i{i}", "constraints": [[f"n{i % 3}", "=", i]], "id": f"f{i}"} for i in range(20)]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Events in two partitions, each with rows of two batches."""
    return spark.range(N).selectExpr("cast(id as string) as uuid", "id % 20 as n0", "id % 7 as n1").repartition(2)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("retries") / "table.h5"
    make_table(SUBSCRIPTIONS).save(path)
    return path


@pytest.fixture
def lose(tmp_path: Path) -> Callable[[], None]:
    """Ends the first attempt of a task: that of partition 0 by an error, others by a signal; each leaves a mark."""
    marks = str(tmp_path / "marks")
    Path(marks).mkdir()

    def lose_once() -> None:
        import os
        import signal

        from pyspark import TaskContext

        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            Path(marks, str(task.partitionId())).touch()
            if task.partitionId() == 0:
                raise RuntimeError("lost after its output")
            os.kill(os.getpid(), signal.SIGKILL)

    return lose_once


def lost(tmp_path: Path) -> set[str]:
    return {mark.name for mark in (tmp_path / "marks").iterdir()}


def named(output: Path) -> set[str]:
    """The parts that an index names."""
    with Reader(output, "events" if "events" in output.name else "table") as reader:
        return {source.path.name for source in reader.sources}


def there(output: Path) -> set[str]:
    return {part.name for part in parts_directory(output).iterdir()}


def test_answers(frame: DataFrame, table: Path, lose: Callable[[], None], tmp_path: Path) -> None:
    answers = matched(frame, table, id="uuid")

    def lose_behind(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 1)
            lose()
            yield batch.slice(1)

    found = answers.mapInArrow(lose_behind, answers.schema).collect()
    assert len(found) > N / 2
    assert sorted(found) == sorted(answers.collect())
    assert lost(tmp_path) == {"0", "1"}


def test_a_table(
    spark: SparkSession, table: Path, lose: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_lose(rows: Any, write: part_files.Write, files: part_files.PartFiles) -> Any:
        def run(batches: Any, files: Any) -> Iterator[Any]:
            held = list(batches)
            written = [list(write(iter(held), files)) for _ in range(2)]
            lose()
            yield from written[1]

        return part_files.write_parts(rows, run, files)

    monkeypatch.setattr(table_writer, "write_parts", write_and_lose)
    rules = spark.createDataFrame([json.dumps(row) for row in SUBSCRIPTIONS], "string").selectExpr(
        "from_json(value, 'interface string, id string, constraints array<array<string>>').interface as interface",
        "get_json_object(value, '$.constraints') as constraints",
        "get_json_object(value, '$.id') as id",
    )
    job.compile_subscriptions(rules, tmp_path / "table.h5", spark_prep.CompileOptions(partitions=2))
    assert Table.load(tmp_path / "table.h5") == Table.load(table)
    assert there(tmp_path / "table.h5") == named(tmp_path / "table.h5")
    assert lost(tmp_path) == {"0", "1"}


def ids_in(path: Path, table: Path) -> list[str | None]:
    with EventTable(path, Table.load(table).vocabulary) as found:
        return sorted(found.ids(), key=str)


EVERY = sorted(map(str, range(N)))


def test_an_event_table(
    frame: DataFrame, table: Path, lose: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losing(events.EventPartWriter):
        def end(self) -> Iterator[Any]:
            yield from super().end()
            lose()

    monkeypatch.setattr(events, "EventPartWriter", Losing)
    output = tmp_path / "events.h5"
    job.compile_events(frame, table, output, id="uuid")
    assert ids_in(output, table) == EVERY
    assert there(output) == named(output)
    assert lost(tmp_path) == {"0", "1"}


def test_the_format(frame: DataFrame, table: Path, lose: Callable[[], None], tmp_path: Path) -> None:
    from pyspark.sql.datasource import DataSourceArrowWriter

    class LosingWriter(DataSourceArrowWriter):
        def __init__(self, writer: Any) -> None:
            self.writer = writer

        def write(self, iterator: Any) -> Any:
            held = list(iterator)
            written = [self.writer.write(iter(held)) for _ in range(2)]
            lose()
            return written[0]

        def commit(self, messages: Any) -> None:
            self.writer.commit(messages)

        def abort(self, messages: Any) -> None:
            self.writer.abort(messages)

    class Losing(MpiMatchSource):
        @classmethod
        def name(cls) -> str:
            return "mpi-match-losing"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return LosingWriter(super().writer(schema, overwrite))

    frame.sparkSession.dataSource.register(Losing)
    output = tmp_path / "events.h5"
    frame.write.format("mpi-match-losing").mode("append").options(table=str(table), id="uuid").save(str(output))
    assert ids_in(output, table) == EVERY
    assert there(output) == named(output)
    assert lost(tmp_path) == {"0", "1"}
