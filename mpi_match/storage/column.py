"""A dataset that grows while it is written, such as a column of events or answers, and the position of its rows in the file.

appended   ██████████ ██████████ ██████████ ████        rows
in file    chunk 0    chunk 1    chunk 2    -           full chunks, each written once, at an offset that HDF5 chooses
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, DType
from mpi_match.storage.disk import Disk
from mpi_match.storage.integrity import bytes_of

CHUNK_BYTES = 2**20


class StoredRange(NamedTuple):
    """The location of some rows of a column: byte ranges of the file (first byte, number of bytes), to be read end to end,
    followed by `rest`, which is not in the file yet.
    """

    extents: list[tuple[int, int]]
    rest: bytes


class Column:
    """A growing dataset of a file that `Writer` writes, created when the first chunk is full, or at the end.

    If no column of a file fills a chunk, each gets one chunk of its own length, so that a file of three events is small.
    Full chunks are written immediately, without a copy if they are appended whole.  Their content depends only on the
    values, not on how these were split over calls of `append`.

    n_rows   rows appended
    crc      CRC-32 of their bytes
    """

    def __init__(self, dtype: DType, begin: Callable[[], None], disk: Disk) -> None:
        self._begin, self._disk = begin, disk
        self.dtype = np.dtype(dtype)
        self._rows = CHUNK_BYTES // self.dtype.itemsize
        self._pending = np.empty(self._rows, self.dtype)
        self._n_pending = self._n_written = 0
        self._places: list[int] = []
        self._dataset: Any = None
        self.n_rows = self.crc = 0

    def create(self, make: Callable[[int], object], *, whole: bool) -> None:
        """Create the dataset by `make(rows)`, with chunks of `rows` rows: those of a full chunk, or all rows."""
        if not whole:
            self._rows = max(self._n_pending, 1)
        self._dataset = make(self._rows)

    @property
    def room(self) -> int:
        """Number of rows that would fill the chunk."""
        return self._rows - self._n_pending

    def append(self, values: Array) -> None:
        values = np.ascontiguousarray(values, self.dtype)
        crc, at = crc32(bytes_of(values), self.crc), 0
        while at < len(values):
            if self._n_pending == 0 and len(values) - at >= self._rows:
                self._write(values[at : at + self._rows], self._rows)
                at += self._rows
                continue
            take = min(len(values) - at, self._rows - self._n_pending)
            self._pending[self._n_pending : self._n_pending + take] = values[at : at + take]
            self._n_pending += take
            at += take
            if self._n_pending == self._rows:
                self._write(self._pending, self._rows)
                self._n_pending = 0
        self.n_rows, self.crc = self.n_rows + len(values), crc

    def _write(self, chunk: Array, n_rows: int) -> None:
        """Write the first `n_rows` values of a chunk."""
        if self._dataset is None:
            self._begin()
        self._disk.need(n_rows * self.dtype.itemsize)
        with self._disk.reported():
            self._dataset.resize((self._n_written + n_rows,))
            self._dataset.id.write_direct_chunk((self._n_written,), bytes_of(chunk))
            self._disk.wrote(chunk.nbytes)
        self._n_written += n_rows

    def place(self, start: int, stop: int) -> StoredRange:
        """The location of rows that were appended."""
        size, in_file = self.dtype.itemsize, min(stop, self._n_written)
        if in_file > len(self._places) * self._rows:
            self._look_for_chunks()
        extents, at = [], start
        while at < in_file:
            chunk, first = divmod(at, self._rows)
            n = min(in_file - at, self._rows - first)
            extents.append((self._places[chunk] + first * size, n * size))
            at += n
        rest = self._pending[max(at - self._n_written, 0) : max(stop - self._n_written, 0)]
        return StoredRange(extents, rest.tobytes())

    def _look_for_chunks(self) -> None:
        """Look up the offsets of all chunks: HDF5 takes about as long to look up one."""
        found: dict[int, int] = {}
        with self._disk.reported():
            self._dataset.id.chunk_iter(lambda chunk: found.update({chunk.chunk_offset[0]: chunk.byte_offset}))
        self._places = [found[row] for row in range(0, self._n_written, self._rows)]

    def close(self) -> None:
        """Write the remaining rows; called by the writer."""
        if self._n_pending:
            self._pending[self._n_pending :] = 0
            self._write(self._pending[: self._rows], self._n_pending)
            self._n_pending = 0
