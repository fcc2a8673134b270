"""An exception at any step of an update leaves a matcher as before it or after it, and one of a match leaves it as it was.

Every engine that takes changes.  Steps are drawn at random from all lines and calls, with a seed; `thorough` draws fifty
times as many.
"""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from interrupting import Interrupt, Steps, raised_at
from live_machine import Naive

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import EngineError, open_engine
from mpi_match.ingest.rows.judge import change_of_row
from mpi_match.live import LiveMatcher
from mpi_match.model import Filter, ModelError, make_event, match_naive

Row = dict[str, Any]
ERRORS = (Interrupt, MemoryError, RuntimeError)
LIVE: Sequence[tuple[str, dict[str, object]]] = (
    ("reference", {}),
    ("keyed", {}),
    ("tagmatch", {"variant": "cpu"}),
    ("tagmatch", {"variant": "prefix-tree", "staged": 3}),
)
every_live_engine = pytest.mark.parametrize(("engine", "options"), LIVE, ids=lambda given: str(given) if given else "")


def n_drawn(n: int) -> int:
    profile = settings.default
    assert profile is not None
    return n * max(profile.max_examples // 60, 1)


class Changing:
    """Rows of subscriptions, changes and events, at random: tag sets, or anything."""

    def __init__(self, seed: int, *, tags: bool) -> None:
        self.random, self._tags, self._n = random.Random(seed), tags, 0

    def subscription(self, *, new: bool = False) -> Row:
        """A row; with `new`, its operands are new, or its names."""
        self._n += 1
        pick = self.random.randrange
        names = [f"n{self._n if new else pick(8)}" for _ in range(1 if new else 1 + pick(2))]
        if self._tags:
            constraints: list[list[Any]] = [[name, "exists"] for name in {*names, f"n{pick(8)}"}]
        else:
            constraints = [
                [name, "=", pick(3)] if pick(2) else [name, ">", self._n + 0.5 if new else pick(3)] for name in names
            ]
        row: Row = {"interface": f"i{pick(12)}", "constraints": constraints, "id": f"f{self._n}"}
        return row if self._tags or pick(2) else row | {"area": [pick(4), pick(4), 2]}

    def change(self, there: Sequence[Filter]) -> Row:
        pick = self.random.randrange
        kind = pick(10)
        if kind < 4 or not there:
            return {"add": self.subscription(new=kind == 0 and not pick(3))}
        item = there[pick(len(there))]
        if kind < 6:
            return {"move": item.id, "area": [pick(4), pick(4), 1 + pick(2)]}
        return (
            {"remove": item.id} if kind < 8 else {"consolidate": True} if kind < 9 else {"remove_interface": item.interface}
        )

    def event(self) -> Row:
        pick = self.random.randrange
        return {f"n{pick(8)}": pick(4) for _ in range(4)} | {"x": pick(4), "y": pick(4)}


def told(found: Sequence[Filter]) -> list[str]:
    """Filters as texts, sorted; the constraints of a filter have no order."""
    return sorted(f"{sorted(map(str, i.constraints))} {i.interface} {i.area} {i.id}" for i in found)


def check(matcher: LiveMatcher, there: Sequence[Filter], source: Changing) -> None:
    """The answers are those of the filters that are there."""
    rows = [source.event() for _ in range(4)]
    events = [make_event({k: v for k, v in row.items() if k not in "xy"}, (row["x"], row["y"])) for row in rows]
    expected = [match_naive(there, event) for event in events]
    assert matcher.match(rows, location="x,y") == expected
    assert [matcher.match_one(row, location="x,y") for row in rows] == expected


def interrupted(source: Changing, n_steps: int, call: Any) -> Steps:
    """Make a call, in which an error is raised at one of the steps, or behind the last."""
    error = source.random.choice(ERRORS)
    with suppress(error), raised_at(source.random.randrange(1, n_steps + 1), error("injected")) as steps:
        call()
    return steps


@every_live_engine
def test_an_update_takes_effect_as_a_whole_or_not_at_all(engine: str, options: dict[str, object]) -> None:
    source = Changing(1, tags=engine == "tagmatch")
    found = [source.subscription() for _ in range(40)]
    matcher = LiveMatcher(found, engine=engine, options=options, threads=2)
    naive, n_steps, n_before = Naive(list(matcher.filters())), 400, 0
    for _ in range(n_drawn(40)):
        rows = [source.change(naive.filters) for _ in range(source.random.randrange(1, 8))]
        after = Naive(naive.filters)
        for row in rows:
            after.apply(change_of_row(row, stamped=False))
        steps = interrupted(source, n_steps, lambda rows=rows: matcher.update(rows, rejects=[]))
        n_steps = max(steps.n, n_steps)
        if source.random.random() < 0.3:  # what puts it in order is interrupted, too
            interrupted(source, n_steps, lambda: matcher.match([source.event()], location="x,y"))
        there = told(list(matcher.filters()))
        assert there in (told(naive.filters), told(after.filters))
        n_before += there == told(naive.filters)
        naive = after if there == told(after.filters) else naive
        check(matcher, naive.filters, source)
    assert n_before > n_drawn(40) // 4, "most are interrupted"
    check(pickle.loads(pickle.dumps(matcher)), naive.filters, source)


@every_live_engine
def test_a_match_that_was_interrupted_changes_nothing(engine: str, options: dict[str, object]) -> None:
    source = Changing(2, tags=engine == "tagmatch")
    matcher = LiveMatcher([source.subscription() for _ in range(40)], engine=engine, options=options, threads=2)
    there, rows = list(matcher.filters()), [source.event() for _ in range(3)]
    for call in (lambda: matcher.match(rows, location="x,y"), lambda: matcher.match_one(rows[0], location="x,y")):
        with raised_at(None, Interrupt()) as steps:
            call()
        for _ in range(n_drawn(40)):
            interrupted(source, steps.n, call)
            check(matcher, there, source)


@every_live_engine
def test_an_engine_whose_update_was_interrupted_is_as_before_or_refuses(engine: str, options: dict[str, object]) -> None:
    source = Changing(3, tags=engine == "tagmatch")
    refused = 0
    for _ in range(n_drawn(20)):
        start = LiveMatcher([source.subscription() for _ in range(20)], engine="reference")
        live = LiveTable(start._live.table, expected=[*start.filters()])
        opened = open_engine(engine, live.table, live=True, threads=2, options=options)
        batch = start.batch([source.event() for _ in range(4)], location="x,y")
        before = opened.match(batch, filters=True)
        rows = [change_of_row(source.change([item for _, item in live.filters()]), stamped=False) for _ in range(4)]
        changes = live.apply(rows, [])
        if changes is None:
            continue
        after = open_engine(engine, live.table, live=True, threads=2, options=options)
        after.update(live.since())
        interrupted(source, 150, lambda e=opened, c=changes: e.update(c))
        try:
            answer = opened.match(batch, filters=True)
        except EngineError as error:
            refused += "open the engine again" in str(error)
        else:
            answers = (before, after.match(batch, filters=True))
            assert any(np.array_equal(answer.ids, o.ids) and np.array_equal(answer.offsets, o.offsets) for o in answers)
    assert refused


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
