"""Several batches in flight on `keyed_cuda`: each is answered as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import CONJUNCTIONS, event_of, filters_of
from judge import KINDS, expected, in_words
from lasting import lasting
from late_streams import LateStreams

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.engines import Engine, EngineError, open_engine
from mpi_match.engines.base import Pending
from mpi_match.engines.keyed import cuda as keyed_cuda
from mpi_match.engines.keyed import cuda_pipeline
from mpi_match.engines.keyed.cuda import KeyedCuda
from mpi_match.engines.keyed.cuda_pipeline import PIPELINE_SLOTS, Clock
from mpi_match.engines.keyed.cuda_results import Answers
from mpi_match.engines.keyed.cuda_slot import PipelineSlot, SlicePlan
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import PLAIN, event_of_row, names_of, subscription_filters
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, Event, make_event, make_filter
from mpi_match.table.table import Table

SLICE = 6
"""Events of a slice (`conftest`), or fewer."""
WIDE = make_event({f"n{i}": i % 4 for i in range(25)})
PLACELESS = [f for case in CONJUNCTIONS[::8] for f in filters_of(case) if f.area is None]
FILTERS = [f._replace(interface=str(i % 40)) for i, f in enumerate(PLACELESS)]
FILTERS += [make_filter(str(i % 9), [[f"n{i % 25}", "=", i % 25 % 4]]) for i in range(40)]
EVENTS = [event_of(case) for case in CONJUNCTIONS[::9]] + [make_event({"n1": 1}), make_event({"n7": 3, "n8": 0})]
AREAS = [make_filter(f"in {i % 7}", [["n1", ">=", i % 3]], (i % 5, 0, 2)) for i in range(20)]


def ended(begun: Matches | Pending) -> Matches:
    return begun if isinstance(begun, Matches) else begun.end()


def all_slots_are_free(engine: Engine) -> bool:
    assert isinstance(engine, KeyedCuda)
    batches = engine._batches
    return len(batches._free) == PIPELINE_SLOTS and not batches._started and not batches._waiting


class Spy:
    """Notes the batches whose slices a slot starts (`starts 1`) and retires (`retires 1`); those in `fails` fail there.

    A batch is named by the value of "n1" in its first event.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        fails: Sequence[tuple[str, int]] = (),
        error: type[BaseException] = EngineError,
    ) -> None:
        self.log: list[str] = []
        self._fails, self._error = fails, error
        self._batches: list[EventBatch] = []
        self._name_of: dict[PipelineSlot, int] = {}
        start, finish = PipelineSlot.start, PipelineSlot.finish

        def noted_start(slot: PipelineSlot, part: EventBatch, plan: SlicePlan, room: int) -> None:
            if (batch := self.batch_of(part)) is not None:
                self._name_of[slot] = batch
            self._note(f"starts {self._name_of[slot]}")
            start(slot, part, plan, room)

        def noted_finish(slot: PipelineSlot, plan: SlicePlan, answers: Answers) -> None:
            self._note(f"retires {self._name_of[slot]}")
            finish(slot, plan, answers)

        monkeypatch.setattr(PipelineSlot, "start", noted_start)
        monkeypatch.setattr(PipelineSlot, "finish", noted_finish)

    def name(self, batch: EventBatch) -> EventBatch:
        self._batches.append(batch)
        return batch

    def batch_of(self, part: EventBatch) -> int | None:
        """Its number: a slice shares the memory of its batch; None for events that were picked from a slice."""
        found = (i for i, batch in enumerate(self._batches) if np.shares_memory(batch.offsets[:-1], part.offsets[:-1]))
        return next(found, None)

    def _note(self, what: str) -> None:
        self.log.append(what)
        if (what, self.log.count(what)) in self._fails:
            raise self._error(what)


def encoded(table: Table, events: Sequence[Event]) -> EventBatch:
    return Events.of(events).encode(table.vocabulary)


@pytest.mark.parametrize("areas", [False, True])
@pytest.mark.parametrize("seed", [0, 1, *lasting(*range(2, 8))])
def test_batches_of_every_kind_begun_and_ended_in_any_order(seed: int, areas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, lists and filters; empty, narrow and wide; of one slice and of more than there are slots; with more answers
    than there is room for, at first and later; every second time on streams that are late."""
    rng = np.random.default_rng(seed)
    table = Table.from_filters(FILTERS + AREAS if areas else FILTERS)
    if seed % 2:
        LateStreams(monkeypatch, seed)
    engine = open_engine("keyed_cuda", table)
    in_flight: list[tuple[str, list[Event], Matches | Pending]] = []
    left = [*KINDS, *KINDS]
    rng.shuffle(left)
    while left or in_flight:
        if left and len(in_flight) < 4 and rng.random() < 0.7:
            answer, n = left.pop(), int(rng.choice([0, 1, SLICE, 3 * SLICE, (PIPELINE_SLOTS + 1) * SLICE]))
            events = [EVENTS[i] for i in rng.integers(len(EVENTS), size=n)]
            if n and rng.random() < 0.3:
                events[-1] = WIDE
            monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0 if answer == "list" else 64)
            in_flight.append((answer, events, engine.begin(encoded(table, events), filters=answer == "filters")))
        elif in_flight:
            answer, events, begun = in_flight.pop(int(rng.integers(len(in_flight))))
            assert in_words(ended(begun), table, answer) == expected(table, events, answer)
    assert all_slots_are_free(engine)


@pytest.mark.parametrize("answer", ["list", "filters"])
@pytest.mark.parametrize("long", [0, 2, 3])
def test_an_event_with_many_answers_does_not_take_the_room_of_others(
    long: int, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone is matched again, with the room that it needs; events that follow have the room of before."""
    monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    filters = [make_filter(f"i{i}", [["n1", "=", 1]]) for i in range(40)]
    table = Table.from_filters([*filters, make_filter("few", [["n2", "exists"]])])
    rooms, start = list[tuple[int, int]](), PipelineSlot.start

    def noted(slot: PipelineSlot, part: EventBatch, plan: SlicePlan, room: int) -> None:
        rooms.append((len(part), room))
        start(slot, part, plan, room)

    monkeypatch.setattr(PipelineSlot, "start", noted)
    engine = open_engine("keyed_cuda", table)
    rooms.clear()
    for _ in range(2):
        events = [make_event({"n1": 1, "n2": i} if i % 4 == long else {"n2": i}) for i in range(8)]
        found = engine.match(encoded(table, events), filters=answer == "filters")
        assert in_words(found, table, answer) == expected(table, events, answer)
    assert sorted(rooms) == [(1, 41)] * 4 + [(4, 1)] * 4, "slices of 4 events, for two batches of two"


ONE_LONG = np.repeat(np.array([1, 10**6]), [2**20, 1])
"""Answers of events: one of a million has a million."""
BY_ZIPF = np.sort(150_000 / np.arange(1, 4097)).astype(np.int64)
"""Few events have many answers, others few."""
MANY_BY_ZIPF = np.sort(150_000 / np.arange(1, 2**14 + 1) ** 0.6).astype(np.int64)
"""Half of the events have a thousand answers or more."""


@pytest.mark.parametrize(
    ("found", "n_events", "room", "chosen"),
    [
        (np.full(1000, 8), 2**20, 8, 8),
        (np.full(1000, 9), 2**20, 8, 16),
        (np.full(1000, 1000), 2**20, 64, 1024),
        (ONE_LONG, 2**20, 8, 8),
        (ONE_LONG[-50:], 50, 8, 2**20),
        (BY_ZIPF, 2**20, 8, 2**18),
        (np.repeat([4, 60], [98, 2]), 2**20, 8, 64),
        (MANY_BY_ZIPF, 2**14, 8, 2**18),
        (MANY_BY_ZIPF, 2**14, 2**12, 2**18),
    ],
)
def test_the_room_is_that_with_which_slices_take_the_least_time(
    found: Array, n_events: int, room: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"SLICE_S": 3e-4, "GROUP_S": 1e-3, "EVENT_S": 3e-6, "ANSWER_S": 1e-8, "MERGED_S": 5e-9}
    for name, value in {"LONG_SLICE_BYTES": 2**25, "LONG_SLICE_EVENTS": 2**14, **own}.items():
        monkeypatch.setattr(cuda_pipeline, name, value)
    assert cuda_pipeline._room_of(found.astype(np.uint64), room, n_events).of_event == chosen


def test_a_room_that_is_no_longer_needed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of events with many answers makes slices short, also those of the next batch, but not of the one after it."""
    monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    table = Table.from_filters([make_filter(f"i{i}", [["n1", "=", 1]]) for i in range(40)])
    sizes, start = list[int](), PipelineSlot.start

    def noted(slot: PipelineSlot, part: EventBatch, plan: SlicePlan, room: int) -> None:
        sizes.append(len(part))
        start(slot, part, plan, room)

    monkeypatch.setattr(PipelineSlot, "start", noted)
    engine = open_engine("keyed_cuda", table)
    slices = []
    for n_answers in (1, 0, 0):
        sizes.clear()
        assert engine.match(encoded(table, [make_event({"n1": n_answers})] * 8)).n_matches == 8 * 40 * n_answers
        slices.append(max(sizes[-2:]))
    assert slices == [2, 2, 4]


def test_the_room_of_like_batches_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was chosen by one slice after another: small after those of few answers, and large after the next."""
    monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    table = Table.from_filters([make_filter(f"i{i}", [[f"n{i % 8}", "=", 1]]) for i in range(64)])
    rooms, start = list[int](), PipelineSlot.start

    def noted(slot: PipelineSlot, part: EventBatch, plan: SlicePlan, room: int) -> None:
        rooms.append(room)
        start(slot, part, plan, room)

    monkeypatch.setattr(PipelineSlot, "start", noted)
    engine = open_engine("keyed_cuda", table)
    events = [make_event({f"n{k}": 1 for k in range(n)}) for n in (8, 8, 8, 8, 0, 0, 1, 0, 8, 8, 8, 8)]
    chosen = []
    for _ in range(4):
        rooms.clear()
        found = engine.match(encoded(table, events))
        assert in_words(found, table, "list") == expected(table, events, "list")
        chosen.append(set(rooms))
    assert chosen[1] == chosen[2] == chosen[3]
    assert len(chosen[3]) == 1


def test_a_slot_that_is_free_takes_the_next_slice_of_whichever_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.from_filters(FILTERS)
    engine, spy = open_engine("keyed_cuda", table), Spy(monkeypatch)
    events = [make_event({"n1": 1})] * (2 * SLICE)
    begun = [engine.begin(spy.name(encoded(table, events))) for _ in range(3)]
    assert spy.log == ["starts 0", "starts 0", "starts 1"]
    for each in begun:
        spy.log.append("ends")
        ended(each)
    assert spy.log[3:] == [
        *["ends", "retires 0", "starts 1", "retires 0", "starts 2"],
        *["ends", "retires 1", "starts 2", "retires 1"],
        *["ends", "retires 2", "retires 2"],
    ]


def test_the_gpu_begins_with_a_short_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_pipeline, "FIRST_EVENTS", 2)
    table = Table.from_filters(FILTERS)
    engine, spy = open_engine("keyed_cuda", table), Spy(monkeypatch)
    batches = [EVENTS[: 2 + SLICE], EVENTS[:SLICE]]
    begun = [engine.begin(spy.name(encoded(table, events))) for events in batches]
    assert spy.log == ["starts 0", "starts 0", "starts 1"]
    assert [in_words(ended(each), table, "mask") for each in begun] == [
        expected(table, events, "mask") for events in batches
    ]


@pytest.mark.parametrize("answer", KINDS)
@pytest.mark.parametrize(
    ("step", "nth"),
    [("starts 1", 1), ("starts 1", 4), ("retires 1", 2), *lasting(("starts 1", 2), ("retires 1", 1), ("retires 1", 4))],
)
def test_a_failing_batch_does_not_affect_others(answer: str, step: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it begins or while an earlier one ends, with slices started and not; also when its answers did not fit."""
    monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0 if answer == "list" else 64)
    table = Table.from_filters(FILTERS)
    engine, spy = open_engine("keyed_cuda", table), Spy(monkeypatch, [(step, nth)])
    events = [EVENTS[i % len(EVENTS)] for i in range((PIPELINE_SLOTS + 1) * SLICE)]
    pieces = [events[:SLICE], events, events[::-1], []]
    begun = [engine.begin(spy.name(encoded(table, piece)), filters=answer == "filters") for piece in pieces]
    for number, (piece, each) in enumerate(zip(pieces, begun, strict=True)):
        if number != 1:
            assert in_words(ended(each), table, answer) == expected(table, piece, answer)
            continue
        with pytest.raises(EngineError, match=step):
            ended(each)
        assert isinstance(each, keyed_cuda._Begun)
        assert each.batch.n_started == 0, "its memory may be another's now"
    assert all_slots_are_free(engine)
    failed_at = [i for i, what in enumerate(spy.log) if what == step][nth - 1]
    assert "starts 1" not in spy.log[failed_at + 1 :]
    again = engine.match(spy.name(encoded(table, events)), filters=answer == "filters")
    assert in_words(again, table, answer) == expected(table, events, answer)


@pytest.mark.parametrize("where", ["starts 0", "retires 0"])
def test_after_an_interrupted_match_the_next_one_is_right(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.from_filters(FILTERS)
    engine, spy = open_engine("keyed_cuda", table), Spy(monkeypatch, [(where, 2)], KeyboardInterrupt)
    events = [EVENTS[i % len(EVENTS)] for i in range(5 * SLICE)]
    with pytest.raises(KeyboardInterrupt):
        engine.match(spy.name(encoded(table, events)))
    assert all_slots_are_free(engine)
    assert in_words(engine.match(spy.name(encoded(table, events))), table, "mask") == expected(table, events, "mask")


def test_a_batch_sees_the_changes_from_before_its_beginning() -> None:
    """Also those of its slices that are not started when the change comes; nor is an id that comes then an answer."""
    filters = [make_filter("a", [["n1", ">=", 0]], (0, 0, 5)), make_filter("b", [["n1", "=", 1]])]
    table = Table.from_filters(filters)
    engine = open_engine("keyed_cuda", table, live=True)
    batch = encoded(table, [make_event({"n1": 1}, (0, 0))] * ((PIPELINE_SLOTS + 2) * SLICE))
    answers = []
    for n_filters, removed in ((2, 0), (300, 1), (300, None)):
        answers.append(engine.begin(batch, filters=True))
        if removed is not None:
            kind, target = np.full(1, Change.REMOVE, np.uint8), np.full(1, removed, np.uint32)
            nothing = np.empty((0, 3)), np.empty(0, np.uint32), None
            engine.update(Changes.of(kind, target, *nothing, n_filters=n_filters, n_interfaces=2))
    found = [ended(each) for each in answers]
    assert [each.n_ids for each in found] == [2, 2, 300]
    assert [sorted({tuple(each[i]) for i in range(len(batch))}) for each in found] == [[(0, 1)], [(1,)], [()]]


def test_the_kernels_time_is_that_of_every_slice_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator runs one kernel after the other, so here it is a sum: also of those whose answers did not fit."""
    table = Table.from_filters(FILTERS)
    engine = open_engine("keyed_cuda", table)
    spans, start = [], PipelineSlot.start

    def timed(slot: PipelineSlot, part: EventBatch, plan: SlicePlan, room: int) -> None:
        start(slot, part, plan, room)
        spans.append(slot.ended.seconds_since(slot.began))

    monkeypatch.setattr(PipelineSlot, "start", timed)
    before = engine.kernel_s
    events = [EVENTS[i % len(EVENTS)] for i in range(3 * SLICE)]
    begun = [engine.begin(encoded(table, events), filters=i % 2 == 1) for i in range(4)]
    for each in begun:
        ended(each)
    assert len(spans) > 12, "some did not fit"
    assert engine.kernel_s - before == pytest.approx(sum(spans))


class At:
    """A mark at a time."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def seconds_since(self, start: At) -> float:
        return self.at_s - start.at_s


def test_the_clock_counts_time_in_which_several_slots_match_once() -> None:
    slots: list[Any] = [SimpleNamespace(began=At(0.0), ended=At(0.0)) for _ in range(3)]
    latest: Any = At(0.0)
    clock, counted = Clock(latest), []
    spans = [(1, 3), (2, 5), (3, 4), (7, 8), (7.5, 9), (8, 8.5), (20, 21)]  # apart, one in another, one after the other
    for i, (began, end) in enumerate(spans):
        slot = slots[i % 3]
        slot.began.at_s, slot.ended.at_s = began, end  # as a slot records its marks again
        clock.add(slot)
        clock.add(slot)
        counted.append(clock.busy_s)
    assert counted == [2, 4, 4, 5, 6, 6, 7]


def test_filters_of_one_object_of_a_list() -> None:
    rows = [
        {"interface": f"{x} {y}", "constraints": [["l.x", "has", x], ["l.y", "has", y]], "arrays": "consistent"}
        for x in range(3)
        for y in range(3)
    ]
    events = [{"l": [{"x": i % 3, "y": i % 2}, {"x": i % 2, "y": i % 4}]} for i in range(13)]
    table = Table.from_filters(item for row in rows for item in subscription_filters(row))
    batch = Events.of(event_of_row(event, names=names_of(table.vocabulary, PLAIN)) for event in events).encode(
        table.vocabulary
    )
    found = open_engine("keyed_cuda", table).match(batch).labels(table.labels)
    assert found == [sorted({f"{each['x']} {each['y']}" for each in event["l"] if each["y"] < 3}) for event in events]
