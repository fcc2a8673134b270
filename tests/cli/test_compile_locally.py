"""`compile subscriptions --local`: the table of the rows, rejects as Spark has them, and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_line import mpi_match, only_line

from mpi_match.ingest.rows.judge import subscription_filters
from mpi_match.storage import FilePart, Writer, parts_directory, write_index
from mpi_match.table.table import Table

ROWS = [
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
