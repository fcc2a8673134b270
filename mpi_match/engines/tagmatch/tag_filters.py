"""Filters of a tag table, and the test for one: all its constraints ask for the presence of a name.

A *tag* is a name, possibly a virtual one (`["tags", "has", "gpu"]`), and has the name's number.  Filters are kept as they
were written, each with its tags.  The unique sets are built from them (`tag_sets`), and rebuilt when the engine
consolidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import MAX_ROWS, in_stretches, running_sum, stretch_of
from mpi_match.engines.entries import can_serve
from mpi_match.events.signatures import tag_signatures
from mpi_match.table.kinds import KIND_OF_PRESENCE, parts_of
from mpi_match.table.table import Table
from mpi_match.table.tag_sets import tags_of_filters

TAG = np.dtype(np.uint32)
FETCHED_TOGETHER = 16
"""Filters whose tags are fetched from memory at the same time."""


class TagFilters(NamedTuple):
    """The n filters of a table with their tags.

    id, interface  u32[n]
    offsets        i64[n + 1]  tags of each filter
    tags           u32         ascending within a filter
    """

    id: Array
    interface: Array
    offsets: Array
    tags: Array

    @classmethod
    def of(cls, table: Table) -> TagFilters:
        """The filters of a tag table."""
        offsets, tags, sizes = tags_of_filters(table, np.arange(table.vocabulary.n_names))
        if int(sizes.sum()) < len(tags):  # a filter may name a tag twice
            tags, offsets = tags[take_ranges(offsets[:-1], sizes)], offsets_of(sizes)
        interface = table.filters.interface.astype(np.uint32, copy=False)
        return cls(np.arange(table.n_filters, dtype=np.uint32), interface, offsets, tags)

    @property
    def n(self) -> int:
        return len(self.id)

    def take(self, filters: Array) -> TagFilters:
        """Select filters by position, in this order."""
        return TagFilters(self.id[filters], self.interface[filters], *self.tags_of(filters))

    def tags_of(self, filters: Array) -> tuple[Array, Array]:
        """Offsets and tags of filters selected by position, in this order."""
        sizes = np.empty(len(filters), np.uint32)
        in_stretches(len(filters), _take_sizes, filters, self.offsets, sizes)
        offsets = running_sum(sizes)
        tags = np.empty(int(offsets[-1]), TAG)
        in_stretches(len(filters), _take_tags, filters, self.offsets, self.tags, offsets, tags)
        return offsets, tags

    @staticmethod
    def concat(parts: list[TagFilters]) -> TagFilters:
        """Concatenate the filters of all parts."""
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        columns = (np.concatenate([part[column] for part in parts]) for column in (0, 1, 3))
        id_, interface, tags = columns
        return TagFilters(id_, interface, offsets_of(sizes), tags)


@jit
def _take_sizes(stretch: int, n_stretches: int, filters: Array, offsets: Array, sizes: Array) -> None:
    """Fill the numbers of tags of one stretch of the selected filters."""
    for i in stretch_of(len(filters), stretch, n_stretches):
        sizes[i] = offsets[filters[i] + 1] - offsets[filters[i]]


@jit
def _take_tags(
    stretch: int, n_stretches: int, filters: Array, offsets: Array, tags: Array, taken_offsets: Array, taken: Array
) -> None:
    """Copy the tags of one stretch of the selected filters: first the leading tags of several filters, then the rest, so
    that the filters are fetched from memory in parallel."""
    mine, firsts = stretch_of(len(filters), stretch, n_stretches), np.empty(FETCHED_TOGETHER, np.int64)
    for begin in range(mine.start, mine.stop, FETCHED_TOGETHER):
        n = min(FETCHED_TOGETHER, mine.stop - begin)
        for i in range(n):
            firsts[i] = offsets[filters[begin + i]]
        for i in range(n):
            if taken_offsets[begin + i] < taken_offsets[begin + i + 1]:
                taken[taken_offsets[begin + i]] = tags[firsts[i]]
        for i in range(n):
            to = taken_offsets[begin + i]
            for k in range(1, taken_offsets[begin + i + 1] - to):
                taken[to + k] = tags[firsts[i] + k]


def signatures_of_tags(table: Table) -> Array:
    """u64[n_tags, 3]: the signature of each tag of a table."""
    return tag_signatures(table.vocabulary.names)


def not_tags(table: Table) -> str | None:
    """Return the reason why a table does not consist of tag sets; None if it does."""
    if table.has_areas:
        return f"the table has areas, and tagmatch serves tag sets only; {can_serve('areas', 'constraints')}"
    kinds = [] if table.constraints.only_presence else np.unique(table.constraints.kind).tolist()
    others = [kind for kind in kinds if kind != KIND_OF_PRESENCE]
    if others:
        type_, op = parts_of(others[0])
        what = f"{op.symbol!r} on a {type_.name.lower()}" if type_.value else f"{op.symbol!r}"
        return f"the table has constraints with {what}, and tagmatch serves tag sets only; {can_serve('constraints')}"
    if max(table.n_filters, table.n_constraints) > MAX_ROWS:
        n = table.n_constraints
        return f"the table has {n:,} constraints, and tagmatch holds at most 2^32 - 1; {can_serve('any size')}"
    return None
