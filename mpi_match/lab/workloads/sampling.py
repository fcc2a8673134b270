"""Random locations of interfaces and events on a plane, the unit square, for the location-aware scenarios.

    exponent 0      uniform
    exponent s > 0  the plane is divided into 32 x 32 cells, cell of rank i (from 0) has a weight of
                    (i + 1) ** -s, and a location is uniform within its cell

        . . # .      The ranks of cells are drawn once and are the same in every workload: popular cells are anywhere,
        . + . .      like towns, and filters and events concentrate in the same cells.
        . . . +

`Weighted` draws numbers with Zipf weights; names are drawn with it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, smallest_unsigned

CELLS = 32
"""Cells along each side of the plane."""


class Moves(NamedTuple):
    """Filters that move, in order: `filter_id` u32[n] and their new circles `area` f64[n, 3] (centre x, y and radius)."""

    filter_id: Array
    area: Array


def radius_of(share: float) -> float:
    """Radius of the circle with this share of the plane."""
    return math.sqrt(share / math.pi)


@dataclass(frozen=True)
class Weighted:
    """Numbers 0 to n - 1, number i drawn with a weight of (i + 1) ** -exponent (Walker's alias method: pick a number, then
    keep it or take its alias)."""

    n: int
    exponent: float

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """`size` numbers, in the narrowest unsigned type."""
        number = rng.integers(0, self.n, size, dtype=smallest_unsigned(self.n))
        if self.exponent == 0:
            return number
        keep, alias = self._aliases
        return np.where(rng.random(size, np.float32) < keep[number], number, alias[number])

    @cached_property
    def _aliases(self) -> tuple[Array, Array]:
        """Probability of keeping each number when picked, f32[n], and its alias."""
        weight = np.arange(1, self.n + 1) ** -self.exponent
        chance, alias = weight * self.n / weight.sum(), np.arange(self.n)
        small, large = [list(np.flatnonzero(side)) for side in (chance < 1, chance >= 1)]
        while small and large:
            poor, rich = small.pop(), large[-1]
            alias[poor] = rich
            chance[rich] -= 1 - chance[poor]
            if chance[rich] < 1:
                small.append(large.pop())
        for number in small + large:  # the rest differs from 1 by rounding only
            chance[number] = 1
        return chance.astype(np.float32), alias.astype(smallest_unsigned(self.n))


@dataclass(frozen=True)
class Sampler:
    """Random locations on the plane; see the module for `exponent`."""

    exponent: float

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """f64[size, 2]: x and y in [0, 1)."""
        within = rng.random((size, 2))
        if self.exponent == 0:
            return within
        rank = self._cells.draw(rng, size)
        return (np.stack(np.divmod(self._cell_of_rank[rank], CELLS), axis=1) + within) / CELLS

    @cached_property
    def _cells(self) -> Weighted:
        return Weighted(CELLS * CELLS, self.exponent)

    @cached_property
    def _cell_of_rank(self) -> Array:
        """i64[CELLS ** 2]: the cell of each rank, always the same."""
        return np.random.Generator(np.random.PCG64(CELLS)).permutation(CELLS * CELLS)


def stepped(place: Array, rng: np.random.Generator, step: float) -> Array:
    """Locations f64[n, 2] displaced by normal steps of standard deviation `step` along each axis, reflected at the
    border.
    """
    moved = np.abs(place + rng.normal(0, step, place.shape)) % 2  # the plane and its mirror image repeat with period 2
    return np.asarray(np.minimum(moved, 2 - moved))
