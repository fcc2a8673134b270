"""Answers as JSON lines, in compiled code: the same bytes as `json.dumps(row, ensure_ascii=False)`.

    {"event": 0, "interfaces": ["mobile-7", "mobile-8"]}
    {"event": 1, "id": "reading-44", "interfaces": []}
    {"event": 2, "interfaces": [], "row": {"temp": 31}}       if rows are requested: the row's own bytes, null if rejected

Each thread writes the lines of a range of events into its own array.  Labels are converted to JSON once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import compile_once, jit, nested
from mpi_match.compute.parallel import in_stretches, stretches_of
from mpi_match.matches.matches import Matches
from mpi_match.texts.characters import (
    BACKSLASH,
    BACKSPACE,
    BLANK,
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COMMA,
    FORM_FEED,
    LINE_FEED,
    LOWER_A,
    LOWER_B,
    LOWER_F,
    LOWER_L,
    LOWER_N,
    LOWER_R,
    LOWER_T,
    LOWER_U,
    QUOTE,
    RETURN,
    TAB,
    ZERO,
)

_LINE_BYTES, _NUMBER_BYTES, _ESCAPED_BYTES = 96, 24, 6
"""Most bytes of a line without ids and labels, of a number with its comma and quotes, and of an escaped byte."""


class LineWriter:
    """Writes the answers of a file of `unit` ("interface" or "filter") as lines.

    `labels` are the names of interfaces; filters are written as their numbers.
    """

    def __init__(self, unit: str, labels: Strings) -> None:
        self._is_number = unit == "filter" or not len(labels)
        self._quotes = unit != "filter"
        self._names = Strings.of(())
        self.name(dict(enumerate(label.decode() for label in labels)))
        key = f', "{unit}s": ['.encode()
        texts = (b'{"event": ', b', "id": ', key, b', "row": ')
        self._texts = tuple(np.frombuffer(bytearray(text), np.uint8) for text in texts)

    def name(self, labels: Mapping[int, str]) -> None:
        """Give these names to interfaces, by id; ids ascend, new ones without gaps."""
        given = Strings.of(json.dumps(label, ensure_ascii=False).encode() for label in labels.values())
        names, n = Strings.concat([self._names, given]), len(self._names)
        ids = np.fromiter(labels, np.int64, len(labels))
        if n_again := int(np.searchsorted(ids, n)):
            of_id = np.delete(np.arange(len(names)), n + np.arange(n_again))
            of_id[ids[:n_again]] = n + np.arange(n_again)
            names = names.take(of_id)
        self._names = Strings(np.array(names.data), names.offsets)  # to Numba, read-only arrays are another type
        self._name_bytes = np.diff(self._names.offsets)

    def fitting(self, matches: Matches, event_ids: Strings | None, event_rows: Strings | None, most_bytes: int) -> int:
        """The number of first events whose lines certainly fit a number of bytes; at least one."""
        n = matches.n_events
        n_bytes = _LINE_BYTES * np.arange(1, n + 1) + _NUMBER_BYTES * matches.offsets[1:]
        if not self._is_number:
            ends = np.cumsum(self._name_bytes[matches.ids], dtype=np.int64)
            n_bytes += np.concatenate(([0], ends))[matches.offsets[1:]]
        if event_ids is not None:
            n_bytes += _ESCAPED_BYTES * event_ids.offsets[1:]
        if event_rows is not None:
            n_bytes += event_rows.offsets[1:]
        return max(1, int(np.searchsorted(n_bytes, most_bytes, side="right")))

    def lines(
        self, first: int, matches: Matches, event_ids: Strings | None, event_rows: Strings | None = None
    ) -> Iterator[Array]:
        """Yield the lines u8 of consecutive events, in pieces; the first event has the number `first`."""
        n, offsets = matches.n_events, matches.offsets
        bounds = [stretch * n // stretches_of(n) for stretch in range(stretches_of(n) + 1)]
        found = matches.ids.astype(np.uint32)  # a single dtype, so that there is one to compile for
        nothing = Strings(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        ids, rows = event_ids or nothing, event_rows or nothing
        pools = (np.array(ids.data), ids.offsets, self._names.data, self._names.offsets, np.array(rows.data), rows.offsets)
        how = (self._is_number, self._quotes, event_ids is not None, event_rows is not None)

        def fill(stretch: int, n_stretches: int) -> Array:
            start, stop = bounds[stretch], bounds[stretch + 1]
            mine = found[offsets[start] : offsets[stop]]
            n_bytes = (stop - start) * _LINE_BYTES + len(mine) * _NUMBER_BYTES
            if not self._is_number:
                n_bytes += int(self._name_bytes[mine].sum())
            if event_ids is not None:
                n_bytes += _ESCAPED_BYTES * int(ids.offsets[stop] - ids.offsets[start])
            if event_rows is not None:
                n_bytes += int(rows.offsets[stop] - rows.offsets[start])
            out = np.empty(n_bytes, np.uint8)
            return out[: _fill(out, (start, stop, first), offsets, found, pools, self._texts, how)]

        yield from in_stretches(n, fill)


def compile_lines() -> None:
    """Compile the function that writes lines."""
    with compile_once("json-lines"):
        nothing = Matches.from_counts(np.zeros(1, np.uint8), np.zeros(0, np.uint8), 1)
        list(LineWriter("filter", Strings.of(())).lines(0, nothing, None))


class LinesOut:
    """Writes answers as JSON lines to `write`, as they arrive."""

    def __init__(self, lines: LineWriter, write: Callable[[Any], object]) -> None:
        self._lines, self._write = lines, write
        self.n_events = self.n_matches = 0

    def append(self, matches: Matches, event_ids: Strings | None = None, event_rows: Strings | None = None) -> None:
        """Write the answers of the next events."""
        for piece in self._lines.lines(self.n_events, matches, event_ids, event_rows):
            self._write(piece.data)
        self.n_events += matches.n_events
        self.n_matches += matches.n_matches


@nested
def put(out: Array, at: int, text: Array, start: int, stop: int) -> int:
    """Append text[start:stop]; returns the index of its end."""
    for i in range(start, stop):
        out[at] = text[i]
        at += 1
    return at


@nested
def put_integer(out: Array, at: int, value: int) -> int:
    """Append the decimal digits of a non-negative number; returns the index of their end."""
    stop, rest = at + 1, value // 10
    while rest:
        stop += 1
        rest //= 10
    i, rest = stop - 1, value
    while i >= at:
        out[i] = ZERO + rest % 10
        rest //= 10
        i -= 1
    return stop


@nested
def _put_string(out: Array, at: int, data: Array, start: int, stop: int) -> int:
    """Append data[start:stop], which is UTF-8, as a JSON string; returns the index of its end."""
    out[at] = QUOTE
    at += 1
    for i in range(start, stop):
        byte = data[i]
        short = 0
        if byte in (QUOTE, BACKSLASH):
            short = byte
        elif byte == BACKSPACE:
            short = LOWER_B
        elif byte == TAB:
            short = LOWER_T
        elif byte == LINE_FEED:
            short = LOWER_N
        elif byte == FORM_FEED:
            short = LOWER_F
        elif byte == RETURN:
            short = LOWER_R
        if short:
            out[at], out[at + 1] = BACKSLASH, short
            at += 2
        elif byte < BLANK:
            out[at], out[at + 1], out[at + 2], out[at + 3] = BACKSLASH, LOWER_U, ZERO, ZERO
            digit = byte & 15
            out[at + 4], out[at + 5] = ZERO + (byte >> 4), digit + (ZERO if digit < 10 else LOWER_A - 10)
            at += 6
        else:
            out[at] = byte
            at += 1
    out[at] = QUOTE
    return at + 1


@nested
def _put_null(out: Array, at: int) -> int:
    """Append null; returns the index of its end."""
    out[at], out[at + 1], out[at + 2], out[at + 3] = LOWER_N, LOWER_U, LOWER_L, LOWER_L
    return at + 4


@jit
def _fill(
    out: Array,
    events: tuple[int, int, int],
    offsets: Array,
    ids: Array,
    pools: tuple[Array, Array, Array, Array, Array, Array],
    texts: tuple[Array, Array, Array, Array],
    how: tuple[bool, bool, bool, bool],
) -> int:
    """Fill `out` with the lines of some events; returns their number of bytes.

    `events`: the first, the one after the last, and the number of event 0.
    """
    start, stop, first = events
    id_data, id_offsets, names, name_offsets, rows, row_offsets = pools
    head, id_key, key, row_key = texts
    is_number, quotes, has_ids, has_rows = how
    at = 0
    for event in range(start, stop):
        at = put_integer(out, put(out, at, head, 0, len(head)), first + event)
        if has_ids:
            at = put(out, at, id_key, 0, len(id_key))
            begin, end = id_offsets[event], id_offsets[event + 1]
            if begin == end:
                at = _put_null(out, at)
            else:
                at = _put_string(out, at, id_data, begin, end)
        at = put(out, at, key, 0, len(key))
        for k in range(offsets[event], offsets[event + 1]):
            if k > offsets[event]:
                out[at], out[at + 1] = COMMA, BLANK
                at += 2
            if is_number:
                if quotes:
                    out[at] = QUOTE
                    at += 1
                at = put_integer(out, at, int(ids[k]))
                if quotes:
                    out[at] = QUOTE
                    at += 1
            else:
                at = put(out, at, names, name_offsets[ids[k]], name_offsets[ids[k] + 1])
        out[at] = CLOSE_BRACKET
        at += 1
        if has_rows:
            at = put(out, at, row_key, 0, len(row_key))
            begin, end = row_offsets[event], row_offsets[event + 1]
            at = put(out, at, rows, begin, end) if begin < end else _put_null(out, at)
        out[at], out[at + 1] = CLOSE_BRACE, LINE_FEED
        at += 2
    return at
