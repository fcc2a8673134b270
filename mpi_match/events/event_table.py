"""The event table: published events on disk, twice.

The *raw* columns are what was published: any table can be matched against them, and the naive matcher judges by them.
The *encoded* columns (see `batch`) are the same events in the code space of one vocabulary: a tenth of the work, a third
of the bytes, and laid out so that a batch is a range of the mapped file.  When a run brings a table with another
vocabulary, events are encoded again from the raw columns; nothing is ever matched with the wrong codes.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, are_bounds, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import REJECTED, EventBatch, unmarked, within
from mpi_match.events.events import Events
from mpi_match.model import Event
from mpi_match.storage import Reader, StorageError, Writer
from mpi_match.table.vocabulary import Vocabulary

EVENTS_FILE = "events"
BLOCK_EVENTS = 2**16
"""Events of a block: the encoded columns carry one checksum, and one 64-bit start, for each."""
ENCODE_EVENTS = 2**18


def save_events(
    events: Events,
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    kind: str = EVENTS_FILE,
    left_out: Iterable[str] = (),
) -> str:
    """Write an event table: raw columns, and encoded ones for `vocabulary`.

    `kind` is "events", or "events-part" for a part of an index.  `left_out` are attributes that events had and that are not
    in `events`; the vocabulary names none of them.  Returns the file's digest.  Raises StorageError.
    """
    batch = _encoded(events, vocabulary)
    with Writer(path, kind) as writer:
        if kind != EVENTS_FILE:
            writer.attribute("rows", events.n_events)
        for name, value in event_counts(events.n_events, vocabulary).items():
            writer.attribute(name, value)
        for name, array in events.arrays():
            writer.array(name, array)
        if missing := Strings.of(sorted(name.encode() for name in left_out)):
            for name, array in missing.named("left_out"):
                writer.array(name, array)
        starts = np.append(np.arange(0, events.n_events, BLOCK_EVENTS), events.n_events)
        writer.array("encoded/block_attributes", _attribute_starts(batch, starts))
        writer.array("encoded/block_crc32", _block_checksums(batch, starts))
        writer.array("encoded/offsets", batch.offsets, contiguous=True)
        writer.array("encoded/attributes", batch.attributes, contiguous=True)
        if batch.location is not None:
            writer.array("encoded/location", batch.location, contiguous=True)
    return writer.digest


def _encoded(events: Events, vocabulary: Vocabulary) -> EventBatch:
    """All events encoded, piece by piece: for tens of millions of them, the result is the only large array."""
    pieces = [events[at : at + ENCODE_EVENTS].encode(vocabulary) for at in range(0, max(events.n_events, 1), ENCODE_EVENTS)]
    offsets = np.zeros(events.n_events + 1, np.uint32)
    np.cumsum(np.concatenate([np.diff(piece.offsets) for piece in pieces]), out=offsets[1:], dtype=np.uint32)
    attributes = np.empty(sum(len(piece.attributes) for piece in pieces), vocabulary.packed_dtype)
    at = len(attributes)
    while pieces:  # from the last on, each freed once it is copied: memory that is not yet written to costs nothing
        piece = pieces.pop().attributes
        at -= len(piece)
        attributes[at : at + len(piece)] = piece
    return EventBatch(offsets, attributes, events.location, vocabulary.fingerprint)


def event_counts(n_events: int, vocabulary: Vocabulary) -> dict[str, int | str]:
    """The attributes that every event table (and its index) states."""
    return {"n_events": n_events, "vocabulary": vocabulary.digest}


def _attribute_starts(batch: EventBatch, starts: Array) -> Array:
    """i64: position in `attributes` of the first attribute of each block, then the total; 64 bits, unlike `offsets`."""
    lengths = np.diff(batch.offsets[starts]).astype(np.int64)  # in 32 bits: a block has fewer than 2^32 attributes
    return offsets_of(lengths)


def _block_checksums(batch: EventBatch, starts: Array) -> Array:
    bounds = _attribute_starts(batch, starts)
    blocks = zip(starts[:-1].tolist(), starts[1:].tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return np.array([_checksum(batch.offsets, batch.attributes, batch.location, block) for block in blocks], np.uint32)


def _checksum(offsets: Array, attributes: Array, location: Array | None, block: tuple[int, int, int, int]) -> int:
    """CRC-32 of one block of the encoded columns: its n + 1 offsets, its attributes, its locations."""
    start, stop, first, last = block
    crc = crc32(np.ascontiguousarray(offsets[start : stop + 1]).view(np.uint8).data)
    if last > first:
        crc = crc32(np.ascontiguousarray(attributes[first:last]).view(np.uint8).data, crc)
    if location is not None and stop > start:
        crc = crc32(np.ascontiguousarray(location[start:stop]).view(np.uint8).reshape(-1).data, crc)
    return crc


class _Encoded:
    """The encoded columns of one file, mapped; blocks are checked when first touched."""

    def __init__(self, reader: Reader, n_events: int, vocabulary: Vocabulary) -> None:
        self._path = reader.path
        self._fingerprint = vocabulary.fingerprint
        # As plain arrays, of which a slice is made in a sixth of the time.
        self._offsets = unmarked(np.asarray(reader.mapped("encoded/offsets")))
        self._attributes = unmarked(np.asarray(reader.mapped("encoded/attributes")))
        self._location = None
        if "encoded/location" in reader:
            self._location = unmarked(np.asarray(reader.mapped("encoded/location")))
        self._starts: list[int] = reader.array("encoded/block_attributes").tolist()
        self._crcs = reader.array("encoded/block_crc32")
        self._checked = np.zeros(len(self._crcs), bool)
        self.rejected = _rejected(reader, n_events)
        self.n_events = n_events
        n_blocks = -(-n_events // BLOCK_EVENTS)
        location = (n_events, 2) if self._location is None else self._location.shape
        if (
            (len(self._offsets), len(self._starts), len(self._crcs)) != (n_events + 1, n_blocks + 1, n_blocks)
            or (self._starts[-1], location) != (len(self._attributes), (n_events, 2))
            or self._attributes.dtype != vocabulary.packed_dtype
        ):
            raise StorageError(f"{self._path}: its encoded columns do not fit each other; compile the events again")

    @property
    def columns(self) -> list[Array]:
        """The mapped columns, one-dimensional."""
        return EventBatch(self._offsets, self._attributes, self._location, self._fingerprint).columns

    def batch(self, start: int, stop: int) -> EventBatch:
        for block in range(start // BLOCK_EVENTS, -(-stop // BLOCK_EVENTS)):
            if not self._checked[block]:
                self._check(block)
        first, last = self._attribute(start), self._attribute(stop)
        location = None if self._location is None else self._location[start:stop]
        found = EventBatch(self._offsets[start : stop + 1], self._attributes[first:last], location, self._fingerprint)
        if self.rejected is not None and (rejected := within(self.rejected, start, stop)) is not None:
            if (found.offsets[rejected] != found.offsets[rejected + 1]).any():
                raise StorageError(f"{self._path}: a rejected row has attributes; compile the events again")
            found.rejected = rejected
        return found

    def _attribute(self, event: int) -> int:
        block = min(event // BLOCK_EVENTS, len(self._starts) - 1)
        at = min(block * BLOCK_EVENTS, self.n_events)
        return self._starts[block] + (int(self._offsets[event]) - int(self._offsets[at])) % 2**32

    def _check(self, block: int) -> None:
        start, stop = block * BLOCK_EVENTS, min((block + 1) * BLOCK_EVENTS, self.n_events)
        extent = (start, stop, self._starts[block], self._starts[block + 1])
        found, expected = _checksum(self._offsets, self._attributes, self._location, extent), int(self._crcs[block])
        if found != expected:
            raise StorageError(
                f"{self._path}: encoded events {start} to {stop} are damaged: "
                f"CRC-32 found {found:08x}, expected {expected:08x}; compile the events again"
            )
        self._checked[block] = True


class EventTable:
    """An event table on disk, read through a vocabulary.

    `with EventTable(path, vocabulary) as events: events.batch(0, 1000)`.  `encoded_for_vocabulary` says whether the
    file's encoded columns serve (they are then mapped, and a batch inside one part shares the file's memory) or events
    are encoded as they are read.  `left_out` are the attributes that the file does not have although events had them; a
    vocabulary that names one of them is refused.
    """

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
        self._reader = Reader(path, EVENTS_FILE)
        self._vocabulary = vocabulary
        self._raw: dict[int, Events] = {}
        try:
            self._open(vocabulary)
        except BaseException:
            self._reader.close()
            raise

    def _open(self, vocabulary: Vocabulary) -> None:
        reader = self._reader
        self.n_events = int(reader.attribute("n_events"))
        self.encoded_for_vocabulary = reader.attribute("vocabulary") == vocabulary.digest
        self.left_out = {name.decode() for name in Strings.read(reader, "left_out")} if "left_out/data" in reader else set()
        missing = self.left_out & {name.decode() for name in vocabulary.names} if self.left_out else set()
        if missing:
            raise StorageError(
                f"{reader.path}: was compiled without {', '.join(map(repr, sorted(missing)))}, which no filter named; "
                "compile the events again for a table that does"
            )
        rows = [self.n_events] if reader.rows is None else reader.rows
        self._bounds = [0, *accumulate(int(n) for n in rows)]
        if self._bounds[-1] != self.n_events:
            raise StorageError(f"{reader.path}: its parts hold {self._bounds[-1]} events, expected {self.n_events}")
        self._encoded: list[_Encoded] = []
        if self.encoded_for_vocabulary:
            self._encoded = [_Encoded(s, n, vocabulary) for s, n in zip(reader.sources, rows, strict=True)]

    def __enter__(self) -> EventTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def __len__(self) -> int:
        return self.n_events

    @property
    def digest(self) -> str:
        """SHA-256 that tells this file from others."""
        return str(self._reader.attributes["digest"])

    @property
    def mapped(self) -> list[Array]:
        """The encoded columns as they are mapped, those of each part in turn; none where events are encoded as they come."""
        return [column for part in self._encoded for column in part.columns]

    @property
    def encoded_bytes(self) -> int:
        """Their size, and what batches of them say of rejected rows; 0 where there are none."""
        n_rejected = sum(len(part.rejected) for part in self._encoded if part.rejected is not None)
        return sum(column.nbytes for column in self.mapped) + n_rejected * REJECTED.itemsize

    def batch(self, start: int, stop: int) -> EventBatch:
        """Events `start` to `stop`, encoded.  Raises StorageError when the file is damaged there; FileChanged when it is not
        what was opened.

        A batch may share the file's memory, so what is made of it counts if `check_unchanged` says so afterwards.
        """
        try:
            pieces = [
                self._encoded[part].batch(first, last)
                if self._encoded
                else self.raw_part(part)[first:last].encode(self._vocabulary)
                for part, first, last in self._cut(start, stop)
            ]
        except StorageError:
            self.check_unchanged(start, stop)
            raise
        return pieces[0] if len(pieces) == 1 else EventBatch.concat(pieces)

    def check_unchanged(self, start: int, stop: int) -> None:
        """Raise FileChanged when the file, or a part of it with events of this range, is not what it was when opened."""
        self._reader.check_unchanged()
        if self._reader.rows is not None:
            for part, _, _ in self._cut(start, stop):
                self._reader.sources[part].check_unchanged()

    def batches(self, size: int) -> Iterator[EventBatch]:
        """All events in batches of `size` (the last may be shorter)."""
        return (self.batch(at, min(at + size, self.n_events)) for at in range(0, self.n_events, size))

    def event(self, i: int) -> Event | None:
        """One event as it was published; None for a rejected row."""
        ((part, first, _),) = self._cut(i, i + 1)
        return self.raw_part(part).event(first)

    def ids(self) -> Iterator[str | None]:
        """The publisher's id of every event, in order; None for an event without one."""
        for part, source in enumerate(self._reader.sources):
            n = self._bounds[part + 1] - self._bounds[part]
            if "ids/data" in source:
                yield from (i.decode() or None for i in Strings.read(source, "ids"))
            else:
                yield from (None for _ in range(n))

    @property
    def n_parts(self) -> int:
        """How many parts there are: 1 where the file is no index."""
        return len(self._bounds) - 1

    def raw_part(self, part: int) -> Events:
        """The raw columns of one part, read and checked."""
        raw = self._raw.get(part)
        if raw is None:
            raw = _read_raw(self._reader.sources[part], self._bounds[part + 1] - self._bounds[part])
            self._raw = {part: raw}  # only the last one is kept: memory stays bounded
        return raw

    def _cut(self, start: int, stop: int) -> Sequence[tuple[int, int, int]]:
        """The range as (part, first, last) with positions inside the part."""
        if not 0 <= start <= stop <= self.n_events:
            raise IndexError(f"events {start} to {stop} of {self.n_events}")
        found, part = [], bisect.bisect(self._bounds, start) - 1
        while start < stop:
            begin, end = self._bounds[part], self._bounds[part + 1]
            if start < end:  # a part may be empty
                found.append((part, start - begin, min(stop, end) - begin))
                start = end
            part += 1
        return found or [(0, 0, 0)]


def _read_raw(reader: Reader, n_events: int) -> Events:
    """The raw columns of one file.  Raises StorageError when they do not fit each other."""
    has_ids = "ids/data" in reader
    events = Events(
        offsets=reader.array("events/offsets"),
        name=reader.array("events/name"),
        type=reader.array("events/type"),
        number=reader.array("events/number"),
        string=reader.array("events/string"),
        names=Strings.read(reader, "names"),
        strings=Strings.read(reader, "strings"),
        location=reader.array("events/location") if "events/location" in reader else None,
        ids=Strings.read(reader, "ids") if has_ids else None,
        rejected=_rejected(reader, n_events),
    )
    n_attributes = len(events.name)
    if (
        events.n_events != n_events
        or not are_bounds(events.offsets, n_attributes)
        or not n_attributes == len(events.type) == len(events.number) == len(events.string)
        or int(events.name.max(initial=0)) >= max(len(events.names), 1)
        or int(events.string.max(initial=0)) >= max(len(events.strings), 1)
        or (events.location is not None and events.location.shape != (n_events, 2))
        or (events.ids is not None and len(events.ids) != n_events)
        or (events.rejected is not None and np.diff(events.offsets)[events.rejected].any())
    ):
        raise StorageError(f"{reader.path}: its columns of events do not fit each other; compile the events again")
    return events


def _rejected(reader: Reader, n_events: int) -> Array | None:
    """The rejected rows of one file; None when there are none.  Raises StorageError."""
    if "events/rejected" not in reader:
        return None
    found: Array = reader.array("events/rejected")
    if len(found) and (found[0] < 0 or found[-1] >= n_events or (np.diff(found) <= 0).any()):
        raise StorageError(f"{reader.path}: its rejected rows are no ascending numbers of events; compile the events again")
    return found if len(found) else None
