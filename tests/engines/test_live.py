"""Every engine while its table changes: those that take changes agree with the model, the others refuse changes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from engine_names import every_engine, refuses
from hypothesis import Phase
from live_machine import run_machine
from random_tables import SHAPES, random_subscriptions

from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Area, Change, Filter, match_naive, matches
from mpi_match.table.table import Table

EXAMPLES, STEPS = 12, 20


@every_engine
def test_subscribe_move_unsubscribe_and_match_in_any_order(name: str) -> None:
    if not refuses(name):
        run_machine(name, EXAMPLES, STEPS)


@every_engine
def test_conditions_come_and_go_in_any_order(name: str) -> None:
    if not refuses(name):
        run_machine(name, EXAMPLES // 2, STEPS // 2, with_conditions=True)


@every_engine
def test_filters_of_many_names_are_added_and_removed(name: str) -> None:
    """Those that are known by several of their names together (`hash_grid`), in larger numbers than the machine has."""
    if refuses(name):
        return
    filters, events = random_subscriptions(3, replace(SHAPES["areas and three names"], n_filters=900, n_events=60))
    filters = [item._replace(id=str(i)) for i, item in enumerate(filters)]
    at_first, later = filters[:300], filters[300:]
    live, refused = LiveTable(Table.from_filters(at_first), expected=later), list[Refusal]()
    engine = open_engine(name, live.table, live=True)
    batch = Events.of(events).encode(live.vocabulary)
    gone = [ChangeRow(Change.REMOVE, str(i)) for i in range(0, 900, 4)]
    for rows in ([ChangeRow(Change.ADD, filters=(item,)) for item in later], gone):
        changes = live.apply(rows, refused)
        assert changes is not None
        engine.update(changes)
    assert not refused
    left = [item for i, item in enumerate(filters) if i % 4]
    answers, labels = engine.match(batch), live.registry.labels
    for i, event in enumerate(events):
        assert sorted((labels[each] for each in answers[i].tolist()), key=str.encode) == match_naive(left, event)


def crowd(rng: np.random.Generator, contents: list[Filter], n: int) -> list[ChangeRow]:
    """Changes of few names and labels, so that most are about what those before them have left; some cannot be done."""
    rows = []
    for kind in rng.choice(list(Change), n, p=[0.3, 0.4, 0.2, 0.08, 0.02]).tolist():
        name, label = str(rng.integers(60)), f"i{rng.integers(12)}"
        if kind == Change.ADD:
            item = contents[rng.integers(len(contents))]
            rows.append(ChangeRow(Change.ADD, filters=(item._replace(id=name, interface=label),)))
        elif kind == Change.REMOVE_INTERFACE:
            rows.append(ChangeRow(Change.REMOVE_INTERFACE, label))
        else:
            x, y = rng.integers(0, 9, 2).astype(float).tolist() if kind == Change.MOVE else (0.0, 0.0)
            area = Area(x, y, 2.0) if kind == Change.MOVE else None
            rows.append(ChangeRow(Change(kind), name, area))
    return rows


@every_engine
@pytest.mark.parametrize("seed", range(3))
def test_many_changes_at_once_equal_the_same_one_by_one(name: str, seed: int) -> None:
    """Filters are added, moved and removed in one call, and their ids, slots and words are reused in it."""
    if refuses(name):
        return
    contents, events = random_subscriptions(seed, replace(SHAPES["areas and three names"], n_filters=80, n_events=40))
    at_first = [item._replace(id=str(i), interface=f"i{i % 12}") for i, item in enumerate(contents[:30])]
    live, rng = LiveTable(Table.from_filters(at_first), expected=contents), np.random.default_rng(seed)
    at_once, one_by_one = (open_engine(name, live.table, live=True) for _ in range(2))
    batch = Events.of(events).encode(live.vocabulary)
    for n in (400, 30):
        changes = live.apply(crowd(rng, contents, n), [])
        assert changes is not None
        assert n / 4 < len(changes) < n, "some can be done and some cannot"
        at_once.update(changes)
        for i in range(len(changes)):
            one_by_one.update(changes[i : i + 1])
        filters = dict(live.filters())
        found = [engine.match(batch, filters=True) for engine in (at_once, one_by_one)]
        for i, event in enumerate(events):
            expected = [each for each, item in filters.items() if matches(item, event)]
            assert [answers[i].tolist() for answers in found] == [expected, expected]


def test_some_engines_take_changes_and_some_do_not() -> None:
    assert not refuses("reference")
    assert refuses("counting")


def test_the_machine_finds_an_engine_that_forgets_to_remove(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets to remove is found out."""
    from mpi_match.engines.reference import Reference

    update = Reference.update

    def forgetful(engine: Reference, changes: Changes) -> None:
        removes = changes.kind == Change.REMOVE
        for i in range(len(changes)):
            if not removes[i]:
                update(engine, changes[i : i + 1])
        engine._n_filters, engine._n_interfaces = changes.n_filters, changes.n_interfaces

    monkeypatch.setattr(Reference, "update", forgetful)
    with pytest.raises(AssertionError):
        run_machine("reference", 100, STEPS, phases=(Phase.generate,), report_multiple_bugs=False)


NOTHING_NEW = """
import gc
from numba.core.dispatcher import Dispatcher
from mpi_match.changes.changes import Change
from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.changes.live_table import LiveTable
from mpi_match.model import Area, make_event, make_filter
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.table.table import Table

def compiled():
    return sum(len(each.overloads) for each in gc.get_objects() if isinstance(each, Dispatcher))

filters = [
    make_filter(f"i{i % 3}", [["x", ">", i], ["y", "=", "a"]], [i, 0, 1] if i % 2 else None)._replace(id=f"f{i}")
    for i in range(9)
]
live = LiveTable(Table.from_filters(filters))
engine = open_engine("keyed", live.table, live=True)
event = Events.of([make_event({"x": 4, "y": "a"}, (3, 0))]).encode(live.table.vocabulary)
before = compiled()
for row in (
    ChangeRow(Change.MOVE, target="f3", area=Area(3.0, 0.0, 2.0)),
    ChangeRow(Change.ADD, filters=(filters[1]._replace(id="f9"),)),
    ChangeRow(Change.REMOVE, target="f2"),
    ChangeRow(Change.REMOVE, target="f9"),
    ChangeRow(Change.REMOVE_INTERFACE, target="i1"),
):
    refused = []
    engine.update(live.apply([row], refused))
    engine.match(event)
    assert not refused
print(before > 20, compiled() - before)
"""


def test_the_first_changes_wait_for_no_compiler() -> None:
    """In a process of its own, where nothing was compiled before."""
    done = subprocess.run([sys.executable, "-c", NOTHING_NEW], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "0"], done.stderr
