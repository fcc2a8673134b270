"""Opens an engine for a small table, matches with it and changes it, so that its code is compiled before the first real
event.

Code is compiled when it is first called, or loaded in milliseconds if it was compiled on this machine before.  Compiling
takes ten seconds for a CPU, and half a minute for a GPU, where several cores do it (`compile_parts`).  `prewarm` does this
before the first real event:

- One process of a host compiles the code for matching.  Ranks start together and would each compile the same code; instead
  one compiles it and the others load it (`compile_cache.compile_once`).
- A process that loads the code also uses the small table: an event without attributes, matched a thousand times against the
  real table, may match a thousand times as many filters as the real table has.
- Every process applies changes.  No batch is matched while an update waits for its code, so a process that opens an engine
  `live` first moves, adds and removes filters of a small table.

The compiled code depends on the engine and on the dtype of the attributes, not on the table's content.  Engines with code
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
"""Events of a batch that is large enough for an engine to divide among threads."""
N_SMALL = 3

_PLACE = np.array([[0.5, 0.5, 0.1]])
_NO_AREAS = np.full((N_SMALL, 3), np.nan)
_NO_IDS = np.zeros(0, np.int64), Strings.of(())
_prewarmed: set[str] = set()


def prewarm(
    name: str, engine: type[Engine], open_: Callable[[Table], Engine], table: Table, *, live: bool, loads: bool
) -> None:
    """Compile the code that engine `name` needs for a table like this one and, if `live`, for its changes.

    Parameters: `open_` opens the engine for a table; `loads` also loads code that another process has compiled (a GPU engine
    does so itself).
    """
    packed = table.vocabulary.packed_dtype
    what = f"{name}-{packed}" + ("-live" if live else "")
    if what in _prewarmed:
        return
    parts = engine.compiled_apart(str(packed))
    with compile_once(what, engine.n_functions) as missing:
        if missing or live or loads:
            small = _like(table)
            if engine.serves(small) is not None:  # it refuses the area
                small = replace(
                    small, filters=FilterColumns.of(small.filters.size, small.filters.interface, _NO_AREAS, *_NO_IDS)
                )
            if missing:
                compile_ahead(parts)
            _play(open_, small, parts, live=live)
    _prewarmed.add(what)


def load(engine: Engine, table: Table) -> None:
    """Match one event, which loads the code that the filters of this table need beyond that of the small table."""
    engine.match(_empty_events(table, 1))


def _play(open_: Callable[[Table], Engine], small: Table, parts: Sequence[Part], *, live: bool) -> None:
    """Match one event, then enough events for several blocks; apply all kinds of changes, each followed by an event."""
    engine, event = open_(small), _empty_events(small, 1)
    for part in parts:
        part.compile()
    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")  # nothing to compile, and slow
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
    """Events without attributes, located in the circle of the small table's filter."""
    nothing = np.empty(0, table.vocabulary.packed_dtype)
    return EventBatch(np.zeros(n + 1, np.uint32), nothing, _PLACE[:, :2].repeat(n, axis=0), table.vocabulary.fingerprint)


def _like(table: Table) -> Table:
    """A small table with the same vocabulary: three filters on one interface.

    The second filter has an area.  The first two have the table's first constraint, the third has its last.
    """
    rows = np.array([0, 0, len(table.constraints) - 1] if len(table.constraints) else [], np.int64)
    area = _NO_AREAS.copy()
    area[1] = _PLACE
    columns = FilterColumns.of(np.full(N_SMALL, len(rows) // N_SMALL), np.zeros(N_SMALL, np.int64), area, *_NO_IDS)
    constraints = table.constraints.take(rows, np.arange(len(rows)))
    labels = table.labels if len(table.labels) else Strings.of([b""])
    return replace(table, constraints=constraints, filters=columns, labels=labels)


def _changes(table: Table, kinds: Sequence[Change], target: Sequence[int]) -> Changes:
    """Changes to a small table; the added filters are copies of its own."""
    kind = np.array(kinds, np.uint8)
    n_moves, n_adds = (int(np.count_nonzero(kind == each)) for each in (Change.MOVE, Change.ADD))
    added = table if n_adds else None
    ids, interface = np.array(target, np.uint32), np.zeros(n_adds, np.uint32)
    return Changes.of(kind, ids, _PLACE.repeat(n_moves, axis=0), interface, added, 2 * N_SMALL, table.n_interfaces)
