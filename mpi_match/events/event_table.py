"""The event table: published events on disk, in two forms.

The *raw* columns are the events as published: any table can be matched against them, and the naive matcher uses them.  The
*encoded* columns (see `batch`) are the same events in the code space of one vocabulary: a tenth of the work, a third of the
bytes, and laid out so that a batch is a range of each column.  For a table with another vocabulary, events are encoded
again from the raw columns; no event is ever matched with codes of another vocabulary.
"""

from __future__ import annotations

import bisect
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from mpi_match.arrays.csr import Array, are_bounds
from mpi_match.arrays.strings import Strings
from mpi_match.events.batch import REJECTED, WIRE_EXTRA_BYTES, EventBatch
from mpi_match.events.encoded import EncodedColumns, block_columns
from mpi_match.events.events import Events
from mpi_match.events.lists import ListColumns
from mpi_match.events.schema import EVENTS, RAW
from mpi_match.model import Event, Type
from mpi_match.storage import Reader, StorageError, Writer
from mpi_match.storage.range_read import Memory
from mpi_match.table.vocabulary import Vocabulary

ENCODE_EVENTS = 2**18
RAW_COLUMNS = ("name", "type", "number", "string")
COMPARED_EVENTS = 2**16
"""Number of events that are encoded again when a table is opened, to compare its encoded columns with the raw ones."""


def save_events(
    events: Events,
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    kind: str = EVENTS.kind,
    batch: EventBatch | None = None,
) -> str:
    """Write an event table: raw columns, and columns encoded for `vocabulary`, which are those of `batch` if it is given.

    `kind` is "events", or "events-part" for a part of an index.  The vocabulary names none of the attributes that were left
    out.  Returns the file's digest.  Raises StorageError.
    """
    batch = _encoded(events, vocabulary) if batch is None else batch
    with Writer(path, kind) as writer:
        if kind != EVENTS.kind:
            writer.attribute("rows", events.n_events)
        for name, value in event_counts(events.n_events, vocabulary).items():
            writer.attribute(name, value)
        for name, array in events.arrays():
            writer.array(name, array)
        if left_out := sorted((name.encode(), n) for name, n in events.left_out.items()):
            for name, array in Strings.of(each for each, _ in left_out).named("left_out"):
                writer.array(name, array)
            writer.array("left_out/events", np.array([n for _, n in left_out], np.int64))
        starts, crcs = block_columns(batch)
        writer.array("encoded/block_attributes", starts)
        writer.array("encoded/block_crc32", crcs)
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
    while pieces:  # last piece first, each freed once it is copied: pages not yet written take no memory
        piece = pieces.pop().attributes
        at -= len(piece)
        attributes[at : at + len(piece)] = piece
    return EventBatch(offsets, attributes, events.location, vocabulary.fingerprint)


def event_counts(n_events: int, vocabulary: Vocabulary) -> dict[str, int | str]:
    """The attributes that every event table (and its index) states."""
    return {"n_events": n_events, "vocabulary": vocabulary.digest}


class EventTable:
    """An event table on disk, read with a vocabulary.

    `with EventTable(path, vocabulary) as events: events.batch(0, 1000)`.  `encoded_for_vocabulary` says whether the file's
    encoded columns have this vocabulary.  If so, they are read unchanged, into memory that an engine may allocate
    (`read_into`); if not, events are encoded when they are read.  `left_out` are the attributes that events had and the file
    lacks, with the number of events (0 if the file does not state it); a vocabulary that names one of them is refused.
    """

    def __init__(self, path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
        self._reader = Reader(path, EVENTS)
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
        self.left_out = dict(sum((left_out_of(source) for source in reader.sources), Counter()))
        missing = vocabulary.attributes_among(self.left_out)
        if missing:
            raise StorageError(
                f"{reader.path}: was compiled without {', '.join(map(repr, sorted(missing)))}, which no filter named; "
                "compile the events again for a table that does"
            )
        rows = [self.n_events] if reader.rows is None else reader.rows
        for source, n in zip(reader.sources, rows, strict=True):
            if (source.attribute("n_events"), source.attribute("vocabulary")) != (n, reader.attribute("vocabulary")):
                source.refuse("its events, or the vocabulary that they are encoded with, are not what the index says")
        self._bounds = [0, *accumulate(rows)]
        if self._bounds[-1] != self.n_events:
            reader.refuse(f"its parts hold {self._bounds[-1]:,} events, expected {self.n_events:,}")
        self._encoded: list[EncodedColumns] = []
        if self.encoded_for_vocabulary:
            self._encoded = [EncodedColumns(s, n, vocabulary) for s, n in zip(reader.sources, rows, strict=True)]
            self._compare(min(self.n_events, COMPARED_EVENTS))

    def _compare(self, n_events: int) -> None:
        """Refuse a file if its first events are not encoded as published."""
        for part, first, last in self._cut(0, n_events):
            source = self._reader.sources[part]
            made = _first_events(source, last).encode(self._vocabulary)
            found = self._encoded[part].batch(first, last)
            same = np.array_equal(made.bounds, found.bounds) and np.array_equal(made.attributes, found.attributes)
            if made.location is not None and found.location is not None:
                same &= made.location.tobytes() == np.ascontiguousarray(found.location).tobytes()
            if not same:
                source.refuse("the encoded columns say something else than the raw ones")

    def __enter__(self) -> EventTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def __len__(self) -> int:
        return self.n_events

    @property
    def digest(self) -> str:
        """SHA-256 that identifies this file."""
        return str(self._reader.attributes["digest"])

    @property
    def attribute_names(self) -> set[str]:
        """The names of all attributes of its events, encoded or not."""
        return {name.decode() for source in self._reader.sources for name in _pool(source, "names")}

    @property
    def any_named(self) -> bool:
        """Tells whether any event has an attribute that the vocabulary names, or a location."""
        if self._encoded:
            return any(part.holds_attributes for part in self._encoded)
        return not self.attribute_names.isdisjoint(self._vocabulary.attribute_names)

    def read_into(self, memory: Memory) -> None:
        """From now on, allocate the memory for encoded columns by `memory`."""
        for part in self._encoded:
            part.memory = memory

    def wire_bytes(self, n_batches: int) -> int:
        """Approximate bytes of all events as they travel in `n_batches` batches; 0 when only encoding them tells."""
        n_rejected = sum(len(part.rejected) for part in self._encoded if part.rejected is not None)
        encoded = sum(part.n_bytes for part in self._encoded) + n_rejected * REJECTED.itemsize
        return encoded and encoded + WIRE_EXTRA_BYTES * n_batches

    def batch(self, start: int, stop: int) -> EventBatch:
        """Events `start` to `stop`, encoded.  Raises StorageError when the file is damaged there; FileChanged when it was
        changed after it was opened.

        Only encoded blocks are compared with their checksums whenever they are read, so results are valid only if
        `check_unchanged` passes afterwards.
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
        """Raise FileChanged if the file, or a part of it with events of this range, has changed since it was opened."""
        self._reader.check_unchanged()
        if self._reader.rows is not None:
            for part, _, _ in self._cut(start, stop):
                self._reader.sources[part].check_unchanged()

    def batches(self, size: int) -> Iterator[EventBatch]:
        """All events in batches of `size` (the last may be shorter)."""
        return (self.batch(at, min(at + size, self.n_events)) for at in range(0, self.n_events, size))

    def event(self, i: int) -> Event | None:
        """One event as published; None for a rejected row."""
        ((part, first, _),) = self._cut(i, i + 1)
        return self.raw_part(part).event(first)

    def ids(self) -> Iterator[str | None]:
        """The publisher's id of every event, in order; None for an event without one."""
        for part, source in enumerate(self._reader.sources):
            n = self._bounds[part + 1] - self._bounds[part]
            if "ids/data" in source:
                ids = _pool(source, "ids")
                rejected = source.array("events/rejected") if "events/rejected" in source else ()
                if any(0 <= row < n and len(ids[row]) for row in rejected):
                    source.refuse("events/rejected names a row that has an id")
                yield from (i.decode() or None for i in ids)
            else:
                yield from (None for _ in range(n))

    @property
    def n_parts(self) -> int:
        """Number of parts; 1 for a file other than an index."""
        return len(self._bounds) - 1

    def raw_part(self, part: int) -> Events:
        """The raw columns of one part, read and checked."""
        raw = self._raw.get(part)
        if raw is None:
            raw = _read_raw(self._reader.sources[part])
            self._raw = {part: raw}  # only the last one is kept: memory stays bounded
        return raw

    def _cut(self, start: int, stop: int) -> Sequence[tuple[int, int, int]]:
        """The range as (part, first, last) with positions within the part."""
        if not 0 <= start <= stop <= self.n_events:
            raise IndexError(f"events {start} to {stop} of {self.n_events}")
        if len(self._bounds) == 2:
            return [(0, start, stop)]
        found, part = [], bisect.bisect(self._bounds, start) - 1
        while start < stop:
            begin, end = self._bounds[part], self._bounds[part + 1]
            if start < end:  # a part may be empty
                found.append((part, start - begin, min(stop, end) - begin))
                start = end
            part += 1
        return found or [(0, 0, 0)]


def _pool(reader: Reader, name: str) -> Strings:
    """Strings of one file.  Raises StorageError when they are invalid."""
    strings = Strings.read(reader, name)
    for fault in EVENTS.faults(dict(strings.named(name)), declared=reader.declared):
        reader.refuse(fault)
    return strings


def left_out_of(reader: Reader) -> Counter[str]:
    """The attributes that one file lacks, with the number of its events that had each.  Raises StorageError."""
    if "left_out/data" not in reader:
        return Counter()
    names = [name.decode() for name in _pool(reader, "left_out")]
    counts = reader.array("left_out/events").tolist() if "left_out/events" in reader else [0] * len(names)
    if len(counts) != len(names) or min(counts, default=0) < 0:
        reader.refuse("left_out/events does not fit left_out/offsets")
    return Counter(dict(zip(names, counts, strict=True)))


def _read_raw(reader: Reader) -> Events:
    """The raw columns of one file.  Raises StorageError when they are invalid."""
    events = Events(
        offsets=reader.array("events/offsets"),
        name=reader.array("events/name"),
        type=reader.array("events/type"),
        number=reader.array("events/number"),
        string=reader.array("events/string"),
        names=Strings.read(reader, "names"),
        strings=Strings.read(reader, "strings"),
        location=reader.array("events/location") if "events/location" in reader else None,
        ids=Strings.read(reader, "ids") if "ids/data" in reader else None,
        rejected=reader.array("events/rejected") if "events/rejected" in reader else None,
        lists=ListColumns.read(reader) if "lists/offsets" in reader else None,
    )
    for fault in RAW.faults(dict(events.arrays()), reader.attributes):
        reader.refuse(fault)
    return events


def _first_events(reader: Reader, n_events: int) -> Events:
    """The first `n_events` events of a file, without ids, and its strings up to the last that they use.

    Only these are read, so their checksums are not verified; but their values are checked like those of a whole file.
    Raises StorageError.
    """

    def strings_up_to(name: str, n: int) -> Strings:
        offsets = reader.rows_of(f"{name}/offsets", 0, n + 1)
        if not are_bounds(offsets, int(offsets[-1])) or offsets[-1] > reader.length(f"{name}/data"):
            reader.refuse(f"{name}/offsets does not fit {name}/data")
        return Strings(reader.rows_of(f"{name}/data", 0, int(offsets[-1])), offsets)

    offsets = reader.rows_of("events/offsets", 0, n_events + 1)
    if not are_bounds(offsets, int(offsets[-1])) or offsets[-1] > reader.length("events/name"):
        reader.refuse("events/offsets does not fit events/name")
    name, type_, number, string = (reader.rows_of(f"events/{column}", 0, int(offsets[-1])) for column in RAW_COLUMNS)
    lists = _lists_up_to(reader, string[type_ == Type.LIST]) if "lists/offsets" in reader else None
    texts = string[type_ == Type.STRING] if lists is None else np.append(string[type_ == Type.STRING], lists.string)
    n_strings = min(int(texts.max(initial=0)) + 1, reader.length("strings/offsets") - 1)
    has_location = "events/location" in reader
    rejected = reader.array("events/rejected") if "events/rejected" in reader else None
    events = Events(
        offsets=offsets,
        name=name,
        type=type_,
        number=number,
        string=string,
        names=strings_up_to("names", reader.length("names/offsets") - 1),
        strings=strings_up_to("strings", n_strings),
        location=reader.rows_of("events/location", 0, n_events) if has_location else None,
        rejected=None if rejected is None else rejected[rejected < n_events],
        lists=lists,
    )
    for fault in RAW.faults(dict(events.arrays())):
        reader.refuse(fault)
    return events


def _lists_up_to(reader: Reader, used: Array) -> ListColumns:
    """The lists of a file up to the last that is used."""
    n_lists = min(int(used.max(initial=0)) + 1, max(reader.length("lists/offsets") - 1, 0))
    offsets = reader.rows_of("lists/offsets", 0, n_lists + 1)
    if not are_bounds(offsets, int(offsets[-1])) or offsets[-1] > reader.length("lists/type"):
        reader.refuse("lists/offsets does not fit lists/type")
    type_, number, string = (reader.rows_of(f"lists/{column}", 0, int(offsets[-1])) for column in RAW_COLUMNS[1:])
    return ListColumns(offsets, type_, number, string)
