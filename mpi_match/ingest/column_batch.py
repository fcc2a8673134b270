"""Consecutive rows of files of columns, as a worker gets them to encode.

The wire form is one contiguous buffer: a header of four 64-bit words, the pieces, and an Arrow stream for each, padded to
eight bytes.  A piece is rows of one file, because files may differ in their columns and types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = 0x31534C4F432D4D  # "M-COLS1" in memory, read as one little-endian word
_HEADER = struct.Struct("<4Q")
COLUMNS_EXTRA_BYTES = 2**12
"""Size of the wire form of a piece beyond its columns, roughly."""


class ColumnBatch(NamedTuple):
    """`n_events` rows in p pieces of files.

    pieces   i64[p, 3]   file, by its number in the index; rows of it before the piece; bytes
    data     u8          an Arrow stream for each piece, end to end, each padded to eight bytes
    """

    n_events: int
    pieces: Array
    data: Array

    @classmethod
    def of(cls, tables: list[tuple[int, int, pa.Table]]) -> ColumnBatch:
        """From the number of a file, the number of its first row, and the rows, of each piece."""
        streams = [_stream_of(table) for _, _, table in tables]
        sizes = [len(stream) + -len(stream) % 8 for stream in streams]
        data = np.zeros(sum(sizes), np.uint8)
        for stream, at in zip(streams, np.cumsum([0, *sizes]).tolist(), strict=False):
            data[at : at + len(stream)] = np.frombuffer(stream, np.uint8)
        pieces = [(file, row, size) for (file, row, _), size in zip(tables, sizes, strict=True)]
        return cls(sum(table.num_rows for _, _, table in tables), np.array(pieces, np.int64).reshape(-1, 3), data)

    def tables(self) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """File, first row and content of each record batch, sharing memory."""
        import pyarrow as pa

        at = 0
        for file, row, n_bytes in self.pieces.tolist():
            with pa.ipc.open_stream(pa.py_buffer(self.data[at : at + n_bytes])) as stream:
                for batch in stream:
                    yield file, row, batch
                    row += batch.num_rows
            at += n_bytes

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        return _HEADER.size + self.pieces.nbytes + len(self.data)

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the batch to the start of `buffer` u8 (or a new one); returns the part that was filled, u8[wire_bytes]."""
        buffer = np.empty(self.wire_bytes, np.uint8) if buffer is None else buffer
        at = _HEADER.size + self.pieces.nbytes
        _HEADER.pack_into(buffer.data, 0, _MAGIC, self.n_events, len(self.pieces), len(self.data))
        buffer[_HEADER.size : at] = np.ascontiguousarray(self.pieces).reshape(-1).view(np.uint8)
        buffer[at : at + len(self.data)] = self.data
        return buffer[: self.wire_bytes]

    @classmethod
    def from_wire(cls, wire: Array) -> ColumnBatch:
        """The batch in a wire form u8, sharing its memory.  Raises ValueError for anything but a whole batch."""
        if len(wire) < _HEADER.size:
            raise ValueError(f"not a batch of columns: {len(wire)} bytes are less than a header")
        magic, n_events, n_pieces, n_bytes = _HEADER.unpack_from(wire.data)
        if magic != _MAGIC:
            raise ValueError(f"not a batch of columns: the first word is {magic:#x}, expected {_MAGIC:#x}")
        at = _HEADER.size + 24 * n_pieces
        if at + n_bytes > len(wire):
            raise ValueError(f"not a whole batch of columns: it has {len(wire):,} bytes, {at + n_bytes:,} are expected")
        pieces = wire[_HEADER.size : at].view(np.int64).reshape(-1, 3)
        return cls(n_events, pieces, wire[at : at + n_bytes])


def _stream_of(table: pa.Table) -> Any:
    """The Arrow stream of a table, without dictionaries that have more entries than the table has rows."""
    import pyarrow as pa

    for i, field in enumerate(table.schema):
        can_be_decoded = pa.types.is_dictionary(field.type) and field.type.value_type != pa.string_view()
        if can_be_decoded and any(len(chunk.dictionary) > max(len(chunk), 1) for chunk in table.column(i).chunks):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
