"""Numbers as arrays in the order of their exact values.

An *exact* array is f64 if each of its numbers is a double.  Otherwise it is complex128: the real part is the double nearest
to the number, the imaginary part its *residue*, the number minus that double (`model.split`).  NumPy compares, sorts and
searches complex numbers by their real parts first, which is the order of the numbers, and joins both kinds of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.model import joined, split

RESIDUE = np.dtype(np.int16)
LARGEST_SPLIT = 2.0**68
"""The largest double that is nearest to an integer with a residue, that of the last instant of the year 9999."""


def exact(nearest: Array, residue: Array) -> Array:
    """The exact array of doubles f64[n] and residues [n], given as integers whose low 16 bits count."""
    residue = residue.astype(RESIDUE)
    if not residue.any():
        return nearest
    found = np.empty(nearest.shape, np.complex128)
    found.real, found.imag = nearest, residue
    return found


def residues(numbers: Array) -> Array:
    """i16: the residues of an exact array."""
    return numbers.imag.astype(RESIDUE)


def nearest_doubles(numbers: Array) -> Array:
    """f64: the doubles nearest to the numbers of an exact array; the array itself if it is f64."""
    found: Array = np.ascontiguousarray(numbers.real)
    return found


def of_integers(integers: Array) -> Array:
    """The exact array of i64[n] or u64[n]."""
    nearest, bits = integers.astype(np.float64), 8 * integers.itemsize
    beyond = 2.0 ** (bits - (integers.dtype.kind == "i"))  # rounded to that, an integer would not fit its type again
    again = np.where(nearest >= beyond, beyond - 2.0**bits, nearest).astype(integers.dtype)
    return exact(nearest, (integers - again).view(np.int64))


def are_split(nearest: Array, residue: Array) -> Array:
    """bool[n]: marks the pairs of doubles f64[n] and residues i16[n] that are numbers of the model or instants."""
    twice = 2.0 * np.abs(residue.astype(np.float64))
    is_even = np.ascontiguousarray(nearest).view(np.int64) & 1 == 0
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(np.nextafter(nearest, np.where(residue > 0, np.inf, -np.inf)) - nearest)
        is_whole = (np.abs(nearest) <= LARGEST_SPLIT) & (np.floor(nearest) == nearest)
        is_nearest = (twice < gap) | ((twice == gap) & is_even)
    found: Array = ~np.isnan(nearest) & ((residue == 0) | (is_whole & is_nearest))
    return found


def of_values(values: Sequence[float]) -> Array:
    """The exact array of canonical numbers of the model; booleans are 0 and 1."""
    if int not in set(map(type, values)):
        return np.array(values, np.float64)
    pairs = [split(value) for value in values]
    return exact(np.array([nearest for nearest, _ in pairs]), np.array([residue for _, residue in pairs]))


def values_of(numbers: Array) -> list[float]:
    """The numbers of an exact array as canonical numbers of the model."""
    if numbers.dtype != np.complex128:
        return numbers.tolist()  # type: ignore[no-any-return]
    return [
        joined(nearest, residue) for nearest, residue in zip(numbers.real.tolist(), residues(numbers).tolist(), strict=True)
    ]
