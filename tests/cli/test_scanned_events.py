"""`match` of a file with every kind of line gives the answers, ids and rejects that reading it line by line gives."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from command_line import mpi_match
from random_rows import random_event, random_subscription

from mpi_match import make_table
from mpi_match.ingest.files import blocks
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject, event_of_row, names_of, read_rows, subscription_filters
from mpi_match.matches.file import MatchesFile
from mpi_match.model import match_naive
from mpi_match.table.table import Table

FORM = EventForm(("x", "y"), "id")
ODD = [
    b"",
    b" \t\r",
    b"\xef\xbb\xbf",
    b'\xef\xbb\xbf{"temp": 7, "id": 7}',
    b'{"temp": 1, "temp": 2}',
    b'{"temp": NaN, "id": "not a number"}',
    b'{"temp": [1]}',
    b'{"temp": 1e400}',
    b'{"city": "\xff"}',
    b'{"city": "\\ud83e\\udd80 Mi\\u006can"}',
    b'{"name": {"first": "Milan", "last": {"of": null}}}',
    b'{"x": 1}',
    b'{"id": 12345678901234567890}',
    b"[]",
    b'{"temp": 1}}',
    b'{"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}}}}}}}}}}',
]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    generator = random.Random(11)
    subscriptions = [random_subscription(generator) for _ in range(60)]
    (tmp_path / "subs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in subscriptions))
    lines = [
        json.dumps(random_event(generator, lists=False), ensure_ascii=generator.random() < 0.5).encode() for _ in range(400)
    ]
    lines += ODD * 3
    generator.shuffle(lines)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("engine", ["counting", "keyed"])
@pytest.mark.parametrize("read", [100, 2**22])
@pytest.mark.parametrize("packed", [False, True])
def test_answers_are_those_of_rows(
    inputs: Path, engine: str, read: int, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = inputs / "events.jsonl"
    if packed:
        events = inputs / "events.jsonl.gz"
        events.write_bytes(gzip.compress((inputs / "events.jsonl").read_bytes()))
    bad: list[Reject] = []
    filters = [item for found in read_rows([inputs / "subs.jsonl"], subscription_filters, []) for item in found or ()]
    names = names_of(Table.from_filters(filters).vocabulary, FORM)
    made = list(read_rows([events], lambda row: event_of_row(row, FORM, names), bad))
    monkeypatch.setattr(blocks, "READ_BYTES", read)
    monkeypatch.setattr("mpi_match.commands.scan_ahead.CPU_RANGE_BYTES", read)
    words = ["match", inputs / "subs.jsonl", events, "-o", inputs / "m.h5", "--engine", engine, "--location", "x,y"]
    done = mpi_match(*words, "--id", "id", "--rejects", inputs / "bad.jsonl", "--stats", "--json")
    answers = MatchesFile.load(inputs / "m.h5")
    assert list(answers.rows()) == [match_naive(filters, event) for event in made]
    assert answers.event_ids is not None
    assert list(answers.event_ids) == [((event and event.id) or "").encode() for event in made]
    rejects = [Reject(**json.loads(line)) for line in (inputs / "bad.jsonl").read_text().splitlines()]
    assert rejects == bad
    summary = json.loads(done.stdout)
    assert (summary["events"], summary["rejected"]) == (len(made), len(bad))
    assert len(bad) <= summary["flagged"] <= len(bad) + 6
    assert f"the scanner flagged {summary['flagged']} lines of {len(made)} events" in done.stderr


def test_blocks_change_no_byte_of_the_answers(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [
        {"before_event": n, "remove_interface": name} for n, name in ((3, "mobile-1"), (200, "z"), (201, "7"), (10_000, "é"))
    ]
    (inputs / "changes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changes))
    words = ["match", inputs / "subs.jsonl", inputs / "events.jsonl", "--engine", "keyed", "--location", "x,y", "--id", "id"]
    found = set()
    for read, at_once in ((2**22, 2**15), (100, 2**15), (1000, 7)):
        monkeypatch.setattr(blocks, "READ_BYTES", read)
        monkeypatch.setattr("mpi_match.commands.scan_ahead.CPU_RANGE_BYTES", read)
        monkeypatch.setattr("mpi_match.commands.match.MATCHED_AT_ONCE", at_once)
        mpi_match(*words, "-o", inputs / "m.h5", "--changes", inputs / "changes.jsonl")
        found.add((inputs / "m.h5").read_bytes())
    assert len(found) == 1


def test_the_first_bad_line_stops_a_strict_match(inputs: Path) -> None:
    words = ["match", inputs / "subs.jsonl", inputs / "events.jsonl", "-o", inputs / "m.h5", "--engine", "counting"]
    bad: list[Reject] = []
    table = make_table(inputs / "subs.jsonl")
    names = names_of(table.vocabulary, PLAIN)
    list(read_rows([inputs / "events.jsonl"], lambda row: event_of_row(row, PLAIN, names), bad))
    done = mpi_match(*words, "--strict", "--rejects", inputs / "bad.jsonl", code=3)
    assert f"line {bad[0].line}: {bad[0].reason} (--strict)" in done.stderr
    assert [json.loads(line) for line in (inputs / "bad.jsonl").read_text().splitlines()] == [bad[0]._asdict()]
    assert not (inputs / "m.h5").exists()
