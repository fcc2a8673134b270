"""Rules of our own in the forms of rule languages ask for what the rows do that they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rule_files

from mpi_match.engines import open_engine
from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.rows.judge import PLAIN, subscription_filters
from mpi_match.lab.workloads.rules import rules_and_lines
from mpi_match.languages.registry import rules_of
from mpi_match.model import Json
from mpi_match.table.table import Table

N_EVENTS, N_RULES = 1000, 200


def _answers(rows: list[Json], lines: bytes) -> list[set[str]]:
    table = Table.from_filters([each for row in rows for each in subscription_filters(row)])
    block = LineBlock(np.frombuffer(lines, np.uint8), "", 1)
    found = open_engine("counting", table).match(EventScanner(table.vocabulary, PLAIN, 1).scan(block, []).batch)
    return [set(answer) for answer in found.labels(table.labels)]


@pytest.mark.parametrize(
    ("language", "shape", "events"), [("sigma", "log-rules", "windows"), ("eventbridge", "patterns", "cloud")]
)
def test_rules_ask_for_what_rows_do(
    language: str, shape: str, events: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if language == "sigma":
        pytest.importorskip("sigma.collection")
    monkeypatch.setattr(rule_files, "ONE_IN", N_RULES)  # all but the first rule are without keywords
    rule_files.write(tmp_path, N_EVENTS, N_RULES)
    found = list(rules_of(language, [tmp_path / language]))
    assert [rule.reason for rule in found if rule.row is None] == []
    rows, lines = rules_and_lines(shape, N_EVENTS, N_RULES)
    assert (tmp_path / f"{events}.jsonl").read_bytes() == lines
    expected = _answers(rows[1:], lines)
    first = "rule-0" if language == "sigma" else "pattern-0"
    said: list[Json] = [{**rule.row, "interface": rule.name} for rule in found if rule.row and rule.name != first]
    assert _answers(said, lines) == expected
    assert sum(map(len, expected)) > 10
