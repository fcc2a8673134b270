"""A table that changes: its present filters, and the changes that an engine must apply.

    live = LiveTable(table)
    engine = open_engine("keyed", live.table, live=True)
    changes = live.apply(rows, refused)       `rows.ChangeRow`s: applied, or refused with the reason
    engine.update(changes)

A live table holds the original table, unchanged; the `registry` of present filters and interfaces; and the filters added
since.  Those are kept as bytes, because scanning millions of objects would pause Python's garbage collector for half a
second at times.  From these follow all present filters (`filters`, the input of the naive matcher) and the difference to the
original table as one list of changes (`since`), however many changes there were.

An added filter may have an operand that the vocabulary lacks.  Then codes change their meaning (`recode`), engines cannot
continue, and `apply` returns None: the engine has to be opened again,

    engine = open_engine("keyed", live.table, live=True)      the same table, the same ids, in a larger vocabulary
    engine.update(live.since())

and batches have to be encoded with it.  Filters that are `expected` avoid this: their operands are in the vocabulary from
the beginning.  The vocabulary holds the operands of the table, of the expected and of the present filters, so it does not
grow without bound.
"""

from __future__ import annotations

import copy
import marshal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Self

import numpy as np

from mpi_match.arrays.chunked import ChunkedList
from mpi_match.arrays.csr import Array
from mpi_match.arrays.undo import Undo
from mpi_match.changes.changes import Changes, part_interface
from mpi_match.changes.registry import Registry, Step
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Area, Change, Constraint, Filter, ModelError, Op, Type, View
from mpi_match.table.conditions import by_label, is_part, recompose
from mpi_match.table.constraints import FILTER_ID
from mpi_match.table.decode import subscriptions_of
from mpi_match.table.filters import INTERFACE_ID
from mpi_match.table.recode import Joined, join
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary


class Refusal(NamedTuple):
    """A row that was not applied: its position among those given, and the reason."""

    place: int
    reason: str


class LiveTable:
    """A table with changes.

    `table` is the original table in the present vocabulary; filter and interface ids are those of `registry`.  With
    `reuse_ids`, ids that became free are assigned again.
    """

    def __init__(self, table: Table, *, expected: Iterable[Filter] = (), reuse_ids: bool = True) -> None:
        likely = Table.from_subscriptions_in_order(Subscriptions.of(expected))
        table = join(table.vocabulary, likely.vocabulary)[1].table(table)
        self._origin = self.table = table
        self._renewed: Table | None = None  # the filters that came, in a vocabulary that was just renewed for them
        self._undo, self._is_whole = Undo(), True
        self._before = 0  # the level before the last `apply`
        self.registry = Registry(table, reuse=reuse_ids, undo=self._undo)
        self._came = ChunkedList[bytes](table.n_filters)  # by id: an added filter, `_packed`
        # areas of the table's filters, as arrays, because in the end all may have been moved
        self._area = np.full((table.n_filters if table.has_areas else 0, 3), np.nan)
        self._area[table.area_filter] = table.filters.area
        self._moved = np.zeros(len(self._area), np.bool_)
        self._gone = np.zeros(table.n_filters, np.bool_)

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary for encoding events."""
        return self.table.vocabulary

    def apply(self, rows: Iterable[ChangeRow], refused: list[Refusal]) -> Changes | None:
        """Apply changes in order.  Returns those for an engine, or None when it must be opened again (see the module).

        A row that cannot be applied goes to `refused`; the others take effect.  `take_back` undoes it, until the next
        `apply` or `keep`.  After any exception, Ctrl-C too, the table is as before.
        """
        self._settle()
        self.keep()
        return self._apply(rows, refused)

    def apply_on_top(self, rows: Iterable[ChangeRow], refused: list[Refusal]) -> Changes | None:
        """`apply` without keeping what was applied before: `go_back` undoes several, until `keep_to`."""
        self._settle()
        self._before, self._renewed = self.level, None
        return self._apply(rows, refused)

    @property
    def level(self) -> int:
        """The number of writes since the last that was kept: the present state, for `go_back` and `keep_to`."""
        return len(self._undo)

    def go_back(self, level: int) -> None:
        """Undo what was applied on top of the state with this level.  The engine has to be opened again."""
        self._settle()
        self._undo.back(level)
        self._renewed = None

    def keep_to(self, level: int) -> None:
        """Keep the changes up to the state with this level; the levels of later ones are less by so much."""
        self._settle()
        self._undo.forget(level)

    def _apply(self, rows: Iterable[ChangeRow], refused: list[Refusal]) -> Changes | None:
        self._is_whole = False
        try:
            steps: list[Step] = []
            for place, row in enumerate(rows):
                try:
                    done = self.registry.apply(row)
                except ModelError as error:
                    refused.append(Refusal(place, str(error)))
                    continue
                for step in done:
                    self._take(step)
                steps += done
            changes = self._changes(steps)
            self._is_whole = True
            return changes
        except BaseException:
            self.take_back()
            raise

    def take_back(self) -> None:
        """Undo the last `apply`, unless it was kept or taken back before.  Interrupted, it is completed by the next call."""
        self._is_whole = False
        self._undo.back(self._before)
        self._is_whole = True

    def keep(self) -> None:
        """Keep the last `apply`: it cannot be taken back any more, and its old values are freed."""
        self._undo.forget()
        self._before, self._renewed = 0, None

    def _settle(self) -> None:
        """Take back an `apply` that was interrupted, even while it was taken back."""
        if not self._is_whole:
            self.take_back()

    def __getstate__(self) -> dict[str, object]:
        """The state for `pickle` and `copy`."""
        self._settle()
        self.keep()
        return vars(self)

    def __copy__(self) -> Self:
        """A copy of the live table, which changes independently."""
        return copy.deepcopy(self)

    def _take(self, step: Step) -> None:
        undo = self._undo
        match step.kind:
            case Change.MOVE:
                came = self._came[step.target]
                if came is not None:
                    undo.set(self._came, step.target, _packed(_unpacked(came)._replace(area=step.area)))
                elif step.area is not None:
                    undo.set_row(self._area, step.target, step.area)
                    undo.set(self._moved, step.target, True)
            case Change.ADD:
                self._came.have(step.target + 1)
                undo.set(self._came, step.target, None if step.filter is None else _packed(step.filter))
            case Change.REMOVE:
                self._remove(step.target)
            case Change.REMOVE_INTERFACE:
                for filter_id in step.left:
                    self._remove(filter_id)

    def _remove(self, filter_id: int) -> None:
        undo = self._undo
        if self._came[filter_id] is not None:
            undo.set(self._came, filter_id, None)
            return
        undo.set(self._gone, filter_id, True)
        if filter_id < len(self._area):
            undo.set_row(self._area, filter_id, np.nan)
            undo.set(self._moved, filter_id, False)

    def _changes(self, steps: Sequence[Step]) -> Changes | None:
        added = added_filters(steps)
        if added is not None:
            joined = join(self.vocabulary, added.vocabulary)
            if joined[0] is not self.vocabulary:
                self._renew_vocabulary(steps, added, joined)
                return None
            added = joined[2].table(added)
        return self._changes_with(steps, added)

    def _changes_with(self, steps: Sequence[Step], added: Table | None) -> Changes:
        """The changes of steps; `added` are their filters in the present vocabulary."""
        columns = columns_of(steps)
        adds = (step.filter for step in steps if step.filter is not None)
        for k, label in enumerate(item.interface for item in adds):
            if is_part(label):
                columns[3][k] = part_interface(label, self.vocabulary)
        return Changes.of(*columns, added, self.registry.n_filters, self.registry.n_interfaces)

    def _those_that_came(self) -> Iterator[tuple[int, Filter]]:
        """The added filters, with their ids; ids ascend."""
        return ((filter_id, _unpacked(came)) for filter_id, came in enumerate(self._came) if came is not None)

    def _renew_vocabulary(self, steps: Sequence[Step], added: Table, joined: Joined) -> None:
        """Extend the vocabulary to the operands of all present filters.

        `added` are the filters that the steps add, `joined` is the present vocabulary with their operands, which is mostly
        enough.
        """
        came = [filter_id for filter_id, packed in enumerate(self._came) if packed is not None]
        is_all = [(Change.ADD, filter_id) for filter_id in came] == [(step.kind, step.target) for step in steps]
        if not (is_all and self.vocabulary is self._origin.vocabulary):
            added = Table.from_subscriptions_in_order(Subscriptions.of(item for _, item in self._those_that_came()))
            joined = join(self._origin.vocabulary, added.vocabulary)
        _, of_origin, of_added = joined
        self._undo.assign(self, "table", of_origin.table(self._origin))
        self._undo.assign(self, "_renewed", of_added.table(added))

    def since(self) -> Changes:
        """The changes from `table` to the present state, for an engine that was just opened; it consolidates them."""
        self._settle()
        steps = [Step(Change.REMOVE, filter_id) for filter_id in np.flatnonzero(self._gone).tolist()]
        steps += [Step(Change.MOVE, i, Area(*self._area[i].tolist())) for i in np.flatnonzero(self._moved).tolist()]
        for filter_id, item in self._those_that_came():
            steps.append(Step(Change.ADD, filter_id, interface=self.registry.interface_of(filter_id), filter=item))
        if steps:
            steps.append(Step(Change.CONSOLIDATE, 0))
        if self._renewed is not None:
            return self._changes_with(steps, self._renewed)
        changes = self._changes(steps)
        assert changes is not None, "the vocabulary has the operands of all filters that are there"
        return changes

    def compiled(self) -> Table:
        """The present filters as a table with new ids, equal to the table that compiling them gives.

        Metadata stay with the ids that are there.
        """
        self._settle()
        kept = np.flatnonzero(~self._gone)
        own = subscriptions_of(self._origin, kept)
        if len(self._area):
            own = replace(own, area=self._area[kept])
        came = Subscriptions.of(item for _, item in self._those_that_came())
        made = Table.from_subscriptions(Subscriptions.concat([own, came]))
        if (metadata := self._origin.metadata) is not None:
            made = replace(made, metadata=metadata.of_ids(id_.decode() for id_ in made.filters.ids))
        return made

    def filter(self, filter_id: int) -> Filter | None:
        """The present filter with this id; None when there is none."""
        self._settle()
        return _Present(self._origin, self._came, self._gone, self._moved, self._area).filter(filter_id)

    def filters(self) -> Iterator[tuple[int, Filter]]:
        """All present filters, with their conditions and ids; ids ascend.  Later changes do not affect what it yields."""
        found: Iterable[tuple[int, Filter]] = self._conjunctions()
        if not len(self.vocabulary.parts) and not self.vocabulary.scopes:
            return iter(found)
        found = list(found)
        parts = by_label(item for _, item in found if is_part(item.interface))
        return ((i, recompose(item, parts)) for i, item in found if not is_part(item.interface))

    def _conjunctions(self) -> Iterator[tuple[int, Filter]]:
        """All present filters, including those of parts."""
        self._settle()
        came = list(islice(self._came, self.registry.n_filters))
        present = _Present(self._origin, came, self._gone.copy(), self._moved.copy(), self._area.copy())
        return ((i, item) for i in range(len(came)) if (item := present.filter(i)) is not None)

    def areas(self) -> Array:
        """f64[n_filters, 3]: x, y and radius of every filter's present area, by id; NaN without area or filter."""
        self._settle()
        found = np.full((self.registry.n_filters, 3), np.nan)
        found[: len(self._area)] = self._area
        for filter_id, item in self._those_that_came():
            found[filter_id] = item.area or np.nan
        return found


class _Present(NamedTuple):
    """The present filters: those of the table that were not removed, at their present areas, and the added ones."""

    origin: Table
    came: ChunkedList[bytes] | list[bytes | None]
    gone: Array
    moved: Array
    area: Array

    def filter(self, filter_id: int) -> Filter | None:
        """See `LiveTable.filter`."""
        if filter_id >= len(self.came):
            return None
        if (came := self.came[filter_id]) is not None:
            return _unpacked(came)
        if filter_id >= self.origin.n_filters or self.gone[filter_id]:
            return None
        item = self.origin.conjunction(filter_id)
        has_moved = filter_id < len(self.moved) and self.moved[filter_id]
        return item._replace(area=Area(*self.area[filter_id].tolist())) if has_moved else item


def added_filters(steps: Iterable[Step]) -> Table | None:
    """The filters that steps add, in order, as a table with a vocabulary of its own; None when there are none."""
    filters = [step.filter for step in steps if step.filter is not None]
    return Table.from_subscriptions_in_order(Subscriptions.of(filters)) if filters else None


def columns_of(steps: Sequence[Step]) -> tuple[Array, Array, Array, Array]:
    """Steps as flat columns: kind and target of each, area of each MOVE, interface of each ADD."""
    moves = [step.area for step in steps if step.area is not None]
    return (
        np.array([step.kind for step in steps], np.uint8),
        np.array([step.target for step in steps], FILTER_ID),
        np.array(moves, np.float64).reshape(-1, 3),
        np.array([step.interface for step in steps if step.kind is Change.ADD], INTERFACE_ID),
    )


def _packed(item: Filter) -> bytes:
    """A filter as bytes, in a version of `marshal` that every Python reads, because the bytes are pickled too."""
    constraints = [(c.name, int(c.type), int(c.op), c.operand, c.any_element, c.view.value) for c in item.constraints]
    return marshal.dumps((item.interface, constraints, item.area and tuple(item.area), item.id), 4)


def _unpacked(packed: bytes) -> Filter:
    """The inverse of `_packed`."""
    interface, constraints, area, name = marshal.loads(packed)
    found = tuple(
        Constraint(of, Type(type_), Op(op), value, on, View(view)) for of, type_, op, value, on, view in constraints
    )
    return Filter(interface, found, area and Area(*area), name)
