"""Constraints encoded and stored once, grouped by name: the table `Constraints` of CCM (Margara & Cugola, DEBS 2011).

Rows are sorted by (name, type, op, operand, filter); name n owns rows offsets[n] to offsets[n + 1].  What a row means
follows from its kind (`type << 4 | op`), in the code space of its name (see `vocabulary`):

    op                                    lo, hi
    =  <  <=  >  >=  between  prefix      satisfied by codes lo <= x <= hi
    !=                                    satisfied by the codes of the type outside lo <= x <= hi
    in  not in                            set number lo (= hi) of that name: codes in it, or codes of the type outside it
    suffix  contains                      atom number lo (= hi) of that name
    exists  absent                        lo <= x <= hi is any code: the name is there, or is not

`encode` turns drafted constraints into this form for a *range of names*.  Names never look at each other, so the Spark stage
encodes each range in its own task, and joining the ranges is concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_match.arrays import Array, offsets_of, owners, take_ranges
from mpi_match.draft import KIND_SHIFT
from mpi_match.model import Constraint, Op, Operand, Type
from mpi_match.strings import Strings, sort_distinct
from mpi_match.vocabulary import ATOM_OPS, Vocabulary

CODE = np.dtype(np.uint32)
FILTER_ID = np.dtype(np.uint32)
KIND = np.dtype(np.uint8)


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

    @property
    def op(self) -> Array:
        """u8[c]: operator of each row."""
        return self.kind & ((1 << KIND_SHIFT) - 1)

    @property
    def type(self) -> Array:
        """u8[c]: type of each row's operand."""
        return self.kind >> KIND_SHIFT

    @property
    def name_id(self) -> Array:
        """i64[c]: name of each row."""
        return owners(self.offsets)

    def decode(self, row: int, vocabulary: Vocabulary) -> Constraint:
        """The row as a constraint of the model: the inverse of `encode`."""
        name = int(np.searchsorted(self.offsets, row, side="right")) - 1
        type_, op = Type(int(self.kind[row]) >> KIND_SHIFT), Op(int(self.kind[row]) & ((1 << KIND_SHIFT) - 1))
        return Constraint(vocabulary.names[name].decode(), type_, op, self._operand(row, name, type_, op, vocabulary))

    def _operand(self, row: int, name: int, type_: Type, op: Op, vocabulary: Vocabulary) -> Operand:
        lo, hi = int(self.lo[row]), int(self.hi[row])
        if type_ is Type.ANY:
            return None
        if op in ATOM_OPS:
            return vocabulary.atoms[int(vocabulary.atom_offsets[name]) + lo].decode()

        def value(code: int) -> float | str | bool:
            index = (code - int(vocabulary.segment(type_)[0][name])) // 2
            if type_ is Type.NUMBER:
                return float(vocabulary.numbers[vocabulary.number_offsets[name] + index])
            if type_ is Type.STRING:
                return vocabulary.strings[int(vocabulary.string_offsets[name]) + index].decode()
            return bool(code - int(vocabulary.segment(type_)[0][name]))

        if op in (Op.IN, Op.NOT_IN):
            at = int(self.set_offsets[name]) + lo
            codes = self.set_codes[self.set_code_offsets[at] : self.set_code_offsets[at + 1]]
            return tuple(value(int(code)) for code in codes)
        if op is Op.BETWEEN:
            return value(lo), value(hi)
        if op is Op.PREFIX and lo == int(vocabulary.segment(type_)[0][name]):
            return ""
        return value({Op.LT: hi + 1, Op.LE: hi, Op.GT: lo - 1}.get(op, lo))

    def take(self, rows: Array, filter_id: Array) -> Constraints:
        """Some rows (ascending), with other filter ids, and of the sets those that they refer to."""
        n_names = len(self.offsets) - 1
        name = np.searchsorted(self.offsets, rows, side="right") - 1
        lo, hi = self.lo[rows], self.hi[rows]
        listed = np.flatnonzero(np.isin(self.op[rows], (Op.IN, Op.NOT_IN)))
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

        def join(field: str, dtype: np.dtype[Any]) -> Array:
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
    names: Sequence[bytes],
    name: Array,
    kind: Array,
    operand_offsets: Array,
    number: Array,
    string: Array,
    strings: Sequence[bytes],
    filter_id: Array,
) -> tuple[Vocabulary, Constraints]:
    """Vocabulary and constraints of a range of names.

    Parameters: the columns of `Draft`, except that `names` is sorted and every name in it is used; `filter_id` i64[c] says
    which filter each constraint belongs to.  The constraints may come in any order.
    """
    n_names = len(names)
    name = np.asarray(name, np.int64)
    op, type_ = kind & ((1 << KIND_SHIFT) - 1), kind >> KIND_SHIFT
    owner = owners(operand_offsets)
    operand_name, operand_type = name[owner], type_[owner]
    is_atom = np.isin(op[owner], ATOM_OPS)

    numeric = operand_type == Type.NUMBER
    values, value_rank = np.unique(number[numeric] + 0.0, return_inverse=True)
    number_offsets, number_pick, number_index = _by_name(n_names, operand_name[numeric], value_rank, len(values))

    pool, pool_rank = sort_distinct(strings)
    textual = (operand_type == Type.STRING) & ~is_atom
    string_offsets, string_pick, string_index = _by_name(
        n_names, operand_name[textual], pool_rank[string[textual]], len(pool)
    )

    atom_rank = pool_rank[string[is_atom]] + len(pool) * (op[owner][is_atom] == ATOM_OPS[1])
    atom_offsets, atom_pick, atom_index = _by_name(n_names, operand_name[is_atom], atom_rank, 2 * len(pool))

    packed_pool = Strings.of(pool)
    vocabulary = Vocabulary(
        names=Strings.of(names),
        number_offsets=number_offsets,
        numbers=values[number_pick],
        string_offsets=string_offsets,
        strings=packed_pool.take(string_pick),
        atom_offsets=atom_offsets,
        atom_op=np.where(atom_pick >= len(pool), ATOM_OPS[1], ATOM_OPS[0]).astype(np.uint8),
        atoms=packed_pool.take(atom_pick % max(len(pool), 1)),
    )

    code = np.zeros(len(owner), np.int64)
    code[numeric] = 2 * number_index + 1
    code[textual] = vocabulary.segment(Type.STRING)[0][operand_name[textual]] + 2 * string_index + 1
    code[is_atom] = atom_index
    boolean = operand_type == Type.BOOLEAN
    code[boolean] = vocabulary.segment(Type.BOOLEAN)[0][operand_name[boolean]] + number[boolean].astype(np.int64)

    lo, hi = _intervals(vocabulary, name, op, type_, operand_offsets, code)
    set_offsets, set_code_offsets, set_codes, set_index = _sets(n_names, name, op, operand_offsets, code)
    listed = np.isin(op, (Op.IN, Op.NOT_IN))
    lo[listed] = hi[listed] = set_index

    order = np.lexsort((filter_id, lo << 32 | hi, name << 8 | kind))
    return vocabulary, Constraints(
        offsets=offsets_of(np.bincount(name, minlength=n_names)),
        kind=kind[order].astype(KIND),
        lo=lo[order].astype(CODE),
        hi=hi[order].astype(CODE),
        filter_id=np.asarray(filter_id)[order].astype(FILTER_ID),
        set_offsets=set_offsets,
        set_code_offsets=set_code_offsets,
        set_codes=set_codes,
    )


def _by_name(n_names: int, name: Array, rank: Array, n_ranks: int) -> tuple[Array, Array, Array]:
    """Distinct (name, rank) pairs: offsets per name, rank of each pair, and for each input its place among its name's."""
    pairs, index = np.unique(name * max(n_ranks, 1) + rank, return_inverse=True)
    offsets = offsets_of(np.bincount(pairs // max(n_ranks, 1), minlength=n_names))
    return offsets, pairs % max(n_ranks, 1), index - offsets[name]


def _intervals(
    vocabulary: Vocabulary, name: Array, op: Array, type_: Array, operand_offsets: Array, code: Array
) -> tuple[Array, Array]:
    """`lo` and `hi` i64[c] of every constraint that is not a list."""
    first, last = np.zeros(len(name), np.int64), np.zeros(len(name), np.int64)
    for each in Type:
        rows = type_ == each
        begin, end = vocabulary.segment(each)
        first[rows], last[rows] = begin[name[rows]], end[name[rows]]
    n_operands = np.diff(operand_offsets)
    padded = np.append(code, 0)
    one = np.where(n_operands > 0, padded[operand_offsets[:-1]], 0)
    two = np.where(n_operands > 1, padded[np.maximum(operand_offsets[1:] - 1, 0)], last + 1)
    point = np.isin(op, (Op.EQ, Op.NE, *ATOM_OPS))
    lo = np.select([point | np.isin(op, (Op.GE, Op.BETWEEN, Op.PREFIX)), op == Op.GT], [one, one + 1], first)
    hi = np.select(
        [point | (op == Op.LE), op == Op.LT, op == Op.BETWEEN, op == Op.PREFIX], [one, one - 1, two, two - 1], last
    )
    empty_prefix = (op == Op.PREFIX) & (n_operands == 1)
    lo[empty_prefix] = first[empty_prefix]
    return lo, hi


def _sets(n_names: int, name: Array, op: Array, operand_offsets: Array, code: Array) -> tuple[Array, Array, Array, Array]:
    """Distinct operand lists by (name, codes).

    Offsets per name, offsets per set, codes; and for each list constraint its set's place among its name's.
    """
    rows = np.flatnonzero(np.isin(op, (Op.IN, Op.NOT_IN)))
    keys = [(int(name[r]), code[operand_offsets[r] : operand_offsets[r + 1]].astype(">u4").tobytes()) for r in rows]
    distinct = sorted(set(keys))
    place = {key: i for i, key in enumerate(distinct)}
    set_offsets = offsets_of(np.bincount(np.array([n for n, _ in distinct], np.int64), minlength=n_names))
    codes = np.frombuffer(b"".join(codes for _, codes in distinct), ">u4").astype(CODE)
    code_offsets = offsets_of(np.array([len(codes) // 4 for _, codes in distinct], np.int64))
    index = np.array([place[key] for key in keys], np.int64) - set_offsets[name[rows]]
    return set_offsets, code_offsets, codes, index
