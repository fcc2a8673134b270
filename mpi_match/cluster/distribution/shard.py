"""A shard: a member's part of the table, its local and global filter ids, and its serialized form.

A member numbers its filters from 0: those of its range first; then the filters of the parts of conditions
(`table.conditions`), the last ones of the table, which every member has; then those added while events are matched.  Added
filters are distributed round-robin, the k-th to member k modulo the number of members; those of parts go to all.

    global         0 1 2 3 4 5 6 7 8     9  10  11  12        a table of 9 among three members, and four added filters
    member 1             0 1 2     3         4                first 3, stop 6, filter 8 is of a part

Both numberings ascend together, so a member's answers stay in order.  Engines use local ids: `ShardEngine` wraps an engine,
and is the one place where ids are converted.

A serialized shard (`packed`) is sent to a worker that has to load it; the shared memory of a host has the same layout:

| size | the shard and the places of its arrays |  array  |  array  | ...
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, NamedArrays, with_room
from mpi_match.changes.changes import PART_INTERFACES, Changes
from mpi_match.engines.base import Engine, Pending, SeveralEngines
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.model import Change
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.json.event_scanner import LineScanner  # loads Numba

ALIGNMENT = 64
"""Alignment of arrays in bytes, so that they do not share a cache line."""


class Shard(NamedTuple):
    """A shard has filters `first` to `stop` of `n_filters`, the last `n_shared` filters, and the share of `member` in those
    added later.

    Or it has the filters `ids` u32, ascending, of a table that does not change; `first` to `stop` are then its local ids.
    """

    member: int
    n_members: int
    first: int
    stop: int
    n_filters: int
    n_shared: int = 0
    ids: Array | None = None

    @property
    def n_own(self) -> int:
        """Number of filters in its range."""
        return self.stop - self.first


class LocalIds:
    """The local ids of a member's filters, also of those that changes have added so far."""

    def __init__(self, part: Shard) -> None:
        self.part = part
        self._came, self._n_came = np.zeros(0, np.int64), 0  # global ids of added filters, ascending, with room for more

    @property
    def came(self) -> Array:
        """i64, ascending: the global ids of the member's added filters."""
        return self._came[: self._n_came]

    @property
    def n_local(self) -> int:
        """Number of local ids."""
        return self.part.n_own + self.part.n_shared + self._n_came

    def add(self, changes: Changes) -> None:
        """Add the filters of some changes that the member gets."""
        adds = changes.kind == Change.ADD
        ids = changes.target[adds].astype(np.int64)
        mine = (ids - self.part.n_filters) % self.part.n_members == self.part.member
        ids = ids[mine | (changes.interface[adds] >= PART_INTERFACES)]
        n = self._n_came + len(ids)
        if n > len(self._came):
            self._came = with_room(self.came, n)
        self._came[self._n_came : n] = ids
        self._n_came = n

    def has(self, ids: Array) -> Array:
        """bool: marks the global ids that are filters of the member."""
        part, ids, came = self.part, ids.astype(np.int64), self.came
        at = np.searchsorted(came, ids)
        is_added = np.append(came, -1)[at] == ids
        is_shared = (part.n_filters - part.n_shared <= ids) & (ids < part.n_filters)
        found: Array = ((part.first <= ids) & (ids < part.stop)) | is_shared | is_added
        return found

    def to_local(self, ids: Array) -> Array:
        """Local ids i64 of filters of the member, by global ids."""
        part, ids = self.part, ids.astype(np.int64)
        shared = ids - (part.n_filters - part.n_shared) + part.n_own
        added = part.n_own + part.n_shared + np.searchsorted(self.came, ids)
        return np.where(ids < part.stop, ids - part.first, np.where(ids < part.n_filters, shared, added))

    def to_global(self, ids: Array) -> Array:
        """Global ids i64 of filters of the member, by local ids."""
        part, ids = self.part, ids.astype(np.int64)
        if part.ids is not None:
            return part.ids[ids].astype(np.int64)
        n_base = part.n_own + part.n_shared
        shared = ids - part.n_own + (part.n_filters - part.n_shared)
        of_table = np.where(ids < part.n_own, ids + part.first, shared)
        return np.where(ids < n_base, of_table, np.append(self.came, -1)[np.maximum(ids - n_base, 0)])

    def changes(self, changes: Changes) -> Changes:
        """The changes that concern the member, with local ids; the filters that they add are now the member's.  The removal
        of an interface and `consolidate` concern every member.
        """
        self.add(changes)
        for_all = np.isin(changes.kind, (Change.REMOVE_INTERFACE, Change.CONSOLIDATE))
        mine = for_all | self.has(changes.target)
        kind, target, row = changes.kind[mine], changes.target[mine], changes.row[mine]
        of_filter, adds = ~for_all[mine], kind == Change.ADD
        target[of_filter] = self.to_local(target[of_filter])
        added = changes.added.take(row[adds]) if changes.added is not None and adds.any() else None
        row[adds] = np.arange(np.count_nonzero(adds))
        return Changes(
            kind=kind,
            target=target,
            area=changes.area[mine],
            row=row,
            interface=changes.interface[mine],
            added=added,
            n_filters=self.n_local,
            n_interfaces=changes.n_interfaces,
        )


class ShardsEngine(SeveralEngines):
    """Engines for several shards on one device, as one."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        from mpi_match.cluster.distribution.merge import merge  # loads Numba

        self._engines, self._merge = engines, merge
        self.name, self.device, self.gpu = engines[0].name, engines[0].device, engines[0].gpu
        self.options = engines[0].options

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """See `Engine.match`."""
        found = [engine.match(batch, filters=filters) for engine in self._engines]
        counts, ids = self._merge([(each.counts, np.ascontiguousarray(each.ids)) for each in found])
        return Matches.from_counts(counts, ids, found[0].n_ids)

    def update(self, changes: Changes) -> None:
        """See `Engine.update`."""
        for engine in self._engines:
            engine.update(changes)


class ShardEngine(Engine):
    """An engine for the table of a shard, which answers with global ids."""

    def __init__(self, engine: Engine, part: Shard) -> None:
        self._engine, self._ids, self._n_filters = engine, LocalIds(part), part.n_filters
        self.name, self.device, self.gpu, self.options = engine.name, engine.device, engine.gpu, engine.options

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        """See `Engine.match`."""
        return self._with_global_ids(self._engine.match(batch, filters=filters), filters, self._n_filters)

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
        """See `Engine.begin`."""
        begun, n_filters = self._engine.begin(batch, filters=filters), self._n_filters
        if isinstance(begun, Matches):
            return self._with_global_ids(begun, filters, n_filters)
        return _PendingPart(begun, lambda found: self._with_global_ids(found, filters, n_filters))

    def _with_global_ids(self, found: Matches, filters: bool, n_filters: int) -> Matches:
        """Translates answers into global ids, below `n_filters`."""
        if not filters:
            return found
        return Matches.from_counts(found.counts, self._ids.to_global(found.ids), n_filters)

    def host_memory(self, n_bytes: int) -> Array:
        """See `Engine.host_memory`."""
        return self._engine.host_memory(n_bytes)

    def scanner(self, scanner: LineScanner) -> LineScanner:
        """See `Engine.scanner`."""
        return self._engine.scanner(scanner)

    def update(self, changes: Changes) -> None:
        """See `Engine.update`: applies the changes that concern the shard."""
        self._engine.update(self._ids.changes(changes))
        self._n_filters = changes.n_filters

    @property
    def is_broken(self) -> bool:
        """See `Engine.is_broken`."""
        return self._engine.is_broken

    @property
    def nbytes(self) -> int:
        """See `Engine.nbytes`."""
        return self._engine.nbytes


class _PendingPart(NamedTuple):
    """A batch begun by the engine of a shard, and the conversion of its answer to global ids."""

    begun: Pending
    convert: Callable[[Matches], Matches]

    def end(self) -> Matches:
        """See `Pending.end`."""
        return self.convert(self.begun.end())


class ShardPlace(NamedTuple):
    """The place of an array in a serialized shard."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    at: int
    n_bytes: int


def plan(table: Table) -> list[ShardPlace]:
    """The places of the arrays of a table, one after the other."""
    places, at = [], 0
    for name, array in table.arrays(in_memory=True):
        places.append(ShardPlace(name, array.dtype.str, array.shape, at, array.nbytes))
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return places


def laid_out(memory: Array, places: Sequence[ShardPlace]) -> Table:
    """The table whose arrays are views of `memory` u8, which must not change."""
    return Table.from_arrays(
        NamedArrays(
            (place.name, memory[place.at : place.at + place.n_bytes].view(place.dtype).reshape(place.shape))
            for place in places
        )
    )


def packed(part: Shard, table: Table) -> Array:
    """Serialize a shard and its table, u8."""
    places = plan(table)
    words = pickle.dumps((part, places))
    start = _start(len(words))
    wire = np.zeros(start + max(place.at + place.n_bytes for place in places), np.uint8)
    wire[:8] = np.array([len(words)], np.int64).view(np.uint8)
    wire[8 : 8 + len(words)] = np.frombuffer(words, np.uint8)
    for place, (_, array) in zip(places, table.arrays(in_memory=True), strict=True):
        at = start + place.at
        wire[at : at + place.n_bytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return wire


def unpacked(wire: Array) -> tuple[Shard, Table]:
    """Deserialize a shard; the table's arrays are views of `wire`."""
    n_words = int(wire[:8].view(np.int64)[0])
    part, places = pickle.loads(wire[8 : 8 + n_words].tobytes())
    return part, laid_out(wire[_start(n_words) :], places)


def _start(n_words: int) -> int:
    return -(-(8 + n_words) // ALIGNMENT) * ALIGNMENT
