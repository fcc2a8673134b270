"""Integers that are doubles, found by compiled code as by Python's integers."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match import api
from mpi_match.ingest.columns import exact_integers
from mpi_match.ingest.columns.exact_integers import are_exact

MOST = 2**53


def near(*ends: int) -> st.SearchStrategy[int]:
    """Integers at these and beside them."""
    return st.sampled_from([end + by for end in ends for by in (-1, 0, 1)])


OF_TYPE = {
    "i8": st.integers(-9, 9) | near(MOST, -MOST) | st.sampled_from([-(2**63), 2**63 - 1]),
    "u8": st.integers(0, 9) | near(MOST, 2**63) | st.sampled_from([2**64 - 1, 2**64 - MOST]),
}


@pytest.mark.parametrize("few", [0, 2**14])
@pytest.mark.parametrize("type_", OF_TYPE)
@given(data=st.data())
def test_those_beyond_two_to_the_53_are_found(type_: str, few: int, data: st.DataObject) -> None:
    integers = data.draw(st.lists(OF_TYPE[type_], max_size=12))
    with patch.object(exact_integers, "_FEW", few):
        assert are_exact(np.array(integers, type_)) == all(-MOST <= each <= MOST for each in integers)


@pytest.mark.parametrize("at", [0, 40_000, 99_999])
@pytest.mark.parametrize("beyond", [MOST + 1, -MOST - 1])
def test_one_in_a_long_column_is_found_by_all_threads(at: int, beyond: int) -> None:
    integers = np.arange(100_000)
    assert are_exact(integers)
    assert are_exact(np.repeat(integers, 2)[::2])
    integers[at] = beyond
    assert not are_exact(integers)
    assert not are_exact(np.repeat(integers, 2)[::2])


@pytest.mark.parametrize("type_", ["<i8", ">i8", "<u8", ">u8", ">i4", "<f8", ">f8"])
def test_arrays_of_either_order_of_bytes_are_the_same_events(type_: str) -> None:
    table = api.make_table([{"interface": i, "constraints": [["a", "=", i]]} for i in (0, 7, 256)])
    found = api.make_batch(table, {"a": np.array([0, 7, 256], type_)})
    expected = api.make_batch(table, [{"a": 0}, {"a": 7}, {"a": 256}])
    assert np.array_equal(found.attributes, expected.attributes)
