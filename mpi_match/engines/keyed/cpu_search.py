"""How `keyed` matches on a CPU: walk the trie with an event's features, verify the filters in the lists on the way.

For each event (`index.layout` has the structure):

    enter   its attributes go into `by_name`, so that a check is one load and two comparisons; its features become two
            words of bits, for the dense ones, and a short list, for the sparse ones
    walk    depth first over the nodes whose key the event has, with a stack of those that are still to visit
    scan    each node's list: verify what the key does not say
    cells   look into the grid's blocks for the cells that the event is in (`hash_grid`)

            visit                 scan      then the stack, next one first
            the root                        temp, city, temp=25, city=Milan
            temp                  f4        city, temp=25, city=Milan
            city                            temp=25, city=Milan
            temp=25                         city=Milan
            city=Milan                      city=Milan temp, city=Milan temp=25
            city=Milan temp       f2, f9    city=Milan temp=25
            city=Milan temp=25    f7

Frequent features come first because filters of few and weak constraints are filed there: an interface is likely to be
matched early.  After a match the scan goes on behind the interface's filters, and the walk stops when every interface is
matched.

A stack instead of nested loops makes keys of any length the same code, with one place where lists are scanned.  It cannot
overflow: a visited node leaves at most one entry for each feature of the event, and stands at most `depth` below the root.
An entry also says where the node's list is.  The walk mostly waits for memory, and the loads of a push wait together.

A block of events is matched by one compiled function.  A single block is given to it as it is, several are shared out among
threads by a parallel loop around it: to begin that takes longer than to match an event.  Arrays that stay from one batch to
the next come as addresses (`array_pointers`), so that calling takes less than matching too, and have no owners to count.

Finding out that an array has none still takes as long as matching when it is done at every call, so the functions here are
put into each other before they are compiled (`inline="always"`), and pass whole arrays and positions, however many arguments
that takes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mpi_match.compute.array_pointers import line, rows, sheets, unowned
from mpi_match.compute.compile_cache import inlined, jit, parallel_jit
from mpi_match.engines.keyed.cpu_grid_search import enter_anchors, scan_cell
from mpi_match.engines.keyed.cpu_verify import verify
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    BITS,
    CODES,
    DENSE,
    EMPTY,
    ENTRIES,
    EQUALITY,
    FILTERS,
    N_BITS,
    N_FEATURES,
    N_SLOTS,
    NODE_WORDS,
    NODES,
    PRESENCE_FEATURES,
    ROOT,
    SHIFT,
    SLOTS,
    SPARSE_CHILDREN,
    bit_of,
    hash_of,
)
from mpi_match.engines.keyed.index.postings import COUNT_BITS, HEADER, MAX_CHECKS

TASK_EVENTS = 512
"""Events a thread takes at a time."""

_ONE = np.uint64(1)
_NODE, _LIST, _LAST_FEATURE = range(3)
"""An entry of the stack: a node, its word in NODES that says where its list is, and the last feature of its key (-1 for the
root), which is set only where sparse children may follow."""

T32, T64, N_WORDS, BLOCKS, CIRCLES, RECORDS, CHECKS, STRIPES, LEVELS, BY_NAME, SPARSE, STACK, SEEN = range(13)
PLACES, COUNTS, IDS = range(SEEN + 1, SEEN + 4)
"""What is bound for `match_block`:

    t32, t64, words                       `KeyedIndex.views` and `.words`
    blocks, circles, records, stripes     `Grid`; its slots as f64 and as u32
    checks, levels                        `LiveFilters.words`; i64: the levels in use
    by_name, sparse, stack, seen          scratch, a row for each thread; between events `by_name` holds no attribute

and for `match_one_block` besides where its answers go, `places`, `counts` and `ids` of that.
"""

_hash_of, _bit_of = jit(hash_of), jit(bit_of)


@parallel_jit
def match_blocks(
    todo: Any,
    serial: Any,
    filters: Any,
    offsets: Any,
    attributes: Any,
    location: Any,
    bound: Any,
    places: Any,
    counts: Any,
    ids: Any,
) -> None:
    """Match several blocks of a batch, `todo` i64: their numbers.  All else is as for `match_block`."""
    for i in numba.prange(len(todo)):
        thread = numba.get_thread_id()
        match_block(todo[i], thread, serial, filters, offsets, attributes, location, bound, places, counts, ids)


@jit
def match_one_block(serial: Any, filters: Any, offsets: Any, attributes: Any, location: Any, bound: Any) -> Any:
    """Match a batch that is one block, with the first row of the scratch: `match_block` with answers to what is bound."""
    counts = line(bound, COUNTS, np.int64)[: len(offsets) - 1]
    places, ids = line(bound, PLACES, np.int64), line(bound, IDS, np.uint32)
    block = thread = np.int64(0)  # a bare 0 would be a type of its own, for which all is compiled once more
    return match_block(block, thread, serial, filters, offsets, attributes, location, bound, places, counts, ids)


@jit
def match_block(
    block: Any,
    thread: Any,
    serial: Any,
    filters: Any,
    offsets: Any,
    attributes: Any,
    location: Any,
    bound: Any,
    places: Any,
    counts: Any,
    ids: Any,
) -> Any:
    """Match a block of a batch; returns how many answers there are, those that do not fit among them.

    block     its number: it has the events from block * TASK_EVENTS on
    thread    which row of the scratch to use
    serial    a number for the batch's first event that no earlier event had: what `seen` is marked with
    filters   answers are filters, not interfaces
    offsets, attributes, location   the batch; one location, of NaN, when none matters
    bound     i64[n, 4]: the arrays from T32 to SEEN, as addresses (`Bound.table`); words have the type of attributes
    places    the answers go end to end to ids[places[block]] and on, those that fit before ids[places[block + 1]]
    counts    out: i64, how many answers each event of the batch has, always complete
    ids       out: u32
    """
    attributes, ids = unowned(attributes), unowned(ids)
    t32, t64, words = line(bound, T32, np.uint32), line(bound, T64, np.uint64), line(bound, N_WORDS, attributes.dtype)
    blocks, circles = line(bound, BLOCKS, np.uint64), line(bound, CIRCLES, np.float64)
    records, checks = line(bound, RECORDS, np.uint32), line(bound, CHECKS, words.dtype)
    stripes, levels = line(bound, STRIPES, np.uint8), line(bound, LEVELS, np.int64)
    by_name, sparse = rows(bound, BY_NAME, words.dtype), rows(bound, SPARSE, np.int64)
    stack, seen = sheets(bound, STACK, np.int64), rows(bound, SEEN, np.int64)
    answer, end, every = places[block], places[block + 1], np.int64(-1) if filters else np.int64(seen.shape[1])
    found = np.int64(0)
    for event in range(block * TASK_EVENTS, min((block + 1) * TASK_EVENTS, len(counts))):
        first = np.int64(np.uint32(offsets[event] - offsets[0]))
        last = np.int64(np.uint32(offsets[event + 1] - offsets[0]))
        n_sparse, bits0, bits1 = _enter(attributes, first, last, t32, t64, by_name, sparse, thread)
        before, stamp = answer, serial + event
        stack[thread, 0, _LAST_FEATURE] = -1
        top = _put(np.int64(t64[ROOT]), t64, stack, thread, 0)
        while top > 0 and answer - before != every:
            top -= 1
            answer = _scan(stack, top, t32, t64, words, by_name, thread, seen, stamp, filters, ids, answer, end)
            top = _push_children(stack, top, t32, t64, sparse, n_sparse, bits0, bits1, thread)
        if len(levels) > 0:
            n_anchors, absent = enter_anchors(attributes, first, last, t32, t64, stripes, sparse, thread)
            where = event if len(location) == len(counts) else 0
            for nth in range(len(levels)):
                if answer - before == every:
                    break
                answer = scan_cell(
                    levels[nth],
                    location[where, 0],
                    location[where, 1],
                    sparse,
                    n_anchors,
                    absent,
                    blocks,
                    circles,
                    records,
                    checks,
                    stripes,
                    t64,
                    by_name,
                    thread,
                    seen,
                    stamp,
                    filters,
                    ids,
                    before,
                    answer,
                    end,
                )
        _leave(attributes, first, last, t64, by_name, thread)
        counts[event] = answer - before
        found += answer - before
        answer = min(answer, end)
        _sort(ids, before, answer)
    return found


@inlined
def _enter(
    attributes: Any, first: Any, last: Any, t32: Any, t64: Any, by_name: Any, sparse: Any, thread: Any
) -> tuple[Any, Any, Any]:
    """Enter attributes[first:last] into `by_name` and their sparse features into `sparse`.

    Returns the number of sparse features, and the bits of the dense ones.
    """
    shift, most_frequent = np.int64(t64[SHIFT]), np.int64(t64[N_FEATURES]) - 1
    presence, codes, equality = np.int64(t64[PRESENCE_FEATURES]), np.int64(t64[CODES]), np.int64(t64[EQUALITY])
    code_mask = (np.int64(1) << shift) - 1
    n_sparse, bits0, bits1 = np.int64(0), np.uint64(0), np.uint64(0)
    for place in range(first, last):
        packed = np.int64(attributes[place])
        name = packed >> shift
        by_name[thread, name] = attributes[place]
        for which in range(2):
            feature = t32[presence + name] if which else t32[equality + t32[codes + name] + (packed & code_mask)]
            if feature == NONE:
                continue
            bit = most_frequent - np.int64(feature)
            if bit < 64:
                bits0 |= _ONE << np.uint64(bit)
            elif bit < DENSE:
                bits1 |= _ONE << np.uint64(bit - 64)
            else:
                sparse[thread, n_sparse] = feature
                n_sparse += 1
    return n_sparse, bits0, bits1


@inlined
def _leave(attributes: Any, first: Any, last: Any, t64: Any, by_name: Any, thread: Any) -> None:
    """Take attributes[first:last] out of `by_name`, whose last column is that of a name which no event has."""
    shift, nobody = np.int64(t64[SHIFT]), by_name.shape[1] - 1
    for place in range(first, last):
        by_name[thread, np.int64(attributes[place]) >> shift] = by_name[thread, nobody]


@inlined
def _push_children(
    stack: Any, top: Any, t32: Any, t64: Any, sparse: Any, n_sparse: Any, bits0: Any, bits1: Any, thread: Any
) -> Any:
    """Put the children that the event reaches where their node was, the most frequent last; returns the new `top`."""
    node, last_feature = stack[thread, top, _NODE], stack[thread, top, _LAST_FEATURE]
    at = np.int64(t64[NODES]) + NODE_WORDS * node
    row0, row1, children = t64[at], t64[at + 1], t64[at + 3]
    if children >> SPARSE_CHILDREN:
        for i in range(n_sparse):
            feature = sparse[thread, i]
            if feature <= last_feature:
                continue
            child = feature if last_feature < 0 else _probe(node, feature, t32, t64)
            if child >= 0:
                stack[thread, top, _LAST_FEATURE] = feature
                top = _put(child, t64, stack, thread, top)
    first = np.int64(children & np.uint64(NONE))
    top = _push_dense(row1, bits1, first, t64, stack, thread, top)
    return _push_dense(row0, bits0, first + _popcount(row1), t64, stack, thread, top)


@inlined
def _push_dense(row: Any, bits: Any, first: Any, t64: Any, stack: Any, thread: Any, top: Any) -> Any:
    """Put the children by the features of one half of a node's row; `first` is the one by its highest bit."""
    both = row & bits
    top += _popcount(both)
    at = top
    while both:
        low = both & (~both + _ONE)
        both ^= low
        at -= 1
        _put(first + _popcount(row & ~(low | (low - _ONE))), t64, stack, thread, at)
    return top


@inlined
def _put(node: Any, t64: Any, stack: Any, thread: Any, at: Any) -> Any:
    """Put a node into the stack; returns the place behind it."""
    stack[thread, at, _NODE] = node
    stack[thread, at, _LIST] = t64[np.int64(t64[NODES]) + NODE_WORDS * node + 2]
    return at + 1


@inlined
def _popcount(bits: Any) -> Any:
    """Number of bits set in a u64."""
    bits = bits - ((bits >> _ONE) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@inlined
def _probe(parent: Any, feature: Any, t32: Any, t64: Any) -> Any:
    """The child of a node by a sparse feature, or -1."""
    wanted = np.uint64(parent) << np.uint64(32) | np.uint64(feature)
    hashed = _hash_of(wanted)
    word, bit = _bit_of(hashed, t64[N_BITS])
    if not t32[t64[BITS] + word] & bit:
        return np.int64(-1)
    mask = t64[N_SLOTS] - _ONE
    slot = hashed & mask
    while True:
        at = t64[SLOTS] + slot * np.uint64(2)
        if t64[at] == wanted:
            return np.int64(t64[at + _ONE])
        if t64[at] == EMPTY:
            return np.int64(-1)
        slot = (slot + _ONE) & mask


@inlined
def _scan(
    stack: Any,
    top: Any,
    t32: Any,
    t64: Any,
    words: Any,
    by_name: Any,
    thread: Any,
    seen: Any,
    stamp: Any,
    filters: Any,
    ids: Any,
    answer: Any,
    end: Any,
) -> Any:
    """Verify the list of the node at stack[thread, top].

    Each new answer goes to ids[answer], if that is before `end`, and is counted.  Returns where the next one would go.
    """
    node, list_ = stack[thread, top, _NODE], stack[thread, top, _LIST]
    at, stop = list_ + 1, list_ + np.int64(words[list_]) if list_ >= 0 else np.int64(0)  # EMPTY is -1 here
    entry = np.int64(t64[FILTERS]) + t32[np.int64(t64[ENTRIES]) + node] if filters else np.int64(0)
    while at < stop:
        interface = np.int64(words[at])
        is_open = filters or seen[thread, interface] != stamp
        if is_open and verify(at, t64, words, by_name, thread):
            if answer < end:
                ids[answer] = t32[entry] if filters else interface
            answer += 1
            seen[thread, interface] = stamp
            is_open = filters
        if is_open:
            n = np.int64(words[at + 1])
            at += HEADER + 2 * ((n & MAX_CHECKS) + (n >> COUNT_BITS & MAX_CHECKS) + (n >> 2 * COUNT_BITS))
            entry += 1
        else:
            at += np.int64(words[at + 3])
    return answer


@inlined
def _sort(ids: Any, first: Any, last: Any) -> None:
    """Sort ids[first:last] in place."""
    if last - first > 64:
        ids[first:last].sort()
    else:
        for i in range(first + 1, last):
            value, at = ids[i], i
            while at > first and ids[at - 1] > value:
                ids[at] = ids[at - 1]
                at -= 1
            ids[at] = value
