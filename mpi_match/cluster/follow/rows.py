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
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES, EventForm
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


def n_rows_of(block: LineBlock) -> int:
    """The number of rows in a block: of lines that are not blank."""
    from mpi_match.ingest.files.line_pass import N_KEPT, index_bytes

    if block.overlong:
        return 1
    n_bytes = len(block.data)
    if not n_bytes:
        return 0
    n_rows, n_lines = np.zeros(1, np.int64), np.zeros(1, np.int64)
    columns = (n_rows, n_lines, np.full(1, -1, np.int64), np.zeros((2, 2), np.int64))
    index_bytes(block.data, 0, n_bytes, MAX_LINE_BYTES + n_bytes, np.zeros(N_KEPT, np.int64), columns)
    return int(n_rows[0])


def split(block: LineBlock, n_rows: int) -> tuple[LineBlock, LineBlock]:
    """A block cut after its first `n_rows` rows, which are not all of its rows."""
    from mpi_match.ingest.files.line_pass import find_row

    at, n_lines = find_row(block.data, 0, n_rows)
    return block._replace(data=block.data[:at]), block._replace(data=block.data[at:], first_line=block.first_line + n_lines)


def no_rows() -> RowsOfFiles:
    """A batch of a blank line."""
    return RowsOfFiles(RowBatch(0, np.array([[0, 0, 1, 1, 0]], np.int64), np.frombuffer(bytearray(b"\n"), np.uint8)), ("",))


class BatchBuilder:
    """Joins blocks to a batch of rows.

    n_rows, n_bytes   in it
    """

    def __init__(self) -> None:
        self.n_rows = self.n_bytes = 0
        self._files: dict[str, int] = {}
        self._pieces: list[tuple[int, int, int, int, bool]] = []
        self._data: list[Array] = []

    def add(self, block: LineBlock, n_rows: int) -> None:
        """Add a block of `n_rows` rows."""
        file = self._files.setdefault(block.file, len(self._files))
        n_lines = 1 if block.overlong else int(np.count_nonzero(block.data == ord("\n")))
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
