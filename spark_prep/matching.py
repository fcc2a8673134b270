"""Events of a DataFrame, also of a stream, matched by Spark's Python workers: a DataFrame in, a DataFrame out.

A worker opens the engine of a table once, and keeps it for later tasks and micro-batches: those of the last two tables.
Only PySpark's public interface is used, `mapInArrow` above all, so nothing depends on the kind of cluster.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyspark import SparkFiles, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from mpi_match.api import form_of, load_table, make_batch
from mpi_match.arrays.csr import Array
from mpi_match.frames import (
    HELD,
    OpenedTable,
    check_how,
    check_key,
    is_kept,
    list_columns,
    needed_columns,
    pair_columns,
    version_of,
)
from mpi_match.ingest.columns.python import needed_by
from mpi_match.ingest.rows.judge import EventForm, Reject
from mpi_match.matches.matches import Matches
from mpi_match.model import ModelError, describe
from mpi_match.storage import Reader, StorageError
from mpi_match.table.metadata import arrow_type, read_types
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table, load_vocabulary
from mpi_match.table.versions import newest_version
from mpi_match.table.vocabulary import Vocabulary
from spark_prep import SparkPrepError
from spark_prep.events import table_digest
from spark_prep.metadata import fields_of
from spark_prep.subscriptions import table_of
from spark_prep.tasks import in_task

if TYPE_CHECKING:
    import pyarrow as pa

_REJECT, _VERSION = "_reject", "_table_version"
"""Names of the columns of reasons and of versions."""
HANDLING = ("fail", "rows", "drop")
"""The choices for rejected rows, see `matched`."""
ROWS_AT_ONCE = 2**17
"""Approximate limit of the events that are matched together."""
MOST_INLINE_BYTES = 64 * 2**20
"""Size of the largest table file that travels with the plan."""


def matched(
    df: DataFrame,
    table: str | os.PathLike[str] | Table | DataFrame,
    *,
    location: str | tuple[str, str] | None = None,
    id: str | None = None,
    filters: bool = False,
    how: str = "pairs",
    keep: Sequence[str] = (),
    rejects: str = "fail",
) -> DataFrame:
    """Match the rows of a DataFrame, of a stream too.  This only plans; the events are matched when the result is asked for.

    `location`, `id`, `filters` and `how` are those of `mpi_match.matched`, and so are the columns of answers, but rows
    have no numbers: `id` or `keep`, columns that answers carry along, have to be given for pairs and lists.  Of the other
    columns only those that filters or the location name are read.
    `table`: the path of a table, a table in memory, a DataFrame of subscriptions, or a directory of versions.  The DataFrame
    has the columns of `spark_prep.subscriptions` and metadata; it is read and compiled here, which is for some 100,000 rows.
    Versions are tables `*.h5`, put there by renaming them.  Each task uses the newest (`mpi_match.table.versions`), and
    each row of the result names it, `_table_version`; all columns are read that can be attributes, because later versions
    may name others.  Their metadata has the columns of the newest version at present.
    `rejects`: rows that are not events, or have no id, make the job `fail`, become `rows` of the result with the reason in
    the column `_reject`, or are left out (`drop`).

    Executors that have the path read it.  A file of at most 64 MiB goes along with the plan, if Spark is not
    local; a larger one has to be on a file system that executors mount, or be sent by `spark.addArtifacts(path, file=True)`.

    Raises SparkPrepError in one line for a wrong argument, a missing column and a column of a type that attributes do
    not have; StorageError for a file that is not a table.
    """
    if not isinstance(df, DataFrame):
        raise SparkPrepError(
            f"matched takes a DataFrame of Spark, found {type(df).__module__.partition('.')[0]}.{type(df).__name__}; see "
            "mpi_match.matched for others"
        )
    if rejects not in HANDLING:
        raise SparkPrepError(f"rejects is one of {', '.join(map(repr, HANDLING))}, found {describe(rejects)}")
    try:
        check_how(how, filters)
        form = form_of(location, id)
        carried = _carried(df, how, id, keep)
        source = _table_of(table, df)
        events = _events(df, source, form)
        columns = [name for name in df.columns if name in {*carried, *events}]
        fields = T.StructType([field for field in df.schema if field.name in columns])
        _check_types(fields, source, form, events)
    except (ModelError, PySparkException) as error:
        raise SparkPrepError(str(error).strip().splitlines()[0]) from error
    schema = _schema(fields, carried, how, source.metadata if filters else None)
    if rejects == "rows":
        schema = schema.add(_REJECT, T.StringType())
    if source.is_directory:
        schema = schema.add(_VERSION, T.StringType())
    for name in {field.name for field in schema}:
        if schema.names.count(name) > 1:
            raise SparkPrepError(f"the result would have two columns {name!r}; rename that of the DataFrame")
    task = _Task(source, form, tuple(columns), tuple(events), tuple(carried), how, filters, rejects)
    # by number: mapInArrow does not find columns with dots in their names, and Spark does not tell `Temp` from `temp`
    numbered = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    rows = numbered.select(*(f"c{i}" for i, name in enumerate(df.columns) if name in columns))
    return rows.mapInArrow(in_task(task.run), schema)


# The plan


class _TableSource(NamedTuple):
    """The place where tasks find the table.

    path           of the file or the directory of versions; "" for a table in memory
    is_directory   if it is a directory of versions
    digest         of the table
    pickled        the table, for executors that do not have the path
    vocabulary     of the table, on the driver alone
    metadata       types of the columns of its metadata
    """

    path: str
    is_directory: bool
    digest: str
    pickled: bytes | None
    vocabulary: Vocabulary | None
    metadata: dict[str, int]


def _table_of(table: object, df: DataFrame) -> _TableSource:
    if isinstance(table, DataFrame):
        table = table_of(table)
    if isinstance(table, Table):
        types = table.metadata.types if table.metadata is not None else {}
        return _TableSource("", False, table.digest, pickle.dumps(table), table.vocabulary, types)
    if not isinstance(table, (str, os.PathLike)):
        raise ModelError(f"a table is one of make_table or load_table, a path, or a DataFrame, found {describe(table)}")
    path = Path(os.fsdecode(table)).absolute()
    if path.is_dir():
        newest = newest_version(path)
        return _TableSource(str(path), True, "", None, load_vocabulary(newest), _metadata_of(newest))
    digest, vocabulary = table_digest(path), load_vocabulary(path)
    sends = path.stat().st_size <= MOST_INLINE_BYTES and not _is_local(df)
    pickled = pickle.dumps(load_table(path)) if sends else None
    return _TableSource(str(path), False, digest, pickled, vocabulary, _metadata_of(path))


def _metadata_of(path: Path) -> dict[str, int]:
    with Reader(path, TABLE) as reader:
        return read_types(reader)


def _is_local(df: DataFrame) -> bool:
    try:
        return str(df.sparkSession.conf.get("spark.master", "")).startswith("local")
    except PySparkException:
        return False


def _carried(df: DataFrame, how: str, id_: str | None, keep: Sequence[str]) -> list[str]:
    """The columns of the result that come from the DataFrame."""
    if isinstance(keep, str):
        raise ModelError(f"keep is a list of names of columns, found {describe(keep)}")
    names = df.columns
    if how in ("semi", "anti"):
        if keep:
            raise ModelError(f"keep is for how='pairs' and how='lists'; how={how!r} gives rows with all their columns")
        for name in names:
            if names.count(name) > 1:
                raise ModelError(f"two columns have the name {name!r}")
        return names
    wanted = list(dict.fromkeys([*([id_] if id_ is not None else []), *keep]))
    if not wanted:
        raise ModelError(
            "rows of a DataFrame have no numbers; name the column to join by, id=, or columns to keep along, keep="
        )
    for name in wanted:
        check_key(name, names)
    return wanted


def _events(df: DataFrame, source: _TableSource, form: EventForm) -> list[str]:
    """The columns that tasks read as events."""
    assert source.vocabulary is not None, "the driver has it"
    needed = needed_columns(df.columns, source.vocabulary, form)
    if not source.is_directory:
        return needed
    from spark_prep.event_columns import may_hold_attributes

    return [
        field.name
        for field in df.schema
        if field.name in needed or (may_hold_attributes(field.dataType) and field.name != form.id)
    ]


def _check_types(fields: T.StructType, source: _TableSource, form: EventForm, events: list[str]) -> None:
    """Check the columns before the job.  Raises ModelError, as tasks would, and PySparkException for a type that Arrow does
    not have."""
    import pyarrow as pa

    from mpi_match.ingest.columns.arrow import NeededColumns  # loads Numba
    from spark_prep.event_columns import arrow_schema

    assert source.vocabulary is not None, "the driver has it"
    schema, plain = arrow_schema(fields), form._replace(id=None)
    needed = needed_by(source.vocabulary, plain)
    NeededColumns.of(pa.schema([field for field in schema if field.name in events]), needed, plain)


def _schema(given: T.StructType, carried: list[str], how: str, metadata: Mapping[str, int] | None) -> T.StructType:
    """The columns of answers; `metadata` of those by filter."""
    fields = [T.StructField(name, given[name].dataType) for name in carried]
    if how == "pairs":
        fields.append(T.StructField("interface", T.StringType()))
        if metadata is not None:
            fields += [T.StructField("filter", T.LongType()), T.StructField("filter_id", T.StringType())]
            fields += fields_of(metadata)
    if how == "lists":
        fields.append(T.StructField("interfaces", T.ArrayType(T.StringType())))
        if metadata is not None:
            fields.append(T.StructField("filters", T.ArrayType(T.LongType())))
    return T.StructType(fields)


# Tasks


class _Task(NamedTuple):
    """The work of a task on its rows: `run`."""

    source: _TableSource
    form: EventForm
    columns: tuple[str, ...]
    events: tuple[str, ...]
    carried: tuple[str, ...]
    how: str
    filters: bool
    rejects: str

    def __reduce__(self) -> tuple[object, ...]:
        return _Task, (self.source._replace(vocabulary=None), *self[1:])

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers of the batches of a partition."""
        from mpi_match.compute.parallel import at_most  # loads Numba

        found, version, threads = None, "", _cpus()
        for rows in _together(batches):
            if found is None:  # a partition without rows needs no engine
                found, version = self._opened(threads)
            with at_most(threads):
                made = self._answers(found, rows.rename_columns(list(self.columns)))
            if self.source.is_directory:
                made = made.append_column(_VERSION, _repeated(version, made.num_rows))
            yield from made.combine_chunks().to_batches()

    def _opened(self, threads: int) -> tuple[OpenedTable, str]:
        """The engine, and the name of the version."""
        how: dict[str, Any] = {"name": "keyed", "threads": threads}
        gpus = _gpus()
        if gpus:
            how = {"name": "auto", "threads": threads, "device": int(gpus[0])}
        source = self.source
        if source.is_directory:
            path = newest_version(Path(source.path))
            return HELD.get((version_of(path), *how.values()), partial(load_table, path), **how), path.name
        return HELD.get((source.digest, *how.values()), self._table, **how), ""

    def _table(self) -> Table:
        source, path = self.source, Path(self.source.path)
        if source.path and not path.exists():
            sent = Path(SparkFiles.get(path.name))
            path = sent if sent.exists() else path
        if source.path and path.exists():
            if table_digest(path) != source.digest:
                raise StorageError(
                    f"{path}: is not the table that the plan was made for; plan again, or put new versions into a "
                    "directory and name that"
                )
            return load_table(path)
        if source.pickled is None:
            raise StorageError(
                f"{path}: is not there on {socket.gethostname()}; put the table where executors have it under this path, or "
                f"send it: spark.addArtifacts({str(path)!r}, file=True)"
            )
        found: Table = pickle.loads(source.pickled)
        return found

    def _answers(self, found: OpenedTable, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        bad: list[Reject] = []
        events = rows.select(list(self.events)) if self.events else pa.table({"": pa.nulls(rows.num_rows)})
        batch = make_batch(found.table, events, location=self.form.location, rejects=bad)
        reasons = {each.line: each.reason for each in bad}
        if self.form.id is not None and self.how in ("pairs", "lists"):
            nulls = np.flatnonzero(np.asarray(rows.column(self.form.id).is_null())).tolist()
            reasons |= dict.fromkeys(nulls, f"column {self.form.id!r} of the ids is null")
        if reasons and self.rejects == "fail":
            self._fail(rows, *min(reasons.items()))
        rejected = np.array(sorted(reasons), np.int64)
        carried = rows.select(list(self.carried))
        answers = found.engine.match(batch, filters=self.filters)
        made = self._joined(answers, found.table, carried, rejected)
        if self.rejects != "rows":
            return made
        made = made.append_column(_REJECT, pa.nulls(made.num_rows, pa.string()))
        return pa.concat_tables([made, _with_reasons(carried.take(pa.array(rejected)), made.schema, reasons)])

    def _joined(self, answers: Matches, table: Table, carried: pa.Table, rejected: Array) -> pa.Table:
        """The answers of the rows that are not rejected, behind the columns that are carried along."""
        import pyarrow as pa

        if self.how in ("semi", "anti"):
            return carried.filter(pa.array(is_kept(answers, rejected, self.how)))
        if self.how == "pairs":
            columns, event = self._pairs(answers, table), answers.event_of()
        else:
            columns, event = list_columns(answers, table, rejected, filters=self.filters), np.arange(len(answers))
        if len(rejected):  # a row without an id has answers
            good = ~np.isin(event, rejected)
            columns, event = columns.filter(pa.array(good)), event[good]
        made = carried.take(pa.array(event))
        for name in columns.column_names:
            values = columns.column(name)
            made = made.append_column(name, values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values)
        return made

    def _pairs(self, answers: Matches, table: Table) -> pa.Table:
        """The columns of pairs; of the metadata those of the plan, which a later version may lack."""
        import pyarrow as pa

        found = pair_columns(answers, table, filters=self.filters)
        if not self.filters or not self.source.is_directory:
            return found
        types = table.metadata.types if table.metadata is not None else {}
        made = found.drop_columns(list(types))
        for name, type_ in self.source.metadata.items():
            if types.get(name, type_) != type_:
                raise ModelError(f"the metadata {name!r} of the newest version are of another type than planned; plan again")
            column = found.column(name) if name in types else pa.nulls(len(found), arrow_type(type_))
            made = made.append_column(name, column)
        return made

    def _fail(self, rows: pa.Table, row: int, reason: str) -> None:
        shown = f"{self.form.id} = {rows.column(self.form.id)[row].as_py()!r}: " if self.form.id is not None else ""
        raise ModelError(
            f"{shown}{reason}; rejects='rows' has such rows in the result with their reasons, rejects='drop' leaves them out"
        )


def _with_reasons(rows: pa.Table, schema: pa.Schema, reasons: dict[int, str]) -> pa.Table:
    """Rejected rows in the order of their numbers, with nulls for answers."""
    import pyarrow as pa

    for field in list(schema)[rows.num_columns : -1]:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.append_column(_REJECT, pa.array([reasons[row] for row in sorted(reasons)], pa.string()))


def _repeated(text: str, n: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(text, pa.string()), n)


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined to tables of about `ROWS_AT_ONCE` rows, none of them empty."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        held.append(batch)
        n += batch.num_rows
        if n >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, n = [], 0
    if n:
        yield pa.Table.from_batches(held)


def _cpus() -> int:
    """Threads that a task may use: `spark.task.cpus`."""
    task = TaskContext.get()
    return max(task.cpus(), 1) if task is not None else 1


def _gpus() -> list[str]:
    """Addresses of the GPUs that Spark gave to the task, by `spark.task.resource.gpu.amount`."""
    task = TaskContext.get()
    gpu = task.resources().get("gpu") if task is not None else None
    return list(gpu.addresses) if gpu is not None else []
