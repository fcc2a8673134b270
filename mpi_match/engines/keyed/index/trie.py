"""The trie of an index: numbers its nodes, then fills the tables that lead from a node to its children.

All threads work without locks: each first counts the items of every kind in its stretch, and the counts determine where its
output begins.  `index.layout` defines the layout of nodes, slots and bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.compute.parallel import (
    MAX_ROWS,
    ROW,
    find_bounds,
    in_stretches,
    stable_order,
    stretch_of,
    stretches_of,
    take,
    take_rows,
)
from mpi_match.engines.entries import can_serve
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import DENSE, EMPTY, SLOTS_PER_WORD, SPARSE_CHILDREN, bit_of, hash_of
from mpi_match.errors import EngineError

_hash_of, _bit_of = inlined(hash_of), inlined(bit_of)


class NextPlaces(NamedTuple):
    """i64[level, stretch]: the number of the next node, and the place of the next row, that a stretch of the keys adds."""

    node: Array
    row: Array


class DeeperNodes(NamedTuple):
    """`Trie.parent` and `Trie.feature`."""

    parent: Array
    feature: Array


class RowsOfNodes(NamedTuple):
    """`Trie.node` and `Trie.order`."""

    node: Array
    order: Array


class SparseChildren(NamedTuple):
    """The n sparse children, ordered by their homes: the slots where the search for them begins.

    home    u32[n]  ascending
    order   u32[n]  the child with each home, as an index into the two others
    key     u64[n]  parent << 32 | feature
    node    i64[n]  `Trie.sparse`
    """

    home: Array
    order: Array
    key: Array
    node: Array


class SlotParts(NamedTuple):
    """The hash table, divided among threads.

    edge     i64[p + 1]  part i has the homes edge[i] to edge[i + 1], whole words of BITS
    first    i64[p + 1]  ... and, ordered by home, the children first[i] to first[i + 1]
    behind   i64[p + 1]  the greatest home[j] - j of all children j before part i, see `_find_ends`
    """

    edge: Array
    first: Array
    behind: Array


@dataclass(frozen=True)
class Trie:
    """The trie of some keys.  Its nodes are numbered: single features, then the deeper nodes level by level, then the root.

    n_features   F: the nodes of level 0
    n_nodes      N
    parent       u32[n]  the parent of node F + i, ascending, so that the children of a node are contiguous ...
    feature      u32[n]  ... and the last feature of its key, ascending within a parent
    sparse       i64     the numbers i of nodes whose feature is sparse
    node         u32[E]  node of each entry, ascending
    order        u32[E]  the row of the keys from which each entry is made
    """

    n_features: int
    n_nodes: int
    parent: Array
    feature: Array
    sparse: Array
    node: Array
    order: Array

    @classmethod
    def of(cls, keys: Array, n_features: int, order: Array) -> Trie:
        """Build the trie from keys u32[E, depth], ascending within a row and padded with NONE, and their order.

        In that order a node begins where a key's prefix first differs from the key before.  So threads count the nodes of
        each level in their stretches of the keys, which gives the first number of each stretch.  The rows of a level are
        already ordered by node, so their places follow from counts in the same way.
        """
        n_stretches, depth = stretches_of(len(keys)), keys.shape[1]
        created, ending = np.zeros((depth, n_stretches), np.int64), np.zeros((depth + 1, n_stretches), np.int64)
        in_order = take_rows(keys, order)
        in_stretches(len(keys), _count_nodes, in_order, created, ending)
        created[0] = 0
        next_ = NextPlaces(n_features + _before(created), _before(ending))
        n_nodes = n_features + int(created.sum()) + 1
        if n_nodes > MAX_ROWS:
            raise EngineError(f"keyed would need 2^32 nodes or more for the table; {can_serve('any size')}")
        nodes = DeeperNodes(np.empty(n_nodes - 1 - n_features, ROW), np.empty(n_nodes - 1 - n_features, np.uint32))
        rows = RowsOfNodes(np.empty(len(order), ROW), np.empty(len(order), ROW))
        in_stretches(len(keys), _number_nodes, in_order, order, n_features, next_, nodes, rows)
        sparse = np.flatnonzero(nodes.feature < max(n_features - DENSE, 0))
        return cls(n_features, n_nodes, nodes.parent, nodes.feature, sparse, rows.node, rows.order)

    def write(self, lists: Array, nodes: Array, slots: Array, bits: Array) -> None:
        """Fill NODES (given the first words of all lists, u64[N]), SLOTS and BITS."""
        children = np.empty(self.n_nodes + 1, ROW)
        find_bounds(self.parent, children)
        in_stretches(self.n_nodes, _write_nodes, children, self.feature, self.n_features, lists, nodes)
        n_dense = min(self.n_features, DENSE)
        nodes[-4:] = (
            2 ** min(n_dense, 64) - 1,
            2 ** max(n_dense - 64, 0) - 1,
            lists[-1],
            self.n_features - n_dense | self.n_features - n_dense << int(SPARSE_CHILDREN),
        )
        homes, keys = np.empty(len(self.sparse), np.uint32), np.empty(len(self.sparse), np.uint64)
        in_stretches(len(self.sparse), _hash_children, self.sparse, self.parent, self.feature, len(slots) // 2, homes, keys)
        order = stable_order(homes, len(slots) // 2)
        children_by_home = SparseChildren(take(homes, order), order, keys, self.sparse)
        edge = np.linspace(0, len(bits), stretches_of(len(slots)) + 1).astype(np.int64) * SLOTS_PER_WORD
        first, behind = np.searchsorted(children_by_home.home, edge), np.zeros(len(edge), np.int64)
        in_stretches(len(self.sparse), _find_ends, children_by_home.home, first, behind)
        parts = SlotParts(edge, first, np.maximum.accumulate(behind))
        in_stretches(len(slots), _enter_children, children_by_home, self.n_features, parts, slots, bits)
        _wrap(len(slots) // 2 - int(parts.behind[-1]), children_by_home, self.n_features, slots)


def _before(counts: Array) -> Array:
    """The sum of all counts before each one, row by row."""
    return (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)


@jit
def _count_nodes(stretch: int, n_stretches: int, keys: Array, created: Array, ending: Array) -> None:
    """Count the nodes of each level that begin in a stretch of the keys, and the keys that end at it; those without features
    last."""
    n, depth = len(keys), len(created)
    for i in stretch_of(n, stretch, n_stretches):
        same, level = i > 0, -1
        for d in range(depth):
            f = keys[i, d]
            if f == NONE:
                break
            level = d
            same = same and keys[i - 1, d] == f
            created[d, stretch] += not same
        ending[level, stretch] += 1


@jit
def _number_nodes(
    stretch: int,
    n_stretches: int,
    keys: Array,
    order: Array,
    n_features: int,
    next_: NextPlaces,
    nodes: DeeperNodes,
    rows: RowsOfNodes,
) -> None:
    """Fill `nodes` and `rows`; `next_` initially has the first number of each level and stretch, and the first row there."""
    (next_node, next_row), (parent, feature), (node, placed) = next_, nodes, rows
    n, depth = len(keys), len(next_node)
    for i in stretch_of(n, stretch, n_stretches):
        same, level, path = i > 0, -1, np.int64(n_features + len(parent))
        for d in range(depth):
            f = keys[i, d]
            if f == NONE:
                break
            level = d
            same = same and keys[i - 1, d] == f
            if d == 0:
                path = np.int64(f)
                continue
            if not same:
                new = next_node[d, stretch] - n_features
                parent[new], feature[new] = path, f
                next_node[d, stretch] += 1
            path = next_node[d, stretch] - 1  # the node begun last: this key's prefix, or the same one before
        place = next_row[level, stretch]
        next_row[level, stretch] = place + 1
        node[place], placed[place] = path, order[i]


@jit
def _write_nodes(
    stretch: int, n_stretches: int, children: Array, feature: Array, n_features: int, lists: Array, nodes: Array
) -> None:
    """Write every row of NODES; node k has the children children[k] to children[k + 1], by ascending features."""
    for k in stretch_of(len(lists), stretch, n_stretches):
        bits0, bits1 = np.uint64(0), np.uint64(0)
        begin, first = np.int64(children[k]), np.int64(children[k + 1])
        for i in range(first - 1, begin - 1, -1):
            bit = n_features - 1 - np.int64(feature[i])
            if bit >= DENSE:
                break
            first = np.int64(i)
            if bit < 64:
                bits0 |= np.uint64(1) << np.uint64(bit)
            else:
                bits1 |= np.uint64(1) << np.uint64(bit - 64)
        nodes[4 * k], nodes[4 * k + 1], nodes[4 * k + 2] = bits0, bits1, lists[k]
        nodes[4 * k + 3] = np.uint64(n_features + first) | np.uint64(first - begin) << SPARSE_CHILDREN


@jit
def _hash_children(
    stretch: int, n_stretches: int, sparse: Array, parent: Array, feature: Array, n_slots: int, homes: Array, keys: Array
) -> None:
    """Compute the key of each sparse child, and the slot where the search for it begins."""
    for j in stretch_of(len(sparse), stretch, n_stretches):
        keys[j] = np.uint64(parent[sparse[j]]) << np.uint64(32) | np.uint64(feature[sparse[j]])
        homes[j] = _hash_of(keys[j]) & np.uint64(n_slots - 1)


@jit
def _find_ends(stretch: int, n_stretches: int, homes: Array, first: Array, behind: Array) -> None:
    """Write behind[p + 1]: the greatest homes[i] - i of part p, whose children are first[p] to first[p + 1].

    In the order of their homes, every key takes its home, or the slot after the previous key's.  So key j is in slot j +
    (the greatest homes[i] - i of all i <= j), and a part needs only the maximum of the parts before it.
    """
    for part in stretch_of(len(first) - 1, stretch, n_stretches):
        greatest = np.int64(0)
        for j in range(first[part], first[part + 1]):
            greatest = max(greatest, np.int64(homes[j]) - j)
        behind[part + 1] = greatest


@jit
def _enter_children(
    stretch: int, n_stretches: int, children: SparseChildren, n_features: int, parts: SlotParts, slots: Array, bits: Array
) -> None:
    """Fill SLOTS and BITS, except that the last keys may not fit before the end; `_wrap` enters those."""
    (homes, order, keys, nodes), (edges, first, behind) = children, parts
    n_slots = len(slots) // 2
    for part in stretch_of(len(first) - 1, stretch, n_stretches):
        for word in range(edges[part] // SLOTS_PER_WORD, edges[part + 1] // SLOTS_PER_WORD):
            bits[word] = 0
        greatest, free = behind[part], np.int64(0)
        if first[part] > 0:
            free = first[part] + greatest
        for j in range(first[part], first[part + 1]):
            key = keys[order[j]]
            word, one = _bit_of(_hash_of(key), len(bits))
            bits[word] |= one
            greatest = max(greatest, np.int64(homes[j]) - j)
            while free < min(j + greatest, n_slots):
                slots[2 * free] = slots[2 * free + 1] = EMPTY
                free += 1
            if j + greatest < n_slots:
                slots[2 * free], slots[2 * free + 1] = key, n_features + nodes[order[j]]
                free += 1
        while part == len(first) - 2 and free < n_slots:
            slots[2 * free] = slots[2 * free + 1] = EMPTY
            free += 1


@jit
def _wrap(first: int, children: SparseChildren, n_features: int, slots: Array) -> None:
    """Enter the keys from number `first` on, ordered by home: every slot from their homes to the last one is taken."""
    _, order, keys, nodes = children
    slot = 0
    for j in range(first, len(order)):
        while slots[2 * slot] != EMPTY:
            slot += 1
        slots[2 * slot], slots[2 * slot + 1] = keys[order[j]], n_features + nodes[order[j]]
