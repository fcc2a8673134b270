"""An engine opened, matched and changed on a small table, so that its code is compiled before the first real event.

Code for the CPU is compiled when it is first called, half a minute in all, or loaded in milliseconds if it was compiled on
this machine before.  `prewarm` does that before the first real event:

- Matching is compiled by one process of a host.  Ranks begin together and would each compile the same; here one compiles and
  the others load (`compile_cache.compile_once`).
- A process that loads the code does so on the small table, too: an event without attributes, matched a thousand times with
  the real table, may have a thousand times as many answers as that has filters.
- Changes are applied in every process: no batch is matched while an update waits for its code, so a process that opens an
  engine `live` moves, adds and removes the filters of a small table first.

The compiled code depends on the engine and on the type of the attributes, not on the table's content.  Engines with code
compiled for the CPU set `compiles`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.strings import Strings
from mpi_match.changes.changes import Changes
from mpi_match.compute.compile_cache import compile_once
from mpi_match.compute.compile_parts import Part, compile_ahead
from mpi_match.events.batch import EventBatch
from mpi_match.model import Change
from mpi_match.table.filters import FilterColumns
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.engines.base import Engine

SEVERAL_BLOCKS = 1024
"""So many events that an engine divides a batch among threads."""
N_SMALL = 3

_PLACE = np.array([[0.5, 0.5, 0.1]])
_NO_AREAS = np.full((N_SMALL, 3), np.nan)
_prewarmed: set[str] = set()


def prewarm(
    name: str, engine: type[Engine], open_: Callable[[Table], Engine], table: Table, *, live: bool, loads: bool
) -> None:
    """Compile what the engine `name`, which `open_` opens, needs for a table like this one and, if `live`, its changes.

    `loads`: load what another process has compiled; an engine on a GPU does so itself.
    """
    packed = table.vocabulary.packed_dtype
    what = f"{name}-{packed}" + ("-live" if live else "")
    if what in _prewarmed:
        return
    parts = engine.compiled_apart(str(packed))
    with compile_once(what, engine.n_functions) as missing:
        if missing or live or loads:
            small = _like(table)
            if engine.serves(small) is not None:  # for its area
                small = replace(
                    small, filters=FilterColumns.of(small.filters.size, small.filters.interface, _NO_AREAS, None)
                )
            if missing:
                compile_ahead(parts)
            _play(open_, small, parts, live=live)
    _prewarmed.add(what)


def load(engine: Engine, table: Table) -> None:
    """Load what is left of the code for matching, that for the kinds of filters of this table, by one event."""
    engine.match(_empty_events(table, 1))


def _play(open_: Callable[[Table], Engine], small: Table, parts: Sequence[Part], *, live: bool) -> None:
    """Match a block of events and several; apply all kinds of changes, each followed by an event."""
    engine, event = open_(small), _empty_events(small, 1)
    for part in parts:
        part.compile()
    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")  # it has nothing to compile, and takes minutes
    for n in (1, 2 if simulated else SEVERAL_BLOCKS):
        engine.match(_empty_events(small, n))
    if not live:
        return
    moves = [Change.MOVE] if small.has_areas else []
    for changes in (
        _changes(small, moves, [1] * len(moves)),
        _changes(small, [Change.ADD, Change.ADD, Change.ADD, *moves], [3, 4, 5, *([4] * len(moves))]),
        _changes(small, [Change.REMOVE, Change.REMOVE], [0, 1]),
        _changes(small, [Change.REMOVE_INTERFACE], [0]),
    ):
        engine.update(changes)
        engine.match(event)


def _empty_events(table: Table, n: int) -> EventBatch:
    """Events without attributes, in the circle of the small table's filter."""
    nothing = np.empty(0, table.vocabulary.packed_dtype)
    return EventBatch(np.zeros(n + 1, np.uint32), nothing, _PLACE[:, :2].repeat(n, axis=0), table.vocabulary.fingerprint)


def _like(table: Table) -> Table:
    """Three filters on one interface with the table's vocabulary.  The second has an area; the first two have the table's
    first constraint, the third has its last.
    """
    rows = np.array([0, 0, len(table.constraints) - 1] if len(table.constraints) else [], np.int64)
    area = _NO_AREAS.copy()
    area[1] = _PLACE
    columns = FilterColumns.of(np.full(N_SMALL, len(rows) // N_SMALL), np.zeros(N_SMALL, np.int64), area, None)
    constraints = table.constraints.take(rows, np.arange(len(rows)))
    labels = table.labels if len(table.labels) else Strings.of([b""])
    return replace(table, constraints=constraints, filters=columns, labels=labels)


def _changes(table: Table, kinds: Sequence[Change], target: Sequence[int]) -> Changes:
    """Changes to a small table whose added filters are like its own."""
    kind = np.array(kinds, np.uint8)
    n_moves, n_adds = (int(np.count_nonzero(kind == each)) for each in (Change.MOVE, Change.ADD))
    added = table if n_adds else None
    ids, interface = np.array(target, np.uint32), np.zeros(n_adds, np.uint32)
    return Changes.of(kind, ids, _PLACE.repeat(n_moves, axis=0), interface, added, 2 * N_SMALL, table.n_interfaces)
