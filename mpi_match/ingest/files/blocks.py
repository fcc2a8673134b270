"""Reads files of lines in blocks of whole lines; `rows.read_lines` reads the same content line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES, PLAIN, EventForm, trimmed
from mpi_match.ingest.rows.packed_files import DAMAGED, damaged, open_bytes
from mpi_match.model import ModelError
from mpi_match.texts.characters import LINE_FEED

_SEARCHED_BYTES = 2**12
"""Bytes searched for a line feed at a time."""
_COUNTED_BYTES = 2**16
_READ_AT_ONCE = 2**19
"""Bytes that are read at once and whose line feeds are then counted, while a core has them in its cache.  From this number
on, counting in compiled code, which is three times as fast, is worth loading it."""
READ_BYTES = 2**22
"""Bytes of a block, without those of a line that began in the block before; at most MAX_LINE_BYTES."""


class LineBlock(NamedTuple):
    """Consecutive lines of a file.

    data         u8, each line with its line feed, also the last; of an overlong line the beginning without one
    file         absolute path
    first_line   number of the first line, counted from 1
    overlong     tells whether this is the beginning of one overlong line, up to the first byte beyond the limit
    objects      the rows of a program that the lines were written from, one for each line; these are judged, not the lines
    """

    data: Array
    file: str
    first_line: int
    overlong: bool = False
    objects: Sequence[Any] | None = None


def read_blocks(paths: Iterable[Path], form: EventForm = PLAIN) -> Iterator[LineBlock]:
    """The lines of files, including blank ones, in the order of the paths.  Packed files are unpacked, other formats become
    JSON.

    A line longer than `MAX_LINE_BYTES` is cut to one byte more than that.  Raises ModelError for a compressed file that is
    damaged or truncated, after the lines before the damage; OSError.
    """
    for path in sorted(paths):
        with _opened(path, form) as handle:
            yield from _blocks_of_file(handle, path)


def rows_of_block(block: LineBlock) -> Iterator[tuple[int, bytes]]:
    """The lines of a block that are not blank, numbered from 0, blank ones counted."""
    lines = [block.data.tobytes()] if block.overlong else block.data.tobytes().split(b"\n")
    return ((i, line) for i, line in enumerate(lines) if block.overlong or trimmed(line))


def _opened(path: Path, form: EventForm) -> BufferedReader:
    """The lines of a file."""
    handle, format_ = open_bytes(path), lines_format(path)
    return handle if format_.is_plain else BufferedReader(format_.json_lines(handle, path, form))


def lines_in(path: Path, form: EventForm) -> Iterator[bytes]:
    """The JSON lines of a file, in pieces.  Raises ModelError when it is damaged or truncated, OSError."""
    with _opened(path, form) as handle:
        failed = None
        while failed is None:
            more, failed = _read(handle, path)
            if not more and failed is None:
                return
            yield more
        raise failed


Read = Callable[[], tuple[bytes, ModelError | None]]
"""Reads some more bytes, none at the end, and returns them with the error that follows them."""


class LineCutter:
    """Cuts bytes that arrive one after the other into blocks of the lines of `file`, including blank ones.

    A line of more than `most` bytes is overlong; without `most` that is MAX_LINE_BYTES.  Each byte is searched and copied
    once, however short the pieces are that a long line comes in.
    """

    def __init__(self, file: str, most: int | None = None) -> None:
        self._file, self._first_line = file, 1
        self._most = MAX_LINE_BYTES if most is None else most
        self._begun = bytearray()
        self._skips = False

    @property
    def held(self) -> int:
        """Number of bytes of the line that has begun."""
        return len(self._begun)

    def add(self, more: bytes) -> Iterator[LineBlock]:
        """The lines that end in some more bytes, at most as many as a line may have."""
        end = more.find(b"\n")
        if self._skips:
            if end < 0:
                return
            more, self._skips = more[end + 1 :], False
            end = more.find(b"\n")
        if len(self._begun) + (len(more) if end < 0 else end) > self._most:
            self._begun += more[: self._most + 1 - len(self._begun)]
            yield self._block(self._take(), 1, overlong=True)
            self._skips = end < 0
            more = more[end + 1 :] if end >= 0 else b""
        whole = more.rfind(b"\n") + 1
        if whole:
            data = self._take()
            data += more[:whole]
            yield self._block(data, data.count(b"\n"))
        self._begun += more[whole:]

    def room(self, n: int) -> Array:
        """Memory, u8, that holds the `held` bytes and has room for n more: see `add_in_place`."""
        memory = np.empty(len(self._begun) + n, np.uint8)
        memory[: len(self._begun)] = self._begun
        return memory

    def add_in_place(self, memory: Array, n: int, n_line_feeds: int) -> Iterator[LineBlock]:
        """Does what `add` does, for the n bytes after the `held` ones in `memory`, which `room` gave, with `n_line_feeds`
        among them; blocks share that memory."""
        held, stop = len(self._begun), len(self._begun) + n
        whole = _behind_last_line_feed(memory, held, stop)
        if self._skips or not whole or after_line_feed(memory[:stop], held) - 1 > self._most:
            yield from self.add(memory[held:stop].tobytes())
            return
        self._begun = bytearray(memory[whole:stop])
        block = LineBlock(memory[:whole], self._file, self._first_line)
        self._first_line += n_line_feeds
        yield block

    def end(self) -> Iterator[LineBlock]:
        """The last line, if it has no line feed."""
        if self._begun:
            yield from self.add(b"\n")

    def _take(self) -> bytearray:
        """Take the bytes of the line that has begun."""
        begun, self._begun = self._begun, bytearray()
        return begun

    def _block(self, data: bytearray, n_lines: int, *, overlong: bool = False) -> LineBlock:
        block = LineBlock(np.frombuffer(data, np.uint8), self._file, self._first_line, overlong)
        self._first_line += n_lines
        return block


def blocks_of(read: Read, file: str) -> Iterator[LineBlock]:
    """The lines that `read` gives, as blocks of `file`.  Raises the error of `read`, after all whole lines before it."""
    cutter = LineCutter(file)
    while True:
        more, failed = read()
        yield from cutter.add(more)
        if failed is not None:
            raise failed
        if not more:
            yield from cutter.end()
            return


def _blocks_of_file(handle: BufferedReader, path: Path) -> Iterator[LineBlock]:
    """Does what `blocks_of` does, for a file: its bytes are read into their final place."""
    cutter = LineCutter(str(path.absolute()))
    while True:
        memory, at, more = cutter.room(READ_BYTES), cutter.held, 1
        failed: ModelError | None = None
        n_line_feeds = 0
        try:
            while at < len(memory) and more:
                more = handle.readinto1(memory.data[at : at + _READ_AT_ONCE])
                n_line_feeds += _n_line_feeds(memory[at : at + more])
                at += more
        except DAMAGED as error:
            failed = damaged(path, error)
        n = at - cutter.held
        yield from cutter.add_in_place(memory, n, n_line_feeds)
        if failed is not None:
            raise failed
        if not n:
            yield from cutter.end()
            return


def _n_line_feeds(data: Array) -> int:
    """The number of line feeds in u8.  Without compiled code they are compared a piece at a time, so that no array is as
    large as the data."""
    if len(data) >= _READ_AT_ONCE:
        from mpi_match.ingest.files.line_pass import compile_count, count_line_feeds  # loads Numba

        compile_count()
        return int(count_line_feeds(data))
    pieces = (data[at : at + _COUNTED_BYTES] for at in range(0, len(data), _COUNTED_BYTES))
    return sum(int(np.count_nonzero(piece == LINE_FEED)) for piece in pieces)


def _behind_last_line_feed(data: Array, first: int, stop: int) -> int:
    """The position after the last line feed in data[first:stop], or 0."""
    for end in range(stop, first, -_SEARCHED_BYTES):
        start = max(end - _SEARCHED_BYTES, first)
        found = np.flatnonzero(data[start:end] == LINE_FEED)
        if len(found):
            return start + int(found[-1]) + 1
    return 0


def _read(handle: BufferedReader, path: Path) -> tuple[bytes, ModelError | None]:
    """The next READ_BYTES, or the rest; and the error of the bytes after them."""
    pieces, missing = [], READ_BYTES
    try:
        while missing and (piece := handle.read1(missing)):
            pieces.append(piece)
            missing -= len(piece)
    except DAMAGED as error:
        return b"".join(pieces), damaged(path, error)
    return b"".join(pieces), None


def after_line_feed(data: Array, at: int) -> int:
    """The position after the next line feed at or after `at`, or the end of the data."""
    for start in range(at, len(data), _SEARCHED_BYTES):
        found = np.flatnonzero(data[start : start + _SEARCHED_BYTES] == LINE_FEED)
        if len(found):
            return start + int(found[0]) + 1
    return len(data)
