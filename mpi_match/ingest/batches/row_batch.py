"""Consecutive rows of files, of lines or of columns, in the form in which a worker gets them.

The wire form is one contiguous buffer: a header of five 64-bit words, the pieces, and the rows, padded to eight bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array

LINES_PIECE, COLUMNS_PIECE = 5, 3
"""Words that describe a piece of lines, and one of columns."""
_MAGIC = 0x3153574F522D4D  # "M-ROWS1" in memory, read as one little-endian word
_HEADER = struct.Struct("<5Q")
LINES_EXTRA_BYTES = _HEADER.size + LINES_PIECE * 8 + 8
"""Largest size of the wire form of one piece of lines beyond these."""


class RowBatch(NamedTuple):
    """`n_events` rows, each of which has the number of an event, in p pieces of files.

    pieces   i64[p, LINES_PIECE]     file, by its number in the index; lines of it before the piece; lines; bytes; is it the
                                     beginning of one overlong line, without a line feed?
             i64[p, COLUMNS_PIECE]   file; rows of it before the piece; bytes
    data     u8   the pieces end to end: blank lines too, each line with its line feed; or an Arrow stream for each piece
                  (`column_batch`)
    """

    n_events: int
    pieces: Array
    data: Array

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        return _HEADER.size + self.pieces.nbytes + -(-len(self.data) // 8) * 8

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the batch to the start of `buffer` u8 (or a new one); returns the part that was filled, u8[wire_bytes]."""
        buffer = np.empty(self.wire_bytes, np.uint8) if buffer is None else buffer
        pieces = np.ascontiguousarray(self.pieces, np.int64)
        at = _HEADER.size + pieces.nbytes
        _HEADER.pack_into(buffer.data, 0, _MAGIC, self.n_events, *pieces.shape, len(self.data))
        buffer[_HEADER.size : at] = pieces.reshape(-1).view(np.uint8)
        buffer[at : at + len(self.data)] = self.data
        return buffer[: self.wire_bytes]

    @classmethod
    def from_wire(cls, wire: Array) -> RowBatch:
        """The batch in a wire form u8, sharing its memory.  Raises ValueError for anything but a whole batch."""
        if len(wire) < _HEADER.size:
            raise ValueError(f"not a batch of rows: {len(wire)} bytes are less than a header")
        magic, n_events, n_pieces, n_words, n_bytes = _HEADER.unpack_from(wire.data)
        if magic != _MAGIC:
            raise ValueError(f"not a batch of rows: the first word is {magic:#x}, expected {_MAGIC:#x}")
        at = _HEADER.size + 8 * n_words * n_pieces
        if at + n_bytes > len(wire):
            raise ValueError(f"not a whole batch of rows: it has {len(wire):,} bytes, {at + n_bytes:,} are expected")
        return cls(n_events, wire[_HEADER.size : at].view(np.int64).reshape(n_pieces, n_words), wire[at : at + n_bytes])
