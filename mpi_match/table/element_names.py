"""The virtual names of a vocabulary by attribute, and which of them an element satisfies (`virtual_names`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_match.arrays.strings import Strings
from mpi_match.model import Op, Type, Value
from mpi_match.table.virtual_names import ATOM_FORMS, TYPE_LETTERS, VirtualName, forms_of, operand_bytes, parse, prefix_of

_Pieces = dict[int, dict[bytes, int]]
"""Texts by their length, with the ids of their names."""


@dataclass
class ElementNames:
    """The virtual names of the attribute `base`; ids are those of the vocabulary.

    extremes   id of each form without operand, by form and type
    between    id, least and greatest number of each `any between`
    not_in     id, type and values of each `any not in`
    """

    base: bytes
    find: Callable[[bytes], int]
    extremes: dict[tuple[bytes, Type], int] = field(default_factory=dict)
    between: list[tuple[int, float, float]] = field(default_factory=list)
    not_in: list[tuple[int, Type, frozenset[Value]]] = field(default_factory=list)
    _n_others: int = 0
    _listed: dict[tuple[Type, Value], list[int]] = field(default_factory=dict)
    _prefixes: _Pieces = field(default_factory=dict)
    _suffixes: _Pieces = field(default_factory=dict)
    _contained: _Pieces = field(default_factory=dict)

    @property
    def has_only_equal(self) -> bool:
        """Are all names of `any =`?"""
        return not self._n_others

    def add(self, name: VirtualName, name_id: int) -> None:
        """Take up a name that is no `any =`, which `find` finds."""
        self._n_others += 1
        if name.op is None:
            self.extremes[name.form, name.type] = name_id
            return
        operand = name.operand()
        pieces = {Op.PREFIX: self._prefixes, Op.SUFFIX: self._suffixes, Op.CONTAINS: self._contained}
        if name.op in pieces:
            pieces[name.op].setdefault(len(name.rest), {})[name.rest] = name_id
        elif isinstance(operand, tuple) and name.op is Op.BETWEEN:
            self.between.append((name_id, float(operand[0]), float(operand[1])))
        elif isinstance(operand, tuple) and name.op is Op.NOT_IN:
            self.not_in.append((name_id, name.type, frozenset(operand)))
        elif isinstance(operand, tuple):
            for value in operand:
                self._listed.setdefault((name.type, value), []).append(name_id)

    def of_element(self, type_: Type, value: Value) -> list[int]:
        """Ids of the atoms that an element satisfies, but for `between` and `not_in`, each once."""
        head, letter = prefix_of(self.base), TYPE_LETTERS[type_]
        wanted = [ATOM_FORMS[Op.EQ] + letter + operand_bytes(value)]
        if type_ is Type.BOOLEAN:
            wanted.append(ATOM_FORMS[Op.NE] + letter + operand_bytes(not value))
        found = [name_id for rest in wanted if (name_id := self.find(head + rest)) >= 0]
        found += self._listed.get((type_, value), [])
        if type_ is Type.STRING:
            text = operand_bytes(value)
            for n, by in self._prefixes.items():
                found += _among(by, {text[:n]} if n <= len(text) else set())
            for n, by in self._suffixes.items():
                found += _among(by, {text[len(text) - n :]} if n <= len(text) else set())
            for n, by in self._contained.items():
                found += _among(by, {text[i : i + n] for i in range(len(text) - n + 1)})
        return found


def _among(by: dict[bytes, int], pieces: set[bytes]) -> list[int]:
    return [by[piece] for piece in pieces & by.keys()]


def element_names(names: Strings, find: Callable[[bytes], int]) -> dict[bytes, ElementNames]:
    """Those of every attribute that has some, by its name; `find` gives the id of a name, or -1.

    The names of `any =`, which may be millions, are not looked at.
    """
    found: dict[bytes, ElementNames] = {}
    for first, start, stop in forms_of(names):
        of_base = found.setdefault(first.base, ElementNames(first.base, find))
        if first.op is not Op.EQ:
            for name_id in range(start, stop):
                of_base.add(parse(names[name_id]), name_id)
    return found
