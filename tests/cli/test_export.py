"""`export`: answers as JSON lines and Parquet."""

from __future__ import annotations

import json
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
