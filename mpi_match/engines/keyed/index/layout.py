"""The keyed index: every filter is indexed by a rare combination of features, so that most filters are never tested.

A *feature* is a property of an event:

    it has name n              every constraint but `absent` asks for it (for an atom, n is the atom's virtual name)
    name n has the value v     an equality asks for it; an `in` asks for one of several

A filter can match only events that have all its features.  So it is indexed by its few rarest ones, its **key**
(`index.features`), and an event looks up the combinations of its features.  At the defaults of the CCM paper an event tests
2.6 filters instead of 40,000 constraints.  Enumerating all combinations would take 64 lookups for four attributes and
170,000 for fifty, nearly all without a result.  The keys therefore form a trie, with features ordered from rare to frequent:

            rare ─────────────► frequent
    event   city=Milan   temp=25   city   temp            (4 features of 2 attributes)
    trie    city=Milan ─┬─ temp=25 ── (list: f7)
                        └─ temp ───── (list: f2, f9)      nothing is looked up below a pair that does not exist
            temp ───────── (list: f4)

Nearly all of the cost is finding a node's children.  The 128 most frequent features are **dense**: each has a bit.  A node
has a row of 128 bits, one for each dense feature that leads to a child; the event has such a row of its dense features; and
the bits in both rows are the children to visit.  This takes one cache line and one `and` instead of a probe for each
feature.  Bit 0 is the most frequent feature.  The dense children of a node have consecutive numbers from rare to frequent,
so a child's number is the first one's plus the number of bits above its own.  The root's children are the nodes of all
single features, where a search begins; feature f is node f, which needs no hash.

    node    bits u64, u64 | list: its first word, or EMPTY | first dense child, and its number of sparse children << 32

The other features are **sparse**: their child is found by hashing (node, feature), after a bit array small enough for the
cache has excluded most pairs that do not exist.  Keys go from rare to frequent, so no sparse feature is below a dense one,
and only the few sparse features of an event are ever combined with each other.  Sparse children are numbered right before
the dense ones, and an array holds each deeper node's last feature.  If a node has fewer sparse children than the event has
sparse features, they are read instead of looked up.  Either way the whole key is compared: constraints that a key implies
are *known*, and only the other constraints of a filter are verified.

The list of a node is contiguous (`postings`): a candidate costs one or two cache lines.  Filters without a feature (empty,
or only `absent`) are in the list of the root, which every event scans.

This module defines the layout of an index; `index.build` builds one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.compute.parallel import find_bounds, stable_order
from mpi_match.engines.keyed.index.postings import entry_words

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Key of a free hash slot; also the list of a node without a list."""
DENSE = 128
"""Features that have a bit in a node's row."""
NODE_WORDS = 4
SPARSE_CHILDREN = np.uint64(32)
"""Bit position of the number of sparse children in the last word of a node."""
SLOTS_PER_WORD = 4

# Words of the index's header, u64 each. The word of a section is the index of its first element, in elements of its own
# width. V names (real and virtual), F features, N nodes, E entries of lists, B bit words, H hash slots (B and H are powers
# of 2).
SHIFT = 0  # 16 or 32: width of a code in a packed attribute
ROOT = 1  # the node that every event visits: N - 1
N_FEATURES = 2  # F; feature f is dense, and has bit F - 1 - f, if that is below 128
N_BITS = 3  # B
N_SLOTS = 4  # H
PRESENCE_FEATURES = 5  # u32[V]      feature "the event has the name", or NONE
CODES = 6  # u32[V + 1]     first code of each name in EQUALITY
EQUALITY = 7  # u32[...]    feature "name has this code", or NONE
NODES = 8  # u64[N, 4]      single features from rare to frequent, then the deeper nodes level by level, then the root
ENTRIES = 9  # u32[N + 1]   bounds of each node's list in FILTERS
FILTERS = 10  # u32[E]      filter of each entry
BITS = 11  # u32[B]         one bit for each key of SLOTS, by its hash
SLOTS = 12  # u64[H, 2]     parent << 32 | feature, or EMPTY; then the node
N_VIRTUAL = 13  # V
FEATURES = 14  # u32[N - 1 - F]   last feature of each deeper node's key, ascending within a parent
HEADER_WORDS = 16


@dataclass(frozen=True, eq=False)
class KeyedIndex:
    """The index of a table in two arrays, so that kernels have few arguments and uploads few copies.

    table      u64   header and sections (above), each 32-byte aligned; kernels read it as u32 and u64
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
        """The number of nodes, N."""
        return int(self.table[ROOT]) + 1

    @property
    def views(self) -> tuple[Array, Array]:
        """`table` as u32 and u64."""
        return self.table.view(np.uint32), self.table

    def entries(self, n_filters: int) -> tuple[Array, Array]:
        """The first words of each filter's entries in the lists: offsets i64[n_filters + 1], words i64."""
        t32, t64 = self.views
        n_entries = int(t32[int(t64[ENTRIES]) + self.n_nodes])
        filters = t32[int(t64[FILTERS]) : int(t64[FILTERS]) + n_entries]
        places = np.empty(n_entries, np.int64)
        _find_entries(t32, t64, self.words, self.n_nodes, places)
        order, offsets = stable_order(filters, n_filters), np.empty(n_filters + 1, np.int64)
        find_bounds(filters[order], offsets)
        return offsets, places[order]


def hash_of(key: Any) -> Any:
    """Hash of parent << 32 | feature (u64 to u64); the low bits select the slot, the high ones the bit."""
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


def bit_of(hashed: Any, n_words: int) -> Any:
    """Word and bit of a hash in `bits`, which has a power of two words; keys of four neighbouring slots share a word."""
    return (hashed >> np.uint64(2)) & (np.uint64(n_words) - np.uint64(1)), np.uint32(1) << np.uint32(hashed >> np.uint64(59))


_entry_words = inlined(entry_words)


@jit
def _find_entries(t32: Array, t64: Array, words: Array, n_nodes: int, places: Array) -> None:
    """Write the first word of every entry of every list."""
    for node in range(n_nodes):
        list_ = t64[np.int64(t64[NODES]) + NODE_WORDS * node + 2]
        if list_ == EMPTY:
            continue
        at, entry = np.int64(list_) + 1, np.int64(t32[np.int64(t64[ENTRIES]) + node])
        end = at - 1 + np.int64(words[at - 1])
        while at < end:
            places[entry] = at
            at += _entry_words(np.int64(words[at + 1]))
            entry += 1
