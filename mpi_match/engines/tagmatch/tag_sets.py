"""The unique sets of a tag table, in partitions, with a table of keys: what TagMatch is after it has consolidated.

    filters     gpu spark     gpu     gpu spark     as written: those with equal tags are one set
    sets        {gpu}         {gpu, spark}          by partition, and in lexicographic order of their signatures within one
    keys        1             0, 2                  the filters of each set, and their interfaces

Blocks of consecutive sets of a partition share leading bits of their signatures, as many as its first and last one do
(algorithms 3 and 4).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, running_sum, stable_order, stretch_of, take, take_rows
from mpi_match.engines.tagmatch.partitions import Partitions, divide
from mpi_match.engines.tagmatch.tag_filters import TagFilters
from mpi_match.events.signatures import SIGNATURE_WORDS

ORDER_BITS = 40
"""Bits of a hash that equal filters are brought together by."""
SORTED_BY_ONE, LEADING_BITS = 2**20, 16
"""A partition of more sets is sorted by so many bits first, and those with equal ones by one thread."""


class TagSets(NamedTuple):
    """n unique sets.

    signatures                u64[n, 3]
    tag_offsets, tags         i64[n + 1], u32   tags of each set, ascending
    key_offsets               i64[n + 1]        keys of each set
    key_filter, key_interface u32               ids, of filters ascending within a set
    partitions                                  whose rows the sets are
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
    def of(cls, filters: TagFilters, tag_signatures: Array, max_p: int | None, n_threads: int) -> TagSets:
        """The sets of some filters; `tag_signatures` u64[n_tags, 3].

        Partitions have at most `max_p` sets; with None all sets are one partition, without a mask.
        """
        hashes = np.empty(filters.n, np.uint64)
        in_stretches(filters.n, _hash_filters, filters.offsets, filters.tags, hashes)
        order = stable_order(hashes, 2**ORDER_BITS - 1)
        is_first = np.ones(filters.n, bool)
        in_stretches(filters.n, _find_first, order, filters.offsets, filters.tags, is_first)
        firsts = np.flatnonzero(is_first)
        n_keys = np.diff(np.append(firsts, filters.n))
        signatures = np.zeros((len(firsts), SIGNATURE_WORDS), np.uint64)
        in_stretches(len(firsts), sign, take(order, firsts), filters.offsets, filters.tags, tag_signatures, signatures)

        rows = np.arange(len(firsts), dtype=np.uint32)
        if max_p is None:
            bounds = np.array([0, len(rows)] if len(rows) else [0], np.int64)
            partitions = Partitions(bounds, np.zeros((len(bounds) - 1, SIGNATURE_WORDS), np.uint64))
        else:
            partitions = divide(signatures, rows, max_p, n_threads)
        _sort_partitions(signatures, rows, partitions, n_threads)
        firsts, key_offsets = take(firsts, rows), running_sum(take(n_keys, rows))
        key_filter, key_interface = np.empty(filters.n, np.uint32), np.empty(filters.n, np.uint32)
        in_stretches(len(rows), _write_keys, order, firsts, key_offsets, filters, (key_filter, key_interface))
        tag_offsets, tags = filters.tags_of(take(order, firsts))
        return cls(signatures, tag_offsets, tags, key_offsets, key_filter, key_interface, partitions)


@jit
def _hash_filters(stretch: int, n_stretches: int, offsets: Array, tags: Array, hashes: Array) -> None:
    """Fill `hashes`: u64 below 2^ORDER_BITS, equal for equal tags."""
    for i in stretch_of(len(hashes), stretch, n_stretches):
        hashed = np.uint64(14695981039346656037)
        for k in range(offsets[i], offsets[i + 1]):
            hashed = (hashed ^ np.uint64(tags[k])) * np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(29)
        hashes[i] = hashed >> np.uint64(64 - ORDER_BITS)


@jit
def _find_first(stretch: int, n_stretches: int, order: Array, offsets: Array, tags: Array, is_first: Array) -> None:
    """Clear the flags of filters, in `order`, that have the same tags as the one before."""
    for place in stretch_of(len(order), stretch, n_stretches):
        if place == 0:
            continue
        here, before = order[place], order[place - 1]
        size = offsets[here + 1] - offsets[here]
        same = size == offsets[before + 1] - offsets[before]
        for k in range(size if same else 0):
            same = same and tags[offsets[here] + k] == tags[offsets[before] + k]
        is_first[place] = not same


@jit
def _write_keys(
    stretch: int,
    n_stretches: int,
    order: Array,
    firsts: Array,
    key_offsets: Array,
    filters: TagFilters,
    to: tuple[Array, Array],
) -> None:
    """Write the keys of a stretch of the sets, whose filters stand together in `order`."""
    key_filter, key_interface = to
    for i in stretch_of(len(firsts), stretch, n_stretches):
        for k in range(key_offsets[i], key_offsets[i + 1]):
            key = order[firsts[i] + k - key_offsets[i]]
            key_filter[k], key_interface[k] = filters.id[key], filters.interface[key]


@jit
def sign(
    stretch: int, n_stretches: int, filters: Array, offsets: Array, tags: Array, tag_signatures: Array, signatures: Array
) -> None:
    """Fill `signatures`, zeros, with those of some filters: the bits of all their tags."""
    for i in stretch_of(len(filters), stretch, n_stretches):
        for k in range(offsets[filters[i]], offsets[filters[i] + 1]):
            for word in range(SIGNATURE_WORDS):
                signatures[i, word] |= tag_signatures[tags[k], word]


def _sort_partitions(signatures: Array, rows: Array, partitions: Partitions, n_threads: int) -> None:
    """Put the sets of each partition into lexicographic order, in place."""

    def sort(part: slice) -> None:
        order = np.lexsort(signatures[part].T[::-1])
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


def _leading_bits_sorted(signatures: Array, rows: Array, first: int, last: int) -> list[slice]:
    """Put sets into the order of their leading bits, in place; returns where those with equal ones are."""
    leading = signatures[first:last, 0] >> np.uint64(64 - LEADING_BITS)
    order = stable_order(leading, 2**LEADING_BITS - 1)
    signatures[first:last], rows[first:last] = take_rows(signatures[first:last], order), take(rows[first:last], order)
    bounds = offsets_of(np.bincount(leading.astype(np.int64), minlength=2**LEADING_BITS)) + first
    return [slice(*part) for part in pairwise(bounds[np.append(True, bounds[1:] > bounds[:-1])].tolist())]
