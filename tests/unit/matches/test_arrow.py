"""Answers as Arrow have the rows of the answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpi_match.arrays.strings import Strings
from mpi_match.matches import arrow
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.matches import Matches

pa = pytest.importorskip("pyarrow")
LABELS = ["a", "é", "mobile-7", ""]


def answers(n: int, unit: str = "interface", *, with_ids: bool = False) -> tuple[MatchesFile, list[dict[str, Any]]]:
    """Random answers, and their rows."""
    generator = np.random.default_rng(n)
    found = [sorted(set(generator.integers(0, 4, generator.integers(5)).tolist())) for _ in range(n)]
    ids = ["" if i % 3 else f"é{i}" for i in range(n)] if with_ids else None
    labels = Strings.of(() if unit == "filter" else (label.encode() for label in LABELS))
    packed = None if ids is None else Strings.of(each.encode() for each in ids)
    rows = [
        {
            "event": i,
            **({} if ids is None else {"id": ids[i] or None}),
            f"{unit}s": each if unit == "filter" else [LABELS[k] for k in each],
        }
        for i, each in enumerate(found)
    ]
    return MatchesFile(Matches.of(found, 4), labels, {"unit": unit}, packed), rows


@pytest.mark.parametrize("n", [0, 1, 1000])
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("unit", ["interface", "filter"])
def test_tables_have_the_rows_of_the_answers(n: int, with_ids: bool, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_IDS", 100)
    found, rows = answers(n, unit, with_ids=with_ids)
    table = found.to_arrow()
    assert table.to_pylist() == rows
    assert table.column_names == ["event", *(["id"] if with_ids else []), f"{unit}s"]
    assert table.column("event").num_chunks == len(list(arrow.batch_bounds(found.matches)))
    table.validate(full=True)


def test_batches_end_at_bounds_of_events_and_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_EVENTS", 3)
    monkeypatch.setattr(arrow, "BATCH_IDS", 2)
    found = Matches.of([[0, 1, 2], [], [0], [0], [], [], [], []], 3)
    assert list(arrow.batch_bounds(found)) == [(0, 1), (1, 4), (4, 7), (7, 8)]


def test_other_libraries_take_the_stream() -> None:
    polars = pytest.importorskip("polars")
    found, rows = answers(500, with_ids=True)
    assert pa.RecordBatchReader.from_stream(found).read_all().to_pylist() == rows
    assert polars.DataFrame(found).to_dicts() == rows


def test_ids_are_not_copied() -> None:
    found, _ = answers(300)
    (batch,) = found.to_arrow().to_batches()
    indices = np.asarray(batch.column("interfaces").values.indices)
    assert np.shares_memory(indices, found.matches.ids)
