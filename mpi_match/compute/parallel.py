"""Parallel sorting: a stable radix sort, running sums, and the bounds of equal items in sorted arrays.

Building an index consists mostly of sorting: constraints by filter, filters by interface, keys by their features.  The keys
are small integers, so no comparisons are needed.  They are distributed by one *digit* after another, the lowest first. Keys
with equal digits keep their order, so after the highest digit all keys are in order:

    31 12 22 11   by the last digit:   31 11 12 22      then by the first digit:   11 12 22 31

A pass has two halves, in which every thread works on its own *stretch*, a run of consecutive keys.  First each thread counts
the digits of its stretch; then it moves its keys to the places that follow from the counts: after all smaller digits, and
after the same digit in earlier stretches.  No two threads write to one place, so no lock is needed, and the result does not
depend on the number of threads.  If all keys share a digit, the digit is counted but the pass is skipped.

A digit has at most ten bits, so that the places of a stretch, and the cache lines that it writes, stay in a core's caches.

Serial passes and NumPy's sorts would dominate on a machine with 16 cores, and temporary arrays would cost twice, once to
write and once to read.  Arrays are allocated by NumPy and filled here, because NumPy asks for huge pages.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple, TypeVar

import numba
import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import jit, nested

DIGIT_BITS = 10
T = TypeVar("T")

ROW = np.dtype(np.uint32)
"""Dtype of row numbers, which are below `MAX_ROWS`."""
MAX_ROWS = 2**32 - 1
LEAST_ROWS = 4096
"""Number of rows that are worth a further thread."""
SORTED_BYTES = 2**25
"""Bytes of the smallest copy that several threads make."""


def stretches_of(n: int, least: int | None = None) -> int:
    """Number of stretches into which n rows are divided: one for each thread, or a single one for fewer than `least`
    rows."""
    least = LEAST_ROWS if least is None else least
    return min(numba.get_num_threads(), 1 + n // least) if n >= least else 1  # asking Numba takes a microsecond


@contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """Use at most `threads` threads in the body; None: all available ones."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads or before, before))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def in_stretches(n: int, kernel: Callable[..., T], *arguments: object, least: int | None = None) -> list[T]:
    """Process n rows with all threads; returns the result of `kernel(stretch, n_stretches, *arguments)` for each stretch.

    `least` rows are worth a further thread; the default is `LEAST_ROWS`.
    """
    n_stretches = stretches_of(n, least)
    return by_threads(n_stretches, lambda stretch: kernel(stretch, n_stretches, *arguments))


def by_threads(n: int, work: Callable[[int], T], stop: Callable[[], object] | None = None) -> list[T]:
    """Return the results of `work(thread)` for each of n threads; the calling thread is the first.

    With fewer cores some run one after another, so none may wait for another.  Raises what one of them raised, or an
    interrupt, after all of them have ended; `stop` may make them end sooner.  So no thread still uses objects that the
    caller drops.
    """
    if n == 1:
        return [work(0)]
    at_work, is_over = [threading.Lock() for _ in range(n)], False

    def of_other(thread: int) -> T:
        with at_work[thread]:
            if is_over:
                raise CancelledError
            return work(thread)

    try:
        others = [_threads().submit(of_other, thread) for thread in range(1, n)]
        return [work(0), *(other.result() for other in others)]
    except BaseException:
        is_over = True
        if stop is not None:
            stop()
        wait_for_all(at_work)
        raise


def wait_for_all(locks: Iterable[threading.Lock]) -> None:
    """Wait until each of these locks has been free, despite interrupts: the holders end soon."""
    for lock in locks:
        while True:
            try:
                with lock:
                    break
            except BaseException:  # a second interrupt; the first is about to be raised
                continue


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "keyed-index")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of these threads


def copy(to: Array, source: Array) -> None:
    """Copy a one-dimensional array into another of the same length.  Long arrays are copied by all threads, because a single
    thread neither reads memory nor faults in pages as fast as a GPU consumes them."""
    if source.nbytes < SORTED_BYTES:
        to[:] = source
    else:
        in_stretches(len(source), _copy_stretch, to, source)


def _copy_stretch(stretch: int, n_stretches: int, to: Array, source: Array) -> None:
    rows = slice(stretch * len(source) // n_stretches, (stretch + 1) * len(source) // n_stretches)
    to[rows] = source[rows]


class NumberedKeys(NamedTuple):
    """Keys to sort, u32[n] or u64[n], and the row of each key, u32[n]."""

    key: Array
    row: Array


@nested
def stretch_of(n: int, stretch: int, n_stretches: int) -> range:
    """The rows of a stretch, out of n."""
    return range(stretch * n // n_stretches, (stretch + 1) * n // n_stretches)


def digits_of(largest: int) -> tuple[int, int]:
    """The number of digits for sorting numbers up to `largest`, and the bits of each: as few digits as `DIGIT_BITS`
    allows."""
    n_bits = largest.bit_length()
    n_digits = -(-n_bits // DIGIT_BITS)
    return n_digits, -(-n_bits // n_digits) if n_digits else 0


def stable_order(keys: Array, largest: int) -> Array:
    """u32[n]: the order of rows by key; rows with equal keys keep their order.

    Parameters: `keys` u32[n] or u64[n], n <= MAX_ROWS; `largest` is their upper bound.
    """
    n_digits, width = digits_of(largest)
    source = NumberedKeys(keys, np.empty(len(keys), ROW))
    if not n_digits or not len(keys):
        in_stretches(len(keys), _number, source.row)
        return source.row
    counts = np.empty((stretches_of(len(keys)), 1 << width), np.int64)
    target, numbered = NumberedKeys(np.empty_like(keys), np.empty(len(keys), ROW)), False
    for shift in range(0, n_digits * width, width):
        in_stretches(len(keys), _count_digits, source.key, np.uint64(shift), counts)
        if first_places(counts, len(keys)):
            continue
        in_stretches(len(keys), _distribute, source, numbered, np.uint64(shift), counts, target)
        spare = source if numbered else NumberedKeys(np.empty_like(keys), source.row)  # the caller's keys must not change
        source, target, numbered = target, spare, True
    if not numbered:
        in_stretches(len(keys), _number, source.row)
    return source.row


@jit
def _number(stretch: int, n_stretches: int, order: Array) -> None:
    """Write 0, 1, 2, ... to `order`."""
    for i in stretch_of(len(order), stretch, n_stretches):
        order[i] = i


@jit
def _count_digits(stretch: int, n_stretches: int, keys: Array, shift: np.uint64, counts: Array) -> None:
    """Fill `counts` i64[n_stretches, n_digits] with the number of occurrences of each digit in each stretch of the keys."""
    n, n_digits = len(keys), counts.shape[1]
    mask = np.uint64(n_digits - 1)
    for digit in range(n_digits):
        counts[stretch, digit] = 0
    for i in stretch_of(n, stretch, n_stretches):
        counts[stretch, np.int64((np.uint64(keys[i]) >> shift) & mask)] += 1


@jit
def first_places(counts: Array, n: int) -> bool:
    """Replace counts by the first place of each digit of each stretch.  Returns True if all keys have the same digit."""
    n_stretches, n_digits = counts.shape
    place = 0
    for digit in range(n_digits):
        before = place
        for stretch in range(n_stretches):
            count = counts[stretch, digit]
            counts[stretch, digit] = place
            place += count
        if place - before == n:
            return True
    return False


@jit
def _distribute(
    stretch: int,
    n_stretches: int,
    source: NumberedKeys,
    numbered: bool,
    shift: np.uint64,
    places: Array,
    target: NumberedKeys,
) -> None:
    """Copy every key and its row (or, if not `numbered`, its position) to the next place of its digit in `target`."""
    keys, rows, target_keys, target_rows = source.key, source.row, target.key, target.row
    n, n_digits = len(keys), places.shape[1]
    mask = np.uint64(n_digits - 1)
    for i in stretch_of(n, stretch, n_stretches):
        digit = np.int64((np.uint64(keys[i]) >> shift) & mask)
        place = places[stretch, digit]
        places[stretch, digit] = place + 1
        target_keys[place] = keys[i]
        target_rows[place] = rows[i] if numbered else i


def running_sum(sizes: Array, start: int = 0) -> Array:
    """i64[n + 1]: the offsets of lists of these sizes that are stored without gaps from `start` on."""
    offsets = np.empty(len(sizes) + 1, np.int64)
    before = np.full(stretches_of(len(sizes)) + 1, start, np.int64)
    in_stretches(len(sizes), _sum_stretches, sizes, before)
    in_stretches(len(sizes), _sum_within, sizes, np.cumsum(before), offsets)
    return offsets


@jit
def _sum_stretches(stretch: int, n_stretches: int, sizes: Array, before: Array) -> None:
    """Sum the sizes of every stretch."""
    n = len(sizes)
    total = np.int64(0)
    for i in stretch_of(n, stretch, n_stretches):
        total += np.int64(sizes[i])
    before[stretch + 1] = total


@jit
def _sum_within(stretch: int, n_stretches: int, sizes: Array, before: Array, offsets: Array) -> None:
    """Compute the running sums within every stretch, starting from the sum of all before it."""
    n = len(sizes)
    offsets[0] = before[0]
    total = before[stretch]
    for i in stretch_of(n, stretch, n_stretches):
        total += np.int64(sizes[i])
        offsets[i + 1] = total


def find_bounds(owner: Array, bounds: Array) -> None:
    """Fill bounds[n_owners + 1]: owner k has the rows bounds[k] to bounds[k + 1] of the ascending `owner`."""
    in_stretches(len(owner) + 1, _find_bounds, owner, bounds)


@jit
def _find_bounds(stretch: int, n_stretches: int, owner: Array, bounds: Array) -> None:
    """The first row of an owner writes its bound, and those of the preceding owners without rows."""
    n = len(owner)
    for i in stretch_of(n + 1, stretch, n_stretches):
        first = np.int64(owner[i - 1]) + 1 if i else np.int64(0)
        last = np.int64(owner[i]) if i < n else np.int64(len(bounds) - 1)
        for k in range(first, last + 1):
            bounds[k] = i


@nested
def owner_of(bounds: Array, row: int) -> int:
    """The last owner with a bound not above the row."""
    left, right = 0, len(bounds)
    while left < right:
        middle = (left + right) >> 1
        if bounds[middle] <= row:
            left = middle + 1
        else:
            right = middle
    return left - 1


def take(items: Array, order: Array) -> Array:
    """`items[order]` of a one-dimensional array."""
    taken = np.empty(len(order), items.dtype)
    in_stretches(len(order), _take, items, order, taken)
    return taken


@jit
def _take(stretch: int, n_stretches: int, items: Array, order: Array, taken: Array) -> None:
    """Fill `taken`."""
    for i in stretch_of(len(order), stretch, n_stretches):
        taken[i] = items[order[i]]


def take_rows(items: Array, order: Array) -> Array:
    """`items[order]` of a two-dimensional array."""
    taken = np.empty((len(order), items.shape[1]), items.dtype)
    in_stretches(len(order), _take_rows, items, order, taken)
    return taken


@jit
def _take_rows(stretch: int, n_stretches: int, items: Array, order: Array, taken: Array) -> None:
    """Fill `taken`."""
    for i in stretch_of(len(order), stretch, n_stretches):
        for column in range(items.shape[1]):
            taken[i, column] = items[order[i], column]
