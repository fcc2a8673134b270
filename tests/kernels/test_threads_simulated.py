"""Engines on a GPU that several threads use, under the simulator; `tests/engines/test_threads.py` has more on a real GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from crowds import Pair, crowd_changes, crowd_matches
from engine_names import GPU
from random_tables import Shape, random_subscriptions

from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.gpu import compiled_calls
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


def test_threads_that_ask_for_the_driver_at_once_get_the_same_calls() -> None:
    """Else some have addresses of functions that are gone."""
    first, ready = compiled_calls.driver_calls().tolist(), Barrier(4, action=forget)

    def ask() -> list[int]:
        ready.wait()
        found: list[int] = compiled_calls.driver_calls().tolist()
        return found

    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            assert [each.result() for each in [threads.submit(ask) for _ in range(4)]] == [first] * 4


def forget() -> None:
    """Empty the caches of the module, as before the first call."""
    for each in vars(compiled_calls).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()
