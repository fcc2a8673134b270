"""Classes of the values of operand lists, by which filters with an `in` are indexed.

    f0    city in (a, b, c)           classes    {a, b}    {c}    {d, e}
    f1    city in (a, b, d, e)        entries    f0 f1     f0     f1

A filter has one entry for each class of its list, and every value of a class leads to it.  So a list that overlaps no other
is one class regardless of its length, and so is one that many filters share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, sums
from mpi_match.engines.keyed.index.filter_rows import FilterRows

ENTRIES_A_ROW = 4
"""Most entries for the classes of lists, as a multiple of the table's constraints and listed values."""
SHORT_LIST = 16
"""Most classes of a list for which filters have an entry per class, regardless of the table's size."""


class ValueClasses(NamedTuple):
    """Classes of values that no operand list and no equality distinguishes.

    of_feature  i64[P]           the representative of the class of each feature "name has the code", mostly itself; empty
                                 for a table without lists
    offsets     i64[n_sets + 1]  classes of each operand list
    codes       u32              the codes that represent the classes
    is_filed    bool[n_sets]     True if filters may have entries for the classes of this list
    """

    of_feature: Array
    offsets: Array
    codes: Array
    is_filed: Array

    def weights(self, weight: Array) -> Array:
        """f64[P]: the weights of features; the representative of a class has the weight of the class."""
        return np.bincount(self.of_feature, weight, len(weight)) if len(self.of_feature) else weight

    def spread(self, rank: Array) -> Array:
        """u32[P]: the ranks of features; all features of a class have the rank of its representative."""
        return np.asarray(rank[self.of_feature]) if len(self.of_feature) else rank


def value_classes(rows: FilterRows) -> ValueClasses:
    """The classes of the values of all operand lists of a table.

    A value's class is found by a hash of the lists that contain it.  Each list must then consist of whole classes, which
    verifies that no two classes share a hash; otherwise each value is a class of its own.

    The lists of fewest classes are filed, as long as their filters have at most `ENTRIES_A_ROW` entries for each constraint
    and each listed value of the table.  Those are all lists, unless many filters share lists whose values other lists
    distinguish; a filter with an unfiled list is indexed by its name.
    """
    n_sets = len(rows.set_size)
    member = np.repeat(rows.set_first, rows.set_size) + rows.set_codes
    of_feature, is_first = _classes(rows, member) if n_sets else (np.zeros(0, np.int64), np.zeros(0, bool))
    n_classes = sums(is_first.astype(np.int64), rows.set_offsets)
    order = np.argsort(n_classes, kind="stable")
    is_filed = n_classes <= SHORT_LIST
    is_filed[order] |= np.cumsum((rows.listed * n_classes)[order]) <= ENTRIES_A_ROW * (len(rows.records) + len(member))
    return ValueClasses(of_feature, offsets_of(n_classes), rows.set_codes[is_first], is_filed)


def _classes(rows: FilterRows, member: Array) -> tuple[Array, Array]:
    """`ValueClasses.of_feature`, and the indices of the lists' values, whose features are `member` i64, that represent a
    class."""
    generator, n_virtual = np.random.default_rng(1), rows.n_virtual
    signature, listed = np.zeros(rows.n_features, np.uint64), np.zeros(rows.n_features, bool)
    np.add.at(
        signature, member, np.repeat(generator.integers(2**64, size=len(rows.set_size), dtype=np.uint64), rows.set_size)
    )
    listed[member] = True
    listed[n_virtual:] &= rows.asked[n_virtual:] == 0  # the value of an equality is a class of its own
    shared = np.flatnonzero(listed)
    _, first, place, size = np.unique(signature[shared], return_index=True, return_inverse=True, return_counts=True)
    of_feature, class_size = np.arange(rows.n_features), np.ones(rows.n_features, np.int64)
    of_feature[shared], class_size[shared[first]] = shared[first[place]], size
    is_first = of_feature[member] == member
    if not np.array_equal(sums(np.where(is_first, class_size[member], 0), rows.set_offsets), rows.set_size):
        return np.arange(rows.n_features), np.ones(len(member), bool)
    return of_feature, is_first
