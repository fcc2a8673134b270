"""Bits are counted as NumPy counts them, however many words there are."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_match.compute.bits import ADDED_TOGETHER, DIGITS, count_each_bit
from mpi_match.compute.compile_cache import jit

MOST_CARRIED = ADDED_TOGETHER * (2**DIGITS - 1)


@jit
def _count(words, column, first, last, counts):  # type: ignore[no-untyped-def]
    count_each_bit(words, column, first, last, counts)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100, 4099, MOST_CARRIED, MOST_CARRIED + 9])
@pytest.mark.parametrize("first", [0, 3])
def test_each_bit_is_counted(n: int, first: int) -> None:
    rng = np.random.default_rng(n)
    words = rng.integers(0, 2**64, (n + first + 1, 2), dtype=np.uint64) & rng.integers(0, 2**64, 2, dtype=np.uint64)
    words[:, 1] |= np.uint64(1 << 63 | 1)  # in all of them: every digit carries
    counts = np.full(64, -1, np.int64)
    _count(words, 1, first, first + n, counts)
    mine = words[first : first + n, 1].astype(">u8").view(np.uint8).reshape(n, 8)
    assert counts.tolist() == np.unpackbits(mine, axis=1).sum(axis=0, dtype=np.int64).tolist()
