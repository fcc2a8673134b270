"""Columns of typed event sources (Parquet, DataFrames): which of them can be attributes; see `columns.arrow_to_events`.

A column of a type that no attribute has (a date, bytes, an array of structs with one of these, ...) is

* an error before the job when a filter of the table names it, or when it is to hold the location or the id;
* left out otherwise: no filter asks for it, and it must not make every event a bad row.  In a DataFrame a date, which
  no attribute has either, stands for each of its values that are not null.

The names of columns and values that were left out are written into the event table (`left_out`), which is then refused for a
table or for changes that name one of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from mpi_match.ingest.batches.published_events import PublishedColumns
from mpi_match.ingest.columns.python import refused_type
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import ModelError
from spark_prep import SparkPrepError
from spark_prep.sources import RowSource

_USABLE = (
    T.BooleanType,
    T.ByteType,
    T.CharType,
    T.DecimalType,
    T.DoubleType,
    T.FloatType,
    T.IntegerType,
    T.LongType,
    T.NullType,
    T.ShortType,
    T.StringType,
    T.VarcharType,
)


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """The schema of Spark's Arrow batches.  Raises PySparkException for a type that Arrow does not have."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}  # from 4.3 on
    return to_arrow_schema(schema, **zone)


def is_usable(dtype: T.DataType) -> bool:
    if not isinstance(dtype, T.ArrayType):
        return isinstance(dtype, _USABLE)
    of: T.DataType = dtype
    while isinstance(of, T.ArrayType):
        of = of.elementType
    if isinstance(of, T.StructType):  # names go through arrays
        return all(is_usable(inner) for _, inner in _leaves(of))
    return isinstance(of, _USABLE)


def may_hold_attributes(dtype: T.DataType) -> bool:
    """Tells whether a column is of such a type, or is a struct that has such a field."""
    leaves = [each for _, each in _leaves(dtype)] if isinstance(dtype, T.StructType) else [dtype]
    return any(map(is_usable, leaves))


ColumnPath = tuple[str, ...]
_EPOCH = datetime.date(1970, 1, 1)


def usable(source: RowSource, needed: frozenset[str], form: EventForm) -> tuple[RowSource, tuple[str, ...]]:
    """The source, with each value or element of a column that cannot be an attribute replaced by a date; and the names of
    those columns, arrays and maps, that may contain named values.

    Raises SparkPrepError for such a column that is needed, and for a missing column of the location or the id.
    """
    if source.files is not None:
        return source, _maps_of_files(source.files, needed, form)
    if source.columns is None:
        return source, ()
    schema = source.rows.schema["row"].dataType
    assert isinstance(schema, T.StructType), "rows of typed sources are structs"
    leaves = {".".join(path): (path, dtype) for path, dtype in _leaves(schema)}
    named = (*(form.location or ()), *((form.id,) if form.id is not None else ()))
    wrong = {
        name: dtype
        for name, (_, dtype) in leaves.items()
        if not is_usable(dtype) or (name in named and isinstance(dtype, T.ArrayType))
    }
    for name, dtype in wrong.items():
        if name in needed or any(each.startswith(f"{name}.") for each in needed):  # in a map, or in structs of an array
            raise SparkPrepError(refused_type(name, dtype.simpleString()))
    for name in named:
        if name not in leaves:
            has = ", ".join(map(repr, leaves))
            raise SparkPrepError(f"there is no column {name!r}, which --location or --id names; there are: {has}")
    if len(wrong) == len(leaves):
        types = ", ".join(f"{name!r} of type {dtype.simpleString()}" for name, dtype in wrong.items())
        raise SparkPrepError(f"no column is a number, a string, a boolean or an array of these; there are: {types}")
    if not wrong:
        return source, ()
    kept = _with_dates(F.col("row"), schema, {leaves[name][0] for name in wrong})
    below = (name for name, dtype in wrong.items() if isinstance(dtype, T.ArrayType | T.MapType))
    return replace(source, rows=source.rows.withColumn("row", kept)), tuple(below)


def _maps_of_files(files: Sequence[Path], needed: frozenset[str], form: EventForm) -> tuple[str, ...]:
    """The names of columns of maps in Parquet files.  Raises SparkPrepError, as `usable` does, for columns."""
    found: set[str] = set()
    for file in files:
        try:
            with PublishedColumns(file, form, needed) as columns:
                found.update(columns.maps)
        except ModelError as error:
            raise SparkPrepError(str(error)) from error
    return tuple(sorted(found))


def _leaves(fields: T.StructType, path: ColumnPath = ()) -> Iterator[tuple[ColumnPath, T.DataType]]:
    for field in fields:
        at = (*path, field.name)
        if isinstance(field.dataType, T.StructType):
            yield from _leaves(field.dataType, at)
        else:
            yield at, field.dataType


def _date(value: Column) -> Column:
    """A date in the place of a value, null in the place of a null."""
    return F.when(value.isNotNull(), F.lit(_EPOCH))


def _with_dates(struct: Column, fields: T.StructType, wrong: set[ColumnPath], path: ColumnPath = ()) -> Column:
    """A struct with a date, or null for a null, in the place of some of its leaves."""
    kept = []
    for field in fields:
        at, column = (*path, field.name), struct.getField(field.name)
        if isinstance(field.dataType, T.StructType):
            column = _with_dates(column, field.dataType, wrong, at)
        elif at in wrong:
            if isinstance(field.dataType, T.MapType):  # an empty one can be read, as an empty list
                column = F.map_keys(column)
            column = F.transform(column, _date) if isinstance(field.dataType, T.ArrayType | T.MapType) else _date(column)
        kept.append(column.alias(field.name))
    return F.when(struct.isNotNull(), F.struct(*kept))
