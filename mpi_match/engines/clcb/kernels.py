r"""The kernels of CLCB, and the code that they share.

    Loc    a thread per filter        tests the Bloom filter of its names, then the circle; filters that pass may count
    Cont   a thread per constraint    CCM's rows of the event's names; counts only for filters that passed Loc
    Zip    a thread per interface     turns marked interfaces into a list of ids

**Counters.**  A filter has a 32-bit word, which serves four events, or *runs*, one after another, each in its own byte:

    word of a filter    | run 3 | run 2 | run 1 | run 0 |      Loc writes the number of constraints to count;
                                                               Cont counts down; a filter at 0 is complete

Loc writes only the filters that pass, so the bytes must be zero before.  With four runs in a word, words are zeroed once
every four events, by a memset or (reset=loc) by Loc itself.  (A filter of more than 255 constraints needs wider counts; then
a word has two runs, or one.)  Interfaces have their own words with the same number of runs.  A batch has several words for
each filter and interface, so that more events than a word has runs are matched together.

**Filter groups.**  Of a million filters, about a dozen pass Loc.  Each group of 256 consecutive filters has a flag behind
the counters, which is set if one of them passes.  So Cont skips 128 rows at a time; the paper's Cont, which groups=off
selects, skips one.

**Input and output.**  One array, `events`, holds an event's input and its answer, so that one copy in and one copy out are
enough:

    | header | offsets | locations | attributes | count | ids ...
    '---------------- copy in --------------------------'
                                                '- copy out -'

The count is copied in as 0.  The header is CCM's plus three words.

Rows and their test are CCM's (`ccm.layout`, `ccm.kernel`), except that the rows of a name ascend by filter, so that
neighbouring threads read neighbouring counters.  All arithmetic is in signed 64-bit integers, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.engines.ccm.bloom import bit_of
from mpi_match.engines.ccm.kernel import (
    ANSWER,
    ANSWER_FILTERS,
    ATTRIBUTES,
    CAPACITY,
    EVENT_CODE,
    EVENTS_HEADER,
    EXISTS_ROWS,
    INPUT_WORDS,
    LOCATIONS,
    N_EXISTS,
    N_ROWS,
    OFFSETS,
    TYPED_ROWS,
    load_attribute,
    rest_holds,
    satisfied,
    size_of,
    word_of,
)
from mpi_match.engines.ccm.layout import CODE_SHIFT, HAS_REST, SECTION
from mpi_match.engines.clcb.options import ClcbVariant
from mpi_match.gpu.intrinsics import WARP, add, ballot, double_of, in_circle, lane
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel
from mpi_match.gpu.pinned_mailbox import HOME_TYPE, Home, put_items
from mpi_match.gpu.warp import drainer, put

N_FOUND, N_INTERFACES, RUNS_LOG = range(EVENTS_HEADER, EVENTS_HEADER + 3)
"""Words that extend the header: index of the count, number of interfaces, and the n for which 2^n runs share a word."""
CLCB_HEADER_WORDS = RUNS_LOG + 1
MOST_AT_ONCE = 32
"""Most events of a launch: a block of Loc has shared memory for this many."""
FLAG_BITS = 8
"""Bits of a run in the word of an interface."""
CLCB_REGISTERS = 64
"""Registers of a thread of Loc or Cont.  Both wait for memory; with 64 registers, four blocks of 256 share a multiprocessor.
On an H200, a single event took a tenth longer with 48 registers and five blocks, and a third longer with 40 and six."""
GROUP_LOG = 8
"""Base-2 logarithm of the number of filters in a group."""
MOST_GROUPS = 8
"""Rows whose filters span more groups than this are read without testing the groups' flags."""
CLCB_BLOCK = 256
"""Threads in a block."""
FILTERS_AHEAD, ROWS_AHEAD = 8, 4
"""Filters (Loc) or rows (Cont) that a thread loads before it waits for the first of them."""
CHUNK = ROWS_AHEAD * WARP
"""Rows that a warp processes together."""


class SegmentArrays(NamedTuple):
    """The arrays of a segment that Loc and Cont read, see `clcb.segment`.

    filters      u32 [k n]  ids, then Bloom filters of names      written at building
    rows, words             CCM's table                           written at building
    """

    filters: Any
    rows: Any
    words: Any


class Marks(NamedTuple):
    """Counters and flags.

    counters    u32 [words, counter_words]  zero before Loc; after it, the number of constraints to count of each filter that
                                            passed, followed, with groups, by the flag of each group that has one
    interfaces  u32 [words, n_interfaces]   flags of interfaces
    """

    counters: Any
    interfaces: Any


class Window(NamedTuple):
    """The events of a launch, in shared memory: their locations, the number of the first event, and its run."""

    xs: Any
    ys: Any
    first: Any
    run: Any


class Located(NamedTuple):
    """Arguments of `locate` besides the queued filter: the filters, the events, and the marks to set."""

    segment: SegmentArrays
    areas: Any
    events: Any
    marks: Marks
    window: Window
    n_filters: Any


class ContBlock(NamedTuple):
    """Values shared by the threads of a block of Cont.

    attribute   i64[INPUT_WORDS]  attribute of the event and the rows to test, see `ccm.kernel`
    event, run  numbers of the event and of its run
    counters    index of the first counter of the run's word
    groups      index of the first group flag of the run's word
    place       the run's number within the word: the bit of a flag
    bit         first bit of a count in its counter
    mask        bits of a count
    """

    attribute: Any
    event: Any
    run: Any
    counters: Any
    groups: Any
    place: Any
    bit: Any
    mask: Any


_N_WARPS = CLCB_BLOCK // WARP
_MOST_QUEUED = (FILTERS_AHEAD + 1) * WARP
_ALL_QUEUED = _N_WARPS * _MOST_QUEUED
_INTERFACE, _ROW_FILTER = SECTION["interface"], SECTION["row_filter"]
_SEGMENT_TYPE, _MARKS_TYPE = "SegmentArrays(uint32[::1], int64[::1], uint32[::1])", "Marks(uint32[::1], uint32[::1])"


@device_function
def _runs_mask(events: Array) -> int:
    """Mask of the bits of a run's number that select the run within a word; the other bits select the word."""
    return (np.int64(1) << events[RUNS_LOG]) - 1


@device_function
def _is_inside(x: float, y: float, circle_x: float, circle_y: float, radius: float) -> bool:
    """Tells whether a location lies in a circle.  An infinite radius means that the filter has no area, NaN that it was
    removed."""
    dx, dy = add(x, -circle_x), add(y, -circle_y)
    return radius == np.inf or in_circle(dx, dy, radius)


def counter_words(n_filters: int) -> int:
    """Words of the counters of `n_filters` filters, including the flags of their groups."""
    return n_filters + ((n_filters + (1 << GROUP_LOG) - 1) >> GROUP_LOG)


_counter_words = device_function(counter_words)
_bit_of = device_function(bit_of)


@device_function
def _row_of(i: int, shared: Array) -> int:
    """The i-th row to test for an attribute; the rows of `exists` are first."""
    return i + (shared[EXISTS_ROWS] if i < shared[N_EXISTS] else shared[TYPED_ROWS] - shared[N_EXISTS])


@device_function
def _any_left(first: int, last: int, words: Array, counters: Array, block: ContBlock) -> bool:
    """Tells whether a filter of the rows `first` to `last` of an attribute may have passed Loc."""
    attribute = block.attribute
    if first < attribute[N_EXISTS] and last >= attribute[N_EXISTS]:
        return True
    filter_of = np.int64(words[_ROW_FILTER])
    group = np.int64(words[filter_of + _row_of(first, attribute)]) >> GROUP_LOG
    end = np.int64(words[filter_of + _row_of(last, attribute)]) >> GROUP_LOG
    if end - group >= MOST_GROUPS:
        return True
    found = False
    while group <= end:
        found = found or (np.int64(counters[block.groups + group]) >> block.place & 1) != 0
        group += 1
    return found


@device_function
def _append(events: Array, event: int, id_: int) -> None:
    """Append a pair to the list of answers; if it does not fit, only count it."""
    counter = events[N_FOUND]
    at = cuda.atomic.add(events, counter, 1)
    if at < events[CAPACITY]:
        events[counter + 1 + at] = event << 32 | id_


@device_function
def _deliver(segment: SegmentArrays, events: Array, interfaces: Array, event: int, run: int, filter_id: int) -> None:
    """Mark the interface of a filter whose area and counted constraints are satisfied, unless the event has a name that must
    be absent.  If filters are requested, append the filter to the list instead."""
    filters, rows, words = segment
    info = word_of(words, _INTERFACE, filter_id)
    if info & HAS_REST:
        offsets = events[OFFSETS] + event
        if not rest_holds(rows, words, events, event, events[offsets], events[offsets + 1], filter_id):
            return
    if events[ANSWER] == ANSWER_FILTERS:
        _append(events, event, np.int64(filters[filter_id]))
        return
    at = (run >> events[RUNS_LOG]) * events[N_INTERFACES] + (info & (HAS_REST - 1))
    flag = np.int64(1) << (run & _runs_mask(events)) * FLAG_BITS
    if not np.int64(interfaces[at]) & flag:
        cuda.atomic.or_(interfaces, at, np.uint32(flag))


def _bloom_functions(bits: int, hashes: int) -> tuple[Any, Any]:
    """Device functions that return a filter's Bloom filter of names and compute an event's."""
    log_bits, is_wide = bits.bit_length() - 1, bits > 32

    @device_function
    def bloom_at(filters: Array, n_filters: int, filter_id: int) -> Int:
        bloom = np.int64(filters[n_filters + filter_id])
        if is_wide:
            bloom |= np.int64(filters[2 * n_filters + filter_id]) << 32
        return bloom

    @device_function
    def bloom_of(words: Array, events: Array, event: int) -> Int:
        bloom = np.int64(0)
        attributes, shift = events[ATTRIBUTES], np.int64(words[CODE_SHIFT])
        for i in range(events[events[OFFSETS] + event], events[events[OFFSETS] + event + 1]):
            name = events[attributes + i] >> shift
            for nth in range(hashes):
                bloom |= np.int64(1) << _bit_of(name, nth, log_bits)
        return bloom

    return bloom_at, bloom_of


def _locator(groups: bool, columns: bool) -> Callable:
    """Make the device function `locate`, which starts counting for a filter in those events that its circle contains."""

    @device_function
    def circle_of(areas: Array, n_filters: int, filter_id: int) -> tuple:
        if columns:
            return areas[filter_id], areas[n_filters + filter_id], areas[2 * n_filters + filter_id]
        return areas[3 * filter_id], areas[3 * filter_id + 1], areas[3 * filter_id + 2]

    @device_function
    def leave(counters: Array, n_filters: int, filter_id: int, size: int, events: Array, run: int) -> None:
        """Set a filter's counter in a run to its size, and the flag of its group."""
        place, base = run & _runs_mask(events), (run >> events[RUNS_LOG]) * _counter_words(n_filters)
        at, group = base + filter_id, base + n_filters + (filter_id >> GROUP_LOG)
        counters[at] = np.uint32(np.int64(counters[at]) | size << (place << (5 - events[RUNS_LOG])))
        if groups and not np.int64(counters[group]) >> place & 1:
            cuda.atomic.or_(counters, group, np.uint32(np.int64(1) << place))

    @device_function
    def locate(item: int, found: np.uint64, about: Located) -> Int:
        """Test the circle of a queued filter: `item` holds its number, and the bits of the events that may have its
        names."""
        segment, areas, events, marks, window, n_filters = about
        filter_id, events_left, i = item & 0xFFFFFFFF, (item >> 32) & 0xFFFFFFFF, np.int64(0)
        circle_x, circle_y, radius = circle_of(areas, n_filters, filter_id)
        while events_left:
            if events_left & 1 and _is_inside(window.xs[i], window.ys[i], circle_x, circle_y, radius):
                size = size_of(segment.words, filter_id)
                if size == 0:
                    _deliver(segment, events, marks.interfaces, window.first + i, window.run + i, filter_id)
                else:
                    leave(marks.counters, n_filters, filter_id, size, events, window.run + i)
            events_left >>= 1
            i += 1
        return found

    return locate


def loc_kernel(variant: ClcbVariant) -> Kernel:
    """The kernel Loc of a variant (`options`)."""
    return _loc_kernel(variant._replace(runs=ClcbVariant().runs))  # the kernel does not depend on the number of runs


@lru_cache
def _loc_kernel(variant: ClcbVariant) -> Kernel:
    bloom_at, bloom_of = _bloom_functions(variant.bloom_bits, variant.bloom_hashes)
    drain = drainer(_locator(variant.groups, variant.areas == "columns"))
    resets = variant.reset == "loc"

    @kernel(
        f"void({_SEGMENT_TYPE}, float64[::1], int64[::1], {_MARKS_TYPE}, int64, int64, int64, int64)",
        max_registers=CLCB_REGISTERS,
        named_tuples=(SegmentArrays, Marks),
    )
    def loc_kernel_(
        segment: SegmentArrays,
        areas: Array,
        events: Array,
        marks: Marks,
        n_filters: int,
        first: int,
        n_events: int,
        run: int,
    ) -> None:
        """Find the filters whose names the event may have and whose area contains its location, and set their counters.

        One thread per filter (x); each tests all events of the launch, `first` to `first + n_events`, which have the run
        numbers `run`, `run` + 1, ...  In the paper's scenario, one filter in twenty passes the Bloom filter, so nearly all
        lanes would wait while one tests a circle.  So filters that pass are queued, and a warp tests 32 circles at once.

        Parameters:
            segment                constant arrays
            areas       f64 [3 n]  x, y and radius of each filter (with areas=columns: all x, all y, all radii); written at
                                   building, then by updates
            events      i64        input and output, see the module; input written by the host, the list by kernels
            marks                  output: counters are set; interfaces are marked for filters without a counted constraint

        Launch: any grid along x (a thread takes several filters) of blocks of at most CLCB_BLOCK threads; shared memory: 24
        bytes for each of MOST_AT_ONCE events, and 8 for each entry of the queues.
        Work: reads a Bloom filter per filter, and 24 bytes more if it passes; writes two words if the circle does; with
        reset=loc zeroes the counters of the launch, if `run` is the first of its word.
        Source: Cugola & Margara, Middleware 2012, kernel Loc.  Difference: a filter's size is written instead of a flag.
        """
        # on separate lines: the simulator identifies shared arrays by their line
        blooms = cuda.shared.array(MOST_AT_ONCE, np.int64)
        xs = cuda.shared.array(MOST_AT_ONCE, np.float64)
        ys = cuda.shared.array(MOST_AT_ONCE, np.float64)
        queued = cuda.shared.array(_ALL_QUEUED, np.int64)
        lengths = cuda.shared.array(_N_WARPS, np.int32)
        bloom = cuda.local.array(FILTERS_AHEAD, np.int64)
        stride = np.int64(cuda.gridDim.x * cuda.blockDim.x)
        start = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        last = max(n_filters - 1, 0)
        # loaded before the events' Bloom filters, which take several dependent loads
        for k in range(FILTERS_AHEAD):
            bloom[k] = bloom_at(segment.filters, n_filters, min(start + k * stride, last))
        event = np.int64(cuda.threadIdx.x)
        while event < n_events:
            blooms[event] = bloom_of(segment.words, events, first + event)
            location = events[LOCATIONS] + 2 * (first + event)
            xs[event], ys[event] = double_of(events[location]), double_of(events[location + 1])
            event += cuda.blockDim.x
        warp = np.int64(cuda.threadIdx.x) // WARP
        if lane() == 0:
            lengths[warp] = 0
        cuda.syncthreads()
        queue = (queued[warp * _MOST_QUEUED : (warp + 1) * _MOST_QUEUED], lengths, warp)
        about = Located(segment, areas, events, marks, Window(xs, ys, first, run), n_filters)
        only = ~blooms[0] if n_events == 1 else np.int64(0)
        first_word, last_word = run >> events[RUNS_LOG], (run + n_events - 1) >> events[RUNS_LOG]
        while start - lane() < n_filters:
            for k in range(FILTERS_AHEAD):
                filter_id = start + k * stride
                if resets and filter_id < n_filters and not run & _runs_mask(events):
                    # before the filter is queued; only its own warp takes it from there
                    for word in range(first_word, last_word + 1):
                        marks.counters[word * _counter_words(n_filters) + filter_id] = np.uint32(0)
                if filter_id >= n_filters or bloom[k] & only:
                    continue
                passed = np.int64(n_events == 1)
                if n_events > 1:
                    for i in range(n_events):
                        if not bloom[k] & ~blooms[i]:
                            passed |= np.int64(1) << i
                if passed:
                    put(passed << 32 | filter_id, queue)
            start += FILTERS_AHEAD * stride
            for k in range(FILTERS_AHEAD):
                bloom[k] = bloom_at(segment.filters, n_filters, min(start + k * stride, last))
            drain(np.int64(WARP), queue, np.int64(0), about)
        drain(np.int64(1), queue, np.int64(0), about)

    return loc_kernel_


@device_function
def _count(segment: SegmentArrays, events: Array, marks: Marks, block: ContBlock, filter_id: int) -> None:
    """Count one satisfied constraint of a filter, and deliver the filter if it was the last."""
    before = cuda.atomic.sub(marks.counters, block.counters + filter_id, np.uint32(np.int64(1) << block.bit))
    if (np.int64(before) >> block.bit) & block.mask == 1:
        _deliver(segment, events, marks.interfaces, block.event, block.run, filter_id)


@device_function
def _count_all_rows(segment: SegmentArrays, events: Array, marks: Marks, block: ContBlock) -> None:
    """Test the counter of each row's filter, a thread per row."""
    _, rows, words = segment
    attribute, filter_of = block.attribute, np.int64(words[_ROW_FILTER])
    n_rows, code = attribute[N_ROWS], attribute[EVENT_CODE]
    stride = np.int64(cuda.gridDim.x * cuda.blockDim.x)
    i = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while i < n_rows:
        row = _row_of(i, attribute)
        filter_id = np.int64(words[filter_of + row])
        count = (np.int64(marks.counters[block.counters + filter_id]) >> block.bit) & block.mask
        if count and satisfied(rows, words, row, code):
            _count(segment, events, marks, block, filter_id)
        i += stride


@device_function
def _count_rows_of_groups(segment: SegmentArrays, events: Array, marks: Marks, block: ContBlock) -> None:
    """Process the rows of chunks whose groups have a filter that passed Loc: a lane tests each chunk, a warp processes
    it."""
    _, rows, words = segment
    attribute, filter_of = block.attribute, np.int64(words[_ROW_FILTER])
    n_rows, code = attribute[N_ROWS], attribute[EVENT_CODE]
    filter_id = cuda.local.array(ROWS_AHEAD, np.int64)
    count = cuda.local.array(ROWS_AHEAD, np.int64)
    n_chunks, stride = (n_rows + CHUNK - 1) // CHUNK, np.int64(cuda.gridDim.x * cuda.blockDim.x) // WARP * WARP
    chunk = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // WARP * WARP
    while chunk < n_chunks:
        start, goes_on = (chunk + lane()) * CHUNK, False
        if start < n_rows:
            goes_on = _any_left(start, min(start + CHUNK, n_rows) - 1, words, marks.counters, block)
        left = ballot(goes_on)
        for nth in range(WARP):
            if not left >> nth & 1:
                continue
            start = (chunk + nth) * CHUNK + lane()
            for k in range(ROWS_AHEAD):
                filter_id[k] = words[filter_of + _row_of(min(start + k * WARP, n_rows - 1), attribute)]
            for k in range(ROWS_AHEAD):
                count[k] = (np.int64(marks.counters[block.counters + filter_id[k]]) >> block.bit) & block.mask
            for k in range(ROWS_AHEAD):
                i = start + k * WARP
                if i < n_rows and count[k] and satisfied(rows, words, _row_of(i, attribute), code):
                    _count(segment, events, marks, block, filter_id[k])
        chunk += stride


@lru_cache
def cont_kernel(groups: bool) -> Kernel:
    """The kernel Cont of a variant (`options`)."""
    count_rows = _count_rows_of_groups if groups else _count_all_rows

    @kernel(
        f"void({_SEGMENT_TYPE}, int64[::1], {_MARKS_TYPE}, int64, int64, int64, int64)",
        max_registers=CLCB_REGISTERS,
        named_tuples=(SegmentArrays, Marks),
    )
    def cont_kernel_(
        segment: SegmentArrays, events: Array, marks: Marks, n_filters: int, first: int, n_events: int, run: int
    ) -> None:
        """Count, for each filter that passed Loc, the constraints that each event satisfies, and mark the complete filters.

        One thread per (event, attribute, row of the attribute's runs), as in CCM: z is the event, y the attribute, x the
        row.  A row whose filter has no count left is skipped.  With groups, so are 128 rows at a time whose groups have no
        such filter: every lane of a warp tests a chunk of rows, then all lanes process the rows of the remaining chunks.

        Parameters: as for `loc_kernel`; counters are decremented, and interfaces of complete filters are flagged.

        Launch: any grid along x, grid.y >= attributes of the widest event, grid.z >= n_events; 64 bytes of shared memory.
        Work: with groups, for each 128 rows of the runs, reads the first and the last filter and the flags of some groups, 4
        bytes each; reads filter and counter of each row of a remaining chunk (without groups, of each row), then the rows of
        filters that passed Loc, with one atomic for each satisfied row.
        Invariant: a count reaches 0 exactly once, when all counted constraints of its filter are satisfied, because an
        attribute tests a row at most once and an event's names are distinct.  A count that was 0 before stays 0.
        Source: Cugola & Margara, Middleware 2012, kernel Cont; Margara & Cugola, DEBS 2011.  Differences: counts go down;
        filter groups.
        """
        z = np.int64(cuda.blockIdx.z)
        if z >= n_events:
            return
        attribute = cuda.shared.array(INPUT_WORDS, np.int64)
        if cuda.threadIdx.x == 0:
            load_attribute(segment.words, events, attribute, first + z, np.int64(cuda.blockIdx.y))
        cuda.syncthreads()
        log, place = events[RUNS_LOG], (run + z) & _runs_mask(events)
        base, mask = ((run + z) >> log) * _counter_words(n_filters), (np.int64(1) << (np.int64(1) << (5 - log))) - 1
        block = ContBlock(attribute, first + z, run + z, base, base + n_filters, place, place << (5 - log), mask)
        count_rows(segment, events, marks, block)

    return cont_kernel_


@device_function
def _is_last_block(done: Array, last: Array) -> bool:
    """Tells whether all other blocks are done, as in `ccm.kernel`; this grid has one axis."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence()  # makes the block's writes visible before its completion
        last[0] = np.int64(cuda.atomic.add(done, 0, np.uint32(1))) + 1 == np.int64(cuda.gridDim.x)
    cuda.syncthreads()
    return last[0] != 0


@kernel(f"void(int64[::1], uint32[::1], {HOME_TYPE}, int64, int64, int64)", named_tuples=(Home,))
def zip_kernel(events: Array, interfaces: Array, home: Home, first: int, n_events: int, run: int) -> None:
    """Turn marked interfaces into a list of (event, interface) pairs, in any order.

    One thread per word (x): the runs of a word belong to consecutive events, or to earlier launches.

    Parameters: `events`, `interfaces`, `first`, `n_events`, `run` as for `loc_kernel`; the list is in `events`.  The last
    block copies the answer to `home`, if that has room.

    Launch: any grid along x (a thread takes several words).  Work: reads a word per interface; one atomic per answer.
    Source: Cugola & Margara, Middleware 2012, kernel Zip, which makes the array of ids of one event.  Differences: a word
    has a flag for each of its runs, an item names its event, and words are zeroed together with the counters.
    """
    log, n_interfaces = events[RUNS_LOG], events[N_INTERFACES]
    n_words = (((run + n_events - 1) >> log) + 1) * n_interfaces
    stride = np.int64(cuda.gridDim.x * cuda.blockDim.x)
    i = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    while i < n_words:
        flags = np.int64(interfaces[i])
        if flags:
            word = i // n_interfaces
            for part in range(np.int64(1) << log):
                event = (word << log) + part - run
                if flags >> part * FLAG_BITS & 1 and event >= 0 and event < n_events:
                    _append(events, first + event, i - word * n_interfaces)
        i += stride
    last = cuda.shared.array(1, np.int64)
    if home.host.size > 0 and _is_last_block(home.done, last):
        thread, counter = np.int64(cuda.threadIdx.x), events[N_FOUND]
        n = cuda.atomic.add(events, counter, 0)
        put_items(home.host, events, counter + 1, n, np.int64(0), thread, np.int64(cuda.blockDim.x))
        cuda.syncthreads()
        if thread == 0:
            home.done[0] = 0
            cuda.threadfence_system()
            home.host[0] = n
