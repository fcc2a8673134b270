"""The unique sets of a tag table, in partitions, with a table of keys: the state of TagMatch after it has consolidated.

    filters     gpu spark     gpu     gpu spark     as written: those with equal tags are one set
    sets        {gpu}         {gpu, spark}          by partition, then in lexicographic order of their signatures
    keys        1             0, 2                  the filters of each set, and their interfaces

Blocks of consecutive sets of a partition share a prefix of their signatures: that of the first and the last one (algorithms
3 and 4).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, running_sum, stable_order, stretch_of, take, take_rows
from mpi_match.engines.tagmatch.partitions import Partitions, divide
from mpi_match.engines.tagmatch.tag_filters import TagFilters
from mpi_match.events.signatures import SIGNATURE_WORDS

ORDER_BITS = 40
"""Bits of the hash by which equal filters are brought together."""
SORTED_BY_ONE, LEADING_BITS = 2**20, 12
"""Sets in the largest partition that one thread sorts.  A larger one is first sorted by LEADING_BITS bits; then one thread
sorts each run of sets with equal leading bits."""


class TagSets(NamedTuple):
    """The n unique sets.

    signatures                u64[n, 3]
    tag_offsets, tags         i64[n + 1], u32   tags of each set, ascending
    key_offsets               i64[n + 1]        keys of each set
    key_filter, key_interface u32               ids; filters ascend within a set
    partitions                                  the partitions, in whose order the sets are
    """

    signatures: Array
    tag_offsets: Array
    tags: Array
    key_offsets: Array
    key_filter: Array
    key_interface: Array
    partitions: Partitions

    @property
    def n(self) -> int:
        return len(self.signatures)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self[:-1], *self.partitions))

    @classmethod
    def of(
        cls, filters: TagFilters, tag_signatures: Array, max_p: int | None, n_threads: int, *, by_half: bool = True
    ) -> TagSets:
        """Build the unique sets of some filters; `tag_signatures` u64[n_tags, 3].

        Partitions have at most `max_p` sets; with None all sets are one partition, without a mask.  `by_half` is as in
        `divide`.
        """
        hashes = np.empty(filters.n, np.uint64)
        in_stretches(filters.n, _hash_filters, filters.offsets, filters.tags, hashes)
        order = stable_order(hashes, 2**ORDER_BITS - 1)
        del hashes
        next_of = np.empty(filters.n, np.uint32)
        is_first = np.empty(filters.n, bool)
        in_stretches(filters.n, _chain, order, filters.offsets, filters.tags, (is_first, next_of))
        del order
        owners = np.flatnonzero(is_first).astype(np.uint32)
        signatures = np.empty((len(owners), SIGNATURE_WORDS), np.uint64)
        in_stretches(len(owners), _sign, owners, filters.offsets, filters.tags, tag_signatures, signatures)
        if max_p is None:
            bounds = np.array([0, len(owners)] if len(owners) else [0], np.int64)
            partitions = Partitions(bounds, np.zeros((len(bounds) - 1, SIGNATURE_WORDS), np.uint64))
        else:
            partitions = divide(signatures, owners, max_p, n_threads, by_half=by_half)
        _sort_partitions(signatures, owners, partitions, n_threads)
        n_keys = np.empty(len(owners), np.uint32)
        in_stretches(len(owners), _count_keys, owners, next_of, n_keys)
        key_offsets = running_sum(n_keys)
        key_filter, key_interface = np.empty(filters.n, np.uint32), np.empty(filters.n, np.uint32)
        columns = filters.id, filters.interface
        in_stretches(len(owners), _write_keys, owners, next_of, key_offsets, columns, (key_filter, key_interface))
        tag_offsets, tags = filters.tags_of(owners)
        return cls(signatures, tag_offsets, tags, key_offsets, key_filter, key_interface, partitions)


@jit
def _hash_filters(stretch: int, n_stretches: int, offsets: Array, tags: Array, hashes: Array) -> None:
    """Fill `hashes` with u64 below 2^ORDER_BITS, equal for equal tags."""
    for i in stretch_of(len(hashes), stretch, n_stretches):
        hashed = np.uint64(14695981039346656037)
        for k in range(offsets[i], offsets[i + 1]):
            hashed = (hashed ^ np.uint64(tags[k])) * np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(29)
        hashes[i] = hashed >> np.uint64(64 - ORDER_BITS)


@jit
def _chain(stretch: int, n_stretches: int, order: Array, offsets: Array, tags: Array, to: tuple[Array, Array]) -> None:
    """For each filter, fill `to`: whether it is the first with its tags, and the next one with the same tags (the last:
    itself).

    Parameters: `order` u32[n] lists the filters so that those with equal tags are adjacent, ascending.
    """
    is_first, next_of = to
    mine = stretch_of(len(order), stretch, n_stretches)
    same = 0 < mine.start < mine.stop and _equal(offsets, tags, order[mine.start - 1], order[mine.start])
    for place in mine:
        here = order[place]
        is_first[here] = not same
        same = place + 1 < len(order) and _equal(offsets, tags, here, order[place + 1])
        next_of[here] = order[place + 1] if same else here


@nested
def _equal(offsets: Array, tags: Array, one: int, other: int) -> bool:
    """Tells whether two filters have the same tags."""
    size = offsets[one + 1] - offsets[one]
    if size != offsets[other + 1] - offsets[other]:
        return False
    same = 0
    while same < size and tags[offsets[one] + same] == tags[offsets[other] + same]:
        same += 1
    return bool(same == size)


@jit
def _count_keys(stretch: int, n_stretches: int, owners: Array, next_of: Array, n_keys: Array) -> None:
    """Fill `n_keys` with the number of filters of each set, given the set's first filter."""
    for i in stretch_of(len(owners), stretch, n_stretches):
        key, n = owners[i], 1
        while next_of[key] != key:
            key, n = next_of[key], n + 1
        n_keys[i] = n


@jit
def _write_keys(
    stretch: int,
    n_stretches: int,
    owners: Array,
    next_of: Array,
    key_offsets: Array,
    columns: tuple[Array, Array],
    to: tuple[Array, Array],
) -> None:
    """Write the keys of one stretch of the sets: the ids and interfaces of each set's filters."""
    (ids, interfaces), (key_filter, key_interface) = columns, to
    for i in stretch_of(len(owners), stretch, n_stretches):
        key = owners[i]
        for k in range(key_offsets[i], key_offsets[i + 1]):
            key_filter[k], key_interface[k] = ids[key], interfaces[key]
            key = next_of[key]


@jit
def _sign(
    stretch: int, n_stretches: int, filters: Array, offsets: Array, tags: Array, tag_signatures: Array, signatures: Array
) -> None:
    """Fill `signatures` with those of the given filters: the bits of all their tags."""
    for i in stretch_of(len(filters), stretch, n_stretches):
        first = second = third = np.uint64(0)
        for k in range(offsets[filters[i]], offsets[filters[i] + 1]):
            tag = tags[k]
            first |= tag_signatures[tag, 0]
            second |= tag_signatures[tag, 1]
            third |= tag_signatures[tag, 2]
        signatures[i, 0], signatures[i, 1], signatures[i, 2] = first, second, third


def _sort_partitions(signatures: Array, rows: Array, partitions: Partitions, n_threads: int) -> None:
    """Sort the sets of each partition lexicographically, in place."""

    def sort(part: slice) -> None:
        order = lexicographic_order(signatures[part])
        signatures[part], rows[part] = signatures[part][order], rows[part][order]

    parts: list[slice] = []
    for first, last in pairwise(partitions.bounds.tolist()):
        if last - first > SORTED_BY_ONE:
            parts += _leading_bits_sorted(signatures, rows, first, last)
        else:
            parts.append(slice(first, last))
    with ThreadPoolExecutor(n_threads, "tagmatch-sort") as threads:
        for _ in threads.map(sort, parts):
            pass


def lexicographic_order(signatures: Array) -> Array:
    """i64[n]: the order of rows u64[n, 3] by their first word, then by the second, then by the third.

    NumPy sorts words with vector instructions, many times faster than it compares rows.
    """
    order = np.argsort(signatures[:, 0])
    found = signatures[order, 0]
    is_new = found[1:] != found[:-1]
    for word in range(1, SIGNATURE_WORDS):
        tied = np.flatnonzero(~(np.append(True, is_new) & np.append(is_new, True)))
        run, rows = np.append(0, np.cumsum(is_new))[tied], order[tied]
        key = run * len(tied) + np.unique(signatures[rows, word], return_inverse=True)[1]
        by_key = np.argsort(key)
        order[tied], key = rows[by_key], key[by_key]
        is_new[tied[1:] - 1] = key[1:] != key[:-1]
    return order


def _leading_bits_sorted(signatures: Array, rows: Array, first: int, last: int) -> list[slice]:
    """Sort sets by their leading bits, in place; returns the ranges of sets with equal leading bits."""
    leading = signatures[first:last, 0] >> np.uint64(64 - LEADING_BITS)
    order = stable_order(leading, 2**LEADING_BITS - 1)
    signatures[first:last], rows[first:last] = take_rows(signatures[first:last], order), take(rows[first:last], order)
    bounds = offsets_of(np.bincount(leading.astype(np.int64), minlength=2**LEADING_BITS)) + first
    return [slice(*part) for part in pairwise(bounds[np.append(True, bounds[1:] > bounds[:-1])].tolist())]
