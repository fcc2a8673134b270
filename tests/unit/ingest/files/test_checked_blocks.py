"""Blocks of a file with checksums: several threads read a long range, and none passes a block that has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi_match.compute import parallel
from mpi_match.ingest.files import checked_blocks
from mpi_match.ingest.files.checked_blocks import Blocks
from mpi_match.storage import FileChanged

SIZE, CONTENT = 7, bytes(range(100))


@pytest.fixture(params=[1, 2, 5])
def blocks(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Blocks:
    """A file of 15 blocks, the last of two bytes, that is read by as many threads as `param`."""
    monkeypatch.setattr(checked_blocks, "_BLOCK_BYTES", SIZE)
    monkeypatch.setattr(parallel, "stretches_of", lambda n, least: max(min(request.param, n), 1))
    (tmp_path / "file").write_bytes(CONTENT)
    return Blocks.of(tmp_path / "file")


def test_a_range_is_read_whole(blocks: Blocks) -> None:
    path = Path(blocks.name)
    for start, stop in ((0, 15), (3, 4), (2, 9), (14, 15), (5, 5)):
        assert blocks.read(path, start, stop).tobytes() == CONTENT[start * SIZE : stop * SIZE]


def test_a_changed_byte_is_found_in_every_block(blocks: Blocks) -> None:
    path = Path(blocks.name)
    for at in range(len(CONTENT)):
        path.write_bytes(CONTENT[:at] + b"\xff" + CONTENT[at + 1 :])
        with pytest.raises(FileChanged, match=f"CRC-32 of its bytes from {at // SIZE * SIZE} on"):
            blocks.read(path, 0, 15)
        before = at // SIZE
        assert blocks.read(path, 0, before).tobytes() == CONTENT[: before * SIZE], "the blocks before are good"


def test_a_file_that_ends_before_is_found(blocks: Blocks) -> None:
    path = Path(blocks.name)
    for n_bytes in (99, 98, 50, 0):
        path.write_bytes(CONTENT[:n_bytes])
        with pytest.raises(FileChanged, match=f"it ends at byte {n_bytes}"):
            blocks.read(path, 0, 15)


def test_a_short_read_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.get_num_threads", lambda: 16)
    size = 2**18
    taken = [parallel.stretches_of(n, checked_blocks.THREAD_BYTES // size) for n in (1, 31, 32, 128, 1024)]
    assert taken == [1, 1, 2, 5, 16]
