"""`compile subscriptions --local`: the table of the rows, rejects as Spark has them, and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match, only_line

from mpi_match.ingest.rows.judge import subscription_filters
from mpi_match.storage import FilePart, Writer, parts_directory, write_index
from mpi_match.table.table import Table

ROWS: list[dict[str, Any]] = [
    {"interface": "a", "constraints": [["x", "=", 1], ["s", "prefix", "p"]]},
    {"interface": "b", "predicate": "x > 1 or y exists"},
    {"interface": 7, "area": [0, 0, 1], "id": "f"},
]
BAD = '{"interface": "c", "constraints": [["x", "?", 1]]}'


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A directory with rows at two depths, a bad one, and a hidden file."""
    deep = tmp_path / "in" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "in" / "a.jsonl").write_text("\n".join([json.dumps(ROWS[0]), "", BAD, json.dumps(ROWS[1])]))
    (deep / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROWS[2]).encode()))
    (deep / "_SUCCESS").write_text("{")
    return tmp_path / "in"


def compiled(*arguments: object, code: int = 0) -> str:
    return mpi_match("compile", "subscriptions", "--local", *arguments, code=code).stderr


@pytest.mark.parametrize("named", ["{0}", "{0}/*", "{0}/a.jsonl {0}/deep"])
def test_the_table_is_that_of_the_rows(named: str, inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.h5"
    said = compiled(*named.format(inputs).split(), "-o", output)
    assert "4 filters with 4 constraints on 3 interfaces" in said
    assert "from 4 rows" in said
    assert Table.load(output) == Table.from_filters(item for row in ROWS for item in subscription_filters(row))
    (part,) = (tmp_path / "t.h5.rejects").iterdir()
    (reject,) = map(json.loads, part.read_text().splitlines())
    assert (reject["file"], reject["line"], reject["row"]) == (str(inputs / "a.jsonl"), 3, BAD)
    assert "unknown operator" in reject["reason"]


@pytest.mark.parametrize("op", ["regexp", "any regexp"])
def test_many_patterns_without_literals_are_said(op: str, tmp_path: Path) -> None:
    """They are tested on nearly every text, and nothing said so."""
    patterns = [f"^[a-z]{{{1 + i // 40}}}[0-9]{{{1 + i % 40}}}$" for i in range(1000)]
    rows = [{"interface": "i", "constraints": [["x", op, each]]} for each in [*patterns, "error [0-9]+"]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "1,000 patterns (wildcard, regexp) lack 2 bytes that" in compiled(tmp_path / "in.jsonl", "-o", tmp_path / "t.h5")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    assert "patterns (" not in compiled(tmp_path / "in.jsonl", "-o", tmp_path / "t.h5")


def test_rejects_of_an_earlier_compile_are_replaced_and_nothing_else(inputs: Path, tmp_path: Path) -> None:
    output, rejects = tmp_path / "t.h5", tmp_path / "bad"
    compiled(inputs, "-o", output, "--rejects", rejects)
    assert len(list(rejects.iterdir())) == 1
    compiled(inputs / "deep", "-o", output, "--rejects", rejects)
    assert not rejects.exists()
    rejects.mkdir()
    (rejects / "mine.txt").touch()
    line = only_line(mpi_match("compile", "subscriptions", "--local", inputs, "-o", output, "--rejects", rejects, code=3))
    assert "not a rejects dataset" in line
    assert (rejects / "mine.txt").exists()


def test_the_parts_of_a_table_that_is_replaced_are_removed(inputs: Path, tmp_path: Path) -> None:
    """Spark's table is an index over parts beside it; a file that it does not name is not ours."""
    output, table = tmp_path / "t.h5", Table.from_filters(item for row in ROWS for item in subscription_filters(row))
    parts = parts_directory(output)
    for strange in (False, True):
        parts.mkdir()
        with Writer(parts / "part.h5", "table-part") as writer:
            writer.attribute("rows", table.n_filters)
            for name, array in table.arrays():
                writer.array(name, array)
        write_index(output, "table", [FilePart("part.h5", table.n_filters, writer.digest)], table.counts())
        if strange:
            (parts / "mine").touch()
        compiled(inputs, "-o", output)
        assert Table.load(output) == table
        assert [path.name for path in parts.glob("*")] == (["mine"] if strange else [])
        assert parts.exists() is strange


def test_refusals(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.h5"
    assert "(--strict)" in compiled(inputs, "-o", output, "--strict", code=3)
    assert "no such file" in compiled(tmp_path / "none*", "-o", output, code=3)
    (tmp_path / "bad.jsonl").write_text(BAD)
    assert "holds no usable subscription" in compiled(tmp_path / "bad.jsonl", "-o", output, code=3)
    assert "for Spark" in compiled(inputs, "-o", output, "--master", "local[1]", code=2)
    assert not list(tmp_path.glob("t.h5*"))


# Versions


def changes(path: Path, *rows: object) -> Path:
    path.write_text("".join(row + "\n" if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def updated(*arguments: object, code: int = 0) -> str:
    return mpi_match("compile", "--update", *arguments, code=code).stderr


def test_the_next_version_is_the_table_of_its_subscriptions(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    where: dict[str, Any] = {"not": {"and": [["x", "=", 1], ["y", "=", 2]]}}
    rows: list[dict[str, Any]] = [*ROWS, {"interface": "w", "where": where, "id": "w"}]
    Table.from_filters(item for row in rows for item in subscription_filters(row)).save(tables / "t-9.h5")
    new = {"interface": "new", "constraints": [["zoo", "contains", "p"]], "id": "n"}
    first = changes(tmp_path / "1.jsonl", {"add": new, "before_event": 7}, {"move": "f", "area": [1, 2, 3]}, {"remove": "w"})
    second = changes(tmp_path / "2.jsonl", {"remove_interface": "b"}, "{", {"remove": "nobody"}, {"add": rows[3]})
    assert "5 filters with 5 constraints on 4 interfaces" in updated(tables, first, "--strict")
    said = updated(tables, second)
    assert "2 rows rejected" in said
    assert sorted(each.name for each in tables.iterdir()) == ["t-10.h5", "t-11.h5", "t-11.h5.rejects", "t-9.h5"]
    moved = {"interface": 7, "area": [1, 2, 3], "id": "f"}
    for name, present in (("t-10.h5", [*ROWS[:2], moved, new]), ("t-11.h5", [ROWS[0], moved, new, rows[3]])):
        expected = Table.from_filters(item for row in present for item in subscription_filters(row))
        assert Table.load(tables / name) == expected, name


def test_versions_are_named_and_refused(inputs: Path, tmp_path: Path) -> None:
    compiled(inputs, "-o", tmp_path / "t.h5")
    one, others = changes(tmp_path / "c.jsonl", {"remove": "f"}), tmp_path / "others"
    others.mkdir()
    assert "t-2.h5 written" in updated(tmp_path / "t.h5", one)
    assert "exists already" in updated(tmp_path / "t.h5", one, code=3)
    assert "t-2.h5 written" in updated(tmp_path / "t.h5", one, "-o", others)
    assert "no filter has the id 'f'" in updated(tmp_path, one, code=3)
    assert "would not be the newest version, which is t-2.h5" in updated(
        tmp_path / "t.h5", one, "-o", others / "a.h5", code=3
    )
    every = changes(tmp_path / "all.jsonl", *({"remove_interface": label} for label in ("a", "b", "7")))
    assert "the changes leave no filter in" in updated(tmp_path / "t.h5", every, "-o", others / "u.h5", code=3)
    assert "holds no version of a table" in updated(inputs, one, code=3)
    assert sorted(each.name for each in others.iterdir()) == ["t-2.h5"]
