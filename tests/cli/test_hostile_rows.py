"""Rows that once ended a command or hung it: each is a reject with its reason, and the others are matched."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match
from hostile_rows import ENDLESS, HOSTILE, LARGE, MANY_NAMES, lines

from mpi_match.ingest.rows import judge as rows_module
from mpi_match.ingest.rows.judge import Reject, read_lines
from mpi_match.matches.file import MatchesFile
from mpi_match.model import ModelError

EVENT = '{"smile": "\\ud83d\\ude00", "x": 1}\n'
ENGINE = ("--engine", "counting")


def match(directory: Path, *flags: object) -> list[dict[str, Any]]:
    """Match subs.jsonl and events.jsonl of a directory; returns the rejects."""
    found = directory / "rejects.jsonl"
    inputs = [directory / "subs.jsonl", directory / "events.jsonl"]
    mpi_match("match", *inputs, "-o", directory / "m.h5", *ENGINE, "--rejects", found, *flags)
    return [json.loads(line) for line in found.read_text().splitlines()]


def test_each_is_a_reject_and_the_others_are_matched(tmp_path: Path) -> None:
    content, bad = lines()
    (tmp_path / "subs.jsonl").write_bytes(b"\n".join(content))
    (tmp_path / "events.jsonl").write_text(EVENT)
    started = time.monotonic()
    found = match(tmp_path)
    assert time.monotonic() - started < 60, "something is quadratic: this takes two seconds"
    assert [reject["line"] for reject in found] == [line for line, _ in bad]
    for reject, (_, said) in zip(found, bad, strict=True):
        assert said in reject["reason"]
        assert len(reject["reason"]) < 1000
    assert {reject["file"] for reject in found} == {str(tmp_path / "subs.jsonl")}
    texts = [reject["row"] for reject in found]
    assert texts[:-1] == [line for line, _ in HOSTILE[:-1]]
    assert texts[-1] == ENDLESS[:1000].decode() + " ..."
    answers = MatchesFile.load(tmp_path / "m.h5")
    assert list(answers.rows()) == [["7"]], "7 and '7' are one interface"
    assert answers.matches.n_ids == 1


@pytest.mark.parametrize(("line", "said"), LARGE, ids=range(len(LARGE)))
def test_large_rows_are_refused_at_once(line: str, said: str) -> None:
    started = time.process_time()
    with pytest.raises(ModelError, match=re.escape(said)):
        rows_module.subscription_filters(rows_module.parse_subscription(line))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (MANY_NAMES, "the name 'n20000' occurs twice"),
        ('{"a":' * 300_000, "not JSON: Expecting value at column 1500001"),
        ('{"x": 1e-400}', "the number 1e-400 is not 0 and too near to it for a double"),
        ('{"x": -0.0000001E-330}', "is not 0 and too near to it for a double"),
        ('{"lat": 45.5}', "the location needs both 'lat' and 'lon'; 'lon' is absent"),
        ('{"n": 1.5}', "id must be a string or an integer, found float 1.5"),
        ('{"lat": 45.5, "lon": "9"}', "the coordinates of a location must be finite numbers, found str '9'"),
    ],
    ids=["many names", "open objects", "tiny", "tiny decimal", "half a location", "id", "text"],
)
def test_hostile_events_are_rejects(tmp_path: Path, event: str, said: str) -> None:
    named = '{"interface": "j", "constraints": [["n20000", "exists"], ["x", "exists"]]}\n'
    (tmp_path / "subs.jsonl").write_text('{"interface": "i", "constraints": []}\n' + named)
    (tmp_path / "events.jsonl").write_text(event + "\n" + EVENT)
    (reject,) = match(tmp_path, "--location", "lat,lon", "--id", "n")
    assert said in reject["reason"]
    assert (reject["file"], reject["line"], reject["row"]) == (str(tmp_path / "events.jsonl"), 1, event)
    assert list(MatchesFile.load(tmp_path / "m.h5").rows()) == [[], ["i"]]


def test_zeros_and_decimals_that_round_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_text('{"interface": "zero", "predicate": "x = 0e-400 and y = 0.1 and z = 5e-324"}\n')
    (tmp_path / "events.jsonl").write_text('{"x": -0.000, "y": 0.1000000000000000055511151231257827, "z": 4e-324}\n')
    assert match(tmp_path) == []
    assert list(MatchesFile.load(tmp_path / "m.h5").rows()) == [["zero"]]


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_begins_a_file(tmp_path: Path, packed: bool) -> None:
    mark = b"\xef\xbb\xbf"
    (tmp_path / "subs.jsonl").write_bytes(mark + b'{"interface": "i", "constraints": [["x", "=", 1]]}\r\n')
    directory = tmp_path / "events.jsonl"
    directory.mkdir()
    for name, content in {"a": mark + b'{"x": 1}\n{"x": 2}\n', "b": mark + b"\n", "c": mark + b' {"x": 1}'}.items():
        path = directory / f"{name}.jsonl{'.gz' * packed}"
        path.write_bytes(gzip.compress(content) if packed else content)
    assert match(tmp_path) == []
    assert list(MatchesFile.load(tmp_path / "m.h5").rows()) == [["i"], [], ["i"]]


@pytest.mark.parametrize("packed", [False, True])
def test_an_endless_line_is_skipped_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 2**16)
    path = tmp_path / ("in.jsonl.gz" if packed else "in.jsonl")
    blanks, full = b" " * 2**25 + b"1\n", b"1" * 2**16 + b"\n"  # not all of it is blank; just short enough
    content = b"1\n" + blanks + b"2\n" + full + b"\n" + b"3" * (2**16 + 1) + b"\n4"
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    del content
    tracemalloc.start()
    found = [(number, len(line), line[-1:]) for _, number, line in read_lines([path])]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    most = 2**16
    assert found == [
        *((1, 1, b"1"), (2, most + 1, b" "), (3, 1, b"2"), (4, most, b"1"), (6, most + 1, b"3"), (7, 1, b"4")),
    ]
    assert peak < 8 * 2**20


def test_sigterm_ends_a_match_of_a_line_without_end(tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_text('{"interface": "i", "constraints": []}\n')
    words = ["match", tmp_path / "subs.jsonl", "/dev/zero", "-o", tmp_path / "m.h5", *ENGINE]
    with subprocess.Popen(
        [sys.executable, "-m", "mpi_match", *map(str, words), "--rejects", tmp_path / "bad.jsonl"],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            deadline = time.monotonic() + 60
            while not (temporary := [path for path in tmp_path.iterdir() if "m.h5" in path.name]):  # the events have begun
                assert running.poll() is None, running.stderr and running.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(1)
            kib = Path(f"/proc/{running.pid}/status").read_text().partition("VmRSS:")[2].split()[0]
            running.send_signal(signal.SIGTERM)
            said = running.communicate(timeout=20)[1]
        finally:
            running.kill()
    assert running.returncode == 130, said
    assert "interrupted" in said
    assert int(kib) < 512 * 1024
    assert not any(path.exists() for path in temporary)


def test_rejects_that_a_program_takes_have_the_same_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match import LiveMatcher, ModelError, make_events, make_table

    bad = {"interface": "i", "constraints": [["x", "~", 1]]}
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("\n" + json.dumps(bad) + "\n")
    rejects: list[Reject] = []
    make_table("rows.jsonl", rejects=rejects)
    make_table([{"interface": "j", "constraints": []}, bad], rejects=rejects)
    endless: dict[str, Any] = {}
    endless["a"] = endless
    make_events([b"7", endless, {"x": {1: 2}}], rejects=rejects)
    LiveMatcher([], engine="reference").update([{"remove": "unknown"}], rejects=rejects)
    shown = json.dumps(bad)
    assert [reject[1:] for reject in rejects] == [
        (str(tmp_path / "rows.jsonl"), 2, shown),
        ("", 1, shown),
        ("", 0, "7"),
        ("", 1, "dict {'a': {'a': {'a': {'a': {'a': {'a': {...}}}}}}}"),
        ("", 2, '{"x": {"1": 2}}'),
        ("", 0, '{"remove": "unknown"}'),
    ]
    assert rejects[3].reason == "the object 'a' contains itself"
    assert rejects[0].place == "rows.jsonl, line 2"
    with pytest.raises(ModelError, match=r"^rows\.jsonl, line 2: unknown operator"):
        make_table("rows.jsonl")


def test_a_file_whose_name_is_not_utf8_is_named_in_the_rejects(tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_text('{"interface": "i", "constraints": []}\n')
    events = tmp_path / "events.jsonl"
    events.mkdir()
    Path(os.fsdecode(os.fsencode(events) + b"/\xff.jsonl")).write_text("null\n{}\n")
    (reject,) = match(tmp_path)
    assert os.fsencode(reject["file"]).endswith(b"/\xff.jsonl")


NUL_LINES = [
    b'{"t":2}',
    b'\0\0\0\0{"t":3}',
    b'\0made-up reason\0{"t":4}',
    b'\0\x1b]0;owned\x07\0{"t":5}',
    b'{"\x1b[31mred":[[',
]


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
def test_a_line_cannot_forge_its_reason_or_reach_the_terminal(tmp_path: Path, name: str) -> None:
    (tmp_path / "s.jsonl").write_text('{"interface": "all", "constraints": []}\n')
    content = b"\n".join(NUL_LINES) + b"\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    mpi_match("compile", "subscriptions", "--local", tmp_path / "s.jsonl", "-o", tmp_path / "t.h5")
    bad_subscriptions = tmp_path / "bad.jsonl"
    bad_subscriptions.write_bytes(b'{"interface": "all", "constraints": []}\n' + content.partition(b"\n")[2])
    for number, command in enumerate(
        (
            ["match", tmp_path / "s.jsonl", tmp_path / name],
            ["run", "--table", tmp_path / "t.h5", "--events", tmp_path / name],
            ["match", bad_subscriptions, tmp_path / name],
        )
    ):
        rejects = tmp_path / f"r{number}.jsonl"
        result = mpi_match(*command, "-o", tmp_path / "m.h5", "--rejects", rejects)
        found = [json.loads(line) for line in rejects.read_text().splitlines()]
        of_events = [each for each in found if each["file"].endswith(name)]
        assert [each["row"].encode() for each in of_events] == NUL_LINES[1:]
        assert {each["reason"].partition(":")[0] for each in found} == {"not JSON"}
        assert not set(result.stderr) & set(map(chr, (*range(10), *range(11, 32), 127)))
