"""Turns typed columns into events as they were published, in compiled code: from column by column to event by event.

A string keeps the position of its entry: the strings of the events are the entries of all columns end to end, with
duplicates.  `json.join_events` makes them distinct.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.exact import nearest_doubles, residues
from mpi_match.arrays.strings import Strings
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.memory import (
    AddressTable,
    load_f64,
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    store_f64,
    store_i64,
    store_u8,
    store_u32,
)
from mpi_match.events.events import Events
from mpi_match.events.lists import ListColumns
from mpi_match.ingest.columns.to_codes import INTEGERS, PAIRS, layout_of
from mpi_match.ingest.columns.typed import ColumnChunk, ListColumn
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.model import RESIDUE_MASK, Type

_COLUMN_TYPE, _VALUES, _INDEX, _BITS, _FIRST_BIT, _FIRST, _LAYOUT, _COLUMN_NAME, _N_WORDS = range(9)
"""Words of a column: its type; addresses, or 0: its values, where these are numbers, and the index of a dictionary; its
validity, with a first bit; the number of its first string or list; the layout of its numbers (`to_codes`); the number of its
name.  Nulls are a column of their own, after the column to which they belong, and their validity marks the entries that are
nulls."""
_BLOCK = 64
"""Number of rows that are read together."""
_ALL, _ONE = np.uint64(2**64 - 1), np.uint64(1)
_IS_NUMBER, _IS_BOOLEAN, _IS_NULL = int(Type.NUMBER), int(Type.BOOLEAN), int(Type.NULL)


class _Pool:
    """The strings of all columns, end to end."""

    def __init__(self) -> None:
        self.parts: list[Strings] = []
        self.n = 0

    def add(self, strings: Strings) -> int:
        """Append strings.  Returns the number of the first of them."""
        first, base = self.n, int(strings.offsets[0])
        self.parts.append(Strings(strings.data[base : int(strings.offsets[-1])], strings.offsets - base))
        self.n += len(strings)
        return first


def events_of_chunk(chunk: ColumnChunk, order: Sequence[str], form: EventForm, ids: Strings | None = None) -> Events:
    """The events of a chunk, their attributes in the `order` of the columns, and with these ids.

    Doubted rows are events without attributes; the caller knows which of them are rejected.
    """
    names = [name for name in order if name != form.id]
    pool, lists, n_lists, words = _Pool(), [], 0, []
    kept: list[Array] = []

    def address(array: Array | None) -> int:
        if array is None:
            return 0
        kept.append(np.ascontiguousarray(array))
        return kept[-1].ctypes.data

    for place, name in enumerate(names):
        column = chunk.lists[name] if name in chunk.lists else chunk.columns[name]
        bits, first_bit = column.validity or (None, 0)
        if isinstance(column, ListColumn):
            lists.append(_elements(column, pool))
            words.append([int(Type.LIST), 0, 0, address(bits), first_bit, n_lists, 0, place])
            n_lists += len(column.offsets) - 1
        else:
            is_text = column.type is Type.STRING
            first = pool.add(cast(Strings, column.values)) if is_text else 0
            values = None if is_text else cast(Array, column.values)
            addresses = (address(array) for array in (values, column.indices, bits))
            words.append([int(column.type), *addresses, first_bit, first, layout_of(column), place])
        if column.nulls is not None:
            words.append([_IS_NULL, 0, 0, address(column.nulls.bits), column.nulls.first_bit, 0, 0, place])
    plan, n = np.array(words, np.int64).reshape(-1, _N_WORDS), chunk.n_events
    most = n * len(names)
    offsets = np.zeros(n + 1, np.int64)
    columns = (offsets, np.empty(most, np.uint32), np.empty(most, np.uint8), np.empty(most), np.empty(most, np.uint32))
    to = AddressTable((*columns, np.empty(_BLOCK * len(words), np.uint32), np.empty(_BLOCK, np.int64)))
    doubted = 0 if chunk.doubted is None else chunk.doubted.ctypes.data
    with compile_once("column-events"):
        _write_events(n, (plan.ctypes.data, len(plan)), doubted, to.address)
    name_, type_, number, string = (array[: offsets[-1]] for array in to.arrays[1:5])
    return Events(
        offsets=offsets,
        name=name_,
        type=type_,
        number=number,
        string=string,
        names=Strings.of(each.encode() for each in names),
        strings=Strings.concat(pool.parts),
        location=chunk.locations(form.location),
        ids=ids if ids is not None and len(ids.data) else None,
        lists=ListColumns.concat(lists) if lists else None,
    )


def _elements(column: ListColumn, pool: _Pool) -> ListColumns:
    """The lists of a column."""
    elements, n = column.elements, int(column.offsets[-1])
    index = np.arange(n) if elements.indices is None else elements.indices
    number, string = np.zeros(n), np.zeros(n, np.uint32)
    if elements.type is Type.STRING:
        string = (pool.add(cast(Strings, elements.values)) + index).astype(np.uint32)
    else:
        numbers = cast(Array, elements.values)[index] + 0.0
        number, string = nearest_doubles(numbers), residues(numbers).astype(np.uint16).astype(np.uint32)
    return ListColumns(column.offsets, np.full(n, elements.type, np.uint8), number, string)


@nested
def _present(column: int, first: int, n: int) -> np.uint64:
    """A bit for each of the n entries, at most 64, of a column from `first` on: set if it is present."""
    every = _ALL >> np.uint64(_BLOCK - n)
    bits, bit = load_i64(column, _BITS), load_i64(column, _FIRST_BIT) + first
    if bits == 0:
        return every
    found, shift = np.uint64(0), bit & 7
    for i in range(bit >> 3, (bit + n + 7) >> 3):
        byte, place = np.uint64(load_u8(bits, i)), 8 * (i - (bit >> 3)) - shift
        found |= byte << np.uint64(place) if place >= 0 else byte >> np.uint64(-place)
    return found & every


@nested
def _find_present(first: int, n: int, columns: tuple[int, int], found: int, counts: int) -> None:
    """Write the present columns of each of n rows, at most 64, to u32[64, columns], and their number to i64[64].

    Few bits of sparse columns are set, and only these are visited one by one.
    """
    words, n_columns = columns
    for row in range(n):
        store_i64(counts, row, 0)
    for k in range(n_columns):
        present = _present(words + 8 * _N_WORDS * k, first, n)
        while present:
            lowest = present & (~present + _ONE)
            row = popcount(lowest - _ONE)
            store_u32(found, row * n_columns + load_i64(counts, row), k)
            store_i64(counts, row, load_i64(counts, row) + 1)
            present ^= lowest


@jit
def _write_events(n: int, columns: tuple[int, int], doubted: int, to: int) -> None:
    """Write the attributes of n events, and the end of those of each.

    `columns`: the address of their words, and how many they are; `to`: the table of offsets, the columns of `Events`, and
    what `_find_present` writes.
    """
    words, n_columns = columns
    ends, names, types = load_i64(to, 0), load_i64(to, 1), load_i64(to, 2)
    numbers, strings = load_i64(to, 3), load_i64(to, 4)
    found, counts = load_i64(to, 5), load_i64(to, 6)
    at = 0
    for first in range(0, n, _BLOCK):
        n_rows = min(_BLOCK, n - first)
        _find_present(first, n_rows, columns, found, counts)
        for row in range(n_rows):
            i = first + row
            for j in range(load_i64(counts, row) if doubted == 0 or load_u8(doubted, i) == 0 else 0):
                k = load_u32(found, row * n_columns + j)
                column = words + 8 * _N_WORDS * k
                type_, values, index = load_i64(column, _COLUMN_TYPE), load_i64(column, _VALUES), load_i64(column, _INDEX)
                entry = load_i32(index, i) if index != 0 else i
                number, string = 0.0, 0
                if type_ == _IS_NUMBER:
                    layout = load_i64(column, _LAYOUT)
                    if layout == PAIRS:
                        number = load_f64(values, 2 * entry) + 0.0
                        string = int(load_f64(values, 2 * entry + 1)) & RESIDUE_MASK
                    elif layout == INTEGERS:
                        number = np.float64(load_i64(values, entry))
                    else:
                        number = load_f64(values, entry) + 0.0
                elif type_ == _IS_BOOLEAN:
                    number = np.float64(load_u8(values, entry))
                elif type_ != _IS_NULL:
                    string = load_i64(column, _FIRST) + entry
                store_u32(names, at, load_i64(column, _COLUMN_NAME))
                store_u8(types, at, type_)
                store_f64(numbers, at, number)
                store_u32(strings, at, string)
                at += 1
            store_i64(ends, i + 1, at)
