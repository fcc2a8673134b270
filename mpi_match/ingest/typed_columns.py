"""Columns of one type each, with their nulls: what columns of every library become before they are encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.model import Type


class Validity(NamedTuple):
    """Which entries are there: bits u8, the lowest of a byte first, from `first_bit` on."""

    bits: Array
    first_bit: int


class TypedColumn(NamedTuple):
    """n entries of one type.

    values     f64[n], u8[n] for booleans, or Strings; the entries of a dictionary if there are `indices`
    indices    i32[n]: entry i is values[indices[i]]; any number where it is null
    validity   None where no entry is null
    """

    type: Type
    values: Array | Strings
    indices: Array | None = None
    validity: Validity | None = None

    def is_present(self, n: int) -> Array:
        """bool[n]: which entries are there."""
        if self.validity is None:
            return np.ones(n, bool)
        first = self.validity.first_bit
        return np.unpackbits(self.validity.bits, count=first + n, bitorder="little")[first:].astype(bool)

    def numbers(self, n: int) -> Array:
        """f64[n]: the entries, NaN for those that are null or no numbers."""
        found = np.full(n, np.nan)
        if self.type is Type.NUMBER:
            there = self.is_present(n)
            entries = there if self.indices is None else self.indices[there]
            found[there] = self.values[entries]  # type: ignore[index]  # an array, as its type says
        return found + 0.0


class ColumnChunk(NamedTuple):
    """n events as columns by name.

    doubted   bool[n], rows that get no attributes and no location; None: no row
    """

    n_events: int
    columns: Mapping[str, TypedColumn]
    doubted: Array | None = None
