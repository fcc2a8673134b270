"""Rows of followed files in batches: pieces of blocks of lines, with the names of their files.

The names travel with each batch, because no rank knows the files beforehand.  With the feed `file` the places of the pieces
travel instead of their lines, and the worker that gets the batch reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array
from mpi_match.cluster.options import NOT_EVERYWHERE, ClusterError
from mpi_match.events.batch import EventBatch
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.batches.row_batch import LINES_PIECE, RowBatch
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.storage import FileChanged
from mpi_match.storage.range_read import read_exactly
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    from mpi_match.ingest.json.event_scanner import LineScanner


RENAME_WHOLE = "rename files into the directory when they are complete, and never write to them after that"


class PieceInFile(NamedTuple):
    """The place of a piece in its file: its first byte, and the CRC-32 of its bytes."""

    at: int
    crc: int


class RowsOfFiles(NamedTuple):
    """Rows, and the paths of the files that their pieces number.

    `places` are those of the pieces if the receiver of the wire form reads the rows from the files; else empty.
    """

    rows: RowBatch
    files: tuple[str, ...]
    places: tuple[PieceInFile, ...] = ()

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        return self._sent.wire_bytes + len(self._names)

    @property
    def _sent(self) -> RowBatch:
        return self.rows._replace(data=self.rows.data[:0]) if self.places else self.rows

    @property
    def _names(self) -> bytes:
        return json.dumps([self.files, self.places]).encode()

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the wire form to the start of `buffer` u8, or of a new buffer.  Returns the filled part, u8[wire_bytes]."""
        rows, names = self._sent, self._names
        at = rows.wire_bytes
        buffer = np.empty(at + len(names), np.uint8) if buffer is None else buffer
        rows.to_wire(buffer)
        buffer[at : at + len(names)] = np.frombuffer(names, np.uint8)
        return buffer[: at + len(names)]

    @classmethod
    def from_wire(cls, wire: Array) -> RowsOfFiles:
        """The rows in a wire form u8, sharing its memory or read from their files.  Raises ValueError; FileChanged for a
        file with other bytes than it had, ClusterError for one that is not there, OSError."""
        rows = RowBatch.from_wire(wire)
        files, places = json.loads(wire[rows.wire_bytes :].tobytes())
        found = cls(rows, tuple(files), tuple(PieceInFile(*each) for each in places))
        return found._read() if places else found

    def _read(self) -> RowsOfFiles:
        """The same rows, with their lines."""
        ends = np.cumsum(self.rows.pieces[:, 3]).tolist()
        data = np.empty(ends[-1], np.uint8)
        for number, first, end, place in zip(self.rows.pieces[:, 0].tolist(), [0, *ends], ends, self.places, strict=False):
            name, piece = self.files[number], data[first:end]
            try:
                with Path(name).open("rb", buffering=0) as handle:
                    read_exactly(handle.fileno(), piece, place.at, name)
            except FileNotFoundError as error:
                raise ClusterError(f"{name}: {NOT_EVERYWHERE.format('no such file')}", ExitCode.BAD_INPUT) from error
            if crc32(piece.data) != place.crc:
                raise FileChanged(f"{name}: has other bytes than the master read; {RENAME_WHOLE}")
        return self._replace(rows=self.rows._replace(data=data))


class RowsOfFilesScanner:
    """Scans `RowsOfFiles`, as `BatchScanner` scans batches of files that are known beforehand."""

    def __init__(self, vocabulary: Vocabulary, form: EventForm, threads: int | None = None) -> None:
        from mpi_match.ingest.batches.scan_lines import BatchScanner  # loads Numba

        self._scanner = BatchScanner(vocabulary, form, (), threads)

    @property
    def is_on_gpu(self) -> bool:
        """False: batches are scanned in the order in which they arrive, by any thread."""
        return False

    def choose(self, choice: Callable[[LineScanner], LineScanner]) -> None:
        """See `BatchScanner.choose`."""
        self._scanner.choose(choice)

    def scan(self, batch: RowsOfFiles) -> tuple[EventBatch, ScanReport]:
        """See `BatchScanner.scan`."""
        self._scanner.of_files(batch.files)
        return self._scanner.scan(batch.rows)


class FollowedOffer(NamedTuple):
    """Rows of a `form` that arrive during the run, as one rank offers them to others."""

    form: EventForm

    def first(self) -> RowsOfFiles:
        """A batch of one row without attributes, for engines to warm up with."""
        data = np.frombuffer(bytearray(b"{}\n"), np.uint8)
        return RowsOfFiles(RowBatch(1, np.array([[0, 0, 1, len(data), 0]], np.int64), data), ("",))

    def scanner(self, vocabulary: Vocabulary, threads: int | None = None) -> RowsOfFilesScanner:
        """A scanner of batches; compiles when it is made."""
        return RowsOfFilesScanner(vocabulary, self.form, threads)


class RowsOfBlock:
    """The rows of a block of lines, which are taken in order; `begin` is its first byte in its file, None if others cannot
    read it there."""

    def __init__(self, block: LineBlock, begin: int | None = None) -> None:
        self._block, self._begin, self._at, self._line = block, begin, 0, block.first_line

    @property
    def is_empty(self) -> bool:
        """Tells whether all lines are taken."""
        return self._at == len(self._block.data)

    def take(self, n_rows: int) -> Piece:
        """The next `n_rows` rows, or those that are left, with the blank lines before and after them."""
        from mpi_match.ingest.files.line_pass import find_row

        block, at, line = self._block, self._at, self._line
        whole = len(block.data), 1, 1
        end, n_lines, n_found = whole if block.overlong else find_row(block.data, at, n_rows)
        self._at, self._line = end, line + n_lines
        begin = None if self._begin is None else self._begin + at
        return Piece(block._replace(data=block.data[at:end], first_line=line), n_found, n_lines, begin)


class Piece(NamedTuple):
    """Lines of a block, and the numbers of rows and of lines in it; its first byte in its file, as in `RowsOfBlock`."""

    block: LineBlock
    n_rows: int
    n_lines: int
    begin: int | None


def no_rows() -> RowsOfFiles:
    """A batch of a blank line."""
    return RowsOfFiles(RowBatch(0, np.array([[0, 0, 1, 1, 0]], np.int64), np.frombuffer(bytearray(b"\n"), np.uint8)), ("",))


class BatchBuilder:
    """Joins pieces of blocks to a batch of rows.

    n_rows, n_bytes   in it
    """

    def __init__(self) -> None:
        self.n_rows = self.n_bytes = 0
        self._files: dict[str, int] = {}
        self._pieces: list[tuple[int, int, int, int, bool]] = []
        self._data: list[Array] = []
        self._begins: list[int | None] = []

    def add(self, piece: Piece) -> None:
        """Add a piece of a block."""
        block, n_rows, n_lines, begin = piece
        file = self._files.setdefault(block.file, len(self._files))
        self._pieces.append((file, block.first_line - 1, n_lines, len(block.data), block.overlong))
        self._data.append(block.data)
        self._begins.append(begin)
        self.n_rows += n_rows
        self.n_bytes += len(block.data)

    def take(self) -> RowsOfFiles:
        """Take the batch, which leaves the builder empty."""
        if not self._data:
            return no_rows()
        data = self._data[0] if len(self._data) == 1 else np.concatenate(self._data)
        begins = [each for each in self._begins if each is not None]
        pairs = zip(begins, self._data, strict=True) if len(begins) == len(self._begins) else ()
        found = RowsOfFiles(
            RowBatch(self.n_rows, np.array(self._pieces, np.int64).reshape(-1, LINES_PIECE), data),
            tuple(self._files),
            tuple(PieceInFile(at, crc32(piece.data)) for at, piece in pairs),
        )
        self.__init__()  # type: ignore[misc]
        return found
