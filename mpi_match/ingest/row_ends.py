"""Where rows end: line feeds, eight bytes at a time, without those of blank lines; in compiled code for CPUs and GPUs."""

from __future__ import annotations

import numpy as np

from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import load_u8, load_u64

STRETCH_BYTES = 64
"""Bytes searched at a time: a word has a bit for each."""
_LOW_BITS, _HIGH_BITS = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x8080808080808080)
_LINE_FEEDS, _MARKS, _ABOVE_BLANK = (np.uint64(byte * 0x0101010101010101) for byte in (0x0A, 0xBF, 0x7F - 0x20))
_GATHERED = np.uint64(0x0002040810204081)
_0, _1, _8, _56 = (np.uint64(n) for n in (0, 1, 8, 56))
_DOUBTFUL = np.uint64(0x80)


@nested
def _zero_bytes(word: np.uint64) -> np.uint64:
    """The highest bit of each byte that is zero."""
    return ~(((word & _LOW_BITS) + _LOW_BITS) | word | _LOW_BITS)


@nested
def _ends_row(data: int, at: int) -> bool:
    """Does the line feed at `at` end a line that is not blank?  A byte order mark and blanks are a blank line."""
    k = at - 1
    while k >= 0 and (load_u8(data, k) == 32 or load_u8(data, k) == 9 or 11 <= load_u8(data, k) <= 13):
        k -= 1
    if k < 0 or load_u8(data, k) == 10:
        return False
    if load_u8(data, k) != 0xBF or k < 2 or load_u8(data, k - 1) != 0xBB or load_u8(data, k - 2) != 0xEF:
        return True
    return k > 2 and load_u8(data, k - 3) != 10


@jit
def row_ends(data: int, start: int, stop: int) -> np.uint64:
    """Bit i: a row ends at `start` + i, before `stop`.

    `start` is a multiple of STRETCH_BYTES, of which all are in memory, also those behind `stop`; the address `data` is a
    multiple of eight.  Only line feeds behind a blank, a control character or 0xBF may be those of blank lines, and are
    looked at one by one.
    """
    found, unsure = _0, _0
    before = _DOUBTFUL if start == 0 or load_u8(data, start - 1) <= 32 or load_u8(data, start - 1) == 0xBF else _0
    for k in range(STRETCH_BYTES // 8):
        word = load_u64(data, (start >> 3) + k)
        feeds = _zero_bytes(word ^ _LINE_FEEDS)
        doubtful = (~(((word & _LOW_BITS) + _ABOVE_BLANK) | word) & _HIGH_BITS) | _zero_bytes(word ^ _MARKS)
        shift = np.uint64(8 * k)
        found |= (feeds * _GATHERED >> _56) << shift
        unsure |= ((feeds & (doubtful << _8 | before)) * _GATHERED >> _56) << shift
        before = doubtful >> _56
    if stop - start < STRETCH_BYTES:
        inside = (_1 << np.uint64(stop - start)) - _1
        found &= inside
        unsure &= inside
    while unsure != _0:
        lowest = unsure & (~unsure + _1)
        if not _ends_row(data, start + popcount(lowest - _1)):
            found ^= lowest
        unsure ^= lowest
    return found
