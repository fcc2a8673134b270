"""Where the rows of JSON lines files are, by blocks of bytes: made in one pass, which parses nothing.

    bytes of a file      │ block 0        │ block 1        │ block 2
    lines                ──────┬───────┬────┬──────────────────┬──────
    rows that begin      0     1       2 │  3             │    4

A row is a line that is not blank; it belongs to the block that it begins in.  So any row is found by a search among the
blocks and a walk within one, and any range of rows is a range of bytes.  The pass also takes the CRC-32 of every block: who
reads a block later, on whichever host, compares it, so a file that was changed, truncated or exchanged is never read as if
it were the same.  The digest of the sizes and checksums identifies the content.

The pass counts line feeds, with vector instructions, where every line of a block begins with a byte that is neither blank
nor of a byte order mark, and goes byte by byte elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.ingest import rows
from mpi_match.ingest.checked_blocks import read_exactly
from mpi_match.ingest.rows import EventForm

BLOCK_BYTES = 2**18
"""Bytes of a block; fewer than `MAX_LINE_BYTES`."""
_BLOCKS_AT_ONCE = 16

_AT_START, _MARK_1, _MARK_2, _IN_MARGIN, _IN_ROW = range(5)
"""States of the pass: before the first byte of a line; behind one and two bytes of a byte order mark; behind blanks alone;
in a row."""
_STATE, _LINE_AT, _LINE_BLOCK, _N_OVERLONG, _N_KEPT = range(5)
"""What the pass keeps from block to block: a state, where the line began, in which block, how many overlong ones there
were."""


class LineIndex(NamedTuple):
    """Index of f files with b blocks.

    files         absolute paths, ascending
    n_bytes       i64[f]
    first_block   i64[f + 1]
    crc           u32[b]        CRC-32 of each block
    first_row     i64[b + 1]    rows, of all files, that begin before each block
    first_line    i64[b]        lines of the file that begin before each block
    first_at      i64[b]        where in the file the first line of each block begins; -1: none begins in it
    overlong      i64[o, 3]     lines of more than `MAX_LINE_BYTES`: file, where it begins, where it ends, behind its line
                                feed
    digest        SHA-256 that identifies the content of the files, and the form in which their rows are read
    """

    files: Sequence[str]
    n_bytes: Array
    first_block: Array
    crc: Array
    first_row: Array
    first_line: Array
    first_at: Array
    overlong: Array
    digest: str

    @property
    def n_rows(self) -> int:
        """Number of rows in all files."""
        return int(self.first_row[-1])


class _FileBlocks(NamedTuple):
    """The columns of an index for one file: u32[b], then i64[b]; `overlong` i64[o, 2]."""

    n_bytes: int
    crc: Array
    n_rows: Array
    n_lines: Array
    first_at: Array
    overlong: Array


def index_lines(files: Sequence[str], sources: Sequence[Path], form: EventForm) -> LineIndex:
    """Index files by reading them from `sources`, which may be other paths to the same content.

    Raises OSError, and FileChanged for a file that shrinks meanwhile; what is appended meanwhile is left out.
    """
    with compile_once("line-index"):
        _compile()
    found = [_index_file(source, name) for name, source in zip(files, sources, strict=True)]
    n_bytes = np.array([each.n_bytes for each in found], np.int64)
    crc = np.concatenate([each.crc for each in found])
    digest = hashlib.sha256(repr((form.location, form.id, n_bytes.tolist())).encode())
    digest.update(crc.astype("<u4").tobytes())
    return LineIndex(
        list(files),
        n_bytes,
        np.array([0, *accumulate(len(each.crc) for each in found)], np.int64),
        crc,
        offsets_of(np.concatenate([each.n_rows for each in found])),
        np.concatenate([np.cumsum(each.n_lines) - each.n_lines for each in found]),
        np.concatenate([each.first_at for each in found]),
        np.concatenate([np.insert(each.overlong, 0, number, axis=1) for number, each in enumerate(found)]),
        digest.hexdigest(),
    )


def _compile() -> None:
    """Have all functions compiled that read lines."""
    columns, state = (*(np.zeros(1, np.int64) for _ in range(3)), np.zeros((1, 2), np.int64)), np.zeros(_N_KEPT, np.int64)
    line = np.frombuffer(bytearray(b"1"), np.uint8)
    _index_blocks(line, 0, 1, 1, state, columns)
    _end(1, 1, state, columns)
    find_row(line, 0, 0)
    count_line_feeds(line)


def _index_file(source: Path, name: str) -> _FileBlocks:
    with source.open("rb", buffering=0) as handle:
        n_bytes = os.fstat(handle.fileno()).st_size
        n_blocks = -(-n_bytes // BLOCK_BYTES)
        crc = np.zeros(n_blocks, np.uint32)
        n_rows, n_lines, first_at = (
            np.zeros(n_blocks, np.int64),
            np.zeros(n_blocks, np.int64),
            np.full(n_blocks, -1, np.int64),
        )
        overlong = np.empty((n_bytes // rows.MAX_LINE_BYTES + 1, 2), np.int64)
        columns, state = (n_rows, n_lines, first_at, overlong), np.zeros(_N_KEPT, np.int64)
        buffer = np.empty(min(_BLOCKS_AT_ONCE * BLOCK_BYTES, n_bytes), np.uint8)
        for at in range(0, n_bytes, len(buffer) or 1):
            data = buffer[: min(len(buffer), n_bytes - at)]
            read_exactly(handle.fileno(), data, at, name)
            for start in range(0, len(data), BLOCK_BYTES):
                crc[(at + start) // BLOCK_BYTES] = crc32(data[start : start + BLOCK_BYTES].data)
            _index_blocks(data, at, BLOCK_BYTES, rows.MAX_LINE_BYTES, state, columns)
        _end(n_bytes, rows.MAX_LINE_BYTES, state, columns)
    return _FileBlocks(n_bytes, crc, n_rows, n_lines, first_at, overlong[: state[_N_OVERLONG]])


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
    overlong[state[_N_OVERLONG], 0] = state[_LINE_AT]
    overlong[state[_N_OVERLONG], 1] = stop + 1
    state[_N_OVERLONG] += 1
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
def _index_blocks(
    data: Array, at: int, block_bytes: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]
) -> None:
    """Index whole blocks, and the last, which are at `at` in their file: fill `columns`."""
    for start in range(0, len(data), block_bytes):
        stop, block = min(start + block_bytes, len(data)), (at + start) // block_bytes
        if not _index_plain(data, start, stop, at, block, most, state, columns):
            _index_bytes(data, start, stop, at, block, most, state, columns)


@jit
def _end(n_bytes: int, most: int, state: Array, columns: tuple[Array, Array, Array, Array]) -> None:
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
def count_line_feeds(data: Array) -> int:
    """How many line feeds there are in u8."""
    n = 0
    for byte in data:
        n += byte == 10
    return n
