"""The keyed index: file every filter under a rare combination of features, so that most filters are never looked at.

A *feature* is something an event plainly has or has not:

    name n is there            every constraint but `absent` asks for it (for an atom, n is the atom's virtual name)
    name n has the value v     an equality asks for it; an `in` asks for one of several

A filter can match only events that have all its features.  So file it under its few rarest ones, its **key**
(`keyed_filing`), and for an event look up the combinations of features that it has.  At the defaults of the CCM paper an
event meets 2.6 filters instead of 40,000 constraints.  The obvious way enumerates all combinations, 64 for four attributes
and 170,000 for fifty; almost all of them lead nowhere.  The keys are therefore a trie, features ordered from rare to
frequent:

            rare ─────────────► frequent
    event   city=Milan   temp=25   city   temp            (4 features of 2 attributes)
    trie    city=Milan ─┬─ temp=25 ── (list: f7)
                        └─ temp ───── (list: f2, f9)      below a pair that is not there nothing is looked up
            temp ───────── (list: f4)

Finding a node's children is the whole cost.  The 128 most frequent features are **dense**: each has a bit.  A node has a row
of 128 bits that says which dense features lead to a child, the event has such a row of the dense features it has, and the
children to visit are the bits in both: one cache line and one `and` instead of a probe for each feature.  Bit 0 is the most
frequent feature.  The dense children of a node stand together from rare to frequent, so a child's number is the first one's
plus the bits of the row above its own.  The root's children are the nodes of all single features, so a walk begins there;
feature f is node f, which needs no hash.

    node    bits u64, u64 | list: its first word, or EMPTY | first dense child, and 1 << 63 if it has sparse children

The other features are **sparse**: a child by one of those is found by hashing (node, feature), after a bit array small
enough for the cache has turned away most of what is not there.  Keys go from rare to frequent, so nothing sparse stands
below a dense feature, and only the few sparse features of an event are ever combined with each other.  Both ways compare the
whole key: what a key says about a filter is *known*, and only its other constraints are verified.

The list of a node is one run of memory (`keyed_lists`): a candidate costs one or two cache lines.  Filters without a feature
(empty, or only `absent`) are the list of the root, which every event scans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays import Array, offsets_of
from mpi_match.engines.keyed_filing import NONE, choose_depth, choose_features, expand, rank_features
from mpi_match.engines.keyed_lists import fill_lists
from mpi_match.engines.keyed_rows import FilterRows, counting_sort, jit
from mpi_match.table import Table

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Key of a free hash slot; the list of a node that has none."""
DENSE = 128
"""Features that have a bit in a node's row."""
NODE_WORDS = 4
SPARSE_CHILDREN = np.uint64(1 << 63)
BITS_PER_SLOT = 8

# Words of the index's header, u64 each.  The word of a section is its first element, counted in elements of its own width.
# V names (real and virtual), F features, N nodes, E filed filters, B bit words, H hash slots (B and H are powers of 2).
SHIFT = 0  # 16 or 32: width of a code in a packed attribute
ROOT = 1  # the node that every event visits: N - 1
N_FEATURES = 2  # F; feature f is dense, and has bit F - 1 - f, if that is below 128
N_BITS = 3  # B
N_SLOTS = 4  # H
PRESENCE = 5  # u32[V]      feature "name is there", or NONE
CODES = 6  # u32[V + 1]     first code of each name in EQUALITY
EQUALITY = 7  # u32[...]    feature "name has this code", or NONE
NODES = 8  # u64[N, 4]      single features from rare to frequent, then the deeper nodes level by level, then the root
ENTRIES = 9  # u32[N + 1]   each node's list in FILTERS
FILTERS = 10  # u32[E]      filter of each filed row
BITS = 11  # u32[B]         one bit for each key of SLOTS, by its hash
SLOTS = 12  # u64[H, 2]     parent << 32 | feature, or EMPTY; then the node
N_VIRTUAL = 13  # V
HEADER_WORDS = 16


@dataclass(frozen=True, eq=False)
class KeyedIndex:
    """The index of a table in two arrays, so that a kernel takes few arguments and a GPU few copies.

    table      u64   header and sections (above), each 32-byte aligned; kernels see it as u32 and u64
    words      u32 or u64 (the packed type): the lists
    n_virtual  V
    depth      length of the longest key
    """

    table: Array
    words: Array
    n_virtual: int
    depth: int

    @property
    def n_nodes(self) -> int:
        """N."""
        return int(self.table[ROOT]) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.table.nbytes + self.words.nbytes

    @property
    def views(self) -> tuple[Array, Array]:
        """`table` as u32 and u64."""
        return self.table.view(np.uint32), self.table

    @classmethod
    def build(cls, table: Table, rows: FilterRows, weight: Array) -> KeyedIndex:
        """Build the index of the filters without an area, from the table's rows and the weights of their features.

        An event is expected to have as many attributes as a filter has constraints.  Raises EngineError for a filter with
        more than 1023 checks.
        """
        chosen, likelihood = choose_features(rows, weight)
        depth = choose_depth(chosen, weight, float(np.mean(table.filters.size)) if table.n_filters else 0.0)
        # lists keep this order: by interface, and within one the filters that are most likely to match first
        by_likelihood = np.argsort(-likelihood)
        in_order = by_likelihood[counting_sort(table.filters.interface[by_likelihood], table.n_interfaces)[0]]
        in_order = in_order[without_area(table)[in_order]]
        filed_filter, filed_set, features = expand(in_order, chosen[in_order, :depth], rows)
        feature_rank = rank_features(features, weight[: rows.n_features])
        keys = np.sort(np.append(feature_rank, NONE)[features], axis=1)
        trie = _Trie.of(keys, int(np.count_nonzero(feature_rank != NONE)))
        order, node_entries = counting_sort(trie.node, len(trie.nodes))
        lists, words = fill_lists(
            table, rows, filed_filter[order], filed_set[order], keys[order], feature_rank, node_entries
        )
        trie.nodes[:, 2] = lists
        packed = _pack(
            {
                SHIFT: table.vocabulary.shift,
                ROOT: len(trie.nodes) - 1,
                N_FEATURES: trie.n_features,
                N_BITS: len(trie.bits),
                N_SLOTS: len(trie.slots),
                N_VIRTUAL: rows.n_virtual,
            },
            {
                PRESENCE: feature_rank[: rows.n_virtual],
                CODES: rows.code_offsets.astype(np.uint32),
                EQUALITY: feature_rank[rows.n_virtual :],
                NODES: trie.nodes,
                ENTRIES: node_entries.astype(np.uint32),
                FILTERS: filed_filter[order].astype(np.uint32),
                BITS: trie.bits,
                SLOTS: trie.slots,
            },
        )
        return cls(packed, words, rows.n_virtual, depth)


def without_area(table: Table) -> Array:
    """bool[n_filters]: which filters have no area."""
    chosen = np.ones(table.n_filters, bool)
    chosen[table.filters.area_filter] = False
    return chosen


def _pack(numbers: dict[int, int], sections: dict[int, Array]) -> Array:
    """Header and sections in one u64 array."""
    sizes = [-(-section.nbytes // 32) * NODE_WORDS for section in sections.values()]
    starts = HEADER_WORDS + offsets_of(np.array(sizes, np.int64))
    table = np.zeros(int(starts[-1]), np.uint64)
    for key, value in numbers.items():
        table[key] = value
    for (key, section), start in zip(sections.items(), starts[:-1].tolist(), strict=True):
        table[key] = start * 8 // section.itemsize
        table.view(np.uint8)[start * 8 : start * 8 + section.nbytes] = (
            np.ascontiguousarray(section).reshape(-1).view(np.uint8)
        )
    return table


@dataclass(frozen=True)
class _Trie:
    """The node of every key, and NODES, SLOTS and BITS of the trie that the keys make; its lists are still open."""

    node: Array
    n_features: int
    nodes: Array
    slots: Array
    bits: Array

    @classmethod
    def of(cls, keys: Array, n_features: int) -> _Trie:
        """From keys u32[n, depth], ascending within a row, padded with NONE."""
        node, parent, feature = _number_nodes(keys, _sort_rows(keys, n_features), n_features)
        n_sparse = int(np.count_nonzero(feature < n_features - DENSE))
        slots = np.full((1 << max(4, int(2 * n_sparse).bit_length()), 2), EMPTY, np.uint64)
        bits = np.zeros(len(slots) * BITS_PER_SLOT // 32, np.uint32)
        nodes = np.zeros((n_features + len(parent) + 1, NODE_WORDS), np.uint64)
        _link_children(parent, feature, n_features, nodes, slots, bits)
        n_dense = min(n_features, DENSE)
        nodes[-1, 0], nodes[-1, 1] = 2 ** min(n_dense, 64) - 1, 2 ** max(n_dense - 64, 0) - 1
        nodes[-1, 3] = n_features - n_dense | (int(SPARSE_CHILDREN) if n_dense < n_features else 0)
        return cls(node, n_features, nodes, slots, bits)


def _sort_rows(keys: Array, n_features: int) -> Array:
    """Order of the rows, compared column by column."""
    width = int(n_features + 1).bit_length()
    if width * keys.shape[1] > 64:
        return np.lexsort(keys.T[::-1])
    packed = np.zeros(len(keys), np.uint64)
    for column in keys.T:
        packed = packed << np.uint64(width) | np.minimum(column, np.uint32(n_features)).astype(np.uint64)
    return np.argsort(packed)


@jit
def _number_nodes(keys: Array, order: Array, n_features: int) -> tuple[Array, Array, Array]:
    """Node of every key; parent and last feature of every node below level 0, in the order of their numbers.

    Keys come in the order that `order` gives, so a node begins where its prefix first differs from the key before.  One pass
    counts the nodes of each level, a second numbers them, level by level, so that the children of a node stand together.
    """
    depth = keys.shape[1]
    level_start = np.zeros(depth + 1, np.int64)
    node = np.full(len(keys), -1, np.int64)
    parent, feature = np.empty(0, np.int64), np.empty(0, np.int64)
    for numbering in range(2):
        following = level_start.copy()
        path = np.full(depth, -1, np.int64)
        previous = np.full(depth, NONE, np.uint32)
        for row in order:
            same = True
            for d in range(depth):
                f = keys[row, d]
                if f == NONE:
                    break
                if same and f == previous[d]:
                    node[row] = path[d]
                    continue
                if same:
                    same = False
                    previous[d:] = NONE
                previous[d] = f
                path[d] = f if d == 0 else n_features + following[d]
                if d > 0:
                    if numbering:
                        parent[following[d]], feature[following[d]] = path[d - 1], f
                    following[d] += 1
                node[row] = path[d]
        if not numbering:
            for d in range(1, depth):
                level_start[d + 1] = level_start[d] + following[d]
            parent, feature = np.empty(level_start[depth], np.int64), np.empty(level_start[depth], np.int64)
    root = n_features + len(parent)
    for row in range(len(node)):
        if node[row] < 0:
            node[row] = root
    return node, parent, feature


def hash_of(key):  # type: ignore[no-untyped-def]
    """Hash of parent << 32 | feature (u64 to u64); the low bits choose the slot, the high ones the bit."""
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def bit_of(hashed, n_words):  # type: ignore[no-untyped-def]
    """Word and bit of a hash in `bits` of a power of two words."""
    place = hashed >> np.uint64(20)
    return (place >> np.uint64(5)) & (np.uint64(n_words) - np.uint64(1)), np.uint32(1) << np.uint32(place & np.uint64(31))


_hash_of, _bit_of = jit(hash_of), jit(bit_of)


@jit
def _link_children(parent: Array, feature: Array, n_features: int, nodes: Array, slots: Array, bits: Array) -> None:
    """Enter every deeper node with its parent: into the parent's row, or into the hash."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(parent)):
        row = nodes[parent[i]]
        child = np.uint64(n_features + i)
        bit = n_features - 1 - feature[i]
        if bit < DENSE:
            if row[0] == 0 and row[1] == 0:
                row[3] |= child
            row[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
            continue
        row[3] |= SPARSE_CHILDREN
        key = np.uint64(parent[i]) << np.uint64(32) | np.uint64(feature[i])
        hashed = _hash_of(key)
        word, one = _bit_of(hashed, len(bits))
        bits[word] |= one
        slot = hashed & mask
        while slots[slot, 0] != EMPTY:
            slot = (slot + np.uint64(1)) & mask
        slots[slot, 0] = key
        slots[slot, 1] = child
