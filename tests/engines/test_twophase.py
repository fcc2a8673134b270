"""`twophase`: every technique with every synchronisation; its predicates, clusters and groups; threads that fail."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from lasting import lasting
from random_tables import judged, shaped
from strategies import subscriptions_and_events

from mpi_match.engines import open_engine
from mpi_match.engines.twophase import engine as twophase
from mpi_match.engines.twophase import threads
from mpi_match.engines.twophase.clusters import CLUSTER_COLUMNS, CLUSTER_ROWS, FILTERS_AT, Clusters
from mpi_match.engines.twophase.engine import GroupSize, TwoPhase
from mpi_match.engines.twophase.options import SYNCHRONIZATIONS, TECHNIQUES, TwoPhaseVariant
from mpi_match.engines.twophase.phases import CHUNK_ROWS
from mpi_match.engines.twophase.predicates import Predicates
from mpi_match.events.events import Events
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Event, Filter, make_event, make_filter, match_naive, matches
from mpi_match.table.table import Table

SMALL: dict[str, Any] = {"attribute_block": 1, "access_block": 1}
"""Blocks so small that all threads have some."""


def opened(table: Table, n_threads: int, **options: object) -> TwoPhase:
    engine = open_engine("twophase", table, threads=n_threads, options=options)
    assert isinstance(engine, TwoPhase)
    return engine


def assert_agrees(filters: Sequence[Filter], events: Sequence[Event | None], n_threads: int, **options: object) -> None:
    table = Table.from_filters(filters)
    engine, batch = opened(table, n_threads, **options), Events.of(events).encode(table.vocabulary)
    assert engine.match(batch).labels(table.labels) == [match_naive(filters, event) for event in events]
    kept = list(table.iter_filters())
    expected = [[i for i, item in enumerate(kept) if event is not None and matches(item, event)] for event in events]
    found = engine.match(batch, filters=True)
    assert [found[i].tolist() for i in range(len(found))] == expected


every_way = pytest.mark.parametrize(("technique", "synchronization"), list(product(TECHNIQUES, SYNCHRONIZATIONS)))


@every_way
@pytest.mark.parametrize("n_threads", [5, *lasting(1, 2)])
@settings(max_examples=examples(15))
@given(inputs=subscriptions_and_events())
def test_every_way_is_exact(
    technique: str, synchronization: str, n_threads: int, inputs: tuple[list[Filter], list[Event | None]]
) -> None:
    assert_agrees(*inputs, n_threads, technique=technique, synchronization=synchronization, **SMALL)


@every_way
@pytest.mark.parametrize("n_threads", [2, *lasting(16)])
@pytest.mark.parametrize("shape", ["every type", "areas", "one interface", "negative"])
def test_random_tables(technique: str, synchronization: str, n_threads: int, shape: str) -> None:
    case = judged(shape)
    engine = opened(case.table, n_threads, technique=technique, synchronization=synchronization, access_block=2)
    assert engine.match(case.batch) == case.interfaces
    assert engine.match(case.batch, filters=True) == case.filters
    assert engine.match(case.batch) == case.interfaces


@pytest.mark.parametrize("synchronization", SYNCHRONIZATIONS)
@pytest.mark.parametrize("technique", ["se-cp", "me-cp"])
@settings(max_examples=examples(15))
@given(inputs=subscriptions_and_events())
def test_merged_vectors_are_exact(
    technique: str, synchronization: str, inputs: tuple[list[Filter], list[Event | None]]
) -> None:
    """Also bits that are set at first and cleared by one thread: those of names that must be absent."""
    way = {"technique": technique, "synchronization": synchronization, **SMALL}
    assert_agrees(*inputs, 5, merge="local", group=3, **way)


@pytest.mark.parametrize("synchronization", SYNCHRONIZATIONS)
@pytest.mark.parametrize("shape", ["every type", "areas", "negative"])
def test_merged_vectors_of_random_tables(synchronization: str, shape: str) -> None:
    case = judged(shape)
    engine = opened(case.table, 4, technique="se-cp", merge="local", synchronization=synchronization, **SMALL)
    assert engine.match(case.batch) == case.interfaces
    assert engine.match(case.batch, filters=True) == case.filters


@pytest.mark.parametrize("block", [1, 2, 7, 1000])
@pytest.mark.parametrize("option", ["event_block", "attribute_block", "access_block"])
@pytest.mark.parametrize("synchronization", SYNCHRONIZATIONS)
def test_blocks_of_any_size(synchronization: str, option: str, block: int) -> None:
    case = judged("every type")
    engine = opened(case.table, 4, technique="me-cp", synchronization=synchronization, **{option: block})
    assert engine.match(case.batch) == case.interfaces


@pytest.mark.parametrize("access", ["cost", "any"])
@given(inputs=subscriptions_and_events())
def test_any_choice_of_access_predicates_is_exact(access: str, inputs: tuple[list[Filter], list[Event | None]]) -> None:
    assert_agrees(*inputs, 1, access=access)


def test_more_answers_than_any_room() -> None:
    """A thread's answers grow, and a group's have no room for all of them."""
    filters = [make_filter(f"{i:04}", [["x", ">", i % 7]]) for i in range(4 * threads.FIRST_ROOM)]
    table = Table.from_filters(filters)
    batch = Events.of([make_event({"x": 0}), *(make_event({"x": i}) for i in range(9))]).encode(table.vocabulary)
    expected = open_engine("counting", table).match(batch)
    for technique, synchronization in product(TECHNIQUES, SYNCHRONIZATIONS):
        engine = opened(table, 3, technique=technique, synchronization=synchronization, access_block=1)
        assert engine.match(batch) == expected
        assert engine.match(batch[:1]) == expected[:1], "an event without answers makes the room small"
        assert engine.match(batch) == expected


@pytest.mark.parametrize("extra", [-1, 0, 1, 700])
def test_clusters_of_more_rows_than_are_looked_at_together(extra: int) -> None:
    n = 2 * CHUNK_ROWS + extra
    filters = [make_filter(f"{i:05}", [["x", "=", 1], ["y", ">", i % 5], ["z", "<", i % 3]]) for i in range(n)]
    filters += [make_filter(f"also {i:05}", [["w", "=", 1]]) for i in range(n)]
    table = Table.from_filters(filters)
    events = [make_event({"x": x, "y": y, "z": 0}) for x in (0, 1) for y in range(6)] + [make_event({"w": 1})]
    batch = Events.of(events).encode(table.vocabulary)
    assert opened(table, 1).match(batch) == open_engine("counting", table).match(batch)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_intervals_in_several_words_of_bits(n: int) -> None:
    between = [make_filter(f"{i:03}", [["x", "between", [i % 7 - i, i]]]) for i in range(n)]
    others = [make_filter("b", [["x", "<", 5]]), make_filter("c", [["w", "=", 1], ["x", "!=", 3]])]
    assert_agrees(between + others, [make_event({"x": x, "w": 1}) for x in (*range(-n, n + 2, 9), 0, 3, 5)], 1)


# Predicates and clusters


def test_a_predicate_is_a_distinct_constraint() -> None:
    table = Table.from_filters(
        [
            make_filter("a", [["x", ">", 1], ["y", "=", "b"]]),
            make_filter("b", [["x", ">", 1], ["x", ">=", 1], ["x", "=", 1]]),
            make_filter("c", [["y", "=", "b"], ["z", ">", 1], ["z", "absent"]]),
        ]
    )
    predicates = Predicates.of(table)
    assert predicates.n - 1 == 6
    rows = zip(*(table.constraints.offsets.searchsorted(range(8), "right"), table.constraints.kind), strict=True)
    kinds = [(int(name), int(kind)) for name, kind in rows]
    by_predicate = {(kinds[row], int(table.constraints.lo[row])): int(predicates.of_row[row]) for row in range(8)}
    assert sorted(by_predicate.values()) == list(range(6))
    at_first = np.unpackbits(predicates.at_first.view(np.uint8), bitorder="little")
    assert np.flatnonzero(at_first).tolist() == [4, predicates.always], "z absent stands before z > 1"


def test_by_cost_a_filter_stands_under_its_rarest_predicate_and_columns_ascend() -> None:
    values = [["x", "=", i] for i in range(10)]
    filters = [make_filter("i", [value, ["x", ">", 3], ["x", "exists"]]) for value in values]
    table = Table.from_filters([*filters, make_filter("j", [["y", "absent"], ["x", ">", 3]]), make_filter("k")])
    predicates = Predicates.of(table)
    clusters = Clusters.of(table, predicates, by_cost=True)
    exists, greater, absent, always = 0, 11, 12, predicates.always
    equalities = set(range(1, 11))
    found = {}
    for a, access in enumerate(clusters.access.tolist()):
        for c in range(clusters.cluster_offsets[a], clusters.cluster_offsets[a + 1]):
            width, rows, at, first = clusters.cluster[c].tolist()
            columns = clusters.columns[at : at + width * rows].reshape(width, rows).T.tolist()
            found.update(
                {(access, f): row for f, row in zip(clusters.filters[first:][:rows].tolist(), columns, strict=True)}
            )
    assert {access for access, _ in found} == {*equalities, greater, always}
    for (access, _), others in found.items():
        if access in equalities:
            assert others == [greater, exists]
        else:
            assert others == ([] if access == always else [absent])
    assert len(found) == table.n_filters


def test_any_predicate_is_an_access_predicate_in_the_published_way() -> None:
    table = Table.from_subscriptions(SCENARIOS["debs2009"].scaled(20_000).subscriptions())
    by_cost, by_any = (opened(table, 1, access=access) for access in ("cost", "any"))
    assert by_cost.n_predicates == by_any.n_predicates == 1500
    assert by_any.n_access_predicates == 1500
    assert by_cost.n_access_predicates < 1400


@pytest.mark.parametrize("by_cost", [True, False])
def test_every_filter_is_in_one_cluster_with_all_its_predicates(by_cost: bool) -> None:
    filters, _ = shaped("long filters")
    table = Table.from_filters(filters)
    predicates = Predicates.of(table)
    clusters = Clusters.of(table, predicates, by_cost=by_cost)
    offsets, rows = table.by_filter
    seen = []
    for a in range(len(clusters.access)):
        for c in range(clusters.cluster_offsets[a], clusters.cluster_offsets[a + 1]):
            width, n, at, first = clusters.cluster[c].tolist()
            columns = clusters.columns[at : at + width * n].reshape(width, n)
            for i, f in enumerate(clusters.filters[first : first + n].tolist()):
                own = predicates.of_row[rows[offsets[f] : offsets[f + 1]]]
                assert sorted(own.tolist()) == sorted([int(clusters.access[a]), *columns[:, i].tolist()])
                seen.append(f)
    assert sorted(seen) == list(range(table.n_filters))
    assert clusters.cluster[:, CLUSTER_ROWS].sum() == table.n_filters
    assert (np.diff(clusters.cluster[:, FILTERS_AT]) > 0).all()
    assert clusters.cluster[:, CLUSTER_COLUMNS].max() == table.filters.size.max() - 1


# Groups, steps, threads


def test_groups_are_as_small_as_the_target_allows() -> None:
    target = TwoPhaseVariant("me-cp", target_us=100.0)
    group = GroupSize(target, 6)
    sizes = [group.size]
    for event_us in (150, 120, 101, 300, 99, 51, 50, 40, 60, 10, 10):
        group.took(event_us / 1e6)
        sizes.append(group.size)
    assert sizes == [1, 2, 4, 6, 6, 6, 6, 3, 1, 1, 1, 1]
    for technique, size in (("me-ip", 1), ("se-cp", 6), ("me-cp", 4)):
        group = GroupSize(TwoPhaseVariant(technique, group=4), 6)
        group.took(100.0)
        assert group.size == size
    assert GroupSize(TwoPhaseVariant("me-cp", group=200), 6).size == 6


def test_a_target_changes_the_groups_of_later_batches() -> None:
    table, batch, expected, _ = judged("every type")
    for target, size in ((0.001, 4), (1e9, 1)):
        engine = opened(table, 4, technique="me-cp", target_us=target)
        for _ in range(3):
            assert engine.match(batch) == expected
        assert engine._group.size == size


@pytest.mark.parametrize(("technique", "merge"), [*((name, "atomic") for name in TECHNIQUES), ("se-cp", "local")])
def test_steps_are_timed_on_request(technique: str, merge: str) -> None:
    filters, events = shaped("every type")
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    engine = opened(table, 2, technique=technique, merge=merge)
    engine.match(batch)
    assert engine.steps_s == {}
    engine.time_steps()
    engine.match(batch)
    once = dict(engine.steps_s)
    assert list(once) == ["phase 1", "merging", "waiting", "phase 2"]
    none = ["merging"] if merge == "atomic" else []
    assert all(0 < seconds < 60 for step, seconds in once.items() if step not in none)
    assert all(once[step] == 0 for step in none)
    engine.match(batch)
    assert all(engine.steps_s[step] > once[step] for step in once if step not in none)


@pytest.mark.parametrize("failing", [0, 1, 3])
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_thread_that_fails_does_not_leave_the_others_waiting(
    technique: str, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters, events = shaped("every type")
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    engine = opened(table, 4, technique=technique)
    share = threads.match_share

    def fails(thread: int, *given: Any) -> Any:
        if thread == failing:
            raise MemoryError("no room")
        return share(thread, *given)

    monkeypatch.setattr(threads, "match_share", fails)
    caught: list[BaseException] = []

    def matching() -> None:
        try:
            engine.match(batch)
        except MemoryError as error:
            caught.append(error)

    hanging = threading.Thread(target=matching, daemon=True)
    hanging.start()
    hanging.join(30)
    assert not hanging.is_alive()
    assert [str(error) for error in caught] == ["no room"]
    monkeypatch.undo()
    assert engine.match(batch) == open_engine("counting", table).match(batch), "the engine goes on"


def test_threads_that_cannot_be_started_are_an_error_and_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    filters, events = shaped("every type")
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    engine = opened(table, 4, technique="se-cp")
    submit, asked = ThreadPoolExecutor.submit, []

    def refuse(self: ThreadPoolExecutor, *given: Any) -> Any:
        asked.append(given)
        if len(asked) == 3:
            raise RuntimeError("can't start new thread")
        return submit(self, *given)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        engine.match(batch)
    monkeypatch.undo()
    assert engine.match(batch) == open_engine("counting", table).match(batch)


def test_one_event_that_one_thread_can_match_wakes_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    filters, events = shaped("every type")
    table = Table.from_filters(filters)
    engine = opened(table, 4)
    batch = Events.of(events).encode(table.vocabulary)
    submit, woken = ThreadPoolExecutor.submit, []

    def counted(self: ThreadPoolExecutor, *given: Any) -> Any:
        woken.append(given)
        return submit(self, *given)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    for n_events, n_woken in ((1, 0), (2, 1), (3, 2), (20, 3)):
        woken.clear()
        engine.match(batch[:n_events])
        assert len(woken) == n_woken


def test_threads_end_with_their_engine() -> None:
    filters, events = shaped("every type")
    table = Table.from_filters(filters)
    before = set(threading.enumerate())
    engine = opened(table, 6)
    engine.match(Events.of(events).encode(table.vocabulary))
    mine = {thread for thread in set(threading.enumerate()) - before if thread.name.startswith("twophase")}
    assert 1 <= len(mine) <= 5  # one that is done with its share takes another's
    del engine
    for thread in mine:
        thread.join(10)
    assert not any(thread.is_alive() for thread in mine)


def test_there_are_as_many_threads_as_asked_for_up_to_a_bound() -> None:
    table = Table.from_filters([make_filter("i")])
    assert opened(table, 3).device == "cpu, 3 threads"
    assert opened(table, 10**6).device == f"cpu, {twophase.MOST_THREADS} threads"
