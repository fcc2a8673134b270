"""Balanced partitioning (algorithm 1): groups sets that share bits, at most MAX_P to a partition.

    1,000 sets     the bit that most nearly half of them have:     490 have bit 17,  510 do not
                   again, until a subset is small enough:          230 have 17 and 90, ...

A subset is divided by the bit whose frequency is nearest to one half.  A subset that is small enough but shares no bit is
divided in the same way, or by its most frequent bit if the options ask for that, which leaves fewer partitions.  So every
partition has a mask: bits that a query must have to match one of its sets.  Only sets without tags have none.  The mask
contains all bits that the sets share, including bits that did not divide them.  Sets with equal signatures stay together,
however many there are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.bits import count_each_bit
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, stretch_of
from mpi_match.events.signatures import SIGNATURE_BITS, SIGNATURE_WORDS

FIRST_PARTITIONS = 64
GRAIN = 2**16
"""Sets; a smaller subset is divided to the end by one thread."""


class Partitions(NamedTuple):
    """The p partitions of n sets.

    bounds  i64[p + 1]  rows of each partition
    masks   u64[p, 3]   bits that all sets of each partition have
    """

    bounds: Array
    masks: Array

    @property
    def n(self) -> int:
        return len(self.masks)


def divide(signatures: Array, rows: Array, max_p: int, n_threads: int, *, by_half: bool = True) -> Partitions:
    """Reorder sets by partition, in place: `signatures` u64[n, 3] and the sets' numbers `rows` u32[n].

    With `by_half` small subsets that share no bit are divided like all others, else by their most frequent bit.
    """
    ends, masks, least = [np.zeros(1, np.int64)], [np.empty((0, SIGNATURE_WORDS), np.uint64)], max(max_p, GRAIN)

    how = max_p, by_half

    def split(part: tuple[int, int]) -> int:
        first, last = part
        if last - first <= least:
            return first
        counts = np.sum(in_stretches(last - first, _count_stretch, signatures, first, last), axis=0)
        return int(_split(signatures, rows, first, last, counts, how))

    parts = [(0, len(rows))] if len(rows) else []
    with ThreadPoolExecutor(n_threads, "tagmatch-partition") as threads:
        while parts:
            middles = list(threads.map(split, parts))
            whole = [part for part, middle in zip(parts, middles, strict=True) if middle == part[0]]
            for found_ends, found_masks in threads.map(
                lambda part: _divide(signatures, rows, *part, (max_p, by_half)), whole
            ):
                ends.append(found_ends)
                masks.append(found_masks)
            halved = [(*part, middle) for part, middle in zip(parts, middles, strict=True) if middle > part[0]]
            parts = [half for first, last, middle in halved for half in ((first, middle), (middle, last))]
    all_ends, all_masks = np.concatenate(ends), np.concatenate(masks)
    order = np.argsort(all_ends[1:])
    return Partitions(np.append(0, all_ends[1:][order]), all_masks[order])


@nested
def _count_bits(signatures: Array, first: int, last: int, counts: Array) -> None:
    """Count the sets that have each bit."""
    for word in range(SIGNATURE_WORDS):
        count_each_bit(signatures, word, first, last, counts[64 * word : 64 * (word + 1)])


@nested
def _pivot(counts: Array, n: int, how: tuple[int, bool]) -> int:
    """The bit by which to divide n sets; -1 if they form a partition.  `how` holds the largest size of a partition, and
    `by_half`."""
    max_p, by_half = how
    best, most, shared = -1, 0, False
    for bit in range(SIGNATURE_BITS):
        shared |= counts[bit] == n
        most = max(most, counts[bit])
        if 0 < counts[bit] < n and (best < 0 or abs(2 * counts[bit] - n) < abs(2 * counts[best] - n)):
            best = bit
    if n > max_p:
        return best
    if shared or most == 0:
        return -1
    if by_half:
        return best
    best = 0
    for bit in range(SIGNATURE_BITS):
        if counts[bit] > counts[best]:
            best = bit
    return best


@nested
def _separate(signatures: Array, rows: Array, first: int, last: int, bit: int) -> int:
    """Move the sets without a bit before those with it; returns the index of the first with it."""
    word, mask = bit >> 6, np.uint64(1) << np.uint64(63 - (bit & 63))
    left, right = first, last
    while True:
        while left < right and not signatures[left, word] & mask:
            left += 1
        while left < right and signatures[right - 1, word] & mask:
            right -= 1
        if left >= right:
            return left
        right -= 1
        for each in range(SIGNATURE_WORDS):
            signatures[left, each], signatures[right, each] = signatures[right, each], signatures[left, each]
        rows[left], rows[right] = rows[right], rows[left]
        left += 1


@jit
def _count_stretch(stretch: int, n_stretches: int, signatures: Array, first: int, last: int) -> Array:
    """i64[192]: the number of sets with each bit, in one stretch of a subset."""
    counts, mine = np.empty(SIGNATURE_BITS, np.int64), stretch_of(last - first, stretch, n_stretches)
    _count_bits(signatures, first + mine.start, first + mine.stop, counts)
    return counts


@jit
def _split(signatures: Array, rows: Array, first: int, last: int, counts: Array, how: tuple[int, bool]) -> int:
    """Divide sets once; returns the start of the second half, or `first` if the sets form a partition."""
    pivot = _pivot(counts, last - first, how)
    return first if pivot < 0 else _separate(signatures, rows, first, last, pivot)


@jit
def _divide(signatures: Array, rows: Array, first: int, last: int, how: tuple[int, bool]) -> tuple[Array, Array]:
    """Divide sets recursively; returns the end of each partition, ascending, and its mask."""
    counts = np.empty(SIGNATURE_BITS, np.int64)
    ends, masks, n = np.empty(FIRST_PARTITIONS, np.int64), np.zeros((FIRST_PARTITIONS, SIGNATURE_WORDS), np.uint64), 0
    pending = np.empty(SIGNATURE_BITS + 2, np.int64)  # ends of the later subsets: at most one for each bit
    pending[0], depth, start = last, 1, first
    while depth:
        end = pending[depth - 1]
        _count_bits(signatures, start, end, counts)
        pivot = _pivot(counts, end - start, how)
        if pivot >= 0:
            pending[depth] = _separate(signatures, rows, start, end, pivot)
            depth += 1
            continue
        if n == len(ends):
            more_ends, more_masks = np.empty(2 * n, np.int64), np.zeros((2 * n, SIGNATURE_WORDS), np.uint64)
            more_ends[:n], more_masks[:n] = ends, masks
            ends, masks = more_ends, more_masks
        ends[n] = end
        for bit in range(SIGNATURE_BITS):
            if counts[bit] == end - start:
                masks[n, bit >> 6] |= np.uint64(1) << np.uint64(63 - (bit & 63))
        n, start, depth = n + 1, end, depth - 1
    return ends[:n], masks[:n]
