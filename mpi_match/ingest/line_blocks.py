"""Files of lines, read in blocks of whole lines: the content of `rows.read_lines`, which reads line by line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.ingest.rows import MAX_LINE_BYTES
from mpi_match.model import ModelError

PACKED_ENDING = ".gz"
READ_BYTES = 2**22
"""Bytes of a block, besides those of a line that began in the block before; at most MAX_LINE_BYTES."""


class LineBlock(NamedTuple):
    """Consecutive lines of a file.

    data         u8, each line with its line feed, also the last; of an overlong line the beginning without one
    file         absolute path
    first_line   number of the first line, counted from 1
    overlong     is this one line of more than MAX_LINE_BYTES?
    """

    data: Array
    file: str
    first_line: int
    overlong: bool = False


def read_blocks(paths: Iterable[Path]) -> Iterator[LineBlock]:
    """The lines of files, blank ones too, files in the order of their paths; `.gz` is decompressed.

    A line longer than `MAX_LINE_BYTES` is cut to one byte more than that.  Raises ModelError for a compressed file that is
    damaged or truncated, after the lines before the damage; OSError.
    """
    for path in sorted(paths):
        with gzip.open(path, "rb") if path.suffix == PACKED_ENDING else path.open("rb") as handle:
            yield from _blocks_of(cast(BufferedReader, handle), path)


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a packed file, in pieces.  Raises ModelError when it is damaged or truncated, OSError."""
    with gzip.open(path, "rb") as handle:
        failed = None
        while failed is None:
            more, failed = _read(cast(BufferedReader, handle), path)
            if not more and failed is None:
                return
            yield more
        raise failed


def _blocks_of(handle: BufferedReader, path: Path) -> Iterator[LineBlock]:
    file, first_line, begun = str(path.absolute()), 1, b""
    while True:
        more, failed = _read(handle, path)
        data = bytearray(begun)
        data += more
        if len(data) > MAX_LINE_BYTES and data.find(b"\n", 0, MAX_LINE_BYTES + 1) < 0:
            yield LineBlock(np.frombuffer(data[: MAX_LINE_BYTES + 1], np.uint8), file, first_line, overlong=True)
            first_line += 1
            while failed is None and more and b"\n" not in more:
                more, failed = _read(handle, path)
            data = bytearray(more.partition(b"\n")[2])
        at_end = not more and failed is None
        if at_end and data:
            data += b"\n"
        whole = data.rfind(b"\n") + 1
        if whole:
            yield LineBlock(np.frombuffer(data, np.uint8)[:whole], file, first_line)
            first_line += data.count(b"\n")
        if failed is not None:
            raise failed
        if at_end:
            return
        begun = bytes(data[whole:])


def _read(handle: BufferedReader, path: Path) -> tuple[bytes, ModelError | None]:
    """The next READ_BYTES, or the rest; and the error of the bytes after them."""
    pieces, missing = [], READ_BYTES
    try:
        while missing and (piece := handle.read1(missing)):
            pieces.append(piece)
            missing -= len(piece)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        found = ModelError(f"{path}: is not a whole gzip file: {error}")
        found.__cause__ = error
        return b"".join(pieces), found
    return b"".join(pieces), None
