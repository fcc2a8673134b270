"""The bench that measures an R*-tree beside our engines runs, and stops at a wrong answer; with or without `rtree`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent / "bench"
SMALL = ["--scenarios", "clcb-zipf", "--interfaces", "40", "80", "--events", "60"]


def test_each_point_is_measured_checked_and_drawn(tmp_path: Path) -> None:
    plot = ["--plot", str(tmp_path / "figure.png")] if find_spec("matplotlib") else []
    words = [sys.executable, str(BENCH / "rtree_beside.py"), *SMALL, "--engines", "keyed", *plot]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    engines = (["rtree"] if find_spec("rtree") else []) + ["keyed"]
    assert [(r["n_interfaces"], r["engine"]) for r in records] == [(n, engine) for n in (40, 80) for engine in engines]
    for record in records:
        assert record["n_filters"] == 10 * record["n_interfaces"]
        assert record["one_event_us"]["p50"] > 0
        assert record["one_move_us"] > 0
        assert ("batch_move_us" in record) == (record["engine"] != "rtree")
    assert done.stderr.count("rtree is left out") == (0 if find_spec("rtree") else 1)
    assert not plot or (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_wrong_answer_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import rtree_beside

    monkeypatch.setattr(rtree_beside.Live, "mover", lambda self, filter_id, area: lambda: None)
    monkeypatch.setattr(rtree_beside, "MOVED_ONE_BY_ONE", 2000)
    scenario = rtree_beside.SCENARIOS["clcb-area-1"].scaled(10_000)
    with pytest.raises(SystemExit, match=r"WRONG ANSWER: keyed: event \d+ after some moves"):
        list(rtree_beside.point(scenario, ["keyed"], 300))
