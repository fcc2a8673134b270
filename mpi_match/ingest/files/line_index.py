"""An index of the rows of JSON lines files by blocks of bytes, made in one pass, which parses nothing.

    bytes of a file      │ block 0        │ block 1        │ block 2
    lines                ──────┬───────┬────┬──────────────────┬──────
    rows that begin      0     1       2 │  3             │    4

A row is a line that is not blank; it belongs to the block that it begins in.  So any row is found by a search among the
blocks and a walk within one, and any range of rows is a range of bytes.  The pass also takes the CRC-32 of every block.  Any
process that reads a block later, on any host, compares it, so a file that was changed, truncated or exchanged is never taken
for the indexed one.  The digest of the sizes and checksums identifies the content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.ingest.rows import judge
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.storage import FileChanged
from mpi_match.storage.range_read import read_exactly

BLOCK_BYTES = 2**18
"""Bytes of a block; fewer than `MAX_LINE_BYTES`."""
_BLOCKS_AT_ONCE = 16
"""Blocks that a thread reads at once: 4 MiB, which stay in a core's cache."""


class LineIndex(NamedTuple):
    """Index of f files with b blocks.

    files         absolute paths, ascending
    n_bytes       i64[f]
    first_block   i64[f + 1]
    crc           u32[b]        CRC-32 of each block
    first_row     i64[b + 1]    judge, of all files, that begin before each block
    first_line    i64[b]        lines of the file that begin before each block
    first_at      i64[b]        where in the file the first line of each block begins; -1: none begins in it
    overlong      i64[o, 3]     lines of more than `MAX_LINE_BYTES`: file, where it begins, where it ends, behind its line
                                feed
    digest        SHA-256 that identifies the content of the files, and the form in which their rows are read
    """

    files: Sequence[str]
    n_bytes: Array
    first_block: Array
    crc: Array
    first_row: Array
    first_line: Array
    first_at: Array
    overlong: Array
    digest: str

    @property
    def n_rows(self) -> int:
        """Number of rows in all files."""
        return int(self.first_row[-1])


class _FileBlocks(NamedTuple):
    """The columns of an index for one file: u32[b], then i64[b]; `overlong` i64[o, 2]."""

    n_bytes: int
    crc: Array
    n_rows: Array
    n_lines: Array
    first_at: Array
    overlong: Array


def index_lines(files: Sequence[str], sources: Sequence[Path], form: EventForm) -> LineIndex:
    """Index files by reading them from `sources`, which may be other paths to the same content.

    Raises OSError, and FileChanged for a file that shrinks meanwhile; lines that are appended meanwhile are left out.
    """
    from mpi_match.ingest.files.line_pass import compile_pass  # loads Numba

    compile_pass()
    found = [_index_file(source, name) for name, source in zip(files, sources, strict=True)]
    n_bytes = np.array([each.n_bytes for each in found], np.int64)
    crc = np.concatenate([each.crc for each in found])
    digest = hashlib.sha256(repr((form.location, form.id, n_bytes.tolist())).encode())
    digest.update(crc.astype("<u4").tobytes())
    return LineIndex(
        list(files),
        n_bytes,
        np.array([0, *accumulate(len(each.crc) for each in found)], np.int64),
        crc,
        offsets_of(np.concatenate([each.n_rows for each in found])),
        np.concatenate([np.cumsum(each.n_lines) - each.n_lines for each in found]),
        np.concatenate([each.first_at for each in found]),
        np.concatenate([np.insert(each.overlong, 0, number, axis=1) for number, each in enumerate(found)]),
        digest.hexdigest(),
    )


def _index_file(source: Path, name: str) -> _FileBlocks:
    from mpi_match.compute.parallel import in_stretches
    from mpi_match.ingest.files.line_pass import N_KEPT, N_MEASURES, N_OVERLONG, end, index_bytes, index_measured

    with source.open("rb", buffering=0) as handle:
        file = _File(handle.fileno(), name, os.fstat(handle.fileno()).st_size)
        n_blocks, most = -(-file.n_bytes // BLOCK_BYTES), judge.MAX_LINE_BYTES
        crc, measures = np.zeros(n_blocks, np.uint32), np.zeros((n_blocks, N_MEASURES), np.int64)
        n_pieces = -(-n_blocks // _BLOCKS_AT_ONCE)
        in_stretches(n_pieces, file.measure, crc, measures, least=1)
        n_rows, n_lines, first_at = (
            np.zeros(n_blocks, np.int64),
            np.zeros(n_blocks, np.int64),
            np.full(n_blocks, -1, np.int64),
        )
        overlong = np.empty((file.n_bytes // most + 1, 2), np.int64)
        columns, state, block = (n_rows, n_lines, first_at, overlong), np.zeros(N_KEPT, np.int64), 0
        while (block := index_measured(measures, block, BLOCK_BYTES, most, state, columns)) < n_blocks:
            index_bytes(file.again(block, crc), block, BLOCK_BYTES, most, state, columns)
            block += 1
        end(file.n_bytes, most, state, columns)
    return _FileBlocks(file.n_bytes, crc, n_rows, n_lines, first_at, overlong[: state[N_OVERLONG]])


class _File(NamedTuple):
    """An open file, called `name`."""

    descriptor: int
    name: str
    n_bytes: int

    def measure(self, stretch: int, n_stretches: int, crc: Array, measures: Array) -> None:
        """Fill `crc` and `measures` for every n-th piece of _BLOCKS_AT_ONCE blocks."""
        from mpi_match.compute.checksum import is_compiled
        from mpi_match.ingest.files.line_pass import measure_blocks, read_measured

        size = _BLOCKS_AT_ONCE * BLOCK_BYTES
        buffer = np.empty(min(size, self.n_bytes), np.uint8)
        for at in range(stretch * size, self.n_bytes, n_stretches * size):
            data = buffer[: min(size, self.n_bytes - at)]
            first = at // BLOCK_BYTES
            stop = first + -(-len(data) // BLOCK_BYTES)
            found = self.descriptor, data, at, BLOCK_BYTES, crc[first:stop], measures[first:stop]
            if is_compiled and read_measured(*found):
                continue
            read_exactly(self.descriptor, data, at, self.name)
            for block, start in enumerate(range(0, len(data), BLOCK_BYTES), first):
                crc[block] = crc32(data[start : start + BLOCK_BYTES].data)
            measure_blocks(data, BLOCK_BYTES, measures[first:stop])

    def again(self, block: int, crc: Array) -> Array:
        """The bytes of a block.  Raises FileChanged if they are not those that were measured."""
        data = np.empty(min(BLOCK_BYTES, self.n_bytes - block * BLOCK_BYTES), np.uint8)
        read_exactly(self.descriptor, data, block * BLOCK_BYTES, self.name)
        if crc32(data.data) != crc[block]:
            raise FileChanged(f"{self.name}: changed while it was read; start anew with the new one")
        return data
