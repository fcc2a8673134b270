"""Keys of tag sets: their hashes, the buckets and bits that these select, and the test for all tags of a set.

Scalar functions, which `kernels.tag_sets` compiles for GPUs too.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.compile_cache import inlined

KEY_TAGS = 3
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_WHOLE = np.uint64(0x94D049BB133111EB)
_ONE, _63 = np.uint64(1), np.uint64(63)
_24, _29, _32 = (np.uint64(n) for n in (24, 29, 32))


@inlined
def longer(hash_: np.uint64, tag: Int) -> np.uint64:
    """Extend the hash u64 of some tags by one more tag; the hash of no tags is 0."""
    hash_ = (hash_ ^ (np.uint64(tag) + _ONE)) * _FIRST
    hash_ ^= hash_ >> _32
    hash_ *= _SECOND
    return hash_ ^ (hash_ >> _29)


@inlined
def whole(hash_: np.uint64) -> np.uint64:
    """The hash u64 of a key, from that of its tags."""
    hash_ *= _WHOLE
    return hash_ ^ (hash_ >> _32)


@inlined
def place_of(hash_: np.uint64, n: int) -> np.int64:
    """Map a hash to one of n < 2^32 indices, i64: its upper half, scaled."""
    return np.int64(((hash_ >> _32) * np.uint64(n)) >> _32)


@inlined
def bit_of(hash_: np.uint64) -> np.uint64:
    """The bit u64 of a hash in its word of the Bloom filter."""
    return _ONE << ((hash_ >> _24) & _63)


@inlined
def may_have(bits: Array, n_words: int, hash_: np.uint64) -> bool:
    """Tells whether a hash may be in the Bloom filter."""
    return (bits[place_of(hash_, n_words)] & bit_of(hash_)) != np.uint64(0)


@inlined
def has_all(records: Array, at: int, size: int, tags: Array, first: int, m: int) -> bool:
    """Tells whether records[at : at + size] are all among tags[first : first + m].  Both ascend."""
    place, last = first, first + m
    k, found = at, True
    while found and k < at + size:
        tag = records[k]
        while place < last and tags[place] < tag:
            place += 1
        found = place < last and tags[place] == tag
        place += 1
        k += 1
    return found
