"""The engine runner of a worker: timeouts of answers, and added filters."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from mpirun import TIMEOUT_S
from run_inputs import plain_events

from mpi_match.changes.log import ChangeLog
from mpi_match.cluster.at_once.matcher import InlineRunner
from mpi_match.cluster.distribution.shard import Shard
from mpi_match.cluster.engine_runner import EngineRunner, ShardsHeld
from mpi_match.cluster.messages import Matched, Received
from mpi_match.cluster.prefetch import Expected
from mpi_match.engines import open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Change, make_filter
from mpi_match.table.table import Table


def whole(table: Table, engine: str, *, live: bool = False) -> ShardsHeld:
    """The whole table, and an engine for it."""
    part = Shard(0, 1, 0, table.n_filters, table.n_filters)
    return ShardsHeld(part, table, lambda each: open_engine(engine, each, live=live))


def test_get_returns_within_its_timeout() -> None:
    """Workers poll for some microseconds at a time; while one waits for an answer, MPI makes no progress."""
    table, nothing = Table.from_filters([]), np.empty(0, np.uint8)
    matcher = EngineRunner(whole(table, "counting"), table.vocabulary, filters=False)
    events = Expected(lambda: EventBatch(nothing, nothing, None, 0))
    answer = Matched(Received(0, 0, False, nothing, events, None), nothing, nothing)

    def look() -> None:
        for _ in range(100_000):  # SimpleQueue waits for ever once in some ten thousand times
            matcher._done.put(answer)
            assert matcher.get() is answer
            assert matcher.get(1e-9) is None

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(TIMEOUT_S)
    assert not looking.is_alive()


def test_a_batch_is_matched_at_once_unless_other_work_waits() -> None:
    table = Table.from_filters([make_filter("a", [["n3", "<", 3]])])
    matcher = InlineRunner(whole(table, "reference"), table.vocabulary, filters=False)
    engine = matcher.engine()
    batch = plain_events(6).encode(table.vocabulary)
    wire, nothing = batch.to_wire(), np.empty(0, np.uint8)
    found, wanted = matcher.match_at_once(wire.copy().data), engine.match(batch)
    assert found == wanted
    assert found.wire == wanted.counts.tobytes() + wanted.ids.tobytes()
    with pytest.raises(ValueError, match="not a batch"):
        matcher.match_at_once(wire[8:].copy().data)
    matcher.put(Received(0, 0, False, nothing, Expected(lambda: batch), None))
    assert matcher.match_at_once(wire.data) is None
    matched = matcher.get(None)
    assert matched is not None
    assert (matched.counts.tolist(), matched.ids.tolist()) == (wanted.counts.tolist(), wanted.ids.tolist())
    assert matcher.get(None) is None


def test_an_added_filter_outlives_the_buffer_that_it_came_in() -> None:
    table = Table.from_filters([make_filter("a", [["n3", "<", 3]])])
    events = plain_events(6).encode(table.vocabulary).to_wire()
    rows = [ChangeRow(Change.ADD, filters=(make_filter("b", [["n3", ">", 3]]),))]
    changes = ChangeLog.of(table, rows, []).stream(table).within(0, 1).to_wire()
    matcher = InlineRunner(whole(table, "reference", live=True), table.vocabulary, filters=False)
    matcher.engine()
    answers = []
    for stamped in (changes, np.empty(0, np.uint8)):
        matcher.put(Received(0, 0, False, stamped, Expected(lambda: EventBatch.from_wire(events)), None))
        matched = matcher.get()
        assert matched is not None
        assert matched.error is None
        answers.append((matched.counts.tolist(), matched.ids.tolist()))
        changes[:] = 255
    assert answers == [([1, 1, 1, 0, 1, 1], [0, 0, 0, 1, 1])] * 2
