"""Events and subscriptions of a DataFrame as files, with commit and abort; see `data_source`.

Tasks write parts as in other jobs (`part_files`), each under a name of its own.  The commit, on the driver's machine, checks
those of the attempts that Spark took, writes the file, and removes all others.  Until then an earlier file stays as it is.

    events          parts of an event table, numbered along the partitions of the DataFrame; the commit writes the index
    subscriptions   a table of those of each task; the commit joins them in its memory to one, the same as other jobs make

The directory of parts is made when the job is planned.  After an abort it is gone, so a task that ends later leaves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mpi_match.api import form_of
from mpi_match.frames import needed_columns
from mpi_match.ingest.columns.arrow import NeededColumns, is_list, is_scalar, is_time
from mpi_match.ingest.columns.arrow_lists import leaves
from mpi_match.ingest.columns.python import needed_names, refused_type
from mpi_match.ingest.rows.judge import Reject, nothing_usable
from mpi_match.storage import Reader, check_output
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table, load_vocabulary
from spark_prep import SparkPrepError, rejects, subscriptions
from spark_prep.event_columns import arrow_schema
from spark_prep.events import EventPartWriter, EventTarget, table_digest
from spark_prep.parcels import Parsed
from spark_prep.part_files import PartSet, WrittenPart, partition_id
from spark_prep.sources import absolute_path
from spark_prep.subscriptions import SubscriptionColumns, TableBuilder, rows_of
from spark_prep.tasks import freeze_modules


@dataclass
class _Written(WriterCommitMessage):
    """The output of a task: `parts`, `rejects` (a file of JSON lines, or ""), the numbers of rows and of bad rows, and the
    first bad rows."""

    parts: list[WrittenPart]
    rejects: str
    n_rows: int
    bad: list[Reject]
    n_bad: int


class _BadRows:
    """The bad rows of a task, in a file beside the parts, which is opened for the first one; the first few are also in
    memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.count, self.first = path, 0, list[Reject]()

    def append(self, bad: Sequence[Reject]) -> None:
        if not bad:
            return
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(json.dumps(each._asdict(), ensure_ascii=False) + "\n" for each in bad)
        self.count += len(bad)
        self.first += bad[: _SHOWN - len(self.first)]


_SHOWN = 3
"""Bad rows that an error shows."""


class _FileWriter(DataSourceArrowWriter):
    """Writes one file; subclasses know its kind."""

    what: str
    """The kinds of rows."""

    def __init__(self, parts: PartSet, options: Mapping[str, str]) -> None:
        self._parts = parts
        self._rejects = absolute_path(options.get("rejects", f"{parts.output}.rejects"))
        self._strict = _truth(options.get("strict", "false"), "strict")
        check_output(parts.output, others=[self._rejects])
        rejects.check_path(self._rejects)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write the rows of a partition; runs on executors."""
        freeze_modules()
        bad = _BadRows(self._parts.files.attempt("rejects").with_suffix(".json"))
        n_rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal n_rows
            for batch in iterator:
                if len(batch):
                    yield batch
                    n_rows += len(batch)

        parts = list(self._written(counted(), bad))
        return _Written(parts, bad.path.name if bad.count else "", n_rows, bad.first, bad.count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the file from the output of the tasks; runs on the driver's machine.  Raises SparkPrepError."""
        written = [each for each in messages if isinstance(each, _Written)]
        n_rows, n_bad = sum(each.n_rows for each in written), sum(each.n_bad for each in written)
        examples = [reject for each in written for reject in each.bad]
        if self._strict and n_bad:
            shown = "; ".join(each.reason for each in examples[:_SHOWN])
            raise SparkPrepError(f"{n_bad:,} of {n_rows:,} rows are bad, and strict allows none: {shown}")
        if n_bad == n_rows:
            raise SparkPrepError(nothing_usable("the DataFrame", self.what, n_bad, examples[0] if examples else None))
        with self._parts:
            directory = Path(self._parts.files.directory)
            rejects.take([directory / each.rejects for each in written if each.rejects], self._rejects)
            self._join([part for each in written for part in each.parts], n_rows)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the output of the tasks."""
        with self._parts:
            pass

    def _written(self, batches: Iterator[pa.RecordBatch], bad: _BadRows) -> Iterator[WrittenPart]:
        """Write the parts of a task."""
        raise NotImplementedError

    def _join(self, parts: list[WrittenPart], n_rows: int) -> None:
        """Make the file of the parts."""
        raise NotImplementedError


def _truth(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise SparkPrepError(f"the option {name!r} is true or false, found {text!r}")
    return text.lower() == "true"


class EventWriter(_FileWriter):
    """Writes an event table."""

    what = "event"

    def __init__(self, target: EventTarget, parts: PartSet, options: Mapping[str, str]) -> None:
        super().__init__(parts, options)
        self._target = target

    @classmethod
    def of(cls, schema: T.StructType, path: Path, options: Mapping[str, str]) -> EventWriter:
        """Checks options and columns.  Raises SparkPrepError, ModelError, StorageError."""
        table, form = absolute_path(options["table"]), form_of(options.get("location"), options.get("id"))
        check_output(path, [table])
        digest, vocabulary = table_digest(table), load_vocabulary(table)
        fields = arrow_schema(schema)
        needed = needed_names(vocabulary.attribute_names, form)
        needed_columns(schema.names, vocabulary, form)
        NeededColumns.of(fields, needed, form)
        types = {".".join(at): type_ for at, type_ in leaves(fields)}
        for name, type_ in types.items():
            if name in needed and is_time(type_):  # events keep no times
                raise SparkPrepError(refused_type(name, str(type_)))
        if not any(is_scalar(type_) or is_list(type_) for type_ in types.values()):
            raise SparkPrepError("no column is a number, a string, a boolean or an array of these")
        opaque = tuple(name for name, type_ in types.items() if pa.types.is_map(type_))
        parts = PartSet(path, "events")
        found = cls(EventTarget(form, table, digest, parts.files, opaque), parts, options)
        parts.__enter__()  # left by the commit or the abort, in other processes
        return found

    def _written(self, batches: Iterator[pa.RecordBatch], bad: _BadRows) -> Iterator[WrittenPart]:
        writer, first = EventPartWriter(self._target), 0
        for batch in batches:
            yield from _parts_of(writer.frame(batch, first), bad)
            first += len(batch)
        yield from _parts_of(writer.end(), bad)

    def _join(self, parts: list[WrittenPart], n_rows: int) -> None:
        self._parts.commit(parts, self._parts.attributes(parts[0]) | {"n_events": n_rows})


def _parts_of(records: Iterator[pa.RecordBatch], bad: _BadRows) -> Iterator[WrittenPart]:
    """The parts among the records of an event writer; its bad rows are appended to `bad`."""
    for row in (row for batch in records for row in batch.to_pylist()):
        if row["part"] is not None:
            yield WrittenPart(*(row[name] for name in WrittenPart._fields))
        else:
            bad.append([Reject(row["reason"], "", 0, row["row"])])


class SubscriptionWriter(_FileWriter):
    """Writes a table; `columns` are those of the DataFrame."""

    what = "subscription"

    def __init__(self, columns: SubscriptionColumns, parts: PartSet, options: Mapping[str, str]) -> None:
        super().__init__(parts, options)
        self._columns = columns

    @classmethod
    def of(cls, schema: T.StructType, path: Path, options: Mapping[str, str]) -> SubscriptionWriter:
        """Checks options and columns.  Raises SparkPrepError, StorageError."""
        named = {name: column for name, column in options.items() if name in subscriptions.COLUMNS}
        try:
            columns = subscriptions.columns_of(schema, named)
        except SparkPrepError as error:
            raise SparkPrepError(f"{error}; for events name their table: option('table', PATH)") from None
        found = cls(columns, PartSet(path, "table"), options)
        found._parts.__enter__()  # left by the commit or the abort, in other processes
        return found

    def _written(self, batches: Iterator[pa.RecordBatch], bad: _BadRows) -> Iterator[WrittenPart]:
        builder = TableBuilder(self._columns.metadata)
        for found in subscriptions.parsed(rows_of(batch, self._columns) for batch in batches):
            if isinstance(found, Parsed):
                builder.add(found)
            else:
                bad.append([Reject(each.reason, "", 0, each.row) for each in found])
        if builder:
            table = builder.build()
            path = self._parts.files.attempt("filters")
            table.save(path)
            yield WrittenPart(path.name, partition_id(), table.n_filters, _digest(path), 0)

    def _join(self, parts: list[WrittenPart], n_rows: int) -> None:
        builder = TableBuilder(self._columns.metadata)
        for part in parts:
            path = Path(self._parts.files.directory) / part.part
            if _digest(path) != part.digest:
                raise SparkPrepError(f"{path}: is not what its task wrote; write again")
            builder.add_table(Table.load(path))
        self._parts.commit_whole(builder.build().save)


def _digest(path: Path) -> str:
    with Reader(path, TABLE) as reader:
        return str(reader.attributes["digest"])
