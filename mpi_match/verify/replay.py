"""Replays the changes to a table up to an event, one after the other, on filters of the model.

The file of a table does not change.  So a judge of that table remains valid, and a replay corrects its result:

    filter of the table, unchanged             as the judge says
    filter of the table, removed               does not match
    filter of the table, moved                 is matched with its present area
    added filter                               is matched

Nothing here is shared with engines or with `live_table`: changes are read from the file, and a filter is a filter of
`model`.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import places_in
from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import PART_INTERFACES, Changes
from mpi_match.changes.stream import ChangeStream
from mpi_match.model import Area, Change, Event, Filter, matches
from mpi_match.table.conditions import by_label, recompose
from mpi_match.table.table import Table
from mpi_match.table.virtual_names import attribute_of


class Replay:
    """The filters of a table while changes are applied to it; without changes, those of the table.

    `labels` are those of all interfaces, including later ones; `n_filters` is greater than any filter id.
    """

    def __init__(self, table: Table, stream: ChangeStream[Table] | None = None) -> None:
        self._table = table
        self._runs = iter(() if stream is None else stream.changes.runs())
        self._next = next(self._runs, None)
        self._gone: set[int] = set()
        self._moved: dict[int, Filter] = {}
        self._came: dict[int, tuple[int, Filter]] = {}
        self._parts = dict(table.parts)  # those of filters that are gone do no harm
        self.labels: Strings = table.labels if stream is None else stream.labels
        self.n_filters = table.n_filters if stream is None else stream.n_filters

    def advance(self, event: int) -> None:
        """Apply all changes that event number `event` sees; numbers must ascend."""
        while self._next is not None and self._next[0] <= event:
            self._apply(self._next[1])
            self._next = next(self._runs, None)

    def _apply(self, changes: Changes) -> None:
        self._parts.update(_parts_of(changes))
        for i, (kind, target) in enumerate(zip(changes.kind.tolist(), changes.target.tolist(), strict=True)):
            match Change(kind):
                case Change.ADD if changes.interface[i] >= PART_INTERFACES:
                    pass
                case Change.MOVE:
                    self._move(target, Area(*changes.area[i].tolist()))
                case Change.ADD if changes.added is not None:
                    interface = int(changes.interface[i])
                    item = recompose(changes.added.conjunction(int(changes.row[i])), self._parts)
                    self._came[target] = interface, item._replace(interface=self.label(interface))
                case Change.REMOVE:
                    self._remove(target)
                case Change.REMOVE_INTERFACE:
                    for filter_id in self.on(target):
                        self._remove(filter_id)

    def _move(self, filter_id: int, area: Area) -> None:
        if filter_id in self._came:
            interface, item = self._came[filter_id]
            self._came[filter_id] = interface, item._replace(area=area)
        else:
            self._moved[filter_id] = self._table.filter(filter_id)._replace(area=area)

    def _remove(self, filter_id: int) -> None:
        if self._came.pop(filter_id, None) is None:
            self._gone.add(filter_id)
            self._moved.pop(filter_id, None)

    def matched(self, event: Event | None, by_table: list[int]) -> list[int]:
        """Filters that match an event at present (sorted); `by_table` are the filters of the original table that
        match it.
        """
        found = {i for i in by_table if i not in self._gone and i not in self._moved}
        found.update(i for i, item in self._moved.items() if matches(item, event))
        found.update(i for i, (_, item) in self._came.items() if matches(item, event))
        return sorted(found)

    def filter(self, filter_id: int) -> Filter | None:
        """The present filter with this id; None when there is none."""
        if filter_id in self._came:
            return self._came[filter_id][1]
        if filter_id in self._gone or filter_id >= self._table.n_filters:
            return None
        return self._moved.get(filter_id) or self._table.filter(filter_id)

    def interface(self, filter_id: int) -> int:
        """The interface of a present filter."""
        if filter_id in self._came:
            return self._came[filter_id][0]
        return int(self._table.filters.interface[filter_id])

    def label(self, interface: int) -> str:
        return self.labels[interface].decode()

    def on(self, interface: int) -> list[int]:
        """The present filters of an interface."""
        first, last = places_in(self._table.filters.interface, (interface, interface + 1))
        own = [i for i in range(int(first), int(last)) if i not in self._gone]
        return [*own, *(i for i, (owner, _) in self._came.items() if owner == interface)]


def _parts_of(changes: Changes) -> dict[str, list[Filter]]:
    """The filters of the parts of conditions that changes add, by label."""
    if changes.added is None:
        return {}
    added, names = changes.added, changes.added.vocabulary.names
    of_parts = np.flatnonzero((changes.kind == Change.ADD) & (changes.interface >= PART_INTERFACES)).tolist()
    labels = (attribute_of(names[int(changes.interface[i]) - PART_INTERFACES])[0] for i in of_parts)
    filters = (added.conjunction(int(changes.row[i])) for i in of_parts)
    return by_label(item._replace(interface=label) for label, item in zip(labels, filters, strict=True))
