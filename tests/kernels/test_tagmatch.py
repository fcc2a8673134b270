"""`tagmatch` on a GPU: its kernel, packed results, buffers, streams and variants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_machine import run_machine_of
from tag_tables import LiveTags, assert_agrees, random_tags, tag_events, tag_filters

from mpi_match.engines import open_engine
from mpi_match.engines.tagmatch import engine as engine_of_tagmatch
from mpi_match.engines.tagmatch import gpu_match
from mpi_match.engines.tagmatch.engine import TagMatch
from mpi_match.engines.tagmatch.gpu_match import jobs_of
from mpi_match.engines.tagmatch.queues import PartitionBatches
from mpi_match.events.events import Events
from mpi_match.matches.matches import Matches
from mpi_match.model import Event, Filter
from mpi_match.table.table import Table

SMALL: dict[str, Any] = {"max_p": 4, "queries": 3, "streams": 2}
VARIANTS = [
    *({**SMALL, "prefix": prefix, "launch": launch} for prefix, launch in product((True, False), (1, 3))),
    *({"variant": variant, "streams": 1} for variant in ("gpu-plain", "gpu-batched")),
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items()))
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(filters=st.lists(tag_filters, max_size=9), events=st.lists(st.none() | tag_events, max_size=5))
def test_hypothesis(options: dict[str, Any], filters: list[Filter], events: list[Event | None]) -> None:
    assert_agrees(filters, events, **options)


@pytest.mark.parametrize("launch", [1, 4])
@pytest.mark.parametrize("room", [1, 1000])
def test_results_beyond_the_room_are_not_lost(launch: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that are done again are between others of their stream, even and odd."""
    monkeypatch.setattr(gpu_match, "FIRST_RESULTS", room)
    filters, events = random_tags(5, 60, 25, n_tags=8)
    engine = assert_agrees(filters, events, max_p=12, queries=4, streams=2, launch=launch)
    assert isinstance(engine, TagMatch)
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    assert engine.match(batch) == engine.match(batch) == open_engine("counting", table).match(batch)
    assert engine.kernel_s > 0


def test_batches_that_are_begun_together_end_in_any_order() -> None:
    filters, events = random_tags(8, 40, 12)
    table = Table.from_filters(filters)
    batch, judge = Events.of(events).encode(table.vocabulary), open_engine("counting", table)
    engine = open_engine("tagmatch", table, options={"max_p": 8, "queries": 4, "streams": 2})
    parts = [batch[at : at + 4] for at in range(0, 12, 4)]
    begun = [engine.begin(part) for part in parts]
    for k in (1, 2, 0):
        one = begun[k]
        assert not isinstance(one, Matches)
        assert one.end() == judge.match(parts[k])


@pytest.mark.parametrize(("threads", "streams"), [(1, 1), (2, 2), (4, 2), (16, 8), (24, 10)])
def test_streams_have_half_of_the_threads_and_the_caller_what_they_leave(
    threads: int, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten threads that waited for streams beside sixteen of the caller were slower on 16 cores than eight and eight."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(32))
    given: list[int] = []

    @contextmanager
    def at_most(n: int) -> Iterator[None]:
        given.append(n)
        yield

    monkeypatch.setattr(engine_of_tagmatch, "at_most", at_most)
    filters, events = random_tags(8, 40, 12)
    table = Table.from_filters(filters)
    engine = open_engine("tagmatch", table, threads=threads, options={"max_p": 8})
    assert isinstance(engine, TagMatch)
    assert engine.match(Events.of(events).encode(table.vocabulary)).n_events == len(events)
    assert (given[0], given[-1]) == (threads, threads), "no stream is busy before the first batch and after the last"
    assert isinstance(engine._matcher, gpu_match.GpuMatcher)
    running: list[Future[Any]] = [Future() for _ in range(streams + 3)]
    engine._matcher._begun = [gpu_match._Part(range(1), each) for each in running]
    with engine._step("reduce"):
        assert given[-1] == max(threads - streams, 1)
    for each in running[:-1]:
        each.set_result(np.empty(0, np.uint64))
    with engine._step("reduce"):
        assert given[-1] == max(threads - 1, 1)
    running[-1].set_result(np.empty(0, np.uint64))


def test_a_job_has_each_partition_once() -> None:
    partition = np.array([0, 2, 5, 0, 2, 5, 2])
    batches = PartitionBatches(partition, np.arange(8), np.arange(10, 17).astype(np.uint32))
    bounds = np.array([0, 3, 3, 9, 9, 9, 12])
    jobs = jobs_of(batches, bounds, 2)
    assert jobs.bounds.tolist() == [0, 2, 3, 5, 6, 7]
    assert jobs.rows.tolist() == [[0, 3], [3, 9], [9, 12], [0, 3], [3, 9], [9, 12], [3, 9]]
    assert jobs_of(batches, bounds, 1).bounds.tolist() == list(range(8))


class LiveTagsOnGpu(LiveTags):
    options: ClassVar = {**SMALL, "staged": 3}


def test_subscribe_unsubscribe_consolidate_and_match_in_any_order() -> None:
    run_machine_of(LiveTagsOnGpu, examples=3, steps=8)
