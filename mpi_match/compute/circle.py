"""Tests if a location lies in a circle: `model.inside` for compiled code and for arrays.

The scalar function is written once, in `in_circle_of`, and compiled for the CPU and for GPUs.  The answers must be the same,
but a compiler that fuses a multiplication and an addition, as those for GPUs do, rounds once where the model rounds twice.
So the caller passes the functions that add and multiply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.model import LARGE_RADIUS, SMALL_RADIUS, scale_of


def in_circle_of(compiled: Callable[..., Any], add: Callable[..., Any], multiply: Callable[..., Any]) -> Callable:
    """Make the function `in_circle(dx, dy, r)`, compiled with the decorator `compiled`.

    It is True if a location at distance (dx, dy) from the centre lies in the circle of radius r.  NaN lies in none.  `add`
    and `multiply` round once each.
    """
    scale_of_ = compiled(scale_of)

    @compiled
    def in_circle(dx: float, dy: float, r: float) -> bool:
        if SMALL_RADIUS <= r <= LARGE_RADIUS:  # the scale is nearly always 1, which is worth a branch on a GPU
            return add(multiply(dx, dx), multiply(dy, dy)) <= multiply(r, r)
        scale = scale_of_(r)
        x, y, radius = multiply(dx, scale), multiply(dy, scale), multiply(r, scale)
        return add(multiply(x, x), multiply(y, y)) <= multiply(radius, radius)

    return in_circle


def in_circles(x: float, y: float, circles: Array) -> Array:
    """bool[n]: marks the circles f64[n, 3] that contain a location.  NaN lies in none."""
    r = circles[:, 2]
    scale = radius_scales(r)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        dx, dy = (x - circles[:, 0]) * scale, (y - circles[:, 1]) * scale
        held: Array = dx * dx + dy * dy <= (r * scale) ** 2
    return held


def radius_scales(radius: Array) -> Array:
    """f64[n]: `model.scale_of` of each radius."""
    return np.select([radius < SMALL_RADIUS, radius > LARGE_RADIUS], [scale_of(0.0), scale_of(np.inf)], 1.0)
