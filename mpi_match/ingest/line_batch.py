"""Consecutive rows of JSON lines files, as a worker gets them to scan.

The wire form is one contiguous buffer: a header of four 64-bit words, the pieces, and the lines, padded to eight bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array

_MAGIC = 0x3153454E494C2D4D  # "M-LINES1" in memory, read as one little-endian word
_HEADER = struct.Struct("<4Q")
LINES_EXTRA_BYTES = _HEADER.size + 5 * 8 + 8
"""Largest size of the wire form of one piece beyond its lines."""


class LineBatch(NamedTuple):
    """`n_rows` rows in p pieces of files.

    pieces   i64[p, 5]   file, by its number in the index; lines of it before the piece; lines; bytes; is it the beginning of
                         one overlong line, without a line feed?
    data     u8          the pieces end to end; blank lines too, each line with its line feed
    """

    n_rows: int
    pieces: Array
    data: Array

    @property
    def n_events(self) -> int:
        """Every row has the number of an event."""
        return self.n_rows

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        return _HEADER.size + self.pieces.nbytes + -(-len(self.data) // 8) * 8

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the batch to the start of `buffer` u8 (or a new one); returns the part that was filled, u8[wire_bytes]."""
        buffer = np.empty(self.wire_bytes, np.uint8) if buffer is None else buffer
        pieces = np.ascontiguousarray(self.pieces, np.int64)
        at = _HEADER.size + pieces.nbytes
        _HEADER.pack_into(buffer.data, 0, _MAGIC, self.n_rows, len(pieces), len(self.data))
        buffer[_HEADER.size : at] = pieces.reshape(-1).view(np.uint8)
        buffer[at : at + len(self.data)] = self.data
        return buffer[: self.wire_bytes]

    @classmethod
    def from_wire(cls, wire: Array) -> LineBatch:
        """The batch in a wire form u8, sharing its memory.  Raises ValueError for anything but a whole batch."""
        if len(wire) < _HEADER.size:
            raise ValueError(f"not a batch of lines: {len(wire)} bytes are less than a header")
        magic, n_rows, n_pieces, n_bytes = _HEADER.unpack_from(wire.data)
        if magic != _MAGIC:
            raise ValueError(f"not a batch of lines: the first word is {magic:#x}, expected {_MAGIC:#x}")
        at = _HEADER.size + 40 * n_pieces
        if at + n_bytes > len(wire):
            raise ValueError(f"not a whole batch of lines: it has {len(wire):,} bytes, {at + n_bytes:,} are expected")
        pieces = wire[_HEADER.size : at].view(np.int64).reshape(-1, 5)
        return cls(n_rows, pieces, wire[at : at + n_bytes])
