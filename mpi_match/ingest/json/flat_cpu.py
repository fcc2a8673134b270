"""Flat JSON lines to attributes on a CPU, names and integers by words of eight bytes.

A line is *flat* if it is an object without others in it, and without lists, as most writers write it:

    {"name-23": 28, "city": "Milan", "load": 0.75}      at most one blank behind a brace, a comma and a colon, none before

Names have 1 to 15 bytes, printable ASCII without escapes.  An integer of at most 7 digits is read here, any other value by
`scanner`, which takes a line that is not flat as a whole: its names go byte by byte, each of which waits for the one before.

The tables are those of `flat_gpu`, the flat lines of integers that a GPU takes.  It wants words aligned and of 32 bits,
no branches, and lanes that go on together, with which a core takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import any_u32, any_u64, constant_pair, load_i64, load_u64, store_u64
from mpi_match.ingest.codes.code_tables import NAME_IDS, NO_ROLE, NOT_FOUND, hashed
from mpi_match.ingest.json.flat_gpu import LEFT_TO_OTHERS, PlainTables, code_of_integer, hash_of_name, plain_arrays
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.vocabulary import Vocabulary

MOST_FLAT_NAMES = 2**16
"""Names for which there are tables: 128 bytes each."""
MOST_OTHERS = 64
"""Names of a line that no constraint uses; with more it is left to others."""
_PAIR_BYTES = 40
"""Bytes from a name on that are read; a line with fewer before the end of all lines is left to others."""
NOT_FLAT = -1
_0, _ONE, _3, _8, _16, _32, _64 = (np.uint64(n) for n in (0, 1, 3, 8, 16, 32, 64))
_BYTE, _BYTES = np.uint64(0xFF), np.uint64(0x78)  # the second: of numbers of bits, those of whole bytes
_ONES, _HIGH, _ABOVE_NINE = (np.uint64(0x0101010101010101 * byte) for byte in (0x01, 0x80, 0x76))
_QUOTES, _BACKSLASHES, _BLANKS, _ZEROS = (np.uint64(0x0101010101010101 * byte) for byte in (34, 92, 32, 48))
_BEGINS, _BEGINS_APART = 0x227B, 0x22207B  # {" and { "
_GOES_ON, _GOES_ON_APART, _ENDS = 0x222C, 0x22202C, 0x0A7D  # ," and , " and }
_COMMA, _BRACE, _COLON, _BLANK, _MINUS = 0x2C, 0x7D, 0x3A22, 32, 45  # the third: ":
_TENS, _PAIRS = np.uint64(10 * 2**8 + 1), np.uint64(0x000000FF000000FF)
_UPPER, _LOWER = np.uint64(1_000_000 * 2**32 + 100), np.uint64(10_000 * 2**32 + 1)


class FlatLines:
    """The tables of flat lines, from those of `codes.code_tables.hashed`; keeps what the addresses are of."""

    def __init__(self, arrays: list[Array]) -> None:
        self.tables = PlainTables(0, 0, 0, 0, 0)
        if len(arrays[NAME_IDS]) <= MOST_FLAT_NAMES:
            self._arrays, code_bits = plain_arrays(arrays)
            names, codes, keys = (array.ctypes.data for array in self._arrays)
            self.tables = PlainTables(names, codes, keys, len(self._arrays[0]) - 1, code_bits)


_MADE: WeakKeyDictionary[Vocabulary, dict[EventForm, FlatLines]] = WeakKeyDictionary()


def flat_lines(vocabulary: Vocabulary, form: EventForm) -> FlatLines:
    """The tables of flat lines for a vocabulary and events of a form, made once as long as the vocabulary lives."""
    made = _MADE.setdefault(vocabulary, {})
    if form not in made:
        made[form] = FlatLines(hashed(vocabulary, form).arrays)
    return made[form]


class _Name(NamedTuple):
    """A name and the quote behind it, then zeros: its first eight bytes, and the others; masks of these; its bits.

    It has none if it is empty or too long.
    """

    lower: np.uint64
    upper: np.uint64
    mask: np.uint64
    more: np.uint64
    n_bits: np.uint64


class _Integer(NamedTuple):
    """The digits of an integer, of `n_bits`, the first in the lowest byte; has it a sign; the position behind it.

    It has no bits if there is no integer of 1 to 7 digits.
    """

    digits: np.uint64
    n_bits: np.uint64
    negative: bool
    after: Any


@inlined
def _zero_bytes(word: np.uint64) -> np.uint64:
    """The high bits of its zero bytes; above the lowest of them perhaps of others, too."""
    return (word - _ONES) & ~word & _HIGH


@inlined
def _below(bits: np.uint64) -> np.uint64:
    """All bits below the lowest of these; all bits if there is none."""
    return (bits - _ONE) & ~bits


@inlined
def _name_at(address: int) -> _Name:
    """The name that begins at an address."""
    lower, upper = any_u64(address), any_u64(address + 8)
    quotes = _zero_bytes(lower ^ _QUOTES)
    if quotes != _0:
        mask = _below(quotes)
        return _Name(lower & mask, _0, mask, _0, np.uint64(popcount(mask)) & _BYTES)
    quotes = _zero_bytes(upper ^ _QUOTES)
    more = _below(quotes)
    n_bits = _64 + (np.uint64(popcount(more)) & _BYTES) if quotes != _0 else _0
    return _Name(lower, upper & more, ~_0, more, n_bits)


@nested
def _unfit(word: np.uint64, mask: np.uint64) -> bool:
    """Is any byte in the mask no printable ASCII, or a backslash?  The others are 0."""
    filled = word | (_BLANKS & ~mask)
    return bool(((filled | ((filled - _BLANKS) & ~filled) | _zero_bytes(filled ^ _BACKSLASHES)) & _HIGH) != _0)


@inlined
def _integer_at(data: int, at: Any) -> _Integer:
    """The integer that begins at byte `at`."""
    negative = any_u32(data + at) & 0xFF == _MINUS
    at += 1 if negative else 0
    digits = any_u64(data + at) ^ _ZEROS
    ends = ((digits + _ABOVE_NINE) | digits) & _HIGH  # above the lowest of them perhaps of others, too
    n_bits = np.uint64(popcount(_below(ends))) & _BYTES if ends != _0 else _0
    if n_bits > _8 and digits & _BYTE == _0:
        n_bits = _0
    return _Integer(digits, n_bits, negative, at + np.int64(n_bits >> _3))


@inlined
def _value_of(integer: _Integer) -> Any:
    """The value of an integer that is there."""
    pairs = (integer.digits << (_64 - integer.n_bits)) * _TENS >> _8
    value = np.int64(((pairs & _PAIRS) * _UPPER + (pairs >> _16 & _PAIRS) * _LOWER) >> _32)
    return -value if integer.negative else value


@nested
def _record_of(name: _Name, flat: PlainTables) -> tuple[int, np.uint32]:
    """The first pair of words of a name's record, or -1; and the name's hash."""
    low, high = np.uint32(name.lower >> _32), np.uint32(name.upper >> _32)
    hash_ = np.uint32(hash_of_name(np.uint32(name.lower), low, np.uint32(name.upper), high))
    record: Any = np.int64(hash_ & np.uint32(flat.mask))
    while True:
        one, two = constant_pair(flat.names, 2 * record)
        if one == name.lower and two == name.upper:
            return 2 * record, hash_
        if np.uint32(one) == np.uint32(0):
            return -1, hash_
        record = (record + 1) & flat.mask


@nested
def _keep_attribute(attributes: int, n: int, item: np.uint64, code_bits: int) -> bool:
    """Put an attribute among n ascending ones; is none of them of the same name?"""
    while n > 0:
        before = load_u64(attributes, n - 1)
        if (before ^ item) >> np.uint64(code_bits) == _0:
            return False
        if before < item:
            break
        store_u64(attributes, n, before)
        n -= 1
    store_u64(attributes, n, item)
    return True


@nested
def _keep_other(others: int, n: int, hash_: np.uint64) -> bool:
    """Append the hash of a name to n others; is it none of them?"""
    for k in range(n):
        if load_u64(others, k) == hash_:
            return False
    store_u64(others, n, hash_)
    return True


@inlined
def _after_brace(data: int, at: int) -> int:
    """The first name of the line that begins at byte `at`, or NOT_FLAT."""
    begin = any_u32(data + at)
    if begin & 0xFFFF == _BEGINS:
        return at + 2
    return at + 3 if begin & 0xFFFFFF == _BEGINS_APART else NOT_FLAT


@inlined
def _after_separator(data: int, at: int) -> int:
    """The next name, or NOT_FLAT; for a line that ends here its line feed, with all bits inverted and less than NOT_FLAT."""
    following = any_u32(data + at)
    if following & 0xFFFFFF == _GOES_ON_APART:
        return at + 3
    if following & 0xFFFF == _GOES_ON:
        return at + 2
    return ~(at + 1) if following & 0xFFFF == _ENDS else NOT_FLAT


def flat_line_scanner(
    scan_value: Callable[..., tuple[int, int]], others_at: int
) -> Callable[[int, Any, int, int, PlainTables, int, int], tuple[Any, int]]:
    """The function that scans a flat line.

    `scan_value(data, at, name, role, tables, work)` is compiled into it, for values that are no short integers: it gets the
    number of the value's name, or NOT_FOUND, and NO_ROLE, and returns where the value ends (a negative number if it is not
    certain), and its code, or NOT_FOUND.  `others_at` is the place in `work` of u64[MOST_OTHERS], for hashes of names.
    """

    @nested
    def scan_pair_value(
        data: int, at: Any, name: Any, two: np.uint64, low: np.int32, flat: PlainTables, tables: int, work: int
    ) -> tuple[Any, Any]:
        """The value at byte `at` of a name (`scan_value`), whose record has words 5 (`low`) to 7 (`two`)."""
        integer = _integer_at(data, at)
        if integer.n_bits != _0:
            following = any_u32(data + integer.after) & 0xFF
            if following in (_COMMA, _BRACE):
                if name == NOT_FOUND:
                    return integer.after, NOT_FOUND
                value, shape, start = np.int32(_value_of(integer)), np.uint32(two), np.uint32(two >> _32)
                return integer.after, np.int64(code_of_integer(value, low, shape, start, flat))
        return scan_value(data, at, name, NO_ROLE, tables, work)

    @nested
    def scan_flat_line(
        data: int, at: Any, stop: int, attributes: int, flat: PlainTables, tables: int, work: int
    ) -> tuple[Any, int]:
        """Scan the line that begins at byte `at` of the address `data`: its line feed, and how many attributes it has.

        NOT_FLAT as the first if it is not flat, or so near to the end of all lines, at byte `stop`, that more would be read.
        The attributes, ascending, are written to the address `attributes`.
        """
        at = _after_brace(data, at) if at + _PAIR_BYTES <= stop else NOT_FLAT
        n, n_others, others = 0, 0, load_i64(work, others_at)
        while at != NOT_FLAT and at + _PAIR_BYTES <= stop and n_others < MOST_OTHERS:
            name = _name_at(data + at)
            at += np.int64(name.n_bits >> _3)
            behind = any_u32(data + at)
            if name.n_bits == _0 or behind & 0xFFFF != _COLON:
                return NOT_FLAT, 0
            at += 3 if behind >> 16 & 0xFF == _BLANK else 2
            record, hash_ = _record_of(name, flat)
            one, two, number = _0, _0, np.int64(NOT_FOUND)
            if record >= 0:
                one, two = constant_pair(flat.names, record + 1)
                number = np.int64(np.uint32(one))
                if np.uint32(two) & np.uint32(LEFT_TO_OTHERS) != np.uint32(0):
                    return NOT_FLAT, 0
            elif _unfit(name.lower, name.mask) or _unfit(name.upper, name.more):
                return NOT_FLAT, 0
            at, code = scan_pair_value(data, at, number, two, np.int32(one >> _32), flat, tables, work)
            if at < 0 or at + 4 > stop:
                return NOT_FLAT, 0
            if record < 0:
                fits = _keep_other(others, n_others, np.uint64(hash_))
                n_others += 1
            else:
                item = np.uint64(number) << np.uint64(flat.code_bits) | np.uint64(code)
                fits = code != NOT_FOUND and _keep_attribute(attributes, n, item, flat.code_bits)
                n += 1
            at = _after_separator(data, at)
            if at < 0 or not fits:
                return (~at, n) if at < NOT_FLAT and fits else (NOT_FLAT, 0)
        return NOT_FLAT, 0

    return scan_flat_line
