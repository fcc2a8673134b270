"""`keyed` with long filters, whose checks are outside the lists: more than 1,023 checks, and here any number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from live_machine import run_machine
from random_tables import judged
from strategies import subscriptions_and_events

from mpi_match.engines import open_engine
from mpi_match.engines.keyed.index import postings
from mpi_match.events.events import Events
from mpi_match.model import Event, Filter, match_naive, matches
from mpi_match.table.table import Table


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_listed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "MOST_LISTED", 0)
        yield


both = pytest.mark.parametrize("name", ["keyed", pytest.param("keyed_cuda", marks=pytest.mark.gpu)])


@both
@given(inputs=subscriptions_and_events())
def test_long_filters_are_matched_as_the_model_says(name: str, inputs: tuple[list[Filter], list[Event]]) -> None:
    filters, events = inputs
    table = Table.from_filters(filters)
    engine, batch = open_engine(name, table), Events.of(events).encode(table.vocabulary)
    assert engine.match(batch).labels(table.labels) == [match_naive(filters, event) for event in events]
    kept = list(table.iter_filters())
    found = engine.match(batch, filters=True)
    assert [found[at].tolist() for at in range(len(found))] == [
        [i for i, item in enumerate(kept) if matches(item, e)] for e in events
    ]


@both
@pytest.mark.parametrize("shape", ["every type", "long filters", "areas", "negative", "one interface each"])
def test_random_tables(name: str, shape: str) -> None:
    case = judged(shape)
    engine = open_engine(name, case.table)
    assert engine.match(case.batch) == case.interfaces
    assert engine.match(case.batch, filters=True) == case.filters


@both
def test_long_filters_are_added_and_removed(name: str) -> None:
    run_machine(name, examples=40, steps=12)
