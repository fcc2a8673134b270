"""Searches a bitmap on a CPU: selects the event's rows, then the lines that have a bit in all of them, then the filters.

rows       for each column, the row of the bin that contains the event's code, or that of the name's absence
summary    for each block, the lines that have a bit in all of these rows
lines      the intersection of the rows' words in such a line (`compute.lines`): its bits are candidates
verify     the candidates, as in the lists
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.lines import LINE_WORDS, meet, prefetch
from mpi_match.engines.keyed.bitmap.bins import bin_of
from mpi_match.engines.keyed.bitmap.rows import BLOCK_LINES, LINE_FILTERS, row_of
from mpi_match.engines.keyed.cpu_verify import verify
from mpi_match.engines.keyed.index.postings import HEADER, MAX_CHECKS

_ONE = np.uint64(1)
WAITING = 1024
"""Most candidates that are verified together: their data are prefetched while lines are intersected, so that their cache
misses overlap."""
FETCHED = 4
"""Cache lines of a candidate's checks that are prefetched: the checks of ten ranges."""


def scratch_words(n_columns: int) -> int:
    """Words of the scratch `places` of `scan_bitmap`."""
    return 2 * n_columns + LINE_WORDS + WAITING


@inlined
def enter_rows(attributes: Array, shift: int, bins: tuple, places: Array) -> None:
    """Write the row of each column to `places` i64."""
    column, bounds, n_bins, first_row = bins
    for a in range(len(n_bins)):
        places[a] = first_row[a] + n_bins[a]
    for i in range(len(attributes)):
        packed = np.int64(attributes[i])
        own = np.int64(column[packed >> shift])
        if own >= 0:
            places[own] = first_row[own] + bin_of(bounds, own, packed & ((np.int64(1) << shift) - 1))


@nested
def scan_bitmap(
    places: Array, n: int, bitmap: tuple, event: tuple, structure: tuple, given: tuple, ids: Array, span: tuple
) -> int:
    """Verify the filters of a bitmap that have a bit in each of the n rows `places`.

    places      i64[scratch_words(n)]: the rows, then scratch: their words in a block, the bits of a line, and candidates
    bitmap      its bits and summary (`BitRows`); place, id and interface of the filter at each position, u32; the checks
    structure   `t32` and `t64` of the trie's index
    span        start of the event's answers, index of the next one, end of the room, and the most answers that are possible
                (-1: any number)

    Returns the index of the next answer.
    """
    (bits, summary, place_of, filter_of, interface_of, words), (filters, seen, stamp, verified) = bitmap, given
    (before, answer, end, every), n_rows = span, summary.shape[1]
    index, n_lines = (structure[0], structure[1], words), len(bits) // (LINE_WORDS * n_rows)
    left, left_at = places[2 * n : 2 * n + LINE_WORDS], places.ctypes.data + 16 * n
    waiting = places[2 * n + LINE_WORDS : 2 * n + LINE_WORDS + WAITING]
    for block in range(len(summary)):
        lines = summary[block, places[0]]
        for a in range(1, n):
            lines &= summary[block, places[a]]
        first, stride = row_of(block * BLOCK_LINES, n_lines, n_rows)
        for a in range(n if lines else 0):
            places[n + a] = first + places[a] * stride
        while lines:
            n_waiting = np.int64(0)
            while lines and n_waiting <= WAITING - LINE_FILTERS:
                line = _lowest(lines)
                lines &= lines - _ONE
                some = np.uint64(meet(bits.ctypes.data, places.ctypes.data + 8 * n, n, LINE_WORDS * line, left_at))
                while some:
                    word = _lowest(some)
                    some &= some - _ONE
                    candidates = np.uint64(left[word])
                    while candidates:
                        position = (block * BLOCK_LINES + line) * LINE_FILTERS + 64 * word + _lowest(candidates)
                        candidates &= candidates - _ONE
                        prefetch(seen.ctypes.data + 8 * np.int64(interface_of[position]))
                        fetched = words.ctypes.data + words.itemsize * np.int64(place_of[position])
                        for cache_line in range(FETCHED):
                            prefetch(fetched + 64 * cache_line)
                        waiting[n_waiting] = position
                        n_waiting += 1
            for i in range(n_waiting):
                position = waiting[i]
                at, interface = np.int64(place_of[position]), np.int64(interface_of[position])
                if not filters and seen[interface] == stamp:
                    continue
                verified[0] += 1
                counts = np.int64(words[at + 1])
                if words[at + 2] != 0 or counts > MAX_CHECKS:
                    satisfied = verify(at, counts, event, index)
                else:
                    satisfied = _has_all(at + HEADER, counts, event, words)
                if satisfied:
                    if answer < end:
                        ids[answer] = filter_of[position] if filters else np.uint32(interface)
                    answer += 1
                    seen[interface] = stamp
                    if answer - before == every:
                        return answer
    return answer


@inlined
def _has_all(place: int, n: int, event: tuple, words: Array) -> bool:
    """Tells whether the event has an attribute in each of the n intervals from word `place` on.  It tests all of them: most
    candidates match, and a branch misprediction costs more than the remaining checks."""
    by_name, shift = event
    missed = np.int64(0)
    for check in range(n):
        low, high = words[place + 2 * check], words[place + 2 * check + 1]
        value = by_name[low >> shift]
        missed += np.int64(value < low) + np.int64(value > high)
    return missed == 0


@inlined
def _lowest(word: np.uint64) -> np.int64:
    """The number of the lowest bit of a word."""
    return popcount((word & (~word + _ONE)) - _ONE)
