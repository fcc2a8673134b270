"""Columns of a DataFrame of subscriptions that are carried along as metadata of their ids (`mpi_match.table.metadata`).

On their way they are one column of the rows, a struct, and of the records, texts of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from mpi_match.ingest.rows.judge import row_text as text_of
from mpi_match.model import ModelError
from mpi_match.table.metadata import (
    OF_BOOLEANS,
    OF_DOUBLES,
    OF_INTEGERS,
    OF_LISTS,
    OF_STRINGS,
    Metadata,
    check_name,
    column_arrays,
    row_text,
)
from spark_prep import SparkPrepError
from spark_prep.arrow_records import BadRow
from spark_prep.part_files import PartFiles, WrittenPart, write_parts

METADATA_COLUMN = "$metadata"
"""The struct of these columns in rows; no column of a subscription has this name."""
_CODES: dict[type[T.DataType], int] = {
    **dict.fromkeys((T.FloatType, T.DoubleType), OF_DOUBLES),
    **dict.fromkeys((T.StringType, T.CharType, T.VarcharType, T.NullType), OF_STRINGS),
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), OF_INTEGERS),
    T.BooleanType: OF_BOOLEANS,
}
_TYPES: dict[int, T.DataType] = {
    OF_DOUBLES: T.DoubleType(),
    OF_STRINGS: T.StringType(),
    OF_INTEGERS: T.LongType(),
    OF_BOOLEANS: T.BooleanType(),
}


def types_of(fields: Iterable[T.StructField]) -> dict[str, int]:
    """The types of columns, as in a table.  Raises SparkPrepError for a name or a type that metadata do not have."""
    found = {}
    for field in fields:
        name, type_ = field.name, field.dataType
        try:
            check_name(name)
        except ModelError as error:
            raise SparkPrepError(str(error)) from None
        of = type_.elementType if isinstance(type_, T.ArrayType) else type_
        if type(of) not in _CODES:
            raise SparkPrepError(
                f"the column {name!r} is of type {type_.simpleString()}, which metadata do not have; cast it to a string, "
                f"or leave it out: frame.drop({name!r})"
            )
        found[name] = _CODES[type(of)] + (OF_LISTS if isinstance(type_, T.ArrayType) else 0)
    return found


def fields_of(types: Mapping[str, int]) -> list[T.StructField]:
    """The columns of DataFrames for the types of a table."""
    of = ((name, type_, _TYPES[type_ % OF_LISTS]) for name, type_ in types.items())
    return [T.StructField(name, T.ArrayType(each) if type_ >= OF_LISTS else each) for name, type_, each in of]


def split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[bytes] | None, list[BadRow]]:
    """A batch of content, file, block and position without the struct of metadata; the text of each row; the bad rows,
    which are left out of both.

    No texts where there is no struct.
    """
    rows = batch.column(0)
    if not pa.types.is_struct(rows.type) or METADATA_COLUMN not in rows.type.names:
        return batch, None, []
    texts, good, bad = [], [], []
    for at, row in enumerate(rows.field(METADATA_COLUMN).to_pylist()):
        try:
            texts.append(row_text(row))
            good.append(at)
        except ModelError as error:
            file, block, position = (batch.column(i)[at].as_py() for i in (1, 2, 3))
            bad.append(BadRow(str(error), file, block, position, text_of(rows[at].as_py())))
    names = [name for name in rows.type.names if name != METADATA_COLUMN]
    content = pa.StructArray.from_arrays([rows.field(name) for name in names], names)
    batch = pa.RecordBatch.from_arrays([content, *batch.columns[1:]], batch.schema.names)
    return (batch.take(pa.array(good)) if bad else batch), texts, bad


def write(records: DataFrame, types: Mapping[str, int], partitions: int, files: PartFiles) -> list[WrittenPart]:
    """Parts of a table with the metadata of records, the columns first; none if no record has an id."""

    def written(batches: Iterator[pa.RecordBatch], files: PartFiles) -> Iterator[WrittenPart]:
        pairs = (pair for batch in batches for pair in zip(*(each.to_pylist() for each in batch.columns), strict=True))
        made = Metadata.of_rows(types, pairs)
        if len(made.ids):
            yield files.write("metadata", len(made.ids), 0, made.row_arrays())

    rows = records.where(F.col("metadata").isNotNull() & F.col("id").isNotNull()).select("id", "metadata")
    found = write_parts(rows.repartitionByRange(partitions, "id"), written, files)
    return [files.write("columns", 0, 0, column_arrays(types)), *found] if found else []
