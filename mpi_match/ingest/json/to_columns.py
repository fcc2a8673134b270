"""Turns JSON lines into the columns of `Events`, in compiled code: every attribute as it was published.

A line is read, checked and flagged as in `to_codes`, by `every_name`.  An attribute is kept as the numbers of its name
and of its string (`codes.string_pool`), in the order of their first occurrence, its type and its number, and the elements of
a list.  The tables are `code_tables.hashed` of a vocabulary without names: they tell which names hold coordinates and the
id.

If a pool lacks room in the middle of a line, the line is taken back, and the scan ends before it.
"""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import (
    constant_i64,
    load_f64,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_f64,
    store_i64,
    store_u8,
    store_u32,
)
from mpi_match.ingest.codes.code_tables import ID, LOCATED, NAME_ROLES, NO_ROLE, NOT_FOUND, SCALARS, X, find_name
from mpi_match.ingest.codes.numbers import HUGE_INTEGER, INTEGER, LARGE_INTEGER, NOT_READ, residue_at, scan_number
from mpi_match.ingest.codes.string_pool import POOL_FULL, number_of
from mpi_match.ingest.json.every_name import every_name_scanner
from mpi_match.ingest.json.listed_objects import (
    MIXED_NEXT,
    MIXED_NUMBER,
    MIXED_STRING,
    MIXED_TYPE,
    N_LIST_TABLES,
    list_scanner,
)
from mpi_match.ingest.json.text import FLAGGED_LINE, literal, next_line, text_at
from mpi_match.ingest.json.to_codes import (
    ATTRIBUTE_ENDS,
    DECODED,
    ID_BYTES,
    LINES,
    N_ATTRIBUTES,
    N_COUNTS,
    N_IDENTIFIED,
    ROW_LOCATIONS,
    ROWS,
    SCAN_COUNTS,
    clear_row,
    count,
    flag,
    keep_id,
    location_is_whole,
    row_begin,
)
from mpi_match.model import RESIDUE_MASK, Type
from mpi_match.texts.characters import LINE_FEED, MINUS, NINE, OPEN_BRACKET, QUOTE, ZERO

(
    COLUMN_NAME,
    COLUMN_TYPE,
    COLUMN_NUMBER,
    COLUMN_STRING,
    LIST_ENDS,
    ELEMENT_TYPE,
    ELEMENT_NUMBER,
    ELEMENT_STRING,
    COLUMN_POOLS,
) = range(N_LIST_TABLES, N_LIST_TABLES + 9)
"""Places in the table of addresses of a thread, behind those of `listed_objects`:

    COLUMN_NAME, COLUMN_TYPE, COLUMN_NUMBER, COLUMN_STRING   u32, u8, f64, u32: of attributes, as in `Events`
    LIST_ENDS                                                i64: where the elements of each list end
    ELEMENT_TYPE, ELEMENT_NUMBER, ELEMENT_STRING             u8, f64, u32: of elements
    COLUMN_POOLS                                             i64[2]: the addresses of NAMES_POOL and STRINGS_POOL
"""
N_LISTS, N_ELEMENTS, LACKING, SCANNED_TO_BYTE, N_COLUMN_COUNTS = range(N_COUNTS, N_COUNTS + 5)
"""Further counts: lists, elements; the pool without room, or NOT_FOUND; where the next line begins."""
NAMES_POOL, STRINGS_POOL = range(2)
_NOTHING, _NUMBER, _STRING, _BOOLEAN, _LIST, _NULL = map(int, Type)


@nested
def _numbered(pool: int, source: int, start: int, stop: int, hash_: np.uint64, work: int) -> int:
    """The number of a string in a pool; without room POOL_FULL, and the pool is noted."""
    found = number_of(load_i64(load_i64(work, COLUMN_POOLS), pool), source, start, stop, hash_)
    if found == POOL_FULL:
        store_i64(load_i64(work, SCAN_COUNTS), LACKING, pool)
    return found


@nested
def _scan_scalar(data: int, at: int, role: int, tables: int, work: int) -> tuple[int, int, float, int]:
    """Read the value that begins here, not a list or object, of an attribute with a role.  Returns where it ends, its type,
    number and string.  An id is kept, and its type is _NOTHING."""
    byte = load_u8(data, at)
    if byte == QUOTE:
        at, source, start, stop, hash_ = text_at(data, at, load_i64(work, DECODED))
        if at == FLAGGED_LINE or (role != NO_ROLE and role != ID):
            return FLAGGED_LINE, _NOTHING, 0.0, 0
        if role == ID:
            return (at if keep_id(source, start, stop, data, work) else FLAGGED_LINE), _NOTHING, 0.0, 0
        string = _numbered(STRINGS_POOL, source, start, stop, hash_, work)
        return (at if string != POOL_FULL else FLAGGED_LINE), _STRING, 0.0, string
    if byte == MINUS or ZERO <= byte <= NINE:
        start = at
        at, kind, value = scan_number(data, at, tables)
        if role == ID:
            if kind != INTEGER and kind != LARGE_INTEGER and kind != HUGE_INTEGER:
                return FLAGGED_LINE, _NOTHING, 0.0, 0
            is_zero = kind == INTEGER and value == 0.0  # also as -0
            keep_id(data, at - 1 if is_zero else start, at, data, work)
            return at, _NOTHING, 0.0, 0
        if kind in (NOT_READ, HUGE_INTEGER):
            return FLAGGED_LINE, _NOTHING, 0.0, 0
        residue = int(residue_at(data, start, at, value)) if kind == LARGE_INTEGER else 0
        if role != NO_ROLE:
            if residue != 0:
                return FLAGGED_LINE, _NOTHING, 0.0, 0
            row = load_i64(load_i64(work, SCAN_COUNTS), ROWS)
            store_f64(load_i64(work, ROW_LOCATIONS), 2 * row + (0 if role == X else 1), value)
        return at, _NUMBER, value, residue & RESIDUE_MASK
    found, at = literal(data, at)
    if found == 2:
        return at, _NULL if role != ID else _NOTHING, 0.0, 0
    if found < 0 or role != NO_ROLE:
        return FLAGGED_LINE, _NOTHING, 0.0, 0
    return at, _BOOLEAN, np.float64(found), 0


@nested
def _role_of(name: tuple[int, int, int, np.uint64], tables: int) -> int:
    """The role of a name, given by address, start, end and hash."""
    source, start, stop, hash_ = name
    entry = find_name(source, start, stop, hash_, tables)
    return load_i64(constant_i64(tables, NAME_ROLES), entry) if entry != NOT_FOUND else NO_ROLE


@nested
def _number_of_list(dotted: int, stop: int, hash_: np.uint64, tables: int, work: int) -> int:
    """The number of the name dotted[:stop] of a list; negative without room for it, or if no list may have it."""
    if _role_of((dotted, 0, stop, hash_), tables) != NO_ROLE:
        return NOT_FOUND
    return _numbered(NAMES_POOL, dotted, 0, stop, hash_, work)


@nested
def _scan_element(data: int, at: int, tables: int, work: int) -> tuple[int, int, float, int]:
    """Read the value that begins here, not a list or object, as an element.  Returns where it ends, its type, number and
    string."""
    return _scan_scalar(data, at, NO_ROLE, tables, work)


@nested
def _put_attribute(number_of_name: int, value: tuple[int, float, int], n: int, work: int) -> None:
    """Write a value, given by type, number and string, as the n-th attribute that is not counted yet."""
    type_, number, string = value
    i = load_i64(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES) + n
    store_u32(load_i64(work, COLUMN_NAME), i, number_of_name)
    store_u8(load_i64(work, COLUMN_TYPE), i, type_)
    store_f64(load_i64(work, COLUMN_NUMBER), i, number)
    store_u32(load_i64(work, COLUMN_STRING), i, string)


@nested
def _put_list(number_of_name: int, first: int, n: int, work: int) -> None:
    """Write a list as the n-th attribute that is not counted yet, with its elements, which begin at `first` of MIXED_…."""
    counts = load_i64(work, SCAN_COUNTS)
    at, n_lists = load_i64(counts, N_ELEMENTS), load_i64(counts, N_LISTS)
    while first >= 0:
        store_u8(load_i64(work, ELEMENT_TYPE), at, load_u8(load_i64(work, MIXED_TYPE), first))
        store_f64(load_i64(work, ELEMENT_NUMBER), at, load_f64(load_i64(work, MIXED_NUMBER), first))
        store_u32(load_i64(work, ELEMENT_STRING), at, load_u32(load_i64(work, MIXED_STRING), first))
        first = load_i64(load_i64(work, MIXED_NEXT), first)
        at += 1
    store_i64(counts, N_ELEMENTS, at)
    store_i64(load_i64(work, LIST_ENDS), n_lists, at)
    store_i64(counts, N_LISTS, n_lists + 1)
    _put_attribute(number_of_name, (_LIST, 0.0, n_lists), n, work)


_scan_list = list_scanner(_number_of_list, _scan_element, _put_list)


@nested
def _scan_attribute(
    data: int, at: int, name: tuple[int, int, int, np.uint64], n_attributes: int, tables: int, work: int
) -> tuple[int, int]:
    """Write the value at `at`, other than an object, to columns: see `every_name_scanner`."""
    if load_u8(data, at) == OPEN_BRACKET:
        return _scan_list(data, at, name, n_attributes, tables, work)
    source, start, stop, hash_ = name
    at, type_, number, string = _scan_scalar(data, at, _role_of(name, tables), tables, work)
    if at == FLAGGED_LINE or type_ == _NOTHING:
        return at, n_attributes
    number_of_name = _numbered(NAMES_POOL, source, start, stop, hash_, work)
    if number_of_name == POOL_FULL:
        return FLAGGED_LINE, 0
    _put_attribute(number_of_name, (type_, number, string), n_attributes, work)
    return at, n_attributes + 1


_scan_line = every_name_scanner(_scan_attribute)


@nested
def _scan_row(data: int, at: int, tables: int, work: int) -> int:
    """Scan a line as the next row.  Returns where it ends; FLAGGED_LINE if it is not certain or a pool lacks room, and then
    only the count LACKING has changed."""
    counts = load_i64(work, SCAN_COUNTS)
    id_bytes, identified = load_i64(counts, ID_BYTES), load_i64(counts, N_IDENTIFIED)
    n_lists, n_elements = load_i64(counts, N_LISTS), load_i64(counts, N_ELEMENTS)
    located = load_u64(constant_i64(tables, SCALARS), LOCATED) != np.uint64(0)
    clear_row(tables, work)
    end, n_attributes = _scan_line(data, at, tables, work)
    if end != FLAGGED_LINE and (not located or location_is_whole(work)):
        count(counts, N_ATTRIBUTES, n_attributes)
        return end
    clear_row(tables, work)
    store_i64(counts, ID_BYTES, id_bytes)
    store_i64(counts, N_IDENTIFIED, identified)
    store_i64(counts, N_LISTS, n_lists)
    store_i64(counts, N_ELEMENTS, n_elements)
    return FLAGGED_LINE


@jit
def scan_columns(data: int, stop: int, tables: int, work: int) -> None:
    """Scan the lines of data[:stop] u8, whose last byte is a line feed, from SCANNED_TO_BYTE on.

    At the end SCANNED_TO_BYTE is `stop`, unless a pool lacks room.  Blanks, a byte order mark and blank lines are as in
    `scanner.scan_lines`.  The caller sets all counts to 0 before the first line, except those that are given.
    """
    counts = load_i64(work, SCAN_COUNTS)
    store_i64(counts, LACKING, NOT_FOUND)
    at = load_i64(counts, SCANNED_TO_BYTE)
    while at < stop:
        begin = at
        at = row_begin(data, at)
        if load_u8(data, at) != LINE_FEED:
            row = load_i64(counts, ROWS)
            end = _scan_row(data, at, tables, work)
            if end == FLAGGED_LINE:
                if load_i64(counts, LACKING) != NOT_FOUND:
                    return
                end = next_line(data, at) - 1
                flag(load_i64(counts, LINES), begin, end, work)
            store_i64(load_i64(work, ATTRIBUTE_ENDS), row, load_i64(counts, N_ATTRIBUTES))
            store_i64(counts, ROWS, row + 1)
            at = end
        count(counts, LINES, 1)
        at += 1
        store_i64(counts, SCANNED_TO_BYTE, at)
