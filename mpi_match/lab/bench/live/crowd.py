"""Endless changes to a table of constant size: guests come and go, all filters move.

A tenth of all interfaces are guests:

    90 %   a filter, of a guest or not, moves to a place drawn like the first
     8 %   a filter of a guest leaves, or one that left comes back, with a new id, to a guest that is there
     2 %   a guest leaves with all its filters, or one that left comes back; every second time with a label never seen before

Arrivals and departures are drawn in proportion to the absent and present guests, so about half are present.  Ids and labels
are always new, which exposes leaks.  No change may be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.lab.workloads.sampling import Sampler, radius_of
from mpi_match.lab.workloads.scenarios import Scenario
from mpi_match.model import Area, Change, Filter
from mpi_match.table.constraints import FILTER_ID
from mpi_match.table.table import Table

GUESTS, MOVES, SINGLES = 0.1, 0.9, 0.08
"""Shares: of interfaces that are guests; of changes that are moves; of changes to one filter of a guest."""

Item = TypeVar("Item")


class Crowd:
    """The present and the absent guests, and their next changes.

    A filter's id is `CONTENT.TIMES`: its constraints are those of filter CONTENT of the table, and TIMES makes the id new.
    """

    def __init__(self, table: Table, scenario: Scenario, seed: int) -> None:
        self._table, self._rng = table, np.random.default_rng(seed)
        self._places, self._radius = Sampler(scenario.place_exponent), radius_of(scenario.area)
        n_guests = max(int(GUESTS * table.n_interfaces), 1)
        bounds = np.searchsorted(table.filters.interface, np.arange(n_guests + 1))
        self._residents = [id_of(i) for i in range(int(bounds[-1]), table.n_filters)]
        self._filters = {table.label(i): [id_of(f) for f in range(*bounds[i : i + 2])] for i in range(n_guests)}
        self._here = list(self._filters)
        self._n_here = int(bounds[-1])
        self._away: list[int] = []
        self._guests_away: list[tuple[str, list[int]]] = []
        self._times = 0

    @property
    def n_there(self) -> int:
        """The number of present filters."""
        return len(self._residents) + self._n_here

    def rows(self, n: int) -> Iterator[ChangeRow]:
        """The next n changes, in order."""
        areas = self._places.draw(self._rng, n).tolist()
        for what, (x, y), draw in zip(self._rng.random(n).tolist(), areas, self._rng.random((n, 3)).tolist(), strict=True):
            area, row = Area(x, y, self._radius), None
            if what >= MOVES + SINGLES:
                row = self._guest(area, *draw)
            elif what >= MOVES:
                row = self._single(area, *draw)
            yield row or self._move(area, *draw)

    def _move(self, area: Area, of_guest: float, which: float, one: float) -> ChangeRow:
        found = self._of_a_guest(which) if of_guest < GUESTS or not self._residents else self._residents
        return ChangeRow(Change.MOVE, found[int(one * len(found))] if found else self._residents[0], area)

    def _of_a_guest(self, which: float) -> list[str]:
        return self._filters[self._here[int(which * len(self._here))]] if self._here else []

    def _single(self, area: Area, coming: float, which: float, one: float) -> ChangeRow | None:
        """Remove or add a filter of a guest; None if no guest is present."""
        if not self._here:
            return None
        label = self._here[int(which * len(self._here))]
        if coming * (self._n_here + len(self._away)) < len(self._away):
            item = self._filter(taken(self._away, one), label, area)
            self._n_here += 1
            return ChangeRow(Change.ADD, filters=(item,))
        found = self._filters[label]
        if not found:
            return None
        leaving = taken(found, one)
        self._away.append(content_of(leaving))
        self._n_here -= 1
        return ChangeRow(Change.REMOVE, leaving)

    def _guest(self, area: Area, coming: float, which: float, one: float) -> ChangeRow | None:
        """Remove or add a guest; None if the chosen one has no filters."""
        if coming * (len(self._here) + len(self._guests_away)) < len(self._guests_away):
            label, contents = taken(self._guests_away, which)
            if one < 0.5:
                label = f"guest-{self._times}"
            self._here.append(label)
            self._filters[label] = []
            self._n_here += len(contents)
            return ChangeRow(Change.ADD, filters=tuple([self._filter(content, label, area) for content in contents]))
        label = self._here[int(which * len(self._here))]
        if not self._filters[label]:
            return None
        taken(self._here, which)
        leaving = self._filters.pop(label)
        self._guests_away.append((label, [content_of(each) for each in leaving]))
        self._n_here -= len(leaving)
        return ChangeRow(Change.REMOVE_INTERFACE, label)

    def _filter(self, content: int, label: str, area: Area) -> Filter:
        self._times += 1
        item = self._table.filter(content)._replace(interface=label, area=area, id=id_of(content, self._times))
        self._filters[label].append(id_of(content, self._times))
        return item


def id_of(content: int, times: int = 0) -> str:
    return f"{content}.{times}"


def content_of(name: str) -> int:
    return int(name.partition(".")[0])


def taken(items: list[Item], which: float) -> Item:
    """Remove and return the item at this fraction of a list; the last item takes its place."""
    at = int(which * len(items))
    items[at], items[-1] = items[-1], items[at]
    return items.pop()


def identified(table: Table) -> Table:
    """The table with each filter's number as its id."""
    names = Strings.of(id_of(i).encode() for i in range(table.n_filters))
    return replace(table, filters=replace(table.filters, id_filter=np.arange(table.n_filters, dtype=FILTER_ID), ids=names))
