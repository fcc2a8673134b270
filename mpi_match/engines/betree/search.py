"""Matching: the nodes that an event reaches, and the filters in their buckets, constraint by constraint."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.compute.array_pointers import line, rows, sheets
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.engines.betree.build import (
    NODE_FIRST,
    NODE_FIRST_ENTRY,
    NODE_LAST,
    NODE_LAST_ENTRY,
    NODE_LEFT,
    NODE_NAME,
    NODE_RIGHT,
    NODE_SPLIT,
)
from mpi_match.engines.event_by_event import NEXT_EVENT, PAIRS_BEFORE, PAIRS_COUNTED, event_at, is_in_area, lower_bound, note
from mpi_match.engines.keyed.index.filter_rows import ABSENT, IN, LISTED, NE, ROW_HI, ROW_KIND, ROW_LO, ROW_NAME

TREE_NODES, TREE_ENTRIES, TREE_FILTER, TREE_OFFSETS, TREE_RECORDS, TREE_INTERFACE, TREE_CIRCLE, TREE_CIRCLES = range(8)
TREE_SEGMENTS, TREE_SET_OFFSETS, TREE_SET_CODES, TREE_CODE_OF, TREE_STACK, TREE_DONE = range(8, 14)
TREE_STATE, TREE_PROGRESS = range(14, 16)
"""Arrays of the engine (`engine.BeTree`), by their number in its table of pointers; filters are in the tree's order."""
TREE_SERIAL, TREE_CANDIDATES = range(2)
"""Words of TREE_STATE: the number of the event; filters that were evaluated so far, for all events."""
NO_CODE = -1
"""The code of a name that the event does not have."""
NO_INTERVAL = LISTED | 1 << NE | 1 << ABSENT
"""Operators, as a set of bits, whose constraints are not satisfied by the codes from `lo` to `hi`."""


@nested
def _satisfies(code: Any, record: Any, table: Any) -> Any:
    """Does a code satisfy a constraint that is no plain interval?"""
    kind, name = np.int64(record[ROW_KIND]), np.int64(record[ROW_NAME])
    op = kind & 15
    if op == ABSENT or code == NO_CODE:
        return (op == ABSENT) == (code == NO_CODE)
    lists, codes = line(table, TREE_SET_OFFSETS, np.int64), line(table, TREE_SET_CODES, np.uint32)
    low, inside = np.int64(record[ROW_LO]), False
    if LISTED >> op & 1:
        at = lower_bound(codes, lists[low], lists[low + 1], code)
        inside = at < lists[low + 1] and codes[at] == code
        if op == IN:
            return inside
    else:
        inside = low == code
    segments = sheets(table, TREE_SEGMENTS, np.int64)
    return not inside and segments[kind >> 4, 0, name] <= code and code <= segments[kind >> 4, 1, name]


@nested
def _matches(f: Any, event: Any, table: Any) -> Any:
    """Does an event satisfy every constraint of a filter, and lie in its area?  It stops at the first that it does not."""
    offsets, records = line(table, TREE_OFFSETS, np.int64), rows(table, TREE_RECORDS, np.uint32)
    code_of = line(table, TREE_CODE_OF, np.int64)
    for r in range(offsets[f], offsets[f + 1]):
        code, op = code_of[records[r, ROW_NAME]], records[r, ROW_KIND] & 15
        if NO_INTERVAL >> op & 1:
            if not _satisfies(code, records[r], table):
                return False
        elif code < records[r, ROW_LO] or code > records[r, ROW_HI]:
            return False
    return is_in_area(f, event, line(table, TREE_CIRCLE, np.int32), rows(table, TREE_CIRCLES, np.float64))


@nested
def _look_in_bucket(node: Any, event: Any, filters: Any, table: Any, pairs: Any) -> Any:
    """Note the filters of a node's bucket that match; of an interface that matched already none is looked at."""
    filter_, interface = line(table, TREE_FILTER, np.uint32), line(table, TREE_INTERFACE, np.uint32)
    done, progress = line(table, TREE_DONE, np.int64), line(table, TREE_PROGRESS, np.int64)
    state = line(table, TREE_STATE, np.int64)
    serial, n_candidates = state[TREE_SERIAL], 0
    for f in range(node[NODE_FIRST], node[NODE_LAST]):
        if not filters and done[interface[f]] == serial:
            continue
        n_candidates += 1
        if _matches(f, event, table):
            done[interface[f]] = serial
            note(event, filter_[f] if filters else interface[f], progress, pairs)
    state[TREE_CANDIDATES] += n_candidates


@nested
def _push(stack: Any, n: Any, node: Any, names: Any, table: Any) -> Any:
    """Push the nodes that the event reaches from a node; returns how many nodes there are on the stack."""
    entries, code_of = rows(table, TREE_ENTRIES, np.int64), line(table, TREE_CODE_OF, np.int64)
    first, last = node[NODE_FIRST_ENTRY], node[NODE_LAST_ENTRY]
    if last - first <= 2 * len(names):
        for at in range(first, last):
            stack[n] = entries[at, 1]
            n += code_of[entries[at, 0]] != NO_CODE
    else:
        for name in names:
            at, end = first, last
            while at < end:
                middle = (at + end) >> 1
                if entries[middle, 0] < name:
                    at = middle + 1
                else:
                    end = middle
            if at < last and entries[at, 0] == name:
                stack[n] = entries[at, 1]
                n += 1
    if node[NODE_LEFT] >= 0 or node[NODE_RIGHT] >= 0:
        child = node[NODE_LEFT] if code_of[node[NODE_NAME]] <= node[NODE_SPLIT] else node[NODE_RIGHT]
        if child >= 0:
            stack[n] = child
            n += 1
    return n


@jit
def match_events(filters: Any, events: Any, table: Any, pairs: Any) -> None:
    """Match events from `progress` on (`EventByEvent.find`).

    Parameters: `filters` are they answered?; `events` EncodedEvents; `table` of pointers to the arrays that are numbered
    above; `pairs` u64, the room for answers.
    """
    nodes, code_of = rows(table, TREE_NODES, np.int64), line(table, TREE_CODE_OF, np.int64)
    state, progress = line(table, TREE_STATE, np.int64), line(table, TREE_PROGRESS, np.int64)
    stack, mask = line(table, TREE_STACK, np.int64), (np.int64(1) << events.shift) - 1
    for number in range(progress[NEXT_EVENT], len(events.bounds) - 1):
        state[TREE_SERIAL] += 1
        progress[PAIRS_COUNTED] = progress[PAIRS_BEFORE]
        attributes, event = event_at(events, number)
        packed = attributes.astype(np.int64)
        names = packed >> events.shift
        for i in range(len(names)):
            code_of[names[i]] = packed[i] & mask
        stack[0] = 0
        n = 1
        while n:
            node = nodes[stack[n - 1]]
            _look_in_bucket(node, event, filters, table, pairs)
            n = _push(stack, n - 1, node, names, table)
        for name in names:
            code_of[name] = NO_CODE
        if progress[PAIRS_COUNTED] > len(pairs):
            return
        progress[NEXT_EVENT], progress[PAIRS_BEFORE] = number + 1, progress[PAIRS_COUNTED]
