"""Numbers as arrays (`arrays.exact`): they are ordered, searched and joined as Python orders ints and floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_match.arrays.exact import (
    are_split,
    exact,
    nearest_doubles,
    of_integers,
    of_values,
    residues,
    values_of,
)
from mpi_match.model import GREATEST_INTEGER, LEAST_INTEGER, joined, split, value_of

POWERS = [sign * 2**k for k in range(53, 65) for sign in (1, -1)]
INTEGERS = (
    st.builds(int.__add__, st.sampled_from(POWERS), st.integers(-2050, 2050)) | st.integers(LEAST_INTEGER, GREATEST_INTEGER)
).filter(lambda n: LEAST_INTEGER <= n <= GREATEST_INTEGER)
NUMBERS = INTEGERS | INTEGERS.map(float) | st.floats(allow_nan=False)
CANONICAL = NUMBERS.map(lambda number: value_of(number)[1])


@given(INTEGERS)
def test_a_number_is_a_double_and_a_residue(n: int) -> None:
    nearest, residue = split(n)
    assert nearest == float(n)
    assert int(nearest) + residue == n
    assert -1024 <= residue <= 1024
    assert joined(nearest, residue) == joined(nearest, residue & 0xFFFF) == value_of(n)[1] == n
    assert type(value_of(n)[1]) is (int if residue else float)


@given(st.lists(CANONICAL, max_size=20))
def test_values_come_back_and_are_ordered_as_python_orders_them(numbers: list[float]) -> None:
    array = of_values(numbers)
    assert array.dtype == (np.complex128 if int in map(type, numbers) else np.float64)
    assert values_of(array) == numbers
    assert list(map(type, values_of(array))) == list(map(type, numbers))
    assert values_of(np.sort(array)) == sorted(numbers)
    assert values_of(np.unique(array)) == sorted(set(numbers))
    ordered = np.sort(array)
    places = [sum(other < number for other in numbers) for number in numbers]
    assert np.searchsorted(ordered, array).tolist() == places
    again = exact(nearest_doubles(array), residues(array))
    assert again.tobytes() == array.tobytes()
    assert are_split(nearest_doubles(array), residues(array)).all()


@pytest.mark.parametrize("type_", [np.int64, np.uint64])
@given(numbers=st.lists(INTEGERS, max_size=20))
def test_arrays_of_integers_are_exact(type_: type, numbers: list[int]) -> None:
    info = np.iinfo(type_)
    fitting = [n for n in numbers if info.min <= n <= info.max] + [int(info.min), int(info.max)]
    assert values_of(of_integers(np.array(fitting, type_))) == fitting


@given(CANONICAL | st.just(math.nan), st.integers(-1030, 1030))
def test_pairs_that_are_no_number_are_told(nearest: float, residue: int) -> None:
    double = split(nearest)[0] if nearest == nearest else nearest
    whole = math.isfinite(double) and double == int(double)
    n = int(double) + residue if whole else 0
    is_one = double == double and (
        residue == 0 or (whole and LEAST_INTEGER <= n <= GREATEST_INTEGER and split(n) == (double, residue))
    )
    assert are_split(np.array([double]), np.array([residue], np.int16)).tolist() == [is_one]
