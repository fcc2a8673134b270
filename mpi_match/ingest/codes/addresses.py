"""Internet addresses in compiled code: the values of `texts.address.address`."""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_u8, store_u64
from mpi_match.texts.characters import COLON, LOWER_A, LOWER_CASE, LOWER_F, NINE, POINT, ZERO

NOT_AN_ADDRESS, IPV4, IPV6 = range(3)
"""Kinds of addresses."""
ADDRESS_DIGITS = 128
"""Bytes that `address_at` may write: the binary digits of an IPv6 address."""
_GROUPS, _GROUP_BITS, _WORD_BITS, _WORD_BYTES = 8, 16, 64, 8
_LONGEST = 45
_0, _7, _BYTE = np.uint64(0), np.uint64(7), np.uint64(0xFF)
_ONES, _BELOW_HIGH, _ZEROS = (np.uint64(0x0101010101010101 * byte) for byte in (1, 0x7F, ZERO))
_EACH_BIT = np.uint64(0x0102040810204080)


@nested
def _ipv4(data: int, at: int, stop: int) -> int:
    """The number of an IPv4 address that is data[at:stop], or -1."""
    number = 0
    for part in range(4):
        first, value = at, 0
        while at < stop and at - first < 4 and ZERO <= load_u8(data, at) <= NINE:
            value = value * 10 + load_u8(data, at) - ZERO
            at += 1
        n_digits = at - first
        if not n_digits or n_digits > 3 or value > 255 or (n_digits > 1 and load_u8(data, first) == ZERO):
            return -1
        number = number << 8 | value
        if part < 3:
            if at == stop or load_u8(data, at) != POINT:
                return -1
            at += 1
    return number if at == stop else -1


@nested
def _digits_of(byte: np.uint64) -> np.uint64:
    """The eight binary digits of a byte, the first in the lowest byte."""
    spread = byte * _ONES & _EACH_BIT  # byte k has the bit of digit k, and no other
    return (spread + _BELOW_HIGH >> _7) & _ONES | _ZEROS


@nested
def _shifted(high: np.uint64, low: np.uint64, n_bits: int) -> tuple[np.uint64, np.uint64]:
    """A number of 128 bits shifted to the left by 1 to 127 bits."""
    if n_bits >= _WORD_BITS:
        return low << np.uint64(n_bits - _WORD_BITS), _0
    return high << np.uint64(n_bits) | low >> np.uint64(_WORD_BITS - n_bits), low << np.uint64(n_bits)


@nested
def _hexadecimal(byte: int) -> int:
    """The value of a hexadecimal digit, or -1."""
    if ZERO <= byte <= NINE:
        return byte - ZERO
    lower = byte | LOWER_CASE
    return lower - LOWER_A + 10 if LOWER_A <= lower <= LOWER_F else -1


@nested
def _ipv6(data: int, at: int, stop: int) -> tuple[bool, np.uint64, np.uint64]:
    """Tells whether data[at:stop] is an IPv6 address; returns its upper and lower half, which else are undefined."""
    n, gap = 0, -1
    high, low, high_before, low_before = _0, _0, _0, _0  # the groups, and those before the gap
    if load_u8(data, at) == COLON:
        if at + 1 == stop or load_u8(data, at + 1) != COLON:
            return False, _0, _0
        gap = 0
        at += 2
    while at < stop:
        first, value = at, 0
        digit = _hexadecimal(load_u8(data, at))
        while digit >= 0 and at - first < 5:
            value = value << 4 | digit
            at += 1
            digit = _hexadecimal(load_u8(data, at)) if at < stop else -1
        if at < stop and load_u8(data, at) == POINT:
            number = _ipv4(data, first, stop)
            if number < 0 or n > _GROUPS - 2:
                return False, _0, _0
            high, low = _shifted(high, low, 32)
            low |= np.uint64(number)
            n += 2
            break
        if at == first or at - first > 4 or n == _GROUPS:
            return False, _0, _0
        high, low = _shifted(high, low, _GROUP_BITS)
        low |= np.uint64(value)
        n += 1
        if at == stop:
            break
        if load_u8(data, at) != COLON or at + 1 == stop:
            return False, _0, _0
        at += 1
        if load_u8(data, at) == COLON:
            if gap >= 0:
                return False, _0, _0
            gap, high_before, low_before, high, low = n, high, low, _0, _0
            at += 1
    if gap < 0 or n == _GROUPS:
        return n == _GROUPS and gap < 0, high, low
    if gap > 0:
        high_before, low_before = _shifted(high_before, low_before, _GROUP_BITS * (_GROUPS - gap))
    return True, high | high_before, low | low_before


@nested
def address_at(data: int, start: int, stop: int, digits: int) -> tuple[int, int]:
    """The kind of address of the text data[start:stop], and its number if the kind is IPV4, else 0.

    The binary digits of an IPV6 address are written to `digits`, u8[ADDRESS_DIGITS], at a multiple of 8 bytes.
    """
    if stop - start > _LONGEST:
        return NOT_AN_ADDRESS, 0
    for i in range(start, min(stop, start + 5)):
        byte = load_u8(data, i)
        if byte == COLON:
            is_address, high, low = _ipv6(data, start, stop)
            if not is_address:
                return NOT_AN_ADDRESS, 0
            for k in range(_WORD_BYTES):
                store_u64(digits, k, _digits_of(high >> np.uint64(_WORD_BITS - 8 - 8 * k) & _BYTE))
                store_u64(digits, _WORD_BYTES + k, _digits_of(low >> np.uint64(_WORD_BITS - 8 - 8 * k) & _BYTE))
            return IPV6, 0
        if byte == POINT:
            number = _ipv4(data, start, stop)
            return (IPV4, number) if number >= 0 else (NOT_AN_ADDRESS, 0)
        if _hexadecimal(byte) < 0:
            break
    return NOT_AN_ADDRESS, 0
