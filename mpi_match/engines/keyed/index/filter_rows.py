"""The table's constraints filter by filter, as codes: the input from which the keyed index is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, Int, offsets_of, owners, sums, take_ranges
from mpi_match.compute.compile_cache import inlined, jit
from mpi_match.compute.parallel import MAX_ROWS, in_stretches, owner_of, running_sum, stable_order, take_rows
from mpi_match.engines.entries import can_serve
from mpi_match.errors import EngineError
from mpi_match.operators import Form, Type
from mpi_match.table.kinds import OP_MASK, typed_forms
from mpi_match.table.table import Table

EQUAL, UNEQUAL, IN_LIST, OUT_OF_LIST = map(int, (Form.EQUAL, Form.UNEQUAL, Form.IN_LIST, Form.OUT_OF_LIST))
ATOM, EXISTS, ABSENT, PREFIX = map(int, (Form.ATOM, Form.EXISTS, Form.ABSENT, Form.PREFIX))

LISTED = 1 << IN_LIST | 1 << OUT_OF_LIST
"""Forms as a set of bits, `LISTED >> form & 1`: those with a list of operands ..."""
ATOMIC = 1 << ATOM
"""... the one that asks for an atom ..."""
FEATURE_ONLY = 1 << EQUAL | 1 << EXISTS | ATOMIC
"""... and those that only ask for a feature."""

ROW_NAME, ROW_LO, ROW_HI, ROW_KIND = range(4)
"""Columns of `FilterRows.records`: four constraints fill a cache line, and those of a filter are contiguous."""
SET = ROW_LO
"""The column of the operand list of `in` and `not in`."""

NARROW_PREFIX = 64
"""Most codes of a prefix that is looked up as the list of its codes."""
_MOST_PREFIX_CODES = 2**30


def too_large(table: Table) -> str | None:
    """Return the reason why a table cannot be indexed, naming an engine that can serve it; None if it can."""
    vocabulary, constraints = table.vocabulary, table.constraints
    n_sets = len(constraints.set_code_offsets) - 1
    sizes = {
        "names and operands": (2**31, vocabulary.n_names + 2 * vocabulary.n_atoms + int(vocabulary.n_codes.sum()) + n_sets),
        "values in operand lists": (2**31, len(constraints.set_codes) + n_sets),
        "constraints": (MAX_ROWS + 1, len(constraints)),
    }
    for what, (limit, n) in sizes.items():
        if n >= limit:
            return f"the table has {n:,} {what}, and keyed takes fewer than {limit:,}; {can_serve('any size')}"
    return None


class CodedFilters(NamedTuple):
    """The arrays of `FilterRows` that compiled code reads: filter f has records[offsets[f] : offsets[f + 1]].

    first_feature  i64[V + 1]  the feature "name has the code 0" of each name
    """

    offsets: Array
    records: Array
    first_feature: Array


class NamedRows(NamedTuple):
    """The table's rows by name, as columns of `Constraints`; only `kind` is as in `FilterRows.records`.  Name n has
    the rows offsets[n] to offsets[n + 1]."""

    offsets: Array
    kind: Array
    lo: Array
    hi: Array


class OperandNumbers(NamedTuple):
    """i64[n_names + 1] each: for each name, the number of its first atom and of its first operand list."""

    atom_offsets: Array
    set_offsets: Array


class FeatureCounts(NamedTuple):
    """Number of constraints that ask for each feature i64[P], that are `in` each operand list i64[n_sets], that are `absent`
    i64[n_names]."""

    asked: Array
    listed: Array
    absent: Array


@dataclass(frozen=True)
class FilterRows:
    """The constraints of a table filter by filter, as codes.  There are V virtual names and P = V + all codes possible
    features.

    offsets        i64[n_filters + 1]
    records        u32[c, 4]; those of a filter in the order of the table, hence by name
        NAME           name, or the virtual name of an atom
        LO, HI         the row's codes (0 for an atom); for `in` and `not in` both are the operand list.  A prefix of few
                       codes is an `in` of these: so filters that ask for it are found by the codes, not by the name alone
        KIND           `kinds.typed_forms`: type << KIND_SHIFT | form
    code_offsets   i64[V + 1]
    segments       i64[4, 2, V]  first and last code of each type on each name
    asked          i64[P]  number of constraints that ask for each feature; those on a name include its equalities
    listed         i64[n_sets]  number of constraints `in` each operand list
    set_size       i64[n_sets]
    set_first      i64[n_sets]  V + code_offsets of the list's name
    set_offsets    i64[n_sets + 1], set_codes u32: the operand lists
    """

    offsets: Array
    records: Array
    code_offsets: Array
    segments: Array
    asked: Array
    listed: Array
    set_size: Array
    set_first: Array
    set_offsets: Array
    set_codes: Array

    @property
    def n_virtual(self) -> int:
        """The number of real and virtual names, V."""
        return len(self.code_offsets) - 1

    @property
    def n_features(self) -> int:
        """The number of possible features, P."""
        return self.n_virtual + int(self.code_offsets[-1])

    @property
    def first_feature(self) -> Array:
        """i64[V + 1]: the feature "name has the code 0" of each name."""
        return self.n_virtual + self.code_offsets

    @property
    def coded(self) -> CodedFilters:
        """The filters as compiled code takes them."""
        return CodedFilters(self.offsets, self.records, self.first_feature)

    @classmethod
    def of(cls, table: Table) -> FilterRows:
        """Regroup the table's rows.  Raises EngineError for a table that is `too_large`."""
        if reason := too_large(table):
            raise EngineError(reason)
        vocabulary, constraints = table.vocabulary, table.constraints
        code_offsets = offsets_of(np.append(vocabulary.n_codes, np.ones(vocabulary.n_atoms, np.int64)))
        n_virtual, n_sets = len(code_offsets) - 1, len(constraints.set_code_offsets) - 1
        by_name, n = np.empty((len(constraints), 4), np.uint32), len(constraints)
        kind, lo, hi = constraints.contiguous()
        rows = NamedRows(constraints.offsets, typed_forms(kind), lo, hi)
        numbers = OperandNumbers(vocabulary.atom_offsets, constraints.set_offsets)
        in_stretches(n, _compose, rows, numbers, by_name)
        sizes = n_virtual + int(code_offsets[-1]), n_sets, vocabulary.n_names
        counts = FeatureCounts(*(np.zeros(size, np.int64) for size in sizes))
        in_stretches(n, _count_runs, rows, numbers, code_offsets, counts)
        asked = counts.asked
        of_atoms = sums(asked[vocabulary.n_names : n_virtual], vocabulary.atom_offsets)
        asked[: vocabulary.n_names] = np.diff(constraints.offsets) - counts.absent - of_atoms
        lists = _OperandLists(
            counts.listed,
            np.diff(constraints.set_code_offsets),
            n_virtual + code_offsets[owners(constraints.set_offsets)],
            constraints.set_codes,
        )
        lists = _list_prefixes(rows, by_name, n_virtual + code_offsets, lists)
        return cls(
            running_sum(table.filters.size),
            take_rows(by_name, stable_order(constraints.filter_id, table.n_filters)),
            code_offsets,
            np.array([vocabulary.segment(Type(t)) for t in Type]),
            asked,
            lists.listed,
            set_size=lists.size,
            set_first=lists.first,
            set_offsets=offsets_of(lists.size),
            set_codes=lists.codes,
        )


class _OperandLists(NamedTuple):
    """Operand lists: `FilterRows.listed`, `set_size`, `set_first` and `set_codes`."""

    listed: Array
    size: Array
    first: Array
    codes: Array


def _list_prefixes(rows: NamedRows, records: Array, first_feature: Array, lists: _OperandLists) -> _OperandLists:
    """Turn the prefixes of at most NARROW_PREFIX codes among `records`, which are in the table's order, into `in` lists of
    their codes.  Returns the lists, with the new ones."""
    narrow = np.flatnonzero((rows.kind & OP_MASK == PREFIX) & (rows.hi - rows.lo < NARROW_PREFIX))
    name = np.searchsorted(rows.offsets, narrow, "right") - 1
    low, high = rows.lo[narrow].astype(np.int64), rows.hi[narrow].astype(np.int64)
    is_new = np.ones(len(narrow), bool)
    is_new[1:] = (np.diff(name) != 0) | (np.diff(low) != 0) | (np.diff(high) != 0)
    of_row, begins = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
    size = (high - low + 1)[begins]
    if not len(narrow) or int(size.sum()) + len(lists.codes) > _MOST_PREFIX_CODES:
        return lists
    records[narrow, ROW_LO] = records[narrow, ROW_HI] = len(lists.size) + of_row
    records[narrow, ROW_KIND] = rows.kind[narrow] & ~np.uint32(OP_MASK) | np.uint32(IN_LIST)
    return _OperandLists(
        np.concatenate([lists.listed, np.bincount(of_row)]),
        np.concatenate([lists.size, size]),
        np.concatenate([lists.first, first_feature[name[begins]]]),
        np.concatenate([lists.codes, take_ranges(low[begins], size).astype(lists.codes.dtype)]),
    )


@jit
def _compose(stretch: int, n_stretches: int, rows: NamedRows, numbers: OperandNumbers, records: Array) -> None:
    """Fill `records` (`FilterRows`) with the table's rows, in the table's order."""
    (offsets, kind, lo, hi), (atom_offsets, set_offsets) = rows, numbers
    n, n_names = len(records), len(offsets) - 1
    first, last = stretch * n // n_stretches, (stretch + 1) * n // n_stretches
    name = owner_of(offsets, first)
    for row in range(first, last):
        while offsets[name + 1] <= row:
            name += 1
        form, shown, low, high = kind[row] & OP_MASK, name, np.int64(lo[row]), np.int64(hi[row])
        if LISTED >> form & 1:
            low = high = set_offsets[name] + low
        elif ATOMIC >> form & 1:
            shown = n_names + atom_offsets[name] + low
            low = high = np.int64(0)
        records[row, ROW_NAME], records[row, ROW_LO], records[row, ROW_HI], records[row, ROW_KIND] = (
            shown,
            low,
            high,
            kind[row],
        )


@jit
def _count_runs(
    stretch: int, n_stretches: int, rows: NamedRows, numbers: OperandNumbers, code_offsets: Array, counts: FeatureCounts
) -> None:
    """Count the rows of each equality, atom, list, and `absent`: runs of the table, each counted by the thread in whose
    stretch it begins."""
    (offsets, kind, lo, _), (atom_offsets, set_offsets), (asked, listed, absent) = rows, numbers, counts
    n, n_names = len(kind), len(offsets) - 1
    row, last = stretch * n // n_stretches, (stretch + 1) * n // n_stretches
    name = owner_of(offsets, row)
    while row > offsets[name] and row < last and kind[row] == kind[row - 1] and lo[row] == lo[row - 1]:
        row += 1
    while row < last:
        while offsets[name + 1] <= row:
            name += 1
        first, k, number = row, kind[row], np.int64(lo[row])
        while row < offsets[name + 1] and kind[row] == k and lo[row] == number:
            row += 1
        form, count = k & OP_MASK, row - first
        if form == EQUAL:
            asked[len(code_offsets) - 1 + code_offsets[name] + number] = count
        elif ATOMIC >> form & 1:
            asked[n_names + atom_offsets[name] + number] = count
        elif form == IN_LIST:
            listed[set_offsets[name] + number] = count
        elif form == ABSENT:
            absent[name] = count


@inlined
def feature_of(form: int, name: Int, lo: int, first_feature: int) -> Int:
    """The feature that a constraint asks for: first_feature + lo for an equality, the name otherwise, -1 for `absent`.

    `first_feature` is that of the constraint's name.  It is a number, because an array argument would be a reference that
    all threads count, at every constraint, in one memory location.
    """
    feature = name
    if form == ABSENT:
        feature = np.int64(-1)
    elif form == EQUAL:
        feature = first_feature + lo
    return feature
