"""`compute/sort.py`: part of an array is sorted, the rest stays; by insertion, as a heap, or by marks, which are 0 again."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from mpi_match.compute.sort import MOST_INSERTED, WORDS_PER_ID, sort_ids

N_IDS = 2**16
WORDS = N_IDS // 64


@numba.njit
def _sorted(ids: Any, first: Any, last: Any, marks: Any) -> None:
    sort_ids(ids, first, last, marks)


@pytest.mark.parametrize(
    "n", [0, 1, 2, MOST_INSERTED, MOST_INSERTED + 1, WORDS // WORDS_PER_ID - 1, WORDS // WORDS_PER_ID, 5000]
)
@pytest.mark.parametrize("order", ["any", "ascending", "descending"])
def test_part_of_an_array_is_sorted(n: int, order: str) -> None:
    ids = np.random.default_rng(n).permutation(N_IDS)[: n + 7].astype(np.uint32)
    if order != "any":
        ids[3 : 3 + n] = np.sort(ids[3 : 3 + n])[:: 1 if order == "ascending" else -1]
    expected, marks = ids.copy(), np.zeros(WORDS, np.uint64)
    expected[3 : 3 + n] = np.sort(ids[3 : 3 + n])
    _sorted(ids, 3, 3 + n, marks)
    assert np.array_equal(ids, expected)
    assert not marks.any()
