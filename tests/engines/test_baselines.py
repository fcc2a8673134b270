"""What baselines do besides answering: the selectivity table, the shape of the tree, options, room for answers, moves."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from engine_names import PACKAGES
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import SHAPES, judged
from strategies import areas

from mpi_match.engines import EngineError, open_engine
from mpi_match.engines.keyed.index.filter_rows import FilterRows
from mpi_match.events.events import Events
from mpi_match.lab.baselines.betree.build import NODE_FIRST, NODE_LAST, NODE_LEFT, NODE_RIGHT, Tree, build, extents
from mpi_match.lab.baselines.event_by_event import FIRST_PAIRS
from mpi_match.lab.baselines.sff.engine import NARROW_NEED
from mpi_match.lab.baselines.sff.index import PredicateIndex, selectivity_table
from mpi_match.lab.bench.moves import changes_of, moved
from mpi_match.lab.papers.run import missing
from mpi_match.lab.workloads.sampling import Moves
from mpi_match.model import Area, Change, make_event, make_filter
from mpi_match.table.table import Table

VARIANTS = [
    *(("sff", {"rounds": rounds}) for rounds in (0, 1, 1000)),
    *(("sff", {"rounds": rounds, "area": "constraints"}) for rounds in (0, 10)),
    *(("betree", {"bucket": bucket, "area": "constraints"}) for bucket in (1, 20)),
    *(("betree", {"bucket": bucket, "halvings": halvings}) for bucket, halvings in product((1, 3, 100_000), (0, 1, 32))),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=[f"{name} {options}" for name, options in VARIANTS])
@pytest.mark.parametrize("shape", ["every type", "areas", "long filters", "negative", "one interface each"])
def test_every_variant_gives_the_same_answers(name: str, options: dict[str, object], shape: str) -> None:
    case = judged(shape)
    engine = open_engine(name, case.table, options=options)
    assert engine.match(case.batch) == case.interfaces
    assert engine.match(case.batch, filters=True) == case.filters


@pytest.mark.parametrize("name", ["sff", "betree", *PACKAGES])
def test_one_event_with_more_answers_than_there_is_room_for(name: str) -> None:
    n = 3 * FIRST_PAIRS
    table = Table.from_filters([make_filter(i, [["x", ">", i]]) for i in range(n)])
    batch = Events.of([make_event({"x": x}) for x in (1.5, n, 0, n, 2.5)]).encode(table.vocabulary)
    engine = open_engine(name, table)
    for answer in (False, True):
        assert engine.match(batch, filters=answer).counts.tolist() == [2, n, 0, n, 3]
        assert engine.match(batch[1:2], filters=answer).counts.tolist() == [n]


@pytest.mark.parametrize("size", [NARROW_NEED, NARROW_NEED + 1])
def test_counters_go_on_when_their_numbers_are_used_up(size: int) -> None:
    """Events that satisfy nearly all constraints of a filter, which the next one must not find counted."""
    table = Table.from_filters(
        [make_filter("i", [[f"n{i}", ">", 0] for i in range(size)]), make_filter("j", [["z", "absent"]])]
    )
    full = {f"n{i}": 1 for i in range(size)}
    events = [make_event(full | {f"n{size - 1}": 0}), make_event({"n0": 1, "z": 1}), make_event(full)] * 100
    found = open_engine("sff", table).match(Events.of(events).encode(table.vocabulary))
    assert found.labels(table.labels) == [["j"], [], ["i", "j"]] * 100


def test_a_name_is_determinant_for_interfaces_all_of_whose_filters_need_it() -> None:
    table = Table.from_filters(
        [
            make_filter("0", [["a", "=", 1], ["b", ">", 1], ["a", "<", 5]]),
            make_filter("0", [["a", "exists"], ["c", "absent"]]),
            make_filter("1", [["a", "contains", "x"], ["b", "=", 1]]),
            make_filter("2", [["b", "!=", 1], ["c", "absent"]]),
            make_filter("3", []),
        ]
    )
    names, offsets, interfaces = selectivity_table(table, 10)
    found = dict(zip((table.vocabulary.names[n] for n in names), np.split(interfaces, offsets[1:-1]), strict=True))
    assert {name: each.tolist() for name, each in found.items()} == {b"a": [0, 1], b"b": [1, 2]}
    names, offsets, interfaces = selectivity_table(table, 1)
    assert (names.tolist(), offsets.tolist(), interfaces.tolist()) == ([0], [0, 2], [0, 1])
    assert [len(each) for each in selectivity_table(table, 0)] == [0, 1, 0]


def test_a_constraint_that_filters_share_is_stored_once() -> None:
    shared: list[list[object]] = [["x", ">", 1], ["y", "in", [1, 2]], ["z", "suffix", "a"]]
    index = PredicateIndex.of(Table.from_filters([make_filter(i, [*shared, ["x", "<", i]]) for i in range(9)]))
    assert len(index.lo) == len(shared) + 9
    assert sorted(np.diff(index.rows).tolist()) == [1] * 9 + [9] * len(shared)


def tree_of(table: Table, bucket: int, halvings: int) -> Tree:
    rows = FilterRows.of(table)
    return build(extents(rows), np.diff(rows.code_offsets), bucket, halvings)


def test_candidates_are_the_filters_of_the_buckets_that_an_event_reaches() -> None:
    names = [f"n{i}" for i in range(8)]
    filters = [make_filter(f"{name} {i}", [[name, "=", i]]) for name in names for i in range(64)]
    table = Table.from_filters([*filters, make_filter("always", [["n0", "absent"]])])
    engine = open_engine("betree", table, options={"bucket": 1})
    batch = Events.of([make_event({"n1": 5}), make_event({"n1": 5, "n7": 7, "other": 1})]).encode(table.vocabulary)
    before = engine.candidates or 0  # of the events that opening it matches
    assert engine.match(batch).counts.tolist() == [2, 3]
    assert engine.candidates == before + 2 + 3


@pytest.mark.parametrize("shape", SHAPES)
def test_every_filter_is_in_one_bucket(shape: str) -> None:
    table = judged(shape).table
    tree = tree_of(table, 5, 32)
    assert sorted(tree.order.tolist()) == list(range(table.n_filters))
    bounds = sorted(
        (int(node[NODE_FIRST]), int(node[NODE_LAST])) for node in tree.nodes if node[NODE_FIRST] < node[NODE_LAST]
    )
    assert [first for first, _ in bounds[1:]] == [last for _, last in bounds[:-1]]
    assert (bounds[0][0], bounds[-1][1]) == (0, table.n_filters)


def test_areas_as_constraints_hold_every_location_that_circles_hold() -> None:
    """Also those at the edge, those of circles as large as numbers go, and none of an event without a location."""
    circles = [(0.0, 0.0, 1.0), (0.5, 0.25, 0.1), (1e160, 0.0, 1.0), (0.0, 0.0, 1e200), (3.0, 3.0, 0.0), (0.1, 0.2, 1e-18)]
    rows = [make_filter(f"i{k}", [["x", ">", 0]] * (k % 2), list(circle)) for k, circle in enumerate(circles)]
    table = Table.from_filters([*rows, make_filter("none", [["x", ">", 1]])])
    places = [(1.0, 0.0), (0.6, 0.25), (1e160, 0.0), (3.0, 3.0), (0.1, 0.2), (-1.0, 0.0), (2.0, 2.0), None]
    events = [make_event({"x": x}, location=list(place) if place else None) for place in places for x in (0, 1, 2)]
    batch = Events.of(events).encode(table.vocabulary)
    expected = open_engine("counting", table).match(batch)
    for name in ("sff", "betree"):
        assert open_engine(name, table, options={"area": "constraints"}).match(batch) == expected


def test_buckets_are_divided_until_they_hold_what_cannot_be() -> None:
    """A thousand filters on a hundred values, ten of them alike: buckets of ten are the smallest that there can be."""
    table = Table.from_filters([make_filter(i % 7, [["x", "=", i % 100], ["y", "exists"]]) for i in range(1000)])
    for bucket, largest in ((1, 10), (9, 10), (10, 10), (25, 20), (1000, 1000)):
        tree = tree_of(table, bucket, 32)
        assert int((tree.nodes[:, NODE_LAST] - tree.nodes[:, NODE_FIRST]).max()) == largest
    flat = tree_of(table, 1, 0)
    assert np.all(flat.nodes[:, [NODE_LEFT, NODE_RIGHT]] == -1)
    assert int((flat.nodes[:, NODE_LAST] - flat.nodes[:, NODE_FIRST]).max()) == 1000


@pytest.mark.skipif("rtree" not in PACKAGES, reason="the package rtree (extra `bench`) is not installed")
@settings(max_examples=examples(30))
@given(moves=st.lists(st.tuples(st.integers(0, 19), areas()), max_size=30))
def test_moved_areas_are_those_of_the_tree(moves: list[tuple[int, Area]]) -> None:
    """Also areas that the tree cannot hold, and back; a filter without an area stays where it is."""
    filters = [make_filter(str(i), [["a", ">", i % 3]], [i % 5, i // 5, 1]) for i in range(20)]
    filters.append(make_filter("everywhere", []))
    table = Table.from_filters(filters)
    engine = open_engine("rtree", table)
    for filter_id, area in moves:
        one = Moves(np.array([filter_id], np.uint32), np.array([area]))
        engine.update(changes_of(one, table))
        table = moved(table, one)
    places = [(0, 0), (1.5, 2), (4, 3), (1e200, 0), None, *((area.x, area.y) for _, area in moves[-5:])]
    events = [make_event({"a": 2}, place) for place in places]
    batch = Events.of(events).encode(table.vocabulary)
    assert engine.match(batch) == open_engine("counting", table).match(batch)


@pytest.mark.skipif("rtree" not in PACKAGES, reason="the package rtree (extra `bench`) is not installed")
def test_the_tree_takes_no_other_changes() -> None:
    table = Table.from_filters([make_filter("i", [], [0, 0, 1])])
    change = changes_of(Moves(np.zeros(1, np.uint32), np.zeros((1, 3))), table)
    with pytest.raises(EngineError, match="serves tables that do not change"):
        open_engine("rtree", table).update(replace(change, kind=np.array([Change.REMOVE], np.uint8)))


@pytest.mark.skipif("rtree" not in PACKAGES, reason="the package rtree (extra `bench`) is not installed")
def test_an_interrupt_while_arguments_of_the_library_are_converted_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """ctypes makes an ArgumentError of whatever is raised there."""

    class Interrupting:
        @classmethod
        def from_param(cls, value: object) -> object:
            raise KeyboardInterrupt

    def call(*arguments: object, **more: object) -> object:
        function = ctypes.CDLL(None).abs
        function.argtypes = [Interrupting]  # type: ignore[list-item]
        return function(1)

    table = Table.from_filters([make_filter("i", [], [0, 0, 1])])
    engine = open_engine("rtree", table)
    batch = Events.of([make_event({}, (0, 0)), make_event({}, (3, 3))]).encode(table.vocabulary)
    expected = engine.match(batch)
    with monkeypatch.context() as patch:
        for method in ("intersection", "intersection_v"):
            patch.setattr(vars(engine)["_tree"], method, call)
        for some in (batch, batch[:1]):
            with pytest.raises(KeyboardInterrupt):
                engine.match(some)
        patch.setattr(vars(engine)["_tree"], "insert", call)
        with pytest.raises(KeyboardInterrupt):
            engine.update(changes_of(Moves(np.zeros(1, np.uint32), np.ones((1, 3))), table))
    assert open_engine("rtree", table).match(batch) == expected


@pytest.mark.parametrize("name", ["rtree", "duckdb"])
def test_a_package_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [each for each in sys.modules if each.startswith(f"mpi_match.lab.baselines.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EngineError, match=rf"'{name}' needs the package {name} .*pip install 'mpi-match\[bench\]'"):
        open_engine(name, Table.from_filters([]))
    assert f"needs the package {name}" in missing([name])[name]
