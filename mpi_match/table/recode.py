"""Recoding from one code space to a larger one: how a table continues when new operands are added.

A code is a position among the operands of its name (`vocabulary`), so a new operand shifts the codes above it and splits a
gap in two.  Here 25 is added to "temp":

    operands      20        30                      20        25        30
    codes     0    1    2    3    4      become 0    1    2    3    4    5    6

An operand's code has one successor.  The gap between 20 and 30 has three; the right one follows from the operand that the
bound was made from: a lower bound is just above its operand, an upper bound just below it.

    temp > 20 is [2, 4] and becomes [2, 6]          as a lower bound, 2 is "just above 20", which is 2
    temp < 30 is [0, 2] and becomes [0, 4]          as an upper bound, 2 is "just below 30", which is 4

So a recoding is two flat arrays over all codes of all names, one for lower bounds and one for upper ones, and a table is
recoded by two look-ups for each constraint.  Names, operands and atoms keep their order, hence so do constraints: nothing is
sorted again, and filters and interfaces keep their ids.

`join` merges two vocabularies.  The first may be large (a table's), the second should be small (that of filters to be
added): its new items are searched for and inserted; the first is only copied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners
from mpi_match.arrays.strings import Strings
from mpi_match.table.constraints import CODE, Constraints
from mpi_match.table.kinds import IS_ATOM, IS_LISTED
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Recoding:
    """The position in `target`, which contains all of `source`, of every item of `source`.

    name           i64[n_names]     name id
    number_place   i64[numbers]     position of each numeric operand among its name's
    string_place   i64[strings]     likewise for strings
    atom_place     i64[atoms]       likewise for atoms
    """

    source: Vocabulary
    target: Vocabulary
    name: Array
    number_place: Array
    string_place: Array
    atom_place: Array

    @property
    def is_identity(self) -> bool:
        """Tells whether every code stays the same."""
        return self.target is self.source

    @cached_property
    def code_offsets(self) -> Array:
        """i64[n_names + 1]: codes of each name in `as_lo` and `as_hi`."""
        return offsets_of(self.source.n_codes)

    @cached_property
    def as_lo(self) -> Array:
        """u32[codes]: the new code of each code as a lower bound (of an operand's code, as any bound)."""
        return self._bounds(lower=True)

    @cached_property
    def as_hi(self) -> Array:
        """u32[codes]: the new code of each code as an upper bound."""
        return self._bounds(lower=False)

    def _bounds(self, lower: bool) -> Array:
        first = self.code_offsets[:-1]
        new = self.target
        n_numbers, n_strings = new.n_numbers[self.name], new.n_strings[self.name]
        codes = np.zeros(int(self.code_offsets[-1]), CODE)
        _fill(codes, first, 0 * first, self.source.number_offsets, self.number_place, n_numbers, lower)
        nan = first + 2 * self.source.n_numbers + 1
        codes[nan] = 2 * n_numbers + 1
        first_string = 2 * n_numbers + 2
        _fill(codes, nan + 1, first_string, self.source.string_offsets, self.string_place, n_strings, lower)
        for beyond in (1, 2, 3):  # false, true and a list
            codes[nan + 1 + 2 * self.source.n_strings + beyond] = first_string + 2 * n_strings + beyond
        return codes

    def constraints(self, rows: Constraints) -> Constraints:
        """Constraints of `source` in the vocabulary `target`, in the same order."""
        per_name = np.diff(rows.offsets)
        if rows.only_presence and not len(rows.set_codes):
            return Constraints.of_presence(self._spread(per_name), rows.filter_id, self.target.n_codes)
        coded = _IS_CODED[rows.kind]
        first = np.repeat(self.code_offsets[:-1], per_name)
        if coded.all():
            lo, hi = self.as_lo[first + rows.lo], self.as_hi[first + rows.hi]
        else:
            lo, hi = rows.lo.copy(), rows.hi.copy()
            lo[coded], hi[coded] = self.as_lo[first[coded] + rows.lo[coded]], self.as_hi[first[coded] + rows.hi[coded]]
            atomic = np.flatnonzero(IS_ATOM[rows.kind])
            atom = self.source.atom_offsets[rows.name_id[atomic]] + rows.lo[atomic]
            lo[atomic] = hi[atomic] = self.atom_place[atom]
        set_name = owners(rows.set_offsets)[owners(rows.set_code_offsets)]
        return Constraints(
            offsets=self._spread(per_name),
            kind=rows.kind,
            lo=lo,
            hi=hi,
            filter_id=rows.filter_id,
            set_offsets=self._spread(np.diff(rows.set_offsets)),
            set_code_offsets=rows.set_code_offsets,
            set_codes=self.as_lo[self.code_offsets[set_name] + rows.set_codes],
        )

    def table(self, table: Table) -> Table:
        """A table with the vocabulary `source`, in the vocabulary `target`: the same filters and interfaces under the same
        ids.
        """
        if self.is_identity:
            return table
        return Table(self.target, self.constraints(table.constraints), table.filters, table.labels, table.metadata)

    def _spread(self, lengths: Array) -> Array:
        """Offsets over the names of `target`, from the lengths of lists over those of `source`."""
        spread = np.zeros(self.target.n_names, np.int64)
        spread[self.name] = lengths
        return offsets_of(spread)


_IS_CODED = ~IS_LISTED & ~IS_ATOM
"""Kinds with codes in `lo` and `hi`."""


def _fill(codes: Array, first: Array, new_first: Array, offsets: Array, place: Array, n_new: Array, lower: bool) -> None:
    """Codes of one type: operands, and the gaps between them as bounds.

    `first` and `new_first` i64[n_names] are the code of the first gap before (in `codes`) and after, `offsets` and `place`
    the operands, `n_new` how many each name has afterwards.
    """
    if lower:
        codes[first] = new_first
    else:
        codes[first + 2 * np.diff(offsets)] = new_first + 2 * n_new
    name = owners(offsets)
    at = first[name] + 2 * (np.arange(len(name)) - offsets[name]) + 1
    new = new_first[name] + 2 * place + 1
    codes[at] = new
    codes[at + (1 if lower else -1)] = new + (1 if lower else -1)


Joined = tuple[Vocabulary, Recoding, Recoding]
"""The union of two vocabularies, and the recoding of each to it."""


def join(base: Vocabulary, other: Vocabulary) -> Joined:
    """The union of two vocabularies, and the recoding of each to it.

    The union is the object `base` itself when `other` adds nothing.
    """
    pool, base_name, other_name = _merge_names(base, other)
    merge = _Merge(len(pool), base_name, other_name)
    numbers = merge(base.number_offsets, other.number_offsets, lambda b, o: _find_numbers(base, other, b, o))
    strings = merge(base.string_offsets, other.string_offsets, lambda b, o: _find_strings(base, other, b, o))
    atoms = merge(base.atom_offsets, other.atom_offsets, lambda b, o: _find(base.atom_keys(b), other.atom_keys(o)))

    joint = base
    if len(pool) > base.n_names or numbers.n_fresh or strings.n_fresh or atoms.n_fresh:
        joint = Vocabulary(
            names=pool,
            number_offsets=numbers.offsets,
            numbers=numbers.pick(base.numbers, other.numbers),
            string_offsets=strings.offsets,
            strings=strings.pick_strings(base.strings, other.strings),
            atom_offsets=atoms.offsets,
            atom_op=atoms.pick(base.atom_op, other.atom_op),
            atoms=atoms.pick_strings(base.atoms, other.atoms),
        )
    return (
        joint,
        Recoding(base, joint, base_name, numbers.base_place, strings.base_place, atoms.base_place),
        Recoding(other, joint, other_name, numbers.other_place, strings.other_place, atoms.other_place),
    )


def _merge_names(base: Vocabulary, other: Vocabulary) -> tuple[Strings, Array, Array]:
    """The names of both, sorted, and the position among them of each name of either."""
    known = np.array([base.name_id(name) for name in other.names], np.int64)
    is_fresh = known < 0
    fresh = other.names.take(np.flatnonzero(is_fresh))
    at = np.array([bisect_left(base.names, name) for name in fresh], np.int64)
    base_name = np.arange(base.n_names) + np.cumsum(np.bincount(at, minlength=base.n_names + 1))[: base.n_names]
    fresh_name = at + np.arange(len(at))
    other_name = np.append(base_name, 0)[known]
    other_name[is_fresh] = fresh_name
    order = np.empty(base.n_names + len(fresh), np.int64)
    order[base_name], order[fresh_name] = np.arange(base.n_names), base.n_names + np.arange(len(fresh))
    return Strings.concat([base.names, fresh]).take(order) if len(fresh) else base.names, base_name, other_name


FEWER = 50
"""Strings are searched for one by one among this many times as many others, and sorted together with fewer."""

Found = tuple[Array, Array]
"""For each item of `other` on a name: its position among those of `base`, or its insertion point; and whether `base` has it.
"""


def _find(base: Sequence[Any], other: Sequence[Any]) -> Found:
    """Both are ascending."""
    at = [bisect_left(base, item) for item in other]
    there = [i < len(base) and base[i] == item for i, item in zip(at, other, strict=True)]
    return np.array(at, np.int64), np.array(there, bool)


def _find_strings(base: Vocabulary, other: Vocabulary, base_name: int, other_name: int) -> Found:
    n_base, n_other = (int(each.n_strings[name]) for each, name in ((base, base_name), (other, other_name)))
    if n_base > FEWER * n_other:
        return _find(base.operands_of(base_name), other.operands_of(other_name))
    first, last = (int(i) for i in base.string_offsets[base_name : base_name + 2])
    start, end = (int(i) for i in other.string_offsets[other_name : other_name + 2])
    both = Strings.concat([base.strings.between(first, last), other.strings.between(start, end)])
    order = both.order()
    place = np.flatnonzero(order >= n_base)  # ascending, as both are
    is_above = np.append(True, both.take(order).is_below_next())[place]
    return place - np.arange(n_other) - ~is_above, ~is_above


def _find_numbers(base: Vocabulary, other: Vocabulary, base_name: int, other_name: int) -> Found:
    there = base.numbers[base.number_offsets[base_name] : base.number_offsets[base_name + 1]]
    wanted = other.numbers[other.number_offsets[other_name] : other.number_offsets[other_name + 1]]
    at = np.searchsorted(there, wanted)
    return at, np.append(there, np.nan)[at] == wanted


class _Merged(NamedTuple):
    """Two sorted pools as one.  `order` is the source of each item: an index into `base`, or (beyond those) into `other`."""

    offsets: Array
    order: Array
    base_place: Array
    other_place: Array
    n_fresh: int

    def pick(self, base: Array, other: Array) -> Array:
        return np.concatenate([base, other])[self.order] if self.n_fresh else base

    def pick_strings(self, base: Strings, other: Strings) -> Strings:
        return Strings.concat([base, other]).take(self.order) if self.n_fresh else base


@dataclass(frozen=True)
class _Merge:
    """Merges the items that two vocabularies have for each name; `base_name` and `other_name` are their names among all."""

    n_names: int
    base_name: Array
    other_name: Array

    def __call__(self, base_offsets: Array, other_offsets: Array, find: Callable[[int, int], Found]) -> _Merged:
        """`find(base name, other name)` looks up the items of one name; it is called only for names with items in
        `other`.
        """
        n_base = int(base_offsets[-1])
        before = np.searchsorted(self.base_name, self.other_name)
        there = np.append(self.base_name, -1)[before] == self.other_name
        at = base_offsets[before][owners(other_offsets)]  # insertion point in `base`
        found = np.zeros(len(at), bool)
        for name in np.flatnonzero(there & (np.diff(other_offsets) > 0)).tolist():
            run = slice(int(other_offsets[name]), int(other_offsets[name + 1]))
            place, found[run] = find(int(before[name]), name)
            at[run] += place
        fresh = np.flatnonzero(~found)

        base_at = np.arange(n_base) + np.cumsum(np.bincount(at[fresh], minlength=n_base + 1))[:n_base]
        other_at = np.append(base_at, 0)[at]
        other_at[fresh] = at[fresh] + np.arange(len(fresh))
        order = np.empty(n_base + len(fresh), np.int64)
        order[base_at] = np.arange(n_base)
        order[other_at[fresh]] = n_base + fresh

        other_owner = self.other_name[owners(other_offsets)]
        lengths = np.bincount(other_owner[fresh], minlength=self.n_names)
        lengths[self.base_name] += np.diff(base_offsets)
        offsets = offsets_of(lengths)
        base_owner = np.repeat(self.base_name, np.diff(base_offsets))
        return _Merged(offsets, order, base_at - offsets[base_owner], other_at - offsets[other_owner], len(fresh))
