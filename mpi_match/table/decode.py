"""A table's filters as subscriptions again: the inverse of `Table.from_subscriptions`, in flat arrays."""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners, take_ranges
from mpi_match.arrays.exact import exact, residues
from mpi_match.arrays.strings import Strings
from mpi_match.model import Type
from mpi_match.operators import Form
from mpi_match.table.kinds import IS_ATOM, IS_LISTED, IS_OF_NULLS, TYPE_OF_KIND, kinds_where
from mpi_match.table.subscriptions import Subscriptions
from mpi_match.table.table import Table

_HAS_LOW = kinds_where(lambda record: record.has_low and record.form is not Form.ATOM)
_HAS_HIGH = kinds_where(lambda record: record.has_high and record.form in (Form.BELOW, Form.WITHIN, Form.PREFIX))
_EXCLUDES = [kinds_where(lambda record, end=end: record.excludes[end]) for end in range(2)]  # type: ignore[misc]
_IS_PREFIX = kinds_where(lambda record: record.form is Form.PREFIX)


def subscriptions_of(table: Table, filters: Array) -> Subscriptions:
    """The filters of a table with these ids i64[n] (ascending, distinct), in this order, including those on parts of
    conditions.

    A table that is made of all of them equals the table, bit for bit.
    """
    vocabulary, constraints = table.vocabulary, table.constraints
    offsets, rows_of = table.by_filter
    sizes = table.filters.size[filters].astype(np.int64)
    rows = rows_of[take_ranges(offsets[filters], sizes)]
    name, kind = np.searchsorted(constraints.offsets, rows, side="right") - 1, constraints.kind[rows]
    counts, codes = _operands(table, rows, name, kind)
    owner = owners(offsets_of(counts))
    on, of = name[owner], kind[owner]
    type_, is_atom = TYPE_OF_KIND[of], IS_ATOM[of]
    index = codes - np.array([vocabulary.segment(each)[0] for each in Type])[type_, on]
    number, string = np.zeros(len(codes), vocabulary.numbers.dtype), np.full(len(codes), -1)
    numeric, textual = type_ == Type.NUMBER, (type_ == Type.STRING) & ~is_atom
    number[numeric] = vocabulary.numbers[vocabulary.number_offsets[on[numeric]] + index[numeric] // 2]
    boolean = type_ == Type.BOOLEAN
    number[boolean] = index[boolean]
    string[textual] = vocabulary.string_offsets[on[textual]] + index[textual] // 2
    string[is_atom] = len(vocabulary.strings) + vocabulary.atom_offsets[on[is_atom]] + codes[is_atom]
    used, interface = np.unique(table.filters.interface[filters], return_inverse=True)
    area = np.full((table.n_filters, 3), np.nan)
    area[table.filters.area_filter] = table.filters.area
    id_ = np.full(table.n_filters, -1)
    id_[table.filters.id_filter] = np.arange(len(table.filters.ids))
    return Subscriptions(
        labels=table.labels.take(used),
        names=vocabulary.names,
        strings=Strings.concat([vocabulary.strings, vocabulary.atoms]),
        ids=table.filters.ids,
        interface=interface.astype(np.int64),
        constraint_offsets=offsets_of(sizes),
        area=area[filters],
        id=id_[filters],
        name=name,
        kind=kind,
        operand_offsets=offsets_of(counts),
        number=exact(number.real, residues(number)) if np.iscomplexobj(number) else number,
        string=string,
    )


def _operands(table: Table, rows: Array, name: Array, kind: Array) -> tuple[Array, Array]:
    """The number of operands of each constraint, and the codes of all operands; the code of an atom is its number."""
    constraints = table.constraints
    lo, hi = constraints.lo[rows].astype(np.int64), constraints.hi[rows].astype(np.int64)
    is_listed, is_atom = IS_LISTED[kind], IS_ATOM[kind] & ~IS_OF_NULLS[kind]
    has_low, has_high = _HAS_LOW[kind] & ~is_listed, _HAS_HIGH[kind] & ~is_listed
    empty = np.flatnonzero(_IS_PREFIX[kind] & (lo == table.vocabulary.segment(Type.STRING)[0][name]))
    has_high[empty] = False  # the empty prefix has no bound; its own code is the first of its name
    lo[empty] += 1
    sets = constraints.set_offsets[name[is_listed]] + lo[is_listed]
    counts = has_low.astype(np.int64) + has_high + is_atom
    counts[is_listed] = np.diff(constraints.set_code_offsets)[sets]
    offsets, codes = offsets_of(counts), np.empty(int(counts.sum()), np.int64)
    codes[offsets[:-1][has_low]] = lo[has_low] - _EXCLUDES[0][kind[has_low]]
    codes[offsets[1:][has_high] - 1] = hi[has_high] + _EXCLUDES[1][kind[has_high]]
    codes[offsets[:-1][is_atom]] = lo[is_atom]
    taken = take_ranges(constraints.set_code_offsets[sets], counts[is_listed])
    codes[take_ranges(offsets[:-1][is_listed], counts[is_listed])] = constraints.set_codes[taken]
    return counts, codes
