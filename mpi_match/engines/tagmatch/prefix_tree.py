"""A prefix tree of signatures, on the CPU: what TagMatch is compared with (section 1, table 1; section 4.3.2).

A Patricia tree has a node for each run of leading bits that several sets share, up to the first bit that they differ in.  A
query does not enter a node that has a bit that the query has not.

    0                 {a}, {b}, {a, c}, ...
      01              {b}, {a, c}             nodes stand before those below them, so that searching needs no stack: a node
        0110          {b}                     that is passed over says which one comes next
        0111          {a, c}
      001             {a}
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
MOST_TREE_DEPTH = 200
"""Nodes above each other: one for each bit at the most."""
_common_bits: Any = nested(signature_bits.common_bits)


class PrefixTree:
    """The tree of signatures u64[n, 3] in lexicographic order."""

    def __init__(self, signatures: Array) -> None:
        differs = np.any(signatures[1:] != signatures[:-1], axis=1)
        number = np.append(0, np.cumsum(differs))[: len(signatures)]  # of distinct signatures before
        n_nodes = 2 * int(number[-1]) + 1 if len(number) else 0
        self._bits, self._next = np.empty((n_nodes, SIGNATURE_WORDS), np.uint64), np.empty(n_nodes, np.int64)
        self._rows = np.zeros((n_nodes, 2), np.int64)
        if n_nodes:
            _build(signatures, number, self._bits, self._next, self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the nodes."""
        return self._bits.nbytes + self._next.nbytes + self._rows.nbytes

    def find(self, signatures: Array) -> list[Array]:
        """Pairs u64 of query and set whose signatures match; `signatures` u64[n, 3] of the queries."""
        return in_stretches(len(signatures), _find_sets, signatures, self._bits, self._next, self._rows, least=2)


@jit
def _build(signatures: Array, number: Array, bits: Array, next_node: Array, rows: Array) -> None:
    """Fill the nodes: the bits that their sets share, the node behind those below, and the sets of a leaf."""
    pending, depth, node = np.empty((MOST_TREE_DEPTH, 2), np.int64), 1, 0
    pending[0, 0], pending[0, 1] = 0, len(signatures)
    while depth:
        depth -= 1
        first, last = pending[depth, 0], pending[depth, 1]
        n_distinct = number[last - 1] - number[first] + 1
        next_node[node] = node + 2 * n_distinct - 1
        word = 0
        while word < SIGNATURE_WORDS and signatures[first, word] == signatures[last - 1, word]:
            bits[node, word] = signatures[first, word]
            word += 1
        if word == SIGNATURE_WORDS:
            rows[node, 0], rows[node, 1] = first, last
        else:
            here, there = signatures[first, word], signatures[last - 1, word]
            shared = _common_bits(here, there)
            bits[node, word] = shared
            for each in range(word + 1, SIGNATURE_WORDS):
                bits[node, each] = np.uint64(0)
            left, right, highest = first, last - 1, there & ~_below(here ^ there)
            while right - left > 1:  # the first set that has the bit
                middle = (left + right) >> 1
                if signatures[middle, word] >= highest:
                    right = middle
                else:
                    left = middle
            pending[depth, 0], pending[depth, 1] = right, last
            pending[depth + 1, 0], pending[depth + 1, 1] = first, right
            depth += 2
        node += 1


@nested
def _below(word: Any) -> Any:
    """All bits below the most significant one of a word."""
    word |= word >> np.uint64(1)
    word |= word >> np.uint64(2)
    word |= word >> np.uint64(4)
    word |= word >> np.uint64(8)
    word |= word >> np.uint64(16)
    word |= word >> np.uint64(32)
    return word >> np.uint64(1)


@jit
def _find_sets(stretch: int, n_stretches: int, signatures: Array, bits: Array, next_node: Array, rows: Array) -> Array:
    """The pairs of a stretch of the queries."""
    pairs, n = np.empty(FIRST_TREE_PAIRS, np.uint64), 0
    for query in stretch_of(len(signatures), stretch, n_stretches):
        absent0, absent1, absent2 = ~signatures[query, 0], ~signatures[query, 1], ~signatures[query, 2]
        node = 0
        while node < len(next_node):
            if bits[node, 0] & absent0 or bits[node, 1] & absent1 or bits[node, 2] & absent2:
                node = next_node[node]
                continue
            begin, end = rows[node, 0], rows[node, 1]
            if n + end - begin > len(pairs):
                more = np.empty(2 * (n + end - begin), np.uint64)
                more[:n] = pairs[:n]
                pairs = more
            for row in range(begin, end):
                pairs[n] = np.uint64(query) << np.uint64(32) | np.uint64(row)
                n += 1
            node += 1
    return pairs[:n]
