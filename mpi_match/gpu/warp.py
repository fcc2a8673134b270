"""Cooperation of the lanes of a warp, for kernels in which a warp, not a thread, matches an event.

Lanes find work at different moments.  So they `put` it into a queue in shared memory, and all lanes take one item each as
soon as there are enough (`drainer`).

    queue     items, lengths, slot: u32 or u64, i32; the items of this warp, and the index of their number in `lengths`

Each lane appends the answers that it finds, in no order and perhaps twice; `tidy` sorts and deduplicates a few of them.  All
of them are counted.  If they do not fit, they stay unsorted, and the event is matched again.

    answers   found_of, ids, number, room: u64[n] counts, u32[n * room], the event, its capacity
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.gpu.intrinsics import WARP, atomic_add, ballot, lane, popcount, shuffle, shuffle_up, sync_warp
from mpi_match.gpu.kernels import device_function

_ONE = np.uint64(1)


@device_function
def put(item: Any, queue: Any) -> None:
    """Queue an item."""
    items, lengths, slot = queue
    items[atomic_add(lengths, slot, 1)] = item


@device_function
def length_of(queue: tuple) -> np.int64:
    """Number of items in a queue, the same for all lanes."""
    _, lengths, slot = queue
    sync_warp()
    return np.int64(shuffle(lengths[slot], 0))


@device_function
def shorten(queue: tuple, n: int) -> None:
    """Keep the first `n` items."""
    _, lengths, slot = queue
    sync_warp()
    if lane() == 0:
        lengths[slot] = n
    sync_warp()


@device_function
def place_behind(end: Int, there: Int) -> np.uint32:
    """The place of this lane's item behind the `end` of a queue; the lanes of the ballot `there` append one item each."""
    return np.uint32(np.int64(end) + popcount(np.uint32(there & np.uint32((1 << np.int64(lane())) - 1))))


def drainer(take: Callable) -> Callable:
    """Make the function that lets lanes take one item each while a queue has at least a given number."""

    @device_function
    def drain(least: int, queue: tuple, found: Any, about: Any) -> int:
        """Fold `take(item, found, about)` over a lane's items; returns the last `found`."""
        items, _, _ = queue
        n = length_of(queue)
        if n < least:
            return found
        while n >= least:
            taken = min(n, np.int64(WARP))
            n -= taken
            if lane() < taken:
                found = take(np.int64(items[n + lane()]), found, about)
        shorten(queue, n)
        return found

    return drain


@device_function
def append(answer: object, answers: tuple) -> None:
    """Append an answer of the event."""
    found_of, ids, number, room = answers
    place = np.int64(atomic_add(found_of, number, _ONE))
    if place < room:
        ids[number * room + place] = answer


@device_function
def append_together(is_there: bool, answer: object, answers: tuple) -> None:
    """Append the answers of the lanes that have one; all lanes call it together."""
    found_of, ids, number, room = answers
    there, end = np.uint32(ballot(is_there)), np.int64(0)
    if lane() == 0 and there != 0:
        end = np.int64(atomic_add(found_of, number, np.uint64(popcount(there))))
    place = np.int64(place_behind(shuffle(end, 0), there))
    if is_there and place < room:
        ids[number * room + place] = answer


def sorter(own: Callable, together: Callable, wait: Callable) -> Callable:
    """Make the function that sorts ids[first : first + n] in place, with several threads together.

    `own()` is a thread's number among the `together()` threads, and `wait()` waits for the others.  It uses Batcher's
    merges, each beginning with a mirrored comparison, so that n need not be a power of two.
    """

    @device_function
    def sort_together(ids: Array, first: int, n: int) -> None:
        level = 0
        while (1 << level) < n:
            step, mirrored = level, True
            while step >= 0:
                stride = 1 << step
                for pair in range(own(), (n + (2 << level) - 1) >> (level + 1) << level, together()):
                    run, place = pair >> step, pair & (stride - 1)
                    low = first + (run << (step + 1)) + place
                    high = first + (run << (step + 1)) + (2 * stride - 1 - place if mirrored else stride + place)
                    if high < first + n and ids[low] > ids[high]:
                        ids[low], ids[high] = ids[high], ids[low]
                wait()
                step, mirrored = step - 1, False
            level += 1

    return sort_together


@device_function
def _lanes() -> int:
    return WARP


sort = sorter(lane, _lanes, sync_warp)
"""Sorts with all lanes of a warp."""


@device_function
def distinct(ids: Array, first: int, n: int, into: Array, begin: int) -> Any:
    """Write the distinct items of the sorted ids[first : first + n] from into[begin] on, with all lanes of a warp; returns
    their number.  `into` may be the same memory."""
    kept, at = np.int64(0), np.int64(0)
    while at < n:
        place = first + at + lane()
        is_new = at + lane() < n and (place == first or ids[place] != ids[place - 1])
        value = ids[place] if is_new else np.uint32(0)
        new = np.uint64(ballot(is_new))
        sync_warp()
        if is_new:
            into[begin + kept + popcount(new & ((_ONE << np.uint64(lane())) - _ONE))] = value
        sync_warp()
        kept += popcount(new)
        at += WARP
    return kept


@device_function
def tidy(answers: tuple, most: int) -> None:
    """Sort and deduplicate the event's answers, if there are at most `most`, and all of them fit."""
    found_of, ids, number, room = answers
    sync_warp()
    total = np.int64(atomic_add(found_of, number, np.uint64(0)))
    if total > 1 and total <= min(room, most):
        sort(ids, number * room, total)
        kept = distinct(ids, number * room, total, ids, number * room)
        if lane() == 0:
            found_of[number] = kept


@device_function
def running_sum(value: Any) -> Any:
    """The sum of the values of this lane and of those before it, i32."""
    total, apart = np.int32(value), 1
    while apart < WARP:
        before = shuffle_up(total, apart)
        if lane() >= apart:
            total = np.int32(total + before)
        apart *= 2
    return total


@device_function
def owner(end: object, place: int) -> int:
    """The first lane that has an `end` beyond `place` (ends ascend), or the last lane."""
    first, half = 0, WARP >> 1
    while half > 0:
        if shuffle(end, first + half - 1) <= place:
            first += half
        half >>= 1
    return first
