"""Reasons found in compiled code against those of the judge, and files of rejects byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mpi_match.ingest.files.blocks import LineBlock
from mpi_match.ingest.json.event_scanner import EventScanner
from mpi_match.ingest.json.join_events import JoinedEvents
from mpi_match.ingest.json.line_columns import LineColumns
from mpi_match.ingest.json.line_judge import KeptRejects
from mpi_match.ingest.rows.judge import EventForm, Reject, parse_json, row_text, trimmed
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.ingest.rows.rejects import HeldRejects, ListedRejects, RejectedLines, WrittenRejects, json_line
from mpi_match.ingest.rows.to_json import event_rows
from mpi_match.model import ModelError, make_filter
from mpi_match.table.table import Table

FORM = EventForm(("x", "y"), "id")
VOCABULARY = Table.from_filters(
    [make_filter("i", [["a", ">", 1], ["s", "=", "x"], ["u.v", "=", "q"], ["été", ">", 3], ["l", "has", 2]])]
).vocabulary
FILE = '/rows/of "été".jsonl'
SURE = [
    b"INFO a line of a log",
    b'{"a": 1',
    b'{"a": 1 ',
    b'{"a": ',
    b'{"a":1}}',
    b'{"a" 1}',
    b'{"a":1,}',
    b'{"a":[1,]}',
    b"{'a':1}",
    b'{"s": "un',
    b'{"s": "\\',
    b'{"s": "\x01"}',
    b'{"s": "\\q"}',
    b'{"s": "\\u12"}',
    b'{"s": "\\u12g4"}',
    '{"été": 3, "s": "ü" "v"}'.encode(),
    b'{"s": "\xff"}',
    b'{"s": "\xe2\x82", "t": "\xed\xa0\x80"}',
    b"\xef\xbb\xbf 17 18\r",
    b'{"a": 1, "b": 2, "a": 3}',
    b'{"zz": {"a": 1}, "u.v": "q", "u.v": 2}',
    b'{"a": 1e400}',
    b'{"a": -0.5e-400}',
    b'{"a": 123456789012345678901234}',
    '{"été": -99999999999999999999999}'.encode(),
    b'{"x": 1, "a": 2}',
    b'{"y": 1.25, "x": null}',
    b'{"x": "far away", "y": 2}',
    b'{"x": 4, "y": "far away"}',
]
"""Lines whose reasons compiled code finds."""
VALUES = (
    *(
        "1",
        "-2.5",
        "1e3",
        '"x"',
        '"é\\u00e9\\n"',
        "null",
        "true",
        "false",
        '[1,2,"b"]',
        '{"v":"q"}',
        '[{"v":1},2]',
        "[]",
        "{}",
    ),
    *("1e400", "-1e-400", "1.8e308", "2e-324", "0e999", "18446744073709551615", '"it\'s"', "NaN", "Infinity", "-Infinity"),
    *('"\\ud800"', "[1e400]", "0.00", '[[1,{"b":2}],3]', '"\\"q"', "-0", "0.0001e-322", "1234567890123456789012"),
    *('"a text of more than twenty characters"', "9007199254740993"),
)
NAMES = ("a", "s", "u", "u.v", "été", "l", "x", "y", "id", "zz", "\\u0061")
BYTES = b'{}[]",:\\ \t0123456789eE+-.truefalsnuNaIx\x00\x01\x1f\x7f\xc3\xa9\xff\xed\xa0\x80\xf0\x9f\x98\x80'


def scanned(lines: list[bytes], scanner: EventScanner) -> list[RejectedLines]:
    held = HeldRejects()
    data = np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8)
    scanner.scan(LineBlock(data, FILE, 5), held)
    return held.parts


def judged(lines: list[bytes], scanner: EventScanner) -> list[Reject]:
    found = []
    for number, line in enumerate(lines, 5):
        try:
            if trimmed(line):
                scanner.judge(line)
        except ModelError as error:
            found.append(Reject(str(error), FILE, number, row_text(trimmed(line))))
    return found


def mutated(rng: random.Random) -> bytes:
    members = [f'"{rng.choice(NAMES)}"{rng.choice((":", ": ", " :"))}{rng.choice(VALUES)}' for _ in range(rng.randrange(6))]
    line = bytearray(f"{{{rng.choice((',', ', ', ' , ')).join(members)}}}".encode())
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        at, how = rng.randrange(len(line) + 1), rng.randrange(4)
        if how == 0:
            del line[at : at + rng.randrange(1, 4)]
        elif how == 1:
            line.insert(at, rng.choice(BYTES))
        elif how == 2:
            del line[at:]
        else:
            line[at:at] = line[max(0, at - 5) : at]
    before = rng.choice((b"", b"", b" ", b"\t\v", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf"))
    return before + bytes(line).replace(b"\n", b" ") + rng.choice((b"", b" ", b"\r", b" \f\v"))


@pytest.fixture(scope="module")
def scanner() -> EventScanner:
    return EventScanner(VOCABULARY, FORM)


def test_common_reasons_are_found_in_compiled_code(scanner: EventScanner, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = judged(SURE, scanner)
    scanned(SURE, scanner)  # the texts of reasons are the judge's
    monkeypatch.setattr(scanner.line_judge, "_judge", None)
    (found,) = scanned(SURE, scanner)
    assert list(found) == expected
    assert len(expected) == len(SURE)


def test_mutated_lines_have_the_judges_reasons(scanner: EventScanner) -> None:
    rng = random.Random(3)
    lines = [mutated(rng) for _ in range(4000)]
    expected = judged(lines, scanner)
    (found,) = scanned(lines, scanner)
    assert list(found) == expected
    assert found.to_json() == b"".join(map(json_line, expected))
    assert 1000 < len(expected) < 4000


def test_the_file_of_rejects_is_the_judges(tmp_path: Path, scanner: EventScanner) -> None:
    lines = [
        *SURE,
        b'{"a": "\\ud800"}',
        b'{"s": "\x7f\x1f\x08\x0c\r\t"}',
        b"\xf0\x9f\x98 \xc0\x80 \xe0\x9f\x80",
        b'{"a": 2}',
        *SURE,
    ]
    expected = judged(lines, scanner)
    with RejectLog(tmp_path / "rejects") as log:
        for part in scanned(lines, scanner):
            log.extend(part)
    assert (tmp_path / "rejects").read_bytes() == b"".join(map(json_line, expected))
    assert (log.count, log.first) == (len(expected), expected[:5])


def test_the_first_reject_is_an_error_under_strict(scanner: EventScanner) -> None:
    (found,) = scanned([b'{"a": 1}', b"?"], scanner)
    with RejectLog(None, strict=True) as log, pytest.raises(ModelError, match="line 6: not JSON"):
        log.extend(found)


def test_rejects_are_placed_in_their_files(scanner: EventScanner) -> None:
    (found,) = scanned([b"?", b'{"a": "\\ud800"}', b"??"], scanner)
    expected = [each._replace(file="other", line=line) for each, line in zip(list(found)[1:], (70, 90), strict=True)]
    listed, written = ListedRejects(found), WrittenRejects(3, found.to_json())
    for each in (found, listed, written):
        moved = each.placed("other", np.array([70, 90]), 1)
        assert (list(moved), moved.lines.tolist()) == (expected, [70, 90])
        assert moved.to_json() == b"".join(map(json_line, expected))


def test_lines_of_other_formats_have_reasons_of_their_own(scanner: EventScanner) -> None:
    held = HeldRejects()
    data = np.frombuffer(bytearray(b"\0two cells\0a,b,c\n"), np.uint8)
    scanner.scan(LineBlock(data, "rows.csv", 1), held)
    assert [list(part) for part in held.parts] == [[Reject("two cells", "rows.csv", 1, "a,b,c")]]


def test_named_attributes_where_all_are_kept(scanner: EventScanner) -> None:
    lines = [b'{"a": 1, "b": 2, "b": 3}', b'{"a": 1, "a": 1e400}', b'{"b": 1e400}', b"?", b'{"a": 1e400}', b'{"a": 3}']
    held, joined = HeldRejects(), JoinedEvents()
    data = np.frombuffer(bytearray(b"".join(line + b"\n" for line in lines)), np.uint8)
    LineColumns(EventForm(), ["a"]).scan(LineBlock(data, FILE, 1), held, joined)
    events = joined.take()
    assert [each.line for part in held.parts for each in part] == [2, 4, 5]
    assert events.rejected is not None
    assert events.rejected.tolist() == [1, 3, 4]
    assert events.n_events == 6
    assert list(event_rows(events)) == [{"a": 1}, None, {}, None, None, {"a": 3}]


def test_a_kind_that_the_judge_words_otherwise_is_left_to_it(scanner: EventScanner, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = EventScanner(VOCABULARY, FORM)

    def judge(row: object) -> None:
        parse_json(row if isinstance(row, bytes) else b"")
        raise ModelError("no")

    monkeypatch.setattr(fresh.line_judge, "_judge", judge)
    (found,) = scanned([b"[1]", b'{"a": 1e400}'], fresh)
    assert [each.reason for each in found] == ["no", "no"]
    assert isinstance(found, KeptRejects)


def test_a_log_of_good_rows_is_empty(tmp_path: Path) -> None:
    with RejectLog(tmp_path / "rejects") as log:
        log.extend(HeldRejects().joined())
    assert (log.count, log.first, (tmp_path / "rejects").read_bytes()) == (0, [], b"")


def test_forms_without_names(scanner: EventScanner) -> None:
    data = np.frombuffer(bytearray(b'?\n{"a": 1}\n'), np.uint8)
    held = HeldRejects()
    EventScanner(Table.from_filters([]).vocabulary, EventForm()).scan(LineBlock(data, FILE, 1), held)
    assert [(each.line, each.reason) for part in held.parts for each in part] == [
        (1, "not JSON: Expecting value at column 1")
    ]
