"""Tag tables for tests: filters that ask for names only, and events that have some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from live_machine import LiveMachine, Naive

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import Engine, open_engine
from mpi_match.engines.tagmatch.engine import TagMatch
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, Event, Filter, make_event, make_filter, match_naive, matches
from mpi_match.table.table import Table

TAGS = ("a", "ab", "b", "", "é", "a\0", "\U0001f600", "tags", ".a", ".ab", ".", ".é")
UNUSED = ("no set has this", "z", ".z")

tags = st.lists(st.sampled_from(TAGS), max_size=6)


def tag_filter(interface: str, names: list[str], id_: str | None = None) -> Filter:
    """Names, or, where they begin with a dot, elements of the list "tags"."""
    return make_filter(interface, [["tags", "has", n[1:]] if n[:1] == "." else [n, "exists"] for n in names], id_=id_)


def tag_event(names: Iterable[str]) -> Event:
    """An event with some names and elements of that list."""
    listed = [name[1:] for name in names if name[:1] == "."]
    values: dict[str, object] = {name: 1 for name in names if name[:1] != "."}
    return make_event(values | ({"tags": listed} if listed else {}))


tag_filters = st.builds(tag_filter, st.sampled_from(("a", "b", "10", "9", "é", "")), tags)
"""Small sets with repeated tags, and empty ones."""
tag_events = st.lists(st.sampled_from([name for name in TAGS + UNUSED if name != "tags"]), unique=True).map(tag_event)


def random_tags(seed: int, n_filters: int, n_events: int, n_tags: int = 40) -> tuple[list[Filter], list[Event]]:
    """Filters of up to four tags, some of them equal, on 17 interfaces; events of up to 14 tags."""
    rng = np.random.default_rng(seed)
    names = [f"t{i}" for i in range(n_tags)]

    def some(least: int, most: int) -> list[str]:
        found: list[str] = rng.choice(names, rng.integers(least, min(most, n_tags) + 1), replace=False).tolist()
        return found

    filters = [tag_filter(f"i{i % 17}", some(0 if i % 100 == 0 else 1, 4)) for i in range(n_filters)]
    return filters, [make_event(dict.fromkeys(some(0, 14), 1)) for _ in range(n_events)]


def assert_agrees(filters: Sequence[Filter], events: Sequence[Event | None], **options: Any) -> Engine:
    """Interfaces as `match_naive` gives them, filters as `matches` does."""
    table = Table.from_filters(filters)
    engine = open_engine("tagmatch", table, options=options)
    batch = Events.of(events).encode(table.vocabulary)
    found = engine.match(batch).labels(table.labels)
    assert found == [[] if event is None else match_naive(filters, event) for event in events]
    kept = list(table.iter_filters())
    expected = [[i for i, item in enumerate(kept) if event is not None and matches(item, event)] for event in events]
    answers = engine.match(batch, filters=True)
    assert [answers[i].tolist() for i in range(len(answers))] == expected
    assert answers.n_ids == table.n_filters
    return engine


class LiveTags(LiveMachine):
    """The machine of `live_machine` on tag tables; `options` are the engine's."""

    engine = "tagmatch"
    options: ClassVar[Mapping[str, Any]] = {}

    @initialize(found=st.lists(tag_filters, max_size=6), pool=st.lists(tag_filters, min_size=1, max_size=4))
    def begin(self, found: list[Filter], pool: list[Filter]) -> None:
        self.pool = [*found, *pool]
        self.naive = Naive(found)
        self.live = LiveTable(Table.from_filters(found), expected=pool)
        self.kept: list[tuple[Matches, list[int]]] = []
        self.opened = self.open()

    def open(self) -> Engine:
        return open_engine(self.engine, self.live.table, live=True, options=self.options)

    @rule(item=tag_filters)
    def surprise(self, item: Filter) -> None:
        self.pool.append(item)
        self.update([ChangeRow(Change.ADD, filters=(item._replace(id=None),))])

    @rule()
    def consolidate(self) -> None:
        self.update([ChangeRow(Change.CONSOLIDATE)])
        assert isinstance(self.opened, TagMatch)
        assert len(self.opened.tags_of_sets[0]) - 1 == self.opened.n_sets
