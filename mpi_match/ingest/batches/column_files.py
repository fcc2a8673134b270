"""Parquet and Arrow files as numbered events.  Reading a range of rows reads only the pieces that it lies in.

    file 0: row group 0, row group 1      file 1: record batch 0, ...
    rows    0 ..         10,000 ..                25,000 ..

Only the needed columns are read.  The bytes of a piece are compared with the checksums of the index, so a file that has
changed is never read.  A piece is decoded once and kept until two others were asked for.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.compute.forks import renew_in_child
from mpi_match.ingest.batches.column_batch import COLUMNS_EXTRA_BYTES, batch_of_tables
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.columns.file import ColumnFile
from mpi_match.ingest.columns.python import needed_by
from mpi_match.ingest.files.checked_blocks import Blocks, CheckedFile
from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import EventForm, event_of_row, names_of
from mpi_match.ingest.rows.row_files import partition_values
from mpi_match.model import Event, Json, ModelError
from mpi_match.storage.range_read import Memory
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT_PIECES = 2


class ColumnIndex(NamedTuple):
    """Index of files with p pieces.

    files       absolute paths, ascending
    blocks      sizes and checksums of each
    piece       i64[p, 2]     file, and number in it, of each piece
    first_row   i64[p + 1]    rows, of all files, before each piece
    needed      names of the attributes that are used
    row_bytes   size of a row as it travels, roughly
    digest      SHA-256 that identifies the content of the files, and the form in which their rows are read
    """

    files: Sequence[str]
    blocks: Sequence[Blocks]
    piece: Array
    first_row: Array
    needed: frozenset[str]
    row_bytes: int
    digest: str

    @property
    def n_rows(self) -> int:
        """Number of rows in all files."""
        return int(self.first_row[-1])

    @property
    def n_bytes(self) -> Array:
        """i64: size of each file."""
        return np.array([each.n_bytes for each in self.blocks], np.int64)


class ColumnFiles:
    """Indexed Parquet and Arrow files; a context manager.  Threads may read at the same time."""

    packed = False

    names: Names | None = None
    """The names for the judge of whole rows; None where the needed columns tell all."""

    def __init__(self, index: ColumnIndex, form: EventForm) -> None:
        self.index, self.form = index, form
        self._lock = threading.Lock()
        self._open: tuple[int, ColumnFile] | None = None
        self._kept: dict[int, pa.Table] = {}
        renew_in_child(self)

    def forked(self) -> None:
        """See `Renewable.forked`."""
        self._lock = threading.Lock()

    @classmethod
    def open(cls, paths: Sequence[Path], form: EventForm, vocabulary: Vocabulary) -> ColumnFiles:
        """Index files, in the order of their paths.

        Raises ModelError for a file that is damaged, or has a needed column of a type that attributes do not have, OSError.
        """
        paths = sorted(paths)
        needed = needed_by(vocabulary, form)
        blocks = [Blocks.of(path) for path in paths]
        pieces, n_rows, row_bytes = [], [], 0
        for number, each in enumerate(blocks):
            with ColumnFile(_checked(each), each.name, needed, form) as file:
                row_bytes = max(row_bytes, 40 * len(file.needed.paths))
                for piece in range(file.n_pieces):
                    pieces.append((number, piece))
                    n_rows.append(file.n_rows(piece))
        sizes = [each.n_bytes for each in blocks]
        of_directories = [sorted(found.items()) for found in map(partition_values, paths)]
        told = (form.location, form.id, sizes, *([of_directories] if any(of_directories) else []))
        digest = hashlib.sha256(repr(told).encode())
        for each in blocks:
            digest.update(each.crc.astype("<u4").tobytes())
        names = [each.name for each in blocks]
        found = np.array(pieces, np.int64).reshape(-1, 2)
        rows = offsets_of(np.array(n_rows, np.int64))
        files = cls(ColumnIndex(names, blocks, found, rows, needed, row_bytes, digest.hexdigest()), form)
        files.names = names_of(vocabulary, form) if vocabulary.asks_of_rows else None
        return files

    def __enter__(self) -> ColumnFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open[1].__exit__()
            self._open = None

    def read_into(self, memory: Memory) -> None:
        """Do nothing: an engine never gets columns in the memory that they are read into."""

    def __len__(self) -> int:
        return self.n_events

    @property
    def n_events(self) -> int:
        """Number of rows, including rejected ones."""
        return self.index.n_rows

    @property
    def digest(self) -> str:
        """SHA-256 that identifies the content and the form of its rows."""
        return self.index.digest

    def wire_bytes(self, n_batches: int) -> int:
        """Approximate bytes of all rows as they travel in `n_batches` batches."""
        return self.n_events * self.index.row_bytes + n_batches * COLUMNS_EXTRA_BYTES

    def batch(self, start: int, stop: int) -> RowBatch:
        """Rows `start` to `stop`.  Raises FileChanged if they have changed since they were indexed, ModelError."""
        if not 0 <= start <= stop <= self.n_events:
            raise IndexError(f"rows {start} to {stop} of {self.n_events}")
        return batch_of_tables(list(self._tables(start, stop)))

    def _tables(self, start: int, stop: int) -> Iterator[tuple[int, int, pa.Table]]:
        """File, number of the first row in it, and rows, of each piece of a range."""
        index = self.index
        piece = int(np.searchsorted(index.first_row, start, "right")) - 1
        while start < stop:
            first, end = index.first_row[piece : piece + 2].tolist()
            file = int(index.piece[piece, 0])
            before = int(index.first_row[np.searchsorted(index.piece[:, 0], file)])
            last = min(stop, end)
            if start < last:
                yield file, start - before, self._piece(piece).slice(start - first, last - start)
            start, piece = last, piece + 1

    def _piece(self, piece: int) -> pa.Table:
        with self._lock:
            found = self._kept.pop(piece, None)
            if found is None:
                file, number = self.index.piece[piece].tolist()
                if self._open is None or self._open[0] != file:
                    self.__exit__()
                    blocks = self.index.blocks[file]
                    self._open = file, ColumnFile(_checked(blocks), blocks.name, self.index.needed, self.form)
                found = self._open[1].read(number)
            self._kept[piece] = found
            if len(self._kept) > _KEPT_PIECES:
                self._kept.pop(next(iter(self._kept)))
            return found

    def check_unchanged(self, start: int, stop: int) -> None:
        """Do nothing: rows are compared with their checksums when they are read."""

    def event(self, i: int) -> Event | None:
        """One event, with the needed attributes; None for a rejected row."""
        try:
            row, names = self._row(i)
            return event_of_row(row, self.form, names)
        except ModelError:
            return None

    def row(self, i: int) -> Mapping[str, Any]:
        """The needed attributes of one row, unchanged, by name.  Raises ModelError for a row that cannot be read."""
        return self._row(i)[0]

    def _row(self, i: int) -> tuple[Json, Names]:
        from mpi_match.ingest.columns.arrow import NeededColumns, json_value

        ((_, _, table),) = self._tables(i, i + 1)
        if self.names is not None:
            from mpi_match.ingest.columns.arrow_to_events import as_json

            (row,) = table.to_pylist()
            return cast(Json, as_json(row, times_as_text=True)), self.names
        (rows,) = table.to_batches()
        needed = NeededColumns.of(rows.schema, self.index.needed, self.form)
        found = {
            name: leaf.array[0] for name, leaf in needed.leaves(rows).items() if leaf.absent is None or not leaf.absent[0]
        }
        return {name: json_value(value.as_py()) for name, value in found.items()}, needed.names


def _checked(blocks: Blocks) -> BinaryIO:
    return cast(BinaryIO, CheckedFile(blocks))
