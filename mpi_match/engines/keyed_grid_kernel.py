"""The grid of `keyed` on a GPU: one thread per change, one thread per event.

A change reads and writes its own filter's entries, and no others, so all changes of a batch are made at once:

    note_kernel   every change notes its number at its slot; the highest, the last, stays
    step_kernel   the last change of every slot takes the filter out of the blocks of its old keys, writes the slot, and
                  enters it into those of its new ones

A word of a block is taken by compare-and-swap, so no two filters get the same one, and which of them gets which does not
matter.  Nothing is locked and nothing is moved aside.

grid_kernel matches: after `keyed_kernel` has walked the trie, it goes on with what that found, with the keys of the cells
that the event is in.  `keyed_grid` has the structure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.engines._cuda import Kernel, add, cuda, device_function, kernel, multiply
from mpi_match.engines.keyed_grid import (
    BLOCK_WORDS,
    EVERYWHERE,
    FILTER,
    KEEP,
    LOW,
    MIDDLE,
    PLACE,
    SLOT_WORDS,
    STEP_WORDS,
    scalars,
)
from mpi_match.engines.keyed_index import CODES, N_VIRTUAL, SHIFT
from mpi_match.engines.keyed_kernel import INTERFACES, MASKS, MAX_REGISTERS, insert, verify

_on_gpu = scalars(device_function)
_scale_of, _cell_of, _step_of, _span_of = _on_gpu.scale_of, _on_gpu.cell_of, _on_gpu.step_of, _on_gpu.span_of
_hash_of_cell, _home_of, _entry_of, _may_hold = _on_gpu.hash_of_cell, _on_gpu.home_of, _on_gpu.entry_of, _on_gpu.may_hold
_ONE, _32 = np.uint64(1), np.uint64(32)


@kernel("void(int64[::1], uint32[::1], int64)")
def mark_kernel(marks: Any, words: Any, n: Any) -> None:
    """Set the words (u32) at `marks` i64[n] to 1.  Launch: one thread for each."""
    number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if number < n:
        words[marks[number]] = 1


@kernel("void(uint64[::1], uint32[::1], int64)")
def note_kernel(steps: Any, last: Any, n: Any) -> None:
    """Note at each slot the last of the changes `steps` u64[n, 5] that is about it.

    last   u32[S], in: all 0, out: 1 + the number of the last change of the slot

    Launch: one thread per change.
    """
    number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if number < n:
        cuda.atomic.max(last, np.int64(steps[STEP_WORDS * number] & LOW), np.uint32(number + 1))


@kernel(
    "void(uint64[::1], uint32[::1], uint64[::1], uint64[::1], uint32[::1], float64[::1], uint32[::1], uint8[::1], int64)"
)
def step_kernel(
    steps: Any, last: Any, blocks: Any, slots: Any, records: Any, circles: Any, anchors: Any, stripes: Any, n: Any
) -> None:
    """Let the last of the changes of every slot take effect.

    steps                     u64[n, 5], see `keyed_grid.steps_of`
    last                      u32[S], in: from `note_kernel`, out: all 0
    blocks, anchors, stripes  the grid (`keyed_grid.Grid`)
    slots, records, circles   its slots as u64, u32 and f64

    Launch: one thread per change.  Work: a block to be read and written for each cell left and each entered, and the slot.
    """
    number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if number >= n:
        return
    at = STEP_WORDS * number
    slot = np.int64(steps[at] & LOW)
    if np.int64(last[slot]) != number + 1:
        return
    last[slot] = 0
    _change(slot, False, blocks, records, circles, anchors, stripes)
    anchor = np.uint32(steps[at] >> _32)
    for word in range(3 if anchor == KEEP else 4):
        slots[SLOT_WORDS * slot + word] = steps[at + 1 + word]
    if anchor != KEEP:
        anchors[slot] = anchor
    _change(slot, True, blocks, records, circles, anchors, stripes)


@kernel("void(uint64[::1], uint32[::1], float64[::1], uint32[::1], uint8[::1], int64)")
def enter_kernel(blocks: Any, records: Any, circles: Any, anchors: Any, stripes: Any, n: Any) -> None:
    """Enter the filters of the first n slots into empty blocks.  Launch: one thread per slot."""
    slot = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if slot < n:
        _change(np.int64(slot), True, blocks, records, circles, anchors, stripes)


@device_function
def _change(slot: Any, entering: Any, blocks: Any, records: Any, circles: Any, anchors: Any, stripes: Any) -> None:
    """Enter a slot's filter into the blocks of its keys, or take it out, if it is there."""
    if records[2 * SLOT_WORDS * slot + PLACE] == 0:
        return
    x, y, r = circles[SLOT_WORDS * slot], circles[SLOT_WORDS * slot + 1], circles[SLOT_WORDS * slot + 2]
    level, scale, column, row, columns, rows = _span_of(x, y, r)
    anchor = np.int64(anchors[slot])
    stripe = slot & ((np.int64(1) << (np.int64(stripes[anchor]) - 1)) - 1)
    mask = np.uint64(blocks.size // BLOCK_WORDS - 1)
    for i in range(columns):
        for j in range(rows):
            entry = _entry_of(slot, x, y, r, scale, column + i, row + j)
            home = _home_of(_hash_of_cell(level, column + i, row + j), anchor, stripe, mask)
            if entering:
                _enter(blocks, home, mask, entry)
            else:
                _leave(blocks, home, mask, entry)


@device_function
def _enter(blocks: Any, home: Any, mask: Any, entry: Any) -> None:
    """Take the first free word from the home of an entry on."""
    reach, entered = np.int64(0), False
    while not entered:
        first = BLOCK_WORDS * np.int64(np.uint64(home + reach) & mask)
        for word in range(first + 1, first + BLOCK_WORDS):
            if not entered and blocks[word] == 0:
                entered = cuda.atomic.cas(blocks, word, np.uint64(0), entry) == 0
        if not entered:
            reach += 1
    if reach > 0:
        cuda.atomic.max(blocks, BLOCK_WORDS * home, np.uint64(reach))


@device_function
def _leave(blocks: Any, home: Any, mask: Any, entry: Any) -> None:
    """Clear the word of an entry."""
    for reach in range(np.int64(blocks[BLOCK_WORDS * home]) + 1):
        first = BLOCK_WORDS * np.int64(np.uint64(home + reach) & mask)
        for word in range(first + 1, first + BLOCK_WORDS):
            if blocks[word] == entry:
                blocks[word] = 0
                return


@lru_cache
def grid_kernel(width: int, packed: str, kind: int) -> Kernel:
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), and one kind of answer."""
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_features = 2 * width + 1

    @device_function
    def look(entry: Any, found: Any, here: Any, event: Any, index: Any, grid: Any, slots: Any) -> Any:
        """Verify the filter of an entry; returns what is found then."""
        x, y, step_x, step_y = here
        records, circles = grid
        ids, first, room = slots
        if not _may_hold(entry, step_x, step_y):
            return found
        slot = np.int64(entry >> _32) - 1
        at = np.int64(records[2 * SLOT_WORDS * slot + PLACE])
        r = circles[SLOT_WORDS * slot + 2]
        if r >= 0.0:
            dx, dy = add(x, -circles[SLOT_WORDS * slot]), add(y, -circles[SLOT_WORDS * slot + 1])
            if not add(multiply(dx, dx), multiply(dy, dy)) <= multiply(r, r):
                return found
        interface, counts = np.int64(index[2][at]), np.int64(index[2][at + 1])
        bit = _ONE << np.uint64(interface)
        if (kind == MASKS and (found & bit) != np.uint64(0)) or not verify(at, counts, event, index):
            return found
        if kind == MASKS:
            return found | bit
        answer = interface if kind == INTERFACES else np.int64(records[2 * SLOT_WORDS * slot + FILTER])
        return np.uint64(insert(ids, first, np.int64(found), room, answer, True))

    @kernel(
        f"void(uint32[::1], {packed}[::1], float64[::1], uint32[::1], uint64[::1], uint64[::1], uint32[::1], float64[::1],"
        f" {packed}[::1], uint8[::1], int64[::1], uint64[::1], uint32[::1], int64, int64, int64, int64, int64)",
        max_registers=MAX_REGISTERS,
    )
    def grid_kernel_(
        offsets: Any,
        attributes: Any,
        location: Any,
        t32: Any,
        t64: Any,
        blocks: Any,
        records: Any,
        circles: Any,
        words: Any,
        stripes: Any,
        levels: Any,
        found_of: Any,
        ids: Any,
        n_events: Any,
        room: Any,
        n_masked: Any,
        n_levels: Any,
        goes_on: Any,
    ) -> None:
        """Match one event per thread with the filters of the grid.

        offsets, attributes        u32[n + 1], u32 or u64: the events (`EventBatch`)
        location                   f64[2n], or f64[1] when there are none
        t32, t64                   the index (`KeyedIndex.views`)
        blocks, records, circles   the grid's blocks u64, and its slots as u32 and f64;  stripes u8[P + 1]
        words                      the checks of its filters
        levels                     i64[n_levels]: levels in use
        found_of, ids              as in `keyed_kernel`, in (if `goes_on`) and out

        Launch: one thread per event.  Work: for each level, anchor of the event and stripe a block; for each circle there
        that may hold the event a slot and its checks.
        """
        number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if number >= n_events:
            return
        mine, anchors = cuda.local.array(width, local_type), cuda.local.array(n_features, np.uint32)
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        n = np.int64(np.uint32(offsets[number + 1] - offsets[0])) - first
        shift, codes, n_virtual = np.int64(t64[SHIFT]), np.int64(t64[CODES]), np.int64(t64[N_VIRTUAL])
        code_mask = (np.int64(1) << shift) - 1
        anchors[0] = stripes.size - 1
        n_anchors = np.int64(stripes[stripes.size - 1] > 0)
        for a in range(n):
            mine[a] = attributes[first + a]
            packed_ = np.int64(mine[a])
            name = packed_ >> shift
            for which in range(2):
                feature = name if which else n_virtual + np.int64(t32[codes + name]) + (packed_ & code_mask)
                if stripes[feature] > 0:
                    anchors[n_anchors] = feature
                    n_anchors += 1
        x = location[2 * number] if location.size > 1 else np.nan
        y = location[2 * number + 1] if location.size > 1 else np.nan
        event, index, grid, slots = (mine, n), (t32, t64, words), (records, circles), (ids, number * room, room)
        full = ~np.uint64(0) >> np.uint64(64 - n_masked) if n_masked > 0 else ~np.uint64(0)
        mask = np.uint64(blocks.size // BLOCK_WORDS - 1)
        found = found_of[number] if goes_on else np.uint64(0)
        for nth in range(n_levels):
            level = levels[nth]
            column, row, step_x, step_y = np.int64(0), np.int64(0), np.int64(MIDDLE), np.int64(MIDDLE)
            if level != EVERYWHERE:
                scale = _scale_of(level)
                column, row = _cell_of(x, scale), _cell_of(y, scale)
                if column < 0 or row < 0:
                    continue
                step_x, step_y = _step_of(x, scale, column), _step_of(y, scale, row)
            cell, here = _hash_of_cell(level, column, row), (x, y, step_x, step_y)
            for a in range(n_anchors):
                for stripe in range(np.int64(1) << (np.int64(stripes[anchors[a]]) - 1)):
                    if found == full:
                        break
                    home = _home_of(cell, anchors[a], stripe, mask)
                    for reach in range(np.int64(blocks[BLOCK_WORDS * home]) + 1):
                        at = BLOCK_WORDS * np.int64(np.uint64(home + reach) & mask)
                        for word in range(at + 1, at + BLOCK_WORDS):
                            if blocks[word] != 0:
                                found = look(blocks[word], found, here, event, index, grid, slots)
        found_of[number] = found

    return grid_kernel_
