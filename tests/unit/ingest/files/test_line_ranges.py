"""Ranges of a file, read in any order, have the blocks that reading it from the beginning gives."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mpi_match.ingest.files import blocks, ranges
from mpi_match.ingest.files.blocks import LineBlock, read_blocks
from mpi_match.ingest.files.ranges import ranges_of
from mpi_match.ingest.rows import judge
from mpi_match.storage import FileChanged
from mpi_match.storage.range_read import ordinary_memory


@pytest.fixture(autouse=True)
def _short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MAX_LINE_BYTES", 40)
    monkeypatch.setattr(blocks, "MAX_LINE_BYTES", 40)
    monkeypatch.setattr(blocks, "READ_BYTES", 30)
    monkeypatch.setattr(ranges, "_TAIL_BYTES", 5)


def lines_of(blocks: list[LineBlock]) -> list[tuple[int, bytes, bool]]:
    """Number and text of each line, and whether it is overlong."""
    found = []
    for block in blocks:
        text = block.data.tobytes()
        for k, line in enumerate([text] if block.overlong else text.splitlines(keepends=True)):
            found.append((block.first_line + k, line, block.overlong))
    return found


def of_ranges(path: Path, range_bytes: int) -> list[tuple[int, bytes, bool]]:
    found, first_line = [], 1
    for each in ranges_of(path, range_bytes):
        blocks, n_lines = each.read(ordinary_memory)
        found += lines_of([block._replace(first_line=first_line + block.first_line) for block in blocks])
        first_line += n_lines
    return found


@pytest.mark.parametrize("range_bytes", [40, 33, 90])
@pytest.mark.parametrize("ends", [b"", b"\n"])
def test_they_have_all_lines_once(ends: bytes, range_bytes: int, tmp_path: Path) -> None:
    generator, path = random.Random(5), tmp_path / "lines"
    for _ in range(300):
        lengths = [generator.choice((0, 1, 3, 20, 34, 38, 39, 40, 41, 60, 130)) for _ in range(generator.randrange(12))]
        path.write_bytes(b"\n".join(bytes(generator.choices(b"abc ", k=n)) for n in lengths) + ends)
        assert of_ranges(path, range_bytes) == lines_of(list(read_blocks([path])))


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"{}\n" * 100)
    *_, last = ranges_of(path, 40)
    path.write_bytes(b"{}\n" * 70)
    with pytest.raises(FileChanged, match="truncated"):
        last.read(ordinary_memory)


def test_lines_are_read_into_the_memory_that_is_given(tmp_path: Path) -> None:
    path, memory = tmp_path / "lines", np.zeros(100, np.uint8)
    path.write_bytes(b"ab\ncd")
    (found,) = next(ranges_of(path, 40)).read(lambda n: memory[:n]).blocks
    assert np.shares_memory(found.data, memory)
    assert found.data.tobytes() == b"ab\ncd\n"
