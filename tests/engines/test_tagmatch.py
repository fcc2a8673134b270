"""`tagmatch` without a GPU: answers, partitions, queues, changes; refusals."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numba
import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from live_machine import run_machine_of
from tag_tables import LiveTags, assert_agrees, random_tags, tag_event, tag_events, tag_filter, tag_filters

from mpi_match.arrays.strings import Strings
from mpi_match.changes.live_table import LiveTable
from mpi_match.compute import parallel
from mpi_match.engines import EngineError, OptionError, open_engine
from mpi_match.engines.base import Pending, Waiting
from mpi_match.engines.tagmatch import lookup, tag_sets
from mpi_match.engines.tagmatch import partitions as partitioning
from mpi_match.engines.tagmatch.engine import TagMatch
from mpi_match.engines.tagmatch.partition_table import PartitionTable
from mpi_match.engines.tagmatch.partitions import Partitions, divide
from mpi_match.engines.tagmatch.prefix_tree import LEAF_SETS, PrefixTree
from mpi_match.engines.tagmatch.queues import PartitionBatches, Queues
from mpi_match.events.events import Events
from mpi_match.events.signatures import SIGNATURE_BITS, SIGNATURE_HASHES, event_signatures, tag_signatures
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, Event, Filter, make_filter
from mpi_match.table.table import Table

CPU: dict[str, Any] = {"variant": "cpu"}
SMALL: dict[str, Any] = {**CPU, "max_p": 2, "queries": 3}
"""Many partitions, and batches that are full."""
TREE: dict[str, Any] = {"variant": "prefix-tree"}


def opened(table: Table, **options: Any) -> TagMatch:
    engine = open_engine("tagmatch", table, options=options)
    assert isinstance(engine, TagMatch)
    return engine


@settings(max_examples=examples(60))
@given(filters=st.lists(tag_filters, max_size=12), events=st.lists(st.none() | tag_events, max_size=8))
@pytest.mark.parametrize(
    "options", [CPU, SMALL, {**SMALL, "prefix": False, "timeout_ms": 1e-6}, TREE], ids=["one", "many", "plain", "tree"]
)
def test_hypothesis(options: dict[str, Any], filters: list[Filter], events: list[Event | None]) -> None:
    assert_agrees(filters, events, **options)


@pytest.mark.parametrize("max_p", [1, 7, 50, 10_000])
@pytest.mark.parametrize("n_queries", [1, 5, 256])
def test_thousands_of_sets(max_p: int, n_queries: int) -> None:
    filters, events = random_tags(0, 2000, 300)
    table = Table.from_filters(filters)
    batch, judge = Events.of(events).encode(table.vocabulary), open_engine("counting", table)
    engine, tree = opened(table, **CPU, max_p=max_p, queries=n_queries), opened(table, **TREE)
    for answer in (False, True):
        assert engine.match(batch, filters=answer) == judge.match(batch, filters=answer)
        assert tree.match(batch, filters=answer) == judge.match(batch, filters=answer)
    assert tree.candidates == engine.candidates
    assert 0 < engine.n_sets < table.n_filters
    assert (engine.n_partitions > 1000) == (max_p == 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_several_passes_and_a_time_out(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Queries of a queue come in different passes."""
    for name in ("PASS_QUERIES", "TIMED_PASS_QUERIES"):
        monkeypatch.setattr(f"mpi_match.engines.tagmatch.engine.{name}", 7)
    filters, events = random_tags(1, 300, 100)
    table = Table.from_filters(filters)
    batch, expected = Events.of(events).encode(table.vocabulary), None
    for timeout in (0.0, 1e-6, 1e6):
        engine = open_engine("tagmatch", table, threads=threads, options={**SMALL, "timeout_ms": timeout})
        expected = expected or open_engine("counting", table).match(batch)
        assert engine.match(batch) == expected


def test_a_signature_that_matches_by_chance_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tags have the same bits: every set that is not empty matches every query that has a tag, until it is verified."""

    def same(tags: Strings) -> np.ndarray:
        return np.full((len(tags), 3), 5, np.uint64)

    monkeypatch.setattr("mpi_match.engines.tagmatch.tag_filters.tag_signatures", same)
    filters, events = random_tags(2, 200, 50)
    filters.append(tag_filter("all", []))
    engine = assert_agrees(filters, events, **SMALL)
    assert isinstance(engine, TagMatch)
    assert engine.n_false_positives > 1000
    assert engine.n_partitions == 2, "equal signatures cannot be divided"
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    with pytest.raises(OptionError, match=r"tagmatch\.exact=off is only for measuring; bench takes it"):
        opened(table, **SMALL, exact=False)
    inexact = open_engine("tagmatch", table, options={**SMALL, "exact": "off"}, measured=True)
    assert not inexact.exact
    wrong = inexact.match(batch, filters=True)
    assert opened(table, **TREE).match(batch, filters=True) == opened(table, **SMALL).match(batch, filters=True)
    right = opened(table, **SMALL).match(batch, filters=True)
    assert wrong.n_matches > right.n_matches
    for event in range(len(events)):
        assert set(right[event]) <= set(wrong[event])


def test_tags_that_no_set_has_are_in_signatures() -> None:
    """They lead to partitions that the query has no tag of, and to false positives, never to other answers."""
    filters, events = random_tags(6, 300, 60)
    table = Table.from_filters(filters)
    wide = [event._replace(attributes={**event.attributes, **dict.fromkeys(map(str, range(80)), 1)}) for event in events]
    raw = Events.of(wide)
    batch = raw.encode(table.vocabulary)
    signatures = event_signatures(raw.offsets, raw.name, raw.names)
    plain, signed = opened(table, **CPU, max_p=20), opened(table, **CPU, max_p=20)
    assert signed.match(replace(batch, signatures=signatures)) == plain.match(batch)
    assert signed.n_false_positives > 100 > plain.n_false_positives
    assert not event_signatures(np.array([0, 0, 0]), raw.name[:0], raw.names).any()


# Parts


def test_signatures_are_of_bytes_and_have_up_to_seven_bits() -> None:
    tags = Strings.of([b"", b"a", b"a\0", b"\0a", b"ab", b"ba", *(b"t%d" % i for i in range(5000))])
    found = tag_signatures(tags)
    assert np.array_equal(tag_signatures(Strings.of([b"ba"]))[0], found[5])
    assert np.array_equal(tag_signatures(tags.between(3, 9)), found[3:9])
    bits = np.unpackbits(found.astype(">u8").view(np.uint8), axis=1)
    assert len(np.unique(found, axis=0)) == len(tags)
    assert set(bits.sum(axis=1).tolist()) <= {*range(4, SIGNATURE_HASHES + 1)}
    expected = len(tags) * (1 - (1 - 1 / SIGNATURE_BITS) ** SIGNATURE_HASHES)
    assert np.all(np.abs(bits.sum(axis=0) - expected) < 6 * expected**0.5), "every bit is as likely"


def parts_of(n: int, max_p: int) -> tuple[np.ndarray, np.ndarray, Partitions]:
    before = tag_signatures(Strings.of([b"%d" % i for i in range(n)])) | tag_signatures(
        Strings.of([b"t%d" % (i % 19) for i in range(n)])
    )
    signatures, rows = before.copy(), np.arange(n, dtype=np.uint32)
    found = divide(signatures, rows, max_p, 2)
    assert np.array_equal(before[rows], signatures)
    assert sorted(rows.tolist()) == list(range(n))
    return before, signatures, found


@pytest.mark.parametrize("grain", [10, 2**16])
def test_partitions_are_balanced_and_have_masks(grain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one thread, and first by several."""
    monkeypatch.setattr(partitioning, "GRAIN", grain)
    _, signatures, found = parts_of(1000, 60)
    sizes = np.diff(found.bounds)
    assert sizes.max() <= 60
    assert sizes.min() > 0
    assert 1000 / 60 < found.n < 100
    for first, last, mask in zip(found.bounds, found.bounds[1:], found.masks, strict=False):
        assert np.array_equal(np.bitwise_and.reduce(signatures[first:last]), mask)
        assert mask.any()


@pytest.mark.parametrize("by_one", [1, 100, 10_000])
@pytest.mark.parametrize("bounds", [[0], [0, 3000], [0, 1, 51, 51, 3000]])
def test_partitions_are_sorted_by_one_thread_or_many(
    bounds: list[int], by_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_sets, "SORTED_BY_ONE", by_one)
    before = tag_signatures(Strings.of([b"%d" % (i % 2500) for i in range(bounds[-1])]))
    signatures, rows = before.copy(), np.arange(bounds[-1], dtype=np.uint32)
    found = Partitions(np.array(bounds), np.zeros((len(bounds) - 1, 3), np.uint64))
    tag_sets._sort_partitions(signatures, rows, found, 2)
    assert np.array_equal(before[rows], signatures)
    for first, last in pairwise(bounds):
        assert signatures[first:last].tolist() == sorted(before[first:last].tolist())


@pytest.mark.parametrize("n", [0, 1, 2, 500])
@pytest.mark.parametrize("n_values", [1, 2, 3, 2**64])
def test_rows_are_ordered_as_lists_are(n: int, n_values: int) -> None:
    rows = np.random.default_rng(n).integers(0, n_values, (n, 3), dtype=np.uint64)
    order = tag_sets.lexicographic_order(rows)
    assert sorted(order.tolist()) == list(range(n))
    assert rows[order].tolist() == sorted(rows.tolist())


@pytest.mark.parametrize("n_ids", [1, 2, 1000, 1 << 10, 1 << 20, 2**32 - 1])
@pytest.mark.parametrize("ascending", [True, False])
def test_keys_of_many_sets_are_distinct_and_ascend(n_ids: int, ascending: bool) -> None:
    rng = np.random.default_rng(n_ids)
    sizes = np.array([0, 1, 2, 3, 50, lookup.RADIX_SORTED, 700])
    offsets = np.append(0, np.cumsum(sizes))
    ids = rng.integers(0, n_ids, offsets[-1]).astype(np.uint32)
    if ascending:
        ids = np.concatenate([np.sort(ids[first:last]) for first, last in pairwise(offsets)])
    sets = [rng.choice(len(sizes), rng.integers(0, len(sizes) + 1), replace=False) for _ in range(60)]
    pairs = np.array([query << 32 | row for query, rows in enumerate(sets) for row in rows.tolist()], np.uint64)
    others = np.array([7 << 32 | int(ids[5]), 59 << 32 | n_ids - 1], np.uint64)
    keys = lookup.Keys(offsets, ids, np.zeros(0, bool))
    found = lookup.answers_of(rng.permutation(pairs), keys, others, 60, n_ids)
    for query, rows in enumerate(sets):
        more = [int(pair) & 0xFFFFFFFF for pair in others.tolist() if pair >> 32 == query]
        expected = {*more, *(key for row in rows for key in ids[offsets[row] : offsets[row + 1]].tolist())}
        assert found[query].tolist() == sorted(expected)


def test_the_pivot_is_the_bit_of_nearly_half_of_the_sets() -> None:
    before, _, found = parts_of(500, 499)
    bits = np.unpackbits(before.astype(">u8").view(np.uint8), axis=1).sum(axis=0)
    with_it = 500 - found.bounds[1:-1]
    assert min(abs(int(n) - 250) for n in with_it) <= abs(bits - 250).min()


def test_small_subsets_without_a_shared_bit_are_divided_by_half_as_printed() -> None:
    def n_partitions(by_half: bool) -> int:
        one = tag_signatures(Strings.of([b"t%d" % i for i in range(400)]))
        signatures = np.bitwise_or.reduce([np.roll(one, k, axis=0) for k in range(16)])  # bits that most sets have
        found = divide(signatures, np.arange(400, dtype=np.uint32), 500, 2, by_half=by_half)
        assert found.masks.any(axis=1).all()
        return found.n

    assert n_partitions(True) > n_partitions(False)


def test_every_query_finds_the_partitions_whose_mask_it_has() -> None:
    before, _, found = parts_of(300, 20)
    masks = np.concatenate([found.masks, np.zeros((1, 3), np.uint64)])  # one without a mask
    bounds = np.append(found.bounds, found.bounds[-1] + 1)
    queries = before[:40] | before[100:140] | before[200:240]
    query, partition = PartitionTable.of(Partitions(bounds, masks)).routes(queries)
    expected = {(q, p) for q in range(40) for p in range(len(masks)) if not np.any(masks[p] & ~queries[q])}
    assert {*zip(query.tolist(), partition.tolist(), strict=True)} == expected
    assert len(query) == len(expected), "each is found once"
    assert any(p == len(masks) - 1 for _, p in expected)


@pytest.mark.parametrize("n", [0, 1, 2, LEAF_SETS, LEAF_SETS + 1, 5000])
def test_a_prefix_tree_finds_the_sets_that_have_no_bit_that_the_query_lacks(n: int) -> None:
    rng = np.random.default_rng(n)
    signatures = np.zeros((n, 3), np.uint64)
    for bit in rng.integers(0, 48, (3, n)):  # few bits, so that many sets match, and some signatures are those of many sets
        signatures[np.arange(n), bit // 16] |= np.uint64(1) << (4 * (bit % 16)).astype(np.uint64)
    signatures[: n // 4] = signatures[:1]
    signatures = signatures[np.lexsort(signatures.T[::-1])]
    queries = np.zeros((40, 3), np.uint64)
    for bit in rng.integers(0, 48, (24, 40)):
        queries[np.arange(40), bit // 16] |= np.uint64(1) << (4 * (bit % 16)).astype(np.uint64)
    queries[0] = 0
    found = np.sort(np.concatenate(PrefixTree(signatures).find(queries)))
    query, row = np.nonzero(((signatures[None] & ~queries[:, None]) == 0).all(axis=2))
    assert found.tolist() == ((query.astype(np.uint64) << np.uint64(32)) | row.astype(np.uint64)).tolist()
    assert len(found) > 40 or n < LEAF_SETS, "there is something to find"


def test_a_queue_gives_full_batches_and_the_rest_after_a_time_out() -> None:
    queues = Queues(3, 2)

    def taken(before: float = -np.inf, of: range = range(0)) -> list[tuple[int, list[int]]]:
        found = queues.take(before, of)
        bounds = found.offsets
        return [(int(p), found.queries[bounds[i] : bounds[i + 1]].tolist()) for i, p in enumerate(found.partition)]

    def put(queries: list[int], partitions: list[int], now: float) -> None:
        queues.put(np.array(queries, np.uint32), np.array(partitions, np.uint32), now)

    assert taken() == []
    put([0, 1, 2, 3, 4, 5], [2, 0, 2, 2, 2, 2], 1.0)
    assert taken() == [(2, [0, 2]), (2, [3, 4])]
    put([6], [1], 2.0)
    assert taken(0.5) == []
    assert taken(1.0) == [(0, [1]), (2, [5])]
    assert queues.since == 2.0
    put([7, 8], [1, 1], 3.0)
    assert taken() == [(1, [6, 7])]
    assert taken(2.5) == [], "what is left has come with the last"
    assert queues.since == 3.0
    assert taken(np.inf) == [(1, [8])]
    assert taken(np.inf) == []
    put([9, 10, 11], [0, 1, 2], 4.0)
    assert taken(of=range(10, 11)) == [(1, [10])]
    assert taken(of=range(10)) == [(0, [9])]


def test_batches_of_a_partition_are_apart() -> None:
    queues, n = Queues(4, 2), 16
    queues.put(np.arange(n, dtype=np.uint32), np.arange(n, dtype=np.uint32) // 4, 0.0)
    assert queues.take().partition.tolist() == [0, 1, 2, 3] * 2


def test_few_batches_are_divided_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a partition is work for a thread, and so are a few queries for a tree."""
    divided: list[int] = []
    plain = parallel.stretches_of

    def counted(n: int, least: int | None = None) -> int:
        divided.append(plain(n, least))
        return divided[-1]

    monkeypatch.setattr(parallel, "stretches_of", counted)
    filters, events = random_tags(7, 300, 40)
    table = Table.from_filters(filters)
    batch = Events.of(events).encode(table.vocabulary)
    for options in (SMALL, TREE):
        for threads in (1, 2):
            engine = open_engine("tagmatch", table, threads=threads, options=options)
            divided.clear()
            engine.match(batch)
            assert max(divided) == min(threads, numba.get_num_threads())


# Batches that are begun together


@pytest.mark.parametrize("seed", range(4))
def test_batches_begin_and_end_in_any_order_while_the_table_changes(seed: int) -> None:
    """Each is answered as if it were alone, with the changes from before it began only."""
    filters, events = random_tags(seed, 60, 200)
    present, coming = filters[:40], [item._replace(id=str(i)) for i, item in enumerate(filters[40:])]
    live, rng = LiveTable(Table.from_filters(present), expected=coming), np.random.default_rng(seed)
    engine, judge = (
        open_engine(name, live.table, live=True, options=options)
        for name, options in (("tagmatch", SMALL), ("reference", {}))
    )
    batch, begun, n_most = Events.of(events).encode(live.vocabulary), list[tuple[Pending, Matches]](), 0
    for at in range(0, 200, 8):
        mine, filters_too = batch[at : at + int(rng.integers(1, 9))], bool(rng.integers(2))
        started = engine.begin(mine, filters=filters_too)
        assert not isinstance(started, Matches)
        begun.append((started, judge.match(mine, filters=filters_too)))
        n_most = max(n_most, len(begun))
        if rng.random() < 0.3:
            changes = live.apply([ChangeRow(Change.ADD, filters=(coming.pop(),)), ChangeRow(Change.CONSOLIDATE)], [])
            assert changes is not None
            engine.update(changes)
            judge.update(changes)
        while begun and rng.random() < 0.45:
            one, expected = begun.pop(int(rng.integers(len(begun))))
            assert one.end() == expected
    assert n_most > 2
    assert all(one.end() == expected for one, expected in begun)
    assert isinstance(engine, TagMatch)
    assert not list(engine._begun)


def test_queries_of_different_batches_are_matched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    filters, events = random_tags(3, 40, 24)
    table = Table.from_filters(filters)
    engine, batch = opened(table, **CPU, max_p=4), Events.of(events).encode(table.vocabulary)
    sizes: list[int] = []
    plain = engine._match_partitions

    def noted(batches: PartitionBatches) -> None:
        sizes.extend(np.diff(batches.offsets).tolist())
        plain(batches)

    monkeypatch.setattr(engine, "_match_partitions", noted)
    apart = [engine.match(batch[at : at + 8]) for at in range(0, 24, 8)]
    n_apart, at_once = len(sizes), sum(sizes)
    sizes.clear()
    begun = [engine.begin(batch[at : at + 8]) for at in range(0, 24, 8)]
    assert [one.end() for one in begun if not isinstance(one, Matches)] == apart
    assert sum(sizes) == at_once
    assert len(sizes) < n_apart


def test_a_queue_is_matched_when_it_is_full_or_due_and_else_at_the_end() -> None:
    table = Table.from_filters([tag_filter("i", ["a"]), tag_filter("j", ["b"])])
    batch = Events.of([tag_event(["a", "b"])]).encode(table.vocabulary)
    full, due = opened(table, **CPU, queries=2), opened(table, **CPU, timeout_ms=30)
    first, alone = full.begin(batch), due.begin(batch)
    assert isinstance(first, Waiting)
    assert isinstance(alone, Waiting)
    assert not first.poll()
    second = full.begin(batch)
    assert isinstance(second, Waiting)
    assert first.poll()
    assert second.poll()
    began = time.perf_counter()
    while not alone.poll():
        assert time.perf_counter() - began < 60
    assert time.perf_counter() - began > 0.005
    assert [one.end().counts.tolist() for one in (first, second, alone)] == [[2]] * 3


def test_batches_fail_with_one_that_their_queries_wait_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that begin afterwards are answered."""
    table = Table.from_filters([tag_filter("i", ["a"])])
    engine, batch = opened(table, **CPU, queries=2), Events.of([tag_event(["a"])]).encode(table.vocabulary)
    before = engine.begin(batch)
    with monkeypatch.context() as context:
        context.setattr(engine._matcher, "begin", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            engine.match(batch)
    assert isinstance(before, Waiting)
    assert before.poll()
    with pytest.raises(EngineError, match="another batch failed while events of this batch waited with its events"):
        before.end()
    assert engine.match(batch).counts.tolist() == [1]


# Changes


class LiveTagsAtOnce(LiveTags):
    options: ClassVar = {**SMALL, "staged": 2}


class LiveTagsOnRequest(LiveTags):
    options: ClassVar = SMALL


@pytest.mark.parametrize("machine", [LiveTagsAtOnce, LiveTagsOnRequest])
def test_subscribe_unsubscribe_consolidate_and_match_in_any_order(machine: type[LiveTags]) -> None:
    run_machine_of(machine, examples=12, steps=20)


def test_filters_are_staged_until_there_are_many() -> None:
    filters = [tag_filter("i", [name], name) for name in ("a", "b", "c", "d")]
    live = LiveTable(Table.from_filters(filters[:1]), expected=filters)
    engine = open_engine("tagmatch", live.table, live=True, options={**CPU, "staged": 1})
    assert isinstance(engine, TagMatch)
    n_sets: list[int] = []
    rows = [ChangeRow(Change.ADD, filters=(item,)) for item in filters[1:]]
    consolidate = ChangeRow(Change.CONSOLIDATE)
    for row in (*rows, ChangeRow(Change.REMOVE, "a"), consolidate, consolidate):
        changes = live.apply([row], [])
        assert changes is not None
        engine.update(changes)
        n_sets.append(engine.n_sets)
    assert n_sets == [1, 3, 3, 3, 3, 3]
    assert Counter(engine._sets.key_filter.tolist()) == {1: 1, 2: 1, 3: 1}


# Refusals


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (make_filter("i", [["x", "exists"]], [0, 0, 1]), "has areas, and tagmatch serves tag sets only"),
        (make_filter("i", [["x", ">", 1]]), "has constraints with '>' on a number, and tagmatch serves tag sets only"),
        (make_filter("i", [["x", "absent"]]), "has constraints with 'absent', and tagmatch serves tag sets only"),
        (make_filter("i", [["x", "contains", "a"]]), "'contains' on a string, and tagmatch serves tag sets only"),
    ],
)
def test_only_tag_tables_are_served(item: Filter, text: str) -> None:
    with pytest.raises(EngineError) as refused:
        open_engine("tagmatch", Table.from_filters([item, tag_filter("j", ["x"])]), options=CPU)
    assert text in str(refused.value)
    assert "keyed and keyed_cuda can serve it" in str(refused.value)


def test_added_filters_that_are_no_tag_sets_are_refused() -> None:
    live = LiveTable(Table.from_filters([tag_filter("i", ["a"])]))
    engine = open_engine("tagmatch", live.table, live=True, options=CPU)
    changes = live.apply([ChangeRow(Change.ADD, filters=(make_filter("i", [["a", "absent"]]),))], [])
    assert changes is not None
    with pytest.raises(
        EngineError, match="tagmatch cannot serve the added filters: the table has constraints with 'absent'"
    ):
        engine.update(changes)


def test_steps_are_timed_and_candidates_counted() -> None:
    filters, events = random_tags(3, 300, 50)
    table = Table.from_filters(filters)
    engine, batch = opened(table, **SMALL), Events.of(events).encode(table.vocabulary)
    assert engine.steps_s == {}
    engine.time_steps()
    found = engine.match(batch)
    assert list(engine.steps_s) == ["pre-process", "subset match", "look up", "reduce"]
    assert all(seconds > 0 for seconds in engine.steps_s.values())
    assert engine.candidates is not None
    assert engine.candidates >= found.n_matches > 0
    assert engine.gpu is None
    assert engine.kernel_s == 0.0
