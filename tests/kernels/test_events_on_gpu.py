"""Lines that are scanned and matched on a GPU, under the simulator: the answers and rejects of the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from event_lines import BAD, BLANK, GOOD, JUDGED_GOOD

from mpi_match.changes.live_table import LiveTable
from mpi_match.cluster import run
from mpi_match.cluster.at_once.in_place import AtOnce
from mpi_match.cluster.distribution.event_source import OrderSource, ScannedSource
from mpi_match.cluster.options import RunOptions
from mpi_match.commands import scan_ahead
from mpi_match.commands.match import MatchOptions, match_rows
from mpi_match.engines import Engine, open_engine, staged
from mpi_match.engines.base import match_all
from mpi_match.engines.keyed.cuda import KeyedCuda
from mpi_match.events.batch import EventBatch
from mpi_match.gpu import event_scanner
from mpi_match.gpu.event_batch import GpuBatch
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.batches.scan_lines import BatchScanner
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner, LineScanner
from mpi_match.ingest.rows.judge import PLAIN, ChangeRow, EventForm, Reject, subscription_filters
from mpi_match.matches.matches import Matches
from mpi_match.model import Area, Change, make_filter
from mpi_match.table.table import Table

TABLE = Table.from_filters(
    [
        make_filter("temperate", [["temp", ">", 0], ["temp", "<", 30]]),
        make_filter("city", [["city", "contains", "Mil"]]),
        make_filter("on", [["on", "=", True]]),
        make_filter("not cold", [["cold", "absent"]]),
        make_filter("near", [["temp", "exists"]], Area(9.0, 45.0, 1.0)),
    ]
)
FORM = EventForm(("x", "y"), "id")
FLAGGED_AND_LOCATED = b'{"x": 9.5, "y": 45.25, "temp": 20, "id": "\\u0061b", "city": "Milan", "wind": NaN}'


CONDITIONS: list[dict[str, Any]] = [
    {"interface": "a", "where": {"or": [["temp", "=", 1], {"and": [["wind", ">", 0], {"not": ["temp", "=", 3]}]}]}},
    {"interface": "b", "where": {"not": {"or": [["temp", "=", 2], ["city", "contains", "Mil"]]}}},
    {"interface": "c", "where": {"or": [["city", "suffix", "lan"], {"and": [["on", "exists"], {"not": ["temp", ">", 3]}]}]}},
]
LOCATED: dict[str, Any] = {"interface": "d", "where": {"or": [["temp", ">", 1], ["on", "absent"]]}, "area": [9.0, 45.0, 1.0]}


@pytest.mark.parametrize("filters", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_conditions_are_matched_where_the_events_are(filters: bool, added: bool) -> None:
    """In all stages, and with filters that are added later."""
    of_rows = [subscription_filters(row) for row in CONDITIONS]
    later = of_rows.pop() if added else ()
    live = LiveTable(Table.from_filters([each for filters_ in of_rows for each in filters_]), expected=later)
    table = live.table
    on_gpu, on_cpu = (open_engine(name, table, live=added) for name in ("keyed_cuda", "keyed"))
    if added:
        changes = live.apply([ChangeRow(Change.ADD, filters=tuple(later))], [])
        assert changes is not None
        on_gpu.update(changes)
        on_cpu.update(changes)
    scanner = EventScanner(table.vocabulary, PLAIN)
    found, expected = on_gpu.scanner(scanner).scan(block(GOOD * 3), []), scanner.scan(block(GOOD * 3), [])
    assert isinstance(found.batch, GpuBatch)
    begun = on_gpu.begin(found.batch, filters=filters)
    assert not isinstance(begun, Matches)
    assert begun.end() == on_gpu.match(found.batch, filters=filters) == on_cpu.match(expected.batch, filters=filters)


@pytest.mark.parametrize("together", [7, 2**20])
@pytest.mark.parametrize("filters", [False, True])
def test_conditions_of_events_on_the_host(filters: bool, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied to the GPU for all stages."""
    monkeypatch.setattr(staged, "STAGED_TOGETHER", 3)
    monkeypatch.setattr(staged, "PLACED_TOGETHER", together)
    placed, place = [], KeyedCuda.placed

    def noted(self: KeyedCuda, batch: EventBatch) -> EventBatch:
        placed.append(place(self, batch))
        return placed[-1]

    monkeypatch.setattr(KeyedCuda, "placed", noted)
    table = Table.from_filters([each for row in (*CONDITIONS, LOCATED) for each in subscription_filters(row)])
    on_gpu, on_cpu = (open_engine(name, table) for name in ("keyed_cuda", "keyed"))
    lines = [line for line in GOOD for _ in range(2)] + BAD
    batch = EventScanner(table.vocabulary, FORM).scan(block(lines), []).batch
    assert batch.rejected is not None
    assert batch.has_location
    for each in (batch, batch[5:], batch[: len(GOOD)]):
        assert on_gpu.match(each, filters=filters) == on_cpu.match(each, filters=filters)
    assert len(placed) >= 3
    assert all(isinstance(each, GpuBatch) for each in placed)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return open_engine("keyed_cuda", TABLE)


@pytest.fixture(autouse=True)
def _every_block_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_scanner, "LEAST_GPU_BYTES", 0)
    monkeypatch.setattr(event_scanner, "FLAGGED_SHARE", 0)


def block(lines: list[bytes]) -> LineBlock:
    return LineBlock(np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8), "file", 7)


@pytest.mark.parametrize("filters", [False, True])
def test_answers_are_those_of_scanning_on_the_cpu(engine: Engine, filters: bool) -> None:
    on_cpu = EventScanner(TABLE.vocabulary, FORM)
    on_gpu = engine.scanner(on_cpu)
    lines = GOOD
    found = on_gpu.scan(block(lines * 2), [])
    assert isinstance(found.batch, GpuBatch)
    assert (found.n_flagged, found.n_on_gpu, found.located, found.identified) == (0, 2 * len(lines), True, True)
    expected = engine.match(on_cpu.scan(block(lines * 2), []).batch, filters=filters)
    assert engine.match(found.batch, filters=filters) == expected
    pieces = [engine.match(found.batch[at : at + 5], filters=filters) for at in range(0, len(found.batch), 5)]
    assert [counts for piece in pieces for counts in piece.counts.tolist()] == expected.counts.tolist()


def test_memory_of_batches_in_use_is_not_used_again(engine: Engine) -> None:
    on_cpu = EventScanner(TABLE.vocabulary, FORM)
    on_gpu = engine.scanner(on_cpu)
    blocks = [block([b'{"temp": %d, "on": true}' % (5 * i), b'{"temp": %d}' % i] * 4) for i in range(9)]

    def scanned(scanner: LineScanner) -> list[EventBatch]:
        return [scanner.scan(each, []).batch for each in blocks]

    for _ in range(2):
        assert list(match_all(engine, scanned(on_gpu))) == list(match_all(engine, scanned(on_cpu)))
    parts = [batch[2:5] for batch in scanned(on_gpu)]  # the whole batches are gone
    scanned(on_gpu)
    assert [part.attributes.tolist() for part in parts] == [batch[2:5].attributes.tolist() for batch in scanned(on_cpu)]


@pytest.mark.parametrize("bad", [[], [FLAGGED_AND_LOCATED], BAD], ids=["good", "located", "bad"])
def test_flagged_lines_are_judged_and_rejects_say_where(bad: list[bytes], engine: Engine) -> None:
    on_cpu = EventScanner(TABLE.vocabulary, FORM)
    on_gpu = engine.scanner(on_cpu)
    lines = [line for kind in (BLANK, GOOD, BLANK, bad, JUDGED_GOOD[:3], BLANK, GOOD, BLANK) for line in kind]
    rejects: list[Reject] = []
    expected_rejects: list[Reject] = []
    found, expected = on_gpu.scan(block(lines), rejects), on_cpu.scan(block(lines), expected_rejects)
    assert rejects == expected_rejects
    assert (len(rejects) > 30) == (bad is BAD)
    assert isinstance(found.batch, GpuBatch) == (bad is not BAD)
    assert found.batch.widest == expected.batch.widest
    assert (found.n_flagged, found.located, found.identified) == (expected.n_flagged, expected.located, expected.identified)
    assert list(found.ids or ()) == list(expected.ids or ())
    for name in ("offsets", "attributes", "location", "rejected"):
        a, b = getattr(found.batch, name), getattr(expected.batch, name)
        assert (a is None) == (b is None), name
        assert a is None or np.array_equal(a, b, equal_nan=name == "location"), name
    assert engine.match(found.batch) == engine.match(expected.batch)


def test_the_cpu_scans_blocks_of_which_a_gpu_flags_many_lines(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the blocks that follow, until a block is tried on the GPU again."""
    monkeypatch.setattr(event_scanner, "FLAGGED_SHARE", 64)
    monkeypatch.setattr(event_scanner, "CPU_BLOCKS", 2)
    on_cpu = EventScanner(TABLE.vocabulary, FORM)
    on_gpu = engine.scanner(on_cpu)
    many, few = block([*GOOD, *BAD, JUDGED_GOOD[0]]), block(GOOD * 2)
    n_on_gpu = []
    for lines in (few, many, few, few, few, many):
        rejects: list[Reject] = []
        expected_rejects: list[Reject] = []
        found, expected = on_gpu.scan(lines, rejects), on_cpu.scan(lines, expected_rejects)
        n_on_gpu.append(found.n_on_gpu)
        assert rejects == expected_rejects
        assert list(found.ids or ()) == list(expected.ids or ())
        assert engine.match(found.batch) == engine.match(expected.batch)
    n = 2 * len(GOOD)
    assert n_on_gpu == [n, 0, 0, 0, n, 0]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table, and lines of which some are bad."""
    directory = tmp_path_factory.mktemp("lines")
    TABLE.save(directory / "table.h5")
    (directory / "events.jsonl").write_bytes(b"\n".join([*GOOD, *BAD[:5], *GOOD, *GOOD]))
    return directory / "table.h5", directory / "events.jsonl"


def test_a_run_of_one_process_scans_on_the_gpu(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = {}
    for engine in ("keyed_cuda", "keyed"):
        output = tmp_path / f"{engine}.h5"
        rejects = output.with_suffix(".jsonl")
        options = RunOptions(*files, output, form=FORM, engine=engine, batch=9, rejects=rejects)
        summary = run(options)
        assert summary is not None
        found[engine] = output.read_bytes(), rejects.read_bytes(), summary.flagged
        assert summary.scanned_on_gpu == (summary.events if engine == "keyed_cuda" else 0)
    assert found["keyed_cuda"] == found["keyed"]


@pytest.mark.parametrize("of_order", [True, False])
def test_a_workers_source_scans_on_the_gpu_of_its_engine(of_order: bool, engine: Engine, files: tuple[Path, Path]) -> None:
    """Lines that do not come with the order are scanned before they are asked for."""
    scanner = BatchScanner(TABLE.vocabulary, FORM, [str(files[1])])
    data = np.fromfile(files[1], np.uint8)
    lines = block([data.tobytes()]).data
    batch = RowBatch(3 * len(GOOD) + 5, np.array([[0, 0, 3 * len(GOOD) + 5, len(lines), 0]]), lines)
    expected, report = scanner.scan(batch)
    lines_of = OrderSource(RowBatch.from_wire)
    given: Any = lines_of if of_order else SimpleNamespace(expect=lines_of.expect, open_for=lines_of.open_for)
    with ScannedSource(given, scanner, AtOnce()) as source:
        source.open_for(engine)
        awaited = source.expect(0, batch.to_wire())
        assert awaited.is_here()
        events = awaited.get()
        assert bytes(awaited.report()) == report._replace(n_on_gpu=batch.n_events).to_wire().tobytes()
    assert engine.match(events) == engine.match(expected)


def test_matching_files_scans_on_the_gpu(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of lines, read and scanned ahead by threads."""
    monkeypatch.setattr(scan_ahead, "GPU_RANGE_BYTES", 1500)
    subscriptions = tmp_path / "subscriptions.jsonl"
    subscriptions.write_text('{"interface": 1, "constraints": [["temp", ">", 3]]}\n')
    found = {}
    for engine in ("keyed_cuda", "keyed"):
        output = tmp_path / f"{engine}.h5"
        summary = match_rows(subscriptions, files[1], output, MatchOptions(FORM, engine))
        assert summary.scanned_on_gpu == (summary.events if engine == "keyed_cuda" else 0)
        found[engine] = output.read_bytes(), summary.first_rejects
    assert found["keyed_cuda"] == found["keyed"]


def test_what_stays_on_the_cpu(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = engine.scanner(EventScanner(TABLE.vocabulary, PLAIN))
    overlong = LineBlock(np.frombuffer(bytearray(b'{"temp": 1'), np.uint8), "file", 1, overlong=True)
    assert on_gpu.scan(overlong, []).n_on_gpu == 0
    monkeypatch.setattr(event_scanner, "LEAST_GPU_BYTES", 1000)
    assert on_gpu.scan(block(GOOD[:1]), []).n_on_gpu == 0
