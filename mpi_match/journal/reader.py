"""Reads the journal of a run, and determines how much of it is valid.

    ┌──────────────┬─────────────┬─────────────┬─────────────┬──────┐
    │ head: what   │ answers of  │ answers of  │ answers of  │ torn │
    │ is matched   │ 0 to 4096   │ 4096 to 8192│ 8192 to 8300│      │
    └──────────────┴─────────────┴─────────────┴─────────────┴──────┘

It only ever grows, and each record has a checksum.  So however a run ends, the complete records at the front are valid, and
nothing from the first incomplete record on is used.  The head has the digests of the files that are matched, so answers of
other files are never mixed in.

Long answers are not written twice: they go to the incomplete file of matches, and the journal has their position in it and
their checksum.  Until then the name of that file is the journal's with a number appended.

docs/format.md has the bytes; `cluster.journal` writes them.
"""

from __future__ import annotations

import bisect
import json
import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, DType, ascends_within, offsets_of, smallest_unsigned
from mpi_match.exit_codes import ExitCode
from mpi_match.storage import FileChanged, StorageError, StoredRange, descriptor_of
from mpi_match.storage.range_read import read_exactly
from mpi_match.storage.schema import attribute_faults, count, digest, word

JOURNAL_MAGIC = b"mpi-match journal\n"
VERSION = 1
_HEAD = struct.Struct("<III")  # version, length of the identity, its CRC-32
_RECORD = struct.Struct("<Iiqqq")  # CRC-32 of all that follows it, kind, first event, events, ids
_PLACED = struct.Struct(
    "<I4I2I2q"
)  # file; CRC-32 of counts, ids, before and with; extents of both; bytes that follow of both
_PIECE_BYTES = 2**20
_IDENTITY_AT = len(JOURNAL_MAGIC) + _HEAD.size


Bytes = bytes | memoryview


class Kind(IntEnum):
    """The kind of a record: answers of its events, events that were set aside, or the location of their answers."""

    ANSWERS = 1
    SET_ASIDE = 2
    PLACED = 3


class EventRange(NamedTuple):
    """Events `start` to `stop`."""

    start: int
    stop: int

    @property
    def n_events(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.start} to {self.stop}"


@dataclass(frozen=True)
class RunIdentity:
    """All inputs that determine the answers.

    unit                "interface" or "filter": what the ids are
    n_ids, n_events     number of different ids, and of events
    table_digest, events_digest, changes_digest   of the files; "" for no changes
    """

    unit: str
    n_ids: int
    n_events: int
    table_digest: str
    events_digest: str
    changes_digest: str

    def difference(self, found: RunIdentity) -> str | None:
        """The differences of `found`, as text; None when they are equal."""
        for field in fields(self):
            mine, other = getattr(self, field.name), getattr(found, field.name)
            if mine != other:
                return f"{field.name.replace('_', ' ')} found {other or 'none'}, expected {mine or 'none'}"
        return None

    @property
    def types(self) -> tuple[DType, DType]:
        """Types of counts and ids, as in the file of matches."""
        return smallest_unsigned(self.n_ids), smallest_unsigned(max(self.n_ids - 1, 0))


IDENTITY = (
    word("unit", "interface", "filter"),
    count("n_ids", "ids", most=2**32 - 1),
    count("n_events", "events"),
    digest("table_digest"),
    digest("events_digest"),
    digest("changes_digest", empty=True),
)
"""The members of an identity in JSON, with the check of each."""


class JournalPart(NamedTuple):
    """Counts, or ids, of some answers in a file of matches: their location, the dataset's CRC-32 before and with them."""

    place: StoredRange
    before: int
    after: int


class Placed(NamedTuple):
    """The answers of some events, `n_ids` ids, in an incomplete file of matches."""

    events: EventRange
    n_ids: int
    counts: JournalPart
    ids: JournalPart


class Record(NamedTuple):
    """A record in a file: its kind, events, number of ids, and the offset of its body."""

    kind: Kind
    events: EventRange
    n_ids: int
    at: int


def head_bytes(identity: RunIdentity) -> bytes:
    """The head of a journal."""
    text = json.dumps(asdict(identity)).encode()
    return JOURNAL_MAGIC + _HEAD.pack(VERSION, len(text), crc32(text)) + text


def is_bare(path: Path, identity: RunIdentity) -> bool:
    """Tells whether the file holds only a head for these answers, or the beginning of one from a writer that was killed."""
    head = head_bytes(identity)
    with os.fdopen(descriptor_of(path), "rb") as handle:
        return head.startswith(handle.read(len(head) + 1))


def record_bytes(kind: Kind, events: EventRange, n_ids: int, body: Sequence[Bytes]) -> list[Bytes]:
    """A record, in pieces; the body of a record of answers is the counts of the events and the ids."""
    head = _RECORD.pack(0, kind, events.start, events.n_events, n_ids)[4:]
    crc = crc32(head)
    for piece in body:
        crc = crc32(piece, crc)
    return [struct.pack("<I", crc) + head, *body]


def placed_bytes(number: int, placed: Placed) -> list[Bytes]:
    """The record with the location of answers; `number` is that of the file."""
    parts = placed.counts, placed.ids
    crcs = [crc for part in parts for crc in (part.before, part.after)]
    n_extents, n_rest = [len(part.place.extents) for part in parts], [len(part.place.rest) for part in parts]
    extents = np.array([each for part in parts for each in part.place.extents], "<i8").tobytes()
    head = _PLACED.pack(number, *crcs, *n_extents, *n_rest)
    return record_bytes(Kind.PLACED, placed.events, placed.n_ids, [head, extents, *(part.place.rest for part in parts)])


def file_of(journal: Path, number: int) -> Path:
    """The incomplete file of matches with this number in a journal."""
    return journal.with_name(f"{journal.name}.{number}")


def write_at(descriptor: int, pieces: Iterable[Bytes], at: int) -> int:
    """Write pieces end to end from byte `at` on; returns where they end.  After a failure the range must be written
    again.
    """
    for piece in pieces:
        left = memoryview(piece)
        left = left.cast("B") if left.nbytes else left
        while left.nbytes:
            n = os.pwrite(descriptor, left, at)
            left, at = left[n:], at + n
    return at


class _FileBytes:
    """The first `n_bytes` of a file (None: all of an open one), read on request, by any thread.

    Reading raises FileChanged when the file has become shorter, StorageError.  The descriptor is the caller's; with None the
    file is opened whenever it is read.
    """

    def __init__(self, path: Path, descriptor: int, n_bytes: int | None) -> None:
        self._path = path
        self.descriptor: int | None = descriptor
        size = os.fstat(descriptor).st_size
        self._n_bytes = size if n_bytes is None else min(n_bytes, size)

    def __len__(self) -> int:
        return self._n_bytes

    def read(self, at: int, n_bytes: int) -> bytearray:
        """Bytes from `at` on, which must be among the first `n_bytes`."""
        data = bytearray(n_bytes)
        try:
            descriptor = descriptor_of(self._path) if self.descriptor is None else self.descriptor
            try:
                read_exactly(descriptor, np.frombuffer(data, np.uint8), at, str(self._path))
            finally:
                if self.descriptor is None:
                    os.close(descriptor)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be read: {error.strerror}") from error
        return data

    def unpack(self, form: struct.Struct, at: int) -> tuple[int, ...]:
        """The numbers that begin at `at`."""
        return form.unpack(self.read(at, form.size))

    def crc32(self, begin: int, end: int) -> int:
        """CRC-32 of a range."""
        crc = 0
        for at in range(begin, end, _PIECE_BYTES):
            crc = crc32(self.read(at, min(_PIECE_BYTES, end - at)), crc)
        return crc


class JournalFile:
    """The valid content of a journal.

    identity   of the run that it belongs to
    records    in the order of the file; no event is answered twice
    end        number of valid bytes; n_torn more follow
    files      numbers of the files that hold answers
    """

    def __init__(self, path: Path, descriptor: int, most_bytes: int | None = None) -> None:
        """Read at most `most_bytes`.  Raises StorageError for anything but a journal of this version."""
        self.path = path
        self._bytes = _FileBytes(path, descriptor, most_bytes)
        self._files: dict[int, _FileBytes | None] = {}
        self.files: set[int] = set()
        self.identity, self.end = self._read_head()
        self.records: list[Record] = []
        self._answered: list[EventRange] = []
        with ExitStack() as self._opened, suppress(FileChanged):  # what a writer has cut off is torn
            while (record := self._record_at(self.end)) is not None:
                self.records.append(record)
                self.end = record.at + self._n_bytes(record)
        self.n_torn = len(self._bytes) - self.end
        self._bytes.descriptor = None

    @classmethod
    def look(cls, path: Path, most_bytes: int | None = None) -> JournalFile:
        """Read a journal that another process may be writing."""
        try:
            descriptor = descriptor_of(path)
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            return cls(path, descriptor, most_bytes)
        finally:
            os.close(descriptor)

    def _read_head(self) -> tuple[RunIdentity, int]:
        if len(self._bytes) < _IDENTITY_AT or self._bytes.read(0, len(JOURNAL_MAGIC)) != JOURNAL_MAGIC:
            raise StorageError(f"{self.path}: is not a journal of mpi-match; remove it, or give the output another name")
        version, length, crc = self._bytes.unpack(_HEAD, len(JOURNAL_MAGIC))
        if version != VERSION:
            raise StorageError(f"{self.path}: journal version found {version}, expected {VERSION}; remove it to begin anew")
        text = self._bytes.read(_IDENTITY_AT, min(length, len(self._bytes) - _IDENTITY_AT))
        if not length or crc32(text) != crc:  # the CRC of no bytes is 0, as in zeroed memory
            raise StorageError(f"{self.path}: its head is damaged; remove it to begin anew")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.keys() != {each.name for each in IDENTITY}:
            raise StorageError(f"{self.path}: its head has not the members of an identity; remove it to begin anew")
        for fault in attribute_faults(IDENTITY, found):
            raise StorageError(f"{self.path}: its head is invalid: {fault}; remove it to begin anew")
        return RunIdentity(**found), _IDENTITY_AT + length

    def _record_at(self, at: int) -> Record | None:
        """The record at an offset, if it is complete and answers no event a second time."""
        if at + _RECORD.size > len(self._bytes):
            return None
        crc, kind, start, n_events, n_ids = self._bytes.unpack(_RECORD, at)
        if kind not in list(Kind) or min(start, n_events, n_ids) < 0 or start + n_events > self.identity.n_events:
            return None
        record = Record(Kind(kind), EventRange(start, start + n_events), n_ids, at + _RECORD.size)
        end = record.at + self._n_bytes(record)
        if end > len(self._bytes) or self._bytes.crc32(at + 4, end) != crc:
            return None
        if record.kind == Kind.SET_ASIDE:
            return record
        return record if self._is_whole(record) and self._take(record.events) else None

    def _is_whole(self, record: Record) -> bool:
        """Tells whether the answers are still in their file; they are not if power failed before they were on disk, or if
        the file was removed."""
        if record.kind != Kind.PLACED:
            return self._are_answers(record)
        number = self._bytes.unpack(_PLACED, record.at)[0]
        if number not in self._files:
            self._files[number] = self._file(number)
        if self._placed(record) is None or not self._are_answers(record):
            return False
        self.files.add(number)
        return True

    def _are_answers(self, record: Record) -> bool:
        """Tells whether counts and ids fit together, and the ids of each event are valid and ascending."""
        counts, ids = self.answers(record)
        if counts.sum(dtype=np.int64) != len(ids) or int(ids.max(initial=0)) >= max(self.identity.n_ids, 1):
            return False
        return ascends_within(offsets_of(counts), ids[:-1] < ids[1:])

    def _placed(self, record: Record) -> tuple[bytes, bytes] | None:
        """Counts and ids of a record that has their location; None if the file lacks them or has other values there."""
        number, *crcs, n_counts, n_ids, rest_counts, rest_ids = self._bytes.unpack(_PLACED, record.at)
        at, file = record.at + _PLACED.size, self._files[number]
        extents = np.frombuffer(self._bytes.read(at, 16 * (n_counts + n_ids)), "<i8").reshape(-1, 2).tolist()
        at += 16 * len(extents)
        if extents and (file is None or any(min(first, n) < 0 or first + n > len(file) for first, n in extents)):
            return None
        if file is not None and sum(n for _, n in extents) > len(file):  # they overlap, and may be without end
            return None
        counts, ids = (
            b"" if file is None else b"".join(file.read(first, n) for first, n in some)
            for some in (extents[:n_counts], extents[n_counts:])
        )
        rest = self._bytes.read(at, rest_counts + rest_ids)
        found = counts + rest[:rest_counts], ids + rest[rest_counts:]
        for each, size, before, after in zip(found, self._sizes(record), crcs[::2], crcs[1::2], strict=True):
            if len(each) != size or crc32(each, before) != after:
                return None
        return found

    def _file(self, number: int) -> _FileBytes | None:
        """The content of a file, or None if it is missing.  Raises StorageError when it exists and cannot be read: its
        answers must not count as lost.
        """
        path = file_of(self.path, number)
        try:
            found = _FileBytes(path, descriptor_of(path), None)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
        self._opened.callback(_close, found)
        return found

    def _take(self, events: EventRange) -> bool:
        """Claim events.  Returns False if one of them is answered already."""
        place = bisect.bisect(self._answered, events)
        before, after = self._answered[:place][-1:], self._answered[place : place + 1]
        if any(each.stop > events.start for each in before) or any(each.start < events.stop for each in after):
            return False
        self._answered.insert(place, events)
        return True

    def _n_bytes(self, record: Record) -> int:
        """Size of a record's body, as its head says: of a truncated record, more bytes than the file has."""
        if record.kind == Kind.PLACED:
            if record.at + _PLACED.size > len(self._bytes):
                return _PLACED.size
            *_, n_counts, n_ids, rest_counts, rest_ids = self._bytes.unpack(_PLACED, record.at)
            if min(rest_counts, rest_ids) < 0:
                return len(self._bytes) + 1
            return int(_PLACED.size + 16 * (n_counts + n_ids) + rest_counts + rest_ids)
        return 0 if record.kind == Kind.SET_ASIDE else sum(self._sizes(record))

    def _sizes(self, record: Record) -> tuple[int, int]:
        """Sizes of counts and ids of a record, bytes."""
        count_type, id_type = self.identity.types
        return record.events.n_events * count_type.itemsize, record.n_ids * id_type.itemsize

    def answers(self, record: Record) -> tuple[Array, Array]:
        """Counts and ids of a record of answers, read from the file.  Raises FileChanged if they have changed or are gone,
        and StorageError.
        """
        count_type, id_type = self.identity.types
        if record.kind == Kind.PLACED:
            placed = self._placed(record)
            if placed is None:
                raise FileChanged(f"{self.path}: a file of answers beside it changed while it was read")
            return np.frombuffer(placed[0], count_type), np.frombuffer(placed[1], id_type)
        whole = self._bytes.read(record.at - _RECORD.size, _RECORD.size + self._n_bytes(record))
        if crc32(memoryview(whole)[4:]) != _RECORD.unpack_from(whole)[0]:
            raise FileChanged(f"{self.path}: changed while it was read")
        at = _RECORD.size + self._sizes(record)[0]
        counts = np.frombuffer(whole, count_type, record.events.n_events, _RECORD.size)
        return counts, np.frombuffer(whole, id_type, record.n_ids, at)

    @property
    def answered(self) -> list[Record]:
        """The records of answers, in the order of their events."""
        return sorted((each for each in self.records if each.kind != Kind.SET_ASIDE), key=lambda each: each.events)

    @property
    def n_answered(self) -> int:
        """Number of events with answers."""
        return sum(each.n_events for each in self._answered)

    def unanswered(self) -> list[EventRange]:
        """The events without answers."""
        return gaps(self._answered, self.identity.n_events)

    def set_aside(self) -> list[EventRange]:
        """Number of events that were set aside and not answered since."""
        found = {record.events for record in self.records if record.kind == Kind.SET_ASIDE}
        left = self.unanswered()
        return sorted(each for each in found if any(gap.start <= each.start and each.stop <= gap.stop for gap in left))


def _close(file: _FileBytes) -> None:
    """Close a file's descriptor; from now on it is opened whenever it is read."""
    if file.descriptor is not None:
        os.close(file.descriptor)
        file.descriptor = None


def journal_of(output: Path) -> Path:
    """The path of the journal of a run with this output."""
    return output.with_name(f"{output.name}.journal")


class IncompleteError(StorageError):
    """The requested answers are not complete yet."""

    exit_code = ExitCode.INCOMPLETE


def refuse_incomplete(output: Path) -> None:
    """Raise IncompleteError if the file of matches is missing, but the journal of the run that writes it exists."""
    path = journal_of(output)
    if not output.exists() and path.exists():
        found = JournalFile.look(path)
        state = f"{found.n_answered:,} of {found.identity.n_events:,} events are answered, in {path.name}"
        raise IncompleteError(f"{output}: incomplete: {state}; the same run with --resume goes on from there")


def is_journal(path: Path) -> bool:
    """Tells whether a file begins as a journal does."""
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        return handle.read(len(JOURNAL_MAGIC)) == JOURNAL_MAGIC


def gaps(answered: Iterable[EventRange], n_events: int) -> list[EventRange]:
    """The ranges of `n_events` events that are not in `answered`, which may be in any order."""
    found, at = [], 0
    for start, stop in sorted(answered):
        if start > at:
            found.append(EventRange(at, start))
        at = max(at, stop)
    if at < n_events:
        found.append(EventRange(at, n_events))
    return found
