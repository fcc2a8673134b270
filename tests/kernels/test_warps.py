"""Searches of `keyed_cuda` by warps of several lanes, which meet at each ballot and shuffle (`simulated_warps`): `make
test-simulator` runs this file in a process of its own, with SIMULATED_LANES=4."""

from __future__ import annotations

import pytest
from lasting import lasting
from random_tables import SHAPES, random_subscriptions

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import ChangeRow
from mpi_match.model import Change
from mpi_match.table.table import Table

N_FILTERS, N_EVENTS = 80, 20
FEW = ("areas", "areas and three names", "one interface each", "numbers")
NARROW = [shape for shape in SHAPES if "wide" not in shape and "long" not in shape]


@pytest.mark.parametrize("are_later", [False, True], ids=["static", "added later"])
@pytest.mark.parametrize("shape", [*FEW, *lasting(*(shape for shape in NARROW if shape not in FEW))])
def test_lanes_share_the_work_of_their_events(shape: str, are_later: bool) -> None:
    """Filters that are added later are in the grid, or in a bitmap, those of the table in the trie if they have no area."""
    filters, events = random_subscriptions(len(shape), SHAPES[shape])
    filters = sorted(filters[:N_FILTERS], key=lambda item: item.interface.encode())  # as a table numbers interfaces
    table, given = Table.from_filters(filters), Events.of(events[:N_EVENTS])
    judge, encoded = open_engine("counting", table), given.encode(table.vocabulary)
    if are_later:
        live = LiveTable(Table.from_filters([]), expected=filters)
        engine = open_engine("keyed_cuda", live.table, live=True)
        rows = [ChangeRow(Change.ADD, filters=(item._replace(id=str(i)),)) for i, item in enumerate(filters)]
        changes = live.apply(rows, [])
        assert changes is not None
        engine.update(changes)
        assert engine.match(given.encode(live.vocabulary)) == judge.match(encoded)
        return
    engine = open_engine("keyed_cuda", table)
    for by_filter in (False, True):
        assert engine.match(encoded, filters=by_filter) == judge.match(encoded, filters=by_filter)
