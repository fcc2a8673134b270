"""Files of answers: written incrementally, read whole.  An index joins the parts that workers have written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.journal.reader import refuse_incomplete
from mpi_match.matches.arrow import ArrowAnswers
from mpi_match.matches.matches import Matches, id_dtype
from mpi_match.matches.part_index import NAMES, read_parts
from mpi_match.matches.schema import MATCHES
from mpi_match.storage import Column, Reader, Writer

if TYPE_CHECKING:
    import pyarrow as pa


class MatchesWriter:
    """Writes answers to a file incrementally, in event order.

    `unit` is "interface" or "filter"; `labels` are the names of the ids (empty if they have none); `attributes` are written
    to the root (table digest, engine, ...: nothing that differs between runs that must give identical files).  `temporary`
    is the file's name until it is complete (see `Writer`).  With `with_event_ids` the file also has the publishers' ids of
    the events.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_ids: int,
        labels: Strings,
        unit: str = "interface",
        *,
        temporary: Path | None = None,
        with_event_ids: bool = False,
        **attributes: int | str,
    ) -> None:
        self._writer = Writer(path, MATCHES.kind, temporary)
        self._with_event_ids = with_event_ids
        self._n_ids, self._labels, self._unit, self._attributes = n_ids, labels, unit, attributes
        self.n_events = 0
        self.n_matches = 0

    @property
    def digest(self) -> str:
        """The file's digest, once it is complete."""
        return self._writer.digest

    def __enter__(self) -> MatchesWriter:
        self._writer.__enter__()
        try:
            self._counts = self._writer.column("matches/counts", id_dtype(self._n_ids + 1))
            self._ids = self._writer.column("matches/ids", id_dtype(self._n_ids))
            if self._with_event_ids:
                self._id_data = self._writer.column("ids/data", np.dtype(np.uint8))
                self._id_offsets = self._writer.column("ids/offsets", np.dtype(np.int64))
                self._id_offsets.append(np.zeros(1, np.int64))
        except BaseException as failed:
            self._writer.__exit__(type(failed), failed, failed.__traceback__)
            raise
        return self

    @property
    def columns(self) -> tuple[Column, Column]:
        """The columns of counts and ids, while they are written."""
        return self._counts, self._ids

    def sync(self) -> None:
        """Write everything to disk."""
        self._writer.sync()

    def append(self, matches: Matches, event_ids: Strings | None = None, event_rows: Strings | None = None) -> None:
        """Append the answers of the next events, and their ids (empty for an event without one) if the file has them; rows
        are ignored."""
        self.append_raw(matches.counts, matches.ids)
        if event_ids is not None:
            self._id_offsets.append(event_ids.offsets[1:] + self._id_data.n_rows)
            self._id_data.append(event_ids.data)

    def append_raw(self, counts: Array, ids: Array) -> None:
        """Append answers as counts and ids in their wire format.

        The ids of a chunk of counts are appended before its last count, however answers are divided.  So the order of chunks
        in the file depends on the answers alone.
        """
        event = match = 0
        while len(counts) - event >= self._counts.room:
            stop = event + self._counts.room
            n = int(counts[event:stop].sum(dtype=np.int64))
            self._ids.append(ids[match : match + n])
            self._counts.append(counts[event:stop])
            event, match = stop, match + n
        self._ids.append(ids[match:])
        self._counts.append(counts[event:])
        self.n_events += len(counts)
        self.n_matches += len(ids)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._describe()
        except BaseException as failed:
            self._writer.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._writer.__exit__(kind, error, trace)

    def _describe(self) -> None:
        counts = {"n_ids": self._n_ids, "n_events": self.n_events, "n_matches": self.n_matches}
        for name, value in {**self._attributes, "unit": self._unit, **counts}.items():
            self._writer.attribute(name, value)
        for name, array in self._labels.named("labels"):
            self._writer.array(name, array)


def _answers_in(reader: Reader) -> tuple[Array, Array]:
    """Counts and ids of a file, or of the parts of an index."""
    if NAMES in reader:
        return read_parts(reader)
    return reader.array("matches/counts"), reader.array("matches/ids")


@dataclass(frozen=True)
class MatchesFile:
    """The content of a file of matches: the answers, the labels of their ids, the root attributes (`unit`, `n_events`, ...).

    `event_ids` are the publishers' own names of the events, empty for an event without one; None if the file has none.
    """

    matches: Matches
    labels: Strings
    attributes: dict[str, Any]
    event_ids: Strings | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MatchesFile:
        """Read and check a file.  Raises StorageError; IncompleteError if the run that writes it has not ended or was cut
        short."""
        refuse_incomplete(Path(path))
        with Reader(path, MATCHES) as reader:
            labels = Strings.read(reader, "labels")
            counts, ids = _answers_in(reader)
            event_ids = Strings.read(reader, "ids") if "ids/data" in reader else None
            arrays = {"matches/counts": counts, "matches/ids": ids, **dict(labels.named("labels"))}
            if event_ids is not None:
                arrays |= dict(event_ids.named("ids"))
            for fault in MATCHES.faults(arrays, reader.attributes):
                reader.refuse(fault)
            matches = Matches.from_counts(counts, ids, int(reader.attribute("n_ids")))
        return cls(matches, labels, reader.attributes, event_ids)

    def to_arrow(self) -> pa.Table:
        """A `pyarrow.Table` of the answers, see `matches.arrow`.  Needs pyarrow."""
        return ArrowAnswers(str(self.attributes["unit"]), self.labels, self.matches.n_ids).table(
            self.matches, self.event_ids
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream of the answers: `polars.DataFrame(answers)`, and likewise in other libraries."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def rows(self) -> Iterator[list[str]]:
        """Yield the labels of each event's ids (the ids themselves as text if they have no labels)."""
        names = [label.decode() for label in self.labels] or [str(i) for i in range(self.matches.n_ids)]
        return ([names[i] for i in self.matches[event]] for event in range(self.matches.n_events))
