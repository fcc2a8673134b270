"""Columns of typed event sources (Parquet, DataFrames): which of them can be attributes; see `columns.arrow_to_events`.

A column of a type that no attribute has (a date, bytes, an array of structs with one of these, ...) is

* an error before the job when a filter of the table names it, or when it is to hold the location or the id;
* left out otherwise: no filter asks for it, and it must not make every event a bad row.

What was left out, columns and single values, is written into the event table (`left_out`), which then refuses to be read for
a table or for changes that name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
    """True for a column that is one, and for a struct that has one."""
    leaves = [each for _, each in _leaves(dtype)] if isinstance(dtype, T.StructType) else [dtype]
    return any(map(is_usable, leaves))


ColumnPath = tuple[str, ...]


def usable(source: RowSource, needed: frozenset[str], form: EventForm) -> tuple[RowSource, tuple[str, ...]]:
    """The source without the columns that cannot be attributes, and their names.

    Raises SparkPrepError for such a column that is needed, and for a missing column of the location or the id.
    """
    if source.files is not None:
        return source, _unusable(source.files, needed, form)
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
    kept = _without(F.col("row"), schema, {leaves[name][0] for name in wrong})
    below = (f"{name}." for name, dtype in wrong.items() if isinstance(dtype, T.ArrayType))  # what its structs may have
    return replace(source, rows=source.rows.withColumn("row", kept)), (*wrong, *below)


def _unusable(files: Sequence[Path], needed: frozenset[str], form: EventForm) -> tuple[str, ...]:
    """The names of columns of Parquet files that cannot be attributes.  Raises SparkPrepError, as `usable` does."""
    found: set[str] = set()
    for file in files:
        try:
            with PublishedColumns(file, form, needed) as columns:
                found.update(columns.others)
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


def _without(struct: Column, fields: T.StructType, wrong: set[ColumnPath], path: ColumnPath = ()) -> Column:
    """A struct without some of its leaves, and without structs that are empty then."""
    kept = []
    for field in fields:
        at, column = (*path, field.name), struct.getField(field.name)
        if isinstance(field.dataType, T.StructType):
            if {at + leaf for leaf, _ in _leaves(field.dataType)} <= wrong:
                continue
            kept.append(_without(column, field.dataType, wrong, at).alias(field.name))
        elif at not in wrong:
            kept.append(column.alias(field.name))
    return F.when(struct.isNotNull(), F.struct(*kept))
