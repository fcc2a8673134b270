"""The kernels of `keyed_cuda`, also for events that the engine would leave to the CPU, against `model`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from case_groups import assert_cases, every_group
from cases import CONJUNCTIONS, event_of, filters_of
from hypothesis import HealthCheck, given, settings
from judge import KINDS, answers, expected
from live_machine import run_machine
from strategies import subscriptions_and_events

from mpi_match.arrays.csr import Array
from mpi_match.compute.parallel import copy
from mpi_match.engines import EngineError, open_engine
from mpi_match.engines.keyed import cuda as keyed_cuda
from mpi_match.engines.keyed import cuda_slot
from mpi_match.engines.keyed.cpu import consolidated
from mpi_match.engines.keyed.cuda import KeyedCuda
from mpi_match.engines.keyed.cuda_pipeline import PIPELINE_SLOTS
from mpi_match.engines.keyed.index import build, postings
from mpi_match.engines.keyed.index.layout import DENSE, N_FEATURES
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.gpu.kernels import PinnedPool
from mpi_match.matches.matches import Matches
from mpi_match.model import Event, Filter, make_event, make_filter
from mpi_match.table.table import Table


@pytest.fixture(params=KINDS)
def answer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "list":
        monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    kind: str = request.param
    return kind


@every_group
def test_cases(group: list[dict[str, Any]]) -> None:
    assert_cases("keyed_cuda", group)


def test_many_filters_and_slices(answer: str) -> None:
    """Filters of many cases in one table; more events than a block and a slice hold, more answers than there is room."""
    filters = [f for case in CONJUNCTIONS[::5] for f in filters_of(case)]
    events = [event_of(case) for case in CONJUNCTIONS[::20]]
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    assert answers(open_engine("keyed_cuda", table), table, batch, answer) == expected(table, events, answer)


def test_answers_in_use_stay_as_they_are(answer: str) -> None:
    """Their memory is reused later only, and there is less of it than all of them need."""
    filters = [f for case in CONJUNCTIONS[::5] for f in filters_of(case)]
    events = [event_of(case) for case in CONJUNCTIONS[::10]]
    table = Table.from_filters(filters)
    engine, judge = open_engine("keyed_cuda", table), open_engine("counting", table)
    cuts = [(at, at + 3 + at % 5) for at in range(0, len(events), 4)]
    batches = [Events.of(events[slice(*cut)]).encode(table.vocabulary) for cut in cuts]
    for _ in range(2):
        found = [engine.match(batch, filters=answer == "filters") for batch in batches]
        for (start, stop), batch, one in zip(cuts, batches, found, strict=True):
            assert one == judge.match(batch, filters=answer == "filters"), f"events {start} to {stop}"


def test_pinned_arrays_come_back_when_no_reference_is_left() -> None:
    pool = PinnedPool(100)
    first = pool.take(20, np.uint32)
    assert first is not None
    view, address = first[3:5].view(np.uint8), first.ctypes.data
    first[:] = 7
    del first
    assert pool.take(20, np.uint32) is None, "a view of the first is there, and no room beside it"
    assert view.tolist() == [7, 0, 0, 0] * 2
    del view
    again = pool.take(10, np.uint32)
    assert again is not None
    assert again.ctypes.data == address
    assert pool.take(1, np.uint8) is not None, "10 of 100 bytes are left"
    del again
    larger = pool.take(25, np.uint32)
    assert larger is not None, "it takes the place of those that are too small"
    assert len(larger) == 25


@pytest.mark.parametrize("refused", [False, True])
def test_events_in_pinned_memory_are_copied_from_there(
    refused: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slices of contiguous batches, as workers have them, and a batch in other memory."""
    filters = [f for case in CONJUNCTIONS[::5] for f in filters_of(case)]
    events = [event_of(case) for case in CONJUNCTIONS[::20]]
    table = Table.from_filters(filters)
    engine = KeyedCuda(table)
    wires = [Events.of(some).encode(table.vocabulary).to_wire() for some in (events[:3], events[3:])]
    memory = np.concatenate(wires)
    batches = [EventBatch.from_wire(memory[: len(wires[0])]), EventBatch.from_wire(memory[len(wires[0]) :])]
    elsewhere = Events.of(events).encode(table.vocabulary)

    def refuse(memory: Array) -> None:
        raise EngineError("CUDA_ERROR_NOT_SUPPORTED")

    if refused:
        monkeypatch.setattr(engine._gpu.pinned_regions, "hold", refuse)
    caplog.set_level("DEBUG", "mpi_match")
    engine.pin([memory])
    assert [record.message for record in caplog.records] == [
        "events take an extra copy on their way to the GPU: CUDA_ERROR_NOT_SUPPORTED"
    ] * refused
    copied: list[Array] = []

    def noted_copy(to: Array, source: Array) -> None:
        copied.append(source)
        copy(to, source)

    monkeypatch.setattr(cuda_slot, "copy", noted_copy)
    found = [labels for batch in batches for labels in engine.match(batch).labels(table.labels)]
    assert found == expected(table, events, "mask")
    assert any(np.shares_memory(source, memory) for source in copied) == refused
    assert engine.match(elsewhere).labels(table.labels) == found
    assert any(np.shares_memory(source, elsewhere.attributes) for source in copied)


def test_what_is_warmed_up_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many batches at a time as there are slots, even if their answers are kept."""
    monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    monkeypatch.setattr(keyed_cuda, "POOL_BYTES", 2**20)
    table = Table.from_filters([make_filter(str(i), [["x", ">", i]]) for i in range(6)])
    events = [make_event({"x": x % 8}) for x in range(15)]
    batch = Events.of(events).encode(table.vocabulary)
    engine = open_engine("keyed_cuda", table)
    taken: list[int] = []
    pin = PinnedPool._pinned

    def noted_pin(pool: PinnedPool, n_bytes: int) -> Array:
        taken.append(n_bytes)
        return pin(pool, n_bytes)

    monkeypatch.setattr(PinnedPool, "_pinned", noted_pin)
    engine.warm_up(lambda: batch)
    assert taken
    del taken[:]
    begun = [engine.begin(batch) for _ in range(PIPELINE_SLOTS)]
    found = [each if isinstance(each, Matches) else each.end() for each in begun]
    assert not taken
    assert all(each.labels(table.labels) == expected(table, events, "list") for each in found)


def test_warming_up_is_optional_and_never_fails() -> None:
    table = Table.from_filters([make_filter("i", [["x", ">", 1]])])
    open_engine("counting", table).warm_up(lambda: pytest.fail("it takes no example"))
    engine = open_engine("keyed_cuda", table)
    engine.warm_up(lambda: None)
    other = Table.from_filters([make_filter("i", [["y", ">", 1]])])
    engine.warm_up(lambda: Events.of([make_event({"y": 2})]).encode(other.vocabulary))  # matching reports the error


def test_wide_events(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warp for each event; so many values that most features are sparse, and keys of one to three of them."""
    monkeypatch.setattr(build, "choose_depth", lambda *_: 3)
    rng = np.random.default_rng(7)
    rows = [{f"n{n}": int(rng.integers(8)) for n in rng.choice(40, 25, replace=False)} for _ in range(5)]
    events = [make_event(row) for row in rows]
    filters = []
    for i in range(300):
        row = rows[i % 5] if i % 3 else {f"n{n}": int(rng.integers(8)) for n in range(40)}
        names = rng.choice(sorted(row), 1 + i % 4, replace=False)
        operators = ["=" if rng.random() < 0.8 else "<=" for _ in names]
        constraints = [[str(name), op, row[str(name)]] for name, op in zip(names, operators, strict=True)]
        filters.append(make_filter(str(i % 50), constraints))
    table = Table.from_filters(filters)
    index, _, _ = consolidated(table, live=False, with_bitmap=False)
    assert int(index.table[N_FEATURES]) > DENSE + 50
    batch = Events.of(events).encode(table.vocabulary)
    found = answers(open_engine("keyed_cuda", table), table, batch, answer)
    assert found == expected(table, events, answer)
    assert all(found)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(given_=subscriptions_and_events(max_filters=8, max_events=5, max_constraints=4))
def test_agrees_with_the_model(given_: tuple[list[Filter], list[Event]], answer: str) -> None:
    filters, events = given_
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    assert answers(open_engine("keyed_cuda", table), table, batch, answer) == expected(table, events, answer)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(given_=subscriptions_and_events(max_filters=6, max_events=4, max_constraints=4))
def test_long_filters_agree_with_the_model(given_: tuple[list[Filter], list[Event]], answer: str) -> None:
    """All filters with checks are long here, as those of more than 1,023 are: their checks are outside the lists."""
    filters, events = given_
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "MOST_LISTED", 0)
        engine = open_engine("keyed_cuda", table)
    assert answers(engine, table, batch, answer) == expected(table, events, answer)


def test_long_filters_are_added_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "MOST_LISTED", 0)
    run_machine("keyed_cuda", examples=2, steps=8)
