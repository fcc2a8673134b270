"""Rows of followed files in batches: pieces of blocks of lines, with the names of their files.

The names travel with each batch, because no rank knows the files beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.batches.row_batch import LINES_PIECE, RowBatch
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    from mpi_match.ingest.json.event_scanner import LineScanner


class RowsOfFiles(NamedTuple):
    """Rows, and the paths of the files that their pieces number."""

    rows: RowBatch
    files: tuple[str, ...]

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        return self.rows.wire_bytes + len(self._names)

    @property
    def _names(self) -> bytes:
        return json.dumps(self.files).encode()

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the wire form to the start of `buffer` u8, or of a new buffer.  Returns the filled part, u8[wire_bytes]."""
        names, at = self._names, self.rows.wire_bytes
        buffer = np.empty(at + len(names), np.uint8) if buffer is None else buffer
        self.rows.to_wire(buffer)
        buffer[at : at + len(names)] = np.frombuffer(names, np.uint8)
        return buffer[: at + len(names)]

    @classmethod
    def from_wire(cls, wire: Array) -> RowsOfFiles:
        """The rows in a wire form u8, sharing its memory.  Raises ValueError."""
        rows = RowBatch.from_wire(wire)
        return cls(rows, tuple(json.loads(wire[rows.wire_bytes :].tobytes())))


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
    """The rows of a block of lines, which are taken in order."""

    def __init__(self, block: LineBlock) -> None:
        self._block, self._at, self._line = block, 0, block.first_line

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
        return Piece(block._replace(data=block.data[at:end], first_line=line), n_found, n_lines)


class Piece(NamedTuple):
    """Lines of a block, and the numbers of rows and of lines in it."""

    block: LineBlock
    n_rows: int
    n_lines: int


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

    def add(self, piece: Piece) -> None:
        """Add a piece of a block."""
        block, n_rows, n_lines = piece
        file = self._files.setdefault(block.file, len(self._files))
        self._pieces.append((file, block.first_line - 1, n_lines, len(block.data), block.overlong))
        self._data.append(block.data)
        self.n_rows += n_rows
        self.n_bytes += len(block.data)

    def take(self) -> RowsOfFiles:
        """Take the batch, which leaves the builder empty."""
        if not self._data:
            return no_rows()
        data = self._data[0] if len(self._data) == 1 else np.concatenate(self._data)
        found = RowsOfFiles(
            RowBatch(self.n_rows, np.array(self._pieces, np.int64).reshape(-1, LINES_PIECE), data), tuple(self._files)
        )
        self.__init__()  # type: ignore[misc]
        return found
