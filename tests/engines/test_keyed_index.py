"""The keyed index is the same for any number of threads, and what it is put in order with is a stable sort."""

from __future__ import annotations

import random

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tables import Shape, random_subscriptions

from mpi_match.arrays.csr import offsets_of
from mpi_match.compute import parallel
from mpi_match.compute.parallel import find_bounds, running_sum, stable_order
from mpi_match.engines import open_engine
from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.engines.keyed.index import features
from mpi_match.engines.keyed.index.build import build_index
from mpi_match.engines.keyed.index.features import choose_depth, feature_weights
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.engines.keyed.index.layout import EMPTY, N_SLOTS, SLOTS, KeyedIndex, hash_of
from mpi_match.engines.keyed.index.value_classes import value_classes
from mpi_match.events.events import Events
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import make_event, make_filter, match_naive
from mpi_match.table.table import Table

COSTS = features.COST_OF_EVENT, features.COST_OF_ATTRIBUTE
TABLES = {
    "random": lambda: Table.from_filters(random_subscriptions(6, Shape(n_filters=700))[0]),
    "strings": lambda: Table.from_subscriptions(SCENARIOS["ccm-strings"].scaled(4000).subscriptions(2)),
    "one interface each": lambda: Table.from_subscriptions(SCENARIOS["many-interfaces"].scaled(3000).subscriptions(2)),
    "areas": lambda: Table.from_subscriptions(SCENARIOS["clcb"].scaled(500).subscriptions(2)),
}


def built(table: Table) -> KeyedIndex:
    rows = FilterRows.of(table)
    return build_index(table, rows, feature_weights(rows), value_classes(rows))


@pytest.fixture
def seven_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "LEAST_ROWS", 1)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 7)


@pytest.mark.parametrize("name", TABLES)
def test_the_index_does_not_depend_on_the_number_of_threads(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    table = TABLES[name]()
    monkeypatch.setattr(parallel, "LEAST_ROWS", 2**32)
    alone = built(table)
    request.getfixturevalue("seven_stretches")
    together = built(table)
    assert parallel.stretches_of(1000) == 7
    assert np.array_equal(alone.table, together.table)
    assert np.array_equal(alone.words, together.words)


def test_every_key_is_found_from_its_own_slot() -> None:
    """Also those behind the last slot, which go on at the first one."""
    n_wrapped = 0
    for seed in range(60):
        index = built(Table.from_subscriptions(SCENARIOS["ccm"].scaled(60 + seed).subscriptions(seed)))
        n_slots, first = int(index.table[N_SLOTS]), int(index.table[SLOTS])
        keys = index.table[first : first + 2 * n_slots : 2]
        homes = hash_of(keys) % np.uint64(n_slots)
        taken = np.flatnonzero(keys != EMPTY)
        for slot, home in zip(taken.tolist(), homes[taken].tolist(), strict=True):
            n_wrapped += slot < home
            between = np.arange(home, slot + n_slots * (slot < home)) % n_slots
            assert np.all(keys[between] != EMPTY)
    assert n_wrapped


@pytest.mark.usefixtures("seven_stretches")
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_an_order_is_stable(dtype: type) -> None:
    rng = np.random.default_rng(3)
    for n in (0, 1, 2, 6, 7, 8, 1000):
        for largest in (0, 1, 5, 1023, 1024, 2**22 - 1, int(np.iinfo(dtype).max)):
            keys = rng.integers(0, largest, n, dtype, endpoint=True)
            keys[rng.random(n) < 0.3] = largest
            before = keys.copy()
            assert np.array_equal(stable_order(keys, largest), np.argsort(keys, kind="stable"))
            assert np.array_equal(keys, before)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 100))
def test_sums_and_bounds(sizes: list[int], start: int) -> None:
    offsets = running_sum(np.array(sizes, np.uint32), start)
    assert np.array_equal(offsets, offsets_of(np.array(sizes, np.int64)) + start)
    bounds = np.empty(len(sizes) + 1, np.uint32)
    find_bounds(np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes), bounds)
    assert np.array_equal(bounds, offsets - start)


def test_events_with_many_features_find_nodes_of_few_children() -> None:
    """Children are looked for among the features of an event, and not the features among the children."""
    chance = random.Random(4)
    names = [f"n{i:03}" for i in range(400)]
    filters = [
        make_filter(str(i), [[each, "exists"] for each in chance.sample(names, 3)] + [["x", "=", i % 3]])
        for i in range(3000)
    ]
    table = Table.from_filters(filters)
    engine = open_engine("keyed", table, threads=1)
    assert isinstance(engine, Keyed)
    assert engine.index.depth > 1
    events = [
        make_event({"x": i % 3} | dict.fromkeys(chance.sample(names, n), 1)) for i, n in enumerate((390, 300, 150, 9, 0))
    ]
    found = engine.match(Events.of(events).encode(table.vocabulary))
    assert found.labels(table.labels) == [match_naive(filters, event) for event in events]
    assert found.n_matches > 300


@pytest.mark.parametrize(("n_filters", "weight", "depth"), [(2000, 1e-4, 1), (20_000, 0.002, 2), (20_000, 0.01, 3)])
def test_a_key_is_no_longer_than_pays(n_filters: int, weight: float, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event of five attributes meets 1, 200 or 1,000 filters under keys of one feature; one of hundreds of attributes,
    as those that meet parts of conditions, looks for the children of each node among all of them."""
    monkeypatch.setattr(features, "COST_OF_EVENT", COSTS[0])
    monkeypatch.setattr(features, "COST_OF_ATTRIBUTE", COSTS[1])
    chosen = np.tile(np.arange(3, dtype=np.int32), (n_filters, 1))
    assert choose_depth(chosen, np.full(3, weight), 5.0) == depth
