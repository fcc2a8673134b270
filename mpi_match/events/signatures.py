"""Signatures of tags: Bloom filters of 192 bits; a tag sets up to seven (TagMatch, EuroSys 2017, section 3).

The bits of a tag follow from its bytes alone.  So an event has the bits of all its names, including names that no filter of
the table uses and that encoding leaves out: they may cause false positives, which are part of the published rates.

A signature is three u64.  Bit 0 is the most significant one of the first word, so that words compare as their bits do.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, sums, take_ranges
from mpi_match.arrays.strings import Strings

SIGNATURE_BITS, SIGNATURE_HASHES, SIGNATURE_WORDS = 192, 7, 3
_FACTOR = 0x5851F42D4C957F2D
_STEP = 0x9E3779B97F4A7C15


def tag_signatures(tags: Strings) -> Array:
    """u64[n, 3]: the signature of each tag alone."""
    lengths = np.diff(tags.offsets)
    powers = np.full(int(lengths.max(initial=0)), _FACTOR, np.uint64).cumprod(dtype=np.uint64)
    place = take_ranges(np.zeros(len(lengths), np.int64), lengths)
    first, last = int(tags.offsets[0]), int(tags.offsets[-1])
    weighed = (tags.data[first:last].astype(np.uint64) + np.uint64(1)) * powers[place]
    hashed = sums(weighed, offsets_of(lengths)) + lengths.astype(np.uint64)
    found = np.zeros((len(tags), SIGNATURE_WORDS), np.uint64)
    row = np.arange(len(tags))
    for i in range(SIGNATURE_HASHES):
        bit = (_mixed(hashed + np.uint64((i + 1) * _STEP % 2**64)) >> np.uint64(32)) * np.uint64(
            SIGNATURE_BITS
        ) >> np.uint64(32)
        found[row, bit >> np.uint64(6)] |= np.uint64(1) << (np.uint64(63) - (bit & np.uint64(63)))
    return found


def event_signatures(offsets: Array, name: Array, names: Strings) -> Array:
    """u64[n, 3]: the signatures of n events, of the bytes of all their names.

    Parameters: `offsets` i64[n + 1] of the events' attributes, `name` the index of each one's name in `names`.
    """
    found = np.zeros((len(offsets) - 1, SIGNATURE_WORDS), np.uint64)
    there = np.flatnonzero(np.diff(offsets))
    if len(there):
        of_names = tag_signatures(names)
        for word in range(SIGNATURE_WORDS):
            found[there, word] = np.bitwise_or.reduceat(of_names[name, word], offsets[there])
    return found


def _mixed(x: Array) -> Array:
    """u64: every bit of a number depends on every bit of `x` (splitmix64's finalizer)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed
