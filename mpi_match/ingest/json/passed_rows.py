"""Writes rows and text that a program passes as blocks of lines for the scanners.

A row that is an object is written as JSON, which takes less time than one step of Python for every attribute.  A row that
JSON cannot express, or whose JSON would mean something else, becomes a line that no scanner reads.  The scanner leaves such
lines, as all that it does not read itself, to `rows.judge`, which judges the row and not its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import islice
from typing import Any

import numpy as np

from mpi_match.ingest.files.blocks import READ_BYTES, LineBlock, blocks_of
from mpi_match.ingest.json.json_writer import json_writer
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES, trimmed
from mpi_match.model import ModelError, is_null, plain

_ROWS_AT_ONCE = 2**9
"""Number of rows written by one call: few enough that their text stays in cache."""
_MOST_ROWS = 2**14
"""Rows of a block."""
_UNREAD = b"?"
"""A line that every scanner leaves to `rows.judge`."""
_NO_VALUE = 10**30
"""An integer that no attribute has, in place of a value without a form in JSON."""


def blocks_of_rows(rows: Iterable[object]) -> Iterator[LineBlock]:
    """Blocks of one line for each row, with the rows (`LineBlock.objects`); lines are numbered from 0."""
    left, first = iter(rows), 0
    while True:
        objects: list[Any] = []
        pieces: list[bytes] = []
        n_bytes = 0
        while len(objects) < _MOST_ROWS and n_bytes < READ_BYTES and (some := list(islice(left, _ROWS_AT_ONCE))):
            objects += some
            pieces.append(_lines_of(some))
            n_bytes += len(pieces[-1])
        if not objects:
            return
        yield LineBlock(np.frombuffer(bytearray().join(pieces), np.uint8), "", first, objects=objects)
        first += len(objects)


def blocks_of_text(text: bytes | bytearray | memoryview) -> Iterator[LineBlock]:
    """The lines of a text, including blank ones, numbered from 1."""
    source = BytesIO(text)
    return blocks_of(lambda: (source.read(READ_BYTES), None), "")


def _lines_of(rows: list[object]) -> bytes:
    """A line for each row."""
    if all(issubclass(kind, dict) for kind in set(map(type, rows))):
        text = _written(rows)
        if text is not None and len(text) <= MAX_LINE_BYTES:
            is_simple = text.count("},{") == len(rows) - 1  # else some have a list of objects
            lines = text[1:-1].replace("},{", "}\n{") if is_simple else "\n".join(map(_encode, rows))
            try:
                return lines.encode() + b"\n"
            except UnicodeEncodeError:  # one of them has a lone surrogate
                pass
    return b"".join(line + b"\n" for line in map(_line_of, rows))


def _line_of(row: object) -> bytes:
    if isinstance(row, str):
        row = row.encode(errors="surrogatepass")
    if isinstance(row, bytes):
        line = trimmed(row)
        return _UNREAD if b"\n" in line or len(row) > MAX_LINE_BYTES or not line else line
    text = _written([row]) if isinstance(row, Mapping) else None
    if text is None or len(text) > MAX_LINE_BYTES:
        return _UNREAD
    try:
        return text[1:-1].encode()
    except UnicodeEncodeError:
        return _UNREAD


def _written(rows: list[Any]) -> str | None:
    """Objects as a list of JSON; None if JSON would read another name, or cannot be written."""
    try:
        text = _encode(rows)
    except (TypeError, ValueError, RecursionError):  # names of other types, thousands of digits, rows within themselves
        return None
    return text if _have_names(rows, text.count("{") > len(rows)) else None


def _have_names(rows: list[Any], are_nested: bool) -> bool:
    """Tells whether all names of some objects, and of those in them if there are any, are strings."""
    while rows:
        names: set[Any] = set().union(*rows)
        if not all(isinstance(name, str) for name in names):
            return False
        rows = (
            _objects_in([value for row in rows for value in row.values() if type(value) not in _PLAIN]) if are_nested else []
        )
    return True


def _objects_in(values: list[Any]) -> list[Any]:
    """The objects among some values and in the lists among them, at any depth."""
    found: list[Any] = []
    while values:
        found += [value for value in values if isinstance(value, Mapping)]
        lists = [value for value in values if isinstance(value, (list, tuple))]
        values = [value for each in lists for value in each if type(value) not in _PLAIN]
    return found


_PLAIN = frozenset((str, int, float, bool, type(None)))


def _json_value(value: Any) -> Any:
    """A value that JSON lacks, in an equivalent form."""
    if is_null(value):
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__name__ == "ndarray" and value.ndim:
        kind, size = value.dtype.kind, value.dtype.itemsize
        return value.tolist() if kind == "U" or (kind in "biuf" and size <= 8) else list(value)
    try:
        found = plain(value)
    except ModelError:
        return _NO_VALUE
    return _NO_VALUE if found is value else found


_encode = json_writer(_json_value, ascii_only=False)
