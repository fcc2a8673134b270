"""Every kernel that scans lines, and those of `keyed`'s bitmap, in few launches: for `compute-sanitizer`.

compute-sanitizer --tool memcheck python -m pytest tests/engines/test_each_kernel_once.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from event_lines import BLANK, GOOD, JUDGED_GOOD

from mpi_match.changes.live_table import LiveTable
from mpi_match.engines import open_engine
from mpi_match.engines.keyed.bitmap import choice, live_bitmap
from mpi_match.engines.keyed.bitmap.rows import BLOCK_FILTERS
from mpi_match.engines.keyed.cuda import FEW_INTERFACES, KeyedCuda
from mpi_match.engines.keyed.kernels.tidy import TIDIED_TOGETHER
from mpi_match.engines.keyed.kernels.trie_thread import SORTED_ANSWERS
from mpi_match.events.events import Events
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, ChangeRow, EventForm
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Change, Filter, make_event, make_filter
from mpi_match.table.table import Table

WORDS = ("Mi", "lan", "🦀", "é", "a", "")
TEXTS = [
    make_filter(f"i{k % 70}", [[name, op, word]])
    for k, word in enumerate(WORDS)
    for name in ("city", "on")
    for op in ("contains", "suffix")
]
NUMBERS = [make_filter(f"n{k}", [["temp", ">", k], ["wind", "<=", k / 7]]) for k in range(70)]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the kernels that have run."""
    from mpi_match.gpu.kernels import KernelLaunch

    found, launch = set(), KernelLaunch.__call__

    def noted(self: KernelLaunch, stream: Any) -> None:
        found.add(self._kernel.name)
        launch(self, stream)

    monkeypatch.setattr(KernelLaunch, "__call__", noted)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("form", [PLAIN, EventForm(("x", "y"), "id")], ids=["plain", "located"])
@pytest.mark.parametrize("filters", [NUMBERS[:9], TEXTS + NUMBERS], ids=["numbers", "texts"])
def test_lines(filters: list[Filter], form: EventForm, launched: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match.gpu import event_scanner

    monkeypatch.setattr(event_scanner, "LEAST_GPU_BYTES", 0)
    table = Table.from_filters(filters)
    lines = [*BLANK, *(GOOD * 12), *JUDGED_GOOD[:3], *BLANK, *(GOOD * 12)]
    if form.id is None:
        lines = [line for line in lines if b'"id": 123' not in line]
    block = LineBlock(np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8), "file", 1)
    engine, on_cpu = open_engine("keyed_cuda", table), EventScanner(table.vocabulary, form)
    found, expected = engine.scanner(on_cpu).scan(block, []), on_cpu.scan(block, [])
    assert list(found.ids or ()) == list(expected.ids or ())
    assert engine.match(found.batch) == open_engine("keyed", table).match(expected.batch)
    of_rows = {"count_rows_kernel", "write_rows_kernel", "scan_plain"}
    assert of_rows | {"scan_rows", "gather", "insert"} <= launched


@pytest.mark.gpu
@pytest.mark.parametrize("of_filters", [False, True], ids=["interfaces", "filters"])
@pytest.mark.parametrize("n_filters", [500, BLOCK_FILTERS + 500], ids=["one block", "two blocks"])
def test_bitmap(n_filters: int, of_filters: bool, launched: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ENTERING_COST", -1e9)
    monkeypatch.setattr(choice, "ROW_COST", 0.0)
    scenario = SCENARIOS["intervals"].scaled(n_filters)
    table = Table.from_subscriptions(scenario.subscriptions())
    batch = scenario.events(70).encode(table.vocabulary)
    found = open_engine("keyed_cuda", table).match(batch, filters=of_filters)
    assert found == open_engine("keyed", table).match(batch, filters=of_filters)
    assert found.n_matches
    assert "bitmap_kernel_" in launched
    assert ("tidy_kernel" in launched) == (n_filters > BLOCK_FILTERS and (of_filters or table.n_interfaces > FEW_INTERFACES))


@pytest.mark.gpu
@pytest.mark.parametrize("of_filters", [False, True], ids=["interfaces", "filters"])
@pytest.mark.parametrize("n_interfaces", [SORTED_ANSWERS + 20, TIDIED_TOGETHER + 20])
def test_many_answers_of_the_trie(n_interfaces: int, of_filters: bool, launched: set[str]) -> None:
    """A thread that kept them all in order took minutes for an event of 45,000."""
    table = Table.from_filters([make_filter(f"i{k * 7 % n_interfaces}", [["a", "exists"]]) for k in range(3 * n_interfaces)])
    batch = Events.of([make_event({"a": k}) for k in range(70)]).encode(table.vocabulary)
    engine = open_engine("keyed_cuda", table)
    assert isinstance(engine, KeyedCuda)
    assert not engine.has_bitmap
    found = engine.match(batch, filters=of_filters)
    assert found == open_engine("keyed", table).match(batch, filters=of_filters)
    assert found.n_matches == 70 * n_interfaces * (3 if of_filters else 1)
    assert "tidy_kernel" in launched
    assert ("digit_kernel" in launched) == (n_interfaces > TIDIED_TOGETHER)


@pytest.mark.gpu
def test_bits_of_added_filters(launched: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ENTERING_COST", -1e9)
    monkeypatch.setattr(choice, "ROW_COST", 0.0)
    monkeypatch.setattr(live_bitmap, "LATER_ROW_COST", -1.0)
    scenario = SCENARIOS["intervals"].scaled(300)
    filters = [
        each._replace(id=str(k)) for k, each in enumerate(Table.from_subscriptions(scenario.subscriptions()).iter_filters())
    ]
    live = LiveTable(Table.from_filters(filters[:200]), expected=filters)
    engines = [open_engine(name, live.table, live=True) for name in ("keyed_cuda", "keyed")]
    changes = live.apply([ChangeRow(Change.ADD, filters=(each,)) for each in filters[200:]], [])
    assert changes is not None
    batch = scenario.events(70).encode(live.vocabulary)
    found = []
    for engine in engines:
        engine.update(changes)
        found.append(engine.match(batch, filters=True))
    assert found[0] == found[1]
    assert "enter_bits" in launched
