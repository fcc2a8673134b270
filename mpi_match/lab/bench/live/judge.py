"""Judges answers of a live engine by the naive matcher on the present filters.

With millions of filters that would take minutes for each event, so only filters without an area, with an area near an event,
and a random sample are judged.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import Engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.model import Event, match_naive

JUDGED_EVENTS, _FILTERS_AT_ONCE = 8, 4096
_NEAR, _DRAWN = 1.01, 2000
"""Distance along an axis, in radii, up to which an event may be in an area; size of the random sample."""


def may_match(live: LiveTable, events: list[Event], rng: np.random.Generator) -> Array:
    """Filters that may match some events, and a random sample of the others; ascending."""
    areas = live.areas()
    found = np.zeros(len(areas), np.bool_)
    found[rng.integers(0, len(areas), _DRAWN)] = True
    for event in events:
        apart = np.abs(areas[:, :2] - (event.location or (np.nan, np.nan))).max(axis=1)
        found |= ~(apart > _NEAR * areas[:, 2])  # also where there is no area, or no place
    return np.flatnonzero(found)


def judge(live: LiveTable, engine: Engine, events: Events, batch: EventBatch, rng: np.random.Generator) -> int:
    """Compare answers with the naive matcher's; returns their number.  Raises WrongAnswer."""
    few = np.argsort(engine.match(batch).counts == 0, kind="stable")[:JUDGED_EVENTS].tolist()
    answers = engine.match(EventBatch.concat([batch[i : i + 1] for i in few]))
    asked: list[tuple[Event, set[str]]] = [(event, set()) for i in few if (event := events.event(i)) is not None]
    assert len(asked) == len(few), "no event is rejected"
    there = (live.filter(i) for i in may_match(live, [event for event, _ in asked], rng).tolist())
    filters = (item for item in there if item is not None)
    while chunk := list(islice(filters, _FILTERS_AT_ONCE)):
        for event, expected in asked:
            expected.update(match_naive(chunk, event))
    for at, (event, expected) in enumerate(asked):
        found = {live.registry.labels[i] for i in answers[at].tolist()}
        if found != expected:
            raise WrongAnswer(f"{engine.name}: {event}: found {sorted(found)[:20]}, expected {sorted(expected)[:20]}")
    return sum(len(expected) for _, expected in asked)
