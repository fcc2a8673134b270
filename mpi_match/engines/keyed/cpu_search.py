"""Matches events on a CPU: walks the trie with an event's features and verifies the filters in the lists on the way.

For each event (`index.layout` has the data structure):

    enter   its attributes go into `by_name`, so that a check is one load and two comparisons; its dense features become two
            words of bits, and its sparse ones a short list
    walk    depth first over the nodes whose key the event has, with a stack of nodes still to visit
    scan    each node's list: verify the checks that the key does not imply
    rows    intersect the rows of bits of the filters that no key excludes (`cpu_bitmap_search`)
    cells   search the grid's blocks for the cells that contain the event (`hash_grid`)

            visit                 scan      then the stack, next one first
            the root                        temp, city, temp=25, city=Milan
            temp                  f4        city, temp=25, city=Milan
            city                            temp=25, city=Milan
            temp=25                         city=Milan
            city=Milan                      city=Milan temp, city=Milan temp=25
            city=Milan temp       f2, f9    city=Milan temp=25
            city=Milan temp=25    f7

Frequent features come first, because the filters under them have few and weak constraints, so interfaces are likely to be
matched early.  After a match the scan skips the interface's other filters, and the walk stops when every interface is
matched.

With a stack instead of nested loops, the same code serves keys of any length, and lists are scanned in one place.  The stack
cannot overflow: a visited node leaves at most one entry for each feature of the event, and is at most `depth` below the
root.  An entry also holds the start of the node's list.  The walk is bound by memory latency, and the loads of one push
overlap.

One compiled function matches events in blocks, taking one block after another until none is left.  Several threads call it
for one batch, and one thread alone for a single block, because starting threads takes longer than matching an event.  Arrays
are passed as addresses (`array_pointers`), so that a call costs less than matching an event, and without owners whose
references would be counted.

Finding out that an array has no owner still takes as long as matching an event if it is done at every call.  So the
functions here are inlined before they are compiled (`inline="always"`).  Arrays that belong together are passed as tuples,
which disappear with the inlining:

    index    t32, t64, words: `KeyedIndex.views`, `.words`
    event    argument of `cpu_verify`: the event's attribute of each name, and the width of a code
    given    True if answers are filters; the thread's row of `seen`; the event's stamp in it; its row of `verified`
    span     start of the event's answers, index of the next one, end of the room
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.array_pointers import unowned
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import compile_once, inlined, jit, nested
from mpi_match.compute.sort import sort_ids
from mpi_match.compute.synchronization import atomic_add
from mpi_match.engines.keyed import search_arrays as arrays
from mpi_match.engines.keyed.cpu_bitmap_search import enter_rows, scan_bitmap
from mpi_match.engines.keyed.cpu_grid_search import enter_bucket_keys, scan_cell
from mpi_match.engines.keyed.cpu_verify import verify
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    ENTRIES,
    FEATURES,
    FILTERS,
    N_FEATURES,
    NODE_WORDS,
    NODES,
    ROOT,
    SHIFT,
    SPARSE_CHILDREN,
)
from mpi_match.engines.keyed.index.lookup import enter_features, entry_words, feature_starts, n_above, probe

TASK_EVENTS = 512
"""Events of a block, which a thread takes at a time."""

COMPARED_AT_ONCE = 8
"""Sparse features of an event that are compared with one in the time of a look-up by hash: a child of a node with few of
them is looked for among the features of an event that has many, as events have that meet many parts of conditions."""

_ONE = np.uint64(1)
_NODE, _LIST, _LAST_FEATURE = range(3)
"""Words of a stack entry: a node, the start of its list (its word in NODES), and the last feature of its key (-1 for the
root), which is set only if sparse children may follow."""


@jit
def match_blocks(
    thread: int, serial: int, filters: bool, offsets: Array, attributes: Array, location: Array, bound: Array
) -> Int:
    """Match the blocks of a batch that no other thread takes, until none is left; returns the number of their answers.

    thread                   number of the thread's row of the scratch
    serial                   a number for the batch's first event that no earlier event had; `seen` is marked with it
    filters                  True if answers are filters, False for interfaces
    offsets ... location     `EventBatch`; one location, NaN, if no filter has an area
    bound                    i64[n, 4]: `search_arrays` as addresses (`PointerTable.table`)
    """
    to_match, counts = arrays.blocks_to_match(bound), arrays.counts(bound)[: len(offsets) - 1]
    answers, batch = (arrays.places(bound), counts, arrays.ids(bound)), (offsets, attributes, location)
    found, is_alone, taken = np.int64(0), len(to_match) == 1, np.int64(0)
    if not is_alone:
        taken = atomic_add(arrays.n_taken(bound).ctypes.data, 1)
    while taken < len(to_match):
        found += _match_block(to_match[taken], thread, serial, filters, batch, bound, answers)
        taken = np.int64(1) if is_alone else atomic_add(arrays.n_taken(bound).ctypes.data, 1)
    return found


def compile_search(packed: str) -> None:
    """Compile `match_blocks` for attributes of the given packed type."""
    with compile_once(f"keyed_search-{packed}", 1) as missing:
        if missing:
            attributes = from_dtype(np.dtype(packed))[::1]
            batch = (types.uint32[::1], attributes, types.float64[:, ::1])
            match_blocks.compile((types.int64, types.int64, types.boolean, *batch, types.int64[:, ::1]))


@nested
def _match_block(block: int, thread: int, serial: int, filters: bool, batch: tuple, bound: Array, answers: tuple) -> Int:
    """Match a block of a batch; returns the number of answers, including those that do not fit.

    block     its number: it has the events from block * TASK_EVENTS on
    batch     offsets, attributes, location
    answers   places i64, counts i64 and ids u32: the answers are written, without gaps, to
              ids[places[block] : places[block + 1]] as far as they fit; counts, output: the number of answers of
              each event, always complete
    """
    offsets, attributes, location = batch[0], unowned(batch[1]), batch[2]
    places, counts, ids = answers
    t64, words = arrays.t64(bound), arrays.words(bound, attributes.dtype)
    index = (arrays.t32(bound), t64, words)
    blocks, circles = arrays.blocks(bound), arrays.circles(bound)
    records, checks = arrays.records(bound), arrays.checks(bound, words.dtype)
    sub_buckets, levels = arrays.sub_buckets(bound), arrays.levels(bound)
    grid = (blocks, circles, records, checks, sub_buckets)
    all_by_name = arrays.by_name(bound, words.dtype)
    by_name, sparse = all_by_name[thread], arrays.sparse(bound)[thread]
    stack, seen = arrays.stack(bound)[thread], arrays.seen(bound)[thread]
    bins, bitmap, places_of_rows = _bins_of(bound), _bitmap_of(bound, words), arrays.row_places(bound)[thread]
    later = _later_of(bound, checks)
    has_bitmap = len(bitmap[1]) + len(later[1]) > 0
    verified, marks = arrays.verified(bound)[thread], arrays.id_marks(bound)[thread]
    event, absent = (by_name, np.int64(t64[SHIFT])), by_name[len(by_name) - 1]
    answer, end, every = places[block], places[block + 1], np.int64(-1) if filters else np.int64(len(seen))
    found = np.int64(0)
    for number in range(block * TASK_EVENTS, min((block + 1) * TASK_EVENTS, len(counts))):
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        last = np.int64(np.uint32(offsets[number + 1] - offsets[0]))
        mine = attributes[first:last]
        n_sparse, bits0, bits1 = _enter(mine, by_name, sparse, index)
        before, given = answer, (filters, seen, serial + number, verified)
        stack[0, _LAST_FEATURE] = -1
        top = _put(np.int64(t64[ROOT]), index, stack, 0)
        while top > 0 and answer - before != every:
            top -= 1
            answer = _scan(stack[top, _NODE], stack[top, _LIST], event, index, given, ids, answer, end)
            top = _push_children(stack, top, sparse, n_sparse, bits0, bits1, index)
        if has_bitmap and answer - before != every:
            enter_rows(mine, event[1], bins, places_of_rows)
            for nth in range(2):
                if len(bitmap[1] if nth == 0 else later[1]) > 0 and answer - before != every:
                    reach, searched = (before, answer, end, every), bitmap if nth == 0 else later
                    answer = scan_bitmap(places_of_rows, len(bins[2]), searched, event, index[:2], given, ids, reach)
        if len(levels) > 0:
            n_keys, no_names = enter_bucket_keys(mine, sub_buckets, sparse, index)
            keys, where = (sparse, n_keys, no_names), number if len(location) == len(counts) else 0
            for nth in range(len(levels)):
                if answer - before == every:
                    break
                point, span = (location[where, 0], location[where, 1]), (before, answer, end)
                answer = scan_cell(levels[nth], point, keys, event, (index, grid), given, ids, span)
        for place in range(len(mine)):
            by_name[np.int64(mine[place]) >> event[1]] = absent
        counts[number] = answer - before
        found += answer - before
        answer = min(answer, end)
        sort_ids(ids, before, answer, marks)
    return found


@inlined
def _bins_of(bound: Array) -> tuple:
    """The arrays of `Bins`."""
    of_columns = arrays.n_bins(bound), arrays.first_row(bound)
    return arrays.column_of_name(bound), arrays.bin_bounds(bound), of_columns[0], of_columns[1]


@inlined
def _bitmap_of(bound: Array, words: Array) -> tuple:
    """The argument `bitmap` of `scan_bitmap`."""
    bits, summary, places = (
        arrays.position_bits(bound),
        arrays.position_summary(bound),
        arrays.positions(bound),
    )
    filters, interfaces = arrays.position_filters(bound), arrays.position_interfaces(bound)
    return bits, summary, places, filters, interfaces, arrays.position_words(bound, words.dtype)


@inlined
def _later_of(bound: Array, checks: tuple) -> tuple:
    """The argument `bitmap` of `scan_bitmap` for filters that were added later."""
    bits, summary = arrays.later_bits(bound), arrays.later_summary(bound)
    places, filters = arrays.later_positions(bound), arrays.later_filters(bound)
    return bits, summary, places, filters, arrays.later_interfaces(bound), checks


@inlined
def _enter(attributes: Array, by_name: Array, sparse: Array, index: tuple) -> tuple[Any, Any, Any]:
    """Write an event's attributes to `by_name` and their sparse features to `sparse`.

    Returns the number of sparse features, and the bits of the dense ones.
    """
    starts, most_frequent = feature_starts(index), np.int64(index[1][N_FEATURES]) - 1
    n_sparse, bits = np.int64(0), (np.uint64(0), np.uint64(0))
    for place in range(len(attributes)):
        packed = np.int64(attributes[place])
        by_name[packed >> starts[3]] = attributes[place]
        n_sparse, bits = enter_features(packed, sparse, n_sparse, bits, starts, most_frequent, index)
    return n_sparse, bits[0], bits[1]


@inlined
def _push_children(
    stack: Array, top: int, sparse: Array, n_sparse: int, bits0: np.uint64, bits1: np.uint64, index: tuple
) -> int:
    """Replace a node on the stack by those of its children that the event reaches, the most frequent last; returns the new
    `top`."""
    node, last_feature, (t32, t64, _) = stack[top, _NODE], stack[top, _LAST_FEATURE], index
    at = np.int64(t64[NODES]) + NODE_WORDS * node
    row0, row1, children = t64[at], t64[at + 1], t64[at + 3]
    first, n_children = np.int64(children & np.uint64(NONE)), np.int64(children >> SPARSE_CHILDREN)
    if last_feature >= 0 and n_children * COMPARED_AT_ONCE < n_sparse:
        features = np.int64(t64[FEATURES]) - np.int64(t64[N_FEATURES])
        for child in range(first - n_children, first):
            feature, has = np.int64(t32[features + child]), False
            for i in range(n_sparse):
                has |= sparse[i] == feature
            if has:
                stack[top, _LAST_FEATURE] = feature
                top = _put(child, index, stack, top)
    elif n_children:
        for i in range(n_sparse):
            feature = sparse[i]
            if feature <= last_feature:
                continue
            child = feature if last_feature < 0 else probe(node, feature, index)
            if child >= 0:
                stack[top, _LAST_FEATURE] = feature
                top = _put(child, index, stack, top)
    top = _push_dense(row1, bits1, first, index, stack, top)
    return _push_dense(row0, bits0, first + popcount(row1), index, stack, top)


@inlined
def _push_dense(row: np.uint64, bits: np.uint64, first: int, index: tuple, stack: Array, top: int) -> int:
    """Push the children for the features of one half of a node's row; `first` is the child for its highest bit."""
    both = row & bits
    top += popcount(both)
    at = top
    while both:
        low = both & (~both + _ONE)
        both ^= low
        at -= 1
        _put(first + n_above(row, low), index, stack, at)
    return top


@inlined
def _put(node: int, index: tuple, stack: Array, at: int) -> int:
    """Write a node to the stack; returns the index of the next entry."""
    stack[at, _NODE] = node
    stack[at, _LIST] = index[1][np.int64(index[1][NODES]) + NODE_WORDS * node + 2]
    return at + 1


@inlined
def _scan(node: Int, list_: Int, event: Int, index: tuple, given: tuple, ids: Array, answer: Int, end: Int) -> Int:
    """Verify the list of a node, which begins at word `list_`.

    Each new answer is written to ids[answer], if that is before `end`, and counted.  Returns the index of the next answer.
    """
    t32, t64, words = index
    filters, seen, stamp, verified = given
    at, stop = list_ + 1, list_ + np.int64(words[list_]) if list_ >= 0 else np.int64(0)  # EMPTY is -1 here
    entry = np.int64(t64[FILTERS]) + t32[np.int64(t64[ENTRIES]) + node] if filters else np.int64(0)
    while at < stop:
        interface, counts = np.int64(words[at]), np.int64(words[at + 1])
        is_open = filters or seen[interface] != stamp
        verified[0] += np.int64(is_open)
        if is_open and verify(at, counts, event, index):
            if answer < end:
                ids[answer] = t32[entry] if filters else interface
            answer += 1
            seen[interface] = stamp
            is_open = filters
        if is_open:
            at += entry_words(counts)
            entry += 1
        else:
            at += np.int64(words[at + 3])
    return answer
