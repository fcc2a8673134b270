"""Distinct byte strings in the order in which compiled code meets them, each with its number.

Compiled code asks for the number of a string by `number_of`, which adds a new one as long as there is room.  It cannot
allocate: without room it reports the pool, and its caller makes room (`StringPool.grow`) and asks again.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.memory import AddressTable, load_i64, load_u8, load_u64, store_i64, store_u8, store_u64
from mpi_match.ingest.codes.code_tables import NOT_FOUND, equal, mixed

POOL_FULL = -2

POOL_SLOTS, POOL_HASHES, POOLED_BYTES, POOL_BOUNDS, POOL_SIZES = range(5)
"""Places in the table of addresses of a pool with room for n strings:

    POOL_SLOTS     i64[a power of two, at least 2n]: open addressing by hash; a string's number, or NOT_FOUND
    POOL_HASHES    u64[n]
    POOLED_BYTES   u8[b]: the strings end to end
    POOL_BOUNDS    i64[n + 1]
    POOL_SIZES     i64: N_STRINGS, how many there are; MOST_STRINGS, n; MOST_STRING_BYTES, b; SLOT_MASK
"""
N_STRINGS, MOST_STRINGS, MOST_STRING_BYTES, SLOT_MASK = range(4)
_FIRST_STRINGS, _FIRST_BYTES = 2**10, 2**14


class StringPool:
    """A pool for compiled code; `address` is that of its table, and changes when it grows."""

    def __init__(self) -> None:
        self._arrays = _arrays(_FIRST_STRINGS, _FIRST_BYTES)
        self._bind()

    def _bind(self) -> None:
        self._table = AddressTable(self._arrays)
        self.address = self._table.address

    def __len__(self) -> int:
        return int(self._arrays[POOL_SIZES][N_STRINGS])

    def grow(self) -> None:
        """Make room for twice as many strings if there is none for another, else for four times as many bytes."""
        before, n = self._arrays, len(self)
        most_strings, most_bytes = before[POOL_SIZES][[MOST_STRINGS, MOST_STRING_BYTES]].tolist()
        filled = int(before[POOL_BOUNDS][n])
        if n == most_strings:
            self._arrays = _arrays(2 * most_strings, max(most_bytes, 4 * filled))
        else:
            self._arrays = _arrays(most_strings, 4 * most_bytes)
        for which, count in ((POOL_HASHES, n), (POOLED_BYTES, filled), (POOL_BOUNDS, n + 1)):
            self._arrays[which][:count] = before[which][:count]
        self._arrays[POOL_SIZES][N_STRINGS] = n
        self._bind()
        _fill_slots(self.address)

    def clear(self) -> None:
        """Remove all strings, but keep the room."""
        self._arrays[POOL_SLOTS][:] = NOT_FOUND
        self._arrays[POOL_SIZES][N_STRINGS] = 0

    def strings(self) -> Strings:
        """The strings by their numbers; a copy."""
        bounds = self._arrays[POOL_BOUNDS][: len(self) + 1].copy()
        return Strings(self._arrays[POOLED_BYTES][: bounds[-1]].copy(), bounds)


def _arrays(most_strings: int, most_bytes: int) -> list[Array]:
    n_slots = 2 * most_strings
    return [
        np.full(n_slots, NOT_FOUND, np.int64),
        np.empty(most_strings, np.uint64),
        np.empty(most_bytes, np.uint8),
        np.zeros(most_strings + 1, np.int64),
        np.array([0, most_strings, most_bytes, n_slots - 1], np.int64),
    ]


@jit
def _fill_slots(pool: int) -> None:
    slots, hashes, sizes = load_i64(pool, POOL_SLOTS), load_i64(pool, POOL_HASHES), load_i64(pool, POOL_SIZES)
    mask = load_u64(sizes, SLOT_MASK)
    for item in range(load_i64(sizes, N_STRINGS)):
        slot = load_u64(hashes, item) & mask
        while load_i64(slots, slot) != NOT_FOUND:
            slot = (slot + np.uint64(1)) & mask
        store_i64(slots, slot, item)


@nested
def number_of(pool: int, data: int, start: int, stop: int, hash_: np.uint64) -> int:
    """The number of data[start:stop], with `hash_` as its hash before `mixed`; POOL_FULL if it is new and does not fit."""
    slots, hashes, sizes = load_i64(pool, POOL_SLOTS), load_i64(pool, POOL_HASHES), load_i64(pool, POOL_SIZES)
    content, bounds, mask = load_i64(pool, POOLED_BYTES), load_i64(pool, POOL_BOUNDS), load_u64(sizes, SLOT_MASK)
    hash_ = mixed(hash_)
    slot = hash_ & mask
    while True:
        item = load_i64(slots, slot)
        if item == NOT_FOUND:
            break
        first, last = load_i64(bounds, item), load_i64(bounds, item + 1)
        if load_u64(hashes, item) == hash_ and equal(data, start, stop, content, first, last):
            return item
        slot = (slot + np.uint64(1)) & mask
    n = load_i64(sizes, N_STRINGS)
    filled = load_i64(bounds, n)
    end = filled + stop - start
    if n == load_i64(sizes, MOST_STRINGS) or end > load_i64(sizes, MOST_STRING_BYTES):
        return POOL_FULL
    for i in range(stop - start):
        store_u8(content, filled + i, load_u8(data, start + i))
    store_i64(bounds, n + 1, end)
    store_u64(hashes, n, hash_)
    store_i64(slots, slot, n)
    store_i64(sizes, N_STRINGS, n + 1)
    return n


@nested
def is_below(pool: int, one: int, other: int) -> bool:
    """Tells whether string number `one` is less than `other`, by bytes."""
    content, bounds = load_i64(pool, POOLED_BYTES), load_i64(pool, POOL_BOUNDS)
    first, second = load_i64(bounds, one), load_i64(bounds, other)
    n, m = load_i64(bounds, one + 1) - first, load_i64(bounds, other + 1) - second
    for k in range(min(n, m)):
        a, b = load_u8(content, first + k), load_u8(content, second + k)
        if a != b:
            return a < b
    return n < m
