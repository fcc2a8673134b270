"""Constraints encoded and stored once, grouped by name: the table `Constraints` of CCM (Margara & Cugola, DEBS 2011).

Rows are sorted by (name, type, op, operand, filter); name n owns rows offsets[n] to offsets[n + 1].  The meaning of a
row follows from its kind (`kinds`) and the form of its operator, in the code space of its name (see `vocabulary`):

    form                                  lo, hi
    EQUAL  BELOW  ABOVE  WITHIN  PREFIX   satisfied by codes lo <= x <= hi
    UNEQUAL                               satisfied by the codes of the type outside lo <= x <= hi
    IN_LIST  OUT_OF_LIST                  set number lo (= hi) of that name: codes in it, or codes of the type outside it
    ATOM                                  atom number lo (= hi) of that name
    EXISTS  ABSENT                        lo <= x <= hi is any code: the name is there, or is not

Where all rows are `exists`, as in a table of tag sets, `kind`, `lo` and mostly `hi` are one number seen through an array
without strides; files have only the filters of such rows (`split`, `joined`).

`encode` turns the constraints of `Subscriptions` into this form for a *range of names*.  Names are independent, so Spark
encodes each range in a task of its own, and joining the ranges is concatenation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, distinct, first_rows, offsets_of, owners, smallest_unsigned, take_ranges
from mpi_match.arrays.exact import values_of
from mpi_match.arrays.strings import Strings, sort_distinct
from mpi_match.model import Constraint, Op, Operand, Type
from mpi_match.operators import Form
from mpi_match.table.kinds import (
    IS_ATOM,
    IS_LISTED,
    IS_OF_NULLS,
    KIND_OF_PRESENCE,
    OP_OF_KIND,
    TYPE_OF_KIND,
    check_kinds,
    forms_of,
    kind_of,
    kinds_where,
    parts_of,
)
from mpi_match.table.virtual_names import to_constraint
from mpi_match.table.vocabulary import ATOM_OPS, Vocabulary

CODE = np.dtype(np.uint32)
FILTER_ID = np.dtype(np.uint32)
KIND = np.dtype(np.uint8)
ENCODED_AT_ONCE = 2**17
"""Rows processed together: intermediate results stay in a core's cache and take no memory of the size of a column."""
FEW = 2**12
"""Largest number of values that fit in a core's cache."""
ROW_BITS = 63
"""Most bits of packed rows that are sorted as integers."""
MANY = 2**20
"""Largest number of (name, value) pairs for which one flag each is allocated."""


_HAS_LO, _HAS_HI = kinds_where(lambda record: record.has_low), kinds_where(lambda record: record.has_high)
_EXCLUDES_LO, _EXCLUDES_HI = (kinds_where(lambda record, end=end: record.excludes[end]) for end in range(2))  # type: ignore[misc]
_LAST_OF_PRESENCE = kind_of(Type.ANY, Op.ABSENT)
"""The kinds up to this one are those of `exists` and `absent`."""
_IS_PREFIX = kinds_where(lambda record: record.form is Form.PREFIX)
_ATOM_RANK = np.array([ATOM_OPS.index(op) if op in ATOM_OPS else 0 for op in range(max(ATOM_OPS) + 1)])
"""i64, by operator: its index in ATOM_OPS."""


@dataclass(frozen=True)
class Constraints:
    """c rows sorted by (name, kind, lo, hi, filter), and the sets that `in` and `not in` refer to.

    offsets                   i64[n_names + 1]  rows of each name
    kind, lo, hi, filter_id   u8, u32, u32, u32 [c]
    set_offsets               i64[n_names + 1]  sets of each name
    set_code_offsets          i64[n_sets + 1]   codes of each set
    set_codes                 u32               ascending within a set
    """

    offsets: Array
    kind: Array
    lo: Array
    hi: Array
    filter_id: Array
    set_offsets: Array
    set_code_offsets: Array
    set_codes: Array

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def only_presence(self) -> bool:
        """Tells whether all rows only ask for presence."""
        kind = self.kind if any(self.kind.strides) else self.kind[:1]
        return bool((kind == KIND_OF_PRESENCE).all())

    @classmethod
    def of_presence(cls, offsets: Array, filter_id: Array, n_codes: Array) -> Constraints:
        """Rows that only ask for presence; `n_codes` i64[n_names] as in `Vocabulary`."""
        none = np.zeros(len(offsets), np.int64)
        return cls(
            offsets=offsets,
            kind=np.broadcast_to(KIND_OF_PRESENCE, len(filter_id)),
            lo=np.broadcast_to(CODE.type(0), len(filter_id)),
            hi=_last_codes(n_codes, offsets),
            filter_id=filter_id,
            set_offsets=none,
            set_code_offsets=none[:1],
            set_codes=np.zeros(0, CODE),
        )

    def split(self) -> tuple[Constraints, Array, Array]:
        """The rows that have a kind and an interval of their own; and for the rows that only ask for presence, the offsets
        i64[n_names + 1] of those of each name, and their filters u32.
        """
        if self.only_presence:
            nothing = {column: getattr(self, column)[:0] for column in ("kind", "lo", "hi", "filter_id")}
            return replace(self, offsets=0 * self.offsets, **nothing), self.offsets, self.filter_id
        asks = self.kind == KIND_OF_PRESENCE
        if not asks.any():
            return self, 0 * self.offsets, self.filter_id[:0]
        offsets, rest = offsets_of(asks)[self.offsets], ~asks
        columns = {column: getattr(self, column)[rest] for column in ("kind", "lo", "hi", "filter_id")}
        return replace(self, offsets=self.offsets - offsets, **columns), offsets, self.filter_id[asks]

    @classmethod
    def joined(cls, others: Constraints, offsets: Array, filter_id: Array, n_codes: Array) -> Constraints:
        """The inverse of `split`; `n_codes` i64[n_names] as in `Vocabulary`."""
        presence = cls.of_presence(offsets, filter_id, n_codes)
        if not len(others):
            sets = {column: getattr(others, column) for column in ("set_offsets", "set_code_offsets", "set_codes")}
            return replace(presence, **sets)
        joint = others.offsets + offsets
        asks = np.zeros(len(others) + len(filter_id), bool)
        asks[take_ranges(joint[:-1], np.diff(offsets))] = True
        columns: dict[str, Array] = {}
        for column in ("kind", "lo", "hi", "filter_id"):
            columns[column] = np.empty(len(asks), getattr(others, column).dtype)
            columns[column][asks], columns[column][~asks] = getattr(presence, column), getattr(others, column)
        return replace(others, offsets=joint, **columns)

    def contiguous(self) -> tuple[Array, Array, Array]:
        """`kind`, `lo` and `hi`, each in memory of its own, as compiled code expects them.

        A column of one number is read-only, and contiguous if it has one row; then it is copied all the same: for read-only
        arrays Numba would compile its callers once more.
        """
        kind, lo, hi = (
            column.copy() if len(column) < 2 else np.ascontiguousarray(column) for column in (self.kind, self.lo, self.hi)
        )
        return kind, lo, hi

    @property
    def form(self) -> Array:
        """u8[c]: form of the operator of each row (`operators.Form`).  Raises ModelError for a row of an unknown kind."""
        return forms_of(self.kind)

    @property
    def type(self) -> Array:
        """u8[c]: type of each row's operand."""
        return TYPE_OF_KIND[self.kind]

    @property
    def name_id(self) -> Array:
        """i64[c]: name of each row."""
        return owners(self.offsets)

    def decode(self, row: int, vocabulary: Vocabulary) -> Constraint:
        """The row as a constraint of the model: the inverse of `encode`."""
        name = int(np.searchsorted(self.offsets, row, side="right")) - 1
        type_, op = parts_of(int(self.kind[row]))
        return to_constraint(vocabulary.names[name], type_, op, self._operand(row, name, type_, op, vocabulary))

    def _operand(self, row: int, name: int, type_: Type, op: Op, vocabulary: Vocabulary) -> Operand:
        lo, hi = int(self.lo[row]), int(self.hi[row])
        if type_ is Type.ANY:
            return None
        record = op.record
        if record.form is Form.ATOM:
            return vocabulary.atoms[int(vocabulary.atom_offsets[name]) + lo].decode()

        def value(code: int) -> float | str | bool:
            index = (code - int(vocabulary.segment(type_)[0][name])) // 2
            if type_ is Type.NUMBER:
                at = int(vocabulary.number_offsets[name]) + index
                return values_of(vocabulary.numbers[at : at + 1])[0]
            if type_ is Type.STRING:
                return vocabulary.strings[int(vocabulary.string_offsets[name]) + index].decode()
            return bool(code - int(vocabulary.segment(type_)[0][name]))

        if record.is_listed:
            at = int(self.set_offsets[name]) + lo
            codes = self.set_codes[self.set_code_offsets[at] : self.set_code_offsets[at + 1]]
            return tuple(value(int(code)) for code in codes)
        if record.form is Form.PREFIX and lo == int(vocabulary.segment(type_)[0][name]):
            return ""
        low, high = lo - record.excludes[0], hi + record.excludes[1]
        if record.form is Form.WITHIN:
            return value(low), value(high)
        return value(low if record.has_low else high)

    def take(self, rows: Array, filter_id: Array) -> Constraints:
        """Some rows (ascending), with other filter ids, and the sets that they refer to."""
        n_names = len(self.offsets) - 1
        name = np.searchsorted(self.offsets, rows, side="right") - 1
        lo, hi = self.lo[rows], self.hi[rows]
        listed = np.flatnonzero(IS_LISTED[self.kind[rows]])
        sets, place = np.unique(self.set_offsets[name[listed]] + lo[listed], return_inverse=True)
        set_name = np.searchsorted(self.set_offsets, sets, side="right") - 1
        set_offsets = offsets_of(np.bincount(set_name, minlength=n_names))
        lo[listed] = hi[listed] = place - set_offsets[name[listed]]
        starts = self.set_code_offsets[sets]
        lengths = self.set_code_offsets[sets + 1] - starts
        return Constraints(
            offsets=offsets_of(np.bincount(name, minlength=n_names)),
            kind=self.kind[rows],
            lo=lo,
            hi=hi,
            filter_id=filter_id.astype(FILTER_ID),
            set_offsets=set_offsets,
            set_code_offsets=offsets_of(lengths),
            set_codes=self.set_codes[take_ranges(starts, lengths)],
        )

    @staticmethod
    def concat(parts: Sequence[Constraints]) -> Constraints:
        """The constraints of consecutive ranges of names."""

        def join(field: str, dtype: np.dtype) -> Array:
            return np.concatenate([np.zeros(0, dtype), *(getattr(p, field) for p in parts)])

        def offsets(field: str) -> Array:
            return offsets_of(np.concatenate([np.zeros(0, np.int64), *(np.diff(getattr(p, field)) for p in parts)]))

        return Constraints(
            offsets=offsets("offsets"),
            kind=join("kind", KIND),
            lo=join("lo", CODE),
            hi=join("hi", CODE),
            filter_id=join("filter_id", FILTER_ID),
            set_offsets=offsets("set_offsets"),
            set_code_offsets=offsets("set_code_offsets"),
            set_codes=join("set_codes", CODE),
        )


def encode(
    names: Strings,
    name: Array,
    kind: Array,
    operand_offsets: Array,
    number: Array,
    string: Array,
    strings: Strings,
    filter_id: Array,
) -> tuple[Vocabulary, Constraints]:
    """Vocabulary and constraints of a range of names.

    Parameters: the columns of `Subscriptions`, except that `names` is sorted and every name in it is used; `filter_id`
    i64[c] is the filter of each constraint.  The constraints may come in any order.
    """
    check_kinds(kind)
    if IS_OF_NULLS[kind].any():
        operand_offsets, number, string, strings = _with_empty_texts(kind, operand_offsets, number, string, strings)
    n_names, n_rows, n_operands = len(names), len(name), int(operand_offsets[-1])
    name = np.asarray(name)
    pool, pool_rank = sort_distinct(strings)

    def sorts_of(rows: slice) -> tuple[slice, Array, Array, tuple[Array, Array, Array]]:
        """The operands of some constraints: their range, their operators and names, and the positions of numbers, strings
        and atoms.
        """
        where = slice(int(operand_offsets[rows.start]), int(operand_offsets[rows.stop]))
        row = owners(operand_offsets[rows.start : rows.stop + 1]) + rows.start
        type_, op, is_atom = TYPE_OF_KIND[kind[row]], OP_OF_KIND[kind[row]], IS_ATOM[kind[row]]
        sorts = type_ == Type.NUMBER, (type_ == Type.STRING) & ~is_atom, is_atom
        numeric, textual, atomic = (np.flatnonzero(sort) for sort in sorts)
        return where, op, np.asarray(name[row], np.int64), (numeric, textual, atomic)

    numbers = []
    for rows in _blocks(n_rows):
        where, _, _, (numeric, _, _) = sorts_of(rows)
        numbers.append(distinct(number[where][numeric] + 0.0))
    values = _distinct(numbers, number.dtype)

    # first the rank of every operand among all of its sort, then its rank among those of its name
    code = np.empty(n_operands, CODE)
    pairs = [_Pairs(n_names, n) for n in (len(values), len(pool), len(ATOM_OPS) * len(pool))]
    for rows in _blocks(n_rows):
        where, op, operand_name, sorts = sorts_of(rows)
        numeric, textual, atomic = sorts
        code[where][numeric] = _places(values, number[where][numeric] + 0.0)
        code[where][textual] = pool_rank[string[where][textual]]
        code[where][atomic] = pool_rank[string[where][atomic]] + len(pool) * _ATOM_RANK[op[atomic]]
        for at, seen in zip(sorts, pairs, strict=True):
            seen.add(operand_name[at], code[where][at])
    (number_offsets, number_pick), (string_offsets, string_pick), (atom_offsets, atom_pick) = [p.finish() for p in pairs]

    vocabulary = Vocabulary(
        names=names,
        number_offsets=number_offsets,
        numbers=values[number_pick],
        string_offsets=string_offsets,
        strings=pool.take(string_pick),
        atom_offsets=atom_offsets,
        atom_op=np.array(ATOM_OPS, np.uint8)[atom_pick // max(len(pool), 1)],
        atoms=pool.take(atom_pick % max(len(pool), 1)),
    )

    first_string = vocabulary.segment(Type.STRING)[0]
    for rows in _blocks(n_rows):
        where, _, operand_name, (numeric, textual, atomic) = sorts_of(rows)
        on_number, on_string, on_atom = (operand_name[at] for at in (numeric, textual, atomic))
        code[where][numeric] = 2 * pairs[0].index(on_number, code[where][numeric]) + 1
        code[where][textual] = first_string[on_string] + 2 * pairs[1].index(on_string, code[where][textual]) + 1
        code[where][atomic] = pairs[2].index(on_atom, code[where][atomic])
    first_boolean = vocabulary.segment(Type.BOOLEAN)[0]
    for rows in _blocks(n_rows):
        boolean = np.flatnonzero(TYPE_OF_KIND[kind[rows]] == Type.BOOLEAN)
        place = operand_offsets[rows][boolean]
        code[place] = first_boolean[name[rows][boolean]] + number[place].real.astype(np.int64)

    set_offsets, set_code_offsets, set_codes, listed, set_index = _sets(n_names, name, kind, operand_offsets, code)
    lo, hi = _intervals(vocabulary, name, kind, operand_offsets, code)
    lo[listed] = hi[listed] = set_index
    ordered = _sort_rows(n_names, name, kind, lo, hi, np.asarray(filter_id))
    encoded = Constraints(*ordered, set_offsets, set_code_offsets, set_codes)
    if encoded.only_presence:
        encoded = Constraints.of_presence(encoded.offsets, encoded.filter_id, vocabulary.n_codes)
    return vocabulary, encoded


def _with_empty_texts(
    kind: Array, operand_offsets: Array, number: Array, string: Array, strings: Strings
) -> tuple[Array, Array, Array, Strings]:
    """The columns of operands with an empty text for each constraint that nulls satisfy: the operand of its atom."""
    lengths = np.diff(operand_offsets)
    of_nulls = np.flatnonzero(IS_OF_NULLS[kind])
    at = operand_offsets[of_nulls]
    lengths[of_nulls] = 1
    with_empty = Strings.concat([strings, Strings.of((b"",))])
    return offsets_of(lengths), np.insert(number, at, 0.0), np.insert(string, at, len(strings)), with_empty


def _last_codes(n_codes: Array, offsets: Array) -> Array:
    """u32[c]: the last code of the name of each row."""
    last = (n_codes - 1).astype(CODE)
    if len(last) and (last == last[0]).all():
        return np.broadcast_to(last[0], int(offsets[-1]))
    return np.repeat(last, np.diff(offsets))


def _blocks(n: int) -> Iterator[slice]:
    """Ranges of rows."""
    return (slice(at, min(at + ENCODED_AT_ONCE, n)) for at in range(0, n, ENCODED_AT_ONCE))


class _Pairs:
    """The distinct (name, rank) that occur.  `add` all of them, then `finish`, then `index`."""

    def __init__(self, n_names: int, n_ranks: int) -> None:
        self._n_names, self._n_ranks = n_names, max(n_ranks, 1)
        self._seen = np.zeros(n_names * n_ranks, bool) if n_names * n_ranks <= MANY else None
        self._parts: list[Array] = []

    def add(self, name: Array, rank: Array) -> None:
        if self._seen is None:
            self._parts.append(distinct(name * self._n_ranks + rank))
        else:
            self._seen[name * self._n_ranks + rank] = True

    def finish(self) -> tuple[Array, Array]:
        """Offsets per name, and the rank of each pair."""
        self._pairs = _distinct(self._parts, np.int64) if self._seen is None else np.flatnonzero(self._seen)
        self._offsets = np.searchsorted(self._pairs, np.arange(self._n_names + 1) * self._n_ranks)
        if self._seen is not None:
            self._place = np.cumsum(self._seen) - 1
        return self._offsets, self._pairs % self._n_ranks

    def index(self, name: Array, rank: Array) -> Array:
        """The rank of each pair among those of its name."""
        pair = name * self._n_ranks + rank
        place = _places(self._pairs, pair) if self._seen is None else self._place[pair]
        return place - self._offsets[name]


def _distinct(parts: list[Array], dtype: Any) -> Array:
    """The distinct values of all parts, ascending."""
    return distinct(np.concatenate([np.empty(0, dtype), *parts]))


def _places(values: Array, items: Array) -> Array:
    """The position of each item in the ascending `values`, which contain all items.  Many are looked up in sorted order."""
    if len(values) <= FEW:
        return np.searchsorted(values, items)
    wanted, place = np.unique(items, return_inverse=True)
    return np.searchsorted(values, wanted)[place]


def _intervals(vocabulary: Vocabulary, name: Array, kind: Array, operand_offsets: Array, code: Array) -> tuple[Array, Array]:
    """`lo` and `hi` u32[c] of every constraint; undefined for lists."""
    segments = np.array([vocabulary.segment(each) for each in Type])
    padded = np.append(code, CODE.type(0))
    every_lo, every_hi = np.empty(len(name), CODE), np.empty(len(name), CODE)
    for rows in _blocks(len(name)):
        kinds, starts = kind[rows], operand_offsets[rows.start : rows.stop + 1]
        type_ = TYPE_OF_KIND[kinds]
        first, last = segments[type_, 0, name[rows]], segments[type_, 1, name[rows]]
        n_operands = np.diff(starts)
        low, high = (padded[at].astype(np.int64) for at in (starts[:-1], np.maximum(starts[1:] - 1, 0)))
        is_all = _IS_PREFIX[kinds] & (n_operands == 1)  # the empty prefix, which has no bound
        every_lo[rows] = np.where(_HAS_LO[kinds] & ~is_all, low + _EXCLUDES_LO[kinds], first)
        every_hi[rows] = np.where(_HAS_HI[kinds] & ~is_all, high - _EXCLUDES_HI[kinds], last)
    return every_lo, every_hi


def _sort_rows(
    n_names: int, name: Array, kind: Array, lo: Array, hi: Array, filter_id: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Offsets of the names, and kind, lo, hi and filter of the rows in the order of the table.

    Conditions have many rows that only ask for presence or absence.  Their interval is any code of their name, and their
    kinds are below all others: they are sorted by themselves, with fewer bits.
    """
    columns = (name, kind, lo, hi, filter_id)
    asks = kind <= _LAST_OF_PRESENCE
    if not asks.any() or asks.all():
        return _sorted_rows(n_names, columns)
    groups = [_sorted_rows(n_names, tuple(column[rows] for column in columns)) for rows in (asks, ~asks)]
    offsets = groups[0][0] + groups[1][0]
    ordered = [np.empty(len(name), dtype) for dtype in (KIND, CODE, CODE, FILTER_ID)]
    for starts, group in zip((offsets[:-1], offsets[:-1] + np.diff(groups[0][0])), groups, strict=True):
        rows = take_ranges(starts, np.diff(group[0]))
        for column, of_group in zip(ordered, group[1:], strict=True):
            column[rows] = of_group
    return offsets, *ordered  # type: ignore[return-value]


def _sorted_rows(n_names: int, columns: tuple[Array, ...]) -> tuple[Array, Array, Array, Array, Array]:
    """`_sort_rows` of rows of one sort.

    A row that packs into one integer, with its name and its kind as the ranks among those that occur, is sorted itself, not
    by an index array, which would gather from all over memory.
    """
    name, kind, lo, hi, filter_id = columns
    names, name = _ranked(name)
    kinds, kind = _ranked(kind)
    columns = (name, kind, lo, hi, filter_id)
    widths = [int(column.max(initial=0)).bit_length() for column in columns]
    n_rows = np.zeros(n_names, np.int64)
    n_rows[names] = np.bincount(name, minlength=len(names))
    offsets = offsets_of(n_rows)
    if sum(widths) > ROW_BITS:
        order = np.lexsort((filter_id, lo.astype(np.int64) << 32 | hi, name.astype(np.int64) << 8 | kind))
        return offsets, kinds.astype(KIND)[kind[order]], lo[order], hi[order], filter_id[order].astype(FILTER_ID)
    packed = np.empty(len(name), np.uint64)
    for rows in _blocks(len(name)):
        packed[rows] = 0
        for column, width in zip(columns, widths, strict=True):
            packed[rows] = packed[rows] << np.uint64(width) | column[rows].astype(np.uint64)
    packed.sort()
    ordered = [np.empty(len(packed), dtype) for dtype in (KIND, CODE, CODE, FILTER_ID)]
    for rows in _blocks(len(packed)):
        rest = packed[rows]
        for column, width in zip(reversed(ordered), reversed(widths), strict=False):
            column[rows] = rest & np.uint64((1 << width) - 1)
            rest = rest >> np.uint64(width)
    ordered[0] = kinds.astype(KIND)[ordered[0]]
    return offsets, *ordered  # type: ignore[return-value]


def _ranked(numbers: Array) -> tuple[Array, Array]:
    """The distinct numbers i64, ascending, which are small; and the rank of each number among them."""
    used = np.bincount(numbers) > 0
    values = np.flatnonzero(used)
    rank = np.cumsum(used, dtype=np.uint32) - np.uint32(1)
    return values, rank[numbers].astype(smallest_unsigned(len(values)))


def _sets(
    n_names: int, name: Array, kind: Array, operand_offsets: Array, code: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Distinct operand lists by (name, codes).

    Returns offsets of the sets of each name, offsets of the codes of each set, the codes; and the list constraints, and for
    each the position of its set among those of its name.
    """
    rows = np.flatnonzero(IS_LISTED[kind])
    starts, lengths = operand_offsets[rows], operand_offsets[rows + 1] - operand_offsets[rows]
    bounds = offsets_of(lengths + 1)
    words = np.empty(int(bounds[-1]), ">u4")  # their bytes have the order of the words
    is_name = first_rows(bounds)
    words[is_name], words[~is_name] = name[rows], code[take_ranges(starts, lengths)]
    sets, place = sort_distinct(Strings(words.view(np.uint8), 4 * bounds))
    words, bounds = sets.data.view(">u4"), sets.offsets // 4
    is_name = first_rows(bounds)
    set_offsets = offsets_of(np.bincount(words[is_name], minlength=n_names))
    code_offsets, codes = bounds - np.arange(len(bounds)), words[~is_name].astype(CODE)
    index = place - set_offsets[name[rows]]
    return set_offsets, code_offsets, codes, rows, index
