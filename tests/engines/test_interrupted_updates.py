"""An exception at any step of an update leaves a matcher as before it or after it, and one of a match leaves it as it was.

Every engine that takes changes.  Steps are drawn at random from all lines and calls, with a seed; `thorough` draws fifty
times as many.
"""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from interrupted_updates import (
    Changing,
    check,
    engine_as_before_or_refuses,
    match_that_was_interrupted,
    told,
    update_as_a_whole,
)
from live_machine import Naive

from mpi_match.engines import EngineError
from mpi_match.ingest.rows.judge import change_of_row
from mpi_match.live import LiveMatcher
from mpi_match.model import ModelError

LIVE: Sequence[tuple[str, dict[str, object]]] = (
    ("reference", {}),
    ("keyed", {}),
    ("tagmatch", {"variant": "cpu"}),
    ("tagmatch", {"variant": "prefix-tree", "staged": 3}),
)
every_live_engine = pytest.mark.parametrize(("engine", "options"), LIVE, ids=lambda given: str(given) if given else "")


@every_live_engine
def test_an_update_takes_effect_as_a_whole_or_not_at_all(engine: str, options: dict[str, object]) -> None:
    update_as_a_whole(engine, options, 40)


@every_live_engine
def test_a_match_that_was_interrupted_changes_nothing(engine: str, options: dict[str, object]) -> None:
    match_that_was_interrupted(engine, options, 40)


@every_live_engine
def test_an_engine_whose_update_was_interrupted_is_as_before_or_refuses(engine: str, options: dict[str, object]) -> None:
    engine_as_before_or_refuses(engine, options, 20)


def test_changes_that_an_engine_refuses_are_taken_back() -> None:
    matcher = LiveMatcher(
        [{"interface": "a", "constraints": [["x", "exists"]]}], engine="tagmatch", options={"variant": "cpu"}
    )
    engine = matcher.engine
    with pytest.raises(EngineError, match="tagmatch"):
        matcher.update([{"add": {"interface": "b", "constraints": [["x", "absent"]]}}, {"remove_interface": "a"}])
    assert matcher.match([{"x": 1}]) == [["a"]]
    assert matcher.engine is engine, "which had not begun"
    matcher.update({"add": {"interface": "b", "constraints": [["x", "exists"]]}})
    assert matcher.match([{"x": 1}]) == [["a", "b"]]


def test_an_engine_that_cannot_be_opened_again_refuses_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = LiveMatcher([{"interface": "a", "constraints": [["x", "=", 1]], "id": "a"}], engine="reference")
    with monkeypatch.context() as patch:
        patch.setattr(type(matcher.engine), "update", _no_memory)
        with pytest.raises(MemoryError):
            matcher.update({"remove": "a"})
    with monkeypatch.context() as patch:
        patch.setattr("mpi_match.live.open_engine", _no_device)
        for _ in range(2):
            with pytest.raises(EngineError, match="no device"):
                matcher.match([{"x": 1}])
            with pytest.raises(EngineError, match="no device"):
                matcher.update({"remove": "a"})
    assert matcher.match([{"x": 1}]) == [["a"]]
    with pytest.raises(ModelError, match="no filter has the id 'b'"):
        matcher.update({"remove": "b"})
    assert matcher.match([{"x": 1}]) == [["a"]]


def _no_memory(*_: Any) -> None:
    raise MemoryError


def _no_device(**_: Any) -> None:
    raise EngineError("no device")


SIGNALS = """
import random, signal, time
from mpi_match import make_table, open_engine
from mpi_match.changes.live_table import LiveTable
from mpi_match.ingest.rows.judge import change_of_row

def interrupt(*_):
    raise KeyboardInterrupt

rows = [{"interface": f"i{i}", "constraints": [["k", "=", i % 50]], "id": f"b{i}"} for i in range(200)]
live = LiveTable(make_table(rows))
filters = open_engine("keyed", live.table, live=True).live_filters
changes = live.apply([change_of_row({"consolidate": True}, stamped=False)], [])
signal.signal(signal.SIGALRM, interrupt)
draw, n, end = random.Random(0), 0, time.monotonic() + 3
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 4e-4))
        for _ in range(20):
            filters.update(changes)
    except KeyboardInterrupt:
        n += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(n > 100)
"""


def test_signals_reach_compiled_code_between_its_steps_only() -> None:
    """Numba takes no care of an interrupt while it makes an array that compiled code returns: null pointers, SystemError."""
    done = subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@every_live_engine
def test_a_copy_goes_its_own_way(engine: str, options: dict[str, object]) -> None:
    source = Changing(4, tags=engine == "tagmatch")
    matcher = LiveMatcher([source.subscription() for _ in range(30)], engine=engine, options=options)
    pair = [(matcher, Naive(list(matcher.filters())))]
    takes: list[Callable[[LiveMatcher], LiveMatcher]] = [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), copy.copy]
    for take in takes:
        pair.append((take(matcher), Naive(pair[0][1].filters)))
        for each, naive in pair:
            rows = [source.change(naive.filters) for _ in range(12)]
            each.update(rows, rejects=[])
            for row in rows:
                naive.apply(change_of_row(row, stamped=False))
        for each, naive in pair:
            assert told(list(each.filters())) == told(naive.filters)
            check(each, naive.filters, source)
