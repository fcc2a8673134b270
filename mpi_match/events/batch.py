"""A batch of encoded events: the unit that travels over MPI and that engines match.

    attributes   u32 or u64 [m]   packed attributes (see `vocabulary`), ascending within an event, events end to end
    offsets      u32[n + 1]       bounds of the events, counted from any start and modulo 2^32
    location     f64[n, 2]        x and y, NaN for an event without one; None when no filter of the table has an area
    rejected     u32[r]           which of the events are rejected rows, ascending; None when none is
    signatures   u64[n, 3]        of all names of an event, also of those that are left out (`signatures`); None: not known

Event i has the attributes `attributes[offsets[i] - offsets[0] : offsets[i + 1] - offsets[0]]` (in 32-bit arithmetic).
Offsets need not start at 0, so a range of a large event table is a batch without copying or changing a byte.

Names that no constraint uses are left out; string atoms are evaluated (they are attributes like any other).  A rejected row
keeps its number; it has no attributes and no location.  It matches nothing, not even a filter that asks for absence: an
engine matches `accepted`, the other events, and empty answers are inserted afterwards (`engines.base`).

The wire form is one contiguous buffer: a header of nine 64-bit words, then the arrays, each padded to eight bytes.  The
header has the number of attributes of the widest event if that was known, so that a worker need not scan every event first.
Signatures are for `tagmatch` alone, and come last.

Another wire form has some events of a batch (`SomeEvents`): two words, a magic number and the number of all events; a bit
for each event, padded; and the wire form of those whose bit is set.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.events.signatures import SIGNATURE_WORDS
from mpi_match.humanize import plural

_MAGIC = 0x3248435441422D4D  # "M-BATCH2" in memory, read as one little-endian word
_HEADER = struct.Struct("<9Q")
_MAGIC_OF_SOME = 0x454D4F5342422D4D  # "M-BBSOME"
_HEADER_OF_SOME = struct.Struct("<2Q")
WIRE_EXTRA_BYTES = _HEADER.size + 4 + 3 * 7
"""Largest size of a wire form beyond four bytes for each event and for each rejected row, attributes, locations and
signatures."""
_BOUNDS, _PLACE = struct.Struct("<2I"), struct.Struct("<2d")
_NOWHERE = (np.nan, np.nan)
_PADDING = [bytes(n) for n in range(8)]
_OFFSET: np.dtype[Any] = np.dtype(np.uint32)
_LOCATION: np.dtype[Any] = np.dtype(np.float64)
_SIGNATURE: np.dtype[Any] = np.dtype(np.uint64)
_HAS_LOCATION, _HAS_SIGNATURES = 1, 2  # bits of a word of the header
REJECTED: np.dtype[Any] = np.dtype(np.uint32)
_ATTRIBUTE: dict[int, np.dtype[Any]] = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


@dataclass(eq=False, repr=False)  # not frozen: that would cost half a microsecond, and matching some events takes five
class EventBatch:
    """n events encoded with the vocabulary of this `fingerprint`.  See the module for the arrays."""

    offsets: Array
    attributes: Array
    location: Array | None
    fingerprint: int
    rejected: Array | None = None
    signatures: Array | None = None
    is_on_gpu: ClassVar[bool] = False

    def __repr__(self) -> str:
        counts = f"{plural(self.n_events, 'event')} with {plural(len(self.attributes), 'attribute')}"
        return f"<batch of {counts}, vocabulary {self.fingerprint:016x}>"

    @property
    def n_events(self) -> int:
        return len(self.offsets) - 1

    @property
    def packed(self) -> tuple[int, ...]:
        """The attributes as integers, which for a single event take less time than an array."""
        return tuple(self.attributes.tolist())

    @property
    def place(self) -> tuple[float, float]:
        """X and y of the first event, NaN without a location."""
        return _NOWHERE if self.location is None else tuple(self.location[0].tolist())

    @property
    def has_location(self) -> bool:
        return self.location is not None

    @property
    def n_attributes(self) -> int:
        return len(self.attributes)

    def __len__(self) -> int:
        return self.n_events

    @cached_property
    def widest(self) -> int:
        """Most attributes of an event; 0 without events."""
        return len(self.attributes) if self.n_events == 1 else int(np.diff(self.offsets).max(initial=0))

    @property
    def columns(self) -> list[Array]:
        """The arrays, one-dimensional."""
        columns = [self.offsets, self.attributes, *([] if self.location is None else [self.location])]
        return [column.reshape(-1) for column in columns]

    @property
    def bounds(self) -> Array:
        """i64[n + 1]: bounds of the events in `attributes`, starting at 0."""
        return (self.offsets - self.offsets[:1]).astype(np.int64)

    def __getitem__(self, events: slice) -> EventBatch:
        """Events `start` to `stop` as a batch that shares this one's memory."""
        start, stop, step = events.indices(self.n_events)
        if step != 1:
            raise ValueError("a batch can only be sliced into consecutive events")
        stop = max(start, stop)
        first, last = ((int(self.offsets[i]) - int(self.offsets[0])) % 2**32 for i in (start, stop))
        location = None if self.location is None else self.location[start:stop]
        rejected = None if self.rejected is None else within(self.rejected, start, stop)
        signatures = None if self.signatures is None else self.signatures[start:stop]
        columns = (self.offsets[start : stop + 1], self.attributes[first:last], location)
        return EventBatch(*columns, self.fingerprint, rejected, signatures)

    def picked(self, events: Array) -> EventBatch:
        """The events with these numbers, in this order, as a batch of its own; none of them is a rejected row."""
        bounds = self.bounds
        lengths = np.diff(bounds)[events]
        attributes = self.attributes[take_ranges(bounds[events], lengths)]
        location, signatures = (None if each is None else each[events] for each in (self.location, self.signatures))
        offsets = offsets_of(lengths).astype(_OFFSET)
        return EventBatch(offsets, attributes, location, self.fingerprint, signatures=signatures)

    @cached_property
    def accepted(self) -> EventBatch:
        """The events that are not rejected rows; the batch itself when none is rejected."""
        if self.rejected is None:
            return self
        location = None if self.location is None else np.delete(self.location, self.rejected, axis=0)
        signatures = None if self.signatures is None else np.delete(self.signatures, self.rejected, axis=0)
        columns = (np.delete(self.offsets, self.rejected), self.attributes, location)
        found = EventBatch(*columns, self.fingerprint, signatures=signatures)
        if "widest" in vars(self):
            vars(found)["widest"] = self.widest
        return found

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        size = _HEADER.size + _padded(self.offsets.nbytes) + _padded(self.attributes.nbytes)
        size += 0 if self.location is None else self.location.nbytes
        size += 0 if self.signatures is None else self.signatures.nbytes
        return size if self.rejected is None else size + _padded(self.rejected.nbytes)

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the batch to the start of `buffer` u8 (or a new one); returns the part that was filled, u8[wire_bytes]."""
        offsets, attributes, location, widest = self.offsets, self.attributes, self.location, vars(self).get("widest")
        rejected = self.rejected
        there = _HAS_LOCATION * (location is not None) | _HAS_SIGNATURES * (self.signatures is not None)
        sizes = (len(offsets) - 1, len(attributes), attributes.itemsize, there)
        n_rejected = 0 if rejected is None else len(rejected)
        header = _HEADER.pack(_MAGIC, *sizes, self.fingerprint, widest is not None, widest or 0, n_rejected)
        sections: tuple[Array, ...] = (offsets, attributes) if location is None else (offsets, attributes, location)
        if rejected is not None:
            sections = (*sections, rejected)
        if self.signatures is not None:
            sections = (*sections, self.signatures)
        if buffer is None:  # for a single event this takes half as long as filling arrays
            wire = bytearray(header)
            for section in sections:
                wire += section.data
                wire += _PADDING[-section.nbytes % 8]
            return np.frombuffer(wire, np.uint8)
        memory, at = buffer.data, len(header)
        memory[:at] = header
        for section in sections:
            np.ndarray(section.shape, section.dtype, memory, at)[...] = section
            at += _padded(section.nbytes)
        return buffer[:at]

    def to_wires(self, size: int) -> Iterator[bytes]:
        """The wire forms of the batch in pieces of `size` events (the last may have fewer), each made when asked for."""
        if size > 1 or self.rejected is not None or self.signatures is not None:
            yield from (self[at : at + size].to_wire().tobytes() for at in range(0, self.n_events, size))
            return
        width, fingerprint, bounds = self.attributes.itemsize, self.fingerprint, self.offsets.tolist()
        memory, at = self.attributes.tobytes(), 0
        there, places = (0, b"") if self.location is None else (_HAS_LOCATION, self.location.tobytes())
        headers: dict[int, bytes] = {}  # by the number of attributes
        for event, (first, last) in enumerate(pairwise(bounds)):  # for single events this takes a third of the time
            n = (last - first) % 2**32
            end = at + n * width
            header = headers.get(n)
            if header is None:
                header = headers[n] = _HEADER.pack(_MAGIC, 1, n, width, there, fingerprint, 0, 0, 0)
            place = places[_PLACE.size * event : _PLACE.size * (event + 1)]
            yield b"".join([header, _BOUNDS.pack(first, last), memory[at:end], _PADDING[(at - end) % 8], place])
            at = end

    @classmethod
    def from_wire(cls, wire: Array | memoryview) -> EventBatch:
        """The batch in a wire form u8, sharing its memory.

        `wire` must be 8-byte aligned; bytes after the batch are ignored.  Raises ValueError for anything but a whole batch.
        """
        memory, n_bytes = wire.data if isinstance(wire, np.ndarray) else wire, len(wire)
        if n_bytes < _HEADER.size:
            raise ValueError(f"not a batch: {n_bytes} bytes are less than a header")
        magic, n_events, n_attributes, width, there, fingerprint, known, widest, n_rejected = _HEADER.unpack_from(memory)
        if magic == _MAGIC_OF_SOME:
            return _some_of_wire(memory, n_events)
        if magic != _MAGIC:
            raise ValueError(f"not a batch: the first word is {magic:#x}, expected {_MAGIC:#x}")
        attributes_at = _HEADER.size + _padded((n_events + 1) * _OFFSET.itemsize)
        end = attributes_at + n_attributes * width
        location_at = rejected_at = signatures_at = 0
        if there & _HAS_LOCATION:
            location_at = _padded(end)
            end = location_at + 2 * n_events * _LOCATION.itemsize
        if n_rejected:
            rejected_at = _padded(end)
            end = rejected_at + n_rejected * REJECTED.itemsize
        if there & _HAS_SIGNATURES:
            signatures_at = _padded(end)
            end = signatures_at + n_events * SIGNATURE_WORDS * _SIGNATURE.itemsize
        if end > n_bytes:
            raise ValueError(f"not a whole batch: it has {n_bytes:,} bytes, {n_events:,} events need more")
        attribute = _ATTRIBUTE[width]
        if n_events == 1 and not rejected_at and not signatures_at:
            return _SingleEvent(memory, fingerprint, n_attributes, attribute, attributes_at, location_at)
        batch = cls(
            np.ndarray(n_events + 1, _OFFSET, memory, _HEADER.size),
            np.ndarray(n_attributes, attribute, memory, attributes_at),
            np.ndarray((n_events, 2), _LOCATION, memory, location_at) if location_at else None,
            fingerprint,
            np.ndarray(n_rejected, REJECTED, memory, rejected_at) if rejected_at else None,
            np.ndarray((n_events, SIGNATURE_WORDS), _SIGNATURE, memory, signatures_at) if signatures_at else None,
        )
        if known:
            vars(batch)["widest"] = widest
        return batch

    @staticmethod
    def concat(batches: list[EventBatch]) -> EventBatch:
        """Consecutive batches as one.

        If only some have locations, the events of the others get NaN.  Signatures stay if all batches have them.
        """
        lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
        offsets = np.zeros(len(lengths) + 1, np.uint32)
        np.cumsum(lengths, out=offsets[1:], dtype=np.uint32)
        location = None
        if any(batch.location is not None for batch in batches):
            pieces = [np.full((len(b), 2), np.nan) if b.location is None else b.location for b in batches]
            location = np.concatenate(pieces)
        attributes = np.concatenate([batch.attributes for batch in batches])
        rejected = concat_rejected([batch.rejected for batch in batches], [len(batch) for batch in batches])
        rejected = None if rejected is None else rejected.astype(REJECTED)
        signed = [batch.signatures for batch in batches if batch.signatures is not None]
        signatures = np.concatenate(signed) if signed and len(signed) == len(batches) else None
        return EventBatch(offsets, attributes, location, batches[0].fingerprint, rejected, signatures)


class _SingleEvent(EventBatch):
    """A batch of one event in the memory of its wire form.  Arrays, which take longer than the rest, are made on request."""

    n_events = 1

    def __init__(
        self,
        memory: memoryview,
        fingerprint: int,
        n_attributes: int,
        attribute: np.dtype,
        attributes_at: int,
        location_at: int,
    ) -> None:
        self.fingerprint = fingerprint
        self._memory, self._n, self._attribute, self._attributes_at = memory, n_attributes, attribute, attributes_at
        self._location_at = location_at

    @cached_property
    def offsets(self) -> Array:  # type: ignore[override]
        return np.ndarray(2, _OFFSET, self._memory, _HEADER.size)

    @cached_property
    def attributes(self) -> Array:  # type: ignore[override]
        return np.ndarray(self._n, self._attribute, self._memory, self._attributes_at)

    @cached_property
    def location(self) -> Array | None:  # type: ignore[override]
        return np.ndarray((1, 2), _LOCATION, self._memory, self._location_at) if self._location_at else None

    @property
    def n_attributes(self) -> int:
        return self._n

    @property
    def packed(self) -> tuple[int, ...]:
        """See `EventBatch.packed`."""
        return _integers(self._n, self._attribute.itemsize).unpack_from(self._memory, self._attributes_at)

    @property
    def place(self) -> tuple[float, float]:
        """See `EventBatch.place`."""
        return _PLACE.unpack_from(self._memory, self._location_at) if self._location_at else _NOWHERE


class SomeEvents(EventBatch):
    """A batch of `n_events` events that has only some of them, `accepted`: those whose bit is set.  Engines take the others
    for rejected rows, which match nothing."""

    n_events = 0

    def __init__(self, n_events: int, bits: Array, accepted: EventBatch) -> None:
        self.n_events, self.fingerprint, self.signatures = n_events, accepted.fingerprint, None
        self.accepted, self.attributes = accepted, accepted.attributes
        self._is_here = np.unpackbits(bits, count=n_events).astype(bool)
        self.rejected = np.flatnonzero(~self._is_here).astype(REJECTED)
        if np.count_nonzero(self._is_here) != accepted.n_events:
            raise ValueError(f"not a whole batch: {accepted.n_events:,} events are here, others are marked")

    @cached_property
    def offsets(self) -> Array:  # type: ignore[override]
        lengths = np.zeros(self.n_events, np.int64)
        lengths[self._is_here] = np.diff(self.accepted.bounds)
        return offsets_of(lengths).astype(_OFFSET)

    @cached_property
    def location(self) -> Array | None:  # type: ignore[override]
        if self.accepted.location is None:
            return None
        found = np.full((self.n_events, 2), np.nan)
        found[self._is_here] = self.accepted.location
        return found


def some_bytes(n_events: int, some: EventBatch) -> int:
    """Size of the wire form of some events of a batch of `n_events`."""
    return _HEADER_OF_SOME.size + _padded(-(-n_events // 8)) + some.wire_bytes


def some_to_wire(bits: Array, n_events: int, some: EventBatch, buffer: Array) -> Array:
    """Copy some events of a batch of `n_events`, those whose `bits` (`np.packbits`) are set, to `buffer`
    u8[`some_bytes`], which is returned."""
    start = _HEADER_OF_SOME.size
    at = start + _padded(len(bits))
    buffer.data[:start] = _HEADER_OF_SOME.pack(_MAGIC_OF_SOME, n_events)
    buffer[start : start + len(bits)] = bits
    some.to_wire(buffer[at:])
    return buffer


def _some_of_wire(memory: memoryview, n_events: int) -> SomeEvents:
    n_bits = -(-n_events // 8)
    at = _HEADER_OF_SOME.size + _padded(n_bits)
    if at > len(memory):
        raise ValueError(f"not a whole batch: it has {len(memory):,} bytes, marks of {n_events:,} events need more")
    bits = np.ndarray(n_bits, np.uint8, memory, _HEADER_OF_SOME.size)
    return SomeEvents(n_events, bits, EventBatch.from_wire(memory[at:]))


@lru_cache(1024)
def _integers(n: int, width: int) -> struct.Struct:
    return struct.Struct(f"<{n}{'I' if width == 4 else 'Q'}")


def within(rejected: Array, start: int, stop: int) -> Array | None:
    """The rejected rows (ascending) from `start` to `stop`, counted from `start`, u32; None when there are none."""
    first, last = np.searchsorted(rejected, (start, stop))
    return (rejected[first:last] - start).astype(REJECTED) if first < last else None


def concat_rejected(parts: Sequence[Array | None], n_events: Sequence[int]) -> Array | None:
    """The rejected rows, i64, of consecutive batches of `n_events` events; None when there are none."""
    starts = accumulate(n_events, initial=0)
    found = [part.astype(np.int64) + start for part, start in zip(parts, starts, strict=False) if part is not None]
    return np.concatenate(found) if found else None


class _Unmarked:
    """An object with NumPy's array interface that keeps another array's memory, without its read-only flag."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def unmarked(array: Array) -> Array:
    """A view of an array without its read-only flag; writing to a mapped file would still end the process.

    To Numba a read-only array is of another type: every function that takes it would be compiled once more, and dispatching
    each call would take ten times as long.
    """
    return array if array.flags.writeable else np.asarray(_Unmarked(array))


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8
