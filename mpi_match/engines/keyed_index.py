"""The keyed index: file every filter under a rare combination of features, so that most filters are never looked at.

A *feature* is something an event plainly has or has not:

    name n is there            every constraint but `absent` asks for it (for an atom, n is the atom's virtual name)
    name n has the value v     an equality asks for it; an `in` asks for one of several

A filter can match only events that have all its features.  So file it under its few rarest ones, its **key**, and for an event
look up the combinations of features that it has.  At the defaults of the CCM paper an event meets 2.6 filters instead of 40,000
constraints.  The obvious way enumerates all combinations, 64 for four attributes and 170,000 for fifty; almost all of them lead
nowhere.  The keys are therefore a trie, features ordered from rare to frequent:

            rare ─────────────► frequent
    event   city=Milan   temp=25   city   temp            (4 features of 2 attributes)
    trie    city=Milan ─┬─ temp=25 ── (list: f7)          one probe for each pair that starts at a live node,
                        └─ temp ───── (list: f2, f9)      and none below a pair that is not there
            temp ───────── (list: f4)

Depth-1 nodes are the features themselves (an array look-up); a deeper node is found by hashing (parent node, feature).  The hash
compares the whole key (after a bit array small enough for the cache has turned away most of what is not there), so what a key says about a filter is *known*, and only the filter's other constraints are verified.

The list of a node is one run of memory: for every filter a header and its remaining checks, so that a candidate costs one or two
cache lines.  A check is a closed interval [lo, hi] of packed attributes (see `vocabulary`):

    word 0       interface
    word 1       n_positive | n_negative << 10 | n_sets << 20
    word 2       area + 1, or 0
    word 3       words from here to the next interface's first filter in this list: where to go on after a match
    then pairs   positive: the event has an attribute in [lo, hi]      = < <= > >= between prefix exists suffix contains
                 negative: it has none there                           absent, and != after a positive check of its type
                 sets:     (packed name, set << 1 | negate): the attribute's code is (not) in that operand list

Filters without a feature (empty, only `absent`, only an area) are the list of the root, which every event scans.

How many features make a key is decided by a cost model (`choose_depth`): one more feature means fewer candidates and more probes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, owners, sums
from mpi_match.engines import EngineError
from mpi_match.model import Op, Type
from mpi_match.table import Table
from mpi_match.vocabulary import ATOM_OPS

NONE = np.uint32(0xFFFFFFFF)
"""No feature, no node."""
MAX_DEPTH = 3
MAX_LIST = 16
"""An `in` of at most this many values files its filter once for each; a longer one is filed under its name."""
HEADER = 4
COUNT_BITS = 10
MAX_CHECKS = 2**COUNT_BITS - 1
BITS_PER_SLOT = 8
PROBE_COST, VERIFY_COST = 1.0, 4.0
"""Relative cost of a hash probe that misses and of a candidate that fails."""

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Key of a free hash slot."""
_EQ, _NE, _IN, _NOT_IN = int(Op.EQ), int(Op.NE), int(Op.IN), int(Op.NOT_IN)
_SUFFIX, _CONTAINS, _EXISTS, _ABSENT = int(Op.SUFFIX), int(Op.CONTAINS), int(Op.EXISTS), int(Op.ABSENT)

_jit = numba.njit(cache=True, nogil=True)


class Section(enum.IntEnum):
    """Words of the index's header (u64 each).  A section's word is its first element, counted in elements of its own width.

    V names (real and virtual), F features, N nodes, E filed filters, B bit words, H hash slots (B and H are powers of 2).
    """

    SHIFT = 0  # 16 or 32: width of a code in a packed attribute
    ROOT = 1  # the node whose list every event scans
    N_BITS = 2  # B
    N_SLOTS = 3  # H
    PRESENCE = 4  # u32[V]      feature "name is there", or NONE
    CODES = 5  # u32[V + 1]     first code of each name in EQUALITY
    EQUALITY = 6  # u32[...]    feature "name has this code", or NONE
    LISTS = 7  # u64[N + 1]     first word of each node's list << 1 | has children; features, then deeper nodes, then the root
    ENTRIES = 8  # u32[N + 1]   the same in FILTERS
    FILTERS = 9  # u32[E]       filter of each filed row
    BITS = 10  # u32[B]         one bit for each key of SLOTS, by its hash: turns away most of what is not there
    SLOTS = 11  # u64[H, 2]     parent << 32 | feature, or EMPTY; then the node
    SETS = 12  # u64[n_sets + 1]  first code of each operand list in SET_CODES
    SET_CODES = 13  # u32
    AREAS = 14  # f64[n_areas, 3]
    TOTAL = 16


@dataclass(frozen=True, eq=False)
class KeyedIndex:
    """The index of a table in two arrays, so that a kernel takes few arguments and a GPU one copy.

    table      u64   the sections (`Section`), each 8-byte aligned; kernels see it as u32, u64 and f64
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
    def views(self) -> tuple[Array, Array, Array]:
        """`table` as u32, u64 and f64."""
        return self.table.view(np.uint32), self.table, self.table.view(np.float64)

    @classmethod
    def build(cls, table: Table, width: float | None = None, depth: int | None = None) -> KeyedIndex:
        """Build the index.

        Parameters: `width` expected number of attributes of an event (None: the mean size of the filters); `depth` length of keys
        (None: by the cost model).  Raises EngineError for a filter with more than 1023 checks.
        """
        rows = FilterRows.of(table)
        if width is None:
            width = float(np.mean(table.filters.size)) if table.n_filters else 0.0
        weight = _weights(rows)
        chosen = np.full((table.n_filters, MAX_DEPTH), -1, np.int64)
        _choose_features(rows.offsets, rows.op, rows.name, rows.feature, rows.set_id, weight, rows.set_size, chosen)
        depth = choose_depth(chosen, weight, width) if depth is None else depth
        chosen = chosen[:, :depth]
        filed_filter, filed_set, features = _expand(chosen, rows)
        feature_rank = _rank(features, weight[: rows.n_features])
        keys = np.sort(np.append(feature_rank, NONE)[features], axis=1)
        trie = _Trie.of(keys, int(np.count_nonzero(feature_rank != NONE)))
        order, node_entries = _counting_sort(trie.node, trie.n_nodes)
        entry_words, words = _fill_lists(table, rows, filed_filter[order], filed_set[order], keys[order], feature_rank)
        _link_interfaces(node_entries, entry_words, words)
        lists = entry_words[node_entries].astype(np.uint64) << np.uint64(1)
        lists[:-1] |= trie.has_children
        packed = _pack(
            {Section.SHIFT: table.vocabulary.shift, Section.ROOT: trie.n_nodes - 1},
            {
                Section.PRESENCE: feature_rank[: rows.n_virtual],
                Section.CODES: rows.code_offsets.astype(np.uint32),
                Section.EQUALITY: feature_rank[rows.n_virtual :],
                Section.LISTS: lists,
                Section.ENTRIES: node_entries.astype(np.uint32),
                Section.FILTERS: filed_filter[order].astype(np.uint32),
                Section.BITS: trie.bits,
                Section.SLOTS: trie.slots,
                Section.SETS: table.constraints.set_code_offsets.astype(np.uint64),
                Section.SET_CODES: table.constraints.set_codes,
                Section.AREAS: table.filters.area,
            },
        )
        return cls(packed, words, rows.n_virtual, depth)


def _pack(numbers: dict[Section, int], sections: dict[Section, Array]) -> Array:
    """Header and sections in one u64 array."""
    sizes = [-(-section.nbytes // 8) for section in sections.values()]
    starts = Section.TOTAL + offsets_of(np.array(sizes, np.int64))
    table = np.zeros(int(starts[-1]), np.uint64)
    for key, value in numbers.items():
        table[key] = value
    table[Section.N_BITS], table[Section.N_SLOTS] = len(sections[Section.BITS]), len(sections[Section.SLOTS])
    for (key, section), start in zip(sections.items(), starts[:-1].tolist(), strict=True):
        table[key] = start * 8 // section.itemsize
        table.view(np.uint8)[start * 8 : start * 8 + section.nbytes] = np.ascontiguousarray(section).reshape(-1).view(np.uint8)
    return table


@dataclass(frozen=True)
class FilterRows:
    """The constraints of a table filter by filter, in code space.  V virtual names, P = V + all codes possible features.

    offsets        i64[n_filters + 1]
    op             u8[c]
    name           i64[c]  name, or the virtual name of an atom
    lo, hi         i64[c]  the row's codes
    first, last    i64[c]  codes of the row's type on its name
    feature        i64[c]  feature it asks for: V + code_offsets[name] + code for an equality, the name otherwise, -1 for `absent`
    set_id         i64[c]  operand list of `in` and `not in`, else -1
    code_offsets   i64[V + 1]
    set_size       i64[n_sets]
    set_first      i64[n_sets]  V + code_offsets of the list's name
    """

    offsets: Array
    op: Array
    name: Array
    lo: Array
    hi: Array
    first: Array
    last: Array
    feature: Array
    set_id: Array
    code_offsets: Array
    set_size: Array
    set_first: Array
    set_offsets: Array
    set_codes: Array

    @property
    def n_virtual(self) -> int:
        return len(self.code_offsets) - 1

    @property
    def n_features(self) -> int:
        """P: features there could be."""
        return self.n_virtual + int(self.code_offsets[-1])

    @classmethod
    def of(cls, table: Table) -> FilterRows:
        """Regroup the table's rows."""
        vocabulary, constraints = table.vocabulary, table.constraints
        order, offsets = _counting_sort(constraints.filter_id, table.n_filters)
        op, type_ = constraints.op[order], constraints.type[order]
        name, lo, hi = constraints.name_id[order], constraints.lo[order].astype(np.int64), constraints.hi[order].astype(np.int64)
        segments = np.array([vocabulary.segment(Type(t)) for t in Type])
        first, last = segments[type_, 0, name], segments[type_, 1, name]
        listed = (op == Op.IN) | (op == Op.NOT_IN)
        set_id = np.where(listed, constraints.set_offsets[name] + lo, -1)
        is_atom = (op == ATOM_OPS[0]) | (op == ATOM_OPS[1])
        name = np.where(is_atom, vocabulary.n_names + vocabulary.atom_offsets[name] + lo, name)
        code_offsets = offsets_of(np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64)))
        n_virtual = len(code_offsets) - 1
        feature = np.where(op == Op.EQ, n_virtual + code_offsets[name] + lo, np.where(op == Op.ABSENT, -1, name))
        lo, hi, first, last = (np.where(is_atom, 0, column) for column in (lo, hi, first, last))
        return cls(
            offsets, op, name, lo, hi, first, last, feature, set_id, code_offsets,
            set_size=np.diff(constraints.set_code_offsets),
            set_first=n_virtual + code_offsets[owners(constraints.set_offsets)],
            set_offsets=constraints.set_code_offsets,
            set_codes=constraints.set_codes,
        )


@_jit
def _counting_sort(key: Array, n_keys: int) -> tuple[Array, Array]:
    """Stable order of the rows by key, i64[n], and where each key's rows begin, i64[n_keys + 1]."""
    offsets = np.zeros(n_keys + 1, np.int64)
    for k in key:
        offsets[k + 1] += 1
    for k in range(n_keys):
        offsets[k + 1] += offsets[k]
    cursor = offsets[:-1].copy()
    order = np.empty(len(key), np.int64)
    for row in range(len(key)):
        k = key[row]
        order[cursor[k]] = row
        cursor[k] += 1
    return order, offsets


def _weights(rows: FilterRows) -> Array:
    """How often an event that has one attribute has each feature: f64[P + n_sets], the last for "a code of this operand list".

    Subscriptions are the only evidence there is when an index is built: names are taken to be published as often as they are
    subscribed to, and values likewise.  A wrong guess costs time, never an answer.
    """
    n_virtual, n_features = rows.n_virtual, rows.n_features
    asks = rows.feature >= 0
    by_name = np.bincount(rows.name[asks], minlength=n_virtual).astype(np.float64)
    by_name /= max(by_name.sum(), 1.0)
    equal = rows.op == Op.EQ
    by_code = np.bincount(rows.feature[equal] - n_virtual, minlength=n_features - n_virtual).astype(np.float64)
    listed = np.bincount(rows.set_id[rows.op == Op.IN], minlength=len(rows.set_size))
    in_list = np.repeat(rows.set_first, rows.set_size) + rows.set_codes
    np.add.at(by_code, in_list - n_virtual, np.repeat(listed / np.maximum(rows.set_size, 1), rows.set_size))
    name_of_code = owners(rows.code_offsets)
    total = np.maximum(np.bincount(name_of_code, by_code, minlength=n_virtual), 1.0)
    by_code *= (by_name / total)[name_of_code]
    weight = np.concatenate([by_name, by_code])
    return np.concatenate([weight, sums(weight[in_list], rows.set_offsets)])


@_jit
def _choose_features(
    offsets: Array, op: Array, name: Array, feature: Array, set_id: Array, weight: Array, set_size: Array, chosen: Array
) -> None:
    """Fill `chosen` i64[n_filters, K] with each filter's rarest features, rarest first, at most one per name; -1 where it has fewer.

    The feature P + s stands for "a code of operand list s"; at most one of those, and only for short lists.
    """
    n_features = len(weight) - len(set_size)
    depth = chosen.shape[1]
    for f in range(len(offsets) - 1):
        n_chosen, has_set = 0, False
        row = offsets[f]
        while row < offsets[f + 1]:
            best, this = np.int64(-1), name[row]
            while row < offsets[f + 1] and name[row] == this:  # the rows of a filter are in the order of their names
                candidate = feature[row]
                if op[row] == _IN and set_size[set_id[row]] <= MAX_LIST and not has_set:
                    candidate = n_features + set_id[row]
                if candidate >= 0 and (best < 0 or weight[candidate] < weight[best]):
                    best = candidate
                row += 1
            if best < 0:
                continue
            at = n_chosen
            while at > 0 and weight[best] < weight[chosen[f, at - 1]]:
                at -= 1
            if at == depth:
                continue
            has_set |= best >= n_features
            for i in range(min(n_chosen, depth - 1), at, -1):
                chosen[f, i] = chosen[f, i - 1]
            chosen[f, at] = best
            n_chosen = min(n_chosen + 1, depth)


def choose_depth(chosen: Array, weight: Array, width: float) -> int:
    """How many features a key should have, for events of `width` attributes.

    With keys of d features an event meets C(d) candidates: the sum, over the filters, of the probability that it has all of the key.
    It probes from every live node at depth d - 1, and of those there are at most C(d - 1), and at most as many as there are
    combinations of its features.  The cheapest of d = 1, 2, 3 is taken.
    """
    probability = np.where(chosen >= 0, np.minimum(np.append(weight, 0.0)[chosen] * width, 1.0), 1.0)
    candidates = [float(p) for p in np.cumprod(probability, axis=1).sum(axis=0)]
    n_features = 2.0 * width
    costs, probes, combinations = [], 0.0, 1.0
    for depth in range(1, MAX_DEPTH + 1):
        if depth > 1:
            combinations *= max(n_features - depth + 2, 1.0) / (depth - 1)
            probes += min(candidates[depth - 2], combinations) * n_features / 2
        costs.append(PROBE_COST * probes + VERIFY_COST * candidates[depth - 1])
    return int(np.argmin(costs)) + 1


def _expand(chosen: Array, rows: FilterRows) -> tuple[Array, Array, Array]:
    """One filed row for each filter, or for each value of the operand list in its key: (filter, operand list or -1, features)."""
    n_features = rows.n_features
    is_set = chosen >= n_features
    set_of = np.where(is_set, chosen - n_features, -1).max(axis=1, initial=-1)
    copies = np.where(set_of >= 0, rows.set_size[set_of] if len(rows.set_size) else 1, 1)
    filed = np.repeat(np.arange(len(chosen)), copies)
    features, filed_set = chosen[filed], set_of[filed]
    spread = np.flatnonzero(filed_set >= 0)
    if len(spread):
        starts = offsets_of(copies)[:-1]
        s = filed_set[spread]
        code = rows.set_codes[rows.set_offsets[s] + (spread - starts[filed[spread]])]
        column = is_set[filed[spread]].argmax(axis=1)
        features[spread, column] = rows.set_first[s] + code
    return filed, filed_set, features


def _rank(features: Array, weight: Array) -> Array:
    """u32[P]: the features in use numbered from rare to frequent, NONE for the others."""
    used = np.zeros(len(weight), bool)
    used[features[features >= 0]] = True
    ids = np.flatnonzero(used)
    rank = np.full(len(weight), NONE, np.uint32)
    rank[ids[np.argsort(weight[ids], kind="stable")]] = np.arange(len(ids), dtype=np.uint32)
    return rank


@dataclass(frozen=True)
class _Trie:
    """Nodes of the trie (see `KeyedIndex`) and the node of every key."""

    node: Array
    n_nodes: int
    has_children: Array
    slots: Array
    bits: Array

    @classmethod
    def of(cls, keys: Array, n_features: int) -> _Trie:
        """From keys u32[n, depth], ascending within a row, padded with NONE."""
        order = _sort_rows(keys, n_features)
        node, parent, feature = _number_nodes(keys, order, n_features)
        n_nodes = n_features + len(parent) + 1
        has_children = np.zeros(n_nodes, np.uint8)
        has_children[parent] = 1
        slots = np.full((1 << max(4, int(2 * len(parent)).bit_length()), 2), EMPTY, np.uint64)
        bits = np.zeros(len(slots) * BITS_PER_SLOT // 32, np.uint32)
        _insert(parent, feature, n_features, slots, bits)
        return cls(node, n_nodes, has_children, slots, bits)


def _sort_rows(keys: Array, n_features: int) -> Array:
    """Order of the rows, compared column by column."""
    bits = int(n_features + 1).bit_length()
    if bits * keys.shape[1] > 64:
        return np.lexsort(keys.T[::-1])
    packed = np.zeros(len(keys), np.uint64)
    for column in keys.T:
        packed = packed << np.uint64(bits) | np.minimum(column, np.uint32(n_features)).astype(np.uint64)
    return np.argsort(packed)


@_jit
def _number_nodes(keys: Array, order: Array, n_features: int) -> tuple[Array, Array, Array]:
    """Node of every key; parent and last feature of every node below depth 1, in the order of their numbers."""
    depth = keys.shape[1]
    node = np.empty(len(keys), np.int64)
    parent = np.empty(len(keys) * max(depth - 1, 0), np.int64)
    feature = np.empty(len(parent), np.int64)
    path = np.full(depth + 1, -1, np.int64)
    previous = np.full(depth, NONE, np.uint32)
    n_deep = 0
    for row in order:
        same, at = True, np.int64(-1)
        for d in range(depth):
            f = keys[row, d]
            if f == NONE:
                break
            same = same and f == previous[d]
            previous[d] = f
            if d == 0:
                path[0] = f
            elif not same:
                parent[n_deep], feature[n_deep] = path[d - 1], f
                path[d] = n_features + n_deep
                n_deep += 1
            at = path[d]
            if d + 1 < depth and not same:
                previous[d + 1] = NONE
        node[row] = at
    for row in range(len(node)):
        if node[row] < 0:
            node[row] = n_features + n_deep
    return node, parent[:n_deep], feature[:n_deep]


def hash_of(key):  # type: ignore[no-untyped-def]
    """Hash of parent << 32 | feature (u64 to u64); the low bits choose the slot, the high ones the bit."""
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def bit_of(hashed, n_words):  # type: ignore[no-untyped-def]
    """Word and bit of a hash in `bits` of a power of two words."""
    place = hashed >> np.uint64(20)
    return (place >> np.uint64(5)) & np.uint64(n_words - 1), np.uint32(1) << np.uint32(place & np.uint64(31))


_hash_of, _bit_of = _jit(hash_of), _jit(bit_of)


@_jit
def _insert(parent: Array, feature: Array, first_node: int, slots: Array, bits: Array) -> None:
    mask = np.uint64(len(slots) - 1)
    for i in range(len(parent)):
        key = np.uint64(parent[i]) << np.uint64(32) | np.uint64(feature[i])
        hashed = _hash_of(key)
        word, bit = _bit_of(hashed, len(bits))
        bits[word] |= bit
        slot = hashed & mask
        while slots[slot, 0] != EMPTY:
            slot = (slot + np.uint64(1)) & mask
        slots[slot, 0] = key
        slots[slot, 1] = first_node + i


def _fill_lists(
    table: Table, rows: FilterRows, filter_id: Array, filed_set: Array, keys: Array, feature_rank: Array
) -> tuple[Array, Array]:
    """First word of every entry i64[E + 1], and the words.  The arguments after `rows` are in the order of the lists."""
    shift = table.vocabulary.shift
    area = np.zeros(table.n_filters, np.int64)
    area[table.filters.area_filter] = np.arange(1, len(table.filters.area) + 1)
    columns = (rows.offsets, rows.op, rows.name, rows.lo, rows.hi, rows.first, rows.last, rows.feature, rows.set_id)
    sizes = np.empty(len(filter_id), np.int64)
    most = _entry_sizes(*columns, feature_rank, filter_id, filed_set, keys, sizes)
    if most > MAX_CHECKS:
        raise EngineError(f"a filter needs {most} checks, `keyed` has room for {MAX_CHECKS}; engine 'counting' can serve this table")
    entry_words = offsets_of(sizes)
    words = np.empty(int(entry_words[-1]), table.vocabulary.packed_dtype)
    n_codes = np.diff(rows.code_offsets)
    _fill(*columns, feature_rank, filter_id, filed_set, keys, entry_words, table.filters.interface, area, n_codes, shift, words)
    return entry_words, words


@_jit
def _known(op: int, feature: int, set_id: int, feature_rank: Array, filed_set: int, key: Array) -> bool:
    """Does the key of a filed filter already imply this constraint?"""
    if op == _IN:
        return set_id == filed_set
    if op == _EQ or op == _EXISTS or op == _SUFFIX or op == _CONTAINS:
        rank = feature_rank[feature]
        for f in key:
            if f == rank and rank != NONE:
                return True
    return False


@_jit
def _entry_sizes(
    offsets: Array, op: Array, name: Array, lo: Array, hi: Array, first: Array, last: Array, feature: Array, set_id: Array,
    feature_rank: Array, filter_id: Array, filed_set: Array, keys: Array, sizes: Array,
) -> int:
    """Words of every entry; returns the largest number of checks of one kind."""
    most = 0
    for e in range(len(filter_id)):
        f = filter_id[e]
        n = 0
        for row in range(offsets[f], offsets[f + 1]):
            if not _known(op[row], feature[row], set_id[row], feature_rank, filed_set[e], keys[e]):
                n += 2 if op[row] == _NE or op[row] == _NOT_IN else 1
        most = max(most, n)
        sizes[e] = HEADER + 2 * n
    return most


@_jit
def _fill(
    offsets: Array, op: Array, name: Array, lo: Array, hi: Array, first: Array, last: Array, feature: Array, set_id: Array,
    feature_rank: Array, filter_id: Array, filed_set: Array, keys: Array,
    entry_words: Array, interface: Array, area: Array, n_codes: Array, shift: int, words: Array,
) -> None:
    """Write header and checks of every entry; positive checks from the narrowest interval to the widest."""
    for e in range(len(filter_id)):
        f, at = filter_id[e], entry_words[e]
        n_positive = n_negative = n_sets = 0
        end = entry_words[e + 1]
        for row in range(offsets[f], offsets[f + 1]):
            o = op[row]
            if _known(o, feature[row], set_id[row], feature_rank, filed_set[e], keys[e]) or o == _IN:
                continue
            base = np.uint64(name[row]) << np.uint64(shift)
            if o == _ABSENT:
                n_negative += 1
                continue
            a, b = (first[row], last[row]) if o == _NE or o == _NOT_IN else (lo[row], hi[row])
            place = at + HEADER + 2 * n_positive
            span = (b - a + 1) / n_codes[name[row]]
            while place > at + HEADER:
                x, y = np.uint64(words[place - 2]), np.uint64(words[place - 1])
                if (y - x + np.uint64(1)) / n_codes[np.int64(x >> np.uint64(shift))] <= span:
                    break
                words[place], words[place + 1] = words[place - 2], words[place - 1]
                place -= 2
            words[place], words[place + 1] = base | np.uint64(a), base | np.uint64(b)
            n_positive += 1
            n_negative += o == _NE
        place = at + HEADER + 2 * n_positive
        for row in range(offsets[f], offsets[f + 1]):
            if op[row] == _ABSENT or op[row] == _NE:
                base = np.uint64(name[row]) << np.uint64(shift)
                words[place], words[place + 1] = base | np.uint64(lo[row]), base | np.uint64(hi[row])
                place += 2
        while place < end:
            for row in range(offsets[f], offsets[f + 1]):
                if op[row] == _NOT_IN or (op[row] == _IN and set_id[row] != filed_set[e]):
                    words[place] = np.uint64(name[row]) << np.uint64(shift)
                    words[place + 1] = set_id[row] << 1 | (op[row] == _NOT_IN)
                    place += 2
                    n_sets += 1
        words[at] = interface[f]
        words[at + 1] = n_positive | n_negative << COUNT_BITS | n_sets << 2 * COUNT_BITS
        words[at + 2] = area[f]


@_jit
def _link_interfaces(node_entries: Array, entry_words: Array, words: Array) -> None:
    """Word 3 of every entry: the distance to the next interface's first entry in the same list (or to the list's end)."""
    for node in range(len(node_entries) - 1):
        target = entry_words[node_entries[node + 1]]
        for e in range(node_entries[node + 1] - 1, node_entries[node] - 1, -1):
            at = entry_words[e]
            following = entry_words[e + 1]
            if following < entry_words[node_entries[node + 1]] and words[following] != words[at]:
                target = following
            words[at + 3] = target - at
