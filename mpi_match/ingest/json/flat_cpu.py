"""Turns flat JSON lines into attributes on a CPU; names and integers are read by words of eight bytes.

A line is *flat* if it is an object without objects and lists in it, written as most writers do:

    {"name-23": 28, "city": "Milan", "load": 0.75}      at most one blank behind a brace, a comma and a colon, none before

Names have 1 to 15 bytes, printable ASCII without escapes.  An integer of at most 7 digits is read here, any other value, and
those with virtual names or views, by `scanner`, which also takes lines that are not flat: it reads names byte by byte, and
each byte waits for the one before.

The tables are those of `flat_gpu`, which reads flat lines of integers on a GPU. Its code has aligned words of 32 bits, no
branches and lanes that proceed together, which would be slower on a core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import any_u32, any_u64, constant_pair, load_u64, store_u64
from mpi_match.compute.vectors import VECTOR_BYTES, lowest_bit, quotes
from mpi_match.ingest.codes.code_tables import ALL_JUDGED, EVERY_STRING_ENTRY, NAME_IDS, NO_ENTRY, SCALARS, hashed
from mpi_match.ingest.json.flat_gpu import LEFT_TO_OTHERS, PlainTables, code_of_integer, hash_of_name, plain_arrays
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.vocabulary import Vocabulary
from mpi_match.texts.characters import BACKSLASH, BLANK, CLOSE_BRACE, COMMA, MINUS, QUOTE, ZERO

MOST_FLAT_NAMES = 2**16
"""Most names with tables, which take 128 bytes each."""
MOST_FLAT_ATTRIBUTES = 8
"""Most attributes of a flat line; lines with more are left to `scanner`."""
_PAIR_BYTES = 40
_MOST_BYTES = 15
"""Bytes that are read from a name on; a line with fewer bytes before the end of all lines is left to `scanner`."""
NOT_FLAT = -1
_0, _1, _3, _8, _16, _32, _64 = (np.uint64(n) for n in (0, 1, 3, 8, 16, 32, 64))
_ALL = np.uint64(2**64 - 1)
_BYTE, _BYTES = np.uint64(0xFF), np.uint64(0x78)  # the second: of numbers of bits, those of whole bytes
_ONES, _HIGH, _ABOVE_NINE = (np.uint64(0x0101010101010101 * byte) for byte in (0x01, 0x80, 0x76))
_QUOTES, _BACKSLASHES, _BLANKS, _ZEROS = (np.uint64(0x0101010101010101 * byte) for byte in (QUOTE, BACKSLASH, BLANK, ZERO))
_BEGINS, _BEGINS_APART, _GOES_ON, _GOES_ON_APART, _ENDS, _COLON = (
    int.from_bytes(text, "little") for text in (b'{"', b'{ "', b',"', b', "', b"}\n", b'":')
)
_TENS, _PAIRS = np.uint64(10 * 2**8 + 1), np.uint64(0x000000FF000000FF)
_UPPER, _LOWER = np.uint64(1_000_000 * 2**32 + 100), np.uint64(10_000 * 2**32 + 1)


class FlatLines:
    """The tables of flat lines, from those of `codes.code_tables.hashed`; keeps the arrays behind the addresses alive."""

    def __init__(self, arrays: list[Array]) -> None:
        self.tables = PlainTables(0, 0, 0, 0, 0)
        scalars = arrays[SCALARS]
        if len(arrays[NAME_IDS]) <= MOST_FLAT_NAMES and scalars[EVERY_STRING_ENTRY] == NO_ENTRY and not scalars[ALL_JUDGED]:
            self._arrays, code_bits = plain_arrays(arrays)
            names, codes, keys = (array.ctypes.data for array in self._arrays)
            self.tables = PlainTables(names, codes, keys, len(self._arrays[0]) - 1, code_bits)


_MADE: WeakKeyDictionary[Vocabulary, dict[EventForm, FlatLines]] = WeakKeyDictionary()


def flat_lines(vocabulary: Vocabulary, form: EventForm) -> FlatLines:
    """The tables of flat lines for a vocabulary and events of a form.  They are made once and live as long as the
    vocabulary."""
    made = _MADE.setdefault(vocabulary, {})
    if form not in made:
        made[form] = FlatLines(hashed(vocabulary, form).arrays)
    return made[form]


class _Name(NamedTuple):
    """A name and the quote after it, then zeros: its first eight bytes, and the others; then the masks of these."""

    lower: np.uint64
    upper: np.uint64
    mask: np.uint64
    more: np.uint64


class _Integer(NamedTuple):
    """The digits of an integer, of `n_bits`, the first in the lowest byte; whether it has a sign; the position after it.

    `n_bits` is 0 unless an integer of 1 to 7 digits begins here.
    """

    digits: np.uint64
    n_bits: np.uint64
    negative: bool
    after: Any


@inlined
def _zero_bytes(word: np.uint64) -> np.uint64:
    """The high bits of the zero bytes of a word; bits above the lowest of these may belong to other bytes."""
    return (word - _ONES) & ~word & _HIGH


@inlined
def _below(bits: np.uint64) -> np.uint64:
    """All bits below the lowest bit that is set; all bits for 0."""
    return (bits - _1) & ~bits


@inlined
def _name_of(address: int, n: int) -> _Name:
    """The name of n bytes, 0 to 15, at an address."""
    n_bits = np.uint64(8 * (n + 1))  # with the quote
    mask = _ALL >> (_64 - n_bits) if n < 8 else _ALL
    more = _0 if n < 8 else _ALL >> (_64 + _64 - n_bits)
    return _Name(any_u64(address) & mask, any_u64(address + 8) & more, mask, more)


@nested
def _unfit(word: np.uint64, mask: np.uint64) -> bool:
    """Tells whether any byte in the mask is a backslash or not printable ASCII. Bytes outside the mask are 0."""
    filled = word | (_BLANKS & ~mask)
    return bool(((filled | ((filled - _BLANKS) & ~filled) | _zero_bytes(filled ^ _BACKSLASHES)) & _HIGH) != _0)


@inlined
def _integer_at(data: int, at: int) -> _Integer:
    """The integer that begins at byte `at`."""
    negative = any_u32(data + at) & 0xFF == MINUS
    at += 1 if negative else 0
    digits = any_u64(data + at) ^ _ZEROS
    ends = ((digits + _ABOVE_NINE) | digits) & _HIGH  # above the lowest of them perhaps of others, too
    n_bits = np.uint64(popcount(_below(ends))) & _BYTES if ends != _0 else _0
    if n_bits > _8 and digits & _BYTE == _0:
        n_bits = _0
    return _Integer(digits, n_bits, negative, at + np.int64(n_bits >> _3))


@inlined
def _value_of(integer: _Integer) -> Int:
    """The value of an integer."""
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


@inlined
def _in_order(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Two items, the lesser first; without a branch, which would be wrong as often as right."""
    return min(a, b), max(a, b)


@nested
def _put_in_order(items: int, n: Int, code_bits: int) -> bool:
    """Put n items, at most MOST_FLAT_ATTRIBUTES, in ascending order.  Returns whether their names are distinct.

    The words after them, up to that number, are overwritten.
    """
    for k in range(n, MOST_FLAT_ATTRIBUTES):
        store_u64(items, k, ~_0)
    a, b, c, d = load_u64(items, 0), load_u64(items, 1), load_u64(items, 2), load_u64(items, 3)
    e, f, g, h = load_u64(items, 4), load_u64(items, 5), load_u64(items, 6), load_u64(items, 7)
    a, c = _in_order(a, c)
    b, d = _in_order(b, d)
    e, g = _in_order(e, g)
    f, h = _in_order(f, h)
    a, e = _in_order(a, e)
    b, f = _in_order(b, f)
    c, g = _in_order(c, g)
    d, h = _in_order(d, h)
    a, b = _in_order(a, b)
    c, d = _in_order(c, d)
    e, f = _in_order(e, f)
    g, h = _in_order(g, h)
    c, e = _in_order(c, e)
    d, f = _in_order(d, f)
    b, e = _in_order(b, e)
    d, g = _in_order(d, g)
    b, c = _in_order(b, c)
    d, e = _in_order(d, e)
    f, g = _in_order(f, g)
    store_u64(items, 0, a)
    store_u64(items, 1, b)
    store_u64(items, 2, c)
    store_u64(items, 3, d)
    store_u64(items, 4, e)
    store_u64(items, 5, f)
    store_u64(items, 6, g)
    store_u64(items, 7, h)
    twice = 0
    for k in range(MOST_FLAT_ATTRIBUTES - 1):
        same = (load_u64(items, k) ^ load_u64(items, k + 1)) >> np.uint64(code_bits) == _0
        twice += 1 if same and k + 1 < n else 0
    return twice == 0


@inlined
def _after_brace(data: int, at: int) -> int:
    """The first name of the line that begins at byte `at`, or NOT_FLAT."""
    begin = any_u32(data + at)
    if begin & 0xFFFF == _BEGINS:
        return at + 2
    return at + 3 if begin & 0xFFFFFF == _BEGINS_APART else NOT_FLAT


def flat_line_scanner(  # noqa: C901  one pass over a line
    scan_named: Callable[..., tuple[int, int]], after_scalar: Callable[[int, int], Int]
) -> Callable[[int, Any, int, int, PlainTables, int, int], tuple[Any, int]]:
    """The function that scans a flat line.

    For values other than short integers, these are compiled into it: `scan_named(data, at, name, to, n, tables, work)`
    writes the value of a name, given by its number, as attribute n to u64 `to`, and returns where the value ends (a negative
    number if it is not certain) and the new number of attributes; `after_scalar(data, at)` returns where a value ends that
    no constraint names, or a negative number.
    """

    @nested
    def scan_flat_line(  # noqa: C901
        data: int, at: Int, stop: int, attributes: int, flat: PlainTables, tables: int, work: int
    ) -> tuple[Any, Any]:
        """Scan the line that begins at byte `at` of the address `data`.  Returns the position of its line feed, and its
        number of attributes.

        The first is NOT_FLAT if the line is not flat, or so near to the end of all lines, at byte `stop`, that bytes after
        it would be read.  The attributes, ascending, are written to the address `attributes`.
        """
        begin, n, name_at, seen = at, np.int64(0), np.int64(NOT_FLAT), _0
        if at + VECTOR_BYTES + _PAIR_BYTES <= stop:
            name_at = _after_brace(data, at)
            marks = quotes(data + begin)
            marks &= marks - _1  # the first is that before the name
        while name_at != NOT_FLAT:
            if marks == _0:
                begin = name_at
                if begin + VECTOR_BYTES + _PAIR_BYTES > stop:
                    return NOT_FLAT, 0
                marks = quotes(data + begin)
            end = begin + lowest_bit(marks)
            marks &= marks - _1
            behind = any_u32(data + end)
            if not 0 < end - name_at <= _MOST_BYTES or behind & 0xFFFF != _COLON:
                return NOT_FLAT, 0
            name = _name_of(data + name_at, end - name_at)
            at = end + (3 if behind >> 16 & 0xFF == BLANK else 2)
            record, _ = _record_of(name, flat)
            integer = _integer_at(data, at)
            following = any_u32(data + integer.after)
            is_short = integer.n_bits != _0 and following & 0xFF in (COMMA, CLOSE_BRACE)
            if record < 0 and (_unfit(name.lower, name.mask) or _unfit(name.upper, name.more)):
                return NOT_FLAT, 0
            item = _0
            if record >= 0:
                one, two = constant_pair(flat.names, record + 1)
                number, shape = np.int64(np.uint32(one)), np.uint32(two)
                if n == MOST_FLAT_ATTRIBUTES:
                    return NOT_FLAT, 0
                if shape & np.uint32(LEFT_TO_OTHERS) != np.uint32(0):
                    own, is_short = _1 << np.uint64(number & 63), False
                    if shape == np.uint32(LEFT_TO_OTHERS) or seen & own != _0:  # values of one name may differ in attributes
                        return NOT_FLAT, 0
                    seen |= own
                value, low, start = np.int32(_value_of(integer)), np.int32(one >> _32), np.uint32(two >> _32)
                if is_short:
                    code = code_of_integer(value, low, shape, start, flat)
                    item = np.uint64(number) << np.uint64(flat.code_bits) | np.uint64(code)
            at = integer.after
            if not is_short:
                if record >= 0:
                    at = end + (3 if behind >> 16 & 0xFF == BLANK else 2)
                    at, more = scan_named(data, at, number, attributes, n, tables, work)
                    if at < 0 or more == n or more > MOST_FLAT_ATTRIBUTES:
                        return NOT_FLAT, 0
                    n = np.int64(more)
                else:
                    at = after_scalar(data, end + (3 if behind >> 16 & 0xFF == BLANK else 2))
                if at < 0 or at + VECTOR_BYTES + _PAIR_BYTES > stop:
                    return NOT_FLAT, 0
                following, begin, marks = any_u32(data + at), at, quotes(data + at)
            elif record >= 0:
                store_u64(attributes, n, item)
                n += 1
            if following & 0xFFFF == _ENDS:
                return (at + 1, n) if _put_in_order(attributes, n, flat.code_bits) else (NOT_FLAT, 0)
            is_apart = following & 0xFFFFFF == _GOES_ON_APART
            if not is_apart and following & 0xFFFF != _GOES_ON:
                return NOT_FLAT, 0
            if marks == _0:
                begin = at
                if begin + VECTOR_BYTES + _PAIR_BYTES > stop:
                    return NOT_FLAT, 0
                marks = quotes(data + begin)
            name_at = begin + lowest_bit(marks) + 1  # rather than by `at`, for which it would have to wait
            marks &= marks - _1
            if name_at != at + (3 if is_apart else 2):
                return NOT_FLAT, 0
        return NOT_FLAT, 0

    return scan_flat_line
