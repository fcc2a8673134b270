"""Scalar functions that match an event against the keyed index: its features, a node's children, a filter's checks.

They are written once, for CPUs, and kernels have their twins (`gpu.kernels.device_twin`).  Threads of a CPU and of a GPU
store an event's attributes differently: a CPU thread has one word for each name, a GPU thread a few attributes in local
memory, a warp many of them in shared memory.  `has` and `least` of `verifier` hide the difference, and `event` is their
argument.  `index` is `(t32, t64, words)`: `KeyedIndex.views` and the checks.

Numba converts mixed signed and unsigned 64-bit integers to doubles, so everything except hashes and masks is `int64` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined
from mpi_match.compute.search import lower_bound
from mpi_match.engines.keyed.index import postings
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    BITS,
    CODES,
    DENSE,
    EMPTY,
    EQUALITY,
    N_BITS,
    N_SLOTS,
    N_VIRTUAL,
    PRESENCE_FEATURES,
    SHIFT,
    SLOTS,
    bit_of,
    hash_of,
)
from mpi_match.engines.keyed.index.postings import COUNT_BITS, HEADER, MAX_CHECKS

_ONE = np.uint64(1)
_u64 = np.uint64
"""The type of indices: a signed index might be negative, so every access would test it."""


_hash_of, _bit_of, entry_words = inlined(hash_of), inlined(bit_of), inlined(postings.entry_words)


@inlined
def feature_starts(index: tuple) -> tuple:
    """The header's fields for `feature_of`: first presence feature, first code, first equality feature, the shift."""
    t64 = index[1]
    return np.int64(t64[PRESENCE_FEATURES]), np.int64(t64[CODES]), np.int64(t64[EQUALITY]), np.int64(t64[SHIFT])


@inlined
def feature_of(packed: int, is_presence: bool, starts: tuple, index: tuple) -> int:
    """The feature of an attribute i64: its name's presence, or its value; NONE if no key has it."""
    t32 = index[0]
    presence, codes, equality, shift = starts
    name = packed >> shift
    if is_presence:
        return t32[_u64(presence + name)]
    return t32[_u64(equality + np.int64(t32[_u64(codes + name)]) + (packed & ((np.int64(1) << shift) - 1)))]


@inlined
def key_starts(index: tuple) -> tuple:
    """The header's fields for `bucket_key_of`: number of names, first code, the shift."""
    t64 = index[1]
    return np.int64(t64[N_VIRTUAL]), np.int64(t64[CODES]), np.int64(t64[SHIFT])


@inlined
def bucket_key_of(packed: int, is_presence: bool, starts: tuple, index: tuple) -> int:
    """The bucket key of filters in the grid that ask for an attribute's name, or for its value."""
    n_virtual, codes, shift = starts
    name = packed >> shift
    if is_presence:
        return name
    return n_virtual + np.int64(index[0][codes + name]) + (packed & ((np.int64(1) << shift) - 1))


@inlined
def with_feature(feature: int, most_frequent: int, bits: tuple) -> tuple:
    """An event's row of dense features, two u64, with a feature of its own; and whether that is a dense one."""
    bits0, bits1 = bits
    bit = most_frequent - np.int64(feature)
    if bit < 64:
        bits0 |= _ONE << np.uint64(bit)
    elif bit < DENSE:
        bits1 |= _ONE << np.uint64(bit - 64)
    return (bits0, bits1), bit < DENSE


@inlined
def enter_features(
    packed: int, sparse: Array, n_sparse: int, bits: tuple, starts: tuple, most_frequent: int, index: tuple
) -> tuple:
    """Add an attribute's features to an event's: sparse ones to `sparse`, from `n_sparse` on, dense ones to the row `bits`.

    Returns the number of sparse ones, and the row.
    """
    for is_presence in range(2):
        feature = feature_of(packed, is_presence, starts, index)
        if feature == NONE:
            continue
        bits, is_dense = with_feature(feature, most_frequent, bits)
        if not is_dense:
            sparse[n_sparse] = feature
            n_sparse += 1
    return n_sparse, bits


@inlined
def n_above(row: np.uint64, low: np.uint64) -> np.int64:
    """Number of set bits in row u64 above bit `low`; the dense child of `low` has this many siblings before it."""
    return popcount(row & ~(low | (low - _ONE)))


@inlined
def home_slot(parent: int, feature: int, index: tuple) -> tuple:
    """The key of a node's child for a sparse feature, u64; the slot where the search for it begins, u64; and whether the
    child may exist.  The bit array excludes nearly all pairs without a child."""
    t32, t64, _ = index
    wanted = np.uint64(parent) << np.uint64(32) | np.uint64(feature)
    hashed = _hash_of(wanted)
    word, bit = _bit_of(hashed, t64[N_BITS])
    return wanted, hashed & (t64[N_SLOTS] - _ONE), t32[t64[BITS] + word] & bit != 0


@inlined
def child_in(wanted: np.uint64, slot: np.uint64, index: tuple) -> Any:
    """The child with a key, searched from its home slot on, or -1."""
    t64 = index[1]
    mask, child, key = t64[N_SLOTS] - _ONE, np.int64(-1), wanted ^ _ONE
    while key != wanted and key != EMPTY:
        at = t64[SLOTS] + slot * np.uint64(2)
        key = t64[at]
        if key == wanted:
            child = np.int64(t64[at + _ONE])
        slot = (slot + _ONE) & mask
    return child


@inlined
def probe(parent: int, feature: int, index: tuple) -> Any:
    """The child of a node for a sparse feature, or -1."""
    wanted, slot, may_exist = home_slot(parent, feature, index)
    child = np.int64(-1)
    if may_exist:
        child = child_in(wanted, slot, index)
    return child


def verifier(compiled: Callable[..., Any], has: Callable, least: Callable, *, long: bool) -> Callable:  # noqa: C901  four functions in one
    """Make `verify(at, counts, event, index)`, which is True if an event satisfies the filter at word `at` and it is not
    removed.

    `counts` is the filter's word of counts, i64; `has(event, low, high)` is True if the event has an attribute in
    [low, high]; `least(event, low)` is its first attribute from `low` on, i64, or one of another name.  Without `long`, a
    filter whose checks are elsewhere (`postings`) counts as removed: on an H200 the code for such filters makes a kernel
    5 % slower, so tables without them have kernels without it.
    """
    bound = compiled(lower_bound)

    @compiled
    def in_list(place: int, code: int, words: Array) -> bool:
        """Tells whether a code is in the operand list at word `place`."""
        end = place + 1 + np.int64(words[place])
        at = bound(words, place + 1, end, code)
        return at < end and np.int64(words[at]) == code

    @compiled
    def satisfies(place: int, n_positive: int, n_negative: int, n_sets: int, event: object, index: tuple) -> bool:
        """Tells whether the event passes the given numbers of checks of each kind from word `place` on."""
        words = index[2]
        for _ in range(n_positive):
            if not has(event, words[_u64(place)], words[_u64(place + 1)]):
                return False
            place += 2
        if n_negative | n_sets:
            for _ in range(n_negative):
                if has(event, words[_u64(place)], words[_u64(place + 1)]):
                    return False
                place += 2
            shift = np.int64(index[1][SHIFT])
            for _ in range(n_sets):
                base, listed = np.int64(words[place]), np.int64(words[place + 1])
                attribute = least(event, words[place])
                held = attribute >> shift == base >> shift and in_list(listed >> 1, attribute - base, words)
                if held == ((listed & 1) == 1):
                    return False
                place += 2
        return True

    if not long:

        @compiled
        def verify_short(at: int, counts: int, event: object, index: tuple) -> bool:
            if index[2][_u64(at + 2)]:
                return False
            n_positive, n_negative = counts & MAX_CHECKS, counts >> COUNT_BITS & MAX_CHECKS
            return satisfies(at + HEADER, n_positive, n_negative, counts >> 2 * COUNT_BITS, event, index)

        return verify_short

    @compiled
    def verify(at: Any, counts: Any, event: Any, index: Any) -> Any:
        words = index[2]
        state, place = np.int64(words[at + 2]), at + HEADER
        n_positive, n_negative, n_sets = counts & MAX_CHECKS, counts >> COUNT_BITS & MAX_CHECKS, counts >> 2 * COUNT_BITS
        if state == 1:
            return False
        if state != 0:
            place = state >> 1
            n_positive, n_negative = np.int64(words[place - 3]), np.int64(words[place - 2])
            n_sets = np.int64(words[place - 1])
        return satisfies(place, n_positive, n_negative, n_sets, event, index)

    return verify
