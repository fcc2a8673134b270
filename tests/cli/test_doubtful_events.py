"""Events that have no attribute that a filter names: a warning with the nearest names, for every form; strict: an error."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import in_a_process, mpi_match, only_line

from mpi_match.matches.file import MatchesFile

pa = pytest.importorskip("pyarrow")
pq, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")

ROWS: list[dict[str, Any]] = [{"Temp": 31, "citty": "Milan"}, {"Temp": 5, "citty": "Rome"}]
SUBSCRIPTIONS: list[list[Any]] = [["temp", ">", 30], ["city", "=", "Milan"], ["wind", "exists"]]
CSV = b"Temp,citty\n31,Milan\n5,Rome\n"
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def write_columns(write: Callable[..., None]) -> Callable[[Path, list[dict[str, Any]]], None]:
    return lambda path, rows: write(pa.Table.from_pylist(rows), path)


FORMS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "e.jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "e.jsonl.xz": lambda path, rows: path.write_bytes(lzma.compress("".join(json.dumps(r) + "\n" for r in rows).encode())),
    "e.csv": lambda path, rows: path.write_bytes(csv_of(rows)),
    "e.csv.bz2": lambda path, rows: path.write_bytes(bz2.compress(csv_of(rows))),
    "e.tsv": lambda path, rows: path.write_bytes(csv_of(rows).replace(b",", b"\t")),
    "e.parquet": write_columns(pq.write_table),
    "e.arrow": write_columns(feather.write_feather),
}


def csv_of(rows: list[dict[str, Any]]) -> bytes:
    return "".join(
        ",".join(map(str, each)) + "\n" for each in [list(rows[0]), *(list(row.values()) for row in rows)]
    ).encode()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    rows = [{"interface": each[0], "constraints": [each]} for each in SUBSCRIPTIONS]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mpi_match("compile", "subscriptions", "--local", tmp_path / "s.jsonl", "-o", tmp_path / "t.h5")
    return tmp_path


SAID = (
    "no event has an attribute that a filter names ('city', 'temp', 'wind'); events have 'Temp', 'citty'; "
    "is 'citty' meant by 'city'?"
)


@pytest.mark.parametrize("name", FORMS)
def test_a_warning_names_what_events_have(inputs: Path, name: str) -> None:
    FORMS[name](inputs / name, ROWS)
    table, out = ("--table", inputs / "t.h5"), ("-o", inputs / "out.h5")
    commands = {
        "match": ["match", inputs / "s.jsonl", inputs / name, *out],
        "run": ["run", *table, "--events", inputs / name, *out],
        "compile": ["compile", "events", "--local", inputs / name, *table, *out],
    }
    for kind, command in commands.items():
        assert SAID in mpi_match(*command).stderr.splitlines(), kind
        (inputs / "out.h5").unlink()
        said = only_line(mpi_match(*command, "--strict", code=3))
        assert said == f"mpi-match: {inputs / name}: {SAID} (--strict)"
        assert not (inputs / "out.h5").exists()
    mpi_match(*commands["compile"])
    said_by_run = mpi_match("run", *table, "--events", inputs / "out.h5", "-o", inputs / "m.h5").stderr
    assert SAID in said_by_run.splitlines()  # of an event table too


@pytest.mark.parametrize("name", FORMS)
def test_no_warning_where_one_event_has_one_named_attribute(inputs: Path, name: str) -> None:
    FORMS[name](inputs / name, [*({"Temp": 1, "wind": "x"} for _ in range(3))])
    table, out = ("--table", inputs / "t.h5"), ("-o", inputs / "out.h5")
    for command in (
        ["match", inputs / "s.jsonl", inputs / name, "--strict", *out],
        ["run", *table, "--events", inputs / name, "--strict", *out],
        ["compile", "events", "--local", inputs / name, "--strict", *table, *out],
        ["run", *table, "--events", inputs / "out.h5", "-o", inputs / "m.h5"],
    ):
        assert "no event has" not in mpi_match(*command).stderr


def test_a_filter_on_the_attribute_of_the_ids_is_said(inputs: Path) -> None:
    said = "a filter names 'city', which is absent from every event because --id names it: give the ids another attribute"
    (inputs / "e.jsonl").write_text('{"city": "Milan", "temp": 31}\n')
    table, out = ("--table", inputs / "t.h5"), ("-o", inputs / "out.h5")
    for command in (
        ["match", inputs / "s.jsonl", inputs / "e.jsonl", *out],
        ["run", *table, "--events", inputs / "e.jsonl", *out],
        ["compile", "events", "--local", inputs / "e.jsonl", *table, *out],
    ):
        assert said in mpi_match(*command, "--id", "city").stderr.splitlines()
        assert said in only_line(mpi_match(*command, "--id", "city", "--strict", code=3))
        assert "absent" not in mpi_match(*command).stderr


def test_a_list_of_events_in_one_object_is_said(inputs: Path) -> None:
    (inputs / "e.json").write_text(json.dumps({"Records": [{"temp": 31}, {"temp": 1}]}))
    said = mpi_match("match", inputs / "s.jsonl", inputs / "e.json", "-o", inputs / "m.h5").stderr
    assert "the list 'Records' has objects with them: `jq -c '.Records[]'` makes an event of each object" in said


def test_located_events_and_tables_without_names_are_not_doubted(inputs: Path) -> None:
    (inputs / "e.jsonl").write_text('{"x": 1, "y": 2}\n')
    (inputs / "all.jsonl").write_text('{"interface": "all", "constraints": []}\n')
    flags = ("-o", inputs / "m.h5", "--strict")
    assert "no event has" not in mpi_match("match", inputs / "all.jsonl", inputs / "e.jsonl", *flags).stderr
    assert (
        "no event has" not in mpi_match("match", inputs / "s.jsonl", inputs / "e.jsonl", "--location", "x,y", *flags).stderr
    )


def test_a_stream_is_doubted_at_its_end(inputs: Path) -> None:
    (inputs / "e.jsonl").write_bytes(LINES)
    with (inputs / "e.jsonl").open("rb") as events:
        done = in_a_process(sys.executable, "-m", "mpi_match", "match", inputs / "s.jsonl", "-", stdin=events)
    assert "no event has an attribute that a filter names ('city', 'temp', 'wind')" in done.stderr.splitlines()


def test_directories_of_lines_that_filters_name_are_said(inputs: Path) -> None:
    place = inputs / "events" / "city=Milan"
    place.mkdir(parents=True)
    (place / "e.jsonl").write_text('{"temp": 31}\n')
    table, out = ("--table", inputs / "t.h5"), ("-o", inputs / "out.h5")
    for command in (
        ["match", inputs / "s.jsonl", inputs / "events", *out],
        ["run", *table, "--events", inputs / "events", *out],
        ["compile", "events", "--local", inputs / "events", *table, *out],
    ):
        assert "a filter names 'city', and rows of JSON lines and CSV take nothing from directories such as city=Milan" in (
            mpi_match(*command).stderr
        )
        assert "city=Milan" in only_line(mpi_match(*command, "--strict", code=3))


@pytest.mark.parametrize(
    ("content", "flags", "said"),
    [
        (b"v;w\n31;1\n", [], "e.csv, line 1: the header is one column, 'v;w'; use --delimiter ';'"),
        ("v,w\n31,1\n".encode("utf-16"), [], "e.csv, line 1: is UTF-16; use --encoding utf-16"),
        ("débit,w\n31,1\n".encode("latin-1"), [], "e.csv, line 1: the header is not UTF-8 at byte 1; use --encoding"),
        (
            b'temp,w\n31,1\n"31,1\n' + b"31,2\n" * 200_000,
            [],
            "e.csv, line 3: a cell that begins with a quote",
        ),
        (b"temp;w\n31;1\n", ["--delimiter", ";"], ""),
        (b"temp\tw\n31\t1\n", ["--delimiter", "tab"], ""),
        (b"sep=;\r\ntemp;w\r\n31;1\r\n", [], ""),
        ("temp,w\n31,1\n".encode("utf-16"), ["--encoding", "utf-16"], ""),
    ],
)
def test_csv_as_other_programs_write_it(inputs: Path, content: bytes, flags: list[str], said: str) -> None:
    events, table, out = inputs / "e.csv", ("--table", inputs / "t.h5"), ("-o", inputs / "out.h5")
    events.write_bytes(content)
    for command in (
        ["match", inputs / "s.jsonl", events, *out],
        ["run", *table, "--events", events, *out],
        ["compile", "events", "--local", events, *table, *out],
    ):
        if said:
            assert said in only_line(mpi_match(*command, *flags, code=3))
            assert not (inputs / "out.h5").exists()
        else:
            mpi_match(*command, *flags)
            if command[0] != "compile":
                assert MatchesFile.load(inputs / "out.h5").matches.n_matches == 1
            (inputs / "out.h5").unlink()
    for flag, value in (("--delimiter", "ab"), ("--delimiter", '"'), ("--delimiter", "é"), ("--encoding", "none")):
        assert flag in mpi_match("match", inputs / "s.jsonl", events, *out, flag, value, code=2).stderr
    (inputs / "e.jsonl").write_bytes(LINES)
    for flag, value in (("--delimiter", ";"), ("--encoding", "latin-1")):
        refused = mpi_match("match", inputs / "s.jsonl", inputs / "e.jsonl", *out, flag, value, code=3)
        assert only_line(refused).endswith(f"is no CSV; leave out {flag}")


def test_lines_in_utf_16_are_one_error(inputs: Path) -> None:
    (inputs / "e.jsonl").write_bytes(LINES.decode().encode("utf-16"))
    for given in ((inputs / "s.jsonl", inputs / "e.jsonl"), (inputs / "e.jsonl", inputs / "s.jsonl")):
        assert "is UTF-16, and JSON lines are UTF-8: iconv" in only_line(
            mpi_match("match", *given, "-o", inputs / "m.h5", code=3)
        )


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_packed_lines_that_are_cut_or_damaged_are_one_error(inputs: Path, ending: str) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    whole = pack[ending](b'{"temp": 31}\n' * 5_000)
    path, out = inputs / f"e.jsonl.{ending}", ("-o", inputs / "m.h5")
    path.write_bytes(whole + whole)
    mpi_match("match", inputs / "s.jsonl", path, *out)
    assert MatchesFile.load(inputs / "m.h5").matches.n_events == 10_000
    middle = len(whole) // 2
    for content in (whole[:-5], whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :], b"no such file"):
        path.write_bytes(content)
        said = only_line(mpi_match("match", inputs / "s.jsonl", path, *out, code=3))
        assert f"e.jsonl.{ending}: is not a whole" in said
