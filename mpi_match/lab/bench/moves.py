"""Measures moves of areas, one filter after the other and all in one call, and checks the answers afterwards.

    one by one   update(filter 1) update(filter 2) ... match(event)
    at once      update(all filters)                   match(event)

One by one there are five rounds; each ends with an event, which waits for what is still under way.  Making the changes is
not the engine's work and is not timed.  An interface moves with all its filters (`Scenario.moves`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mpi_match.changes.changes import Changes
from mpi_match.engines import Engine
from mpi_match.events.batch import EventBatch
from mpi_match.lab.workloads.sampling import Moves
from mpi_match.model import Change, Json
from mpi_match.table.table import Table

ROUNDS = 5


def changes_of(moves: Moves, table: Table) -> Changes:
    """Moves of filters as changes."""
    n = len(moves.filter_id)
    kind, nothing = np.full(n, Change.MOVE, np.uint8), np.full(n, -1, np.int32)
    interface = np.zeros(n, np.uint32)
    return Changes(kind, moves.filter_id, moves.area, nothing, interface, None, table.n_filters, table.n_interfaces)


def moved(table: Table, moves: Moves) -> Table:
    """The table after moves of its filters, which all have areas."""
    area = table.filters.area.copy()
    area[moves.filter_id] = moves.area  # where one moves twice, the last stays
    return replace(table, filters=replace(table.filters, area=area))


def measure_moves(engine: Engine, one_by_one: Changes, at_once: Changes, event: EventBatch) -> Json:
    """The fields of a result about moves: `moves`, `one_move_us` (the median round), `one_move_us_spread`, `batch_move_us`.

    The second changes are applied in one call after the first.  Raises EngineError for an engine that takes none.
    """
    single = [one_by_one[i : i + 1] for i in range(len(one_by_one))]
    bounds = np.linspace(0, len(single), ROUNDS + 1).astype(int).tolist()
    each_us = [
        _seconds(engine, single[first:end], event) / (end - first) * 1e6 for first, end in pairwise(bounds) if end > first
    ]
    return {
        "moves": len(one_by_one),
        "one_move_us": statistics.median(each_us),
        "one_move_us_spread": {"min": min(each_us), "max": max(each_us)},
        "batch_move_us": _seconds(engine, [at_once], event) / len(at_once) * 1e6,
    }


def _seconds(engine: Engine, updates: Sequence[Changes], event: EventBatch) -> float:
    """Seconds until changes have been applied and an event has seen them."""
    started = time.perf_counter()
    for changes in updates:
        engine.update(changes)
    engine.match(event)
    return time.perf_counter() - started
