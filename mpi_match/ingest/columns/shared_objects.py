"""Numbers the distinct objects of a column by their addresses.

Libraries that read files make one object of each distinct string, and their columns refer to it many times.  Such a column
is a dictionary of few entries, and finding that out takes less time than to look at the strings.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.memory import load_i64, load_u32, load_u64, store_i64, store_u32

_LEAST_ENTRIES = 2**12
"""Number of entries below which numbering objects saves little."""
_MOST_OBJECTS = 2**16
"""Distinct objects at most: few enough that the hash table stays in cache."""
_ENTRIES_OF_OBJECT = 8
"""Entries that refer to an object, at least and on average, in a column that is worth a dictionary."""
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def shared_objects(column: Array) -> tuple[Array, Array] | None:
    """For an array of objects, the number of each entry's object, i32[n], and the first entry that refers to each object,
    i64; None if many entries refer to objects of their own."""
    n = len(column)
    if n < _LEAST_ENTRIES:
        return None
    column = np.ascontiguousarray(column)
    most = min(n // _ENTRIES_OF_OBJECT, _MOST_OBJECTS)
    slots = np.zeros(1 << (2 * most).bit_length(), np.uint32)
    numbers, firsts = np.empty(n, np.int32), np.empty(most, np.int64)
    compile_numbering()
    arrays = (each.ctypes.data for each in (slots, numbers, firsts))
    n_objects = _number_objects(column.ctypes.data, n, most, len(slots) - 1, *arrays)
    return (numbers, firsts[:n_objects]) if n_objects <= most else None


@cache
def compile_numbering() -> None:
    """Compile the functions."""
    with compile_once("shared-objects", 1):
        _number_objects(0, 0, 0, 0, 0, 0, 0)


@nested
def _slot_of(address: np.uint64, column: int, mask: int, slots: int, firsts: int) -> np.int64:
    """The slot of an object, which is 0 if it is new."""
    slot = np.int64((address * _MIX) >> _SHIFT) & mask
    while True:
        found = load_u32(slots, slot)
        if found == 0 or load_u64(column, load_i64(firsts, found - 1)) == address:
            return slot
        slot = slot + 1 & mask


@jit
def _number_objects(column: int, n: int, most: int, mask: int, slots: int, numbers: int, firsts: int) -> int:
    """Number the n addresses of objects at `column`; see `shared_objects`.  Returns the number of objects, or a greater one
    than `most`."""
    n_objects = 0
    for i in range(n):
        slot = _slot_of(load_u64(column, i), column, mask, slots, firsts)
        if load_u32(slots, slot) == 0:
            if n_objects == most:
                return most + 1
            store_i64(firsts, n_objects, i)
            n_objects += 1
            store_u32(slots, slot, n_objects)
        store_u32(numbers, i, load_u32(slots, slot) - 1)
    return n_objects
