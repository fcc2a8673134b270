"""Routing: shards of filters that ask for the same, each with the events that it can match, answer as the whole table."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_rows import random_event, random_subscription
from random_tables import SHAPES, random_subscriptions

from mpi_match import make_batch, make_table
from mpi_match.arrays.csr import Array
from mpi_match.cluster import ClusterError, RunOptions
from mpi_match.cluster.distribution import routing
from mpi_match.cluster.distribution.merge import merge
from mpi_match.cluster.distribution.partition import Division
from mpi_match.cluster.distribution.routing import Router
from mpi_match.cluster.distribution.shard import ShardEngine, ShardsEngine
from mpi_match.engines import open_engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.events import Events
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.matches import Matches
from mpi_match.storage import StorageError, Writer
from mpi_match.table import range_reader
from mpi_match.table.table import Table


def wires_of(router: Router, batch: EventBatch) -> list[Array]:
    """The messages to the workers, each in its own memory."""
    wires, _ = router.wires(batch, lambda n_bytes: np.full(n_bytes + 7, 0xA5, np.uint8)[:n_bytes])
    return [wire.copy() for wire in wires]


def routed(table: Table, directory: Path, n_shards: int) -> tuple[Division, Router]:
    """A table divided for routing."""
    path = directory / "table.h5"
    table.save(path)
    division = Division(RunOptions(path, path, path, placement="shard", route=True, engine="keyed"), n_shards)
    assert division.routes is not None
    return division, Router(division.routes, table.vocabulary)


def check(table: Table, batch: EventBatch, directory: Path, n_shards: int, engine: str = "keyed") -> None:
    """The shards' answers, merged, are those of the reference to the whole table."""
    division, router = routed(table, directory, n_shards)
    with division:
        for size in (batch.n_events, 13):
            pieces = [batch[at : at + size] for at in range(0, batch.n_events, size)]
            received = [wires_of(router, piece) for piece in pieces]
            for filters in (False, True):
                expected = open_engine("reference", table).match(batch, filters=filters)
                engines = [ShardEngine(open_engine(engine, division.read(part), threads=1), part) for part in division.parts]
                assert sum(part.n_own for part in division.parts) >= table.n_filters
                found = []
                for wires in received:
                    answers = [
                        each.match(EventBatch.from_wire(wire), filters=filters)
                        for each, wire in zip(engines, wires, strict=True)
                    ]
                    found.append(merge([(each.counts, np.ascontiguousarray(each.ids)) for each in answers]))
                counts, ids = (np.concatenate(columns) for columns in zip(*found, strict=True))
                assert Matches(counts, ids, expected.n_ids) == expected
        held = division.parts[: -(-n_shards // 2)]  # those of a worker that has others' too
        engine_of_several = ShardsEngine(
            [ShardEngine(open_engine(engine, division.read(part), threads=1), part) for part in held]
        )
        wire = router.wire_of(batch, [part.member for part in held])
        found_by_several, found_by_all = (
            engine_of_several.match(events, filters=True) for events in (EventBatch.from_wire(wire), batch)
        )
        assert found_by_several == found_by_all
    n_sent = sum(shards.bit_count() for shards in router.shards(batch).tolist())
    assert router.share == pytest.approx(n_sent / (batch.n_events * n_shards)), "as often for each event"


@pytest.mark.parametrize("n_shards", [2, pytest.param(5, marks=pytest.mark.lasting)])
@pytest.mark.parametrize("shape", SHAPES)
def test_routed_shards_answer_together_as_the_whole(shape: str, n_shards: int, tmp_path: Path) -> None:
    filters, events = random_subscriptions(7, replace(SHAPES[shape], n_filters=250, n_events=80))
    table = Table.from_filters(filters)
    check(table, Events.of(events).encode(table.vocabulary), tmp_path, n_shards)


@pytest.mark.parametrize("seed", range(6))
def test_lists_views_and_conditions_are_routed_and_bad_rows_match_nothing(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    rows: list[dict[str, Any]] = [{**random_subscription(generator), "interface": f"i{i % 17}"} for i in range(80)]
    for i in range(40):
        either = {"or": [["a", "=", i % 7], {"and": [["s", "prefix i", "X"], {"not": ["b", "=", i % 3]}]}]}
        rows.append({"interface": f"o{i % 9}", "where": either, "constraints": [["c", "=", i]] if i % 2 else []})
        rows.append({"interface": f"p{i}", "constraints": [["*", "contains i", "xY"], ["s", "wildcard", f"*{i % 4}*z"]]})
        rows.append({"interface": f"q{i}", "constraints": [["a", "null"] if i % 3 else ["a", "absent"]]})
    table = make_table(rows)
    published: list[Any] = [random_event(generator) for _ in range(100)]
    published += [{"a": i % 8, "b": i % 3, "c": i, "s": "xyz"[i % 3 :] + str(i % 5) + "z"} for i in range(60)]
    published += [{"a": None, "s": "axyb"}, {}, {"unknown": 1}]
    batch = make_batch(table, published)
    check(table, batch, tmp_path, 3)
    check(table, replace(batch, rejected=np.flatnonzero(np.diff(batch.bounds) == 0).astype(np.uint32)), tmp_path, 3)


@pytest.mark.parametrize("most", [1, 2, 64])
def test_neighbouring_codes_may_share_a_word(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_MOST_BUCKETS", most)
    filters, events = random_subscriptions(7, replace(SHAPES["numbers"], n_filters=250, n_events=80))
    table = Table.from_filters(filters)
    check(table, Events.of(events).encode(table.vocabulary), tmp_path, 4)


def test_filters_of_a_large_table_whose_work_is_sampled_are_divided_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "MOST_GRAINS", 16)
    filters, events = random_subscriptions(7, replace(SHAPES["areas"], n_filters=250, n_events=80))
    table = Table.from_filters(filters)
    check(table, Events.of(events).encode(table.vocabulary), tmp_path, 4)


@pytest.mark.parametrize("scale", [0.0, 1e-310, 1e-160, 1e-9, 1e9, 1e150, 1e300])
def test_areas_of_any_size_are_routed(scale: float, tmp_path: Path) -> None:
    """Events lie on the circles and beside them."""
    rng = np.random.default_rng(3)
    circles = [(*(rng.integers(-9, 9, 2) * scale).tolist(), int(rng.integers(0, 4)) * scale) for _ in range(120)]
    rows = [{"interface": f"i{i}", "constraints": [], "area": list(circle)} for i, circle in enumerate(circles)]
    table = make_table([*rows, {"interface": "anywhere", "constraints": [["a", "=", 1]]}])
    published: list[Any] = [{"a": i % 3} for i in range(4)]
    for x, y, r in circles:
        for away in (r, float(np.nextafter(r, np.inf)), -r):
            published += [{"a": 1, "position": {"x": x + away, "y": y}}, {"a": 2, "position": {"x": x, "y": y + away}}]
    published += [{"a": 2, "position": {"x": big, "y": -big}} for big in (1e308, -1e308)]
    batch = make_batch(table, published, location=("position.x", "position.y"))
    check(table, batch, tmp_path, 4)


def test_events_that_no_shard_can_match_go_nowhere_and_are_answered(tmp_path: Path) -> None:
    table = make_table([{"interface": f"i{i}", "constraints": [["city", "=", f"c{i}"]]} for i in range(40)])
    batch = make_batch(table, [{"city": "c3"}, {"city": "elsewhere"}, {}, {"city": "c39"}, {"city": 7}])
    division, router = routed(table, tmp_path, 4)
    with division:
        shards = router.shards(batch)
        assert np.bitwise_count(shards).tolist() == [1, 0, 0, 1, 0]
        assert sum(some.n_events for _, some in router.split(batch)) == 2
        assert sum(map(len, wires_of(router, batch))) < 4 * batch.wire_bytes + 4 * 24
    check(table, batch, tmp_path, 4)


@pytest.mark.parametrize(("scenario", "least"), [("clcb", 0.9), ("ccm-strings", 0.5)])
def test_most_events_need_not_go_to_most_of_sixteen_shards(scenario: str, least: float, tmp_path: Path) -> None:
    drawn = SCENARIOS[scenario].scaled(5000)
    table = Table.from_subscriptions(drawn.subscriptions())
    division, router = routed(table, tmp_path, 16)
    with division:
        shards = router.shards(drawn.events(2000).encode(table.vocabulary))
    assert 1 - np.bitwise_count(shards).mean() / 16 > least


def test_sixty_four_shards_are_told_apart_and_more_are_refused(tmp_path: Path) -> None:
    table = make_table([{"interface": f"i{i}", "constraints": [["n", "=", i]]} for i in range(640)])
    batch = make_batch(table, [{"n": i} for i in range(640)])
    check(table, batch, tmp_path, 64)
    division, router = routed(table, tmp_path, 64)
    with division:
        assert np.bitwise_or.reduce(router.shards(batch)) == 2**64 - 1
    with pytest.raises(ClusterError, match="--route tells at most 64 shards apart, a group has 65"):
        routed(table, tmp_path, 65)


@pytest.mark.parametrize(("how", "n_workers"), [({"placement": "shard"}, 1), ({"placement": "hybrid", "groups": 2}, 2)])
def test_a_run_whose_groups_are_one_worker_each_says_that_nothing_is_routed(
    how: dict[str, Any], n_workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "table.h5"
    make_table([{"interface": "i", "constraints": [["n", "=", 1]]}]).save(path)
    with Division(RunOptions(path, path, path, route=True, **how), n_workers) as division:
        assert division.routes is None
    assert [each.getMessage() for each in caplog.records] == [
        "--route saves nothing: a group of one worker has all filters and gets every event"
    ]


def test_attributes_beyond_the_vocabulary_go_everywhere(tmp_path: Path) -> None:
    """Engines report such a batch; routing neither fails nor reads beyond its words."""
    table = make_table([{"interface": f"i{i}", "constraints": [["n", "=", i]]} for i in range(20)])
    division, router = routed(table, tmp_path, 3)
    shift = table.vocabulary.shift
    wrong = np.array([2**31, (1 << shift) - 1, 5 << shift, 2**32 - 1], table.vocabulary.packed_dtype)
    with division:
        batch = EventBatch(np.arange(5, dtype=np.uint32), wrong, None, table.vocabulary.fingerprint)
        assert router.shards(batch).tolist() == [7] * 4


@pytest.mark.parametrize(
    ("column", "wrong"), [("lo", 2**31), ("hi", 2**31), ("hi", 0), ("filter", 2**32 - 1), ("kind", 255), ("kind", 0x1A)]
)
def test_a_table_with_wrong_constraints_is_refused_when_a_shard_is_read(column: str, wrong: int, tmp_path: Path) -> None:
    """Dividing it neither fails nor reads or writes beyond its arrays."""
    filters, _ = random_subscriptions(7, replace(SHAPES["every type"], n_filters=250, n_events=1))
    table, path = Table.from_filters(filters), tmp_path / "wrong.h5"
    with Writer(path, "table") as writer:
        for name, count in table.counts().items():
            writer.attribute(name, count)
        for name, array in table.arrays():
            values = array.copy()
            if name == f"constraints/{column}":
                values[::3] = wrong
            writer.array(name, values)
    options = RunOptions(path, path, path, placement="shard", route=True, engine="keyed")
    with Division(options, 3) as division, pytest.raises(StorageError, match="is not a valid table"):
        _ = [division.read(part) for part in division.parts]


def test_a_batch_of_some_events_knows_all_of_them_and_is_refused_cut_short(tmp_path: Path) -> None:
    drawn = SCENARIOS["clcb"].scaled(5000)
    table = Table.from_subscriptions(drawn.subscriptions())
    signatures = np.arange(150, dtype=np.uint64).reshape(50, 3)
    batch = replace(drawn.events(50).encode(table.vocabulary), signatures=signatures)
    division, router = routed(table, tmp_path, 2)
    with division:
        shards, wires = router.shards(batch), wires_of(router, batch)
    assert batch.location is not None
    for shard, wire in enumerate((*wires, *(router.wire_of(batch, [shard]) for shard in range(2)))):
        here = np.flatnonzero(shards >> np.uint64(shard % 2) & np.uint64(1))
        assert 0 < len(here) < 50
        received = EventBatch.from_wire(wire)
        lengths = np.zeros(50, np.int64)
        lengths[here] = np.diff(batch.bounds)[here]
        assert (received.n_events, len(received)) == (50, 50)
        assert np.diff(received.bounds).tolist() == lengths.tolist()
        assert received.rejected is not None
        assert received.rejected.tolist() == np.setdiff1d(np.arange(50), here).tolist()
        assert np.array_equal(received.attributes, batch.picked(here).attributes)
        assert received.accepted.signatures is not None
        assert np.array_equal(received.accepted.signatures, signatures[here])
        places = np.full((50, 2), np.nan)
        places[here] = batch.location[here]
        assert received.location is not None
        assert np.array_equal(received.location, places, equal_nan=True)
        for length in range(0, len(wire) - 8, 8):
            with pytest.raises(ValueError, match=r"not a (whole )?batch"):
                EventBatch.from_wire(wire[:length])
        more = wire.copy()
        more[16] ^= 128
        with pytest.raises(ValueError, match="events are here, others are marked"):
            EventBatch.from_wire(more)
