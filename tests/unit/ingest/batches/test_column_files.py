"""Parquet and Arrow files as numbered events: any range has the rows of the files, and nothing that changed is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_match import api
from mpi_match.ingest.batches.column_batch import batch_of_tables
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.offer import RowsOffer
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.files.checked_blocks import Blocks
from mpi_match.ingest.rows.judge import EventForm, Reject
from mpi_match.model import ModelError
from mpi_match.storage import FileChanged

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TABLE = api.make_table(
    [
        {"interface": "a", "constraints": [["p.n", ">", 3], ["s", "contains", "1"]]},
        {"interface": "b", "constraints": [["b", "=", True]]},
    ]
)
FORM = EventForm(None, "id")
N = 50


def rows_of(n: int) -> list[dict[str, Any]]:
    return [
        {
            "p": None if i % 7 == 0 else {"n": i, "unused": [i]},
            "s": None if i % 5 == 0 else str(i),
            "b": i % 3 == 0,
            "id": f"e{i}",
            "large": 2**60,
        }
        for i in range(n)
    ]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    whole = pa.Table.from_pylist(rows_of(N))
    pq.write_table(whole.slice(0, 20), tmp_path / "1.parquet", row_group_size=6)
    with_dictionary = whole.set_column(1, "s", whole["s"].combine_chunks().dictionary_encode())
    with pa.ipc.new_file(str(tmp_path / "2.arrow"), with_dictionary.schema) as writer:
        writer.write_table(with_dictionary.slice(20, 11), max_chunksize=4)
    pq.write_table(whole.slice(0, 0), tmp_path / "3.parquet")
    pq.write_table(whole.slice(31).drop_columns("b"), tmp_path / "4.parquet")
    return sorted(tmp_path.iterdir())


def expected(start: int, stop: int) -> Any:
    rows = rows_of(N)[start:stop]
    for i, row in enumerate(rows, start):
        del row["large"]
        if i >= 31:
            del row["b"]
        if row["p"]:
            del row["p"]["unused"]
    return api.make_batch(TABLE, rows, id="id")


def test_any_range_of_rows_is_read(paths: list[Path]) -> None:
    with ColumnFiles.open(paths[::-1], FORM, TABLE.vocabulary) as files:
        scanner: Any = RowsOffer(files.index, FORM).scanner(TABLE.vocabulary)
        assert len(files) == N
        for start, stop in ((0, N), (0, 1), (5, 7), (19, 21), (20, 31), (30, 32), (44, 50), (7, 7)):
            batch = files.batch(start, stop)
            found, report = scanner.scan(RowBatch.from_wire(batch.to_wire(np.zeros(batch.wire_bytes + 9, np.uint8))))
            if start < stop:
                assert all(map(np.array_equal, found.columns, expected(start, stop).columns)), (start, stop)
                assert report.identified
        assert files.wire_bytes(1) >= files.batch(0, N).wire_bytes // 4
        with pytest.raises(IndexError):
            files.batch(0, N + 1)
    event = files.event(32)
    assert event is not None
    assert (event.attributes, event.id) == ({"p.n": 32, "s": "32"}, "e32")


def test_lists_in_files_are_read_row_by_row(tmp_path: Path) -> None:
    table = api.make_table([{"interface": "a", "constraints": [["tags", "has", "x"]]}])
    rows: list[dict[str, Any]] = [{"tags": ["x", "y"]}, {"tags": None}, {"tags": [None]}, {"tags": []}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet", row_group_size=3)
    with ColumnFiles.open([tmp_path / "events.parquet"], FORM._replace(id=None), table.vocabulary) as files:
        scanner: Any = RowsOffer(files.index, files.form).scanner(table.vocabulary)
        found, report = scanner.scan(files.batch(0, 4))
        assert files.event(0) == api.make_events(rows[:1]).event(0)
    rejects: list[Reject] = []
    assert all(map(np.array_equal, found.columns, api.make_batch(table, rows, rejects=rejects).columns))
    assert [(each.line, each.reason) for each in report.rejects] == [(each.line + 1, each.reason) for each in rejects]


def test_other_content_and_other_forms_have_other_digests(paths: list[Path], tmp_path: Path) -> None:
    digests = {ColumnFiles.open(paths, form, TABLE.vocabulary).digest for form in (FORM, EventForm(None, None))}
    digests.add(ColumnFiles.open(paths[:3], FORM, TABLE.vocabulary).digest)
    assert len(digests) == 3
    assert ColumnFiles.open(paths, FORM, TABLE.vocabulary).digest in digests


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content[:-40], "was truncated while it was read: it ends at byte"),
        (
            lambda content: content[:9] + bytes([content[9] ^ 1]) + content[10:],
            "changed while it was read: CRC-32 of its bytes",
        ),
        (lambda content: None, "changed while it was read: No such file"),
    ],
)
def test_a_file_that_changed_since_is_never_read(paths: list[Path], change: Any, said: str) -> None:
    with ColumnFiles.open(paths, FORM, TABLE.vocabulary) as files:
        content = change(paths[0].read_bytes())
        paths[0].unlink()
        if content is not None:
            paths[0].write_bytes(content)
        with pytest.raises(FileChanged, match=rf"1\.parquet: {said}"):
            files.batch(0, 3)


def test_damaged_pages_are_one_error(paths: list[Path]) -> None:
    content = bytearray(paths[0].read_bytes())
    for i in range(4, 200):
        content[i] ^= 0xA5
    paths[0].write_bytes(content)
    with (
        ColumnFiles.open(paths, FORM, TABLE.vocabulary) as files,
        pytest.raises(ModelError, match=r"1\.parquet: is not a read"),
    ):
        files.batch(0, 3)


def test_blocks_are_compared_wherever_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi_match.ingest.files import checked_blocks

    monkeypatch.setattr(checked_blocks, "_BLOCK_BYTES", 7)
    path, content = tmp_path / "file", bytes(range(100))
    path.write_bytes(content)
    file = checked_blocks.CheckedFile(Blocks.of(path))
    for start, n in ((0, 3), (2, 9), (13, 1), (14, 50), (98, 9), (100, 1), (6, 2), (0, 200)):
        file.seek(start)
        assert file.read(n) == content[start : start + n]


def test_what_is_no_batch_of_columns_is_refused() -> None:
    wire = batch_of_tables([(0, 0, pa.table({"a": [1]}))]).to_wire()
    for wrong in (wire[:9], wire[:-8], np.zeros(64, np.uint8)):
        with pytest.raises(ValueError, match=r"not a (whole )?batch of rows"):
            RowBatch.from_wire(wrong)
