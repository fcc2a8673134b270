"""The bitmap search of `keyed_cuda`: a warp for each event and block.

    enter      a lane for each column, then for each attribute: write the row of each column, and the event's attribute
               there, to shared memory
    summary    a lane for each column: find the lines of a block that have a bit in all rows
    lines      eight lanes for each of four such lines, a lane for each word: intersect the rows, four columns at a time,
               until none of the warp's words has a bit left
    candidates lanes queue the positions of their bits, and verify them as soon as there is one for every lane

All events' warps for one block come before those for the next, so they find its rows, 5 MB, in the GPU's cache.  Some events
have a hundred times as many answers as most; such an event has as many warps as there are blocks.  A check finds the event's
attribute by the column of its name; names without a column are searched among all attributes.

Answers are appended as they are found.  The same warp sorts them if it is the event's only one; otherwise `kernels.tidy`
does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.lines import LINE_WORDS
from mpi_match.engines.keyed.bitmap.bins import MOST_COLUMNS, bin_of, enter_masks
from mpi_match.engines.keyed.bitmap.rows import BLOCK_FILTERS, BLOCK_LINES, LINE_FILTERS
from mpi_match.engines.keyed.grid.geometry import IN_BITMAP, LOW
from mpi_match.engines.keyed.grid.hash_grid import SLOT_FILTER, SLOT_PLACE, SLOT_WORDS, STEP_WORDS
from mpi_match.engines.keyed.index.layout import SHIFT
from mpi_match.engines.keyed.index.lookup import verifier
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.grid import STATE, GridState
from mpi_match.engines.keyed.kernels.trie_thread import (
    ARRAY_CLASSES,
    INTERFACES,
    KEYED_REGISTERS,
    MASKS,
    SORTED_ANSWERS,
    array_types,
    lower_bound,
)
from mpi_match.gpu.intrinsics import WARP, ballot, lane, popcount, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, device_twin, kernel
from mpi_match.gpu.warp import append, drainer, put, tidy

_AT_ONCE = max(WARP // LINE_WORDS, 1)
"""Lines that a warp processes at once."""
_bin_of, _enter_masks = device_twin(bin_of), device_twin(enter_masks)
_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


class BitmapArrays(NamedTuple):
    """A bitmap as kernel arguments: the arrays of its bins and its rows.

    column i32[V], bounds i64[64 A], n_bins i64[A], first_row i64[A + 1]: `Bins`;  bits, summary u64: `BitRows`; places,
    filters u32[n]: `Bitmap`
    """

    column: Any
    bounds: Any
    n_bins: Any
    first_row: Any
    bits: Any
    summary: Any
    places: Any
    filters: Any


_BITMAP = "BitmapArrays(int32[::1], int64[::1], int64[::1], int64[::1], uint64[::1], uint64[::1], uint32[::1], uint32[::1])"


@device_function
def _in_all_lanes(bits: np.uint64) -> np.uint64:
    """The bits that are set in all lanes."""
    apart = 1
    while apart < WARP:
        bits &= np.uint64(shuffle(np.int64(bits), lane() ^ apart))
        apart *= 2
    return bits


@device_function
def _without_lowest(bits: np.uint64, n: int) -> np.uint64:
    """The bits without the lowest n."""
    for _ in range(n):
        if bits != 0:
            bits ^= bits & (~bits + _ONE)
    return bits


@device_function
def _lowest(bits: np.uint64) -> np.int64:
    """The number of the lowest bit."""
    return popcount((bits & (~bits + _ONE)) - _ONE)


@device_function
def _has(event: tuple, low: int, high: int) -> bool:
    """Tells whether the event has an attribute in [low, high]."""
    values, column, shift, attributes, first, last = event
    own = np.int64(column[np.int64(low) >> shift])
    if own >= 0:
        return low <= values[own] and values[own] <= high
    place = lower_bound(attributes, first, last, np.int64(low))
    return place < last and attributes[place] <= high


@device_function
def _least(event: tuple, low: int) -> np.int64:
    """The event's first attribute from `low` on, or -1."""
    _, _, _, attributes, first, last = event
    place = lower_bound(attributes, first, last, np.int64(low))
    return np.int64(attributes[place]) if place < last else np.int64(-1)


@device_function
def _enter(rows: Array, values: Array, absent: np.uint64, bitmap: BitmapArrays, event: tuple) -> None:
    """Write the row of each column, and the event's attribute there or `absent`."""
    _, column, shift, attributes, first, last = event
    for a in range(lane(), bitmap.n_bins.size, WARP):
        rows[a] = np.int32(bitmap.first_row[a] + bitmap.n_bins[a])
        values[a] = absent
    sync_warp()
    for i in range(first + lane(), last, WARP):
        packed = np.int64(attributes[i])
        own = np.int64(column[packed >> shift])
        if own >= 0:
            code = packed & ((np.int64(1) << shift) - 1)
            rows[own] = np.int32(bitmap.first_row[own] + _bin_of(bitmap.bounds, own, code))
            values[own] = attributes[i]
    sync_warp()


@device_function
def _lines_of(block: int, rows: Array, n_rows: int, bitmap: BitmapArrays) -> np.uint64:
    """The lines of a block that have a bit in all rows."""
    lines = _ALL
    for a in range(lane(), bitmap.n_bins.size, WARP):
        lines &= bitmap.summary[block * n_rows + rows[a]]
    return _in_all_lanes(lines)


@device_function
def _left_in(word: int, is_mine: bool, stride: int, rows: Array, bitmap: BitmapArrays) -> np.uint64:
    """The bits that all rows have in a word of each lane's line; consecutive rows are `stride` words apart."""
    bits, last, a = bitmap.bits, bitmap.n_bins.size - 1, np.int64(0)
    left = _ALL if is_mine else np.uint64(0)
    while a <= last and ballot(left != 0) != 0:
        if left != 0:
            row0, row1 = np.int64(rows[a]), np.int64(rows[min(a + 1, last)])
            row2, row3 = np.int64(rows[min(a + 2, last)]), np.int64(rows[min(a + 3, last)])
            left &= bits[word + row0 * stride] & bits[word + row1 * stride]
            left &= bits[word + row2 * stride] & bits[word + row3 * stride]
        a += 4
    return left


def _judge_of(kind: int, verify: Callable) -> Callable:
    """Make the function that verifies the filter at a position and records its answer; it returns `found` unchanged."""

    @device_function
    def judge(position: int, found: np.uint64, about: tuple) -> Int:
        event, index, bitmap, (masks, warp), answers = about
        at = np.int64(bitmap.places[position])
        if at == 0:
            return found
        interface = np.int64(index[2][at])
        if kind == MASKS and (masks[warp] >> np.uint64(interface) & _ONE) != 0:
            return found
        if not verify(at, np.int64(index[2][at + 1]), event, index):
            return found
        if kind == MASKS:
            cuda.atomic.or_(masks, warp, _ONE << np.uint64(interface))
        else:
            append(np.uint32(interface) if kind == INTERFACES else bitmap.filters[position], answers)
        return found

    return judge


@lru_cache
def bitmap_kernel(packed: str, kind: int, long: bool) -> Kernel:
    """The kernel for attributes of type `packed` ("uint32", "uint64"), one kind of answer, and tables with or without `long`
    filters."""
    local_type = np.uint32 if packed == "uint32" else np.uint64
    absent = local_type(np.iinfo(local_type).max)
    n_warps = KEYED_BLOCK // WARP
    n_queued = 2 * WARP
    all_columns, all_queued = n_warps * MOST_COLUMNS, n_warps * n_queued

    drain = drainer(_judge_of(kind, verifier(device_function, _has, _least, long=long)))

    @kernel(
        f"void({array_types(packed)}, {_BITMAP}, int64, int64, int64)",
        max_registers=KEYED_REGISTERS,
        named_tuples=(*ARRAY_CLASSES, BitmapArrays),
    )
    def bitmap_kernel_(
        events: tuple, index: Any, given: Any, bitmap: BitmapArrays, n_events: int, room: Any, n_masked: int
    ) -> None:
        """Match one event per warp with the filters of one block of a bitmap.

        index      its words are the checks of the bitmap's filters
        given      as in `trie_thread`, in (answers found before, or 0) and out; with several blocks, answers are in no order
        n_masked   number of interfaces if answers are masks (a warp that has them all stops), else 0

        Launch: one warp per event, (events, blocks).  Work: 8 bytes of each column's summary; up to 64 bytes of each column
        for each remaining line; the checks of each remaining position.
        """
        shared_rows = cuda.shared.array(all_columns, np.int32)
        shared_values = cuda.shared.array(all_columns, local_type)
        shared_queue = cuda.shared.array(all_queued, np.uint32)
        lengths = cuda.shared.array(n_warps, np.int32)
        masks = cuda.shared.array(n_warps, np.uint64)
        thread = np.int64(cuda.threadIdx.x)
        number = (np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread) // WARP
        if number >= n_events:
            return
        warp, block = thread // WARP, np.int64(cuda.blockIdx.y)
        rows = shared_rows[MOST_COLUMNS * warp : MOST_COLUMNS * (warp + 1)]
        values = shared_values[MOST_COLUMNS * warp : MOST_COLUMNS * (warp + 1)]
        queue = (shared_queue[n_queued * warp : n_queued * (warp + 1)], lengths, warp)
        full = ~np.uint64(0) >> np.uint64(64 - n_masked) if n_masked > 0 else _ALL
        if lane() == 0:
            lengths[warp] = 0
            masks[warp] = given.found[number] if kind == MASKS else np.uint64(0)
        (offsets, attributes), shift = events, np.int64(index.t64[SHIFT])
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        last = np.int64(np.uint32(offsets[number + 1] - offsets[0]))
        event = (values, bitmap.column, shift, attributes, first, last)
        _enter(rows, values, absent, bitmap, event)
        about = (event, index, bitmap, (masks, warp), (given.found, given.ids, number, room))
        n_rows = np.int64(bitmap.first_row[bitmap.n_bins.size])
        n_lines = bitmap.bits.size // (LINE_WORDS * n_rows)
        base = block * n_rows * BLOCK_LINES * LINE_WORDS
        stride = LINE_WORDS * min(n_lines - block * BLOCK_LINES, BLOCK_LINES)
        found, lines = np.uint64(0), _lines_of(block, rows, n_rows, bitmap)
        while lines != 0 and (kind != MASKS or masks[warp] != full):
            mine = _without_lowest(lines, lane() // LINE_WORDS)
            line = _lowest(mine) if mine != 0 else np.int64(0)
            for word in range(lane() % LINE_WORDS, LINE_WORDS, WARP):
                left = _left_in(base + LINE_WORDS * line + word, mine != 0, stride, rows, bitmap)
                position = (block * BLOCK_LINES + line) * LINE_FILTERS + 64 * word
                while ballot(left != 0) != 0:
                    if left != 0:
                        put(np.uint32(position + _lowest(left)), queue)
                        left = _without_lowest(left, 1)
                    found = drain(np.int64(WARP), queue, found, about)
            lines = _without_lowest(lines, _AT_ONCE)
        drain(np.int64(1), queue, found, about)
        if kind == MASKS:
            sync_warp()
            if lane() == 0 and masks[warp] != 0:
                cuda.atomic.or_(given.found, number, masks[warp])
        elif cuda.gridDim.y == 1:
            tidy((given.found, given.ids, number, room), SORTED_ANSWERS)

    return bitmap_kernel_


@lru_cache
def enter_kernel(packed: str) -> Kernel:
    """The kernel that writes the bits of slots, for checks of type `packed`."""

    @kernel(f"void(uint64[::1], {STATE}, {packed}[::1], {_BITMAP}, int64, int64)", named_tuples=[GridState, BitmapArrays])
    def enter_bits(steps: Array, grid: GridState, words: Array, bitmap: BitmapArrays, n: int, shift: int) -> None:
        """Write the bits of the filters in the slots of the changes `steps` u64[n, 6], which the grid has applied.

        words   the checks of the grid's filters

        Launch: one thread per change; all changes of one slot write the same.  Work: a word of each row.
        """
        number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if number >= n:
            return
        slot = np.int64(steps[STEP_WORDS * number] & LOW)
        if slot >= bitmap.places.size:
            return
        place = np.int64(grid.records[2 * SLOT_WORDS * slot + SLOT_PLACE])
        if (grid.keys[slot] & LOW) != IN_BITMAP or place == 0:
            bitmap.places[slot] = 0
            return
        masks = cuda.local.array(MOST_COLUMNS, np.uint64)
        _enter_masks(place, words, shift, (bitmap.column, bitmap.bounds, bitmap.n_bins, bitmap.first_row), masks)
        bitmap.places[slot] = place
        bitmap.filters[slot] = grid.records[2 * SLOT_WORDS * slot + SLOT_FILTER]
        block, line, n_columns = slot // BLOCK_FILTERS, slot % BLOCK_FILTERS // LINE_FILTERS, bitmap.n_bins.size
        n_rows, mine = np.int64(bitmap.first_row[n_columns]), _ONE << np.uint64(slot % 64)
        for a in range(n_columns):
            for nth in range(bitmap.n_bins[a] + 1):
                row = block * n_rows + bitmap.first_row[a] + nth
                word = row * BLOCK_LINES * LINE_WORDS + slot % BLOCK_FILTERS // 64
                if (masks[a] >> np.uint64(nth) & _ONE) != 0:
                    cuda.atomic.or_(bitmap.bits, word, mine)
                    cuda.atomic.or_(bitmap.summary, row, _ONE << np.uint64(line))
                else:
                    cuda.atomic.and_(bitmap.bits, word, ~mine)

    return enter_bits
