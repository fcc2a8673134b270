"""Lines cut from bytes as they come, in pieces of any size: the lines are those of the whole, and the work is linear."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.ingest.files.blocks import LineBlock, LineCutter
from mpi_match.ingest.rows.judge import MAX_LINE_BYTES

PIECES = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\n\n", b"defghi", b" \n"]), max_size=40)


def cut(pieces: list[bytes], most: int | None) -> list[LineBlock]:
    cutter = LineCutter("f", most)
    return [block for piece in pieces for block in cutter.add(piece)] + list(cutter.end())


def lines_of(blocks: list[LineBlock]) -> list[tuple[int, bytes, bool]]:
    """Number, text and overlong of every line."""
    found = []
    for block in blocks:
        texts = [block.data.tobytes()] if block.overlong else block.data.tobytes().split(b"\n")[:-1]
        found += [(block.first_line + i, text, block.overlong) for i, text in enumerate(texts)]
    return found


@given(PIECES, st.integers(6, 12))
def test_pieces_of_any_size(pieces: list[bytes], most: int) -> None:
    lines = b"".join(pieces).split(b"\n")
    expected = [(i, line[: most + 1], len(line) > most) for i, line in enumerate(lines, 1)]
    if not lines[-1]:
        expected.pop()
    assert lines_of(cut(pieces, most)) == expected


@given(PIECES, st.integers(6, 12))
def test_pieces_in_place(pieces: list[bytes], most: int) -> None:
    """Bytes that are read into the cutter's memory are cut as those that are given to it."""
    cutter, found = LineCutter("f", most), []
    for piece in pieces:
        memory = cutter.room(len(piece) + 3)
        held = cutter.held
        memory[held : held + len(piece)] = list(piece)
        found += list(cutter.add_in_place(memory, len(piece), piece.count(b"\n")))
    assert lines_of([*found, *cutter.end()]) == lines_of(cut(pieces, most))


@pytest.mark.parametrize("n_begun", [MAX_LINE_BYTES - 2_000, MAX_LINE_BYTES + 2_000], ids=["unfinished", "overlong"])
def test_a_byte_behind_a_long_line_costs_one_byte(n_begun: int) -> None:
    """Not a copy of the line, which was 6 ms: 18 s for these."""
    cutter, block = LineCutter("f"), b"x" * 2**22
    for first in range(0, n_begun, len(block)):
        list(cutter.add(block[: n_begun - first]))
    began = time.process_time()
    for _ in range(1_500):
        assert not list(cutter.add(b"y"))
    assert time.process_time() - began < 1
    assert cutter.held <= MAX_LINE_BYTES
    (last,) = cutter.add(b'\n{"a": 1}\n') if n_begun > MAX_LINE_BYTES else list(cutter.add(b"\n"))
    assert last.first_line == (2 if n_begun > MAX_LINE_BYTES else 1)
