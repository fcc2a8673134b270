"""A worker that is used again has little to collect after a task, which Spark makes it do each time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_prep.tasks import Run, freeze_modules, in_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def counting() -> Run:
    """A function whose code goes to the tasks with it; they do not have this module."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(map(len, batches))
        yield pa.RecordBatch.from_pylist([{"rows": rows, "frozen": gc.get_freeze_count(), "seen": len(gc.get_objects())}])

    return count


def test_the_collector_of_a_task_does_not_see_modules(spark: SparkSession) -> None:
    rows = spark.range(0, 8, 1, 8)
    found = rows.mapInArrow(in_task(counting()), "rows bigint, frozen bigint, seen bigint").collect()
    assert [row["rows"] for row in found] == [1] * 8
    assert all(row["frozen"] > 10_000 > row["seen"] for row in found)


def test_the_driver_is_left_alone() -> None:
    before = gc.get_freeze_count()
    freeze_modules()
    assert gc.get_freeze_count() == before
    (found,) = in_task(counting())(iter([pa.RecordBatch.from_pylist([{"id": 1}])]))
    assert (found.to_pylist()[0]["rows"], gc.get_freeze_count()) == (1, before)
