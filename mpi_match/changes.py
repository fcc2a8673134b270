"""Changes to a table while events are matched: areas move, filters come and go, interfaces leave.

A change takes effect between two events: every event after it sees it, none before it does.  Engines take changes in runs of
flat columns, in order:

    kind              target        and
    MOVE              filter        `area`: the new circle of a filter that has one
    ADD               filter        `row`: which filter of `added` it is, `interface`: whose it is
    REMOVE            filter
    REMOVE_INTERFACE  interface     and with it all its filters

Ids are given by whoever makes the changes, not by engines: a table's filters and interfaces keep theirs, later ones get the
next, and an id whose filter was removed may be given again.  An added filter is encoded with the vocabulary of the engine's
table, so what it compares with has to be an operand there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from mpi_match.arrays import Array
from mpi_match.table import Table


class Change(IntEnum):
    """Kinds of changes."""

    MOVE = 0
    ADD = 1
    REMOVE = 2
    REMOVE_INTERFACE = 3


@dataclass(frozen=True, eq=False)
class Changes:
    """n changes in the order in which they take effect.

    kind          u8[n]      `Change`
    target        u32[n]     filter id; for REMOVE_INTERFACE an interface id
    area          f64[n, 3]  MOVE: centre x, y and radius; else NaN
    row           i32[n]     ADD: the filter of `added`; else -1
    interface     u32[n]     ADD: the filter's interface id (whatever `added` says); else 0
    added         the added filters as a table with the vocabulary of the engine's table; None when there are none
    n_filters     filter ids are less than this from now on
    n_interfaces  interface ids are less than this from now on

    Whoever makes them checks them: a target is there when its change takes effect, a filter that moves has an area.
    """

    kind: Array
    target: Array
    area: Array
    row: Array
    interface: Array
    added: Table | None
    n_filters: int
    n_interfaces: int

    def __len__(self) -> int:
        return len(self.kind)
