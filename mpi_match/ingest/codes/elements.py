"""Finds the virtual names that elements of attributes satisfy, in compiled code: those that `events.elements` finds.

The tables are those of `element_atoms`.  The names that elements satisfy are added to the atoms of the row.
"""

from __future__ import annotations

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import constant_i64, load_f64, load_i64
from mpi_match.ingest.codes.atoms import (
    ATOM_NAMES,
    ATOMS_FOUND,
    NO_ATOM,
    NO_STATE,
    add_atom,
    add_with_code,
    find_atoms,
    find_beginnings,
    found_code,
    place_of,
    set_found,
)
from mpi_match.ingest.codes.code_tables import code_of_number, code_of_text, first_string_code
from mpi_match.ingest.codes.element_atoms import (
    BEGINNINGS_ROOT,
    BETWEEN_ATOMS,
    BETWEEN_HIGH,
    BETWEEN_LOW,
    ELEMENT_RECORDS,
    FIRST_BETWEEN,
    FIRST_LISTED_NUMBER,
    FIRST_NUMBER,
    FIRST_NUMBER_OUT,
    FIRST_TEXT_OUT,
    IF_FALSE,
    IN_ATOMS,
    IN_BOUNDS,
    LAST_BETWEEN,
    LAST_NUMBER,
    LISTED_NUMBERS,
    NUMBER_EXTREMES,
    OUT_ATOMS,
    OUT_BOUNDS,
    PATTERN_ROOT,
    RECORD_WORDS,
    TEXT_EXTREMES,
    TRIE_ROOT,
)
from mpi_match.ingest.codes.folding import FOLDING_TOO_LONG
from mpi_match.ingest.codes.patterns import find_patterns, literals_behind

_LEAST, _GREATEST = range(2)
_N_EXTREMES = 3


@nested
def _record(record: int, tables: int) -> int:
    return constant_i64(tables, ELEMENT_RECORDS) + 8 * RECORD_WORDS * record


@nested
def _lower_or_raise(found: int, atom: int, which: int, code: int, lowest: int) -> None:
    """Update the extreme of an atom by a code; `lowest` is the least code of its type."""
    if which != _LEAST and which != _GREATEST and (code - lowest) & 1 == 0:
        code = lowest  # no operand: one gap stands for all
    k = place_of(found, atom)
    if k < 0:
        add_with_code(found, atom, code)
        return
    other = found_code(found, k)
    if which == _LEAST:
        code = min(code, other)
    elif which == _GREATEST:
        code = max(code, other)
    elif code != other:
        code = lowest
    set_found(found, k, atom, code)


@nested
def _add_listed(listed: int, first_out: int, last_out: int, tables: int, found: int) -> None:
    """Add the atoms of `in` with a listed value, and those of `not in`, from the first to the last, without it.  NO_ATOM
    stands for a value that is in no list."""
    k, stop = 0, 0
    outs = constant_i64(tables, OUT_ATOMS)
    if listed != NO_ATOM:
        bounds, atoms = constant_i64(tables, IN_BOUNDS), constant_i64(tables, IN_ATOMS)
        for i in range(load_i64(bounds, listed), load_i64(bounds, listed + 1)):
            add_atom(found, load_i64(atoms, i))
        k = load_i64(constant_i64(tables, OUT_BOUNDS), listed)
        stop = load_i64(constant_i64(tables, OUT_BOUNDS), listed + 1)
    for atom in range(first_out, last_out):
        if k < stop and load_i64(outs, k) == atom:
            k += 1
        else:
            add_atom(found, atom)


@nested
def add_text_element(text: tuple[int, int, int], record: int, scratch: tuple[int, int], tables: int, found: int) -> bool:
    """Add the names that a text, data[start:stop], satisfies as an element of the attribute with this record.

    `scratch` and the result are those of `find_patterns`.
    """
    data, start, stop = text
    own, listed = _record(record, tables), NO_ATOM
    if load_i64(own, TRIE_ROOT) != NO_STATE:
        find_atoms(load_i64(own, TRIE_ROOT), data, start, stop, tables, found)
    if load_i64(own, BEGINNINGS_ROOT) != NO_STATE:
        listed = find_beginnings(load_i64(own, BEGINNINGS_ROOT), data, start, stop, tables, found)
    _add_listed(listed, load_i64(own, FIRST_TEXT_OUT), load_i64(own, FIRST_TEXT_OUT + 1), tables, found)
    for which in range(_N_EXTREMES):
        atom = load_i64(own, TEXT_EXTREMES + which)
        if atom != NO_ATOM:
            name = load_i64(constant_i64(tables, ATOM_NAMES), atom)
            code = code_of_text(name, data, start, stop, tables)
            _lower_or_raise(found, atom, which, code, first_string_code(name, tables))
    root = load_i64(own, PATTERN_ROOT)
    if root == NO_STATE:
        return True
    first = load_i64(found, ATOMS_FOUND)
    while root != NO_STATE:
        find_atoms(root, data, start, stop, tables, found)
        root, stop = literals_behind(root, text, scratch, tables)
        if stop == FOLDING_TOO_LONG:
            return False
        data, start = scratch[0], 0
    return find_patterns(first, text, scratch, tables, found)


@nested
def _is_between(number: tuple[float, float], low: int, high: int, i: int) -> bool:
    """Tells whether a number is at least number i of `low`, f64[·, 2], and at most that of `high`."""
    least, greatest = load_f64(low, 2 * i), load_f64(high, 2 * i)
    if number[0] < least or number[0] > greatest:
        return False
    if number[0] == least and number[1] < load_f64(low, 2 * i + 1):
        return False
    return number[0] != greatest or number[1] <= load_f64(high, 2 * i + 1)


@nested
def add_number_element(number: tuple[float, float], record: int, tables: int, found: int) -> None:
    """Add the atoms that a number satisfies as an element of the attribute with this record; the number, not NaN, is given
    as the nearest double and the residue.
    """
    own, numbers = _record(record, tables), constant_i64(tables, LISTED_NUMBERS)
    first, last = load_i64(own, FIRST_NUMBER), load_i64(own, LAST_NUMBER)
    left, right = first, last
    while left < right:
        middle = (left + right) >> 1
        if load_f64(numbers, 2 * middle) < number[0]:
            left = middle + 1
        else:
            right = middle
    while left < last and load_f64(numbers, 2 * left) == number[0] and load_f64(numbers, 2 * left + 1) < number[1]:
        left += 1
    is_listed = left < last and load_f64(numbers, 2 * left) == number[0] and load_f64(numbers, 2 * left + 1) == number[1]
    listed = load_i64(own, FIRST_LISTED_NUMBER) + left - first if is_listed else NO_ATOM
    _add_listed(listed, load_i64(own, FIRST_NUMBER_OUT), load_i64(own, FIRST_NUMBER_OUT + 1), tables, found)
    low, high = constant_i64(tables, BETWEEN_LOW), constant_i64(tables, BETWEEN_HIGH)
    for i in range(load_i64(own, FIRST_BETWEEN), load_i64(own, LAST_BETWEEN)):
        if _is_between(number, low, high, i):
            add_atom(found, load_i64(constant_i64(tables, BETWEEN_ATOMS), i))
    for which in range(_N_EXTREMES):
        atom = load_i64(own, NUMBER_EXTREMES + which)
        if atom != NO_ATOM:
            code = code_of_number(load_i64(constant_i64(tables, ATOM_NAMES), atom), number, tables)
            _lower_or_raise(found, atom, which, code, 0)


@nested
def add_boolean_element(value: int, record: int, tables: int, found: int) -> None:
    """Add the names that false, 0, or true, 1, satisfies as an element of the attribute with this record."""
    atom = load_i64(_record(record, tables), IF_FALSE + value)
    if atom != NO_ATOM:
        add_atom(found, atom)
