"""All kinds of changes made to a small table, before the first real one comes.

An engine's code for changes is compiled when it is first used, or loaded if it ever was on this machine: seconds, or some
milliseconds, in which nothing would be matched.  So a process that opens an engine for a table that will change opens
another for two filters, moves, adds and removes filters of that, and drops it.  What is compiled depends on the engine and
on the type of the attributes, not on what the table holds.  Engines that have something compiled say so by an attribute
`compiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import Changes
from mpi_match.events.batch import EventBatch
from mpi_match.model import Change
from mpi_match.table.filters import FilterColumns
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.engines import Engine

_PLACE = np.array([[0.5, 0.5, 0.1]])
_rehearsed: set[tuple[str, np.dtype]] = set()


def rehearse(name: str, open_: Callable[[Table], Engine], table: Table) -> None:
    """Have compiled what the engine `name`, which `open_` opens, needs for changes of a table like this one."""
    packed = table.vocabulary.packed_dtype
    if (name, packed) in _rehearsed:
        return
    small, nothing = _like(table), np.empty(0, packed)
    engine = open_(small)
    event = EventBatch(np.zeros(2, np.uint32), nothing, _PLACE[:, :2].copy(), table.vocabulary.fingerprint)
    engine.match(event)
    for changes in (
        _changes(small, [Change.MOVE], [1]),
        _changes(small, [Change.ADD, Change.ADD, Change.MOVE], [2, 3, 3]),
        _changes(small, [Change.REMOVE, Change.REMOVE], [0, 1]),
        _changes(small, [Change.REMOVE_INTERFACE], [0]),
    ):
        engine.update(changes)
        engine.match(event)
    _rehearsed.add((name, packed))


def _like(table: Table) -> Table:
    """Two filters with the table's vocabulary and its first constraint, on its first interface; one has an area."""
    rows = np.zeros(2 if len(table.constraints) else 0, np.int64)
    area = np.concatenate([np.full((1, 3), np.nan), _PLACE])
    columns = FilterColumns.of(np.full(2, len(rows) // 2), np.zeros(2, np.int64), area, None)
    constraints = table.constraints.take(rows, np.arange(len(rows)))
    labels = table.labels if len(table.labels) else Strings.of([b""])
    return replace(table, constraints=constraints, filters=columns, labels=labels)


def _changes(table: Table, kinds: Sequence[Change], target: Sequence[int]) -> Changes:
    """Changes to a small table whose added filters are like its own."""
    kind = np.array(kinds, np.uint8)
    n_moves, n_adds = (int(np.count_nonzero(kind == each)) for each in (Change.MOVE, Change.ADD))
    added = table if n_adds else None
    ids, interface = np.array(target, np.uint32), np.zeros(n_adds, np.uint32)
    return Changes.of(kind, ids, _PLACE.repeat(n_moves, axis=0), interface, added, 4, table.n_interfaces)
