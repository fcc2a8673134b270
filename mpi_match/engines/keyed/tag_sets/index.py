"""The index of tag sets: each is found by its rarest tags, and lies in one piece of memory.

Tags are numbered by how many sets have them, the rarest first, and a set's tags are in that order.  Its *key* is its first
three (all of a smaller set).  A hash of the key says in which bucket its record is; an event looks up the keys that it could
have, and compares the tags of what it finds.

    records      [hash, size] [filter] [interface] [tag] [tag] [tag] [tag]     end to end, in the order of their hashes
    directory    bucket b has the words directory[b] to directory[b + 1] of them
    bits         a Bloom filter with one hash, of keys, and of the beginnings of keys, so that few of an event's triples are
                 formed and fewer are looked up

A record of four tags has 28 bytes; with the directory and the bits, a set takes about 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.compile_cache import inlined, jit, nested
from mpi_match.table.table import Table

RECORD_HEAD = 3
"""Words of a record before its tags."""
SIZE_BITS = 8
MOST_TAGS = 2**SIZE_BITS - 1
"""Most tags of a set."""
MANY_SETS = 2**20
"""Fewer sets are found as fast in the trie, and by events of many tags faster; its memory counts only for more."""
KEY_TAGS = 3
_BITS_OF_A_KEY = 8
_SETS_IN_A_BUCKET = 2
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_WHOLE = np.uint64(0x94D049BB133111EB)
_ONE, _29, _32, _58 = (np.uint64(n) for n in (1, 29, 32, 58))


@dataclass(frozen=True)
class TagSetIndex:
    """n sets.

    tag          u32[n_names]      number of each name: 0 has the fewest sets
    records      u32               see the module; and one word more
    directory    u32[buckets + 1]  buckets are a power of two
    bits         u64               words are a power of two
    always, always_interface   u32 the filters that ask for nothing, and their interfaces
    """

    tag: Array
    records: Array
    directory: Array
    bits: Array
    always: Array
    always_interface: Array

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())

    @classmethod
    def of(cls, table: Table) -> TagSetIndex | None:
        """The index of a table; None when it is not one of `MANY_SETS` tag sets of at most `MOST_TAGS` tags."""
        if (
            table.n_filters < MANY_SETS
            or not table.is_tag_table
            or int(table.filters.size.max(initial=0)) > MOST_TAGS
            or 8 * table.n_constraints >= 2**32
        ):
            return None
        counts = np.diff(table.constraints.offsets)
        tag = np.empty(table.vocabulary.n_names, np.uint32)
        tag[np.argsort(counts, kind="stable")] = np.arange(len(tag), dtype=np.uint32)
        offsets, tags = _sorted_tags(table, tag)
        sizes = np.diff(offsets)
        n_keys = max(int(np.count_nonzero(sizes)), 1)
        hashes = np.zeros(len(sizes), np.uint64)
        bits = np.zeros(1 << max(KEY_TAGS * _BITS_OF_A_KEY * n_keys // 64, 1).bit_length(), np.uint64)
        _hash_keys(offsets, tags, hashes, bits)
        order = np.argsort(hashes, kind="stable")
        order = order[sizes[order] > 0]
        n_buckets = 1 << (n_keys // _SETS_IN_A_BUCKET).bit_length()
        places = offsets_of(sizes[order] + RECORD_HEAD)
        records = np.zeros(int(places[-1]) + 1, np.uint32)
        _write_records(order, places, hashes, offsets, tags, table.filters.interface, records)
        bounds = np.arange(n_buckets, dtype=np.uint64) << np.uint64(
            64 - (n_buckets.bit_length() - 1) if n_buckets > 1 else 0
        )
        directory = places[np.append(np.searchsorted(hashes[order], bounds), len(order))].astype(np.uint32)
        always = np.flatnonzero(sizes == 0).astype(np.uint32)
        return cls(tag, records, directory, bits, always, table.filters.interface[always].astype(np.uint32))


def _sorted_tags(table: Table, tag: Array) -> tuple[Array, Array]:
    """The distinct tags of each filter, ascending: offsets i64[n + 1], and tags u32."""
    names = np.repeat(np.arange(len(tag)), np.diff(table.constraints.offsets))
    pairs = table.constraints.filter_id.astype(np.uint64) << _32 | tag[names].astype(np.uint64)
    pairs.sort()
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
    sizes = np.bincount((pairs >> _32).astype(np.int64), minlength=table.n_filters)
    return offsets_of(sizes), (pairs & np.uint64(2**32 - 1)).astype(np.uint32)


@inlined
def longer(hash_: np.uint64, tag: Any) -> np.uint64:
    """The hash of tags with one more behind them; that of none is 0."""
    hash_ = (hash_ ^ (np.uint64(tag) + _ONE)) * _FIRST
    hash_ ^= hash_ >> _32
    hash_ *= _SECOND
    return hash_ ^ (hash_ >> _29)


@inlined
def whole(hash_: np.uint64) -> np.uint64:
    """The hash of a key, from that of its tags."""
    hash_ *= _WHOLE
    return hash_ ^ (hash_ >> _32)


@inlined
def may_have(bits: Array, hash_: np.uint64) -> bool:
    """Is a hash perhaps in the Bloom filter?"""
    word: np.uint64 = bits[(hash_ >> np.uint64(6)) & np.uint64(len(bits) - 1)]
    return bool(word >> (hash_ >> _58) & _ONE)


@nested
def _enter(bits: Array, hash_: np.uint64) -> None:
    bits[(hash_ >> np.uint64(6)) & np.uint64(len(bits) - 1)] |= _ONE << (hash_ >> _58)


@jit
def _hash_keys(offsets: Array, tags: Array, hashes: Array, bits: Array) -> None:
    """Fill `hashes`, and enter keys and what they begin with into `bits`."""
    for i in range(len(hashes)):
        hash_ = np.uint64(0)
        last = min(offsets[i + 1], offsets[i] + KEY_TAGS)
        for k in range(offsets[i], last):
            hash_ = longer(hash_, tags[k])
            if k + 1 < last:
                _enter(bits, hash_)
        hashes[i] = whole(hash_)
        if last > offsets[i]:
            _enter(bits, hashes[i])


@jit
def _write_records(
    order: Array, places: Array, hashes: Array, offsets: Array, tags: Array, interface: Array, records: Array
) -> None:
    for k in range(len(order)):
        filter_id, at = order[k], places[k]
        first, last = offsets[filter_id], offsets[filter_id + 1]
        records[at] = np.uint32(hashes[filter_id] << np.uint64(SIZE_BITS)) | np.uint32(last - first)
        records[at + 1], records[at + 2] = filter_id, interface[filter_id]
        for t in range(first, last):
            records[at + RECORD_HEAD + t - first] = tags[t]
