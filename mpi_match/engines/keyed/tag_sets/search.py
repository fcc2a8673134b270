"""The tag sets that an event has all tags of (`tag_sets.index`).

An event's tags are put in order.  For each tag, pair and triple of them that begins some key, the sets with that key are
looked up.  A set's record is read once, and compared by merging: both lists of tags ascend.

An event of m tags has m³/6 triples, and forms only those that begin with a pair that begins a key.  Where even these are
more than there are sets, all records are read one after the other instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import inlined, nested, parallel_jit
from mpi_match.compute.sort import sort_part
from mpi_match.engines.keyed.tag_sets.index import KEY_TAGS, RECORD_HEAD, SIZE_BITS, longer, may_have, whole

FEW_TAGS = 24
"""Of so many tags the triples are not counted before they are formed."""
KEYS_AT_ONCE = 128
"""Keys that are looked up together."""
CANDIDATES, TOUCHED, N_TALLIES = range(3)
"""Words of a block's tally: sets that were compared; a word that keeps loads from being left out."""
_SIZE_MASK = np.uint32(2**SIZE_BITS - 1)
_NONE = np.uint64(0)
_sort = inlined(sort_part)


class SetArrays(NamedTuple):
    """The arrays of `TagSetIndex` in their order."""

    tag: Array
    records: Array
    directory: Array
    bits: Array
    always: Array
    always_interface: Array


class SetAnswers(NamedTuple):
    """As for `cpu_search.match_block`: places i64, counts i64, ids u32; and tallies i64[blocks, N_TALLIES], added to."""

    places: Array
    counts: Array
    ids: Array
    tallies: Array


@parallel_jit
def match_tag_sets(todo: Any, block_events: Any, filters: Any, batch: Any, sets: Any, answers: Any) -> None:
    """Match several blocks of a batch, `todo` i64: their numbers.

    batch     offsets, attributes, bits of a code, and attributes of its widest event
    filters   answers are filters, not interfaces
    """
    for i in numba.prange(len(todo)):
        _match_block(todo[i], block_events, filters, batch, sets, answers)


@nested
def _match_block(block: Any, block_events: Any, filters: Any, batch: Any, sets: Any, answers: Any) -> None:
    offsets, attributes, shift, widest = batch
    answer, end = answers.places[block], answers.places[block + 1]
    tags = np.empty(widest, np.uint32)
    scratch = np.empty(KEYS_AT_ONCE + 2, np.uint64), np.empty(KEYS_AT_ONCE + 2, np.int64)
    for number in range(block * block_events, min((block + 1) * block_events, len(answers.counts))):
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        m = np.int64(np.uint32(offsets[number + 1] - offsets[number]))
        for k in range(m):
            tags[k] = sets.tag[np.int64(attributes[first + k]) >> shift]
        _sort(tags, 0, m)
        before = answer
        to = (answers.ids, end, filters, answers.tallies[block])
        for k in range(len(sets.always)):
            answer = _answer(sets.always[k], sets.always_interface[k], answer, to)
        if m > FEW_TAGS and _n_triples(tags, m, sets.bits) > len(sets.records) // (RECORD_HEAD + KEY_TAGS):
            answer = _compare_all(tags, m, sets.records, answer, to)
        else:
            answer = _look_up_all(tags, m, sets, scratch, answer, to)
        if answer <= end:
            _sort(answers.ids, before, answer)
            answer = _distinct(answers.ids, before, answer)  # a filter, too, may be found by two keys with one hash
        answers.counts[number] = answer - before
        answer = min(answer, end)


@nested
def _n_triples(tags: Any, m: Any, bits: Any) -> Any:
    """How many triples of an event's tags begin with a pair that begins a key."""
    n = np.int64(0)
    for i in range(m):
        one = longer(_NONE, tags[i])
        if may_have(bits, one):
            for j in range(i + 1, m):
                if may_have(bits, longer(one, tags[j])):
                    n += m - j - 1
    return n


@nested
def _look_up_all(tags: Any, m: Any, sets: Any, scratch: Any, answer: Any, to: Any) -> Any:
    """Look up the keys that an event's tags can be; returns where the next answer goes."""
    keys, buckets = scratch
    bits, n, event = sets.bits, 0, (tags, m)
    for i in range(m):
        one = longer(_NONE, tags[i])
        key = whole(one)
        if may_have(bits, key):
            keys[n] = key
            n += 1
        pairs_end = m if may_have(bits, one) else i
        for j in range(i + 1, pairs_end):
            two = longer(one, tags[j])
            key = whole(two)
            if may_have(bits, key):
                keys[n] = key
                n += 1
            triples_end = m if may_have(bits, two) else j
            for k in range(j + 1, triples_end):
                key = whole(longer(two, tags[k]))
                if may_have(bits, key):
                    keys[n] = key
                    n += 1
                    if n >= KEYS_AT_ONCE:
                        answer, n = _look_up(keys, n, buckets, event, sets, answer, to), 0
            if n >= KEYS_AT_ONCE:
                answer, n = _look_up(keys, n, buckets, event, sets, answer, to), 0
        if n >= KEYS_AT_ONCE:
            answer, n = _look_up(keys, n, buckets, event, sets, answer, to), 0
    return _look_up(keys, n, buckets, event, sets, answer, to)


@nested
def _look_up(keys: Any, n: Any, buckets: Any, event: Any, sets: Any, answer: Any, to: Any) -> Any:
    """Compare the sets with one of n keys, given by their hashes.

    The loads of all keys wait for memory together: first those of the directory, then the first words of the buckets.
    """
    (tags, m), records, directory = event, sets.records, sets.directory
    n_buckets, touched = len(directory) - 1, np.uint32(0)
    for k in range(n):
        bucket = np.int64(0)
        if n_buckets > 1:
            bucket = np.int64((keys[k] >> np.uint64(32)) * np.uint64(n_buckets) >> np.uint64(32))
        buckets[k] = bucket
        touched |= directory[bucket]
    for k in range(n):
        touched |= records[directory[buckets[k]]]
    to[3][TOUCHED] |= touched
    for k in range(n):
        at, stop = np.int64(directory[buckets[k]]), np.int64(directory[buckets[k] + 1])
        wanted = np.uint32(keys[k] << np.uint64(SIZE_BITS))
        while at < stop:
            head = records[at]
            size = np.int64(head & _SIZE_MASK)
            if head & ~_SIZE_MASK == wanted:
                answer = _compare(records, at, size, tags, m, answer, to)
            at += RECORD_HEAD + size
    return answer


@nested
def _compare_all(tags: Any, m: Any, records: Any, answer: Any, to: Any) -> Any:
    """Compare all sets that have tags; the last word is of none."""
    at = np.int64(0)
    while at < len(records) - 1:
        size = np.int64(records[at] & _SIZE_MASK)
        answer = _compare(records, at, size, tags, m, answer, to)
        at += RECORD_HEAD + size
    return answer


@nested
def _compare(records: Any, at: Any, size: Any, tags: Any, m: Any, answer: Any, to: Any) -> Any:
    """Compare one set, whose record is at word `at`."""
    to[3][CANDIDATES] += 1
    if _has_all(records, at + RECORD_HEAD, size, tags, m):
        answer = _answer(records[at + 1], records[at + 2], answer, to)
    return answer


@nested
def _has_all(records: Any, at: Any, size: Any, tags: Any, m: Any) -> Any:
    """Are records[at : at + size] all among the m tags?  Both ascend."""
    place = 0
    for k in range(at, at + size):
        tag = records[k]
        while place < m and tags[place] < tag:
            place += 1
        if place == m or tags[place] != tag:
            return False
        place += 1
    return True


@nested
def _answer(filter_id: Any, interface: Any, answer: Any, to: Any) -> Any:
    """Write an answer if there is room for it, and count it."""
    ids, end, filters, _ = to
    if answer < end:
        ids[answer] = filter_id if filters else interface
    return answer + 1


@nested
def _distinct(ids: Any, first: Any, last: Any) -> Any:
    """Leave out repeated items of sorted ids[first:last]; where they end."""
    kept = first
    for i in range(first, last):
        if kept == first or ids[i] != ids[kept - 1]:
            ids[kept] = ids[i]
            kept += 1
    return kept
