"""`export`: answers as JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line

from mpi_match.matches.file import MatchesFile


def test_export_writes_json_lines_to_standard_output(workload: Path) -> None:
    result = mpi_match("export", workload / "matches.h5")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expected = MatchesFile.load(workload / "matches.h5").rows()
    assert rows == [{"event": i, "interfaces": labels} for i, labels in enumerate(expected)]
    first = json.loads(mpi_match("export", workload / "filters.h5").stdout.splitlines()[0])
    assert first == {"event": 0, "filters": MatchesFile.load(workload / "filters.h5").matches[0].tolist()}


def test_export_adds_ids_and_writes_parquet(rows: list[Any], tmp_path: Path) -> None:
    from mpi_match import api
    from mpi_match.events.event_table import save_events

    mpi_match("match", *rows)
    made = api.make_events(tmp_path / "events.jsonl", id="n", rejects=[])
    save_events(made, tmp_path / "events.h5", api.make_table([]).vocabulary)
    expected = [("e1", ["hot"]), ("e2", []), (None, []), (None, ["hot"])]
    output = tmp_path / "out.jsonl"
    mpi_match("export", tmp_path / "m.h5", "--events", tmp_path / "events.h5", "-o", output)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert found == [{"event": i, "id": id_, "interfaces": labels} for i, (id_, labels) in enumerate(expected)]

    pq = pytest.importorskip("pyarrow.parquet")
    mpi_match("export", tmp_path / "m.h5", "--events", tmp_path / "events.h5", "-o", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == found
    mpi_match("export", tmp_path / "m.h5", "-o", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["event", "interfaces"]
    ipc = pytest.importorskip("pyarrow.ipc")
    mpi_match("export", tmp_path / "m.h5", "--events", tmp_path / "events.h5", "-o", tmp_path / "out.arrow")
    with ipc.open_file(tmp_path / "out.arrow") as written:
        assert written.read_all().to_pylist() == found


def test_export_writes_csv_to_join(rows: list[Any], tmp_path: Path) -> None:
    lines = [{"n": 'a "b", c', "temp": 31, "x": 0, "y": 0}, {"n": "e2", "temp": 1}, {"temp": 40}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    mpi_match("match", *rows, "--id", "n", "--location", "x,y")
    expected = [["0", 'a "b", c', "hot"], ["0", 'a "b", c', "near"], ["1", "e2", ""], ["2", "", "hot"]]
    mpi_match("export", tmp_path / "m.h5", "-o", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["event", "id", "interface"], *expected]
    words = [word if word != tmp_path / "m.h5" else tmp_path / "out.csv" for word in rows]
    mpi_match("match", *words, "--location", "x,y", "--filters")
    assert (tmp_path / "out.csv").read_text() == "event,filter\n0,0\n0,1\n1,\n2,0\n"


def test_match_writes_lines_to_standard_output_as_export_does(workload: Path, tmp_path: Path) -> None:
    files = ("match", workload / "subscriptions.jsonl", workload / "events.jsonl", "--engine", "keyed", "-o")
    mpi_match(*files, tmp_path / "m.h5")
    assert mpi_match(*files, "-").stdout == mpi_match("export", tmp_path / "m.h5").stdout
    events = tmp_path / "events.jsonl"
    events.write_bytes((workload / "events.jsonl").read_bytes() * 100)
    command = [sys.executable, "-m", "mpi_match", *map(str, (files[0], files[1], events, *files[3:])), "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"event": 0, ')
        process.stdout.close()  # as `head` does
        assert b"Traceback" not in process.stderr.read()


def test_answers_of_match_have_event_ids(rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_match.commands.match.MATCHED_AT_ONCE", 1)
    mpi_match("match", *rows, "--id", "n")
    expected = [("e1", ["hot"]), ("e2", []), (None, []), (None, ["hot"])]
    found = [json.loads(line) for line in mpi_match("export", tmp_path / "m.h5").stdout.splitlines()]
    assert found == [{"event": i, "id": id_, "interfaces": labels} for i, (id_, labels) in enumerate(expected)]
    shown = json.loads(mpi_match("inspect", tmp_path / "m.h5", "--json").stdout)["first"]
    assert shown[::2] == [{"event": 0, "id": "e1", "matches": ["hot"]}, {"event": 2, "id": None, "matches": []}]

    (tmp_path / "events.jsonl").write_text('{"n": 7, "temp": 31}\n{"n": "\u00e9", "temp": 30}\n{"n": ""}\n')
    mpi_match("match", *rows, "--id", "n", "--filters")
    mpi_match("export", tmp_path / "m.h5", "-o", tmp_path / "out.parquet")
    pq = pytest.importorskip("pyarrow.parquet")
    ids = [("7", [0]), ("é", []), (None, [])]
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [
        {"event": i, "id": id_, "filters": filters} for i, (id_, filters) in enumerate(ids)
    ]


def test_export_refuses_events_of_another_run(workload: Path, tmp_path: Path) -> None:
    mpi_match("generate", "ccm", "-o", tmp_path, "--filters", 10, "--events", 5)
    result = mpi_match(
        "export", workload / "matches.h5", "--events", tmp_path / "events.h5", "-o", tmp_path / "o.jsonl", code=3
    )
    assert "answers 300 events" in only_line(result)
    assert not (tmp_path / "o.jsonl").exists()


def test_export_without_pyarrow_names_the_package(workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = only_line(mpi_match("export", workload / "matches.h5", "-o", tmp_path / "o.parquet", code=5))
    assert "pip install" in line
    assert list(tmp_path.iterdir()) == []


def test_rows_stand_beside_answers_byte_for_byte(rows: list[Any], tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    second = json.dumps({"n": "\u00fc\n"}, ensure_ascii=False).encode()
    kept = b'{"n":"e1", "temp": 31.50}', second, b'{"temp": 1e999', b'{"temp" :40}'
    events.write_bytes(b"\xef\xbb\xbf" + b"\n \n".join([kept[0] + b" \r", *kept[1:]]))
    subscriptions, flags = rows[0], ["--engine", "counting"]
    expected = [b'["hot"]', b"[]", b"[]", b'["hot"]']
    lines = b"".join(
        b'{"event": %d, "interfaces": %s, "row": %s}\n' % (i, found, b"null" if i == 2 else kept[i])
        for i, found in enumerate(expected)
    )
    mpi_match("match", subscriptions, events, "-o", tmp_path / "m.h5", *flags)
    mpi_match("match", subscriptions, events, "-o", tmp_path / "out.jsonl", "--with-rows", *flags)
    assert (tmp_path / "out.jsonl").read_bytes() == lines
    for words in (["match", subscriptions, events, *flags], ["export", tmp_path / "m.h5", "--events", events]):
        done = mpi_match(*words, "-o", "-", "--with-rows")
        assert done.stdout_bytes == lines
    events.write_bytes(events.read_bytes() + b'\n{"temp": 1}\n')
    done = mpi_match("export", tmp_path / "m.h5", "--events", events, "--with-rows", code=3)
    assert "answers 4 events" in only_line(done)


def test_rows_are_refused_where_there_are_none(rows: list[Any], workload: Path, tmp_path: Path) -> None:
    matches, events = workload / "matches.h5", workload / "events.h5"
    assert "holds columns" in only_line(mpi_match("export", matches, "--events", events, "--with-rows", code=3))
    assert "--events" in mpi_match("export", matches, "--with-rows", code=2).stderr
    flags = ("--events", rows[1], "-o", tmp_path / "a.csv", "--with-rows")
    assert "JSON lines only" in mpi_match("export", matches, *flags, code=2).stderr
    assert "JSON lines only" in mpi_match("match", *rows, "--with-rows", code=2).stderr
