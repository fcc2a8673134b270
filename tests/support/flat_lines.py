"""The scanner of flat lines, which only other compiled code calls, as a function that Python can call."""

from __future__ import annotations

import numpy as np

from mpi_match.compute.compile_cache import jit
from mpi_match.ingest.codes.code_tables import hashed, n_atoms_of
from mpi_match.ingest.json import to_codes
from mpi_match.ingest.json.event_scanner import ThreadArrays
from mpi_match.ingest.json.flat_cpu import NOT_FLAT, FlatLines
from mpi_match.ingest.rows.judge import PLAIN
from mpi_match.table.vocabulary import Vocabulary


@jit
def scan_flat_line(data: int, at: int, stop: int, attributes: int, flat: object, tables: int, work: int) -> object:
    return to_codes._scan_flat_line(data, at, stop, attributes, flat, tables, work)  # type: ignore[arg-type]


def taken(line: bytes, vocabulary: Vocabulary, behind: int = 160) -> tuple[int, list[int]]:
    """The end of a line that is scanned as a flat one, in bytes from its first, or NOT_FLAT, and its packed attributes;
    `behind` bytes of the buffer follow the line."""
    tables = hashed(vocabulary, PLAIN)
    n_atoms = n_atoms_of(tables)
    flat, work = FlatLines(tables.arrays), ThreadArrays(4096, n_atoms, n_atoms)
    data = np.frombuffer(bytearray(b"\n\n\n" + line + b"\n" + b" " * 160), np.uint8)
    stop = 3 + len(line) + 1 + behind
    attributes = work.arrays[to_codes.PACKED_ATTRIBUTES]
    end, n = scan_flat_line(data.ctypes.data, 3, stop, attributes.ctypes.data, flat.tables, tables.address, work.address)
    return (end if end == NOT_FLAT else end - 3), attributes[:n].tolist()
