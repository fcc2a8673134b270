"""The times that `match` reports: what is compiled is in none of them but its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mpi_match.commands.match import MatchOptions, match_rows
from mpi_match.compute import compile_cache
from mpi_match.engines.counting import Counting
from mpi_match.ingest.rows.judge import EventForm

COMPILING_S = 0.7


def test_what_is_compiled_while_events_are_matched_is_in_no_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the kernels of a GPU are, which are compiled for their first batch."""
    (tmp_path / "subs.jsonl").write_text('{"interface": "i", "constraints": [["k", "=", 1]]}\n')
    (tmp_path / "events.jsonl").write_text('{"k": 1}\n' * 20)
    match: Any = Counting.match

    def compiles(engine: Counting, *given: Any, **options: Any) -> Any:
        with compile_cache.compile_once("a kernel"):
            time.sleep(COMPILING_S)
        return match(engine, *given, **options)

    monkeypatch.setattr(compile_cache, "directory", lambda: None)
    monkeypatch.setattr(Counting, "match", compiles)
    began = time.perf_counter()
    options = MatchOptions(EventForm(None, None), "counting")
    summary = match_rows(tmp_path / "subs.jsonl", tmp_path / "events.jsonl", tmp_path / "matches.h5", options)
    assert summary.compile_s >= COMPILING_S
    assert 0 < summary.wall_s <= time.perf_counter() - began - COMPILING_S
    assert summary.events_per_s == pytest.approx(20 / summary.wall_s)
