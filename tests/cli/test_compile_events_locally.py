"""`compile events --local`: the event table of the rows, rejects as Spark has them, every form of events, and refusals."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest
from command_line import mpi_match

from mpi_match.events.event_table import EventTable, save_events
from mpi_match.events.events import Events
from mpi_match.ingest.rows.judge import EventForm, event_of_row
from mpi_match.model import make_filter
from mpi_match.table.table import Table

FORM = EventForm(("x", "y"), "id")
TABLE = Table.from_filters([make_filter("i", [["temp", ">", 20], ["city", "=", "Milan"], ["tags", "has", "a"]])])
ROWS = [
    {"temp": 25.5, "city": "Milan", "x": 9.190000000000001, "y": 45.4642035, "id": "e1"},
    {"temp": 1, "tags": ["a", 2, True], "note": "é"},
    {"city": "Rome", "id": 7},
]
BAD = '{"temp": 1, "temp": 2}'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    TABLE.save(tmp_path / "table.h5")
    return tmp_path / "table.h5"


def compiled(*arguments: object, code: int = 0) -> str:
    return mpi_match("compile", "events", "--local", *arguments, code=code).stderr


def test_the_event_table_is_that_of_the_rows(table: Path, tmp_path: Path) -> None:
    deep = tmp_path / "in" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "in" / "a.jsonl").write_text("\n".join([json.dumps(ROWS[0]), "", BAD, json.dumps(ROWS[1])]))
    (deep / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROWS[2]).encode()))
    (deep / "_SUCCESS").write_text("{")
    arguments = (tmp_path / "in", "--table", table, "--location", "x,y", "--id", "id")
    said = compiled(*arguments, "-o", tmp_path / "e.h5")
    assert "4 events" in said
    assert "1 row rejected" in said
    first, second, third = (event_of_row(row, FORM) for row in ROWS)
    save_events(Events.of([first, None, second, third]), tmp_path / "expected.h5", TABLE.vocabulary)
    assert (tmp_path / "e.h5").read_bytes() == (tmp_path / "expected.h5").read_bytes()
    (part,) = (tmp_path / "e.h5.rejects").iterdir()
    (reject,) = map(json.loads, part.read_text().splitlines())
    assert (reject["file"], reject["line"], reject["row"]) == (str(tmp_path / "in" / "a.jsonl"), 3, BAD)
    assert "'temp' occurs twice" in reject["reason"]
    assert "(--strict)" in compiled(*arguments, "-o", tmp_path / "strict.h5", "--strict", code=3)
    assert not (tmp_path / "strict.h5").exists()


def test_csv_parquet_and_arrow(table: Path, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
    feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "a.csv").write_text('temp,city,zip\n25.5,Milan,"020"\n,Rome,7\n')
    big = {
        "temp": pa.array([Decimal(2**64), Decimal(3)]),
        "uid": pa.array([Decimal(1), Decimal(10**20)]),
        "tags": pa.array([["a"], ["a", "b"]]),
    }
    parquet.write_table(pa.table(big | {"when": pa.array([0, 1], pa.timestamp("s"))}), inputs / "b.parquet")
    feather.write_feather(pa.table({"city": ["Milan", None]}), inputs / "c.arrow")
    said = compiled(inputs, "--table", table, "-o", tmp_path / "e.h5", "--schema", "zip=string")
    assert "6 events" in said
    assert (
        "left out, because no filter names them and attributes cannot have their values: uid (1 event), when (1 event)"
        in said
    )
    rows = [
        {"temp": 25.5, "city": "Milan", "zip": "020"},
        {"city": "Rome", "zip": "7"},
        None,
        {"temp": 3, "tags": ["a", "b"]},
    ]
    expected = [None if row is None else event_of_row(row) for row in [*rows, {"city": "Milan"}, {"city": None}]]
    with EventTable(tmp_path / "e.h5", TABLE.vocabulary) as found:
        assert [found.event(i) for i in range(len(found))] == expected
        assert found.encoded_for_vocabulary
    (part,) = (tmp_path / "e.h5.rejects").iterdir()
    (reject,) = map(json.loads, part.read_text().splitlines())
    assert (reject["file"], reject["line"]) == (str(inputs / "b.parquet"), 1)
    assert "attribute 'temp': the integer 18446744073709551616 is not between" in reject["reason"]


def test_refusals(table: Path, tmp_path: Path) -> None:
    output, good = tmp_path / "e.h5", tmp_path / "good.jsonl"
    good.write_text('{"temp": 1}\n')
    (tmp_path / "bad.jsonl").write_text("[]\n1\n")
    of_table = ("--table", table, "-o", output)
    assert "holds no usable event, all 2 rows are rejected" in compiled(tmp_path / "bad.jsonl", *of_table, code=3)
    assert "no such file" in compiled(tmp_path / "none*", *of_table, code=3)
    assert "compiled already" in compiled(table, *of_table, code=3)
    assert "is no CSV" in compiled(good, *of_table, "--schema", "temp=string", code=3)
    assert "for Spark" in compiled(good, *of_table, "--master", "local[1]", code=2)
    assert "(--strict)" in compiled(good, *of_table, "--id", "uuid", "--strict", code=3)
    assert "--local reads" in mpi_match("compile", "events", good, *of_table, "--schema", "a=string", code=2).stderr
    assert not output.exists()
    assert "no event has 'uuid'" in compiled(good, *of_table, "--id", "uuid")
