"""`auto` where several engines can serve: the fastest for each size of batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from clock import Clock

from mpi_match.engines import Engine, EngineError, fastest, open_engine, registry
from mpi_match.engines.fastest import MEASURED_BATCHES, FastestOf
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.matches.matches import Matches
from mpi_match.model import make_event, make_filter
from mpi_match.table.table import Table

TABLE = Table.from_filters([make_filter(str(i), [["a", ">", i]]) for i in range(20)])
BATCH = Events.of([make_event({"a": i}) for i in range(40)]).encode(TABLE.vocabulary)
EXPECTED = open_engine("counting", TABLE).match(BATCH)
CLOCK = Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "time", SimpleNamespace(perf_counter=CLOCK))


class Timed(Engine):
    """The counting engine with a cost for a batch and for an event; `sizes` of what it matched."""

    device = "a clock"

    def __init__(self, name: str, batch_s: float, event_s: float, wrong: bool = False) -> None:
        self.name, self._batch_s, self._event_s, self._wrong = name, batch_s, event_s, wrong
        self._engine, self.sizes = open_engine("counting", TABLE), list[int]()

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self.sizes.append(len(batch))
        CLOCK.now += self._batch_s + self._event_s * len(batch)
        return self._engine.match(batch[:0] if self._wrong else batch, filters=filters)

    @property
    def nbytes(self) -> int:
        return 1


def test_each_size_is_matched_by_the_engine_that_was_faster(caplog: pytest.LogCaptureFixture) -> None:
    gpu, cpu = Timed("far", 0.02, 0.0), Timed("near", 0.0, 0.002)
    engine = FastestOf([gpu, cpu])
    with caplog.at_level("INFO", logger=FastestOf.__module__):
        for n in (1, 0, 32, 1, 40, 1, 33, 1):
            found = engine.begin(BATCH[:n])
            assert isinstance(found, Matches)
            assert found == open_engine("counting", TABLE).match(BATCH[:n])
    assert MEASURED_BATCHES == 2
    assert gpu.sizes == [1, 0, 32, 1, 40, 33]
    assert cpu.sizes == [1, 32, 1, 40, 1, 1]
    first, second = [record.message for record in caplog.records if "from here on" in record.message]
    assert first.startswith("batches of 1 to 1 events: far ")
    assert first.endswith("; near matches them from here on")
    assert second.startswith("batches of 32 to 63 events: ")
    assert second.endswith("; far matches them from here on")
    assert (engine.name, engine.device, engine.nbytes) == ("far or near", "a clock or a clock", 2)


def test_a_hopeless_engine_is_asked_once() -> None:
    quick, slow = Timed("quick", 0.0, 0.0), Timed("slow", 0.1, 0.0)
    engine = FastestOf([slow, quick])
    for _ in range(3):
        assert engine.match(BATCH) == EXPECTED
    assert (slow.sizes, quick.sizes) == ([40], [40, 40, 40])


def test_engines_that_differ_are_an_error() -> None:
    engine = FastestOf([Timed("right", 0, 0), Timed("wrong", 0, 0, wrong=True)])
    with pytest.raises(EngineError, match="wrong and right differ on a batch; name one with --engine"):
        engine.match(BATCH)


def test_auto_compares_engines_for_a_fixed_table_that_is_not_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "AUTO", ("counting", "reference"))
    engine = open_engine("auto", TABLE)
    assert isinstance(engine, FastestOf)
    assert engine.name == "counting or reference"
    assert [engine.match(BATCH) for _ in range(3)] == [EXPECTED] * 3
    assert np.array_equal(engine.match(BATCH, filters=True).counts, EXPECTED.counts)
    assert open_engine("auto", TABLE, live=True).name == "reference", "counting takes no changes"
    monkeypatch.setattr(registry, "MOST_COMPARED", TABLE.n_filters - 1)
    assert open_engine("auto", TABLE).name == "counting"
