"""Events to an event table, in the order in which they were written, each scanned once.

Rows are sorted by (file, block, position) as raw bytes, which is native and cheap; a task then scans one range of them,
encodes it with the table's vocabulary and writes it as parts.  So a single large `.gz`, which only one task can read, is
scanned on all cores, by the compiled code of `compile events --local`.  A task holds at most `EVENTS_PER_PART` events; the
vocabulary is loaded once for each Python worker.

    rows --ordered--> --write_parts--> parts written (`part_files.MANIFEST_SCHEMA`), and bad rows (`REJECT_SCHEMA`)

A bad row keeps its number among the events, as a rejected row.  Parts are written by the job that finds the bad rows, so
under `strict` they may be written in vain; reading everything twice to avoid that would slow down the usual case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.ingest.arrow_events import all_columns, event_of_columns, events_of_batch
from mpi_match.ingest.columns import needed_names
from mpi_match.ingest.events_encoder import EventsEncoder
from mpi_match.ingest.joined_events import JoinedEvents
from mpi_match.ingest.line_blocks import LineBlock
from mpi_match.ingest.line_columns import LineColumns
from mpi_match.ingest.rows import EventForm, Reject, event_of_row, parse_json, row_text
from mpi_match.model import Event, ModelError
from mpi_match.storage import Reader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import load_vocabulary
from mpi_match.table.vocabulary import Vocabulary
from spark_prep.arrow_lines import joined_lines
from spark_prep.arrow_records import REJECT_ARROW, REJECT_SCHEMA, BadRow
from spark_prep.part_files import MANIFEST_ARROW, MANIFEST_SCHEMA, PartFiles, WrittenPart, partition_id
from spark_prep.sources import PLACE, in_order
from spark_prep.subscriptions import FEW_ROWS, bad_row, contents

EVENTS_PER_PART = 2**20
EVENTS_SCHEMA = f"read bigint, {MANIFEST_SCHEMA}, {REJECT_SCHEMA}"
_ARROW = pa.schema([pa.field("read", pa.int64()), *MANIFEST_ARROW, *REJECT_ARROW])


def ordered(rows: DataFrame, partitions: int) -> DataFrame:
    """Rows in the order in which they were written, divided into partitions."""
    keys = in_order(rows.inputFiles())
    return rows.repartitionByRange(partitions, *keys).sortWithinPartitions(*keys)


def write_parts(
    ordered: DataFrame,
    form: EventForm,
    table: Path,
    digest: str,
    files: PartFiles,
    left_out: Iterable[str] = (),
    events_per_part: int = EVENTS_PER_PART,
) -> DataFrame:
    """Write the parts of an event table; a row of `EVENTS_SCHEMA` for each part, each bad row, and each batch `read`.

    `digest` is that of `table` (`table_digest`), so that no task uses another table that has replaced it.  `left_out` are
    the columns that were removed from the rows (`event_columns`).  Persist the result before use: computing it writes the
    parts.
    """
    content = "value" if "value" in ordered.columns else "row"

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        vocabulary = _vocabulary(str(table), digest)
        needed = needed_names(vocabulary.attribute_names, form)
        held = _HeldEvents(form, needed, set(left_out), lambda: _encoder(str(table), digest))
        for batch in batches:
            at = 0
            while at < len(batch):
                piece = batch.slice(at, events_per_part - len(held))
                at += len(piece)
                n_before = len(held)
                bad = held.add(piece)
                yield _records([{"read": len(held) - n_before}, *(item._asdict() for item in bad)])
                if len(held) == events_per_part:
                    yield _records([held.write(vocabulary, files)._asdict()])
        if len(held):
            yield _records([held.write(vocabulary, files)._asdict()])

    return ordered.select(content, *PLACE).mapInArrow(run, EVENTS_SCHEMA)


def table_digest(table: Path) -> str:
    """Digest of a table file, by which a cached vocabulary is validated.  Raises StorageError."""
    with Reader(table, TABLE) as reader:
        return str(reader.attributes["digest"])


@lru_cache(maxsize=1)
def _vocabulary(table: str, digest: str) -> Vocabulary:
    if table_digest(Path(table)) != digest:
        raise RuntimeError(f"{table}: was replaced while events were compiled; compile them again")
    return load_vocabulary(table)


@lru_cache(maxsize=1)
def _encoder(table: str, digest: str) -> EventsEncoder:
    return EventsEncoder(_vocabulary(table, digest), threads=1)


class _HeldEvents:
    """The events of batches of content, file, block and position, until they are written as a part.

    The first FEW_ROWS are judged row by row, before anything is compiled for them.  `left_out` is as in
    `arrow_events.event_of_columns`.
    """

    def __init__(
        self, form: EventForm, needed: frozenset[str], left_out: set[str], encoder: Callable[[], EventsEncoder]
    ) -> None:
        self._form, self._needed, self._left_out, self._encoder = form, needed, left_out, encoder
        self._few: list[Event | None] = []
        self._scanner: LineColumns | None = None
        self._joined: JoinedEvents | None = None

    def __len__(self) -> int:
        return len(self._few) if self._joined is None else len(self._joined)

    def add(self, batch: pa.RecordBatch) -> list[BadRow]:
        """Take the rows of a batch that are not blank; the bad ones, which are held as rejected rows."""
        if self._joined is None and len(self) + len(batch) > FEW_ROWS:
            self._joined = JoinedEvents()
            self._joined.add(Events.of(self._few))
        if self._joined is None:
            return self._judge(batch)
        if pa.types.is_struct(batch.column(0).type):
            return self._add_columns(batch, self._joined)
        lines = joined_lines(batch.column(0))
        if lines is None:
            return self._judge(batch)
        self._scanner = self._scanner or LineColumns(self._form, threads=1)
        rejects: list[Reject] = []
        self._scanner.scan(LineBlock(lines, "", 0), rejects, self._joined)
        return [bad_row(each.reason, each.row, batch, each.line) for each in rejects]

    def _add_columns(self, batch: pa.RecordBatch, joined: JoinedEvents) -> list[BadRow]:
        rows = pa.RecordBatch.from_struct_array(batch.column(0))
        columns = all_columns(rows.schema)
        if columns is None:
            return self._judge(batch)
        events, bad = events_of_batch(rows, columns, self._needed, self._form, self._left_out)
        joined.add(events)
        return [bad_row(reason, row_text(batch.column(0)[at].as_py()), batch, at) for at, reason in bad]

    def _judge(self, batch: pa.RecordBatch) -> list[BadRow]:
        events: list[Event | None] = []
        bad: list[BadRow] = []
        for at, content in contents(batch):
            try:
                if isinstance(content, bytes):
                    events.append(event_of_row(parse_json(content), self._form))
                else:
                    events.append(event_of_columns(content, self._form, self._needed, self._left_out))
            except ModelError as error:
                bad.append(bad_row(str(error), row_text(content), batch, at))
                events.append(None)
        if self._joined is None:
            self._few += events
        else:
            self._joined.add(Events.of(events))
        return bad

    def write(self, vocabulary: Vocabulary, files: PartFiles) -> WrittenPart:
        """Write what is held as a part, and hold nothing."""
        events, batch = Events.of(self._few), None
        if self._joined is not None:
            events = self._joined.take()
            batch = self._encoder().encode(events)
        self._few = []
        path = files.attempt("events")
        digest = save_events(events, path, vocabulary, f"{files.kind}-part", self._left_out, batch)
        return WrittenPart(path.name, partition_id(), len(events), digest, 0)


def _records(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)
