"""The kernel of `keyed` for wide events: a warp walks the trie with the features of one event.

An event of 50 attributes has 50 values and 50 names to its features: 1,225 pairs of rare features and 19,600 triples, most
of which a bit turns away (`may_have_child`) and some of which lead on, at another place for every event.  A thread for each
event then makes 31 others wait whenever one of them goes on.  A warp for each event asks for 32 children at a time, queues
those that may be there, and goes on with 32 of them:

    enter   a lane for each attribute; bits, sparse features and attributes stand in shared memory
    first   a lane for each node of a single feature: its list, and what is below it by dense features
    pairs   for each sparse feature with sparse children: a lane for each other one; what may be there is queued, then
            visited, a lane for each
    triples the same below each pair, but the queue is shared by all pairs, and visited when there is one for every lane

What a node, a list and a key are is told in `keyed_index`; how a lane visits nodes, in `keyed_kernel`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.engines._cuda import WARP, Kernel, ballot, cuda, device_function, kernel, lane, shuffle, sync_warp
from mpi_match.engines.keyed_answers import BLOCK
from mpi_match.engines.keyed_filing import NONE
from mpi_match.engines.keyed_index import CODES, DENSE, EQUALITY, N_FEATURES, PRESENCE, ROOT, SHIFT
from mpi_match.engines.keyed_kernel import (
    MASKS,
    MAX_REGISTERS,
    child_of,
    dense_children,
    has_sparse_children,
    may_have_child,
    next_child,
    walkers,
)
from mpi_match.engines.keyed_warp import append, tidy

WIDE_WIDTHS = (64, 256)
"""Attributes of an event that a warp has room for."""

_ONE, _32 = np.uint64(1), np.uint64(32)


@device_function
def _give(answer: Any, found: Any, answers: Any) -> Any:
    """Append an answer; what is found is counted elsewhere."""
    append(np.uint32(answer), answers)
    return found


@device_function
def _queue_children(parent: Any, last: Any, event: Any, queue: Any, index: Any) -> None:
    """Queue what may be below a node by the sparse features after `last`, all lanes of a warp together."""
    sparse, n_sparse = event
    waiting, length, slot = queue
    for i in range(lane(), n_sparse, WARP):
        feature = np.int64(sparse[i])
        if feature > last and may_have_child(parent, feature, index):
            waiting[cuda.atomic.add(length, slot, 1)] = np.uint64(parent) << _32 | np.uint64(feature)


@lru_cache
def wide_kernel(width: int, packed: str, kind: int) -> Kernel:
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), and one kind of answer."""
    visit1, visit2, visit3 = walkers(kind, _give)
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_warps, n_features = BLOCK // WARP, 2 * width
    n_triples = n_features + WARP  # the children of one pair, and what was left before them
    all_attributes, all_features, all_triples = n_warps * width, n_warps * n_features, n_warps * n_triples
    all_bits, all_lengths = n_warps * 2, n_warps * 3

    @device_function
    def visit_triples(least: Any, queue: Any, found: Any, bits: Any, event: Any, index: Any, answers: Any) -> Any:
        """Visit queued nodes of the third level, one for each lane, while there are at least so many."""
        waiting, length, slot = queue
        sync_warp()
        n = np.int64(length[slot])
        while n >= least:
            taken = min(n, np.int64(WARP))
            n -= taken
            if lane() < taken:
                key = waiting[n + lane()]
                three = child_of(np.int64(key >> _32), np.int64(key & np.uint64(NONE)), index)
                if three >= 0:
                    found = visit3(three, found, bits, event, index, answers)
            sync_warp()
        if lane() == 0:
            length[slot] = n
        sync_warp()
        return found

    @kernel(
        f"void(uint32[::1], {packed}[::1], uint32[::1], uint64[::1], {packed}[::1], uint64[::1], uint32[::1],"
        " int64, int64, int64)",
        max_registers=MAX_REGISTERS,
    )
    def wide_kernel_(
        offsets: Any,
        attributes: Any,
        t32: Any,
        t64: Any,
        words: Any,
        found_of: Any,
        ids: Any,
        n_events: Any,
        room: Any,
        n_masked: Any,
    ) -> None:
        """Match one event per warp; parameters as those of `keyed_kernel`, `found_of` all 0 at the beginning.

        Launch: one warp per event.  Work: a bit for each pair and triple of the event's sparse features whose beginning is
        there, 32 bytes for each node that the event reaches.
        """
        shared_attributes = cuda.shared.array(all_attributes, local_type)
        shared_sparse = cuda.shared.array(all_features, np.uint32)
        shared_pairs = cuda.shared.array(all_features, np.uint64)
        shared_triples = cuda.shared.array(all_triples, np.uint64)
        shared_bits = cuda.shared.array(all_bits, np.uint64)
        lengths = cuda.shared.array(all_lengths, np.int32)
        thread = np.int64(cuda.threadIdx.x)
        number = (np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread) // WARP
        if number >= n_events:
            return
        warp = thread // WARP
        mine = shared_attributes[width * warp : width * (warp + 1)]
        sparse = shared_sparse[n_features * warp : n_features * (warp + 1)]
        pairs = (shared_pairs[n_features * warp : n_features * (warp + 1)], lengths, 3 * warp)
        triples = (shared_triples[n_triples * warp : n_triples * (warp + 1)], lengths, 3 * warp + 1)
        if lane() == 0:
            lengths[3 * warp] = lengths[3 * warp + 1] = lengths[3 * warp + 2] = 0
            shared_bits[2 * warp] = shared_bits[2 * warp + 1] = 0
        sync_warp()
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        n = np.int64(np.uint32(offsets[number + 1] - offsets[0])) - first
        shift, most_frequent = np.int64(t64[SHIFT]), np.int64(t64[N_FEATURES]) - 1
        presence, codes, equality = np.int64(t64[PRESENCE]), np.int64(t64[CODES]), np.int64(t64[EQUALITY])
        for a in range(lane(), n, WARP):
            mine[a] = attributes[first + a]
            packed_ = np.int64(mine[a])
            name, code = packed_ >> shift, packed_ & ((np.int64(1) << shift) - 1)
            for which in range(2):
                feature = t32[presence + name if which else equality + np.int64(t32[codes + name]) + code]
                bit = most_frequent - np.int64(feature)
                if feature == NONE:
                    continue
                if bit < DENSE:
                    cuda.atomic.or_(shared_bits, 2 * warp + (bit >> 6), _ONE << np.uint64(bit & 63))
                else:
                    sparse[cuda.atomic.add(lengths, 3 * warp + 2, 1)] = feature
        sync_warp()
        n_sparse, bits = np.int64(lengths[3 * warp + 2]), (shared_bits[2 * warp], shared_bits[2 * warp + 1])
        event, index, answers, rare = (mine, n), (t32, t64, words), (found_of, ids, number, room), (sparse, n_sparse)
        root, found = np.int64(t64[ROOT]), np.uint64(0)
        if lane() == 0:
            found = visit3(root, found, bits, event, index, answers)
        row, left = dense_children(root, bits, index)
        turn = np.int64(0)
        while left[0] | left[1]:
            one, left = next_child(row, left)
            if turn % WARP == lane():
                found = visit1(one, found, bits, event, index, answers)
            turn += 1
        for i in range(lane(), n_sparse, WARP):
            found = visit1(np.int64(sparse[i]), found, bits, event, index, answers)
        sync_warp()
        for i in range(n_sparse):
            one = np.int64(sparse[i])
            if not has_sparse_children(one, index):
                continue
            _queue_children(one, one, rare, pairs, index)
            sync_warp()
            n_pairs = np.int64(lengths[3 * warp])
            for begin in range(0, n_pairs, WARP):
                two, feature = np.int64(-1), np.int64(0)
                if begin + lane() < n_pairs:
                    feature = np.int64(pairs[0][begin + lane()] & np.uint64(NONE))
                    two = child_of(one, feature, index)
                if two >= 0:
                    found = visit2(two, found, bits, event, index, answers)
                goes_on = two >= 0 and has_sparse_children(two, index)
                parents = ballot(goes_on)
                for other in range(WARP):
                    if parents >> other & 1:
                        _queue_children(shuffle(two, other), shuffle(feature, other), rare, triples, index)
                        found = visit_triples(np.int64(WARP), triples, found, bits, event, index, answers)
            sync_warp()
            if lane() == 0:
                lengths[3 * warp] = 0
            sync_warp()
        found = visit_triples(np.int64(1), triples, found, bits, event, index, answers)
        if kind == MASKS:
            if found != np.uint64(0):
                cuda.atomic.or_(found_of, number, found)
            return
        tidy(answers)

    return wide_kernel_
