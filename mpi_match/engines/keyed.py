"""`keyed` on CPU threads: walk the trie with an event's features, verify the few filters in the lists it meets.

For each event (see `keyed_index` for the structure):

1. put its attributes into an array by name, so that a check is one load and two comparisons;
2. collect its features: the dense ones as a row of bits, the sparse ones as a list;
3. walk the trie and scan the lists of the nodes it reaches, the most frequent first: there an interface is most likely to be
   matched early.  After a match go on behind the interface's run, and stop when every interface is matched.

Blocks of events go to numba's threads.  Each block has room for some answers; what a block found is always *counted*,
and a block that found more than fits is matched again with the room it needs.
"""

from __future__ import annotations

import os
from typing import Any

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, take_ranges
from mpi_match.batch import EventBatch
from mpi_match.engines import check_batch
from mpi_match.engines.keyed_filing import NONE
from mpi_match.engines.keyed_index import DENSE, EMPTY, NODE_WORDS, SPARSE_CHILDREN, KeyedIndex, Section, bit_of, hash_of
from mpi_match.engines.keyed_lists import COUNT_BITS, HEADER, MAX_CHECKS
from mpi_match.matches import Matches
from mpi_match.table import Table

BLOCK_EVENTS = 512
"""Events a thread takes at a time."""
ROOM = 4
"""Answers per event that a block first has room for."""

_jit = numba.njit(cache=True, nogil=True)


class Keyed:
    """The index of one table and the threads that walk it."""

    name = "keyed"

    def __init__(self, table: Table, device: int | None = None, threads: int | None = None) -> None:
        self._table = table
        self._threads = max(1, min(threads or len(os.sched_getaffinity(0)), numba.config.NUMBA_NUM_THREADS))
        self.device = f"cpu, {self._threads} thread{'s' if self._threads > 1 else ''}"
        self.index = KeyedIndex.build(table)
        self._seen = np.full((self._threads, table.n_interfaces), -1, np.int64)
        self._by_name = np.full((self._threads, self.index.n_virtual), _absent(self.index.words), self.index.words.dtype)
        self._serial = 0

    @property
    def nbytes(self) -> int:
        return self.index.nbytes + self._seen.nbytes + self._by_name.nbytes

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """See `Engine.match`."""
        check_batch(self._table, batch)
        counts = np.zeros(batch.n_events, np.int64)
        starts = np.arange(0, batch.n_events, BLOCK_EVENTS)
        todo, parallel = np.arange(len(starts)), len(starts) > 1 and self._threads > 1
        places = offsets_of(np.full(len(starts), ROOM * BLOCK_EVENTS))
        ids = np.empty(int(places[-1]), np.uint32)
        numba.set_num_threads(self._threads)  # also starts them: without that `get_thread_id` has nothing to ask
        while len(todo):
            self._run(parallel, todo, batch, filters, places, counts, ids)
            found, room = np.add.reduceat(counts, starts), np.diff(places)
            todo = np.flatnonzero(found > room)
            if len(todo):
                places, ids = _grow(places, ids, found)
        found = np.add.reduceat(counts, starts) if len(starts) else counts
        n_ids = self._table.n_filters if filters else self._table.n_interfaces
        return Matches.from_counts(counts, ids[take_ranges(places[:-1], found)], n_ids)

    def _run(
        self, parallel: bool, todo: Array, batch: EventBatch, filters: bool, places: Array, counts: Array, ids: Array
    ) -> None:
        located = batch.location is not None and self._table.has_areas
        widest = int(np.diff(batch.offsets).max(initial=0))
        (_match_parallel if parallel else _match_serial)(
            todo,
            batch.offsets,
            batch.attributes,
            batch.location if located else np.full((1, 2), np.nan),
            located,
            *self.index.views,
            self.index.words,
            self._by_name,
            self._seen,
            np.empty((len(self._by_name), 2 * widest), np.int64),
            self._serial,
            filters,
            places,
            counts,
            ids,
        )
        self._serial += batch.n_events


def _absent(words: Array) -> int:
    """The packed attribute that no vocabulary has: what `by_name` holds for a name that the event lacks."""
    return int(np.iinfo(words.dtype).max)


def _grow(places: Array, ids: Array, found: Array) -> tuple[Array, Array]:
    """Room for `found` answers in every block; blocks that had enough keep theirs."""
    room = np.diff(places)
    kept = np.where(found > room, 0, found)
    grown = offsets_of(np.maximum(room, found))
    moved = np.empty(int(grown[-1]), np.uint32)
    moved[take_ranges(grown[:-1], kept)] = ids[take_ranges(places[:-1], kept)]
    return grown, moved


# Numba counts references to arrays, atomically, whenever one is sliced or taken out of a tuple: in these inner functions
# that would cost more than the matching and keep threads from scaling.  So they pass whole arrays and positions.

_hash_of, _bit_of = _jit(hash_of), _jit(bit_of)
SHIFT, ROOT, N_FEATURES, N_BITS, N_SLOTS = (
    int(x) for x in (Section.SHIFT, Section.ROOT, Section.N_FEATURES, Section.N_BITS, Section.N_SLOTS)
)
PRESENCE, CODES, EQUALITY, NODES = (int(x) for x in (Section.PRESENCE, Section.CODES, Section.EQUALITY, Section.NODES))
ENTRIES, FILTERS, BITS, SLOTS = (int(x) for x in (Section.ENTRIES, Section.FILTERS, Section.BITS, Section.SLOTS))
SETS, SET_CODES, AREAS = (int(x) for x in (Section.SETS, Section.SET_CODES, Section.AREAS))
_ONE = np.uint64(1)


@_jit
def _probe(parent, feature, t32, t64):  # type: ignore[no-untyped-def]
    """The child of a node by a feature, or -1."""
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


@_jit
def _verify(at, t32, t64, t_float, words, shift, by_name, thread, x, y):  # type: ignore[no-untyped-def]
    """Does the filter at word `at` match the event in `by_name[thread]`, located at (x, y) (NaN: nowhere)?"""
    n = np.int64(words[at + 1])
    place = at + HEADER
    for _ in range(n & MAX_CHECKS):
        low = words[place]
        value = by_name[thread, low >> shift]
        if value < low or value > words[place + 1]:
            return False
        place += 2
    for _ in range(n >> COUNT_BITS & MAX_CHECKS):
        low = words[place]
        if low <= by_name[thread, low >> shift] <= words[place + 1]:
            return False
        place += 2
    for _ in range(n >> 2 * COUNT_BITS):
        low, listed = words[place], np.int64(words[place + 1])
        code = np.int64(by_name[thread, low >> shift]) - np.int64(low)
        if _in_set(listed >> 1, code, t32, t64) == bool(listed & 1):
            return False
        place += 2
    area = np.int64(words[at + 2])
    if area == 0:
        return True
    circle = np.int64(t64[AREAS]) + 3 * (area - 1)
    dx, dy, r = x - t_float[circle], y - t_float[circle + 1], t_float[circle + 2]
    return dx * dx + dy * dy <= r * r


@_jit
def _in_set(set_id, code, t32, t64):  # type: ignore[no-untyped-def]
    """Is the code in an operand list?"""
    sets, codes = np.int64(t64[SETS]), np.int64(t64[SET_CODES])
    left, end = np.int64(t64[sets + set_id]), np.int64(t64[sets + set_id + 1])
    right = end
    while left < right:
        middle = (left + right) >> 1
        if t32[codes + middle] < code:
            left = middle + 1
        else:
            right = middle
    return left < end and t32[codes + left] == code


@_jit
def _scan(node, t32, t64, t_float, words, shift, by_name, thread, x, y, seen, serial, filters, ids, place, end, n):  # type: ignore[no-untyped-def]
    """Verify the list of a node; write new answers to ids[place + n] while there is room before `end`; returns the new count."""
    list_ = t64[np.int64(t64[NODES]) + NODE_WORDS * node + 2]
    if list_ == EMPTY:
        return n
    at = np.int64(list_) + 1
    last = at - 1 + np.int64(words[at - 1])
    entry = np.int64(t64[FILTERS]) + t32[np.int64(t64[ENTRIES]) + node] if filters else np.int64(0)
    while at < last:
        interface = np.int64(words[at])
        if not filters and seen[thread, interface] == serial:
            at += np.int64(words[at + 3])
            continue
        if _verify(at, t32, t64, t_float, words, shift, by_name, thread, x, y):
            if place + n < end:
                ids[place + n] = t32[entry] if filters else interface
            n += 1
            if not filters:
                seen[thread, interface] = serial
                at += np.int64(words[at + 3])
                continue
        count = np.int64(words[at + 1])
        at += HEADER + 2 * ((count & MAX_CHECKS) + (count >> COUNT_BITS & MAX_CHECKS) + (count >> 2 * COUNT_BITS))
        entry += 1
    return n


@_jit
def _popcount(bits):  # type: ignore[no-untyped-def]
    """Number of bits set in a u64."""
    bits = bits - ((bits >> _ONE) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@_jit
def _enter(attributes, first, last, t32, t64, shift, by_name, thread, sparse):  # type: ignore[no-untyped-def]
    """Enter an event's attributes into `by_name` and its sparse features into `sparse`.

    Returns the number of sparse features, and the two words of bits of the dense ones.
    """
    presence, codes, equality = np.int64(t64[PRESENCE]), np.int64(t64[CODES]), np.int64(t64[EQUALITY])
    top = np.int64(t64[N_FEATURES]) - 1
    code_mask = (np.int64(1) << shift) - 1
    n, bits0, bits1 = 0, np.uint64(0), np.uint64(0)
    for place in range(first, last):
        packed = np.int64(attributes[place])
        name = packed >> shift
        by_name[thread, name] = attributes[place]
        for which in range(2):
            feature = t32[presence + name] if which else t32[equality + t32[codes + name] + (packed & code_mask)]
            if feature == NONE:
                continue
            bit = top - np.int64(feature)
            if bit < 64:
                bits0 |= _ONE << np.uint64(bit)
            elif bit < DENSE:
                bits1 |= _ONE << np.uint64(bit - 64)
            else:
                sparse[thread, n] = feature
                n += 1
    return n, bits0, bits1


@_jit
def _child(t64, node_at, half, low):  # type: ignore[no-untyped-def]
    """The dense child of the node at word `node_at` by the feature of bit `low` in half 0 or 1 of its row."""
    above = _popcount(t64[node_at + half] & ~(low | (low - _ONE)))
    if half == 0:
        above += _popcount(t64[node_at + 1])
    return np.int64(t64[node_at + 3] & ~SPARSE_CHILDREN) + above


@_jit
def _scan_below(
    node,
    levels,
    bits0,
    bits1,
    t32,
    t64,
    t_float,
    words,
    shift,
    by_name,
    thread,
    x,
    y,
    seen,
    serial,
    filters,
    ids,
    place,
    end,
    n,
):  # type: ignore[no-untyped-def]
    """Scan the lists of a node's dense children, and of theirs when `levels` is 2."""
    nodes = np.int64(t64[NODES])
    at = nodes + NODE_WORDS * node
    for half in range(2):
        both = t64[at + half] & (bits1 if half else bits0)
        while both:
            low = both & (~both + _ONE)
            both ^= low
            child = _child(t64, at, half, low)
            n = _scan(
                child, t32, t64, t_float, words, shift, by_name, thread, x, y, seen, serial, filters, ids, place, end, n
            )
            if levels == 1:
                continue
            below = nodes + NODE_WORDS * child
            for second_half in range(2):
                second = t64[below + second_half] & (bits1 if second_half else bits0)
                while second:
                    lowest = second & (~second + _ONE)
                    second ^= lowest
                    leaf = _child(t64, below, second_half, lowest)
                    n = _scan(
                        leaf,
                        t32,
                        t64,
                        t_float,
                        words,
                        shift,
                        by_name,
                        thread,
                        x,
                        y,
                        seen,
                        serial,
                        filters,
                        ids,
                        place,
                        end,
                        n,
                    )
    return n


@_jit
def _match_event(
    attributes, first, last, t32, t64, t_float, words, by_name, thread, sparse, x, y, seen, serial, filters, ids, place, end
):  # type: ignore[no-untyped-def]
    """All answers of one event; returns how many there are, of which those that fit are in ids[place:end], sorted."""
    shift, nodes = np.int64(t64[SHIFT]), np.int64(t64[NODES])
    n_sparse, bits0, bits1 = _enter(attributes, first, last, t32, t64, shift, by_name, thread, sparse)
    root, top, n_interfaces = np.int64(t64[ROOT]), np.int64(t64[N_FEATURES]) - 1, seen.shape[1]
    n = _scan(root, t32, t64, t_float, words, shift, by_name, thread, x, y, seen, serial, filters, ids, place, end, 0)
    for half in range(2):
        heads = bits1 if half else bits0
        while heads and (filters or n < n_interfaces):
            low = heads & (~heads + _ONE)
            heads ^= low
            one = top - 64 * half - _popcount(low - _ONE)
            n = _scan(one, t32, t64, t_float, words, shift, by_name, thread, x, y, seen, serial, filters, ids, place, end, n)
            n = _scan_below(
                one,
                2,
                bits0,
                bits1,
                t32,
                t64,
                t_float,
                words,
                shift,
                by_name,
                thread,
                x,
                y,
                seen,
                serial,
                filters,
                ids,
                place,
                end,
                n,
            )
    for i in range(n_sparse):
        if not filters and n == n_interfaces:
            break
        one = sparse[thread, i]
        n = _scan(one, t32, t64, t_float, words, shift, by_name, thread, x, y, seen, serial, filters, ids, place, end, n)
        n = _scan_below(
            one,
            2,
            bits0,
            bits1,
            t32,
            t64,
            t_float,
            words,
            shift,
            by_name,
            thread,
            x,
            y,
            seen,
            serial,
            filters,
            ids,
            place,
            end,
            n,
        )
        if not t64[nodes + NODE_WORDS * one + 3] & SPARSE_CHILDREN:
            continue
        for j in range(n_sparse):
            two = _probe(one, sparse[thread, j], t32, t64) if sparse[thread, j] > one else np.int64(-1)
            if two < 0:
                continue
            n = _scan(two, t32, t64, t_float, words, shift, by_name, thread, x, y, seen, serial, filters, ids, place, end, n)
            n = _scan_below(
                two,
                1,
                bits0,
                bits1,
                t32,
                t64,
                t_float,
                words,
                shift,
                by_name,
                thread,
                x,
                y,
                seen,
                serial,
                filters,
                ids,
                place,
                end,
                n,
            )
            if not t64[nodes + NODE_WORDS * two + 3] & SPARSE_CHILDREN:
                continue
            for k in range(n_sparse):
                three = _probe(two, sparse[thread, k], t32, t64) if sparse[thread, k] > sparse[thread, j] else np.int64(-1)
                if three >= 0:
                    n = _scan(
                        three,
                        t32,
                        t64,
                        t_float,
                        words,
                        shift,
                        by_name,
                        thread,
                        x,
                        y,
                        seen,
                        serial,
                        filters,
                        ids,
                        place,
                        end,
                        n,
                    )
    for at in range(first, last):
        by_name[thread, np.int64(attributes[at]) >> shift] = ~(attributes[at] & 0)
    _sort(ids, place, min(place + n, end))
    return n


@_jit
def _sort(ids, first, last):  # type: ignore[no-untyped-def]
    """Sort ids[first:last] in place."""
    if last - first > 64:
        ids[first:last].sort()
        return
    for i in range(first + 1, last):
        value, at = ids[i], i
        while at > first and ids[at - 1] > value:
            ids[at] = ids[at - 1]
            at -= 1
        ids[at] = value


def _match_blocks(
    todo,
    offsets,
    attributes,
    location,
    located,
    t32,
    t64,
    t_float,
    words,
    by_name,
    seen,
    sparse,
    serial,
    filters,
    places,
    counts,
    ids,
):  # type: ignore[no-untyped-def]
    """Match the blocks `todo` i64 of a batch.

    offsets, attributes, location   the batch; `located` says whether `location` is one
    t32, t64, t_float, words        the index (`KeyedIndex.views`, `KeyedIndex.words`)
    by_name, seen, sparse           scratch, one row for each thread; between events `by_name` holds no attribute
    serial                          a number for the first event that no earlier event had: what `seen` is marked with
    places, counts, ids             out: answers of block b are end to end from ids[places[b]]; counts i64[n] per event, always complete
    """
    for t in numba.prange(len(todo)):
        block, thread = todo[t], numba.get_thread_id()
        place, end = places[block], places[block + 1]
        for event in range(block * BLOCK_EVENTS, min((block + 1) * BLOCK_EVENTS, len(counts))):
            first = np.int64(np.uint32(offsets[event] - offsets[0]))
            last = np.int64(np.uint32(offsets[event + 1] - offsets[0]))
            x, y = (location[event, 0], location[event, 1]) if located else (np.nan, np.nan)
            n = _match_event(
                attributes,
                first,
                last,
                t32,
                t64,
                t_float,
                words,
                by_name,
                thread,
                sparse,
                x,
                y,
                seen,
                serial + event,
                filters,
                ids,
                place,
                end,
            )
            counts[event] = n
            place = min(place + n, end)


_match_serial: Any = numba.njit(cache=True, nogil=True)(_match_blocks)
_match_parallel: Any = numba.njit(cache=True, nogil=True, parallel=True)(_match_blocks)

ENGINE = Keyed
