"""Sorts part of an array: usually a few values, or a large fraction of all ids.

Numba's own sort takes longer to compile than a quarter of the search of `keyed`.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import nested

MOST_INSERTED = 64
"""Most values that are sorted by insertion; more are sorted as a heap."""
WORDS_PER_ID = 8
"""Largest ratio of the words of `marks` to the ids for which ids are sorted by marking them."""
_ONE = np.uint64(1)


@nested
def sort_ids(ids: Array, first: int, last: int, marks: Array) -> None:
    """Sort ids[first:last], which are distinct, in place.

    `marks` u64 has a bit for each possible id; all are 0, before and afterwards.
    """
    if last - first <= MOST_INSERTED or len(marks) > WORDS_PER_ID * (last - first):
        sort_part(ids, first, last)
        return
    for i in range(first, last):
        marks[np.int64(ids[i]) >> 6] |= _ONE << np.uint64(ids[i] & 63)
    at = first
    for word in range(len(marks)):
        bits = marks[word]
        marks[word] = 0
        while bits:
            ids[at] = 64 * word + popcount((bits & (~bits + _ONE)) - _ONE)
            bits &= bits - _ONE
            at += 1


@nested
def sort_part(values: Array, first: int, last: Int) -> None:
    """Sort values[first:last] in place."""
    if last - first > MOST_INSERTED:
        _sort_heap(values[first:last])
        return
    for i in range(first + 1, last):
        item, at = values[i], i
        while at > first and values[at - 1] > item:
            values[at] = values[at - 1]
            at -= 1
        values[at] = item


@nested
def _sort_heap(values: Array) -> None:
    """Sort in place by a heap: item i is at least as large as items 2i + 1 and 2i + 2."""
    start, end = len(values) >> 1, len(values)
    while end > 1:
        if start > 0:
            start -= 1
            item = values[start]
        else:
            end -= 1
            item, values[end] = values[end], values[0]
        at, child = start, 2 * start + 1
        while child < end:
            if child + 1 < end and values[child] < values[child + 1]:
                child += 1
            if values[child] <= item:
                break
            values[at] = values[child]
            at, child = child, 2 * child + 1
        values[at] = item
