r"""Bit counts of words, for compiled code on CPUs.

To count how many of many words have each bit, words are added up as 64 one-bit counters (a carry-save adder, Harley and
Seal) whose digits are words themselves; every eighth word carries into the eights:

    words   0110  0011  0100  1110  ...
    ones    1 0 1 1        twos    0 1 1 0        fours   0 0 1 0     ...

Clausecker, Lemire and Schintke, "Faster positional population counts", 2024, describe a version with vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.llvm import Typed

ADDED_TOGETHER, DIGITS = 8, 16
"""Words that carry once, and binary digits of the counters beyond `ADDED_TOGETHER`."""


@intrinsic
def _population(_: object, word: types.Integer) -> Typed:
    """LLVM's bit count, which is a single instruction if the processor has one."""
    return word(word), lambda _context, builder, _signature, values: builder.ctpop(values[0])


_count: Any = _population  # callers omit the first argument


@inlined
def popcount(word: np.uint64) -> np.int64:
    """Number of set bits of a u64, as i64."""
    return np.int64(_count(np.uint64(word)))


@inlined
def _add(sums: int, one: int, other: int) -> tuple:
    """Add two words to 64 digits; returns the new digits and the carries."""
    half = sums ^ one
    return half ^ other, (sums & one) | (half & other)


@nested
def count_each_bit(words: Array, column: int, first: int, last: int, counts: Array) -> None:
    """Fill `counts` i64[64] with the number of words u64 `words[first:last, column]` that have each bit, the highest bit
    first."""
    counts[:] = 0
    digits, i = np.empty(DIGITS, np.uint64), first
    while last - i >= ADDED_TOGETHER:
        stop = i + min((last - i) // ADDED_TOGETHER, (1 << DIGITS) - 1) * ADDED_TOGETHER
        ones = twos = fours = np.uint64(0)
        digits[:] = 0
        while i < stop:
            ones, two_a = _add(ones, words[i, column], words[i + 1, column])
            ones, two_b = _add(ones, words[i + 2, column], words[i + 3, column])
            twos, four_a = _add(twos, two_a, two_b)
            ones, two_a = _add(ones, words[i + 4, column], words[i + 5, column])
            ones, two_b = _add(ones, words[i + 6, column], words[i + 7, column])
            twos, four_b = _add(twos, two_a, two_b)
            fours, carried = _add(fours, four_a, four_b)
            digit = 0
            while carried:
                digits[digit], carried = digits[digit] ^ carried, digits[digit] & carried
                digit += 1
            i += ADDED_TOGETHER
        for bit in range(64):
            shift = np.uint64(63 - bit)
            low = (ones >> shift & 1) + (twos >> shift & 1) * 2 + (fours >> shift & 1) * 4
            for digit in range(DIGITS):
                low += (digits[digit] >> shift & 1) << np.uint64(digit + 3)
            counts[bit] += np.int64(low)
    for row in range(i, last):
        for bit in range(64):
            counts[bit] += np.int64(words[row, column] >> np.uint64(63 - bit) & 1)
