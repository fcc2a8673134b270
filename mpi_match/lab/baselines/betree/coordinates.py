"""Areas as constraints on two more names, the coordinates, whose codes are cells of the range that the areas lie in."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.lab.baselines.betree.build import Extents
from mpi_match.lab.baselines.boxes import boxes_of_all, fits

COORDINATES = 2**20
"""Codes of a coordinate."""
NARROWEST = 1e-200
"""Width of a plane up to which all places have one code."""


def plane_of(circles: Array) -> Array:
    """For x and for y, the least centre of circles f64[n, 3], and the number of codes in a unit: f64[2, 2]."""
    centres = circles[fits(circles), :2]
    if not len(centres):
        return np.tile([0.0, 1.0], (2, 1))
    low, width = centres.min(axis=0), np.ptp(centres, axis=0)
    return np.stack([low, COORDINATES / np.where(width > NARROWEST, width, 1.0)], axis=1)


def coordinate_code_of(value, axis):  # type: ignore[no-untyped-def]
    """The code of a coordinate, which is monotonic."""
    cell = (value - axis[0]) * axis[1]
    return np.int64(min(max(cell, 0.0), COORDINATES - 1.0))


def codes_of_boxes(circles: Array, plane: Array) -> Array:
    """The least and the greatest codes of boxes around circles: i64[n, 4], least x and y, greatest x and y."""
    cells = (boxes_of_all(circles) - np.tile(plane[:, 0], 2)) * np.tile(plane[:, 1], 2)
    return np.asarray(np.clip(cells, 0.0, COORDINATES - 1.0), np.int64)


def with_areas(found: Extents, filters: Array, codes: Array, first_name: int) -> Extents:
    """The extents with two more for each of the filters that have an area, on the names `first_name` and the next."""
    n_filters = len(found.offsets) - 1
    sizes = np.diff(found.offsets)
    has = np.zeros(n_filters, np.int64)
    has[filters] = 2
    offsets = offsets_of(sizes + has)
    place = np.arange(len(found.name)) + np.repeat(offsets[:-1] - found.offsets[:-1], sizes)
    last = offsets[1:][filters]
    columns = []
    for old, x, y in (
        (found.name, first_name, first_name + 1),
        (found.low, codes[:, 0], codes[:, 1]),
        (found.high, codes[:, 2], codes[:, 3]),
    ):
        new = np.empty(offsets[-1], np.int64)
        new[place], new[last - 2], new[last - 1] = old, x, y
        columns.append(new)
    return Extents(offsets, *columns)
