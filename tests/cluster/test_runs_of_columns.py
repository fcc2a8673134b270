"""Runs of Parquet and Arrow files without a compile step: the same bytes from any ranks, batches and feeds."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from command_line import mpi_match
from lasting import lasting
from mpirun import execute, launch, needs_mpirun

from mpi_match import api
from mpi_match.ingest.rows.judge import EventForm, event_of_row, names_of
from mpi_match.matches.file import MatchesFile
from mpi_match.model import ModelError, match_naive

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

FORM = EventForm(("p.x", "p.y"))
WORDS = ("--location", "p.x,p.y", "--engine", "counting")
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"interface": "warm", "constraints": [["temp", ">", 20], ["temp", "!=", 2**53 + 1]]},
    {"interface": "near", "constraints": [], "area": [0, 0, 5]},
    {"interface": "text", "constraints": [["city", "contains", "o"], ["wind", "absent"]]},
]


def rows_of(n: int) -> list[dict[str, Any]]:
    generator = random.Random(7)
    return [
        {
            "temp": generator.choice([None, Decimal(7), Decimal(25), Decimal(2**53 + 1), Decimal(2**64)]),
            "city": generator.choice([None, "Rome", "Milan", "Oslo"]),
            "p": generator.choice([None, {"x": 3.0, "y": 4.0}, {"x": 9.0, "y": 9.0}, {"x": 1.0, "y": None}]),
            "wind": generator.choice([None, 1.5]),
        }
        for _ in range(n)
    ]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a directory of a Parquet and an Arrow file, and matches.h5 of one process, which are the naive matcher's."""
    directory = tmp_path_factory.mktemp("columns")
    table = api.make_table(SUBSCRIPTIONS)
    table.save(directory / "table.h5")
    (directory / "events").mkdir()
    rows = pa.Table.from_pylist(rows_of(200))
    pq.write_table(rows.slice(0, 120), directory / "events" / "1.parquet", row_group_size=50)
    with pa.ipc.new_file(str(directory / "events" / "2.arrow"), rows.schema) as writer:
        writer.write_table(rows.slice(120), max_chunksize=30)
    mpi_match("run", *files_in(directory), "-o", directory / "matches.h5", "--batch", 64, *WORDS)
    names, filters = names_of(table.vocabulary, FORM), list(table.iter_filters())
    expected = []
    for row in rows_of(200):
        try:
            expected.append(match_naive(filters, event_of_row(row, FORM, names)))
        except ModelError:
            expected.append([])
    assert list(MatchesFile.load(directory / "matches.h5").rows()) == expected
    return directory


def files_in(directory: Path) -> tuple[object, ...]:
    return "--table", directory / "table.h5", "--events", directory / "events"


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    "options", ["--feed master --batch 17", "--feed file --batch 7", *lasting("--feed shared --batch 40")]
)
def test_any_feed_gives_the_same_bytes(options: str, inputs: Path, tmp_path: Path) -> None:
    words = (*files_in(inputs), "-o", tmp_path / "m.h5", *WORDS, *options.split(), "--rejects", tmp_path / "bad.jsonl")
    done = execute(launch(3, *words, python=("-m", "mpi4py", "-m", "mpi_match", "run")))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.h5").read_bytes() == (inputs / "matches.h5").read_bytes()
    mpi_match("verify", *files_in(inputs), "--matches", tmp_path / "m.h5", *WORDS[:2], "--sample", 0)
    lines = (tmp_path / "bad.jsonl").read_text().splitlines()
    bad = [i for i, row in enumerate(rows_of(200)) if row["temp"] == 2**64 or (row["p"] or {"y": 0})["y"] is None]
    assert len(lines) == len(bad) > 50
