"""Adds filters to a live table until its engine has to grow, and measures the pauses of matching.

Filters like those of the table, at random places, are added in updates of `at_once` until the table has grown by a share; an
event is matched after every update.  Answers are judged half-way and at the end (`judge`).  A record:

    update_ms, event_ms   an update, and the next event: median, tail, maximum
    table_ms              time of `LiveTable.apply`, in Python, outside the engine
    same_ms               a constant piece of work (`pauses`)
    worst                 the five longest of each: the number of filters added so far, and how the time was spent (`pauses`)
    filter_us             time of an added filter, averaged over all updates
"""

from __future__ import annotations

import gc

import numpy as np

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine
from mpi_match.environment.machine import origin
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.lab.bench.live.crowd import identified
from mpi_match.lab.bench.live.judge import judge
from mpi_match.lab.bench.live.pauses import Pauses
from mpi_match.lab.workloads.sampling import Sampler, radius_of
from mpi_match.lab.workloads.scenarios import Scenario
from mpi_match.model import Area, Change, Json
from mpi_match.table.table import Table

_CONTENTS = 2000
"""Number of filters of the table whose contents the added filters repeat."""
_EVENTS = 1000
_PARTS = ("table", "update", "event")
"""The timed parts of each round."""
_LEAST = 20_000
"""Number of filters of the table that is grown first."""


def grow(scenario: Scenario, engine: str, more: float, at_once: int) -> Json:
    """Grow the table of a scenario with areas by a share, `at_once` filters in each update; returns the record.

    A small table grows first, so that everything is compiled.  Raises EngineError, WrongAnswer.
    """
    _growing(scenario.scaled(min(_LEAST, scenario.n_filters)), engine, more, at_once)
    return {"what": "growth", "scenario": scenario.name, **_growing(scenario, engine, more, at_once), **origin()}


def _growing(scenario: Scenario, engine_name: str, more: float, at_once: int) -> Json:
    """The pauses, and the number of judged answers."""
    table = identified(Table.from_subscriptions(scenario.subscriptions(0)))
    live = LiveTable(table)
    engine = open_engine(engine_name, live.table, live=True)
    events = scenario.event_range(0, _EVENTS)
    batch = events.encode(table.vocabulary)
    rng = np.random.default_rng(7)
    contents = [table.filter(i) for i in range(min(_CONTENTS, table.n_filters))]
    places, radius = Sampler(scenario.place_exponent), radius_of(scenario.area)
    n_calls = max(round(more * table.n_filters / at_once), 2)
    judged = 0
    engine.match(batch[:1])
    gc.collect()  # as a worker does, so that the collector does not scan millions of ids
    gc.freeze()
    with Pauses(*_PARTS) as pauses:
        for call in range(n_calls):
            rows = []
            for i, (x, y) in enumerate(places.draw(rng, at_once).tolist(), call * at_once):
                item = contents[i % len(contents)]._replace(area=Area(x, y, radius), id=f"came-{i}")
                rows.append(ChangeRow(Change.ADD, filters=(item,)))
            event = batch[call % _EVENTS : call % _EVENTS + 1]
            pauses.start()
            changes = live.apply(rows, [])
            pauses.stop()
            assert changes is not None, "the contents are the table's, so its vocabulary has what they ask for"
            engine.update(changes)
            pauses.stop()
            engine.match(event)
            pauses.stop()
            pauses.keep(call * at_once)
            if call in (n_calls // 2, n_calls - 1):
                judged += judge(live, engine, events, batch, rng)
    return {
        "engine": engine.name,
        "device": engine.device,
        "n_filters": table.n_filters,
        "came": n_calls * at_once,
        "at_once": at_once,
        **{f"{part}_ms": pauses.spread(part) for part in pauses.parts},
        "worst": {part: pauses.longest(part) for part in pauses.parts},
        "filter_us": round(pauses.total_ms("update") / (n_calls * at_once) * 1e3, 2),
        "answers_judged": judged,
    }
