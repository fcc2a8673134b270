"""Arrays that compiled code finds by their addresses are those arrays, and none of another type is taken for one."""

from __future__ import annotations

import gc
from typing import Any

import numba
import numpy as np
import pytest

from mpi_match.arrays.csr import Array
from mpi_match.compute.array_pointers import DeclaredArrays, PointerTable, line, rows, sheets, unowned


@numba.njit
def _add_ten(table: Any, given: Any) -> Any:
    """Add 10 to the last item of each bound array and of `given`; returns how many items the bound ones have."""
    one, two, three = line(table, 0, np.uint32), rows(table, 1, np.float64), sheets(table, 2, np.int64)
    one[len(one) - 1] += 10
    two[two.shape[0] - 1, two.shape[1] - 1] += 10
    three[three.shape[0] - 1, three.shape[1] - 1, three.shape[2] - 1] += 10
    alone = unowned(given)
    alone[len(alone) - 1] += 10
    return one.size, two.size, three.size, alone.size


def test_bound_arrays_are_read_and_written_where_they_are() -> None:
    one, two, three = np.arange(5, dtype=np.uint32), np.zeros((2, 3)), np.zeros((2, 3, 4), np.int64)
    given = np.arange(7, dtype=np.uint64)
    bound = PointerTable({2: (three, np.int64), 0: (one, np.uint32), 1: (two, np.float64)})
    assert _add_ten(bound.table, given) == (5, 6, 24, 7)
    assert one.tolist() == [0, 1, 2, 3, 14]
    assert two.tolist() == [[0, 0, 0], [0, 0, 10]]
    assert (int(three.sum()), int(three[1, 2, 3])) == (10, 10)
    assert given.tolist() == [0, 1, 2, 3, 4, 5, 16]


DECLARED = DeclaredArrays()
_sizes, _words = DECLARED.declare(np.int64, 2), DECLARED.declare()


@numba.njit
def _of_declared(table: Any, like: Any) -> Any:
    """The last item of each declared array; `like` has the type of the one whose type varies."""
    sizes, words = _sizes(table), _words(table, like.dtype)
    return sizes[sizes.shape[0] - 1, sizes.shape[1] - 1], words[len(words) - 1]


@pytest.mark.parametrize("packed", [np.uint32, np.uint64])
def test_declared_arrays_are_bound_in_any_order_and_have_their_types(packed: type) -> None:
    sizes: Array = np.arange(6).reshape(2, 3)
    words: Array = np.array([7, np.iinfo(packed).max], packed)
    bound = PointerTable(DECLARED.entries({_words: words, _sizes: sizes}, packed))
    assert _of_declared(bound.table, words) == (5, np.iinfo(packed).max)
    with pytest.raises(TypeError, match="array 1 is int16"):
        PointerTable(DECLARED.entries({_words: words.astype(np.int16), _sizes: sizes}, packed))
    with pytest.raises(TypeError, match="array 0 is int32"):
        PointerTable(DECLARED.entries({_words: words, _sizes: sizes.astype(np.int32)}, packed))


def test_the_table_keeps_its_arrays_alive() -> None:
    class Told(np.ndarray):
        gone = 0

        def __del__(self) -> None:
            Told.gone += 1

    bound = PointerTable({0: (np.zeros(3, np.uint8).view(Told), np.uint8)})
    gc.collect()
    assert (Told.gone, len(bound.table)) == (0, 1)
    del bound
    gc.collect()
    assert Told.gone == 1


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros(3, np.uint64), r"uint64\[3\]"),
        (np.zeros(6, np.uint32)[::2], r"uint32\[3\]"),
        (np.zeros((2, 3), np.uint32).T, r"uint32\[3, 2\]"),
        (np.zeros((1, 1, 1, 1), np.uint32), r"uint32\[1, 1, 1, 1\]"),
    ],
)
def test_arrays_of_another_type_or_layout_are_refused(array: Array, found: str) -> None:
    with pytest.raises(TypeError, match=rf"array 0 is {found}, expected contiguous uint32"):
        PointerTable({0: (array, np.uint32)})
