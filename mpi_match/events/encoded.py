"""Encoded columns of an event table: in blocks, each with a checksum, which are read and checked as a whole.

    offsets      ... 0 3 5 9 | 9 12 ...        modulo 2^32
    attributes   a block's, from `block_attributes`
    location     where events have one

A batch is a range of these columns, and engines do not check it: an attribute's name is an index into their arrays, and a
duplicate name would count twice.  So a block is checked when it is read: its bytes by their checksum, and once its values
(`Sound`): ascending offsets and names, codes that their names have.  Within an event, an attribute's name is greater than
that of the one before it; so the number of neighbours that do not ascend must equal the number of those at borders of
events.  Large blocks are checked by compiled code (`encoded_loops`), which takes longer to load than NumPy takes for a
small file.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.events import schema
from mpi_match.events.batch import EventBatch, within
from mpi_match.events.schema import EVENTS
from mpi_match.storage import Reader, StorageError
from mpi_match.storage.range_read import Memory, ordinary_memory
from mpi_match.table.vocabulary import Vocabulary

_KEPT_BLOCKS = 4
"""Blocks that are kept, about one for each reading thread."""
FEW_ATTRIBUTES = 2**16
"""Number of attributes up to which NumPy checks a block; a full block has more."""


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


class _Window(NamedTuple):
    """The columns of the blocks `begin` to `end`, read and checked; they begin with event `start`, attribute `first`."""

    begin: int
    end: int
    start: int
    first: int
    offsets: Array
    attributes: Array
    location: Array | None

    @property
    def n_events(self) -> int:
        return len(self.offsets) - 1


class EncodedColumns:
    """The encoded columns of one open file.  Batches share the memory of the blocks that were read last.

    `memory` gives the memory that blocks are read into; an engine may name its own.  Any thread may ask for batches.
    """

    def __init__(self, reader: Reader, n_events: int, vocabulary: Vocabulary) -> None:
        self._path, self.n_events = reader.path, n_events
        self._fingerprint, self._sound = vocabulary.fingerprint, Sound(vocabulary)
        self._offsets = reader.stored_rows("encoded/offsets")
        self._attributes = reader.stored_rows("encoded/attributes")
        self._location = reader.stored_rows("encoded/location") if "encoded/location" in reader else None
        blocks = {name: reader.array(f"encoded/{name}") for name in ("block_attributes", "block_crc32")}
        for fault in EVENTS.faults({f"encoded/{name}": each for name, each in blocks.items()}, declared=reader.declared):
            reader.refuse(fault)
        self.rejected = reader.array("events/rejected") if "events/rejected" in reader else None
        if self.rejected is not None:
            for fault in EVENTS.faults({"events/rejected": self.rejected}, declared=reader.declared):
                reader.refuse(fault)
        self._starts: list[int] = blocks["block_attributes"].tolist()
        self._crcs: list[int] = blocks["block_crc32"].tolist()
        self._sound_blocks = np.zeros(len(self._crcs), bool)
        self._kept: tuple[_Window, ...] = ()
        self.memory: Memory = ordinary_memory
        if self._attributes.dtype != vocabulary.packed_dtype:
            reader.refuse(f"encoded/attributes is {self._attributes.dtype.str}, expected {vocabulary.packed_dtype.str}")

    @property
    def holds_attributes(self) -> bool:
        """Tells whether any event has an attribute that a filter names, or a location."""
        return self._attributes.shape[0] > 0 or self._location is not None

    @property
    def n_bytes(self) -> int:
        """Size of all columns."""
        columns = [self._offsets, self._attributes, *([] if self._location is None else [self._location])]
        return sum(each.shape[0] * each.row_bytes for each in columns)

    def batch(self, start: int, stop: int) -> EventBatch:
        """Events `start` to `stop`.  Raises StorageError when they are damaged, or the file was truncated."""
        border = start // schema.BLOCK_EVENTS * schema.BLOCK_EVENTS + schema.BLOCK_EVENTS
        if start < border < stop < start + schema.BLOCK_EVENTS:  # of two blocks that are kept, so that none is read twice
            return EventBatch.concat([self.batch(start, border), self.batch(border, stop)])
        window = self._window(start, stop)
        first, last = self._attribute(window, start), self._attribute(window, stop)
        begin, end = start - window.start, stop - window.start
        location = None if window.location is None else window.location[begin:end]
        found = EventBatch(window.offsets[begin : end + 1], window.attributes[first:last], location, self._fingerprint)
        if self.rejected is not None and (rejected := within(self.rejected, start, stop)) is not None:
            if (found.offsets[rejected] != found.offsets[rejected + 1]).any():
                raise StorageError(f"{self._path}: a rejected row has attributes; compile the events again")
            if location is not None and not np.isnan(location[rejected]).all():
                raise StorageError(f"{self._path}: a rejected row has a location; compile the events again")
            found.rejected = rejected
        return found

    def _attribute(self, window: _Window, event: int) -> int:
        """The first attribute of an event, counted in the window."""
        block = min(event // schema.BLOCK_EVENTS, window.end)
        at = min(block * schema.BLOCK_EVENTS, self.n_events) - window.start
        within_block = (int(window.offsets[event - window.start]) - int(window.offsets[at])) % 2**32
        return self._starts[block] - window.first + within_block

    def _window(self, start: int, stop: int) -> _Window:
        """Blocks that hold these events: kept ones, or read now.

        A block with more events than a batch is kept for the batches behind it, which several threads may read.
        """
        begin, end = start // schema.BLOCK_EVENTS, -(-stop // schema.BLOCK_EVENTS)
        end = max(begin, end)
        for window in self._kept:
            if window.begin <= begin and end <= window.end:
                return window
        window = self._read(begin, end)
        if end - begin == 1 and stop - start < window.n_events:
            self._kept = (window, *self._kept[: _KEPT_BLOCKS - 1])
        return window

    def _read(self, begin: int, end: int) -> _Window:
        start, stop = (min(block * schema.BLOCK_EVENTS, self.n_events) for block in (begin, end))
        first, last = self._starts[begin], self._starts[end]
        wanted = [(self._offsets, stop + 1 - start), (self._attributes, last - first)]
        wanted += [] if self._location is None else [(self._location, stop - start)]
        sizes = [-(-rows.row_bytes * n // 8) * 8 for rows, n in wanted]
        memory, places = self.memory(sum(sizes)), accumulate(sizes, initial=0)
        columns = [rows.array(n, memory[place:]) for (rows, n), place in zip(wanted, places, strict=False)]
        window = _Window(begin, end, start, first, columns[0], columns[1], columns[2] if len(columns) > 2 else None)
        try:
            if begin == end:
                self._offsets.read(start, window.offsets)
            for block in range(begin, end):
                self._read_block(window, block)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be read: {error.strerror}") from error
        return window

    def _read_block(self, window: _Window, block: int) -> None:
        """Read a block into a window and check it, while the processor's caches have it: its checksum every time, its values
        once.  Raises StorageError, OSError.
        """
        start, stop = block * schema.BLOCK_EVENTS, min((block + 1) * schema.BLOCK_EVENTS, self.n_events)
        first, last = self._starts[block], self._starts[block + 1]
        at, to, begin, end = place = start - window.start, stop - window.start, first - window.first, last - window.first
        offsets, attributes = window.offsets[at : to + 1], window.attributes[begin:end]
        self._offsets.read(start, offsets)
        self._attributes.read(first, attributes)
        if self._location is not None and window.location is not None:
            self._location.read(start, window.location[at:to])
        found, expected = _checksum(window.offsets, window.attributes, window.location, place), self._crcs[block]
        if found != expected:
            raise StorageError(
                f"{self._path}: encoded events {start} to {stop} are damaged: "
                f"CRC-32 found {found:08x}, expected {expected:08x}; compile the events again"
            )
        if self._sound_blocks[block]:
            return
        if not self._sound.has(offsets, attributes):
            raise StorageError(
                f"{self._path}: encoded events {start} to {stop} have offsets or names that do not ascend, or codes that "
                "their names do not have; compile the events again"
            )
        self._sound_blocks[block] = True


class Sound:
    """The largest packed attributes that a vocabulary allows.

    `limits` has the last attribute of each name and atom, packed like attributes.  For an index that is neither, it has a
    value less than all packed attributes: with 16-bit names for every such index, else for all beyond the last name.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._dtype, self._shift = vocabulary.packed_dtype, vocabulary.shift
        n_codes = np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64))
        known = np.arange(len(n_codes)) * 2**self._shift + n_codes - 1
        unknown = np.arange(len(known), 2**16) * 2**16 - 1 if self._shift == 16 else np.zeros(1, np.int64)
        self._limits = np.append(known, unknown).astype(self._dtype)
        self._names = len(known)

    def has(self, offsets: Array, attributes: Array) -> bool:
        """Tells whether the offsets u32[n + 1] (modulo 2^32) ascend up to the number of attributes, the names ascend within
        events, and the codes are known.
        """
        if not self._names:
            return len(attributes) == 0 and not np.any(offsets != offsets[0])
        shift, mask = self._dtype.type(self._shift), self._dtype.type(2**self._shift - 1)
        if len(attributes) <= FEW_ATTRIBUTES:
            return _few_ascend(offsets, attributes, mask) and _few_are_known(attributes, shift, self._limits)
        from mpi_match.events.encoded_loops import are_known, ascends  # loads Numba

        return bool(ascends(offsets, attributes, mask) and are_known(attributes, shift, self._limits))


def _few_are_known(attributes: Array, shift: int, limits: Array) -> bool:
    return not np.any(attributes > limits[np.minimum(attributes >> shift, len(limits) - 1)])


def _few_ascend(offsets: Array, attributes: Array, mask: int) -> bool:
    ends, n = offsets - offsets[0], len(attributes)  # modulo 2^32
    if ends[-1] != n or np.any(ends[1:] < ends[:-1]):
        return False
    descends = attributes[1:] <= (attributes[:-1] | mask)
    borders = np.unique(ends[(ends > 0) & (ends < n)])
    return int(np.count_nonzero(descends)) == int(np.count_nonzero(descends[borders - 1]))
