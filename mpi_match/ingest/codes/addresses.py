"""Internet addresses in compiled code: the values of `texts.address.address`."""

from __future__ import annotations

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_u8, store_u8
from mpi_match.texts.characters import COLON, LOWER_A, LOWER_CASE, LOWER_F, NINE, POINT, ZERO

NOT_AN_ADDRESS, IPV4, IPV6 = range(3)
"""Kinds of addresses."""
ADDRESS_DIGITS = 128
"""Bytes that `address_at` may write: the binary digits of an IPv6 address."""
_GROUPS, _GROUP_DIGITS = 8, 16
_LONGEST = 45


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
def _write_group(digits: int, group: int, value: int) -> None:
    """Write the 16 binary digits of a group of an IPv6 address."""
    for i in range(_GROUP_DIGITS):
        store_u8(digits, group * _GROUP_DIGITS + i, ZERO + (value >> (_GROUP_DIGITS - 1 - i) & 1))


@nested
def _hexadecimal(byte: int) -> int:
    """The value of a hexadecimal digit, or -1."""
    if ZERO <= byte <= NINE:
        return byte - ZERO
    lower = byte | LOWER_CASE
    return lower - LOWER_A + 10 if LOWER_A <= lower <= LOWER_F else -1


@nested
def _expand(digits: int, n: int, gap: int) -> None:
    """Move the groups after a gap to the end of the eight, and fill the gap with zeros."""
    moved, by = (n - gap) * _GROUP_DIGITS, (_GROUPS - n) * _GROUP_DIGITS
    start = gap * _GROUP_DIGITS
    for i in range(moved - 1, -1, -1):
        store_u8(digits, start + by + i, load_u8(digits, start + i))
    for i in range(by):
        store_u8(digits, start + i, ZERO)


@nested
def _is_ipv6(data: int, at: int, stop: int, digits: int) -> bool:
    """Write the binary digits of data[at:stop].  Returns whether it is an IPv6 address; otherwise the content of the digits
    is undefined."""
    n, gap = 0, -1
    if load_u8(data, at) == COLON:
        if at + 1 == stop or load_u8(data, at + 1) != COLON:
            return False
        gap = 0
        at += 2
    while at < stop:
        first, value = at, 0
        while at < stop and at - first < 5 and _hexadecimal(load_u8(data, at)) >= 0:
            value = value << 4 | _hexadecimal(load_u8(data, at))
            at += 1
        if at < stop and load_u8(data, at) == POINT:
            number = _ipv4(data, first, stop)
            if number < 0 or n > _GROUPS - 2:
                return False
            _write_group(digits, n, number >> 16)
            _write_group(digits, n + 1, number & 0xFFFF)
            n += 2
            break
        if at == first or at - first > 4 or n == _GROUPS:
            return False
        _write_group(digits, n, value)
        n += 1
        if at == stop:
            break
        if load_u8(data, at) != COLON or at + 1 == stop:
            return False
        at += 1
        if load_u8(data, at) == COLON:
            if gap >= 0:
                return False
            gap = n
            at += 1
    if gap < 0:
        return n == _GROUPS
    if n == _GROUPS:
        return False
    _expand(digits, n, gap)
    return True


@nested
def address_at(data: int, start: int, stop: int, digits: int) -> tuple[int, int]:
    """The kind of address of the text data[start:stop], and its number if the kind is IPV4, else 0.

    The binary digits of an IPV6 address are written to `digits`, u8[ADDRESS_DIGITS]; after other texts its content is
    undefined.
    """
    if stop - start > _LONGEST:
        return NOT_AN_ADDRESS, 0
    for i in range(start, min(stop, start + 5)):
        byte = load_u8(data, i)
        if byte == COLON:
            return (IPV6, 0) if _is_ipv6(data, start, stop, digits) else (NOT_AN_ADDRESS, 0)
        if byte == POINT:
            number = _ipv4(data, start, stop)
            return (IPV4, number) if number >= 0 else (NOT_AN_ADDRESS, 0)
        if _hexadecimal(byte) < 0:
            break
    return NOT_AN_ADDRESS, 0
