"""Changes during a run: a table, its future changes, and their wire form for workers.

Every change is stamped with the number of the first event that sees it.  Filter and interface ids ascend and none is given
twice, so an id means the same from the first event to the last.

    before_event   0     7     7     9                     ascending; equal stamps in the order of the rows
    kind         MOVE   ADD  REMOVE REMOVE_INTERFACE
    target         4    12     4     3

    master      stream = ChangeLog.load(path).stream(Table.load(...))
                stream.table                                   the table for engines (`live=True`) and for encoding events,
                                                               encoded with: the table in the joint vocabulary.  It is the
                                                               table itself when the changes bring no new operands; events
                                                               that were encoded for it serve then, and only then
                stream.labels, stream.n_filters, ...           of answers, from the first event to the last
                wire = stream.within(start, stop).to_wire()    the changes that one of the events start to stop is the first
                                                               to see: sent to every worker, before these events

    worker      stamped = StampedChanges.from_wire(wire, table.vocabulary)
                for before_event, changes in stamped.runs():   match up to that event; then
                    engine.update(changes)

All changes of a stream state the final numbers of filters and interfaces, also when there are none (`stream.within(0, 0)`,
or a range of events without changes): an engine that gets them before its first batch answers in the types of the whole
run.  Changes stamped after the last event never take effect.

The wire form is one contiguous buffer, like a batch's: 64-bit words (magic, bytes in all, fingerprint, the two numbers, the
length of each array), then the arrays, each padded to eight bytes.  It holds the filters that its changes add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import numpy as np

from mpi_match.arrays.csr import Array, DType, offsets_of, owners
from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import Changes
from mpi_match.model import Change
from mpi_match.table.constraints import CODE, FILTER_ID, KIND, Constraints
from mpi_match.table.filters import INTERFACE_ID, FilterColumns
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

if TYPE_CHECKING:
    from mpi_match.table.recode import Recoding

_MAGIC = 0x31474E48432D4D4D  # "MM-CHNG1" in memory, read as one little-endian word
_SECTIONS: tuple[DType, ...] = (
    *(np.dtype(np.int64), np.dtype(np.uint8), FILTER_ID),  # before_event, kind, target
    *(INTERFACE_ID, np.dtype(np.float64)),  # interface of each ADD, area of each MOVE
    *(np.dtype(np.uint32), FILTER_ID, np.dtype(np.float64)),  # of the added filters: size, area_filter, area
    *(np.dtype(np.uint32), KIND, CODE, CODE, FILTER_ID),  # of their constraints: name, kind, lo, hi, filter
    *(np.dtype(np.uint32), np.dtype(np.int64), CODE),  # of their sets: name, number of codes, codes
)
"""Types of the arrays of the wire form."""
_HEADER_WORDS = 5 + len(_SECTIONS)


@dataclass(frozen=True, eq=False)
class StampedChanges:
    """n changes and, i64[n] ascending, the number of the first event that sees each."""

    before_event: Array
    changes: Changes

    def __len__(self) -> int:
        return len(self.before_event)

    def __getitem__(self, some: slice) -> StampedChanges:
        """Changes `start` to `stop`."""
        return StampedChanges(self.before_event[some], self.changes[some])

    def runs(self) -> Iterator[tuple[int, Changes]]:
        """The changes that take effect together, and the event before which they do; events ascend."""
        stamps, starts = np.unique(self.before_event, return_index=True)
        bounds = [*starts.tolist(), len(self)]
        if len(stamps) == 1:
            yield int(stamps[0]), self.changes
            return
        for i, stamp in enumerate(stamps.tolist()):
            yield stamp, self.changes[bounds[i] : bounds[i + 1]]

    def to_wire(self) -> Array:
        """The wire form (see the module), u8."""
        sections = [np.ascontiguousarray(each).reshape(-1) for each in self._sections()]
        wire = np.zeros(_HEADER_WORDS * 8 + sum(_padded(each.nbytes) for each in sections), np.uint8)
        changes = self.changes
        fingerprint = 0 if changes.added is None else changes.added.vocabulary.fingerprint
        header = (_MAGIC, len(wire), fingerprint, changes.n_filters, changes.n_interfaces)
        wire[: _HEADER_WORDS * 8].view(np.uint64)[:] = (*header, *map(len, sections))
        at = _HEADER_WORDS * 8
        for each, dtype in zip(sections, _SECTIONS, strict=True):
            wire[at : at + each.nbytes] = each.astype(dtype, copy=False).view(np.uint8)
            at += _padded(each.nbytes)
        return wire

    def _sections(self) -> list[Array]:
        changes = self.changes
        adds = changes.kind == Change.ADD
        if not np.array_equal(changes.row[adds], np.arange(np.count_nonzero(adds))):
            raise ValueError("the added filters must be in the order in which they are added")
        sections = [self.before_event, changes.kind, changes.target, changes.interface[adds]]
        sections.append(changes.area[changes.kind == Change.MOVE])
        if changes.added is None:
            return [*sections, *(np.zeros(0, dtype) for dtype in _SECTIONS[len(sections) :])]
        filters, rows = changes.added.filters, changes.added.constraints
        return [
            *(*sections, filters.size, filters.area_filter, filters.area),
            *(rows.name_id.astype(np.uint32), rows.kind, rows.lo, rows.hi, rows.filter_id),
            *(owners(rows.set_offsets).astype(np.uint32), np.diff(rows.set_code_offsets), rows.set_codes),
        ]

    @classmethod
    def from_wire(cls, wire: Array, vocabulary: Vocabulary) -> StampedChanges:
        """The changes in a wire form u8, sharing its memory; `vocabulary` is that of the engine's table.

        `wire` must be 8-byte aligned; bytes after the changes are ignored.  Raises ValueError for anything but whole changes
        of that vocabulary.
        """
        if len(wire) < _HEADER_WORDS * 8:
            raise ValueError(f"not changes: {len(wire)} bytes are less than a header")
        magic, n_bytes, fingerprint, n_filters, n_interfaces, *lengths = wire[: _HEADER_WORDS * 8].view(np.uint64).tolist()
        if magic != _MAGIC:
            raise ValueError(f"not changes: the first word is {magic:#x}, expected {_MAGIC:#x}")
        if n_bytes > len(wire):
            raise ValueError(f"not whole changes: {len(wire)} bytes, expected {n_bytes}")
        at, found = _HEADER_WORDS * 8, []
        for dtype, length in zip(_SECTIONS, lengths, strict=True):
            found.append(wire[at : at + length * dtype.itemsize].view(dtype))
            at += _padded(length * dtype.itemsize)
        before_event, kind, target, interface, area = found[:5]
        added = None
        if len(interface):
            if fingerprint != vocabulary.fingerprint:
                raise ValueError("the added filters were encoded with another vocabulary than that of the table")
            added = _added(vocabulary, *found[5:])
        changes = Changes.of(kind, target, area.reshape(-1, 3), interface, added, n_filters, n_interfaces)
        return cls(before_event, changes)


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8


def _added(vocabulary: Vocabulary, *arrays: Array) -> Table:
    """The added filters, from their sections."""
    size, area_filter, area, name, kind, lo, hi, filter_id, set_name, set_lengths, set_codes = arrays
    constraints = Constraints(
        offsets=offsets_of(np.bincount(name, minlength=vocabulary.n_names)),
        kind=kind,
        lo=lo,
        hi=hi,
        filter_id=filter_id,
        set_offsets=offsets_of(np.bincount(set_name, minlength=vocabulary.n_names)),
        set_code_offsets=offsets_of(set_lengths),
        set_codes=set_codes,
    )
    nothing = np.zeros(0, FILTER_ID)
    interface = np.zeros(len(size), INTERFACE_ID)
    columns = FilterColumns(size, interface, area_filter, area.reshape(-1, 3), nothing, Strings.of(()))
    return Table(vocabulary, constraints, columns, Strings.of((b"",)))


class Changeable(Protocol):
    """A table that can be changed, in memory (`Table`) or read in ranges (`RangeReader`)."""

    @property
    def labels(self) -> Strings:
        """Labels of its interfaces."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """Its names, operands and atoms."""
        ...

    @property
    def n_filters(self) -> int:
        """Number of filters."""
        ...

    @property
    def n_interfaces(self) -> int:
        """Number of interfaces."""
        ...

    @property
    def area_filter(self) -> Array:
        """u32: the filters that have an area, ascending."""
        ...

    def interfaces(self, filters: Array) -> Array:
        """u32: the interfaces of some filters, ascending."""
        ...

    @property
    def digest(self) -> str:
        """`Table.digest`."""
        ...

    def recoded(self, recoding: Recoding) -> Self:
        """The same in the recoding's larger vocabulary."""
        ...


T = TypeVar("T", bound=Changeable)


@dataclass(frozen=True, eq=False)
class ChangeStream(Generic[T]):
    """A table and the changes that a run makes to it, in one vocabulary.

    table      the table for engines; ids are those of the table that the log was compiled for
    changes    all of them
    labels     of all interfaces, also added ones: label i belongs to interface id i
    """

    table: T
    changes: StampedChanges
    labels: Strings

    @property
    def n_filters(self) -> int:
        """An upper bound, exclusive, of filter ids."""
        return self.changes.changes.n_filters

    @property
    def n_interfaces(self) -> int:
        """An upper bound, exclusive, of interface ids."""
        return self.changes.changes.n_interfaces

    def within(self, start: int, stop: int) -> StampedChanges:
        """The changes with one of the events `start` to `stop` as the first to see them."""
        first, last = np.searchsorted(self.changes.before_event, (start, stop))
        return self.changes[int(first) : int(last)]
