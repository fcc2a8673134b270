"""The grid of `keyed_cuda`: a thread for each change, a warp for each event.

A change reads and writes only the entries of its own filter, so all changes of a batch are applied at once:

    note_kernel   every change writes its number to its slot; the highest, the last, remains
    step_kernel   the last change of every slot removes the filter from the blocks of its old keys, writes the slot, and
                  enters the filter into the blocks of its new keys

A word of a block is taken by compare-and-swap, so no two filters get the same one; which filter gets which word does not
matter.  No locks are used and no entry is moved.

`grid_kernel` matches: after `trie_thread` has walked the trie, it adds the answers under the keys of the cells that contain
the event.  `hash_grid` defines the data structure.  A warp takes an event, and its lanes first collect candidates, then
verify them: if every thread verified a candidate when it finds it, the other threads of its warp would wait.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.engines.keyed.grid import geometry, hash_grid
from mpi_match.engines.keyed.grid.geometry import EVERYWHERE, LOW, MIDDLE, N_GROUPS
from mpi_match.engines.keyed.grid.hash_grid import BLOCK_WORDS, KEEP, SLOT_FILTER, SLOT_PLACE, SLOT_WORDS, STEP_WORDS
from mpi_match.engines.keyed.index import lookup
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.trie_thread import (
    ARRAY_CLASSES,
    INTERFACES,
    KEYED_REGISTERS,
    MASKS,
    SORTED_ANSWERS,
    array_types,
    thread_verifier,
)
from mpi_match.gpu.intrinsics import WARP, add, ballot, in_circle, lane, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, device_twin, kernel
from mpi_match.gpu.warp import append, drainer, owner, put, running_sum, tidy

_scale_of, _cell_of, _step_of = map(device_twin, (geometry.scale_of, geometry.cell_of, geometry.step_of))
_may_hold, _name_bit, _group_of = map(device_twin, (geometry.may_hold, geometry.name_bit, geometry.group_of))
_hash_of_cell, _home_of, _n_threes = map(device_twin, (geometry.hash_of_cell, geometry.home_of, geometry.n_threes))
_key_starts, _bucket_key_of = device_twin(lookup.key_starts), device_twin(lookup.bucket_key_of)
_ONE, _32 = np.uint64(1), np.uint64(32)


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
_GRID = "GridArrays(uint64[::1], uint32[::1], float64[::1], uint8[::1], int64[::1])"


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


@device_function
def _three(nth: Int, mine: Array, shift: Int) -> Int:
    """The name group of the nth triple, counted from 0, of an event's attributes, which ascend."""
    c = np.int64(2)
    while (c + 1) * c * (c - 1) // 6 <= nth:
        c += 1
    nth -= c * (c - 1) * (c - 2) // 6
    b = np.int64(1)
    while (b + 1) * b // 2 <= nth:
        b += 1
    a = nth - b * (b - 1) // 2
    return _group_of(np.int64(mine[a]) >> shift, np.int64(mine[b]) >> shift, np.int64(mine[c]) >> shift)


@lru_cache
def grid_kernel(width: int, packed: str, kind: int, long: bool) -> Kernel:  # noqa: C901  four functions in one
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), one kind of answer, and
    tables with or without `long` filters."""
    verify = thread_verifier(long)
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_warps = KEYED_BLOCK // WARP
    n_queued = BLOCK_WORDS * WARP * n_warps

    @device_function
    def scan(home: int, here: Array, blocks: Array, queue: tuple) -> None:
        """Queue the slots of the entries that may contain the point, from the blocks of each lane's home (-1: none)."""
        mask = np.uint64(blocks.size // BLOCK_WORDS - 1)
        at = BLOCK_WORDS * np.int64(np.uint64(home) & mask)
        for word in range(at + 1, at + BLOCK_WORDS):
            entry = blocks[word] if home >= 0 else np.uint64(0)
            if entry != 0 and _may_hold(entry, here[2], here[3], here[4]):
                put(np.uint32((entry >> _32) - _ONE), queue)

    @device_function
    def judge(slot: int, found: np.uint64, about: tuple) -> np.uint64:
        """Verify the filter of a slot, and record its answer; returns the mask of this lane's answers."""
        here, event, index, (records, circles), answers = about
        at = np.int64(records[2 * SLOT_WORDS * slot + SLOT_PLACE])
        r = circles[SLOT_WORDS * slot + 2]
        if r >= 0.0:
            dx, dy = add(here[0], -circles[SLOT_WORDS * slot]), add(here[1], -circles[SLOT_WORDS * slot + 1])
            if not in_circle(dx, dy, r):
                return found
        interface, counts = np.int64(index[2][at]), np.int64(index[2][at + 1])
        bit = _ONE << np.uint64(interface)
        if (kind == MASKS and (found & bit) != np.uint64(0)) or not verify(at, counts, event, index):
            return found
        if kind == MASKS:
            return found | bit
        answer = np.uint32(interface) if kind == INTERFACES else records[2 * SLOT_WORDS * slot + SLOT_FILTER]
        append(answer, answers)
        return found

    drain = drainer(judge)

    @device_function
    def look(home: int, queue: tuple, found: np.uint64, blocks: Array, about: tuple) -> np.uint64:
        """Scan from the homes of all lanes, as many blocks as their probe lengths say."""
        length = np.int64(blocks[BLOCK_WORDS * home]) if home >= 0 else np.int64(-1)
        step = np.int64(0)
        while ballot(step <= length) != 0:
            scan(home + step if step <= length else np.int64(-1), about[0], blocks, queue)
            found = drain(np.int64(WARP), queue, found, about)
            step += 1
        return found

    @kernel(
        f"void({array_types(packed)}, float64[::1], {_GRID}, int64, int64, int64)",
        max_registers=KEYED_REGISTERS,
        named_tuples=(*ARRAY_CLASSES, GridArrays),
    )
    def grid_kernel_(
        events: tuple, index: Any, given: Any, location: Array, grid: GridState, n_events: int, room: Any, n_levels: int
    ) -> None:
        """Match one event per warp with the filters of the grid.

        index      its words are the checks of the grid's filters
        given      as in `trie_thread`, in (answers of the trie, or 0) and out
        location   f64[2n], or f64[1] if there are none

        Launch: one warp per event.  Every lane takes a feature or a name group of the event, and one of them the bucket key
        of filters without a feature; then the sub-buckets of all those keys are distributed to the lanes.  Slots that may
        match are queued in shared memory, and verified as soon as there is one for every lane.  Answers are appended as they
        are found, then sorted and deduplicated.  Work: a block for each level, bucket key of the event and sub-bucket; a
        slot and its checks for each entry that may match.
        """
        thread = np.int64(cuda.threadIdx.x)
        number = (np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread) // WARP
        queued = cuda.shared.array(n_queued, np.uint32)
        lengths = cuda.shared.array(n_warps, np.int32)
        if number >= n_events:
            return
        warp = thread // WARP
        queue = (queued[BLOCK_WORDS * WARP * warp : BLOCK_WORDS * WARP * (warp + 1)], lengths, warp)
        if lane() == 0:
            lengths[warp] = 0
        sync_warp()
        mine = cuda.local.array(width, local_type)
        offsets, attributes = events
        blocks, records, circles, sub_buckets, levels = grid
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        n = np.int64(np.uint32(offsets[number + 1] - offsets[0])) - first
        starts = _key_starts(index)
        n_virtual, codes, shift = starts
        no_key = n_virtual + np.int64(index.t32[codes + n_virtual])
        n_groups = _n_threes(n) if sub_buckets.size > no_key + 1 else np.int64(0)
        n_keys = 2 * n + 1 + n_groups
        absent = np.int64(255)
        for a in range(n):
            mine[a] = attributes[first + a]
            absent &= ~np.int64(_name_bit(np.int64(mine[a]) >> shift))
        x = location[2 * number] if location.size > 1 else np.nan
        y = location[2 * number + 1] if location.size > 1 else np.nan
        event, slots, answers = (mine, n), (records, circles), (given.found, given.ids, number, room)
        found, mask = np.uint64(0), np.uint64(blocks.size // BLOCK_WORDS - 1)
        about = ((x, y, np.int64(0), np.int64(0), absent), event, index, slots, answers)
        for nth in range(n_levels):
            level = levels[nth]
            column, row, step_x, step_y = np.int64(0), np.int64(0), np.int64(MIDDLE), np.int64(MIDDLE)
            if level != EVERYWHERE:
                scale = _scale_of(level)
                column, row = _cell_of(x, scale), _cell_of(y, scale)
                if column < 0 or row < 0:
                    continue
                step_x, step_y = _step_of(x, scale, column), _step_of(y, scale, row)
            cell = _hash_of_cell(level, column, row)
            about = ((x, y, step_x, step_y, absent), event, index, slots, answers)
            at = np.int64(0)
            while at < n_keys:
                turn, key = at + lane(), no_key
                if turn > 2 * n and turn < n_keys:
                    three = turn - 2 * n - 1
                    key += 1 + (three if n_groups == N_GROUPS else _three(three, mine, shift))
                elif turn < 2 * n:
                    key = _bucket_key_of(np.int64(mine[turn >> 1]), turn & 1, starts, index)
                spread = np.int64(sub_buckets[key]) if turn < n_keys else np.int64(0)
                end = running_sum((np.int64(1) << spread) >> 1)
                n_homes = shuffle(end, WARP - 1)
                begin = np.int64(0)
                while begin < n_homes:
                    place = begin + lane()
                    whose = owner(end, place)
                    theirs, sub_bucket = (
                        shuffle(key, whose),
                        place - (shuffle(end, whose) - ((np.int64(1) << shuffle(spread, whose)) >> 1)),
                    )
                    home = _home_of(cell, theirs, sub_bucket, mask) if place < n_homes else np.int64(-1)
                    found = look(home, queue, found, blocks, about)
                    begin += WARP
                at += WARP
        found = drain(np.int64(1), queue, found, about)
        if kind == MASKS:
            if found != np.uint64(0):
                cuda.atomic.or_(given.found, number, found)
            return
        tidy(answers, SORTED_ANSWERS)

    return grid_kernel_
