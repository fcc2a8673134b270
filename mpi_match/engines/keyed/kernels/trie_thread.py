"""The trie search of `keyed_cuda` for the widest events: one thread walks the trie with the features of one event.

`trie_group` and `trie_warp` search for narrower ones.

It does the same as the CPU (`cpu_search`), adapted to a GPU thread:

    enter   the event's attributes and sparse features stay in the thread's local memory, which is its share of the cache; a
            check searches them for its name, which for a few attributes is faster than an array by name
    walk    nested calls, one for each level of the trie, all inlined: their arguments are registers
    scan    answers go to a bit mask in a register if there are at most 64 interfaces, otherwise to the event's slots in
            device memory, the first SORTED_ANSWERS in order; their count is always complete, so a batch whose answers did
            not fit is matched again

A thread waits for memory most of the time, and other threads hide this latency: so there are many threads, with few
registers each.  `compact` describes how the answers of all threads are compacted.

Numba converts mixed signed and unsigned 64-bit integers to doubles, so everything except hashes and masks is `int64` here.
Arrays that belong together are passed as tuples, which cost nothing on a GPU:

    event   attributes, their number
    bits    the event's row of dense features, two u64
    index   t32, t64, words: `KeyedIndex.views`, `KeyedIndex.words`
    slots   ids, the event's first slot, its number of slots
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute import search
from mpi_match.engines.keyed.index import lookup
from mpi_match.engines.keyed.index.features import NONE
from mpi_match.engines.keyed.index.layout import (
    EMPTY,
    ENTRIES,
    FILTERS,
    N_FEATURES,
    NODE_WORDS,
    NODES,
    ROOT,
    SPARSE_CHILDREN,
)
from mpi_match.engines.keyed.index.lookup import verifier
from mpi_match.gpu.intrinsics import popcount
from mpi_match.gpu.kernels import Kernel, cuda, device_function, device_twin, kernel

WIDEST = 4096
"""Most attributes of an event if there is no CPU to take wider ones: 50 KB of local memory for each resident thread."""
KEYED_REGISTERS = 64
"""Registers of a thread.  Unrestricted, the compiler uses 96, and too few threads fit.  With 40 to 64, an H200 matches a
quarter more events of ccm-large per second (240 M, not 188 M), and 64 spill least."""
MASKS, INTERFACES, FILTER_IDS = range(3)
"""Kinds of answer: masks of interfaces, sorted interfaces in slots, sorted filters in slots."""
SORTED_ANSWERS = 256
"""Most answers of an event that a thread keeps sorted, or a warp sorts where they are; further ones are appended, for
`kernels.tidy` to sort.  A thread that inserted 45,000 answers one by one would move a billion."""

_ONE = np.uint64(1)
lower_bound = device_function(search.lower_bound)
feature_starts, feature_of, with_feature = map(device_twin, (lookup.feature_starts, lookup.feature_of, lookup.with_feature))
probe, entry_words = device_twin(lookup.probe), device_twin(lookup.entry_words)
_enter_features, _n_above = device_twin(lookup.enter_features), device_twin(lookup.n_above, popcount=popcount)


class EventArrays(NamedTuple):
    """Events as kernel arguments: offsets u32[n + 1], attributes u32 or u64 (`EventBatch`)."""

    offsets: Any
    attributes: Any


class IndexArrays(NamedTuple):
    """The index as kernel arguments: t32, t64 (`KeyedIndex.views`) and words u32 or u64, the lists or other checks."""

    t32: Any
    t64: Any
    words: Any


class AnswerArrays(NamedTuple):
    """The answers of a kernel.

    found   u64[n]         mask of interfaces, or count of answers
    ids     u32[n * room]  sorted answers of event e from e * room on, as far as they fit
    """

    found: Any
    ids: Any


ARRAY_CLASSES = (EventArrays, IndexArrays, AnswerArrays)


def array_types(packed: str) -> str:
    """The signature of events, index and answers for attributes of type `packed`."""
    return (
        f"EventArrays(uint32[::1], {packed}[::1]), IndexArrays(uint32[::1], uint64[::1], {packed}[::1]),"
        " AnswerArrays(uint64[::1], uint32[::1])"
    )


@device_function
def _enter(mine: Array, sparse: Array, attributes: Array, first: int, n: int, index: IndexArrays) -> tuple:
    """Copy attributes[first : first + n] to `mine` and their sparse features to `sparse`; returns the number of these, and
    `bits`."""
    starts, most_frequent = feature_starts(index), np.int64(index[1][N_FEATURES]) - 1
    n_sparse, bits = np.int64(0), (np.uint64(0), np.uint64(0))
    for a in range(n):
        mine[a] = attributes[first + a]
        n_sparse, bits = _enter_features(np.int64(mine[a]), sparse, n_sparse, bits, starts, most_frequent, index)
    return n_sparse, bits


@device_function
def dense_children(node: int, bits: Array, index: IndexArrays) -> tuple:
    """A node's row and first dense child, and the bits of the row that the event has."""
    at = np.int64(index[1][NODES]) + NODE_WORDS * node
    row0, row1 = index[1][at], index[1][at + 1]
    return (row0, row1, first_dense(node, index)), (row0 & bits[0], row1 & bits[1])


@device_function
def first_dense(node: int, index: IndexArrays) -> np.int64:
    """A node's first dense child, which comes after its sparse ones."""
    return np.int64(index[1][np.int64(index[1][NODES]) + NODE_WORDS * node + 3] & np.uint64(NONE))


@device_function
def next_child(row: tuple, left: tuple) -> tuple:
    """The dense child for the most frequent feature among the remaining bits, and the bits that remain after it."""
    row0, row1, first = row
    left0, left1 = left
    if left0:
        low = left0 & (~left0 + _ONE)
        return first + popcount(row1) + _n_above(row0, low), (left0 ^ low, left1)
    low = left1 & (~left1 + _ONE)
    return first + _n_above(row1, low), (left0, left1 ^ low)


@device_function
def sparse_children(node: int, index: IndexArrays) -> np.int64:
    """Number of sparse children of a node."""
    return np.int64(index[1][np.int64(index[1][NODES]) + NODE_WORDS * node + 3] >> SPARSE_CHILDREN)


@device_function
def _has(event: tuple, low: int, high: int) -> bool:
    """Tells whether the event has an attribute in [low, high]."""
    attributes, n = event
    found = False
    for a in range(n):
        found = found or (low <= attributes[a] and attributes[a] <= high)
    return found


@device_function
def _least(event: tuple, low: int) -> Any:
    """The event's first attribute from `low` on, or -1."""
    attributes, n = event
    least = np.int64(-1)
    for a in range(n):
        if least < 0 and low <= attributes[a]:
            least = np.int64(attributes[a])
    return least


@lru_cache
def thread_verifier(long: bool) -> Callable:
    """`lookup.verifier` for an event of few attributes, all of which are scanned."""
    return verifier(device_function, _has, _least, long=long)


@device_function
def insert(ids: Array, first: int, n: int, room: int, value: int, distinct: bool) -> int:
    """Insert a value among the n ids from `first` on, unless `distinct` and already there; returns the new count.

    The first SORTED_ANSWERS are sorted, and only these are searched for the value.  If there is no room, the value is only
    counted: the count is then at least the room needed.
    """
    last = first + min(n, room, SORTED_ANSWERS)
    if distinct:
        place = lower_bound(ids, first, last, value)
        if place < last and np.int64(ids[place]) == value:
            return n
    if n >= room:
        return n + 1
    if n >= SORTED_ANSWERS:
        ids[first + n] = value
        return n + 1
    at = last
    while at > first and np.int64(ids[at - 1]) > value:
        ids[at] = ids[at - 1]
        at -= 1
    ids[at] = value
    return n + 1


def giver(kind: int) -> Callable:
    """Make the function that inserts an answer among the event's, which are sorted."""

    @device_function
    def give(answer: object, found: np.uint64, slots: tuple) -> np.uint64:
        ids, first, room = slots
        return np.uint64(insert(ids, first, np.int64(found), room, answer, kind == INTERFACES))

    return give


def walkers(kind: int, give: Callable, verify: Callable) -> tuple[Callable, Callable, Callable]:
    """Make the functions that visit nodes of the first, second and third level: each scans its list and visits dense
    children."""
    visit3 = scanner(kind, give, verify)
    visit2 = _with_children(visit3, visit3)
    return _with_children(visit3, visit2), visit2, visit3


def scanner(kind: int, give: Callable, verify: Callable) -> Callable:
    """Make the function that verifies the list of a node.

    `found` is the mask of matched interfaces, or the value that `give` returns for each answer.
    """

    @device_function
    def scan(node: int, found: np.uint64, bits: tuple, event: tuple, index: tuple, slots: tuple) -> np.uint64:
        t32, t64, words = index
        list_ = t64[np.int64(t64[NODES]) + NODE_WORDS * node + 2]
        if list_ == EMPTY:
            return found
        at = np.int64(list_) + 1
        last = at - 1 + np.int64(words[at - 1])
        entry = np.int64(t64[FILTERS]) + np.int64(t32[np.int64(t64[ENTRIES]) + node]) if kind == FILTER_IDS else np.int64(0)
        while at < last:
            interface, counts = np.int64(words[at]), np.int64(words[at + 1])
            bit = _ONE << np.uint64(interface)
            is_known = kind == MASKS and (found & bit) != np.uint64(0)
            if is_known or verify(at, counts, event, index):
                if kind == MASKS:
                    found |= bit
                else:
                    found = give(interface if kind == INTERFACES else np.int64(t32[entry]), found, slots)
                if kind != FILTER_IDS:
                    at += np.int64(words[at + 3])
                    continue
            at += entry_words(counts)
            entry += 1
        return found

    return scan


def _with_children(scan: Callable, visit: Callable) -> Callable:
    """Make the function that scans the list of a node and visits its dense children."""

    @device_function
    def scan_and_visit(
        node: int, found: np.uint64, bits: tuple, event: tuple, index: IndexArrays, slots: tuple
    ) -> np.uint64:
        found = scan(node, found, bits, event, index, slots)
        row, left = dense_children(node, bits, index)
        while left[0] | left[1]:
            child, left = next_child(row, left)
            found = visit(child, found, bits, event, index, slots)
        return found

    return scan_and_visit


@lru_cache
def match_kernel(width: int, packed: str, kind: int, long: bool) -> Kernel:
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), one kind of answer, and
    tables with or without `long` filters."""
    visit1, visit2, visit3 = walkers(kind, giver(kind), thread_verifier(long))
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_features = 2 * width

    @kernel(f"void({array_types(packed)}, int64, int64, int64)", max_registers=KEYED_REGISTERS, named_tuples=ARRAY_CLASSES)
    def keyed_kernel(
        events: EventArrays, index: IndexArrays, answers: AnswerArrays, n_events: int, room: int, n_masked: int
    ) -> None:
        """Match one event per thread.

        n_masked   number of interfaces if answers are masks (a thread that has them all stops), else 0

        Launch: one thread per event.  Work: 32 bytes for each node of the trie that the event reaches (`index.layout`).
        """
        number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if number >= n_events:
            return
        mine, sparse = cuda.local.array(width, local_type), cuda.local.array(n_features, np.uint32)
        offsets, attributes = events
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        n = np.int64(np.uint32(offsets[number + 1] - offsets[0])) - first
        event, slots = (mine, n), (answers.ids, number * room, room)
        n_sparse, bits = _enter(mine, sparse, attributes, first, n, index)
        root = np.int64(index.t64[ROOT])
        found = visit3(root, np.uint64(0), bits, event, index, slots)
        row, left = dense_children(root, bits, index)
        full = ~np.uint64(0) >> np.uint64(64 - n_masked) if n_masked > 0 else ~np.uint64(0)
        next_sparse = np.int64(0)
        while found != full:  # the nodes of single features: dense ones from frequent to rare, then sparse ones
            if left[0] | left[1]:
                one, left = next_child(row, left)
            elif next_sparse < n_sparse:
                one = np.int64(sparse[next_sparse])
                next_sparse += 1
            else:
                break
            found = visit1(one, found, bits, event, index, slots)
            if not sparse_children(one, index):
                continue
            for i in range(n_sparse):
                two = probe(one, sparse[i], index) if np.int64(sparse[i]) > one else np.int64(-1)
                if two < 0:
                    continue
                found = visit2(two, found, bits, event, index, slots)
                if not sparse_children(two, index):
                    continue
                for j in range(n_sparse):
                    three = probe(two, sparse[j], index) if sparse[j] > sparse[i] else np.int64(-1)
                    if three >= 0:
                        found = visit3(three, found, bits, event, index, slots)
        answers.found[number] = found

    return keyed_kernel
