"""Where filters stand in the grid: under which anchor, and in how many stripes.

A filter has one anchor: its rarest feature or, where fewer events have those, three of its names as one, a group.  Its cells
and its anchor make its keys in the hash table (`hash_grid`).  Where many filters of one place share an anchor, their key is
spread over stripes, which an event all looks at: as few as keep the chains of blocks short.

    the books' key of a filter, u64    its anchor | Bloom filter of its names << 32
    anchor                             0 ... F - 1: a feature    F: nothing    from F + 1: a group
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.keyed.grid.geometry import LOW, N_GROUPS, group_of, name_bit
from mpi_match.engines.keyed.grid.hash_grid import MAX_STRIPES, occupancy
from mpi_match.engines.keyed.index.filter_rows import ROW_KIND, ROW_LO, ROW_NAME, CodedFilters, FilterRows, feature_of

ENTRIES_PER_STRIPE = 4


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """What anchors are chosen by.

    weight  f64[F]  how often an attribute of an event has each feature, expected from the table
    width   attributes that an event is expected to have
    """

    weight: Array
    width: float

    def keys_of(self, filters: Array, rows: FilterRows, *, groups: bool) -> Array:
        """u64: the keys of some filters of `rows`, whose anchors may be groups or not."""
        keys = np.empty(len(filters), np.uint64)
        in_stretches(len(filters), _fill_keys, filters, rows.coded, self.weight, self.width, groups, keys)
        return keys

    def are_groups(self, keys: Array) -> bool:
        """Is any of the anchors of these keys a group?"""
        return bool((keys & LOW).max(initial=0) > len(self.weight))

    def stripes_of(self, keys: Array, area: Array, *, groups: bool) -> Array:
        """u8 for each anchor: 1 + the logarithm of the number of its stripes, or 0 where no filter has it.

        So many that a stripe has few entries, when filters with these keys have the areas f64[n, 3].  Without `groups` there
        are none of them among the anchors.
        """
        no_anchor = len(self.weight)
        stripes = np.zeros(no_anchor + 1 + (N_GROUPS if groups else 0), np.uint8)
        anchors = keys & LOW
        entries, sharing = occupancy(area, anchors, len(stripes))
        used = np.unique(anchors).astype(np.int64)
        per_stripe = sharing[used] / np.maximum(entries[used], 1) / ENTRIES_PER_STRIPE
        stripes[used] = 1 + np.minimum(np.ceil(np.log2(np.maximum(per_stripe, 1.0))), MAX_STRIPES)
        return stripes


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
    """The anchor of each filter, and the Bloom filter of its names.

    That is its feature of least weight or, if `groups` may be anchors, the three of its names of least weight, where an
    event of `width` attributes has those half as often.
    """
    offsets, records, first_feature = coded
    for i in stretch_of(len(filters), stretch, n_stretches):
        rarest, names = np.int64(len(weight)), np.uint64(0)
        a, b, c = np.int64(-1), np.int64(-1), np.int64(-1)  # those names, the rarest first
        for row in range(offsets[filters[i]], offsets[filters[i] + 1]):
            op, name, lo = records[row, ROW_KIND] & 15, np.int64(records[row, ROW_NAME]), np.int64(records[row, ROW_LO])
            feature = feature_of(op, name, lo, first_feature[name])
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
