"""Rules and events with the shapes of corpora are rows that the model takes, and some match."""

from __future__ import annotations

import json

import pytest

from mpi_match.ingest.rows.judge import PLAIN, event_of_row, subscription_filters
from mpi_match.lab.workloads.rules import rules_and_lines
from mpi_match.model import match_naive


@pytest.mark.parametrize(
    ("name", "n_rules", "least", "most"),
    [("log-rules", 600, 1500, 4000), ("patterns", 60, 500, 2000), ("urls", 300, 100, 700)],
)
def test_rules_and_lines(name: str, n_rules: int, least: int, most: int) -> None:
    rows, data = rules_and_lines(name, 60, n_rules)
    lines = data.splitlines()
    assert (len(rows), len(lines)) == (n_rules, 60)
    assert all(least < len(line) < most for line in lines)
    assert rules_and_lines(name, 60, n_rules) == (rows, data)
    filters = [each for row in rows for each in subscription_filters(row)]
    assert any(match_naive(filters, event_of_row(json.loads(line), PLAIN)) for line in lines)
