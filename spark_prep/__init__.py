"""The Spark stage: subscriptions, events and changes, as people keep them, into the files that ranks read.

    sources        JSON lines and Parquet as rows that know their file and place
    subscriptions  rows -> filters, as a DataFrame; their order; their constraints
    records        the columns of a `Subscriptions` as Arrow batches, and back
    table_parts    sorted filters and constraints -> parts of a table
    events         rows -> parts of an event table
    event_columns  which columns of typed rows can be attributes
    changes        rows -> a change log, in the order in which they take effect
    parts          parts written by tasks that may run twice, committed by the driver
    rejects        bad rows: reason, file, line
    java_errors    what Spark's Java says, as one line
    session        a Spark session that suits the machine
    job            the commands, whole; for `mpi-match compile` and spark-submit

Importing this package does not import pyspark; `spark_prep.job` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mpi_match.exit_codes import ExitCode

__all__ = ["CompileOptions", "CompileSummary", "SparkFailure", "SparkPrepError", "SparkUnavailableError"]


class SparkPrepError(Exception):
    """The input cannot be compiled, or was not wanted with rejects; the text says what, where and what to do."""

    exit_code = ExitCode.BAD_INPUT


class SparkUnavailableError(SparkPrepError):
    """Spark cannot start here (no Java, ...); the text says what fixes it."""

    exit_code = ExitCode.ENVIRONMENT


class SparkFailure(SparkPrepError):
    """Spark could not do its work, whatever the input: a lost executor, a full disk."""

    exit_code = ExitCode.FAILURE


@dataclass(frozen=True)
class CompileOptions:
    """How rows are read and written, and what becomes of bad ones.

    format       "json" or "parquet"; by default by the files' names
    rejects      directory of the bad rows; by default `<output>.rejects`
    strict       any bad row is an error, and nothing is written
    partitions   parts of each kind, at least 1; by default as many as the rows need
    master       Spark master if there is no session yet; by default all cores of this machine
    """

    format: str | None = None
    rejects: Path | None = None
    strict: bool = False
    partitions: int | None = None
    master: str | None = None


class CompileSummary(NamedTuple):
    """What a compile did.

    `rows` counts the rows read, bad ones included and blank lines not; `filters`, `constraints` and `interfaces` belong to
    subscriptions and to what changes add, `events` to events, `changes` to changes (a row may be several, one for each
    filter that it is about); `rejects` is where the `rejected` rows lie, None when there are none.

    Of events: `never_seen` are the attributes named for location and id that no event has, `left_out` the columns of which
    values were left out, because they are no attributes and no filter names them (`event_columns`).
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
    left_out: tuple[str, ...] = ()
