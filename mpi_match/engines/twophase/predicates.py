"""The distinct predicates of a table, and the tables by attribute and operator in which phase 1 finds the satisfied ones.

A predicate, in the paper's sense, is a distinct constraint: a name, a kind and an interval of codes.  Predicates are
numbered in the order of the constraints, so those of one name and kind, a *run*, are consecutive and sorted by their bounds:

    name      kind                 predicates       satisfied by code x
    temp      number =             0  1  2          the one whose bound is x
              number !=            3  4             all but the one whose bound is x
              number < <=          5  6  7  8       those from the first with x <= hi to the end
              number > >=          9 10             those from the first to the last with lo <= x
              between, prefix     11 12             among those with lo <= x, the ones with x <= hi
              in                  13                the ones whose list contains x, from a list of (code, predicate)
              not in              14                all but these
              exists              15                all
              absent              16                none; satisfied by an event without the name

An atom has its own predicate.  The last predicate is `always`, for filters without constraints.  Phase 1 starts from the
predicates that an event without attributes satisfies: `always` and every `absent` (`at_first`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.compute.compile_cache import jit
from mpi_match.model import Type
from mpi_match.operators import Form
from mpi_match.table.kinds import IS_ATOM, TYPE_OF_KIND, forms_of, typed_forms
from mpi_match.table.table import Table

WORD_BITS = 64
KIND_BITS = 8
PREDICATE = np.dtype(np.uint32)


@dataclass(frozen=True)
class Predicates:
    """The P predicates of a table, including `always`, in R runs.

    of_row             u32[n_constraints]   predicate of each constraint
    lo, hi             u32[P - 1]           codes, or number of the operand list or atom, as in `Constraints`
    chance             f64[P]               estimated fraction of the events that satisfy it
    at_first           u64[words]           bits of the predicates that an event without attributes satisfies
    name_runs          i64[n_names + 1]     runs of each name
    run_kind           u8[R]                kind of each run ...
    run_offsets        i64[R + 1]           ... and its predicates
    segment_ends       i64[2 n_names]       code of NaN and last code of a string, for each name
    atom_predicate     i64[n_atoms]         predicate of each atom; -1 if no constraint asks for it
    listed_offsets     i64[R + 1]           for runs of `in` and `not in`: the codes of all lists, ascending, ...
    listed_code        u32
    listed_predicate   u32                  ... and the predicate whose list contains each
    """

    of_row: Array
    lo: Array
    hi: Array
    chance: Array
    at_first: Array
    name_runs: Array
    run_kind: Array
    run_offsets: Array
    segment_ends: Array
    atom_predicate: Array
    listed_offsets: Array
    listed_code: Array
    listed_predicate: Array

    @property
    def n(self) -> int:
        """The number of predicates, P."""
        return len(self.chance)

    @property
    def always(self) -> int:
        """The predicate that every event satisfies."""
        return self.n - 1

    @classmethod
    def of(cls, table: Table) -> Predicates:
        """Build the predicates of a table."""
        v, c = table.vocabulary, table.constraints
        of_row = np.empty(len(c), PREDICATE)
        _number(c.offsets, *c.contiguous(), of_row)
        first_row = _changes(of_row)
        name = np.searchsorted(c.offsets, first_row, side="right") - 1
        kind, lo, hi = c.kind[first_row], c.lo[first_row], c.hi[first_row]
        form = forms_of(kind)
        n = len(first_row) + 1

        run_first = _changes(name << KIND_BITS | kind)
        run_offsets = np.append(run_first, n - 1)
        atom_predicate = np.full(v.n_atoms, -1, np.int64)
        is_atom = form == Form.ATOM
        atom_predicate[v.atom_offsets[name[is_atom]] + lo[is_atom]] = np.flatnonzero(is_atom)

        at_first = np.zeros(-(-n // WORD_BITS) * WORD_BITS, np.uint8)
        at_first[: n - 1], at_first[n - 1] = form == Form.ABSENT, 1

        listed = np.flatnonzero(np.isin(form, (Form.IN_LIST, Form.OUT_OF_LIST)))
        sets = c.set_offsets[name[listed]] + lo[listed]
        starts, lengths = c.set_code_offsets[sets], np.diff(c.set_code_offsets)[sets]
        code = c.set_codes[take_ranges(starts, lengths)]
        owner = np.repeat(listed, lengths)
        run = np.repeat(np.arange(len(run_first)), np.diff(run_offsets))[owner]
        order = np.lexsort((owner, code, run))

        popularity = np.diff(c.offsets) / max(int(np.diff(c.offsets).max(initial=0)), 1)
        share = _shares(table, name, kind, lo, hi)
        share[listed] = lengths / v.n_codes[name[listed]]
        opposite = np.isin(form, (Form.UNEQUAL, Form.OUT_OF_LIST))
        share[opposite] = 1 - share[opposite]
        chance = np.append(np.where(form == Form.ABSENT, 1.0, popularity[name] * share), 1.0)
        return cls(
            of_row=of_row,
            lo=lo,
            hi=hi,
            chance=chance,
            at_first=np.packbits(at_first, bitorder="little").view(np.uint64),
            name_runs=np.searchsorted(name[run_first], np.arange(v.n_names + 1)),
            run_kind=typed_forms(kind[run_first]),
            run_offsets=run_offsets,
            segment_ends=np.stack([v.segment(Type.NUMBER)[1] + 1, v.segment(Type.STRING)[1]], axis=1).reshape(-1),
            atom_predicate=atom_predicate,
            listed_offsets=offsets_of(np.bincount(run, minlength=len(run_first))),
            listed_code=code[order],
            listed_predicate=owner[order].astype(PREDICATE),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in vars(self).values())


def _changes(items: Array) -> Array:
    """i64: the index of the first item and of every item that differs from the one before it."""
    return np.flatnonzero(np.append(items[:1] == items[:1], items[1:] != items[:-1]))


def _shares(table: Table, name: Array, kind: Array, lo: Array, hi: Array) -> Array:
    """f64: the fraction of its type's codes in each predicate's interval; one half for an atom."""
    share = np.empty(len(name))
    for type_ in Type:
        mine = np.flatnonzero(TYPE_OF_KIND[kind] == type_)
        first, last = table.vocabulary.segment(type_)
        width = (last - first + 1)[name[mine]]
        share[mine] = (hi[mine].astype(np.int64) - lo[mine] + 1) / width
    share[IS_ATOM[kind]] = 0.5
    return share


@jit
def _number(offsets: Array, kind: Array, lo: Array, hi: Array, of_row: Array) -> None:
    """Fill `of_row`."""
    n = 0
    for name in range(len(offsets) - 1):
        for row in range(offsets[name], offsets[name + 1]):
            is_first = row == offsets[name] or kind[row] != kind[row - 1]
            if is_first or lo[row] != lo[row - 1] or hi[row] != hi[row - 1]:
                n += 1
            of_row[row] = n - 1
