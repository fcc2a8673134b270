"""Finds many byte strings in a sorted pool by their hashes, in sixteen bytes a string and without Python objects.

The hashes of the pool are sorted once.  The hashes of all wanted strings are searched for together, and a string with the
same hash is compared byte for byte.  A string that meets another one with its hash, which is very rare, is searched for by
itself.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, sums, take_ranges
from mpi_match.arrays.strings import Strings

_AT_ONCE = 2**16
"""Strings that are hashed or compared together, so that intermediate results stay in a core's cache."""
_FACTOR = 0x5851F42D4C957F2D


class NameLookup:
    """Finds strings in a sorted pool of distinct ones."""

    def __init__(self, pool: Strings) -> None:
        self._pool = pool
        hashes = _hashes(pool)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]

    def find(self, wanted: Strings) -> Array:
        """i64: the index of each string in the pool, or -1."""
        found = np.full(len(wanted), -1, np.int64)
        if not len(self._pool):
            return found
        hashes = _hashes(wanted)
        for first in range(0, len(wanted), _AT_ONCE):
            rows = np.arange(first, min(first + _AT_ONCE, len(wanted)))
            at = np.searchsorted(self._hashes, hashes[rows])
            at[at == len(self._hashes)] = 0
            may_be = self._hashes[at] == hashes[rows]
            rows, place = rows[may_be], self._order[at[may_be]]
            same = wanted.equal(rows, self._pool, place)
            found[rows[same]] = place[same]
            for row in rows[~same].tolist():
                text = wanted[row]
                place_of_text = bisect_left(self._pool, text)
                if place_of_text < len(self._pool) and self._pool[place_of_text] == text:
                    found[row] = place_of_text
        return found


def _hashes(strings: Strings) -> Array:
    """u64: a hash of each string."""
    lengths = np.diff(strings.offsets)
    powers = np.full(int(lengths.max(initial=0)), _FACTOR, np.uint64).cumprod(dtype=np.uint64)
    found = np.empty(len(lengths), np.uint64)
    for first in range(0, len(lengths), _AT_ONCE):
        some = lengths[first : first + _AT_ONCE]
        place = take_ranges(np.zeros(len(some), np.int64), some)
        begin = int(strings.offsets[first])
        data = strings.data[begin : begin + len(place)].astype(np.uint64) + np.uint64(1)
        found[first : first + len(some)] = sums(data * powers[place], offsets_of(some)) + some.astype(np.uint64)
    found ^= found >> np.uint64(32)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    mixed: Array = found ^ (found >> np.uint64(29))
    return mixed
