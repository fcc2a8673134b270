"""Subscribe, move, unsubscribe and match in any order: a hypothesis state machine that holds an engine to the model.

Two implementations run side by side.  The naive one edits a list of filters (`Naive`) and calls `match_naive`.  In the other
a `LiveTable` assigns ids and updates an engine.  Filters come from a small pool, so equal ones exist side by side, are
removed, and are added again; events are aimed at the whole pool, so also at removed filters: a stale entry would match.

Most added filters have only operands of the pool, which the vocabulary has from the beginning.  Some do not; then the live
table requires the engine to be opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from strategies import areas, events, filters, subscriptions

from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.engines import Engine, open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, Event, Filter, match_naive, matches
from mpi_match.table.table import Table

IDS = ("first", "7", "é", "taxi", "")
LABELS = ("a", "b", "10", "9", "é", "", "new", "newer")
REFUSAL = "serves tables that do not change"


class Naive:
    """The meaning of changes, on a list of filters."""

    def __init__(self, found: Sequence[Filter]) -> None:
        self.filters = list(found)

    def apply(self, change: ChangeRow) -> bool:
        """Apply a change; returns False, and changes nothing, when it cannot be applied."""
        named = [item for item in self.filters if item.id == change.target]
        match change.kind:
            case Change.MOVE:
                if not named or any(item.area is None for item in named):
                    return False
                self.filters = [i._replace(area=change.area) if i.id == change.target else i for i in self.filters]
            case Change.ADD:
                if {item.id for item in change.filters if item.id is not None} & {item.id for item in self.filters}:
                    return False
                self.filters += change.filters
            case Change.REMOVE:
                self.filters = [item for item in self.filters if item.id != change.target]
                return bool(named)
            case Change.REMOVE_INTERFACE:
                kept = [item for item in self.filters if item.interface != change.target]
                done = len(kept) < len(self.filters)
                self.filters = kept
                return done
        return True


@st.composite
def change_rows(draw: st.DrawFn, source: st.SearchStrategy[Filter] | None = None) -> ChangeRow:
    """Any change, whether it can be done or not; filters that come are those of `source`, under any label and id."""
    kind, stamp = draw(st.sampled_from((*Change, Change.ADD))), draw(st.integers(0, 6))
    if kind is Change.ADD:
        one = filters(max_constraints=3) if source is None else source
        some = draw(st.lists(one, min_size=source is not None, max_size=2))
        label, name = draw(st.sampled_from(LABELS)), draw(st.none() | st.sampled_from(IDS))
        return ChangeRow(kind, filters=tuple(i._replace(interface=label, id=name) for i in some), before_event=stamp)
    target = draw(st.sampled_from(LABELS if kind is Change.REMOVE_INTERFACE else IDS))
    return ChangeRow(kind, target, draw(areas()) if kind is Change.MOVE else None, before_event=stamp)


class LiveMachine(RuleBasedStateMachine):
    """`engine` is the name of the engine that is held to the model."""

    engine: str
    with_conditions = False

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        found = data.draw(subscriptions(max_filters=6, max_constraints=3, with_conditions=self.with_conditions))
        one = filters(max_constraints=3, with_conditions=self.with_conditions)
        pool = data.draw(st.lists(one, min_size=1, max_size=4))
        self.pool = [*found, *pool]
        self.naive = Naive(found)
        self.live = LiveTable(Table.from_filters(found), expected=pool)
        self.kept: list[tuple[Matches, list[int]]] = []
        self.opened = self.open()

    def open(self) -> Engine:
        return open_engine(self.engine, self.live.table, live=True)

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """One to six changes at once."""
        self.update(data.draw(st.lists(change_rows(st.sampled_from(self.pool)), min_size=1, max_size=6)))

    @rule(data=st.data())
    def surprise(self, data: st.DataObject) -> None:
        """A filter that may need a larger vocabulary."""
        item = data.draw(filters(max_constraints=3, with_conditions=self.with_conditions))
        self.pool.append(item)
        self.update([ChangeRow(Change.ADD, filters=(item._replace(id=None),))])

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A filter, or its interface, goes, and what it asked for is published."""
        if self.naive.filters:
            item = data.draw(st.sampled_from(self.naive.filters))
            if item.id is not None and data.draw(st.booleans()):
                self.update([ChangeRow(Change.REMOVE, item.id)])
            else:
                self.update([ChangeRow(Change.REMOVE_INTERFACE, item.interface)])
            self.judge(data.draw(st.lists(events(aimed_at=[item]), min_size=1, max_size=4)))

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        """A filter goes, and an equal one comes in the same breath."""
        named = [item for item in self.naive.filters if item.id is not None]
        if named:
            item = data.draw(st.sampled_from(named))
            again = ChangeRow(Change.ADD, filters=tuple(each for each in self.naive.filters if each.id == item.id))
            self.update([ChangeRow(Change.REMOVE, str(item.id)), again])

    def update(self, rows: list[ChangeRow]) -> None:
        refused: list[Refusal] = []
        changes = self.live.apply(rows, refused)
        assert {item.place for item in refused} == {i for i, row in enumerate(rows) if not self.naive.apply(row)}
        if changes is None:
            self.opened = self.open()
            changes = self.live.since()
        self.opened.update(changes)

    @rule(data=st.data())
    def match(self, data: st.DataObject) -> None:
        self.judge(data.draw(st.lists(events(aimed_at=self.pool), min_size=1, max_size=4)))

    def judge(self, judged: list[Event]) -> None:
        """Interfaces and filters of some events, as the model has them."""
        batch = Events.of(judged).encode(self.live.vocabulary)
        answers = self.opened.match(batch)
        labels = self.live.registry.labels
        found = [sorted((labels[i] for i in answers[e]), key=str.encode) for e in range(len(judged))]
        assert found == [match_naive(self.naive.filters, event) for event in judged]
        assert answers.n_ids == self.live.registry.n_interfaces
        self.kept.append((answers, answers.ids.tolist()))
        there = list(self.live.filters())
        answers = self.opened.match(batch, filters=True)
        assert [answers[e].tolist() for e in range(len(judged))] == [
            [i for i, item in there if matches(item, event)] for event in judged
        ]
        assert answers.n_ids == self.live.registry.n_filters

    def teardown(self) -> None:
        for answers, ids in getattr(self, "kept", ()):
            assert np.array_equal(answers.ids, ids), "later changes reach into earlier answers"


def run_machine(engine: str, examples: int, steps: int, *, with_conditions: bool = False, **how: Any) -> None:
    """Run the machine for an engine, fifty times as long under the profile `thorough`; `how` are settings of hypothesis."""
    of_engine = {"engine": engine, "with_conditions": with_conditions}
    run_machine_of(type(f"Live_{engine}", (LiveMachine,), of_engine), examples, steps, **how)


def run_machine_of(machine: type[LiveMachine], examples: int, steps: int, **how: Any) -> None:
    """The same for a machine."""
    profile = settings.default
    assert profile is not None
    budget = examples * max(profile.max_examples // 60, 1)
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    budgeted = settings(max_examples=budget, stateful_step_count=steps, suppress_health_check=slow, deadline=None, **how)
    run_state_machine_as_test(machine, settings=budgeted)
