"""Events that a CPU thread walks in turn get the answers of the naive matcher, however many nodes and lists they reach."""

from __future__ import annotations

import random
from itertools import combinations
from math import comb

import pytest

from mpi_match.engines import open_engine
from mpi_match.engines.keyed.cpu import Keyed, _Scratch
from mpi_match.engines.keyed.cpu_search import TASK_EVENTS
from mpi_match.engines.keyed.cpu_walk import ALL, GROUP_ATTRIBUTES, MOST_LISTS, NODES_WAITING, SHARE, WALKED_TOGETHER
from mpi_match.events.events import Events
from mpi_match.model import Filter, make_event, make_filter, match_naive
from mpi_match.table.table import Table

NAMES = [f"n{i:02}" for i in range(26)]
WIDTH = 12
"""Names of an event; a group of such events reaches more lists, and more nodes of a level, than there is room for."""


@pytest.fixture(scope="module")
def triples() -> list[Filter]:
    """A filter with a key of its own for every three names."""
    return [make_filter(str(i), [[name, "=", 1] for name in names]) for i, names in enumerate(combinations(NAMES, 3))]


def opened(filters: list[Filter], threads: int = 1) -> tuple[Keyed, Table]:
    table = Table.from_filters(filters)
    engine = open_engine("keyed", table, threads=threads)
    assert isinstance(engine, Keyed)
    return engine, table


def test_a_group_that_reaches_more_lists_than_fit_is_walked_in_parts(triples: list[Filter]) -> None:
    """And an event that does so alone pauses, in the middle of others."""
    engine, table = opened(triples)
    assert engine.index.depth == 3
    n_together = GROUP_ATTRIBUTES // WIDTH
    assert n_together * comb(WIDTH, 2) > NODES_WAITING
    assert n_together * comb(WIDTH, 3) > MOST_LISTS
    assert comb(len(NAMES), 3) > MOST_LISTS
    chance = random.Random(2)
    sizes = [3, 5, 0, 4] * 5 + [WIDTH] * n_together + [3] * 40 + [len(NAMES), 4]
    events = [make_event(dict.fromkeys(chance.sample(NAMES, n), 1)) for n in sizes]
    found = engine.match(Events.of(events).encode(table.vocabulary))
    assert found.labels(table.labels) == [match_naive(triples, event) for event in events]


def test_events_that_match_every_interface_are_walked_alone() -> None:
    chance = random.Random(3)
    filters = [
        make_filter(str(i % 3), [[name, ">=", 0] for name in names]) for i, names in enumerate(combinations(NAMES, 2))
    ]
    engine, table = opened(filters)
    walks = [
        [make_event(dict.fromkeys(chance.sample(NAMES, n), 1)) for _ in range(n_events)]
        for n, n_events in ((8, 2 * WALKED_TOGETHER), (1, 3 * WALKED_TOGETHER), (8, WALKED_TOGETHER))
    ]
    for events, is_alone in zip(walks, (True, False, True), strict=True):
        found = engine.match(Events.of(events).encode(table.vocabulary))
        assert found.labels(table.labels) == [match_naive(filters, event) for event in events]
        (scratch,) = engine._sharing.sets
        assert isinstance(scratch, _Scratch)
        assert (2 * scratch.walks.lists[0, SHARE] > ALL) == is_alone


def test_threads_write_to_cache_lines_of_their_own() -> None:
    """Rows of ten interfaces lay side by side."""
    table = Table.from_filters([make_filter(f"i{i}", [[f"n{i}", "=", 1]]) for i in range(10)])
    engine = Keyed(table, threads=2)
    events = Events.of([make_event({"n1": 1})] * (2 * TASK_EVENTS)).encode(table.vocabulary)
    assert engine.match(events).n_matches == len(events)
    (scratch,) = engine._sharing.sets
    assert isinstance(scratch, _Scratch)
    for rows, n_used in ((scratch.seen, 10), (scratch.by_name, 10), (scratch.verified, 1)):
        assert len(rows) == 2
        assert rows.strides[0] - n_used * rows.itemsize >= 64


@pytest.mark.parametrize("threads", [1, 2])
def test_an_event_that_matches_every_interface_is_done(threads: int) -> None:
    """After a first small batch, several threads scanned all lists to their ends."""
    filters = [
        make_filter(f"i{i % 10}", [[name, ">=", 0] for name in pair]) for i, pair in enumerate(combinations(NAMES, 2))
    ]
    table = Table.from_filters(filters)
    events = [make_event(dict.fromkeys(NAMES, 1))] * (threads * TASK_EVENTS)
    batch = Events.of(events).encode(table.vocabulary)

    def n_verified(engine: Keyed) -> int:
        before = engine.candidates
        assert engine.match(batch).n_matches == 10 * len(events)
        return engine.candidates - before

    engine = Keyed(table, threads=threads)
    at_once = n_verified(engine)
    assert at_once < 40 * len(events), "of 325 filters"
    small = Keyed(table, threads=threads)
    small.match(batch[:1])
    assert n_verified(small) == at_once
