"""JSON lines files as numbered events.  Reading a range of rows reads only the blocks that it lies in.

Every block is compared with its checksum in the index (`line_index`), so a file that has changed is never read.  The lines
of packed files, CSV, standard input and pipes are first copied into a temporary file without a name, which the system
removes with the process.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.batches.row_batch import LINES_EXTRA_BYTES, LINES_PIECE, RowBatch
from mpi_match.ingest.files import line_index
from mpi_match.ingest.files.blocks import lines_in
from mpi_match.ingest.files.checked_blocks import Blocks
from mpi_match.ingest.files.line_index import LineIndex, index_lines
from mpi_match.ingest.rows import judge
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.formats import lines_format
from mpi_match.ingest.rows.judge import EventForm, event_of_row, parse_json, record_set_aside, trimmed
from mpi_match.ingest.rows.packed_files import is_packed
from mpi_match.ingest.rows.row_files import STDIN, is_plain
from mpi_match.model import Event, ModelError
from mpi_match.storage import StorageError
from mpi_match.storage.range_read import Memory, ordinary_memory
from mpi_match.texts.characters import LINE_FEED

_END = np.array([LINE_FEED], np.uint8)


class _Place(NamedTuple):
    """The beginning of a line: file, position in it, and lines of the file before it."""

    file: int
    at: int
    line: int


class _Found(NamedTuple):
    """The position of a row: its number, its block, and where it begins."""

    row: int
    block: int
    place: _Place


class LineFiles:
    """Indexed JSON lines files; a context manager.

    `names` are the attributes that count, for `event` (None: all); `packed` tells whether other processes cannot read some
    of the files by their names; `memory` is for the lines.
    """

    def __init__(
        self, index: LineIndex, form: EventForm, sources: Sequence[Path] | None = None, packed: bool = False
    ) -> None:
        self.index, self.form, self.packed = index, form, packed
        self._sources = [Path(name) for name in index.files] if sources is None else list(sources)
        self.memory: Memory = ordinary_memory
        self.names: Names | None = None
        self._stack = ExitStack()
        self._found: _Found | None = None
        self._block: tuple[int, Array] | None = None

    @classmethod
    def open(cls, paths: Sequence[Path], form: EventForm, directory: Path | None = None) -> LineFiles:
        """Index files, in the order of their paths; packed ones, STDIN and pipes are copied into `directory` (None: the
        system's for temporary files).  Raises ModelError for a damaged packed file, StorageError when the disk is full,
        OSError.
        """
        paths = sorted(paths)
        packed = not all(map(is_plain, paths))
        with ExitStack() as stack:
            sources = [_readable(path, form, directory, stack) for path in paths]
            names = [str(path.absolute()) for path in paths]
            found = cls(index_lines(names, sources, form), form, sources, packed)
            found._stack = stack.pop_all()
        return found

    def __enter__(self) -> LineFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return self.n_events

    @property
    def n_events(self) -> int:
        """Number of rows, rejected ones too."""
        return self.index.n_rows

    @property
    def digest(self) -> str:
        """SHA-256 that identifies the content and the form of its rows."""
        return self.index.digest

    def read_into(self, memory: Memory) -> None:
        """From now on, allocate the memory for lines by `memory`."""
        self.memory = memory

    def wire_bytes(self, n_batches: int) -> int:
        """Approximate bytes of all rows as they travel in `n_batches` batches."""
        return int(self.index.n_bytes.sum()) + n_batches * LINES_EXTRA_BYTES

    def batch(self, start: int, stop: int) -> RowBatch:
        """Rows `start` to `stop`, and the blank lines between them.  Raises FileChanged if they have changed since they were
        indexed."""
        if not 0 <= start <= stop <= self.n_events:
            raise IndexError(f"rows {start} to {stop} of {self.n_events}")
        from mpi_match.ingest.files.line_pass import count_line_feeds  # loads Numba

        pieces: list[tuple[int, int, int, int, bool]] = []
        data: list[Array] = []
        if start < stop:
            begins, ends = self._place(start), self._place(stop)
            for file, begin, end, line in self._ranges(begins, ends):
                cut = list(self._cut(file, begin, end))
                n_known = ends.line - line if len(cut) == 1 and file == ends.file and stop < self.n_events else None
                for first, last, is_overlong in cut:
                    read = self._read(file, first, last)
                    if not is_overlong and read[-1] != LINE_FEED:
                        read = np.concatenate([read, _END])  # the last line of a file
                    n_lines = 1 if is_overlong else count_line_feeds(read) if n_known is None else n_known
                    pieces.append((file, line, n_lines, len(read), is_overlong))
                    data.append(read)
                    line += n_lines
        joined = data[0] if len(data) == 1 else np.concatenate([*data, _END[:0]])
        return RowBatch(stop - start, np.array(pieces, np.int64).reshape(-1, LINES_PIECE), joined)

    def check_unchanged(self, start: int, stop: int) -> None:
        """Nothing: rows are compared with their checksums when they are read."""

    def event(self, i: int) -> Event | None:
        """One event, with the attributes among `names` (None: all); None for a rejected row."""
        try:
            return event_of_row(self.row(i), self.form, self.names)
        except ModelError:
            return None

    def row(self, i: int) -> Any:
        """One row, parsed and otherwise unchanged.  Raises ModelError for a row that is neither JSON nor a record of CSV."""
        batch = self.batch(i, i + 1)
        (line,) = (found for each in batch.data.tobytes().split(b"\n") if (found := trimmed(each)))
        file = int(batch.pieces[0, 0])
        bad = None if lines_format(Path(self.index.files[file])).is_plain else record_set_aside(line)
        if bad is not None:
            raise ModelError(bad[0])
        return parse_json(line)

    def _ranges(self, first: _Place, last: _Place) -> Iterator[tuple[int, int, int, int]]:
        """For each file in a range: the file, the first byte, the byte after the last, and the number of lines before."""
        for file in range(first.file, last.file + 1):
            begin, line = (first.at, first.line) if file == first.file else (0, 0)
            end = last.at if file == last.file else int(self.index.n_bytes[file])
            if begin < end:
                yield file, begin, end, line

    def _cut(self, file: int, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """A range of a file cut at overlong lines; their beginnings are kept."""
        for number, first, last in self.index.overlong.tolist():
            if number == file and begin <= first < end:
                if begin < first:
                    yield begin, first, False
                yield first, first + judge.MAX_LINE_BYTES + 1, True
                begin = last
        if begin < end:
            yield begin, end, False

    def _place(self, row: int) -> _Place:
        """The position where a row begins; for the number of rows, the end of the last file."""
        from mpi_match.ingest.files.line_pass import find_row

        index = self.index
        if row == index.n_rows:
            return _Place(len(index.files) - 1, int(index.n_bytes[-1]), 0)
        found = self._found
        block = int(np.searchsorted(index.first_row, row, "right")) - 1
        file = int(np.searchsorted(index.first_block, block, "right")) - 1
        if found is not None and found.block == block and found.row <= row:
            place, n_rows = found.place, row - found.row
        else:
            place = _Place(file, int(index.first_at[block]), int(index.first_line[block]))
            n_rows = row - int(index.first_row[block])
        if n_rows:
            begin = (block - int(index.first_block[file])) * line_index.BLOCK_BYTES
            at, n_lines, _ = find_row(self._block_of(block, file), place.at - begin, n_rows)
            place = _Place(file, begin + at, place.line + n_lines)
        self._found = _Found(row, block, place)
        return place

    def _block_of(self, block: int, file: int) -> Array:
        """The bytes of a block; the last one is kept."""
        kept = self._block
        if kept is None or kept[0] != block:
            first = int(self.index.first_block[file])
            kept = self._block = block, self._blocks(file, block - first, block - first + 1)
        return kept[1]

    def _read(self, file: int, begin: int, end: int) -> Array:
        """Bytes of a file."""
        first, size = int(self.index.first_block[file]), line_index.BLOCK_BYTES
        start, stop = begin // size, -(-min(end, int(self.index.n_bytes[file])) // size)
        kept = self._block
        is_kept = kept is not None and stop == start + 1 and kept[0] == first + start
        data = kept[1] if kept is not None and is_kept else self._blocks(file, start, stop, self.memory)
        return data[begin - start * size : end - start * size]

    def _blocks(self, file: int, start: int, stop: int, memory: Memory = ordinary_memory) -> Array:
        """Blocks of a file, numbered from its own first block.  Raises FileChanged if they have changed since they were
        indexed."""
        first, last = self.index.first_block[file : file + 2].tolist()
        crc, n_bytes = self.index.crc[first:last], int(self.index.n_bytes[file])
        blocks = Blocks(self.index.files[file], n_bytes, line_index.BLOCK_BYTES, crc)
        return blocks.read(self._sources[file], start, stop, memory)


def _readable(path: Path, form: EventForm, directory: Path | None, stack: ExitStack) -> Path:
    """A path from which this process can read any part of a file: that of the file, or of a temporary file with the same
    content."""
    if is_plain(path):
        return path
    spool = stack.enter_context(cast(IO[bytes], tempfile.TemporaryFile(dir=directory)))  # noqa: SIM115  the stack's
    for piece in lines_in(path, form) if is_packed(path) or not lines_format(path).is_plain else _content(path):
        _write(spool, piece, path, directory)
    return Path(f"/proc/self/fd/{spool.fileno()}")


_COPIED_BYTES = 2**20


def _content(path: Path) -> Iterator[bytes]:
    with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as handle:
        while piece := handle.read(_COPIED_BYTES):
            yield piece


def _write(spool: IO[bytes], piece: bytes, path: Path, directory: Path | None) -> None:
    try:
        spool.write(piece)
        spool.flush()
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be copied into {directory or tempfile.gettempdir()}: {error.strerror}"
        ) from error
