"""The trie search of `keyed_cuda` for wide events: a warp walks the trie with the features of one event.

An event of 50 attributes has 100 features: 4,950 pairs, and thousands of nodes to visit, in different parts of the trie for
every event.  With a thread for each event, the 31 other threads of a warp would wait whenever one of them advances.  A warp
for each event instead makes lists of nodes, and gives every lane one of the next 32:

    enter   a lane for each attribute; attributes and features are in shared memory, both sorted
    first   a lane for each feature's node, then for each of their dense children, which are queued
    pairs   a lane for each pair of sparse features: pairs that pass the bit array are looked up, and queued
    second  32 queued nodes: a lane for each, then for each of their dense children; each lane reads the sparse ones
    scan    nodes that the event reaches and that have a list are *ready*: a lane for each of 32 lists

Nodes have different numbers of children, so lanes are assigned by running sums: lane k takes the k-th child of all 32 nodes
together (`owner`).  Sparse children of the second level are read from FEATURES if they are fewer than the event's sparse
features, and looked up otherwise.  With 6 million filters of ten constraints and events of 50 attributes (debs2009) a pair
has 5 of them: a sector of memory instead of 16 probes.

`index.layout` defines nodes, lists and keys; `trie_thread` verifies lists.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    DENSE,
    EMPTY,
    FEATURES,
    N_FEATURES,
    NODE_WORDS,
    NODES,
    ROOT,
)
from mpi_match.engines.keyed.index.lookup import verifier
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.trie_thread import (
    ARRAY_CLASSES,
    KEYED_REGISTERS,
    MASKS,
    SORTED_ANSWERS,
    array_types,
    dense_children,
    feature_of,
    feature_starts,
    first_dense,
    lower_bound,
    probe,
    scanner,
    sparse_children,
)
from mpi_match.gpu.intrinsics import WARP, ballot, lane, popcount, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel
from mpi_match.gpu.warp import append, drainer, length_of, owner, put, running_sum, shorten, sort, tidy

WIDE_WIDTHS = (64, 256)
"""Attributes of an event for which a warp has room."""

_ONE = np.uint64(1)


@device_function
def _give(answer: Int, found: np.uint64, answers: tuple) -> Int:
    """Append an answer; `found` is not needed, because answers are counted elsewhere."""
    append(np.uint32(answer), answers)
    return found


@device_function
def _least(event: tuple, low: int) -> np.int64:
    """The event's first attribute from `low` on, or -1."""
    attributes, n = event
    place = lower_bound(attributes, np.int64(0), n, np.int64(low))
    return np.int64(attributes[place]) if place < n else np.int64(-1)


@device_function
def _has(event: tuple, low: int, high: int) -> bool:
    """Tells whether the event has an attribute in [low, high]."""
    least = _least(event, low)
    return least >= 0 and least <= np.int64(high)


@device_function
def _put_ready(node: int, ready: tuple, index: tuple) -> None:
    """Queue a node if it has a list."""
    if index[1][np.int64(index[1][NODES]) + NODE_WORDS * node + 2] != EMPTY:
        put(node, ready)


@device_function
def _nth_dense(row: tuple, left: tuple, nth: int) -> int:
    """The dense child for the nth most frequent of the remaining features, counted from 0."""
    row0, row1, first = row
    n_first = popcount(left[0])
    is_first = nth < n_first
    word, nth = (left[0], nth) if is_first else (left[1], nth - n_first)
    bit, half = np.uint64(0), np.uint64(32)
    while half > np.uint64(0):
        n_low = popcount((word >> bit) & ((_ONE << half) - _ONE))
        if nth >= n_low:
            nth -= n_low
            bit += half
        half >>= _ONE
    if is_first:
        return first + popcount(row1) + popcount(row0 >> bit >> _ONE)
    return first + popcount(row1 >> bit >> _ONE)


@device_function
def _enter(feature: int, mine: tuple) -> None:
    """Insert a feature into a hash table of features."""
    slots, mask = mine
    slot = np.int64(feature) & mask
    while cuda.atomic.cas(slots, slot, NONE, feature) != NONE:
        slot = (slot + 1) & mask


@device_function
def _is_mine(feature: int, mine: tuple) -> bool:
    """Tells whether a feature is in a hash table."""
    slots, mask = mine
    slot = np.int64(feature) & mask
    while slots[slot] != feature and slots[slot] != NONE:
        slot = (slot + 1) & mask
    return slots[slot] == feature


@device_function
def _rare_child(node: int, nth: int, rare: tuple, index: tuple) -> Int:
    """The nth child, counted from 0, to test for a node of the second level; -1 if the event does not reach it.

    The children to test are the node's sparse children or, if those are fewer, the children for the event's sparse features.
    """
    t32, t64, _ = index
    features, n_sparse, mine = rare
    n_children = sparse_children(node, index)
    in_keys = np.int64(t64[FEATURES]) - np.int64(t64[N_FEATURES])
    if n_children <= n_sparse:
        child = first_dense(node, index) - n_children + nth
        return child if _is_mine(t32[in_keys + child], mine) else np.int64(-1)
    feature = np.int64(features[nth])
    return probe(node, feature, index) if feature > np.int64(t32[in_keys + node]) else np.int64(-1)


@lru_cache
def wide_kernel(width: int, packed: str, kind: int, long: bool) -> Kernel:  # noqa: C901  three functions in one
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), one kind of answer, and
    tables with or without `long` filters."""
    scan = scanner(kind, _give, verifier(device_function, _has, _least, long=long))
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_warps, n_features = KEYED_BLOCK // WARP, 2 * width
    n_seconds = 2 * WARP  # those of one round, and those left before
    n_ready = n_features + 1 + 3 * WARP  # the root and single features, 32 nodes, 32 dense and 32 sparse children
    n_slots = 2 * n_features
    all_attributes, all_features, all_lengths = n_warps * width, n_warps * n_features, n_warps * 3
    all_seconds, all_ready, all_bits, all_slots = n_warps * n_seconds, n_warps * n_ready, n_warps * 2, n_warps * n_slots

    @device_function
    def scan_list(node: int, found: np.uint64, about: tuple) -> int:
        """Scan the list of a ready node."""
        bits, event, index, answers = about
        return scan(node, found, bits, event, index, answers)

    scan_ready = drainer(scan_list)

    @device_function
    def visit_seconds(least: int, seconds: tuple, ready: tuple, found: np.uint64, rare: tuple, about: tuple) -> Int:
        """Visit queued nodes of the second level and their children, while at least `least` are queued."""
        nodes, _, _ = seconds
        bits, _, index, _ = about
        left = length_of(seconds)
        if left < least:
            return found
        while left >= least:
            taken = min(left, np.int64(WARP))
            left -= taken
            node, n, n_rare = np.int64(-1), np.int64(0), np.int64(0)
            if lane() < taken:
                node = np.int64(nodes[left + lane()])
                _put_ready(node, ready, index)
                _, both = dense_children(node, bits, index)
                n = popcount(both[0]) + popcount(both[1])
                n_rare = min(sparse_children(node, index), rare[1])
            end = running_sum(n)
            total, step, goes_on = shuffle(end, WARP - 1), np.int64(0), True
            while goes_on:
                place = step * WARP + lane()
                if step * WARP < total:
                    whose = owner(end, place)
                    nth, parent = place - shuffle(np.int32(end - n), whose), shuffle(node, whose)
                    if place < total:
                        row, both = dense_children(parent, bits, index)
                        put(_nth_dense(row, both, nth), ready)
                if step < n_rare:
                    child = _rare_child(node, step, rare, index)
                    if child >= 0:
                        put(child, ready)
                found = scan_ready(np.int64(WARP), ready, found, about)
                step += 1
                goes_on = step * WARP < total or ballot(step < n_rare) != 0
        shorten(seconds, left)
        return found

    @kernel(f"void({array_types(packed)}, int64, int64, int64)", max_registers=KEYED_REGISTERS, named_tuples=ARRAY_CLASSES)
    def wide_kernel_(events: tuple, index: Any, given: Any, n_events: int, room: Any, n_masked: Any) -> None:  # noqa: C901  in parts it needs more registers
        """Match one event per warp; parameters as those of `trie_thread`, with all masks and counts 0 initially.

        Launch: one warp per event.  Work: a bit for each pair of the event's sparse features, 32 bytes for each node that
        the event reaches, 4 for each child of the third level, or a bit for each sparse feature, if those are fewer.
        """
        shared_attributes = cuda.shared.array(all_attributes, local_type)
        shared_features = cuda.shared.array(all_features, np.uint32)
        shared_seconds = cuda.shared.array(all_seconds, np.uint32)
        shared_ready = cuda.shared.array(all_ready, np.uint32)
        shared_bits = cuda.shared.array(all_bits, np.uint64)
        shared_slots = cuda.shared.array(all_slots, np.uint32)
        lengths = cuda.shared.array(all_lengths, np.int32)
        thread = np.int64(cuda.threadIdx.x)
        number = (np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread) // WARP
        if number >= n_events:
            return
        warp = thread // WARP
        mine = shared_attributes[width * warp : width * (warp + 1)]
        features = shared_features[n_features * warp : n_features * (warp + 1)]
        seconds = (shared_seconds[n_seconds * warp : n_seconds * (warp + 1)], lengths, 3 * warp)
        ready = (shared_ready[n_ready * warp : n_ready * (warp + 1)], lengths, 3 * warp + 1)
        slots = shared_slots[n_slots * warp : n_slots * (warp + 1)]
        for slot in range(lane(), n_slots, WARP):
            slots[slot] = NONE
        if lane() == 0:
            lengths[3 * warp] = lengths[3 * warp + 1] = lengths[3 * warp + 2] = 0
            shared_bits[2 * warp] = shared_bits[2 * warp + 1] = 0
        sync_warp()
        (offsets, attributes), t64 = events, index.t64
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        n = np.int64(np.uint32(offsets[number + 1] - offsets[0])) - first
        most_frequent = np.int64(t64[N_FEATURES]) - 1
        starts = feature_starts(index)
        for a in range(lane(), n, WARP):
            mine[a] = attributes[first + a]
            for is_presence in range(2):
                feature = feature_of(np.int64(mine[a]), is_presence, starts, index)
                if feature == NONE:
                    continue
                features[cuda.atomic.add(lengths, 3 * warp + 2, 1)] = feature
                bit = most_frequent - np.int64(feature)
                if bit < DENSE:
                    cuda.atomic.or_(shared_bits, 2 * warp + (bit >> 6), _ONE << np.uint64(bit & 63))
                else:
                    _enter(feature, (slots, np.int64(n_slots - 1)))
        sync_warp()
        n_found, bits = np.int64(lengths[3 * warp + 2]), (shared_bits[2 * warp], shared_bits[2 * warp + 1])
        sort(features, np.int64(0), n_found)
        n_sparse = n_found - popcount(bits[0]) - popcount(bits[1])
        event, answers = (mine, n), (given.found, given.ids, number, room)
        rare, about = (features, n_sparse, (slots, np.int64(n_slots - 1))), (bits, event, index, answers)
        found = np.uint64(0)
        if lane() == 0:
            _put_ready(np.int64(t64[ROOT]), ready, index)
        for begin in range(0, n_found, WARP):
            one, n_below = np.int64(-1), np.int64(0)
            if begin + lane() < n_found:
                one = np.int64(features[begin + lane()])
                _put_ready(one, ready, index)
                _, both = dense_children(one, bits, index)
                n_below = popcount(both[0]) + popcount(both[1])
            end = running_sum(n_below)
            total = shuffle(end, WARP - 1)
            for at in range(0, total, WARP):
                place = at + lane()
                whose = owner(end, place)
                nth, parent = place - shuffle(np.int32(end - n_below), whose), shuffle(one, whose)
                if place < total:
                    row, both = dense_children(parent, bits, index)
                    put(_nth_dense(row, both, nth), seconds)
                found = visit_seconds(np.int64(WARP), seconds, ready, found, rare, about)
        for i in range(n_sparse):
            one = np.int64(features[i])
            if not sparse_children(one, index):
                continue
            for at in range(i + 1, n_sparse, WARP):
                if at + lane() < n_sparse:
                    two = probe(one, np.int64(features[at + lane()]), index)
                    if two >= 0:
                        put(two, seconds)
                found = visit_seconds(np.int64(WARP), seconds, ready, found, rare, about)
        found = visit_seconds(np.int64(1), seconds, ready, found, rare, about)
        found = scan_ready(np.int64(1), ready, found, about)
        if kind == MASKS:
            if found != np.uint64(0):
                cuda.atomic.or_(given.found, number, found)
            return
        tidy(answers, SORTED_ANSWERS)

    return wide_kernel_
