"""Events to an event table, in the order in which they were written, each parsed once.

Rows are sorted by (file, block, position) as raw bytes, which is native and cheap; a task then parses one range of them,
encodes it with the table's vocabulary and writes it as parts.  So a single large `.gz`, which only one task can read, is
parsed on all cores.  A task holds at most `EVENTS_PER_PART` events; the vocabulary is loaded once for each Python worker.

    rows --ordered--> --write_parts--> parts written (`part_files.MANIFEST_SCHEMA`), and bad rows (`REJECT_SCHEMA`)

A bad row keeps its number among the events, as a rejected row.  Parts are written by the job that finds the bad rows, so
under `strict` they may be written in vain; reading everything twice to avoid that would slow down the usual case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import concat_rejected
from mpi_match.events.event_table import save_events
from mpi_match.events.events import Events
from mpi_match.events.lists import ListColumns
from mpi_match.ingest.columns import needed_names
from mpi_match.ingest.rows import EventForm, event_of_row, parse_json
from mpi_match.model import Event, ModelError, Type
from mpi_match.storage import Reader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import load_vocabulary
from mpi_match.table.vocabulary import Vocabulary
from spark_prep.arrow_records import REJECT_ARROW, REJECT_SCHEMA, BadRow
from spark_prep.event_columns import event_of_columns
from spark_prep.part_files import MANIFEST_ARROW, MANIFEST_SCHEMA, PartFiles, WrittenPart, partition_id
from spark_prep.sources import PLACE, in_order
from spark_prep.subscriptions import bad_row, contents

EVENTS_PER_PART = 2**20
EVENTS_SCHEMA = f"read bigint, {MANIFEST_SCHEMA}, {REJECT_SCHEMA}"
_ARROW = pa.schema([pa.field("read", pa.int64()), *MANIFEST_ARROW, *REJECT_ARROW])


def ordered(rows: DataFrame, partitions: int) -> DataFrame:
    """Rows in the order in which they were written, divided into partitions."""
    return rows.repartitionByRange(partitions, *in_order()).sortWithinPartitions(*in_order())


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
        parse = _Parser(form, needed_names(vocabulary.attribute_names, form), set(left_out))
        held: list[Events] = []
        for batch in batches:
            events, bad = parse(batch)
            yield _records([{"read": len(events)}, *(item._asdict() for item in bad)])
            for at in range(0, len(events), events_per_part):
                piece = Events.of(events[at : at + events_per_part])
                if sum(map(len, held)) + len(piece) > events_per_part:
                    yield _records([_write(held, vocabulary, files, parse.left_out)._asdict()])
                    held = []
                held.append(piece)
        if held:
            yield _records([_write(held, vocabulary, files, parse.left_out)._asdict()])

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


class _Parser:
    """Batches of content, file, block and position to events; `left_out` is as in `event_columns.event_of_columns`."""

    def __init__(self, form: EventForm, needed: frozenset[str], left_out: set[str]) -> None:
        self._form, self._needed, self.left_out = form, needed, left_out

    def __call__(self, batch: pa.RecordBatch) -> tuple[list[Event | None], list[BadRow]]:
        """Events of the rows of a batch that are not blank, None for a bad one; its bad rows."""
        events: list[Event | None] = []
        bad: list[BadRow] = []
        for at, content in contents(batch):
            try:
                if isinstance(content, bytes):
                    events.append(event_of_row(parse_json(content), self._form))
                else:
                    events.append(event_of_columns(content, self._form, self._needed, self.left_out))
            except ModelError as error:
                bad.append(bad_row(str(error), content, batch, at))
                events.append(None)
        return events, bad


def _write(held: list[Events], vocabulary: Vocabulary, files: PartFiles, left_out: Iterable[str]) -> WrittenPart:
    events = joined(held)
    path = files.attempt("events")
    digest = save_events(events, path, vocabulary, f"{files.kind}-part", left_out)
    return WrittenPart(path.name, partition_id(), len(events), digest, 0)


def _records(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def joined(pieces: list[Events]) -> Events:
    """Consecutive events as one, with the same columns as if they had been flattened together."""
    if not pieces:
        return Events.of(())
    names, name = _merged([piece.names for piece in pieces], [piece.name for piece in pieces])
    strings, string, lists = _merged_strings(pieces)
    type_ = np.concatenate([piece.type for piece in pieces])
    n_events = [len(piece) for piece in pieces]
    has_location, has_ids = (any(getattr(p, field) is not None for p in pieces) for field in ("location", "ids"))
    location = [
        p.location if p.location is not None else np.full((n, 2), np.nan) for p, n in zip(pieces, n_events, strict=True)
    ]
    ids = [p.ids if p.ids is not None else Strings.of([b""] * n) for p, n in zip(pieces, n_events, strict=True)]
    return Events(
        offsets=offsets_of(np.concatenate([np.diff(piece.offsets) for piece in pieces])),
        name=name,
        type=type_,
        number=np.concatenate([piece.number for piece in pieces]),
        string=string,
        names=names,
        strings=strings,
        location=np.concatenate(location) if has_location else None,
        ids=Strings.concat(ids) if has_ids else None,
        rejected=concat_rejected([piece.rejected for piece in pieces], n_events),
        lists=lists,
    )


def _merged_strings(pieces: list[Events]) -> tuple[Strings, Array, ListColumns | None]:
    """One pool of strings, the column `string` of all attributes, and all lists."""
    listed = [piece.lists or ListColumns.concat(()) for piece in pieces]
    of_pieces = [np.append(p.string * (p.type == Type.STRING), own.string) for p, own in zip(pieces, listed, strict=True)]
    strings, merged = _merged([piece.strings for piece in pieces], of_pieces)
    first_list = offsets_of(np.array([len(own) for own in listed], np.int64))
    column, moved, at = [], [], 0
    for piece, own, first in zip(pieces, listed, first_list.tolist(), strict=False):
        of_attributes, of_elements = merged[at : at + len(piece.type)], merged[at + len(piece.type) :][: len(own.type)]
        at += len(of_attributes) + len(of_elements)
        of_attributes = np.where(piece.type == Type.STRING, of_attributes, np.uint32(0))
        column.append(np.where(piece.type == Type.LIST, piece.string + np.uint32(first), of_attributes))
        moved.append(replace(own, string=np.where(own.type == Type.STRING, of_elements, np.uint32(0))))
    return strings, np.concatenate(column), ListColumns.concat(moved) if first_list[-1] else None


def _merged(pools: list[Strings], columns: list[Array]) -> tuple[Strings, Array]:
    """One pool of the distinct strings of all pools, and the columns of indices into it."""
    place: dict[bytes, int] = {}
    moved = []
    for pool, column in zip(pools, columns, strict=True):
        to = np.array([place.setdefault(item, len(place)) for item in pool] or [0], np.uint32)
        moved.append(to[column])
    return Strings.of(place), np.concatenate(moved)
