"""Walks the trie with several events in turn, so that their cache misses overlap.

A node or a list is a cache line that is rarely in a cache, and an event needs one line after another.  So a thread takes a
*group* of events, and whatever it will visit is prefetched when it is found, and visited after everything found before:

    enter    the features of each event: dense ones become two words of bits, sparse ones a short list; the nodes of the
             single features wait at level 0
    walk     visit the nodes that wait at a level; their children wait at the next one, their lists in `lists`
    links    the lists of each event in the order in which they were found

A level has room for `NODES_WAITING` nodes and the children of one.  When that is taken, the levels below are walked before
the level goes on, so the room depends on the depth of the trie and on the widest event, never on the number of nodes.  A
child for a sparse feature is looked up by hash (`index.lookup`); the slots are prefetched too, and read when the level
pauses.

Frequent features come first, because the filters under them have few and weak constraints, so that interfaces are likely to
be matched early.  If a group finds more lists than fit, the walk begins again with half of its events.  The walk of one
event pauses instead, and its lists are scanned before it goes on.

Arrays that belong together are passed as tuples, see `cpu_search`:

    walked   the thread's rows of `members`, `sparse`, `waiting`, `levels`, `slots` and `lists`

    members  i64[event, 5]      an event's dense features, two words; its sparse features, from and to; its first list, or -1
    waiting  i64[level, ...]    two words for each node: event << 32 | node; the last feature of its key, -1 for a dense one
    levels   i64[level, 2]      the next node to visit at each level, and the end of those that wait
    slots    i64[...]           three words for each child to look up: parent << 32 | feature; its home slot; event << 32
    lists    i64[...]           three words for each list, from number 1 on: event << 32 | node; the list's first word; the
                                event's next list, or -1
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.lines import prefetch
from mpi_match.compute.vectors import lowest_bit
from mpi_match.engines.keyed import search_arrays as arrays
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    FEATURES,
    N_FEATURES,
    NODE_WORDS,
    NODES,
    ROOT,
    SLOTS,
    SPARSE_CHILDREN,
)
from mpi_match.engines.keyed.index.lookup import child_in, enter_features, feature_starts, home_slot, n_above

WALKED_TOGETHER = 32
"""Most events that are walked in turn."""
GROUP_ATTRIBUTES = 128
"""Most attributes of a group of several events."""
NODES_WAITING = 512
"""Nodes of a level that may wait before another node is visited."""
MOST_LISTS = 1024
"""Lists of a group that are found before they are scanned."""
COMPARED_AT_ONCE = 8
"""Sparse features of an event that are compared with one in the time of a look-up by hash: a child of a node with few of
them is looked for among the features of an event that has many, as events have that meet many parts of conditions."""

MEMBER_WORDS, NODE_ITEM, SLOT_ITEM, LIST_ITEM = 5, 2, 3, 3
"""Words of an event's row of `members`, and of an item of `waiting`, `slots` and `lists`."""
_BITS, _SPARSE, _SPARSE_END, FIRST_LIST = 0, 2, 3, 4
_LIST_OF, LIST_START, NEXT_LIST = range(3)
LISTS_FOUND, NEXT_GROUP, SHARE = range(3)
"""Words before the first list: the number of lists; the most events of the next group; the share of the last events that
matched every interface, up to `ALL`."""
ALL = 256
_LINE = 64
_ONE = np.uint64(1)
_LOW = (1 << 32) - 1


def sparse_words(widest: int) -> int:
    """Length of `sparse`, and number of nodes that may wait at level 0, for events of up to `widest` attributes."""
    return 2 * max(GROUP_ATTRIBUTES, widest)


class WalkScratch(NamedTuple):
    """Scratch of walks, with a row for each thread."""

    members: Array
    waiting: Array
    levels: Array
    slots: Array
    lists: Array

    @classmethod
    def of(cls, threads: int, depth: int, widest: int) -> WalkScratch:
        """Scratch for keys of up to `depth` features and events of up to `widest` attributes."""
        n_waiting = max(sparse_words(widest), NODES_WAITING + 1 + 2 * widest)
        lists = np.empty((threads, LIST_ITEM * (1 + MOST_LISTS + WALKED_TOGETHER)), np.int64)
        lists[:, NEXT_GROUP], lists[:, SHARE] = 1, 0
        return cls(
            np.empty((threads, WALKED_TOGETHER + arrays.APART, MEMBER_WORDS), np.int64),
            np.empty((threads, depth + 2, NODE_ITEM * n_waiting), np.int64),
            np.empty((threads, depth + 2 + arrays.APART, 2), np.int64),
            np.empty((threads, SLOT_ITEM * n_waiting), np.int64),
            lists,
        )


@inlined
def walked_by(thread: Int, bound: Array) -> tuple:
    """The arrays `walked` of a thread."""
    lists = arrays.lists(bound)[thread]
    nodes = arrays.members(bound)[thread], arrays.sparse(bound)[thread], arrays.waiting(bound)[thread]
    return nodes[0], nodes[1], nodes[2], arrays.node_levels(bound)[thread], arrays.slots(bound)[thread], lists


@inlined
def enter_group(offsets: Array, attributes: Array, first: Int, most: Int, walked: tuple, index: tuple) -> Int:
    """Enter up to `most` events from number `first` on; returns their number, at least 1."""
    members, sparse, waiting, levels, _, lists = walked
    t64 = index[1]
    starts, most_frequent = feature_starts(index), np.int64(t64[N_FEATURES]) - 1
    root = np.int64(t64[NODES]) + NODE_WORDS * np.int64(t64[ROOT])
    begin, nodes = np.int64(np.uint32(offsets[first] - offsets[0])), _nodes_at(t64)
    n, n_sparse, n_waiting, end = np.int64(0), np.int64(0), np.int64(0), begin
    at_first = waiting[0]
    while n < most:
        last = np.int64(np.uint32(offsets[first + n + 1] - offsets[0]))
        if n > 0 and last - begin > GROUP_ATTRIBUTES:
            break
        before, bits, event = n_sparse, (np.uint64(0), np.uint64(0)), n << 32
        for place in range(end, last):
            n_sparse, bits = enter_features(
                np.int64(attributes[place]), sparse, n_sparse, bits, starts, most_frequent, index
            )
        for half in range(2):
            left = bits[half]
            while left:
                feature = most_frequent - 64 * half - lowest_bit(left)
                left &= left - _ONE
                n_waiting = _wait(at_first, n_waiting, event, feature, np.int64(-1), nodes)
        for place in range(before, n_sparse):
            n_waiting = _wait(at_first, n_waiting, event, sparse[place], sparse[place], nodes)
        members[n, _BITS], members[n, _BITS + 1] = np.int64(bits[0]), np.int64(bits[1])
        members[n, _SPARSE], members[n, _SPARSE_END] = before, n_sparse
        n += 1
        end = last
    levels[0, 0], levels[0, 1] = 0, n_waiting
    lists[LISTS_FOUND] = 0
    list_ = np.int64(t64[root + 2])
    if list_ >= 0:  # EMPTY is -1 here
        for number in range(n):
            _find(lists, number, number << 32 | np.int64(t64[ROOT]), list_)
        lists[LISTS_FOUND] = n
    return n


@nested
def walk(level: Any, deep: Any, words: Any, word_bytes: Any, thread: Any, bound: Any) -> Any:
    """Visit the nodes that wait, from those at `level` on, until none is left or there is no room for another list.

    `words` is the address of the words of all lists, which are prefetched and not read.  A `deep` walk visits the children
    of a node before the next node, and pauses after every list.  lists[LISTS_FOUND] is the number of lists found, those of
    earlier calls among them.  Returns the level to go on with, -1 if none is left.
    """
    members, sparse, waiting, levels, slots, lists = walked_by(thread, bound)
    t32, t64 = arrays.t32(bound), arrays.t64(bound)
    index = (t32, t64, t64)  # the words of the lists are not read
    most_lists, most_waiting = np.int64(1 if deep else MOST_LISTS), np.int64(0 if deep else NODES_WAITING)
    nodes, first_slot = _nodes_at(t64), t64.ctypes.data + 8 * np.int64(t64[SLOTS])
    node_words, n_lists = np.int64(t64[NODES]), lists[LISTS_FOUND]
    features = np.int64(t64[FEATURES]) - np.int64(t64[N_FEATURES])
    while level >= 0 and n_lists < most_lists:
        here, below, at, end = waiting[level], waiting[level + 1], levels[level, 0], levels[level, 1]
        n, n_slots = np.int64(0), np.int64(0)
        while at < end and n + n_slots <= most_waiting and n_lists < most_lists:
            item, last_feature = here[NODE_ITEM * at], here[NODE_ITEM * at + 1]
            at += 1
            event, node = item & ~_LOW, item & _LOW
            of, word = members[item >> 32], node_words + NODE_WORDS * node
            row0, row1, list_, children = t64[word], t64[word + 1], np.int64(t64[word + 2]), t64[word + 3]
            if list_ >= 0:
                _find(lists, n_lists, item, list_)
                prefetch(words + word_bytes * list_)
                prefetch(words + word_bytes * list_ + _LINE)
                n_lists += 1
                if row0 | row1 | children >> SPARSE_CHILDREN == 0:
                    continue
            first, n_children = np.int64(children & np.uint64(NONE)), np.int64(children >> SPARSE_CHILDREN)
            first_sparse, end_sparse = of[_SPARSE], of[_SPARSE_END]
            n = _wait_dense(below, n, event, row0, np.uint64(of[_BITS]), first + popcount(row1), nodes)
            n = _wait_dense(below, n, event, row1, np.uint64(of[_BITS + 1]), first, nodes)
            if n_children == 0:
                continue
            if n_children * COMPARED_AT_ONCE < end_sparse - first_sparse:
                for child in range(first - n_children, first):
                    feature, has = np.int64(t32[features + child]), False
                    for place in range(first_sparse, end_sparse):
                        has |= sparse[place] == feature
                    if has:
                        n = _wait(below, n, event, child, feature, nodes)
            else:
                for place in range(first_sparse, end_sparse):
                    feature = sparse[place]
                    wanted, slot, may_exist = home_slot(node, feature, index)
                    if may_exist & (feature > last_feature):  # no branch on the second, which cannot be predicted
                        slots[SLOT_ITEM * n_slots], slots[SLOT_ITEM * n_slots + 1] = np.int64(wanted), np.int64(slot)
                        slots[SLOT_ITEM * n_slots + 2] = event
                        prefetch(first_slot + 16 * np.int64(slot))
                        n_slots += 1
        n = _wait_sparse(below, n, slots, n_slots, index, nodes)
        levels[level, 0] = at
        levels[level + 1, 0], levels[level + 1, 1] = 0, n
        if n > 0:
            level += 1
        elif at == end:
            level -= 1
    lists[LISTS_FOUND] = n_lists
    return level


@inlined
def link_lists(n: Int, walked: tuple, seen: Array, filters: bool, words: Array) -> Int:
    """Link the lists that were found for a group of n events, and prefetch `seen` of their first filters' interfaces.

    Returns their number, and sets it to 0.
    """
    members, lists = walked[0], walked[5]
    n_lists = lists[LISTS_FOUND]
    for event in range(n):
        members[event, FIRST_LIST] = -1
    next_list = np.int64(-1)
    for k in range(n_lists, 0, -1):
        event = lists[LIST_ITEM * k + _LIST_OF] >> 32
        if n > 1:
            next_list = members[event, FIRST_LIST]
        lists[LIST_ITEM * k + NEXT_LIST] = next_list
        next_list = np.int64(k)
        members[event, FIRST_LIST] = next_list
        if not filters:
            prefetch(seen.ctypes.data + 8 * np.int64(words[lists[LIST_ITEM * k + LIST_START] + 1]))
    lists[LISTS_FOUND] = 0
    return n_lists


@inlined
def node_of(lists: Array, k: Int) -> Int:
    """The node whose list is number k of those found, from 1 on."""
    return lists[LIST_ITEM * k + _LIST_OF] & _LOW


@inlined
def _nodes_at(t64: Array) -> Int:
    """The address of the nodes."""
    return t64.ctypes.data + 8 * np.int64(t64[NODES])


@inlined
def _find(lists: Array, n: Int, item: Int, list_: Int) -> None:
    """Note list number n + 1, which begins at word `list_`."""
    lists[LIST_ITEM * (n + 1) + _LIST_OF], lists[LIST_ITEM * (n + 1) + LIST_START] = item, list_


@inlined
def _wait(waiting: Array, n: Int, event: Int, node: Int, last_feature: Int, nodes: Int) -> Int:
    """Let a node wait as number n of its level, and prefetch it; returns n + 1."""
    waiting[NODE_ITEM * n], waiting[NODE_ITEM * n + 1] = event | node, last_feature
    prefetch(nodes + 8 * NODE_WORDS * node)
    return n + 1


@inlined
def _wait_dense(waiting: Array, n: Int, event: Int, row: np.uint64, bits: np.uint64, first: Int, nodes: Int) -> Int:
    """Let the children for the features of one half of a node's row wait, the most frequent first; `first` is the child
    for its highest bit."""
    both = row & bits
    while both:
        low = both & (~both + _ONE)
        both ^= low
        n = _wait(waiting, n, event, first + n_above(row, low), np.int64(-1), nodes)
    return n


@inlined
def _wait_sparse(waiting: Array, n: Int, slots: Array, n_slots: Int, index: tuple, nodes: Int) -> Int:
    """Let the children for sparse features wait that are found from `n_slots` home slots on."""
    for item in range(n_slots):
        wanted, slot = np.uint64(slots[SLOT_ITEM * item]), np.uint64(slots[SLOT_ITEM * item + 1])
        child = child_in(wanted, slot, index)
        if child >= 0:
            n = _wait(waiting, n, slots[SLOT_ITEM * item + 2], child, np.int64(wanted & np.uint64(NONE)), nodes)
    return n
