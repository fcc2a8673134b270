"""The forwarding table: predicates by name and class of operator, the filters of each, and the selectivity table.

SFF has under each name of an attribute one index for each type, and in it one for each operator.  A *predicate* here is a
distinct constraint: it is stored once, and leads to the filters that share it.  In code space an operator is a class of
intervals:

    EQUAL        =                  the one predicate with this code, by binary search
    BELOW        <  <=              sorted by their upper ends: those from the event's code on
    ABOVE        >  >=              sorted by their lower ends: those up to the event's code
    UNEQUAL      !=                 all but one
    WITHIN       between  prefix    sorted by their lower ends: those up to the event's code are looked at
    IN_LIST      in                 by the operand lists that hold the code
    OUT_OF_LIST  not in             all but those with such a list
    PRESENT      exists, an atom    all; an atom is a name of its own (`vocabulary`)

SFF lacks `absent`.  Here it is not a predicate: an event with the name rules out its filters.

The table's rows are sorted by (name, type, operator, operand, filter) already, so predicates are the runs of equal operands,
and the filters of consecutive predicates are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners
from mpi_match.model import Type
from mpi_match.operators import Form
from mpi_match.table.constraints import Constraints
from mpi_match.table.kinds import IS_OF_NULLS, TYPE_OF_KIND, forms_of
from mpi_match.table.table import Table

BELOW, ABOVE, WITHIN, PRESENT = map(int, (Form.BELOW, Form.ABOVE, Form.WITHIN, Form.EXISTS))
_CLASS = {Form.PREFIX: Form.WITHIN, Form.ATOM: Form.EXISTS}
_CLASS_OF = np.array([_CLASS.get(form, form) for form in Form])
"""i64, by form: the class of a predicate, its form unless _CLASS says otherwise."""
GROUP_CLASS, GROUP_FIRST, GROUP_LAST, GROUP_FIRST_CODE, GROUP_LAST_CODE = range(5)
"""Columns of `PredicateIndex.groups`."""


@dataclass(frozen=True)
class PredicateIndex:
    """Predicates of one class, type and name are a *group*; V names, virtual ones included, and p predicates.

    group_offsets   i64[V + 1]  groups of each name
    groups          i64[g, 5]   class; its predicates, GROUP_FIRST to GROUP_LAST; codes of its type
    lo, hi          u32[p]      the predicate's codes, or both its operand list
    rows            i64[p + 1]  rows of each predicate, whose `filter_id` are the filters that share it
    absent          i64[n, 2]   rows of `absent` on each name, first and last
    member_offsets  i64[n + 1]  members of the operand lists of each name
    member_code     u32[m]      ascending under each name
    member_list     u32[m]      the operand list, among those of its name; ascending under each code
    """

    group_offsets: Array
    groups: Array
    lo: Array
    hi: Array
    rows: Array
    absent: Array
    member_offsets: Array
    member_code: Array
    member_list: Array

    @classmethod
    def of(cls, table: Table) -> PredicateIndex:
        """Group the rows of a table."""
        constraints, vocabulary = table.constraints, table.vocabulary
        n_names, name_of_row = vocabulary.n_names, constraints.name_id
        first_rows = _starts(name_of_row, constraints.kind, constraints.lo, constraints.hi)
        lo, hi, kind, name = (a[first_rows] for a in (constraints.lo, constraints.hi, constraints.kind, name_of_row))
        form = forms_of(kind)
        is_atom = form == Form.ATOM
        name[is_atom] = n_names + vocabulary.atom_offsets[name[is_atom]] + lo[is_atom]
        rows = np.append(first_rows, len(constraints))
        starts = _starts(name, kind)
        stops = np.append(starts[1:], len(first_rows))
        absent = np.zeros((n_names, 2), np.int64)
        is_absent = form[starts] == Form.ABSENT
        absent[name[starts[is_absent]]] = np.stack((rows[starts[is_absent]], rows[stops[is_absent]]), axis=1)
        starts, stops = starts[~is_absent], stops[~is_absent]
        type_ = np.where(is_atom[starts], Type.ANY, TYPE_OF_KIND[kind[starts]])
        segments = np.array([vocabulary.segment(each) for each in Type])  # [type, first or last, name]
        segments = np.append(segments, np.zeros((*segments.shape[:2], vocabulary.n_atoms), np.int64), axis=2)
        of_group = name[starts]
        groups = np.stack(
            (_CLASS_OF[form[starts]], starts, stops, segments[type_, 0, of_group], segments[type_, 1, of_group]), axis=1
        )
        order = np.argsort(of_group, kind="stable")
        return cls(
            offsets_of(np.bincount(of_group, minlength=n_names + vocabulary.n_atoms)),
            np.ascontiguousarray(groups[order], np.int64),
            lo,
            hi,
            rows,
            absent,
            *_members(constraints),
        )

    @property
    def most_runs(self) -> int:
        """Upper bound of the runs of predicates that an attribute satisfies: one for each predicate, and one for each
        group."""
        n_groups = np.diff(self.group_offsets)
        n_predicates = np.bincount(
            owners(self.group_offsets), self.groups[:, GROUP_LAST] - self.groups[:, GROUP_FIRST], len(n_groups)
        )
        return int((n_groups + n_predicates.astype(np.int64)).max(initial=0))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values())


def _starts(*columns: Array) -> Array:
    """i64: the rows that differ from the row before in some column."""
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _members(constraints: Constraints) -> tuple[Array, Array, Array]:
    """`member_offsets`, `member_code` and `member_list` of `PredicateIndex`."""
    of_list = owners(constraints.set_code_offsets)
    name = owners(constraints.set_offsets)[of_list]
    in_name = (of_list - constraints.set_offsets[name]).astype(np.uint32)
    order = np.lexsort((in_name, constraints.set_codes, name))
    counts = np.bincount(name, minlength=len(constraints.set_offsets) - 1)
    return offsets_of(counts), constraints.set_codes[order], in_name[order]


def selectivity_table(table: Table, rounds: int) -> tuple[Array, Array, Array]:
    """The `rounds` names whose absence rules out the most interfaces, best first.

    Returns the names i64[r], and the interfaces that each is *determinant* for: all filters of these have a constraint on
    the name that an event without it cannot satisfy (offsets i64[r + 1], interfaces u32).
    """
    constraints, interface = table.constraints, table.filters.interface
    if not rounds:
        return np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint32)
    asks = np.flatnonzero((constraints.form != Form.ABSENT) & ~IS_OF_NULLS[constraints.kind])
    pairs = np.sort(constraints.name_id[asks] << 32 | constraints.filter_id[asks])
    pairs = pairs[_starts(pairs)]
    pairs = pairs >> 32 << 32 | interface[pairs & (2**32 - 1)]  # ascending still: interfaces ascend with filters
    starts = _starts(pairs)
    pairs, n_asking = pairs[starts], np.diff(starts, append=len(pairs))
    n_filters = np.bincount(interface, minlength=table.n_interfaces)
    pairs = pairs[n_asking == n_filters[pairs & (2**32 - 1)]]
    counts = np.bincount(pairs >> 32, minlength=table.vocabulary.n_names)
    names = np.argsort(-counts, kind="stable")[: min(rounds, np.count_nonzero(counts))]
    rank = np.full(len(counts), len(names))
    rank[names] = np.arange(len(names))
    place = rank[pairs >> 32]
    order = np.argsort(place, kind="stable")[: int(counts[names].sum())]
    return names, offsets_of(counts[names]), (pairs[order] & (2**32 - 1)).astype(np.uint32)
