"""How `keyed` looks into the grid on a CPU: for each level in use, the blocks of the cell that the event is in.

`cpu_search` calls these for each event when it has walked the trie; they are put into it before it is compiled, as its own
functions are.
"""

from __future__ import annotations

import operator
from typing import Any

import numba
import numpy as np

from mpi_match.compute.circle import in_circle_of
from mpi_match.compute.compile_cache import inlined
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
from mpi_match.engines.keyed.index.layout import CODES, N_VIRTUAL, SHIFT

_in_circle = in_circle_of(numba.njit, operator.add, operator.mul)


@inlined
def enter_anchors(
    attributes: Any, first: Any, last: Any, t32: Any, t64: Any, stripes: Any, anchors: Any, thread: Any
) -> Any:
    """Put the features and groups of attributes[first:last] that are anchors into `anchors`, and nothing, if that is one.

    Returns how many those are, and the bits of the Bloom filter of names that no attribute has.
    """
    shift, codes, n_virtual = np.int64(t64[SHIFT]), np.int64(t64[CODES]), np.int64(t64[N_VIRTUAL])
    code_mask = (np.int64(1) << shift) - 1
    no_anchor = n_virtual + np.int64(t32[codes + n_virtual])
    anchors[thread, 0] = no_anchor
    n, absent = np.int64(stripes[no_anchor] > 0), np.int64(255)
    for place in range(first, last):
        packed = np.int64(attributes[place])
        name = packed >> shift
        absent &= ~np.int64(name_bit(name))
        for which in range(2):
            feature = name if which else n_virtual + np.int64(t32[codes + name]) + (packed & code_mask)
            if stripes[feature] > 0:
                anchors[thread, n] = feature
                n += 1
    if len(stripes) > no_anchor + 1:
        if n_threes(last - first) == N_GROUPS:
            for anchor in range(no_anchor + 1, len(stripes)):
                if stripes[anchor] > 0:
                    anchors[thread, n] = anchor
                    n += 1
        else:
            for i in range(first, last):
                for j in range(i + 1, last):
                    for k in range(j + 1, last):
                        a, b, c = np.int64(attributes[i]), np.int64(attributes[j]), np.int64(attributes[k])
                        anchor = no_anchor + 1 + group_of(a >> shift, b >> shift, c >> shift)
                        if stripes[anchor] > 0:
                            anchors[thread, n] = anchor
                            n += 1
    return n, absent


@inlined
def scan_cell(
    level: Any,
    x: Any,
    y: Any,
    anchors: Any,
    n_anchors: Any,
    absent: Any,
    blocks: Any,
    circles: Any,
    records: Any,
    checks: Any,
    stripes: Any,
    t64: Any,
    by_name: Any,
    thread: Any,
    seen: Any,
    stamp: Any,
    filters: Any,
    ids: Any,
    before: Any,
    answer: Any,
    end: Any,
) -> Any:
    """Verify what stands in the blocks of one level's cell at (x, y) (NaN: nowhere) and the event's anchors.

    Answers are given as by `_scan`, those of the event from ids[before].
    """
    column, row, here_x, here_y = np.int64(0), np.int64(0), np.int64(MIDDLE), np.int64(MIDDLE)
    if level != EVERYWHERE:
        scale = scale_of(level)
        column, row = cell_of(x, scale), cell_of(y, scale)
        here_x, here_y = step_of(x, scale, column), step_of(y, scale, row)
    if column >= 0 and row >= 0:
        cell, mask = hash_of_cell(level, column, row), np.uint64(len(blocks) // BLOCK_WORDS - 1)
        for a in range(n_anchors):
            anchor = anchors[thread, a]
            for stripe in range(np.int64(1) << (np.int64(stripes[anchor]) - 1)):
                home = home_of(cell, anchor, stripe, mask)
                for reach in range(np.int64(blocks[BLOCK_WORDS * home]) + 1):
                    first = BLOCK_WORDS * np.int64(np.uint64(home + reach) & mask)
                    for word in range(first + 1, first + BLOCK_WORDS):
                        entry = blocks[word]
                        if entry == 0 or not may_hold(entry, here_x, here_y, absent):
                            continue
                        slot = np.int64(entry >> np.uint64(32)) - 1
                        at = np.int64(records[2 * SLOT_WORDS * slot + SLOT_PLACE])
                        interface = np.int64(checks[at])
                        if not filters and seen[thread, interface] == stamp:
                            continue
                        dx, dy = x - circles[SLOT_WORDS * slot], y - circles[SLOT_WORDS * slot + 1]
                        r = circles[SLOT_WORDS * slot + 2]
                        if not (r < 0.0 or _in_circle(dx, dy, r)) or not verify(at, t64, checks, by_name, thread):
                            continue
                        given = np.uint32(interface)
                        if filters:
                            given = records[2 * SLOT_WORDS * slot + SLOT_FILTER]
                            if _is_among(ids, before, min(answer, end), given):
                                continue
                        if answer < end:
                            ids[answer] = given
                        answer += 1
                        seen[thread, interface] = stamp
    return answer


@inlined
def _is_among(ids: Any, first: Any, last: Any, value: Any) -> Any:
    """Is a value in ids[first:last]?"""
    found = False
    for i in range(first, last):
        found = found or ids[i] == value
    return found
