"""The kernels that read the deferred texts of rows, and add what they give to the rows' attributes.

A table of rules has automata of many strings.  A thread that scanned a line and read all its texts by them would wait at
each step for 31 others, each at another place of another line.  So `line_kernels.scan_rows` writes where such texts are.
Here one thread reads one text, beside others of about its length, in all of them the same step at a time.

    read_texts   attributes and atoms of each text of a group, anywhere in the arena
    join_rows    attributes of each row and of its texts, in order, at a new place in the arena
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.gpu import line_kernels
from mpi_match.gpu.intrinsics import WARP, address_of
from mpi_match.gpu.kernels import Kernel, cuda, device_function, kernel
from mpi_match.gpu.line_kernels import (
    ARENA_ROOM,
    ARENA_USED,
    ENTRY_BINS,
    FLAGGED_ROWS,
    LENGTH_BINS,
    ROW_ARRAYS,
    ROW_ROOM,
    ROWS_FOUND,
    TEXT_ATTRIBUTES,
    TEXT_BEFORE,
    TEXT_PLACE,
    TEXT_ROOM,
    TEXT_WORDS,
    TEXTS_FOUND,
    WAS_LISTED,
    WIDEST_ROW,
    RowArrays,
)
from mpi_match.ingest.codes.atoms import FOUND_HEADER, FOUND_ROOM, FOUND_WORDS
from mpi_match.ingest.json.text import FLAGGED_LINE
from mpi_match.ingest.json.to_codes import (
    ATTRIBUTE_ROOM,
    DECODED,
    DEFERRED,
    DEFERRED_HEADER,
    DEFERRED_ROOM,
    KNOWN_VALUES,
    MOST_ATOMS,
    N_COUNTS,
    N_WORK_TABLES,
    PACKED_ATTRIBUTES,
    ROW_ATOMS,
    SCAN_COUNTS,
    SCRATCH_ROOM,
    VIEWED,
    read_deferred,
)

READ_REGISTERS = 80
"""Registers of a thread of `read_texts`."""


class TextGroup(NamedTuple):
    """Deferred texts that are read by one launch.

    first_bin, last_bin   the bins of their lengths, without the last one
    scratch               bytes of DECODED and of VIEWED
    atoms                 most atoms of a text
    threads               most threads
    own_memory            1 if threads use their own memory, where what neighbours write in the same step lies side by side
    """

    first_bin: int
    last_bin: int
    scratch: int
    atoms: int
    threads: int
    own_memory: int


_OWN_SCRATCH, _OWN_ATOMS = 2**12, 256
TEXT_GROUPS = (
    TextGroup(0, 12, _OWN_SCRATCH, _OWN_ATOMS, 2**16, 1),
    TextGroup(12, LENGTH_BINS, 2**15, 512, 2**13, 0),
)
"""Texts of up to 2,047 bytes, and longer ones, for which a thread has more memory.  The groups are read at the same time."""
READ_BLOCK = WARP
"""Threads of a block that reads texts: a warp, so that one with long texts holds no place of others."""
_TEXT_NAMES = 32
"""Most attributes of a text, without its atoms."""
_OWN_ATTRIBUTES, _OWN_ATOM_WORDS = _TEXT_NAMES + _OWN_ATOMS, FOUND_HEADER + FOUND_WORDS * _OWN_ATOMS
_OWN_WORDS = _OWN_SCRATCH // 8 + 1  # one more: eight bytes are read together


class TextTables(NamedTuple):
    """The arrays and addresses that `read_texts` reads.

    tables           address of the addresses of the vocabulary's tables
    texts            i64: the deferred texts (`line_kernels.ScanTables`)
    text_address     address of `texts`
    order            u32: the numbers of the texts in the order of their bins
    bins             i64: the end of each bin in `order`
    memory           i64: `thread_words` words for each thread, 0 at first, unless threads use their own
    memory_address   address of `memory`
    """

    tables: Any
    texts: Any
    text_address: Any
    order: Any
    bins: Any
    memory: Any
    memory_address: Any


_TEXT_TABLES = "TextTables(int64, int64[::1], int64, uint32[::1], int64[::1], int64[::1], int64)"


def thread_words(of: TextGroup) -> int:
    """The words of 64 bits of a thread that reads texts of a group: attributes, atoms, DECODED, VIEWED."""
    return 0 if of.own_memory else _TEXT_NAMES + of.atoms + FOUND_HEADER + FOUND_WORDS * of.atoms + of.scratch // 4


@lru_cache
def read_texts_kernel(packed: str) -> Kernel:
    """The kernel for attributes of type `packed`."""
    packed_type = np.dtype(packed).type
    group_types = f"TextGroup({', '.join(['int64'] * len(TextGroup._fields))})"
    signature = f"void(int64, {_TEXT_TABLES}, {group_types}, int64[::1], {packed}[::1])"

    @kernel(signature, max_registers=READ_REGISTERS, named_tuples=[TextTables, TextGroup])
    def read_texts(data: int, given: TextTables, group: TextGroup, state: Array, arena: Array) -> None:
        """Read deferred texts of a group, one per thread.

        data   address of the lines

        Launch: any number of blocks of READ_BLOCK threads for which there is memory.
        """
        work, counts = cuda.local.array(N_WORK_TABLES, np.int64), cuda.local.array(N_COUNTS, np.int64)
        deferred = cuda.local.array(DEFERRED_HEADER, np.int64)
        thread = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        fit = state[TEXTS_FOUND] <= state[TEXT_ROOM]  # otherwise they are not in order
        end: Any = given.bins[ENTRY_BINS * group.last_bin - 1] if fit else np.int64(0)
        begin: Any = given.bins[ENTRY_BINS * group.first_bin - 1] if group.first_bin > 0 and fit else np.int64(0)
        k = thread
        if k >= end - begin:
            return
        attributes, atoms = cuda.local.array(_OWN_ATTRIBUTES, np.int64), cuda.local.array(_OWN_ATOM_WORDS, np.int64)
        decoded, viewed = cuda.local.array(_OWN_WORDS, np.uint64), cuda.local.array(_OWN_WORDS, np.uint64)
        n_atoms, n_scratch = group.atoms, group.scratch
        own = (_TEXT_NAMES + n_atoms + FOUND_HEADER + FOUND_WORDS * n_atoms + n_scratch // 4) * thread
        work[SCAN_COUNTS] = address_of(counts)
        if group.own_memory != 0:
            work[PACKED_ATTRIBUTES], work[ROW_ATOMS] = address_of(attributes), address_of(atoms)
            work[DECODED], work[VIEWED] = address_of(decoded), address_of(viewed)
            for i in range(_OWN_ATOM_WORDS):
                atoms[i] = 0
            atoms[FOUND_ROOM] = n_atoms
        else:
            work[PACKED_ATTRIBUTES] = given.memory_address + 8 * own
            work[ROW_ATOMS] = work[PACKED_ATTRIBUTES] + 8 * (_TEXT_NAMES + n_atoms)
            work[DECODED] = work[ROW_ATOMS] + 8 * (FOUND_HEADER + FOUND_WORDS * n_atoms)
            work[VIEWED] = work[DECODED] + n_scratch
            given.memory[own + _TEXT_NAMES + n_atoms + FOUND_ROOM] = n_atoms
        work[KNOWN_VALUES], work[DEFERRED] = 0, address_of(deferred)
        deferred[DEFERRED_ROOM] = 0
        counts[ATTRIBUTE_ROOM], counts[SCRATCH_ROOM], counts[MOST_ATOMS] = _TEXT_NAMES, n_scratch, n_atoms
        while k < end - begin:
            text = TEXT_WORDS * np.int64(given.order[end - 1 - k])  # the longest ones first
            n = np.int64(read_deferred(data, given.text_address + 8 * text, given.tables, address_of(work)))
            given.texts[text + TEXT_ATTRIBUTES] = n
            if n > 0:
                place = cuda.atomic.add(state, ARENA_USED, n)
                given.texts[text + TEXT_PLACE] = place
                if place + n <= state[ARENA_ROOM]:
                    for i in range(n):
                        arena[place + i] = packed_type(attributes[i] if group.own_memory != 0 else given.memory[own + i])
            k += np.int64(cuda.gridDim.x * cuda.blockDim.x)

    return read_texts


@device_function
def _sort(items: Array, first: int, n: int) -> Any:
    """Sort n items from the first-th on, by Shell's method, and remove duplicates.  Returns the number of those left."""
    gap = 1
    while 9 * gap < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            item, k = items[first + i], i
            while k >= gap and items[first + k - gap] > item:
                items[first + k] = items[first + k - gap]
                k -= gap
            items[first + k] = item
        gap //= 3
    kept = 0
    for i in range(n):
        item = items[first + i]
        if kept == 0 or item != items[first + kept - 1]:
            items[first + kept] = item
            kept += 1
    return kept


@lru_cache
def join_rows_kernel(packed: str) -> Kernel:
    """The kernel for attributes of type `packed`."""
    signature = f"void(int64[::1], int64[::1], {ROW_ARRAYS}, int64[::1], {packed}[::1])"

    @kernel(signature, named_tuples=[RowArrays])
    def join_rows(texts: Array, state: Array, rows: RowArrays, sums: Array, arena: Array) -> None:
        """Join the attributes of rows with those of their deferred texts; flag rows with a text that is flagged.
        sums[block] counts attributes.

        Launch: any number of blocks of LINE_BLOCK threads.
        """
        row = np.int64(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        fits = state[ROWS_FOUND] <= state[ROW_ROOM] and state[TEXTS_FOUND] <= state[TEXT_ROOM]
        n_rows = state[ROWS_FOUND] if fits else np.int64(0)
        room = state[ARENA_ROOM]
        while row < n_rows:
            last: Any = np.int64(rows.texts[row])
            n_own, is_flagged = np.int64(rows.counts[row] & ~WAS_LISTED), False
            n: Any = n_own
            while last > 0:
                text = TEXT_WORDS * (last - 1)
                found = texts[text + TEXT_ATTRIBUTES]
                is_flagged = is_flagged or found == FLAGGED_LINE
                n += max(found, 0)
                last = texts[text + TEXT_BEFORE]
            if is_flagged:
                begin = np.int64(rows.ends[row - 1]) + 1 if row > 0 else np.int64(0)
                at = 3 * cuda.atomic.add(state, FLAGGED_ROWS, 1)
                rows.flagged[at], rows.flagged[at + 1], rows.flagged[at + 2] = row, begin, rows.ends[row]
                rows.counts[row] = WAS_LISTED
                cuda.atomic.add(sums, row // line_kernels.LINE_BLOCK, -n_own)
                if rows.location.size > 1:
                    rows.location[2 * row] = rows.location[2 * row + 1] = np.nan
                if rows.ids.size > 1:
                    rows.ids[2 * row] = rows.ids[2 * row + 1] = 0
            elif n > n_own:
                place, source = cuda.atomic.add(state, ARENA_USED, n), np.int64(rows.places[row])
                if place + n <= room:
                    for k in range(n_own):
                        arena[place + k] = arena[source + k]
                    to: Any = place + n_own
                    last = np.int64(rows.texts[row])
                    while last > 0:
                        text = TEXT_WORDS * (last - 1)
                        source = texts[text + TEXT_PLACE]
                        for k in range(texts[text + TEXT_ATTRIBUTES]):
                            arena[to] = arena[source + k]
                            to += 1
                        last = texts[text + TEXT_BEFORE]
                    n = _sort(arena, place, n)
                    rows.places[row] = place
                    rows.counts[row] = np.uint32(n) | WAS_LISTED
                    cuda.atomic.add(sums, row // line_kernels.LINE_BLOCK, n - n_own)
                    if n > state[WIDEST_ROW]:
                        cuda.atomic.max(state, WIDEST_ROW, n)
            row += np.int64(cuda.gridDim.x * cuda.blockDim.x)

    return join_rows
