"""Placements: groups of workers, a table divided by work, and merged answers of a group's members."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tables import SHAPES, Shape, random_subscriptions

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import PART_INTERFACES, Changes
from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.cluster import ClusterError
from mpi_match.cluster.distribution.cost_model import work_of
from mpi_match.cluster.distribution.merge import merge
from mpi_match.cluster.distribution.partition import UNEVEN, divide, fewest_parts, groups_of
from mpi_match.cluster.distribution.shard import LocalIds, Shard, ShardEngine
from mpi_match.engines import open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.matches.matches import Matches
from mpi_match.model import Area, Change, Filter, make_event, make_filter
from mpi_match.table import range_reader
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table

# Groups


@pytest.mark.parametrize(
    ("n_workers", "placement", "n_groups", "groups"),
    [
        (3, "replicate", None, [[1], [2], [3]]),
        (3, "shard", None, [[1, 2, 3]]),
        (1, "shard", None, [[1]]),
        (6, "hybrid", 2, [[1, 2, 3], [4, 5, 6]]),
        (4, "hybrid", 4, [[1], [2], [3], [4]]),
        (4, "hybrid", 1, [[1, 2, 3, 4]]),
    ],
)
def test_groups(n_workers: int, placement: str, n_groups: int | None, groups: list[list[int]]) -> None:
    assert [list(group) for group in groups_of(n_workers, placement, n_groups)] == groups


@pytest.mark.parametrize(
    ("n_workers", "n_groups", "text"),
    [
        (3, 4, "3 workers cannot form 4 groups; ask for at most 3, or start more ranks"),
        (
            5,
            2,
            "5 workers cannot form 2 groups of one size; start 5 or 7 ranks, or ask for a number of groups that divides the "
            "workers",
        ),
    ],
)
def test_groups_that_cannot_be(n_workers: int, n_groups: int, text: str) -> None:
    with pytest.raises(ClusterError) as refused:
        groups_of(n_workers, "hybrid", n_groups)
    assert (str(refused.value), refused.value.exit_code) == (text, 2)


# Division

amounts = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=9)


@given(amounts=amounts, n_parts=st.integers(1, 4), most_bytes=st.integers(1, 40))
def test_no_other_division_is_better_balanced(amounts: list[tuple[int, int]], n_parts: int, most_bytes: int) -> None:
    """Exhaustive: no division within the limit has a smaller maximal load."""
    work, n_bytes = (np.array([each[i] for each in amounts], np.int64) for i in (0, 1))
    n = len(amounts)
    cuts = [
        (0, *cut, n)
        for cut in product(range(n + 1), repeat=n_parts - 1)
        if all(a <= b for a, b in pairwise((0, *cut, n)))
        and all(n_bytes[a:b].sum() <= most_bytes for a, b in pairwise((0, *cut, n)))
    ]
    bounds = divide(work.astype(np.float64), n_bytes, n_parts, most_bytes)
    least = fewest_parts(n_bytes, most_bytes)
    if not cuts:
        assert bounds is None
        assert least is None or least > n_parts
        return
    assert bounds is not None
    assert least is not None
    assert least <= n_parts
    assert tuple(bounds.tolist()) in cuts
    best = min(max(work[a:b].sum() for a, b in pairwise(cut)) for cut in cuts)
    assert max(work[a:b].sum() for a, b in pairwise(bounds.tolist())) == best


def test_work_is_divided_and_not_filters() -> None:
    work, n_bytes = np.repeat([10.0, 1.0], [100, 1000]), np.full(1100, 8)
    assert divide(work, n_bytes, 2) == pytest.approx([0, 100, 1100])
    assert divide(work, n_bytes, 2, most_bytes=600 * 8) == pytest.approx([0, 500, 1100])


def test_no_shard_takes_much_more_memory_than_the_mean() -> None:
    """Filters that are hardly ever verified still need memory."""
    work, n_bytes = np.repeat([1e6, 0.0], [4, 99_996]), np.full(100_000, 8)
    bounds = divide(work, n_bytes, 4)
    assert bounds is not None
    assert np.diff(bounds).max() == UNEVEN * 25_000


def test_fewest_parts() -> None:
    assert fewest_parts(np.array([5, 5, 5]), 10) == 2
    assert fewest_parts(np.array([5, 11, 5]), 10) is None
    assert fewest_parts(np.zeros(0, np.int64), 10) == 1


# Union


@given(
    members=st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=n, max_size=n), max_size=6).map(
            lambda events: [[event[i] for event in events] for i in range(n)]
        )
    )
)
def test_merged_answers_are_the_unions_of_the_members(members: list[list[list[int]]]) -> None:
    parts = [Matches.of(found, 300) for found in members]
    counts, ids = merge([(part.counts, part.ids) for part in parts])
    expected = Matches.of([[i for ids in found for i in ids] for found in zip(*members, strict=True)], 300)
    assert Matches(counts, ids, 300) == expected
    assert (counts.dtype, ids.dtype) == (expected.counts.dtype, expected.ids.dtype)


def test_answers_to_different_events_are_not_merged() -> None:
    one, two = (np.ones(n, np.uint8) for n in (1, 2))
    with pytest.raises(ValueError, match="did not answer for the same events"):
        merge([(one, one), (two, two)])
    with pytest.raises(ValueError, match="did not answer for the same events"):
        merge([(one, one), (one, two)])


# Parts


@given(data=st.data(), n_filters=st.integers(0, 12), n_members=st.integers(1, 4), n_came=st.integers(0, 9))
def test_every_filter_is_at_one_member_and_ids_ascend(
    data: st.DataObject, n_filters: int, n_members: int, n_came: int
) -> None:
    """Those of parts of conditions, the last `n_shared` of the table and one among those that came, are at all."""
    n_shared = data.draw(st.integers(0, n_filters))
    inner = st.lists(st.integers(0, n_filters - n_shared), min_size=n_members - 1, max_size=n_members - 1).map(sorted)
    cuts = [0, *data.draw(inner), n_filters - n_shared]
    ids = np.arange(n_filters + n_came, dtype=np.uint32)
    of_part = data.draw(st.integers(0, 8))
    came = Changes(
        kind=np.full(n_came, Change.ADD, np.uint8),
        target=ids[n_filters:],
        area=np.full((n_came, 3), np.nan),
        row=np.arange(n_came),
        interface=np.where(np.arange(n_came) == of_part, PART_INTERFACES, 0),
        added=None,
        n_filters=len(ids),
        n_interfaces=1,
    )
    at_all = {*range(n_filters - n_shared, n_filters), *([n_filters + of_part] if of_part < n_came else [])}
    found = []
    for member, (first, stop) in enumerate(pairwise(cuts)):
        local = LocalIds(Shard(member, n_members, first, stop, n_filters, n_shared))
        local.add(came)
        mine = ids[local.has(ids)]
        assert local.n_local == len(mine)
        assert local.to_local(mine).tolist() == list(range(len(mine)))
        assert np.array_equal(local.to_global(np.arange(len(mine), dtype=np.uint16)), mine)
        found.append(mine.tolist())
    assert all(at_all <= set(each) for each in found)
    assert sorted(i for each in found for i in each if i not in at_all) == sorted(set(ids.tolist()) - at_all)


ENGINES = ("reference", "counting", "keyed")


@pytest.fixture(scope="module", params=["every type", "areas", "negative", "one interface", "one interface each"])
def divided(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Table, EventBatch, list[Shard]]:
    """A table, events, and parts of it, of which one is empty; an interface straddles two."""
    filters, events = random_subscriptions(11, replace(SHAPES[request.param], n_filters=300, n_events=60))
    table = Table.from_filters(filters)
    cuts = [0, 70, 70, 201, 300]
    return (
        table,
        Events.of(events).encode(table.vocabulary),
        [Shard(i, 4, first, stop, 300) for i, (first, stop) in enumerate(pairwise(cuts))],
    )


@pytest.mark.parametrize("filters", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_parts_answer_together_as_the_whole(
    engine: str, filters: bool, divided: tuple[Table, EventBatch, list[Shard]]
) -> None:
    table, batch, parts = divided
    expected = open_engine("reference", table).match(batch, filters=filters)
    found = []
    for part in parts:
        own = open_engine(engine, table.take(np.arange(part.first, part.stop)), threads=1)
        answer = ShardEngine(own, part).match(batch, filters=filters)
        assert answer.n_ids == expected.n_ids
        found.append((answer.counts, answer.ids))
    counts, ids = merge(found)
    assert Matches(counts, ids, expected.n_ids) == expected
    assert (counts.dtype, ids.dtype) == (expected.counts.dtype, expected.ids.dtype)
    assert expected.n_matches > 0


@pytest.mark.parametrize("filters", [False, True])
@pytest.mark.parametrize("engine", ["reference", "keyed"])
def test_parts_change_together_as_the_whole(engine: str, filters: bool) -> None:
    """Random moves, additions and removals of filters, and removals of interfaces, between events."""
    rng = np.random.default_rng(2)
    subscriptions, events = random_subscriptions(
        4, Shape(n_filters=400, n_events=40, n_names=6, sizes=(0, 3), n_interfaces=9, areas=0.6)
    )
    named = [item._replace(id=f"f{i}") for i, item in enumerate(subscriptions)]
    rows = []
    for i in range(150):
        kind = Change(int(rng.choice(len(Change), p=(0.35, 0.37, 0.18, 0.05, 0.05))))
        x, y = rng.integers(-20, 20, 2).tolist() if kind is Change.MOVE else (0, 0)
        circle = Area(x, y, 8.0) if kind is Change.MOVE else None
        target = str(rng.integers(9)) if kind is Change.REMOVE_INTERFACE else f"f{rng.integers(300)}"
        coming = (named[230 + int(rng.integers(170))],) if kind is Change.ADD else ()
        rows.append(ChangeRow(kind, "" if coming else target, circle, filters=coming, before_event=i * 40 // 150))
    table = Table.from_filters(named[:230])
    stream = ChangeLog.of(table, rows, []).stream(table)
    assert stream.n_filters > 256  # ids take another byte
    batch = Events.of(events).encode(stream.table.vocabulary)
    whole = open_engine("reference", stream.table, live=True)
    parts = [Shard(i, 3, first, stop, 230) for i, (first, stop) in enumerate(((0, 30), (30, 180), (180, 230)))]
    members = [
        ShardEngine(open_engine(engine, stream.table.take(np.arange(p.first, p.stop)), threads=1, live=True), p)
        for p in parts
    ]
    numbers = [LocalIds(part) for part in parts]
    for at in range(0, 40, 8):
        changes, events_there = stream.within(at - 7, at + 1).changes, batch[at : at + 8]
        whole.update(changes)
        n_adds = np.count_nonzero(changes.kind == Change.ADD)
        n_before = sum(each.n_local for each in numbers)
        assert sum(each.changes(changes).n_filters for each in numbers) == n_before + n_adds
        expected, found = whole.match(events_there, filters=filters), []
        for member in members:
            member.update(changes)
            answer = member.match(events_there, filters=filters)
            assert answer.n_ids == expected.n_ids
            found.append((answer.counts, answer.ids))
        counts, ids = merge(found)
        assert Matches(counts, ids, expected.n_ids) == expected
        assert (counts.dtype, ids.dtype) == (expected.counts.dtype, expected.ids.dtype)


def with_condition(i: int) -> Filter:
    """A filter with a condition, every fourth without."""
    inner = {"not": [["c", "absent"], ["a", "=", 1]][i % 2]}
    where = {"or": [["a", "=", i % 5], {"and": [["b", ">", 0], inner]}]} if i % 4 else None
    return make_filter(str(i % 7), [["b", "=", i % 2]] if i % 3 else [], id_=f"f{i}", where=where)


CONDITIONS = [with_condition(i) for i in range(60)]


@pytest.mark.parametrize("filters", [False, True])
def test_parts_of_conditions_are_at_every_member(filters: bool, tmp_path: Path) -> None:
    """Also those that changes add, whose filters go with the filter that brought them."""
    table, rng = Table.from_filters(CONDITIONS[:40]), np.random.default_rng(3)
    table.save(tmp_path / "table.h5")
    rows = [ChangeRow(Change.ADD, filters=(item,), before_event=i % 12) for i, item in enumerate(CONDITIONS[40:])]
    rows += [ChangeRow(Change.REMOVE, f"f{i}", before_event=12 + i // 4) for i in range(1, 44, 2)]
    rows.sort(key=lambda row: row.before_event)
    refused: list[Refusal] = []
    log = ChangeLog.of(table, rows, refused)
    assert not refused
    events = [make_event({n: int(rng.integers(5)) for n in "abc" if rng.random() < 0.7}) for _ in range(32)]
    whole = log.stream(table)
    batch = Events.of(events).encode(whole.table.vocabulary)
    engine = open_engine("reference", whole.table, live=True)
    with RangeReader(tmp_path / "table.h5") as large:
        stream = log.stream(large)
        n, cut = large.n_of_parts, 17
        assert n == table.n_filters - table.n_visible_filters > 0
        parts = [Shard(0, 2, 0, cut, table.n_filters, n), Shard(1, 2, cut, table.n_filters - n, table.n_filters, n)]
        members = [
            ShardEngine(open_engine("keyed", stream.table.part(p.first, p.stop, n), threads=1, live=True), p) for p in parts
        ]
    for event in range(32):
        changes, one = whole.within(event, event + 1).changes, batch[event : event + 1]
        for each in (engine, *members):
            each.update(changes)
        expected, *answers = [each.match(one, filters=filters) for each in (engine, *members)]
        counts, ids = merge([(each.counts, each.ids) for each in answers])
        assert Matches(counts, ids, expected.n_ids) == expected, event


# Work


def looked_at(table: Table, batch: EventBatch, bounds: Array) -> Array:
    """How many pairs of an event and a filter of each range there are, where the event has all names of the filter."""
    offsets, rows = table.by_filter
    names = [set(table.constraints.name_id[rows[a:b]].tolist()) for a, b in pairwise(offsets.tolist())]
    ends = batch.bounds.tolist()
    there = [set((batch.attributes[a:b] >> table.vocabulary.shift).tolist()) for a, b in pairwise(ends)]
    every = np.array([sum(needed <= event for event in there) for needed in names])
    return np.add.reduceat(every, bounds[:-1])


def test_a_skewed_table_is_divided_into_parts_of_about_equal_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fifth of the filters have one popular name, the others four names: divided by count, one part has nearly all
    work.
    """
    rng = np.random.default_rng(8)
    popular = (1.0 + np.arange(30)) ** -1.0
    popular /= popular.sum()
    subscriptions = []
    for i in range(4000):
        names = rng.choice(30, 1 if i < 800 else 4, replace=False, p=popular)
        subscriptions.append(make_filter(f"{i // 40:03}", [[f"n{n}", ">", int(rng.integers(50))] for n in names]))
    published = [make_event({f"n{n}": 1.0 for n in rng.choice(30, 5, replace=False, p=popular)}) for _ in range(200)]
    table = Table.from_filters(subscriptions)
    table.save(tmp_path / "table.h5")
    batch = Events.of(published).encode(table.vocabulary)
    with RangeReader(tmp_path / "table.h5") as large:
        by_work = divide(work_of(large, "keyed", filters=True), large.grain_bytes, 4, large.n_bytes)
        monkeypatch.setattr(range_reader, "MOST_GRAINS", 500)
        assert large.grain == 8
        in_grains = divide(work_of(large, "keyed", filters=True), large.grain_bytes, 4, large.n_bytes)
    assert by_work is not None
    assert in_grains is not None
    by_count = looked_at(table, batch, np.linspace(0, 4000, 5).astype(np.int64))
    assert by_count.max() / by_count.mean() > 2.5
    for bounds in (by_work, 8 * in_grains):
        divided = looked_at(table, batch, bounds)
        assert divided.max() / divided.mean() < 1.35


def test_filters_of_matched_interfaces_are_no_work(tmp_path: Path) -> None:
    """A hundred filters that all events match: for answers with interfaces, one of them is verified."""
    Table.from_filters(
        [make_filter(label, [["a", "exists"]]) for label in ["crowd"] * 100 + [f"i{i}" for i in range(100)]]
    ).save(tmp_path / "table.h5")
    with RangeReader(tmp_path / "table.h5") as large:
        (many, once), (each, _) = (
            (np.sum(work[:100]), np.sum(work[100:]))
            for work in (work_of(large, "keyed", filters=filters) for filters in (True, False))
        )
    assert many == pytest.approx(once)
    assert each < many / 2


def test_the_work_of_scanning_engines_is_by_constraints(tmp_path: Path) -> None:
    Table.from_filters(
        [
            make_filter("a", [["x", "=", 1], ["y", "=", 1]]),
            make_filter("b", [["x", "=", 1], ["rare", "=", 1], ["y", "=", 1]]),
        ]
    ).save(tmp_path / "table.h5")
    with RangeReader(tmp_path / "table.h5") as large:
        two, three = work_of(large, "counting")
        assert three > two
        two, three = work_of(large, "keyed")
        assert three < two


def test_work_does_not_depend_on_the_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for runs of rows of one feature, which are counted block by block; this table has none."""
    filters = [make_filter(str(i % 7), [[f"n{i % 5}", "=", i], [f"m{i % 3}", ">", i]]) for i in range(200)]
    Table.from_filters(filters).save(tmp_path / "table.h5")
    found = []
    for block in (2**20, 9):
        monkeypatch.setattr(range_reader, "READ_AT_ONCE", block)
        with RangeReader(tmp_path / "table.h5") as large:
            found.append(work_of(large, "keyed"))
    assert np.array_equal(found[0], found[1])
