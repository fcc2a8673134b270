"""A batch of encoded events: what travels over MPI and what engines match.

    attributes   u32 or u64 [m]   packed attributes (see `vocabulary`), ascending within an event, events end to end
    offsets      u32[n + 1]       bounds of the events, counted from any start and modulo 2^32
    location     f64[n, 2]        x and y, NaN for an event without one; None when no filter of the table has an area

Event i has the attributes `attributes[offsets[i] - offsets[0] : offsets[i + 1] - offsets[0]]` (in 32-bit arithmetic).
Not starting at 0 lets a range of a large event table be a batch as it lies there, without touching a byte.

Names that no constraint uses are already gone; string atoms are already evaluated (they are attributes like any other).
The wire form is one contiguous buffer: a header of eight 64-bit words, then the three arrays, each padded to eight bytes.
The header says how many attributes the widest event has, if that was known when it was made, so that who matches the batch
need not look at every event before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.humanize import plural

_MAGIC = 0x3148435441422D4D  # "M-BATCH1" in memory, read as one little-endian word
_HEADER = struct.Struct("<8Q")
WIRE_EXTRA_BYTES = _HEADER.size + 4 + 2 * 7
"""What a wire form has, at most, beside four bytes for each event, its attributes and its locations."""
_PADDING = [bytes(n) for n in range(8)]
_OFFSET: np.dtype[Any] = np.dtype(np.uint32)
_LOCATION: np.dtype[Any] = np.dtype(np.float64)
_ATTRIBUTE: dict[int, np.dtype[Any]] = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


@dataclass(eq=False, repr=False)  # and not frozen: that would cost half a microsecond, and some events take five
class EventBatch:
    """n events encoded with the vocabulary whose `fingerprint` is given.  See the module for the arrays."""

    offsets: Array
    attributes: Array
    location: Array | None
    fingerprint: int

    def __repr__(self) -> str:
        counts = f"{plural(self.n_events, 'event')} with {plural(len(self.attributes), 'attribute')}"
        return f"<batch of {counts}, vocabulary {self.fingerprint:016x}>"

    @property
    def n_events(self) -> int:
        """Number of events."""
        return len(self.offsets) - 1

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
        return EventBatch(self.offsets[start : stop + 1], self.attributes[first:last], location, self.fingerprint)

    @property
    def wire_bytes(self) -> int:
        """Size of the wire form."""
        size = _HEADER.size + _padded(self.offsets.nbytes) + _padded(self.attributes.nbytes)
        return size if self.location is None else size + self.location.nbytes

    def to_wire(self, buffer: Array | None = None) -> Array:
        """Copy the batch into the start of `buffer` u8 (or a new one); returns the part that was filled, u8[wire_bytes]."""
        offsets, attributes, location, widest = self.offsets, self.attributes, self.location, vars(self).get("widest")
        sizes = (len(offsets) - 1, len(attributes), attributes.itemsize, location is not None)
        header = _HEADER.pack(_MAGIC, *sizes, self.fingerprint, widest is not None, widest or 0)
        sections = (offsets, attributes) if location is None else (offsets, attributes, location)
        if buffer is None:  # half as long for an event alone as to fill arrays
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

    @classmethod
    def from_wire(cls, wire: Array) -> EventBatch:
        """The batch in a wire form u8, sharing its memory.

        `wire` must be 8-byte aligned; what follows the batch is ignored.  Raises ValueError for anything but a whole batch.
        """
        memory, n_bytes = wire.data, len(wire)
        if n_bytes < _HEADER.size:
            raise ValueError(f"not a batch: {n_bytes} bytes are less than a header")
        magic, n_events, n_attributes, width, has_location, fingerprint, known, widest = _HEADER.unpack_from(memory)
        if magic != _MAGIC:
            raise ValueError(f"not a batch: the first word is {magic:#x}, expected {_MAGIC:#x}")
        attributes_at = _HEADER.size + _padded((n_events + 1) * _OFFSET.itemsize)
        attributes_end = attributes_at + n_attributes * width
        location_at = _padded(attributes_end)
        end = location_at + 2 * n_events * _LOCATION.itemsize if has_location else attributes_end
        if end > n_bytes:
            raise ValueError(f"not a whole batch: it has {n_bytes:,} bytes, {n_events:,} events need more")
        batch = cls(
            np.ndarray(n_events + 1, _OFFSET, memory, _HEADER.size),
            np.ndarray(n_attributes, _ATTRIBUTE[width], memory, attributes_at),
            np.ndarray((n_events, 2), _LOCATION, memory, location_at) if has_location else None,
            fingerprint,
        )
        if known:
            vars(batch)["widest"] = widest
        return batch

    @staticmethod
    def concat(batches: list[EventBatch]) -> EventBatch:
        """Consecutive batches as one; where only some have locations, the events of the others get NaN."""
        lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
        offsets = np.zeros(len(lengths) + 1, np.uint32)
        np.cumsum(lengths, out=offsets[1:], dtype=np.uint32)
        location = None
        if any(batch.location is not None for batch in batches):
            pieces = [np.full((len(b), 2), np.nan) if b.location is None else b.location for b in batches]
            location = np.concatenate(pieces)
        attributes = np.concatenate([batch.attributes for batch in batches])
        return EventBatch(offsets, attributes, location, batches[0].fingerprint)


class _Unmarked:
    """What NumPy makes an array of: the memory of another, which it keeps, without the mark that it is read-only."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def unmarked(array: Array) -> Array:
    """An array for batches in the same memory, as if it might be written to; a write would end the process.

    To Numba an array that is marked read-only is of another type: all that takes it would be compiled once more, and at each
    call it would take ten times as long to find out.
    """
    return array if array.flags.writeable else np.asarray(_Unmarked(array))


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8
