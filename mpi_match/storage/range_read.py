"""Reading a range of a file into memory.

Files are read, never mapped: a process that touches a page beyond the end of a mapped file is killed by SIGBUS, and any
other process may truncate a file at any time.  The bytes that are checked are the bytes that are used; a mapped page could
change between the two.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.storage.integrity import FileChanged

Memory = Callable[[int], Array]
"""Gives memory of a number of bytes, u8, with any content, aligned to eight bytes."""


def ordinary_memory(n_bytes: int) -> Array:
    """Memory of the process, for no particular use."""
    return np.empty(n_bytes, np.uint8)


def read_exactly(descriptor: int, data: Array, at: int, name: str) -> None:
    """Fill `data` u8 with the bytes of a file from `at` on.  Raises FileChanged when it has fewer, OSError."""
    left = memoryview(data)  # type: ignore[arg-type]  # NumPy's arrays are buffers
    while left:
        n = os.preadv(descriptor, [left], at)
        if n == 0:
            raise FileChanged(
                f"{name}: was truncated while it was read: it ends at byte {at:,}; start anew with the new one"
            )
        left, at = left[n:], at + n


class StoredRows(NamedTuple):
    """The rows of a contiguous dataset in an open file, `at` its first byte."""

    name: str
    descriptor: int
    at: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def array(self, n_rows: int, memory: Array) -> Array:
        """An array for a number of rows in `memory` u8, which has at least their size."""
        return memory[: n_rows * self.row_bytes].view(self.dtype).reshape(n_rows, *self.shape[1:])

    @property
    def row_bytes(self) -> int:
        """Size of a row, bytes."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def read(self, start: int, rows: Array) -> None:
        """Fill a contiguous array with the rows from `start` on.  Raises FileChanged, OSError."""
        data = rows.reshape(-1).view(np.uint8)
        read_exactly(self.descriptor, data, self.at + start * self.row_bytes, self.name)
