"""Reading a large dataset by several threads, past HDF5, which has one lock for all.

    file       ... | chunk 0 | sum | chunk 1 | sum | ...        as `Writer.array` writes it: fletcher32 behind each chunk
    threads    0 0 0 0 1 1 1 1 ...                              each reads a run of chunks, and makes their CRC

The CRC of the dataset, combined from those of the runs, covers the same bytes as the sums of the chunks.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

from isal.isal_zlib import crc32, crc32_combine

from mpi_match.arrays.csr import Array
from mpi_match.storage.integrity import bytes_of
from mpi_match.storage.structure import Stored

LARGE_BYTES = 2**27
"""Least bytes of a dataset that several threads read."""
_SUM_BYTES = 4


def read_large(stored: Stored, handle: int, values: Array) -> int | None:
    """Fill `values`, of the shape and type of the dataset, and return their CRC-32; `handle` is of the open file.

    None where the chunks are not laid out as `Writer.array` does; then nothing is read.  Raises OSError when the file ends
    before a chunk does.
    """
    chunk = stored.id.get_create_plist().get_chunk() if not stored.contiguous else None
    if chunk is None or chunk[1:] != stored.shape[1:]:
        return None
    n_bytes = math.prod(chunk) * stored.dtype.itemsize
    begins: dict[int, int] = {}  # of chunks in the file, by their numbers
    kept = [True]

    def note(each: Any) -> None:
        kept[0] &= each.filter_mask == 0 and each.size == n_bytes + _SUM_BYTES
        begins[each.chunk_offset[0] // chunk[0]] = each.byte_offset

    stored.id.chunk_iter(note)
    n_chunks = -(-stored.shape[0] // chunk[0])
    if not kept[0] or begins.keys() != set(range(n_chunks)):
        return None
    whole = bytes_of(values)
    n_threads = min(len(os.sched_getaffinity(0)), n_chunks)

    def read(thread: int) -> tuple[int, int]:
        """Read a run of chunks; their CRC, and their bytes."""
        crc = n_read = 0
        for number in range(thread * n_chunks // n_threads, (thread + 1) * n_chunks // n_threads):
            piece = whole[number * n_bytes : (number + 1) * n_bytes]
            if os.preadv(handle, [piece], begins[number]) != len(piece):
                raise OSError(f"chunk {number} is incomplete")
            crc, n_read = crc32(piece, crc), n_read + len(piece)
        return crc, n_read

    with ThreadPoolExecutor(n_threads, "large-dataset") as threads:
        found = list(threads.map(read, range(n_threads)))
    return int(reduce(lambda crc, run: crc32_combine(crc, *run), found, 0))
