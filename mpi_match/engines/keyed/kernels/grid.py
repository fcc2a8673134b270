"""Changes to the grid of `keyed_cuda`: a thread for each change.

A change reads and writes only the entries of its own filter, so all changes of a batch are applied at once:

    note_kernel   every change writes its number to its slot; the highest, the last, remains
    step_kernel   the last change of every slot removes the filter from the blocks of its old keys, writes the slot, and
                  enters the filter into the blocks of its new keys

A word of a block is taken by compare-and-swap, so no two filters get the same one; which filter gets which word does not
matter.  No locks are used and no entry is moved.  `hash_grid` defines the data structure, and `grid_search` searches it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.grid import hash_grid
from mpi_match.engines.keyed.grid.geometry import LOW
from mpi_match.engines.keyed.grid.hash_grid import BLOCK_WORDS, KEEP, SLOT_WORDS, STEP_WORDS
from mpi_match.gpu.kernels import cuda, device_function, device_twin, kernel


@kernel("void(int64[::1], uint32[::1], uint32[::1], int64, int64)")
def put_kernel(where: Array, values: Array, words: Array, n: int, n_each: int) -> None:
    """Write `values` u32[n] to the items at indices `where` i64[n / n_each] of `words` u32; an item has `n_each` words.

    Launch: one thread per word.
    """
    number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if number < n:
        words[where[number // n_each] * n_each + number % n_each] = values[number]


@kernel("void(uint64[::1], uint32[::1], int64)")
def note_kernel(steps: Array, last: Array, n: int) -> None:
    """Record for each slot the last of the changes `steps` u64[n, 6] to it.

    last   u32[S], in: all 0, out: 1 + the number of the last change of the slot

    Launch: one thread per change.
    """
    number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if number < n:
        cuda.atomic.max(last, np.int64(steps[STEP_WORDS * number] & LOW), np.uint32(number + 1))


class GridState(NamedTuple):
    """The grid as an argument of changes: blocks u64, its slots as u32 and f64, the bucket key of each u64, sub-buckets
    u8."""

    blocks: Any
    records: Any
    circles: Any
    keys: Any
    sub_buckets: Any


class GridArrays(NamedTuple):
    """The grid as an argument of matching: blocks u64, its slots as u32 and f64, sub-buckets u8, the levels in use i64."""

    blocks: Any
    records: Any
    circles: Any
    sub_buckets: Any
    levels: Any


STATE = "GridState(uint64[::1], uint32[::1], float64[::1], uint64[::1], uint8[::1])"
GRID = "GridArrays(uint64[::1], uint32[::1], float64[::1], uint8[::1], int64[::1])"


@device_function
def _enter(blocks: Array, home: int, mask: np.uint64, entry: np.uint64) -> None:
    """Take the first free word at or after the home of an entry, as `hash_grid.enter` does."""
    probed, entered = np.int64(0), False
    while not entered:
        first = BLOCK_WORDS * np.int64(np.uint64(home + probed) & mask)
        for word in range(first + 1, first + BLOCK_WORDS):
            if not entered and blocks[word] == 0:
                entered = cuda.atomic.cas(blocks, word, np.uint64(0), entry) == 0
        if not entered:
            probed += 1
    if probed > 0:
        cuda.atomic.max(blocks, BLOCK_WORDS * home, np.uint64(probed))


_change = device_twin(hash_grid.change, enter=_enter)


@kernel(f"void(uint64[::1], uint32[::1], uint64[::1], {STATE}, int64)", named_tuples=[GridState])
def step_kernel(steps: Array, last: Array, slots: Array, grid: GridState, n: int) -> None:
    """Apply the last change of every slot.

    steps   u64[n, 6], see `hash_grid.steps_of`
    last    u32[S], in: from `note_kernel`, out: all 0
    slots   the grid's slots as u64

    Launch: one thread per change.  Work: reads and writes the slot, and a block for each cell left and each entered.
    """
    number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if number >= n:
        return
    at = STEP_WORDS * number
    slot = np.int64(steps[at] & LOW)
    if np.int64(last[slot]) != number + 1:
        return
    last[slot] = 0
    _change(slot, False, grid)
    keeps = (steps[at] & KEEP) != 0
    for word in range(3 if keeps else 4):
        slots[SLOT_WORDS * slot + word] = steps[at + 1 + word]
    if not keeps:
        grid.keys[slot] = steps[at + 5]
    _change(slot, True, grid)


@kernel(f"void({STATE}, int64)", named_tuples=[GridState])
def enter_kernel(grid: GridState, n: int) -> None:
    """Enter the filters of the first n slots into empty blocks.  Launch: one thread per slot."""
    slot = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if slot < n:
        _change(np.int64(slot), True, grid)
