"""Regrouping of spares, by tables of dissolved groups; serialized shards and several shards at one worker."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from random_tables import Shape, random_subscriptions

from mpi_match.cluster.distribution.shard import Shard, packed, unpacked
from mpi_match.cluster.engine_runner import ShardsHeld
from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.groups import Spares, any_room
from mpi_match.cluster.scheduling.instructions import Emit, GiveUp, Instruction, Load, Send
from mpi_match.engines import Engine, open_engine
from mpi_match.events.events import Events
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.table import Table

HYBRID = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


@pytest.mark.parametrize(
    ("spares", "last", "expected"),
    [
        ((1, 2), False, None),
        ((1, 5, 9), False, ([1, 5, 9], [])),
        ((1, 5, 7), False, ([1, 5, 7], [Load(7, 2)])),
        ((1, 4, 7), False, ([1, 4, 7], [Load(4, 1), Load(7, 2)])),
        ((1, 4, 5, 9), False, ([1, 5, 9], [])),  # and one to spare
        ((), True, None),
        ((1, 2), True, ([1, 2], [Load(1, 2, keep=True)])),
        ((2,), True, ([2], [Load(2, 0, keep=True), Load(2, 2, keep=True)])),
        ((1, 4), True, ([1, 4], [Load(4, 1), Load(1, 2, keep=True)])),
    ],
)
def test_a_group_is_made_of_spares_as_soon_as_they_are_enough(
    spares: tuple[int, ...], last: bool, expected: tuple[list[int], list[Load]] | None
) -> None:
    found = Spares(HYBRID, any_room)
    found.add(spares)
    assert found.regroup(last=last) == expected
    assert expected is None or found.regroup(last=False) is None


def test_no_worker_gets_more_shards_than_fit() -> None:
    asked: list[set[int]] = []

    def room(parts: Collection[int]) -> bool:
        asked.append(set(parts))
        return len(parts) < 2

    found = Spares([(1, 2, 3)], room)
    found.add((1, 3))
    assert found.regroup(last=True) is None
    assert asked == [{0, 1}]
    found.remove(3)
    assert found.regroup(last=True) is None


def test_a_loaded_shard_is_kept_for_the_next_group() -> None:
    found = Spares([(1, 2, 3)], any_room)
    found.add((1, 2))
    assert found.regroup(last=True) == ([1, 2], [Load(1, 2, keep=True)])
    found.add((1,))  # 2 is lost
    assert found.regroup(last=True) == ([1], [Load(1, 1, keep=True)])


def test_the_others_load_what_a_lost_member_had_and_go_on() -> None:
    dispatcher = Dispatcher(6, [[1, 2, 3]], credits=1)
    assert dispatcher.start() == [Send(1, 0), Send(2, 0), Send(3, 0)]
    assert dispatcher.lost(2) == [Load(1, 1, keep=True), Send(1, 0, 1), Send(3, 0, 1)]
    assert dispatcher.answered(1, 0, 0) == []  # of the group that is no more
    assert dispatcher.n_dropped == 1
    assert dispatcher.answered(1, 0, 1) == []
    expected: list[Instruction] = [Send(1, 1), Send(3, 1), Emit(0, 1)]
    assert dispatcher.answered(3, 0, 1) == expected


def test_without_room_the_run_is_given_up() -> None:
    dispatcher = Dispatcher(6, [[1, 2]], room=lambda parts: len(parts) == 1)
    dispatcher.start()
    assert dispatcher.lost(2)[-1] == GiveUp("too few workers are left to have all filters")


def test_a_member_with_a_broken_engine_is_replaced() -> None:
    dispatcher = Dispatcher(6, [[1, 2]], credits=2)
    dispatcher.start()
    dispatcher.failed(2, 0, 0)
    assert dispatcher.failed(2, 1, 0)[:2] == [Load(1, 1, keep=True), Send(1, 1, 1)]


@pytest.mark.parametrize("filters", [False, True])
def test_parts_that_are_sent_and_held_together_answer_as_the_whole_table(filters: bool, tmp_path: Path) -> None:
    subscriptions, events = random_subscriptions(7, Shape(n_filters=60, n_events=80, areas=0.3, sizes=(0, 3)))
    table = Table.from_filters(subscriptions)
    table.save(tmp_path / "table.h5")
    batch = Events.of(events).encode(table.vocabulary)
    with RangeReader(tmp_path / "table.h5") as large:
        cut = table.n_filters // 3
        parts = [Shard(0, 2, 0, cut, table.n_filters), Shard(1, 2, cut, table.n_filters, table.n_filters)]
        first, second = ((part, large.part(part.first, part.stop)) for part in parts)

    def open_reference(each: Table) -> Engine:
        return open_engine("reference", each)

    expected = open_reference(table).match(batch, filters=filters)
    shards = ShardsHeld(*first, open_reference)
    alone = shards.open().match(batch, filters=filters)
    shards.load(*unpacked(packed(*second)), keep=True)
    assert shards.open().match(batch, filters=filters) == expected != alone
    shards.load(*unpacked(packed(*first)), keep=False)
    assert shards.open().match(batch, filters=filters) == alone
