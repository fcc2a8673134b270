"""Addresses and networks of the Internet Protocol, as `ipaddress` reads them: IPv4 as numbers, IPv6 as binary digits.

An IPv4 network is an interval of numbers, and an IPv6 network is a prefix of binary digits.  The families never meet, and no
text with a scope (`%eth0`) is an address.
"""

from __future__ import annotations

import ipaddress

_BITS = 128
_LONGEST = 45
"""Characters of the longest address: IPv6 with an IPv4 address at its end."""


def address(text: str) -> int | str | None:
    """The number of the 32 bits of an IPv4 address, or the 128 binary digits of an IPv6 address; None for other texts."""
    if len(text) > _LONGEST or not ("." in text or ":" in text) or "%" in text:
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return int(found) if found.version == 4 else _digits(int(found))


def network(text: str) -> tuple[int, int] | str:
    """The first and the last number of an IPv4 network, or the first binary digits of all addresses of an IPv6 network.

    The text is `ADDRESS/BITS`, in which bits after the first BITS do not count, or an address, which is alone in its
    network.  Raises ValueError for other texts.
    """
    start, slash, length = text.partition("/")
    found = address(start)
    if found is None:
        raise ValueError(f"{_brief(text)} has no IPv4 or IPv6 address before any '/'; write it as 10.0.0.0/8 or fe80::/10")
    most = 32 if isinstance(found, int) else _BITS
    bits = int(length) if length.isascii() and length.isdigit() and len(length) <= 3 else most if not slash else -1
    if not 0 <= bits <= most:
        raise ValueError(f"{_brief(text)} must have a number from 0 to {most} behind the '/'")
    if isinstance(found, str):
        return found[:bits]
    others = 2 ** (most - bits) - 1
    return found & ~others, found | others


def _digits(number: int) -> str:
    return f"{number:0{_BITS}b}"


def _brief(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
