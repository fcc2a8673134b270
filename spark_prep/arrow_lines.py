"""Converts lines in Arrow columns to the form that the scanners read: end to end, each with its line feed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mpi_match.arrays.csr import Array
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES

_LINE_FEED = ord("\n")


def joined_lines(column: pa.Array) -> Array | None:
    """The lines of a column of bytes, u8; None for another column, or one with a line of more than `MAX_LINE_BYTES` or with
    a line feed in it, which no scanner reads.
    """
    if not pa.types.is_binary(column.type) or column.null_count or not len(column):
        return None
    if pc.max(pc.binary_length(column)).as_py() > MAX_LINE_BYTES:
        return None
    whole = pa.concat_arrays([column, pa.array([b""])])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(whole)], pa.int32()), whole), b"\n")
    lines: Array = np.frombuffer(joined.buffers()[2], np.uint8)
    return lines if np.count_nonzero(lines == _LINE_FEED) == len(column) else None
