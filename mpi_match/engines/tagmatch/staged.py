"""Filters added since the engine consolidated: a temporary list that is scanned for every query.

Removed filters leave the list at once, whereas removed filters of the consolidated sets are only marked (`engine`).
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.tagmatch.lookup import Queries, has_tags
from mpi_match.engines.tagmatch.tag_filters import TAG, TagFilters

SCANNED_QUERIES = 64
"""Number of queries that are worth a further thread."""


class Staged:
    """The added filters, in the order of their arrival."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all filters."""
        nothing = np.empty(0, np.uint32)
        self._parts = [TagFilters(nothing, nothing, np.zeros(1, np.int64), np.empty(0, TAG))]

    @property
    def filters(self) -> TagFilters:
        """All filters."""
        if len(self._parts) > 1:
            self._parts = [TagFilters.concat(self._parts)]
        return self._parts[0]

    def add(self, filters: TagFilters) -> None:
        self._parts.append(filters)

    def keep(self, kept: Array) -> None:
        """Keep the filters whose flag is set, bool[n], and drop the others."""
        if not kept.all():
            self._parts = [self.filters.take(np.flatnonzero(kept))]

    def scan(self, queries: Queries, *, filters: bool) -> Array:
        """(query, id) pairs u64, in any order; the id is that of a filter or its interface."""
        there = self.filters
        if not there.n:
            return np.empty(0, np.uint64)
        ids = there.id if filters else there.interface
        columns = (queries.bounds, queries.attributes, queries.shift, there.offsets, there.tags, ids)
        return np.concatenate(in_stretches(queries.n, _scan, *columns, least=SCANNED_QUERIES))


@jit
def _scan(
    stretch: int, n_stretches: int, bounds: Array, attributes: Array, shift: int, offsets: Array, tags: Array, ids: Array
) -> Array:
    """The pairs of one stretch of the queries."""
    pairs, n = np.empty(len(ids), np.uint64), 0
    for query in stretch_of(len(bounds) - 1, stretch, n_stretches):
        if n + len(ids) > len(pairs):
            more = np.empty(2 * (n + len(ids)), np.uint64)
            more[:n] = pairs[:n]
            pairs = more
        for i in range(len(ids)):
            if has_tags(attributes, bounds[query], bounds[query + 1], shift, tags, offsets[i], offsets[i + 1]):
                pairs[n] = np.uint64(query) << np.uint64(32) | np.uint64(ids[i])
                n += 1
    return pairs[:n]
