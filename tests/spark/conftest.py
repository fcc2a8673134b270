"""One Spark session for all tests that ask for one, input that is read in small pieces, and rows."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from cases import CASES
from random_rows import random_subscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from spark_prep.session import session

    handler = signal.getsignal(signal.SIGINT)
    running = session("local[2,4]")
    signal.signal(signal.SIGINT, handler)  # Spark's own handler would remain for later tests
    yield running
    running.stop()


@pytest.fixture
def small_blocks(spark: SparkSession) -> Iterator[None]:
    """Files are split into blocks of 4000 bytes, so that a task reads the middle of a file."""
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    assert before is not None
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4000")
    yield
    spark.conf.set("spark.sql.files.maxPartitionBytes", before)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Every subscription of the named cases, and random ones with many filters to an interface."""
    named = [row for case in CASES for row in case["subscriptions"]]
    generator = random.Random(11)
    return named + [random_subscription(generator) for _ in range(600)]
