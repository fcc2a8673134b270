"""Kernels of `keyed` on a GPU: walk the trie with one event per thread, then turn what the threads found into sorted runs of ids.

A thread keeps its event's attributes and features in local memory (its share of the cache) and walks the trie as the CPU does
(`keyed`), except that features are not sorted: a thread compares their numbers instead, and takes names before values, because
frequent keys come first that way.  What it finds goes to a bit mask where there are at most 64 interfaces, otherwise to the event's
slots in device memory; the count is always complete, so a batch whose answers did not fit is matched again with more slots.

Numba makes doubles of mixed signed and unsigned 64-bit integers, so everything but hashes and masks is `int64` here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpi_match.engines._cuda import Kernel, add, cuda, device_function, kernel, multiply
from mpi_match.engines.keyed_index import COUNT_BITS, EMPTY, HEADER, MAX_CHECKS, NONE, Section, bit_of, hash_of

BLOCK = 128
"""Threads of a block, and events of a group whose answers are written together."""
WIDTHS = (8, 64, 256)
"""Attributes of an event that a thread has room for; the narrowest that holds the widest event of a batch is used."""
MASKS, INTERFACES, FILTERS_ = 0, 1, 2
"""Kinds of answer: masks of interfaces, sorted interfaces in slots, sorted filters in slots."""

SHIFT, ROOT, N_BITS, N_SLOTS = int(Section.SHIFT), int(Section.ROOT), int(Section.N_BITS), int(Section.N_SLOTS)
PRESENCE, CODES, EQUALITY, LISTS = int(Section.PRESENCE), int(Section.CODES), int(Section.EQUALITY), int(Section.LISTS)
ENTRIES, FILTERS, BITS, SLOTS = int(Section.ENTRIES), int(Section.FILTERS), int(Section.BITS), int(Section.SLOTS)
SETS, SET_CODES, AREAS = int(Section.SETS), int(Section.SET_CODES), int(Section.AREAS)
_NONE = int(NONE)
_ONE = np.uint64(1)

_hash_of, _bit_of = device_function(hash_of), device_function(bit_of)


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
def _verify(at: Any, counts: Any, attributes: Any, n_attributes: Any, t32: Any, t64: Any, floats: Any, words: Any, x: Any, y: Any) -> Any:
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
        node: Any, found: Any, attributes: Any, n: Any, t32: Any, t64: Any, floats: Any, words: Any, x: Any, y: Any,
        ids: Any, first: Any, room: Any,
    ) -> Any:
        lists = np.int64(t64[LISTS]) + node
        at, last = np.int64(t64[lists] >> _ONE), np.int64(t64[lists + 1] >> _ONE)
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
        node: Any, found: Any, attributes: Any, n: Any, t32: Any, t64: Any, floats: Any, words: Any, x: Any, y: Any,
        ids: Any, first: Any, room: Any,
    ) -> Any:
        lists = np.int64(t64[LISTS]) + node
        at, last = np.int64(t64[lists] >> _ONE), np.int64(t64[lists + 1] >> _ONE)
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
        node: Any, found: Any, attributes: Any, n: Any, t32: Any, t64: Any, floats: Any, words: Any, x: Any, y: Any,
        ids: Any, first: Any, room: Any,
    ) -> Any:
        lists = np.int64(t64[LISTS]) + node
        at, last = np.int64(t64[lists] >> _ONE), np.int64(t64[lists + 1] >> _ONE)
        entry = np.int64(t64[FILTERS]) + np.int64(t32[np.int64(t64[ENTRIES]) + node])
        while at < last:
            counts = np.int64(words[at + 1])
            if _verify(at, counts, attributes, n, t32, t64, floats, words, x, y):
                found = np.uint64(_insert(ids, first, np.int64(found), room, np.int64(t32[entry]), False))
            at += HEADER + 2 * ((counts & MAX_CHECKS) + (counts >> COUNT_BITS & MAX_CHECKS) + (counts >> 2 * COUNT_BITS))
            entry += 1
        return found

    return (scan_masks, scan_interfaces, scan_filters)[kind]


@lru_cache
def match_kernel(width: int, packed: str, kind: int) -> Kernel:
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), and one kind of answer."""
    scan = _scan(kind)
    local_type = np.uint32 if packed == "uint32" else np.uint64
    n_features = 2 * width

    @kernel(
        f"void(uint32[::1], {packed}[::1], float64[::1], uint32[::1], uint64[::1], float64[::1], {packed}[::1],"
        " uint64[::1], uint32[::1], int64, int64, int64)"
    )
    def keyed_kernel(
        offsets: Any, attributes: Any, location: Any, t32: Any, t64: Any, floats: Any, words: Any,
        found_of: Any, ids: Any, n_events: Any, room: Any, n_masked: Any,
    ) -> None:
        """Match one event per thread.

        offsets, attributes   u32[n + 1], u32 or u64: the events (`EventBatch`)
        location              f64[2n], or f64[1] when there are none
        t32, t64, floats      the index (`KeyedIndex.views`);  words: its lists
        found_of              u64[n], out: mask of interfaces, or count of answers
        ids                   u32[n * room], out: sorted answers of event e from e * room, those that fit
        n_masked              number of interfaces when answers are masks (a thread that has them all stops), else 0

        Launch: one thread per event.  Work: a probe for each pair of features that starts at a live node, and so on (`keyed_index`).
        """
        event = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if event >= n_events:
            return
        mine = cuda.local.array(width, local_type)
        features = cuda.local.array(n_features, np.uint32)
        base = offsets[0]
        first = np.int64(np.uint32(offsets[event] - base))
        n = np.int64(np.uint32(offsets[event + 1] - base)) - first
        x = location[2 * event] if location.size > 1 else np.nan
        y = location[2 * event + 1] if location.size > 1 else np.nan
        shift, lists = np.int64(t64[SHIFT]), np.int64(t64[LISTS])
        presence, codes, equality = np.int64(t64[PRESENCE]), np.int64(t64[CODES]), np.int64(t64[EQUALITY])
        code_mask = (np.int64(1) << shift) - 1
        n_found = np.int64(0)
        for a in range(n):
            packed_attribute = attributes[first + a]
            mine[a] = packed_attribute
            feature = t32[presence + (np.int64(packed_attribute) >> shift)]
            if feature != NONE:
                features[n_found] = feature
                n_found += 1
        for a in range(n):
            packed_attribute = np.int64(mine[a])
            feature = t32[equality + np.int64(t32[codes + (packed_attribute >> shift)]) + (packed_attribute & code_mask)]
            if feature != NONE:
                features[n_found] = feature
                n_found += 1
        start = event * room
        full = ~np.uint64(0) >> np.uint64(64 - n_masked) if n_masked > 0 else ~np.uint64(0)
        found = scan(np.int64(t64[ROOT]), np.uint64(0), mine, n, t32, t64, floats, words, x, y, ids, start, room)
        for i in range(n_found):
            if found == full:
                break
            one = np.int64(features[i])
            found = scan(one, found, mine, n, t32, t64, floats, words, x, y, ids, start, room)
            if not t64[lists + one] & _ONE:
                continue
            for j in range(n_found):
                if features[j] <= one:
                    continue
                two = _probe(one, features[j], t32, t64)
                if two < 0:
                    continue
                found = scan(two, found, mine, n, t32, t64, floats, words, x, y, ids, start, room)
                if not t64[lists + two] & _ONE:
                    continue
                for k in range(n_found):
                    if features[k] > features[j]:
                        three = _probe(two, features[k], t32, t64)
                        if three >= 0:
                            found = scan(three, found, mine, n, t32, t64, floats, words, x, y, ids, start, room)
        found_of[event] = found

    return keyed_kernel


@device_function
def _popcount(bits: Any) -> Any:
    """Number of bits set in a u64."""
    bits = bits - ((bits >> _ONE) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


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
