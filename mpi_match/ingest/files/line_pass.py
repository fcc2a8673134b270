"""The pass over the bytes of JSON lines files that finds where rows begin (`line_index`), in compiled code.

Blocks are first measured, by any number of threads: their line feeds are counted, with vector instructions.  Where every
line of a block begins with a byte that is neither blank nor of a byte order mark, this is enough to index it.  Other blocks
are indexed byte by byte.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.checksum import crc32_at, is_compiled
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.memory import pread
from mpi_match.compute.vectors import VECTOR_BYTES, line_feeds, lowest_bit

_AT_START, _MARK_1, _MARK_2, _IN_MARGIN, _IN_ROW = range(5)
"""States of the pass: before the first byte of a line; behind one and two bytes of a byte order mark; behind blanks alone;
in a row."""
_STATE, _LINE_AT, _LINE_BLOCK, N_OVERLONG, N_KEPT = range(5)
"""The state of the pass between blocks: a state, the place and the block where the line began, the number of overlong
lines."""

_N_BYTES, _N_FEEDS, _FIRST, _LAST, _IS_ODD, _BEGINS_ODD, _ENDS_LINE, N_MEASURES = range(8)
"""The results of `measure_blocks` for a block: its bytes; its line feeds without one in the last byte, and the positions of
the first and last of them; whether a line feed in it, or the block itself, is followed by a byte that may begin a blank line
or a byte order mark; whether its last byte is a line feed."""

_PIECE_BYTES = 2**20
"""Bytes that are read at once and then counted."""
_COUNTED_BYTES = 128
"""Bytes whose line feeds are counted in eight bits, so that vectors hold many counts: three times as fast as in 64."""


def compile_pass() -> None:
    """Have all functions compiled that read lines."""
    with compile_once("line-index"):
        _compile()


@cache
def compile_count() -> None:
    """Have `count_line_feeds` compiled."""
    with compile_once("line-count", 2):
        read_counted(-1, np.frombuffer(bytearray(b"1"), np.uint8), 0)


def _compile() -> None:
    columns, state = (*(np.zeros(1, np.int64) for _ in range(3)), np.zeros((1, 2), np.int64)), np.zeros(N_KEPT, np.int64)
    line = np.frombuffer(bytearray(b"1"), np.uint8)
    measures = np.zeros((1, N_MEASURES), np.int64)
    measure_blocks(line, 1, measures)
    if is_compiled:
        crc = np.zeros(1, np.uint32)
        read_measured(-1, line, 0, 1, crc, measures)
        n_checked(-1, line, 0, 1, crc)
    index_measured(measures, 0, 1, 1, state, columns)
    index_bytes(line, 0, 1, 1, state, columns)
    end(1, 1, state, columns)
    find_row(line, 0, 0)
    count_line_feeds(line)


@nested
def _is_blank(byte: int) -> bool:
    """Tells whether `bytes.strip` would remove a byte."""
    return byte == 32 or 9 <= byte <= 13


@jit
def _line_feeds(data: Array, start: int, stop: int) -> tuple[int, int]:
    """The numbers of line feeds in data[start:stop - 1], and of those before a byte that may begin a blank line or a byte
    order mark."""
    these, following = data[start : stop - 1], data[start + 1 : stop]  # only from 0 on are loops vectorised
    n_feeds, n_odd = 0, 0
    for i in range(len(these)):
        is_feed = these[i] == 10
        n_feeds += is_feed
        n_odd += is_feed & ((following[i] <= 32) | (following[i] == 0xEF))
    return n_feeds, n_odd


@nested
def _end_line(stop: int, most: int, state: Array, overlong: Array) -> bool:
    """Tells whether the line that ends before the position `stop` of its line feed is overlong."""
    if stop - state[_LINE_AT] <= most:
        return False
    overlong[state[N_OVERLONG], 0] = state[_LINE_AT]
    overlong[state[N_OVERLONG], 1] = stop + 1
    state[N_OVERLONG] += 1
    return True


@nested
def _begin_line(at: int, block: int, state: Array, columns: tuple[Array, Array, Array, Array]) -> None:
    """Note that a line begins at a position, in a block."""
    _, n_lines, first_at, _ = columns
    n_lines[block] += 1
    if first_at[block] < 0:
        first_at[block] = at
    state[_LINE_AT], state[_LINE_BLOCK] = at, block


@jit
def measure_blocks(data: Array, block_bytes: int, measures: Array) -> None:
    """Measure the blocks of `data`, which begins with a block: a row of `measures` i64[blocks, N_MEASURES] for each.

    The blocks of a file may be measured in any order, and by several threads.
    """
    for block in range(len(measures)):
        start, stop = block * block_bytes, min((block + 1) * block_bytes, len(data))
        n_feeds, n_odd = _line_feeds(data, start, stop)
        first, last = start, stop - 2
        if n_feeds:
            while data[first] != 10:
                first += 1
            while data[last] != 10:
                last -= 1
        of_block = measures[block]
        of_block[_N_BYTES], of_block[_N_FEEDS], of_block[_FIRST], of_block[_LAST] = (
            stop - start,
            n_feeds,
            first - start,
            last - start,
        )
        of_block[_IS_ODD], of_block[_BEGINS_ODD] = n_odd > 0, data[start] <= 32 or data[start] == 0xEF
        of_block[_ENDS_LINE] = data[stop - 1] == 10


@jit
def read_measured(descriptor: int, data: Array, at: int, block_bytes: int, crc: Array, measures: Array) -> bool:
    """Read blocks of a file from `at` on into `data`; take the CRC-32 u32 and the measures (`measure_blocks`) of each while
    a core has it in its cache.  Returns False if a read fails or the file ends before."""
    for block in range(len(measures)):
        piece = data[block * block_bytes : (block + 1) * block_bytes]
        if not _is_read(descriptor, piece, at + block * block_bytes):
            return False
        crc[block] = crc32_at(np.uint32(0), piece.ctypes.data, len(piece))
        measure_blocks(piece, block_bytes, measures[block : block + 1])
    return True


@jit
def n_checked(descriptor: int, data: Array, at: int, block_bytes: int, crc: Array) -> int:
    """Read blocks of a file from `at` on into `data`, up to the first that cannot be read or that does not have its CRC-32
    in `crc` u32.  Returns the number of good blocks."""
    for block in range(len(crc)):
        piece = data[block * block_bytes : (block + 1) * block_bytes]
        if not _is_read(descriptor, piece, at + block * block_bytes):
            return block
        if crc32_at(np.uint32(0), piece.ctypes.data, len(piece)) != crc[block]:
            return block
    return len(crc)


@nested
def _is_read(descriptor: int, data: Array, at: int) -> bool:
    """Fill `data` u8 with the bytes of a file from `at` on; False if a read fails or the file ends before."""
    n_bytes = 0
    while n_bytes < len(data):
        left = data[n_bytes:]
        n = pread(descriptor, left.ctypes.data, len(left), at + n_bytes)
        if n <= 0:
            return False
        n_bytes += n
    return True


@jit
def _index_plain(
    measures: Array, block: int, at: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]
) -> bool:
    """Index a block that was measured, which is at `at` in its file, if all lines in it begin as rows do; if they do not,
    change nothing and return False."""
    n_rows, n_lines, _, overlong = columns
    found, is_start = measures[block], state[_STATE] == _AT_START
    if (not is_start and state[_STATE] != _IN_ROW) or (is_start and found[_BEGINS_ODD]) or found[_IS_ODD]:
        return False
    if is_start:
        _begin_line(at, block, state, columns)
        n_rows[block] += 1
    if found[_N_FEEDS]:
        _end_line(at + found[_FIRST], most, state, overlong)
        _begin_line(at + found[_FIRST] + 1, block, state, columns)
        state[_LINE_AT] = at + found[_LAST] + 1
        n_lines[block] += found[_N_FEEDS] - 1
        n_rows[block] += found[_N_FEEDS]
    state[_STATE] = _IN_ROW
    if found[_ENDS_LINE]:
        _end_line(at + found[_N_BYTES] - 1, most, state, overlong)
        state[_STATE] = _AT_START
    return True


@jit
def _index_bytes(
    data: Array,
    start: int,
    stop: int,
    at: int,
    block: int,
    most: int,
    state: Array,
    columns: tuple[Array, Array, Array, Array],
) -> None:
    """Index the block data[start:stop], which is at `at` + start in its file."""
    n_rows, _, _, overlong = columns
    where = state[_STATE]
    for i in range(start, stop):
        byte = data[i]
        if where == _AT_START:
            _begin_line(at + i, block, state, columns)
            where = _MARK_1 if byte == 0xEF else _IN_MARGIN
            if byte == 0xEF:
                continue
        elif where == _MARK_1 and byte == 0xBB:
            where = _MARK_2
            continue
        elif where == _MARK_2 and byte == 0xBF:
            where = _IN_MARGIN
            continue
        if where != _IN_ROW and not (where == _IN_MARGIN and _is_blank(byte)):
            n_rows[state[_LINE_BLOCK]] += 1
            where = _IN_ROW
        if byte == 10:
            if _end_line(at + i, most, state, overlong) and where == _IN_MARGIN:
                n_rows[state[_LINE_BLOCK]] += 1
            where = _AT_START
    state[_STATE] = where


@jit
def index_measured(
    measures: Array, block: int, block_bytes: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]
) -> int:
    """Index the blocks of a file from `block` on, which `measure_blocks` has measured: fill `columns`.

    Returns the first block that `index_bytes` must index, or the number of blocks.
    """
    while block < len(measures) and _index_plain(measures, block, block * block_bytes, most, state, columns):
        block += 1
    return block


@jit
def index_bytes(
    data: Array, block: int, block_bytes: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]
) -> None:
    """Index the bytes of one block, u8, after all blocks before it: fill `columns`."""
    _index_bytes(data, 0, len(data), block * block_bytes, block, most, state, columns)


@jit
def end(n_bytes: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]) -> None:
    """End the last line of a file, if it has no line feed."""
    n_rows, _, _, overlong = columns
    where = state[_STATE]
    if where == _AT_START:
        return
    is_overlong = _end_line(n_bytes, most, state, overlong)
    if where in (_MARK_1, _MARK_2) or (where == _IN_MARGIN and is_overlong):
        n_rows[state[_LINE_BLOCK]] += 1


@jit
def find_row(data: Array, at: int, n_rows: int) -> tuple[int, int, int]:
    """The beginning of the row that is `n_rows` rows after the line at `at`; the numbers of lines and of rows before it.

    If `data` u8 has fewer rows, it is the end of the data, or the beginning of a blank line without a line feed.
    """
    n_lines, n_left = 0, n_rows
    while True:
        begin = at
        if at + 2 < len(data) and data[at] == 0xEF and data[at + 1] == 0xBB and data[at + 2] == 0xBF:
            at += 3
        while at < len(data) and data[at] != 10 and _is_blank(data[at]):
            at += 1
        if at == len(data) or data[at] != 10:
            if n_left == 0 or at == len(data):
                return begin, n_lines, n_rows - n_left
            n_left -= 1
            at = _line_feed_from(data, at)
        at += 1
        n_lines += 1


@nested
def _line_feed_from(data: Array, at: int) -> int:
    """The position of the first line feed from `at` on, or the length of the data."""
    address = data.ctypes.data
    while at + VECTOR_BYTES <= len(data):
        found = line_feeds(address + at)
        at += lowest_bit(found)  # 64 if there is none
        if found:
            return at
    while at < len(data) and data[at] != 10:
        at += 1
    return at


@jit
def count_line_feeds(data: Array) -> np.int64:
    """The number of line feeds in u8."""
    n, whole = np.int64(0), len(data) // _COUNTED_BYTES * _COUNTED_BYTES
    for first in range(0, whole, _COUNTED_BYTES):
        some = np.uint8(0)
        for at in range(first, first + _COUNTED_BYTES):
            some = np.uint8(some + np.uint8(data[at] == 10))
        n += some
    for at in range(whole, len(data)):
        n += data[at] == 10
    return n


@jit
def read_counted(descriptor: int, data: Array, at: int) -> tuple[int, int]:
    """Fill `data` u8 with the bytes of a file from `at` on, and count their line feeds while a core has them in its cache.

    Returns the number of bytes read, and of their line feeds.  It reads fewer bytes where the file ends, or where a read
    fails.
    """
    n_bytes = n_line_feeds = 0
    while n_bytes < len(data):
        piece = data[n_bytes : n_bytes + _PIECE_BYTES]
        n = pread(descriptor, piece.ctypes.data, len(piece), at + n_bytes)
        if n <= 0:
            break
        n_line_feeds += count_line_feeds(piece[:n])
        n_bytes += n
    return n_bytes, n_line_feeds
