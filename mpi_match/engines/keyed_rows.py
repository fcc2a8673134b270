"""The table's constraints filter by filter, in code space: what the keyed index is built from."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, owners
from mpi_match.engines import EngineError
from mpi_match.model import Op, Type
from mpi_match.table import Table

EQ, NE, IN, NOT_IN = int(Op.EQ), int(Op.NE), int(Op.IN), int(Op.NOT_IN)
SUFFIX, CONTAINS, EXISTS, ABSENT = int(Op.SUFFIX), int(Op.CONTAINS), int(Op.EXISTS), int(Op.ABSENT)

jit = numba.njit(cache=True, nogil=True)
parallel_jit = numba.njit(cache=True, nogil=True, parallel=True)

OP, NAME, LO, HI, FIRST, LAST, FEATURE, SET = range(8)
"""Columns of `FilterRows.records`: a constraint is half a cache line, and those of a filter lie next to each other."""


@dataclass(frozen=True)
class FilterRows:
    """The constraints of a table filter by filter, in code space.  V virtual names, P = V + all codes possible features.

    offsets        i64[n_filters + 1]
    records        i32[c, 8]
        OP             operator
        NAME           name, or the virtual name of an atom
        LO, HI         the row's codes
        FIRST, LAST    codes of the row's type on its name
        FEATURE        what it asks for: V + code_offsets[name] + code for an equality, the name otherwise, -1 for `absent`
        SET            operand list of `in` and `not in`, else -1
    code_offsets   i64[V + 1]
    set_size       i64[n_sets]
    set_first      i64[n_sets]  V + code_offsets of the list's name
    set_offsets    i64[n_sets + 1], set_codes u32: the operand lists
    """

    offsets: Array
    records: Array
    code_offsets: Array
    set_size: Array
    set_first: Array
    set_offsets: Array
    set_codes: Array

    @property
    def n_virtual(self) -> int:
        """V: real and virtual names."""
        return len(self.code_offsets) - 1

    @property
    def n_features(self) -> int:
        """P: features there could be."""
        return self.n_virtual + int(self.code_offsets[-1])

    @classmethod
    def of(cls, table: Table) -> FilterRows:
        """Regroup the table's rows.  Raises EngineError for a table with 2^31 names and operands."""
        vocabulary, constraints = table.vocabulary, table.constraints
        order, offsets = counting_sort(constraints.filter_id, table.n_filters)
        code_offsets = offsets_of(np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64)))
        n_virtual = len(code_offsets) - 1
        if n_virtual + int(code_offsets[-1]) >= 2**31:
            raise EngineError("the table has 2^31 names and operands or more; engine 'counting' can serve it")
        records = np.empty((len(order), 8), np.int32)
        _regroup(
            order,
            constraints.name_id,
            constraints.kind,
            constraints.lo,
            constraints.hi,
            vocabulary.n_names,
            vocabulary.atom_offsets,
            constraints.set_offsets,
            np.array([vocabulary.segment(Type(t)) for t in Type]),
            code_offsets,
            records,
        )
        return cls(
            offsets,
            records,
            code_offsets,
            set_size=np.diff(constraints.set_code_offsets),
            set_first=n_virtual + code_offsets[owners(constraints.set_offsets)],
            set_offsets=constraints.set_code_offsets,
            set_codes=constraints.set_codes,
        )


@parallel_jit
def _regroup(
    order: Array,
    name_id: Array,
    kind: Array,
    row_lo: Array,
    row_hi: Array,
    n_names: int,
    atom_offsets: Array,
    set_offsets: Array,
    segments: Array,
    code_offsets: Array,
    records: Array,
) -> None:
    """Fill `records` (`FilterRows`) with the table's rows in `order`."""
    n_virtual = len(code_offsets) - 1
    for at in numba.prange(len(order)):
        row = order[at]
        name, lo, hi, op = name_id[row], np.int64(row_lo[row]), np.int64(row_hi[row]), kind[row] & 15
        first, last, set_id = segments[kind[row] >> 4, 0, name], segments[kind[row] >> 4, 1, name], np.int64(-1)
        if op in (IN, NOT_IN):
            set_id = set_offsets[name] + lo
        elif op in (SUFFIX, CONTAINS):
            name = n_names + atom_offsets[name] + lo
            lo = hi = first = last = np.int64(0)
        feature = name
        if op == EQ:
            feature = n_virtual + code_offsets[name] + lo
        elif op == ABSENT:
            feature = -1
        record = records[at]
        record[OP], record[NAME], record[LO], record[HI] = op, name, lo, hi
        record[FIRST], record[LAST], record[FEATURE], record[SET] = first, last, feature, set_id


@jit
def counting_sort(key: Array, n_keys: int) -> tuple[Array, Array]:
    """Stable order of the rows by key, i64[n], and where each key's rows begin, i64[n_keys + 1]."""
    offsets = np.zeros(n_keys + 1, np.int64)
    for k in key:
        offsets[k + 1] += 1
    for k in range(n_keys):
        offsets[k + 1] += offsets[k]
    cursor = offsets[:-1].copy()
    order = np.empty(len(key), np.int64)
    for row in range(len(key)):
        k = key[row]
        order[cursor[k]] = row
        cursor[k] += 1
    return order, offsets
