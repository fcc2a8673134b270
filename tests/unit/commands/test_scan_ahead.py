"""Ranges of files that threads scan ahead are the events, the rejects and the numbers of one pass through them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from event_lines import BAD, BLANK, FORM, GOOD, JUDGED_GOOD, VOCABULARY, mutated_lines

from mpi_match.commands.scan_ahead import Ahead, ahead_of_cpu, scanned_ahead
from mpi_match.events.batch import EventBatch
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.json.event_scanner import EventScanner, ScannedEvents, SharedScanner
from mpi_match.ingest.rows.judge import Reject
from mpi_match.storage import FileChanged
from mpi_match.storage.range_read import ordinary_memory


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three files, the second one empty."""
    kinds = (GOOD, BLANK, BAD, JUDGED_GOOD)
    contents: tuple[list[bytes], ...] = ([line for kind in kinds for line in kind] * 5, [], mutated_lines(2000, seed=3))
    paths = [tmp_path / f"{i}.jsonl" for i in range(3)]
    for path, lines in zip(paths, contents, strict=True):
        path.write_bytes(b"\n".join(lines))
    return paths


def joined(found: list[ScannedEvents]) -> tuple[EventBatch, list[bytes]]:
    ids = [id_ for each in found for id_ in each.ids or ()]
    return EventBatch.concat([each.batch for each in found]), ids


@pytest.mark.parametrize(("threads", "range_bytes"), [(1, 700), (3, 700), (4, 5000), (2, 2**22)])
def test_they_are_those_of_one_pass(files: list[Path], threads: int, range_bytes: int) -> None:
    scanner = EventScanner(VOCABULARY, FORM)
    expected_rejects: list[Reject] = []
    expected, ids = joined([scanner.scan(block, expected_rejects) for block in read_blocks(files)])
    rejects: list[Reject] = []
    how = Ahead(threads, range_bytes)
    with scanned_ahead(files, SharedScanner(scanner), ordinary_memory, rejects, None, how) as found:
        batch, found_ids = joined(list(found))
    assert rejects == expected_rejects
    assert found_ids == ids
    for mine, theirs in zip(batch.columns, expected.columns, strict=True):
        assert np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f")
    assert batch.rejected is not None
    assert expected.rejected is not None
    assert np.array_equal(batch.rejected, expected.rejected)


def test_a_file_that_shrinks_is_an_error(files: list[Path]) -> None:
    scanner = SharedScanner(EventScanner(VOCABULARY, FORM))
    with scanned_ahead(files, scanner, ordinary_memory, [], None, Ahead(2, 700)) as found:
        os.truncate(files[2], 100)
        with pytest.raises(FileChanged, match="was truncated while it was read"):
            list(found)


def test_threads_that_match_are_not_more_than_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [ahead_of_cpu(threads).threads for threads in (None, 8, 100, 7, 4, 2, 1)] == [8, 8, 8, 3, 2, 1, 1]
