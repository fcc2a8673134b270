"""Encodes record batches of Arrow into the code space of a vocabulary: by columns, or event by event if elements matter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import REJECTED, EventBatch
from mpi_match.ingest.columns.arrow import NeededColumns, read_columns
from mpi_match.ingest.columns.to_codes import ColumnEncoder
from mpi_match.ingest.columns.to_events import events_of_chunk
from mpi_match.ingest.columns.typed import ColumnChunk
from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.table.virtual_names import attribute_of
from mpi_match.table.vocabulary import Vocabulary


class EncodedRows(NamedTuple):
    """The events of a record batch.

    batch             with the rejected rows
    ids, identified   as in `ReadColumns`
    bad               the rejected rows, the reason for each, and their needed columns
    """

    batch: EventBatch
    ids: Strings | None
    identified: bool
    bad: list[tuple[int, str, dict[str, object]]]


class ArrowEncoder:
    """Encodes record batches for a vocabulary that does not ask for whole rows; compiles when it is created."""

    def __init__(
        self, vocabulary: Vocabulary, form: EventForm, threads: int | None = None, *, with_ids: bool = True
    ) -> None:
        assert not vocabulary.asks_of_rows, "its columns are read as rows"
        self._vocabulary, self._form, self._threads, self._with_ids = vocabulary, form, threads, with_ids
        self._events: EventsEncoder | None = None
        self._columns = ColumnEncoder(vocabulary, form.location, threads)
        self._by_events = {attribute_of(name)[0] for name in (*vocabulary.element_names, *vocabulary.judged_names)}
        self._of_nulls = {vocabulary.names[int(name)].decode() for name in np.flatnonzero(vocabulary.null_atoms >= 0)}

    def nothing(self) -> EventBatch:
        """No events."""
        return self._columns.encode(ColumnChunk(0, {}))

    def encode(self, rows: pa.RecordBatch, needed: NeededColumns) -> EncodedRows:
        """The events of the needed columns.  Raises ModelError for strings that are not UTF-8."""
        chunk, ids, identified, bad = read_columns(rows, needed, self._form, with_ids=self._with_ids)
        if chunk.lists or not self._by_events.isdisjoint(needed.paths):
            self._events = self._events or EventsEncoder(self._vocabulary, self._threads)
            batch = self._events.encode(events_of_chunk(self._asked(chunk), list(needed.paths), self._form))
        else:
            batch = self._columns.encode(chunk)
        if bad:
            batch.rejected = np.array([row for row, _ in bad], REJECTED)
        arrays = needed.arrays(rows) if bad else {}
        shown = [{name: array[row].as_py() for name, array in arrays.items()} for row, _ in bad]
        return EncodedRows(batch, ids, identified, [(*each, values) for each, values in zip(bad, shown, strict=True)])

    def _asked(self, chunk: ColumnChunk) -> ColumnChunk:
        """The chunk without nulls that no constraint asks for."""
        columns = {
            name: each if name in self._of_nulls else each._replace(nulls=None) for name, each in chunk.columns.items()
        }
        lists = {name: each if name in self._of_nulls else each._replace(nulls=None) for name, each in chunk.lists.items()}
        return chunk._replace(columns=columns, lists=lists)
