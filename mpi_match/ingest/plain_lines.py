"""Plain JSON lines to attributes, a word of eight bytes at a time and almost without branches, for kernels.

A line is *plain* if it is a flat object of names and integers as most writers write them:

    {"name-23": 28, "name-98": 37}      at most one blank behind a comma and a colon, none before

Names have 1 to 15 bytes, printable ASCII without escapes; integers at most 7 digits and a sign.  Whatever else there is, or
may be, is left to `scanner.scan_single_row`: a line is plain with certainty or not at all.

`plain_pair` takes a name and its value at a time, and lanes of a warp wait for one another after each.  The scanner of all
lines goes byte by byte, each of which waits for the one before, through loops that lanes leave at different bytes.

A name's record is found by its bytes as two words, without a look at its bytes elsewhere, and has all that a number needs:

    PLAIN_NAMES     u64[slots, 8]: open addressing, linear probing; the first word is 0 in a free slot
                    0, 1  the name, and zeros
                    2, 3  BUCKET_LOW, BUCKET_SCALE (`vocabulary_hash`)
                    4     its first operand, and 2^32 times the number of its operands
                    5     where its buckets begin, or LEFT_TO_OTHERS
                    6     its packed attribute with the code 0
    PLAIN_BUCKETS   u64[buckets, 2]: the first operand of each bucket, NaN if it has none; the bucket's first operand, and
                    2^32 times the end of its last
    PLAIN_NUMBERS   f64: the operands of all names, as in the vocabulary
    PLAIN_MASK      u64: of the numbers of slots
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import bits_as_f64, constant_i64, constant_pair, load_f64, load_u64
from mpi_match.ingest.vocabulary_hash import (
    BUCKET_FIRST,
    BUCKET_LOW,
    BUCKET_SCALE,
    CODE_BITS,
    NAME_BOUNDS,
    NAME_BYTES,
    NAME_IDS,
    NAME_ROLES,
    NO_ROLE,
    NUMBER_BOUNDS,
    NUMBERS,
    SCALARS,
    bucket_of,
)

PLAIN_NAMES, PLAIN_BUCKETS, PLAIN_NUMBERS, PLAIN_MASK = range(4)
"""Places in the table of addresses of `plain_tables`."""
LINE_ENDED, UNSURE = -2, -1
"""What `plain_pair` returns for a position: the line has no other pair; it is left to others."""
PLAIN_TAIL_WORDS = 4
"""Words behind the last one with bytes of lines that `plain_pair` may read, of any content."""
LEFT_TO_OTHERS = 2**63
NO_ATTRIBUTE = np.uint64(2**64 - 1)
_MOST_BYTES = 15
_RECORD_WORDS, _PAIRS_OF_RECORD = 8, 4
_0, _1, _3, _7, _63 = (np.uint64(n) for n in (0, 1, 3, 7, 63))
_8, _16, _29, _32, _56, _64 = (np.uint64(n) for n in (8, 16, 29, 32, 56, 64))
_BYTE, _LOW_HALF = np.uint64(255), np.uint64(2**32 - 1)
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _BLANKS, _ZEROS = (np.uint64(0x0101010101010101 * byte) for byte in (34, 92, 32, 48))
_ABOVE_NINE = np.uint64(0x7676767676767676)
_TENS, _HUNDREDS, _TEN_THOUSANDS = (np.uint64(n) for n in (10 * 2**8 + 1, 100 * 2**16 + 1, 10_000 * 2**32 + 1))
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


def plain_tables(arrays: list[Array]) -> list[Array]:
    """The arrays above, from those of `vocabulary_hash.hashed`."""
    names, bounds, roles = arrays[NAME_BYTES], arrays[NAME_BOUNDS], arrays[NAME_ROLES]
    numbers, of_name, first_of = arrays[NUMBERS], arrays[NUMBER_BOUNDS], arrays[BUCKET_FIRST]
    lengths = np.diff(bounds)
    short = np.flatnonzero((lengths > 0) & (lengths <= _MOST_BYTES))
    place = np.arange(_MOST_BYTES + 1)
    inside = place < lengths[short, None]
    letters = np.where(inside, np.append(names, 0)[np.where(inside, bounds[short, None] + place, -1)], 0).astype(np.uint8)
    is_plain = ~(inside & ((letters < 32) | (letters > 127) | (letters == 34) | (letters == 92))).any(1)
    short, letters = short[is_plain], letters[is_plain]
    records = np.zeros((len(short), _RECORD_WORDS), np.uint64)
    records[:, :2] = letters.view("<u8")
    records[:, 5] = LEFT_TO_OTHERS
    usual = np.flatnonzero(roles[short] == NO_ROLE)
    name = arrays[NAME_IDS][short[usual]]
    first, n_numbers = of_name[name], np.diff(of_name)[name]
    records[usual, 2] = arrays[BUCKET_LOW][name].view(np.uint64)
    records[usual, 3] = arrays[BUCKET_SCALE][name].view(np.uint64)
    records[usual, 4] = first + (n_numbers << 32)
    records[usual, 5] = first + name
    records[usual, 6] = name.astype(np.uint64) << arrays[SCALARS][CODE_BITS]
    slots = _by_hash(records)
    left, right = first_of, np.append(first_of[1:], len(numbers))
    operands = np.append(numbers, np.nan)[left]
    operands[left >= right] = np.nan
    buckets = np.stack([operands.view(np.uint64), (left + (right << 32)).astype(np.uint64)], axis=1)
    return [slots, buckets, numbers, np.array([len(slots) - 1], np.uint64)]


def _by_hash(records: Array) -> Array:
    """Slots, at most half full, with the records in them."""
    slots = np.zeros((1 << max(2 * len(records) - 1, 1).bit_length(), _RECORD_WORDS), np.uint64)
    mask = np.uint64(len(slots) - 1)
    with np.errstate(over="ignore"):
        place = _hash_of_names(records[:, 0], records[:, 1]) & mask
    while len(records):  # those that find their slot taken go on to the next
        _, one_each = np.unique(place, return_index=True)
        put = one_each[slots[place[one_each], 0] == 0]
        slots[place[put]] = records[put]
        records, place = np.delete(records, put, axis=0), (np.delete(place, put) + _1) & mask
    return slots


def _hash_of_names(first: Any, second: Any) -> Any:
    """The hash of a name, or of all names of two arrays."""
    found = first * _MIX_1 ^ second * _MIX_2
    found = (found ^ found >> _32) * _MIX_1
    return found ^ found >> _29


_hash_of_words = nested(_hash_of_names)


@nested
def _bytes_at(words: Array, at: Any) -> Any:
    """The eight bytes from byte `at` on."""
    word, shift = np.uint64(at) >> _3, (np.uint64(at) & _7) << _3
    return words[word] >> shift | words[word + _1] << _1 << (_63 - shift)


@nested
def _byte_at(words: Array, at: Any) -> Any:
    return words[np.uint64(at) >> _3] >> ((np.uint64(at) & _7) << _3) & _BYTE


@nested
def _zero_bytes(word: np.uint64) -> np.uint64:
    """The high bits of its zero bytes; above the lowest of them perhaps of others, too."""
    return (word - _ONES) & ~word & _HIGH


@nested
def _below(bits: np.uint64) -> np.uint64:
    """All bits of the bytes below the lowest of these high bits; of all bytes if there is none."""
    return ((bits & (~bits + _1)) >> _7) - _1


@nested
def _unfit(word: np.uint64, mask: np.uint64) -> np.uint64:
    """Not 0 if any byte in the mask is no printable ASCII, or a backslash."""
    filled = word | (_BLANKS & ~mask)
    return (filled | (filled - _BLANKS) & ~filled | _zero_bytes(filled ^ _BACKSLASHES)) & _HIGH


@nested
def _integer(digits: np.uint64, n: np.uint64) -> np.uint64:
    """The integer that n digits are, 1 to 7, the first in the lowest byte; what is above them does not count."""
    word = digits << ((_64 - (n << _3)) & _63)
    word = word * _TENS >> _8 & _PAIRS
    word = word * _HUNDREDS >> _16 & _FOURS
    return word * _TEN_THOUSANDS >> _32


@nested
def _code_of(value: float, numbers: Any, buckets: Any, low: float, scale: float, tables: int) -> Any:
    """Code of a number on a name with operands `numbers` (word 4 of a record): that of `code_of_number`."""
    first, n = numbers & _LOW_HALF, numbers >> _32
    if n == _0:
        return _0
    n_buckets: Any = np.int64(n)
    bucket = buckets + bucket_of(value, low, scale, n_buckets)
    bits, bounds = constant_pair(constant_i64(tables, PLAIN_BUCKETS), bucket)
    left, right, operand = bounds & _LOW_HALF, bounds >> _32, bits_as_f64(bits)
    if right > left + _1:
        pool = constant_i64(tables, PLAIN_NUMBERS)
        while left < right:
            middle = (left + right) >> _1
            operand = load_f64(pool, np.int64(middle))
            if operand < value:
                left = middle + _1
            else:
                right = middle
        operand = load_f64(pool, np.int64(left)) if left < first + n else np.nan
    elif operand < value:
        left += _1
    return (left - first) << _1 | (_1 if operand == value else _0)


@nested
def _attribute(name: tuple[np.uint64, np.uint64], hash_: np.uint64, value: float, tables: int) -> Any:
    """The packed attribute of a name and its number; NO_ATTRIBUTE if no constraint uses the name, and the word before that
    if the name is left to others."""
    slots, mask = constant_i64(tables, PLAIN_NAMES), load_u64(constant_i64(tables, PLAIN_MASK), 0)
    slot = hash_ & mask
    first, second = constant_pair(slots, np.int64(slot) * _PAIRS_OF_RECORD)
    while first != _0 and (first != name[0] or second != name[1]):
        slot = (slot + _1) & mask
        first, second = constant_pair(slots, np.int64(slot) * _PAIRS_OF_RECORD)
    if first == _0:
        return NO_ATTRIBUTE
    record = np.int64(slot) * _PAIRS_OF_RECORD
    low, scale = constant_pair(slots, record + 1)
    numbers, buckets = constant_pair(slots, record + 2)
    if buckets == np.uint64(LEFT_TO_OTHERS):
        return NO_ATTRIBUTE - _1
    packed, _ = constant_pair(slots, record + 3)
    return packed | _code_of(value, numbers, np.int64(buckets), bits_as_f64(low), bits_as_f64(scale), tables)


@jit
def plain_pair(words: Array, at: Any, tables: int) -> tuple[int, np.uint64, np.uint64]:
    """The pair of a plain line that begins at byte `at` of words u64, behind an opening brace or a comma.

    Returns where the next one begins, LINE_ENDED or UNSURE; the name's hash; its packed attribute, or NO_ATTRIBUTE if no
    constraint uses the name.  `tables` is the address of the addresses of `plain_tables`.
    """
    at += 1 if _byte_at(words, at) == np.uint64(32) else 0
    lower, upper = _bytes_at(words, at + 1), _bytes_at(words, at + 9)
    quotes, more_quotes = _zero_bytes(lower ^ _QUOTES), _zero_bytes(upper ^ _QUOTES)
    mask, more = _below(quotes), _below(more_quotes) if quotes == _0 else _0
    first, second = lower & mask, upper & more
    is_plain = _byte_at(words, at) == np.uint64(34) and mask != _0 and (quotes | more_quotes) != _0
    is_plain = is_plain and (_unfit(first, mask) | _unfit(second, more)) == _0
    at += 2 + np.int64(((mask & _ONES) + (more & _ONES)) * _ONES >> _56)
    before = _bytes_at(words, at)
    is_plain = is_plain and before & _BYTE == np.uint64(58)
    at += 1
    before >>= _8
    if before & _BYTE == np.uint64(32):
        at += 1
        before >>= _8
    negative = before & _BYTE == np.uint64(45)
    at += 1 if negative else 0
    text = _bytes_at(words, at)
    digits = text ^ _ZEROS
    mask = _below((digits + _ABOVE_NINE | digits) & _HIGH)
    n = (mask & _ONES) * _ONES >> _56
    is_plain = is_plain and _0 < n < _8 and (n == _1 or digits & _BYTE != _0)
    at += np.int64(n)
    following = text >> ((n << _3) & _63) & _BYTE
    ended = following == np.uint64(125) and _byte_at(words, at + 1) == np.uint64(10)
    hash_ = _hash_of_words(first, second)
    if not is_plain or (following != np.uint64(44) and not ended):
        return UNSURE, hash_, NO_ATTRIBUTE
    magnitude = np.int64(_integer(digits, n))
    attribute = _attribute((first, second), hash_, np.float64(-magnitude if negative else magnitude), tables)
    if attribute == NO_ATTRIBUTE - _1:
        return UNSURE, hash_, NO_ATTRIBUTE
    return (LINE_ENDED if ended else at + 1), hash_, attribute
