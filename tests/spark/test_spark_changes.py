"""Changes through the Spark stage against the log made in memory: the same order, ids, filters and refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import mpi_match
from random_rows import random_subscription

from mpi_match.changes.live_table import Refusal
from mpi_match.changes.log import ChangeLog
from mpi_match.ingest.rows.judge import change_of_row
from mpi_match.storage import StorageError
from mpi_match.table.table import Table
from spark_prep import CompileSummary, SparkPrepError

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytestmark = pytest.mark.spark

from pyspark.sql import SparkSession  # noqa: E402
from spark_inputs import in_memory, read_rejects, write_lines  # noqa: E402

from spark_prep import job  # noqa: E402


@pytest.fixture(scope="module")
def table(spark: SparkSession, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.h5"
    in_memory(rows).save(path)
    return path


def random_changes(n: int) -> list[dict[str, Any]]:
    """Changes, some of them impossible and many with equal stamps."""
    generator = random.Random(3)
    found = []
    for i in range(n):
        row: dict[str, Any] = {"before_event": generator.randrange(0, n, 7)}
        match generator.randrange(4):
            case 0:
                row |= {"move": f"id {generator.randrange(i + 1)}", "area": [i, generator.random(), 2]}
            case 1:
                row |= {"remove": f"id {generator.randrange(i + 1)}"}
            case 2 if i % 20 == 2:
                row |= {"remove_interface": "mobile-2"}
            case 2 if i % 20 == 3:
                row |= {"consolidate": True}
            case _:
                added = random_subscription(generator)
                for place, item in enumerate(added.get("filters", [added])):
                    item.pop("id", None)
                    if place < 2 and generator.random() < 0.8:
                        item["id"] = f"id {i}"
                row |= {"add": added}
        found.append(row)
    predicate = {"interface": "new", "predicate": "temp > 1.5 or city prefix 'Qu'", "area": [1, 2, 3], "id": "text"}
    found[n // 2] = {"before_event": n // 2, "add": predicate}
    return found


def in_order_of_files(parts: list[list[dict[str, Any]]], table: Path) -> tuple[ChangeLog, list[Refusal]]:
    refused: list[Refusal] = []
    rows = [change_of_row(row) for part in parts for row in part]
    return ChangeLog.of(Table.load(table), rows, refused), refused


def test_the_log_equals_the_one_made_in_memory(spark: SparkSession, table: Path, tmp_path: Path, small_blocks: None) -> None:
    changes = random_changes(180)
    parts = [changes[:60], changes[60:120], changes[120:]]  # in the order of the paths, not of their addresses
    write_lines(tmp_path / "in" / "a b.jsonl", parts[0])
    write_lines(tmp_path / "in" / "a!.jsonl.gz", parts[1])
    third = [json.dumps(row) for row in parts[2]]
    (tmp_path / "in" / "é.jsonl").write_text("\n".join(["", "[]", '{"before_event": 1, "add": {"interface": 1}}', *third]))
    summary = job.compile_changes([str(tmp_path / "in")], table, tmp_path / "changes.h5")
    expected, refused = in_order_of_files(parts, table)
    found = ChangeLog.load(tmp_path / "changes.h5")
    assert found.table_digest == expected.table_digest
    for (name, one), (_, two) in zip(found.arrays(), expected.arrays(), strict=True):
        assert one.dtype == two.dtype, name
        assert np.array_equal(one, two), name
    assert 20 < len(refused) < 90 < len(found)
    assert (summary.rows, summary.changes, summary.rejected) == (182, len(expected), len(refused) + 2)
    assert summary.filters == expected.added.n_filters > 20
    reasons = {row["reason"] for row in read_rejects(summary.rejects)}
    assert {item.reason for item in refused} < reasons
    assert "a change must be an object" in reasons
    late = [(Path(row["file"]).name, row["line"], json.loads(row["row"])) for row in read_rejects(summary.rejects)[-5:]]
    assert all((name, row) == ("é.jsonl", parts[2][line - 4]) for name, line, row in late)
    found.stream(Table.load(table))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n", "holds no change"),
        ('{"before_event": 3, "remove": "f"}', "no usable change, its only row is rejected; .*no filter has the id"),
    ],
)
def test_no_changes_are_an_error_and_no_output(
    spark: SparkSession, table: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "in.jsonl").write_text(text)
    with pytest.raises(SparkPrepError, match=said):
        job.compile_changes([str(tmp_path / "in.jsonl")], table, tmp_path / "changes.h5")
    assert not (tmp_path / "changes.h5").exists()


def test_strict_allows_no_change_that_cannot_be_done(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", [{"before_event": 3, "remove": "missing"}])
    with pytest.raises(SparkPrepError, match=r"1 of 1 rows are bad.*\n.*in.jsonl, line 1: no filter has the id 'missing'"):
        job.compile_changes([str(tmp_path / "in.jsonl")], table, tmp_path / "changes.h5", strict=True)
    assert not (tmp_path / "changes.h5").exists()


def test_changes_need_their_table_and_a_place(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file"):
        job.compile_changes(["x.jsonl"], tmp_path / "table.h5", tmp_path / "changes.h5")
    with pytest.raises(StorageError, match="no does not exist; create it first"):
        job.compile_changes(["x.jsonl"], tmp_path / "table.h5", tmp_path / "no" / "changes.h5")


def test_no_input_is_overwritten(tmp_path: Path) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.h5"
    commands: list[tuple[Callable[..., CompileSummary], list[Any], Path]] = [
        (job.compile_subscriptions, [[str(rows)]], rows),
        (job.compile_events, [[f"file://{rows}"], table], rows),
        (job.compile_events, [[str(rows)], table], table),
        (job.compile_changes, [[str(rows)], table], table),
    ]
    for compiled, inputs, output in commands:
        with pytest.raises(StorageError, match=f"{output.name}: is an input and would be overwritten"):
            compiled(*inputs, output)


def test_what_is_compiled_holds_no_rows(table: Path, tmp_path: Path) -> None:
    commands: list[tuple[Callable[..., CompileSummary], list[Path]]] = [
        (job.compile_subscriptions, []),
        (job.compile_events, [table]),
        (job.compile_changes, [table]),
    ]
    for compiled, inputs in commands:
        with pytest.raises(
            StorageError, match=r"table\.h5: holds 'table', which is compiled already; rows are expected here"
        ):
            compiled([str(table)], *inputs, tmp_path / "out.h5")


def test_the_command_line_compiles_changes(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"before_event": 3, "remove_interface": "mobile-1"}])
    shown = mpi_match("compile", "changes", path, "--table", table, "-o", tmp_path / "c.h5", "--json")
    assert json.loads(shown.stdout)["changes"] == 1
    assert "1 change; 0 filters added" in shown.stderr
