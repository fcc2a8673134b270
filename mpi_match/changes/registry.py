"""The registry of present filters and interfaces: from the ids and labels that subscribers use to the ids of engines.

A change is written with a subscriber's names, "move `taxi-7`", "interface `desk` is gone".  The registry knows the filters
that `taxi-7` stands for at present, assigns ids to added filters and frees those of removed ones, and refuses impossible
changes with the reason:

    row                                   steps                                    refused when
    move "taxi-7" to [9, 45, 1]           MOVE 4                                   no filter has this id; one has no area
    add {"interface": "desk", ...}        ADD 12 to 3, ADD 13 to 3                 a present filter has this id
    remove "taxi-7"                       REMOVE 4                                 no filter has this id
    remove_interface "desk"               REMOVE_INTERFACE 3                       no filter is on this interface
    consolidate                           CONSOLIDATE                              never

An id may stand for several filters, those of one predicate; a change applies to all of them.  A row is applied as a whole or
not at all.  Filters without an id are removed only with their interface.

Ids of filters and interfaces are dense.  With `reuse`, a free id is assigned again, so that endless changes need no more ids
than there ever were filters at one time; without it, ids ascend and keep their meaning from beginning to end, which a file
requires.  Either way equal rows give equal ids, also after others were undone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.chunked import ChunkedDict, ChunkedList
from mpi_match.arrays.csr import with_room
from mpi_match.arrays.linked_lists import LinkedLists
from mpi_match.arrays.undo import Undo
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Area, Change, Filter, Json, ModelError
from mpi_match.table.conditions import decompose, id_of_unnamed, is_part
from mpi_match.table.constraints import FILTER_ID
from mpi_match.table.table import Table

MOST_FILTERS = int(np.iinfo(FILTER_ID).max)
_COLUMNS = ("_there", "_has_area", "_interface")
"""Columns of a registry, by filter id, with room for more."""


class Step(NamedTuple):
    """One change with its ids: a row of `Changes` before flattening.

    `area` belongs to MOVE, `interface` (its id) and `filter` to ADD, `left` (the filters that are removed with it) to
    REMOVE_INTERFACE.
    """

    kind: Change
    target: int
    area: Area | None = None
    interface: int = 0
    filter: Filter | None = None
    left: tuple[int, ...] = ()


class Registry:
    """Present filters and interfaces, by subscribers' names.

    `n_filters` and `n_interfaces` are the numbers of ids ever assigned; `labels[i]` is the present or last label of
    interface id i.  Every write is kept in `undo`; without one, for the time of an `apply` only.
    """

    def __init__(self, table: Table, *, reuse: bool, undo: Undo | None = None) -> None:
        filters = table.filters
        self._reuse, self._forgets = reuse, undo is None
        self._undo = Undo() if undo is None else undo
        self.labels: list[str] = [label.decode() for label in table.labels]
        self._interface_ids = ChunkedDict[int]()
        for i, label in enumerate(self.labels):
            self._interface_ids.of(label)[label] = i
        self._n_there = array("q", np.bincount(filters.interface, minlength=table.n_interfaces).tolist())
        self._first = np.searchsorted(filters.interface, np.arange(table.n_interfaces + 1))  # the table's own filters
        self._joined = LinkedLists(table.n_interfaces, table.n_filters)  # interface -> filters added later
        self._n_filters = n = table.n_filters
        # memoryviews, as in `linked_lists`
        self._there = with_room(np.ones(n, np.uint8), n).data
        self._has_area = with_room(np.zeros(n, np.uint8), n).data
        self._interface = with_room(filters.interface.astype(np.uint32), n).data
        self._name = ChunkedList[str](n)  # the id of each filter that has one
        self._named = ChunkedDict[int | tuple[int, ...]]()  # id -> its filter, or several
        self._free_filters: list[int] = []
        # ids that may be free: those of interfaces that had no filter at some time, each once
        self._free_interfaces: list[int] = []
        self._may_be_free = array("b", bytes(table.n_interfaces))
        for filter_id in filters.area_filter.tolist():
            self._has_area[filter_id] = 1
        named: dict[bytes, list[int]] = {}
        for filter_id, name in zip(filters.id_filter.tolist(), filters.ids, strict=True):
            named.setdefault(name, []).append(filter_id)
        for name, filter_ids in named.items():
            self._give_name(name.decode(), filter_ids)
        self._undo.forget()
        if reuse:
            for i, n_filters in enumerate(self._n_there):
                if not n_filters:
                    self._free_interfaces.append(i)
                    self._may_be_free[i] = True

    def __getstate__(self) -> dict[str, object]:
        """The state for `pickle` and `copy`: columns without their spare room."""
        columns = {name: np.asarray(getattr(self, name))[: self._n_filters].copy() for name in _COLUMNS}
        return vars(self) | columns

    def __setstate__(self, state: Json) -> None:
        vars(self).update(state | {name: with_room(state[name], state["_n_filters"]).data for name in _COLUMNS})
        self._joined.have(self.n_interfaces, self.n_filters)

    @property
    def n_filters(self) -> int:
        """An upper bound, exclusive, of filter ids."""
        return self._n_filters

    @property
    def n_interfaces(self) -> int:
        """An upper bound, exclusive, of interface ids."""
        return len(self.labels)

    def interface_of(self, filter_id: int) -> int:
        """The interface of a present filter."""
        return self._interface[filter_id]

    def filter_name(self, filter_id: int) -> str | None:
        """The id that the subscriber gave to a present filter, if any."""
        return self._name[filter_id]

    def members(self, interface: int) -> list[int]:
        """The present filters of an interface, ascending."""
        own: Iterable[int] = ()
        if interface + 1 < len(self._first):
            first, last = int(self._first[interface]), int(self._first[interface + 1])
            own = (f for f in range(first, last) if self._there[f] and f not in self._joined)
        return sorted([*own, *self._joined.of(interface)])

    def apply(self, row: ChangeRow) -> list[Step]:
        """The steps of a row, in order.  Raises ModelError when it cannot be applied; then nothing is changed."""
        if self._forgets:
            self._undo.forget()
        match row.kind:
            case Change.MOVE:
                return [Step(Change.MOVE, filter_id, row.area) for filter_id in self._movable(row.target)]
            case Change.ADD:
                return self._add(row.filters)
            case Change.REMOVE:
                return [Step(Change.REMOVE, filter_id) for filter_id in self._remove(self._find(row.target))]
            case Change.CONSOLIDATE:
                return [Step(Change.CONSOLIDATE, 0)]
        return self._remove_interface(row.target)

    def _find(self, name: str) -> tuple[int, ...]:
        found = self._named.of(name).get(name)
        if found is None:
            raise ModelError(f"no filter has the id {name!r}")
        return found if isinstance(found, tuple) else (found,)

    def _movable(self, name: str) -> tuple[int, ...]:
        found = tuple(each for each in self._find(name) if not is_part(self.labels[self._interface[each]]))
        if not all(self._has_area[filter_id] for filter_id in found):
            raise ModelError(f"the filter with the id {name!r} has no area that could move")
        return found

    def _add(self, given: Sequence[Filter]) -> list[Step]:
        filters = [each for item in given for each in decompose(item)]
        for item in filters:
            if item.id is not None and not is_part(item.interface) and item.id in self._named.of(item.id):
                raise ModelError(f"a filter with the id {item.id!r} exists already; remove it first, or give another id")
        if self.n_filters + len(filters) > MOST_FILTERS:
            raise ModelError(f"there are no more than {MOST_FILTERS:,} filter ids")
        steps = []
        named: dict[str, list[int]] = {}
        for item in filters:
            interface = self._interface_id(item.interface)
            filter_id = self._filter_id(interface, item)
            steps.append(Step(Change.ADD, filter_id, interface=interface, filter=item))
            if item.id is not None:
                named.setdefault(item.id, []).append(filter_id)
        for name, filter_ids in named.items():
            self._give_name(name, filter_ids)
        return steps

    def _filter_id(self, interface: int, item: Filter) -> int:
        undo = self._undo
        if self._free_filters:
            filter_id: int = undo.pop(self._free_filters)
        else:
            filter_id = self._n_filters
            undo.assign(self, "_n_filters", filter_id + 1)
            self._have_filters()
        undo.set(self._there, filter_id, 1)
        undo.set(self._has_area, filter_id, item.area is not None)
        undo.set(self._interface, filter_id, interface)
        undo.set(self._n_there, interface, self._n_there[interface] + 1)
        self._joined.have(self.n_interfaces, self.n_filters, undo)
        self._joined.note(interface, filter_id, undo)
        self._joined.add(interface, filter_id)
        return filter_id

    def _have_filters(self) -> None:
        """Make room for all filter ids."""
        n = self._n_filters
        self._name.have(n)
        for column in _COLUMNS:
            if n > len(view := getattr(self, column)):
                self._undo.assign(self, column, with_room(np.asarray(view), n).data)

    def _give_name(self, name: str, filter_ids: Sequence[int]) -> None:
        """Give an id to filters, all at once: a condition of 100,000 constraints has as many parts with one id."""
        for filter_id in filter_ids:
            self._undo.set(self._name, filter_id, name)
        names = self._named.of(name)
        found = (*(self._find(name) if name in names else ()), *filter_ids)
        self._undo.put(names, name, found[0] if len(found) == 1 else found)

    def _interface_id(self, label: str) -> int:
        undo, ids = self._undo, self._interface_ids
        found = ids.of(label).get(label)
        if found is None:
            found = self._free_interface()
            if found is not None:
                before = self.labels[found]
                if before in ids.of(before):
                    undo.drop(ids.of(before), before)
                undo.set(self.labels, found, label)
            else:
                found = len(self.labels)
                undo.append(self.labels, label)
                undo.append(self._n_there, 0)
                undo.append(self._may_be_free, 0)
            undo.put(ids.of(label), label, found)
        return found

    def _free_interface(self) -> int | None:
        """The id of an interface without filters, which will have some; None: there is none that may be given again.

        A stack with marks, because `undo` restores its order: those who apply the same rows give the same ids.
        """
        while self._free_interfaces:
            found = int(self._undo.pop(self._free_interfaces))
            self._undo.set(self._may_be_free, found, 0)
            if not self._n_there[found]:
                return found
        return None

    def _remove(self, gone: Sequence[int]) -> Sequence[int]:
        undo = self._undo
        unnamed: dict[str, set[int]] = {}
        for filter_id in gone:
            interface = self._interface[filter_id]
            undo.set(self._there, filter_id, 0)
            undo.set(self._n_there, interface, self._n_there[interface] - 1)
            if filter_id in self._joined:
                self._joined.note(interface, filter_id, undo)
                self._joined.remove(interface, filter_id)
            name = self._name[filter_id]
            if name is not None:
                undo.set(self._name, filter_id, None)
                unnamed.setdefault(name, set()).add(filter_id)
            if self._reuse:
                undo.append(self._free_filters, filter_id)
                if not self._n_there[interface] and not self._may_be_free[interface]:
                    undo.append(self._free_interfaces, interface)
                    undo.set(self._may_be_free, interface, 1)
        for name, filter_ids in unnamed.items():
            left, names = tuple(each for each in self._find(name) if each not in filter_ids), self._named.of(name)
            if left:
                undo.put(names, name, left)
            else:
                undo.drop(names, name)
        return gone

    def _remove_interface(self, label: str) -> list[Step]:
        interface = self._interface_ids.of(label).get(label)
        if interface is None or not self._n_there[interface]:
            raise ModelError(f"no filter is on an interface {label!r}")
        members = self.members(interface)
        orphans = self._parts_of(label, members)
        left = self._remove(members)
        parts = [Step(Change.REMOVE, filter_id) for filter_id in self._remove(orphans)]
        return [Step(Change.REMOVE_INTERFACE, interface, left=tuple(left)), *parts]

    def _parts_of(self, label: str, members: Sequence[int]) -> list[int]:
        """The filters of parts of conditions that go with an interface and its filters: those of filters without an id, and
        those with an id that no other filter has.
        """
        of_unnamed = id_of_unnamed(label)
        gone = set(members)
        found = list(self._find(of_unnamed)) if of_unnamed in self._named.of(of_unnamed) else []
        for name in {name for each in members if (name := self._name[each]) is not None}:
            others = [each for each in self._find(name) if each not in gone]
            if all(is_part(self.labels[self._interface[each]]) for each in others):
                found += others
        return found
