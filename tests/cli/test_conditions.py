"""Conditions, views and patterns as users have them: files, a table, changes, a verified run."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match

from mpi_match.api import make_table
from mpi_match.changes.log import ChangeLog
from mpi_match.ingest.rows.judge import PLAIN, change_of_row, event_of_row, names_of, subscription_filters
from mpi_match.model import match_naive
from mpi_match.table.table import Table
from mpi_match.verify.verify import Difference

ROWS: list[dict[str, Any]] = [
    {"interface": "ops", "where": {"or": [["level", "=", "error"], {"not": ["user", "= i", "root"]}]}, "id": "r1"},
    {"interface": "net", "predicate": "src in net '10.0.0.0/8' and not (port in (80, 443) or path wildcard i '*.PNG')"},
    {"interface": "time", "predicate": "t after '2026-01-01' and (msg regexp 'fail(ed|ing)' or msg contains i 'DENIED')"},
    {"interface": "plain", "constraints": [["port", "=", 22]]},
    {"interface": "parts", "constraints": [["parts.kind", "has", 7], ["parts.n", "any >", 2]], "arrays": "consistent"},
]
EVENTS: list[dict[str, Any]] = [
    {"level": "error", "user": "root"},
    {"src": "10.2.3.4", "port": 8080, "path": "/a.html", "user": "ROOT"},
    {"src": "10.2.3.4", "port": 8080, "path": "/a.png", "user": "anna"},
    {"t": "2026-05-01T00:00:00Z", "msg": "access denied", "port": 22, "user": "Root"},
    {"t": "2025-05-01T00:00:00Z", "msg": "access denied"},
    {"parts": [{"kind": 7, "n": 1}, {"kind": 8, "n": 3}], "user": "anna"},
    {"parts": [{"kind": 8, "n": 1}, {"kind": 7, "n": 3}], "user": "root"},
]
CHANGES: list[dict[str, Any]] = [
    {"before_event": 2, "add": {"interface": "later", "predicate": "not user = 'root' and not level exists", "id": "x"}},
    {"before_event": 4, "remove": "r1"},
]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name, rows in (("subs", ROWS), ("events", EVENTS)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def answers(text: str) -> list[list[str]]:
    return [json.loads(line)["interfaces"] for line in text.splitlines()]


def expected(rows: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[list[str]]:
    filters = [item for row in rows for item in subscription_filters(row)]
    return [match_naive(filters, event_of_row(event)) for event in events]


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_rows_are_matched_as_the_model_says(engine: str, inputs: Path) -> None:
    found = mpi_match("match", "--engine", engine, "-o", "-", inputs / "subs.jsonl", inputs / "events.jsonl")
    assert answers(found.stdout) == expected(ROWS, EVENTS)
    assert any(expected(ROWS, EVENTS))


def test_a_run_with_changes_is_verified(inputs: Path) -> None:
    table, changes, matches = inputs / "t.h5", inputs / "c.h5", inputs / "m.h5"
    mpi_match("compile", "subscriptions", "--local", inputs / "subs.jsonl", "-o", table)
    refused: list[Any] = []
    ChangeLog.of(Table.load(table), map(change_of_row, CHANGES), refused).save(changes)
    assert not refused
    files = ["--table", table, "--events", inputs / "events.jsonl", "--changes", changes]
    mpi_match("run", *files, "-o", matches)
    added = CHANGES[0]["add"]
    found = answers(mpi_match("export", matches, "-o", "-").stdout)
    assert (
        [sorted(each) for each in found]
        == [  # added interfaces have the last numbers
            *expected(ROWS, EVENTS[:2]),
            *expected([*ROWS, added], EVENTS[2:4]),
            *expected([*ROWS[1:], added], EVENTS[4:]),
        ]
    )
    assert "all right" in mpi_match("verify", *files, "--matches", matches).stderr


def test_a_wrong_answer_is_shown_without_names_of_the_package(inputs: Path) -> None:
    """An event with lists of objects has scopes, whose names are bytes; native times are no JSON."""
    vocabulary = make_table(inputs / "subs.jsonl").vocabulary
    event = event_of_row({"parts": [{"kind": 7}, {"n": 3}]}, PLAIN, names_of(vocabulary, PLAIN))
    assert any(isinstance(name, bytes) for name in event.attributes)
    assert str(Difference(3, event, [], [])) == 'event 3 {"parts.kind": [7.0], "parts.n": [3.0]}'
    timed = event._replace(attributes={"t": datetime.date(2026, 1, 31)})
    assert str(Difference(3, timed, [], [])) == 'event 3 {"t": "2026-01-31"}'


def test_counts_are_those_of_what_was_written(inputs: Path) -> None:
    """Parts of conditions are counted beside; the text with `or` is two filters."""
    said = mpi_match("compile", "subscriptions", "--local", inputs / "subs.jsonl", "-o", inputs / "t.h5").stderr
    assert said.startswith("6 filters with 12 constraints on 5 interfaces")
    found = json.loads(mpi_match("inspect", inputs / "t.h5", "--rows", 9, "--json").stdout)
    assert (found["filters"], found["interfaces"], len(found["first"])) == (6, 5, 6)
    assert (found["parts_of_conditions"], found["filters_of_parts"]) == (3, 4)
    assert "has no filter 6; it has 6" in mpi_match("inspect", inputs / "t.h5", "--filter", 6, code=3).stderr
    said = mpi_match(
        "match", "--engine", "reference", inputs / "subs.jsonl", inputs / "events.jsonl", "-o", inputs / "m.h5"
    ).stderr
    assert "6 filters with 12 constraints on 5 interfaces" in said
    assert repr(Table.load(inputs / "t.h5")) == "<table of 6 filters with 12 constraints on 5 interfaces>"
