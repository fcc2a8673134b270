"""Finds the tag sets that are subsets of an event's tags, on a GPU: a warp for each event, and the index of
`tag_sets.index`.

    enter     a lane for each tag, which counts the tags before it; the sorted tags are in shared memory
    pairs     a lane for each pair of tags: if the pair begins keys, the lane tests all triples that begin with it
    look up   triples that pass the Bloom filter are looked up in the directory; the same lane compares the sets of the
              bucket, unless it is long
    share     long buckets wait in a queue, and are compared by all lanes together, a set each, when it is full and at the
              end: with popular tags, half of the answers of an event are in one bucket, and most of its buckets are long
    scan      instead, if there are more triples than sets: a lane for each bucket

A few events with many answers have several warps each, in blocks of their own (`SlicePlan.most_warps`): all warps of an
event form its keys, and each compares a part of the long buckets.

Hashes, look-ups and comparisons are those of the CPU (`tag_sets.keys`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.trie_thread import FILTER_IDS, MASKS, SORTED_ANSWERS, AnswerArrays, EventArrays
from mpi_match.engines.keyed.tag_sets.index import RECORD_HEAD, SIZE_BITS
from mpi_match.engines.keyed.tag_sets.keys import KEY_TAGS, has_all, longer, may_have, place_of, whole
from mpi_match.engines.keyed.tag_sets.search import FEW_TAGS, SIZE_MASK
from mpi_match.gpu.intrinsics import WARP, atomic_add, ballot, lane, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, device_twin, kernel
from mpi_match.gpu.warp import append, append_together, running_sum, tidy

TAG_WIDTHS = (32, 256)
"""Most tags of an event for which a warp has room."""
LONG_BUCKET, LONG_BUCKETS = 64, 32
"""Words of a bucket from which on a warp compares it together, and most such buckets that wait for that."""
MOST_WARPS = 64
"""Most warps of an event."""
WINDOW, LOADED_TOGETHER = 288, 3 * WARP
"""Words of a long bucket that a warp has in shared memory, enough for the longest record, and words loaded at once."""
SHORTEST, SHIFT_OF_NAMES, N_WITHOUT_TAGS, N_WITH_INTERFACE = range(4)
"""Words of `facts`: `shortest` of the index, bits of a code in an attribute, and the lengths of two arrays that may be
empty."""
_longer, _whole, _place_of = device_twin(longer), device_twin(whole), device_twin(place_of)
_may_have, _has_all = device_twin(may_have), device_twin(has_all)
_NONE, _ONE = np.uint64(0), np.uint64(1)


class TagSetArrays(NamedTuple):
    """A `TagSetIndex` as kernel arguments, and `facts` i64[4]."""

    tag: Any
    records: Any
    directory: Any
    bits: Any
    interface: Any
    always: Any
    facts: Any


_SETS = "TagSetArrays(uint32[::1], uint32[::1], uint32[::1], uint64[::1], uint32[::1], uint32[::1], int64[::1])"


def _searchers(kind: int) -> tuple[Any, Any, Any]:  # noqa: C901  seven functions in one
    """Make three functions for one kind of answer: to record an answer, to compare all sets, and to look up all keys of an
    event.

    `event` is the array of sorted tags, the index of the event's first one, and their number; `about` the masks of all
    events, the destination of the event's answers, and the queue of its long buckets: arrays of buckets, of the words that
    their sets begin with, of lengths and of windows, and the index of the warp.
    """

    @device_function
    def answer_of(filter_id: int, sets: TagSetArrays) -> np.int64:
        if kind != FILTER_IDS and sets.facts[N_WITH_INTERFACE] > 0:
            return np.int64(sets.interface[np.int64(filter_id)])
        return np.int64(filter_id)

    @device_function
    def give(filter_id: int, sets: TagSetArrays, about: tuple) -> None:
        masks, answers, _ = about
        answer = answer_of(filter_id, sets)
        if kind == MASKS:
            cuda.atomic.or_(masks, answers[2], _ONE << np.uint64(answer))
        else:
            append(np.uint32(answer), answers)

    @device_function
    def compare(bucket: int, wanted: int, any_head: bool, event: tuple, sets: TagSetArrays, about: tuple) -> None:
        """Compare the sets of a bucket: those whose first words begin with `wanted`, or all."""
        tags, own, m = event
        at, stop = np.int64(sets.directory[bucket]), np.int64(sets.directory[bucket + 1])
        while at < stop:
            head = sets.records[at]
            size = np.int64(head & SIZE_MASK)
            is_key = any_head or (head & ~SIZE_MASK) == wanted
            if is_key and _has_all(sets.records, at + RECORD_HEAD, size, tags, own, m):
                give(sets.records[at + 1], sets, about)
            at += RECORD_HEAD + size

    @device_function
    def compare_together(bucket: int, wanted: int, event: tuple, sets: TagSetArrays, about: tuple) -> None:
        """Compare the sets of a bucket whose first words begin with `wanted`: each lane takes the next set."""
        masks, answers, (_, _, _, window, warp) = about
        tags, own, m = event
        at, stop, begin = np.int64(sets.directory[bucket]), np.int64(sets.directory[bucket + 1]), WINDOW * warp
        while at < stop:
            end = begin + min(stop - at, WINDOW)
            sync_warp()
            for i in range(lane(), end - begin, LOADED_TOGETHER):  # three loads at once, because each takes long
                second, third = i + WARP < end - begin, i + 2 * WARP < end - begin
                words = (
                    sets.records[at + i],
                    sets.records[at + i + WARP] if second else np.uint32(0),
                    sets.records[at + i + 2 * WARP] if third else np.uint32(0),
                )
                window[begin + i] = words[0]
                if second:
                    window[begin + i + WARP] = words[1]
                if third:
                    window[begin + i + 2 * WARP] = words[2]
            sync_warp()
            mine, there, turn = np.int64(-1), begin, 0
            while there < end and turn < WARP:
                after = there + RECORD_HEAD + np.int64(window[there] & SIZE_MASK)
                if after > end:
                    break
                if turn == lane():
                    mine = there
                there, turn = after, turn + 1
            at += there - begin
            answer, is_answer = np.int64(0), False
            if mine >= 0 and (window[mine] & ~SIZE_MASK) == wanted:
                size = np.int64(window[mine] & SIZE_MASK)
                is_answer = _has_all(window, mine + RECORD_HEAD, size, tags, own, m)
                if is_answer:
                    answer = answer_of(window[mine + 1], sets)
            if kind != MASKS:
                append_together(is_answer, np.uint32(answer), answers)
            elif is_answer:
                cuda.atomic.or_(masks, answers[2], _ONE << np.uint64(answer))

    @device_function
    def share(event: tuple, sets: TagSetArrays, about: tuple) -> None:
        """Compare the long buckets in the queue together, and empty it."""
        buckets, words, lengths, _, warp = about[2]
        sync_warp()
        for i in range(LONG_BUCKETS * warp, LONG_BUCKETS * warp + min(np.int64(lengths[warp]), LONG_BUCKETS)):
            compare_together(np.int64(buckets[i]), words[i], event, sets, about)
        sync_warp()
        if lane() == 0:
            lengths[warp] = 0
        sync_warp()

    @device_function
    def compare_all(event: tuple, sets: TagSetArrays, about: tuple) -> None:
        first = WARP * np.int64(cuda.blockIdx.y) + lane()
        for bucket in range(first, sets.directory.size - 1, WARP * np.int64(cuda.gridDim.y)):
            compare(bucket, np.uint32(0), True, event, sets, about)

    @device_function
    def look_up(key: np.uint64, event: tuple, sets: TagSetArrays, about: tuple) -> bool:
        """Compare the sets with a key, if there may be any; a long bucket is queued.  False if the queue is full."""
        if not _may_have(sets.bits, sets.bits.size, key):
            return True
        wanted = np.uint32((key << np.uint64(SIZE_BITS)) & np.uint64(0xFFFFFFFF))
        bucket = _place_of(key, sets.directory.size - 1)
        if sets.directory[bucket + 1] - sets.directory[bucket] < LONG_BUCKET:
            if cuda.blockIdx.y == 0:
                compare(bucket, wanted, False, event, sets, about)
            return True
        if bucket % np.int64(cuda.gridDim.y) != cuda.blockIdx.y:
            return True
        buckets, words, lengths, _, warp = about[2]
        place = np.int64(atomic_add(lengths, warp, 1))
        if place >= LONG_BUCKETS:
            return False
        buckets[LONG_BUCKETS * warp + place], words[LONG_BUCKETS * warp + place] = bucket, wanted
        return True

    @device_function
    def look_up_all(event: tuple, sets: TagSetArrays, about: tuple) -> None:
        """Look up all keys of an event.  A lane that finds the queue full goes on with the same key when it is empty."""
        tags, own, m = event
        shortest, n_words = sets.facts[SHORTEST], sets.bits.size
        a = np.int64(lane()) if shortest == 1 else np.int64(m)
        i, j, k, has_room = np.int64(0), np.int64(1) + lane(), np.int64(0), False
        while ballot(not has_room) != 0:
            has_room = True
            while has_room and a < m:
                has_room = look_up(_whole(_longer(_NONE, tags[own + a])), event, sets, about)
                a += WARP if has_room else 0
            while has_room and i < m - 1:
                if j >= m:
                    i, j = i + 1, j - m + i + 2
                    continue
                one = _longer(_NONE, tags[own + i])
                if _may_have(sets.bits, n_words, one):
                    two = _longer(one, tags[own + j])
                    if shortest <= 2 and k == 0:
                        has_room = look_up(_whole(two), event, sets, about)
                    if has_room and _may_have(sets.bits, n_words, two):
                        k = max(k, j + 1)
                        while has_room and k < m:
                            has_room = look_up(_whole(_longer(two, tags[own + k])), event, sets, about)
                            k += 1 if has_room else 0
                if has_room:
                    j, k = j + WARP, np.int64(0)
            share(event, sets, about)

    return give, compare_all, look_up_all


@device_function
def _n_triples(tags: Array, own: Any, m: int, sets: TagSetArrays) -> np.int64:
    """The number of triples of the event's tags that begin with a pair that begins a key; the same for all lanes."""
    n, n_words = np.int64(0), sets.bits.size
    for i in range(lane(), m, WARP):
        one = _longer(_NONE, tags[own + i])
        if _may_have(sets.bits, n_words, one):
            for j in range(i + 1, m):
                if _may_have(sets.bits, n_words, _longer(one, tags[own + j])):
                    n += m - j - 1
    return np.int64(shuffle(running_sum(n), WARP - 1))


@lru_cache
def tag_set_kernel(width: int, packed: str, kind: int) -> Kernel:
    """The kernel for events of at most `width` attributes of type `packed` ("uint32", "uint64"), and one kind of answer."""
    n_warps, (give, compare_all, look_up_all) = KEYED_BLOCK // WARP, _searchers(kind)
    all_tags, all_buckets, all_windows = n_warps * width, n_warps * LONG_BUCKETS, n_warps * WINDOW
    events_type, answers_type = f"EventArrays(uint32[::1], {packed}[::1])", "AnswerArrays(uint64[::1], uint32[::1])"

    @kernel(
        f"void({events_type}, {_SETS}, {answers_type}, int64, int64, int64)",
        named_tuples=(EventArrays, TagSetArrays, AnswerArrays),
    )
    def tag_set_kernel_(
        events: EventArrays, sets: TagSetArrays, given: AnswerArrays, n_events: int, room: int, n_masked: int
    ) -> None:
        """Match one event per warp; parameters as those of `trie_thread`, with all masks and counts 0 initially.

        Launch: blocks (events, sharers), one warp per event, or as many as there are sharers; with several the answers are
        not sorted.  Work: 32 bytes for each pair of tags, and for each triple that begins with a pair that
        begins a key; a bucket, some 50 bytes, for each triple that passes the Bloom filter.
        """
        drawn = cuda.shared.array(all_tags, np.uint32)
        tags = cuda.shared.array(all_tags, np.uint32)
        buckets = cuda.shared.array(all_buckets, np.uint32)
        words = cuda.shared.array(all_buckets, np.uint32)
        window = cuda.shared.array(all_windows, np.uint32)
        lengths = cuda.shared.array(n_warps, np.int32)
        thread = np.int64(cuda.threadIdx.x)
        number = (np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread) // WARP
        if number >= n_events:
            return
        warp = thread // WARP
        own = width * warp
        if lane() == 0:
            lengths[warp] = 0
        (offsets, attributes), shift = events, sets.facts[SHIFT_OF_NAMES]
        first = np.int64(np.uint32(offsets[number] - offsets[0]))
        m = np.int64(np.uint32(offsets[number + 1] - offsets[0])) - first
        for a in range(lane(), m, WARP):
            drawn[own + a] = sets.tag[np.int64(attributes[first + a]) >> shift]
        sync_warp()
        for a in range(lane(), m, WARP):
            before = np.int64(0)
            for b in range(m):
                before += drawn[own + b] < drawn[own + a]
            tags[own + before] = drawn[own + a]
        sync_warp()
        answers = (given.found, given.ids, number, room)
        event, about = (tags, own, m), (given.found, answers, (buckets, words, lengths, window, warp))
        sharer, n_sharers = np.int64(cuda.blockIdx.y), np.int64(cuda.gridDim.y)
        for a in range(WARP * sharer + lane(), sets.facts[N_WITHOUT_TAGS], WARP * n_sharers):
            give(sets.always[a], sets, about)
        if m > FEW_TAGS and _n_triples(tags, own, m, sets) > sets.records.size // (RECORD_HEAD + KEY_TAGS):
            compare_all(event, sets, about)
        else:
            look_up_all(event, sets, about)
        if kind != MASKS and n_sharers == 1:
            tidy(answers, SORTED_ANSWERS)

    return tag_set_kernel_
