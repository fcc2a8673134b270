"""Finds the virtual names of events, which stand for constraints that the elements of their attributes satisfy
(`table.virtual_names`).  A value other than a list counts as a list of one.  Work is done once for each distinct element of
an attribute; only `between` and `not in` are evaluated list by list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, take_ranges
from mpi_match.arrays.exact import values_of
from mpi_match.arrays.strings import Strings
from mpi_match.events.lists import ListColumns
from mpi_match.model import Type, Value
from mpi_match.table.element_names import ElementNames
from mpi_match.table.virtual_names import GREATEST_FORM, LEAST_FORM, SOLE_FORM
from mpi_match.table.vocabulary import Vocabulary


class Elements(NamedTuple):
    """The elements of some attributes, one attribute's after the other, without NaN.

    attribute              i64[k]   the attribute, ascending
    base                   i64[k]   index into the attributes with virtual names
    type, number, string   [k]      as in `ListColumns`, but `number` is exact (`arrays.exact`)
    """

    attribute: Array
    base: Array
    type: Array
    number: Array
    string: Array

    def take(self, rows: Array) -> Elements:
        """Some of them."""
        return Elements(*(column[rows] for column in self))

    def value(self, row: int, strings: Strings) -> Value:
        """One element as a value of the model."""
        if self.type[row] == Type.STRING:
            return strings[int(self.string[row])].decode()
        return bool(self.number[row]) if self.type[row] == Type.BOOLEAN else values_of(self.number[row : row + 1])[0]


def elements_of(base: Array, type_: Array, number: Array, string: Array, lists: ListColumns | None) -> Elements:
    """The elements of attributes; `base` is -1 for those without virtual names, the others are columns of `Events`, `number`
    exact.
    """
    attribute = np.flatnonzero(base >= 0)
    is_list = type_[attribute] == Type.LIST
    if lists is None or not is_list.any():
        found = Elements(attribute, base[attribute], *(column[attribute] for column in (type_, number, string)))
    else:
        which = np.where(is_list, string[attribute], 0).astype(np.int64)
        lengths = np.where(is_list, np.diff(lists.offsets)[which], 1)
        owner = np.repeat(attribute, lengths)
        within = take_ranges(np.where(is_list, lists.offsets[which], 0), lengths)
        in_list = np.repeat(is_list, lengths)
        at = np.where(in_list, within, len(lists.type) + owner)
        columns = (
            np.append(of_list, of_attribute)[at]
            for of_list, of_attribute in ((lists.type, type_), (lists.numbers, number), (lists.string, string))
        )
        found = Elements(owner, base[owner], *columns)
    return found.take(np.flatnonzero((found.type != Type.NUMBER) | ~np.isnan(found.number)))


def element_attributes(vocabulary: Vocabulary, elements: Elements, strings: Strings) -> tuple[Array, Array, Array]:
    """The virtual names that attributes with these elements have: attribute, name and code, i64 each, in any order."""
    bases = list(vocabulary.element_names.values())
    found = [_atoms(bases, elements, strings), _per_list(bases, elements, strings)]
    for type_ in (Type.NUMBER, Type.STRING):
        for form in (LEAST_FORM, GREATEST_FORM, SOLE_FORM):
            found.append(_extremes(vocabulary, bases, form, type_, elements, strings))
    attribute, name, code = (np.concatenate(column) for column in zip(*found, strict=True))
    return attribute, name, code


def _atoms(bases: Sequence[ElementNames], elements: Elements, strings: Strings) -> tuple[Array, Array, Array]:
    """Atoms that one element decides, each once for an attribute."""
    is_text = elements.type == Type.STRING
    _, value = np.unique(np.where(is_text, elements.string, elements.number + 0.0), return_inverse=True)
    key = (elements.base * 4 + elements.type) * (len(value) + 1) + value
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    distinct = elements.take(first)
    ids = [
        bases[base].of_element(Type(type_), distinct.value(row, strings))
        for row, (base, type_) in enumerate(zip(distinct.base.tolist(), distinct.type.tolist(), strict=True))
    ]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    flat = np.fromiter((each for some in ids for each in some), np.int64, int(lengths.sum()))
    name = flat[take_ranges(offsets_of(lengths)[place], lengths[place])]
    pairs = np.unique(np.repeat(elements.attribute, lengths[place]) << 32 | name)
    return pairs >> 32, pairs & 0xFFFFFFFF, np.zeros(len(pairs), np.int64)


def _per_list(bases: Sequence[ElementNames], elements: Elements, strings: Strings) -> tuple[Array, Array, Array]:
    """`between` and `not in`: of each attribute, the distinct elements are compared with every operand."""
    asked = np.array([bool(base.between or base.not_in) for base in bases], bool)
    some = elements.take(np.flatnonzero(asked[elements.base]))
    first = np.flatnonzero(np.append(some.attribute[:1] == some.attribute[:1], some.attribute[1:] != some.attribute[:-1]))
    found: list[tuple[int, int]] = []
    for start, stop in pairwise([*first.tolist(), len(some.attribute)]):
        base, attribute = bases[int(some.base[start])], int(some.attribute[start])
        values: dict[Type, set[Value]] = {}
        for row in range(start, stop):
            values.setdefault(Type(int(some.type[row])), set()).add(some.value(row, strings))
        numbers: list[Any] = sorted(values.get(Type.NUMBER, ()))
        for name_id, low, high in base.between:
            at = bisect_left(numbers, low)
            if at < len(numbers) and numbers[at] <= high:
                found.append((attribute, name_id))
        found += [(attribute, name_id) for name_id, type_, those in base.not_in if values.get(type_, set()) - those]
    columns = np.array(found, np.int64).reshape(-1, 2).T
    return columns[0], columns[1], np.zeros(len(found), np.int64)


def _extremes(
    vocabulary: Vocabulary, bases: Sequence[ElementNames], form: bytes, type_: Type, elements: Elements, strings: Strings
) -> tuple[Array, Array, Array]:
    """The least, greatest or only value of a type, of the attributes that have one."""
    ids = np.array([base.extremes.get((form, type_), -1) for base in bases], np.int64)
    some = elements.take(np.flatnonzero((elements.type == type_) & (ids[elements.base] >= 0)))
    first = np.flatnonzero(np.append(some.attribute[:1] == some.attribute[:1], some.attribute[1:] != some.attribute[:-1]))
    if not len(first):
        return (np.zeros(0, np.int64),) * 3
    used, order = np.unique(some.string, return_inverse=True)
    texts = [strings[int(i)] for i in used] if type_ is Type.STRING else []
    ranked = sorted(set(texts))  # columns may have a text several times
    places = {text: place for place, text in enumerate(ranked)}
    rank = np.array([places[text] for text in texts], np.int64)
    value = rank[order] if type_ is Type.STRING else some.number
    least, greatest = np.minimum.reduceat(value, first), np.maximum.reduceat(value, first)
    name = ids[some.base[first]]
    chosen = greatest if form == GREATEST_FORM else least
    if type_ is Type.STRING:
        pairs = zip(name.tolist(), chosen.tolist(), strict=True)
        code = np.fromiter((vocabulary.string_code(n, ranked[i]) for n, i in pairs), np.int64, len(name))
    else:
        code = vocabulary.number_codes(name, chosen)
    if form == SOLE_FORM:  # two values, or one that is no operand, are unequal to every operand: the code of the first gap
        gap = vocabulary.segment(type_)[0][name]
        code = np.where((least == greatest) & ((code - gap) & 1 == 1), code, gap)
    return some.attribute[first], name, code
