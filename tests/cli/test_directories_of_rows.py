"""Directories of rows as people have them: one listing for every command, partitions, and table formats that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line

pa = pytest.importorskip("pyarrow")
pq, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")

RULES: dict[str, list[Any]] = {
    "zip": ["zip", "=", "01234"],
    "number": ["zip", "=", 1234],
    "hot": ["temp", ">", 30],
    "São": ["city", "=", "São Paulo/SP"],
    "nowhere": ["city", "absent"],
}


@pytest.fixture
def subscriptions(tmp_path: Path) -> Path:
    rows = [{"interface": name, "constraints": [rule]} for name, rule in RULES.items()]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mpi_match("compile", "subscriptions", "--local", tmp_path / "s.jsonl", "-o", tmp_path / "t.h5")
    return tmp_path / "s.jsonl"


def write(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (feather.write_feather if path.suffix == ".arrow" else pq.write_table)(pa.table(columns), path)


def answers_of(subscriptions: Path, events: Path) -> list[list[list[str]]]:
    """The answers of `match`, of `run`, and of `run` on what is compiled; all commands see the same directory."""
    place = subscriptions.parent
    table, compiled, found = place / "t.h5", place / "compiled.h5", []
    mpi_match("match", subscriptions, events, "-o", place / "match.jsonl")
    mpi_match("compile", "events", "--local", events, "--table", table, "-o", compiled)
    for name, source in (("run", events), ("compiled", compiled)):
        mpi_match("run", "--table", table, "--events", source, "-o", place / f"{name}.matches.h5")
        mpi_match("export", place / f"{name}.matches.h5", "-o", place / f"{name}.jsonl")
    for name in ("match", "run", "compiled"):
        lines = (place / f"{name}.jsonl").read_text().splitlines()
        found.append([sorted(json.loads(line)["interfaces"]) for line in lines])
    return found


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_directories_of_columns_are_attributes_and_strings(subscriptions: Path, tmp_path: Path, ending: str) -> None:
    events = tmp_path / "events"
    write(events / "zip=01234" / f"city=S%C3%A3o Paulo%2FSP/a.{ending}", {"temp": [31.0, 5.0]})
    write(events / "zip=1234" / f"city=__HIVE_DEFAULT_PARTITION__/b.{ending}", {"temp": [33.0]})
    write(events / "zip=9" / f"city=x/c.{ending}", {"other": [33.0]})
    expected = [["São", "hot", "zip"], ["São", "zip"], ["hot", "nowhere"], []]
    assert answers_of(subscriptions, events) == [[sorted(each) for each in expected]] * 3
    assert answers_of(subscriptions, events / "zip=01234") == [[sorted(each) for each in expected[:2]]] * 3


def test_a_column_of_the_file_counts_and_its_directory_does_not(subscriptions: Path, tmp_path: Path) -> None:
    write(tmp_path / "events/zip=01234/a.parquet", {"zip": [1234, None], "temp": [1, 2]})
    assert answers_of(subscriptions, tmp_path / "events") == [[["nowhere", "number"], ["nowhere"]]] * 3


def test_hidden_files_are_read_by_no_command(subscriptions: Path, tmp_path: Path) -> None:
    """Their rows would shift the numbers of all events behind them."""
    events = tmp_path / "events"
    for name in (".old.jsonl", "._a.jsonl", "_tmp.jsonl", "_temporary/0/b.jsonl", ".git/c.jsonl", "notes.txt"):
        (events / name).parent.mkdir(parents=True, exist_ok=True)
        (events / name).write_text('{"temp": 99}\n')
    for name, temp in (("a.jsonl", 31), ("b/c.jsonl", 1), ("b!.jsonl", 32), ("part-00000", 2)):
        (events / name).parent.mkdir(parents=True, exist_ok=True)
        (events / name).write_text(json.dumps({"temp": temp}) + "\n")
    (events / "loop").symlink_to(events)
    expected = [["hot", "nowhere"], ["nowhere"], ["hot", "nowhere"], ["nowhere"]]
    assert answers_of(subscriptions, events) == [expected] * 3


TABLES = {"Delta": "_delta_log/0.json", "Iceberg": "metadata/v1.metadata.json", "Hudi": ".hoodie/hoodie.properties"}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("named", ["lake/t", "lake", "lake/t/data/a.parquet", "lake/t/data"])
def test_tables_whose_files_hold_removed_rows_are_refused(
    subscriptions: Path, tmp_path: Path, form: str, named: str
) -> None:
    write(tmp_path / "lake/t/data/a.parquet", {"temp": [31.0]})
    (tmp_path / "lake/t" / TABLES[form]).parent.mkdir(parents=True)
    (tmp_path / "lake/t" / TABLES[form]).write_text("{}")
    given, table, out = tmp_path / named, tmp_path / "t.h5", tmp_path / "out.h5"
    for command in (
        ["match", subscriptions, given, "-o", out],
        ["match", given, subscriptions, "-o", out],
        ["run", "--table", table, "--events", given, "-o", out],
        ["compile", "events", "--local", given, "--table", table, "-o", out],
        ["compile", "subscriptions", "--local", given, "-o", out],
    ):
        said = only_line(mpi_match(*command, code=3))
        assert f"a table of {form}" in said
        assert f"spark.read.format('{form.lower()}')" in said
        assert not out.exists()


def test_two_directories_of_one_name_are_refused(subscriptions: Path, tmp_path: Path) -> None:
    write(tmp_path / "zip=1/zip=2/a.parquet", {"temp": [31.0]})
    said = only_line(mpi_match("match", subscriptions, tmp_path / "zip=1", "-o", tmp_path / "m.h5", code=3))
    assert said.endswith("two of its directories are named 'zip'=...")
