"""Matches tables with conditions in stages, by any engine that has `exists` and `absent`.

A part of a condition is a hidden interface (`table.conditions`).  The filters on parts that ask for no other part are the
first stage; those that ask for parts of the first the second; and so on; the visible filters are the last.  Each stage has
an engine of its own.  An event has the parts that it matches in one stage as attributes in the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, take_ranges
from mpi_match.changes.changes import PART_INTERFACES, Changes
from mpi_match.engines.base import Engine, Pending, ended, matching, updating
from mpi_match.engines.sharing import Scratch, ScratchSets
from mpi_match.errors import EngineError
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.model import MAX_CONDITION_DEPTH, Change
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.ingest.json.event_scanner import LineScanner  # loads Numba

STAGED_TOGETHER = 2**13
"""Events on the host that are matched together in all stages: their attributes with those for parts, hundreds an event with
some rules, stay in memory that is used again, where fresh memory would take longer than matching."""
PLACED_TOGETHER = 2**20
"""Events on the host that are copied to a GPU together, where all stages read them; STAGED_TOGETHER or fewer are not."""
_NO_STAGE, _FOR_ALL = -1, MAX_CONDITION_DEPTH + 2
"""The numbers that stand for the stage of visible interfaces, and for changes that concern every stage."""
_CIRCLE = "the parts of the table's conditions ask for each other in a circle; compile it again"


class _Stage:
    """The engine of a stage; `ids` i64 has the table's number of each of its filters."""

    def __init__(self, engine: Engine, ids: Array) -> None:
        self.engine, self.ids = engine, ids


class StagedEngine(Engine):
    """One engine for each stage of a table, opened by `open_`; `threads` as in `open_engine`."""

    def __init__(self, table: Table, open_: Callable[[Table], Engine], threads: int | None, *, live: bool) -> None:
        self._table, self._live, self._open, self._threads = table, live, open_, threads
        names = table.part_names
        self._part_of = dict(zip(names.tolist(), range(table.n_visible, table.n_interfaces), strict=True))
        self._attribute_of = self._packed(np.append(np.zeros(table.n_visible, np.int64), names))  # by interface
        of_interface = stages_of_parts(table, self._part_of)
        n_parts = int(of_interface.max(initial=_NO_STAGE)) + 1
        self._stage_of_part = dict(zip(names.tolist(), of_interface[table.n_visible :].tolist(), strict=True))
        of_filter = of_interface[table.filters.interface]
        once = np.ones(table.n_filters, bool) if live else distinct_filters(table)  # those that may be removed all count
        self._parts = [self._opened(np.flatnonzero((of_filter == stage) & once)) for stage in range(n_parts)]
        self._last = self._opened(np.flatnonzero(of_filter == _NO_STAGE))
        engine = self._last.engine
        self.name, self.device, self.gpu, self.options = engine.name, engine.device, engine.gpu, engine.options
        self._n_filters, self._ascends, self._parts_ascend = table.n_filters, True, True
        self._stage_of, self._local = of_filter.astype(np.int64), np.zeros(table.n_filters, np.int64)
        for each in (*self._parts, self._last):
            self._local[each.ids] = np.arange(len(each.ids))
        self._sharing = ScratchSets(self, lambda _: Scratch())

    def _opened(self, filters: Array) -> _Stage:
        return _Stage(self._open(self._table.take(filters)), filters)

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        return ended(self.begin(batch, filters=filters))

    @matching
    def begin(self, batch: EventBatch, _: Scratch, filters: bool) -> Matches | Pending:
        """See `Engine.begin`; the last stage of a batch on a GPU overlaps with other batches."""
        if batch.is_on_gpu:
            return self._begin_slice(batch, filters)
        if len(batch) <= STAGED_TOGETHER:
            return ended(self._begin_slice(batch, filters))
        engine = self._last.engine
        together = PLACED_TOGETHER if engine.places else STAGED_TOGETHER
        if len(batch) <= together:
            return self._begin_slice(engine.placed(batch), filters)
        slices = (batch[at : at + together] for at in range(0, len(batch), together))
        return Matches.concat([ended(self._begin_slice(engine.placed(each), filters)) for each in slices])

    def _begin_slice(self, batch: EventBatch, filters: bool) -> Matches | Pending:
        for each in self._parts:
            found = each.engine.match(batch)
            if found.n_matches:
                batch = self._with_parts(each.engine, batch, found)
        begun = self._last.engine.begin(batch, filters=filters)
        if not filters:
            return begun
        of_last = _LastStage(begun, self._last.ids, self._ascends, self._n_filters)
        return of_last.end() if isinstance(begun, Matches) else of_last

    def _with_parts(self, engine: Engine, batch: EventBatch, found: Matches) -> EventBatch:
        """The batch with the names of the parts that its events match."""
        from mpi_match.compute.parallel import at_most  # loads Numba

        if not self._parts_ascend:
            order = np.lexsort((self._attribute_of[found.ids], found.event_of()))
            found = Matches(found.counts, found.ids[order], found.n_ids)
        with at_most(self._threads):
            return engine.extended(batch, found, self._attribute_of)

    def _packed(self, names: Array) -> Array:
        """The attributes of names of parts."""
        return self._table.vocabulary.pack(names, np.zeros(len(names), np.int64))

    @updating
    def update(self, changes: Changes) -> None:
        """Give each stage's engine the changes of its filters, under the numbers that the engine has for them."""
        kind, adds = changes.kind, changes.kind == Change.ADD
        target, interface = changes.target.astype(np.int64), changes.interface.astype(np.int64)
        stage = np.where(kind == Change.REMOVE_INTERFACE, _NO_STAGE, np.int64(_FOR_ALL))  # CONSOLIDATE is for all
        self._have(changes.n_filters)
        self._take_up_parts(changes)
        added: dict[int, list[int]] = {}
        for row in np.flatnonzero(~np.isin(kind, (Change.REMOVE_INTERFACE, Change.CONSOLIDATE))).tolist():
            place = int(target[row])
            if adds[row]:
                which = _NO_STAGE
                if interface[row] >= PART_INTERFACES:
                    name = int(interface[row]) - PART_INTERFACES
                    interface[row], which = self._part_of[name], self._stage_of_part[name]
                here = added.setdefault(which, [])
                self._stage_of[place], self._local[place] = which, len(self._stage(which).ids) + len(here)
                here.append(place)
            stage[row] = self._stage_of[place]
            target[row] = self._local[place]
        for which, here in added.items():
            own = self._stage(which)
            own.ids = np.append(own.ids, np.array(here, np.int64))
            if which == _NO_STAGE and np.any(np.diff(own.ids[-len(here) - 1 :]) < 0):
                self._ascends = False
        for which in (*range(len(self._parts)), _NO_STAGE):
            own, mine = self._stage(which), (stage == which) | (stage == _FOR_ALL)
            if mine.any():
                n_interfaces = changes.n_interfaces if which == _NO_STAGE else len(self._attribute_of)
                own.engine.update(_some(changes, mine, target, interface, (len(own.ids), n_interfaces)))
        self._n_filters = changes.n_filters

    def _stage(self, which: int) -> _Stage:
        return self._last if which == _NO_STAGE else self._parts[which]

    def _take_up_parts(self, changes: Changes) -> None:
        """Give new parts an interface, and a stage after those of the parts that their filters ask for.

        These may come later in the changes: numbers of filters are assigned again, and an engine that is opened for a live
        table gets what was added in the order of these numbers.  Raises EngineError for parts that ask for each other in a
        circle.
        """
        if changes.added is None:
            return
        rows_of: dict[int, list[int]] = {}
        for i in np.flatnonzero((changes.kind == Change.ADD) & (changes.interface >= PART_INTERFACES)).tolist():
            rows_of.setdefault(int(changes.interface[i]) - PART_INTERFACES, []).append(int(changes.row[i]))
        fresh = [name for name in rows_of if name not in self._part_of]
        self._part_of.update(zip(fresh, range(len(self._attribute_of), len(self._attribute_of) + len(fresh)), strict=True))
        self._attribute_of = np.append(self._attribute_of, self._packed(np.array(fresh, np.int64)))
        self._parts_ascend = self._parts_ascend and not fresh
        offsets, rows = changes.added.by_filter
        waiting: dict[int, list[int]] = {}
        for name, filters in rows_of.items():
            if name not in self._stage_of_part:
                own = np.concatenate([rows[offsets[i] : offsets[i + 1]] for i in filters])
                asked = np.searchsorted(changes.added.constraints.offsets, own, side="right") - 1
                waiting[name] = [each for each in asked.tolist() if each in self._part_of]
        while waiting:
            n_waiting = len(waiting)
            for name, asked_parts in list(waiting.items()):
                if waiting.keys().isdisjoint(asked_parts):
                    self._stage_of_part[name] = max((self._stage_of_part[each] + 1 for each in asked_parts), default=0)
                    del waiting[name]
            if len(waiting) == n_waiting:
                raise EngineError(_CIRCLE)
        while len(self._parts) <= max(self._stage_of_part.values(), default=-1):
            self._parts.append(self._opened(np.zeros(0, np.int64)))

    def _have(self, n_filters: int) -> None:
        """Make room for the stage and the number of filters that were added."""
        missing = n_filters - len(self._local)
        if missing > 0:
            more = np.full(max(missing, len(self._local) // 2), _NO_STAGE, np.int64)
            self._stage_of, self._local = np.append(self._stage_of, more), np.append(self._local, more)

    def host_memory(self, n_bytes: int) -> Array:
        """See `Engine.host_memory`."""
        return self._last.engine.host_memory(n_bytes)

    def pin(self, memory: Sequence[Array]) -> None:
        """See `Engine.pin`; only lines are read from this memory, by `scanner`."""
        self._last.engine.pin(memory)

    def scanner(self, scanner: LineScanner) -> LineScanner:
        """See `Engine.scanner`."""
        return self._last.engine.scanner(scanner)

    def warm_up(self, example: Callable[[], EventBatch | None], *, filters: bool = False) -> None:
        """See `Engine.warm_up`."""
        if self.gpu is not None and (batch := example()) is not None:
            with suppress(EngineError):
                self.match(batch, filters=filters)

    @property
    def kernel_s(self) -> float:
        """See `Engine.kernel_s`."""
        return sum(each.engine.kernel_s for each in (*self._parts, self._last))

    @property
    def nbytes(self) -> int:
        """See `Engine.nbytes`."""
        return sum(each.engine.nbytes for each in (*self._parts, self._last))


class _LastStage(NamedTuple):
    """The filters of the last stage that a begun batch matches, under the numbers `ids` that the table has for them."""

    begun: Matches | Pending
    ids: Array
    ascends: bool
    n_filters: int

    def end(self) -> Matches:
        found = ended(self.begun)
        if self.ascends:
            return Matches.from_counts(found.counts, self.ids[found.ids], self.n_filters)
        return Matches.from_pairs(found.event_of(), self.ids[found.ids], found.n_events, self.n_filters)


def stages_of_parts(table: Table, part_of: dict[int, int]) -> Array:
    """i64[n_interfaces]: the stage of each part, _NO_STAGE for visible interfaces.

    Raises EngineError for a table with more stages than conditions can have, because its parts may ask for each other in a
    circle.
    """
    constraints, stage = table.constraints, np.full(table.n_interfaces, _NO_STAGE, np.int64)
    stage[table.n_visible :] = 0
    names = np.array([name for name in part_of if name >= 0], np.int64)
    starts, counts = constraints.offsets[names], constraints.offsets[names + 1] - constraints.offsets[names]
    asking = table.filters.interface[constraints.filter_id[take_ranges(starts, counts)]].astype(np.int64)
    asked = np.repeat(np.array([part_of[name] for name in names.tolist()], np.int64), counts)
    inner = asking >= table.n_visible
    asking, asked = asking[inner], asked[inner]
    for _ in range(MAX_CONDITION_DEPTH + 2):
        before = stage.copy()
        np.maximum.at(stage, asking, before[asked] + 1)
        if np.array_equal(before, stage):
            return stage
    raise EngineError(_CIRCLE)


def distinct_filters(table: Table) -> Array:
    """bool[n_filters]: one of each set of equal filters on a part."""
    _, rows = table.by_filter
    constraints, size = table.constraints, table.filters.size
    columns = (constraints.name_id, constraints.kind, constraints.lo, constraints.hi)
    content = np.stack([column[rows].astype(np.uint32) for column in columns], axis=1)
    ends, seen, found = np.cumsum(size), set[tuple[int, bytes]](), np.ones(table.n_filters, bool)
    for i in range(table.n_visible_filters, table.n_filters):
        key = (int(table.filters.interface[i]), content[ends[i] - size[i] : ends[i]].tobytes())
        found[i] = key not in seen
        seen.add(key)
    return found


def _some(changes: Changes, mine: Array, target: Array, interface: Array, sizes: tuple[int, int]) -> Changes:
    """Some of the changes, with a stage's numbers of filters and interfaces; `sizes` is the number of both afterwards."""
    kind, row = changes.kind[mine], changes.row[mine]
    adds = kind == Change.ADD
    added = changes.added.take(row[adds]) if changes.added is not None and adds.any() else None
    row[adds] = np.arange(np.count_nonzero(adds))
    return Changes(
        kind=kind,
        target=target[mine].astype(changes.target.dtype),
        area=changes.area[mine],
        row=row,
        interface=interface[mine].astype(changes.interface.dtype),
        added=added,
        n_filters=sizes[0],
        n_interfaces=sizes[1],
    )
