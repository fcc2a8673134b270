"""Events in every form that `match` and `run` take: the answers, ids and rejects are those of the same JSON lines."""

from __future__ import annotations

import datetime
import gzip
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line

from mpi_match import api
from mpi_match.matches.file import MatchesFile

pa = pytest.importorskip("pyarrow")
pq, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "warm", "constraints": [["temp", ">", 20]]},
    {"interface": "Milan", "constraints": [["city", "=", "Milan"]]},
    {"interface": "text", "constraints": [["zip", "prefix", "00"]]},
    {"interface": "near", "constraints": [], "area": [9, 45, 1]},
    {"interface": "quiet", "constraints": [["alarm", "=", False], ["city", "contains", "o"]]},
    {"interface": "no alarm", "constraints": [["alarm", "absent"]]},
]
ROWS: list[dict[str, Any]] = [
    {"temp": 21.5, "city": "Milan", "zip": "00100", "alarm": None, "x": 9, "y": 45, "id": "a"},
    {"temp": -3, "city": "Rome", "zip": None, "alarm": False, "x": None, "y": None, "id": "b,c"},
    {"temp": None, "city": None, "zip": None, "alarm": None, "x": 1.5, "y": 2, "id": None},
    {"temp": 50, "city": "Oslo", "zip": "x", "alarm": True, "x": 3, "y": None, "id": "bad"},
    {"temp": 30, "city": "Como\n", "zip": "001", "alarm": False, "x": 9.5, "y": 45, "id": "d"},
]
FORM = ("--location", "x,y", "--id", "id", "--engine", "counting")


def csv_of(rows: Iterable[dict[str, Any]]) -> bytes:
    def cell(value: Any) -> str:
        if value is None:
            return ""
        return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else json.dumps(value)

    records = [list(ROWS[0]), *([cell(value) for value in row.values()] for row in rows)]
    return "".join(",".join(record) + "\n" for record in records).encode()


def lines_of(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def columns_of(rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows).set_column(1, "city", pa.array([row["city"] for row in rows]).dictionary_encode())


def parquet_of(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(columns_of(rows).append_column("when", pa.array([None] * len(rows), pa.date32())), sink, row_group_size=2)
    return sink.getvalue()


def arrow_of(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, columns_of(rows).schema) as writer:
        writer.write_table(columns_of(rows), max_chunksize=3)
    return sink.getvalue()


def packed(content: bytes) -> bytes:
    found: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return found


FILES: dict[str, Callable[[], bytes]] = {
    "events.jsonl": lambda: lines_of(ROWS),
    "events.jsonl.gz": lambda: gzip.compress(lines_of(ROWS)),
    "events.jsonl.zst": lambda: packed(lines_of(ROWS[:2])) + packed(lines_of(ROWS[2:])),
    "events.csv": lambda: csv_of(ROWS),
    "events.csv.zst": lambda: packed(csv_of(ROWS)),
    "EVENTS.CSV.GZ": lambda: gzip.compress(csv_of(ROWS)),
    "events.parquet": lambda: parquet_of(ROWS),
    "events.feather": lambda: arrow_of(ROWS),
}


@pytest.fixture(scope="module")
def subscriptions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forms") / "subscriptions.jsonl"
    path.write_bytes(lines_of(SUBSCRIPTIONS))
    api.make_table(path).save(path.with_name("table.h5"))
    return path


EXPECTED = [["Milan", "near", "no alarm", "text", "warm"], ["quiet"], ["no alarm"], [], ["near", "quiet", "text", "warm"]]
IDS = [b"a", b"b,c", b"", b"", b"d"]


def check_reject(path: Path, file: Path, line: int) -> None:
    (found,) = (json.loads(each) for each in path.read_text().splitlines())
    assert found["file"] == str(file)
    assert found["line"] == line
    assert found["reason"] == "the location needs both 'x' and 'y'; 'y' is absent"
    assert json.loads(found["row"])["city"] == "Oslo"


@pytest.mark.parametrize("name", FILES)
def test_events_of_every_form_are_matched(name: str, subscriptions: Path, tmp_path: Path) -> None:
    events, bad = tmp_path / name, tmp_path / "bad.jsonl"
    events.write_bytes(FILES[name]())
    line = 5 if "csv" in name.lower() else 4
    mpi_match("match", subscriptions, events, "-o", tmp_path / "m.h5", *FORM, "--rejects", bad)
    found = MatchesFile.load(tmp_path / "m.h5")
    assert [sorted(row) for row in found.rows()] == EXPECTED
    assert found.event_ids is not None
    assert list(found.event_ids) == IDS
    check_reject(bad, events, line)

    table = subscriptions.with_name("table.h5")
    files = ("--table", table, "--events", events)
    mpi_match("run", *files, "-o", tmp_path / "r.h5", *FORM, "--rejects", bad, "--batch", 2)
    assert [sorted(row) for row in MatchesFile.load(tmp_path / "r.h5").rows()] == EXPECTED
    check_reject(bad, events, line)
    mpi_match("verify", *files, "--matches", tmp_path / "r.h5", *FORM[:4], "--sample", 0)
    mpi_match("export", tmp_path / "r.h5", "--events", events, "--id", "id", "-o", tmp_path / "r.jsonl")
    rows = [json.loads(each) for each in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [(row["id"] or "").encode() for row in rows] == [*IDS[:3], b"bad", IDS[4]]  # only the location was bad


def test_a_directory_may_have_lines_and_csv(subscriptions: Path, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.csv").write_bytes(csv_of(ROWS[:2]))
    (tmp_path / "events" / "2.jsonl.zst").write_bytes(packed(lines_of(ROWS[2:])))
    (tmp_path / "events" / "notes.txt").write_text("no events")
    mpi_match("match", subscriptions, tmp_path / "events", "-o", tmp_path / "m.h5", *FORM)
    assert [sorted(row) for row in MatchesFile.load(tmp_path / "m.h5").rows()] == EXPECTED


def test_the_types_of_columns_can_be_stated(subscriptions: Path, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("zip,temp\n00100,21\n001,x\n100,30\n")
    words = ("match", subscriptions, tmp_path / "events.csv", "--engine", "counting", "-o")
    for schema, expected in (
        ((), [["no alarm", "text", "warm"], ["no alarm", "text"], ["no alarm", "warm"]]),
        (("--schema", "zip=string,temp=number"), [["no alarm", "text", "warm"], [], ["no alarm", "warm"]]),
    ):
        result = mpi_match(*words, tmp_path / "m.h5", *schema)
        assert [sorted(row) for row in MatchesFile.load(tmp_path / "m.h5").rows()] == expected
    assert 'events.csv, line 3: the cell "x" is not a number, as --schema says' in result.stderr
    line = only_line(mpi_match(*words, tmp_path / "n.h5", "--schema", "zap=string", code=3))
    assert line.endswith("line 1: there is no column 'zap', which --schema names; there are: 'zip', 'temp'")
    for wrong in ("zip", "zip=text", "zip=string,zip=number"):
        assert "--schema needs name=type" in mpi_match(*words, tmp_path / "n.h5", "--schema", wrong, code=2).stderr
    (tmp_path / "events.jsonl").write_text("{}\n")
    other = ("match", subscriptions, tmp_path / "events.jsonl", "--schema", "zip=string", "-o", tmp_path / "n.h5")
    assert only_line(mpi_match(*other, code=3)).endswith("events.jsonl: is no CSV; leave out --schema")


@pytest.mark.parametrize("name", ["events.jsonl.zst", "EVENTS.CSV.GZ"])
def test_a_truncated_packed_file_is_one_line(name: str, subscriptions: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name]()[:-9])
    form = "Zstandard" if name.endswith("zst") else "gzip"
    table = subscriptions.with_name("table.h5")
    for words in (("match", subscriptions, tmp_path / name), ("run", "--table", table, "--events", tmp_path / name)):
        line = only_line(mpi_match(*words, "-o", tmp_path / "m.h5", *FORM, code=3))
        assert f"{name}: is not a whole {form} file: " in line
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_csv_changed_since_is_refused_by_verify(subscriptions: Path, tmp_path: Path) -> None:
    events, table = tmp_path / "events.csv", subscriptions.with_name("table.h5")
    events.write_bytes(csv_of(ROWS))
    mpi_match("run", "--table", table, "--events", events, "-o", tmp_path / "r.h5", *FORM)
    events.write_bytes(csv_of(reversed(ROWS)))
    words = ("verify", "--table", table, "--events", events, "--matches", tmp_path / "r.h5", *FORM[:4])
    assert "was made with another file of events" in only_line(mpi_match(*words, code=3))


def test_a_directory_of_columns_may_have_several_kinds(subscriptions: Path, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.parquet").write_bytes(parquet_of(ROWS[:3]))
    (tmp_path / "events" / "2.arrow").write_bytes(arrow_of(ROWS[3:]))
    table = subscriptions.with_name("table.h5")
    for words in (("match", subscriptions), ("run", "--table", table, "--batch", 4, "--events")):
        mpi_match(*words, tmp_path / "events", "-o", tmp_path / "m.h5", *FORM)
        assert [sorted(row) for row in MatchesFile.load(tmp_path / "m.h5").rows()] == EXPECTED
    (tmp_path / "events" / "3.jsonl").write_bytes(b"{}")
    line = only_line(mpi_match("match", subscriptions, tmp_path / "events", "-o", tmp_path / "n.h5", *FORM, code=3))
    assert line.endswith("events: holds 1.parquet, of columns, and 3.jsonl, of lines; put them into two directories")


@pytest.mark.parametrize("name", ["events.parquet", "events.feather"])
def test_bad_files_of_columns_are_one_line(name: str, subscriptions: Path, tmp_path: Path) -> None:
    events, table = tmp_path / name, subscriptions.with_name("table.h5")
    whole = FILES[name]()
    dated = columns_of(ROWS).drop_columns("temp").append_column("temp", pa.array([datetime.date(2026, 1, 1)] * 5))
    sink = io.BytesIO()
    (pq.write_table if name == "events.parquet" else feather.write_feather)(dated, sink)
    form = "Parquet" if name == "events.parquet" else "Arrow"
    for content, said in (
        (whole[:-20], f"{name}: is not a readable {form} file: "),
        (whole[:3], f"{name}: is not a readable "),
        (sink.getvalue(), f"{name}: the column 'temp' is of type date32"),
    ):
        events.write_bytes(content)
        for words in (("match", subscriptions, events), ("run", "--table", table, "--events", events)):
            line = only_line(mpi_match(*words, "-o", tmp_path / "m.h5", *FORM, code=3))
            assert said in line
            assert [path.name for path in tmp_path.iterdir()] == [name]


def test_columns_changed_since_are_refused(subscriptions: Path, tmp_path: Path) -> None:
    events, table = tmp_path / "events.parquet", subscriptions.with_name("table.h5")
    events.write_bytes(parquet_of(ROWS))
    mpi_match("run", "--table", table, "--events", events, "-o", tmp_path / "r.h5", *FORM)
    events.write_bytes(parquet_of(ROWS[::-1]))
    words = ("verify", "--table", table, "--events", events, "--matches", tmp_path / "r.h5", *FORM[:4])
    assert "was made with another file of events" in only_line(mpi_match(*words, code=3))
