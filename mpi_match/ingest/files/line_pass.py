"""The pass over the bytes of JSON lines files that finds where rows begin (`line_index`), in compiled code.

It counts line feeds, with vector instructions, where every line of a block begins with a byte that is neither blank nor of a
byte order mark, and goes byte by byte elsewhere.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import compile_once, jit, nested

_AT_START, _MARK_1, _MARK_2, _IN_MARGIN, _IN_ROW = range(5)
"""States of the pass: before the first byte of a line; behind one and two bytes of a byte order mark; behind blanks alone;
in a row."""
_STATE, _LINE_AT, _LINE_BLOCK, N_OVERLONG, N_KEPT = range(5)
"""What the pass keeps from block to block: a state, where the line began, in which block, how many overlong ones there
were."""

_COUNTED_BYTES = 128
"""Bytes of which line feeds are counted in eight bits, so that vectors hold many counts: three times as fast as in 64."""


def compile_pass() -> None:
    """Have all functions compiled that read lines."""
    with compile_once("line-index"):
        _compile()


def compile_count() -> None:
    """Have `count_line_feeds` compiled."""
    with compile_once("line-count", 1):
        count_line_feeds(np.frombuffer(bytearray(b"1"), np.uint8))


def _compile() -> None:
    columns, state = (*(np.zeros(1, np.int64) for _ in range(3)), np.zeros((1, 2), np.int64)), np.zeros(N_KEPT, np.int64)
    line = np.frombuffer(bytearray(b"1"), np.uint8)
    index_blocks(line, 0, 1, 1, state, columns)
    end(1, 1, state, columns)
    find_row(line, 0, 0)
    count_line_feeds(line)


@nested
def _is_blank(byte: int) -> bool:
    """Would `bytes.strip` remove it?"""
    return byte == 32 or 9 <= byte <= 13


@jit
def _line_feeds(data: Array, start: int, stop: int) -> tuple[int, int]:
    """Line feeds in data[start:stop - 1], and those before a byte with which a blank line or a byte order mark may begin."""
    these, following = data[start : stop - 1], data[start + 1 : stop]  # only from 0 on are loops vectorised
    n_feeds, n_odd = 0, 0
    for i in range(len(these)):
        is_feed = these[i] == 10
        n_feeds += is_feed
        n_odd += is_feed & ((following[i] <= 32) | (following[i] == 0xEF))
    return n_feeds, n_odd


@nested
def _end_line(stop: int, most: int, state: Array, overlong: Array) -> bool:
    """The line ends before the position `stop` of its line feed; is it overlong?"""
    if stop - state[_LINE_AT] <= most:
        return False
    overlong[state[N_OVERLONG], 0] = state[_LINE_AT]
    overlong[state[N_OVERLONG], 1] = stop + 1
    state[N_OVERLONG] += 1
    return True


@nested
def _begin_line(at: int, block: int, state: Array, columns: tuple[Array, Array, Array, Array]) -> None:
    """A line begins at a position, in a block."""
    _, n_lines, first_at, _ = columns
    n_lines[block] += 1
    if first_at[block] < 0:
        first_at[block] = at
    state[_LINE_AT], state[_LINE_BLOCK] = at, block


@jit
def _index_plain(
    data: Array,
    start: int,
    stop: int,
    at: int,
    block: int,
    most: int,
    state: Array,
    columns: tuple[Array, Array, Array, Array],
) -> bool:
    """Index the block data[start:stop], which is at `at` + start in its file, if all lines in it begin as rows do; if they
    do not, change nothing and return False."""
    n_rows, n_lines, _, overlong = columns
    is_start = state[_STATE] == _AT_START
    if (not is_start and state[_STATE] != _IN_ROW) or (is_start and (data[start] <= 32 or data[start] == 0xEF)):
        return False
    n_feeds, n_odd = _line_feeds(data, start, stop)
    if n_odd:
        return False
    if is_start:
        _begin_line(at + start, block, state, columns)
        n_rows[block] += 1
    if n_feeds:
        first, last = start, stop - 2
        while data[first] != 10:
            first += 1
        while data[last] != 10:
            last -= 1
        _end_line(at + first, most, state, overlong)
        _begin_line(at + first + 1, block, state, columns)
        state[_LINE_AT] = at + last + 1
        n_lines[block] += n_feeds - 1
        n_rows[block] += n_feeds
    state[_STATE] = _IN_ROW
    if data[stop - 1] == 10:
        _end_line(at + stop - 1, most, state, overlong)
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
def index_blocks(
    data: Array, at: int, block_bytes: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]
) -> None:
    """Index whole blocks, and the last, which are at `at` in their file: fill `columns`."""
    for start in range(0, len(data), block_bytes):
        stop, block = min(start + block_bytes, len(data)), (at + start) // block_bytes
        if not _index_plain(data, start, stop, at, block, most, state, columns):
            _index_bytes(data, start, stop, at, block, most, state, columns)


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
def find_row(data: Array, at: int, n_rows: int) -> tuple[int, int]:
    """From the beginning of a line at `at`, the beginning of the row that comes `n_rows` rows later, and how many lines
    later.

    `data` u8 may end in that row, and not before it.
    """
    n_lines = 0
    while True:
        begin = at
        if at + 2 < len(data) and data[at] == 0xEF and data[at + 1] == 0xBB and data[at + 2] == 0xBF:
            at += 3
        while at < len(data) and data[at] != 10 and _is_blank(data[at]):
            at += 1
        if at == len(data) or data[at] != 10:
            if n_rows == 0 or at == len(data):
                return begin, n_lines
            n_rows -= 1
            while at < len(data) and data[at] != 10:
                at += 1
        at += 1
        n_lines += 1


@jit
def count_line_feeds(data: Array) -> np.int64:
    """How many line feeds there are in u8."""
    n, whole = np.int64(0), len(data) // _COUNTED_BYTES * _COUNTED_BYTES
    for first in range(0, whole, _COUNTED_BYTES):
        some = np.uint8(0)
        for at in range(first, first + _COUNTED_BYTES):
            some = np.uint8(some + np.uint8(data[at] == 10))
        n += some
    for at in range(whole, len(data)):
        n += data[at] == 10
    return n
