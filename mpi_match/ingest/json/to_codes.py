"""JSON lines to attributes in code space, in compiled code, without a Python object for a line.

A line is read once, from left to right (`line_scanner`).  The bytes of names and strings are hashed while they are checked;
a hash finds the name's entry and the string's code (`codes.code_tables`).  Numbers become doubles (`codes.numbers`), then
codes.
The output is the event as an `EventBatch` has it: packed attributes in ascending order, and location and id where the
`EventForm` names them.

The scanner never rejects a row.  It *flags* a line that it cannot judge with certainty, and `rows.judge` judges that line:
text that is not JSON or not UTF-8, lists or nulls in lists, literals such as NaN, lone surrogates, names that may stand
twice, numbers out of range or undecided, locations that are not two numbers, ids of another type, attributes of whose
elements other operators than `any =` ask, and lines that exceed the scratch arrays.

Every line ends with a line feed, and no loop passes one: it is part of no name, string, number or literal.  Therefore no
function compares positions with the end of the data.  The functions take addresses and numbers, allocate nothing and raise
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import (
    constant_i64,
    load_f64,
    load_i64,
    load_u8,
    load_u64,
    store_f64,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from mpi_match.ingest.codes.atoms import ATOM_ROOTS, ATOMS_FOUND, FOUND_HEADER, NO_STATE, find_atoms
from mpi_match.ingest.codes.code_tables import (
    BOOLEAN_ELEMENT,
    CODE_BITS,
    ELEMENT_SEEDS,
    ELEMENTS,
    HAS_IDS,
    ID,
    JUDGED,
    LOCATED,
    N_ELEMENT_TYPES,
    NAME_IDS,
    NAME_ROLES,
    NO_ROLE,
    NOT_FOUND,
    NUMBER_ELEMENT,
    SCALARS,
    SEED,
    STRING_SEEDS,
    TEXT_ELEMENT,
    VOCABULARY_SIZE,
    X,
    code_of_boolean,
    code_of_number,
    code_of_string,
    feed,
    find_element,
    find_name,
    mixed,
)
from mpi_match.ingest.codes.numbers import INTEGER, LARGE_INTEGER, NOT_READ, scan_number
from mpi_match.ingest.json.flat_cpu import NOT_FLAT, flat_line_scanner
from mpi_match.ingest.json.flat_gpu import PlainTables
from mpi_match.ingest.json.text import (
    FLAGGED_LINE,
    after_blanks,
    after_margin,
    copied,
    decode_string,
    hash_of,
    literal,
    next_line,
    scan_string,
)

MOST_NAMES = 1024
"""Names of a line, at all depths."""
MOST_DEPTH = 16
"""Objects within one another."""

(
    SCAN_COUNTS,
    PACKED_ATTRIBUTES,
    ATTRIBUTE_ENDS,
    ROW_LOCATIONS,
    ID_BOUNDS,
    ID_DATA,
    ROW_ATOMS,
    FLAGGED,
    NAME_HASHES_SEEN,
    PREFIX_ENDS,
    PREFIX_HASHES,
    DOTTED_NAME,
    DECODED,
) = range(13)
"""Places in the table of addresses of a thread: where it writes the rows of its lines, and what it needs for a line.

    SCAN_COUNTS                     i64[N_COUNTS]: how much of each array is filled
    PACKED_ATTRIBUTES                 u64: packed, of row after row, ascending in each
    ATTRIBUTE_ENDS             i64: of each row, the end of its attributes
    ROW_LOCATIONS                   f64[2 ·]: x and y of each row, NaN for one without; not written when no location is named
    ID_BOUNDS                  i64[2 ·]: of each row, where its id begins and ends in the data, zeros for one without,
                               or ~ of where it begins and ends in ID_DATA; not written when no id is named
    ID_DATA                    u8: the ids that had escapes
    ROW_ATOMS                  i64: a set of atoms (`codes.atoms`), those of the row
    FLAGGED                    i64[4 ·]: flagged rows: row, line, start, end in the data, which is before the line feed
    NAME_HASHES_SEEN           u64[NAME_ROOM]: of the line
    PREFIX_ENDS, PREFIX_HASHES i64[MOST_DEPTH], u64[MOST_DEPTH]: length and hash of what names begin with at each depth but
                               the last; there the former has the bits of a number that is an element
    DOTTED_NAME, DECODED       u8[SCRATCH_ROOM]: a name, and a string, without escapes
"""
(
    ROWS,
    LINES,
    N_ATTRIBUTES,
    ID_BYTES,
    N_FLAGGED,
    N_IDENTIFIED,
    N_LOCATED,
    N_ATOMS,
    MOST_ATOMS,
    NAME_ROOM,
    SCRATCH_ROOM,
    ID_ROOM,
    N_COUNTS,
) = range(13)
"""What counts count: rows; lines, blank ones too; attributes; bytes of ids with escapes; flagged rows; rows with an id, with
a location; attributes for atoms.  The last four are given.  MOST_ATOMS: there is room for so many; if N_ATOMS is more in
the end, the lines are to be scanned again with more room.  NAME_ROOM, SCRATCH_ROOM, ID_ROOM: sizes of NAME_HASHES_SEEN, of
DOTTED_NAME and DECODED, and of ID_DATA, the first two at most MOST_NAMES and SCRATCH_BYTES; a line that needs more is
flagged."""
FLAT_IN_VAIN, NOT_TRIED_AS_FLAT = 4, 128
"""Lines in a row that were not flat, and those that are not looked at as flat ones then: see `scan_lines`."""
_POINT, _LIST, _LIST_END, _NULL = 46, 91, 93, 110


@nested
def _seen(seen: int, n: int, mask: np.uint64, hash_: np.uint64) -> bool:
    """Is a name's hash among the n before it?  `mask` has a bit for each of those.  A new hash is kept."""
    if mask >> (hash_ >> np.uint64(58)) & np.uint64(1):
        for k in range(n):
            if load_u64(seen, k) == hash_:
                return True
    store_u64(seen, n, hash_)
    return False


@nested
def count(counts: int, which: int, n: int) -> None:
    """Add to a count."""
    store_i64(counts, which, load_i64(counts, which) + n)


@nested
def keep_id(source: int, start: int, stop: int, data: int, work: int) -> bool:
    """The id of the next row is source[start:stop], where `source` may be `data`; is there room?"""
    counts = load_i64(work, SCAN_COUNTS)
    if source != data:
        filled = load_i64(counts, ID_BYTES)
        if filled + stop - start > load_i64(counts, ID_ROOM):
            return False
        end = copied(source, start, stop, load_i64(work, ID_DATA), filled)
        store_i64(counts, ID_BYTES, end)
        start, stop = ~filled, ~end
    at = 2 * load_i64(counts, ROWS)
    store_i64(load_i64(work, ID_BOUNDS), at, start)
    store_i64(load_i64(work, ID_BOUNDS), at + 1, stop)
    count(counts, N_IDENTIFIED, 1)
    return True


@nested
def _scan_string_value(data: int, at: int, name: int, role: int, tables: int, work: int) -> tuple[int, int]:
    """The string behind an opening quote, as the value of a name: where it ends, and its code, or NOT_FOUND where the name
    has no id; FLAGGED_LINE if it is not certain."""
    seed = load_u64(constant_i64(tables, STRING_SEEDS), name) if name != NOT_FOUND else SEED
    start = at
    at, hash_ = scan_string(data, at, seed)
    source, stop = data, at
    if load_u8(data, at) == 34:
        at += 1
    elif load_u8(data, at) == 92:
        source = load_i64(work, DECODED)
        at, stop = decode_string(data, start, source, 0, load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM))
        start = 0
        if at == FLAGGED_LINE:
            return FLAGGED_LINE, NOT_FOUND
        if name != NOT_FOUND:
            hash_ = hash_of(source, 0, stop, seed)
    else:
        return FLAGGED_LINE, NOT_FOUND
    if role != NO_ROLE:
        if role != ID:
            return FLAGGED_LINE, NOT_FOUND
        if not keep_id(source, start, stop, data, work):
            return FLAGGED_LINE, NOT_FOUND
    if name == NOT_FOUND:
        return at, NOT_FOUND
    root = load_i64(constant_i64(tables, ATOM_ROOTS), name)
    if root != NO_STATE:
        find_atoms(root, source, start, stop, tables, load_i64(work, ROW_ATOMS))
    return at, code_of_string(name, source, start, stop, mixed(hash_), tables)


@nested
def _scan_value(data: int, at: int, name: int, role: int, tables: int, work: int) -> tuple[int, int]:
    """The value that begins here, which is no object, of a name: where it ends, and its code, or NOT_FOUND where the name
    has no id; FLAGGED_LINE if it is not certain."""
    byte = load_u8(data, at)
    if byte == 34:
        return _scan_string_value(data, at + 1, name, role, tables, work)
    if byte == 45 or 48 <= byte <= 57:
        start = at
        at, kind, value = scan_number(data, at, tables)
        if role == ID:
            if kind != INTEGER and kind != LARGE_INTEGER:
                return FLAGGED_LINE, NOT_FOUND
            is_zero = kind == INTEGER and value == 0.0  # also as -0
            keep_id(data, at - 1 if is_zero else start, at, data, work)
            return at, NOT_FOUND
        if kind in (NOT_READ, LARGE_INTEGER):
            return FLAGGED_LINE, NOT_FOUND
        if role != NO_ROLE:
            row = load_i64(load_i64(work, SCAN_COUNTS), ROWS)
            store_f64(load_i64(work, ROW_LOCATIONS), 2 * row + (0 if role == X else 1), value)
        return at, code_of_number(name, value, tables) if name != NOT_FOUND else NOT_FOUND
    found, at = literal(data, at)
    if found == 2:
        return at, NOT_FOUND
    if found < 0 or role != NO_ROLE:
        return FLAGGED_LINE, NOT_FOUND
    return at, code_of_boolean(name, found, tables) if name != NOT_FOUND else NOT_FOUND


@nested
def name_of_number(value: float, type_: int, entry: int, tables: int, work: int) -> int:
    """The name of `any =` that a number or boolean is an element for, of the attribute with this entry; or NOT_FOUND."""
    source = load_i64(work, DECODED)
    store_f64(load_i64(work, PREFIX_ENDS), MOST_DEPTH - 1, value)
    bits = load_u64(load_i64(work, PREFIX_ENDS), MOST_DEPTH - 1)
    for k in range(8):
        store_u8(source, k, np.int64(bits >> np.uint64(56 - 8 * k) & np.uint64(255)))
    hash_ = hash_of(source, 0, 8, load_u64(constant_i64(tables, ELEMENT_SEEDS), N_ELEMENT_TYPES * entry + type_))
    return find_element(source, 0, 8, mixed(hash_), N_ELEMENT_TYPES * entry + type_, tables)


@nested
def _scan_element(data: int, at: int, entry: int, tables: int, work: int) -> tuple[int, int]:
    """The value at `at`, an element of the attribute with this entry (NOT_FOUND: of one without virtual names): where it
    ends, and the name of `any =` that it satisfies or NOT_FOUND; FLAGGED_LINE for null and what is not certain."""
    byte, type_ = load_u8(data, at), TEXT_ELEMENT
    seeds = constant_i64(tables, ELEMENT_SEEDS)
    source, start, stop, hash_, value = data, at + 1, at, SEED, 0.0
    if byte == 34:
        if entry != NOT_FOUND:
            hash_ = load_u64(seeds, N_ELEMENT_TYPES * entry + TEXT_ELEMENT)
        at, hash_ = scan_string(data, start, hash_)
        stop = at
        if load_u8(data, at) == 34:
            at += 1
        elif load_u8(data, at) == 92:
            source = load_i64(work, DECODED)
            at, stop = decode_string(data, start, source, 0, load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM))
            start = 0
            if at != FLAGGED_LINE and entry != NOT_FOUND:
                hash_ = hash_of(source, 0, stop, load_u64(seeds, N_ELEMENT_TYPES * entry + TEXT_ELEMENT))
        else:
            at = FLAGGED_LINE
    elif byte == 45 or 48 <= byte <= 57:
        type_ = NUMBER_ELEMENT
        at, kind, value = scan_number(data, at, tables)
        if kind in (NOT_READ, LARGE_INTEGER):
            at = FLAGGED_LINE
    else:
        type_ = BOOLEAN_ELEMENT
        found, at = literal(data, at)
        value = np.float64(found)
        if found < 0 or found == 2:
            at = FLAGGED_LINE
    if at == FLAGGED_LINE or entry == NOT_FOUND:
        return at, NOT_FOUND
    if type_ != TEXT_ELEMENT:
        return at, name_of_number(value, type_, entry, tables, work)
    return at, find_element(source, start, stop, mixed(hash_), N_ELEMENT_TYPES * entry + type_, tables)


@nested
def _scan_elements(data: int, at: int, entry: int, room: int, to: int, tables: int, work: int) -> tuple[int, int, int]:
    """The elements of the list at `at`, or the value there as the only one, as by `_scan_element`.

    Their names are written to the u64 at `to`, packed.  Returns where they end, the number of elements, and that of names;
    FLAGGED_LINE as the end if one is not certain, or there are more than `room`.
    """
    shift, n_elements, n_found = load_u64(constant_i64(tables, SCALARS), CODE_BITS), 0, 0
    is_list = load_u8(data, at) == _LIST
    if is_list:
        at = after_blanks(data, at + 1)
    more = load_u8(data, at) != (_LIST_END if is_list else _NULL)
    while more:
        if n_elements >= room:
            return FLAGGED_LINE, 0, 0
        at, name = _scan_element(data, at, entry, tables, work)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE, 0, 0
        n_elements += 1
        if name != NOT_FOUND:
            store_u64(to, n_found, np.uint64(name) << shift)
            n_found += 1
        more = False
        if is_list:
            at = after_blanks(data, at)
            more = load_u8(data, at) == 44
            if more:
                at = after_blanks(data, at + 1)
            elif load_u8(data, at) != _LIST_END:
                return FLAGGED_LINE, 0, 0
    return at + 1 if is_list else at, n_elements, n_found


@nested
def _scan_attribute(
    data: int, at: int, name: tuple[int, int, int, np.uint64], room: int, n_attributes: int, tables: int, work: int
) -> tuple[int, int, int]:
    """The value at `at`, which is no object, to codes: see `line_scanner`."""
    entry = find_name(*name, tables)
    name_id = load_i64(constant_i64(tables, NAME_IDS), entry) if entry != NOT_FOUND else NOT_FOUND
    role = load_i64(constant_i64(tables, NAME_ROLES), entry) if entry != NOT_FOUND else NO_ROLE
    is_list = load_u8(data, at) == _LIST
    if role == JUDGED or (is_list and role != NO_ROLE and role != ELEMENTS):
        return FLAGGED_LINE, 0, 0
    attributes = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES)
    end, code, n_elements = at, NOT_FOUND, 0
    if is_list or role == ELEMENTS:
        of = entry if role == ELEMENTS else NOT_FOUND
        end, n_elements, n_found = _scan_elements(data, at, of, room, attributes + 8 * n_attributes, tables, work)
        n_attributes += n_found
    if is_list:
        at, code = end, code_of_boolean(name_id, 2, tables) if name_id != NOT_FOUND else NOT_FOUND
    elif end != FLAGGED_LINE:
        at, code = _scan_value(data, at, name_id, NO_ROLE if role == ELEMENTS else role, tables, work)
    if end == FLAGGED_LINE or at == FLAGGED_LINE:
        return FLAGGED_LINE, 0, 0
    if code != NOT_FOUND:
        shift = load_u64(constant_i64(tables, SCALARS), CODE_BITS)
        store_u64(attributes, n_attributes, np.uint64(name_id) << shift | np.uint64(code))
        n_attributes += 1
    return at, n_elements, n_attributes


def line_scanner(  # noqa: C901  one pass over a line
    scan_attribute: Callable[..., tuple[int, int, int]],
) -> Callable[[int, int, int, int], tuple[int, int]]:
    """The function that scans a line, which `scan_attribute` puts out.

    `scan_attribute(data, at, name, room, n_attributes, tables, work)` is compiled into it.  It gets the value that begins at
    `at`, which is no object; its dotted name as address, start, end and hash; how many elements it may have; and how many
    attributes of the row are written.  It returns where the value ends (FLAGGED_LINE if it is not certain), how many
    elements it has, and how many attributes are written then.
    """

    @nested
    def scan_line(data: int, at: int, tables: int, work: int) -> tuple[int, int]:  # noqa: C901
        """Scan the line that begins at `at` of data u8, which is no blank, as the next row.

        Returns where it ends, at its line feed, and how many attributes were written behind those that are counted;
        FLAGGED_LINE as the end if it is not certain, and then what else is kept of it is wrong.
        """
        if load_u8(data, at) != 123:
            return FLAGGED_LINE, 0
        at = after_blanks(data, at + 1)
        dotted, seen = load_i64(work, DOTTED_NAME), load_i64(work, NAME_HASHES_SEEN)
        prefix_ends, prefix_hashes = load_i64(work, PREFIX_ENDS), load_i64(work, PREFIX_HASHES)
        name_room = load_i64(load_i64(work, SCAN_COUNTS), NAME_ROOM)
        scratch_room = load_i64(load_i64(work, SCAN_COUNTS), SCRATCH_ROOM)
        mask, n_attributes, n_names, n_elements = np.uint64(0), 0, 0, 0
        depth, prefix_end, prefix_hash = 0, 0, SEED
        closing = load_u8(data, at) == 125
        while True:
            while closing:
                at += 1
                if depth == 0:
                    at = after_margin(data, at)
                    return (at if load_u8(data, at) == 10 else FLAGGED_LINE), n_attributes
                depth -= 1
                prefix_end, prefix_hash = load_i64(prefix_ends, depth), load_u64(prefix_hashes, depth)
                at = after_blanks(data, at)
                closing = load_u8(data, at) == 125
                if not closing:
                    if load_u8(data, at) != 44:
                        return FLAGGED_LINE, 0
                    at = after_blanks(data, at + 1)
            if load_u8(data, at) != 34 or n_names + n_elements >= name_room:
                return FLAGGED_LINE, 0
            start = at + 1
            at, hash_ = scan_string(data, start, prefix_hash)
            source, stop = data, at
            if depth or load_u8(data, at) == 92:
                source = dotted
                at, stop = decode_string(data, start, dotted, prefix_end, scratch_room)
                start = 0
                if at == FLAGGED_LINE:
                    return FLAGGED_LINE, 0
                hash_ = hash_of(dotted, prefix_end, stop, prefix_hash)
            elif load_u8(data, at) == 34:
                at += 1
            else:
                return FLAGGED_LINE, 0
            name_hash = mixed(hash_)
            if _seen(seen, n_names, mask, name_hash):
                return FLAGGED_LINE, 0
            n_names += 1
            mask |= np.uint64(1) << (name_hash >> np.uint64(58))
            at = after_blanks(data, at)
            if load_u8(data, at) != 58:
                return FLAGGED_LINE, 0
            at = after_blanks(data, at + 1)
            if load_u8(data, at) == 123:
                if depth + 1 == MOST_DEPTH or stop - start >= scratch_room:
                    return FLAGGED_LINE, 0
                if source == data:
                    stop = copied(data, start, stop, dotted, 0)
                store_u8(dotted, stop, _POINT)
                store_i64(prefix_ends, depth, prefix_end)
                store_u64(prefix_hashes, depth, prefix_hash)
                depth += 1
                prefix_end, prefix_hash = stop + 1, feed(hash_, _POINT)
                at = after_blanks(data, at + 1)
                closing = load_u8(data, at) == 125
                continue
            name, room = (source, start, stop, name_hash), name_room - n_names - n_elements
            at, n_new, n_attributes = scan_attribute(data, at, name, room, n_attributes, tables, work)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE, 0
            n_elements += n_new
            at = after_blanks(data, at)
            if load_u8(data, at) == 44:
                at = after_blanks(data, at + 1)
            elif load_u8(data, at) == 125:
                closing = True
            else:
                return FLAGGED_LINE, 0

    return scan_line


_scan_line = line_scanner(_scan_attribute)


@nested
def _sort(items: int, n: int) -> None:
    """Sort u64 in place by Shell's method: insertion sort for few, decreasing gaps for many."""
    gap = 1
    while 9 * gap < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            item, k = load_u64(items, i), i
            while k >= gap and load_u64(items, k - gap) > item:
                store_u64(items, k, load_u64(items, k - gap))
                k -= gap
            store_u64(items, k, item)
        gap //= 3


@nested
def _distinct(items: int, n: int) -> int:
    """Leave out those of the sorted u64 that are equal to the one before: elements of a list may be; how many there are."""
    kept = 0
    for i in range(n):
        item = load_u64(items, i)
        if kept == 0 or item != load_u64(items, kept - 1):
            store_u64(items, kept, item)
            kept += 1
    return kept


@nested
def _add_atoms(attributes: int, n_attributes: int, tables: int, work: int) -> int:
    """Append the row's atoms to its attributes if there is room for them; returns the number of attributes."""
    counts, found = load_i64(work, SCAN_COUNTS), load_i64(work, ROW_ATOMS)
    scalars = constant_i64(tables, SCALARS)
    n_found, n_before = load_i64(found, ATOMS_FOUND), load_i64(counts, N_ATOMS)
    store_i64(counts, N_ATOMS, n_before + n_found)
    if n_before + n_found > load_i64(counts, MOST_ATOMS):
        return n_attributes
    for k in range(n_found):
        name = load_u64(scalars, VOCABULARY_SIZE) + np.uint64(load_i64(found, FOUND_HEADER + 2 * k + 1))
        store_u64(attributes, n_attributes + k, name << load_u64(scalars, CODE_BITS))
    return n_attributes + n_found


@nested
def end_attributes(n_attributes: int, tables: int, work: int) -> None:
    """Add the next row's atoms to its attributes, put them in order and count them."""
    attributes = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES)
    n_attributes = _add_atoms(attributes, n_attributes, tables, work)
    _sort(attributes, n_attributes)
    count(load_i64(work, SCAN_COUNTS), N_ATTRIBUTES, _distinct(attributes, n_attributes))


@nested
def clear_row(tables: int, work: int) -> None:
    """The next row has no location and no id so far, where the form names these."""
    scalars, at = constant_i64(tables, SCALARS), 2 * load_i64(load_i64(work, SCAN_COUNTS), ROWS)
    if load_u64(scalars, LOCATED) != np.uint64(0):
        store_f64(load_i64(work, ROW_LOCATIONS), at, np.nan)
        store_f64(load_i64(work, ROW_LOCATIONS), at + 1, np.nan)
    if load_u64(scalars, HAS_IDS) != np.uint64(0):
        store_i64(load_i64(work, ID_BOUNDS), at, 0)
        store_i64(load_i64(work, ID_BOUNDS), at + 1, 0)


@nested
def location_is_whole(work: int) -> bool:
    """Has the next row both coordinates, or none?  A location is counted."""
    counts = load_i64(work, SCAN_COUNTS)
    place = load_i64(work, ROW_LOCATIONS) + 16 * load_i64(counts, ROWS)
    x_absent, y_absent = np.isnan(load_f64(place, 0)), np.isnan(load_f64(place, 1))
    if not x_absent and not y_absent:
        count(counts, N_LOCATED, 1)
    return bool(x_absent == y_absent)


@nested
def row_begin(data: int, at: int) -> int:
    """Behind the byte order mark and the blanks that a line may begin with: the row, or the line feed of a blank line."""
    if load_u8(data, at) == 0xEF and load_u8(data, at + 1) == 0xBB and load_u8(data, at + 2) == 0xBF:
        at += 3
    return after_margin(data, at)


@nested
def _scan_row(data: int, at: int, tables: int, work: int) -> int:
    """Scan a line as the next row, put its attributes in order and count them.  Where it ends; FLAGGED_LINE, and then no
    count has changed, if it is not certain."""
    counts = load_i64(work, SCAN_COUNTS)
    id_bytes, identified = load_i64(counts, ID_BYTES), load_i64(counts, N_IDENTIFIED)
    store_i64(load_i64(work, ROW_ATOMS), ATOMS_FOUND, 0)
    located = load_u64(constant_i64(tables, SCALARS), LOCATED) != np.uint64(0)
    clear_row(tables, work)
    end, n_attributes = _scan_line(data, at, tables, work)
    if located and end != FLAGGED_LINE and not location_is_whole(work):
        end = FLAGGED_LINE
    if end == FLAGGED_LINE:
        clear_row(tables, work)
        store_i64(counts, ID_BYTES, id_bytes)
        store_i64(counts, N_IDENTIFIED, identified)
        return FLAGGED_LINE
    end_attributes(n_attributes, tables, work)
    return end


@nested
def flag(line: int, start: int, stop: int, work: int) -> None:
    """Flag the next row, data[start:stop]."""
    counts = load_i64(work, SCAN_COUNTS)
    flagged = load_i64(work, FLAGGED) + 32 * load_i64(counts, N_FLAGGED)
    store_i64(flagged, 0, load_i64(counts, ROWS))
    store_i64(flagged, 1, line)
    store_i64(flagged, 2, start)
    store_i64(flagged, 3, stop)
    count(counts, N_FLAGGED, 1)


_scan_flat_line = flat_line_scanner(_scan_value, NAME_HASHES_SEEN)


@nested
def _take_flat(data: int, at: int, stop: int, tables: int, flat: PlainTables, work: int) -> Any:
    """Scan a line as `_scan_row` does, if it is flat; FLAGGED_LINE, and then no count has changed, if it is not."""
    counts, found = load_i64(work, SCAN_COUNTS), load_i64(work, ROW_ATOMS)
    store_i64(found, ATOMS_FOUND, 0)
    attributes = load_i64(work, PACKED_ATTRIBUTES) + 8 * load_i64(counts, N_ATTRIBUTES)
    end, n = _scan_flat_line(data, at, stop, attributes, flat, tables, work)
    if end == NOT_FLAT:
        return FLAGGED_LINE
    clear_row(tables, work)
    if load_i64(found, ATOMS_FOUND) > 0:
        end_attributes(n, tables, work)
    else:
        count(counts, N_ATTRIBUTES, n)
    return end


@jit
def scan_lines(data: int, start: int, stop: int, tables: int, flat: PlainTables, work: int) -> None:
    """Scan the lines of data[start:stop] u8, whose last byte is a line feed.

    `data` is an address; `tables` and `work` are those of `codes.code_tables.hashed` and of a thread, `flat` those of
    `flat_cpu`.  Blanks around a line and a byte order mark before it are left out as `rows.trimmed` does; a blank line is
    no row.  After `FLAT_IN_VAIN` lines in a row that were not flat, `NOT_TRIED_AS_FLAT` are not tried.
    """
    counts = load_i64(work, SCAN_COUNTS)
    for i in range(MOST_ATOMS):
        store_i64(counts, i, 0)
    at, line, in_vain = start, 0, 0
    not_tried = 0 if flat.names != 0 else stop  # more than there are lines
    while at < stop:
        begin, end = at, FLAGGED_LINE
        if not_tried == 0:
            end = _take_flat(data, at, stop, tables, flat, work)
            in_vain = in_vain + 1 if end == FLAGGED_LINE else 0
            if in_vain == FLAT_IN_VAIN:
                not_tried, in_vain = NOT_TRIED_AS_FLAT, 0
        else:
            not_tried -= 1
        if end == FLAGGED_LINE:
            at = row_begin(data, at)
        if end != FLAGGED_LINE or load_u8(data, at) != 10:
            row = load_i64(counts, ROWS)
            if end == FLAGGED_LINE:
                end = _scan_row(data, at, tables, work)
            if end == FLAGGED_LINE:
                end = next_line(data, at) - 1
                flag(line, begin, end, work)
            store_i64(load_i64(work, ATTRIBUTE_ENDS), row, load_i64(counts, N_ATTRIBUTES))
            store_i64(counts, ROWS, row + 1)
            at = end
        line += 1
        at += 1
    store_i64(counts, LINES, line)


@jit
def scan_single_row(data: int, at: int, tables: int, work: int) -> int:
    """Scan the first row from the line at `at` on, as the only one of the arrays of `work`: how many attributes it has;
    FLAGGED_LINE if it is not certain, or has more atoms than there is room for."""
    counts = load_i64(work, SCAN_COUNTS)
    for i in range(MOST_ATOMS):
        store_i64(counts, i, 0)
    at = row_begin(data, at)
    while load_u8(data, at) == 10:
        at = row_begin(data, at + 1)
    if _scan_row(data, at, tables, work) == FLAGGED_LINE or load_i64(counts, N_ATOMS) > load_i64(counts, MOST_ATOMS):
        return FLAGGED_LINE
    return load_i64(counts, N_ATTRIBUTES)


@jit
def copy_ids(first: int, last: int, data: int, decoded: int, bounds: int, offsets: int, to: int) -> None:
    """Copy the ids of rows first to last, that of row r to u8 `to` from offsets[r] on, i64.

    Their `bounds` (ID_BOUNDS) are places in `data`, or in `decoded` (ID_DATA).
    """
    for row in range(first, last):
        start, stop, filled = load_i64(bounds, 2 * row), load_i64(bounds, 2 * row + 1), load_i64(offsets, row)
        if start >= 0:
            copied(data, start, stop, to, filled)
        else:
            copied(decoded, ~start, ~stop, to, filled)


@jit
def collect(work: int, first_row: int, first_attribute: int, to: int, is_narrow: bool) -> None:
    """Copy what a thread has written behind the rows and attributes of those before it.

    `to` is an `AddressTable` of offsets u32[n + 1], attributes u32 or, unless `is_narrow`, u64, and f64[n, 2] for locations,
    which may be without rows if the thread found none.
    """
    counts = load_i64(work, SCAN_COUNTS)
    ends, packed = load_i64(work, ATTRIBUTE_ENDS), load_i64(work, PACKED_ATTRIBUTES)
    offsets, attributes, location = load_i64(to, 0), load_i64(to, 1), load_i64(to, 2)
    n_rows = load_i64(counts, ROWS)
    for row in range(n_rows):
        store_u32(offsets, first_row + row + 1, first_attribute + load_i64(ends, row))
    for k in range(load_i64(counts, N_ATTRIBUTES)):
        if is_narrow:
            store_u32(attributes, first_attribute + k, load_i64(packed, k))
        else:
            store_u64(attributes, first_attribute + k, load_u64(packed, k))
    if load_i64(counts, N_LOCATED):
        for k in range(2 * n_rows):
            store_f64(location, 2 * first_row + k, load_f64(load_i64(work, ROW_LOCATIONS), k))
