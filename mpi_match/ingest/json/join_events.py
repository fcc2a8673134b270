"""Joins consecutive pieces of events, in compiled code, into the arrays that `Events.of` would make of all of them.

Each piece has names, strings and lists of its own, in any order, and perhaps unused ones.  `Events.of` numbers
them as they first occur, and so does the pass that copies the attributes: a number that it meets for the first time is
looked up among those of the whole (`string_pool`), by its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.memory import (
    AddressTable,
    load_f64,
    load_i64,
    load_u8,
    load_u32,
    store_f64,
    store_i64,
    store_u8,
    store_u32,
)
from mpi_match.events.batch import concat_rejected
from mpi_match.events.events import Events
from mpi_match.events.lists import ListColumns
from mpi_match.ingest.codes.code_tables import NOT_FOUND, SEED, hash_of
from mpi_match.ingest.codes.string_pool import POOL_FULL, StringPool, number_of
from mpi_match.model import Type

(
    _OFFSETS,
    _NAME,
    _TYPE,
    _NUMBER,
    _STRING,
    _LIST_OFFSETS,
    _ELEMENT_TYPE,
    _ELEMENT_NUMBER,
    _ELEMENT_STRING,
    _NAME_BYTES,
    _NAME_BOUNDS,
    _STRING_BYTES,
    _STRING_BOUNDS,
    _NAME_NUMBERS,
    _STRING_NUMBERS,
) = range(15)
"""Places in the table of addresses of a piece: the columns of `Events`, and the numbers of its names and strings among those
of the whole, or NOT_FOUND, i64."""
_COLUMNS = ((_NAME, np.uint32), (_TYPE, np.uint8), (_NUMBER, np.float64), (_STRING, np.uint32))
_ELEMENTS = ((_ELEMENT_TYPE, np.uint8), (_ELEMENT_NUMBER, np.float64), (_ELEMENT_STRING, np.uint32))
_ENDS = _OFFSETS, _LIST_OFFSETS
"""In the table of the whole these hold ends: of the attributes of each row, of the elements of each list."""
_N_ROWS, _N_ATTRIBUTES, _N_LISTS, _N_ELEMENTS, _NEXT_ROW, _LACKING, _N_COUNTS = range(7)
"""Counts of the whole; the next row of the piece, and the pool that lacks room for it, or NOT_FOUND."""
_NAMES, _STRINGS = range(2)
_TEXT, _LISTED = int(Type.STRING), int(Type.LIST)
_EMPTY = ListColumns.concat(())


class JoinedEvents:
    """Joins rows of pieces, one range after the other; compiles its function when it is created.

    Locations, ids and rejected rows are given separately, for the same rows.
    """

    def __init__(self) -> None:
        self._begin()
        with compile_once("joined-events"):
            self.add(Events.of([None]))
        self._begin()

    def _begin(self) -> None:
        self._counts = np.zeros(_N_COUNTS, np.int64)
        self._arrays: dict[int, Array] = {k: np.empty(0, np.int64) for k in _ENDS}
        self._arrays |= {k: np.empty(0, dtype) for k, dtype in (*_COLUMNS, *_ELEMENTS)}
        self._bind()
        self._pools = StringPool(), StringPool()
        self._n_events: list[int] = []
        self._location: list[Array | None] = []
        self._ids: list[Strings | None] = []
        self._rejected: list[Array | None] = []
        self._left_out: Counter[str] = Counter()

    def _bind(self) -> None:
        self._whole = AddressTable([self._arrays[k] for k in range(len(self._arrays))])

    def __len__(self) -> int:
        return int(self._counts[_N_ROWS])

    def add(self, piece: Events) -> None:
        """Add all of a piece."""
        self.add_rows([(piece, 0, len(piece))])
        self.leave_out(piece.left_out)
        self.add_places(len(piece), piece.location, piece.ids, piece.rejected)

    def leave_out(self, names: Mapping[str, int]) -> None:
        """Add the names of attributes that cannot be read, with the number of rows that have them (`Events.left_out`)."""
        self._left_out.update(names)

    def add_places(self, n: int, location: Array | None, ids: Strings | None, rejected: Array | None) -> None:
        """Add the locations, ids and rejected rows, as in `Events`, of the next n rows."""
        self._n_events.append(n)
        self._location.append(location)
        self._ids.append(ids)
        self._rejected.append(rejected)

    def add_rows(self, ranges: Sequence[tuple[Events, int, int]]) -> None:
        """Add the attributes of rows `start` to `stop` of pieces."""
        pieces: dict[int, AddressTable] = {}
        for piece, start, stop in ranges:
            if start == stop:
                continue
            if id(piece) not in pieces:
                pieces[id(piece)] = _table(piece)
            self._make_room(piece, start, stop)
            self._counts[_NEXT_ROW], self._counts[_LACKING] = start, NOT_FOUND
            table = pieces[id(piece)].address
            while True:
                pools = self._pools[_NAMES].address, self._pools[_STRINGS].address
                _add_rows(table, stop, self._whole.address, pools, self._counts.ctypes.data)
                if self._counts[_LACKING] == NOT_FOUND:
                    break
                self._pools[int(self._counts[_LACKING])].grow()

    def _make_room(self, piece: Events, start: int, stop: int) -> None:
        """Make room for all of a range, with all lists of the piece."""
        first, last = int(piece.offsets[start]), int(piece.offsets[stop])
        lists = piece.lists or _EMPTY
        rows, attributes, n_lists, elements = self._counts[:_NEXT_ROW].tolist()
        sizes = {_OFFSETS: rows + stop - start, _LIST_OFFSETS: n_lists + len(lists)}
        sizes |= {k: attributes + last - first for k, _ in _COLUMNS}
        sizes |= {k: elements + len(lists.type) for k, _ in _ELEMENTS}
        filled = {_OFFSETS: rows, _LIST_OFFSETS: n_lists} | {k: attributes for k, _ in _COLUMNS}
        small = [k for k, size in sizes.items() if size > len(self._arrays[k])]
        for k in small:
            n = filled.get(k, elements)
            larger = np.empty(max(sizes[k], 2 * len(self._arrays[k])), self._arrays[k].dtype)
            larger[:n] = self._arrays[k][:n]
            self._arrays[k] = larger
        if small:
            self._bind()

    def take(self) -> Events:
        """Take the events that were added since the last call."""
        n_attributes, n_lists, n_elements = self._counts[_N_ATTRIBUTES : _N_ELEMENTS + 1].tolist()
        name, type_, number, string = (self._arrays[k][:n_attributes] for k, _ in _COLUMNS)
        elements = [self._arrays[k][:n_elements] for k, _ in _ELEMENTS]
        names, strings = (pool.strings() for pool in self._pools)
        found = Events(
            offsets=_bounds(self._arrays[_OFFSETS][: len(self)]),
            name=name,
            type=type_,
            number=number,
            string=string,
            names=names,
            strings=strings,
            location=_located(self._location, self._n_events),
            ids=_identified(self._ids, self._n_events),
            rejected=concat_rejected(self._rejected, self._n_events),
            lists=ListColumns(_bounds(self._arrays[_LIST_OFFSETS][:n_lists]), *elements) if n_lists else None,
            left_out=dict(self._left_out),
        )
        self._begin()
        return found


def _bounds(ends: Array) -> Array:
    return np.concatenate([np.zeros(1, np.int64), ends])


def _located(found: list[Array | None], n_events: list[int]) -> Array | None:
    if all(each is None for each in found):
        return None
    pieces = zip(found, n_events, strict=True)
    return np.concatenate([np.full((n, 2), np.nan) if each is None else each for each, n in pieces])


def _identified(found: list[Strings | None], n_events: list[int]) -> Strings | None:
    if all(each is None for each in found):
        return None
    nothing: Array = np.zeros(0, np.uint8)
    pieces = zip(found, n_events, strict=True)
    return Strings.concat([Strings(nothing, np.zeros(n + 1, np.int64)) if each is None else each for each, n in pieces])


def _table(piece: Events) -> AddressTable:
    lists = piece.lists or _EMPTY
    columns = (piece.offsets, piece.name, piece.type, piece.number, piece.string)
    elements = (lists.offsets, lists.type, lists.number, lists.string)
    pools = (piece.names.data, piece.names.offsets, piece.strings.data, piece.strings.offsets)
    numbers = (np.full(len(pool), NOT_FOUND, np.int64) for pool in (piece.names, piece.strings))
    return AddressTable((*columns, *elements, *pools, *numbers))


@nested
def _number(numbers: int, item: int, data: int, bounds: int, pool: int) -> int:
    """The number of a piece's name or string among those of the whole, or POOL_FULL without room for it."""
    found = load_i64(numbers, item)
    if found == NOT_FOUND:
        start, stop = load_i64(bounds, item), load_i64(bounds, item + 1)
        found = number_of(pool, data, start, stop, hash_of(data, start, stop, SEED))
        if found != POOL_FULL:
            store_i64(numbers, item, found)
    return found


@nested
def _number_of_string(piece: int, item: int, pool: int) -> int:
    strings, bounds = load_i64(piece, _STRING_BYTES), load_i64(piece, _STRING_BOUNDS)
    return _number(load_i64(piece, _STRING_NUMBERS), item, strings, bounds, pool)


@nested
def _add_list(piece: int, item: int, whole: int, pool: int, n_lists: int, n_elements: int) -> int:
    """Copy a list after the given numbers of lists and elements.  Returns the new number of elements, or POOL_FULL."""
    bounds = load_i64(piece, _LIST_OFFSETS)
    for k in range(load_i64(bounds, item), load_i64(bounds, item + 1)):
        type_, string = load_u8(load_i64(piece, _ELEMENT_TYPE), k), load_u32(load_i64(piece, _ELEMENT_STRING), k)
        if type_ == _TEXT:
            string = _number_of_string(piece, string, pool)
            if string == POOL_FULL:
                return POOL_FULL
        store_u8(load_i64(whole, _ELEMENT_TYPE), n_elements, type_)
        store_f64(load_i64(whole, _ELEMENT_NUMBER), n_elements, load_f64(load_i64(piece, _ELEMENT_NUMBER), k))
        store_u32(load_i64(whole, _ELEMENT_STRING), n_elements, string)
        n_elements += 1
    store_i64(load_i64(whole, _LIST_OFFSETS), n_lists, n_elements)
    return n_elements


@jit
def _add_rows(piece: int, stop: int, whole: int, pools: tuple[int, int], counts: int) -> None:
    """Copy the rows of a piece from _NEXT_ROW on, up to `stop` or to the first row for which a pool lacks room."""
    offsets, names, types = load_i64(piece, _OFFSETS), load_i64(piece, _NAME), load_i64(piece, _TYPE)
    numbers, strings = load_i64(piece, _NUMBER), load_i64(piece, _STRING)
    name_bytes, name_bounds = load_i64(piece, _NAME_BYTES), load_i64(piece, _NAME_BOUNDS)
    name_numbers = load_i64(piece, _NAME_NUMBERS)
    n_attributes, n_lists = load_i64(counts, _N_ATTRIBUTES), load_i64(counts, _N_LISTS)
    n_elements = load_i64(counts, _N_ELEMENTS)
    store_i64(counts, _LACKING, NOT_FOUND)
    for row in range(load_i64(counts, _NEXT_ROW), stop):
        for k in range(load_i64(offsets, row), load_i64(offsets, row + 1)):
            name = _number(name_numbers, load_u32(names, k), name_bytes, name_bounds, pools[_NAMES])
            type_, string = load_u8(types, k), load_u32(strings, k)
            if type_ == _TEXT:
                string = _number_of_string(piece, string, pools[_STRINGS])
            elif type_ == _LISTED:
                n_elements = _add_list(piece, string, whole, pools[_STRINGS], n_lists, n_elements)
                string = n_lists
                n_lists += 1
            if name == POOL_FULL or string == POOL_FULL or n_elements == POOL_FULL:
                store_i64(counts, _LACKING, _NAMES if name == POOL_FULL else _STRINGS)
                return
            store_u32(load_i64(whole, _NAME), n_attributes, name)
            store_u8(load_i64(whole, _TYPE), n_attributes, type_)
            store_f64(load_i64(whole, _NUMBER), n_attributes, load_f64(numbers, k))
            store_u32(load_i64(whole, _STRING), n_attributes, string)
            n_attributes += 1
        n_rows = load_i64(counts, _N_ROWS)
        store_i64(load_i64(whole, _OFFSETS), n_rows, n_attributes)
        store_i64(counts, _N_ROWS, n_rows + 1)
        store_i64(counts, _N_ATTRIBUTES, n_attributes)
        store_i64(counts, _N_LISTS, n_lists)
        store_i64(counts, _N_ELEMENTS, n_elements)
        store_i64(counts, _NEXT_ROW, row + 1)
