"""Finds the ends of rows, sixteen bytes at a time, in compiled code for CPUs and GPUs: line feeds, without those of blank
lines."""

from __future__ import annotations

import numpy as np

from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import constant_pair, load_u8
from mpi_match.texts.characters import BLANK, LINE_FEED, RETURN, TAB, VERTICAL_TAB

STRETCH_BYTES = 64
"""Bytes searched at a time: a word has a bit for each."""
_LOW_BITS, _LINE_FEEDS = (np.uint64(byte * 0x0101010101010101) for byte in (0x7F, 0x0A))
_GATHERED = np.uint64(0x0002040810204081)
_0, _1, _8, _56 = (np.uint64(n) for n in (0, 1, 8, 56))


@nested
def _line_feeds(word: np.uint64) -> np.uint64:
    """A bit for each of eight bytes that is a line feed."""
    word ^= _LINE_FEEDS
    return ~(((word & _LOW_BITS) + _LOW_BITS) | word | _LOW_BITS) * _GATHERED >> _56


@nested
def _ends_row(data: int, at: int) -> bool:
    """Tells whether the line feed at `at` ends a line that is not blank.  A byte order mark and blanks are a blank line."""
    k = at - 1
    while k >= 0 and (load_u8(data, k) == BLANK or load_u8(data, k) == TAB or VERTICAL_TAB <= load_u8(data, k) <= RETURN):
        k -= 1
    if k < 0 or load_u8(data, k) == LINE_FEED:
        return False
    if load_u8(data, k) != 0xBF or k < 2 or load_u8(data, k - 1) != 0xBB or load_u8(data, k - 2) != 0xEF:
        return True
    return k > 2 and load_u8(data, k - 3) != LINE_FEED


@jit
def row_ends(data: int, start: int, stop: int) -> np.uint64:
    """Bit i: a row ends at `start` + i, before `stop`.  `start` is a multiple of STRETCH_BYTES; the whole stretch, also
    after `stop`, is in memory; the address `data` is a multiple of 16.  Only line feeds after a blank, a control character
    or 0xBF may end blank lines.
    """
    found = _0
    for k in range(STRETCH_BYTES // 16):
        low, high = constant_pair(data, (start >> 4) + k)
        found |= (_line_feeds(low) | _line_feeds(high) << _8) << np.uint64(16 * k)
    if stop - start < STRETCH_BYTES:
        found &= (_1 << np.uint64(stop - start)) - _1
    unsure = found
    while unsure != _0:
        lowest = unsure & (~unsure + _1)
        at = start + popcount(lowest - _1)
        before = load_u8(data, at - 1) if at > 0 else 0
        if (before <= 32 or before == 0xBF) and not _ends_row(data, at):
            found ^= lowest
        unsure ^= lowest
    return found
