"""Matching: the nodes that an event reaches, and the filters in their buckets, constraint by constraint."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.array_pointers import line, rows
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.lab.baselines.betree.build import (
    NODE_FIRST,
    NODE_FIRST_ENTRY,
    NODE_LAST,
    NODE_LAST_ENTRY,
    NODE_LEFT,
    NODE_NAME,
    NODE_RIGHT,
    NODE_SPLIT,
)
from mpi_match.lab.baselines.betree.coordinates import coordinate_code_of
from mpi_match.lab.baselines.candidate_check import (
    CANDIDATE_CODE_OF,
    N_CANDIDATE_ARRAYS,
    NO_CODE,
    forget_codes,
    is_match,
    note_codes,
)
from mpi_match.lab.baselines.event_by_event import NEXT_EVENT, PAIRS_BEFORE, PAIRS_COUNTED, EncodedEvents, event_at, note

coordinate_code: Any = nested(coordinate_code_of)

(
    TREE_NODES,
    TREE_ENTRIES,
    TREE_FILTER,
    TREE_INTERFACE,
    TREE_STACK,
    TREE_DONE,
    TREE_STATE,
    TREE_PROGRESS,
    TREE_PLANE,
) = range(N_CANDIDATE_ARRAYS, N_CANDIDATE_ARRAYS + 9)
"""Arrays of the engine (`engine.BeTree`), by their number in its table of pointers, behind those of `candidate_check`;
filters are in the tree's order."""
TREE_SERIAL, TREE_CANDIDATES = range(2)
"""Words of TREE_STATE: the number of the event; filters that were evaluated so far, for all events."""


@nested
def _look_in_bucket(node: Array, event: tuple, filters: bool, table: Array, pairs: Array) -> None:
    """Note the filters of a node's bucket that match; those of interfaces that already match are skipped."""
    filter_, interface = line(table, TREE_FILTER, np.uint32), line(table, TREE_INTERFACE, np.uint32)
    done, progress = line(table, TREE_DONE, np.int64), line(table, TREE_PROGRESS, np.int64)
    state = line(table, TREE_STATE, np.int64)
    serial, n_candidates = state[TREE_SERIAL], 0
    for f in range(node[NODE_FIRST], node[NODE_LAST]):
        if not filters and done[interface[f]] == serial:
            continue
        n_candidates += 1
        if is_match(f, event, table):
            done[interface[f]] = serial
            note(event, filter_[f] if filters else interface[f], progress, pairs)
    state[TREE_CANDIDATES] += n_candidates


@nested
def _push(stack: Array, n: int, node: Array, names: Array, table: Array) -> int:
    """Push the nodes that the event reaches from a node.  Returns the number of nodes on the stack."""
    entries, code_of = rows(table, TREE_ENTRIES, np.int64), line(table, CANDIDATE_CODE_OF, np.int64)
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


@nested
def _note_coordinates(names: Array, event: tuple, table: Array) -> Array:
    """Note the codes of an event's coordinates, which have the last two names; returns all names."""
    plane, code_of = rows(table, TREE_PLANE, np.float64), line(table, CANDIDATE_CODE_OF, np.int64)
    _, x, y = event
    if np.isnan(x) or np.isnan(y):
        return names
    more = np.empty(len(names) + 2, np.int64)
    more[:-2] = names
    more[-2], more[-1] = len(code_of) - 2, len(code_of) - 1
    code_of[more[-2]], code_of[more[-1]] = coordinate_code(x, plane[0]), coordinate_code(y, plane[1])
    return more


@jit
def match_events(filters: bool, events: EncodedEvents, table: Array, pairs: Array) -> None:
    """Match events from `progress` on (`EventByEvent.find`).

    Parameters: `filters` is whether filters, not interfaces, are answered; `events` EncodedEvents; `table` of pointers to
    the arrays that are numbered
    above; `pairs` u64, the room for answers.
    """
    nodes, stack = rows(table, TREE_NODES, np.int64), line(table, TREE_STACK, np.int64)
    state, progress = line(table, TREE_STATE, np.int64), line(table, TREE_PROGRESS, np.int64)
    for number in range(progress[NEXT_EVENT], len(events.bounds) - 1):
        state[TREE_SERIAL] += 1
        progress[PAIRS_COUNTED] = progress[PAIRS_BEFORE]
        attributes, event = event_at(events, number)
        names = note_codes(attributes, events.shift, table)
        if len(rows(table, TREE_PLANE, np.float64)):
            names = _note_coordinates(names, event, table)
        stack[0] = 0
        n = 1
        while n:
            node = nodes[stack[n - 1]]
            _look_in_bucket(node, event, filters, table, pairs)
            n = _push(stack, n - 1, node, names, table)
        forget_codes(names, table)
        if progress[PAIRS_COUNTED] > len(pairs):
            return
        progress[NEXT_EVENT], progress[PAIRS_BEFORE] = number + 1, progress[PAIRS_COUNTED]
