"""Rows of followed files: pieces of blocks have the rows and lines that they say, wherever a block is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.cluster import ClusterError
from mpi_match.cluster.follow.arrivals import EVENTS_DIRECTORY, DirectoryArrivals
from mpi_match.cluster.follow.directory import FollowedDirectory
from mpi_match.cluster.follow.rows import BatchBuilder, RowsOfBlock, RowsOfFiles
from mpi_match.ingest.files.blocks import read_blocks, rows_of_block
from mpi_match.ingest.files.line_pass import compile_pass
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES, PLAIN
from mpi_match.storage import FileChanged

LINES = st.sampled_from(
    [
        b"",
        b" ",
        b"\t\r",
        b"\x0b\x0c",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf ",
        b"\xef\xbb",
        b"\xef",
        b"a",
        b" a ",
        b"\xef\xbb\xbfa",
    ]
    + [bytes([65 + n % 26]) * n for n in (62, 63, 64, 65, 127, 128, 129, 300)]
    + [b" " * 64, b" " * 130 + b"x"]
)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_pass()


@given(st.lists(LINES, min_size=1, max_size=12), st.lists(st.integers(1, 5), min_size=1))
def test_pieces_have_the_rows_of_their_block_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], sizes: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    (block,) = read_blocks([path])
    expected = [line for _, line in rows_of_block(block)]
    rows, found, next_line, data = RowsOfBlock(block), list[bytes](), 1, b""
    while not rows.is_empty:
        size = sizes[len(data) % len(sizes)]
        piece = rows.take(size)
        assert piece.block.first_line == next_line
        assert piece.n_lines == piece.block.data.tobytes().count(b"\n")
        of_piece = [line for _, line in rows_of_block(piece.block)]
        assert piece.n_rows == len(of_piece) <= size
        assert piece.n_rows == size or rows.is_empty
        found += of_piece
        next_line += piece.n_lines
        data += piece.block.data.tobytes()
    assert (found, data) == (expected, path.read_bytes())


def test_with_places_the_lines_stay_in_their_files(tmp_path: Path) -> None:
    """Also a batch of pieces of several files, and a part of a block; the wire form has no line."""
    builder, lines = BatchBuilder(), [b'{"a": %d}' % n for n in range(40)]
    for name, first, n_rows in (("a.jsonl", 0, 7), ("b.jsonl", 20, 20)):
        (tmp_path / name).write_bytes(b"\n".join(lines[first : first + 20]) + b"\n")
        (block,) = read_blocks([tmp_path / name])
        rows = RowsOfBlock(block, 0)
        rows.take(3)
        builder.add(rows.take(n_rows))
    batch = builder.take()
    wire = batch.to_wire()
    assert len(wire) == batch.wire_bytes
    assert b'"a":' not in wire.tobytes()
    found = RowsOfFiles.from_wire(wire)
    assert found.files == tuple(str(tmp_path / name) for name in ("a.jsonl", "b.jsonl"))
    assert found.rows.data.tobytes() == b"\n".join([*lines[3:10], *lines[23:40], b""]) == batch.rows.data.tobytes()
    assert found.rows.pieces.tolist() == batch.rows.pieces.tolist()
    assert found.rows.n_events == 24

    (tmp_path / "b.jsonl").write_bytes((tmp_path / "b.jsonl").read_bytes().replace(b"29", b"92"))
    with pytest.raises(FileChanged, match=r"b\.jsonl: has other bytes than the master read; rename files"):
        RowsOfFiles.from_wire(wire)
    (tmp_path / "b.jsonl").unlink()
    with pytest.raises(ClusterError, match=r"b\.jsonl: no such file; with --feed file every host needs the same files"):
        RowsOfFiles.from_wire(wire)


def test_lines_without_a_place_are_sent(tmp_path: Path) -> None:
    """One piece without a place has all lines of its batch sent."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n[]\n")
    (block,) = read_blocks([path])
    builder = BatchBuilder()
    builder.add(RowsOfBlock(block, 0).take(1))
    builder.add(RowsOfBlock(block).take(2))
    wire = builder.take().to_wire()
    path.unlink()
    assert RowsOfFiles.from_wire(wire).rows.data.tobytes() == b"{}\n{}\n[]\n"


@pytest.mark.parametrize(
    ("content", "placed"), [(b"{}\n{}\n", True), (b"{}\n{}", False), (b"[" + b" " * MAX_LINE_BYTES + b"]\n{}\n", False)]
)
def test_the_places_of_a_directory_are_those_of_whole_lines(tmp_path: Path, content: bytes, placed: bool) -> None:
    """Not of an overlong line and those behind it, nor of a last line without a line feed."""
    for by_place in (True, False):
        directory = FollowedDirectory(tmp_path, EVENTS_DIRECTORY)
        (tmp_path / "a.jsonl").write_bytes(content)
        with DirectoryArrivals(PLAIN, None, by_place, [directory], 10, 0.0, 0, None) as arrivals:
            n_events = 0
            while n_events < 2:
                batch = arrivals.take(60.0)
                assert batch is not None
                assert bool(batch.rows.places) == (placed and by_place)
                n_events += batch.n_events
            arrivals.stop()
