"""Subscriptions as DataFrames of rows, which are parsed once, to records (`parcels`).

The rows are those of `mpi_match.ingest.rows.judge`.  In Parquet the columns have the same names:

    interface     string or integer
    constraints   array of struct<name, op, ...>: of the other fields, whatever their names, the one that is not null is
                  the operand (`number: double, string: string, numbers: array<double>`, ...); or a string of JSON
    predicate     string
    where         string: a condition in JSON, or a predicate in text
    tags          array<string>
    filters       array of struct<constraints, where, tags, area, id>; a `where` of theirs is JSON
    area          array<double> [x, y, r], or struct<x, y, r>
    id            string or integer
    arrays        string: "consistent", or null
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpi_match.ingest.json.subscription_scanner import SubscriptionScanner
from mpi_match.ingest.rows.judge import parse_subscription, row_text, subscription_filters, trimmed
from mpi_match.ingest.rows.row_files import partition_values
from mpi_match.model import Filter, Json, ModelError
from mpi_match.table.decode import subscriptions_of
from mpi_match.table.metadata import Metadata
from mpi_match.table.subscriptions import Subscriptions, SubscriptionsBuilder
from mpi_match.table.table import Table
from spark_prep import SparkPrepError, metadata
from spark_prep.arrow_lines import joined_lines
from spark_prep.arrow_records import BadRow
from spark_prep.column_lines import lines_of_columns
from spark_prep.held_events import FEW_ROWS
from spark_prep.java_errors import in_one_line
from spark_prep.parcels import RECORDS_SCHEMA, Parsed, records_of
from spark_prep.sources import PLACE
from spark_prep.splits import Split
from spark_prep.tasks import in_task

COLUMNS = {"interface", "constraints", "where", "tags", "predicate", "filters", "area", "id", "arrays"}
ROWS_OF_FILE = 10_000
"""Rows of Parquet files that are parsed together."""


def check_columns(columns: list[str] | None) -> None:
    """Refuse columns that no subscription has, before every row is rejected for them.  Raises SparkPrepError."""
    unknown = sorted(set(columns or ()) - COLUMNS - {metadata.METADATA_COLUMN})
    if unknown:
        raise SparkPrepError(
            f"subscriptions have no column {unknown[0]!r}; select or rename to: {', '.join(sorted(COLUMNS))}"
        )


class SubscriptionColumns(NamedTuple):
    """The columns of a DataFrame of subscriptions: the column of each member, and the types of those for metadata."""

    members: dict[str, str]
    metadata: dict[str, int]


def renamed(frame: DataFrame, columns: SubscriptionColumns) -> DataFrame:
    """A DataFrame with the columns of subscriptions by their names, and the others as `metadata.METADATA_COLUMN`."""
    found = [_column(column).alias(name) for name, column in columns.members.items()]
    if columns.metadata:
        found.append(F.struct(*(_column(name).alias(name) for name in columns.metadata)).alias(metadata.METADATA_COLUMN))
    return frame.select(*found)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def columns_of(schema: T.StructType, columns: Mapping[str, str]) -> SubscriptionColumns:
    """The column of each member of subscriptions: from `columns`, or the column that has the name of the member; all others
    are for metadata.

    Raises SparkPrepError for an unknown member, a missing column, and metadata without a column of ids.
    """
    there = schema.names
    for name, column in columns.items():
        if name not in COLUMNS:
            raise SparkPrepError(f"subscriptions have no column {name!r}; they have: {', '.join(sorted(COLUMNS))}")
        if column not in there:
            has = ", ".join(map(repr, there))
            raise SparkPrepError(f"there is no column {column!r} for {name!r}; there are: {has}")
    found = {name: name for name in there if name in COLUMNS} | dict(columns)
    others = [field for field in schema if field.name not in found.values()]
    if others and "id" not in found:
        name = others[0].name
        raise SparkPrepError(
            f"the column {name!r} is none of a subscription; name the column of their ids, by which answers can show it, "
            f"id=..., or leave it out: frame.drop({name!r})"
        )
    return SubscriptionColumns(found, metadata.types_of(others))


def rows_of(batch: pa.RecordBatch, columns: SubscriptionColumns) -> pa.RecordBatch:
    """Rows of a DataFrame as those of a source: content, file, block and position."""
    chosen = {name: batch.column(column) for name, column in columns.members.items()}
    if others := list(columns.metadata):
        chosen[metadata.METADATA_COLUMN] = pa.StructArray.from_arrays([batch.column(name) for name in others], others)
    content = pa.StructArray.from_arrays(list(chosen.values()), list(chosen))
    zeros = pa.array(np.zeros(len(batch), np.int64))
    file = pa.repeat(pa.scalar("", pa.string()), len(batch))
    return pa.RecordBatch.from_arrays([content, file, zeros, zeros], ["row", *PLACE])


class TableBuilder:
    """Collects filters with their metadata, and makes their table."""

    def __init__(self, types: Mapping[str, int]) -> None:
        self._types = types
        self._held: list[Subscriptions] = []
        self._texts: list[tuple[bytes, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, found: Parsed) -> None:
        """Appends filters."""
        self._held.append(found.subscriptions)
        self._texts += found.texts_of_ids()

    def add_table(self, table: Table) -> None:
        """Appends those of a table."""
        self._held.append(subscriptions_of(table, np.arange(table.n_filters)))
        self._texts += table.metadata.pairs() if table.metadata is not None else ()

    def build(self) -> Table:
        """The table.  Raises ModelError for an id that has two different metadata."""
        table = Table.from_subscriptions(Subscriptions.concat(self._held))
        return replace(table, metadata=Metadata.of_rows(self._types, self._texts)) if self._texts else table


def table_of(rules: DataFrame) -> Table:
    """The table of a DataFrame of subscriptions, made in the memory of this process.

    Raises SparkPrepError for a stream, a column that is not of subscriptions or metadata, and a bad row.
    """
    if rules.isStreaming:
        raise SparkPrepError(
            "rules of a stream are not a table; compile each batch of them into a directory of versions, and name that"
        )
    columns = columns_of(rules.schema, {})
    builder = TableBuilder(columns.metadata)
    with in_one_line("reading the rules: "):
        batches = rules.toArrow().to_batches()
    for found in parsed(rows_of(batch, columns) for batch in batches):
        if not isinstance(found, Parsed):
            raise SparkPrepError(
                f"a rule is bad: {found[0].row}: {found[0].reason}; compile_subscriptions sets such rows aside"
            )
        builder.add(found)
    if not builder:
        raise SparkPrepError("the DataFrame of rules has no row")
    return builder.build()


def parse(rows: DataFrame) -> DataFrame:
    """Records (`parcels.RECORDS_SCHEMA`) of rows of content, file, block and position (`sources`)."""
    content = "value" if "value" in rows.columns else "row"
    return rows.select(content, *PLACE).mapInArrow(in_task(lambda batches: records_of(parsed(batches))), RECORDS_SCHEMA)


def parse_files(spark: SparkSession, tasks: list[list[Split]]) -> DataFrame:
    """Records of Parquet files that tasks read by themselves, each file with its own schema."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (task for batch in batches for task in batch.column(0).to_pylist())
        yield from records_of(parsed(each for task in numbers for split in tasks[task] for each in _rows_of(split)))

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(in_task(run), RECORDS_SCHEMA)


def _rows_of(split: Split) -> Iterator[pa.RecordBatch]:
    """The rows of a split of a Parquet file: content, file, block and position."""
    directories = partition_values(Path(split.path))
    with pq.ParquetFile(split.path) as file:
        pieces = split.pieces(file.num_row_groups)
        position = sum(file.metadata.row_group(i).num_rows for i in range(pieces.start))
        for batch in file.iter_batches(ROWS_OF_FILE, list(pieces)) if len(pieces) else ():
            n = batch.num_rows
            columns = {name: _plain(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
            columns = {name: pa.repeat(pa.scalar(value, pa.string()), n) for name, value in directories.items()} | columns
            content = pa.StructArray.from_arrays(list(columns.values()), list(columns))
            places = [pa.repeat(split.path, n), pa.repeat(pa.scalar(0, pa.int64()), n), pa.array(np.arange(n) + position)]
            yield pa.RecordBatch.from_arrays([content, *places], ["row", *PLACE])
            position += n


def _plain(column: pa.Array) -> pa.Array:
    """Strings and lists as Spark has them, which are not large and have no dictionary."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _plain(column.dictionary_decode())
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return column.cast(pa.string())
    return column.cast(pa.list_(type_.value_type)) if pa.types.is_large_list(type_) else column


def parsed(batches: Iterator[pa.RecordBatch]) -> Iterator[Parsed | list[BadRow]]:
    """The filters and the bad rows of batches of content, file, block and position, block by block."""
    scanner: SubscriptionScanner | None = None
    n_rows = 0
    for whole in batches:
        batch, texts, bad = metadata.split(whole)
        if bad:
            yield bad
        n_rows += len(batch)
        rows = batch.column(0)
        is_typed = pa.types.is_struct(rows.type)
        lines = None
        if n_rows > FEW_ROWS:
            lines = joined_lines(lines_of_columns(rows) if is_typed else rows)
        if lines is None:
            yield from _judged(contents(batch), batch, texts)
            continue
        scanner = scanner or SubscriptionScanner()
        flagged = scanner.scan(lines, of_columns=is_typed)
        subscriptions, row = scanner.take()
        if subscriptions.n_filters:
            yield Parsed(subscriptions, np.diff(row, prepend=-1) > 0, _of_first(texts, row.tolist()))
        again = ((at, rows[at].as_py() if is_typed else trimmed(text)) for at, text in flagged)
        yield from _judged(again, batch, texts)


def _of_first(texts: Sequence[bytes] | None, rows: Sequence[int]) -> list[bytes | None] | None:
    """The text of each row at its first filter; `rows` are those of filters."""
    if texts is None:
        return None
    return [None if row == before else texts[row] for before, row in pairwise([-1, *rows])]


def _judged(
    rows: Iterable[tuple[int, Any]], batch: pa.RecordBatch, texts: Sequence[bytes] | None
) -> Iterator[Parsed | list[BadRow]]:
    """The filters and the bad rows of some rows of a batch, given with their positions, one by one."""
    builder, first, of = SubscriptionsBuilder(), list[int](), list[int]()
    bad: list[BadRow] = []
    for at, content in rows:
        try:
            found = filters_of(content)
        except ModelError as error:
            bad.append(bad_row(str(error), row_text(content), batch, at))
            continue
        n_before = len(builder)
        for item in found:
            builder.add(item)
        first += [1] + [0] * (len(builder) - n_before - 1)
        of += [at] * (len(builder) - n_before)
    if first:
        yield Parsed(builder.build(), first, _of_first(texts, of))
    if bad:
        yield bad


def contents(batch: pa.RecordBatch) -> Iterator[tuple[int, Any]]:
    """The rows of a batch that are not blank lines, with their positions in it: lines (`rows.trimmed`) or rows of
    Parquet.
    """
    for at, content in enumerate(batch.column(0).to_pylist()):
        row = trimmed(content) if isinstance(content, bytes) else content
        if row != b"":
            yield at, row


def bad_row(reason: str, text: str, batch: pa.RecordBatch, at: int) -> BadRow:
    """Row `at` of a batch of content, file, block and position, as a text (`rows.row_text`), with its fault."""
    file, block, position = (batch.column(i)[at].as_py() for i in (1, 2, 3))
    return BadRow(reason, file, block, position, text)


def filters_of(content: bytes | Json) -> list[Filter]:
    """The filters of one row: a line of JSON, or the columns of a Parquet row.  Raises ModelError."""
    return subscription_filters(parse_subscription(content) if isinstance(content, bytes) else _of_columns(content))


def _of_columns(row: Json) -> Json:
    """A Parquet row in the form of JSON rows, without nulls."""
    found = {key: value for key, value in row.items() if value is not None}
    if isinstance(where := found.get("where"), str):
        is_text = "interface" in row and not where.lstrip().startswith(("{", "["))
        if is_text and "predicate" in found:
            raise ModelError("a subscription has either a 'predicate' or a 'where' in text, not both")
        found |= {"predicate": found.pop("where")} if is_text else {"where": parse_subscription(where)}
    if isinstance(found.get("area"), dict):
        missing = {"x", "y", "r"} - set(found["area"])
        if missing:
            raise ModelError(f"an area is struct<x, y, r> or [x, y, r]; {sorted(missing)[0]!r} is missing")
        found["area"] = [found["area"][key] for key in ("x", "y", "r")]
    if isinstance(found.get("constraints"), str):
        found["constraints"] = parse_subscription(found["constraints"])
    if isinstance(found.get("constraints"), list):
        found["constraints"] = [_constraint(item) if isinstance(item, dict) else item for item in found["constraints"]]
    if isinstance(found.get("filters"), list):
        found["filters"] = [_of_columns(item) if isinstance(item, dict) else item for item in found["filters"]]
    return found


def _constraint(item: Json) -> list[object]:
    """`[name, op, operand]` of a struct; its one other field that is not null is the operand."""
    operands = {key: value for key, value in item.items() if key not in ("name", "op") and value is not None}
    if len(operands) > 1:
        raise ModelError(f"a constraint has one operand; not null are: {', '.join(sorted(operands))}")
    return [item.get("name"), item.get("op"), *operands.values()]
