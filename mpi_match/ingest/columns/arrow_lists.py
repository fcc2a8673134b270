"""Resolves names that go through lists in columns of Arrow, as `ingest.rows.flatten` does in rows.

list<struct<arn: string, tags: list<string>>> named r      r: a list without elements; r.arn, r.tags: lists of strings
list<list<int64>> named m                                  m: a list of numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.ingest.columns.plain_arrow import plain_array, plain_type

Path = tuple[str, ...]


def is_any_list(type_: pa.DataType) -> bool:
    """Tells whether a type is one of lists, with any elements."""
    types = pa.types
    return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_))


def leaves(fields: Iterable[pa.Field], path: Path = ()) -> Iterator[tuple[Path, pa.DataType]]:
    """The columns of a schema, and the fields of structs, also of those in lists, each with its type.

    That of lists in lists, and of a field of structs in lists, is one list; lists of structs are lists of nulls, and structs
    are nulls, but for variants, which keep their type.
    """
    for field in fields:
        yield from _leaves_of((*path, field.name), plain_type(field.type), is_inside=False)


def _leaves_of(path: Path, type_: pa.DataType, is_inside: bool) -> Iterator[tuple[Path, pa.DataType]]:
    inner, n_lists = type_, 0
    while is_any_list(inner):
        inner, n_lists = plain_type(inner.value_type), n_lists + 1
    if pa.types.is_struct(inner) and not is_variant(inner):
        if n_lists:
            yield path, pa.large_list(pa.null())
        elif not is_inside:
            yield path, pa.null()
        for field in inner:
            yield from _leaves_of((*path, field.name), plain_type(field.type), is_inside or n_lists > 0)
    else:
        yield path, pa.large_list(inner) if is_inside or n_lists > 1 else type_


def is_variant(type_: pa.DataType) -> bool:
    """Tells whether a type is that of variants of Spark, DuckDB and Parquet, which encode any value of JSON."""
    if not pa.types.is_struct(type_):
        return False
    binary = {field.name for field in type_ if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)}
    return binary >= {"metadata", "value"}


class Leaf(NamedTuple):
    """The array of a leaf, and bool[n], which marks the rows without its name, or None if all rows have it.

    The array is null in those rows, and for nulls.
    """

    array: pa.Array
    absent: Any = None


def leaf_at(array: pa.Array, fields: Sequence[str]) -> Leaf:
    """The leaf at the end of `fields` in a column; the column itself without fields."""
    absent = None
    for at, field in enumerate(fields):
        array = plain_array(array)
        if is_any_list(array.type):
            found = _through_lists(array, fields[at:])
            return Leaf(found, np.asarray(found.is_null()))
        absent = np.asarray(array.is_null()) if array.null_count else None
        array = _field(array, field)
    array = plain_array(array)
    if pa.types.is_struct(array.type):
        objects = np.asarray(array.is_valid())
        return Leaf(pa.nulls(len(array)), objects if absent is None else objects | absent)
    if is_any_list(array.type):
        inner = plain_type(array.type.value_type)
        if is_any_list(inner) or pa.types.is_struct(inner) or inner != array.type.value_type:
            array = _through_lists(array, ())
    return Leaf(array, absent)


def _field(array: pa.Array, name: str) -> pa.Array:
    """A field of structs; null if the struct is null."""
    at = next(i for i, each in enumerate(array.type) if each.name == name)
    return array.flatten()[at]


def _through_lists(array: pa.Array, fields: Sequence[str]) -> pa.Array:
    """A list for each row of the values under a name in an array of lists; null for a row without one.

    Nulls are kept until the end: pyarrow filters no structs and lists that hold strings as views.
    """
    n, row, items = len(array), np.arange(len(array)), plain_array(array)
    for field in fields:
        items, row = _elements(items, row)
        items = plain_array(_field(items, field))
    is_absent = np.ones(n, bool)
    is_absent[row[np.asarray(items.is_valid())]] = False
    items, row = _elements(items, row)
    if pa.types.is_struct(items.type):
        items, row = pa.nulls(0), row[:0]
    elif items.null_count:
        is_there = items.is_valid()
        items, row = items.filter(is_there), row[np.asarray(is_there)]
    offsets = pa.array(offsets_of(np.bincount(row, minlength=n)), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, items, mask=pa.array(is_absent))


def _elements(items: pa.Array, row: Array) -> tuple[pa.Array, Array]:
    """The items in lists of any depth, and their rows i64; a null list has none."""
    while is_any_list(items.type):
        row = np.repeat(row, np.asarray(pc.list_value_length(items).fill_null(0)))
        items = plain_array(items.flatten())
    return items, row
