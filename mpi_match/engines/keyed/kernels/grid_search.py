"""The search of `keyed_cuda` in the grid: a warp looks up the keys of several events, up to 32.

After the trie has been walked, `grid_kernel` adds the answers under the keys of the cells that contain the event.  The data
structure is that of `hash_grid`.  An event of clcb has 14 keys on average; 11 of them are bucket keys of filters.  Their
blocks are 26 with 97 entries, and 7 of these may match.  Some events have twice as many blocks; an event among circles
without constraints has four.  So work is divided by keys, blocks and filters, not by events:

    level    a lane for each event; its cell is in shared memory.  All that follows is done before the next level
    keys     32 keys of any event: a lane for each
    homes    32 home blocks of these keys: a lane for each, which queues it
    scan     32 queued blocks: a lane for the probe length of each, which queues the next block if it says so; then eight
             lanes for each, one for each word, so that a block is read at once.  Entries that may match are queued
    verify   32 queued entries: a lane for the filter of each

Filters are verified as soon as there are 32, then blocks are scanned, and only if there are fewer than 32 of both, more are
queued.  A warp takes fewer events if there are too few for all multiprocessors (`events_a_warp`).

Answers are found by different lanes, in any order: masks are united, others are appended, then sorted and deduplicated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.engines.keyed.grid import geometry
from mpi_match.engines.keyed.grid.geometry import EVERYWHERE, LOW, MIDDLE, N_GROUPS
from mpi_match.engines.keyed.grid.hash_grid import BLOCK_WORDS, SLOT_FILTER, SLOT_PLACE, SLOT_WORDS
from mpi_match.engines.keyed.index import lookup
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.grid import GRID, GridArrays
from mpi_match.engines.keyed.kernels.trie_group import WIDTHS, register_verifier
from mpi_match.engines.keyed.kernels.trie_thread import (
    ARRAY_CLASSES,
    INTERFACES,
    MASKS,
    SORTED_ANSWERS,
    array_types,
    insert,
    thread_verifier,
)
from mpi_match.gpu.intrinsics import WARP, add, atomic_add, ballot, in_circle, lane, popcount, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, device_twin, kernel
from mpi_match.gpu.warp import owner, place_behind, running_sum, tidy

GRID_REGISTERS = 64
"""Registers of a thread."""
FULL_WARPS = 2**12
"""Warps that are enough for all multiprocessors of a GPU; a warp takes more than one event if there are more events."""
INSERTED = 16
"""Most answers of an event that one lane sorts."""
_LANE_BITS, _HOME_BIT, _LENGTH_BITS = np.uint64(8), np.uint64(1 << 8), np.uint64(BLOCK_WORDS.bit_length() - 1)
"""A queued block is block << 32 | blocks to be scanned after it << 9 | whether it is a home << 8 | the event's lane; a
queued entry is slot << 8 | the event's lane."""

_scale_of, _cell_of, _step_of = map(device_twin, (geometry.scale_of, geometry.cell_of, geometry.step_of))
_may_hold, _name_bit, _group_of = map(device_twin, (geometry.may_hold, geometry.name_bit, geometry.group_of))
_hash_of_cell, _home_of, _n_threes = map(device_twin, (geometry.hash_of_cell, geometry.home_of, geometry.n_threes))
_key_starts, _bucket_key_of = device_twin(lookup.key_starts), device_twin(lookup.bucket_key_of)
_ONE, _32, _u64 = np.uint64(1), np.uint64(32), np.uint64


def events_a_warp(n: int) -> int:
    """Events that a warp takes of n."""
    return max(1, min(WARP, n // FULL_WARPS))


@device_function
def _three(nth: Int, attributes: Array, first: Int, shift: Int) -> Int:
    """The name group of the nth triple, counted from 0, of an event's attributes from `first` on, which ascend."""
    c, n_with_c = np.int64(2), np.int64(1)  # triples whose last attribute is c
    while n_with_c <= nth:
        nth -= n_with_c
        n_with_c += c
        c += np.int64(1)
    b = np.int64(1)
    while b <= nth:
        nth -= b
        b += np.int64(1)
    a = nth
    return _group_of(
        np.int64(attributes[_u64(first + a)]) >> shift,
        np.int64(attributes[_u64(first + b)]) >> shift,
        np.int64(attributes[_u64(first + c)]) >> shift,
    )


def _verifier(width: int, packed: str, long: bool) -> Callable:
    """Make `verify(at, counts, event, index)`, as `lookup.verifier` does; `event` is attributes, the first one of the event,
    and their number.  Few attributes are copied to registers."""
    local_type = np.uint32 if packed == "uint32" else np.uint64
    if width not in WIDTHS:
        of_thread = thread_verifier(long)

        @device_function
        def verify_there(at: Any, counts: Any, event: Any, index: Any) -> Any:
            attributes, first, n = event
            return of_thread(at, counts, (attributes[first : first + n], n), index)

        return verify_there
    in_registers = register_verifier(width, packed, long)

    @device_function
    def verify(at: Any, counts: Any, event: Any, index: Any) -> Any:
        attributes, first, n = event
        mine, spare = cuda.local.array(width, local_type), first if n > 0 else np.int64(0)
        for a in range(width):
            mine[a] = attributes[_u64(first + a if a < n else spare)]
        return in_registers(at, counts, (mine, n), index)

    return verify


@lru_cache
def grid_kernel(width: int, packed: str, kind: int, long: bool) -> Kernel:  # noqa: C901  in parts it needs more registers
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), one kind of answer, and
    tables with or without `long` filters."""
    verify = _verifier(width, packed, long)
    n_warps = KEYED_BLOCK // WARP
    n_homes_queued, n_slots_queued = 2 * WARP, (BLOCK_WORDS + 1) * WARP
    all_events, all_homes, all_slots = n_warps * WARP, n_warps * n_homes_queued, n_warps * n_slots_queued

    @kernel(
        f"void({array_types(packed)}, float64[::1], {GRID}, int64, int64, int64)",
        max_registers=GRID_REGISTERS,
        named_tuples=(*ARRAY_CLASSES, GridArrays),
    )
    def grid_kernel_(  # noqa: C901
        events: Any, index: Any, given: Any, location: Any, grid: Any, n_events: int, room: int, n_each: int
    ) -> None:
        """Match `n_each` events per warp, at most one per lane, with the filters of the grid.

        index      its words are the checks of the grid's filters
        given      as in `trie_thread`, in (answers of the trie, or 0) and out
        location   f64[2n], or f64[1] if there are none

        Launch: one warp per `n_each` events.  Work: a block for each level, bucket key of the event and sub-bucket; a slot
        and its checks for each entry that may match.
        """
        shared_first = cuda.shared.array(all_events, np.uint32)
        shared_sizes = cuda.shared.array(all_events, np.uint32)
        shared_cells = cuda.shared.array(all_events, np.uint64)
        shared_points = cuda.shared.array(all_events, np.uint32)
        shared_found = cuda.shared.array(all_events, np.uint64)
        shared_homes = cuda.shared.array(all_homes, np.uint64)
        shared_slots = cuda.shared.array(all_slots, np.uint64)
        own, thread = np.uint32(lane()), np.uint32(cuda.threadIdx.x)
        warp = np.uint32(thread // np.uint32(WARP))
        first_number = (np.int64(cuda.blockIdx.x) * n_warps + np.int64(warp)) * n_each
        if first_number >= n_events:
            return
        my_events, my_homes, my_slots = (
            np.uint32(warp * WARP),
            np.uint32(warp * n_homes_queued),
            np.uint32(warp * n_slots_queued),
        )
        offsets, attributes = events
        blocks, records, circles, sub_buckets, levels = grid
        mask = np.uint64(blocks.size // BLOCK_WORDS - 1)
        starts = _key_starts(index)
        n_virtual, codes, shift = starts
        no_key = n_virtual + np.int64(index.t32[_u64(codes + n_virtual)])
        has_groups = sub_buckets.size > no_key + 1
        # enter
        number = first_number + np.int64(own)
        is_event = np.int64(own) < n_each and number < n_events
        x, y, n_keys, absent = np.nan, np.nan, np.int64(0), np.int64(255)
        if is_event:
            first = np.int64(np.uint32(offsets[_u64(number)] - offsets[0]))
            n = np.int64(np.uint32(offsets[_u64(number + 1)] - offsets[0])) - first
            for a in range(n):
                absent &= ~np.int64(_name_bit(np.int64(attributes[_u64(first + a)]) >> shift))
            n_keys = 2 * n + 1 + (_n_threes(n) if has_groups else np.int64(0))
            shared_first[np.uint32(my_events + own)], shared_sizes[np.uint32(my_events + own)] = first, n
            shared_found[np.uint32(my_events + own)] = given.found[_u64(number)]
            if location.size > 1:
                x, y = location[_u64(2 * number)], location[_u64(2 * number + 1)]
        nth, n_queued, n_waiting = np.int64(0), np.uint32(0), np.uint32(0)
        keys_before, key_end, at, n_all = np.int32(0), np.int32(0), np.int64(0), np.int64(0)  # keys of the level
        key_of_event, before, end, begin, n_homes = np.int64(0), np.int32(0), np.int32(0), np.int64(0), np.int64(0)
        while True:
            sync_warp()
            while n_queued < WARP:
                if begin < n_homes:  # the next home blocks of these keys
                    item = begin + np.int64(own)
                    which = owner(end, item)
                    theirs, sub_bucket = shuffle(key_of_event, which), item - np.int64(shuffle(before, which))
                    if item < n_homes:
                        event = np.uint32(theirs & 255)
                        home = _home_of(shared_cells[np.uint32(my_events + event)], theirs >> 8, sub_bucket, mask)
                        queued = np.uint64(home) << _32 | _HOME_BIT | np.uint64(event)
                        shared_homes[np.uint32(my_homes + n_queued + own)] = queued
                    n_queued = np.uint32(np.int64(n_queued) + min(n_homes - begin, np.int64(WARP)))
                    begin += np.int64(WARP)
                elif at < n_all:  # the next keys of the level
                    place = at + np.int64(own)
                    whose = np.int64(owner(key_end, place))
                    turn = place - np.int64(shuffle(keys_before, whose))
                    key, n_blocks = no_key, np.int32(0)
                    if place < n_all:
                        first = np.int64(shared_first[np.uint32(my_events + whose)])
                        n = np.int64(shared_sizes[np.uint32(my_events + whose)])
                        if turn < 2 * n:
                            packed_attribute = np.int64(attributes[_u64(first + (turn >> 1))])
                            key = _bucket_key_of(packed_attribute, turn & 1, starts, index)
                        elif turn > 2 * n:
                            three = turn - 2 * n - 1
                            key += 1 + (three if _n_threes(n) == N_GROUPS else _three(three, attributes, first, shift))
                        n_blocks = np.int32((np.int64(1) << np.int64(sub_buckets[_u64(key)])) >> 1)
                    key_of_event, end = key << 8 | whose, running_sum(n_blocks)
                    before = np.int32(end - n_blocks)
                    begin, n_homes = np.int64(0), np.int64(shuffle(end, WARP - 1))
                    at += np.int64(WARP)
                elif n_queued == 0 and nth < levels.size:  # the next level
                    level = levels[_u64(nth)]
                    nth += 1
                    column, row, step_x, step_y = np.int64(0), np.int64(0), np.int64(MIDDLE), np.int64(MIDDLE)
                    if level != EVERYWHERE:
                        scale = _scale_of(level)
                        column, row = _cell_of(x, scale), _cell_of(y, scale)
                        if column >= 0 and row >= 0:
                            step_x, step_y = _step_of(x, scale, column), _step_of(y, scale, row)
                    my_keys = np.int32(n_keys if column >= 0 and row >= 0 else 0)
                    shared_cells[np.uint32(my_events + own)] = _hash_of_cell(level, column, row)
                    shared_points[np.uint32(my_events + own)] = step_x | step_y << 8 | absent << 16
                    key_end = running_sum(my_keys)
                    keys_before = np.int32(key_end - my_keys)
                    at, n_all = np.int64(0), np.int64(shuffle(key_end, WARP - 1))
                    sync_warp()
                else:
                    break
            sync_warp()
            if n_waiting >= WARP or n_queued == 0:
                # verify filters
                if n_waiting == 0:
                    break
                taken = np.uint32(min(n_waiting, np.uint32(WARP)))
                n_waiting = np.uint32(n_waiting - taken)
                if own < taken:
                    waiting = shared_slots[np.uint32(my_slots + n_waiting + own)]
                    event, slot = np.uint32(waiting & _u64(255)), np.int64(waiting >> _LANE_BITS)
                    its_number, record = first_number + np.int64(event), 2 * SLOT_WORDS * slot
                    r, fits = circles[_u64(SLOT_WORDS * slot + 2)], True
                    if r >= 0.0:
                        fits = location.size > 1
                        if fits:
                            dx = add(location[_u64(2 * its_number)], -circles[_u64(SLOT_WORDS * slot)])
                            dy = add(location[_u64(2 * its_number + 1)], -circles[_u64(SLOT_WORDS * slot + 1)])
                            fits = in_circle(dx, dy, r)
                    if fits:
                        place = np.int64(records[_u64(record + SLOT_PLACE)])
                        interface, counts = np.int64(index.words[_u64(place)]), np.int64(index.words[_u64(place + 1)])
                        in_shared = np.uint32(my_events + event)
                        bit = _ONE << np.uint64(interface)
                        if kind == MASKS:
                            fits = (shared_found[in_shared] & bit) == 0
                        if fits:
                            about = attributes, np.int64(shared_first[in_shared]), np.int64(shared_sizes[in_shared])
                            fits = verify(place, counts, about, index)
                        if fits and kind == MASKS:
                            cuda.atomic.or_(shared_found, np.int64(in_shared), bit)
                        if fits and kind != MASKS:
                            answered = np.int64(atomic_add(shared_found, np.int64(in_shared), _ONE))
                            if answered < room:
                                answer = interface if kind == INTERFACES else np.int64(records[_u64(record + SLOT_FILTER)])
                                given.ids[_u64(its_number * room + answered)] = answer
                continue
            # scan blocks
            taken = np.uint32(min(n_queued, np.uint32(WARP)))
            n_queued = np.uint32(n_queued - taken)
            block, whose_block, left = np.int32(0), np.int32(0), np.int64(0)
            if own < taken:
                queued = shared_homes[np.uint32(my_homes + n_queued + own)]
                block, whose_block = np.int32(queued >> _32), np.int32(queued & _u64(255))
                left = np.int64(queued & LOW) >> 9
                if queued & _HOME_BIT:
                    left = np.int64(blocks[_u64(np.uint32(block)) << _LENGTH_BITS])
            entries = cuda.local.array(BLOCK_WORDS, np.uint64)
            for step in range(BLOCK_WORDS):
                word = np.uint32(step * WARP + own)
                source = np.uint32(word // BLOCK_WORDS)
                at_block = _u64(np.uint32(shuffle(block, source))) << _LENGTH_BITS
                is_entry = source < taken and word % BLOCK_WORDS != 0
                entries[step] = blocks[at_block | _u64(word % BLOCK_WORDS)] if is_entry else np.uint64(0)
            sync_warp()
            there = np.uint32(ballot(left > 0))
            if left > 0:
                next_block = (_u64(np.uint32(block)) + _ONE) & mask
                queued = next_block << _32 | np.uint64(left - 1) << np.uint64(9) | np.uint64(whose_block)
                shared_homes[place_behind(my_homes + n_queued, there)] = queued
            n_queued = np.uint32(np.int64(n_queued) + popcount(there))
            for step in range(BLOCK_WORDS):
                entry, fits = entries[step], False
                whose_entry = np.uint32(shuffle(whose_block, np.uint32((step * WARP + own) // BLOCK_WORDS)))
                if entry != 0:
                    point = np.int64(shared_points[np.uint32(my_events + whose_entry)])
                    fits = _may_hold(entry, point & 255, point >> 8 & 255, point >> 16)
                there = np.uint32(ballot(fits))
                if fits:
                    waiting = ((entry >> _32) - _ONE) << _LANE_BITS | np.uint64(whose_entry)
                    shared_slots[place_behind(my_slots + n_waiting, there)] = waiting
                n_waiting = np.uint32(np.int64(n_waiting) + popcount(there))
        # answers
        sync_warp()
        total = np.int64(0)
        if is_event:
            found = shared_found[np.uint32(my_events + own)]
            if kind != MASKS:
                total = np.int64(found)
            if 1 < total <= np.int64(INSERTED) and total <= room:
                begin_ids, kept = number * room, np.int64(0)
                for i in range(total):
                    kept = insert(given.ids, begin_ids, kept, room, np.int64(given.ids[_u64(begin_ids + i)]), True)
                found, total = np.uint64(kept), np.int64(0)
            given.found[_u64(number)] = found
        if kind != MASKS:
            sync_warp()
            many = np.uint32(ballot(total > 1))
            while many:
                of_lane = popcount(np.uint32((many & (~many + np.uint32(1))) - np.uint32(1)))
                tidy((given.found, given.ids, first_number + of_lane, room), SORTED_ANSWERS)
                many = np.uint32(many & (many - np.uint32(1)))

    return grid_kernel_
