"""Compacts the answers of each event into one array of ids: three small kernels.

    found_of         0b1010       0          0b0001      ...      a mask for each event, or the count of ids in its slots
    count_kernel     counts 2     0          1           ...      and their sum for each run of KEYED_BLOCK events
    scan_kernel      sums         0, 3, ...                       of the runs before each, and the total; the largest count
    write_kernel     ids          1, 3       0           ...      each event's after those of the events before it

Only counts and ids are copied to the host, which reads the number of ids, and the largest count, behind the sums.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.gpu.intrinsics import WARP, ballot, lane, popcount, shuffle
from mpi_match.gpu.kernels import Kernel, cuda, kernel

KEYED_BLOCK = 128
"""Threads of a block, and events of a run whose answers are written together."""
SCAN_THREADS = 256
"""Threads of the single block of `scan_kernel`."""
WRITTEN_ALONE = 32
"""Most answers of an event that one thread writes."""
ANSWERS_SHARED, MOST_SHARERS = 4096, 64
"""Answers of the longest event for which `write_kernel` has one block of each run, and most blocks of a run."""
_ONE = np.uint64(1)


@lru_cache
def count_kernel(is_mask: bool, count_type: str) -> Kernel:
    """The kernel that counts each run's answers, in masks or in slots, as counts of dtype `count_type` (such as "uint8")."""

    @kernel(f"void(uint64[::1], {count_type}[::1], uint64[::1], uint64[::1], int64, int64)")
    def count_answers(found_of: Array, counts: Array, sums: Array, mosts: Array, n_events: int, room: int) -> None:
        """Count the answers of each event; for each run of KEYED_BLOCK events their sum, and the most that an event has.

        An event with more answers than `room` has its number among the most, and 0 as its count: its slots do not have all
        of its answers.

        Launch: a block per run, a thread per event.
        """
        total = cuda.shared.array(1, np.int64)
        most = cuda.shared.array(1, np.uint64)
        if cuda.threadIdx.x == 0:
            total[0] = 0
            most[0] = 0
        cuda.syncthreads()
        event = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if event < n_events:
            n = popcount(found_of[event]) if is_mask else np.int64(found_of[event])
            if not is_mask:
                cuda.atomic.max(most, 0, found_of[event])
                if n > room:
                    n = np.int64(0)
            counts[event] = n
            cuda.atomic.add(total, 0, n)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            sums[cuda.blockIdx.x] = total[0]
            mosts[cuda.blockIdx.x] = most[0]

    return count_answers


@lru_cache
def write_kernel(is_mask: bool, count_type: str, id_type: str) -> Kernel:
    """The kernel that writes answers without gaps, from masks or slots, as ids of dtype `id_type` (such as "uint8")."""

    @kernel(f"void(uint64[::1], {count_type}[::1], uint64[::1], uint32[::1], {id_type}[::1], int64, int64)")
    def write_answers(
        found_of: Array, counts: Array, starts: Array, slots: Array, ids: Array, n_events: int, room: int
    ) -> None:
        """Write every event's ids after those of the events before it.

        starts   u64[runs + 1]: first answer of each run (`scan_kernel`);  slots u32[n * room]: output of `match_kernel`
        ids      output: all answers, in the order of events

        Launch: blocks (runs, sharers), a thread per event.  All threads of a warp, in all blocks of a run, share the work of
        an event with many answers.
        """
        before = cuda.shared.array(KEYED_BLOCK, np.int64)
        thread = cuda.threadIdx.x
        event = cuda.blockIdx.x * cuda.blockDim.x + thread
        before[thread] = np.int64(counts[event]) if event < n_events else np.int64(0)
        cuda.syncthreads()
        step = 1
        while step < cuda.blockDim.x:
            value = before[thread - step] if thread >= step else np.int64(0)
            cuda.syncthreads()
            before[thread] += value
            cuda.syncthreads()
            step *= 2
        n: Any = np.int64(counts[event]) if event < n_events else np.int64(0)
        at = np.int64(starts[cuda.blockIdx.x]) + before[thread] - n
        is_first = cuda.blockIdx.y == 0
        if is_mask:
            bits = found_of[event] if n > 0 else np.uint64(0)
            while bits != np.uint64(0):
                lowest = bits & (~bits + _ONE)
                ids[at] = popcount(lowest - _ONE)
                bits ^= lowest
                at += 1
        else:
            for i in range(min(n, WRITTEN_ALONE) if is_first else 0):
                ids[at + i] = slots[event * room + i]
            left = ballot(n > WRITTEN_ALONE)
            while left != 0:
                whose = popcount((left & -left) - 1)
                n_theirs, theirs, first = shuffle(n, whose), shuffle(at, whose), (event - lane() + whose) * room
                for i in range(WRITTEN_ALONE + WARP * cuda.blockIdx.y + lane(), n_theirs, WARP * cuda.gridDim.y):
                    ids[theirs + i] = slots[first + i]
                left &= left - 1

    return write_answers


@kernel("void(uint64[::1], uint64[::1], int64)")
def scan_kernel(sums: Array, mosts: Array, n: int) -> None:
    """Replace sums[0:n] by the sums of the items before each; write the total to sums[n], and the largest of mosts[0:n] to
    sums[n + 1].

    Launch: one block of SCAN_THREADS.
    """
    part = cuda.shared.array(SCAN_THREADS, np.int64)
    largest = cuda.shared.array(1, np.uint64)
    thread = cuda.threadIdx.x
    share = (n + cuda.blockDim.x - 1) // cuda.blockDim.x
    first, last = min(thread * share, n), min((thread + 1) * share, n)
    if thread == 0:
        largest[0] = 0
    cuda.syncthreads()
    total, most = np.int64(0), np.uint64(0)
    for i in range(first, last):
        total += np.int64(sums[i])
        most = max(most, mosts[i])
    part[thread] = total
    cuda.atomic.max(largest, 0, most)
    cuda.syncthreads()
    running = np.int64(0)
    for t in range(thread):
        running += part[t]
    if thread == cuda.blockDim.x - 1:
        sums[n] = running + total
        sums[n + 1] = largest[0]
    for i in range(first, last):
        value = np.int64(sums[i])
        sums[i] = running
        running += value
