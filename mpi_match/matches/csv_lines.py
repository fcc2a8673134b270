"""Answers as CSV, in compiled code: a record for each event and interface, so that it can be joined.

    event,id,interface
    0,reading-43,mobile-7
    0,reading-43,mobile-8
    1,reading-44,                an event without matches has one record, without an interface
    2,reading-45,""              an interface whose label is the empty text

The column `id` exists only if events have ids.  For matched filters the last column is `filter`, their numbers in the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import jit, nested
from mpi_match.compute.parallel import in_stretches, stretches_of
from mpi_match.matches.json_lines import put, put_integer
from mpi_match.matches.matches import Matches
from mpi_match.texts.characters import COMMA, LINE_FEED

_RECORD_BYTES = 48
"""Most bytes of a record without its id and label."""


class CsvWriter:
    """Writes the answers of a file of `unit` ("interface" or "filter"); `labels` are the names of interfaces."""

    def __init__(self, unit: str, labels: Strings) -> None:
        self._unit, self._is_number = unit, unit == "filter" or not len(labels)
        names = Strings.of(_cell(label) or b'""' for label in labels)
        self._names = Strings(np.array(names.data), names.offsets)  # to Numba, read-only arrays are another type

    def head(self, with_ids: bool) -> bytes:
        """The header."""
        return f"event,{'id,' if with_ids else ''}{self._unit}\n".encode()

    def lines(self, first: int, matches: Matches, event_ids: Strings | None) -> Iterator[Array]:
        """Yield the records u8 of consecutive events, in pieces; the first event has the number `first`."""
        n, offsets, found = matches.n_events, matches.offsets, matches.ids.astype(np.uint32)
        bounds = [stretch * n // stretches_of(n) for stretch in range(stretches_of(n) + 1)]
        ids = Strings.of(map(_cell, event_ids or ()))
        ids = Strings(np.array(ids.data), ids.offsets)
        pools = (ids.data, ids.offsets, self._names.data, self._names.offsets)
        how = (self._is_number, event_ids is not None)

        def fill(stretch: int, n_stretches: int) -> Array:
            start, stop = bounds[stretch], bounds[stretch + 1]
            n_records = np.maximum(np.diff(offsets[start : stop + 1]), 1)
            n_bytes = int(n_records.sum()) * _RECORD_BYTES
            if not self._is_number:
                n_bytes += int(np.diff(self._names.offsets)[found[offsets[start] : offsets[stop]]].sum())
            if event_ids is not None:
                n_bytes += int((n_records * np.diff(ids.offsets[start : stop + 1])).sum())
            out = np.empty(n_bytes, np.uint8)
            return out[: _fill(out, (start, stop, first), offsets, found, pools, how)]

        yield from in_stretches(n, fill)


def _cell(text: bytes) -> bytes:
    """The text as a cell of CSV, quoted if necessary."""
    if any(special in text for special in (b'"', b",", b"\n", b"\r")):
        return b'"' + text.replace(b'"', b'""') + b'"'
    return text


@nested
def _put_head(out: Array, at: int, event: int, id_: tuple[int, int], ids: Array, with_ids: bool) -> int:
    """Append the cells before the last; returns the index of their end."""
    at = put_integer(out, at, event)
    out[at] = COMMA
    at += 1
    if with_ids:
        at = put(out, at, ids, id_[0], id_[1])
        out[at] = COMMA
        at += 1
    return at


@jit
def _fill(
    out: Array,
    events: tuple[int, int, int],
    offsets: Array,
    found: Array,
    pools: tuple[Array, Array, Array, Array],
    how: tuple[bool, bool],
) -> int:
    """Fill `out` with the records of some events; returns their number of bytes.

    `events`: the first, the one after the last, and the number of event 0.
    """
    start, stop, first = events
    ids, id_offsets, names, name_offsets = pools
    is_number, with_ids = how
    at = 0
    for event in range(start, stop):
        id_ = (id_offsets[event], id_offsets[event + 1]) if with_ids else (0, 0)
        for k in range(offsets[event], max(offsets[event + 1], offsets[event] + 1)):
            at = _put_head(out, at, first + event, id_, ids, with_ids)
            if k < offsets[event + 1]:
                if is_number:
                    at = put_integer(out, at, int(found[k]))
                else:
                    at = put(out, at, names, name_offsets[found[k]], name_offsets[found[k] + 1])
            out[at] = LINE_FEED
            at += 1
    return at
