"""The index of tag sets on a GPU: the answers of the naive matcher, of interfaces, masks of them, and filters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from judge import KINDS
from tag_tables import random_tags

from mpi_match.engines import open_engine
from mpi_match.engines.keyed import cuda as keyed_cuda
from mpi_match.engines.keyed import cuda_slot
from mpi_match.engines.keyed.cuda import KeyedCuda
from mpi_match.engines.keyed.kernels import tag_sets
from mpi_match.engines.keyed.tag_sets import index
from mpi_match.events.events import Events
from mpi_match.gpu import warp
from mpi_match.model import Event, Filter, make_event, make_filter, match_naive, matches
from mpi_match.table.table import Table


@pytest.fixture(autouse=True, scope="module")
def few_sets_are_many() -> Iterator[None]:
    """The index is that of large tables; here it is that of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "MANY_SETS", 0)
        yield


def check(filters: list[Filter], events: list[Event | None], kind: str) -> None:
    """Compare answers with the model's."""
    table = Table.from_filters(filters)
    engine = open_engine("keyed_cuda", table)
    assert isinstance(engine, KeyedCuda)
    assert engine._sets is not None
    batch = Events.of(events).encode(table.vocabulary)
    found = engine.match(batch, filters=kind == "filters")
    if kind == "filters":
        kept = list(table.iter_filters())
        expected = [[i for i, item in enumerate(kept) if event is not None and matches(item, event)] for event in events]
        assert [found[i].tolist() for i in range(len(found))] == expected
    else:
        assert found.labels(table.labels) == [[] if event is None else match_naive(filters, event) for event in events]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_naive_matcher(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "list":
        monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    filters, events = random_tags(3, 80, 14, n_tags=12)
    check([*filters, make_filter("everything")], [*events, None, make_event({})], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_long_buckets_are_compared_by_a_warp_together(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets with the same rarest tags are in one bucket; some events have more such buckets than the queue has places."""
    if kind == "list":
        monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    appended, append_together = list[tuple[Any, ...]](), warp.append_together

    def noted(*args: Any) -> None:
        appended.append(args)
        append_together(*args)

    monkeypatch.setattr(tag_sets, "append_together", noted)
    tag_sets.tag_set_kernel.cache_clear()
    rare, frequent = [f"r{i}" for i in range(5)], [f"t{i}" for i in range(6)]
    filters = [
        make_filter(f"i{i % 70}", [[name, "exists"] for name in (*three, *frequent[: 1 + i % 6])])
        for i, three in enumerate([*combinations(rare, 3)] * 6)
    ]
    check(filters, [make_event(dict.fromkeys([*rare, *frequent[:n]], 1)) for n in (6, 3)], kind)
    check(filters, [make_event(dict.fromkeys([*rare[:3], *frequent[:n]], 1)) for n in (6, 3)], kind)
    assert len(appended) > 24 or kind == "mask"
    tag_sets.tag_set_kernel.cache_clear()


@pytest.mark.parametrize("kind", ["list", "filters"])
def test_no_warp_sorts_many_answers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work grows faster than the answers do; with the 120,000 of an event, it took a tenth of a second."""
    monkeypatch.setattr(keyed_cuda, "FEW_INTERFACES", 0)
    lengths, sort = list[int](), warp.sort

    def noted(ids: Any, first: int, n: int) -> None:
        lengths.append(n)
        sort(ids, first, n)

    monkeypatch.setattr(warp, "sort", noted)
    monkeypatch.setattr(cuda_slot, "SHARING_WARPS", 1)
    filters = [make_filter(f"i{i}", [[name, "exists"] for name in ("a", "b", f"c{i % 3}")]) for i in range(60)]
    filters += [make_filter(f"d{i}", [["d", "exists"]]) for i in range(3)]
    events = [make_event(dict.fromkeys(("a", "b", *(f"c{i}" for i in range(n))), 1)) for n in (0, 1, 2, 3)]
    check(filters, [*events, make_event({"d": 1})], kind)
    assert lengths, "some are sorted by a warp"
    assert max(lengths) <= 3, "SORTED_ANSWERS of `conftest`"


def test_filters_with_an_interface_each_need_no_interfaces() -> None:
    filters = [make_filter(f"{i:02}", [[f"t{k}", "exists"] for k in {i % 5, i % 7, i % 3}]) for i in range(70)]
    sets = index.TagSetIndex.of(Table.from_filters(filters))
    assert sets is not None
    assert not len(sets.interface)
    check(filters, [make_event(dict.fromkeys([f"t{k}" for k in range(n)], 1)) for n in (7, 5, 1)], "list")


@pytest.mark.parametrize("few", [0, 24])
def test_events_of_many_tags_form_triples_or_look_at_all_sets(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tag_sets, "FEW_TAGS", few)
    tag_sets.tag_set_kernel.cache_clear()
    names = [f"t{i}" for i in range(34)]
    rng = np.random.default_rng(5)
    drawn = [rng.choice(names, rng.integers(3, 6), replace=False).tolist() for _ in range(30)]
    filters = [make_filter(f"i{i}", [[name, "exists"] for name in each]) for i, each in enumerate(drawn)]
    check(filters, [make_event(dict.fromkeys(names[:n], True)) for n in (34, 20)], "filters")
    tag_sets.tag_set_kernel.cache_clear()
