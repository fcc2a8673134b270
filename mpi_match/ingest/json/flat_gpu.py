"""Turns plain JSON lines into attributes, by words of four bytes and almost without branches, for kernels.

A line is *plain* if it is a flat object of names and integers as most writers write them:

    {"name-23": 28, "name-98": 37}      at most one blank behind a brace, a comma and a colon, none before

Names have 1 to 15 bytes, printable ASCII without escapes; integers at most 7 digits and a sign.  All other lines, and lines
in doubt, are left to `scanner.scan_single_row`.  The result does not depend on bytes after the line's end, although they may
be read.

`plain_pair` takes a name and its value at a time, and lanes of a warp wait for one another after each.  The scanner of all
lines goes byte by byte, each of which waits for the one before, through loops that lanes leave at different bytes.  Words
have 32 bits, because a GPU makes two or more instructions of one for 64.

Each pair of a line becomes an *item* of one word, or of two if attributes have 64 bits.  The attributes come first,
ascending, then the hashes of names that no constraint uses.  On a GPU they go where the line's bytes were, from its first
whole word on; a pair has at least six bytes.  A line with less room than that is left to the other scanner, which must have
the bytes elsewhere.  For CPUs see `flat_cpu`.

A name's record is found by its bytes as four words; a name that has one is printable.  Values are integers, so a name's
codes are in a table by value, or there is one of its operands in every 2^shift values:

    PLAIN_NAMES   u32[slots, 8]: open addressing, linear probing; the first word is 0 in a free slot
                  0 to 3  the name, the quote behind it, and zeros
                  4       its number
                  5       the first value with an entry, i32; those below have the same
                  6       the last value less the first; those above have the same; 2^25 times the shift; IN_ORDER, or
                          LEFT_TO_OTHERS, and 1 more for a name with the role ELEMENTS, whose word 4 is its entry
                  7       its first entry in PLAIN_CODES
    PLAIN_CODES   u32: the code of each value; or, for names IN_ORDER, in which one before the first is the name's first
                  operand: the first operand of each stretch of values, and where those of the last end
    PLAIN_KEYS    i32: of each operand as in the vocabulary, twice the greatest integer not above it, and 1 if it is none
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, owners
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import constant_pair, load_i32, load_u32, store_u32
from mpi_match.ingest.codes.code_tables import (
    CODE_BITS,
    ELEMENTS,
    IS_NAMED,
    NAME_BOUNDS,
    NAME_BYTES,
    NAME_IDS,
    NAME_ROLES,
    NO_ROLE,
    NODE_SHAPES,
    NUMBER_BOUNDS,
    NUMBERS,
    SCALARS,
)
from mpi_match.texts.characters import BACKSLASH, BLANK, MINUS, QUOTE, ZERO

UNSURE, LINE_ENDED = np.uint32(2**32 - 1), np.uint32(2**31)
"""Values of `plain_pair` for a position: the line is left to the other scanner; and a bit beside the position, set if the
line has no further pair."""
_NO_NAME = np.uint32(2**32 - 1)
PLAIN_TAIL_WORDS = 4
"""Number of 64-bit words, of any content, that may be read after the last one with bytes of lines."""
LEFT_TO_OTHERS, IN_ORDER = 2**31, 2**30
_SHIFT_AT, _LAST = 25, np.uint32(2**25 - 1)
_MOST_BYTES, _MOST_VALUE = 15, 10**7
_RECORD_WORDS, _PAIRS_OF_RECORD = 8, 2
_DENSE, _ROOMY = (4, 8), (2, 2)
"""Most entries for each operand, and for each name: codes of values, ranges of values."""
_0, _1, _3, _7, _8 = (np.uint32(n) for n in (0, 1, 3, 7, 8))
_QUOTES, _BACKSLASHES, _BLANKS, _ZEROS = (np.uint32(0x01010101 * byte) for byte in (QUOTE, BACKSLASH, BLANK, ZERO))
_ONES, _HIGH, _ABOVE_NINE = np.uint32(0x01010101), np.uint32(0x80808080), np.uint32(0x76767676)
_BYTE, _TWO_BYTES, _THREE_BYTES = np.uint32(0xFF), np.uint32(0xFFFF), np.uint32(0xFFFFFF)
_BEGINS, _BEGINS_APART, _GOES_ON, _GOES_ON_APART, _ENDS, _COLON = (
    np.uint32(int.from_bytes(text, "little")) for text in (b'{"', b'{ "', b',"', b', "', b"}\n", b'":')
)
_BLANK, _MINUS = np.uint32(BLANK), np.uint32(MINUS)
_TENS, _HUNDREDS, _PAIRS = np.uint32(10 * 2**8 + 1), np.uint32(100 * 2**16 + 1), np.uint32(0x00FF00FF)
_MIX = tuple(np.uint32(n) for n in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1))
_WORD, _BYTES = np.uint64(32), np.uint32(0x78)  # of numbers of bits: those of whole bytes


class PlainTables(NamedTuple):
    """Addresses of PLAIN_NAMES, PLAIN_CODES and PLAIN_KEYS; the number of slots, less 1; bits of a code in an attribute.

    All are 0 if no line is tried as a plain one.
    """

    names: int
    codes: int
    keys: int
    mask: int
    code_bits: int


def plain_arrays(arrays: list[Array]) -> tuple[list[Array], int]:
    """The arrays above, made from those of `codes.code_tables.hashed` and the number of bits of a code."""
    names, bounds, roles = arrays[NAME_BYTES], arrays[NAME_BOUNDS], arrays[NAME_ROLES]
    lengths = np.diff(bounds)
    short = np.flatnonzero((lengths > 0) & (lengths <= _MOST_BYTES) & (arrays[NODE_SHAPES] & IS_NAMED != 0))
    place = np.arange(_MOST_BYTES + 1)
    inside = place < lengths[short, None]
    letters = np.where(inside, np.append(names, 0)[np.where(inside, bounds[short, None] + place, -1)], 0).astype(np.uint8)
    is_plain = ~(inside & ((letters < 32) | (letters > 127) | (letters == 34) | (letters == 92))).any(1)
    short, letters = short[is_plain], letters[is_plain]
    records = np.zeros((len(short), _RECORD_WORDS), np.uint32)
    letters[np.arange(len(short)), lengths[short]] = ord('"')
    records[:, :4] = letters.view("<u4")
    records[:, 4], records[:, 6] = short, LEFT_TO_OTHERS + (roles[short] == ELEMENTS)
    usual = np.flatnonzero(roles[short] == NO_ROLE)
    name = arrays[NAME_IDS][short[usual]]
    shapes, codes, keys = _codes(arrays[NUMBERS], arrays[NUMBER_BOUNDS])
    records[usual, 4] = name
    records[usual, 5:] = shapes[name]
    return [_by_hash(records), codes, keys], int(arrays[SCALARS][CODE_BITS])


def _codes(numbers: Array, bounds: Array) -> tuple[Array, Array, Array]:
    """Words 5 to 7 of the record of each name, with the operands `numbers`; PLAIN_CODES, PLAIN_KEYS."""
    floors = np.floor(np.clip(numbers, -_MOST_VALUE - 1, _MOST_VALUE + 1)).astype(np.int64)
    keys = 2 * floors + (floors != numbers)
    counted = [np.append(0, np.cumsum(which))[bounds] for which in (floors < -_MOST_VALUE, np.abs(floors) <= _MOST_VALUE)]
    below, n_inside = (np.diff(each) for each in counted)
    begin = bounds[:-1] + below
    has = n_inside > 0
    low, last = np.zeros((2, len(below)), np.int64)
    low[has] = floors[begin[has]] - 1
    last[has] = floors[(begin + n_inside)[has] - 1] + 1 - low[has]
    in_order = last >= _DENSE[0] * n_inside + _DENSE[1]
    shift = np.zeros_like(last)
    while (narrow := in_order & (last >> shift >= _ROOMY[0] * n_inside + _ROOMY[1])).any():
        shift += narrow
    n_entries = np.where(in_order, (last >> shift) + 3, last + 1)
    first = np.cumsum(n_entries) - n_entries
    name = np.repeat(np.arange(len(below)), n_entries)
    value = low[name] + ((np.arange(len(name)) - first[name] - in_order[name]) << shift[name])
    # the first operand that is not below each value: names and keys ascend
    wide, middle = 2**28, 2**27
    found = np.searchsorted(owners(bounds) * wide + middle + keys, name * wide + middle + 2 * value)
    equal = (found < bounds[name + 1]) & (np.append(keys, 0)[found] == 2 * value)
    codes = np.where(in_order[name], found, 2 * (found - bounds[name]) + equal)
    ordered = np.flatnonzero(in_order)
    codes[first[ordered]] = bounds[ordered]
    codes[(first + n_entries)[ordered] - 1] = (begin + n_inside)[ordered]
    shapes = np.stack([low, last + (shift << _SHIFT_AT) + in_order * IN_ORDER, first + in_order], axis=1)
    return shapes.astype(np.uint32), codes.astype(np.uint32), keys.astype(np.int32)


def _by_hash(records: Array) -> Array:
    """Slots with the records in them, at most a quarter of them used."""
    slots = np.zeros((1 << max(4 * len(records) - 1, 1).bit_length(), _RECORD_WORDS), np.uint32)
    mask = np.uint32(len(slots) - 1)
    with np.errstate(over="ignore"):
        place = _hash_of_names(*records[:, :4].T) & mask
    while len(records):  # those that find their slot taken go on to the next
        _, one_each = np.unique(place, return_index=True)
        put = one_each[slots[place[one_each], 0] == 0]
        slots[place[put]] = records[put]
        records, place = np.delete(records, put, axis=0), (np.delete(place, put) + _1) & mask
    return slots


def _hash_of_names(first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """The hash of a name, or of all names of four arrays."""
    found = np.uint32(first * _MIX[0] + second * _MIX[1] + third * _MIX[2] + fourth * _MIX[3])
    found = np.uint32((found ^ found >> np.uint32(15)) * _MIX[4])
    return found ^ found >> np.uint32(16)


hash_of_name = nested(_hash_of_names)


@nested
def _joined(low: np.uint32, high: np.uint32, shift: np.uint32) -> np.uint32:
    """The 32 bits from bit `shift` of two words on."""
    return np.uint32((np.uint64(high) << _WORD | np.uint64(low)) >> np.uint64(shift))


@nested
def _zero_bytes(word: np.uint32) -> np.uint32:
    """The high bits of its zero bytes; above the lowest of them perhaps of others, too."""
    return np.uint32(np.uint32(word - _ONES) & ~word & _HIGH)


@nested
def _below(bits: np.uint32) -> np.uint32:
    """All bits below the lowest of these; all bits if there is none."""
    return np.uint32(np.uint32(bits - _1) & np.uint32(~bits))


@nested
def _unfit(word: np.uint32, mask: np.uint32) -> np.uint32:
    """A word that is not 0 if any byte in the mask is a backslash or not printable ASCII."""
    filled = np.uint32(word & mask | _BLANKS & np.uint32(~mask))
    return np.uint32((filled | np.uint32(filled - _BLANKS) & ~filled | _zero_bytes(filled ^ _BACKSLASHES)) & _HIGH)


@nested
def _is_unfit(words: tuple[np.uint32, np.uint32, np.uint32, np.uint32], n_bits: np.uint32) -> bool:
    """Tells whether any of the first `n_bits` / 8 bytes is a backslash or not printable ASCII."""
    found = _0
    for k in range(4):
        n: Any = min(max(np.int64(n_bits) - 32 * k, 0), 32)
        found |= _unfit(words[k], np.uint32((1 << n) - 1))
    return bool(found != _0)


@nested
def _four_digits(word: np.uint32) -> np.uint32:
    """The number with four digits, the first in the lowest byte."""
    word = np.uint32(np.uint32(word * _TENS) >> _8 & _PAIRS)
    return np.uint32(np.uint32(word * _HUNDREDS) >> np.uint32(16))


@nested
def _integer(low: np.uint32, high: np.uint32, n_bits: np.uint32) -> np.uint32:
    """The integer with `n_bits` / 8 digits, 1 to 7, the first in the lowest byte; bits above them are ignored."""
    digits = (np.uint64(high) << _WORD | np.uint64(low)) << np.uint64(64 - n_bits)
    upper, lower = _four_digits(np.uint32(digits)), _four_digits(np.uint32(digits >> _WORD))
    return np.uint32(upper * np.uint32(10_000) + lower)


@nested
def code_of_integer(value: np.int32, low: np.int32, shape: np.uint32, start: np.uint32, tables: PlainTables) -> np.uint32:
    """Code of a number on a name with words 5 to 7 of its record: that of `code_of_number`."""
    last, place = np.uint32(shape & _LAST), np.uint32(value - low)
    if np.int32(place) < 0:
        place = _0
    elif place > last:
        place = last
    if shape & np.uint32(IN_ORDER) == 0:
        return np.uint32(load_u32(tables.codes, np.uint32(start + place)))
    entry = np.int64(start) + np.int64(place >> (shape >> np.uint32(_SHIFT_AT) & np.uint32(31)))
    left, stop, wanted = load_u32(tables.codes, entry), load_u32(tables.codes, entry + 1), int(2 * np.int64(value))
    right, found = stop, wanted + 1
    while left < right:
        middle = (left + right) >> 1
        if load_i32(tables.keys, middle) < wanted:
            left = middle + 1
        else:
            right = middle
    if left < stop:
        found = load_i32(tables.keys, left)
    first = load_u32(tables.codes, np.int64(start) - 1)
    return np.uint32(2 * (left - first) + (1 if found == wanted else 0))


@nested
def _item(text: int, place: np.uint32, wide: bool) -> np.uint64:
    low = np.uint64(np.uint32(load_u32(text, np.int64(place))))
    return np.uint64(np.uint32(load_u32(text, np.int64(place) + 1))) << _WORD | low if wide else low


@nested
def _put_item(text: int, place: np.uint32, item: np.uint64, wide: bool) -> None:
    store_u32(text, np.int64(place), np.int64(np.uint32(item)))
    if wide:
        store_u32(text, np.int64(place) + 1, np.int64(np.uint32(item >> _WORD)))


@nested
def _keep_attribute(
    text: int, first: np.uint32, n: np.uint32, n_items: np.uint32, item: np.uint64, name_at: int, wide: bool
) -> bool:
    """Insert an attribute among the first n of the items from word `first` on.  Returns whether one has the same name, in
    the bits from `name_at` on."""
    step = np.uint32(2) if wide else _1
    place, end = np.uint32(first + n * step), np.uint32(first + n_items * step)
    if n < n_items:
        _put_item(text, end, _item(text, place, wide), wide)
    is_there = False
    while place != first:
        before = _item(text, np.uint32(place - step), wide)
        is_there = is_there or (before ^ item) >> np.uint64(name_at) == np.uint64(0)
        if before < item:
            break
        _put_item(text, place, before, wide)
        place = np.uint32(place - step)
    _put_item(text, place, item, wide)
    return is_there


@nested
def _keep_hash(text: int, first: np.uint32, n: np.uint32, n_items: np.uint32, hash_: np.uint64, wide: bool) -> bool:
    """Put the hash of a name after the other items.  Returns whether it is among those from n on."""
    step = np.uint32(2) if wide else _1
    place, end = np.uint32(first + n * step), np.uint32(first + n_items * step)
    is_there = False
    while place != end:
        is_there = is_there or _item(text, place, wide) == hash_
        place = np.uint32(place + step)
    _put_item(text, end, hash_, wide)
    return is_there


@jit
def plain_item(text: int, first: np.uint32, k: int, wide: bool) -> np.uint64:
    """Item k of a line whose items begin at word `first`."""
    return _item(text, np.uint32(first + k * (2 if wide else 1)), wide)


@jit
def plain_start(text: int, at: np.uint32) -> np.uint32:
    """The position of the first byte of the first name in a line that begins at byte `at` of `text` (`plain_pair`); UNSURE
    if the line is not plain."""
    base = np.int64(at >> np.uint32(2))
    word = _joined(np.uint32(load_u32(text, base)), np.uint32(load_u32(text, base + 1)), (at & _3) << _3)
    if word & _TWO_BYTES == _BEGINS:
        return np.uint32(at + np.uint32(2))
    return np.uint32(at + _3) if word & _THREE_BYTES == _BEGINS_APART else UNSURE


@nested
def _pair(text: int, at: np.uint32, tables: PlainTables) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Read the pair that has a name beginning at byte `at`.  Returns the position of the next pair, in the form of
    `plain_pair`; the name's number, or _NO_NAME if no constraint uses it; its hash; and the number's code."""
    base, shift = np.int64(at >> np.uint32(2)), np.uint32((at & _3) << _3)
    left, right = np.uint32(load_u32(text, base + 1)), np.uint32(load_u32(text, base + 2))
    first, second = _joined(np.uint32(load_u32(text, base)), left, shift), _joined(left, right, shift)
    quotes, more = _zero_bytes(first ^ _QUOTES), _zero_bytes(second ^ _QUOTES)
    third = fourth = _0
    if quotes | more == _0:
        left, last = np.uint32(load_u32(text, base + 3)), np.uint32(load_u32(text, base + 4))
        third, fourth = _joined(right, left, shift), _joined(left, last, shift)
        quotes, more = _zero_bytes(third ^ _QUOTES), _zero_bytes(fourth ^ _QUOTES)
        if quotes | more == _0:
            return UNSURE, _NO_NAME, _0, _0
        mask, rest = _below(quotes), _below(more) if quotes == _0 else _0
        third, fourth = np.uint32(third & mask), np.uint32(fourth & rest)
        n_bits = np.uint32(64 + popcount(mask) + popcount(rest))
    else:
        mask, rest = _below(quotes), _below(more) if quotes == _0 else _0
        first, second = np.uint32(first & mask), np.uint32(second & rest)
        n_bits = np.uint32(popcount(mask) + popcount(rest))
    n_bits = np.uint32(n_bits & _BYTES)
    at = np.uint32(at + (n_bits >> _3))
    base, shift = np.int64(at >> np.uint32(2)), np.uint32((at & _3) << _3)
    w0, w1, w2 = (
        np.uint32(load_u32(text, base)),
        np.uint32(load_u32(text, base + 1)),
        np.uint32(load_u32(text, base + 2)),
    )
    w3, w4 = np.uint32(load_u32(text, base + 3)), np.uint32(load_u32(text, base + 4))
    v0, v1, v2, v3 = _joined(w0, w1, shift), _joined(w1, w2, shift), _joined(w2, w3, shift), _joined(w3, w4, shift)
    begin = np.uint32(24) if v0 >> np.uint32(16) & _BYTE == _BLANK else np.uint32(16)  # of digits, in bits, as below
    negative = _joined(v0, v1, begin) & _BYTE == _MINUS
    begin = np.uint32(begin + (_8 if negative else _0))
    d0, d1, d2 = _joined(v0, v1, begin), _joined(v1, v2, begin), _joined(v2, v3, begin)
    t0, t1 = np.uint32(d0 ^ _ZEROS), np.uint32(d1 ^ _ZEROS)
    ends = np.uint32((np.uint32(t0 + _ABOVE_NINE) | t0) & _HIGH)
    mask = _below(ends)
    rest = _below(np.uint32((np.uint32(t1 + _ABOVE_NINE) | t1) & _HIGH)) if ends == _0 else _0
    n_digits = np.uint32(np.uint32(popcount(mask) + popcount(rest)) & _BYTES)
    following = _joined(d0 if n_digits < 32 else d1, d1 if n_digits < 32 else d2, n_digits & np.uint32(31))
    behind = np.uint32(at + ((begin + n_digits) >> _3) + np.uint32(2))
    is_apart = following & _THREE_BYTES == _GOES_ON_APART
    ended = following & _TWO_BYTES == _ENDS
    is_plain = v0 & _TWO_BYTES == _COLON and (is_apart or ended or following & _TWO_BYTES == _GOES_ON)
    is_plain = is_plain and n_bits != _0 and _8 <= n_digits <= np.uint32(56) and (n_digits == _8 or t0 & _BYTE != _0)
    hash_ = hash_of_name(first, second, third, fourth)
    if not is_plain:
        return UNSURE, _NO_NAME, hash_, _0
    after = np.uint32(behind - _1 | LINE_ENDED) if ended else np.uint32(behind + (_1 if is_apart else _0))
    lower, upper = np.uint64(second) << _WORD | np.uint64(first), np.uint64(fourth) << _WORD | np.uint64(third)
    record = np.int64(hash_ & np.uint32(tables.mask)) * _PAIRS_OF_RECORD
    one, two = constant_pair(tables.names, record)
    while one != lower or two != upper:
        if np.uint32(one) == _0:
            return (UNSURE if _is_unfit((first, second, third, fourth), n_bits) else after), _NO_NAME, hash_, _0
        record = np.int64(np.uint32((record >> 1) + 1) & np.uint32(tables.mask)) * _PAIRS_OF_RECORD
        one, two = constant_pair(tables.names, record)
    one, two = constant_pair(tables.names, record + 1)
    name, low, shape, start = np.uint32(one), np.int32(one >> _WORD), np.uint32(two), np.uint32(two >> _WORD)
    if shape & LINE_ENDED != _0:
        return UNSURE, _NO_NAME, hash_, _0
    magnitude = np.int32(_integer(t0, t1, n_digits))
    return after, name, hash_, code_of_integer(np.int32(-magnitude if negative else magnitude), low, shape, start, tables)


@jit
def plain_pair(
    text: int, at: np.uint32, first: np.uint32, n: np.uint32, n_items: np.uint32, tables: PlainTables, wide: bool
) -> tuple[np.uint32, np.uint32, np.uint32]:
    """Read the pair of a plain line that has a name beginning, after the quote, at byte `at` of the address `text`, u32[·].

    `first` is the word where its items begin, of which there are `n_items`, the first n of them attributes; `wide`: items
    have two words.  Returns where the name of the next pair begins, or UNSURE, or LINE_ENDED and the byte after the brace;
    and both numbers with the new item.
    """
    after, name, hash_, code = _pair(text, at, tables)
    room = np.uint32((np.uint32(after & ~LINE_ENDED) >> np.uint32(2)) - first)
    if after == UNSURE or room < np.uint32((n_items + _1) * (np.uint32(2) if wide else _1)):
        return UNSURE, n, n_items
    if name == _NO_NAME:
        is_there = _keep_hash(text, first, n, n_items, np.uint64(hash_), wide)
    else:
        item = np.uint64(name) << np.uint64(tables.code_bits) | np.uint64(code)
        item = item if wide else np.uint64(np.uint32(item))
        is_there = _keep_attribute(text, first, n, n_items, item, tables.code_bits, wide)
        n = np.uint32(n + _1)
    return UNSURE if is_there else after, n, np.uint32(n_items + _1)
