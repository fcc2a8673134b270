"""Finds the tag sets that are subsets of an event's tags, on a GPU: a warp for each event, and the index of
`tag_sets.index`.

    enter     a lane for each tag, which counts the tags before it; the sorted tags are in shared memory
    pairs     a lane for each pair of tags: if the pair begins keys, the lane tests all triples that begin with it
    look up   triples that pass the Bloom filter are looked up in the directory, and compared by the same lane
    scan      instead, if there are more triples than sets: a lane for each bucket

Hashes, look-ups and comparisons are those of the CPU (`tag_sets.keys`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines.keyed.kernels.compact import KEYED_BLOCK
from mpi_match.engines.keyed.kernels.trie_thread import FILTER_IDS, MASKS, AnswerArrays, EventArrays
from mpi_match.engines.keyed.tag_sets.index import RECORD_HEAD, SIZE_BITS
from mpi_match.engines.keyed.tag_sets.keys import KEY_TAGS, has_all, longer, may_have, place_of, whole
from mpi_match.engines.keyed.tag_sets.search import FEW_TAGS, SIZE_MASK
from mpi_match.gpu.intrinsics import WARP, lane, shuffle, sync_warp
from mpi_match.gpu.kernels import Kernel, cuda, device_function, device_twin, kernel
from mpi_match.gpu.warp import append, running_sum, tidy

TAG_WIDTHS = (32, 256)
"""Most tags of an event for which a warp has room."""
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


def _searchers(kind: int) -> tuple[Any, Any, Any]:  # noqa: C901  five functions in one
    """Make three functions for one kind of answer: to record an answer, to compare all sets, and to look up all keys of an
    event.

    `event` is the array of sorted tags, the index of the event's first one, and their number; `about` the masks of all
    events, and the destination of the event's answers.
    """

    @device_function
    def give(filter_id: int, sets: TagSetArrays, about: tuple) -> None:
        masks, answers = about
        answer = np.int64(filter_id)
        if kind != FILTER_IDS and sets.facts[N_WITH_INTERFACE] > 0:
            answer = np.int64(sets.interface[answer])
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
    def compare_all(event: tuple, sets: TagSetArrays, about: tuple) -> None:
        for bucket in range(lane(), sets.directory.size - 1, WARP):
            compare(bucket, np.uint32(0), True, event, sets, about)

    @device_function
    def look_up(key: np.uint64, event: tuple, sets: TagSetArrays, about: tuple) -> None:
        """Compare the sets with a key, if there may be any."""
        if _may_have(sets.bits, sets.bits.size, key):
            wanted = np.uint32((key << np.uint64(SIZE_BITS)) & np.uint64(0xFFFFFFFF))
            compare(_place_of(key, sets.directory.size - 1), wanted, False, event, sets, about)

    @device_function
    def look_up_all(event: tuple, sets: TagSetArrays, about: tuple) -> None:
        tags, own, m = event
        shortest, n_words = sets.facts[SHORTEST], sets.bits.size
        if shortest == 1:
            for a in range(lane(), m, WARP):
                look_up(_whole(_longer(_NONE, tags[own + a])), event, sets, about)
        i, j = np.int64(0), np.int64(1) + lane()
        while i < m - 1:
            if j >= m:
                i, j = i + 1, j - m + i + 2
                continue
            one = _longer(_NONE, tags[own + i])
            if _may_have(sets.bits, n_words, one):
                two = _longer(one, tags[own + j])
                if shortest <= 2:
                    look_up(_whole(two), event, sets, about)
                if _may_have(sets.bits, n_words, two):
                    for k in range(j + 1, m):
                        look_up(_whole(_longer(two, tags[own + k])), event, sets, about)
            j += WARP

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
    all_tags, (give, compare_all, look_up_all) = KEYED_BLOCK // WARP * width, _searchers(kind)
    events_type, answers_type = f"EventArrays(uint32[::1], {packed}[::1])", "AnswerArrays(uint64[::1], uint32[::1])"

    @kernel(
        f"void({events_type}, {_SETS}, {answers_type}, int64, int64, int64)",
        named_tuples=(EventArrays, TagSetArrays, AnswerArrays),
    )
    def tag_set_kernel_(
        events: EventArrays, sets: TagSetArrays, given: AnswerArrays, n_events: int, room: int, n_masked: int
    ) -> None:
        """Match one event per warp; parameters as those of `trie_thread`, with all masks and counts 0 initially.

        Launch: one warp per event.  Work: 32 bytes for each pair of tags, and for each triple that begins with a pair that
        begins a key; a bucket, some 50 bytes, for each triple that passes the Bloom filter.
        """
        drawn = cuda.shared.array(all_tags, np.uint32)
        tags = cuda.shared.array(all_tags, np.uint32)
        thread = np.int64(cuda.threadIdx.x)
        number = (np.int64(cuda.blockIdx.x) * cuda.blockDim.x + thread) // WARP
        if number >= n_events:
            return
        own = width * (thread // WARP)
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
        event, about = (tags, own, m), (given.found, answers)
        for a in range(lane(), sets.facts[N_WITHOUT_TAGS], WARP):
            give(sets.always[a], sets, about)
        if m > FEW_TAGS and _n_triples(tags, own, m, sets) > sets.records.size // (RECORD_HEAD + KEY_TAGS):
            compare_all(event, sets, about)
        else:
            look_up_all(event, sets, about)
        if kind != MASKS:
            tidy(answers)

    return tag_set_kernel_
