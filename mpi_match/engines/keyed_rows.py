"""The table's constraints filter by filter, in code space: what the keyed index is built from."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from mpi_match.arrays import Array, offsets_of, owners
from mpi_match.model import Op, Type
from mpi_match.table import Table
from mpi_match.vocabulary import ATOM_OPS

EQ, NE, IN, NOT_IN = int(Op.EQ), int(Op.NE), int(Op.IN), int(Op.NOT_IN)
SUFFIX, CONTAINS, EXISTS, ABSENT = int(Op.SUFFIX), int(Op.CONTAINS), int(Op.EXISTS), int(Op.ABSENT)

jit = numba.njit(cache=True, nogil=True)


@dataclass(frozen=True)
class FilterRows:
    """The constraints of a table filter by filter, in code space.  V virtual names, P = V + all codes possible features.

    offsets        i64[n_filters + 1]
    op             u8[c]
    name           i64[c]  name, or the virtual name of an atom
    lo, hi         i64[c]  the row's codes
    first, last    i64[c]  codes of the row's type on its name
    feature        i64[c]  feature it asks for: V + code_offsets[name] + code for an equality, the name otherwise, -1 for `absent`
    set_id         i64[c]  operand list of `in` and `not in`, else -1
    code_offsets   i64[V + 1]
    set_size       i64[n_sets]
    set_first      i64[n_sets]  V + code_offsets of the list's name
    """

    offsets: Array
    op: Array
    name: Array
    lo: Array
    hi: Array
    first: Array
    last: Array
    feature: Array
    set_id: Array
    code_offsets: Array
    set_size: Array
    set_first: Array
    set_offsets: Array
    set_codes: Array

    @property
    def n_virtual(self) -> int:
        return len(self.code_offsets) - 1

    @property
    def n_features(self) -> int:
        """P: features there could be."""
        return self.n_virtual + int(self.code_offsets[-1])

    @classmethod
    def of(cls, table: Table) -> FilterRows:
        """Regroup the table's rows."""
        vocabulary, constraints = table.vocabulary, table.constraints
        order, offsets = counting_sort(constraints.filter_id, table.n_filters)
        op, type_ = constraints.op[order], constraints.type[order]
        name, lo, hi = constraints.name_id[order], constraints.lo[order].astype(np.int64), constraints.hi[order].astype(np.int64)
        segments = np.array([vocabulary.segment(Type(t)) for t in Type])
        first, last = segments[type_, 0, name], segments[type_, 1, name]
        listed = (op == IN) | (op == NOT_IN)
        set_id = np.where(listed, constraints.set_offsets[name] + lo, -1)
        is_atom = (op == ATOM_OPS[0]) | (op == ATOM_OPS[1])
        name = np.where(is_atom, vocabulary.n_names + vocabulary.atom_offsets[name] + lo, name)
        code_offsets = offsets_of(np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64)))
        n_virtual = len(code_offsets) - 1
        feature = np.where(op == EQ, n_virtual + code_offsets[name] + lo, np.where(op == ABSENT, -1, name))
        lo, hi, first, last = (np.where(is_atom, 0, column) for column in (lo, hi, first, last))
        return cls(
            offsets, op, name, lo, hi, first, last, feature, set_id, code_offsets,
            set_size=np.diff(constraints.set_code_offsets),
            set_first=n_virtual + code_offsets[owners(constraints.set_offsets)],
            set_offsets=constraints.set_code_offsets,
            set_codes=constraints.set_codes,
        )


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
