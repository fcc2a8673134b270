"""The kernel of TagMatch: subset matching of batches (algorithms 3 and 4).

    blocks       . . . .      of a partition's sets, in lexicographic order; one thread per set
      |
    algorithm 4               thread 0 writes the common prefix of the block's first and last set to shared memory; each
      |                       thread tests some of the batch's queries for these bits, and those that pass are candidates
    algorithm 3               each thread tests all candidates against its set

A launch takes one batch, as in the paper, or several batches of different partitions, along the y axis of its grid.  Results
are packed in fours: a word with four 8-bit query numbers within the batch, then the four sets:

    | q0 q1 q2 q3 | set 0 | set 1 | set 2 | set 3 |   | q4 q5 ...

The kernel counts all results; those beyond the capacity are not written, and the launch is repeated with a larger buffer.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.tagmatch import signature_bits
from mpi_match.engines.tagmatch.options import MOST_QUERIES
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel

TAGMATCH_BLOCK = 256
"""Threads of a block, which equals its sets."""
JOB_WORDS = 4
"""Words of a batch at the beginning of a job: first set, end of the sets, first query, number of queries.  The signatures of
all queries follow, three words each."""
GROUP_RESULTS, GROUP_WORDS = 4, 5
"""Results that are packed together, and the u32 words that they take."""
SHARED_WORDS = 3 * MOST_QUERIES
common_bits = device_function(signature_bits.common_bits)


@lru_cache
def match_kernel(with_prefix: bool) -> Kernel:
    """The kernel, with or without algorithm 4."""

    @kernel("void(uint64[::1], uint64[::1], uint32[::1], uint32[::1], uint8[::1], int64)")
    def match_sets(
        signatures: Array, job: Array, counter: Array, results: Array, result_bytes: Array, capacity: int
    ) -> None:
        """Find the sets that are subsets of queries, according to their signatures.

        signatures     u64[3 n]  of all sets
        job            u64       batches, then signatures of queries
        counter        u32[1]    output: incremented for each result
        results        u32       output: packed results; `result_bytes` is the same memory as u8
        capacity       results that fit
        Launch: x blocks of sets, as many as the largest partition has; y batches.
        """
        prefix = cuda.shared.array(3, np.uint64)
        n_candidates = cuda.shared.array(1, np.int32)
        number = cuda.shared.array(MOST_QUERIES, np.uint8)
        candidates = cuda.shared.array(SHARED_WORDS, np.uint64)
        thread, batch = cuda.threadIdx.x, JOB_WORDS * cuda.blockIdx.y
        first, last = np.int64(job[batch]), np.int64(job[batch + 1])
        begin, n_queries = np.int64(job[batch + 2]), np.int64(job[batch + 3])
        block = first + cuda.blockIdx.x * cuda.blockDim.x
        if block >= last:
            return
        if thread == 0:
            n_candidates[0] = 0
            for word in range(3):
                prefix[word] = np.uint64(0)
            if with_prefix:
                end = min(block + cuda.blockDim.x, last) - 1
                word = 0
                while word < 3:
                    here, there = signatures[3 * block + word], signatures[3 * end + word]
                    prefix[word] = common_bits(here, there)
                    word = word + 1 if here == there else 3
        cuda.syncthreads()
        for k in range(thread, n_queries, cuda.blockDim.x):
            at = begin + 3 * k
            q0, q1, q2 = job[at], job[at + 1], job[at + 2]
            if not (prefix[0] & ~q0 or prefix[1] & ~q1 or prefix[2] & ~q2):
                place = cuda.atomic.add(n_candidates, 0, 1)
                number[place] = k
                candidates[3 * place], candidates[3 * place + 1], candidates[3 * place + 2] = q0, q1, q2
        cuda.syncthreads()
        row = block + thread
        if row >= last:
            return
        s0, s1, s2 = signatures[3 * row], signatures[3 * row + 1], signatures[3 * row + 2]
        for k in range(n_candidates[0]):
            if s0 & ~candidates[3 * k] or s1 & ~candidates[3 * k + 1] or s2 & ~candidates[3 * k + 2]:
                continue
            at = np.int64(cuda.atomic.add(counter, 0, 1))
            if at < capacity:
                group, place = at // GROUP_RESULTS, at % GROUP_RESULTS
                result_bytes[4 * GROUP_WORDS * group + place] = number[k]
                results[GROUP_WORDS * group + 1 + place] = row

    return match_sets
