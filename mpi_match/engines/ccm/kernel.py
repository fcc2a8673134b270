"""The kernel of CCM, and the layout of its input.

A launch takes six arrays, the destination of the answer, and the launch's number.  The table is in `rows` and `words` (see
`ccm.layout`); the input is in `events`, a single array, so that one copy transfers it:

    header      kind of answer, start of each section, capacity of the list of answers
    launches    for each launch: its events, its slots (one set of counters per event), the slots to reset
    offsets     i64[n + 1]         locations   f64[n, 2] as bits         attributes   i64[m], packed (see `vocabulary`)

All arithmetic is in signed 64-bit integers: mixed with unsigned ones, Numba would convert them to doubles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.search import lower_bound
from mpi_match.engines.ccm.bloom import bit_of
from mpi_match.engines.ccm.layout import (
    ANSWER_WORDS,
    AREAS,
    CODE_SHIFT,
    COUNTER_LOG,
    COUNTER_WORDS,
    HAS_REST,
    N_ALWAYS,
    N_NAMES,
    N_REST,
    NAME_BITS,
    SECTION,
    SET_ROW,
    TEXTS,
    VALUES,
    CcmRows,
)
from mpi_match.engines.ccm.options import CcmVariant
from mpi_match.engines.ccm.published import OP_SHIFT, ROW_WORDS, TEXT_BITS, VALUE_SHIFT, VALUE_WORDS
from mpi_match.engines.entries import can_serve
from mpi_match.errors import EngineError
from mpi_match.gpu.intrinsics import add, double_of, in_circle
from mpi_match.gpu.kernels import DeviceArray, Gpu, Kernel, Stream, cuda, device_function, kernel
from mpi_match.gpu.pinned_mailbox import HOME_TYPE, Home, put_items
from mpi_match.gpu.upload import Upload
from mpi_match.operators import Op, Type
from mpi_match.table.table import Table

ANSWER_MASK, ANSWER_INTERFACES, ANSWER_FILTERS = 0, 1, 2
"""Kinds of answer: bit masks of interfaces, pairs (event, interface), pairs (event, filter)."""

ANSWER, OFFSETS, LOCATIONS, ATTRIBUTES, CAPACITY, EVENTS_HEADER = range(6)
(
    FIRST,
    N_EVENTS,
    COUNTS_SLOT,
    ANSWERS_SLOT,
    FOUND,
    N_RESET,
    RESET_COUNTS_SLOT,
    N_ANSWERS_RESET,
    RESET_ANSWERS_SLOT,
    RESET_FOUND,
) = range(10)
PLAN_WORDS = 10
NO_RESET = -1

# Words of a block's input, shared by its threads: its attribute, the rows to test and, with phases=3, the bits of all names
# of the event.
(
    EVENT_CODE,
    N_EXISTS,
    EXISTS_ROWS,
    TYPED_ROWS,
    N_ROWS,
    FIRST_ATTRIBUTE,
    LAST_ATTRIBUTE,
    EVENT_NAMES,
    EVENT_TYPE,
    INPUT_WORDS,
) = range(10)


class Launched(NamedTuple):
    """The arguments of a thread of CCM's kernel, and the values derived from them before it counts.

    input_  i64[INPUT_WORDS]  the attribute, see `load_attribute`
    plan    index in `events` of the launch's entry
    z       number of the event within the launch
    """

    rows: Any
    words: Any
    events: Any
    answers: Any
    found: Any
    input_: Any
    plan: Any
    z: Any


_RUN_OFFSETS, _SEGMENT_ENDS, _ROW_FILTER = SECTION["run_offsets"], SECTION["segment_ends"], SECTION["row_filter"]
_ROW_NAMES, _LOG_NAME_BITS = SECTION["row_names"], NAME_BITS.bit_length() - 1
_COUNTERS, _INTERFACE, _ALWAYS = SECTION["counters"], SECTION["interface"], SECTION["always"]
_REST_FILTER, _REST_AREA = SECTION["rest_filter"], SECTION["rest_area"]
_ABSENT_OFFSETS, _ABSENT_NAMES = SECTION["absent_offsets"], SECTION["absent_names"]
_EQ, _NE, _LT, _LE, _GT, _BETWEEN = (int(op) for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.BETWEEN))
_PREFIX, _SUFFIX, _CONTAINS, _EXISTS = (int(op) for op in (Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.EXISTS))
_STRING, _BOOLEAN = int(Type.STRING), int(Type.BOOLEAN)
_SET_OFFSETS, _SET_CODES = SECTION["set_offsets"], SECTION["set_codes"]


@device_function
def word_of(words: Array, section: int, i: int) -> np.int64:
    """Word i of a section of the table."""
    return np.int64(words[np.int64(words[section]) + i])


_lower_bound = device_function(lower_bound)
_bit_of = device_function(bit_of)


@device_function
def load_names(words: Array, events: Array, input_: Array, event: int) -> None:
    """Set the bits of an event's names in `input_`."""
    bits, shift = np.int64(0), np.int64(words[CODE_SHIFT])
    offsets, attributes = events[OFFSETS] + event, events[ATTRIBUTES]
    for attribute in range(events[offsets], events[offsets + 1]):
        bits |= np.int64(1) << _bit_of(events[attributes + attribute] >> shift, 0, _LOG_NAME_BITS)
    input_[EVENT_NAMES] = bits


@device_function
def load_attribute(words: Array, events: Array, input_: Array, event: int, attribute: int) -> None:
    """Fill `input_` with attribute number `attribute` of an event and the bounds of the runs to test."""
    offsets = events[OFFSETS]
    first, last = events[offsets + event], events[offsets + event + 1]
    input_[FIRST_ATTRIBUTE] = first
    input_[LAST_ATTRIBUTE] = last
    input_[EVENT_CODE] = input_[EXISTS_ROWS] = input_[N_EXISTS] = input_[TYPED_ROWS] = input_[N_ROWS] = 0
    if first + attribute >= last:
        return
    packed = events[events[ATTRIBUTES] + first + attribute]
    shift = np.int64(words[CODE_SHIFT])
    name = packed >> shift
    code = packed & ((np.int64(1) << shift) - 1)
    input_[EVENT_CODE] = code
    n_names = np.int64(words[N_NAMES])
    if name >= n_names:  # an atom satisfies all rows of its run
        run = 3 * n_names + name
        input_[EXISTS_ROWS] = word_of(words, _RUN_OFFSETS, run)
        input_[N_EXISTS] = word_of(words, _RUN_OFFSETS, run + 1) - input_[EXISTS_ROWS]
        input_[N_ROWS] = input_[N_EXISTS]
        return
    run = 4 * name
    input_[EXISTS_ROWS] = word_of(words, _RUN_OFFSETS, run)
    input_[N_EXISTS] = word_of(words, _RUN_OFFSETS, run + 1) - input_[EXISTS_ROWS]
    input_[N_ROWS] = input_[N_EXISTS]
    nan = word_of(words, _SEGMENT_ENDS, 2 * name)
    last_string = word_of(words, _SEGMENT_ENDS, 2 * name + 1)
    if code != nan and code <= last_string + 2:
        type_ = 1 if code < nan else 2 if code <= last_string else 3
        input_[TYPED_ROWS] = word_of(words, _RUN_OFFSETS, run + type_)
        input_[N_ROWS] += word_of(words, _RUN_OFFSETS, run + type_ + 1) - input_[TYPED_ROWS]


@device_function
def satisfied(rows: Array, words: Array, row: int, code: int) -> bool:
    """Tells whether a code satisfies a row of one of its runs."""
    packed = rows[row]
    start, width = packed & 0xFFFFFFFF, (packed >> 32) & 0xFFFFFFFF
    if start & SET_ROW:
        codes = np.int64(words[_SET_CODES])
        set_ = start & (SET_ROW - 1)
        last = codes + word_of(words, _SET_OFFSETS, set_ + 1)
        at = _lower_bound(words, codes + word_of(words, _SET_OFFSETS, set_), last, code)
        listed = at < last and np.int64(words[at]) == code
        return listed != (width == 1)
    return ((code - start) & 0xFFFFFFFF) <= width


@device_function
def load_value(rows: Array, words: Array, events: Array, input_: Array, event: int, attribute: int) -> None:
    """As `load_attribute`, for sat=published: the type and the value of the attribute, and all rows of its name."""
    offsets = events[OFFSETS]
    first, last = events[offsets + event], events[offsets + event + 1]
    input_[FIRST_ATTRIBUTE] = first
    input_[LAST_ATTRIBUTE] = last
    input_[EVENT_CODE] = input_[EVENT_TYPE] = 0
    input_[EXISTS_ROWS] = input_[N_EXISTS] = input_[TYPED_ROWS] = input_[N_ROWS] = 0
    if first + attribute >= last:
        return
    packed = events[events[ATTRIBUTES] + first + attribute]
    run, value = 4 * (packed >> VALUE_SHIFT), np.int64(words[VALUES]) + VALUE_WORDS * (packed & 0xFFFFFFFF)
    input_[EVENT_TYPE] = rows[value]
    input_[EVENT_CODE] = rows[value + 1]
    input_[EXISTS_ROWS] = word_of(words, _RUN_OFFSETS, run)
    input_[N_EXISTS] = word_of(words, _RUN_OFFSETS, run + 1) - input_[EXISTS_ROWS]
    input_[N_ROWS] = input_[N_EXISTS]


@device_function
def _load_code(rows: Array, words: Array, events: Array, input_: Array, event: int, attribute: int) -> None:
    load_attribute(words, events, input_, event, attribute)


@device_function
def _code_holds(rows: Array, words: Array, row: int, type_: int, code: int) -> bool:
    return satisfied(rows, words, row, code)


@device_function
def _byte(rows: Array, at: int) -> int:
    """A byte of the rows."""
    return (rows[at >> 3] >> ((at & 7) << 3)) & 255


@device_function
def _compared(rows: Array, a: int, n: int, b: int, m: int) -> int:
    """Compare n bytes at `a` with m bytes at `b`: below, equal to or above 0."""
    for i in range(min(n, m)):
        difference = _byte(rows, a + i) - _byte(rows, b + i)
        if difference != 0:
            return difference
    return n - m


@device_function
def _contains(rows: Array, a: int, n: int, b: int, m: int) -> bool:
    """Tells whether the m bytes at `b` occur in the n bytes at `a`."""
    i = np.int64(0)
    while i <= n - m and _compared(rows, a + i, m, b, m) != 0:
        i += 1
    return bool(i <= n - m)


@device_function
def _text_holds(rows: Array, words: Array, op: int, value: int, operand: int) -> bool:
    """Tells whether a string satisfies an operator with its operand."""
    texts, lengths = np.int64(words[TEXTS]) << 3, (np.int64(1) << TEXT_BITS) - 1
    a, n = texts + (value >> TEXT_BITS), value & lengths
    b, m = texts + (operand >> TEXT_BITS), operand & lengths
    if op == _CONTAINS:
        return _contains(rows, a, n, b, m)
    if op == _SUFFIX:
        return bool(n >= m and _compared(rows, a + n - m, m, b, m) == 0)
    if op == _PREFIX:
        return bool(n >= m and _compared(rows, a, m, b, m) == 0)
    return _holds_of_order(op, _compared(rows, a, n, b, m))


@device_function
def _holds_of_order(op: int, order: int) -> bool:
    """Tells whether a value that is below, equal to or above an operand satisfies an operator."""
    if op == _EQ:
        return order == 0
    if op == _NE:
        return order != 0
    if op == _LT:
        return order < 0
    if op == _LE:
        return order <= 0
    if op == _GT:
        return order > 0
    return order >= 0


@device_function
def evaluated(rows: Array, words: Array, row: int, type_: int, value: int) -> bool:
    """The paper's `sat`: True if a value of a type satisfies a row."""
    at = ROW_WORDS * row
    op = rows[at] >> OP_SHIFT
    if op == _EXISTS:
        return True
    if (rows[at] & ((1 << OP_SHIFT) - 1)) != type_:
        return False
    if type_ == _STRING:
        return _text_holds(rows, words, op, value, rows[at + 1])
    if type_ == _BOOLEAN:
        return (value == rows[at + 1]) == (op == _EQ)
    number, operand = double_of(value), double_of(rows[at + 1])
    if number != number:  # NaN
        return False
    order = 0 if number == operand else -1 if number < operand else 1
    if op == _BETWEEN:
        return order >= 0 and number <= double_of(rows[at + 2])
    return _holds_of_order(op, order)


@device_function
def rest_holds(rows: Array, words: Array, events: Array, event: int, first: int, last: int, filter_id: int) -> bool:
    """Tells whether the event (attributes `first` to `last`) lies in the filter's area and lacks every name that must be
    absent."""
    begin = np.int64(words[_REST_FILTER])
    rest = _lower_bound(words, begin, begin + np.int64(words[N_REST]), filter_id) - begin
    area = word_of(words, _REST_AREA, rest)
    if area > 0:
        circle = np.int64(words[AREAS]) + 3 * (area - 1)
        location = events[LOCATIONS] + 2 * event
        dx = add(double_of(events[location]), -double_of(rows[circle]))
        dy = add(double_of(events[location + 1]), -double_of(rows[circle + 1]))
        if not in_circle(dx, dy, double_of(rows[circle + 2])):  # NaN means no location, which is outside
            return False
    for i in range(word_of(words, _ABSENT_OFFSETS, rest), word_of(words, _ABSENT_OFFSETS, rest + 1)):
        name = word_of(words, _ABSENT_NAMES, i)
        for attribute in range(first, last):
            if events[events[ATTRIBUTES] + attribute] >> np.int64(words[CODE_SHIFT]) == name:
                return False
    return True


@device_function
def size_of(words: Array, filter_id: int) -> int:
    """Number of constraints of a filter that are counted."""
    log = np.int64(words[COUNTER_LOG])
    at, n_bits = (filter_id & ((np.int64(1) << log) - 1)) << (5 - log), np.int64(1) << (5 - log)
    return (word_of(words, _COUNTERS, filter_id >> log) >> at) & ((np.int64(1) << n_bits) - 1)


@device_function
def _deliver(launched: Launched, filter_id: int) -> None:
    """Record a filter whose counted constraints are all satisfied, provided that its rest holds."""
    rows, words, events, answers, found, input_, plan, z = launched
    info = word_of(words, _INTERFACE, filter_id)
    event = events[plan + FIRST] + z
    if info & HAS_REST and not rest_holds(
        rows, words, events, event, input_[FIRST_ATTRIBUTE], input_[LAST_ATTRIBUTE], filter_id
    ):
        return
    id_ = filter_id
    if events[ANSWER] != ANSWER_FILTERS:
        id_ = info & (HAS_REST - 1)
        word = (events[plan + ANSWERS_SLOT] + z) * np.int64(words[ANSWER_WORDS]) + (id_ >> 5)
        bit = np.int64(1) << (id_ & 31)
        if np.int64(answers[word]) & bit:
            return
        before = cuda.atomic.or_(answers, word, np.uint32(bit))
        if events[ANSWER] == ANSWER_MASK or np.int64(before) & bit:
            return
    counter = events[plan + FOUND]
    at = cuda.atomic.add(found, counter, 1)
    if at < events[CAPACITY]:
        found[counter + 1 + at] = event << 32 | id_


@device_function
def _reset(words: Array, events: Array, counts: Array, answers: Array, found: Array, plan: int, z: int) -> None:
    """Reset slot z of the other copy for the next launch; all threads in plane z of the grid share the work."""
    thread = np.int64((cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x)
    n_threads = np.int64(cuda.gridDim.y * cuda.gridDim.x * cuda.blockDim.x)
    if z < events[plan + N_RESET]:
        n_words, initial = np.int64(words[COUNTER_WORDS]), np.int64(words[_COUNTERS])
        base = (events[plan + RESET_COUNTS_SLOT] + z) * n_words
        i = thread
        while i < n_words:
            counts[base + i] = words[initial + i]
            i += n_threads
    if z < events[plan + N_ANSWERS_RESET]:
        n_words = np.int64(words[ANSWER_WORDS])
        base = (events[plan + RESET_ANSWERS_SLOT] + z) * n_words
        i = thread
        while i < n_words:
            answers[base + i] = 0
            i += n_threads
    if z == 0 and thread == 0 and events[plan + RESET_FOUND] != NO_RESET:
        found[events[plan + RESET_FOUND]] = 0


@device_function
def _is_last_block(done: Array, shared: Array) -> bool:
    """Tells whether all other blocks of the launch are done.  It is called when a block has finished, and gives the same
    result to all its threads."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.threadfence()  # makes the block's writes visible before its completion
        n_blocks = np.int64(cuda.gridDim.x * cuda.gridDim.y * cuda.gridDim.z)
        shared[0] = np.int64(cuda.atomic.add(done, 0, np.uint32(1))) + 1 == n_blocks
    cuda.syncthreads()
    return shared[0] != 0


@device_function
def _send_home(words: Array, events: Array, answers: Array, found: Array, plan: int, home: Home) -> None:
    """Copy the answer of the launch's event to the host, from the last block to finish; the count is written last."""
    host, thread, n_threads = home.host, np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
    if events[ANSWER] == ANSWER_MASK:
        n = np.int64(words[ANSWER_WORDS])
        put_items(host, answers, events[plan + ANSWERS_SLOT] * n, n, np.uint32(0), thread, n_threads)
    else:
        counter = events[plan + FOUND]
        n = cuda.atomic.add(found, counter, 0)
        put_items(host, found, counter + 1, n, np.int64(0), thread, n_threads)
    cuda.syncthreads()
    if thread == 0:
        home.done[0] = 0
        cuda.threadfence_system()
        host[0] = n


@lru_cache
def ccm_kernel(reset: str, input_: str, phases: int, sat: str = "codes") -> Kernel:
    """The kernel of a variant (`options`)."""
    in_kernel, in_shared, selects = reset == "kernel", input_ == "shared", phases == 3
    load, holds = (load_value, evaluated) if sat == "published" else (_load_code, _code_holds)

    @kernel(
        f"void(int64[::1], uint32[::1], int64[::1], uint32[::1], uint32[::1], int64[::1], {HOME_TYPE}, int64)",
        named_tuples=(Home,),
    )
    def ccm_kernel_(
        rows: Array, words: Array, events: Array, counts: Array, answers: Array, found: Array, home: Home, launch: int
    ) -> None:
        """Count, for each filter, the constraints that each event satisfies, and collect the filters that are complete.

        One thread per (event, attribute, row of the attribute's runs): z is the event, y the attribute, x the row.

            run_offsets   0      3        7   9         an attribute "price" (id 0) with a number
            rows          e e e  n n n n  s s  b ...    tests e e e and n n n n

        Parameters:
            rows     i64  packed rows, then areas            written at building, see `layout`
            words    u32  everything else about the table    written at building, see `layout`
            events   i64  header, launches, offsets [n + 1], locations (x, y as bits of doubles) [n, 2], packed attributes;
                          written by the host before each event or batch
            counts   u32  [slots, counter_words].  With reset=kernel: constraints that each filter still lacks; this kernel
                          resets the other half of the slots for the next launch.  With memset: those satisfied, 0 before
            answers  u32  [slots, answer_words] bits of matched interfaces; zero before
            found    i64  lists: a count, including pairs that do not fit, then up to CAPACITY pairs `event << 32 | id`
            home          destination of the answer of a single event, if the kernel copies it (`pinned_mailbox`)
            launch        index of this launch among the launches in `events`

        Launch: grid.x * block.x threads for a run (each takes several rows if there are fewer), grid.y >= attributes of the
        widest event, grid.z >= events and slots to reset; 64 bytes of shared memory with input=shared.
        Work: reads the rows of the runs and, with phases=3, the names of their filters and only the rows selected by them;
        one atomic per satisfied row; with reset=kernel writes counter_words per slot, with memset reads the size of a
        filter for each satisfied row.
        Invariant: a counter reaches its end exactly once, when all counted constraints of its filter are satisfied, because
        an attribute tests a row at most once and an event's names are distinct.
        Source: Margara & Cugola, DEBS 2011 (a thread per constraint, 2-D grid, double buffers).  Differences: see `engine`.
        """
        shared = cuda.shared.array(INPUT_WORDS, np.int64)
        own = cuda.local.array(INPUT_WORDS, np.int64)
        input_ = shared if in_shared else own
        plan = EVENTS_HEADER + launch * PLAN_WORDS
        z = np.int64(cuda.blockIdx.z)
        if z < events[plan + N_EVENTS]:
            event = events[plan + FIRST] + z
            if cuda.threadIdx.x == 0 or not in_shared:
                load(rows, words, events, input_, event, np.int64(cuda.blockIdx.y))
            if selects and (cuda.threadIdx.x == cuda.blockDim.x - 1 or not in_shared):
                load_names(words, events, input_, event)  # by another warp, at the same time
            if in_shared:
                cuda.syncthreads()
            x = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
            stride = np.int64(cuda.gridDim.x * cuda.blockDim.x)
            log = np.int64(words[COUNTER_LOG])
            base = (events[plan + COUNTS_SLOT] + z) * np.int64(words[COUNTER_WORDS])
            place = (np.int64(1) << log) - 1  # mask of the bits of a filter id that select its counter within a word
            bits = 5 - log
            counter_mask = (np.int64(1) << (np.int64(1) << bits)) - 1
            n_rows, n_exists, exists_rows, code = input_[N_ROWS], input_[N_EXISTS], input_[EXISTS_ROWS], input_[EVENT_CODE]
            typed_rows, type_ = input_[TYPED_ROWS] - n_exists, input_[EVENT_TYPE] if sat == "published" else np.int64(0)
            names_of_rows, event_names = np.int64(words[_ROW_NAMES]), input_[EVENT_NAMES] if selects else np.int64(0)
            filters, launched = np.int64(words[_ROW_FILTER]), Launched(rows, words, events, answers, found, input_, plan, z)
            i = x
            while i < n_rows:  # not `range`: with a step, Numba divides to compute the number of iterations
                row = exists_rows + i if i < n_exists else typed_rows + i
                # a filter is selected when the event has the bits of all its names; else it cannot match
                selected = not selects or (np.int64(words[names_of_rows + row]) & ~event_names) == 0
                if selected and holds(rows, words, row, type_, code):
                    filter_id = np.int64(words[filters + row])
                    at = (filter_id & place) << bits
                    one = np.uint32(np.int64(1) << at)
                    if in_kernel:
                        before = cuda.atomic.sub(counts, base + (filter_id >> log), one)
                        last = np.int64(1)
                    else:
                        before = cuda.atomic.add(counts, base + (filter_id >> log), one)
                        last = size_of(words, filter_id) - 1
                    if (np.int64(before) >> at) & counter_mask == last:
                        _deliver(launched, filter_id)
                i += stride
            if cuda.blockIdx.y == 0:
                i = x
                while i < np.int64(words[N_ALWAYS]):
                    _deliver(launched, word_of(words, _ALWAYS, i))
                    i += stride
            if home.host.size > 0 and _is_last_block(home.done, shared):
                _send_home(words, events, answers, found, plan, home)
        if in_kernel:  # last, so that the answer does not wait for it
            _reset(words, events, counts, answers, found, plan, z)

    return ccm_kernel_


CCM_BLOCK = 256
"""Threads in a block."""
MAX_BLOCKS = 4096
"""Most blocks for the run of one attribute; in a longer run, each thread takes several rows."""
MAX_ATTRIBUTES = 65535
"""Largest size of a grid along y, CUDA's limit: attributes of an event."""


class OnDevice:
    """The table on the GPU, its kernel, and the launch dimensions that follow from the table.

    The `n_copies` copies of the counters take turns: there are two if the kernel of an event resets them for the next one.
    Wait for `upload` before the first launch.
    """

    def __init__(self, gpu: Gpu, rows: CcmRows, table: Table, variant: CcmVariant) -> None:
        self.kernel = ccm_kernel(variant.reset, variant.input, variant.phases, variant.sat)
        self.n_copies = 2 if variant.reset == "kernel" else 1
        self.upload = Upload(gpu, (rows.rows, rows.words))
        self.rows, self.words = self.upload.on_device
        self.counters, self.answer_words = rows.counters, rows.answer_words
        self.n_filters, self.n_interfaces = table.n_filters, table.n_interfaces
        self.has_areas = table.has_areas
        self.shift, self.longest_of, self.longest_run = rows.shift, rows.longest_of, rows.longest_run

    def n_ids(self, answer: int) -> int:
        """Upper bound, exclusive, of the ids in an answer."""
        return self.n_filters if answer == ANSWER_FILTERS else self.n_interfaces

    def blocks(self, n_rows: int, rows_per_thread: int = 1) -> int:
        """Number of blocks for runs of `n_rows` rows."""
        return min(max(-(-n_rows // (CCM_BLOCK * rows_per_thread)), 1), MAX_BLOCKS)

    def grid(self, n_blocks: int, n_attributes: int, n_events: int) -> tuple[int, int, int]:
        """The grid for `n_events` events of up to `n_attributes` attributes.  Raises EngineError for more than
        MAX_ATTRIBUTES."""
        if n_attributes > MAX_ATTRIBUTES:
            raise EngineError(
                f"an event has {n_attributes} attributes; ccm takes at most {MAX_ATTRIBUTES}; {can_serve('any attributes')}"
            )
        return n_blocks, max(n_attributes, 1), n_events

    def copies(self, gpu: Gpu, stream: Stream, slots: int) -> DeviceArray:
        """All copies of the counters for `slots` events in flight, ready for the first launch."""
        counts = gpu.buffer(np.uint32).array(max(self.n_copies * slots * len(self.counters), 1))
        if self.n_copies == 1:
            stream.zero(counts)
        else:
            stream.copy_in(counts, np.tile(self.counters, 2 * slots))
        stream.synchronize()
        return counts
