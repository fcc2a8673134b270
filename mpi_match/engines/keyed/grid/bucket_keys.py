"""Which bucket key a filter has in the grid, and in how many sub-buckets.

A filter's bucket key is its rarest feature or, where fewer events have all of those, a group: three of its names as one.
Together with a cell it is a key of the hash table (`hash_grid`).  Where many filters of one cell share a bucket key, the key
is divided into sub-buckets, all of which an event reads: as few as keep probe sequences short.

    key of a slot, u64    bucket key | Bloom filter of the filter's names << 32
    bucket key            0 ... F - 1: a feature    F: none    from F + 1: a group
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.keyed.grid.geometry import LOW, N_GROUPS, group_of, name_bit
from mpi_match.engines.keyed.grid.hash_grid import MAX_SUB_BUCKETS, occupancy
from mpi_match.engines.keyed.index.filter_rows import ROW_KIND, ROW_LO, ROW_NAME, CodedFilters, FilterRows, feature_of
from mpi_match.table.kinds import OP_MASK

ENTRIES_PER_SUB_BUCKET = 4


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """Chooses bucket keys.

    weight  f64[F]  how often an attribute of an event has each feature, expected from the table
    width   attributes that an event is expected to have
    """

    weight: Array
    width: float

    def keys_of(self, filters: Array, rows: FilterRows, *, groups: bool) -> Array:
        """u64[n]: keys of the slots of some filters of `rows`; with `groups`, bucket keys may be groups."""
        keys = np.empty(len(filters), np.uint64)
        in_stretches(len(filters), _fill_keys, filters, rows.coded, self.weight, self.width, groups, keys)
        return keys

    def are_groups(self, keys: Array) -> bool:
        """Is a bucket key of these u64 keys a group?"""
        return bool((keys & LOW).max(initial=0) > len(self.weight))

    def sub_buckets_of(self, keys: Array, area: Array, *, groups: bool) -> Array:
        """u8 for each bucket key: 1 + the logarithm of the number of its sub-buckets, or 0 where no filter has it.

        Their number leaves few entries in each, for filters with these u64 keys and the areas f64[n, 3].  Without `groups`
        the array ends before the groups.
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
    weight: Array,
    width: float,
    groups: bool,
    keys: Array,
) -> None:
    """Fill `keys`: the bucket key of each filter, and the Bloom filter of its names.

    The bucket key is the feature of least weight or, with `groups`, the three names of least weight where an event of
    `width` attributes has all three less than half as often.
    """
    offsets, records, first_feature = coded
    for i in stretch_of(len(filters), stretch, n_stretches):
        rarest, names = np.int64(len(weight)), np.uint64(0)
        a, b, c = np.int64(-1), np.int64(-1), np.int64(-1)  # those names, the rarest first
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
        alone = 1.0 if rarest == len(weight) else min(weight[rarest] * width, 1.0)
        if not groups or c < 0:
            three = 1.0
        else:
            three = min(weight[a] * width, 1.0) * min(weight[b] * width, 1.0) * min(weight[c] * width, 1.0)
        if three < alone / 2:
            first, last = min(a, b, c), max(a, b, c)
            rarest = len(weight) + 1 + group_of(first, a + b + c - first - last, last)
        keys[i] = np.uint64(rarest) | names << np.uint64(32)
