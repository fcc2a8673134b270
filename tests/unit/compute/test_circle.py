"""Which places a circle holds, at every scale that doubles have."""

from __future__ import annotations

import math
import operator
import sys
from fractions import Fraction

import numba
import numpy as np
import pytest
from compiled_alone import compiled_alone
from hypothesis import example, given
from hypothesis import strategies as st

from mpi_match.cluster.distribution.cost_model import _shares_of_plane
from mpi_match.compute.circle import in_circle_of, in_circles
from mpi_match.engines.keyed.grid.geometry import EVERYWHERE, cell_of, scale_of, span_of
from mpi_match.model import LARGE_RADIUS, SMALL_RADIUS, Area, inside

GREATEST = sys.float_info.max
exponents = st.integers(-1074, 1023) | st.sampled_from((-600, -401, -400, -399, 0, 399, 400, 401, 600))
lengths = st.builds(lambda m, e, sign: sign * math.ldexp(m, e), st.floats(1, 1.999), exponents, st.sampled_from((-1, 1)))
coordinates = st.just(0.0) | lengths | st.floats(allow_nan=False, allow_infinity=False)
radii = coordinates.map(abs)

compiled = in_circle_of(numba.njit, operator.add, operator.mul)
cell_from, scale_from, span_from = map(compiled_alone, (cell_of, scale_of, span_of))


@given(x=coordinates, y=coordinates, circle=st.builds(Area, coordinates, coordinates, radii))
@example(x=1e308, y=0.0, circle=Area(-1e308, 0.0, 1e308))
@example(x=2e-200, y=0.0, circle=Area(0.0, 0.0, 1e-200))
@example(x=5e-324, y=0.0, circle=Area(0.0, 0.0, 0.0))
@example(x=GREATEST, y=0.0, circle=Area(0.0, 0.0, GREATEST))
def test_the_circle_is_that_of_exact_arithmetic_but_for_rounding(x: float, y: float, circle: Area) -> None:
    found = inside((x, y), circle)
    dx, dy, r = Fraction(x) - Fraction(circle.x), Fraction(y) - Fraction(circle.y), Fraction(circle.r)
    apart, square = dx * dx + dy * dy, r * r
    if abs(apart - square) > square * Fraction(2) ** -48:
        assert found == (apart <= square)
    assert compiled(x - circle.x, y - circle.y, circle.r) == found
    assert in_circles(x, y, np.array([circle])).tolist() == [found]


@given(
    x=st.floats(-1e50, 1e50),
    y=st.floats(-1e50, 1e50),
    circle=st.builds(Area, st.floats(-1e50, 1e50), st.floats(-1e50, 1e50), st.floats(1e-100, 1e60)),
)
def test_ordinary_answers_are_those_of_the_plain_formula(x: float, y: float, circle: Area) -> None:
    assert SMALL_RADIUS < circle.r < LARGE_RADIUS
    dx, dy = x - circle.x, y - circle.y
    assert inside((x, y), circle) == (dx * dx + dy * dy <= circle.r * circle.r)


@given(point=st.tuples(coordinates, coordinates), circle=st.builds(Area, coordinates, coordinates, radii))
@example(point=(0.0, 0.0), circle=Area(0.0, 0.0, 5e-324))
@example(point=(GREATEST, -GREATEST), circle=Area(GREATEST, -GREATEST, GREATEST))
def test_a_place_in_a_circle_is_in_one_of_its_cells(point: tuple[float, float], circle: Area) -> None:
    """Whatever overflows on the way; and there are never many cells."""
    level, _, column, row, columns, rows = span_from(*circle)
    assert 0 <= level <= EVERYWHERE
    assert 1 <= columns <= 3
    assert 1 <= rows <= 3
    for place in (point, (circle.x, circle.y), (circle.x + circle.r, circle.y), (circle.x, circle.y - circle.r)):
        if level < EVERYWHERE and inside(place, circle):
            scale = scale_from(level)
            assert column <= cell_from(place[0], scale) < column + columns
            assert row <= cell_from(place[1], scale) < row + rows


@pytest.mark.parametrize("scale", [2.0**-1060, 1.0, 2.0**1010])
def test_work_is_shared_out_by_areas_of_any_size(scale: float) -> None:
    circles = np.array([[0.0, 0.0, 1.0], [100.0, 0.0, 4.0], [-100.0, 50.0, 1.0]])
    expected = _shares_of_plane(np.ones(3, bool), circles)
    assert expected.max() < 1
    found = _shares_of_plane(np.ones(3, bool), circles * scale)
    assert found.tolist() == expected.tolist()
