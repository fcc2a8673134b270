"""The kernels that turn bytes of JSON lines into events on a GPU: `ingest.scanner`, one thread a line.

    count_rows   row ends in every 64 bytes, and their sum for every block          ┐
    sum_blocks   where the rows of each block begin                                 │ 2 x the bytes
    write_rows   position of every row's end                                        ┘
    scan_rows    a row's attributes, in the thread's own memory, then one block's   ┐ the bytes once, by way of shared
                 rows end to end in the *arena*, blocks in any order                ┘ memory: a warp reads 32 lines at once;
                 plain lines a pair at a time by all lanes (`plain_lines`), then each lane what is left
    sum_blocks   where the attributes of each block begin
    gather       offsets and attributes of all rows, in their order
    insert       if there are flagged rows, and all of them are good: these among the others

Everything that the host must know is in one array, the `state`.  Later kernels take sizes from it, so that all of them are
launched at once, without waiting for any; where rows or attributes exceed their room nothing is written beyond it, and the
host sees in the state how much room they need.

The functions of a line are those that the CPU runs.  Their tables are arrays in device memory, or in the thread's own, whose
addresses are put together here.  A thread has less room than a CPU's: `MOST_ROW_NAMES`, `ROW_SCRATCH_BYTES`,
`MOST_ROW_ATOMS`; a line that needs more is flagged.

For a line of 59 bytes and five numbers (ccm) an H200 has to move 300 bytes of device memory, 0.06 ns at 4.8 TB/s.  The
scanner of all lines takes 0.65 ns: a warp needs 7,700 instructions for 32 lines, 20 lanes of 32 take part in one, and a
scheduler has one to issue in 37 cycles of 100, because its six warps wait for the byte, the word of a table or the thread's
own memory before.  So plain lines take fewer and longer steps (`plain_lines`): some 500 instructions and six loads of 16
bytes a number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.compute import search
from mpi_match.gpu.intrinsics import address_of, ballot, lane, popcount
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel
from mpi_match.ingest.atom_automaton import FOUND_HEADER, FOUND_ROOM
from mpi_match.ingest.plain_lines import LINE_ENDED, NO_ATTRIBUTE, PLAIN_TAIL_WORDS, UNSURE, plain_pair
from mpi_match.ingest.row_ends import STRETCH_BYTES, row_ends
from mpi_match.ingest.scanner import (
    DECODED,
    DOTTED_NAME,
    ID_BOUNDS,
    ID_ROOM,
    MOST_ATOMS,
    MOST_DEPTH,
    N_COUNTS,
    N_IDENTIFIED,
    N_LOCATED,
    NAME_HASHES_SEEN,
    NAME_ROOM,
    PACKED_ATTRIBUTES,
    PREFIX_ENDS,
    PREFIX_HASHES,
    ROW_ATOMS,
    ROW_LOCATIONS,
    SCAN_COUNTS,
    SCRATCH_ROOM,
    scan_single_row,
)

LINE_BLOCK = 128
"""Threads of a block, and rows that it scans at a time."""
SCAN_REGISTERS = 80
"""Of a thread of `scan_rows`: six blocks on a multiprocessor.  With 64 an H200 takes a quarter longer."""
SUM_THREADS = 1024
_ONE, _58 = np.uint64(1), np.uint64(58)
lower_bound = device_function(search.lower_bound)
STAGE_WORDS = 2**11
"""Words of 64 bits in shared memory for the lines of a block; longer ones are read where they are."""
MOST_ROW_NAMES, MOST_ROW_ATOMS, ROW_SCRATCH_BYTES = 128, 64, 256
"""Room of a row: names, atoms, and bytes of a dotted name or of a string with escapes."""
MOST_PLAIN_NAMES = 32
"""Names of a plain line; one with more is scanned as others are."""
_ATTRIBUTE_ROOM = MOST_ROW_NAMES + MOST_ROW_ATOMS
_WORK_WORDS, _COUNT_WORDS, _ATOM_WORDS = DECODED + 1, N_COUNTS, FOUND_HEADER + 2 * MOST_ROW_ATOMS

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
    N_GATHERED,
    NOT_PLAIN,
    N_STATE,
) = range(12)
"""Words of the state.  Given: bytes, rows and attributes for which there is room.  Found: rows; attributes; flagged rows;
attributes of the widest row; are there rows with a location, with an id; attributes that were gathered; rows that were
not plain."""


class RowArrays(NamedTuple):
    """What is known of each row, in the order of the rows, for `ROW_ROOM` rows.

    ends       u32: its line feed
    counts     u32: attributes; 0 where it is flagged
    sources    u32: where those of each block of LINE_BLOCK rows begin in the arena
    flagged    u32[3 ·]: number, first byte and line feed of each flagged row, in any order; blank lines before it are in it
    location   f64[2 ·]: x and y, NaN for a row without one; one item where the form names none
    ids        i64[2 ·]: where the id begins and ends in the data, zeros for a row without one; one item where the form names
               none
    """

    ends: Any
    counts: Any
    sources: Any
    flagged: Any
    location: Any
    ids: Any


_ROWS = "RowArrays(uint32[::1], uint32[::1], uint32[::1], uint32[::1], float64[::1], int64[::1])"


@device_function
def _running_sums(part: Any, thread: Any, n: Any) -> None:
    """Replace part[0:n] by its running sums; every thread of a block of n calls it, with its number."""
    cuda.syncthreads()
    step = 1
    while step < n:
        before = part[thread - step] if thread >= step else np.int64(0)
        cuda.syncthreads()
        part[thread] += before
        cuda.syncthreads()
        step *= 2


@device_function
def _was_seen(seen: Any, n: Any, mask: Any, hash_: Any) -> Any:
    """Is a name's hash among the n before it?  `mask` has a bit for each of those.  A new hash is kept."""
    found = False
    if mask >> (hash_ >> _58) & _ONE != np.uint64(0):
        for k in range(n):
            found = found or seen[k] == hash_
    seen[n] = hash_
    return found


@device_function
def _put_in_order(attributes: Any, n: Any, item: Any) -> None:
    """Insert an item into the first n, which are in ascending order."""
    k = n
    while k > 0 and attributes[max(k - 1, 0)] > item:
        attributes[k] = attributes[k - 1]
        k -= 1
    attributes[k] = item


@device_function
def _plain_attributes(stage: Any, at: Any, starts: Any, tables: Any, seen: Any, attributes: Any) -> Any:
    """Scan a plain line from byte `at` of the stage on: how many attributes it has; -1 if it is none, or not `starts`.

    All lanes of a warp call it, and none is ahead of the others by more than a pair.
    """
    goes_on, whole = starts, False
    if goes_on:
        goes_on = stage[at >> 3] >> np.uint64((at & 7) << 3) & np.uint64(255) == np.uint64(123)
    at, bits, n_names, n = at + 1, np.uint64(0), np.int64(0), np.int64(0)
    while ballot(goes_on) != 0:
        if goes_on:
            at, hash_, attribute = plain_pair(stage, at, tables)
            is_good = at != UNSURE and not _was_seen(seen, n_names, bits, np.uint64(hash_))
            bits |= _ONE << (np.uint64(hash_) >> _58)
            n_names += 1
            if is_good and np.uint64(attribute) != NO_ATTRIBUTE:
                _put_in_order(attributes, n, np.uint64(attribute))
                n += 1
            whole = is_good and at == LINE_ENDED
            goes_on = is_good and not whole and n_names < MOST_PLAIN_NAMES
    return n if whole else np.int64(-1)


@device_function
def _put_pair(to: Any, row: Any, pair: Any, is_there: Any, state: Any, which: Any) -> None:
    """Write the two numbers of a row, and note that there is a row with such."""
    to[2 * row] = pair[0]
    to[2 * row + 1] = pair[1]
    if is_there > 0 and state[which] == 0:
        state[which] = 1


@kernel("void(int64, int64[::1], int64[::1])")
def count_rows_kernel(data: Any, state: Any, sums: Any) -> None:
    """Count the rows that end in the bytes of each block: sums[block].

    Launch: LINE_BLOCK threads for each STRETCH_BYTES * LINE_BLOCK bytes at the address `data`.
    """
    part = cuda.shared.array(LINE_BLOCK, np.int64)
    thread, n_bytes = np.int64(cuda.threadIdx.x), state[DATA_BYTES]
    start = (cuda.blockIdx.x * cuda.blockDim.x + thread) * STRETCH_BYTES
    part[thread] = popcount(np.uint64(row_ends(data, start, n_bytes))) if start < n_bytes else np.int64(0)
    _running_sums(part, thread, cuda.blockDim.x)
    if thread == cuda.blockDim.x - 1:
        sums[cuda.blockIdx.x] = part[thread]


@kernel("void(int64, int64[::1], int64[::1], uint32[::1])")
def write_rows_kernel(data: Any, state: Any, sums: Any, ends: Any) -> None:
    """Write the position of every row's end, after `sum_blocks_kernel`.  Launch: as `count_rows_kernel`."""
    part = cuda.shared.array(LINE_BLOCK, np.int64)
    if state[ROWS_FOUND] > state[ROW_ROOM]:
        return
    thread, n_bytes = np.int64(cuda.threadIdx.x), state[DATA_BYTES]
    start = (cuda.blockIdx.x * cuda.blockDim.x + thread) * STRETCH_BYTES
    found = np.uint64(row_ends(data, start, n_bytes)) if start < n_bytes else np.uint64(0)
    n = popcount(found)
    part[thread] = n
    _running_sums(part, thread, cuda.blockDim.x)
    row = sums[cuda.blockIdx.x] + part[thread] - n
    while found != np.uint64(0):
        ends[row] = start + popcount((found & (~found + _ONE)) - _ONE)
        found &= found - _ONE
        row += 1


@kernel("void(int64[::1], int64[::1], int64, int64, int64)")
def sum_blocks_kernel(sums: Any, state: Any, of: Any, per_block: Any, total: Any) -> None:
    """Replace the sum of each block by the sum of those before it, and put all of them into state[total].

    There is a block for every `per_block` of state[of].  Launch: one block of SUM_THREADS.
    """
    part = cuda.shared.array(SUM_THREADS, np.int64)
    thread = np.int64(cuda.threadIdx.x)
    n = (state[of] + per_block - 1) // per_block if state[ROWS_FOUND] <= state[ROW_ROOM] else np.int64(0)
    share = (n + cuda.blockDim.x - 1) // cuda.blockDim.x
    first, last = min(thread * share, n), min((thread + 1) * share, n)
    before = np.int64(0)
    for i in range(first, last):
        before += sums[i]
    part[thread] = before
    _running_sums(part, thread, cuda.blockDim.x)
    if thread == cuda.blockDim.x - 1:
        state[total] = part[thread]
    before = part[thread] - before
    for i in range(first, last):
        sum_ = sums[i]
        sums[i] = before
        before += sum_


@lru_cache
def scan_rows_kernel(packed: str, located: bool, has_ids: bool) -> Kernel:  # noqa: C901  one pass over all rows
    """The kernel for attributes of type `packed` ("uint32", "uint64"), and for forms that name a location or none, and an id
    or none.  An id with escapes is flagged."""
    packed_type = np.uint32 if packed == "uint32" else np.uint64
    stage_room = STAGE_WORDS + PLAIN_TAIL_WORDS
    signature = f"void(int64, uint64[::1], int64, int64, int64[::1], {_ROWS}, int64[::1], {packed}[::1])"

    @kernel(signature, max_registers=SCAN_REGISTERS, named_tuples=[RowArrays])
    def scan_rows(  # noqa: C901
        data: Any, words: Any, tables: Any, plain: Any, state: Any, rows: Any, sums: Any, arena: Any
    ) -> None:
        """Scan all rows, some of LINE_BLOCK at a time, each by one thread; sums[block] are attributes.

        data     address of the bytes; words: the same memory
        tables   address of the addresses of the vocabulary's tables (`vocabulary_hash`), on the GPU
        plain    the same of `plain_tables`; 0 if no line is looked at as a plain one

        Launch: as many blocks of LINE_BLOCK threads as fit the GPU.
        """
        stage = cuda.shared.array(stage_room, np.uint64)  # a line each, by which the simulator tells them apart
        part = cuda.shared.array(LINE_BLOCK, np.int64)
        widest = cuda.shared.array(1, np.int64)
        begin = cuda.shared.array(1, np.int64)
        work, counts = cuda.local.array(_WORK_WORDS, np.int64), cuda.local.array(_COUNT_WORDS, np.int64)
        attributes, location = cuda.local.array(_ATTRIBUTE_ROOM, np.uint64), cuda.local.array(2, np.float64)
        ids = cuda.local.array(2, np.int64)
        seen, atoms = cuda.local.array(MOST_ROW_NAMES, np.uint64), cuda.local.array(_ATOM_WORDS, np.int64)
        prefix_ends = cuda.local.array(MOST_DEPTH, np.int64)
        prefix_hashes = cuda.local.array(MOST_DEPTH, np.uint64)
        dotted = cuda.local.array(ROW_SCRATCH_BYTES, np.uint8)
        decoded = cuda.local.array(ROW_SCRATCH_BYTES, np.uint8)
        work[SCAN_COUNTS], work[PACKED_ATTRIBUTES] = address_of(counts), address_of(attributes)
        work[ROW_LOCATIONS], work[ROW_ATOMS] = address_of(location), address_of(atoms)
        work[NAME_HASHES_SEEN], work[PREFIX_ENDS] = address_of(seen), address_of(prefix_ends)
        work[PREFIX_HASHES], work[DOTTED_NAME] = address_of(prefix_hashes), address_of(dotted)
        work[DECODED], work[ID_BOUNDS] = address_of(decoded), address_of(ids)
        counts[ID_ROOM] = 0
        counts[NAME_ROOM], counts[SCRATCH_ROOM] = MOST_ROW_NAMES, ROW_SCRATCH_BYTES
        counts[MOST_ATOMS] = atoms[FOUND_ROOM] = MOST_ROW_ATOMS
        thread, n_threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
        n_rows = state[ROWS_FOUND] if state[ROWS_FOUND] <= state[ROW_ROOM] else np.int64(0)
        first = cuda.blockIdx.x * n_threads
        while first < n_rows:
            last = min(first + n_threads, n_rows)
            start = np.int64(rows.ends[first - 1]) + 1 if first > 0 else np.int64(0)
            start_word = start >> 3
            n_words = ((np.int64(rows.ends[last - 1]) + 8) >> 3) - start_word
            text = data
            if n_words <= STAGE_WORDS:
                text = address_of(stage) - 8 * start_word
                for w in range(thread, n_words, n_threads):
                    stage[w] = words[start_word + w]
            if thread == 0:
                widest[0] = 0
            cuda.syncthreads()
            row, at = first + thread, np.int64(0)
            if row < last and row > 0:
                at = np.int64(rows.ends[row - 1]) + 1
            starts = row < last and plain != 0 and n_words <= STAGE_WORDS
            n = _plain_attributes(stage, at - 8 * start_word, starts, plain, seen, attributes)
            is_left = row < last and n < 0
            if plain != 0:
                n_left = popcount(np.uint64(ballot(is_left)))
                if n_left > 0 and lane() == 0:
                    cuda.atomic.add(state, NOT_PLAIN, n_left)
            if row < last:
                if is_left:
                    n = np.int64(scan_single_row(text, at, tables, address_of(work)))
                elif located or has_ids:
                    location[0] = location[1] = np.nan
                    ids[0] = ids[1] = counts[N_LOCATED] = counts[N_IDENTIFIED] = 0
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
                rows.counts[row] = n
            n = max(n, np.int64(0))
            part[thread] = n
            _running_sums(part, thread, n_threads)
            if thread == n_threads - 1:
                total = part[thread]
                sums[first // n_threads] = total
                begin[0] = cuda.atomic.add(state, ARENA_USED, total)
                if widest[0] > state[WIDEST_ROW]:
                    cuda.atomic.max(state, WIDEST_ROW, widest[0])
            cuda.syncthreads()
            source = begin[0] + part[thread] - n
            if thread == 0:
                rows.sources[first // n_threads] = begin[0]
            if source + n <= state[ARENA_ROOM]:
                for k in range(n):
                    arena[source + k] = packed_type(attributes[k])
            cuda.syncthreads()
            first += cuda.gridDim.x * n_threads

    return scan_rows


@lru_cache
def gather_kernel(packed: str) -> Kernel:
    """The kernel for attributes of type `packed`."""

    @kernel(f"void(int64[::1], {_ROWS}, int64[::1], {packed}[::1], uint32[::1], {packed}[::1])", named_tuples=[RowArrays])
    def gather(state: Any, rows: Any, sums: Any, arena: Any, offsets: Any, attributes: Any) -> None:
        """Fill the offsets u32[n + 1] and the attributes of all rows, after `sum_blocks_kernel`.

        Launch: as many blocks of LINE_BLOCK threads as fit the GPU.
        """
        part = cuda.shared.array(LINE_BLOCK, np.int64)
        thread, n_threads = np.int64(cuda.threadIdx.x), np.int64(cuda.blockDim.x)
        fits = state[ROWS_FOUND] <= state[ROW_ROOM] and state[N_GATHERED] <= state[ARENA_ROOM]
        n_rows = state[ROWS_FOUND] if fits else np.int64(0)
        first = cuda.blockIdx.x * n_threads
        if first == 0 and thread == 0:
            offsets[0] = 0
        while first < n_rows:
            row = first + thread
            n = np.int64(rows.counts[row]) if row < n_rows else np.int64(0)
            part[thread] = n
            _running_sums(part, thread, n_threads)
            block = first // n_threads
            before, source = sums[block], np.int64(rows.sources[block])
            if row < n_rows:
                offsets[row + 1] = before + part[thread]
            for k in range(thread, part[n_threads - 1], n_threads):
                attributes[before + k] = arena[source + k]
            cuda.syncthreads()
            first += cuda.gridDim.x * n_threads

    return gather


class JudgedArrays(NamedTuple):
    """The events of m flagged rows.

    rows          u32[m], ascending
    starts        u32[m + 1]: where the attributes of each begin
    attributes    packed
    location      f64[2m]; one item where the form names no location
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
    def insert(rows: Any, judged: Any, n_rows: Any, located: Any, to: Any) -> None:
        """Put judged rows in the places of flagged ones, which have no attributes: all `n_rows` into `to`.

        The locations of `to`, if `located`, are those of `rows` already.  Launch: one thread a row.
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
