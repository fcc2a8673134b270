"""The partition table, and the partitions of a query (algorithm 2).

    vector of bit 0      partitions whose mask has bit 0
    vector of bit 1      partitions whose mask starts with bit 1
    ...
    vector of bit 191

A query tests the vectors of its own bits.  A partition is found once, at the first bit of its mask, if the query also has
the other bits.  One more vector is for sets without tags, which every query matches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import jit
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.tagmatch.partitions import Partitions
from mpi_match.events.signatures import SIGNATURE_BITS, SIGNATURE_WORDS

FIRST_ROUTES = 1024
ROUTED_QUERIES = 256
"""Number of queries that are worth a further thread."""


class PartitionTable(NamedTuple):
    """The concatenated vectors.

    offsets     i64[194]   partitions of each bit, then those without a mask
    partitions  u32[p]     in the order of the vectors
    masks       u64[p, 3]  of the partitions in this order
    """

    offsets: Array
    partitions: Array
    masks: Array

    @classmethod
    def of(cls, partitions: Partitions) -> PartitionTable:
        bits = np.unpackbits(partitions.masks.astype(">u8").view(np.uint8).reshape(-1, SIGNATURE_BITS // 8), axis=1)
        first = np.where(bits.any(axis=1), bits.argmax(axis=1), SIGNATURE_BITS)
        order = np.argsort(first, kind="stable")
        offsets = offsets_of(np.bincount(first, minlength=SIGNATURE_BITS + 1))
        return cls(offsets, order.astype(np.uint32), np.ascontiguousarray(partitions.masks[order]))

    def routes(self, signatures: Array) -> tuple[Array, Array]:
        """The (query, partition) pairs as two arrays u32, ascending by query; `signatures` u64[n, 3] of the queries."""
        found = in_stretches(len(signatures), _find_partitions, signatures, *self, least=ROUTED_QUERIES)
        queries, partitions = (np.concatenate([each[column] for each in found]) for column in range(2))
        return queries, partitions


@jit
def _find_partitions(
    stretch: int, n_stretches: int, signatures: Array, offsets: Array, partitions: Array, masks: Array
) -> tuple[Array, Array]:
    """The pairs of one stretch of the queries."""
    query_of, partition_of, n = np.empty(FIRST_ROUTES, np.uint32), np.empty(FIRST_ROUTES, np.uint32), 0
    most = len(partitions)
    for query in stretch_of(len(signatures), stretch, n_stretches):
        if n + most > len(query_of):
            more = 2 * (n + most)
            queries, found = np.empty(more, np.uint32), np.empty(more, np.uint32)
            queries[:n], found[:n] = query_of[:n], partition_of[:n]
            query_of, partition_of = queries, found
        absent = ~signatures[query, 0], ~signatures[query, 1], ~signatures[query, 2]
        for word in range(SIGNATURE_WORDS + 1):
            left = signatures[query, word] if word < SIGNATURE_WORDS else np.uint64(1) << np.uint64(63)
            while left:
                lowest = left & (~left + np.uint64(1))
                left ^= lowest
                bit = 64 * word + 63 - popcount(lowest - np.uint64(1))
                for at in range(offsets[bit], offsets[bit + 1]):
                    if not (masks[at, 0] & absent[0] or masks[at, 1] & absent[1] or masks[at, 2] & absent[2]):
                        query_of[n], partition_of[n] = query, partitions[at]
                        n += 1
    return query_of[:n], partition_of[:n]
