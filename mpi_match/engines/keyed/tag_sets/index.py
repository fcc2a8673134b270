"""The index of tag sets: each is found by its rarest tags, and is stored contiguously.

Tags are numbered by the number of sets that have them, the rarest first, and a set's tags are in that order.  Its *key* is
its first three tags (all of a smaller set).  A hash of the key selects the bucket of its record.  An event looks up the keys
that its tags can form, and compares the tags of the sets it finds.

    records      [hash, size] [filter] [tag] [tag] [tag] [tag]     without gaps, bucket by bucket
    directory    bucket b has the words directory[b] to directory[b + 1] of them
    bits         a Bloom filter with one hash, of keys and of their first tags and pairs, so that few of an event's triples
                 are formed and fewer are looked up

In addition to directory and bits, which take four bytes per set, a record of four tags takes 24 bytes.  Interfaces are
stored separately, four bytes per set, unless every filter has its own interface, with the same number.

Each construction step is divided among threads, by filters or by words of the bits; no two threads write to one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import find_bounds, in_stretches, running_sum, stable_order, stretch_of, take
from mpi_match.engines.keyed.tag_sets.keys import KEY_TAGS, bit_of, longer, place_of, whole
from mpi_match.table.table import Table
from mpi_match.table.tag_sets import tags_of_filters

RECORD_HEAD = 2
"""Words of a record before its tags."""
SIZE_BITS = 8
MOST_TAGS = 2**SIZE_BITS - 1
"""Most tags of a set."""
MANY_SETS = 10**6
"""Sets of the smallest table that gets this index.  The trie finds fewer sets as fast, and faster for events of many tags;
its memory matters only for more."""
SETS_IN_A_BUCKET = 2
BITS_OF_A_SET = 16


@dataclass(frozen=True)
class TagSetIndex:
    """The index of n sets.

    tag          u32[names, atoms] number of each name: 0 has the fewest sets; atoms have numbers that no set has
    records      u32               see the module; and one more word
    directory    u32[buckets + 1]
    bits         u64
    interface    u32[n_filters]    of each filter; empty if it is the filter's number
    always       u32               the filters without tags
    shortest     i64[1]            number of tags of the smallest set that has any, at most `KEY_TAGS`
    """

    tag: Array
    records: Array
    directory: Array
    bits: Array
    interface: Array
    always: Array
    shortest: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())

    @classmethod
    def of(cls, table: Table) -> TagSetIndex | None:
        """Build the index of a table; None unless it consists of at least `MANY_SETS` tag sets of at most `MOST_TAGS`
        tags."""
        if (
            table.n_filters < MANY_SETS
            or not table.is_tag_table
            or int(table.filters.size.max(initial=0)) > MOST_TAGS
            or RECORD_HEAD * table.n_filters + table.n_constraints >= 2**32
        ):
            return None
        n, constraints = table.n_filters, table.constraints
        by_rarity = np.argsort(np.diff(constraints.offsets), kind="stable")
        tag = np.arange(table.vocabulary.n_names + table.vocabulary.n_atoms, dtype=np.uint32)
        tag[by_rarity] = np.arange(len(by_rarity), dtype=np.uint32)
        offsets, tags, sizes = tags_of_filters(table, by_rarity)
        n_keys = max(n - int(np.count_nonzero(sizes == 0)), 1)
        n_buckets = max(n_keys // SETS_IN_A_BUCKET, 1)
        bits = np.zeros(max(n_keys * BITS_OF_A_SET // 64, 1), np.uint64)
        heads, buckets = np.empty(n, np.uint32), np.empty(n, np.uint32)
        in_stretches(n, _hash_keys, offsets, tags, sizes, n_buckets, (heads, buckets))
        in_stretches(n, _enter_bits, offsets, tags, sizes, bits)
        order = stable_order(buckets, n_buckets)[:n_keys]  # sets without tags have the bucket after the last
        ends = np.empty(n_buckets + 2, np.int64)
        find_bounds(take(buckets, order), ends)
        places = running_sum(take(sizes, order) + np.uint16(RECORD_HEAD))
        records = np.zeros(int(places[-1]) + 1, np.uint32)
        in_stretches(n_keys, _write_records, order, places, heads, offsets, (tags, sizes), records)
        interface = table.filters.interface
        is_number = table.n_interfaces == n and bool(np.array_equal(interface, np.arange(n, dtype=interface.dtype)))
        there = sizes[sizes > 0] if n_keys < n else sizes
        return cls(
            tag,
            records,
            places[ends[: n_buckets + 1]].astype(np.uint32),
            bits,
            interface[:0] if is_number else interface,
            np.flatnonzero(sizes == 0).astype(np.uint32),
            np.array([min(int(there.min(initial=MOST_TAGS)), KEY_TAGS)], np.int64),
        )


@jit
def _hash_keys(
    stretch: int, n_stretches: int, offsets: Array, tags: Array, sizes: Array, n_buckets: int, to: tuple[Array, Array]
) -> None:
    """Fill the first word of each set's record, and its bucket."""
    heads, buckets = to
    for i in stretch_of(len(sizes), stretch, n_stretches):
        hash_, size = np.uint64(0), np.int64(sizes[i])
        for k in range(offsets[i], offsets[i] + min(size, KEY_TAGS)):
            hash_ = longer(hash_, tags[k])
        hash_ = whole(hash_)
        heads[i] = np.uint32(hash_ << np.uint64(SIZE_BITS)) | np.uint32(size)
        buckets[i] = place_of(hash_, n_buckets) if size > 0 else n_buckets


@jit
def _enter_bits(stretch: int, n_stretches: int, offsets: Array, tags: Array, sizes: Array, bits: Array) -> None:
    """Set the bits of keys and of their beginnings in one stretch of the words; each thread reads all sets."""
    mine = stretch_of(len(bits), stretch, n_stretches)
    for i in range(len(sizes)):
        hash_ = np.uint64(0)
        size: Any = min(np.int64(sizes[i]), KEY_TAGS)
        for k in range(size):
            hash_ = longer(hash_, tags[offsets[i] + k])
            entered = hash_ if k + 1 < size else whole(hash_)
            word = place_of(entered, len(bits))
            if mine.start <= word and word < mine.stop:
                bits[word] |= bit_of(entered)


@jit
def _write_records(
    stretch: int,
    n_stretches: int,
    order: Array,
    places: Array,
    heads: Array,
    offsets: Array,
    sets: tuple[Array, Array],
    records: Array,
) -> None:
    tags, sizes = sets
    for k in stretch_of(len(order), stretch, n_stretches):
        filter_id, at = np.int64(order[k]), places[k]
        records[at], records[at + 1] = heads[filter_id], filter_id
        first = offsets[filter_id]
        for t in range(np.int64(sizes[filter_id])):
            records[at + RECORD_HEAD + t] = tags[first + t]
