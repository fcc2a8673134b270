"""Subset matching of batches on the CPU: the algorithms of the GPU kernel (`kernel`), run by threads.

A batch is the queries that wait for one partition.  The common prefix of each block of the partition's sets is compared with
all queries of the batch (algorithm 4), and each set of the block with the remaining queries (algorithm 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.engines.tagmatch import signature_bits
from mpi_match.engines.tagmatch.options import MOST_QUERIES
from mpi_match.engines.tagmatch.queues import PartitionBatches

BLOCK_SETS = 256
"""Sets in a block."""
FIRST_CPU_PAIRS = 1024
common_bits: Any = nested(signature_bits.common_bits)


@jit
def match_batches(
    stretch: int,
    n_stretches: int,
    batches: Array,
    queries: Array,
    query_signatures: Array,
    signatures: Array,
    with_prefix: bool,
) -> Array:
    """The (query, set) pairs u64, `query << 32 | set`, whose signatures match, in one stretch of the batches.

    Parameters: `batches` i64[b, 4] holds the first set and the end of the sets, then the first query and the end of the
    queries in `queries` u32; `query_signatures` u64[n, 3], `signatures` u64[n_sets, 3].
    """
    pairs, n = np.empty(FIRST_CPU_PAIRS, np.uint64), 0
    candidates = np.empty(MOST_QUERIES, np.uint32)
    for batch in stretch_of(len(batches), stretch, n_stretches):
        first, last, begin, end = batches[batch, 0], batches[batch, 1], batches[batch, 2], batches[batch, 3]
        for block in range(first, last, BLOCK_SETS):
            block_end = min(block + BLOCK_SETS, last)
            n_candidates = 0
            p0, p1, p2 = np.uint64(0), np.uint64(0), np.uint64(0)
            if with_prefix:
                p0 = common_bits(signatures[block, 0], signatures[block_end - 1, 0])
                if signatures[block, 0] == signatures[block_end - 1, 0]:
                    p1 = common_bits(signatures[block, 1], signatures[block_end - 1, 1])
                    if signatures[block, 1] == signatures[block_end - 1, 1]:
                        p2 = common_bits(signatures[block, 2], signatures[block_end - 1, 2])
            for k in range(begin, end):
                q = queries[k]
                if not (p0 & ~query_signatures[q, 0] or p1 & ~query_signatures[q, 1] or p2 & ~query_signatures[q, 2]):
                    candidates[n_candidates] = q
                    n_candidates += 1
            for row in range(block, block_end) if n_candidates else range(0):
                if n + n_candidates > len(pairs):
                    more = np.empty(2 * (n + n_candidates), np.uint64)
                    more[:n] = pairs[:n]
                    pairs = more
                s0, s1, s2 = signatures[row, 0], signatures[row, 1], signatures[row, 2]
                for k in range(n_candidates):
                    q = candidates[k]
                    if not (s0 & ~query_signatures[q, 0] or s1 & ~query_signatures[q, 1] or s2 & ~query_signatures[q, 2]):
                        pairs[n] = np.uint64(q) << np.uint64(32) | np.uint64(row)
                        n += 1
    return pairs[:n]


class CpuMatcher:
    """Matches batches with CPU threads, as soon as they arrive."""

    kernel_s = 0.0
    n_busy = 0

    def __init__(self, signatures: Array, bounds: Array, with_prefix: bool) -> None:
        self._signatures, self._bounds, self._with_prefix = signatures, bounds, with_prefix

    def begin(self, batches: PartitionBatches, signatures: Array) -> list[Array]:
        """Match batches; `signatures` u64[n, 3] of all queries.  Returns (query, set) pairs u64."""
        if not batches.n:
            return []
        partition, offsets = batches.partition, batches.offsets
        rows = (self._bounds[partition], self._bounds[partition + 1], offsets[:-1], offsets[1:])
        found = in_stretches(
            max(batches.n, 1),
            *(match_batches, np.stack(rows, axis=1), batches.queries, signatures, self._signatures, self._with_prefix),
            least=2,
        )
        return found

    def forget(self) -> None:
        """Do nothing: no batch is in progress."""

    def finish(self, queries: range) -> list[Array]:
        """Return an empty list: no query is in progress."""
        return []
