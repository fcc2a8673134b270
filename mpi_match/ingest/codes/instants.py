"""Instants of RFC 3339 texts in compiled code: `model.split` of the values of `texts.instant.instant`."""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_u8
from mpi_match.texts.characters import BLANK, COLON, LOWER_CASE, LOWER_T, LOWER_Z, MINUS, NINE, PLUS, ZERO

_NO_NUMBER = -1
_EPOCH_DAY = 719_468
"""The days from 0000-03-01 to 1970-01-01."""
_DAYS_OF_400_YEARS = 146_097
_SECOND = 10**9
_DAY_S = 86_400
_EXACT_S = 2**32
"""The number of seconds below which the number of nanoseconds is less than 2^62."""
_LOW = 2**32 - 1


@nested
def _digits(data: int, at: int, stop: int, n: int) -> int:
    """The number in the n digits from data[at] on, or _NO_NUMBER."""
    if at + n > stop:
        return _NO_NUMBER
    number = 0
    for i in range(at, at + n):
        digit = load_u8(data, i) - ZERO
        if digit < 0 or digit > 9:
            return _NO_NUMBER
        number = number * 10 + digit
    return number


@nested
def _days(year: int, month: int, day: int) -> int:
    """The days from 1970-01-01 to a date.  Years begin in March, so that the leap day is their last."""
    year += 400 if month > 2 else 399
    month += -3 if month > 2 else 9
    in_era = year % 400
    days = in_era * 365 + in_era // 4 - in_era // 100 + (153 * month + 2) // 5 + day - 1
    return (year // 400 - 1) * _DAYS_OF_400_YEARS + days - _EPOCH_DAY


@nested
def _is_date(year: int, month: int, day: int) -> bool:
    if year < 0 or month < 1 or month > 12 or day < 1:
        return False
    if month == 2:
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return day <= 29 if is_leap else day <= 28
    return day <= 30 + ((month + (month >> 3)) & 1)


@nested
def _is(data: int, at: int, stop: int, byte: int) -> bool:
    return at < stop and load_u8(data, at) == byte


@nested
def _offset(data: int, at: int, stop: int) -> int:
    """The seconds of the offset data[at:stop], or a day if it is invalid."""
    if at + 1 == stop:
        return 0 if load_u8(data, at) | LOWER_CASE == LOWER_Z else _DAY_S
    if at + 6 != stop or load_u8(data, at + 3) != COLON:
        return _DAY_S
    hour, minute, sign = _digits(data, at + 1, stop, 2), _digits(data, at + 4, stop, 2), load_u8(data, at)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or (sign != PLUS and sign != MINUS):
        return _DAY_S
    seconds = 3600 * hour + 60 * minute
    return -seconds if sign == MINUS else seconds


@nested
def _split(seconds: int, nanoseconds: int) -> tuple[bool, float, int]:
    """True, the double nearest to a time, ties to even, and the residue; 0 <= nanoseconds < 10^9."""
    if -_EXACT_S < seconds < _EXACT_S:
        number = seconds * _SECOND + nanoseconds
        nearest = np.float64(number)
        return True, float(nearest), int(number - np.int64(nearest))
    sign = 1
    if seconds < 0:
        sign, seconds, nanoseconds = -1, -seconds, -nanoseconds
    low = (seconds & _LOW) * _SECOND + nanoseconds
    high = (seconds >> 32) * _SECOND + (low >> 32)  # the number is 2^32 * high + low, below 2^69
    low &= _LOW
    shift = 0
    while high >> (21 + shift):  # 53 bits are kept
        shift += 1
    kept = high << (32 - shift) | low >> shift
    rest = low & ((1 << shift) - 1)
    half = 1 << shift >> 1
    if rest > half or (rest == half and shift and kept & 1):
        kept += 1
        rest -= 1 << shift
    return True, float(np.float64(sign * kept) * np.float64(1 << shift)), sign * rest


@nested
def instant_at(data: int, start: int, stop: int) -> tuple[bool, float, int]:
    """Returns whether the text data[start:stop] is an instant, the double nearest to its nanoseconds since 1970, and the
    residue."""
    year, month, day = _digits(data, start, stop, 4), _digits(data, start + 5, stop, 2), _digits(data, start + 8, stop, 2)
    if not (_is_date(year, month, day) and load_u8(data, start + 4) == MINUS and load_u8(data, start + 7) == MINUS):
        return False, 0.0, 0
    seconds = _days(year, month, day) * _DAY_S
    if stop - start == 10:
        return _split(seconds, 0)
    at = start + 11
    hour, minute, second = _digits(data, at, stop, 2), _digits(data, at + 3, stop, 2), _digits(data, at + 6, stop, 2)
    if not (
        0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and load_u8(data, at + 2) == load_u8(data, at + 5) == COLON
    ):
        return False, 0.0, 0
    if not (load_u8(data, at - 1) | LOWER_CASE == LOWER_T or load_u8(data, at - 1) == BLANK):
        return False, 0.0, 0
    at += 8
    nanoseconds, unit = 0, _SECOND
    if _is(data, at, stop, 46):
        at += 1
        first = at
        while at < stop and ZERO <= load_u8(data, at) <= NINE:
            unit //= 10
            if not unit and load_u8(data, at) != ZERO:
                return False, 0.0, 0
            nanoseconds += unit * (load_u8(data, at) - ZERO)
            at += 1
        if at == first:
            return False, 0.0, 0
    offset = _offset(data, at, stop)
    if offset == _DAY_S:
        return False, 0.0, 0
    return _split(seconds + 3600 * hour + 60 * minute + second - offset, nanoseconds)
