"""The bitmap of `keyed`: masks lack no bin that a filter matches, every engine test's tables agree when all filters are in
it, filters go there when that is cheaper, and it is no larger than it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import event_of, filters_of, one_in_three
from compiled_alone import compiled_alone
from hypothesis import given
from hypothesis import strategies as st
from lasting import lasting
from live_machine import run_machine
from random_tables import SHAPES, shaped
from strategies import subscriptions_and_events

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine
from mpi_match.engines.keyed.bitmap import choice, live_bitmap
from mpi_match.engines.keyed.bitmap.bins import MOST_BINS, MOST_ROWS, Bins, enter_masks
from mpi_match.engines.keyed.bitmap.rows import BLOCK_FILTERS, LINE_FILTERS, BitRows, enter_bits
from mpi_match.engines.keyed.cpu import Keyed
from mpi_match.engines.keyed.cuda import KeyedCuda
from mpi_match.engines.keyed.grid.predicates import checks_of
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Change, Event, Filter, make_event, make_filter, match_naive, matches
from mpi_match.table.table import Table

masks_of = compiled_alone(enter_masks)


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """All filters without an area are put into the bitmap, whatever that costs."""
    monkeypatch.setattr(choice, "ENTERING_COST", -1e9)
    monkeypatch.setattr(choice, "ROW_COST", 0.0)


def assert_agrees(filters: list[Filter], events: list[Event]) -> Keyed:
    table = Table.from_filters(filters)
    engine = open_engine("keyed", table)
    assert isinstance(engine, Keyed)
    without_area = [item for item in filters if item.area is None]
    assert len(engine.bitmap.filters) == (len(without_area) if any(item.constraints for item in without_area) else 0)
    batch, kept = Events.of(events).encode(table.vocabulary), list(table.iter_filters())
    assert engine.match(batch).labels(table.labels) == [match_naive(filters, event) for event in events]
    found = engine.match(batch, filters=True)
    for i, event in enumerate(events):
        assert found[i].tolist() == [f for f, item in enumerate(kept) if matches(item, event)]
    return engine


@pytest.mark.usefixtures("everything")
@one_in_three
def test_every_case_agrees(case: dict[str, object]) -> None:
    assert_agrees(filters_of(case), [event_of(case)])


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("shape", SHAPES)
def test_random_tables_agree(shape: str) -> None:
    filters, events = shaped(shape)
    assert_agrees(filters[:700], events[:40])


def test_hypothesis_tables_agree(everything: None) -> None:
    @given(subscriptions_and_events())
    def agree(drawn: tuple[list[Filter], list[Event]]) -> None:
        assert_agrees(*drawn)

    agree()


_NUMBERS = st.integers(0, 300)
_INTERVALS = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), _NUMBERS, _NUMBERS), min_size=1, max_size=5), min_size=65, max_size=90
)
_VALUES = st.lists(st.dictionaries(st.sampled_from("abcd"), _NUMBERS), min_size=1, max_size=20)


@pytest.mark.usefixtures("everything")
def test_tables_of_wide_ranges_agree() -> None:
    """More operands than bins, so that bins have several codes and candidates fail."""

    @given(_INTERVALS, _VALUES)
    def agree(drawn: list[list[tuple[str, int, int]]], values: list[dict[str, int]]) -> None:
        filters = [
            make_filter(f"i{i}", [(name, "between", sorted((a, b))) for name, a, b in each]) for i, each in enumerate(drawn)
        ]
        assert_agrees(filters, [make_event(dict(each)) for each in values])

    agree()


@pytest.mark.parametrize("one_in", [40, *lasting(10)])
def test_masks_lack_no_bin_in_which_a_filter_matches(one_in: int) -> None:
    filters, _ = shaped("every type")
    table = Table.from_filters(filters)
    rows, ids = FilterRows.of(table), np.arange(table.n_filters, dtype=np.uint32)
    bins, (places, words) = Bins.of(rows, ids), checks_of(table, rows, ids)
    masks, n_narrower = np.empty(len(bins.n_bins), np.uint64), 0
    values: list[object] = [*np.arange(-11, 11) / 2, "", "a", "ab", "bé", "c", True, False, float("nan")]
    names = {str(name, "utf-8"): i for i, name in enumerate(table.vocabulary.names)}
    for f, item in list(enumerate(table.iter_filters()))[::one_in]:
        masks_of(np.int64(places[f]), words, table.vocabulary.shift, bins, masks)
        for name in {each.name for each in item.constraints}:
            a = int(bins.column[names[name]])
            alone = make_filter("x", [each for each in item.constraints if each.name == name])
            for value in [*values, None]:
                event = make_event({} if value is None else {name: value})
                batch = Events.of([event]).encode(table.vocabulary)
                codes = [
                    int(p) & (1 << table.vocabulary.shift) - 1
                    for p in batch.attributes
                    if int(p) >> table.vocabulary.shift == names[name]
                ]
                row = (
                    int(np.searchsorted(bins.bounds.reshape(-1, MOST_BINS + 1)[a], codes[0], "right")) - 1
                    if codes
                    else int(bins.n_bins[a])
                )
                has_bit = int(masks[a]) >> row & 1
                assert has_bit or not matches(alone, event), (alone, event)
                n_narrower += not has_bit
    assert n_narrower > 10_000 // one_in, "masks exclude nothing"


def test_a_table_of_several_blocks_agrees_with_counting_and_says_its_bytes() -> None:
    table = Table.from_subscriptions(
        SCENARIOS["intervals-narrow"].scaled(2 * BLOCK_FILTERS + LINE_FILTERS + 5).subscriptions()
    )
    engine = open_engine("keyed", table)
    assert isinstance(engine, Keyed)
    bitmap = engine.bitmap
    assert bitmap.rows.summary.shape == (3, bitmap.bins.n_rows)
    assert len(bitmap.filters) == table.n_filters
    assert bitmap.rows.bits.nbytes / table.n_filters < 200
    assert engine.nbytes > bitmap.nbytes > bitmap.rows.bits.nbytes
    batch = SCENARIOS["intervals-narrow"].events(60).encode(table.vocabulary)
    found = engine.match(batch)
    assert found == open_engine("counting", table).match(batch)
    assert found.n_matches


def test_rows_are_bounded_for_any_number_of_names() -> None:
    for n_names in (1, 20, 100, 400):
        scenario = replace(SCENARIOS["ccm"].scaled(500), n_names=n_names, filter_size=(1, 1), event_size=(1, 1))
        rows = FilterRows.of(Table.from_subscriptions(scenario.subscriptions()))
        bins = Bins.of(rows, np.arange(500, dtype=np.uint32))
        assert bins.n_rows <= MOST_ROWS
        assert bins.n_bins.max(initial=0) <= MOST_BINS


def test_filters_go_where_they_cost_less() -> None:
    """Equalities on rare values stay in lists, ranges do not; nor do filters that match whatever comes."""
    ranges = [make_filter(f"r{i}", [(n, "between", [i, i + 200]) for n in "abcde"]) for i in range(3000)]
    equal = [make_filter(f"e{i}", [("id", "=", i), ("a", ">", 7)]) for i in range(20_000)]
    always = [make_filter(f"t{i}", [(n, "exists") for n in "abcde"]) for i in range(50)]
    table = Table.from_filters([*ranges, *equal, *always])
    engine = open_engine("keyed", table)
    assert isinstance(engine, Keyed)
    labels = [table.label(int(table.filters.interface[f])) for f in engine.bitmap.filters]
    assert {label[0] for label in labels} == {"r"}
    assert len(labels) == 3000
    ccm = open_engine("keyed", Table.from_subscriptions(SCENARIOS["ccm"].scaled(20_000).subscriptions()))
    assert isinstance(ccm, Keyed)
    assert not len(ccm.bitmap.filters)


@pytest.mark.usefixtures("everything")
def test_removed_filters_of_the_bitmap_match_nothing() -> None:
    scenario = SCENARIOS["intervals"].scaled(1500)
    filters = [
        item._replace(id=str(i)) for i, item in enumerate(Table.from_subscriptions(scenario.subscriptions()).iter_filters())
    ]
    live = LiveTable(Table.from_filters(filters))
    engine = open_engine("keyed", live.table, live=True)
    assert isinstance(engine, Keyed)
    changes = live.apply([ChangeRow(Change.REMOVE, str(i)) for i in range(0, 1500, 3)], [])
    assert changes is not None
    engine.update(changes)
    events = scenario.events(30)
    published = [events.event(i) for i in range(30)]
    found = engine.match(events.encode(live.vocabulary), filters=True)
    left = dict(live.filters())
    expected = [[f for f, item in left.items() if matches(item, event)] for event in published]
    assert [found[i].tolist() for i in range(30)] == expected
    assert len(left) == 1000
    assert any(expected)


def test_bits_are_entered_over_those_of_another_filter() -> None:
    filters, _ = shaped("numbers")
    table = Table.from_filters(filters)
    rows_of, ids = FilterRows.of(table), np.arange(table.n_filters, dtype=np.uint32)
    bins, (places, words) = Bins.of(rows_of, ids), checks_of(table, rows_of, ids)
    rows, shift = BitRows.empty(2 * BLOCK_FILTERS, bins.n_rows), table.vocabulary.shift
    position, masks = BLOCK_FILTERS + 777, np.empty(len(bins.n_bins), np.uint64)
    for f in (3, 4, 3, 8):
        enter_bits(np.array([position]), places[[f]].astype(np.int64), words, shift, bins, rows)
        masks_of(np.int64(places[f]), words, shift, bins, masks)
        expected = [int(masks[a]) >> row & 1 for a in range(len(masks)) for row in range(int(bins.n_bins[a]) + 1)]
        word = BLOCK_FILTERS // 64 * bins.n_rows + 777 // 64
        assert [int(rows.bits[word + row * BLOCK_FILTERS // 64]) >> 777 % 64 & 1 for row in range(bins.n_rows)] == expected
        assert np.array_equal(rows.summary[1] >> np.uint64(1) & np.uint64(1) >= expected, np.ones(bins.n_rows, bool))


BROAD = ("intervals-normal", "intervals-large")
"""Workloads that take several seconds for what `intervals` shows too."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.lasting) if name in BROAD else name for name in SCENARIOS]
)
def test_no_workload_is_a_scan(name: str) -> None:
    """Not more than 50 candidates for an answer, of those beyond the first 1,000 of an event."""
    n_events = 100
    scenario = SCENARIOS[name].scaled(min(SCENARIOS[name].n_filters, 20_000))
    table = Table.from_subscriptions(scenario.subscriptions())
    engine, batch = open_engine("keyed", table), scenario.events(n_events).encode(table.vocabulary)
    at_first = total = engine.candidates or 0
    found = [(engine.match(batch[i : i + 1]).n_matches, engine.candidates) for i in range(n_events)]
    for answers, counted in found:
        assert counted is not None
        assert counted - total <= 1000 + 50 * answers
        total = counted
    assert total - at_first >= sum(answers for answers, _ in found)


def test_a_scan_is_found_by_its_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ENTERING_COST", 1e9)
    table = Table.from_subscriptions(SCENARIOS["intervals-narrow"].scaled(20_000).subscriptions())
    engine = open_engine("keyed", table)
    n_matches = engine.match(SCENARIOS["intervals-narrow"].events(1).encode(table.vocabulary)).n_matches
    assert engine.candidates is not None
    assert engine.candidates > 1000 + 50 * n_matches


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Added filters that ask for no value go to the bitmap, whatever that costs."""
    monkeypatch.setattr(live_bitmap, "LATER_ROW_COST", -1.0)


both = pytest.mark.parametrize("name", ["keyed", pytest.param("keyed_cuda", marks=pytest.mark.gpu)])


@both
@pytest.mark.usefixtures("everything", "later")
def test_changes_in_any_order_agree(name: str) -> None:
    run_machine(name, 8, 15)


@pytest.mark.gpu
@pytest.mark.usefixtures("everything", "later")
def test_more_filters_are_added_than_a_block_has_room_for() -> None:
    scenario = SCENARIOS["intervals-narrow"].scaled(BLOCK_FILTERS + 9000)
    filters = [
        item._replace(id=str(i)) for i, item in enumerate(Table.from_subscriptions(scenario.subscriptions()).iter_filters())
    ]
    live = LiveTable(Table.from_filters(filters[:500]), expected=filters)
    engine, batch = open_engine("keyed_cuda", live.table, live=True), scenario.events(300).encode(live.vocabulary)
    for first, last in ((500, 9000), (9000, len(filters))):
        changes = live.apply([ChangeRow(Change.ADD, filters=(item,)) for item in filters[first:last]], [])
        assert changes is not None
        engine.update(changes)
        found = engine.match(batch)
        judge = open_engine("counting", Table.from_filters(filters[:last]))
        expected = judge.match(scenario.events(300).encode(Table.from_filters(filters[:last]).vocabulary))
        assert found.n_matches == expected.n_matches
        assert found.n_matches


@pytest.mark.gpu
@pytest.mark.usefixtures("everything")
def test_events_have_no_answer_or_as_many_as_there_are_filters() -> None:
    """Few are sorted by a warp, some by a block of threads, many by marks."""
    n = BLOCK_FILTERS + 5000
    table = Table.from_filters([make_filter(f"i{i}", [("a", "<", (7919 * i) % n)], id_=str(i)) for i in range(n)])
    counts = [0, 1, 2, 32, 255, 256, 257, 1000, 2047, 2048, 2049, 9000, n - 1]
    batch = Events.of([make_event({"a": n - 1 - count}) for count in counts]).encode(table.vocabulary)
    engine, judge = open_engine("keyed_cuda", table), open_engine("counting", table)
    assert isinstance(engine, KeyedCuda)
    assert engine.has_bitmap
    for filters in (False, True):
        found, expected = engine.match(batch, filters=filters), judge.match(batch, filters=filters)
        assert [len(found[i]) for i in range(len(counts))] == counts
        assert all((found[i] == expected[i]).all() for i in range(len(counts)))


@both
@pytest.mark.usefixtures("everything", "later")
@pytest.mark.parametrize("n_first", [0, 20, 400])
def test_filters_that_are_added_later_have_bits(n_first: int, name: str) -> None:
    """Also to an empty table; slots of removed ones are given to others, of ranges or not."""
    scenario = SCENARIOS["intervals"].scaled(1200)
    filters = [
        item._replace(id=str(i)) for i, item in enumerate(Table.from_subscriptions(scenario.subscriptions()).iter_filters())
    ]
    equal = [make_filter(f"e{i}", [("attribute-00", "=", 1000 * i)], id_=f"e{i}") for i in range(60)]
    live = LiveTable(Table.from_filters(filters[:n_first]), expected=[*filters, *equal])
    engine = open_engine(name, live.table, live=True)
    events = scenario.events(30)
    batch, published, known = events.encode(live.vocabulary), [events.event(i) for i in range(30)], {}
    add = [ChangeRow(Change.ADD, filters=(item,)) for item in filters[n_first:1000]]
    remove = [ChangeRow(Change.REMOVE, str(i)) for i in range(0, 1000, 7)]
    others = [ChangeRow(Change.ADD, filters=(item,)) for item in [*equal, *filters[1000:]]]
    for rows in (add, remove, others, [ChangeRow(Change.REMOVE, "1100"), ChangeRow(Change.REMOVE, "e7")]):
        changes = live.apply(rows, [])
        assert changes is not None
        engine.update(changes)
        known = dict(live.filters())
        found = engine.match(batch, filters=True)
        expected = [[f for f, item in known.items() if matches(item, event)] for event in published]
        assert [found[i].tolist() for i in range(30)] == expected
    assert len(known) == 1200 - len(remove) + 60 - 2
    if not isinstance(engine, Keyed):
        return
    assert engine._later.nbytes > 0
    before = engine.candidates or 0
    n_matches = engine.match(batch, filters=True).n_matches
    assert (engine.candidates or 0) - before < 4 * n_matches + 30 * len(equal)


def test_added_filters_of_equalities_leave_no_bitmap() -> None:
    table = Table.from_subscriptions(SCENARIOS["ccm"].scaled(900).subscriptions())
    filters = [item._replace(id=str(i)) for i, item in enumerate(table.iter_filters())]
    live = LiveTable(Table.from_filters(filters[:450]), expected=filters)
    engine = open_engine("keyed", live.table, live=True)
    changes = live.apply([ChangeRow(Change.ADD, filters=(item,)) for item in filters[450:]], [])
    assert changes is not None
    engine.update(changes)
    assert isinstance(engine, Keyed)
    assert not engine._later.nbytes
