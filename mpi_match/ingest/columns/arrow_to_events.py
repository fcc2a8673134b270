"""Turns rows of typed sources (Parquet, Arrow, DataFrames) into events with all their attributes, as event tables keep them.

An attribute is a number, a string, a boolean, a null, or a list of these.  Another value (a decimal beyond the range of a
double) makes its row a bad one if its column is *required*: filters name it, or it holds the location or the id.  In other
columns it is left out, as is every value of another type: no filter asks for it, and the events record its name
(`Events.left_out`).  A decimal has the value that its digits would have in JSON: exact if it is whole, else rounded as
`float` rounds it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from mpi_match.events.events import Events
from mpi_match.ingest.columns.arrow import (
    NeededColumns,
    any_of,
    is_time,
    json_value,
    typed_columns,
    with_doubted,
)
from mpi_match.ingest.columns.arrow_lists import leaves
from mpi_match.ingest.columns.to_events import events_of_chunk
from mpi_match.ingest.rows.flatten import MAX_DEPTH, Names
from mpi_match.ingest.rows.judge import EventForm, event_of_row
from mpi_match.model import Event, Json, ModelError, Time, Unread
from mpi_match.texts.instant import text_of


def all_columns(schema: pa.Schema) -> NeededColumns | None:
    """All columns of a schema; None if two have the same name, or structs are too deep: then rows are judged one by one."""
    paths = [path for path, _ in leaves(schema)]
    found = {".".join(path): path for path in paths}
    if len(found) < len(paths) or max(map(len, paths), default=0) > MAX_DEPTH:
        return None
    return NeededColumns(found)


def events_of_batch(
    batch: pa.RecordBatch, needed: NeededColumns, required: frozenset[str], form: EventForm
) -> tuple[Events, list[tuple[int, str]]]:
    """The events of columns of a batch, rejected rows among them, and the reason for each of those.

    Raises ModelError for strings that are not UTF-8.
    """
    found = needed.leaves(batch)
    chunk, ids, wrong = typed_columns(found, batch.num_rows, form)
    for name in (name for name, leaf in found.items() if is_time(leaf.array.type)):  # events keep no times
        wrong[name] = chunk.lists[name].is_present(batch.num_rows)
    chunk, ids = with_doubted(chunk, ids, any_of(wrong[name] for name in wrong.keys() & required), form)
    bad = np.flatnonzero(chunk.doubted) if chunk.doubted is not None else np.zeros(0, np.int64)
    columns: dict[str, Any] = dict(chunk.columns)
    lists: dict[str, Any] = dict(chunk.lists)
    left_out: dict[str, int] = {}
    for name in wrong.keys() - required:
        if n := int(np.count_nonzero(wrong[name] if chunk.doubted is None else wrong[name] & ~chunk.doubted)):
            left_out[name] = n
            if pa.types.is_map(found[name].array.type):
                left_out[f"{name}."] = n  # all that may be in it
        for kind in (columns, lists):
            if name in kind:
                kind[name] = kind[name].without(wrong[name])
    events = events_of_chunk(chunk._replace(columns=columns, lists=lists), list(needed.paths), form, ids)
    reasons = [(row, _reason(batch, row, required, form)) for row in bad.tolist()]
    return replace(events, rejected=bad if reasons else None, left_out=left_out), reasons


def _reason(batch: pa.RecordBatch, row: int, required: frozenset[str], form: EventForm) -> str:
    """The reason why a row is not an event."""
    (values,) = batch.slice(row, 1).to_pylist()
    try:
        event_of_columns(values, form, required)
    except ModelError as error:
        return str(error)
    raise AssertionError(f"the row {values} was doubted and is an event")


def event_of_columns(row: Json, form: EventForm, required: frozenset[str]) -> Event:
    """The event of one row.  Raises ModelError."""
    return event_of_row(as_json(row), form, _names(required), every=True)


@lru_cache(2)
def _names(required: frozenset[str]) -> Names:
    return Names(required)


def as_json(value: object, *, times_as_text: bool = False) -> object:
    """A value of Arrow in the form that JSON has, also in structs and lists; `Unread` for others (a map, a decimal out of
    range).

    Native times stay what they are, or become the texts of their instants.
    """
    if isinstance(value, dict):
        return {key: as_json(each, times_as_text=times_as_text) for key, each in value.items()}
    if isinstance(value, list):
        return [as_json(each, times_as_text=times_as_text) for each in value]
    if times_as_text and isinstance(value, Time):
        return text_of(value) or value
    if isinstance(value, tuple):
        return Unread("an entry of a map is not a number, a string or a boolean")
    try:
        return json_value(value)
    except ModelError as error:
        return Unread(str(error))
