"""Plain files of lines in ranges that threads read at the same time, with the blocks of `blocks.read_blocks`.

    bytes    │ range 0        │ range 1        │ range 2
    lines    ──────┬───────┬─────┬────────────────┬──────      a line belongs to the range that it begins in

Lines are numbered from 0 in each range, because the number of lines before it is known only when all earlier ranges have
been read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.files.blocks import LineBlock, after_line_feed
from mpi_match.ingest.files.line_pass import count_line_feeds, read_counted
from mpi_match.ingest.rows import judge
from mpi_match.storage.range_read import Memory, read_exactly
from mpi_match.texts.characters import LINE_FEED

GPU_RANGE_BYTES, CPU_RANGE_BYTES = 2**26, 2**22
"""Bytes of a range for a GPU, which would scan half as many in less time than Python holds its lock for a range; and for
threads of a CPU, short enough that even a small file has ranges for all threads."""
_TAIL_BYTES = 2**16
"""Bytes after a range in which its last line nearly always ends."""


class LineRange(NamedTuple):
    """The lines that begin in the bytes `start` to `stop` of a file of `n_bytes` bytes."""

    path: Path
    start: int
    stop: int
    n_bytes: int

    def read(self, memory: Memory) -> RangeLines:
        """Read the lines, into memory from `memory`.  Raises FileChanged for a file that has become shorter, OSError."""
        for tail in (_TAIL_BYTES, judge.MAX_LINE_BYTES + 1):
            data, n_line_feeds, is_whole = self._read(tail, memory)
            if is_whole:
                break
        size = judge.MAX_LINE_BYTES
        if self.stop - self.start > size and _may_have_overlong(data):
            starts = range(self.start, self.stop, size)
            return _joined([self._replace(start=at, stop=min(at + size, self.stop)).read(memory) for at in starts])
        last = _last_line(data)  # no other is overlong
        name = str(self.path.absolute())
        if len(data) - last <= judge.MAX_LINE_BYTES + is_whole:
            return RangeLines([LineBlock(data, name, 0)] if len(data) else [], n_line_feeds)
        n_before = count_line_feeds(data[:last])
        before = [LineBlock(data[:last], name, 0)] if last else []
        overlong = LineBlock(data[last : last + judge.MAX_LINE_BYTES + 1], name, n_before, overlong=True)
        return RangeLines([*before, overlong], n_before + 1)

    def _read(self, tail: int, memory: Memory) -> tuple[Array, int, bool]:
        """The bytes from the first line to the end of the last line, if it ends at most `tail` bytes behind the range; the
        number of their line feeds; and whether the last line is whole."""
        begin, end = max(self.start - 1, 0), min(self.stop + tail, self.n_bytes)
        data = memory(end - begin + 1)
        with self.path.open("rb", buffering=0) as handle:
            n_read, n_line_feeds = read_counted(handle.fileno(), data[:-1], begin)
            if n_read < len(data) - 1:  # the reason is raised, or the rest is read
                read_exactly(handle.fileno(), data[n_read:-1], begin + n_read, str(self.path.absolute()))
                n_line_feeds += count_line_feeds(data[n_read:-1])
        n_own = self.stop - begin
        first = 0 if self.start == 0 else after_line_feed(data[: n_own - 1], 0)
        if self.start > 0 and data[first - 1] != LINE_FEED:
            return data[:0], 0, True  # no line begins in the range
        stop = after_line_feed(data[:-1], n_own - 1)
        n_line_feeds -= count_line_feeds(data[:first]) + count_line_feeds(data[stop:-1])
        if data[stop - 1] != LINE_FEED and end == self.n_bytes:
            data[stop] = LINE_FEED
            stop, n_line_feeds = stop + 1, n_line_feeds + 1
        return data[first:stop], int(n_line_feeds), bool(data[stop - 1] == LINE_FEED)


class RangeLines(NamedTuple):
    """The lines of a range in blocks, numbered from 0, and their number."""

    blocks: list[LineBlock]
    n_lines: int


def ranges_of(path: Path, range_bytes: int) -> Iterator[LineRange]:
    """The ranges of a file, of `range_bytes` each, which together have all of its present lines."""
    n_bytes = path.stat().st_size
    for start in range(0, n_bytes, range_bytes):
        yield LineRange(path, start, min(start + range_bytes, n_bytes), n_bytes)


def _joined(parts: list[RangeLines]) -> RangeLines:
    """The lines of consecutive ranges as those of one."""
    blocks, n_lines = list[LineBlock](), 0
    for part in parts:
        blocks += [block._replace(first_line=n_lines + block.first_line) for block in part.blocks]
        n_lines += part.n_lines
    return RangeLines(blocks, n_lines)


def _may_have_overlong(data: Array) -> bool:
    """Tells whether a line may be longer than `MAX_LINE_BYTES`.  Such a line holds two multiples of half of that, without a
    line feed between them."""
    step = judge.MAX_LINE_BYTES // 2
    return any(after_line_feed(data, at) > at + step for at in range(0, len(data), step))


def _last_line(data: Array) -> int:
    """The position where the last line begins."""
    for end in range(len(data) - 1, 0, -_TAIL_BYTES):
        start = max(end - _TAIL_BYTES, 0)
        found = np.flatnonzero(data[start:end] == LINE_FEED)
        if len(found):
            return start + int(found[-1]) + 1
    return 0
