"""The grid of `keyed`: no circle of any size and place is missed, and no entries are left behind by moves."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from compiled_alone import compiled_alone
from hypothesis import assume, example, given
from hypothesis import strategies as st
from live_machine import run_machine
from random_tables import SHAPES, judged, random_subscriptions, shaped

from mpi_match.arrays import csr
from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import EngineError, open_engine
from mpi_match.engines.keyed import live_filters
from mpi_match.engines.keyed.cpu import Keyed, consolidated
from mpi_match.engines.keyed.grid import geometry, hash_grid, resize
from mpi_match.engines.keyed.grid.geometry import EVERYWHERE, LOW, N_GROUPS
from mpi_match.engines.keyed.grid.hash_grid import BLOCK_WORDS, KEEP, SLOT_WORDS, STEP_WORDS, Grid, steps_of
from mpi_match.engines.keyed.grid.resize import Resize
from mpi_match.engines.keyed.index.layout import CODES
from mpi_match.engines.keyed.kernels import grid_search
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Area, Change, Op, inside, make_event, make_filter, match_naive
from mpi_match.table.table import Table

span_of, scale_of, cell_of = map(compiled_alone, (geometry.span_of, geometry.scale_of, geometry.cell_of))
step_of, entry_of, may_hold = map(compiled_alone, (geometry.step_of, geometry.entry_of, geometry.may_hold))
name_bit = compiled_alone(geometry.name_bit)
COORDINATES = (
    st.floats(allow_nan=False, allow_infinity=False) | st.floats(-10, 10) | st.sampled_from((0.0, -0.0, 5e-324, -1.0))
)
RADII = st.floats(0, allow_nan=False, allow_infinity=False) | st.floats(0, 3)


@st.composite
def circles_and_points(draw: st.DrawFn) -> tuple[Area, tuple[float, float]]:
    """A circle and a point that is often on its edge, where rounding decides."""
    circle = Area(draw(COORDINATES), draw(COORDINATES), draw(RADII))
    angle = draw(st.sampled_from((0.0, math.pi / 2, math.pi, -math.pi / 2)) | st.floats(0, 7))
    distance = circle.r * draw(st.sampled_from((1.0, 1 + 2**-52, 1 - 2**-53, 0.5)) | st.floats(0, 1.1))
    point = (circle.x + distance * math.cos(angle), circle.y + distance * math.sin(angle))
    assume(all(map(math.isfinite, point)))
    return circle, point


@given(circles_and_points(), st.integers(0, 2**31 - 2), st.sets(st.integers(0, 1000), max_size=5))
@example((Area(0.0, 0.0, 1e200), (1e180, 0.0)), 0, set())
@example((Area(1e300, 0.0, 1e-3), (1e300, 0.0)), 1, {3})
@example((Area(0.0, 0.0, 0.0), (1e-170, 0.0)), 2, set())
def test_a_point_inside_is_in_a_cell_of_the_circle_and_its_entry_may_hold_it(
    given_: tuple[Area, tuple[float, float]], slot: int, asked: set[int]
) -> None:
    circle, (x, y) = given_
    level, scale, column, row, columns, rows = span_of(*circle)
    assert 1 <= columns <= 3
    assert 1 <= rows <= 3
    if not inside((x, y), circle) or level == EVERYWHERE:
        return
    assert scale == scale_of(level)
    here, there = cell_of(x, scale), cell_of(y, scale)
    assert column <= here < column + columns
    assert row <= there < row + rows
    names = np.uint64(0)
    for name in asked:
        names |= name_bit(name)
    entry = entry_of(slot, names, *circle, scale, here, there)
    assert int(entry) >> 32 == slot + 1
    steps = step_of(x, scale, here), step_of(y, scale, there)
    assert may_hold(entry, *steps, 255 & ~int(names))
    assert not asked or not may_hold(entry, *steps, int(names))


def test_filters_without_an_equality_have_groups_as_bucket_keys() -> None:
    """For an event of five of nine names has three given ones far less often than one; an equality is rarer still."""
    filters, _ = random_subscriptions(1, replace(SHAPES["areas and three names"], n_events=0))
    equal = [make_filter("x", [(name, "=", i) for name in ("n1", "n2", "n3")], (i, 0, 1)) for i in range(50)]
    table = Table.from_filters([*filters, *equal])
    _, live_filters, _ = consolidated(table, live=False)
    no_feature = len(live_filters.sub_buckets) - N_GROUPS - 1
    bucket_keys = live_filters.first_steps(table.filters.area)[:, 5] & LOW
    without = np.flatnonzero([all(each.op is not Op.EQ for each in f.constraints) for f in table.iter_filters()])
    names = np.array([len({each.name for each in f.constraints}) for f in table.iter_filters()])
    assert (bucket_keys[without][names[without] >= 3] > no_feature).mean() > 0.9
    assert (np.delete(bucket_keys, without) < no_feature).all()


def test_a_table_that_has_no_use_for_groups_has_none() -> None:
    table = Table.from_filters([make_filter("x", [("a", "=", 1)], (0, 0, 1)), make_filter("x", [], (1, 1, 1))])
    index, live_filters, _ = consolidated(table, live=True)
    no_feature = index.n_virtual + int(index.views[0][int(index.table[CODES]) + index.n_virtual])
    assert len(live_filters.sub_buckets) == no_feature + 1
    assert live_filters.sub_buckets[no_feature] == 1


def entries_in(grid: Grid) -> Array:
    """Every entry of every block."""
    words: Array = grid.blocks.reshape(-1, BLOCK_WORDS)[:, 1:]
    entries: Array = words[words != 0]
    return entries


def test_moves_leave_no_entries_behind() -> None:
    """Any number of moves through crowded cells; then each filter has the entries of its last place, and then none."""
    n, rng = 300, np.random.default_rng(5)
    sub_buckets = np.array([1, 2, 3], np.uint8)
    moved, fresh = Grid(n, sub_buckets), Grid(n, sub_buckets)
    slots, keys, there = np.arange(n), rng.integers(0, 3, n), np.ones(n)

    def steps() -> np.ndarray:
        circles = np.column_stack([rng.integers(0, 3, (n, 2)) / 4, 10 ** rng.uniform(-2, 0, n)])
        return steps_of(slots, keys, circles, there, slots)

    for _ in range(50):
        last = steps()
        moved.apply(last)
    fresh.apply(last)
    assert np.array_equal(np.sort(entries_in(moved)), np.sort(entries_in(fresh)))
    assert len(entries_in(moved)) >= n
    moved.apply(steps_of(slots, keys, np.full((n, 3), np.nan), np.zeros(n), slots))
    assert len(entries_in(moved)) == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_grid_made_while_steps_are_applied_has_their_result(seed: int) -> None:
    """Moves, and filters that go and come to the same slots and to new ones, before, while and after slots are copied."""
    n, rng = 400, np.random.default_rng(seed)
    sub_buckets = np.array([1, 2, 3], np.uint8)
    grid, fresh = Grid(n, sub_buckets), Grid(3 * n, sub_buckets)
    state = np.empty((2 * n, STEP_WORDS), np.uint64)

    def steps(slots: np.ndarray, n_there: int) -> np.ndarray:
        k = len(slots)
        circles = np.column_stack([rng.integers(0, 3, (k, 2)) / 4, 10 ** rng.uniform(-2, 0, k)])
        made = steps_of(slots, rng.integers(0, 3, k), circles, rng.integers(0, 4, k) > 0, slots)
        moves = (rng.random(k) < 0.5) & (slots < n_there)
        made[moves, 0] |= KEEP
        for step, is_move in zip(made, moves, strict=True):
            slot = int(step[0] & LOW)
            state[slot, : 4 if is_move else STEP_WORDS] = step[: 4 if is_move else STEP_WORDS]
            state[slot, 0] = slot
        return made

    grid.apply(steps(np.arange(n), 0))
    resize = Resize(grid, 2 * n)
    n_slots = n
    for i in range(60):
        more = min(2 * n, n_slots + 3)
        made = steps(np.append(rng.integers(0, n_slots, 20), np.arange(n_slots, more)), n_slots)
        n_slots = more
        grid.hold(n_slots)
        grid.apply(made)
        resize.note(made, n_slots)
        if i % 20 == seed:
            time.sleep(0.001)
    grown = resize.finish()
    fresh.hold(n_slots)
    fresh.apply(state[:n_slots])
    assert resize.is_done
    assert grown.n_blocks == 2 * grid.n_blocks
    for each in (grid, grown):
        assert np.array_equal(np.sort(entries_in(each)), np.sort(entries_in(fresh)))
        assert np.array_equal(each.slots[: SLOT_WORDS * n_slots], fresh.slots[: SLOT_WORDS * n_slots])


def test_an_engine_whose_arrays_grow_at_every_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arrays by one, and its grid to twice the blocks again and again, from two blocks up."""
    monkeypatch.setattr(csr, "ROOM", 1)
    monkeypatch.setattr(live_filters, "LEAST_ROOM", 1)
    monkeypatch.setattr(hash_grid, "LEAST_BLOCKS_LOG", 1)
    run_machine("keyed", 10, 20)


def test_a_grid_is_made_larger_beside_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    """No update waits while it is made; when it is done, the next change puts it into use."""
    may_end = threading.Event()
    enter_all = hash_grid.enter_all
    monkeypatch.setattr(resize, "enter_all", lambda *arrays: (may_end.wait(), enter_all(*arrays)))
    filters = [make_filter(f"i{i % 9}", [["x", ">=", i % 5]], [i % 7, i % 3, 2], str(i)) for i in range(40)]
    may_end.set()
    live = LiveTable(Table.from_filters(filters[:8]), expected=filters)
    engine = Keyed(live.table, live=True)
    may_end.clear()
    batch = Events.of(events := [make_event({"x": i % 6}, (i % 7, i % 3)) for i in range(20)]).encode(live.vocabulary)

    def add(first: int, last: int) -> int:
        changes = live.apply([ChangeRow(Change.ADD, filters=(item,)) for item in filters[first:last]], [])
        assert changes is not None
        engine.update(changes)
        found, labels = engine.match(batch), live.registry.labels
        assert [sorted(labels[i] for i in found[at]) for at in range(len(found))] == [
            match_naive(filters[:last], event) for event in events
        ]
        return engine._grid.n_blocks

    assert add(8, 11) == add(11, 12) == 16, "it is being made"
    may_end.set()
    assert engine._resize is not None
    engine._resize._thread.join()
    assert add(12, 13) == 32


def changes_of(kind: Change, target: int, area: tuple[float, float, float] = (math.nan,) * 3) -> Changes:
    none = np.full(1, -1, np.int32)
    return Changes(
        *(np.array([kind], np.uint8), np.array([target], np.uint32), np.array([area]), none),
        *(np.zeros(1, np.uint32), None, 3, 1),
    )


@pytest.fixture
def full_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warp of a GPU takes as many events as there are in small batches, too."""
    monkeypatch.setattr(grid_search, "FULL_WARPS", 1)


both = pytest.mark.parametrize("name", ["keyed", pytest.param("keyed_cuda", marks=pytest.mark.gpu)])


@both
@pytest.mark.usefixtures("full_warps")
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_events_of_a_warp_share_its_lanes(shape: str, name: str) -> None:
    """Filters of every shape are in the grid, because they were added later."""
    filters, events = shaped(shape)
    filters = sorted(filters, key=lambda item: item.interface.encode())  # as a table numbers interfaces
    live = LiveTable(Table.from_filters([]), expected=filters)
    engine = open_engine(name, live.table, live=True)
    changes = live.apply([ChangeRow(Change.ADD, filters=(item._replace(id=str(i)),)) for i, item in enumerate(filters)], [])
    assert changes is not None
    engine.update(changes)
    found = engine.match(Events.of(events).encode(live.vocabulary))
    assert found == judged(shape).interfaces


@pytest.mark.gpu
@pytest.mark.usefixtures("full_warps")
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if "area" in shape])
def test_events_of_a_warp_share_its_lanes_among_circles(shape: str) -> None:
    case = judged(shape)
    engine = open_engine("keyed_cuda", case.table)
    assert engine.match(case.batch) == case.interfaces
    assert engine.match(case.batch, filters=True) == case.filters


@pytest.mark.gpu
@pytest.mark.usefixtures("full_warps")
def test_changes_in_any_order_agree_in_full_warps() -> None:
    run_machine("keyed_cuda", 8, 15)


@both
@pytest.mark.usefixtures("full_warps")
def test_long_probe_sequences_and_many_answers(name: str) -> None:
    """Circles around one point fill many blocks in turn; events have no, some, or all of them as answers."""
    n = 3000
    table = Table.from_filters([make_filter(f"i{i}", [], (0.0, 0.0, 1.0 + i % 7 / 64)) for i in range(n)])
    batch = Events.of([make_event({"a": 1}, (x / 64, 0.0)) for x in range(96)]).encode(table.vocabulary)
    found, expected = (open_engine(each, table).match(batch) for each in (name, "counting"))
    assert found == expected
    assert {len(found[i]) for i in range(96)} >= {0, n}


def test_changes_that_cannot_be_made_are_refused() -> None:
    """Changes before them in the same update may have taken effect, so the engine refuses to match from then on."""
    table = Table.from_filters([make_filter("i", [], [0, 0, 1]), make_filter("i", [["x", "=", 1]])])
    batch = Events.of([make_event({"x": 1}, (0.0, 0.0))]).encode(table.vocabulary)
    without = int(np.flatnonzero([table.filter(i).area is None for i in range(2)])[0])
    brought = replace(changes_of(Change.ADD, without), row=np.zeros(1, np.int32), added=table)
    for changes, reason in (
        (changes_of(Change.MOVE, without, (0.0, 0.0, 1.0)), f"filter {without} cannot move"),
        (changes_of(Change.MOVE, 2, (0.0, 0.0, 1.0)), "filter 2 cannot move"),
        (changes_of(Change.ADD, 2), "filter 2 is added, but is not in the table of added filters"),
        (brought, f"filter {without} is added, but already exists"),
        (
            replace(brought, target=np.array([9999], np.uint32)),
            "filter 9999 is added, but its id or that of its interface is out of range",
        ),
    ):
        engine = open_engine("keyed", table, live=True)
        with pytest.raises(EngineError, match=reason):
            engine.update(changes)
        assert engine.is_broken
        with pytest.raises(EngineError, match="open the engine again"):
            engine.match(batch)
    engine = open_engine("keyed", table, live=True)
    assert engine.match(batch, filters=True).ids.tolist() == [0, 1]
    engine.update(changes_of(Change.REMOVE, without))
    assert engine.match(batch, filters=True).ids.tolist() == [1 - without]
    with pytest.raises(EngineError, match=f"filter {without} is removed, but does not exist"):
        engine.update(changes_of(Change.REMOVE, without))
    fixed = open_engine("keyed", table)
    with pytest.raises(EngineError, match="was opened for a table that does not change"):
        fixed.update(changes_of(Change.REMOVE, 0))
    assert not fixed.is_broken
