"""Answers as Arrow: for pandas, polars, DuckDB and every other reader of its C stream interface.

    event        int64
    id           string, null for an event without one; only if events have ids
    interfaces   list of dictionary of strings; for filters (`filters`) list of uint32

The ids of answers are the indices of the dictionary, in their own dtype and not copied; every batch has the same dictionary.
Needs pyarrow, which is imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.matches.matches import Matches

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_EVENTS, BATCH_IDS = 2**16, 2**20
"""Most events of a batch, and most ids in its answers, whichever is reached first; a batch has at least one event."""


def batch_bounds(matches: Matches) -> Iterator[tuple[int, int]]:
    """Yield the first event of each batch, and the one after its last."""
    start = 0
    while start < matches.n_events:
        most_ids = int(matches.offsets[start]) + BATCH_IDS
        stop = int(np.searchsorted(matches.offsets, most_ids, "right")) - 1
        stop = max(start + 1, min(stop, start + BATCH_EVENTS, matches.n_events))
        yield start, stop
        start = stop


class ArrowAnswers:
    """Makes batches of answers of `unit` ("interface" or "filter"); `labels` are the names of interfaces."""

    def __init__(self, unit: str, labels: Strings, n_ids: int) -> None:
        import pyarrow as pa

        self._column = f"{unit}s"
        names = [label.decode() for label in labels] or [str(i) for i in range(n_ids)]
        self._names = None if unit == "filter" else pa.array(names, pa.string())

    def batch(self, first: int, matches: Matches, event_ids: Strings | None, *, decoded: bool = False) -> pa.RecordBatch:
        """The answers of consecutive events, numbered from `first` on; with `decoded`, without a dictionary.

        `event_ids` are the ids of the same events.
        """
        import pyarrow as pa

        if self._names is None:
            values = pa.array(matches.ids.astype(np.uint32))
        else:
            values = pa.DictionaryArray.from_arrays(pa.array(np.ascontiguousarray(matches.ids)), self._names)
            values = values.dictionary_decode() if decoded else values
        columns = {"event": pa.array(np.arange(first, first + len(matches)))}
        if event_ids is not None:
            columns["id"] = _text(event_ids)
        columns[self._column] = pa.ListArray.from_arrays(pa.array(matches.offsets.astype(np.int32)), values)
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def table(self, matches: Matches, event_ids: Strings | None) -> pa.Table:
        """All answers."""
        import pyarrow as pa

        empty = self.batch(0, matches[:0], None if event_ids is None else event_ids.between(0, 0))
        batches = (
            self.batch(start, matches[start:stop], None if event_ids is None else event_ids.between(start, stop))
            for start, stop in batch_bounds(matches)
        )
        return pa.Table.from_batches(batches, empty.schema)


def _text(strings: Strings) -> pa.Array:
    """Strings as an array, with null for empty strings."""
    import pyarrow as pa

    validity = np.packbits(np.diff(strings.offsets) > 0, bitorder="little")
    data = (validity, strings.offsets.astype(np.int32), np.ascontiguousarray(strings.data))
    return pa.Array.from_buffers(pa.string(), len(strings), [pa.py_buffer(each) for each in data])
