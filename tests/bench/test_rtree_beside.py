"""The bench that measures an R*-tree beside our engines runs, and stops at a wrong answer; with or without `rtree`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from bench import rtree_beside, rtree_figure
from bench.who_gets_it import description_in

from mpi_match.workloads.scenarios import SCENARIOS

BENCH = Path(__file__).resolve().parent
FIGURE = BENCH / "rtree_beside.svg"
SMALL = ["--scenarios", "clcb-zipf", "--interfaces", "40", "80", "--events", "60"]


def test_each_point_is_measured_checked_and_drawn(tmp_path: Path) -> None:
    plot = ["--plot", str(tmp_path / "figure.png")] if find_spec("matplotlib") else []
    words = [sys.executable, str(BENCH / "rtree_beside.py"), *SMALL, "--engines", "keyed,keyed_cuda", *plot]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    engines = [each for each in ("rtree", "keyed", "keyed_cuda") if f"{each} is left out" not in done.stderr]
    assert "keyed" in engines
    assert ("rtree" in engines) == bool(find_spec("rtree"))
    assert [(r["n_interfaces"], r["engine"]) for r in records] == [(n, engine) for n in (40, 80) for engine in engines]
    for record in records:
        assert record["n_filters"] == 10 * record["n_interfaces"]
        assert record["one_event_us"]["p50"] > 0
        assert record["one_move_us"] > 0
        assert ("batch_move_us" in record) == (record["engine"] != "rtree")
    assert not plot or (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_figure_on_the_readme_shows_its_records(tmp_path: Path) -> None:
    records = rtree_figure.records_in(BENCH / "records" / "h200-areas.jsonl")
    assert {record["engine"] for record in records} == {"rtree", "keyed", "keyed_cuda", "clcb"}
    assert description_in(FIGURE) == rtree_figure.described(records)
    matplotlib = pytest.importorskip("matplotlib", reason="the figure needs matplotlib (extra `plot`)")
    drawn = tmp_path / "figure.svg"
    rtree_figure.draw(records, drawn)
    if f"Matplotlib v{matplotlib.__version__}," not in FIGURE.read_text(encoding="utf-8"):
        pytest.skip(f"drawn by another version than {matplotlib.__version__}, which may draw it in other bytes")
    assert drawn.read_bytes() == FIGURE.read_bytes()


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtree_beside.Live, "mover", lambda self, filter_id, area: lambda: None)
    monkeypatch.setattr(rtree_beside, "MOVED_ONE_BY_ONE", 2000)
    scenario = SCENARIOS["clcb-area-1"].scaled(10_000)
    with pytest.raises(SystemExit, match=r"WRONG ANSWER: keyed: event \d+ after some moves"):
        list(rtree_beside.point(scenario, ["keyed"], 300, 1000))
