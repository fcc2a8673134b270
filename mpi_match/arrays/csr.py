"""Compressed sparse rows (CSR), and the few operations on flat arrays that the whole project uses.

A list of lists is stored as `offsets` i64[n + 1] and the concatenated items; list i is `items[offsets[i]:offsets[i + 1]]`.
"""

from __future__ import annotations

import operator
from typing import Any, Protocol, SupportsIndex

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int = int | np.integer
"""An integer of compiled code, where Python's are i64."""
DType = np.dtype[Any]


class NamedArrays(dict[str, Array]):
    """Arrays by name, as an `ArraySource`."""

    def array(self, name: str) -> Array:
        return self[name]


class ArraySource(Protocol):
    """Source of arrays by name: a file's reader, or shared memory."""

    def array(self, name: str) -> Array:
        """The array with this name."""
        ...

    def __contains__(self, name: str) -> bool:
        """Tells whether there is an array with this name."""
        ...


def offsets_of(lengths: Array) -> Array:
    """i64[n + 1] from the lengths of n lists."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def place_of(i: SupportsIndex, n: int, what: str) -> int:
    """Position of item `i` of `n`, counted from the end if `i` is negative.  Raises IndexError, whose message calls the item
    `what`."""
    at = operator.index(i)
    if not -n <= at < n:
        raise IndexError(f"{what} {at} of {n}")
    return at % n


def are_bounds(offsets: Array, total: int) -> bool:
    """Tells whether these are the offsets of consecutive lists with `total` items in all."""
    return len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == total and bool(np.all(offsets[:-1] <= offsets[1:]))


def first_rows(offsets: Array) -> Array:
    """bool[offsets[-1]]: marks the first item of each list."""
    first = np.zeros(int(offsets[-1]) + 1, bool)
    first[offsets] = True
    return first[:-1]


def ascends_within(offsets: Array, below_next: Array) -> bool:
    """Tells whether every list ascends, given `below_next`: for each item but the last, whether it is less than the next."""
    return bool(np.all(below_next | first_rows(offsets)[1:])) if len(below_next) else True


def owners(offsets: Array) -> Array:
    """i64[total]: the list to which every item belongs."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def take_ranges(starts: Array, lengths: Array) -> Array:
    """i64[sum(lengths)]: the positions starts[0], starts[0]+1, ..., then those of the second range, and so on."""
    lengths = np.asarray(lengths, np.int64)
    bounds = offsets_of(lengths)
    return np.arange(bounds[-1]) + np.repeat(np.asarray(starts, np.int64) - bounds[:-1], lengths)


def sums(items: Array, offsets: Array) -> Array:
    """Sum of each list, including empty ones; unsigned items wrap around, as the content hash of a filter requires."""
    running = np.zeros(len(items) + 1, items.dtype)
    np.cumsum(items, out=running[1:])
    return running[offsets[1:]] - running[offsets[:-1]]


ROOM = 4
"""Allocated length of an array with room, as a multiple of the length needed."""


def with_room(array: Array, n: int) -> Array:
    """The array followed by zeros, with space for at least `n` items and for several times as many later.

    The operating system allocates only pages that are written, so an array that will grow is allocated at its final length
    at once.  It is then never copied, which would take as long as matching thousands of events.
    """
    try:
        longer = np.zeros(ROOM * n, array.dtype)
    except MemoryError:  # the system does not overcommit memory
        longer = np.zeros(n + n // 4 + 1, array.dtype)
    longer[: len(array)] = array
    return longer


def places_in(ascending: Array, integers: int | tuple[int, ...]) -> Array:
    """Insertion points (left) of integers that the array's dtype can hold.

    `np.searchsorted` alone would convert the whole array, unless its dtype is the one that NumPy gives to the integers.
    """
    return np.asarray(np.searchsorted(ascending, np.array(integers, ascending.dtype)))


_UNSIGNED = tuple((2 ** (8 * dtype.itemsize), dtype) for dtype in map(np.dtype, (np.uint8, np.uint16, np.uint32)))


def smallest_unsigned(largest: int) -> np.dtype:
    """The narrowest of u8, u16 and u32 that holds `largest`."""
    for limit, dtype in _UNSIGNED:
        if largest < limit:
            return dtype
    raise OverflowError(f"{largest} does not fit in 32 bits")


def distinct(values: Array) -> Array:
    """The distinct values, ascending.  `np.unique` hashes integers, which takes 20 times as long for many different ones."""
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return np.asarray(ordered[is_new])
