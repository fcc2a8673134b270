"""Columns of one type each, with their nulls: the form into which columns of all libraries are converted before they are
encoded."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.model import Type


class Validity(NamedTuple):
    """A bit for each entry, set if it is present: u8, the lowest bit of a byte first, from `first_bit` on."""

    bits: Array
    first_bit: int

    @classmethod
    def of(cls, there: Array) -> Validity:
        """From bool[n]."""
        return cls(np.packbits(there, bitorder="little"), 0)

    def are_there(self, n: int) -> Array:
        """bool[n]: marks the present entries."""
        return np.unpackbits(self.bits, count=self.first_bit + n, bitorder="little")[self.first_bit :].astype(bool)

    def others(self, n: int) -> Validity:
        """The missing ones of n entries."""
        stop = self.first_bit + n
        bits = ~self.bits[: -(-stop // 8)]
        bits[-1:] &= 0xFF >> (-stop & 7)
        return Validity(bits, self.first_bit)


class TypedColumn(NamedTuple):
    """n entries of one type.

    values     f64[n], i64[n] for integers that are doubles, complex128[n] for numbers that are not (`arrays.exact`), u8[n]
               for booleans, or Strings; the entries of a dictionary if there are `indices`
    indices    i32[n]: entry i is values[indices[i]]; any number where it is null
    validity   which entries are there; None where all are
    nulls      which of the others are nulls; None where none is
    """

    type: Type
    values: Array | Strings
    indices: Array | None = None
    validity: Validity | None = None
    nulls: Validity | None = None

    @property
    def has_integers(self) -> bool:
        """Tells whether the values are i64."""
        return not isinstance(self.values, Strings) and self.values.dtype == np.int64

    @property
    def has_residues(self) -> bool:
        """Tells whether the values are complex128."""
        return not isinstance(self.values, Strings) and self.values.dtype == np.complex128

    def is_present(self, n: int) -> Array:
        """bool[n]: marks the present entries."""
        return np.ones(n, bool) if self.validity is None else self.validity.are_there(n)

    def numbers(self, n: int) -> Array:
        """f64[n]: the entries; NaN for those that are missing, are not numbers, or are not doubles."""
        found = np.full(n, np.nan)
        if self.type is Type.NUMBER:
            there = self.is_present(n)
            entries = there if self.indices is None else self.indices[there]
            values: Array = self.values[entries]  # type: ignore[index,assignment]  # an array, as its type says
            found[there] = np.where(values.imag == 0, values.real, np.nan) if self.has_residues else values
        return found + 0.0

    def without(self, absent: Array) -> TypedColumn:
        """The column without the entries marked in bool[n], in addition to those that it lacks."""
        there = self.is_present(len(absent)) & ~absent
        return self._replace(validity=Validity.of(there))


class ListColumn(NamedTuple):
    """n lists: entry i has the elements offsets[i] to offsets[i + 1], all of them there.

    offsets           i64[n + 1]
    elements          of all lists, end to end
    validity, nulls   as in `TypedColumn`
    """

    offsets: Array
    elements: TypedColumn
    validity: Validity | None = None
    nulls: Validity | None = None

    def is_present(self, n: int) -> Array:
        """bool[n]: marks the present entries."""
        return TypedColumn(Type.NUMBER, self.offsets, None, self.validity).is_present(n)

    def without(self, absent: Array) -> ListColumn:
        """The column without the entries marked in bool[n], in addition to those that it lacks."""
        there = self.is_present(len(absent)) & ~absent
        return self._replace(validity=Validity.of(there))


class ColumnChunk(NamedTuple):
    """n events as columns by name.

    doubted   bool[n], rows that get no attributes and no location; None: no row
    lists     columns of lists
    """

    n_events: int
    columns: Mapping[str, TypedColumn]
    doubted: Array | None = None
    lists: Mapping[str, ListColumn] = MappingProxyType({})

    def locations(self, names: tuple[str, str] | None) -> Array | None:
        """f64[n, 2], from the columns of x and y; None when no event has one."""
        if names is None or not self.n_events:
            return None
        location = np.column_stack([self.columns[name].numbers(self.n_events) for name in names])
        if self.doubted is not None:
            location[self.doubted] = np.nan
        return None if np.isnan(location[:, 0]).all() else location
