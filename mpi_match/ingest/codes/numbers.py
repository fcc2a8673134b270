"""JSON numbers as doubles, in compiled code: the number that `float` reads, or no answer.

A decimal is w · 10^q with w of at most 19 digits.  Where w is at most 2^53 and q within ±22, both are doubles and one
multiplication or division rounds once (Clinger, 1990).  Otherwise w is multiplied by the 128 leading bits of 10^q, whose
upper half decides the rounding (Eisel and Lemire, "Number parsing at a gigabyte per second", 2021).  If there are more than
19 digits, the first 19 are taken: the number lies between w and w + 1, and if both give the same double, that is the number.

The functions take and return numbers and index arrays; they allocate nothing and raise nothing.  They stop at the line feed
that ends the line.
"""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import constant_i64, f64_bits, load_f64, load_u8, load_u64, store_u8
from mpi_match.model import MAX_EXACT_INTEGER
from mpi_match.table.virtual_names import RESIDUE_WORD
from mpi_match.texts.characters import LOWER_CASE, LOWER_E, MINUS, NINE, PLUS, POINT, ZERO

NOT_READ, DECIMAL, INTEGER, LARGE_INTEGER, HUGE_INTEGER = range(5)
"""Kinds of numbers: not a number, or left to another reader; with a fraction or an exponent; integers up to 2^53; larger
ones, from -2^63 to 2^64 - 1, which may have a residue (`residue_at`); others, which have digits but no value.
"""

LEAST_POWER, MOST_POWER = -342, 308
"""Powers of ten beyond which w · 10^q is 0 or infinite, whatever w < 2^64 is."""
_MOST_DIGITS = 19
_MOST_INTEGER_DIGITS = 1000
_FAR = 10**6
_EXACT_POWER = 22
_EXACT = np.uint64(MAX_EXACT_INTEGER)
_HIDDEN = np.uint64(2**52)
_LOW = np.uint64(0xFFFFFFFF)
_FULL = np.uint64(2**64 - 1)
_UNDECIDED = np.uint64(2**9 - 1)
_LEAST = np.uint64(2**63)
"""The magnitude of the least integer."""
_TEN_19 = np.uint64(10**19)
_BYTE, _RESIDUE_WORD = np.uint64(0xFF), np.uint64(RESIDUE_WORD)
_0, _1, _2, _3, _10, _32 = (np.uint64(n) for n in (0, 1, 2, 3, 10, 32))


def _leading_bits(power: int) -> int:
    """128 bits of 10^power, equally of 5^power: the highest is set; cut off for positive powers, rounded up for others."""
    if power >= 0:
        five: int = 5**power
        return five << 128 - five.bit_length() if five.bit_length() <= 128 else five >> five.bit_length() - 128
    five = 5**-power
    z = (five - 1).bit_length()
    if power >= -27:
        return (1 << z + 127) // five + 1
    found = (1 << 2 * z + 128) // five + 1
    return found >> max(found.bit_length() - 128, 0)


TENS, TWOS, POWERS, N_NUMBER_TABLES = range(4)
"""Indices in a table of addresses, `NUMBER_TABLES`."""
_TENS = np.array([10.0**power for power in range(_EXACT_POWER + 1)])
_TWOS = np.array([2.0**power for power in range(-1074, 972)])
_POWERS = np.array(
    [half for power in range(LEAST_POWER, MOST_POWER + 1) for half in divmod(_leading_bits(power), 2**64)], np.uint64
)
NUMBER_TABLES = (_TENS, _TWOS, _POWERS)
"""f64: powers of ten; powers of two; u64: `_leading_bits` of powers of ten, upper and lower half."""


@nested
def _multiply_high(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of a product."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _32, b & _LOW, b >> _32
    cross, other = a_high * b_low, a_low * b_high
    middle = (a_low * b_low >> _32) + (cross & _LOW) + (other & _LOW)
    return a_high * b_high + (cross >> _32) + (other >> _32) + (middle >> _32)


@nested
def _leading_zeros(w: np.uint64) -> int:
    """Leading zeros of a number that is not 0."""
    zeros, step = 0, 32
    while step:
        if w >> np.uint64(64 - step) == _0:
            w <<= np.uint64(step)
            zeros += step
        step >>= 1
    return zeros


@nested
def _rounded(w: np.uint64, power: int, tables: int) -> float:
    """The double nearest to w · 10^power, for w other than 0, ties to even; NaN for 0, infinity and undecided cases."""
    if power < LEAST_POWER or power > MOST_POWER:
        return np.nan
    zeros = _leading_zeros(w)
    w <<= np.uint64(zeros)
    at = 2 * (power - LEAST_POWER)
    powers, twos = constant_i64(tables, POWERS), constant_i64(tables, TWOS)
    factor = load_u64(powers, at)
    high, low = _multiply_high(w, factor), w * factor
    if high & _UNDECIDED == _UNDECIDED:
        more = _multiply_high(w, load_u64(powers, at + 1))
        low += more
        if low < more:
            high += _1
    if low == _FULL and (power < -27 or power > 55):
        return np.nan
    upper = np.int64(high >> np.uint64(63))
    shift = np.uint64(upper + 9)
    mantissa = high >> shift
    exponent = ((152170 + 65536) * power >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:
        if exponent <= -63:
            return np.nan
        mantissa >>= np.uint64(1 - exponent)
        mantissa = (mantissa + (mantissa & _1)) >> _1
        return np.float64(np.int64(mantissa)) * load_f64(twos, 0) if mantissa else np.nan
    if low <= _1 and -4 <= power <= 23 and mantissa & _3 == _1 and mantissa << shift == high:
        mantissa &= ~_1
    mantissa = (mantissa + (mantissa & _1)) >> _1
    if mantissa >= _2 * _HIDDEN:
        mantissa = _HIDDEN
        exponent += 1
    return np.nan if exponent >= 2047 else np.float64(np.int64(mantissa)) * load_f64(twos, exponent - 1)


@nested
def nearest(w: np.uint64, power: int, tables: int) -> float:
    """The double nearest to w · 10^power; NaN if it is undecided or infinite, or if it is 0 and w is not."""
    if w == _0:
        return 0.0
    if w <= _EXACT and -_EXACT_POWER <= power <= _EXACT_POWER:
        exact = np.float64(np.int64(w))
        tens = constant_i64(tables, TENS)
        return exact / load_f64(tens, -power) if power < 0 else exact * load_f64(tens, power)
    return _rounded(w, power, tables)


@nested
def _long_decimal(data: int, at: int, stop: int, power: int, tables: int) -> float:
    """The digits, perhaps with a point, in data[at:stop], times 10^power if the last one counts 1; NaN as in `nearest`."""
    w, taken, left_out, is_exact = _0, 0, 0, True
    for i in range(at, stop):
        digit = load_u8(data, i) - ZERO
        if digit < 0 or (not taken and not digit):
            continue
        if taken < _MOST_DIGITS:
            w = w * _10 + np.uint64(digit)
            taken += 1
        else:
            left_out += 1
            is_exact = is_exact and digit == 0
    value = nearest(w, power + left_out, tables)
    return value if is_exact or value == nearest(w + _1, power + left_out, tables) else np.nan


@nested
def _is_within(w: np.uint64, n_digits: int, first_digit: int, negative: bool) -> bool:
    """Tells whether an integer of n digits, which are w modulo 2^64, is a number of the model."""
    if negative:
        return bool(n_digits < 20 and w <= _LEAST)
    return bool(n_digits < 20 or (n_digits == 20 and first_digit == 49 and w >= _TEN_19))


@nested
def residue_at(data: int, start: int, stop: int, value: float) -> float:
    """The residue (`model.split`) of the integer data[start:stop], a LARGE_INTEGER with this value."""
    negative, w = load_u8(data, start) == MINUS, _0
    for i in range(start + 1 if negative else start, stop):
        w = w * _10 + np.uint64(load_u8(data, i) - ZERO)
    nearest = abs(value)
    residue = np.int64(w - (np.uint64(nearest) if nearest < 18446744073709551616.0 else _0))
    return np.float64(-residue if negative else residue)


@nested
def put_word(to: int, n: int, word: np.uint64) -> int:
    """Write eight bytes, the highest first, at to[n].  Returns where they end."""
    for k in range(8):
        store_u8(to, n + k, np.int64(word >> np.uint64(56 - 8 * k) & _BYTE))
    return n + 8


@nested
def put_number_bytes(to: int, n: int, number: float, residue: int) -> int:
    """Write a number, given as the nearest double and the residue modulo 2^16 (`model.split`), at to[n] in the form of
    virtual names (`virtual_names.operand_bytes`).  Returns where it ends."""
    n = put_word(to, n, f64_bits(number))
    return put_word(to, n, _RESIDUE_WORD | np.uint64(residue)) if residue else n


@jit
def scan_number(data: int, at: int, tables: int) -> tuple[int, int, float]:
    """The number at `at` of data u8: its end, its kind, its value (finite; never -0), or the double nearest to it."""
    negative = load_u8(data, at) == MINUS
    if negative:
        at += 1
    first, w = at, _0
    while ZERO <= load_u8(data, at) <= NINE:
        w = w * _10 + np.uint64(load_u8(data, at) - ZERO)
        at += 1
    n_digits = at - first
    if not n_digits or (n_digits > 1 and load_u8(data, first) == ZERO):
        return at, NOT_READ, 0.0
    power = 0
    is_integer = True
    if load_u8(data, at) == POINT:
        is_integer = False
        at += 1
        point = at
        while ZERO <= load_u8(data, at) <= NINE:
            w = w * _10 + np.uint64(load_u8(data, at) - ZERO)
            at += 1
        power = point - at
        n_digits -= power
        if not power:
            return at, NOT_READ, 0.0
    stop = at
    if load_u8(data, at) | LOWER_CASE == LOWER_E:
        is_integer = False
        at += 1
        falling = load_u8(data, at) == MINUS
        if falling or load_u8(data, at) == PLUS:
            at += 1
        begin, exponent = at, 0
        while ZERO <= load_u8(data, at) <= NINE:
            if exponent < _FAR:
                exponent = exponent * 10 + load_u8(data, at) - ZERO
            at += 1
        if at == begin:
            return at, NOT_READ, 0.0
        power += -exponent if falling else exponent
    if is_integer:
        if n_digits > 16 or w > _EXACT:
            if _is_within(w, n_digits, load_u8(data, first), negative):
                return at, LARGE_INTEGER, -np.float64(w) if negative else np.float64(w)
            return at, HUGE_INTEGER if n_digits <= _MOST_INTEGER_DIGITS else NOT_READ, 0.0
        value = np.float64(np.int64(w))
        return at, INTEGER, -value if negative and w else value
    decimal = nearest(w, power, tables) if n_digits <= _MOST_DIGITS else _long_decimal(data, first, stop, power, tables)
    return at, NOT_READ if np.isnan(decimal) else DECIMAL, -decimal if negative and decimal else decimal
