"""Turns sets whose signatures match into answers: verify, look up keys, reduce and merge.

verify     keeps a set if the query has all its tags: a signature may match by chance (a false positive)
look up    finds the keys of the set
reduce     collects the filters, or distinct interfaces, of a query from all partitions, ascending
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import (
    digits_of,
    find_bounds,
    first_places,
    in_stretches,
    running_sum,
    stable_order,
    stretch_of,
    take,
)
from mpi_match.matches.matches import Matches


class Queries(NamedTuple):
    """The events of a batch, as n queries.

    bounds      i64[n + 1]  attributes of each query
    attributes  u32 or u64  packed, ascending within a query
    shift       bit position of the name in an attribute
    signatures  u64[n, 3]
    """

    bounds: Array
    attributes: Array
    shift: int
    signatures: Array

    @property
    def n(self) -> int:
        return len(self.signatures)


@jit
def sign_queries(
    stretch: int, n_stretches: int, bounds: Array, attributes: Array, shift: int, tag_signatures: Array, signatures: Array
) -> None:
    """Set the bits of the queries' tags in `signatures` u64[n, 3]."""
    for query in stretch_of(len(signatures), stretch, n_stretches):
        for k in range(bounds[query], bounds[query + 1]):
            tag = np.int64(np.uint64(attributes[k]) >> np.uint64(shift))
            for word in range(3):
                signatures[query, word] |= tag_signatures[tag, word]


@nested
def has_tags(attributes: Array, first: int, last: int, shift: int, tags: Array, first_tag: int, last_tag: int) -> bool:
    """Tells whether a query, attributes `first` to `last`, has all of the ascending tags `first_tag` to `last_tag`; ends are
    excluded."""
    for k in range(first_tag, last_tag):
        tag, low, high = np.int64(tags[k]), first, last
        while low < high:
            middle = (low + high) >> 1
            if np.int64(np.uint64(attributes[middle]) >> np.uint64(shift)) < tag:
                low = middle + 1
            else:
                high = middle
        if low == last or np.int64(np.uint64(attributes[low]) >> np.uint64(shift)) != tag:
            return False
        first = low + 1
    return True


@jit
def _verify(
    stretch: int,
    n_stretches: int,
    pairs: Array,
    bounds: Array,
    attributes: Array,
    shift: int,
    tag_offsets: Array,
    tags: Array,
) -> Array:
    """The pairs of one stretch with a query that has all tags of the set."""
    mine, n = stretch_of(len(pairs), stretch, n_stretches), 0
    kept = np.empty(len(mine), np.uint64)
    for i in mine:
        query, row = np.int64(pairs[i] >> np.uint64(32)), np.int64(pairs[i] & np.uint64(0xFFFFFFFF))
        if has_tags(attributes, bounds[query], bounds[query + 1], shift, tags, tag_offsets[row], tag_offsets[row + 1]):
            kept[n] = pairs[i]
            n += 1
    return kept[:n]


def verified(pairs: Array, queries: Queries, tag_offsets: Array, tags: Array) -> Array:
    """Select the (query, set) pairs u64, `query << 32 | set`, with a query that has all tags of the set."""
    columns = (queries.bounds, queries.attributes, queries.shift, tag_offsets, tags)
    return np.concatenate(in_stretches(len(pairs), _verify, pairs, *columns))


class Keys(NamedTuple):
    """The table of keys, for one kind of answer.

    offsets  i64[n_sets + 1]  keys of each set
    ids      u32              id of each key's filter or interface
    gone     bool             True for keys of removed filters; empty if none was removed
    """

    offsets: Array
    ids: Array
    gone: Array


RADIX_SORTED = 128
"""Least number of ids that are radix-sorted; fewer are sorted by comparison."""


class PairsByQuery(NamedTuple):
    """Pairs u64 with the query in the upper half, ordered by query, and the bounds i64[n + 1] of each query's pairs."""

    pairs: Array
    starts: Array

    @classmethod
    def of(cls, pairs: Array, n_queries: int) -> PairsByQuery:
        """Order pairs by query."""
        query = (pairs >> np.uint64(32)).astype(np.uint32)
        order = stable_order(query, max(n_queries - 1, 0))
        bounds = np.empty(n_queries + 1, np.int64)
        find_bounds(take(query, order), bounds)
        return cls(take(pairs, order), bounds)


def answers_of(pairs: Array, keys: Keys, others: Array, n_queries: int, n_ids: int) -> Matches:
    """The answers to all queries.

    Parameters: `pairs` u64 (query, set), in any order; `others` u64 (query, id), which are further answers.
    """
    matched, more = PairsByQuery.of(pairs, n_queries), PairsByQuery.of(others, n_queries)
    counts = np.empty(n_queries, np.int64)
    in_stretches(n_queries, _count_keys, matched, more, keys, counts)
    offsets = running_sum(counts)
    found = np.empty(int(offsets[-1]), np.uint32)
    in_stretches(n_queries, _collect_keys, matched, more, keys, offsets, (found, counts), digits_of(max(n_ids - 1, 1)))
    ends = running_sum(counts)
    if ends[-1] == offsets[-1]:  # no key repeats, so the answers are contiguous already
        return Matches.from_counts(counts, found, n_ids)
    ids = np.empty(int(ends[-1]), np.uint32)
    in_stretches(n_queries, _merge, offsets, found, ends, ids)
    return Matches.from_counts(counts, ids, n_ids)


@jit
def _count_keys(
    stretch: int, n_stretches: int, matched: PairsByQuery, others: PairsByQuery, keys: Keys, counts: Array
) -> None:
    """Count the keys of each query, including duplicates."""
    for query in stretch_of(len(counts), stretch, n_stretches):
        n = others.starts[query + 1] - others.starts[query]
        for i in range(matched.starts[query], matched.starts[query + 1]):
            row = np.int64(matched.pairs[i] & np.uint64(0xFFFFFFFF))
            n += keys.offsets[row + 1] - keys.offsets[row]
        counts[query] = n


@jit
def _collect_keys(
    stretch: int,
    n_stretches: int,
    matched: PairsByQuery,
    others: PairsByQuery,
    keys: Keys,
    offsets: Array,
    to: tuple[Array, Array],
    digits: tuple[int, int],
) -> None:
    """The distinct keys of each query, ascending, written to `found` from the query's offset on; `counts` becomes their
    number.

    Parameters: `to` is `found` and `counts`; `digits` are those of the ids (`digits_of`).
    """
    found, counts = to
    most = np.int64(0)
    for query in stretch_of(len(counts), stretch, n_stretches):
        most = max(most, counts[query])
    n_digits, width = digits
    spare, places = np.empty(most, np.uint32), np.empty((n_digits, 1 << width), np.int64)
    for query in stretch_of(len(counts), stretch, n_stretches):
        first = n = offsets[query]
        for i in range(matched.starts[query], matched.starts[query + 1]):
            row = np.int64(matched.pairs[i] & np.uint64(0xFFFFFFFF))
            for k in range(keys.offsets[row], keys.offsets[row + 1]):
                if len(keys.gone) == 0 or not keys.gone[k]:
                    found[n] = keys.ids[k]
                    n += 1
        for i in range(others.starts[query], others.starts[query + 1]):
            found[n] = np.uint32(others.pairs[i] & np.uint64(0xFFFFFFFF))
            n += 1
        _sort_ids(found[first:n], spare, places, width)
        distinct = first
        for i in range(first, n):
            if i == first or found[i] != found[distinct - 1]:
                found[distinct] = found[i]
                distinct += 1
        counts[query] = distinct - first


@nested
def _sort_ids(ids: Array, spare: Array, places: Array, width: int) -> None:
    """Sort ids u32 in place: many ids by radix sort, one digit of `width` bits after another, the lowest first.

    Parameters: `spare` u32, as long as the ids; `places` i64[n_digits, 2 ** width].
    """
    n, ordered = len(ids), 1
    while ordered < n and ids[ordered - 1] <= ids[ordered]:
        ordered += 1
    if ordered >= n:
        return
    if n < RADIX_SORTED:
        ids.sort()
        return
    n_digits, mask = len(places), np.int64(places.shape[1] - 1)
    places[:] = 0
    for i in range(n):
        for digit in range(n_digits):
            places[digit, np.int64(ids[i]) >> digit * width & mask] += 1
    source, target, in_spare = ids, spare[:n], False
    for digit in range(n_digits):
        if first_places(places[digit : digit + 1], n):  # all ids have the same digit
            continue
        for i in range(n):
            value = np.int64(source[i]) >> digit * width & mask
            target[places[digit, value]] = source[i]
            places[digit, value] += 1
        source, target, in_spare = target, source, not in_spare
    if in_spare:
        ids[:] = source


@jit
def _merge(stretch: int, n_stretches: int, offsets: Array, found: Array, ends: Array, ids: Array) -> None:
    """Copy the keys of all queries to `ids`, without gaps."""
    for query in stretch_of(len(ends) - 1, stretch, n_stretches):
        for i in range(ends[query + 1] - ends[query]):
            ids[ends[query] + i] = found[offsets[query] + i]
