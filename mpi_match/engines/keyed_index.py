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

    node    bits u64, u64 | list: its first word, or EMPTY | first dense child, and its number of sparse children << 32

The other features are **sparse**: a child by one of those is found by hashing (node, feature), after a bit array small
enough for the cache has turned away most of what is not there.  Keys go from rare to frequent, so nothing sparse stands
below a dense feature, and only the few sparse features of an event are ever combined with each other.  Sparse children stand
right before the dense ones, and each deeper node's last feature in an array, so where a node has fewer of them than the
event has features, they can be read instead of looked up.  All ways compare the whole key: what a key says about a filter is
*known*, and only its other constraints are verified.

The list of a node is one run of memory (`keyed_lists`): a candidate costs one or two cache lines.  Filters without a feature
(empty, or only `absent`) are the list of the root, which every event scans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays import Array
from mpi_match.engines import EngineError
from mpi_match.engines.kernel_cache import jit
from mpi_match.engines.keyed_filing import NONE, choose_depth, choose_features
from mpi_match.engines.keyed_keys import expand, make_keys, order_of_lists, rank_features
from mpi_match.engines.keyed_lists import fill_lists
from mpi_match.engines.keyed_order import (
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
from mpi_match.engines.keyed_rows import FilterRows
from mpi_match.table import Table

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Key of a free hash slot; the list of a node that has none."""
DENSE = 128
"""Features that have a bit in a node's row."""
NODE_WORDS = 4
SPARSE_CHILDREN = np.uint64(32)
"""Place of the number of sparse children in the last word of a node."""
SLOTS_PER_WORD = 4

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
FEATURES = 14  # u32[N - 1 - F]   last feature of each deeper node's key, ascending within a parent
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
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.table.nbytes + self.words.nbytes

    @property
    def n_nodes(self) -> int:
        """N."""
        return int(self.table[ROOT]) + 1

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
        filters = np.flatnonzero(without_area(table)).astype(ROW)
        chosen, likelihood = choose_features(rows, weight)
        depth = choose_depth(chosen, weight, float(np.mean(table.filters.size)) if table.n_filters else 0.0)
        filed_filter, filed_set, features = expand(filters, chosen, depth, rows)
        feature_rank = rank_features(features, weight[: rows.n_features])
        keys, n_features = make_keys(features, feature_rank), int(np.count_nonzero(feature_rank != NONE))
        trie = _Trie.of(
            keys, n_features, order_of_lists(keys, n_features, filed_filter, table.filters.interface, likelihood)
        )
        n_slots = 1 << max(4, (2 * len(trie.sparse)).bit_length())
        index, sections = _lay_out(
            {
                SHIFT: table.vocabulary.shift,
                ROOT: trie.n_nodes - 1,
                N_FEATURES: n_features,
                N_BITS: n_slots // SLOTS_PER_WORD,
                N_SLOTS: n_slots,
                N_VIRTUAL: rows.n_virtual,
            },
            {
                PRESENCE: (np.uint32, rows.n_virtual),
                CODES: (np.uint32, rows.n_virtual + 1),
                EQUALITY: (np.uint32, rows.n_features - rows.n_virtual),
                NODES: (np.uint64, NODE_WORDS * trie.n_nodes),
                ENTRIES: (np.uint32, trie.n_nodes + 1),
                FILTERS: (np.uint32, len(trie.order)),
                BITS: (np.uint32, n_slots // SLOTS_PER_WORD),
                SLOTS: (np.uint64, 2 * n_slots),
                FEATURES: (np.uint32, len(trie.feature)),
            },
        )
        sections[PRESENCE][:], sections[EQUALITY][:] = feature_rank[: rows.n_virtual], feature_rank[rows.n_virtual :]
        sections[CODES][:], sections[FEATURES][:] = rows.code_offsets, trie.feature
        sections[FILTERS][:] = take(filed_filter, trie.order)
        find_bounds(trie.node, sections[ENTRIES])
        in_order = sections[FILTERS], take(filed_set, trie.order), take_rows(keys, trie.order)
        lists, words = fill_lists(table, rows, *in_order, feature_rank, sections[ENTRIES])
        trie.write(lists, sections[NODES], sections[SLOTS], sections[BITS])
        return cls(index, words, rows.n_virtual, depth)


def without_area(table: Table) -> Array:
    """bool[n_filters]: which filters have no area."""
    chosen = np.ones(table.n_filters, bool)
    chosen[table.filters.area_filter] = False
    return chosen


def _lay_out(numbers: dict[int, int], sections: dict[int, tuple[type, int]]) -> tuple[Array, dict[int, Array]]:
    """Header and sections in one u64 array, and each section in it, still to be filled, from its dtype and length."""
    sizes = {key: -(-np.dtype(dtype).itemsize * length // 32) * NODE_WORDS for key, (dtype, length) in sections.items()}
    index = np.empty(HEADER_WORDS + sum(sizes.values()), np.uint64)
    index[:HEADER_WORDS] = 0
    for key, value in numbers.items():
        index[key] = value
    laid: dict[int, Array] = {}
    end = HEADER_WORDS
    for key, (dtype, length) in sections.items():
        start, end = end, end + sizes[key]
        index[end - min(sizes[key], NODE_WORDS) : end] = 0
        index[key] = start * 8 // np.dtype(dtype).itemsize
        laid[key] = index[start:end].view(dtype)[:length]
    return index, laid


@dataclass(frozen=True)
class _Trie:
    """The trie that keys make, its nodes numbered: single features, then the deeper nodes level by level, then the root.

    n_features   F: the nodes of level 0
    n_nodes      N
    parent       u32[n]  the parent of node F + i, ascending, so that the children of a node stand together ...
    feature      u32[n]  ... and the last feature of its key, ascending within a parent
    sparse       i64     those i whose feature is sparse
    node         u32[E]  node of each filed row, ascending
    order        u32[E]  which rows those are
    """

    n_features: int
    n_nodes: int
    parent: Array
    feature: Array
    sparse: Array
    node: Array
    order: Array

    @classmethod
    def of(cls, keys: Array, n_features: int, order: Array) -> _Trie:
        """From keys u32[E, depth], ascending within a row and padded with NONE, and their order.

        In that order a node begins where its prefix first differs from the key before.  So threads count the nodes of each
        level in their stretches of the keys, and then know where to go on numbering.  The rows of a level are in the order
        of its nodes already, so their places are counted in the same way.
        """
        n_stretches, depth = stretches_of(len(keys)), keys.shape[1]
        created, filed = np.zeros((depth, n_stretches), np.int64), np.zeros((depth + 1, n_stretches), np.int64)
        in_order = take_rows(keys, order)
        in_stretches(len(keys), _count_nodes, in_order, created, filed)
        created[0] = 0
        next_node, next_row = n_features + _before(created), _before(filed)
        n_nodes = n_features + int(created.sum()) + 1
        if n_nodes > MAX_ROWS:
            raise EngineError("`keyed` would need 2^32 nodes or more; engine 'counting' can serve this table")
        parent, feature = np.empty(n_nodes - 1 - n_features, ROW), np.empty(n_nodes - 1 - n_features, np.uint32)
        node, placed = np.empty(len(order), ROW), np.empty(len(order), ROW)
        in_stretches(
            len(keys), _number_nodes, in_order, order, n_features, next_node, next_row, parent, feature, node, placed
        )
        sparse = np.flatnonzero(feature < max(n_features - DENSE, 0))
        return cls(n_features, n_nodes, parent, feature, sparse, node, placed)

    def write(self, lists: Array, nodes: Array, slots: Array, bits: Array) -> None:
        """Fill NODES (with the first words of all lists, u64[N]), SLOTS and BITS."""
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
        homes = take(homes, order)
        # every thread has the homes from edges[i] to edges[i + 1], whole words of `bits`
        edges = np.linspace(0, len(bits), stretches_of(len(slots)) + 1).astype(np.int64) * SLOTS_PER_WORD
        parts, behind = np.searchsorted(homes, edges), np.zeros(len(edges), np.int64)
        in_stretches(len(self.sparse), _find_ends, homes, parts, behind)
        behind = np.maximum.accumulate(behind)
        in_stretches(
            len(slots), _enter_children, homes, order, keys, self.sparse, self.n_features, parts, edges, behind, slots, bits
        )
        _wrap(len(slots) // 2 - int(behind[-1]), order, keys, self.sparse, self.n_features, slots)


def _before(counts: Array) -> Array:
    """The sum of all counts before each one, row by row."""
    return (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)


@jit
def _count_nodes(stretch: int, n_stretches: int, keys: Array, created: Array, filed: Array) -> None:
    """How many nodes of each level begin in a stretch of the keys, and how many keys end at it, no features last."""
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
        filed[level, stretch] += 1


@jit
def _number_nodes(
    stretch: int,
    n_stretches: int,
    keys: Array,
    order: Array,
    n_features: int,
    next_node: Array,
    next_row: Array,
    parent: Array,
    feature: Array,
    node: Array,
    placed: Array,
) -> None:
    """Fill the arrays of a `_Trie`, from the first number of each level and stretch, and the first place of its rows."""
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
            path = next_node[d, stretch] - 1  # the last one begun: this key's prefix, or the same one before
        place = next_row[level, stretch]
        next_row[level, stretch] = place + 1
        node[place], placed[place] = path, order[i]


@jit
def _write_nodes(
    stretch: int, n_stretches: int, children: Array, feature: Array, n_features: int, lists: Array, nodes: Array
) -> None:
    """Every row of NODES; node k has the children children[k] to children[k + 1], by rising features."""
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


def hash_of(key):  # type: ignore[no-untyped-def]
    """Hash of parent << 32 | feature (u64 to u64); the low bits choose the slot, the high ones the bit."""
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def bit_of(hashed, n_words):  # type: ignore[no-untyped-def]
    """Word and bit of a hash in `bits` of a power of two words: keys of four neighbouring slots share a word."""
    return (hashed >> np.uint64(2)) & (np.uint64(n_words) - np.uint64(1)), np.uint32(1) << np.uint32(hashed >> np.uint64(59))


_hash_of, _bit_of = jit(hash_of), jit(bit_of)


@jit
def _hash_children(
    stretch: int, n_stretches: int, sparse: Array, parent: Array, feature: Array, n_slots: int, homes: Array, keys: Array
) -> None:
    """Key of each sparse child, and the slot where the search for it begins."""
    for j in stretch_of(len(sparse), stretch, n_stretches):
        keys[j] = np.uint64(parent[sparse[j]]) << np.uint64(32) | np.uint64(feature[sparse[j]])
        homes[j] = _hash_of(keys[j]) & np.uint64(n_slots - 1)


@jit
def _find_ends(stretch: int, n_stretches: int, homes: Array, parts: Array, behind: Array) -> None:
    """behind[p + 1]: the greatest homes[i] - i of part p.

    In the order of their homes, every key takes its home, or the slot behind the key before.  So key j stands in slot
    j + (the greatest homes[i] - i of all i <= j), and a part needs only to know that of the parts before it.
    """
    for part in stretch_of(len(parts) - 1, stretch, n_stretches):
        reach = np.int64(0)
        for j in range(parts[part], parts[part + 1]):
            reach = max(reach, np.int64(homes[j]) - j)
        behind[part + 1] = reach


@jit
def _enter_children(
    stretch: int,
    n_stretches: int,
    homes: Array,
    order: Array,
    keys: Array,
    sparse: Array,
    n_features: int,
    parts: Array,
    edges: Array,
    behind: Array,
    slots: Array,
    bits: Array,
) -> None:
    """Fill SLOTS and BITS; the last keys may find no room before the end, `_wrap` enters those."""
    n_slots = len(slots) // 2
    for part in stretch_of(len(parts) - 1, stretch, n_stretches):
        for word in range(edges[part] // SLOTS_PER_WORD, edges[part + 1] // SLOTS_PER_WORD):
            bits[word] = 0
        reach, free = behind[part], np.int64(0)
        if parts[part] > 0:
            free = parts[part] + reach
        for j in range(parts[part], parts[part + 1]):
            key = keys[order[j]]
            word, one = _bit_of(_hash_of(key), len(bits))
            bits[word] |= one
            reach = max(reach, np.int64(homes[j]) - j)
            while free < min(j + reach, n_slots):
                slots[2 * free] = slots[2 * free + 1] = EMPTY
                free += 1
            if j + reach < n_slots:
                slots[2 * free], slots[2 * free + 1] = key, n_features + sparse[order[j]]
                free += 1
        while part == len(parts) - 2 and free < n_slots:
            slots[2 * free] = slots[2 * free + 1] = EMPTY
            free += 1


@jit
def _wrap(first: int, order: Array, keys: Array, sparse: Array, n_features: int, slots: Array) -> None:
    """Enter the keys from place `first` in the order of their homes: every slot from theirs to the last one is taken."""
    slot = 0
    for j in range(first, len(order)):
        while slots[2 * slot] != EMPTY:
            slot += 1
        slots[2 * slot], slots[2 * slot + 1] = keys[order[j]], n_features + sparse[order[j]]
