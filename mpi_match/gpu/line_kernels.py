"""The kernels that turn bytes of JSON lines into events on a GPU: `ingest.json.to_codes`, with one thread per line.

    count_rows   row ends in every 64 bytes, as a bit for each byte, and their sum for every block
    write_rows   position of every row's end
    scan_plain   attributes of plain lines (`json.flat_gpu`); one block's rows are contiguous in the *arena*, blocks are in
                 any order
    scan_rows    the same for the remaining rows, or for all, using the thread's own memory
    gather       offsets and attributes of all rows, in order
    insert       if there are flagged rows and all of them are good: inserts these among the others

Everything that the host must know is in one array, the `state`.  Later kernels read sizes from it, so that all kernels are
launched at once, without waiting for any.  If rows or attributes exceed their capacity, nothing is written beyond it, and
the state tells the host the capacity needed.

The functions that scan a line are the CPU's.  Their tables are arrays in device memory, or in the thread's own, whose
addresses are collected here.  A GPU thread has less memory than a CPU's: `MOST_ROW_NAMES`, `ROW_SCRATCH_BYTES`,
`MOST_ROW_ATOMS`; a line that needs more is flagged.

There are so few sums of blocks that each block adds up those before it; another kernel would take longer.  For a line of 59
bytes and five numbers (ccm) an H200 has to move 300 bytes of device memory, 0.06 ns at 4.8 TB/s.  `scan_rows` takes 0.65 ns:
a warp needs 7,700 instructions for 32 lines, with 20 of 32 lanes active on average, and a scheduler issues one in 37 of 100
cycles, because its six warps wait for the previous byte, table word or access to the thread's own memory.  So plain lines
have a separate kernel, with fewer and longer steps and twice as many warps, since its threads use no memory except
registers: the result of a line replaces its bytes in shared memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute import search
from mpi_match.gpu.intrinsics import WARP, address_of, ballot, lane, popcount, shuffle
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel
from mpi_match.gpu.warp import running_sum
from mpi_match.ingest.codes.atoms import FOUND_HEADER, FOUND_ROOM, FOUND_WORDS
from mpi_match.ingest.codes.name_steps import MOST_POINTS
from mpi_match.ingest.files.row_ends import STRETCH_BYTES, row_ends
from mpi_match.ingest.json.flat_gpu import (
    LINE_ENDED,
    PLAIN_TAIL_WORDS,
    UNSURE,
    PlainTables,
    plain_item,
    plain_pair,
    plain_start,
)
from mpi_match.ingest.json.line_tokens import NESTING_ROOM, NESTING_WORDS
from mpi_match.ingest.json.to_codes import (
    ATTRIBUTE_ROOM,
    DECODED,
    DEFERRED,
    DEFERRED_ENTRY,
    DEFERRED_HEADER,
    DEFERRED_LENGTH,
    DEFERRED_ROOM,
    DEFERRED_WORDS,
    FRAME_ROOM,
    FRAME_WORDS,
    FRAMES,
    ID_BOUNDS,
    ID_ROOM,
    KNOWN_VALUES,
    MOST_ATOMS,
    N_COUNTS,
    N_DEFERRED,
    N_IDENTIFIED,
    N_LOCATED,
    N_WORK_TABLES,
    NESTING,
    NODES_SEEN,
    PACKED_ATTRIBUTES,
    ROW_ATOMS,
    ROW_LOCATIONS,
    SCAN_COUNTS,
    SCRATCH_ROOM,
    SEEN_ROOM,
    TOKENS,
    VIEWED,
    scan_single_row,
)

LINE_BLOCK = 128
"""Threads of a block, and rows that it scans at a time."""
SCAN_REGISTERS = 80
"""Registers of a thread of `scan_rows`: six blocks fit a multiprocessor.  With 64 registers an H200 takes a quarter
longer."""
PLAIN_REGISTERS = 40
"""Registers of a thread of `scan_plain`: twelve blocks fit a multiprocessor."""
PLAIN_STAGES = (1152, 2048)
"""Words of 64 bits of shared memory for the lines of a block of `scan_plain`; longer lines are left to other kernels.
Memory that twelve blocks leave free is cache, for the names and codes of a table: 124 KiB with the first size, 28 KiB with
the second."""
_LISTED, _ATTRIBUTES = 16, np.uint32(2**16 - 1)
"""Bits for the sum of attributes of a block, and their mask; the higher bits are the number of its rows left to other
kernels."""
GATHER_REGISTERS = 40
"""Registers of a thread of `gather`: twelve blocks fit a multiprocessor."""
ROW_THREADS = 256
"""Threads of a block that finds rows, each in STRETCH_BYTES bytes."""
_HAS_LISTED = WAS_LISTED = np.uint32(2**31)
"""Flag bit of a block's source (the block has a listed row) and of a row's count (the row was listed)."""
_NONE, _ONE, _3 = (np.uint64(n) for n in (0, 1, 3))
lower_bound = device_function(search.lower_bound)
STAGE_WORDS = 2**11
"""Words of 64 bits of shared memory for the lines of a block; longer lines are read in place."""
_STAGED = STAGE_WORDS + 1
"""Those words and one more: where eight bytes are read together, some may be behind the last line."""
MOST_ROW_NAMES, MOST_ROW_ATOMS, ROW_SCRATCH_BYTES = 128, 64, 256
"""Capacity of a row: attributes (plus names of enclosing objects), atoms, and bytes of a name or string with escapes."""
_ATTRIBUTE_ROOM = MOST_ROW_NAMES + MOST_ROW_ATOMS
_WORK_WORDS, _COUNT_WORDS, _ATOM_WORDS = N_WORK_TABLES, N_COUNTS, FOUND_HEADER + FOUND_WORDS * MOST_ROW_ATOMS
MOST_ROW_FRAMES, _MOST_NESTED = 32, 1024
"""Deepest nesting of objects and lists: of named ones, and within those that no filter names."""
_SEEN_ROOM, _FRAME_WORDS = MOST_ROW_NAMES + MOST_POINTS, MOST_ROW_FRAMES * FRAME_WORDS
_NESTING_WORDS = NESTING_WORDS + _MOST_NESTED // 64
_SCRATCH_WORDS = ROW_SCRATCH_BYTES // 8 + 1  # one more: eight bytes are read together

MOST_DEFERRED = 384
"""Most deferred texts of a row."""
LIST_WORDS = DEFERRED_HEADER + DEFERRED_WORDS * MOST_DEFERRED
"""Words of 64 bits of the list of a row's deferred texts."""


ROW_BINS = 2**12
"""Bins of rows by their bytes, eight to a bin."""
ENTRY_BINS, LENGTH_BINS = 256, 16
"""Deferred texts are read in the order of bins: by the binary digits of their number of bytes, at most LENGTH_BINS - 1, then
by the lowest bits of their attribute's entry.  So a warp reads texts of one attribute and of about one length."""
(
    DATA_BYTES,
    ROW_ROOM,
    ARENA_ROOM,
    ROWS_FOUND,
    ARENA_USED,
    FLAGGED_ROWS,
    WIDEST_ROW,
    LOCATED_ROWS,
    IDENTIFIED_ROWS,
    NOT_PLAIN,
    ATTRIBUTES_FOUND,
    TEXT_ROOM,
    TEXTS_FOUND,
    N_STATE,
) = range(14)
"""Words of the state.  Inputs: bytes, and the capacity in rows, attributes and deferred texts.  Outputs:
number of rows, attributes and flagged rows; attributes of the widest row; flags for rows with a location and with an id;
number of rows that were not plain; attributes of all rows, fewer than ARENA_USED if texts were deferred; number of deferred
texts."""


class RowArrays(NamedTuple):
    """Arrays with the results for each row, in the order of the rows, for `ROW_ROOM` rows.

    ends       u32: its line feed
    counts     u32: number of attributes, 0 if it is flagged; plus 2^31 if it was listed
    sources    u32: for each block of LINE_BLOCK rows, the start of its attributes in the arena, without those of listed
               rows; plus 2^31 if it has listed rows
    listed     u32: the rows that `scan_plain` left, in any order
    places     u32: start of the attributes of a listed row in the arena
    texts      u32: number of the last deferred text of a row plus 1, 0 for a row without; one item if no texts are deferred
    flagged    u32[3 ·]: number, first byte and line feed of each flagged row, in any order; includes blank lines before it
    location   f64[2 ·]: x and y, NaN for a row without a location; one item if the form names none
    ids        i64[2 ·]: bounds of the id in the data, zeros for a row without an id; one item if the form names none
    """

    ends: Any
    counts: Any
    sources: Any
    listed: Any
    places: Any
    texts: Any
    flagged: Any
    location: Any
    ids: Any


ROW_ARRAYS = f"RowArrays({'uint32[::1], ' * 7}float64[::1], int64[::1])"


class ScanTables(NamedTuple):
    """The tables that `scan_rows` reads, and the arrays to which it writes deferred texts.

    tables         address of the addresses of the vocabulary's tables (`codes.code_tables`), on the GPU
    lists          i64[LIST_WORDS] for each thread, for the deferred texts of a row; one item: no texts are deferred
    list_address   address of `lists`
    texts          i64[TEXT_WORDS] for each deferred text
    bins           i64[LENGTH_BINS * ENTRY_BINS]: the number of texts in each bin, 0 at first
    """

    tables: Any
    lists: Any
    list_address: Any
    texts: Any
    bins: Any


TEXT_ROW, TEXT_BIN, TEXT_BEFORE, TEXT_ATTRIBUTES, TEXT_PLACE, TEXT_WORDS = range(DEFERRED_WORDS, DEFERRED_WORDS + 6)
"""Words of a deferred text, behind those of `to_codes`: its row; its bin; number of the row's text before it, plus 1, or 0;
number of its attributes, or FLAGGED_LINE, and where they are in the arena."""


@device_function
def sums_before(value: Int, part: Array, n_threads: int) -> tuple:
    """The sum of the values of the threads before this one, and of all threads, u32.

    Every thread of a block of `n_threads` must call it.  `part` is u32 for each warp, in shared memory; it may be reused
    after one `syncthreads`.
    """
    warp = np.uint32(cuda.threadIdx.x) // np.uint32(WARP)
    upto = np.uint32(running_sum(value))
    cuda.syncthreads()
    if lane() == WARP - 1:
        part[warp] = upto
    cuda.syncthreads()
    before, total = np.uint32(upto - np.uint32(value)), np.uint32(0)
    for k in range(n_threads // WARP):
        other = np.uint32(k)
        if other < warp:
            before = np.uint32(before + part[other])
        total = np.uint32(total + part[other])
    return before, total


@device_function
def _sum_of_blocks(sums: Array, n: int, part: Array, n_threads: int) -> np.uint64:
    """The sum of sums[0:n], u64, the same for all threads of a block of `n_threads`; each of them must call it."""
    own, i = np.uint32(0), np.uint64(cuda.threadIdx.x)
    while i < n:
        own = np.uint32(own + np.uint32(sums[i]))
        i += np.uint64(n_threads)
    _, total = sums_before(own, part, n_threads)
    return np.uint64(total)


@device_function
def _put_pair(to: Array, row: int, pair: tuple, is_there: int, state: Array, which: int) -> None:
    """Write the two numbers of a row, and set the flag `which` of the state if they are present."""
    to[2 * row] = pair[0]
    to[2 * row + 1] = pair[1]
    if is_there > 0 and state[which] == 0:
        state[which] = 1


@device_function
def _keep_texts(given: ScanTables, first: int, row: int, state: Array) -> np.uint32:
    """Write the deferred texts of a row, whose list begins at word `first`, if they fit.  Returns the number of the last one
    plus 1; 0 for none."""
    n = given.lists[first + N_DEFERRED]
    place = cuda.atomic.add(state, TEXTS_FOUND, n) if n > 0 else np.int64(0)
    if n == 0 or place + n > state[TEXT_ROOM]:
        return np.uint32(0)
    for k in range(n):
        own, to = first + DEFERRED_HEADER + DEFERRED_WORDS * k, TEXT_WORDS * (place + k)
        for word in range(DEFERRED_WORDS):
            given.texts[to + word] = given.lists[own + word]
        length, n_digits = given.lists[own + DEFERRED_LENGTH], np.int64(0)
        while length > 0 and n_digits < LENGTH_BINS - 1:
            length >>= 1
            n_digits += 1
        which = ENTRY_BINS * n_digits + (given.lists[own + DEFERRED_ENTRY] & (ENTRY_BINS - 1))
        cuda.atomic.add(given.bins, which, np.int64(1))
        given.texts[to + TEXT_ROW], given.texts[to + TEXT_BIN] = row, which
        given.texts[to + TEXT_BEFORE] = place + k if k > 0 else np.int64(0)
    return np.uint32(place + n)


@kernel("void(int64, int64[::1], uint64[::1], int64[::1])")
def count_rows_kernel(data: int, state: Array, found: Array, sums: Array) -> None:
    """Find the rows that end in each stretch of STRETCH_BYTES bytes (`row_ends`), and count those of each block:
    sums[block].

    Launch: ROW_THREADS threads for each STRETCH_BYTES * ROW_THREADS bytes at the address `data`.
    """
    part = cuda.shared.array(ROW_THREADS, np.uint32)
    block, n_bytes = np.int64(cuda.blockIdx.x), state[DATA_BYTES]
    stretch, n = block * ROW_THREADS + np.int64(cuda.threadIdx.x), np.int64(0)
    if stretch * STRETCH_BYTES < n_bytes:
        ends = np.uint64(row_ends(data, stretch * STRETCH_BYTES, n_bytes))
        found[np.uint64(stretch)] = ends
        n = popcount(ends)
    _, total = sums_before(n, part, ROW_THREADS)
    if cuda.threadIdx.x == 0:
        sums[np.uint64(block)] = total


@kernel("void(int64[::1], uint64[::1], int64[::1], uint32[::1])")
def write_rows_kernel(state: Array, found: Array, sums: Array, ends: Array) -> None:
    """Write the positions of the row ends, as far as they fit, and the number of rows.

    Launch: as `count_rows_kernel`, after it.
    """
    part = cuda.shared.array(ROW_THREADS, np.uint32)
    block, room, n_bytes = np.uint64(cuda.blockIdx.x), np.uint64(state[ROW_ROOM]), np.uint64(state[DATA_BYTES])
    stretch = block * np.uint64(ROW_THREADS) + np.uint64(cuda.threadIdx.x)
    start = stretch * np.uint64(STRETCH_BYTES)
    bits = found[stretch] if start < n_bytes else _NONE
    row = _sum_of_blocks(sums, block, part, ROW_THREADS)
    before, total = sums_before(popcount(bits), part, ROW_THREADS)
    if cuda.threadIdx.x == 0 and block == np.uint64(cuda.gridDim.x) - _ONE:
        state[ROWS_FOUND] = np.int64(row + np.uint64(total))
    row += np.uint64(before)
    while bits != _NONE:
        if row < room:
            ends[row] = start + np.uint64(popcount((bits & (~bits + _ONE)) - _ONE))
        bits &= bits - _ONE
        row += _ONE


@device_function
def _note_widest(most: Any, part: Any, state: Any) -> None:
    """Record the largest number of attributes of a thread's rows, i32; every thread of a block must call it.  `part`: see
    `sums_before`."""
    apart = 1
    while apart < WARP:
        most = np.int32(max(most, shuffle(most, (lane() + apart) % WARP)))
        apart *= 2
    if lane() == 0:
        part[np.uint32(cuda.threadIdx.x) // np.uint32(WARP)] = most
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        widest = np.int64(0)
        for warp in range(LINE_BLOCK // WARP):
            widest = max(widest, np.int64(part[np.uint32(warp)]))
        if widest > state[WIDEST_ROW]:
            cuda.atomic.max(state, WIDEST_ROW, widest)


@device_function
def _attributes_of(text: tuple, at: int, starts: bool, plain: PlainTables, wide: bool) -> np.int64:
    """Scan a line, if it `starts`, from byte `at`; returns its number of attributes, or -1 if it is not plain.

    All lanes of a warp call it, and none is ahead of the others by more than one pair of name and value.
    """
    first, n, n_items = np.uint32(np.uint32(at + np.uint32(3)) >> np.uint32(2)), np.uint32(0), np.uint32(0)
    place = np.uint32(plain_start(text, at)) if starts else UNSURE
    while ballot(place < LINE_ENDED) != 0:
        if place < LINE_ENDED and n_items == MOST_ROW_NAMES:
            place = UNSURE
        if place < LINE_ENDED:
            after, n_found, n_kept = plain_pair(text, place, first, n, n_items, plain, wide)
            place, n, n_items = np.uint32(after), np.uint32(n_found), np.uint32(n_kept)
    return np.int64(n) if place != UNSURE else np.int64(-1)


@lru_cache
def scan_plain_kernel(packed: str, n_stage: int) -> Kernel:
    """The kernel for attributes of type `packed` ("uint32", "uint64"), with `n_stage` words for lines (`PLAIN_STAGES`)."""
    wide, packed_type = packed == "uint64", np.uint32 if packed == "uint32" else np.uint64
    stage_words, stage_room = np.uint64(n_stage), n_stage + PLAIN_TAIL_WORDS
    one_listed = 1 << _LISTED
    plain_types = "PlainTables(int64, int64, int64, int64, int64)"
    signature = f"void(uint64[::1], {plain_types}, int64[::1], {ROW_ARRAYS}, int64[::1], {packed}[::1])"

    @kernel(signature, max_registers=PLAIN_REGISTERS, named_tuples=[RowArrays, PlainTables])
    def scan_plain(words: Array, plain: PlainTables, state: Array, rows: RowArrays, sums: Array, arena: Array) -> None:
        """Scan the rows that are plain lines, LINE_BLOCK at a time, one per thread; sums[block] counts attributes.

        words    the bytes of the lines, as words
        plain    the tables of plain lines, on the GPU

        Launch: any number of blocks of LINE_BLOCK threads.
        """
        stage = cuda.shared.array(stage_room, np.uint64)  # on separate lines: the simulator identifies arrays by them
        part = cuda.shared.array(LINE_BLOCK, np.uint32)
        begin = cuda.shared.array(2, np.uint32)
        text = address_of(stage)
        thread, n_threads = np.uint64(cuda.threadIdx.x), np.uint64(LINE_BLOCK)
        n_rows = np.uint64(state[ROWS_FOUND] if state[ROWS_FOUND] <= state[ROW_ROOM] else 0)
        arena_room, most = np.uint64(state[ARENA_ROOM]), np.int32(0)
        block = np.uint64(cuda.blockIdx.x)
        while block * n_threads < n_rows:
            first = block * n_threads
            row, last = first + thread, min(first + n_threads, n_rows)
            start_word = (np.uint64(rows.ends[first - _ONE]) + _ONE) >> _3 if first > _NONE else _NONE
            n_words = (np.uint64(rows.ends[last - _ONE]) >> _3) + _ONE - start_word
            is_staged = n_words <= stage_words
            w = thread if is_staged else n_words
            while w < n_words:
                stage[w] = words[start_word + w]
                w += n_threads
            at = np.uint32(0)
            if _NONE < row < last:
                at = np.uint32(np.uint64(rows.ends[row - _ONE]) + _ONE - (start_word << _3))
            cuda.syncthreads()
            n: Any = np.int32(_attributes_of(text, at, row < last and is_staged, plain, wide))
            is_left = row < last and n < 0
            n = np.int32(max(n, 0))
            most = np.int32(max(most, n))
            if row < last:
                rows.counts[row] = np.uint32(n)
                if rows.location.size > 1:
                    rows.location[row + row] = rows.location[row + row + _ONE] = np.nan
                if rows.ids.size > 1:
                    rows.ids[row + row] = rows.ids[row + row + _ONE] = 0
            sums_, all_ = sums_before(np.int32(n + (one_listed if is_left else 0)), part, LINE_BLOCK)
            before, total = np.uint32(sums_ & _ATTRIBUTES), np.uint32(all_ & _ATTRIBUTES)
            if thread == _NONE:
                n_listed = np.int64(all_ >> np.uint32(_LISTED))
                sums[block] = np.int64(total)
                begin[0] = np.uint32(cuda.atomic.add(state, ARENA_USED, np.int64(total)))
                rows.sources[block] = begin[0]
                if n_listed > 0:
                    begin[1] = np.uint32(cuda.atomic.add(state, NOT_PLAIN, n_listed))
                    rows.sources[block] = begin[0] | _HAS_LISTED
            cuda.syncthreads()
            if is_left:
                rows.listed[np.uint32(begin[1] + (sums_ >> np.uint32(_LISTED)))] = np.uint32(row)
            source = np.uint64(begin[0]) + np.uint64(before)
            if source + np.uint64(n) <= arena_room:
                first_item = np.uint32(np.uint32(at + np.uint32(3)) >> np.uint32(2))
                for k in range(n):
                    arena[source + np.uint64(k)] = packed_type(plain_item(text, first_item, k, wide))
            cuda.syncthreads()
            block += np.uint64(cuda.gridDim.x)
        _note_widest(most, part, state)

    return scan_plain


@lru_cache
def scan_rows_kernel(packed: str, located: bool, has_ids: bool) -> Kernel:  # noqa: C901  one pass over all rows
    """The kernel for attributes of type `packed` ("uint32", "uint64"), and for forms with or without a location and an id.
    An id with escapes is flagged."""
    packed_type = np.uint32 if packed == "uint32" else np.uint64
    given_types = "ScanTables(int64, int64[::1], int64, int64[::1], int64[::1])"
    signature = f"void(int64, uint64[::1], {given_types}, int64, int64[::1], {ROW_ARRAYS}, int64[::1], {packed}[::1])"

    @kernel(signature, max_registers=SCAN_REGISTERS, named_tuples=[RowArrays, ScanTables])
    def scan_rows(  # noqa: C901
        data: int, words: Array, given: ScanTables, listed: int, state: Array, rows: RowArrays, sums: Array, arena: Array
    ) -> None:
        """Scan rows, LINE_BLOCK at a time, one per thread; sums[block] counts attributes.

        data     address of the bytes; words: the same memory
        listed   0: all rows, and no texts are deferred; otherwise only those that `scan_plain_kernel` or
                 `order_rows_kernel` has listed

        Launch: as many blocks of LINE_BLOCK threads as fit the GPU.
        """
        stage = cuda.shared.array(_STAGED, np.uint64)  # on separate lines: the simulator identifies arrays by them
        part = cuda.shared.array(LINE_BLOCK, np.uint32)
        widest = cuda.shared.array(1, np.int64)
        begin = cuda.shared.array(1, np.int64)
        work, counts = cuda.local.array(_WORK_WORDS, np.int64), cuda.local.array(_COUNT_WORDS, np.int64)
        attributes, location = cuda.local.array(_ATTRIBUTE_ROOM, np.uint64), cuda.local.array(2, np.float64)
        ids = cuda.local.array(2, np.int64)
        deferred = cuda.local.array(DEFERRED_HEADER, np.int64)
        seen, atoms = cuda.local.array(_SEEN_ROOM, np.int64), cuda.local.array(_ATOM_WORDS, np.int64)
        frames, nesting = cuda.local.array(_FRAME_WORDS, np.int64), cuda.local.array(_NESTING_WORDS, np.int64)
        decoded, viewed = cuda.local.array(_SCRATCH_WORDS, np.uint64), cuda.local.array(_SCRATCH_WORDS, np.uint64)
        work[SCAN_COUNTS], work[PACKED_ATTRIBUTES] = address_of(counts), address_of(attributes)
        work[ROW_LOCATIONS], work[ROW_ATOMS] = address_of(location), address_of(atoms)
        work[NODES_SEEN], work[FRAMES], work[NESTING] = address_of(seen), address_of(frames), address_of(nesting)
        work[TOKENS] = work[KNOWN_VALUES] = 0
        work[DEFERRED] = address_of(deferred)
        deferred[DEFERRED_ROOM] = 0
        work[DECODED], work[VIEWED], work[ID_BOUNDS] = address_of(decoded), address_of(viewed), address_of(ids)
        counts[ID_ROOM] = 0
        counts[ATTRIBUTE_ROOM], counts[SCRATCH_ROOM] = MOST_ROW_NAMES, ROW_SCRATCH_BYTES
        counts[SEEN_ROOM], counts[FRAME_ROOM], nesting[NESTING_ROOM] = _SEEN_ROOM, MOST_ROW_FRAMES, _MOST_NESTED // 64
        counts[MOST_ATOMS] = atoms[FOUND_ROOM] = MOST_ROW_ATOMS
        thread, n_threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
        defers, own_list = given.lists.size > 1, LIST_WORDS * (cuda.blockIdx.x * n_threads + thread)
        if defers:
            work[DEFERRED] = given.list_address + 8 * own_list
            given.lists[own_list + DEFERRED_ROOM] = MOST_DEFERRED
        n_rows = state[ROWS_FOUND] if state[ROWS_FOUND] <= state[ROW_ROOM] else np.int64(0)
        if listed != 0:
            n_rows = min(state[NOT_PLAIN], n_rows)
        first = cuda.blockIdx.x * n_threads
        while first < n_rows:
            last = min(first + n_threads, n_rows)
            row, text = first + thread, data
            if listed == 0:
                start = np.int64(rows.ends[first - 1]) + 1 if first > 0 else np.int64(0)
                start_word = start >> 3
                n_words = ((np.int64(rows.ends[last - 1]) + 8) >> 3) - start_word
                if n_words <= STAGE_WORDS:
                    text = address_of(stage) - 8 * start_word
                    for w in range(thread, n_words, n_threads):
                        stage[w] = words[start_word + w]
            elif row < last:
                row = np.int64(rows.listed[n_rows - 1 - row])  # the longest ones first, if they are in order
            if thread == 0:
                widest[0] = 0
            cuda.syncthreads()
            n = np.int64(0)
            if first + thread < last:
                at = np.int64(rows.ends[row - 1]) + 1 if row > 0 else np.int64(0)
                n = np.int64(scan_single_row(text, at, given.tables, address_of(work)))
                if defers:
                    rows.texts[row] = 0
                    if n >= 0:
                        rows.texts[row] = _keep_texts(given, own_list, row, state)
                if n < 0:
                    place = 3 * cuda.atomic.add(state, FLAGGED_ROWS, 1)
                    rows.flagged[place], rows.flagged[place + 1], rows.flagged[place + 2] = row, at, rows.ends[row]
                    n = np.int64(0)
                    location[0] = location[1] = np.nan
                    ids[0] = ids[1] = counts[N_LOCATED] = counts[N_IDENTIFIED] = 0
                if located:
                    _put_pair(rows.location, row, location, counts[N_LOCATED], state, LOCATED_ROWS)
                if has_ids:
                    _put_pair(rows.ids, row, ids, counts[N_IDENTIFIED], state, IDENTIFIED_ROWS)
                cuda.atomic.max(widest, 0, n)
            before, total = sums_before(n, part, LINE_BLOCK)
            if thread == 0:
                begin[0] = cuda.atomic.add(state, ARENA_USED, np.int64(total))
                if widest[0] > state[WIDEST_ROW]:
                    cuda.atomic.max(state, WIDEST_ROW, widest[0])
                if listed == 0:
                    sums[first // n_threads] = total
                    rows.sources[first // n_threads] = begin[0]
            cuda.syncthreads()
            source = begin[0] + before
            if first + thread < last:
                rows.counts[row] = n
                if listed != 0:
                    rows.counts[row] = np.uint32(n) | WAS_LISTED
                    rows.places[row] = source
                    cuda.atomic.add(sums, row // n_threads, n)
            if source + n <= state[ARENA_ROOM]:
                for k in range(n):
                    arena[source + k] = packed_type(attributes[k])
            cuda.syncthreads()
            first += cuda.gridDim.x * n_threads

    return scan_rows


@device_function
def _bin_of_row(ends: Array, row: int, n_bins: int) -> Any:
    """The bin of a row."""
    n_bytes = np.int64(ends[row]) - (np.int64(ends[row - 1]) if row > 0 else np.int64(0))
    return min(n_bytes >> 3, np.int64(n_bins - 1))


@kernel("void(int64[::1])")
def sum_bins_kernel(bins: Array) -> None:
    """Replace the number of texts in each bin by the sum of those before it.

    Launch: one block of ROW_THREADS.
    """
    part = cuda.shared.array(ROW_THREADS, np.uint32)
    share = (bins.size + ROW_THREADS - 1) // ROW_THREADS
    first = int(cuda.threadIdx.x) * share
    total = np.int64(0)
    for k in range(first, min(first + share, bins.size)):
        total += bins[k]
    before, _ = sums_before(total, part, ROW_THREADS)
    running = np.int64(before)
    for k in range(first, min(first + share, bins.size)):
        n = bins[k]
        bins[k] = running
        running += n


@kernel(f"void(int64[::1], {ROW_ARRAYS}, int64[::1])", named_tuples=[RowArrays])
def bin_rows_kernel(state: Array, rows: RowArrays, bins: Array) -> None:
    """Count the rows of each bin: those of about as many bytes.

    Launch: any number of blocks.
    """
    row = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    n = state[ROWS_FOUND] if state[ROWS_FOUND] <= state[ROW_ROOM] else np.int64(0)
    while row < n:
        cuda.atomic.add(bins, _bin_of_row(rows.ends, row, bins.size), np.int64(1))
        row += np.int64(cuda.gridDim.x * cuda.blockDim.x)


@kernel(f"void(int64[::1], {ROW_ARRAYS}, int64[::1], int64[::1])", named_tuples=[RowArrays])
def order_rows_kernel(state: Array, rows: RowArrays, sums: Array, bins: Array) -> None:
    """List all rows in the order of their bins, which become the ends of the bins: events of one kind have about as many
    bytes, and threads of a warp then scan the same names.

    Launch: any number of blocks.
    """
    row = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    n = state[ROWS_FOUND] if state[ROWS_FOUND] <= state[ROW_ROOM] else np.int64(0)
    if row == 0:
        state[NOT_PLAIN] = n
    while row < n:
        rows.listed[cuda.atomic.add(bins, _bin_of_row(rows.ends, row, bins.size), np.int64(1))] = row
        if row % LINE_BLOCK == 0:
            sums[row // LINE_BLOCK] = 0
            rows.sources[row // LINE_BLOCK] = _HAS_LISTED
        row += np.int64(cuda.gridDim.x * cuda.blockDim.x)


@kernel("void(int64[::1], int64[::1], int64[::1], uint32[::1])")
def order_texts_kernel(texts: Array, state: Array, bins: Array, order: Array) -> None:
    """Write the numbers of the texts in the order of their bins, which become the ends of the bins.

    Launch: any number of blocks.
    """
    k = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    n = state[TEXTS_FOUND] if state[TEXTS_FOUND] <= state[TEXT_ROOM] else np.int64(0)
    while k < n:
        order[cuda.atomic.add(bins, texts[TEXT_WORDS * k + TEXT_BIN], np.int64(1))] = k
        k += np.int64(cuda.gridDim.x * cuda.blockDim.x)


@lru_cache
def gather_kernel(packed: str) -> Kernel:
    """The kernel for attributes of type `packed`."""
    signature = f"void(int64[::1], {ROW_ARRAYS}, int64[::1], {packed}[::1], uint32[::1], {packed}[::1])"

    @kernel(signature, max_registers=GATHER_REGISTERS, named_tuples=[RowArrays])
    def gather(state: Array, rows: RowArrays, sums: Array, arena: Array, offsets: Array, attributes: Array) -> None:
        """Fill the offsets u32[n + 1] and the attributes of all rows.

        Launch: as many blocks of LINE_BLOCK threads as fit the GPU.
        """
        part = cuda.shared.array(LINE_BLOCK, np.uint32)
        thread, n_threads = np.uint64(cuda.threadIdx.x), np.uint64(LINE_BLOCK)
        fits = state[ROWS_FOUND] <= state[ROW_ROOM] and state[ARENA_USED] <= state[ARENA_ROOM]
        n_rows = np.uint64(state[ROWS_FOUND] if fits else 0)
        n_blocks = np.uint32((n_rows + n_threads - _ONE) // n_threads)
        share = np.uint32(np.uint32(n_blocks + np.uint32(cuda.gridDim.x - 1)) // np.uint32(cuda.gridDim.x))
        block = min(np.uint64(cuda.blockIdx.x) * np.uint64(share), np.uint64(n_blocks))
        stop = min(block + np.uint64(share), np.uint64(n_blocks))
        if cuda.blockIdx.x == 0 and thread == _NONE:
            offsets[0] = 0
        if block == stop:
            return
        begin = _sum_of_blocks(sums, block, part, LINE_BLOCK)
        while block < stop:
            row = block * n_threads + thread
            count = np.uint32(rows.counts[row]) if row < n_rows else np.uint32(0)
            n, is_listed = np.uint32(count & ~WAS_LISTED), count & WAS_LISTED != np.uint32(0)
            before, total = sums_before(n, part, LINE_BLOCK)
            if row < n_rows:
                offsets[row + _ONE] = np.uint32(np.uint32(begin) + before + n)
            source = np.uint32(rows.sources[block])
            if source & _HAS_LISTED == np.uint32(0):
                k = thread
                while k < np.uint64(total):
                    attributes[begin + k] = arena[np.uint64(source) + k]
                    k += n_threads
            else:
                others, _ = sums_before(np.uint32(0) if is_listed else n, part, LINE_BLOCK)
                source = np.uint32(rows.places[row]) if is_listed else np.uint32((source & ~_HAS_LISTED) + others)
                for i in range(n):
                    attributes[begin + np.uint64(before) + np.uint64(i)] = arena[np.uint64(source) + np.uint64(i)]
            begin += np.uint64(total)
            block += _ONE
        if thread == _NONE and stop == np.uint64(n_blocks):
            state[ATTRIBUTES_FOUND] = np.int64(begin)

    return gather


class JudgedArrays(NamedTuple):
    """The events of m flagged rows.

    rows          u32[m], ascending
    starts        u32[m + 1]: bounds of the attributes of each
    attributes    packed
    location      f64[2m]; one item if the form names no location
    """

    rows: Any
    starts: Any
    attributes: Any
    location: Any


class PlacedRows(NamedTuple):
    """Offsets u32[n + 1] and packed attributes of n rows, and their locations as in `RowArrays`."""

    offsets: Any
    attributes: Any
    location: Any


@lru_cache
def insert_kernel(packed: str) -> Kernel:
    """The kernel for attributes of type `packed`."""
    placed = f"PlacedRows(uint32[::1], {packed}[::1], float64[::1])"
    judged_type = f"JudgedArrays(uint32[::1], uint32[::1], {packed}[::1], float64[::1])"

    @kernel(f"void({placed}, {judged_type}, int64, int64, {placed})", named_tuples=[JudgedArrays, PlacedRows])
    def insert(rows: PlacedRows, judged: JudgedArrays, n_rows: int, located: int, to: PlacedRows) -> None:
        """Merge judged rows into the rows, in place of the flagged ones, which have no attributes, and write all `n_rows` to
        `to`.

        The locations of `to`, if `located`, are already those of `rows`.  Launch: one thread per row.
        """
        row = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        if row >= n_rows:
            return
        m = np.int64(judged.rows.size)
        k = lower_bound(judged.rows, np.int64(0), m, row)
        first, last = np.int64(rows.offsets[row]), np.int64(rows.offsets[row + 1])
        begin = first + np.int64(judged.starts[k])
        for i in range(first, last):
            to.attributes[begin + i - first] = rows.attributes[i]
        end = begin + last - first
        if k < m and np.int64(judged.rows[k]) == row:
            for i in range(np.int64(judged.starts[k]), np.int64(judged.starts[k + 1])):
                to.attributes[end] = judged.attributes[i]
                end += 1
            if located:
                to.location[2 * row] = judged.location[2 * k]
                to.location[2 * row + 1] = judged.location[2 * k + 1]
        to.offsets[row + 1] = end
        if row == 0:
            to.offsets[0] = 0

    return insert
