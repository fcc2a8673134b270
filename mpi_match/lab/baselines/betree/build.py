"""Building the tree: filters are divided by the names that they constrain, then by the values, and so on.

A node has a bucket of filters, a *partition directory* of names, and if it is in the *cluster directory* of a name, a range
of that name's codes and up to two children, which have the halves of the range:

    node: every filter
      bucket: those without a name that is left
      partition directory
        temp ──► node: temp in 0..99             those whose interval is in neither half: bucket, directory of other names
                   left:  temp in 0..49
                   right: temp in 50..99
        city ──► node: city in 0..7

A node with too many filters for its bucket is divided in two phases.  *Clustering*: filters whose interval lies in one half
of the range go to that child.  *Partitioning*: of the others, those with the names that most of them have go to nodes of
these names, until the bucket holds the rest, or no name is left; then the bucket holds more.  A name occurs once on a path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.engines.keyed.index.filter_rows import ROW_HI, ROW_KIND, ROW_LO, ROW_NAME, FilterRows
from mpi_match.lab.baselines.event_by_event import lower_bound
from mpi_match.operators import Form
from mpi_match.table.kinds import KIND_SHIFT, OP_MASK

NODE_FIRST, NODE_LAST, NODE_FIRST_ENTRY, NODE_LAST_ENTRY, NODE_LEFT, NODE_RIGHT, NODE_SPLIT, NODE_NAME = range(8)
"""Columns of `Tree.nodes`."""
NODE_PARENT, NODE_LOW, NODE_HIGH, NODE_LEVEL = range(8, 12)
"""Further columns while the tree is built: the parent, the range of codes, and the number of halvings."""
NODE_WIDTH = 12
ENTRY_NODE, ENTRY_NAME, ENTRY_CHILD = range(3)


class Extents(NamedTuple):
    """The interval of codes that a filter's constraints on one name lie in; filter f has offsets[f] to offsets[f + 1].

    offsets i64[n_filters + 1]; name, low, high i64[e], by filter and name.
    """

    offsets: Array
    name: Array
    low: Array
    high: Array


class Tree(NamedTuple):
    """The nodes, the root first.

    nodes    i64[n, 8]       bucket: filters order[NODE_FIRST:NODE_LAST]; directory: entries NODE_FIRST_ENTRY to
                             NODE_LAST_ENTRY; children NODE_LEFT and NODE_RIGHT or -1, for codes of NODE_NAME up to
                             NODE_SPLIT, and above it
    order    u32[n_filters]
    entries  i64[d, 2]       name, ascending in each directory, and node
    """

    nodes: Array
    order: Array
    entries: Array


def extents(rows: FilterRows) -> Extents:
    """The names, and intervals of their codes, that an event needs to match (`absent` needs none)."""
    n_filters, records = len(rows.offsets) - 1, rows.records
    asks = np.flatnonzero(records[:, ROW_KIND] & OP_MASK != Form.ABSENT)
    key = owners(rows.offsets)[asks] << 32 | records[asks, ROW_NAME]
    if np.any(key[1:] < key[:-1]):  # atoms stand among the constraints of the name that they are of
        by_name = np.argsort(key, kind="stable")
        asks, key = asks[by_name], key[by_name]
    type_, form, name = records[asks, ROW_KIND] >> KIND_SHIFT, records[asks, ROW_KIND] & OP_MASK, records[asks, ROW_NAME]
    low, high = records[asks, ROW_LO].astype(np.int64), records[asks, ROW_HI].astype(np.int64)
    listed = np.flatnonzero(form == Form.IN_LIST)
    lists = low[listed]
    low[listed], high[listed] = rows.set_codes[rows.set_offsets[lists]], rows.set_codes[rows.set_offsets[lists + 1] - 1]
    wide = np.flatnonzero((form == Form.UNEQUAL) | (form == Form.OUT_OF_LIST))
    low[wide], high[wide] = rows.segments[type_[wide], 0, name[wide]], rows.segments[type_[wide], 1, name[wide]]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if len(first):  # of several constraints on a name, what all of them allow
        low, high = np.maximum.reduceat(low, first), np.minimum.reduceat(high, first)
    counts = np.bincount(key[first] >> 32, minlength=n_filters)
    return Extents(offsets_of(counts), name[first].astype(np.int64), low, np.maximum(low, high))


def build(found: Extents, n_codes: Array, bucket: int, halvings: int) -> Tree:
    """The tree of filters with these extents; `n_codes` i64[V] of each (virtual) name."""
    order = np.arange(len(found.offsets) - 1, dtype=np.uint32)
    nodes, entries = _divide(found, n_codes, order, bucket, halvings)
    entries = entries[np.lexsort((entries[:, ENTRY_NAME], entries[:, ENTRY_NODE]))]
    bounds = np.searchsorted(entries[:, ENTRY_NODE], np.arange(len(nodes) + 1))
    nodes[:, NODE_FIRST_ENTRY], nodes[:, NODE_LAST_ENTRY] = bounds[:-1], bounds[1:]
    return Tree(np.ascontiguousarray(nodes[:, : NODE_NAME + 1]), order, np.ascontiguousarray(entries[:, ENTRY_NAME:]))


@nested
def _cluster(node: Array, found: tuple, order: Array, side: Array) -> tuple:
    """Move the node's filters whose interval lies in one half of its range behind the others; returns where these begin.

    Afterwards filters order[NODE_FIRST:NODE_LAST] are those that stay, then the lower half's, then the upper half's.
    """
    offsets, name, low, high = found
    first, last, middle = node[NODE_FIRST], node[NODE_LAST], node[NODE_SPLIT]
    counts = np.zeros(3, np.int64)
    for i in range(first, last):
        at = lower_bound(name, offsets[order[i]], offsets[order[i] + 1], node[NODE_NAME])
        side[i] = 1 if high[at] <= middle else 2 if low[at] > middle else 0
        counts[side[i]] += 1
    left, right = first + counts[0], first + counts[0] + counts[1]
    place = np.array([first, left, right])
    moved = order[first:last].copy()
    for i in range(first, last):
        order[place[side[i]]] = moved[i - first]
        place[side[i]] += 1
    return left, right


@nested
def _choose(filters: Array, found: tuple, used: Array, serial: int, size: Array, chosen: Array) -> None:
    """Choose for each filter its most frequent unused name among these filters, or -1.

    Writes `chosen`, and the count of each name to `size`, which is zero before, and for other names afterwards.
    """
    offsets, name, _, _ = found
    for f in filters:
        for at in range(offsets[f], offsets[f + 1]):
            if used[name[at]] != serial:
                size[name[at]] += 1
    for i, f in enumerate(filters):
        chosen[i] = -1
        for at in range(offsets[f], offsets[f + 1]):
            if used[name[at]] != serial and (chosen[i] < 0 or size[name[at]] > size[chosen[i]]):
                chosen[i] = name[at]
    for f in filters:
        for at in range(offsets[f], offsets[f + 1]):
            size[name[at]] = 0
    for i in range(len(filters)):
        if chosen[i] >= 0:
            size[chosen[i]] += 1


@nested
def _least_size(size: Array, chosen: Array, bucket: int) -> int:
    """The least size of the groups that leave the bucket, so that it holds the rest."""
    n = len(chosen)
    filters_of_size = np.zeros(n + 1, np.int64)
    for name in chosen:
        if name >= 0:
            filters_of_size[size[name]] += 1
    least, rest = n + 1, n
    while rest > bucket and least > 1:
        least -= 1
        rest -= filters_of_size[least]
    return least


@nested
def _partition(first: int, last: int, order: Array, size: Array, chosen: Array, least: int) -> tuple:
    """Move filters of large groups behind the others, group by group.

    Returns their start and the names of the groups in this order; `size` is zero again for other names.
    """
    filters = order[first:last].copy()
    names, n_names, n_rest = np.empty(len(chosen), np.int64), 0, 0
    for i in range(len(filters)):
        if chosen[i] < 0 or size[chosen[i]] < least:
            order[first + n_rest] = filters[i]
            n_rest += 1
    for i in range(len(filters)):
        if chosen[i] >= 0 and size[chosen[i]] < least:
            size[chosen[i]] = 0
            chosen[i] = -1
    begin = place = first + n_rest
    for i in range(len(filters)):
        if chosen[i] >= 0 and size[chosen[i]] > 0:  # the first of its group: the place of the next one, negative, from here
            names[n_names] = chosen[i]
            n_names += 1
            place, size[chosen[i]] = place + size[chosen[i]], -place - 1
        if chosen[i] >= 0:
            order[-size[chosen[i]] - 1] = filters[i]
            size[chosen[i]] -= 1
    return begin, names[:n_names]


@nested
def _grown(array: Array, n: int) -> Array:
    """The array, or a longer copy with room for n rows."""
    if n <= len(array):
        return array
    longer = np.empty((2 * n, array.shape[1]), np.int64)
    longer[: len(array)] = array
    return longer


@nested
def _add_node(nodes: Array, i: int, given: tuple) -> None:
    """Set node i to these filters, name, parent, range and level."""
    node = nodes[i]
    node[NODE_LEFT] = node[NODE_RIGHT] = -1
    first, last, name, parent, low, high, level = given
    node[NODE_FIRST], node[NODE_LAST], node[NODE_NAME], node[NODE_PARENT] = first, last, name, parent
    node[NODE_LOW], node[NODE_HIGH], node[NODE_SPLIT], node[NODE_LEVEL] = low, high, (low + high) // 2, level


@jit
def _divide(found: tuple, n_codes: Array, order: Array, bucket: int, halvings: int) -> tuple:
    """Put `order` in the order of the tree; returns nodes i64[n, NODE_WIDTH] and entries i64[d, 3] (node, name, node)."""
    nodes, entries = np.empty((64, NODE_WIDTH), np.int64), np.empty((64, 3), np.int64)
    side, size, used = np.empty(len(order), np.int8), np.zeros(len(n_codes), np.int64), np.full(len(n_codes), -1, np.int64)
    n_nodes, n_entries, i = 1, 0, 0
    _add_node(nodes, 0, (0, len(order), -1, -1, 0, 0, 0))
    while i < n_nodes:
        nodes = _grown(nodes, n_nodes + 2)
        node = nodes[i].copy()
        last = node[NODE_LAST]
        if last - node[NODE_FIRST] > bucket and node[NODE_LOW] < node[NODE_HIGH] and node[NODE_LEVEL] < halvings:
            left, right = _cluster(node, found, order, side)
            nodes[i, NODE_LAST] = left
            if left < right:
                nodes[i, NODE_LEFT] = n_nodes
                _add_node(
                    nodes, n_nodes, (left, right, node[NODE_NAME], i, node[NODE_LOW], node[NODE_SPLIT], node[NODE_LEVEL] + 1)
                )
                n_nodes += 1
            if right < last:
                nodes[i, NODE_RIGHT] = n_nodes
                _add_node(
                    nodes,
                    n_nodes,
                    (right, last, node[NODE_NAME], i, node[NODE_SPLIT] + 1, node[NODE_HIGH], node[NODE_LEVEL] + 1),
                )
                n_nodes += 1
        first, last = nodes[i, NODE_FIRST], nodes[i, NODE_LAST]
        if last - first > bucket:
            up = i
            while up >= 0:
                if nodes[up, NODE_NAME] >= 0:
                    used[nodes[up, NODE_NAME]] = i
                up = nodes[up, NODE_PARENT]
            chosen = np.empty(last - first, np.int64)
            _choose(order[first:last], found, used, i, size, chosen)
            begin, names = _partition(first, last, order, size, chosen, _least_size(size, chosen, bucket))
            nodes[i, NODE_LAST] = begin
            nodes, entries = _grown(nodes, n_nodes + len(names)), _grown(entries, n_entries + len(names))
            for name in names:
                end = -size[name] - 1
                _add_node(nodes, n_nodes, (begin, end, name, i, 0, n_codes[name] - 1, 0))
                entries[n_entries, 0], entries[n_entries, 1], entries[n_entries, 2] = i, name, n_nodes
                begin, size[name] = end, 0
                n_nodes, n_entries = n_nodes + 1, n_entries + 1
        i += 1
    return nodes[:n_nodes], entries[:n_entries]
