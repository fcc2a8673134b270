"""Turns one event at a time, an object or its JSON text, into a batch within microseconds.

A text is scanned (`scanner`) in place, into arrays that are made once.  A dict of plain entries is written as JSON and
scanned: that takes less time than one step of Python for every attribute.  `rows` judges the texts that the scanner flags,
and every other object, so the event, or the reason for its rejection, is always that of `rows`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from mpi_match.compute.compile_cache import compile_once
from mpi_match.compute.memory import AddressTable
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.codes.code_tables import has_atoms, hashed, n_atoms_of
from mpi_match.ingest.json import to_codes
from mpi_match.ingest.json.event_scanner import ThreadArrays
from mpi_match.ingest.json.flat_cpu import flat_lines
from mpi_match.ingest.json.json_writer import json_writer
from mpi_match.ingest.rows import judge
from mpi_match.ingest.rows.judge import EventForm, event_of_row, names_of, parse_json, trimmed
from mpi_match.table.vocabulary import Vocabulary

_FIRST_BYTES = 2**12
_MOST_DEPTH = 16
"""Most levels of nested objects and lists."""
_PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types with JSON that is read as the same value; subclasses may be written differently."""
_write = json_writer(ascii_only=True)


class RowScanner:
    """Reads rows, one at a time, into the code space of a vocabulary.

    A batch that it returns shares its memory, and is valid until the next one.  So each thread needs a scanner of its own
    (`another`).
    """

    def __init__(self, vocabulary: Vocabulary, form: EventForm) -> None:
        self._vocabulary, self._form = vocabulary, form
        self._is_narrow = vocabulary.packed_dtype == np.uint32
        with compile_once("scanner-atoms" if has_atoms(vocabulary) else "scanner"):
            self._tables = hashed(vocabulary, form)
            self._flat = flat_lines(vocabulary, form)
            self._make(_FIRST_BYTES)
            self._scan(b"{}")

    def another(self) -> RowScanner:
        """Another scanner, which shares the tables, but not the memory for rows."""
        found = copy.copy(self)
        found._make(_FIRST_BYTES)
        return found

    def _make(self, n_bytes: int) -> None:
        """Arrays for rows of at most `n_bytes` bytes."""
        n_atoms = n_atoms_of(self._tables)
        self._work = ThreadArrays(n_bytes, n_atoms, n_atoms)
        self._data = np.empty(n_bytes, np.uint8)
        self._view = memoryview(self._data)  # type: ignore[arg-type]  # NumPy's arrays are buffers
        self._address, self._n_bytes = self._data.ctypes.data, n_bytes
        n_attributes = len(self._work.arrays[to_codes.PACKED_ATTRIBUTES])
        self._offsets, self._location = np.zeros(2, np.uint32), np.full((1, 2), np.nan)
        self._attributes = np.empty(n_attributes, self._vocabulary.packed_dtype)
        self._to = AddressTable((self._offsets, self._attributes, self._location))

    def batch(self, row: Mapping[str, object] | bytes | str) -> EventBatch:
        """The batch of one event: a row as an object, or as JSON.  Raises ModelError."""
        if type(row) is str:
            row = row.encode(errors="surrogatepass")
        if type(row) is bytes:
            found = self._scan(row)
        else:
            found = self._scan(_write(row).encode()) if type(row) is dict and _is_plain(row, _MOST_DEPTH) else None
        return self._judged(row) if found is None else found

    def _scan(self, text: bytes) -> EventBatch | None:
        """The batch of a text; None if the scanner flags it, or if it has line feeds, which would end a row."""
        n = len(text)
        if b"\n" in text or n > judge.MAX_LINE_BYTES:
            return None
        if n >= self._n_bytes:
            self._make(2 * n)
        self._view[:n] = text
        self._view[n] = 10
        to_codes.scan_lines(self._address, 0, n + 1, self._tables.address, self._flat.tables, self._work.address)
        counts = self._work.arrays[to_codes.SCAN_COUNTS].tolist()
        if counts[to_codes.ROWS] != 1 or counts[to_codes.N_FLAGGED]:
            return None
        to_codes.collect(self._work.address, 0, 0, self._to.address, self._is_narrow)
        location = self._location if counts[to_codes.N_LOCATED] else None
        attributes = self._attributes[: counts[to_codes.N_ATTRIBUTES]]
        return EventBatch(self._offsets, attributes, location, self._vocabulary.fingerprint)

    def _judged(self, row: object) -> EventBatch:
        found = parse_json(trimmed(row)) if isinstance(row, bytes) else row
        return Events.of([event_of_row(found, self._form, names_of(self._vocabulary, self._form))]).encode(self._vocabulary)


def _is_plain(row: dict[Any, Any], depth: int) -> bool:
    """Tells whether a value is an object of plain entries, and of lists and objects of such, with strings as names and at
    most `depth` levels of objects and lists."""
    for name, value in row.items():
        if type(name) is not str or (type(value) not in _PLAIN and not _is_nested(value, depth)):
            return False
    return True


def _is_nested(value: object, depth: int) -> bool:
    """Tells whether an entry is a list or object of plain entries."""
    if depth == 1:
        return False
    if type(value) is dict:
        return _is_plain(value, depth - 1)
    return type(value) is list and all(type(each) in _PLAIN or _is_nested(each, depth - 1) for each in value)
