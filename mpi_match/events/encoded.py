"""Encoded columns of an event table: in blocks, each with a checksum, mapped from the file and checked when first used.

    offsets      ... 0 3 5 9 | 9 12 ...        modulo 2^32
    attributes   a block's, from `block_attributes`
    location     where events have one

A batch of a file is a range of these columns, not copied, and engines do not check it: an attribute's name is an index into
their arrays, and a duplicate name would count twice.  So a block is checked when its first event is asked for: its bytes by
their checksum, and then its values (`encoded_check`): ascending offsets and names, codes that their names have.
"""

from __future__ import annotations

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.events import schema
from mpi_match.events.batch import EventBatch, unmarked, within
from mpi_match.events.encoded_check import Sound
from mpi_match.events.schema import EVENTS
from mpi_match.storage import Reader, StorageError
from mpi_match.table.vocabulary import Vocabulary


def block_columns(batch: EventBatch) -> tuple[Array, Array]:
    """First attribute of each block, i64[b + 1], and the checksum of each, u32[b]."""
    events = np.append(np.arange(0, batch.n_events, schema.BLOCK_EVENTS), batch.n_events)
    lengths = np.diff(batch.offsets[events]).astype(np.int64)  # in 32 bits: a block has fewer than 2^32 attributes
    starts = offsets_of(lengths)
    blocks = zip(events[:-1].tolist(), events[1:].tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    crcs = [_checksum(batch.offsets, batch.attributes, batch.location, block) for block in blocks]
    return starts, np.array(crcs, np.uint32)


def _checksum(offsets: Array, attributes: Array, location: Array | None, block: tuple[int, int, int, int]) -> int:
    """CRC-32 of one block of the encoded columns: its n + 1 offsets, its attributes, its locations."""
    start, stop, first, last = block
    crc = crc32(np.ascontiguousarray(offsets[start : stop + 1]).view(np.uint8).data)
    if last > first:
        crc = crc32(np.ascontiguousarray(attributes[first:last]).view(np.uint8).data, crc)
    if location is not None and stop > start:
        crc = crc32(np.ascontiguousarray(location[start:stop]).view(np.uint8).reshape(-1).data, crc)
    return crc


class EncodedColumns:
    """The encoded columns of one file, mapped; blocks are checked when first used."""

    def __init__(self, reader: Reader, n_events: int, vocabulary: Vocabulary) -> None:
        self._path, self.n_events = reader.path, n_events
        self._fingerprint, self._sound = vocabulary.fingerprint, Sound(vocabulary)
        # as plain arrays, which are sliced six times as fast
        self._offsets = unmarked(np.asarray(reader.mapped("encoded/offsets")))
        self._attributes = unmarked(np.asarray(reader.mapped("encoded/attributes")))
        self._location = unmarked(np.asarray(reader.mapped("encoded/location"))) if "encoded/location" in reader else None
        blocks = {name: reader.array(f"encoded/{name}") for name in ("block_attributes", "block_crc32")}
        for fault in EVENTS.faults({f"encoded/{name}": each for name, each in blocks.items()}, declared=reader.declared):
            reader.refuse(fault)
        self.rejected = reader.array("events/rejected") if "events/rejected" in reader else None
        if self.rejected is not None:
            for fault in EVENTS.faults({"events/rejected": self.rejected}, declared=reader.declared):
                reader.refuse(fault)
        self._starts: list[int] = blocks["block_attributes"].tolist()
        self._crcs = blocks["block_crc32"]
        self._checked = np.zeros(len(self._crcs), bool)
        if self._attributes.dtype != vocabulary.packed_dtype:
            reader.refuse(f"encoded/attributes is {self._attributes.dtype.str}, expected {vocabulary.packed_dtype.str}")

    @property
    def columns(self) -> list[Array]:
        """The mapped columns, one-dimensional."""
        return EventBatch(self._offsets, self._attributes, self._location, self._fingerprint).columns

    def batch(self, start: int, stop: int) -> EventBatch:
        """Events `start` to `stop`, sharing the file's memory.  Raises StorageError when they are damaged."""
        for block in range(start // schema.BLOCK_EVENTS, -(-stop // schema.BLOCK_EVENTS)):
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
        block = min(event // schema.BLOCK_EVENTS, len(self._starts) - 1)
        at = min(block * schema.BLOCK_EVENTS, self.n_events)
        return self._starts[block] + (int(self._offsets[event]) - int(self._offsets[at])) % 2**32

    def _check(self, block: int) -> None:
        start, stop = block * schema.BLOCK_EVENTS, min((block + 1) * schema.BLOCK_EVENTS, self.n_events)
        first, last = self._starts[block], self._starts[block + 1]
        found = _checksum(self._offsets, self._attributes, self._location, (start, stop, first, last))
        expected = int(self._crcs[block])
        if found != expected:
            raise StorageError(
                f"{self._path}: encoded events {start} to {stop} are damaged: "
                f"CRC-32 found {found:08x}, expected {expected:08x}; compile the events again"
            )
        if not self._sound.has(self._offsets[start : stop + 1], self._attributes[first:last]):
            raise StorageError(
                f"{self._path}: encoded events {start} to {stop} have offsets or names that do not ascend, or codes that "
                "their names do not have; compile the events again"
            )
        self._checked[block] = True
