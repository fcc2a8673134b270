"""Matches events on a CPU: walks the trie with an event's features and verifies the filters in the lists on the way.

Several events at a time (`index.layout` has the data structure):

    walk    visit the nodes whose key an event has, of one event after another, and note their lists (`cpu_walk`)

and then for each of these events:

    enter   its attributes go into `by_name`, so that a check is one load and two comparisons
    scan    each list: verify the checks that the key does not imply
    rows    intersect the rows of bits of the filters that no key excludes (`cpu_bitmap_search`)
    cells   search the grid's blocks for the cells that contain the event (`hash_grid`)

            level   visited                           lists
            0       temp, city, temp=25, city=Milan   temp: f4
            1       temp=25 city, city=Milan temp,    city=Milan temp: f2, f9    city=Milan temp=25: f7
                    city=Milan temp=25

After a match the scan skips the interface's other filters, and it ends when every interface is matched.

One compiled function matches events in blocks, taking one block after another until none is left.  Several threads call it
for one batch, and one thread alone for a single block, because starting threads takes longer than matching an event.  Arrays
are passed as addresses (`array_pointers`), so that a call costs less than matching an event, and without owners whose
references would be counted.

Finding out that an array has no owner still takes as long as matching an event if it is done at every call.  So the
functions here are inlined before they are compiled (`inline="always"`).  Arrays that belong together are passed as tuples,
which disappear with the inlining:

    index    t32, t64, words: `KeyedIndex.views`, `.words`
    walked   see `cpu_walk`
    event    argument of `cpu_verify`: the event's attribute of each name, and the width of a code
    given    True if answers are filters; the thread's row of `seen`; the event's stamp in it; its row of `verified`
    span     start of the event's answers, index of the next one, end of the room
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.array_pointers import unowned
from mpi_match.compute.compile_cache import compile_once, inlined, jit, nested
from mpi_match.compute.sort import sort_ids
from mpi_match.compute.synchronization import atomic_add
from mpi_match.engines.keyed import search_arrays as arrays
from mpi_match.engines.keyed.cpu_bitmap_search import enter_rows, scan_bitmap
from mpi_match.engines.keyed.cpu_grid_search import enter_bucket_keys, scan_cell
from mpi_match.engines.keyed.cpu_verify import verify
from mpi_match.engines.keyed.cpu_walk import (
    ALL,
    FIRST_LIST,
    LIST_ITEM,
    LIST_START,
    MOST_LISTS,
    NEXT_GROUP,
    NEXT_LIST,
    SHARE,
    WALKED_TOGETHER,
    enter_group,
    link_lists,
    node_of,
    walk,
    walked_by,
)
from mpi_match.engines.keyed.index.layout import ENTRIES, FILTERS, SHIFT
from mpi_match.engines.keyed.index.lookup import entry_words
from mpi_match.engines.keyed.index.postings import HEADER, MAX_CHECKS

TASK_EVENTS = 512
"""Events of a block, which a thread takes at a time."""

SPARE = 4
"""If a group has at most one of so many lists for which there is room, the next one has twice the events."""
LATE = 8
"""Events after which the share of those that match every interface is mostly that of the last ones.  If it is above a half,
events are walked one by one and depth first: until every interface is matched, such a walk visits a part of the nodes."""


@jit
def match_blocks(
    thread: int, serial: int, filters: bool, offsets: Array, attributes: Array, location: Array, bound: Array
) -> Int:
    """Match the blocks of a batch that no other thread takes, until none is left; returns the number of their answers.

    thread                   number of the thread's row of the scratch
    serial                   a number for the batch's first event that no earlier event had; `seen` is marked with it
    filters                  True if answers are filters, False for interfaces
    offsets ... location     `EventBatch`; one location, NaN, if no filter has an area
    bound                    i64[n, 4]: `search_arrays` as addresses (`PointerTable.table`)
    """
    to_match, counts = arrays.blocks_to_match(bound), arrays.counts(bound)[: len(offsets) - 1]
    answers, batch = (arrays.places(bound), counts, arrays.ids(bound)), (offsets, attributes, location)
    found, is_alone, taken = np.int64(0), len(to_match) == 1, np.int64(0)
    if not is_alone:
        taken = atomic_add(arrays.n_taken(bound).ctypes.data, 1)
    while taken < len(to_match):
        found += _match_block(to_match[taken], thread, serial, filters, batch, bound, answers)
        taken = np.int64(1) if is_alone else atomic_add(arrays.n_taken(bound).ctypes.data, 1)
    return found


def compile_search(packed: str) -> None:
    """Compile `match_blocks` for attributes of the given packed type."""
    with compile_once(f"keyed_search-{packed}", 1) as missing:
        if missing:
            attributes = from_dtype(np.dtype(packed))[::1]
            batch = (types.uint32[::1], attributes, types.float64[:, ::1])
            match_blocks.compile((types.int64, types.int64, types.boolean, *batch, types.int64[:, ::1]))


@nested
def _match_block(block: int, thread: int, serial: int, filters: bool, batch: tuple, bound: Array, answers: tuple) -> Int:
    """Match a block of a batch; returns the number of answers, including those that do not fit.

    block     its number: it has the events from block * TASK_EVENTS on
    batch     offsets, attributes, location
    answers   places i64, counts i64 and ids u32: the answers are written, without gaps, to
              ids[places[block] : places[block + 1]] as far as they fit; counts, output: the number of answers of
              each event, always complete
    """
    offsets, attributes, location = batch[0], unowned(batch[1]), batch[2]
    places, counts, ids = answers
    t64, words = arrays.t64(bound), arrays.words(bound, attributes.dtype)
    index = (arrays.t32(bound), t64, words)
    blocks, circles = arrays.blocks(bound), arrays.circles(bound)
    records, checks = arrays.records(bound), arrays.checks(bound, words.dtype)
    sub_buckets, levels = arrays.sub_buckets(bound), arrays.levels(bound)
    grid = (blocks, circles, records, checks, sub_buckets)
    all_by_name = arrays.by_name(bound, words.dtype)
    by_name, sparse, seen = all_by_name[thread], arrays.sparse(bound)[thread], arrays.seen(bound)[thread]
    walked = walked_by(thread, bound)
    members, lists, words_at = walked[0], walked[5], words.ctypes.data
    bins, bitmap, places_of_rows = _bins_of(bound), _bitmap_of(bound, words), arrays.row_places(bound)[thread]
    later = _later_of(bound, checks)
    has_bitmap = len(bitmap[1]) + len(later[1]) > 0
    verified, marks = arrays.verified(bound)[thread], arrays.id_marks(bound)[thread]
    event, absent = (by_name, np.int64(t64[SHIFT])), by_name[len(by_name) - 1]
    answer, end, every = places[block], places[block + 1], np.int64(-1) if filters else arrays.n_interfaces(bound)[0]
    found = np.int64(0)
    first, last, most = block * TASK_EVENTS, min((block + 1) * TASK_EVENTS, len(counts)), lists[NEXT_GROUP]
    share = lists[SHARE]
    while first < last:
        deep, n_stopped = 2 * share > ALL, np.int64(0)
        n = enter_group(offsets, attributes, first, np.int64(1) if deep else min(most, last - first), walked, index)
        level = walk(np.int64(0), deep, words_at, words.itemsize, thread, bound)
        if level >= 0 and n > 1:
            most = n >> 1
            continue
        n_lists = link_lists(n, walked, seen, filters, words)
        for nth_event in range(n):
            number, before = first + nth_event, answer
            given = (filters, seen, serial + number, verified)
            mine = attributes[_place(offsets, number) : _place(offsets, number + 1)]
            for place in range(len(mine)):
                by_name[np.int64(mine[place]) >> event[1]] = mine[place]
            while True:
                reach = (before, answer, end, every)
                answer = _scan_lists(members[nth_event, FIRST_LIST], lists, event, index, given, ids, reach)
                if level < 0 or answer - before == every:
                    break
                level = walk(level, deep, words_at, words.itemsize, thread, bound)  # of a group of one event
                link_lists(n, walked, seen, filters, words)
            if has_bitmap and answer - before != every:
                enter_rows(mine, event[1], bins, places_of_rows)
                for nth in range(2):
                    if len(bitmap[1] if nth == 0 else later[1]) > 0 and answer - before != every:
                        reach, searched = (before, answer, end, every), bitmap if nth == 0 else later
                        answer = scan_bitmap(places_of_rows, len(bins[2]), searched, event, index[:2], given, ids, reach)
            if len(levels) > 0:
                n_keys, no_names = enter_bucket_keys(mine, sub_buckets, sparse, index)
                keys, where = (sparse, n_keys, no_names), number if len(location) == len(counts) else 0
                for nth in range(len(levels)):
                    if answer - before == every:
                        break
                    point, span = (location[where, 0], location[where, 1]), (before, answer, end)
                    answer = scan_cell(levels[nth], point, keys, event, (index, grid), given, ids, span)
            for place in range(len(mine)):
                by_name[np.int64(mine[place]) >> event[1]] = absent
            n_stopped += np.int64(answer - before == every)
            counts[number] = answer - before
            found += answer - before
            answer = min(answer, end)
            sort_ids(ids, before, answer, marks)
        first += n
        if not deep and n_lists * SPARE <= MOST_LISTS:
            most = min(2 * most, WALKED_TOGETHER)
        share += (ALL * n_stopped // n - share) * min(n, LATE) // LATE
    lists[NEXT_GROUP], lists[SHARE] = most, share
    return found


@inlined
def _place(offsets: Array, number: Int) -> Int:
    """The place of an event's first attribute."""
    return np.int64(np.uint32(offsets[number] - offsets[0]))


@inlined
def _bins_of(bound: Array) -> tuple:
    """The arrays of `Bins`."""
    of_columns = arrays.n_bins(bound), arrays.first_row(bound)
    return arrays.column_of_name(bound), arrays.bin_bounds(bound), of_columns[0], of_columns[1]


@inlined
def _bitmap_of(bound: Array, words: Array) -> tuple:
    """The argument `bitmap` of `scan_bitmap`."""
    bits, summary, places = (
        arrays.position_bits(bound),
        arrays.position_summary(bound),
        arrays.positions(bound),
    )
    filters, interfaces = arrays.position_filters(bound), arrays.position_interfaces(bound)
    return bits, summary, places, filters, interfaces, arrays.position_words(bound, words.dtype)


@inlined
def _later_of(bound: Array, checks: tuple) -> tuple:
    """The argument `bitmap` of `scan_bitmap` for filters that were added later."""
    bits, summary = arrays.later_bits(bound), arrays.later_summary(bound)
    places, filters = arrays.later_positions(bound), arrays.later_filters(bound)
    return bits, summary, places, filters, arrays.later_interfaces(bound), checks


@inlined
def _scan_lists(first: Int, lists: Array, event: tuple, index: tuple, given: tuple, ids: Array, span: tuple) -> Int:
    """Verify the lists of an event, from list number `first` on, until every interface is matched.

    Returns the index of the next answer; `span` is that of `scan_bitmap`.
    """
    (before, answer, end, every), list_ = span, first
    while list_ >= 0 and answer - before != every:
        start, node = lists[LIST_ITEM * list_ + LIST_START], node_of(lists, list_)
        answer = _scan(node, start, event, index, given, ids, answer, end)
        list_ = lists[LIST_ITEM * list_ + NEXT_LIST]
    return answer


@inlined
def _scan(node: Int, list_: Int, event: Int, index: tuple, given: tuple, ids: Array, answer: Int, end: Int) -> Int:
    """Verify the list of a node, which begins at word `list_`.

    Each new answer is written to ids[answer], if that is before `end`, and counted.  Returns the index of the next answer.
    """
    t32, t64, words = index
    filters, seen, stamp, verified = given
    at, stop = list_ + 1, list_ + np.int64(words[list_])
    entry = np.int64(t64[FILTERS]) + t32[np.int64(t64[ENTRIES]) + node] if filters else np.int64(0)
    while at < stop:
        interface, counts = np.int64(words[at]), np.int64(words[at + 1])
        is_open = filters or seen[interface] != stamp
        verified[0] += np.int64(is_open)
        if is_open and _passes(at, counts, event, index):
            if answer < end:
                ids[answer] = t32[entry] if filters else interface
            answer += 1
            seen[interface] = stamp
            is_open = filters
        if is_open:
            at += entry_words(counts)
            entry += 1
        else:
            at += np.int64(words[at + 3])
    return answer


@inlined
def _passes(at: Int, counts: Int, event: tuple, index: tuple) -> bool:
    """Like `verify`, which is not inlined, and without a call for a filter that has positive checks only."""
    words = index[2]
    if counts > MAX_CHECKS or words[at + 2] != 0:
        return bool(verify(at, counts, event, index))
    by_name, shift = event
    place, end, has = at + HEADER, at + HEADER + 2 * counts, True
    while has and place < end:
        low, high = words[place], words[place + 1]
        value = by_name[np.int64(low) >> shift]
        has = (low <= value) & (value <= high)
        place += 2
    return has
