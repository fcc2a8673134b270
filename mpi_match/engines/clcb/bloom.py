"""The Bloom filter of names: which bits a name sets, the same for a filter, on the host, and for an event, on the GPU.

The first bit is the name's number modulo that of the bits: names are numbered densely, so bits are used evenly, and as many
names as there are bits have bits of their own.  Further ones are multiplicative hashes (Fibonacci's, by odd multiples).
"""

from __future__ import annotations

from typing import Any


def bit_of(name: Any, nth: Any, log_bits: Any) -> Any:
    """The nth bit that a name sets, counted from 0, of 2^log_bits: of one name, or of an array i64."""
    if nth == 0:
        return name & ((1 << log_bits) - 1)
    factor = ((2 * nth - 1) * 0x9E3779B1) & 0xFFFFFFFF
    return ((name * factor) & 0xFFFFFFFF) >> (32 - log_bits)
