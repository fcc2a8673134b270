"""Byte strings in flat arrays: every string survives, and order is that of the bytes."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.arrays import strings
from mpi_match.arrays.strings import Strings, sort_distinct

byte = st.sampled_from(b"\0\1a\xff")
items = st.lists(st.lists(byte, max_size=18).map(bytes) | st.sampled_from([b"", b"\0" * 8, b"a" * 8, b"a" * 16]), max_size=9)


@given(items)
def test_strings_come_back(found: list[bytes]) -> None:
    packed = Strings.of(found)
    assert list(packed) == found
    assert [packed[i] for i in range(len(packed))] == found
    assert list(packed.take(np.arange(len(found))[::-1])) == found[::-1]
    assert packed.slice(0, len(found)) == found
    assert list(Strings.concat([packed, Strings.of(()), packed])) == found + found


@given(items, st.booleans())
def test_neighbours_compare_by_bytes(found: list[bytes], in_order: bool) -> None:
    found = sorted(found) if in_order else found
    below = [a < b for a, b in pairwise(found)]
    with pytest.MonkeyPatch.context() as patch:
        for block in (1, 2, 2**15):
            patch.setattr(strings, "_BLOCK", block)
            patch.setattr(strings, "_WORDS", block % 3)
            assert Strings.of(found).is_below_next().tolist() == below
    assert Strings.of(found).is_sorted() == all(below)


@given(items, st.sampled_from([0, 256]))
def test_sorting_finds_every_place(found: list[bytes], few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "_FEW", few)
        packed, place = sort_distinct(Strings.of(found))
        ordered = list(packed)
        assert ordered == sorted(set(found))
        assert [ordered[i] for i in place] == found
        backwards = Strings.of([b"first", *found]).between(1, len(found) + 1).take(np.arange(len(found))[::-1])
        assert list(backwards) == found[::-1]
    assert Strings.of(found).repeats().tolist() == [i > 0 and found[i - 1] == found[i] for i in range(len(found))]
    with pytest.MonkeyPatch.context() as patch:
        for words in (1, 2, 8):
            patch.setattr(strings, "_WORDS", words)
            assert Strings.of(found).order().tolist() == sorted(range(len(found)), key=found.__getitem__)


def test_long_strings_with_a_common_beginning_are_compared_in_linear_time() -> None:
    """Two labels of 10^6 bytes took half a minute."""
    common = b"a" * 10**6
    began = time.process_time()
    assert Strings.of([common, common + b"b", common + b"c"]).is_below_next().tolist() == [True, True]
    assert Strings.of([common + b"c", common + b"b", common]).is_below_next().tolist() == [False, False]
    assert time.process_time() - began < 1


def test_a_string_beyond_the_last_is_an_error() -> None:
    with pytest.raises(IndexError, match="string 2 of 2"):
        Strings.of([b"a", b"b"])[2]
