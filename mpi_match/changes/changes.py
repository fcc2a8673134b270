"""Changes to a table while events are matched: areas are moved, filters added and removed, interfaces removed.

A change takes effect between two events: every event after it sees it, none before it does.  Engines take changes as flat
columns, in order:

    kind              target        and
    MOVE              filter        `area`: the new circle of a filter that has one
    ADD               filter        `row`: the filter of `added`, `interface`: its interface
    REMOVE            filter
    REMOVE_INTERFACE  interface     and with it all its filters
    CONSOLIDATE       0             no filter changes: an engine that stages changes takes them into its structures now

Ids are assigned by the producer of the changes, not by engines: a table's filters and interfaces keep theirs, added ones get
the next, and an id may be reused after its filter was removed.  An added filter is encoded with the vocabulary of the
engine's table, so its operands must be there already.

Producers are `live_table`, from rows, for one process, and `changes.log`, from a file, for a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.model import Change
from mpi_match.table.virtual_names import name_of

if TYPE_CHECKING:
    from mpi_match.table.table import Table
    from mpi_match.table.vocabulary import Vocabulary


PART_INTERFACES = 2**31
"""The first interface number that stands for a part of conditions: the interface of a filter that is added to a part is this
number plus the name of the part (`table.conditions`)."""


def part_interface(label: str, vocabulary: Vocabulary) -> int:
    """The interface of filters that are added to a part with this label."""
    return PART_INTERFACES + vocabulary.name_id(name_of(label))


@dataclass(frozen=True, eq=False)
class Changes:
    """n changes in the order in which they take effect.

    kind          u8[n]      `Change`
    target        u32[n]     filter id; for REMOVE_INTERFACE an interface id; for CONSOLIDATE 0
    area          f64[n, 3]  MOVE: centre x, y and radius; else NaN
    row           i32[n]     ADD: the filter of `added`; else -1
    interface     u32[n]     ADD: the filter's interface id (whatever `added` says), see also PART_INTERFACES; else 0
    added         the added filters as a table with the vocabulary of the engine's table; None when there are none
    n_filters     an upper bound, exclusive, of filter ids from now on
    n_interfaces  an upper bound, exclusive, of interface ids from now on

    The producer checks them: a target exists when its change takes effect, a filter that is moved has an area.
    """

    kind: Array
    target: Array
    area: Array
    row: Array
    interface: Array
    added: Table | None
    n_filters: int
    n_interfaces: int

    @classmethod
    def of(
        cls,
        kind: Array,
        target: Array,
        area: Array,
        interface: Array,
        added: Table | None,
        n_filters: int,
        n_interfaces: int,
    ) -> Changes:
        """Make changes in which MOVE number k goes to `area[k]`, and ADD number k adds filter k of `added` to
        `interface[k]`."""
        adds, moves = kind == Change.ADD, kind == Change.MOVE
        whose = np.zeros(len(kind), np.uint32)
        whose[adds] = interface
        where = np.full((len(kind), 3), np.nan)
        where[moves] = area
        row = np.where(adds, np.cumsum(adds) - 1, -1).astype(np.int32)
        return cls(kind, target, where, row, whose, added, n_filters, n_interfaces)

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, some: slice) -> Changes:
        """Changes `start` to `stop`, with the filters that these add.

        The rows of `added` must be in the order in which they are added, as all producers have them.
        """
        start, stop, step = some.indices(len(self))
        if step != 1:
            raise ValueError("changes can only be sliced into consecutive ones")
        run = slice(start, max(start, stop))
        added, row = self.added, self.row[run]
        adds = np.flatnonzero(row >= 0)
        if added is not None:
            added = added.take(row[adds]) if len(adds) else None
            row = row.copy()
            row[adds] = np.arange(len(adds))
        return Changes(
            kind=self.kind[run],
            target=self.target[run],
            area=self.area[run],
            row=row,
            interface=self.interface[run],
            added=added,
            n_filters=self.n_filters,
            n_interfaces=self.n_interfaces,
        )


def runs(kind: Array) -> Iterator[tuple[int, slice]]:
    """Maximal runs of changes of one kind: the kind, and the range."""
    ends = np.append(np.flatnonzero(np.diff(kind)) + 1, len(kind)).tolist()
    start = 0
    for end in ends:
        if end > start:
            yield int(kind[start]), slice(start, end)
        start = end
