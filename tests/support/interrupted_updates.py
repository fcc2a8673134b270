"""Exceptions at steps of updates and matches, drawn at random: what has to hold for every engine that takes changes."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from hypothesis import settings
from interrupting import Interrupt, Steps, raised_at
from live_machine import Naive

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import EngineError, open_engine
from mpi_match.ingest.rows.judge import change_of_row
from mpi_match.live import LiveMatcher
from mpi_match.model import Filter, make_event, match_naive

Row = dict[str, Any]
ERRORS = (Interrupt, MemoryError, RuntimeError)


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


def update_as_a_whole(engine: str, options: dict[str, object], n: int) -> None:
    """After n updates in which an error is raised, each is as before it or as after it."""
    source = Changing(1, tags=engine == "tagmatch")
    found = [source.subscription() for _ in range(40)]
    matcher = LiveMatcher(found, engine=engine, options=options, threads=2)
    naive, n_steps, n_before = Naive(list(matcher.filters())), 400, 0
    for _ in range(n_drawn(n)):
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
    assert n_before > n_drawn(n) // 4, "most are interrupted"
    check(pickle.loads(pickle.dumps(matcher)), naive.filters, source)


def match_that_was_interrupted(engine: str, options: dict[str, object], n: int) -> None:
    """After n matches in which an error is raised, answers are right."""
    source = Changing(2, tags=engine == "tagmatch")
    matcher = LiveMatcher([source.subscription() for _ in range(40)], engine=engine, options=options, threads=2)
    there, rows = list(matcher.filters()), [source.event() for _ in range(3)]
    for call in (lambda: matcher.match(rows, location="x,y"), lambda: matcher.match_one(rows[0], location="x,y")):
        with raised_at(None, Interrupt()) as steps:
            call()
        for _ in range(n_drawn(n)):
            interrupted(source, steps.n, call)
            check(matcher, there, source)


def engine_as_before_or_refuses(engine: str, options: dict[str, object], n: int) -> None:
    """Of n engines whose update an error ends each answers as before it or after it, or refuses."""
    source = Changing(3, tags=engine == "tagmatch")
    refused = 0
    for _ in range(n_drawn(n)):
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
