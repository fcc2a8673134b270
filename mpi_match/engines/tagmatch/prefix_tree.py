"""A prefix tree of signatures, on the CPU: the baseline of TagMatch's paper (section 1, table 1; section 4.3.2).

A Patricia tree has a node for each run of leading bits that several sets share, up to the first bit in which they differ.  A
query does not enter a node with a bit that the query lacks.

    0                 {a}, {b}, {a, c}, ...
      01              {b}, {a, c}             nodes precede their descendants, so a search needs no stack: a node that is
        0110          {b}                     skipped says which node comes next
        0111          {a, c}
      001             {a}

A node is one row of 32 bytes, because a search spends most of its time waiting for memory.
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
MOST_TREE_DEPTH = 200
"""Bound of the tree's depth, in nodes: at most one for each bit."""
_common_bits: Any = nested(signature_bits.common_bits)


class PrefixTree:
    """The tree of signatures u64[n, 3] in lexicographic order.

    nodes      u64[n_nodes, 4]       the bits that the sets below share, and the node that follows its descendants;
                                     in a leaf, LEAF and the number of its signature
    first_row  i64[n_distinct + 1]   first row in `signatures` of each distinct signature
    """

    def __init__(self, signatures: Array) -> None:
        differs = np.ones(len(signatures), np.bool_)
        np.any(signatures[1:] != signatures[:-1], axis=1, out=differs[1:])
        self._first_row = np.append(np.flatnonzero(differs), len(signatures))
        n_distinct = len(self._first_row) - 1
        self._nodes = np.empty((max(2 * n_distinct - 1, 0), SIGNATURE_WORDS + 1), np.uint64)
        if n_distinct:
            _build(signatures, self._first_row, self._nodes)

    @property
    def nbytes(self) -> int:
        """Bytes of the tree."""
        return self._nodes.nbytes + self._first_row.nbytes

    def find(self, signatures: Array) -> list[Array]:
        """(query, set) pairs u64 whose signatures match; `signatures` u64[n, 3] of the queries."""
        return in_stretches(len(signatures), _find_sets, signatures, self._nodes, self._first_row, least=2)


@jit
def _build(signatures: Array, first_row: Array, nodes: Array) -> None:
    """Fill the nodes."""
    pending, depth, node = np.empty((MOST_TREE_DEPTH, 2), np.int64), 1, 0
    pending[0, 0], pending[0, 1] = 0, len(first_row) - 1
    while depth:
        depth -= 1
        first, last = pending[depth, 0], pending[depth, 1]
        lowest, greatest = signatures[first_row[first]], signatures[first_row[last - 1]]
        word = 0
        while word < SIGNATURE_WORDS and lowest[word] == greatest[word]:
            nodes[node, word] = lowest[word]
            word += 1
        if word == SIGNATURE_WORDS:
            nodes[node, SIGNATURE_WORDS] = LEAF | np.uint64(first)
        else:
            here, there = lowest[word], greatest[word]
            shared = _common_bits(here, there)
            nodes[node, word] = shared
            for each in range(word + 1, SIGNATURE_WORDS):
                nodes[node, each] = np.uint64(0)
            nodes[node, SIGNATURE_WORDS] = np.uint64(node + 2 * (last - first) - 1)
            left, right, highest = first, last - 1, there & ~_below(here ^ there)
            while right - left > 1:  # find the first set with the bit
                middle = (left + right) >> 1
                if signatures[first_row[middle], word] >= highest:
                    right = middle
                else:
                    left = middle
            pending[depth, 0], pending[depth, 1] = right, last
            pending[depth + 1, 0], pending[depth + 1, 1] = first, right
            depth += 2
        node += 1


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
def _find_sets(stretch: int, n_stretches: int, signatures: Array, nodes: Array, first_row: Array) -> Array:
    """The pairs of one stretch of the queries."""
    pairs, n = np.empty(FIRST_TREE_PAIRS, np.uint64), 0
    for query in stretch_of(len(signatures), stretch, n_stretches):
        absent0, absent1, absent2 = ~signatures[query, 0], ~signatures[query, 1], ~signatures[query, 2]
        node, n_nodes = np.uint64(0), np.uint64(len(nodes))
        while node < n_nodes:
            behind = nodes[node, 3]
            if (nodes[node, 0] & absent0) | (nodes[node, 1] & absent1) | (nodes[node, 2] & absent2):
                node = node + np.uint64(1) if behind & LEAF else behind
                continue
            node += np.uint64(1)
            if not behind & LEAF:
                continue
            begin, end = first_row[behind & ~LEAF], first_row[(behind & ~LEAF) + np.uint64(1)]
            if n + end - begin > len(pairs):
                more = np.empty(2 * (n + end - begin), np.uint64)
                more[:n] = pairs[:n]
                pairs = more
            for row in range(begin, end):
                pairs[n] = np.uint64(query) << np.uint64(32) | np.uint64(row)
                n += 1
    return pairs[:n]
