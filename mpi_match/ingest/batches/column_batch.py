"""Rows of files of columns in a `RowBatch`: an Arrow stream for each piece, end to end, each padded to eight bytes.

A piece is rows of one file, because files may differ in their columns and types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.ingest.batches.row_batch import COLUMNS_PIECE, RowBatch

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_EXTRA_BYTES = 2**12
"""Approximate bytes of the wire form of a piece beyond its columns."""


def batch_of_tables(tables: list[tuple[int, int, pa.Table]]) -> RowBatch:
    """Make the batch of some pieces, each given by the number of its file, the number of its first row, and its rows."""
    streams = [_stream_of(table) for _, _, table in tables]
    sizes = [len(stream) + -len(stream) % 8 for stream in streams]
    data = np.zeros(sum(sizes), np.uint8)
    for stream, at in zip(streams, np.cumsum([0, *sizes]).tolist(), strict=False):
        data[at : at + len(stream)] = np.frombuffer(stream, np.uint8)
    pieces = [(file, row, size) for (file, row, _), size in zip(tables, sizes, strict=True)]
    n_rows = sum(table.num_rows for _, _, table in tables)
    return RowBatch(n_rows, np.array(pieces, np.int64).reshape(-1, COLUMNS_PIECE), data)


def tables_of(batch: RowBatch) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """File, first row and content of each record batch, which share memory."""
    import pyarrow as pa

    at = 0
    for file, row, n_bytes in batch.pieces.tolist():
        with pa.ipc.open_stream(pa.py_buffer(batch.data[at : at + n_bytes])) as stream:
            for rows in stream:
                yield file, row, rows
                row += rows.num_rows
        at += n_bytes


def _stream_of(table: pa.Table) -> pa.Buffer:
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
