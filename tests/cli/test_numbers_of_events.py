"""An event's number is that of its row, rejected rows included, in every input form; rejected rows match nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, run_in, verify_in

from mpi_match import LiveMatcher, make_batch, make_events, make_table, match, open_engine
from mpi_match.commands.compile_locally import compile_events_locally
from mpi_match.events.event_table import save_events
from mpi_match.ingest.rows.judge import Reject
from mpi_match.matches.file import MatchesFile

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "all", "constraints": []},
    {"interface": "cold", "constraints": [["temp", "absent"]]},
    {"interface": "hot", "constraints": [["temp", ">", 30]]},
]
LINES = ['{"temp": "x"', '{"temp": 31}', "", "null", '{"temp": 5}', '{"temp": 1, "temp": 1}', '{"wind": 1}', "[]"]
ANSWERS = [[], ["all", "hot"], [], ["all"], [], ["all", "cold"], []]
BAD = [1, 4, 6, 8]
"""The numbers, from 1, of bad lines; the third line is no row."""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "subs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SUBSCRIPTIONS))
    (tmp_path / "events.jsonl").write_text("\n".join(LINES))
    return tmp_path


def answers(path: Path) -> list[list[str]]:
    return list(MatchesFile.load(path).rows())


@pytest.mark.parametrize("engine", ["counting", "reference", "keyed"])
def test_match_numbers_events_by_their_rows(inputs: Path, engine: str) -> None:
    words = [inputs / "subs.jsonl", inputs / "events.jsonl", "-o", inputs / "m.h5", "--engine", engine]
    done = mpi_match("match", *words, "--rejects", inputs / "bad.jsonl", "--json")
    assert answers(inputs / "m.h5") == ANSWERS
    assert [json.loads(line)["line"] for line in (inputs / "bad.jsonl").read_text().splitlines()] == BAD
    summary = json.loads(done.stdout)
    assert (summary["events"], summary["rejected"]) == (7, 4)


def test_changes_are_stamped_with_these_numbers(inputs: Path) -> None:
    changes = [{"before_event": 3, "remove_interface": "all"}, {"before_event": 6, "remove_interface": "cold"}]
    (inputs / "changes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changes))
    words = [inputs / "subs.jsonl", inputs / "events.jsonl", "-o", inputs / "m.h5", "--engine", "keyed"]
    mpi_match("match", *words, "--changes", inputs / "changes.jsonl")
    assert answers(inputs / "m.h5") == [[], ["all", "hot"], [], [], [], ["cold"], []]


def test_ids_of_rejected_rows_are_empty(inputs: Path) -> None:
    (inputs / "events.jsonl").write_text('{"n": 7}\n{"n": 7.5}\n{"n": "é", "temp": 40}\n')
    words = [inputs / "subs.jsonl", inputs / "events.jsonl", "--engine", "counting", "--id", "n"]
    mpi_match("match", *words, "-o", inputs / "m.jsonl")
    found = [json.loads(line) for line in (inputs / "m.jsonl").read_text().splitlines()]
    assert [(row["event"], row.get("id"), row["interfaces"]) for row in found] == [
        *((0, "7", ["all", "cold"]), (1, None, []), (2, "é", ["all", "hot"])),
    ]


def test_programs_get_the_same_numbers(inputs: Path) -> None:
    table, rejects = make_table(SUBSCRIPTIONS), list[Reject]()
    batch = make_batch(table, inputs / "events.jsonl", rejects=rejects)
    assert [reject.line for reject in rejects] == BAD
    for name in ("counting", "reference", "keyed"):
        assert open_engine(name, table).match(batch).labels(table.labels) == ANSWERS
    assert match(table, batch, engine="keyed").labels(table.labels) == ANSWERS
    assert LiveMatcher(SUBSCRIPTIONS, engine="keyed").match(batch) == ANSWERS
    rows: list[dict[str, object]] = [{"temp": 31}, {"temp": object}, {}]
    assert match(table, make_batch(table, rows, rejects=rejects), engine="counting").counts.tolist() == [2, 0, 2]


def test_an_event_table_keeps_them_through_run_inspect_and_verify(inputs: Path) -> None:
    table = make_table(SUBSCRIPTIONS)
    table.save(inputs / "table.h5")
    compile_events_locally([str(inputs / "events.jsonl")], inputs / "table.h5", inputs / "events.h5")
    for batch in (1, 2, 1000):
        run_in(inputs, "matches.h5", "--batch", batch)
        assert answers(inputs / "matches.h5") == ANSWERS
    found = json.loads(mpi_match("inspect", inputs / "events.h5", "--json").stdout)
    assert (found["events"], found["rejected"]) == (7, 4)
    assert found["first"][0] == {"event": 0, "rejected": True}
    for judge in ("naive", "counting"):
        verify_in(inputs, "--sample", 0, "--judge", judge)


def test_verify_finds_an_answer_to_a_rejected_row(inputs: Path) -> None:
    table = make_table(SUBSCRIPTIONS)
    table.save(inputs / "table.h5")
    (inputs / "events.jsonl").write_text("{}\n{}\n")
    mpi_match("match", inputs / "subs.jsonl", inputs / "events.jsonl", "-o", inputs / "matches.h5", "--engine", "counting")
    save_events(make_events([{}, b"7"], rejects=[]), inputs / "events.h5", table.vocabulary)
    said = verify_in(inputs, "--sample", 0, code=1).stderr
    assert "event 1, a rejected row" in said
    assert "too much" in said
