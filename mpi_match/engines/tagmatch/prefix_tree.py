"""A prefix tree of signatures, on the CPU: the baseline of TagMatch's paper (section 1, table 1; section 4.3.2).

A Patricia tree has a node for each run of leading bits that several sets share, up to the first bit in which they differ.  A
query does not enter a node with a bit that the query lacks.

    0                 {a}, {b}, {a, c}, ...
      01              {b}, {a, c}             nodes precede their descendants, so a search needs no stack: a node that is
        0110          {b}                     skipped says which node comes next
        0111          {a, c}
      001             {a}

A node with at most `LEAF_SETS` sets is a leaf, whose sets are tested one after another: they lie side by side in memory, and
a node of its own for each takes five times as long.  A node is one row of 32 bytes, because a search spends most of its time
waiting for memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.tagmatch import signature_bits
from mpi_match.events.signatures import SIGNATURE_WORDS

FIRST_TREE_PAIRS = 1024
LEAF = np.uint64(2**63)
LEAF_SETS = 64
"""Most sets of a leaf, unless more of them have one signature."""
MOST_TREE_DEPTH = 200
"""Bound of the tree's depth, in nodes: at most one for each bit."""
_common_bits: Any = nested(signature_bits.common_bits)


class PrefixTree:
    """The tree of signatures u64[n, 3] in lexicographic order.

    nodes   u64[n_nodes, 4]    the bits that the sets below share, and the node that follows its descendants; in a leaf, LEAF
                               and the number of the leaf
    bounds  i64[n_leaves + 1]  rows of `signatures` of each leaf
    """

    def __init__(self, signatures: Array) -> None:
        self._signatures = signatures
        room = (
            np.empty((max(2 * len(signatures) - 1, 0), SIGNATURE_WORDS + 1), np.uint64),
            np.empty(len(signatures), np.int64),
        )
        n_nodes, n_leaves = _build(signatures, *room) if len(signatures) else (0, 0)
        self._nodes, self._bounds = room[0][:n_nodes].copy(), np.append(room[1][:n_leaves], len(signatures))

    @property
    def nbytes(self) -> int:
        """Bytes of the tree, without the signatures."""
        return self._nodes.nbytes + self._bounds.nbytes

    def find(self, signatures: Array) -> list[Array]:
        """(query, set) pairs u64 whose signatures match; `signatures` u64[n, 3] of the queries."""
        tree = self._nodes, self._bounds, self._signatures
        return in_stretches(len(signatures), _find_sets, signatures, *tree, least=2)


@jit
def _build(signatures: Array, nodes: Array, first_row: Array) -> tuple[int, int]:
    """Fill the nodes, and the first row of each leaf; returns their numbers."""
    pending, depth, node, leaf = np.empty((MOST_TREE_DEPTH, 2), np.int64), 1, 0, 0
    above, above_depth, n_above = np.empty(MOST_TREE_DEPTH, np.int64), np.empty(MOST_TREE_DEPTH, np.int64), 0
    pending[0, 0], pending[0, 1] = 0, len(signatures)
    while depth:
        depth -= 1
        while n_above and above_depth[n_above - 1] > depth:  # all of its descendants are there
            n_above -= 1
            nodes[above[n_above], SIGNATURE_WORDS] = np.uint64(node)
        first, last = pending[depth, 0], pending[depth, 1]
        lowest, greatest = signatures[first], signatures[last - 1]
        word = 0
        while word < SIGNATURE_WORDS and lowest[word] == greatest[word]:
            nodes[node, word] = lowest[word]
            word += 1
        if word < SIGNATURE_WORDS:
            nodes[node, word] = _common_bits(lowest[word], greatest[word])
            for each in range(word + 1, SIGNATURE_WORDS):
                nodes[node, each] = np.uint64(0)
        if word == SIGNATURE_WORDS or last - first <= LEAF_SETS:
            nodes[node, SIGNATURE_WORDS] = LEAF | np.uint64(leaf)
            first_row[leaf] = first
            leaf += 1
        else:
            above[n_above], above_depth[n_above] = node, depth
            n_above += 1
            here, there = lowest[word], greatest[word]
            left, right, highest = first, last - 1, there & ~_below(here ^ there)
            while right - left > 1:  # find the first set with the bit
                middle = (left + right) >> 1
                if signatures[middle, word] >= highest:
                    right = middle
                else:
                    left = middle
            pending[depth, 0], pending[depth, 1] = right, last
            pending[depth + 1, 0], pending[depth + 1, 1] = first, right
            depth += 2
        node += 1
    for each in range(n_above):
        nodes[above[each], SIGNATURE_WORDS] = np.uint64(node)
    return node, leaf


@nested
def _below(word: np.uint64) -> np.uint64:
    """Fill a word with ones below its most significant bit."""
    word |= word >> np.uint64(1)
    word |= word >> np.uint64(2)
    word |= word >> np.uint64(4)
    word |= word >> np.uint64(8)
    word |= word >> np.uint64(16)
    word |= word >> np.uint64(32)
    return word >> np.uint64(1)


@jit
def _find_sets(stretch: int, n_stretches: int, queries: Array, nodes: Array, bounds: Array, signatures: Array) -> Array:
    """The pairs of one stretch of the queries."""
    pairs, n, leaves = np.empty(FIRST_TREE_PAIRS, np.uint64), 0, np.empty(len(bounds) - 1, np.int64)
    for query in stretch_of(len(queries), stretch, n_stretches):
        n_leaves = _find_leaves(queries[query], nodes, leaves)
        pairs, n = _test(leaves[:n_leaves], query, queries, bounds, signatures, pairs, n)
    return pairs[:n]


@jit
def _find_leaves(query: Array, nodes: Array, leaves: Array) -> int:
    """Write the leaves that a query u64[3] enters to `leaves`; returns their number.

    The loop does nothing else: with the sets of leaves tested in it, the compiled code takes twice as long.
    """
    absent0, absent1, absent2 = ~query[0], ~query[1], ~query[2]
    node, n_nodes, n = np.uint64(0), np.uint64(len(nodes)), 0
    while node < n_nodes:
        behind = nodes[node, 3]
        if (nodes[node, 0] & absent0) | (nodes[node, 1] & absent1) | (nodes[node, 2] & absent2):
            node = node + np.uint64(1) if behind & LEAF else behind
            continue
        node += np.uint64(1)
        if behind & LEAF:
            leaves[n] = np.int64(behind & ~LEAF)
            n += 1
    return n


@jit
def _test(
    leaves: Array, query: int, queries: Array, bounds: Array, signatures: Array, pairs: Array, n: int
) -> tuple[Array, int]:
    """Append the sets of leaves that match a query to the n pairs, which grow; without a branch for each set."""
    most = n
    for leaf in leaves:
        most += bounds[leaf + 1] - bounds[leaf]
    if most > len(pairs):
        more = np.empty(2 * most, np.uint64)
        more[:n] = pairs[:n]
        pairs = more
    absent0, absent1, absent2 = ~queries[query, 0], ~queries[query, 1], ~queries[query, 2]
    of_query = np.uint64(query) << np.uint64(32)
    for leaf in leaves:
        for row in range(bounds[leaf], bounds[leaf + 1]):
            lacks = (signatures[row, 0] & absent0) | (signatures[row, 1] & absent1) | (signatures[row, 2] & absent2)
            pairs[n] = of_query | np.uint64(row)
            n += lacks == 0
    return pairs, n
