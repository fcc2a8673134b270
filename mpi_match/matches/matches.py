"""Answers: for every event the sorted set of its matched interfaces (or the sorted list of its matched filters).

    counts    number of ids of each event: u8, u16 or u32, the narrowest that holds the largest possible count
    ids       the ids end to end: u8, u16 or u32, the narrowest that holds every id of the table

On the wire and on disk counts travel instead of offsets, in the narrowest type that holds the largest possible count.
Both types follow from the table alone, never from the answers, so the file does not depend on how events were cut into
batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex, overload

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners, place_of, smallest_unsigned, take_ranges
from mpi_match.arrays.strings import Strings
from mpi_match.journal.reader import refuse_incomplete
from mpi_match.storage import Column, Reader, StorageError, Writer

KIND_OF_FILE = "matches"


@dataclass(eq=False)  # not frozen, see `EventBatch`
class Matches:
    """Matched ids of n events: `counts` and `ids` in the types of the module, `n_ids` how many different ids there can be.

    Make one with `from_counts`, `from_offsets`, `of` or `from_pairs`.
    """

    counts: Array
    ids: Array
    n_ids: int

    @classmethod
    def from_counts(cls, counts: Array, ids: Array, n_ids: int) -> Matches:
        """From the number of ids of each event, and the ids end to end."""
        return cls(counts.astype(id_dtype(n_ids + 1), copy=False), ids.astype(id_dtype(n_ids), copy=False), n_ids)

    @classmethod
    def from_offsets(cls, offsets: Array, ids: Array, n_ids: int) -> Matches:
        """From the bounds of each event's ids, i64[n + 1], and the ids end to end."""
        return cls.from_counts(np.diff(offsets), ids, n_ids)

    @classmethod
    def of(cls, found: list[list[int]], n_ids: int) -> Matches:
        """From one list of ids per event (sorted and made distinct here)."""
        clean = [sorted(set(ids)) for ids in found]
        counts = np.array([len(ids) for ids in clean], np.int64)
        return cls.from_counts(counts, np.array([i for ids in clean for i in ids], np.int64), n_ids)

    @classmethod
    def from_pairs(cls, event: Array, id_: Array, n_events: int, n_ids: int) -> Matches:
        """From (event, id) pairs in any order, repeated or not."""
        pairs = np.unique(np.asarray(event, np.int64) * max(n_ids, 1) + id_)
        counts = np.bincount(pairs // max(n_ids, 1), minlength=n_events)
        return cls.from_counts(counts, pairs % max(n_ids, 1), n_ids)

    @property
    def n_events(self) -> int:
        """Number of events."""
        return len(self.counts)

    @property
    def n_matches(self) -> int:
        """Number of (event, id) pairs."""
        return len(self.ids)

    def __len__(self) -> int:
        return self.n_events

    @overload
    def __getitem__(self, event: SupportsIndex) -> Array: ...

    @overload
    def __getitem__(self, event: slice) -> Matches: ...

    def __getitem__(self, event: SupportsIndex | slice) -> Array | Matches:
        """Sorted ids of one event, counted from the end if negative; the answers of a slice of the events.

        Raises IndexError for an event that is not there.
        """
        if not isinstance(event, slice):
            i = place_of(event, self.n_events, "event")
            return self.ids[self.offsets[i] : self.offsets[i + 1]]
        start, stop, step = event.indices(self.n_events)
        if step == 1:  # shares this one's memory
            ids = self.ids[self.offsets[start] : self.offsets[max(start, stop)]]
        else:
            ids = self.ids[take_ranges(self.offsets[:-1][event], self.counts[event])]
        return Matches(self.counts[event], ids, self.n_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Matches):
            return NotImplemented
        return np.array_equal(self.counts, other.counts) and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]

    def labels(self, labels: Strings) -> list[list[str]]:
        """The answer as labels: one sorted list per event."""
        names = [label.decode() for label in labels]
        return [[names[i] for i in self[event]] for event in range(self.n_events)]

    @cached_property
    def offsets(self) -> Array:
        """i64[n + 1]: event e has ids[offsets[e]:offsets[e + 1]]."""
        return offsets_of(self.counts)

    def event_of(self) -> Array:
        """i64[n_matches]: the event of every pair."""
        return owners(self.offsets)

    @staticmethod
    def concat(parts: list[Matches]) -> Matches:
        """Answers of consecutive batches as one."""
        return Matches(np.concatenate([p.counts for p in parts]), np.concatenate([p.ids for p in parts]), parts[0].n_ids)


@lru_cache(64)
def id_dtype(n_ids: int) -> np.dtype[Any]:
    """The narrowest unsigned type for ids 0 to n_ids - 1."""
    return smallest_unsigned(max(n_ids - 1, 0))


class MatchesWriter:
    """Writes answers to a file as they come, in event order.

    `unit` is "interface" or "filter"; `labels` are the names of the ids (empty when they have none); `attributes` go to
    the root (table digest, engine, ...: nothing that differs between runs that must give identical files).  `temporary` is
    the name until the file is whole (see `Writer`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_ids: int,
        labels: Strings,
        unit: str = "interface",
        *,
        temporary: Path | None = None,
        **attributes: int | str,
    ) -> None:
        self._writer = Writer(path, KIND_OF_FILE, temporary)
        self._n_ids, self._labels, self._unit, self._attributes = n_ids, labels, unit, attributes
        self.n_events = 0
        self.n_matches = 0

    @property
    def digest(self) -> str:
        """That of the file, once it is there."""
        return self._writer.digest

    def __enter__(self) -> MatchesWriter:
        self._writer.__enter__()
        try:
            self._counts = self._writer.column("matches/counts", id_dtype(self._n_ids + 1))
            self._ids = self._writer.column("matches/ids", id_dtype(self._n_ids))
        except BaseException as failed:
            self._writer.__exit__(type(failed), failed, failed.__traceback__)
            raise
        return self

    @property
    def columns(self) -> tuple[Column, Column]:
        """Counts and ids, while they are written."""
        return self._counts, self._ids

    def sync(self) -> None:
        """Have the disk take what the file has."""
        self._writer.sync()

    def append(self, matches: Matches) -> None:
        """The answers of the next events."""
        self.append_raw(matches.counts, matches.ids)

    def append_raw(self, counts: Array, ids: Array) -> None:
        """The same from counts and ids as they travel.

        The ids of a chunk of counts are appended before its last count, however answers are cut: so in which order chunks
        come into the file depends on the answers alone.
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
    """Counts and ids of a file, or of the parts that it is the index of."""
    if "matches/counts" in reader:
        return reader.array("matches/counts"), reader.array("matches/ids")
    from mpi_match.matches.part_index import read_parts  # which has the types of counts and ids from here

    return read_parts(reader)


@dataclass(frozen=True)
class MatchesFile:
    """What a file of matches holds: the answers, the labels of their ids, the root attributes (`unit`, `n_events`, ...)."""

    matches: Matches
    labels: Strings
    attributes: dict[str, Any]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MatchesFile:
        """Read and check a file.  Raises StorageError; IncompleteError when the run that was to write it has not ended."""
        refuse_incomplete(Path(path))
        with Reader(path, KIND_OF_FILE) as reader:
            labels = Strings.read(reader, "labels")
            n_ids, n_events, n_matches = (int(reader.attribute(name)) for name in ("n_ids", "n_events", "n_matches"))
            counts, ids = _answers_in(reader)
            matches = Matches.from_counts(counts, ids, n_ids)
        found = (matches.n_events, int(matches.offsets[-1]), matches.n_matches)
        if found != (n_events, n_matches, n_matches) or int(matches.ids.max(initial=0)) >= max(n_ids, 1):
            raise StorageError(f"{path}: its counts and ids do not fit each other; match the events again")
        if len(labels) not in (0, n_ids):
            raise StorageError(f"{path}: has {len(labels)} labels for {n_ids} ids; match the events again")
        return cls(matches, labels, reader.attributes)

    def rows(self) -> Iterator[list[str]]:
        """Labels of each event's ids (the ids themselves as text where they have no labels)."""
        names = [label.decode() for label in self.labels] or [str(i) for i in range(self.matches.n_ids)]
        return ([names[i] for i in self.matches[event]] for event in range(self.matches.n_events))
