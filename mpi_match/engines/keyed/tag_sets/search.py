"""Finds the tag sets that are subsets of an event's tags (`tag_sets.index`).

An event's tags are sorted.  For each tag, pair and triple of them that begins a key, the sets with that key are looked up.
A set's record is read once.  Its first tags must be those that were looked up, so that it is found only once; the other tags
are compared by merging, since both lists of tags ascend.

An event of m tags has m³/6 triples, and forms only those that begin with a pair that begins a key.  If even these are more
than there are sets, all records are read sequentially instead.

The Bloom filter's answer is practically random, so the hottest loop does not branch on it: each hash is written to the end
of a list, whose length then grows or not.  This lets a core load several words of the bits at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.array_pointers import unowned
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.sort import sort_part
from mpi_match.compute.synchronization import atomic_add
from mpi_match.engines.keyed.tag_sets.index import RECORD_HEAD, SIZE_BITS
from mpi_match.engines.keyed.tag_sets.keys import KEY_TAGS, has_all, longer, may_have, place_of, whole

FEW_TAGS = 24
"""Most tags of an event whose triples are formed without counting them first."""
KEYS_AT_ONCE = 128
"""Keys that are looked up together."""
CANDIDATES, TOUCHED, N_TALLIES = range(3)
"""Words of a block's tally: the number of sets that were compared; a word that prevents loads from being optimised away."""
LAST_PLACE = 2**21 - 1
"""Largest index of a tag of an event; an event has fewer tags, since a name has a few bits less than a packed attribute."""
SIZE_MASK = np.uint32(2**SIZE_BITS - 1)
_NONE = np.uint64(0)


class SetArrays(NamedTuple):
    """The arrays of `TagSetIndex` in their order."""

    tag: Array
    records: Array
    directory: Array
    bits: Array
    interface: Array
    always: Array
    shortest: Array


class SetAnswers(NamedTuple):
    """As for `cpu_search.match_block`: places i64, counts i64, ids u32; and tallies i64[blocks, N_TALLIES], which are
    incremented."""

    places: Array
    counts: Array
    ids: Array
    tallies: Array


@jit
def match_tag_sets(
    todo: Array, taken: Array, block_events: int, filters: bool, batch: tuple, sets: SetArrays, answers: SetAnswers
) -> None:
    """Match the blocks of a batch, numbers `todo` i64, that no other thread takes, until none is left.

    taken     i64[1]: the number of blocks taken, 0 at first
    filters   True if answers are filters, False for interfaces
    batch     offsets, attributes, bits of a code, and attributes of its widest event
    """
    i = atomic_add(taken.ctypes.data, 1)
    while i < len(todo):
        _match_block(todo[i], block_events, filters, batch, sets, answers)
        i = atomic_add(taken.ctypes.data, 1)


@nested
def _match_block(block: int, block_events: int, filters: bool, batch: tuple, sets: Any, answers: SetAnswers) -> None:
    offsets, attributes, shift, widest = batch
    of_tag, interface, always = unowned(sets.tag), unowned(sets.interface), unowned(sets.always)
    given = unowned(sets.records), unowned(sets.directory), unowned(sets.bits), sets.shortest[0]
    answer, end = answers.places[block], answers.places[block + 1]
    own = np.empty(widest, np.uint32), np.empty(widest, np.uint64), np.empty(widest, np.int64)
    room = KEYS_AT_ONCE + 2 * widest + 2
    lists = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    found = unowned(lists[0]), unowned(lists[1]), unowned(lists[2])
    tags, scratch = unowned(own[0]), (unowned(own[1]), unowned(own[2]), found)
    ids, tally = unowned(answers.ids), unowned(answers.tallies[block])
    for number in range(block * block_events, min((block + 1) * block_events, len(answers.counts))):
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        m = np.int64(np.uint32(offsets[number + 1] - offsets[number]))
        for k in range(m):
            tags[k] = of_tag[np.int64(attributes[first + k]) >> shift]
        sort_part(tags, 0, m)
        before = answer
        to = (ids, end, filters, interface, tally)
        for k in range(len(always)):
            answer = _answer(always[k], answer, to)
        if m > FEW_TAGS and _n_triples(tags, m, given[2]) > len(given[0]) // (RECORD_HEAD + KEY_TAGS):
            answer = _compare_all(tags, m, given[0], answer, to)
        else:
            answer = _look_up_all(tags, m, given, scratch, answer, to)
        if answer <= end:
            sort_part(ids, before, answer)
            if not filters and len(interface) > 0:
                answer = _distinct(ids, before, answer)
        answers.counts[number] = answer - before
        answer = min(answer, end)
    _keep_alive(own, lists)


@nested
def _keep_alive(own: tuple, lists: tuple) -> None:
    """Use arrays whose memory is accessed without their owners, so that they stay alive."""
    own[0][:0], own[1][:0], own[2][:0] = 0, 0, 0
    lists[0][:0], lists[1][:0], lists[2][:0] = 0, 0, 0


@nested
def _n_triples(tags: Array, m: Int, bits: Array) -> Int:
    """The number of triples of an event's tags that begin with a pair that begins a key."""
    n = np.int64(0)
    for i in range(m):
        one = longer(_NONE, tags[i])
        if may_have(bits, len(bits), one):
            for j in range(i + 1, m):
                if may_have(bits, len(bits), longer(one, tags[j])):
                    n += m - j - 1
    return n


@nested
def _look_up_all(tags: Array, m: Any, sets: Any, scratch: tuple, answer: int, to: Any) -> int:
    """Look up the keys that an event's tags can form; returns the index of the next answer."""
    pairs, seconds, found = scratch
    keys, places, _ = found
    bits, shortest, n = sets[2], sets[3], 0
    n_words = len(bits)
    for i in range(m):
        one = longer(_NONE, tags[i])
        if shortest == 1:
            keys[n], places[n] = whole(one), _places_of(i, i, i)
            n += may_have(bits, n_words, keys[n])
        if not may_have(bits, n_words, one):
            continue
        n_pairs = 0
        for j in range(i + 1, m):
            two = longer(one, tags[j])
            pairs[n_pairs], seconds[n_pairs] = two, j
            n_pairs += may_have(bits, n_words, two)
        if shortest <= 2:
            for j in range(i + 1, m):
                keys[n], places[n] = whole(longer(one, tags[j])), _places_of(i, j, j)
                n += may_have(bits, n_words, keys[n])
        for pair in range(n_pairs):
            two, j = pairs[pair], seconds[pair]
            for k in range(j + 1, m):
                key = whole(longer(two, tags[k]))
                keys[n], places[n] = key, _places_of(i, j, k)
                n += may_have(bits, n_words, key)
            if n >= KEYS_AT_ONCE:
                answer, n = _look_up(found, n, (tags, m), sets, answer, to), 0
        if n >= KEYS_AT_ONCE:
            answer, n = _look_up(found, n, (tags, m), sets, answer, to), 0
    return _look_up(found, n, (tags, m), sets, answer, to)


@nested
def _look_up(found: tuple, n: int, event: tuple, sets: SetArrays, answer: int, to: tuple) -> int:
    """Compare the sets with n keys, given by their hashes and the positions of their tags among the event's.

    The loads of all keys overlap: first those of the directory, then the first words of the buckets.
    """
    (tags, m), records, directory = event, sets[0], sets[1]
    keys, places, buckets = found
    n_buckets, touched = len(directory) - 1, np.uint32(0)
    for k in range(n):
        buckets[k] = place_of(keys[k], n_buckets)
        touched |= directory[buckets[k]]
    for k in range(n):
        touched |= records[directory[buckets[k]]]
    to[4][TOUCHED] |= touched
    for k in range(n):
        at, stop = np.int64(directory[buckets[k]]), np.int64(directory[buckets[k] + 1])
        wanted = np.uint32(keys[k] << np.uint64(SIZE_BITS))
        while at < stop:
            head = records[at]
            size = np.int64(head & SIZE_MASK)
            if head & ~SIZE_MASK == wanted:
                to[4][CANDIDATES] += 1
                if _has_key_and_rest(records, at + RECORD_HEAD, size, tags, m, places[k]):
                    answer = _answer(records[at + 1], answer, to)
            at += RECORD_HEAD + size
    return answer


@nested
def _places_of(i: int, j: int, k: int) -> np.int64:
    """The positions of a key's tags among an event's, i <= j <= k, as one number; a shorter key repeats its last."""
    return (np.int64(i) << 42) | (np.int64(j) << 21) | np.int64(k)


@nested
def _has_key_and_rest(records: Array, first: Int, size: Int, tags: Array, m: int, places: int) -> bool:
    """Tells whether a set's tags, from word `first`, are those of a key at some positions of an event's, with all others
    after them."""
    i, j, k = places >> 42, (places >> 21) & LAST_PLACE, places & LAST_PLACE
    n_key = 1 + (j > i) + (k > j)
    if min(size, KEY_TAGS) != n_key:
        return False
    right = records[first] == tags[i]
    if n_key > 1:
        right &= records[first + 1] == tags[j]
    if n_key > 2:
        right &= records[first + 2] == tags[k]
    return right and has_all(records, first + n_key, size - n_key, tags, k + 1, m - k - 1)


@nested
def _compare_all(tags: Array, m: Any, records: Array, answer: int, to: Any) -> int:
    """Compare all sets."""
    at, stop = np.int64(0), len(records) - 1
    while at < stop:
        size = np.int64(records[at] & SIZE_MASK)
        answer = _compare(records, at, size, tags, m, answer, to)
        at += RECORD_HEAD + size
    return answer


@nested
def _compare(records: Array, at: Any, size: Any, tags: Array, m: int, answer: int, to: tuple) -> int:
    """Compare one set, whose record is at word `at`."""
    to[4][CANDIDATES] += 1
    if has_all(records, at + RECORD_HEAD, size, tags, np.int64(0), m):
        answer = _answer(records[at + 1], answer, to)
    return answer


@nested
def _answer(filter_id: int, answer: int, to: tuple) -> int:
    """Write an answer if it fits, and count it."""
    ids, end, filters, interface, _ = to
    if answer < end:
        ids[answer] = filter_id if filters or len(interface) == 0 else interface[filter_id]
    return answer + 1


@nested
def _distinct(ids: Array, first: int, last: int) -> int:
    """Remove repeated items of sorted ids[first:last]; returns the new end."""
    kept = first
    for i in range(first, last):
        if kept == first or ids[i] != ids[kept - 1]:
            ids[kept] = ids[i]
            kept += 1
    return kept
