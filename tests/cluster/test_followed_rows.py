"""Rows of followed files: pieces of blocks have the rows and lines that they say, wherever a block is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.cluster.follow.rows import RowsOfBlock
from mpi_match.ingest.files.blocks import read_blocks, rows_of_block
from mpi_match.ingest.files.line_pass import compile_pass

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
