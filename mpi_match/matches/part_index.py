"""Answers that the workers of a run have written themselves: parts, and an index that reads as one file.

    matches.h5                             kind `matches`: labels and counts of all, names and sizes of the parts
    matches.h5.parts/1-rank-1.answers      answers of batches 0, 3, 6, ...     in the format of a journal (`journal.reader`)
    matches.h5.parts/1-rank-1-1.answers    answers of batches 4, 5, ...        of the same worker, written at the same time
    matches.h5.parts/1-rank-2.answers      answers of batches 1, 2, 7, ...

A part has batches in the order in which they were matched, each with its range of events and a checksum.  So the index does
not list them, and the master never handles an answer.  A part identifies the inputs of its answers by their digests.  A
batch that was matched twice, because its worker was silent for a while, may be in two parts; the answers are the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.journal.reader import (
    Bytes,
    EventRange,
    JournalFile,
    Kind,
    Record,
    RunIdentity,
    gaps,
    head_bytes,
    record_bytes,
    write_at,
)
from mpi_match.matches.schema import MATCHES, PARTS
from mpi_match.storage import Reader, StorageError, Writer, parts_directory, reported

PART_SUFFIX = ".answers"
_NAME = re.compile(rf"(\d+)-rank-\d+(?:-\d+)?{re.escape(PART_SUFFIX)}")
NAMES, SIZES = "answers/part", "answers/bytes"


class PartWriter:
    """Writes a part: `append` the answers of batches, and `sync` before any other process relies on them.

    `with PartWriter(path, identity) as part:`.  Raises StorageError if it cannot be written or already exists.  `end` is the
    number of bytes appended.
    """

    def __init__(self, path: Path, identity: RunIdentity) -> None:
        self.path = path
        with self._reported():
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.end = self._synced = 0
        try:
            self._put([head_bytes(identity)])
        except StorageError:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def append(self, events: EventRange, counts: Array, ids: Array) -> None:
        """Append the answers of some events, in the dtypes of `RunIdentity.types`."""
        self._put(record_bytes(Kind.ANSWERS, events, len(ids), [counts.data, ids.data]))

    def sync(self) -> None:
        """Write everything appended to disk; after a failure all of it is written again, because it may be lost."""
        try:
            with self._reported():
                os.fdatasync(self._descriptor)
        except StorageError:
            self.end = self._synced
            raise
        self._synced = self.end

    def _put(self, pieces: Iterable[Bytes]) -> None:
        with self._reported():
            self.end = write_at(self._descriptor, pieces, self.end)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        with reported(self.path):
            yield


class Answered(NamedTuple):
    """A record of answers, and its part."""

    record: Record
    part: JournalFile


class Parts:
    """The answers in some parts.

    in_order   records by their first event, without duplicates
    ends       size of the valid beginning of each part, in bytes
    """

    def __init__(self, paths: Iterable[Path], identity: RunIdentity, sizes: Mapping[Path, int] | None = None) -> None:
        """Read `sizes` bytes of each part (None: all).  Raises StorageError if one cannot be read or belongs to other
        inputs."""
        found, self.ends = [], dict[Path, int]()
        for path in paths:
            part = JournalFile.look(path, None if sizes is None else sizes[path])
            self.ends[path] = part.end
            difference = identity.difference(part.identity)
            if difference is not None:
                raise StorageError(f"{path}: holds answers for other inputs: {difference}; remove it to start again")
            found += [Answered(record, part) for record in part.answered]
        self._identity = identity
        self.in_order: list[Answered] = []
        at = 0
        for each in sorted(found, key=lambda each: each.record.events):
            if each.record.events.start >= at:
                self.in_order.append(each)
                at = each.record.events.stop

    @property
    def n_answered(self) -> int:
        """Number of events with answers."""
        return sum(each.record.events.n_events for each in self.in_order)

    @property
    def n_matches(self) -> int:
        """Number of ids in the answers."""
        return sum(each.record.n_ids for each in self.in_order)

    def unanswered(self) -> list[EventRange]:
        """The events without answers."""
        return gaps((each.record.events for each in self.in_order), self._identity.n_events)

    def joined(self) -> tuple[Array, Array]:
        """Counts of all events, and all ids."""
        count_type, id_type = self._identity.types
        counts, ids = np.empty(self.n_answered, count_type), np.empty(self.n_matches, id_type)
        event = match = 0
        for record, part in self.in_order:
            some_counts, some_ids = part.answers(record)
            counts[event : event + len(some_counts)] = some_counts
            ids[match : match + len(some_ids)] = some_ids
            event, match = event + len(some_counts), match + len(some_ids)
        return counts, ids


def write_index(path: Path, kind: str, identity: RunIdentity, labels: Strings, n_matches: int, sizes: dict[str, int]) -> str:
    """Write the index of parts, given their names and numbers of valid bytes; returns its digest.  Raises StorageError."""
    with Writer(path, kind) as writer:
        for name, value in {**asdict(identity), "n_matches": n_matches}.items():
            if value != "":  # empty: the run had no changes
                writer.attribute(name, value)
        for name, array in labels.named("labels"):
            writer.array(name, array)
        writer.array(NAMES, np.array([name.encode() for name in sizes], "S"))
        writer.array(SIZES, np.array(list(sizes.values()), np.int64))
    return writer.digest


def named_in(reader: Reader) -> dict[str, int]:
    """The parts that a file of matches names, and the number of valid bytes of each; empty if it holds the answers
    itself."""
    if NAMES not in reader:
        return {}
    columns = {name: reader.array(name) for name in (NAMES, SIZES)}
    for fault in PARTS.faults(columns, reader.attributes, reader.declared):
        reader.refuse(fault)
    return dict(zip((name.decode() for name in columns[NAMES].tolist()), columns[SIZES].tolist(), strict=True))


def named_by(output: Path) -> dict[str, int]:
    """The same for the file at the path of an output; empty if the file is missing or damaged."""
    with suppress(StorageError), Reader(output, MATCHES) as reader:
        return named_in(reader)
    return {}


def parts_beside(output: Path) -> dict[str, int]:
    """The parts in the directory of an output, and the number of the run of each."""
    directory = parts_directory(output)
    if not directory.is_dir():
        return {}
    return {path.name: int(found[1]) for path in directory.iterdir() if (found := _NAME.fullmatch(path.name))}


def remove_parts(output: Path, *, but: Collection[str] = ()) -> None:
    """Remove the parts in the directory of an output, except `but`, and then the directory if it is empty.

    Raises StorageError if a part cannot be removed.
    """
    directory = parts_directory(output)
    with reported(directory):
        for name in parts_beside(output).keys() - set(but):
            (directory / name).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


def identity_in(reader: Reader) -> RunIdentity:
    """The identity of the run that wrote a file of matches."""
    return RunIdentity(**{field.name: reader.attributes.get(field.name, "") for field in fields(RunIdentity)})


def read_parts(reader: Reader) -> tuple[Array, Array]:
    """Counts and ids of all events, from the parts that an index names.

    Raises StorageError if a part is missing, damaged or a different one, or if events have no answers.
    """
    directory = parts_directory(reader.path)
    sizes = {directory / name: size for name, size in named_in(reader).items()}
    for path in sizes:
        if not path.is_file():
            raise StorageError(
                f"{reader.path}: its part {path} is missing; an index must travel with its directory {directory.name}"
            )
    identity = identity_in(reader)
    parts = Parts(sizes, identity, sizes)
    for path, size in sizes.items():
        if parts.ends[path] < size:
            raise StorageError(
                f"{path}: is damaged: {parts.ends[path]:,} bytes are valid, expected {size:,}; match the events again"
            )
    missing = parts.unanswered()
    if missing:
        raise StorageError(f"{reader.path}: no answers for the events {missing[0]} in its parts; match the events again")
    return parts.joined()
