"""From values to small integers: the code space in which all matching happens.

The operands that a table's constraints use on one name partition that name's values into classes that no constraint
distinguishes.  Numbering the classes in order turns every ordered constraint into a closed interval of integers, whatever
its type:

    operands on "temp":       20        25        30
    code of a number:     0    1    2    3    4    5    6        2i + 1 is operand i itself, 2i the gap below it

    temp < 25   is [0, 2]     temp = 25   is [3, 3]     temp >= 25  is [3, 6]     temp between 20 and 30  is [1, 5]

With N numbers and S strings as operands on a name, its codes are

    0 .. 2N             numbers                     2N + 1              NaN, which satisfies nothing but `exists`
    2N+2 .. 2N+2S+2     strings, by UTF-8 bytes     2N+2S+3, 2N+2S+4    false, true
    2N+2S+5             a list

so that one interval also implies the type, and `exists` is the interval of all codes.  A `prefix` is an interval too,
because the least string above all strings with that prefix is added as an operand.  Matching is exact: a value is compared
with the operands once, when its event is encoded, and never again.

Operators of the form ATOM, such as `suffix` and `contains`, are not intervals.  Each distinct (name, op, operand) of them is
an **atom**.  It is evaluated once per distinct event string, and an event that satisfies it gets one more attribute, with
the virtual name `n_names + atom` and the code 0: engines see an atom as a name that is present or absent.  The operator
`null` is the atom of a name that a null gives an event, which does not have the name itself then.

A constraint on some element of a list (`any OP`) is one on a **virtual name** of its own (`virtual_names`), which an event
has beside the list: so engines see a tag as a name.

A name and a code pack into one integer, `name << 16 | code` where that fits (the *narrow* form) and `name << 32 | code` in
64 bits where not.  Names are distinct in an event, so one comparison of packed integers checks name, type and value.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of, owners, smallest_unsigned
from mpi_match.arrays.exact import residues
from mpi_match.arrays.strings import Strings
from mpi_match.model import EVERY_STRING, View, is_left_out
from mpi_match.operators import OPERATORS, Anchor, Form, Op, Type
from mpi_match.table.element_names import ElementNames, element_names
from mpi_match.table.name_lookup import NameLookup
from mpi_match.table.pieces import Pieces
from mpi_match.table.scopes import Scopes
from mpi_match.table.virtual_names import MARK, PART_MARK, SCOPE_MARK, VIEW_MARK, attribute_of, views_of

ATOM_OPS = tuple(sorted(op for op, record in OPERATORS.items() if record.form is Form.ATOM))
"""Operators that make atoms, by number."""
_Judged = tuple[int, Callable[[Any, Any], bool], bytes]
"""An atom: its number, the function that tests a text, and its operand."""
MAX_CLASSES = 2**20
"""Largest table of codes by (name, class of numbers) that encoding keeps, so that it is built quickly and stays in a
cache; and most names that are kept in a dict.
"""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Names, operands and atoms of a table.  Everything is sorted; offsets are per name (CSR, i64[n_names + 1]).

    names                          Strings[n_names], by bytes; virtual names, which sort behind all texts, at the end
    number_offsets, numbers        exact (`arrays.exact`): distinct numeric operands of each name, ascending
    string_offsets, strings        Strings: distinct string operands of each name (and bounds of prefixes), by bytes
    atom_offsets, atom_op, atoms   u8, Strings: distinct atoms of each name, operator and operand, by (op, bytes)
    """

    names: Strings
    number_offsets: Array
    numbers: Array
    string_offsets: Array
    strings: Strings
    atom_offsets: Array
    atom_op: Array
    atoms: Strings

    @property
    def n_names(self) -> int:
        return len(self.names)

    @property
    def n_atoms(self) -> int:
        return len(self.atom_op)

    @cached_property
    def n_numbers(self) -> Array:
        """i64[n_names]: numeric operands of each name (N above)."""
        return np.diff(self.number_offsets)

    @cached_property
    def n_strings(self) -> Array:
        """i64[n_names]: string operands of each name (S above)."""
        return np.diff(self.string_offsets)

    @cached_property
    def n_codes(self) -> Array:
        """i64[n_names]: size of each name's code space."""
        return 2 * (self.n_numbers + self.n_strings) + 6

    def segment(self, type_: Type) -> tuple[Array, Array]:
        """First and last code of a type on every name, i64[n_names] each; `Type.ANY` is the whole code space, and a null has
        no code.
        """
        return self._segments[type_]

    @cached_property
    def _segments(self) -> dict[Type, tuple[Array, Array]]:
        first_string, last_string = 2 * self.n_numbers + 2, 2 * (self.n_numbers + self.n_strings) + 2
        zero = np.zeros_like(first_string)
        return {
            Type.NUMBER: (zero, first_string - 2),
            Type.STRING: (first_string, last_string),
            Type.BOOLEAN: (last_string + 1, last_string + 2),
            Type.ANY: (zero, last_string + 3),
            Type.LIST: (last_string + 3, last_string + 3),
            Type.NULL: (zero, zero - 1),
        }

    @cached_property
    def shift(self) -> int:
        """16 in the narrow form, 32 in the wide one."""
        largest = int(self.n_codes.max(initial=0))
        return 16 if self.n_names + self.n_atoms < 2**16 and largest <= 2**16 else 32

    @property
    def packed_dtype(self) -> np.dtype:
        """u32 in the narrow form, u64 in the wide one."""
        return np.dtype(np.uint32 if self.shift == 16 else np.uint64)

    def pack(self, name: Array, code: Array) -> Array:
        """Name ids and codes as packed attributes (`packed_dtype`)."""
        packed: Array = np.asarray(name, np.uint64) << np.uint64(self.shift) | np.asarray(code, np.uint64)
        return packed.astype(self.packed_dtype)

    @classmethod
    def of_presence(cls, names: Strings) -> Vocabulary:
        """The sorted names for which constraints only ask for presence."""
        none, nothing = np.zeros(len(names) + 1, np.int64), Strings.of(())
        return cls(names, none, np.zeros(0), none, nothing, none, np.zeros(0, np.uint8), nothing)

    def name_ids(self, names: Strings) -> Array:
        """i64: ids of names, or -1."""
        return self._lookup.find(names)

    @cached_property
    def _lookup(self) -> NameLookup:
        return NameLookup(self.names)

    def name_id(self, name: bytes) -> int:
        """Id of a name; -1 if there is none."""
        if self._name_ids is not None:
            return self._name_ids.get(name, -1)
        at = bisect_left(self.names, name)
        return at if at < self.n_names and self.names[at] == name else -1

    @cached_property
    def _name_ids(self) -> dict[bytes, int] | None:
        """Ids of names; None if there are many names, which are searched for instead: an entry takes some 150 bytes."""
        return {name: i for i, name in enumerate(self.names)} if self.n_names <= MAX_CLASSES else None

    @cached_property
    def element_names(self) -> dict[bytes, ElementNames]:
        """The virtual names of each attribute that has some."""
        return element_names(self.names, self.name_id)

    @cached_property
    def attribute_names(self) -> frozenset[str]:
        """The attributes that constraints name, directly or by a view; `*` if one asks for all strings."""
        n_plain = bisect_left(self.names, VIEW_MARK)
        plain = (name.decode() for name in self.names.slice(0, n_plain))
        seen = (*self.names.slice(n_plain, bisect_left(self.names, MARK)), *self.element_names)
        of_conditions = (PART_MARK, SCOPE_MARK)
        return frozenset((*plain, *(attribute_of(name)[0] for name in seen if not name.startswith(of_conditions))))

    @cached_property
    def presence_names(self) -> frozenset[str]:
        """The attributes on which constraints only use `exists`, `absent`, `null` and booleans: numbers, texts and elements
        do not matter."""
        seen = (name for name in (*self.element_names, *self.views) if name[:1] != VIEW_MARK)
        n_plain = bisect_left(self.names, VIEW_MARK)
        return (
            frozenset(name.decode() for name in self.names.slice(0, n_plain)) - self._compared - {n.decode() for n in seen}
        )

    @cached_property
    def instant_names(self) -> frozenset[str]:
        """The attributes on which constraints only use the instant, and perhaps presence."""
        elements = {*self.element_names}
        seen = (name for name, views in self.views.items() if views == [View.TIME] and name not in elements)
        return frozenset(name.decode() for name in seen if name[:1] != VIEW_MARK) - self._compared

    @cached_property
    def _compared(self) -> frozenset[str]:
        """The attributes with numbers or texts that some constraint compares."""
        of_texts = np.diff(self.atom_offsets) - (self.null_atoms >= 0)
        n_plain = bisect_left(self.names, VIEW_MARK)
        found = np.flatnonzero((self.n_numbers + self.n_strings + of_texts)[:n_plain])
        return frozenset(self.names[int(name)].decode() for name in found)

    @cached_property
    def views(self) -> dict[bytes, list[View]]:
        """The views that constraints ask for, by the name of their attribute (`virtual_names`)."""
        return views_of(
            (*self.names.slice(bisect_left(self.names, VIEW_MARK), bisect_left(self.names, MARK)), *self.element_names)
        )

    @cached_property
    def asks_every_string(self) -> bool:
        """Tells whether some constraint asks for all strings of an event."""
        return EVERY_STRING in self.attribute_names

    @cached_property
    def asks_of_rows(self) -> bool:
        """Tells whether constraints ask for what only whole rows tell: all strings, or the objects of lists."""
        return self.asks_every_string or bool(self.scopes)

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of conditions on objects in lists.  Raises ModelError for an invalid name of a scope."""
        first, last = bisect_left(self.names, SCOPE_MARK), bisect_left(self.names, SCOPE_MARK + MARK)
        return Scopes(attribute_of(self.names[i])[0] for i in range(first, last))

    @cached_property
    def parts(self) -> Array:
        """i64: the names of parts of conditions (`conditions`), ascending."""
        first, last = bisect_left(self.names, PART_MARK), bisect_left(self.names, PART_MARK + MARK)
        return np.arange(first, last)

    def attributes_among(self, left_out: Container[str]) -> set[str]:
        """The entries of `left_out` (`model.is_left_out`) that are attributes that some constraint names."""
        return {name for name in self.attribute_names if is_left_out(name, left_out)} if left_out else set()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all arrays: events encoded with one vocabulary are valid for every table with an equal one."""
        digest = hashlib.sha256()
        for array in self._arrays():
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
            digest.update(b"%d;" % len(array))
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> int:
        """The first 63 bits of `digest`, for the header of a batch."""
        return int(self.digest[:16], 16) >> 1

    def _arrays(self) -> tuple[Array, ...]:
        pools = [(s.offsets, s.data) for s in (self.names, self.strings, self.atoms)]
        flat = [array for pool in pools for array in pool]
        numbers = (self.numbers,) if self.numbers.dtype == np.float64 else (self.numbers.real, residues(self.numbers))
        return (*flat, self.number_offsets, *numbers, self.string_offsets, self.atom_offsets, self.atom_op)

    def number_codes(self, name: Array, value: Array) -> Array:
        """Codes i64[k] of numbers, exact[k] (`arrays.exact`), on names i64[k]."""
        if not len(self.numbers):
            return np.isnan(value).astype(np.int64)
        if self._classes is not None:
            values, codes_of = self._classes
            at = np.searchsorted(values, value)
            at += at + (np.append(values, np.nan)[at] == value) + np.isnan(value)
            return codes_of[name * (2 * len(values) + 2) + at].astype(np.int64)
        codes = np.zeros(len(value), np.int64)
        order = np.argsort(name.astype(smallest_unsigned(self.n_names)), kind="stable")
        bounds = np.searchsorted(name[order], np.arange(self.n_names + 1))
        for n in np.flatnonzero((np.diff(bounds) > 0) & (self.n_numbers > 0)):
            rows = order[bounds[n] : bounds[n + 1]]
            operands = self.numbers[self.number_offsets[n] : self.number_offsets[n + 1]]
            at = np.searchsorted(operands, value[rows])
            codes[rows] = 2 * at + (operands[np.minimum(at, len(operands) - 1)] == value[rows])
        return np.where(np.isnan(value), 2 * self.n_numbers[name] + 1, codes)

    @cached_property
    def _classes(self) -> tuple[Array, Array] | None:
        """For names that share most of their operands: all distinct operands, and the codes that they give on every name.

        `values` exact[d] cuts the line into 2d + 1 classes (numbered as codes are), and NaN is one more; `codes` u32[n_names
        * (2d + 2)] is the code of each class on each name.  One binary search in `values` then serves all names, and
        attributes need not be grouped by name.  None where `codes` would be large.
        """
        values, rank = np.unique(self.numbers, return_inverse=True)
        d = len(values)
        if self.n_names * (d + 1) > MAX_CLASSES:
            return None
        is_operand = np.zeros((self.n_names, d), bool)
        is_operand[owners(self.number_offsets), rank] = True
        below = np.zeros((self.n_names, d + 1), np.uint32)
        np.cumsum(is_operand, axis=1, out=below[:, 1:])
        codes = np.empty((self.n_names, 2 * d + 2), np.uint32)
        codes[:, 0:-1:2] = 2 * below
        codes[:, 1:-1:2] = 2 * below[:, :-1] + is_operand
        codes[:, -1] = 2 * self.n_numbers + 1
        return values, codes.reshape(-1)

    def string_code(self, name: int, value: bytes) -> int:
        operands = self.operands_of(name)
        at = bisect_left(operands, value)
        found = at < len(operands) and operands[at] == value
        return int(2 * self.n_numbers[name]) + 2 + 2 * at + found

    def satisfied_atoms(self, name: int, value: bytes) -> list[int]:
        """Atoms (sorted ids) of a name that a string satisfies.

        The work: see `Pieces` for operators with an `Operator.anchor`; one call for each other atom.
        """
        suffixes, contained, judged = self._atoms_of(name)
        found = suffixes.ending(value) + contained.within(value)
        found.extend(atom for atom, satisfies, operand in judged if satisfies(value, operand))
        return sorted(found)

    @cached_property
    def judged_names(self) -> frozenset[bytes]:
        """Attributes that columns leave to events: those with views, and those with atoms without an `Operator.anchor`."""
        return frozenset((*self.names_with_atoms(op for op in ATOM_OPS if op.record.is_judged), *self.views))

    def names_with_atoms(self, ops: Iterable[Op]) -> list[bytes]:
        """The names that have atoms of some of these operators."""
        atoms = np.flatnonzero(np.isin(self.atom_op, [int(op) for op in ops]))
        names = np.unique(np.searchsorted(self.atom_offsets, atoms, side="right") - 1)
        return [self.names[int(name)] for name in names]

    @cached_property
    def null_atoms(self) -> Array:
        """i64[n_names]: the atom of each name that a null satisfies; -1 for a name without a constraint on null."""
        found = np.full(self.n_names, -1, np.int64)
        atoms = np.flatnonzero(np.isin(self.atom_op, [op for op in ATOM_OPS if op.record.of_nulls]))
        found[np.searchsorted(self.atom_offsets, atoms, side="right") - 1] = atoms
        return found

    @cached_property
    def _operands_cache(self) -> dict[int, list[bytes]]:
        return {}

    def operands_of(self, name: int) -> list[bytes]:
        """String operands of a name, sorted (cached)."""
        if name not in self._operands_cache:
            bounds = self.string_offsets[name : name + 2]
            self._operands_cache[name] = self.strings.slice(int(bounds[0]), int(bounds[1]))
        return self._operands_cache[name]

    def atom_keys(self, name: int) -> list[tuple[int, bytes]]:
        """Operator and string of the atoms of a name, sorted."""
        first, last = (int(i) for i in self.atom_offsets[name : name + 2])
        return list(zip(self.atom_op[first:last].tolist(), self.atoms.slice(first, last), strict=True))

    @cached_property
    def _atoms_cache(self) -> dict[int, tuple[Pieces, Pieces, list[_Judged]]]:
        return {}

    def _atoms_of(self, name: int) -> tuple[Pieces, Pieces, list[_Judged]]:
        """Suffixes, contained strings, and the other atoms of a name."""
        if name not in self._atoms_cache:
            suffixes, contained = Pieces(), Pieces()
            judged: list[_Judged] = []
            first, last = (int(i) for i in self.atom_offsets[name : name + 2])
            for atom, operand in enumerate(self.atoms.slice(first, last), first):
                record = Op(self.atom_op[atom]).record
                if record.of_nulls:
                    continue
                if record.anchor is None:
                    judged.append((atom, record.satisfies, operand))
                else:
                    {Anchor.END: suffixes, Anchor.ANYWHERE: contained}[record.anchor].add(operand, atom)
            self._atoms_cache[name] = suffixes, contained, judged
        return self._atoms_cache[name]

    @staticmethod
    def concat(parts: Sequence[Vocabulary]) -> Vocabulary:
        """The vocabulary of consecutive ranges of names."""

        def offsets(field: str) -> Array:
            return offsets_of(np.concatenate([np.zeros(0, np.int64), *(np.diff(getattr(p, field)) for p in parts)]))

        return Vocabulary(
            names=Strings.concat([p.names for p in parts]),
            number_offsets=offsets("number_offsets"),
            numbers=np.concatenate([np.zeros(0), *(p.numbers for p in parts)]),
            string_offsets=offsets("string_offsets"),
            strings=Strings.concat([p.strings for p in parts]),
            atom_offsets=offsets("atom_offsets"),
            atom_op=np.concatenate([np.zeros(0, np.uint8), *(p.atom_op for p in parts)]),
            atoms=Strings.concat([p.atoms for p in parts]),
        )
