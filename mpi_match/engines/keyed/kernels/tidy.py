"""Answers of a bitmap's blocks, and many of the trie, of tag sets and of the grid, are found in any order and perhaps twice:
two kernels sort and deduplicate those of each event.

    tidy_kernel   up to TIDIED_ALONE answers: a warp; up to TIDIED_TOGETHER: a block of threads; both in shared memory
    digit_kernel  more answers: a block of threads, by the digits of the ids, the lowest first: three passes over memory for
                  each digit.  A warp that sorted the 120,000 answers of an event by comparisons would make 153, alone

Events whose answers do not fit are left unchanged: they are matched again.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.kernels.trie_thread import AnswerArrays
from mpi_match.gpu.intrinsics import WARP, ballot, lane, popcount, sync_warp
from mpi_match.gpu.kernels import cuda, device_function, kernel
from mpi_match.gpu.warp import distinct, running_sum, sort, sorter

TIDIED_ALONE, TIDIED_TOGETHER = 256, 2048
"""Most answers that a warp sorts, and that a block of threads sorts: those that fit in shared memory, for all warps of a
block."""
RADIX_BITS, DIGIT_WARPS = 8, 16
"""Bits of a digit, and warps of a block of `digit_kernel`."""
DIGIT_COUNTS = DIGIT_WARPS << RADIX_BITS
"""The values of a digit, for each warp of a block."""
DIGIT_BYTES, DIGIT_BLOCKS = 2**27, 1024
"""Most bytes of the spare memory of all blocks of `digit_kernel`, unless that of one block is larger, and most blocks."""


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


def digit_shape(n_events: int, room: int, n_ids: int) -> tuple[int, int]:
    """Blocks of `digit_kernel` for `n_events` events with room for `room` answers each, and the digits of ids below `n_ids`,
    rounded up to an even number."""
    n_blocks = max(1, min(DIGIT_BYTES // (4 * room), DIGIT_BLOCKS, n_events))
    return n_blocks, 2 * max(1, -(-(n_ids - 1).bit_length() // (2 * RADIX_BITS)))


@device_function
def _peers(digit: int, is_there: bool) -> tuple:
    """The lanes with an answer of the same digit, as a mask, and the number of them before this lane."""
    mask = np.int64(ballot(is_there))
    for bit in range(RADIX_BITS):
        is_set = (digit >> bit) & 1
        those = np.int64(ballot(is_set != 0))
        mask &= those if is_set != 0 else ~those
    return mask, popcount(np.uint32(mask & ((1 << np.int64(lane())) - 1)))


@device_function
def _by_digit(source: Array, target: Array, own: tuple, shift: int, moves: bool, counts: Array) -> None:
    """Count a warp's answers source[first:last] by their digit, or move them to their places in the target.

    own      first, last, the warp's number, and that of warps
    counts   for each digit and warp the number of its answers, or the place of the next
    """
    first, last, warp, n_warps = own
    for at in range(first, last, WARP):
        is_there = at + lane() < last
        answer = source[at + lane()] if is_there else np.uint32(0)
        digit = (np.int64(answer) >> shift) & ((1 << RADIX_BITS) - 1)
        peers, before = _peers(digit, is_there)
        slot = digit * n_warps + warp
        place = np.int64(counts[slot]) + before
        sync_warp()
        if is_there and before == 0:
            counts[slot] += popcount(np.uint32(peers))
        sync_warp()
        if is_there and moves:
            target[place] = answer


@kernel("void(AnswerArrays(uint64[::1], uint32[::1]), uint32[::1], int64, int64, int64)", named_tuples=[AnswerArrays])
def digit_kernel(given: AnswerArrays, spare: Array, n_events: int, room: int, n_digits: int) -> None:
    """Sort and deduplicate the answers of events with more than TIDIED_TOGETHER.

    spare   u32[blocks, room]: memory for the answers of an event

    Launch: DIGIT_WARPS warps (`digit_shape`).  Work: for such an event reads each answer twice for each digit and writes it
    once, and once more in the end.
    """
    counts = cuda.shared.array(DIGIT_COUNTS, np.int32)
    warp_sums = cuda.shared.array(DIGIT_WARPS, np.int32)
    thread, n_threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
    warp, n_warps, block = thread // WARP, n_threads // WARP, np.int64(cuda.blockIdx.x)
    n_mine = DIGIT_COUNTS // n_threads
    for number in range(block, n_events, np.int64(cuda.gridDim.x)):
        total = np.int64(given.found[number])
        if TIDIED_TOGETHER < total <= room:
            ids, other = given.ids[number * room : (number + 1) * room], spare[block * room : (block + 1) * room]
            share = -(-total // n_threads) * WARP
            own = (min(warp * share, total), min((warp + 1) * share, total), warp, n_warps)
            for digit in range(n_digits):
                for i in range(n_mine):
                    counts[n_mine * thread + i] = 0
                cuda.syncthreads()
                _by_digit(ids, other, own, RADIX_BITS * digit, False, counts)
                cuda.syncthreads()
                n_own = np.int32(0)
                for i in range(n_mine):
                    n_own += counts[n_mine * thread + i]
                upto = running_sum(n_own)
                if lane() == WARP - 1:
                    warp_sums[warp] = upto
                cuda.syncthreads()
                place = upto - n_own
                for each in range(warp):
                    place += warp_sums[each]
                for i in range(n_mine):
                    n_here = counts[n_mine * thread + i]
                    counts[n_mine * thread + i] = place
                    place += n_here
                cuda.syncthreads()
                _by_digit(ids, other, own, RADIX_BITS * digit, True, counts)
                cuda.syncthreads()
                ids, other = other, ids
            kept = np.int64(0)
            for at in range(0, total, n_threads):
                place = at + thread
                is_new = place < total and (place == 0 or ids[place] != ids[place - 1])
                answer = ids[place] if is_new else np.uint32(0)
                upto = running_sum(is_new)
                if lane() == WARP - 1:
                    warp_sums[warp] = upto
                cuda.syncthreads()
                n_before = np.int64(upto) - 1
                for each in range(n_warps):
                    if each == warp:
                        n_before += kept
                    kept += warp_sums[each]
                if is_new:
                    ids[n_before] = answer
                cuda.syncthreads()
            if thread == 0:
                given.found[number] = kept
