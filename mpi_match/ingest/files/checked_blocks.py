"""Reads files in blocks with a checksum each, so that a file that has changed is noticed."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array
from mpi_match.storage import FileChanged
from mpi_match.storage.range_read import Memory, ordinary_memory, read_exactly

_BLOCK_BYTES = 2**20
THREAD_BYTES = 2**23
"""Bytes of a read that are worth a further thread: one alone reads and checks 3 GB a second."""
_AGAIN = "put the old file back and go on, or start anew with the new one"


class Blocks(NamedTuple):
    """A file, called `name`, of `n_bytes`, in blocks of `size` bytes; `crc` u32 is the CRC-32 of each."""

    name: str
    n_bytes: int
    size: int
    crc: Array

    @classmethod
    def of(cls, path: Path) -> Blocks:
        """Read a whole file.  Raises OSError, and FileChanged for one that shrinks meanwhile."""
        name = str(path.absolute())
        with path.open("rb", buffering=0) as handle:
            n_bytes = os.fstat(handle.fileno()).st_size
            crc = np.zeros(-(-n_bytes // _BLOCK_BYTES), np.uint32)
            buffer = np.empty(min(_BLOCK_BYTES, n_bytes), np.uint8)
            for k in range(len(crc)):
                data = buffer[: min(_BLOCK_BYTES, n_bytes - k * _BLOCK_BYTES)]
                read_exactly(handle.fileno(), data, k * _BLOCK_BYTES, name)
                crc[k] = crc32(data.data)
        return cls(name, n_bytes, _BLOCK_BYTES, crc)

    def read(self, source: Path, start: int, stop: int, memory: Memory = ordinary_memory) -> Array:
        """The bytes u8 of blocks `start` to `stop`, perhaps from another path to the file, in memory from `memory`.

        Several threads read a long range.  Raises FileChanged if they have changed since they were indexed.
        """
        from mpi_match.compute.checksum import is_compiled
        from mpi_match.compute.parallel import in_stretches  # loads Numba

        size = self.size
        data = memory(min(stop * size, self.n_bytes) - start * size)
        try:
            with source.open("rb", buffering=0) as handle:
                given = handle.fileno(), data, start * size, size, self.crc[start:stop]
                least = max(THREAD_BYTES // size, 1)
                if is_compiled and sum(in_stretches(stop - start, _n_checked, *given, least=least)) == stop - start:
                    return data
                read_exactly(handle.fileno(), data, start * size, self.name)
        except OSError as error:
            raise FileChanged(f"{self.name}: changed while it was read: {error.strerror}; {_AGAIN}") from error
        for k in range(stop - start):
            crc, expected = crc32(data[k * size : (k + 1) * size].data), int(self.crc[start + k])
            if crc != expected:
                raise FileChanged(
                    f"{self.name}: changed while it was read: CRC-32 of its bytes from {(start + k) * size:,} on "
                    f"found {crc:08x}, expected {expected:08x}; {_AGAIN}"
                )
        return data


def _n_checked(stretch: int, n_stretches: int, descriptor: int, data: Array, at: int, size: int, crc: Array) -> int:
    """Read a stretch of the blocks from `at` on into its part of `data`, up to the first bad one; returns the number of good
    ones."""
    from mpi_match.ingest.files.line_pass import n_checked  # loads Numba

    first, last = (k * len(crc) // n_stretches for k in (stretch, stretch + 1))
    return int(n_checked(descriptor, data[first * size : last * size], at + first * size, size, crc[first:last]))


class CheckedFile(io.RawIOBase):
    """A stream of a file that compares the bytes with their checksums.  Reading raises FileChanged."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._at = blocks, 0
        self._kept = 0, 0, np.zeros(0, np.uint8)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._blocks.n_bytes)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        begin, size = self._at, self._blocks.size
        end = min(begin + len(buffer), self._blocks.n_bytes)
        if begin >= end:
            return 0
        start, stop = begin // size, -(-end // size)
        first, last, data = self._kept
        if not first <= start < stop <= last:
            data = self._blocks.read(Path(self._blocks.name), start, stop)
            first = start
            self._kept = (stop - 1, stop, data[(stop - 1 - start) * size :]) if stop - start > 1 else (start, stop, data)
        np.frombuffer(buffer, np.uint8)[: end - begin] = data[begin - first * size : end - first * size]
        self._at = end
        return end - begin
