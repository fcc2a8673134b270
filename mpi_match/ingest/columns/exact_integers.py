"""Tests with all threads whether doubles can hold the integers of a column exactly; nearly always they can, and no residues
are needed (`arrays.exact`)."""

from __future__ import annotations

from functools import cache

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.compile_cache import compile_once, jit
from mpi_match.compute.memory import load_u64
from mpi_match.compute.parallel import in_stretches
from mpi_match.model import MAX_EXACT_INTEGER

_FEW = 2**14
"""Number of integers below which NumPy is faster than starting threads."""
_ENOUGH = 2**18
"""Integers that are worth a further thread: threads are limited by memory."""


def are_exact(integers: Array) -> bool:
    """Tells whether all of some integers, i64[n] or u64[n], are within ±MAX_EXACT_INTEGER."""
    n, is_signed = len(integers), integers.dtype.kind == "i"
    if n < _FEW:
        return not n or bool(integers.max() <= MAX_EXACT_INTEGER and integers.min() >= -MAX_EXACT_INTEGER)
    least, span = (-MAX_EXACT_INTEGER, 2 * MAX_EXACT_INTEGER) if is_signed else (0, MAX_EXACT_INTEGER)
    values = np.ascontiguousarray(integers)
    compile_check()

    def has_beyond(stretch: int, n_stretches: int) -> bool:
        start, stop = stretch * n // n_stretches, (stretch + 1) * n // n_stretches
        return bool(_has_beyond(values.ctypes.data, start, stop, least, span))

    return not any(in_stretches(n, has_beyond, least=_ENOUGH))


@cache
def compile_check() -> None:
    """Compile the functions."""
    with compile_once("exact-integers", 1):
        _has_beyond(0, 0, 0, 0, 0)


@jit
def _has_beyond(values: int, start: int, stop: int, least: int, span: int) -> bool:
    """Tells whether one of the integers from `start` to `stop`, at the address `values`, is below `least` or above `least +
    span`.  They are compared without signs, which makes those below `least` the greatest.
    """
    found = False
    for i in range(start, stop):
        if load_u64(values, i) - np.uint64(least) > np.uint64(span):
            found = True
    return found
