"""Tag sets as arrays, and the table of them: no Python object for a set, a tag or a label.

    sets      0: 3 7 9      1: 2 3      2: 7 8 9          tags by number, sets end to end
    table     tag 2: 1      tag 3: 0 1      tag 7: 0 2    the sets of each tag, ascending

That is a stable sort by tag, of the numbers of the sets.  Every thread counts the tags of a stretch of the sets, and then
writes the sets behind those of the threads before it.

The table is the one that the same sets give as `Subscriptions`, which take some hundred bytes more for each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, smallest_unsigned
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, owner_of, running_sum, stretch_of, stretches_of
from mpi_match.table.constraints import FILTER_ID, Constraints
from mpi_match.table.filters import INTERFACE_ID, FilterColumns
from mpi_match.table.row_counts import lower_bound
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

WRITTEN_TOGETHER = 2**16
"""Least number of filters with tags that are written together; larger for more names, because each name is visited once."""


@dataclass(frozen=True)
class TagSetColumns:
    """n sets of c tags, each on an interface of its own.

    labels   Strings[n]  of the interfaces, sorted by bytes, distinct
    names    Strings     sorted by bytes, distinct; they may be virtual (`virtual_names`), and some unused
    size     u8[n]       tags of each set
    name     u32[c]      index into `names`, distinct within a set
    """

    labels: Strings
    names: Strings
    size: Array
    name: Array

    def table(self) -> Table:
        """The table of the sets: set i is filter i."""
        n, n_rows, n_names = len(self.size), len(self.name), len(self.names)
        counts = np.zeros((stretches_of(n_rows), n_names), np.int64)
        in_stretches(n_rows, _count, self.name, counts)
        per_name = counts.sum(axis=0)
        used = np.flatnonzero(per_name)
        _first_rows(counts)
        filter_id = np.empty(n_rows, FILTER_ID)
        in_stretches(n_rows, _distribute, running_sum(self.size), self.name, counts, filter_id)
        vocabulary = Vocabulary.of_presence(self.names if len(used) == n_names else self.names.take(used))
        constraints = Constraints.of_presence(offsets_of(per_name[used]), filter_id, vocabulary.n_codes)
        nothing = np.zeros(0, FILTER_ID)
        interface = np.arange(n, dtype=INTERFACE_ID)
        filters = FilterColumns(self.size.astype(np.uint32), interface, nothing, np.zeros((0, 3)), nothing, Strings.of(()))
        return Table(vocabulary, constraints, filters, self.labels)


@jit
def _count(stretch: int, n_stretches: int, name: Array, counts: Array) -> None:
    """Fill `counts` i64[n_stretches, n_names]: how often each name occurs in each stretch of the rows."""
    mine = counts[stretch]
    for row in stretch_of(len(name), stretch, n_stretches):
        mine[name[row]] += 1


@jit
def _first_rows(counts: Array) -> None:
    """Turn counts into the first row of each name in each stretch."""
    n_stretches, n_names = counts.shape
    row = np.int64(0)
    for name in range(n_names):
        for stretch in range(n_stretches):
            count = counts[stretch, name]
            counts[stretch, name] = row
            row += count


@jit
def _distribute(stretch: int, n_stretches: int, offsets: Array, name: Array, rows: Array, filter_id: Array) -> None:
    """Write the set of every tag to the next row of its name."""
    mine, places = stretch_of(len(name), stretch, n_stretches), rows[stretch]
    if mine.start == mine.stop:
        return
    owner = owner_of(offsets, mine.start)
    for row in mine:
        while offsets[owner + 1] <= row:
            owner += 1
        place = places[name[row]]
        filter_id[place] = owner
        places[name[row]] = place + 1


def first_sets(table: Table, n: int) -> Table:
    """The first n filters of a tag table, with its vocabulary and labels; as `Table.take`, without an index of all rows."""
    rows = np.flatnonzero(table.constraints.filter_id < n)
    offsets = np.searchsorted(rows, table.constraints.offsets)
    constraints = Constraints.of_presence(offsets, table.constraints.filter_id[rows], table.vocabulary.n_codes)
    size, interface = table.filters.size[:n], table.filters.interface[:n]
    nothing = np.zeros(0, FILTER_ID)
    filters = FilterColumns(size, interface, nothing, np.zeros((0, 3)), nothing, Strings.of(()))
    return Table(table.vocabulary, constraints, filters, table.labels)


def tags_of_filters(table: Table, order: Array) -> tuple[Array, Array, Array]:
    """The distinct tags of every filter of a tag table (`Table.is_tag_table`): the inverse of `TagSetColumns.table`.

    Parameters: `order` i64[n_names], a permutation of the names: the number of name `order[k]` is k.

    Returns offsets i64[n + 1], tags u32, by number, and the sizes of the sets in the narrowest unsigned type: filter i has
    `sizes[i]` tags, which ascend, from offsets[i] on.  If it asks for a tag twice, unused room follows its tags.
    """
    constraints, offsets = table.constraints, running_sum(table.filters.size)
    most = int(table.filters.size.max(initial=0))
    tags, sizes = np.empty(int(offsets[-1]), np.uint32), np.zeros(table.n_filters, smallest_unsigned(most))
    in_stretches(table.n_filters, _write_tags, order, constraints.offsets, constraints.filter_id, offsets, (tags, sizes))
    return offsets, tags, sizes


@jit
def _write_tags(
    stretch: int,
    n_stretches: int,
    order: Array,
    name_offsets: Array,
    filter_id: Array,
    offsets: Array,
    to: tuple[Array, Array],
) -> None:
    """Write the distinct tags of a stretch of filters, name by name, so that they ascend.  Filters are done in blocks, so
    that their tags stay in a core's cache."""
    tags, sizes = to
    mine, rows = stretch_of(len(sizes), stretch, n_stretches), np.empty(len(order), np.int64)
    for number in range(len(order)):
        rows[number] = lower_bound(filter_id, name_offsets[order[number]], name_offsets[order[number] + 1], mine.start)
    block = max(WRITTEN_TOGETHER, len(order))
    for first in range(mine.start, mine.stop, block):
        stop = min(first + block, mine.stop)
        for number in range(len(order)):
            row, last = rows[number], name_offsets[order[number] + 1]
            while row < last and np.int64(filter_id[row]) < stop:
                owner = np.int64(filter_id[row])
                place = offsets[owner] + np.int64(sizes[owner])
                if sizes[owner] == 0 or tags[place - 1] != number:
                    tags[place] = number
                    sizes[owner] += 1
                row += 1
            rows[number] = row
