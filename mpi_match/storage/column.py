"""A dataset that grows, as columns of events and answers do, and where its rows are before the file is whole.

appended   ██████████ ██████████ ██████████ ████        rows
in file    chunk 0    chunk 1    chunk 2    -           full chunks, each written once, at a place that HDF5 chooses
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array
from mpi_match.storage.disk import Disk
from mpi_match.storage.integrity import bytes_of

CHUNK_BYTES = 2**20


class StoredRange(NamedTuple):
    """Where some rows of a column are: in these stretches of the file (first byte, number of bytes), end to end, and behind
    them as `rest`, which the file does not have yet.
    """

    extents: list[tuple[int, int]]
    rest: bytes


class Column:
    """A growing dataset of a file that `Writer` writes, made when there is a chunk for it, or at the end.

    Where no column of a file fills a chunk, each has one of its own length, so that a file of three events is small.  Full
    chunks go to the file as they come, from where they lie if they are appended whole.  What they hold depends only on the
    values, not on how they were split over calls of `append`.

    n_rows   rows that were appended
    crc      CRC-32 of their bytes
    """

    def __init__(self, dtype: np.dtype[Any], begin: Callable[[], None], disk: Disk) -> None:
        self._begin, self._disk = begin, disk
        self.dtype = np.dtype(dtype)
        self._rows = CHUNK_BYTES // self.dtype.itemsize
        self._pending = np.empty(self._rows, self.dtype)
        self._n_pending = self._n_written = 0
        self._places: list[int] = []
        self._dataset: Any = None
        self.n_rows = self.crc = 0

    def create(self, make: Callable[[int], Any], *, whole: bool) -> None:
        """Make the dataset by `make(rows)`, with so many rows to a chunk: those of a whole chunk, or all that there are."""
        if not whole:
            self._rows = max(self._n_pending, 1)
        self._dataset = make(self._rows)

    @property
    def room(self) -> int:
        """How many more rows fill a chunk."""
        return self._rows - self._n_pending

    def append(self, values: Array) -> None:
        """Add values at the end."""
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
        """A chunk of values, of which the first `n_rows` count."""
        if self._dataset is None:
            self._begin()
        self._disk.need(n_rows * self.dtype.itemsize)
        with self._disk.reported():
            self._dataset.resize((self._n_written + n_rows,))
            self._dataset.id.write_direct_chunk((self._n_written,), bytes_of(chunk))
            self._disk.wrote(chunk.nbytes)
        self._n_written += n_rows

    def place(self, start: int, stop: int) -> StoredRange:
        """Where rows are that were appended."""
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
        """HDF5 tells of all chunks in about the time that it takes to tell of one."""
        found: dict[int, int] = {}
        with self._disk.reported():
            self._dataset.id.chunk_iter(lambda chunk: found.update({chunk.chunk_offset[0]: chunk.byte_offset}))
        self._places = [found[row] for row in range(0, self._n_written, self._rows)]

    def close(self) -> None:
        """Write what is left; called by the writer."""
        if self._n_pending:
            self._pending[self._n_pending :] = 0
            self._write(self._pending[: self._rows], self._n_pending)
            self._n_pending = 0
