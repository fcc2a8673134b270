"""The runner's thread with a test engine that begins a batch before earlier ones have ended.

A batch is named by how many events it has, and answered with its name.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from mpirun import TIMEOUT_S
from run_inputs import Inputs

from mpi_match.changes.stream import StampedChanges
from mpi_match.cluster import engine_runner as matchers
from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.distribution.event_source import EventOffer, FileSource
from mpi_match.cluster.distribution.shard import Shard, ShardEngine
from mpi_match.cluster.engine_runner import EngineRunner
from mpi_match.cluster.messages import Matched, Received, SerializedShard
from mpi_match.cluster.prefetch import Expected
from mpi_match.engines import Engine, Pending, match_all
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.journal.reader import EventRange
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

NOTHING = np.empty(0, np.uint8)


def batch_of(n_events: int) -> EventBatch:
    return EventBatch(np.zeros(n_events + 1, np.uint32), np.zeros(0, np.uint32), None, 0)


def received(name: int, *, afresh: bool = False, events: Expected[EventBatch] | None = None) -> Received:
    return Received(name, 0, afresh, NOTHING, events or Expected(lambda: batch_of(name)), None)


class Begins(Engine):
    """Records its calls in `log`.  Batches in `at_once` are answered when they begin; those in `fails` fail there or at
    their end; the first end waits for `may_end`."""

    name, device, gpu, nbytes = "begins", "nothing", None, 0

    def __init__(self, at_once: Sequence[int] = (), fails: Sequence[str] = ()) -> None:
        self._log: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self._at_once, self._fails = at_once, fails

    def note(self, what: str) -> None:
        self._log.append(what)
        if what in self._fails:
            raise ZeroDivisionError(what)

    @property
    def log(self) -> str:
        return ", ".join(self._log)

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.note(f"match {len(batch)}")
        return Matches.of([[len(batch)]], 300)

    def begin(self, batch: EventBatch, *, filters: bool = False) -> Matches | Pending:
        self.note(f"begin {len(batch)}")
        return Matches.of([[len(batch)]], 300) if len(batch) in self._at_once else Ends(self, len(batch))

    def update(self, changes: object) -> None:
        self.note("update")


class Ends:
    """A batch begun by the engine."""

    def __init__(self, engine: Begins, name: int) -> None:
        self._engine, self._name = engine, name

    def end(self) -> Matches:
        self._engine.note(f"end {self._name}")
        assert self._engine.may_end.wait(TIMEOUT_S)
        return Matches.of([[self._name]], 300)


class Opens:
    """Opens the same engine, the first time when `may_open`."""

    def __init__(self, engine: object) -> None:
        self._engine = engine
        self.may_open = threading.Event()

    def open(self) -> Any:
        assert self.may_open.wait(TIMEOUT_S)
        self._note("open")
        return self._engine

    def load(self, *_: object, keep: bool) -> None:
        self._note("load")

    def _note(self, what: str) -> None:
        if isinstance(self._engine, Begins):
            self._engine.note(what)


def test_batches_are_matched_in_order_and_begun_ahead() -> None:
    engine = Begins(at_once=[4])
    found = [answers[0].tolist() for answers in match_all(engine, map(batch_of, (1, 2, 3, 4, 5)))]
    assert found == [[1], [2], [3], [4], [5]]
    assert engine.log == "begin 1, begin 2, begin 3, end 1, begin 4, end 2, begin 5, end 3, end 5"
    one_by_one = Begins(at_once=[1, 2])
    answers = match_all(one_by_one, map(batch_of, (1, 2)))
    assert next(answers)[0].tolist() == [1]
    assert one_by_one.log == "begin 1"  # and not the next, which may not be here yet


def made(engine: object) -> tuple[EngineRunner, Opens]:
    shards = Opens(engine)
    return EngineRunner(shards, Table.from_filters([]).vocabulary, filters=False), shards  # type: ignore[arg-type]


def answered(engine: object, *work: Received | SerializedShard) -> list[Matched]:
    """The answers when all work is in the queue at once."""
    matcher, shards = made(engine)
    for each in work:
        matcher.put(each)
    shards.may_open.set()
    matcher.engine()
    found = []
    for _ in range(sum(isinstance(each, Received) for each in work)):
        matched = matcher.get(TIMEOUT_S)
        assert matched is not None
        found.append(matched)
    matcher.stop(TIMEOUT_S)
    assert not matcher._thread.is_alive()
    return found


def names(found: list[Matched]) -> list[int | str]:
    """The answer of each batch, or its error, in the order of the batches."""
    for matched in found:
        assert matched.error is not None or matched.ids.tolist() == [matched.received.batch]
    assert [matched.received.batch for matched in found] == sorted(matched.received.batch for matched in found)
    return [matched.received.batch if matched.error is None else str(matched.error) for matched in found]


@pytest.fixture
def _changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has changes if it has bytes of them, with any content; a shard is empty."""

    def match_changing(engine: Any, batch: EventBatch, stamped: object, *, filters: bool) -> Matches:
        if stamped is not None:
            engine.update(stamped)
        matches: Matches = engine.match(batch, filters=filters)
        return matches

    monkeypatch.setattr(matchers, "match_changing", match_changing)
    monkeypatch.setattr(StampedChanges, "from_wire", lambda wire, vocabulary: wire)
    monkeypatch.setattr(matchers, "unpacked", lambda wire: ())


def changing(name: int) -> Received:
    return received(name)._replace(changes=np.ones(3, np.uint8))


def test_waiting_batches_are_begun_before_the_oldest_is_ended() -> None:
    engine = Begins()
    assert names(answered(engine, *map(received, range(1, 6)))) == [1, 2, 3, 4, 5]
    assert engine.log == "open, begin 1, begin 2, begin 3, end 1, begin 4, end 2, begin 5, end 3, end 4, end 5"


def test_the_oldest_does_not_wait_for_another() -> None:
    engine = Begins()
    matcher, shards = made(engine)
    shards.may_open.set()
    for name in (1, 2):
        matcher.put(received(name))
        matched = matcher.get(TIMEOUT_S)
        assert matched is not None
        assert names([matched]) == [name]
    assert engine.log == "open, begin 1, end 1, begin 2, end 2"


def test_the_oldest_does_not_wait_for_the_events_of_another() -> None:
    """They may still be read from a file."""
    engine = Begins()

    def read() -> EventBatch:
        engine.note("events 2")
        return batch_of(2)

    late = received(2, events=Expected(read, lambda: "end 1" in engine.log))
    assert names(answered(engine, received(1), late, received(3))) == [1, 2, 3]
    assert engine.log == "open, begin 1, end 1, events 2, begin 2, begin 3, end 2, end 3"


def test_events_that_cannot_be_read_are_one_failure() -> None:
    def read() -> EventBatch:
        raise ZeroDivisionError("events 2")

    found = answered(Begins(), received(1), received(2, events=Expected(read)), received(3))
    assert names(found) == [1, "events 2", 3]


def test_a_failing_batch_does_not_fail_others() -> None:
    engine = Begins(fails=["begin 2", "end 4"])
    assert names(answered(engine, *map(received, range(1, 7)))) == [1, "begin 2", 3, "end 4", 5, 6]
    assert engine.log.count("open") == 1


def test_a_batch_answered_at_once_keeps_its_order() -> None:
    engine = Begins(at_once=[1, 3, 4])
    assert names(answered(engine, *map(received, range(1, 6)))) == [1, 2, 3, 4, 5]
    assert engine.log == "open, begin 1, begin 2, begin 3, begin 4, end 2, begin 5, end 5"


def test_an_engine_that_cannot_begin_answers_one_before_it_matches_the_next() -> None:
    there: list[int] = []

    class AtOnce(Engine):
        name, device, nbytes = "at once", "nothing", 0

        def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
            there.append(matcher._done.qsize())
            return Matches.of([[len(batch)]], 300)

    matcher, shards = made(AtOnce())
    for name in (1, 2, 3):
        matcher.put(received(name))
    shards.may_open.set()
    matcher.put(None)  # type: ignore[arg-type]  # end
    matcher._thread.join(TIMEOUT_S)
    assert there == [0, 1, 2]


@pytest.mark.usefixtures("_changes")
def test_all_batches_end_before_a_change() -> None:
    engine = Begins()
    assert names(answered(engine, received(1), received(2), changing(3), received(4))) == [1, 2, 3, 4]
    assert engine.log == "open, begin 1, begin 2, end 1, end 2, update, match 3, begin 4, end 4"


@pytest.mark.usefixtures("_changes")
def test_all_batches_end_before_an_engine_is_opened_again() -> None:
    engine = Begins()
    part = SerializedShard(NOTHING, keep=True)
    found = answered(engine, received(1), received(2, afresh=True), received(3), received(4), part, received(5))
    assert names(found) == [1, 2, 3, 4, 5]
    assert engine.log == "open, begin 1, end 1, open, match 2, begin 3, begin 4, end 3, end 4, load, open, begin 5, end 5"


@pytest.mark.usefixtures("_changes")
def test_after_failed_changes_only_begun_batches_are_answered() -> None:
    engine = Begins(fails=["update"])
    found = answered(engine, received(1), received(2), changing(3), received(4), received(5, afresh=True), received(6))
    assert names(found) == [1, 2, "update", "update", 5, 6]
    assert engine.log.count("begin 4") == 0


def test_stopping_ends_the_batches_that_were_begun() -> None:
    """A batch's memory may be gone then, so it is not read any more; queued batches never begin."""
    engine = Begins()
    engine.may_end.clear()
    matcher, shards = made(engine)
    for name in range(1, 6):
        matcher.put(received(name))
    shards.may_open.set()
    while "end 1" not in engine.log:
        assert matcher.get(1e-3) is None
    matcher.stop(0.01)
    assert matcher._thread.is_alive()
    engine.may_end.set()
    matcher._thread.join(TIMEOUT_S)
    assert engine.log == "open, begin 1, begin 2, begin 3, end 1, end 2, end 3"


def test_a_batch_begun_by_a_shard_ends_with_global_ids() -> None:
    """There are as many threads as at the beginning."""
    part = Shard(1, 2, 100, 200, 250)
    for engine in (Begins(), Begins(at_once=[7])):
        member = ShardEngine(engine, part)
        begun = member.begin(batch_of(7), filters=True)
        member._n_filters = 1000
        found = begun if isinstance(begun, Matches) else begun.end()
        assert found == member.match(batch_of(7), filters=True)
        assert (found.ids.tolist(), found.n_ids) == ([107], 250)
        of_interfaces = member.begin(batch_of(7))
        found = of_interfaces if isinstance(of_interfaces, Matches) else of_interfaces.end()
        assert found.ids.tolist() == [7]
        assert engine.log.startswith("begin 7")


def test_events_from_a_file_arrive_when_they_are_read(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Table.load(inputs.table).vocabulary
    may_read, read = threading.Event(), EventTable.batch

    def late(table: EventTable, start: int, stop: int) -> EventBatch:
        assert may_read.wait(TIMEOUT_S)
        return read(table, start, stop)

    monkeypatch.setattr(EventTable, "batch", late)
    with EventTable(inputs.events, vocabulary) as events:
        digest = events.digest
    offer = EventOffer(inputs.events, digest, BatchRanges([EventRange(0, 10)], 5), None)
    with FileSource(offer, vocabulary, ThreadPoolExecutor(1)) as source:
        expected = source.expect(0, NOTHING)
        assert not expected.is_here()
        may_read.set()
        assert len(expected.get()) == 5
        assert expected.is_here()
