"""Texts in other texts: the same by either way, and no slower the more lengths there are."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match import make_batch, make_table
from mpi_match.table import pieces as module
from mpi_match.table.pieces import Pieces

few_letters = st.text("ab", max_size=12).map(str.encode)


@pytest.mark.parametrize("piece_ns", [0.0, 100.0, 1e9])
@given(texts=st.sets(few_letters, max_size=12), text=few_letters)
def test_they_are_what_python_finds(piece_ns: float, texts: set[bytes], text: bytes) -> None:
    before, module.PIECE_NS = module.PIECE_NS, piece_ns
    try:
        pieces, numbered = Pieces(), sorted(texts)
        for number, each in enumerate(numbered):
            pieces.add(each, number)
        assert sorted(pieces.within(text)) == [i for i, each in enumerate(numbered) if each in text]
        assert sorted(pieces.starting(text)) == [i for i, each in enumerate(numbered) if text.startswith(each)]
        assert sorted(pieces.ending(text)) == [i for i, each in enumerate(numbered) if text.endswith(each)]
    finally:
        module.PIECE_NS = before


@pytest.mark.untraced
@pytest.mark.parametrize("op", ["contains", "any contains"])
def test_nested_contains_on_a_long_text_take_the_time_of_others(op: str) -> None:
    """A distinct occurrence counts once: 4,000 on a text of 8 KB took 12 s of a core, by now some 0.1 s."""
    text = "x" * 2000 + "ab" * 3000
    nested = [text[-n:] for n in range(1, 4001)]

    def fastest(operands: list[str], n_found: int) -> float:
        table = make_table([{"interface": str(n), "constraints": [["t", op, each]]} for n, each in enumerate(operands)])
        times = []
        for _ in range(4):
            start = time.process_time()
            batch = make_batch(table, [{"t": text}])
            times.append(time.process_time() - start)
            assert len(batch.attributes) == n_found + (op == "contains")
        return min(times)

    assert fastest(nested, 4000) < 4 * fastest([f"{each}c" for each in nested], 0)
