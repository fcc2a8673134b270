"""Boxes around circles, which hold every location that a circle holds, whatever rounding does."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array

WIDER, LEAST = 1 + 2.0**-40, 1e-15
"""A box exceeds its circle by this factor and at least this much, so that rounding excludes no location inside the circle,
and the library of R*-trees does not turn the box into a point, as it does at a size of 2e-16."""
LARGEST = 1e150
"""Radius of the largest circle that has a box of its own."""


def fits(circles: Array) -> Array:
    """bool[n]: True for circles f64[n, 3] that have a box of their own."""
    return np.asarray((np.abs(circles) < LARGEST).all(axis=1))


def boxes(circles: Array) -> Array:
    """Boxes f64[n, 4] around circles that fit: least x and y, greatest x and y."""
    centre, radius = circles[:, :2], circles[:, 2:] * WIDER + LEAST
    return np.hstack([np.nextafter(centre - radius, -np.inf), np.nextafter(centre + radius, np.inf)])


def boxes_of_all(circles: Array) -> Array:
    """Boxes of all circles; that of one that does not fit is the plane."""
    found = np.tile([-np.inf, -np.inf, np.inf, np.inf], (len(circles), 1))
    found[fits(circles)] = boxes(circles[fits(circles)])
    return found
