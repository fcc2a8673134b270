"""Searches the grid on a CPU: for each level in use, the blocks of the cell that contains the event.

`cpu_search` calls these functions for each event after it has walked the trie; like its own functions, they are inlined
before it is compiled.
"""

from __future__ import annotations

import operator

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.circle import in_circle_of
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.engines.keyed.cpu_verify import verify
from mpi_match.engines.keyed.grid.geometry import (
    EVERYWHERE,
    MIDDLE,
    N_GROUPS,
    cell_of,
    group_of,
    hash_of_cell,
    home_of,
    may_hold,
    n_threes,
    name_bit,
    scale_of,
    step_of,
)
from mpi_match.engines.keyed.grid.hash_grid import BLOCK_WORDS, SLOT_FILTER, SLOT_PLACE, SLOT_WORDS
from mpi_match.engines.keyed.index.lookup import bucket_key_of, key_starts

_in_circle = in_circle_of(nested, operator.add, operator.mul)
_n_threes = nested(n_threes)


@inlined
def enter_bucket_keys(attributes: Array, sub_buckets: Array, keys: Array, index: tuple) -> tuple:
    """Write to `keys` the event's features and name groups that are bucket keys, and the bucket key of no feature if it is
    in use.

    Returns the number of keys, and the bits of the Bloom filter that no attribute's name has.
    """
    starts = key_starts(index)
    n_virtual, codes, shift = starts
    no_key = n_virtual + np.int64(index[0][codes + n_virtual])
    keys[0] = no_key
    n, absent = np.int64(sub_buckets[no_key] > 0), np.int64(255)
    for place in range(len(attributes)):
        packed = np.int64(attributes[place])
        absent &= ~np.int64(name_bit(packed >> shift))
        for is_value in range(2):
            key = bucket_key_of(packed, not is_value, starts, index)
            if sub_buckets[key] > 0:
                keys[n] = key
                n += 1
    if len(sub_buckets) > no_key + 1:
        if _n_threes(len(attributes)) == N_GROUPS:
            for key in range(no_key + 1, len(sub_buckets)):
                if sub_buckets[key] > 0:
                    keys[n] = key
                    n += 1
        else:
            for i in range(len(attributes)):
                for j in range(i + 1, len(attributes)):
                    for k in range(j + 1, len(attributes)):
                        a, b, c = np.int64(attributes[i]), np.int64(attributes[j]), np.int64(attributes[k])
                        key = no_key + 1 + group_of(a >> shift, b >> shift, c >> shift)
                        if sub_buckets[key] > 0:
                            keys[n] = key
                            n += 1
    return n, absent


@inlined
def scan_cell(
    level: int, point: tuple, keys: tuple, event: tuple, structure: tuple, given: tuple, ids: Array, span: tuple
) -> int:
    """Verify the filters in the blocks of the cell at a point (x, y) on one level (NaN: nowhere), for the event's bucket
    keys.

    keys        result of `enter_bucket_keys`: the keys, their number, and the bits that no name has
    structure   `index` of the trie, and the grid: blocks u64, circles f64, records u32 (its slots), checks, sub-buckets u8
    span        start of the event's answers, index of the next one, end of the room

    Returns the index of the next answer.
    """
    (x, y), (key_of, n_keys, absent), (before, answer, end) = point, keys, span
    (index, (blocks, circles, records, checks, sub_buckets)), (filters, seen, stamp, verified) = structure, given
    column, row, here_x, here_y = np.int64(0), np.int64(0), np.int64(MIDDLE), np.int64(MIDDLE)
    if level != EVERYWHERE:
        scale = scale_of(level)
        column, row = cell_of(x, scale), cell_of(y, scale)
        here_x, here_y = step_of(x, scale, column), step_of(y, scale, row)
    if column >= 0 and row >= 0:
        cell, mask = hash_of_cell(level, column, row), np.uint64(len(blocks) // BLOCK_WORDS - 1)
        for a in range(n_keys):
            key = key_of[a]
            for sub_bucket in range(np.int64(1) << (np.int64(sub_buckets[key]) - 1)):
                home = home_of(cell, key, sub_bucket, mask)
                for probed in range(np.int64(blocks[BLOCK_WORDS * home]) + 1):
                    first = BLOCK_WORDS * np.int64(np.uint64(home + probed) & mask)
                    for word in range(first + 1, first + BLOCK_WORDS):
                        entry = blocks[word]
                        if entry == 0 or not may_hold(entry, here_x, here_y, absent):
                            continue
                        slot = np.int64(entry >> np.uint64(32)) - 1
                        at = np.int64(records[2 * SLOT_WORDS * slot + SLOT_PLACE])
                        interface, counts = np.int64(checks[at]), np.int64(checks[at + 1])
                        if not filters and seen[interface] == stamp:
                            continue
                        dx, dy = x - circles[SLOT_WORDS * slot], y - circles[SLOT_WORDS * slot + 1]
                        r = circles[SLOT_WORDS * slot + 2]
                        if not (r < 0.0 or _in_circle(dx, dy, r)):
                            continue
                        verified[0] += 1
                        if not verify(at, counts, event, (index[0], index[1], checks)):
                            continue
                        found = np.uint32(interface)
                        if filters:
                            found = records[2 * SLOT_WORDS * slot + SLOT_FILTER]
                            if _is_among(ids, before, min(answer, end), found):
                                continue
                        if answer < end:
                            ids[answer] = found
                        answer += 1
                        seen[interface] = stamp
    return answer


@inlined
def _is_among(ids: Array, first: int, last: int, value: int) -> bool:
    """Tells whether ids[first:last] contains a value."""
    found = False
    for i in range(first, last):
        found = found or ids[i] == value
    return found
