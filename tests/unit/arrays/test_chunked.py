"""Chunked containers behave like Python's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.arrays import chunked
from mpi_match.arrays.chunked import ChunkedDict, ChunkedList


@given(
    n=st.integers(0, 9),
    steps=st.lists(st.tuples(st.sampled_from(("have", "set")), st.integers(0, 30), st.integers(0, 5) | st.none())),
)
def test_a_chunked_list_is_a_list_that_grows(n: int, steps: list[tuple[str, int, int | None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "CHUNK_BITS", 2)
        items, plain = ChunkedList[int](n), list[int | None]([None] * n)
        for what, i, item in steps:
            if what == "have":
                items.have(i)
                plain += [None] * (i - len(plain))
            elif i < len(plain):
                items[i] = plain[i] = item
            assert len(items) == len(plain)
            assert list(items) == plain == [items[i] for i in range(len(plain))]


def test_a_chunked_dict_is_a_dict() -> None:
    items, plain = ChunkedDict[int](), dict[str, int]()
    for i in range(5000):
        items.of(str(i))[str(i)] = plain[str(i)] = i
    for i in range(0, 5000, 3):
        del items.of(str(i))[str(i)]
        del plain[str(i)]
    assert {i: items.of(i)[i] for i in map(str, range(5000)) if i in items.of(i)} == plain
