"""`keyed` on tables of tag sets: the same answers as the naive matcher, from an index of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tag_tables import TAGS, random_tags, tag_events, tag_filters

from mpi_match.engines import open_engine
from mpi_match.engines.keyed import answers
from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.engines.keyed.tag_sets import index, search
from mpi_match.events.events import Events
from mpi_match.model import Event, Filter, make_event, make_filter, match_naive, matches
from mpi_match.table.table import Table


@pytest.fixture(autouse=True, scope="module")
def few_sets_are_many() -> Iterator[None]:
    """The index is that of large tables; here it is that of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "MANY_SETS", 0)
        yield


def test_small_tables_have_the_trie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MANY_SETS", 3)
    assert index.TagSetIndex.of(Table.from_filters([make_filter("i"), make_filter("j")])) is None


def check(filters: Sequence[Filter], events: Sequence[Event | None], threads: int = 2) -> Keyed:
    """Compare interfaces and filters with the model's."""
    table = Table.from_filters(filters)
    engine = open_engine("keyed", table, threads=threads)
    assert isinstance(engine, Keyed)
    batch = Events.of(events).encode(table.vocabulary)
    found = engine.match(batch).labels(table.labels)
    assert found == [[] if event is None else match_naive(filters, event) for event in events]
    kept = list(table.iter_filters())
    found_filters = engine.match(batch, filters=True)
    expected = [[i for i, item in enumerate(kept) if event is not None and matches(item, event)] for event in events]
    assert [found_filters[i].tolist() for i in range(len(found_filters))] == expected
    return engine


@given(st.lists(tag_filters, max_size=12), st.lists(tag_events | st.none(), max_size=6))
def test_answers_are_those_of_the_naive_matcher(filters: list[Filter], events: list[Event | None]) -> None:
    check(filters, events)


def test_tags_of_lists_and_presence_of_attributes_mix() -> None:
    more: list[list[Any]] = [[], *([["t", "has", i], ["a", "exists"]] for i in range(1, 4))]
    filters = [make_filter(f"{tag}{i}", [["tags", "has", tag], *others]) for tag in TAGS for i, others in enumerate(more)]
    events = [make_event({"tags": list(TAGS[k:]), "t": [1, k], "a": k}) for k in range(len(TAGS))]
    assert check(filters, [*events, make_event({"tags": "a", "t": 2})]).candidates > 0


def test_many_sets_and_answers_beyond_the_first_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "CPU_ANSWER_ROOM", 0)
    filters, events = random_tags(3, 3000, 250)
    assert check(filters, events).candidates > 1000


def test_events_of_many_tags_look_at_no_more_sets_than_there_are() -> None:
    names = [f"t{i}" for i in range(90)]
    rng = np.random.default_rng(5)
    sets = [rng.choice(names, rng.integers(1, 7), replace=False).tolist() for _ in range(400)]
    filters = [make_filter(f"i{i % 7}", [[name, "exists"] for name in each]) for i, each in enumerate(sets)]
    events = [make_event(dict.fromkeys(names[:n], True)) for n in (90, 64, 25, 24, 3, 0)]
    engine = check(filters, events)
    assert engine.candidates <= 2 * len(events) * len(filters)


def test_sets_whose_hashes_are_equal_are_compared_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of a Bloom filter and the hash in a record only say where to look."""
    filters, events = random_tags(7, 300, 40, n_tags=9)
    table = Table.from_filters(filters)
    sets = index.TagSetIndex.of(table)
    assert sets is not None
    everything = np.full(len(sets.bits), 2**64 - 1, np.uint64)
    engine = open_engine("keyed", table)
    assert isinstance(engine, Keyed)
    assert engine._tag_sets is not None
    engine._tag_sets._arrays = search.SetArrays(*{**vars(sets), "bits": everything}.values())
    batch = Events.of(events).encode(table.vocabulary)
    assert engine.match(batch).labels(table.labels) == [match_naive(filters, event) for event in events]


@pytest.mark.parametrize(
    "rows", [[["a", "absent"]], [["a", "=", 1]], [["a", "any <", 1]], [[f"t{i}", "exists"] for i in range(300)]]
)
def test_other_tables_have_the_general_index(rows: list[list[Any]]) -> None:
    filters = [make_filter("i", rows), make_filter("j", [["a", "exists"]])]
    assert index.TagSetIndex.of(Table.from_filters(filters)) is None


def test_a_set_takes_few_bytes() -> None:
    rng = np.random.default_rng(1)
    filters = [
        make_filter(str(i), [["tags", "has", int(tag)] for tag in rng.choice(2**15, 4, replace=False)])
        for i in range(20_000)
    ]
    sets = index.TagSetIndex.of(Table.from_filters(filters))
    assert sets is not None
    assert sets.nbytes - sets.tag.nbytes < 29 * len(filters)


def test_no_sets_and_no_tags() -> None:
    check([], [make_event({"a": 1})])
    check([make_filter("everything")], [make_event({"a": 1}), make_event({}), None])
