"""The trie search of `keyed_cuda` for events of few attributes: a warp walks the trie with the features of 32 events.

An event of four attributes reaches 18 nodes and verifies 2.6 filters on average (ccm), but some reach twice as many nodes or
verify five times as many filters.  With a thread for each event, 7 of 32 lanes work on average.  So work is divided here by
nodes and filters, not by events:

    enter   a lane for each event; attributes, sparse features and the bits of dense ones are in shared memory
    first   each lane queues the nodes of its event's single features, then those of pairs of its sparse features
    visit   32 queued nodes of any event: a lane for each.  A node's children are queued, and its list, if it has one
    verify  32 queued lists of any event: a lane for the filters of each; when most are done, what is left is queued again

Queues are last in, first out, and have little room: lists are verified as soon as there are 32, then nodes are visited, and
only if there are fewer than 32 of both, more are queued.  A round visits as many nodes as have room for their children, and
always the last one.  Keys have at most three features, so at most two nodes in turn go beyond `most_left`, by as many
children as the event has features.

The answers of an event are found by different lanes, in any order: masks are united, others are appended and then sorted by
the event's lane.  `trie_thread` describes the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    EMPTY,
    ENTRIES,
    FEATURES,
    FILTERS,
    N_FEATURES,
    NODE_WORDS,
    NODES,
    ROOT,
)
from mpi_match.engines.keyed.index.lookup import verifier
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.trie_thread import (
    ARRAY_CLASSES,
    FILTER_IDS,
    INTERFACES,
    MASKS,
    array_types,
    dense_children,
    entry_words,
    feature_of,
    feature_starts,
    insert,
    next_child,
    probe,
    with_feature,
)
from mpi_match.gpu.intrinsics import WARP, atomic_add, ballot, lane, popcount, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel
from mpi_match.gpu.warp import place_behind, running_sum

_ONE, _u64 = np.uint64(1), np.uint64
WIDTHS = (8, 16)
"""Attributes of an event for which a lane has room; the narrowest width that fits the widest event of a batch is used.
`trie_warp` takes wider events."""
GROUP_REGISTERS = 64
"""Registers of a thread: as many as the kernel needs for events of eight attributes."""
EVENT_BITS = 8
"""Bits of a queued item that name the lane of its event."""


def register_verifier(width: int, packed: str, long: bool) -> Callable:
    """`lookup.verifier` for an event of at most `width` attributes of type `packed` in a local array of as many places.

    Its loops have `width` turns for every event, so the compiler unrolls them and keeps the attributes in registers.  The
    places that an event leaves repeat its first attribute.
    """
    last = np.iinfo(packed).max
    local_type = np.uint32 if packed == "uint32" else np.uint64

    @device_function
    def has(event: Any, low: Any, high: Any) -> Any:
        attributes, n = event
        found = False
        for a in range(width):
            found = found | ((low <= attributes[a]) & (attributes[a] <= high))
        return found & (n > 0)

    @device_function
    def least(event: Any, low: Any) -> Any:
        # ptxas 12.9 compiles a loop that stops at the first one to code that overwrites an attribute.
        attributes, n = event
        place, found = local_type(last), False
        for a in range(width):
            is_there = low <= attributes[a]
            place = min(place, attributes[a]) if is_there else place
            found = found | is_there
        return np.int64(place) if found & (n > 0) else np.int64(-1)

    return verifier(device_function, has, least, long=long)


@lru_cache
def group_kernel(width: int, packed: str, kind: int, long: bool) -> Kernel:  # noqa: C901  in parts it needs more registers
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), one kind of answer, and
    tables with or without `long` filters."""
    verify = register_verifier(width, packed, long)
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_warps, n_features, stride = KEYED_BLOCK // WARP, 2 * width, width + 1
    most_left = 3 * WARP  # nodes that a round leaves, unless a single lane visits one
    n_nodes, n_lists, n_sparse_all = most_left + 2 * n_features, 2 * WARP, n_features * WARP
    all_nodes, all_lists, all_entries = n_warps * n_nodes, n_warps * n_lists, n_warps * n_lists if kind == FILTER_IDS else 1
    all_attributes, all_sparse, all_events = n_warps * stride * WARP, n_warps * n_sparse_all, n_warps * WARP
    all_bits = 2 * all_events
    event_mask = (1 << EVENT_BITS) - 1

    @kernel(f"void({array_types(packed)}, int64, int64, int64)", max_registers=GROUP_REGISTERS, named_tuples=ARRAY_CLASSES)
    def group_kernel_(events: Any, index: Any, answers: Any, n_events: int, room: int, n_masked: int) -> None:  # noqa: C901
        """Match one event per lane, all lanes of a warp together.

        Launch: one thread per event.  Work: 32 bytes for each node of the trie that an event reaches (`index.layout`).
        """
        shared_attributes = cuda.shared.array(all_attributes, local_type)
        shared_sparse = cuda.shared.array(all_sparse, np.uint32)
        shared_nodes = cuda.shared.array(all_nodes, np.uint64)
        shared_at = cuda.shared.array(all_lists, np.uint64)
        shared_last = cuda.shared.array(all_lists, np.uint64)
        shared_entries = cuda.shared.array(all_entries, np.uint64)
        shared_bits = cuda.shared.array(all_bits, np.uint64)
        shared_found = cuda.shared.array(all_events, np.uint64)
        shared_sizes = cuda.shared.array(all_events, np.uint32)
        thread, own = np.uint32(cuda.threadIdx.x), np.uint32(lane())
        warp = np.uint32(thread // np.uint32(WARP))
        number = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread
        first_number = number - np.int64(own)
        if first_number >= n_events:
            return
        t32, t64, words = index
        nodes = np.int64(t64[NODES])
        my_events, my_sparse = np.uint32(warp * WARP), np.uint32(warp * n_sparse_all)
        my_nodes, my_lists = np.uint32(warp * n_nodes), np.uint32(warp * n_lists)
        my_attributes = np.uint32(warp * (stride * WARP))
        # enter
        n_sparse, bits = np.uint32(0), (np.uint64(0), np.uint64(0))
        if number < n_events:
            offsets, attributes = events
            first = np.int64(np.uint32(offsets[_u64(number)] - offsets[0]))
            n = np.int64(np.uint32(offsets[_u64(number + 1)] - offsets[0])) - first
            starts, most_frequent = feature_starts(index), np.int64(t64[N_FEATURES]) - 1
            place = np.uint32(my_attributes + own * stride)
            for a in range(n):
                attribute = attributes[_u64(first + a)]
                shared_attributes[np.uint32(place + a)] = attribute
                for is_presence in range(2):
                    feature = feature_of(np.int64(attribute), is_presence, starts, index)
                    if feature == NONE:
                        continue
                    bits, is_dense = with_feature(feature, most_frequent, bits)
                    if not is_dense:
                        shared_sparse[np.uint32(my_sparse + n_sparse * WARP + own)] = feature
                        n_sparse = np.uint32(n_sparse + 1)
            if n > 0:
                for a in range(n, width):
                    shared_attributes[np.uint32(place + a)] = attributes[_u64(first)]
            shared_sizes[np.uint32(my_events + own)] = n << 16 | np.int64(n_sparse)
        shared_bits[np.uint32(2 * my_events + own)] = bits[0]
        shared_bits[np.uint32(2 * my_events + WARP + own)] = bits[1]
        shared_found[np.uint32(my_events + own)] = 0
        # the root: its list, and the dense ones of single features
        n_queued, n_listed, next_sparse = np.uint32(0), np.uint32(0), np.uint32(0)
        parent, partner = np.uint32(0), np.uint32(1)
        root = np.int64(t64[ROOT])
        row, left = dense_children(root, bits, index)
        list_ = t64[_u64(nodes + NODE_WORDS * root + 2)]
        if list_ != EMPTY:
            if number < n_events:
                at = np.int64(list_) + 1
                shared_at[np.uint32(my_lists + own)] = at << EVENT_BITS | np.int64(own)
                shared_last[np.uint32(my_lists + own)] = at - 1 + np.int64(words[_u64(at - 1)])
                if kind == FILTER_IDS:
                    shared_entries[np.uint32(my_lists + own)] = np.int64(t64[FILTERS]) + np.int64(
                        t32[_u64(np.int64(t64[ENTRIES]) + root)]
                    )
            n_listed = np.uint32(min(np.int64(WARP), n_events - first_number))
        while True:
            sync_warp()
            while n_queued < WARP:  # the next single feature of each event
                one = np.int64(-1)
                if left[0] | left[1]:
                    one, left = next_child(row, left)
                elif next_sparse < n_sparse:
                    one = np.int64(shared_sparse[np.uint32(my_sparse + next_sparse * WARP + own)])
                    next_sparse = np.uint32(next_sparse + 1)
                there = np.uint32(ballot(one >= 0))
                if not there:
                    break
                if one >= 0:
                    place = place_behind(my_nodes + n_queued, there)
                    shared_nodes[place] = one << EVENT_BITS | np.int64(own)
                n_queued = np.uint32(np.int64(n_queued) + popcount(there))
            while n_queued < WARP and np.uint32(ballot(partner < n_sparse)):  # the next pair of sparse ones
                child = np.int64(-1)
                if partner < n_sparse:
                    one = np.int64(shared_sparse[np.uint32(my_sparse + parent * WARP + own)])
                    two = np.int64(shared_sparse[np.uint32(my_sparse + partner * WARP + own)])
                    child = np.int64(probe(min(one, two), max(one, two), index))
                    partner = np.uint32(partner + 1)
                    if partner == n_sparse:
                        parent = np.uint32(parent + 1)
                        partner = np.uint32(parent + 1)
                there = np.uint32(ballot(child >= 0))
                if child >= 0:
                    place = place_behind(my_nodes + n_queued, there)
                    shared_nodes[place] = child << EVENT_BITS | np.int64(own)
                n_queued = np.uint32(np.int64(n_queued) + popcount(there))
            sync_warp()
            if n_listed >= WARP or n_queued == 0:
                # verify the next filter of lists
                if n_listed == 0:
                    break
                taken = np.uint32(min(n_listed, np.uint32(WARP)))
                n_listed = np.uint32(n_listed - taken)
                at, last, entry, whose = np.int64(0), np.int64(0), np.int64(0), np.uint32(0)
                mine, size = cuda.local.array(width, local_type), np.uint32(0)
                if own < taken:
                    place = np.uint32(my_lists + n_listed + own)
                    item, last = np.int64(shared_at[place]), np.int64(shared_last[place])
                    if kind == FILTER_IDS:
                        entry = np.int64(shared_entries[place])
                    at, whose = item >> EVENT_BITS, np.uint32(item & event_mask)
                    size = np.uint32(shared_sizes[np.uint32(my_events + whose)] >> np.uint32(16))
                for a in range(width):
                    mine[a] = shared_attributes[np.uint32(np.int64(my_attributes + whose * stride) + a)]
                there = np.uint32(ballot(at < last))
                while there:
                    if at < last:
                        place = np.uint32(my_events + whose)
                        interface, counts = np.int64(words[_u64(at)]), np.int64(words[_u64(at + 1)])
                        step: Any = entry_words(counts)
                        mask = _ONE << np.uint64(interface)
                        is_known = kind == MASKS and (shared_found[place] & mask) != np.uint64(0)
                        if is_known or verify(at, counts, (mine, size), index):
                            if kind == MASKS:
                                if not is_known:
                                    cuda.atomic.or_(shared_found, np.int64(place), mask)
                            else:
                                slot = np.int64(atomic_add(shared_found, np.int64(place), _ONE))
                                if slot < room:
                                    answer = interface if kind == INTERFACES else np.int64(t32[_u64(entry)])
                                    answers.ids[_u64((first_number + np.int64(whose)) * room + slot)] = answer
                            if kind != FILTER_IDS:
                                step = np.int64(words[_u64(at + 3)])
                        at += step
                        entry += 1
                    there = np.uint32(ballot(at < last))
                    if 2 * popcount(there) < WARP and (n_listed > 0 or n_queued > 0):
                        break  # others have work for more lanes
                sync_warp()
                there = np.uint32(ballot(at < last))
                if at < last:
                    place = place_behind(my_lists + n_listed, there)
                    shared_at[place], shared_last[place] = at << EVENT_BITS | np.int64(whose), last
                    if kind == FILTER_IDS:
                        shared_entries[place] = entry
                n_listed = np.uint32(np.int64(n_listed) + popcount(there))
                continue
            # visit nodes
            node, whose = np.int64(0), np.uint32(0)
            n_dense, n_rare, left0, left1 = np.int64(0), np.uint32(0), np.uint64(0), np.uint64(0)
            row0, row1, children, list_ = np.uint64(0), np.uint64(0), np.uint64(0), EMPTY
            if own < n_queued:
                item = np.int64(shared_nodes[np.uint32(my_nodes + n_queued - 1 - own)])
                node, whose = item >> EVENT_BITS, np.uint32(item & event_mask)
                at = nodes + NODE_WORDS * node
                row0, row1, list_, children = t64[_u64(at)], t64[_u64(at + 1)], t64[_u64(at + 2)], t64[_u64(at + 3)]
                left0 = row0 & shared_bits[np.uint32(2 * my_events + whose)]
                left1 = row1 & shared_bits[np.uint32(2 * my_events + WARP + whose)]
                n_dense = popcount(left0) + popcount(left1)
                if children >> np.uint64(32) and node >= np.int64(t64[N_FEATURES]):
                    n_rare = np.uint32(shared_sizes[np.uint32(my_events + whose)] & np.uint32(0xFFFF))
            sums = running_sum(np.int32(n_dense << 16 | (n_dense + np.int64(n_rare))))
            end = np.int64(sums & 0xFFFF)
            fits = own == 0 or end == 0 or np.int64(n_queued) + end <= most_left + np.int64(own) + 1
            fitting = ballot(own < n_queued and fits)
            n_visited = np.uint32(popcount(np.uint64(fitting ^ (fitting + 1))) - 1)
            n_queued = np.uint32(n_queued - n_visited)
            n_more = np.int64(shuffle(sums, np.int64(n_visited) - 1) >> 16)
            if own >= n_visited:
                n_rare, left0, left1, list_ = np.uint32(0), np.uint64(0), np.uint64(0), EMPTY
            sync_warp()
            # its list
            there = np.uint32(ballot(list_ != EMPTY))
            if list_ != EMPTY:
                place, at = place_behind(my_lists + n_listed, there), np.int64(list_) + 1
                shared_at[place] = at << EVENT_BITS | np.int64(whose)
                shared_last[place] = at - 1 + np.int64(words[_u64(at - 1)])
                if kind == FILTER_IDS:
                    shared_entries[place] = np.int64(t64[FILTERS]) + np.int64(t32[_u64(np.int64(t64[ENTRIES]) + node)])
            n_listed = np.uint32(np.int64(n_listed) + popcount(there))
            # its dense children
            place = np.uint32(np.int64(my_nodes) + np.int64(n_queued) + np.int64(sums >> 16) - n_dense)
            here = row0, row1, np.int64(children & np.uint64(NONE))
            while left0 | left1:
                child, (left0, left1) = next_child(here, (left0, left1))
                shared_nodes[place] = child << EVENT_BITS | np.int64(whose)
                place = np.uint32(place + 1)
            n_queued = np.uint32(np.int64(n_queued) + n_more)
            # its sparse children
            if np.uint32(ballot(n_rare > 0)):
                tried, last_feature = np.uint32(0), np.int64(0)
                if n_rare > 0:
                    last_feature = np.int64(t32[_u64(np.int64(t64[FEATURES]) + node - np.int64(t64[N_FEATURES]))])
                while np.uint32(ballot(tried < n_rare)):
                    child = np.int64(-1)
                    if tried < n_rare:
                        feature = np.int64(shared_sparse[np.uint32(my_sparse + tried * WARP + whose)])
                        if feature > last_feature:
                            child = np.int64(probe(node, feature, index))
                    there = np.uint32(ballot(child >= 0))
                    if child >= 0:
                        place = place_behind(my_nodes + n_queued, there)
                        shared_nodes[place] = child << EVENT_BITS | np.int64(whose)
                    n_queued = np.uint32(np.int64(n_queued) + popcount(there))
                    tried = np.uint32(tried + 1)
        # answers
        sync_warp()
        if number < n_events:
            total = shared_found[np.uint32(my_events + own)]
            if kind == MASKS or np.int64(total) > room:
                answers.found[_u64(number)] = total
            else:
                begin, kept = number * room, np.int64(0)
                for i in range(np.int64(total)):
                    answer = np.int64(answers.ids[_u64(begin + i)])
                    kept = insert(answers.ids, begin, kept, room, answer, kind == INTERFACES)
                answers.found[_u64(number)] = kept

    return group_kernel_
