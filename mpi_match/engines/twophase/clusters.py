"""Clusters: the filters with the same access predicate and the same number of predicates, stored column by column.

Each filter is stored under one of its predicates, its *access predicate*: an event that does not satisfy it cannot match the
filter.  The filters of an access predicate are divided by their number of other predicates, and the filters of such a
cluster are the rows of a table, stored column after column:

    access predicate 17, two others:      column 0   31  31  40  52 ...     predicates
                                          column 1   66  90  71  90 ...
                                          filter      3  81   7  12 ...

Phase 2 scans column 0, then each further column only in rows whose predicates have been satisfied so far.

With access=cost the access predicate is the filter's least likely one, as estimated from the table (Fabret et al. choose it
by cost as well), and columns go from unlikely to likely predicates; with access=any it is an arbitrary predicate, and
columns keep their order.  In Fabret et al. an access predicate may consist of several equalities; in Farroukh et al. it is a
single predicate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stable_order, stretch_of, take
from mpi_match.engines.twophase.predicates import PREDICATE, WORD_BITS, Predicates
from mpi_match.table.table import Table

CLUSTER_COLUMNS, CLUSTER_ROWS, COLUMNS_AT, FILTERS_AT = range(4)
"""Columns of `Clusters.cluster`."""


@dataclass(frozen=True)
class Clusters:
    """The C clusters of A access predicates; predicates are bits of W words.

    access            u32[A]        access predicates, ascending
    first_of_word     i64[W + 1]    the first access predicate whose bit is in this word or a later one
    cluster_offsets   i64[A + 1]    clusters of each access predicate
    cluster           i64[C, 4]     number of columns and rows, start of its columns, start of its filters
    columns           u32           predicates
    filters           u32[n_filters]
    """

    access: Array
    first_of_word: Array
    cluster_offsets: Array
    cluster: Array
    columns: Array
    filters: Array

    @classmethod
    def of(cls, table: Table, predicates: Predicates, *, by_cost: bool) -> Clusters:
        """Build the clusters of a table; access predicates are chosen `by_cost`, or arbitrarily."""
        sizes, n_filters = table.filters.size, table.n_filters
        offsets = offsets_of(sizes)
        predicate = _by_filter(table, predicates, by_cost=by_cost)
        access = np.empty(n_filters, PREDICATE)
        chosen = np.zeros(n_filters, np.uint32)
        if not by_cost:
            np.remainder(np.arange(n_filters, dtype=np.uint32), np.maximum(sizes, 1), out=chosen)
        in_stretches(n_filters, _choose, offsets, predicate, chosen, predicates.always, access)

        n_columns = np.maximum(sizes, 1).astype(np.uint64) - np.uint64(1)
        most = int(n_columns.max(initial=0)) + 1
        key = access * np.uint64(most) + n_columns
        filters = stable_order(key, predicates.n * most)
        key = key[filters]
        is_first = np.append(True, key[1:] != key[:-1]) if n_filters else np.zeros(0, bool)
        first = np.flatnonzero(is_first)
        of_cluster, width = np.divmod(key[first].astype(np.int64), most)
        rows = np.diff(np.append(first, n_filters))
        column_offsets = offsets_of(width * rows)
        cluster = np.column_stack([width, rows, column_offsets[:-1], first])
        columns = np.empty(int(column_offsets[-1]), PREDICATE)
        in_stretches(n_filters, _fill_columns, cluster, filters, (offsets, predicate, chosen), columns)

        distinct = np.unique(of_cluster)
        words = np.arange(-(-predicates.n // WORD_BITS) + 1) * WORD_BITS
        return cls(
            access=distinct.astype(PREDICATE),
            first_of_word=np.searchsorted(distinct, words),
            cluster_offsets=np.searchsorted(of_cluster, np.append(distinct, predicates.n)),
            cluster=cluster,
            columns=columns,
            filters=filters,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())


def _by_filter(table: Table, predicates: Predicates, *, by_cost: bool) -> Array:
    """u32[n_constraints]: predicates filter by filter; with `by_cost`, from unlikely to likely ones within a filter."""
    of_row, filter_id = predicates.of_row, table.constraints.filter_id
    if by_cost:
        rank = np.empty(predicates.n, np.uint32)
        rank[np.argsort(predicates.chance, kind="stable")] = np.arange(predicates.n)
        order = stable_order(take(rank, of_row), predicates.n)
        of_row, filter_id = take(of_row, order), take(filter_id, order)
    return take(of_row, stable_order(filter_id, table.n_filters))


@jit
def _choose(
    stretch: int, n_stretches: int, offsets: Array, predicate: Array, chosen: Array, always: int, access: Array
) -> None:
    """Fill `access` with predicate number `chosen` of each filter, or with `always` if the filter has none."""
    for f in stretch_of(len(access), stretch, n_stretches):
        has_one = offsets[f + 1] > offsets[f]
        access[f] = predicate[offsets[f] + chosen[f]] if has_one else always


@jit
def _fill_columns(stretch: int, n_stretches: int, cluster: Array, filters: Array, of_filter: tuple, columns: Array) -> None:
    """Fill `columns` with all predicates except the access predicates."""
    offsets, predicate, chosen = of_filter
    rows = stretch_of(len(filters), stretch, n_stretches)
    c = np.searchsorted(cluster[:, FILTERS_AT], rows.start, side="right") - 1
    for place in rows:
        while c + 1 < len(cluster) and cluster[c + 1, FILTERS_AT] <= place:
            c += 1
        f = filters[place]
        at = cluster[c, COLUMNS_AT] + place - cluster[c, FILTERS_AT]
        for i in range(offsets[f], offsets[f + 1]):
            if i != offsets[f] + chosen[f]:
                columns[at] = predicate[i]
                at += cluster[c, CLUSTER_ROWS]
