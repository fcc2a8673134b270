"""The Spark stage: compiles subscriptions, events and changes to the files that ranks read.

    sources        JSON lines and Parquet as rows with their file and position
    metadata       columns of subscriptions that are carried along, on their way to a table
    subscriptions  rows of a DataFrame -> filters
    parcels        filters in the table's order, and their constraints, as bytes that Java moves
    column_lines   subscriptions in columns as lines for the scanner
    arrow_lines    lines of Arrow batches as the scanners read them
    arrow_records  the columns of `Subscriptions` as Arrow batches, and back
    table_writer   filters and constraints in ranges -> parts of a table
    splits         files that tasks read by themselves, and what each task reads of them
    events         splits or rows -> parts of an event table
    held_events    the events of a task until they are written
    event_columns  which columns of typed rows can be attributes
    changes        rows -> a change log, in the order in which they take effect
    matching       a DataFrame of events -> a DataFrame of answers, in batches and streams
    data_source    the format `mpi-match` of `spark.read` and `df.write`
    source_reading  tables, event tables and answers as rows
    source_writing  events and subscriptions as files, with commit and abort
    part_files     parts written by tasks that may run twice, committed by the driver
    rejects        bad rows: reason, file, line
    java_errors    errors of Spark's Java as one line
    environment    variables and files that Spark obeys, checked before it starts
    session        a Spark session with settings for the machine
    job            the commands, for `mpi-match compile` and spark-submit

Importing this package does not import pyspark; `spark_prep.job`, `spark_prep.matched` and `spark_prep.register` do.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode

__all__ = [
    "CompileOptions",
    "CompileSummary",
    "SparkFailure",
    "SparkPrepError",
    "SparkUnavailableError",
    "compile_events",
    "compile_subscriptions",
    "matched",
    "register",
]
_LATER = {"compile_events": "job", "compile_subscriptions": "job", "matched": "matching", "register": "data_source"}
"""Functions that load pyspark, and their modules."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"spark_prep.{_LATER[name]}"), name)


class SparkPrepError(MpiMatchError):
    """The input cannot be compiled, or has bad rows under `strict`; the text says what, where and what to do."""

    exit_code = ExitCode.BAD_INPUT


class SparkUnavailableError(SparkPrepError):
    """Spark cannot start here (no Java, ...); the text says what fixes it."""

    exit_code = ExitCode.ENVIRONMENT


class SparkFailure(SparkPrepError):
    """Spark failed, whatever the input: a lost executor, a full disk."""

    exit_code = ExitCode.FAILURE


@dataclass(frozen=True)
class CompileOptions:
    """The way in which rows are read and written, and bad ones handled.

    format       "json" or "parquet"; by default from the files' names
    rejects      directory of the bad rows; by default `<output>.rejects`
    strict       any bad row is an error, and nothing is written
    partitions   parts of each kind, at least 1; by default as many as the rows need
    number       column of a DataFrame of events with each event's number: integers from 0 to one less than there are rows
    master       Spark master if there is no session yet; by default all cores of this machine
    """

    format: str | None = None
    rejects: Path | None = None
    strict: bool = False
    partitions: int | None = None
    number: str | None = None
    master: str | None = None


class CompileSummary(NamedTuple):
    """The result of a compile.

    `rows` counts the rows read, including bad ones and without blank lines; `filters`, `constraints` and `interfaces` belong
    to subscriptions and to the filters that changes add, `events` to events, `changes` to changes (a row may be several, one
    for each of its filters); `rejects` is the directory of the `rejected` rows, None when there are none.

    `metadata` are the columns of subscriptions that are carried along.

    For events: `never_seen` are the attributes of location and id that no event has, `left_out` the names of values that
    were left out, because they cannot be attributes and no filter names them (`event_columns`), with the number of their
    events.  `doubts` are warnings: events lack the attributes that filters name, subscriptions have many slow patterns.
    """

    rows: int
    filters: int
    constraints: int
    interfaces: int
    events: int
    rejected: int
    rejects: Path | None
    wall_s: float
    changes: int = 0
    never_seen: tuple[str, ...] = ()
    left_out: Mapping[str, int] = MappingProxyType({})
    doubts: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
