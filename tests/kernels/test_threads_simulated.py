"""Engines on a GPU that several threads use, under the simulator; `tests/engines/test_threads.py` has more on a real GPU."""

from __future__ import annotations

import pytest
from crowds import Pair, crowd_changes, crowd_matches
from engine_names import GPU
from random_tables import Shape, random_subscriptions

from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.table.table import Table


@pytest.mark.parametrize("name", GPU)
def test_every_thread_gets_the_answers_of_one(name: str) -> None:
    filters, events = random_subscriptions(3, Shape(n_filters=30, n_events=12, n_names=5))
    table = Table.from_filters(filters)
    engine = open_engine(name, table)
    crowd_matches(engine, Events.of(events).encode(table.vocabulary), (1, 6, 5), rounds=1)


@pytest.mark.parametrize("name", ["keyed_cuda", "clcb"])
def test_a_match_sees_all_of_an_update_or_nothing(name: str) -> None:
    pair = Pair(8)
    crowd_changes(pair, open_engine(name, pair.table, live=True), 2, (1, 5))
