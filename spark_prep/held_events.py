"""The events of a task, until they are written as a part of an event table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.ingest.columns.arrow import NeededColumns
from mpi_match.ingest.columns.arrow_to_events import event_of_columns, events_of_batch
from mpi_match.ingest.files.blocks import LineBlock, rows_of_block
from mpi_match.ingest.files.line_pass import count_line_feeds
from mpi_match.ingest.json.encode_events import EventsEncoder
from mpi_match.ingest.json.event_scanner import judged_events
from mpi_match.ingest.json.join_events import JoinedEvents
from mpi_match.ingest.json.line_columns import LineColumns
from mpi_match.ingest.rows.judge import EventForm, Reject, event_judge
from mpi_match.model import Event, Json, ModelError
from mpi_match.table.vocabulary import Vocabulary
from spark_prep.part_files import PartFiles, WrittenPart, partition_id

FEW_ROWS = 200
"""Number of rows of a task that are judged before anything is compiled for them."""


class HeldEvents:
    """Takes rows as lines, as columns or one by one; bad rows are held as rejected rows, and counted: `n_bad`.

    `needed` is what `arrow_to_events.events_of_batch` calls `required`; `opaque` are names of
    columns that are not read and may have named values in them.  More than FEW_ROWS rows are encoded by the encoder.
    """

    def __init__(
        self, form: EventForm, needed: frozenset[str], opaque: Iterable[str], encoder: Callable[[], EventsEncoder]
    ) -> None:
        self._form, self._needed, self._opaque, self._encoder = form, needed, tuple(opaque), encoder
        self._judge = event_judge(form, needed)
        self._few: list[Event | None] = []
        self._scanner: LineColumns | None = None
        self._joined: JoinedEvents | None = None
        self.n_bad = 0

    def __len__(self) -> int:
        return len(self._few) if self._joined is None else len(self._joined)

    def _compiled(self, n_rows: int) -> JoinedEvents | None:
        """The compiled code for a number of further rows; None while there are few."""
        if self._joined is None and len(self) + n_rows > FEW_ROWS:
            self._joined = JoinedEvents()
            self._joined.add(Events.of(self._few))
            self._few = []
        return self._joined

    def add_lines(self, block: LineBlock) -> list[Reject]:
        """Add the lines of a block that are not blank.  Returns the bad ones."""
        rejects: list[Reject] = []
        joined = self._joined or self._compiled(1 if block.overlong else int(count_line_feeds(block.data)))
        if joined is None:
            lines = [(text, block.first_line + at) for at, text in rows_of_block(block)]
            self._few += judged_events(lines, self._judge, block.file, rejects)
        else:
            self._scanner = self._scanner or LineColumns(self._form, self._needed, threads=1)
            self._scanner.scan(block, rejects, joined)
        self.n_bad += len(rejects)
        return rejects

    def add_columns(self, rows: pa.RecordBatch, columns: NeededColumns | None) -> list[tuple[int, str]]:
        """Add rows of the columns of a batch.  Returns the positions of the bad ones, and the reasons.

        Without `columns` rows are taken one by one.
        """
        joined = self._compiled(len(rows))
        if columns is None or joined is None:
            return self.add_each(enumerate(rows.to_pylist()))
        events, bad = events_of_batch(rows, columns, self._needed, self._form)
        joined.add(events)
        self.n_bad += len(bad)
        return bad

    def add_each(self, rows: Iterator[tuple[int, bytes | Json]]) -> list[tuple[int, str]]:
        """Add lines, or rows of columns, one by one, given with their positions; returns as `add_columns` does."""
        events: list[Event | None] = []
        bad: list[tuple[int, str]] = []
        for at, row in rows:
            try:
                if isinstance(row, bytes):
                    events.append(self._judge(row))
                else:
                    events.append(event_of_columns(row, self._form, self._needed))
            except ModelError as error:
                bad.append((at, str(error)))
                events.append(None)
        if self._joined is None:
            self._few += events
        else:
            self._joined.add(Events.of(events))
        self.n_bad += len(bad)
        return bad

    def write(self, vocabulary: Vocabulary, files: PartFiles) -> WrittenPart:
        """Write the held events as a part, which empties this object."""
        events, batch = Events.of(self._few), None
        if self._joined is not None:
            events = self._joined.take()
            batch = self._encoder().encode(events)
        self._few, self.n_bad = [], 0
        path, left_out = files.attempt("events"), dict(events.left_out)
        left_out |= {f"{name}.": left_out[name] for name in self._opaque if name in left_out}  # all that may be in it
        events = replace(events, left_out=left_out)
        digest = save_events(events, path, vocabulary, f"{files.kind}-part", batch)
        return WrittenPart(path.name, partition_id(), len(events), digest, 0)
