"""The virtual names of a vocabulary by attribute, and which of them an element satisfies (`virtual_names`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpi_match.arrays.strings import Strings
from mpi_match.model import Op, Operand, Type, Value, satisfies_operand
from mpi_match.operators import Anchor, Form
from mpi_match.table.pieces import Pieces
from mpi_match.table.virtual_names import ATOM_FORMS, TYPE_LETTERS, VirtualName, forms_of, operand_bytes, parse, prefix_of


@dataclass
class ElementNames:
    """The virtual names of the attribute `base`; ids are those of the vocabulary.

    extremes   id of each form without operand, by form and type
    between    id, least and greatest number of each `any between`
    not_in     id, type and values of each `any not in`
    judged     id, operator, type and operand of each atom that is compared with every element
    """

    base: bytes
    find: Callable[[bytes], int]
    extremes: dict[tuple[bytes, Type], int] = field(default_factory=dict)
    between: list[tuple[int, float, float]] = field(default_factory=list)
    not_in: list[tuple[int, Type, frozenset[Value]]] = field(default_factory=list)
    judged: list[tuple[int, Op, Type, Operand]] = field(default_factory=list)
    _listed: dict[tuple[Type, Value], list[int]] = field(default_factory=dict)
    _prefixes: Pieces = field(default_factory=Pieces)
    _suffixes: Pieces = field(default_factory=Pieces)
    _contained: Pieces = field(default_factory=Pieces)

    def add(self, name: VirtualName, name_id: int) -> None:
        """Add a name other than one of `any =`, which `find` finds."""
        if name.op is None:
            self.extremes[name.form, name.type] = name_id
            return
        operand, record = name.operand(), name.op.record
        pieces = {Anchor.END: self._suffixes, Anchor.ANYWHERE: self._contained}
        if record.form is Form.PREFIX or record.anchor is not None:
            (self._prefixes if record.anchor is None else pieces[record.anchor]).add(name.rest, name_id)
        elif not isinstance(operand, tuple):
            self.judged.append((name_id, name.op, name.type, operand))
        elif record.form is Form.WITHIN and name.type is Type.NUMBER and not any(record.excludes):
            self.between.append((name_id, operand[0], operand[1]))  # type: ignore[arg-type]
        elif record.form is Form.OUT_OF_LIST:
            self.not_in.append((name_id, name.type, frozenset(operand)))
        elif record.form is Form.IN_LIST:
            for value in operand:
                self._listed.setdefault((name.type, value), []).append(name_id)
        else:
            self.judged.append((name_id, name.op, name.type, operand))

    def of_element(self, type_: Type, value: Value) -> list[int]:
        """Ids of the atoms that an element satisfies, except `between` and `not_in`, each once."""
        head, letter = prefix_of(self.base), TYPE_LETTERS[type_]
        wanted = [ATOM_FORMS[Op.EQ] + letter + operand_bytes(value)]
        if type_ is Type.BOOLEAN:
            wanted.append(ATOM_FORMS[Op.NE] + letter + operand_bytes(not value))
        found = [name_id for rest in wanted if (name_id := self.find(head + rest)) >= 0]
        found += self._listed.get((type_, value), [])
        found += [
            name_id for name_id, op, of, operand in self.judged if of is type_ and satisfies_operand(op, value, operand)
        ]
        if type_ is Type.STRING:
            text = operand_bytes(value)
            found += self._prefixes.starting(text) + self._suffixes.ending(text) + self._contained.within(text)
        return found


def element_names(names: Strings, find: Callable[[bytes], int]) -> dict[bytes, ElementNames]:
    """The virtual names of each attribute that has some, by its name; `find` gives the id of a name, or -1.

    The names of `any =`, of which there may be millions, are not read.
    """
    found: dict[bytes, ElementNames] = {}
    for first, start, stop in forms_of(names):
        of_base = found.setdefault(first.base, ElementNames(first.base, find))
        if first.op is not Op.EQ:
            for name_id in range(start, stop):
                of_base.add(parse(names[name_id]), name_id)
    return found
