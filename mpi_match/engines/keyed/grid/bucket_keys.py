"""Chooses the bucket key of a filter in the grid, and the number of sub-buckets of each bucket key.

A filter's bucket key is its rarest feature or a *name group*, a hash of three of its names, if fewer events have all three.
If it has no area and its rarest feature is "a code of an operand list", it has a bucket key, and so a slot, for each code.
Together with a cell it is a key of the hash table (`hash_grid`).  If many filters of one cell share a bucket key, the key is
divided into sub-buckets, all of which an event reads: as few as keep probe sequences short.

    key of a slot, u64    bucket key | Bloom filter of the filter's names << 32
    bucket key            0 ... F - 1: a feature    F: none    from F + 1: a name group
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, sums
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.keyed.grid.geometry import LOW, N_GROUPS, group_of, name_bit
from mpi_match.engines.keyed.grid.hash_grid import MAX_SUB_BUCKETS, occupancy
from mpi_match.engines.keyed.index.filter_rows import (
    IN_LIST,
    ROW_KIND,
    ROW_LO,
    ROW_NAME,
    CodedFilters,
    FilterRows,
    feature_of,
)
from mpi_match.engines.keyed.index.value_classes import ENTRIES_A_ROW
from mpi_match.table.kinds import OP_MASK

ENTRIES_PER_SUB_BUCKET = 4


_NO_LIST, _ANY_LIST = -1, -2
"""Values in place of the number of an operand list: one forbids lists as bucket keys, the other permits any."""


class SlotKeys(NamedTuple):
    """Keys u64 of the slots of filters: filter f has key[offsets[f] : offsets[f + 1]], at least one; offsets i64[n + 1]."""

    offsets: Array
    key: Array

    @property
    def n(self) -> Array:
        """i64[n]: the number of slots of each filter."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """Chooses bucket keys.

    weight  f64[F]  probability that an attribute of an event has each feature, estimated from the table
    width   expected number of attributes of an event
    """

    weight: Array
    width: float

    def keys_of(self, filters: Array, rows: FilterRows, located: Array, *, groups: bool) -> SlotKeys:
        """Keys of the slots of some filters of `rows`.  Those with areas, `located` bool[n], have one slot each.

        With `groups`, bucket keys may be name groups.  Filters that share long lists have one slot each, too, where slots
        would be more than `ENTRIES_A_ROW` times as many as constraints and listed values.
        """
        keys, lists = np.empty(len(filters), np.uint64), np.where(located, _NO_LIST, _ANY_LIST)
        features = np.repeat(rows.set_first, rows.set_size) + rows.set_codes
        of_lists = np.where(rows.set_size > 0, sums(self.weight[features], rows.set_offsets), np.inf)
        in_stretches(
            len(filters), _fill_keys, filters, rows.coded, (self.weight, of_lists), self.width, groups, (keys, lists)
        )
        if (lists < 0).all():
            return SlotKeys(np.arange(len(filters) + 1), keys)
        sizes = np.where(lists < 0, 1, rows.set_size[lists])
        shortest = np.argsort(sizes, kind="stable")
        too_many = np.cumsum(sizes[shortest]) > ENTRIES_A_ROW * (len(rows.records) + len(rows.set_codes))
        lists[shortest[too_many]], sizes[shortest[too_many]] = _NO_LIST, 1
        offsets = offsets_of(sizes)
        spread = np.empty(offsets[-1], np.uint64)
        in_stretches(len(filters), _spread, (keys, lists), features, rows.set_offsets, offsets, spread)
        return SlotKeys(offsets, spread)

    def are_groups(self, keys: Array) -> bool:
        """Tells whether any of these keys u64 has a name group as its bucket key."""
        return bool((keys & LOW).max(initial=0) > len(self.weight))

    def sub_buckets_of(self, keys: Array, area: Array, *, groups: bool) -> Array:
        """u8 for each bucket key: 1 + the base-2 logarithm of the number of its sub-buckets, or 0 if no filter has it.

        The number is chosen so that each sub-bucket has few entries, for filters with these keys u64 and areas f64[n, 3].
        Without `groups` the array ends before the name groups.
        """
        no_feature = len(self.weight)
        sub_buckets = np.zeros(no_feature + 1 + (N_GROUPS if groups else 0), np.uint8)
        bucket_keys = keys & LOW
        entries, sharing = occupancy(area, bucket_keys, len(sub_buckets))
        used = np.unique(bucket_keys).astype(np.int64)
        per_sub_bucket = sharing[used] / np.maximum(entries[used], 1) / ENTRIES_PER_SUB_BUCKET
        sub_buckets[used] = 1 + np.minimum(np.ceil(np.log2(np.maximum(per_sub_bucket, 1.0))), MAX_SUB_BUCKETS)
        return sub_buckets


@jit
def _fill_keys(
    stretch: int,
    n_stretches: int,
    filters: Array,
    coded: CodedFilters,
    weights: tuple[Array, Array],
    width: float,
    groups: bool,
    found: tuple[Array, Array],
) -> None:
    """Fill `keys` with the bucket key of each filter and the Bloom filter of its names, and `lists` with the operand list
    whose codes are its bucket keys instead, if there is one and `lists` was not `_NO_LIST`.

    The bucket key is the feature of least weight; a list has the weight of all of its codes.  With `groups` it is the three
    names of least weight, if an event of `width` attributes has all three less than half as often.
    """
    (offsets, records, first_feature), (weight, list_weight), (keys, lists) = coded, weights, found
    for i in stretch_of(len(filters), stretch, n_stretches):
        rarest, names = np.int64(len(weight)), np.uint64(0)
        a, b, c = np.int64(-1), np.int64(-1), np.int64(-1)  # the three names, rarest first
        listed = np.int64(-1)
        for row in range(offsets[filters[i]], offsets[filters[i] + 1]):
            form, name, lo = (
                records[row, ROW_KIND] & OP_MASK,
                np.int64(records[row, ROW_NAME]),
                np.int64(records[row, ROW_LO]),
            )
            feature = feature_of(form, name, lo, first_feature[name])
            if feature < 0:
                continue
            names |= name_bit(name)
            if form == IN_LIST and lists[i] != _NO_LIST and (listed < 0 or list_weight[lo] < list_weight[listed]):
                listed = lo
            if rarest == len(weight) or weight[feature] < weight[rarest]:
                rarest = feature
            if name in (a, b, c):
                continue
            if a < 0 or weight[name] < weight[a]:
                a, b, c = name, a, b
            elif b < 0 or weight[name] < weight[b]:
                b, c = name, b
            elif c < 0 or weight[name] < weight[c]:
                c = name
        if listed >= 0:  # a name and all of its codes have one weight, but for rounding
            is_name = rarest < first_feature[0] and list_weight[listed] <= weight[rarest] * (1.0 + 1e-9)
            if not is_name and list_weight[listed] >= weight[rarest]:
                listed = np.int64(-1)
        alone = 1.0 if rarest == len(weight) else min(weight[rarest] * width, 1.0)
        if listed >= 0:
            alone = min(list_weight[listed] * width, 1.0)
        if not groups or c < 0:
            three = 1.0
        else:
            three = min(weight[a] * width, 1.0) * min(weight[b] * width, 1.0) * min(weight[c] * width, 1.0)
        if three < alone / 2:
            first, last = min(a, b, c), max(a, b, c)
            rarest, listed = len(weight) + 1 + group_of(first, a + b + c - first - last, last), np.int64(-1)
        keys[i] = np.uint64(rarest) | names << np.uint64(32)
        lists[i] = listed


@jit
def _spread(
    stretch: int,
    n_stretches: int,
    found: tuple[Array, Array],
    features: Array,
    set_offsets: Array,
    offsets: Array,
    spread: Array,
) -> None:
    """Fill `spread` with the keys of each filter; a filter with a list has one key for each of its codes."""
    keys, lists = found
    for i in stretch_of(len(keys), stretch, n_stretches):
        if lists[i] < 0:
            spread[offsets[i]] = keys[i]
            continue
        names, first = keys[i] >> np.uint64(32) << np.uint64(32), set_offsets[lists[i]]
        for k in range(offsets[i + 1] - offsets[i]):
            spread[offsets[i] + k] = np.uint64(features[first + k]) | names
