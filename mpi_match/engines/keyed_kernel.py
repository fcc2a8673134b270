"""Kernels of `keyed` on a GPU: walk the trie with one event per thread, then turn what the threads found into sorted runs of ids.

A thread keeps its event's attributes and features in local memory (its share of the cache) and walks the trie as the CPU does
(`keyed`).  What it finds goes to a bit mask where there are at most 64 interfaces, otherwise to the event's
slots in device memory; the count is always complete, so a batch whose answers did not fit is matched again with more slots.

Numba makes doubles of mixed signed and unsigned 64-bit integers, so everything but hashes and masks is `int64` here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.engines._cuda import Kernel, add, cuda, device_function, kernel, multiply
from mpi_match.engines.keyed_filing import NONE
from mpi_match.engines.keyed_index import (
    AREAS,
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
    PRESENCE,
    ROOT,
    SET_CODES,
    SETS,
    SHIFT,
    SLOTS,
    SPARSE_CHILDREN,
    bit_of,
    hash_of,
)
from mpi_match.engines.keyed_lists import COUNT_BITS, HEADER, MAX_CHECKS

BLOCK = 128
"""Threads of a block, and events of a group whose answers are written together."""
WIDTHS = (8, 64, 256)
"""Attributes of an event that a thread has room for; the narrowest that holds the widest event of a batch is used."""
MAX_REGISTERS = 64
"""Of a thread of `keyed_kernel`: it waits for memory, so more threads count for more than a few spilled registers."""
MASKS, INTERFACES, FILTERS_ = 0, 1, 2
"""Kinds of answer: masks of interfaces, sorted interfaces in slots, sorted filters in slots."""

_ONE = np.uint64(1)

_hash_of, _bit_of = device_function(hash_of), device_function(bit_of)


@device_function
def _popcount(bits: Any) -> Any:
    """Number of bits set in a u64."""
    return np.int64(cuda.popc(bits))


@device_function
def _child(row: Any, base: Any, low: Any) -> Any:
    """The dense child by the feature of bit `low` of a half `row`; `base` is the child of that half's highest bit."""
    return base + _popcount(row & ~(low | (low - _ONE)))


@device_function
def _probe(parent: Any, feature: Any, t32: Any, t64: Any) -> Any:
    """The child of a node by a feature, or -1."""
    wanted = np.uint64(parent) << np.uint64(32) | np.uint64(feature)
    hashed = _hash_of(wanted)
    word, bit = _bit_of(hashed, t64[N_BITS])
    if not t32[np.int64(t64[BITS] + word)] & bit:
        return np.int64(-1)
    mask = t64[N_SLOTS] - _ONE
    slot = hashed & mask
    while True:
        at = np.int64(t64[SLOTS] + slot * np.uint64(2))
        key = t64[at]
        if key == wanted:
            return np.int64(t64[at + 1])
        if key == EMPTY:
            return np.int64(-1)
        slot = (slot + _ONE) & mask


@device_function
def _in_set(set_id: Any, code: Any, t32: Any, t64: Any) -> Any:
    """Is the code in an operand list?"""
    sets, codes = np.int64(t64[SETS]), np.int64(t64[SET_CODES])
    left, end = np.int64(t64[sets + set_id]), np.int64(t64[sets + set_id + 1])
    right = end
    while left < right:
        middle = (left + right) >> 1
        if np.int64(t32[codes + middle]) < code:
            left = middle + 1
        else:
            right = middle
    return left < end and np.int64(t32[codes + left]) == code


@device_function
def _has(attributes: Any, n_attributes: Any, low: Any, high: Any) -> Any:
    """Is there an attribute in [low, high]?"""
    found = False
    for a in range(n_attributes):
        found = found or (low <= attributes[a] and attributes[a] <= high)
    return found


@device_function
def _verify(
    at: Any, counts: Any, attributes: Any, n_attributes: Any, t32: Any, t64: Any, floats: Any, words: Any, x: Any, y: Any
) -> Any:
    """Does the filter at word `at` match the event with these attributes, located at (x, y) (NaN: nowhere)?"""
    place = at + HEADER
    for _ in range(counts & MAX_CHECKS):
        if not _has(attributes, n_attributes, words[place], words[place + 1]):
            return False
        place += 2
    if counts >> COUNT_BITS:
        for _ in range(counts >> COUNT_BITS & MAX_CHECKS):
            if _has(attributes, n_attributes, words[place], words[place + 1]):
                return False
            place += 2
        for _ in range(counts >> 2 * COUNT_BITS):
            base, listed = np.int64(words[place]), np.int64(words[place + 1])
            held = False
            shift = np.int64(t64[SHIFT])
            for a in range(n_attributes):
                if np.int64(attributes[a]) >> shift == base >> shift:
                    held = _in_set(listed >> 1, np.int64(attributes[a]) - base, t32, t64)
            if held == ((listed & 1) == 1):
                return False
            place += 2
    area = np.int64(words[at + 2])
    if area == 0:
        return True
    circle = np.int64(t64[AREAS]) + 3 * (area - 1)
    dx, dy, r = add(x, -floats[circle]), add(y, -floats[circle + 1]), floats[circle + 2]
    return add(multiply(dx, dx), multiply(dy, dy)) <= multiply(r, r)


@device_function
def _insert(ids: Any, first: Any, n: Any, room: Any, value: Any, distinct: Any) -> Any:
    """Put a value into the sorted ids[first : first + min(n, room)] unless it is there (when `distinct`); returns the new count.

    When there is no room the value is counted only: the count is then at least what is needed.
    """
    last = first + min(n, room)
    if distinct:
        left, right = first, last
        while left < right:
            middle = (left + right) >> 1
            if np.int64(ids[middle]) < value:
                left = middle + 1
            else:
                right = middle
        if left < last and np.int64(ids[left]) == value:
            return n
    if n >= room:
        return n + 1
    at = last
    while at > first and np.int64(ids[at - 1]) > value:
        ids[at] = ids[at - 1]
        at -= 1
    ids[at] = value
    return n + 1


def _scan(kind: int) -> Any:
    """The function that verifies the list of one node.  Its `found` is the mask of matched interfaces, or the count of answers."""

    @device_function
    def scan_masks(
        node: Any,
        list_: Any,
        found: Any,
        attributes: Any,
        n: Any,
        t32: Any,
        t64: Any,
        floats: Any,
        words: Any,
        x: Any,
        y: Any,
        ids: Any,
        first: Any,
        room: Any,
    ) -> Any:
        if list_ == EMPTY:
            return found
        at = np.int64(list_) + 1
        last = at - 1 + np.int64(words[at - 1])
        while at < last:
            interface = np.uint64(words[at])
            counts = np.int64(words[at + 1])
            if found >> interface & _ONE:
                at += np.int64(words[at + 3])
            elif _verify(at, counts, attributes, n, t32, t64, floats, words, x, y):
                found |= _ONE << interface
                at += np.int64(words[at + 3])
            else:
                at += HEADER + 2 * ((counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS) + (counts >> 2 * COUNT_BITS))
        return found

    @device_function
    def scan_interfaces(
        node: Any,
        list_: Any,
        found: Any,
        attributes: Any,
        n: Any,
        t32: Any,
        t64: Any,
        floats: Any,
        words: Any,
        x: Any,
        y: Any,
        ids: Any,
        first: Any,
        room: Any,
    ) -> Any:
        if list_ == EMPTY:
            return found
        at = np.int64(list_) + 1
        last = at - 1 + np.int64(words[at - 1])
        while at < last:
            counts = np.int64(words[at + 1])
            if _verify(at, counts, attributes, n, t32, t64, floats, words, x, y):
                found = np.uint64(_insert(ids, first, np.int64(found), room, np.int64(words[at]), True))
                at += np.int64(words[at + 3])
            else:
                at += HEADER + 2 * ((counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS) + (counts >> 2 * COUNT_BITS))
        return found

    @device_function
    def scan_filters(
        node: Any,
        list_: Any,
        found: Any,
        attributes: Any,
        n: Any,
        t32: Any,
        t64: Any,
        floats: Any,
        words: Any,
        x: Any,
        y: Any,
        ids: Any,
        first: Any,
        room: Any,
    ) -> Any:
        if list_ == EMPTY:
            return found
        at = np.int64(list_) + 1
        last = at - 1 + np.int64(words[at - 1])
        entry = np.int64(t64[FILTERS]) + np.int64(t32[np.int64(t64[ENTRIES]) + node])
        while at < last:
            counts = np.int64(words[at + 1])
            if _verify(at, counts, attributes, n, t32, t64, floats, words, x, y):
                found = np.uint64(_insert(ids, first, np.int64(found), room, np.int64(t32[entry]), False))
            at += HEADER + 2 * ((counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS) + (counts >> 2 * COUNT_BITS))
            entry += 1
        return found

    return (scan_masks, scan_interfaces, scan_filters)[kind]


def _scan_below(scan: Any) -> Any:
    """The function that scans the lists of a node's dense children, and of theirs when `deeper`."""

    @device_function
    def scan_below(
        node: Any,
        deeper: Any,
        found: Any,
        bits0: Any,
        bits1: Any,
        nodes: Any,
        attributes: Any,
        n: Any,
        t32: Any,
        t64: Any,
        floats: Any,
        words: Any,
        x: Any,
        y: Any,
        ids: Any,
        first: Any,
        room: Any,
    ) -> Any:
        at = nodes + NODE_WORDS * node
        row0, row1 = t64[at], t64[at + 1]
        base = np.int64(t64[at + 3] & ~SPARSE_CHILDREN)
        both0, both1 = row0 & bits0, row1 & bits1
        base0 = base + _popcount(row1)
        while both0 | both1:
            if both0:
                low = both0 & (~both0 + _ONE)
                both0 ^= low
                child = _child(row0, base0, low)
            else:
                low = both1 & (~both1 + _ONE)
                both1 ^= low
                child = _child(row1, base, low)
            below = nodes + NODE_WORDS * child
            found = scan(child, t64[below + 2], found, attributes, n, t32, t64, floats, words, x, y, ids, first, room)
            if not deeper:
                continue
            second0, second1 = t64[below], t64[below + 1]
            second_base = np.int64(t64[below + 3] & ~SPARSE_CHILDREN)
            third0, third1 = second0 & bits0, second1 & bits1
            second_base0 = second_base + _popcount(second1)
            while third0 | third1:
                if third0:
                    low = third0 & (~third0 + _ONE)
                    third0 ^= low
                    leaf = _child(second0, second_base0, low)
                else:
                    low = third1 & (~third1 + _ONE)
                    third1 ^= low
                    leaf = _child(second1, second_base, low)
                list_ = t64[nodes + NODE_WORDS * leaf + 2]
                found = scan(leaf, list_, found, attributes, n, t32, t64, floats, words, x, y, ids, first, room)
        return found

    return scan_below


@lru_cache
def match_kernel(width: int, packed: str, kind: int) -> Kernel:
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), and one kind of answer."""
    scan = _scan(kind)
    scan_below = _scan_below(scan)
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_features = 2 * width

    @kernel(
        f"void(uint32[::1], {packed}[::1], float64[::1], uint32[::1], uint64[::1], float64[::1], {packed}[::1],"
        " uint64[::1], uint32[::1], int64, int64, int64)",
        max_registers=MAX_REGISTERS,
    )
    def keyed_kernel(
        offsets: Any,
        attributes: Any,
        location: Any,
        t32: Any,
        t64: Any,
        floats: Any,
        words: Any,
        found_of: Any,
        ids: Any,
        n_events: Any,
        room: Any,
        n_masked: Any,
    ) -> None:
        """Match one event per thread.

        offsets, attributes   u32[n + 1], u32 or u64: the events (`EventBatch`)
        location              f64[2n], or f64[1] when there are none
        t32, t64, floats      the index (`KeyedIndex.views`);  words: its lists
        found_of              u64[n], out: mask of interfaces, or count of answers
        ids                   u32[n * room], out: sorted answers of event e from e * room, those that fit
        n_masked              number of interfaces when answers are masks (a thread that has them all stops), else 0

        Launch: one thread per event.  Work: 32 bytes for each node of the trie that the event reaches (`keyed_index`).
        """
        event = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if event >= n_events:
            return
        mine = cuda.local.array(width, local_type)
        sparse = cuda.local.array(n_features, np.uint32)
        base = offsets[0]
        first = np.int64(np.uint32(offsets[event] - base))
        n = np.int64(np.uint32(offsets[event + 1] - base)) - first
        x = location[2 * event] if location.size > 1 else np.nan
        y = location[2 * event + 1] if location.size > 1 else np.nan
        shift, nodes, top = np.int64(t64[SHIFT]), np.int64(t64[NODES]), np.int64(t64[N_FEATURES]) - 1
        presence, codes, equality = np.int64(t64[PRESENCE]), np.int64(t64[CODES]), np.int64(t64[EQUALITY])
        code_mask = (np.int64(1) << shift) - 1
        n_sparse, bits0, bits1 = np.int64(0), np.uint64(0), np.uint64(0)
        for a in range(n):
            mine[a] = attributes[first + a]
            packed_attribute = np.int64(mine[a])
            name = packed_attribute >> shift
            for which in range(2):
                feature = (
                    t32[presence + name]
                    if which
                    else t32[equality + np.int64(t32[codes + name]) + (packed_attribute & code_mask)]
                )
                if feature == NONE:
                    continue
                bit = top - np.int64(feature)
                if bit < 64:
                    bits0 |= _ONE << np.uint64(bit)
                elif bit < DENSE:
                    bits1 |= _ONE << np.uint64(bit - 64)
                else:
                    sparse[n_sparse] = feature
                    n_sparse += 1
        start = event * room
        full = ~np.uint64(0) >> np.uint64(64 - n_masked) if n_masked > 0 else ~np.uint64(0)
        root = np.int64(t64[ROOT])
        found = scan(
            root, t64[nodes + NODE_WORDS * root + 2], np.uint64(0), mine, n, t32, t64, floats, words, x, y, ids, start, room
        )
        heads0, heads1, next_sparse = bits0, bits1, np.int64(0)
        while found != full:  # one head after the other: dense ones from frequent to rare, then sparse ones
            if heads0 != np.uint64(0):
                low = heads0 & (~heads0 + _ONE)
                heads0 ^= low
                one = top - _popcount(low - _ONE)
            elif heads1 != np.uint64(0):
                low = heads1 & (~heads1 + _ONE)
                heads1 ^= low
                one = top - 64 - _popcount(low - _ONE)
            elif next_sparse < n_sparse:
                one = np.int64(sparse[next_sparse])
                next_sparse += 1
            else:
                break
            at = nodes + NODE_WORDS * one
            found = scan(one, t64[at + 2], found, mine, n, t32, t64, floats, words, x, y, ids, start, room)
            found = scan_below(
                one, True, found, bits0, bits1, nodes, mine, n, t32, t64, floats, words, x, y, ids, start, room
            )
            if not t64[at + 3] & SPARSE_CHILDREN:
                continue
            for j in range(n_sparse):
                if np.int64(sparse[j]) <= one:
                    continue
                two = _probe(one, sparse[j], t32, t64)
                if two < 0:
                    continue
                at = nodes + NODE_WORDS * two
                found = scan(two, t64[at + 2], found, mine, n, t32, t64, floats, words, x, y, ids, start, room)
                found = scan_below(
                    two, False, found, bits0, bits1, nodes, mine, n, t32, t64, floats, words, x, y, ids, start, room
                )
                if not t64[at + 3] & SPARSE_CHILDREN:
                    continue
                for k in range(n_sparse):
                    if sparse[k] > sparse[j]:
                        three = _probe(two, sparse[k], t32, t64)
                        if three >= 0:
                            found = scan(
                                three,
                                t64[nodes + NODE_WORDS * three + 2],
                                found,
                                mine,
                                n,
                                t32,
                                t64,
                                floats,
                                words,
                                x,
                                y,
                                ids,
                                start,
                                room,
                            )
        found_of[event] = found

    return keyed_kernel


@lru_cache
def answer_kernels(is_mask: bool) -> tuple[Kernel, Kernel]:
    """The kernels that count each group's answers and write them end to end: u8 from masks, u32 from slots."""
    out = "uint8" if is_mask else "uint32"

    @kernel(f"void(uint64[::1], {out}[::1], uint64[::1], int64)")
    def count_kernel(found_of: Any, counts: Any, sums: Any, n_events: Any) -> None:
        """Count of answers of each event, and their sum for each group of BLOCK events.  Launch: a block per group, a thread per event."""
        total = cuda.shared.array(1, np.int64)
        if cuda.threadIdx.x == 0:
            total[0] = 0
        cuda.syncthreads()
        event = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if event < n_events:
            n = _popcount(found_of[event]) if is_mask else np.int64(found_of[event])
            counts[event] = n
            cuda.atomic.add(total, 0, n)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            sums[cuda.blockIdx.x] = total[0]

    @kernel(f"void(uint64[::1], {out}[::1], uint64[::1], uint32[::1], {out}[::1], int64, int64)")
    def write_kernel(found_of: Any, counts: Any, starts: Any, slots: Any, ids: Any, n_events: Any, room: Any) -> None:
        """Write every event's ids behind those of the events before it.

        starts   u64[groups + 1]: first answer of each group (`scan_kernel`);  slots u32[n * room]: what `match_kernel` found
        ids      out: all answers, in the order of events;  Launch: a block per group, a thread per event.
        """
        before = cuda.shared.array(BLOCK, np.int64)
        thread = cuda.threadIdx.x
        event = cuda.blockIdx.x * cuda.blockDim.x + thread
        before[thread] = np.int64(counts[event]) if event < n_events else np.int64(0)
        cuda.syncthreads()
        step = 1
        while step < cuda.blockDim.x:
            value = before[thread - step] if thread >= step else np.int64(0)
            cuda.syncthreads()
            before[thread] += value
            cuda.syncthreads()
            step *= 2
        if event >= n_events:
            return
        at = np.int64(starts[cuda.blockIdx.x]) + before[thread] - np.int64(counts[event])
        if is_mask:
            bits = found_of[event]
            while bits != np.uint64(0):
                lowest = bits & (~bits + _ONE)
                ids[at] = _popcount(lowest - _ONE)
                bits ^= lowest
                at += 1
        else:
            for i in range(np.int64(counts[event])):
                ids[at + i] = slots[event * room + i]

    return count_kernel, write_kernel


SCAN_THREADS = 256


@kernel("void(uint64[::1], int64)")
def scan_kernel(sums: Any, n: Any) -> None:
    """Replace sums[0:n] by the sums of what stands before each, and put the total into sums[n].  Launch: one block of SCAN_THREADS."""
    part = cuda.shared.array(SCAN_THREADS, np.int64)
    thread = cuda.threadIdx.x
    share = (n + cuda.blockDim.x - 1) // cuda.blockDim.x
    first, last = min(thread * share, n), min((thread + 1) * share, n)
    total = np.int64(0)
    for i in range(first, last):
        total += np.int64(sums[i])
    part[thread] = total
    cuda.syncthreads()
    running = np.int64(0)
    for t in range(thread):
        running += part[t]
    if thread == cuda.blockDim.x - 1:
        sums[n] = running + total
    for i in range(first, last):
        value = np.int64(sums[i])
        sums[i] = running
        running += value
