"""Answers of a bitmap's blocks, and many of the trie, are found in any order and perhaps twice: two kernels sort and
deduplicate those of each event.

    tidy_kernel   up to TIDIED_ALONE answers: a warp; up to TIDIED_TOGETHER: a block of threads; both in shared memory
    mark_kernel   more answers: sets a bit for each id, then reads the bits in order; without comparisons, which for the
                  86,000 answers of one event would take 153 passes over memory

Events whose answers do not fit are left unchanged: their slice is matched again.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.kernels.trie_thread import AnswerArrays
from mpi_match.gpu.intrinsics import WARP, lane, popcount, sync_warp
from mpi_match.gpu.kernels import cuda, device_function, kernel
from mpi_match.gpu.warp import distinct, running_sum, sort, sorter

TIDIED_ALONE, TIDIED_TOGETHER = 256, 2048
"""Most answers that a warp sorts, and that a block of threads sorts: those that fit in shared memory, for all warps of a
block."""
MARK_THREADS = 512
"""Threads of a block of `mark_kernel`."""
MARK_BYTES, MARK_BLOCKS = 2**25, 1024
"""Most bytes of marks, unless those of one block are larger, and most blocks."""
_ONE = np.uint32(1)


@device_function
def _thread() -> int:
    return cuda.threadIdx.x


@device_function
def _threads() -> int:
    return cuda.blockDim.x


@device_function
def _wait() -> None:
    cuda.syncthreads()


_sort_in_block = sorter(_thread, _threads, _wait)


@kernel("void(AnswerArrays(uint64[::1], uint32[::1]), int64, int64)", named_tuples=[AnswerArrays])
def tidy_kernel(given: AnswerArrays, n_events: int, room: int) -> None:
    """Sort and deduplicate each event's answers, if there are at most TIDIED_TOGETHER.

    Launch: one warp per event; the warps of a block also process its events with many answers together.
    """
    sorted_ids = cuda.shared.array(TIDIED_TOGETHER, np.uint32)
    n_warps, warp = cuda.blockDim.x // WARP, np.int64(cuda.threadIdx.x) // WARP
    first = np.int64(cuda.blockIdx.x) * n_warps
    total = np.int64(given.found[first + warp]) if first + warp < n_events else np.int64(0)
    if 1 < total <= min(TIDIED_ALONE, room):
        begin, own = (first + warp) * room, warp * TIDIED_ALONE
        for i in range(lane(), total, WARP):
            sorted_ids[own + i] = given.ids[begin + i]
        sync_warp()
        sort(sorted_ids, own, total)
        kept = distinct(sorted_ids, own, total, given.ids, begin)
        if lane() == 0:
            given.found[first + warp] = kept
    cuda.syncthreads()
    for number in range(first, min(first + n_warps, n_events)):
        total, begin = np.int64(given.found[number]), number * room
        if TIDIED_ALONE < total <= min(TIDIED_TOGETHER, room):
            for i in range(cuda.threadIdx.x, total, cuda.blockDim.x):
                sorted_ids[i] = given.ids[begin + i]
            cuda.syncthreads()
            _sort_in_block(sorted_ids, 0, total)
            if warp == 0:
                kept = distinct(sorted_ids, 0, total, given.ids, begin)
                if lane() == 0:
                    given.found[number] = kept
            cuda.syncthreads()


def mark_shape(n_events: int, n_ids: int) -> tuple[int, int]:
    """Blocks of `mark_kernel` for `n_events` events, and the words of marks that they need, for ids below `n_ids`."""
    n_words = -(-n_ids // 32)
    n_blocks = max(1, min(MARK_BYTES // (4 * n_words), MARK_BLOCKS, n_events))
    return n_blocks, n_blocks * n_words


@kernel("void(AnswerArrays(uint64[::1], uint32[::1]), uint32[::1], int64, int64, int64)", named_tuples=[AnswerArrays])
def mark_kernel(given: AnswerArrays, marks: Array, n_events: int, room: int, n_words: int) -> None:
    """Sort and deduplicate the answers of events with more than TIDIED_TOGETHER.

    marks   u32[blocks, n_words]: a bit for each id; all 0, before and after (`mark_shape`)

    Launch: MARK_THREADS.  Work: for such an event reads each answer twice, and all words of a block's marks.
    """
    warp_sums = cuda.shared.array(MARK_THREADS, np.int32)
    thread, n_threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
    warp, own = thread // WARP, np.int64(cuda.blockIdx.x) * n_words
    for number in range(np.int64(cuda.blockIdx.x), n_events, np.int64(cuda.gridDim.x)):
        total, begin = np.int64(given.found[number]), number * room
        if TIDIED_TOGETHER < total <= room:
            for i in range(thread, total, n_threads):
                found = np.int64(given.ids[begin + i])
                cuda.atomic.or_(marks, own + (found >> 5), np.uint32(_ONE << np.uint32(found & 31)))
            kept = np.int64(0)
            cuda.syncthreads()
            for word in range(thread, -(-n_words // n_threads) * n_threads, n_threads):
                bits = marks[own + word] if word < n_words else np.uint32(0)
                if bits != 0:
                    marks[own + word] = np.uint32(0)
                upto = running_sum(popcount(bits))
                if lane() == WARP - 1:
                    warp_sums[warp] = upto
                cuda.syncthreads()
                at, all_found = begin + kept + upto - popcount(bits), np.int64(0)
                for each in range(n_threads // WARP):
                    if each == warp:
                        at += all_found
                    all_found += warp_sums[each]
                while bits != 0:
                    rest = np.uint32(bits & np.uint32(bits - _ONE))
                    given.ids[at] = 32 * word + popcount(np.uint32(bits ^ rest) - _ONE)
                    bits, at = rest, at + 1
                kept += all_found
                cuda.syncthreads()
            if thread == 0:
                given.found[number] = kept
