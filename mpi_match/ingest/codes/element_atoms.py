"""Tables of the operators `any OP` except `any =`, for `elements`.

An attribute with such names (`table.virtual_names`) has a *record*.  The constraints on its elements are atoms, numbered
after those of the vocabulary in the order of their names:

    prefix suffix contains    in tries of the attribute (`atoms`)
    wildcard, regexp          by their literals (`patterns`)
    in, not in                the values that its lists have are numbered: texts at the ends of a trie, numbers ascending;
                              of each, the lists that have it
    between, != of a boolean  in the record, or a range of tables
    least, greatest, only     likewise: atoms with a code, which elements lower or raise

`any =`, which may have millions of names, is found by the hash of its name (`code_tables.find_element`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.ingest.codes.atoms import NO_ATOM, NO_STATE, Tries, names_with_tries
from mpi_match.ingest.codes.patterns import N_PATTERN_TABLES, Pattern
from mpi_match.model import split
from mpi_match.operators import PATTERN_OPS, Anchor, Form, Op, Type
from mpi_match.table.virtual_names import GREATEST_FORM, LEAST_FORM, SOLE_FORM, VirtualName, forms_of, parse
from mpi_match.table.vocabulary import Vocabulary

(
    RECORDS_OF_NAMES,
    ELEMENT_RECORDS,
    LISTED_NUMBERS,
    IN_BOUNDS,
    IN_ATOMS,
    OUT_BOUNDS,
    OUT_ATOMS,
    BETWEEN_ATOMS,
    BETWEEN_LOW,
    BETWEEN_HIGH,
    N_TABLES_SO_FAR,
) = range(N_PATTERN_TABLES, N_PATTERN_TABLES + 11)
"""Places in the table of addresses, behind those of patterns:

    RECORDS_OF_NAMES        i64[e]: of each entry of the names, its record, or NO_RECORD
    ELEMENT_RECORDS                 i64[r, RECORD_WORDS]
    LISTED_NUMBERS          f64[·, 2]: numbers that lists of an attribute have, each as the nearest double and the residue
                            (`model.split`), ascending, one attribute's after the other's
    IN_BOUNDS, IN_ATOMS     i64[k + 1], i64: of each listed value, the atoms of `in` that have it
    OUT_BOUNDS, OUT_ATOMS   i64[k + 1], i64: those of `not in`, ascending
    BETWEEN_ATOMS           i64: atoms of `between`, with BETWEEN_LOW, BETWEEN_HIGH f64[·, 2], numbers likewise
"""
NO_RECORD = -1
(
    TRIE_ROOT,
    BEGINNINGS_ROOT,
    FIRST_NUMBER,
    LAST_NUMBER,
    FIRST_LISTED_NUMBER,
    FIRST_TEXT_OUT,
    LAST_TEXT_OUT,
    FIRST_NUMBER_OUT,
    LAST_NUMBER_OUT,
    FIRST_BETWEEN,
    LAST_BETWEEN,
    NUMBER_EXTREMES,
    TEXT_EXTREMES,
    IF_FALSE,
    IF_TRUE,
    PATTERN_ROOT,
    RECORD_WORDS,
) = (*range(12), 14, 17, 18, 19, 20)
"""Words of a record: roots of its tries, or NO_STATE; its range of LISTED_NUMBERS, and the number of the first as a listed
value; its ranges of atoms of `not in`, for texts and numbers; its range of BETWEEN_ATOMS; the atoms of the least, greatest
and only number and text; those that false and true satisfy; the root of the literals of its patterns, or NO_STATE.  NO_ATOM
stands for missing atoms."""
_EXTREMES = {LEAST_FORM: 0, GREATEST_FORM: 1, SOLE_FORM: 2}


class ElementTables(NamedTuple):
    """The tries, the names of the atoms i64, the tables but the first, the record of each attribute, the attributes with
    operators that only Python evaluates, and the patterns, whose tries are numbered as PATTERN_ROOT is."""

    tries: Tries
    atom_names: Array
    tables: tuple[Array, ...]
    records: dict[bytes, int]
    judged: list[bytes]
    patterns: list[Pattern]


class _Builder:
    """Collects the names of all attributes, in their order."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.records, self.atom_names = vocabulary, list[list[int]](), list[int]()
        self.texts, self.tries = list[bytes](), list[tuple[int, bool, int]]()  # the latter: trie, is it whole, atom
        self.numbers, self.n_listed = list[float](), 0
        self.lists: dict[bool, list[tuple[int, int]]] = {False: [], True: []}  # is it `not in`: listed value, atom
        self.between = list[tuple[int, float, float]]()
        self.patterns, self.n_of_patterns = list[Pattern](), 0
        self.n_tries = len(names_with_tries(vocabulary))

    def add(self, forms: list[tuple[VirtualName, int, int]]) -> bool:
        """Add the names of an attribute: the first name of each form and type, and their range.  Returns False if only
        Python evaluates one of their operators."""
        record = [NO_ATOM] * RECORD_WORDS
        record[TRIE_ROOT] = record[BEGINNINGS_ROOT] = record[PATTERN_ROOT] = NO_STATE
        for first, last in ((FIRST_TEXT_OUT, LAST_TEXT_OUT), (FIRST_NUMBER_OUT, LAST_NUMBER_OUT)):
            record[first] = record[last] = 0
        found: dict[bool, list[tuple[bytes, bool, int]]] = {False: [], True: []}  # of tries of beginnings?
        listed: dict[Type, list[tuple[bool, int, tuple[Any, ...]]]] = {Type.NUMBER: [], Type.STRING: []}
        record[FIRST_BETWEEN], is_whole = len(self.between), True
        for kind, start, stop in forms:
            first = self.vocabulary.n_atoms + len(self.atom_names)
            self.atom_names += range(start, stop)
            if kind.op is None:
                place = NUMBER_EXTREMES if kind.type is Type.NUMBER else TEXT_EXTREMES
                record[place + _EXTREMES[kind.form]] = first
                continue
            names, of = map(parse, self.vocabulary.names.slice(start, stop)), kind.op.record
            atoms = list(enumerate(names, first))
            if of.form is Form.PREFIX or of.anchor is not None:
                is_prefix, is_suffix = of.form is Form.PREFIX, of.anchor is Anchor.END
                found[is_prefix] += [(name.rest, is_suffix, atom) for atom, name in atoms]
            elif kind.op in PATTERN_OPS:
                record[PATTERN_ROOT] = self.n_of_patterns
                self.patterns += [Pattern(self.n_of_patterns, atom, kind.op, name.rest) for atom, name in atoms]
            elif of.form is Form.UNEQUAL:
                for atom, name in atoms:
                    record[IF_FALSE if name.operand() else IF_TRUE] = atom
            elif of.form is Form.WITHIN and kind.type is Type.NUMBER and not any(of.excludes):
                self.between += [(atom, *name.operand()) for atom, name in atoms]  # type: ignore[misc]
            elif of.form in (Form.IN_LIST, Form.OUT_OF_LIST):
                is_out = of.form is Form.OUT_OF_LIST
                listed[kind.type] += [(is_out, atom, name.operand()) for atom, name in atoms]  # type: ignore[misc]
                if is_out:
                    place = FIRST_TEXT_OUT if kind.type is Type.STRING else FIRST_NUMBER_OUT
                    record[place : place + 2] = first, first + len(atoms)
            else:
                is_whole = False
        record[LAST_BETWEEN] = len(self.between)
        found[True] += [(text, True, k) for text, k in self._listed(listed[Type.STRING], str.encode)]
        record[FIRST_NUMBER], record[FIRST_LISTED_NUMBER] = len(self.numbers), self.n_listed
        self.numbers += [number for number, _ in self._listed(listed[Type.NUMBER], operator.pos)]
        record[LAST_NUMBER] = len(self.numbers)
        for is_beginnings, place in ((False, TRIE_ROOT), (True, BEGINNINGS_ROOT)):
            if found[is_beginnings]:
                record[place] = self.n_tries
                self.tries += [(self.n_tries, is_suffix, atom) for _, is_suffix, atom in found[is_beginnings]]
                self.texts += [text for text, _, _ in found[is_beginnings]]
                self.n_tries += 1
        self.records.append(record)
        self.n_of_patterns += record[PATTERN_ROOT] != NO_STATE
        return is_whole

    def _listed(self, lists: list[tuple[bool, int, tuple[Any, ...]]], key: Callable[[Any], Any]) -> list[tuple[Any, int]]:
        """Number the values of lists, ascending, and record the lists of each."""
        values = sorted({key(value) for _, _, operand in lists for value in operand})
        number = {value: self.n_listed + k for k, value in enumerate(values)}
        self.n_listed += len(values)
        for is_out, atom, operand in lists:
            self.lists[is_out] += [(number[key(value)], atom) for value in operand]
        return list(number.items())

    def _of_listed(self, is_out: bool) -> tuple[Array, Array]:
        pairs = np.array(sorted(self.lists[is_out]), np.int64).reshape(-1, 2)
        return offsets_of(np.bincount(pairs[:, 0], minlength=self.n_listed)), pairs[:, 1].copy()

    def built(self, bases: list[bytes], judged: list[bytes]) -> ElementTables:
        """The tables of the attributes that were added."""
        first = len(names_with_tries(self.vocabulary))
        columns = np.array(self.tries, np.int64).reshape(-1, 3)
        tries = Tries(self.n_tries - first, Strings.of(self.texts), columns[:, 0] - first, columns[:, 1] == 1, columns[:, 2])
        atoms = np.array([atom for atom, _, _ in self.between], np.int64)
        ranges = (atoms, *(_pairs([bounds[end] for bounds in self.between]) for end in (1, 2)))
        records = np.array(self.records, np.int64).reshape(-1, RECORD_WORDS)
        tables = (records, _pairs(self.numbers), *self._of_listed(False), *self._of_listed(True), *ranges)
        of_bases = {base: k for k, base in enumerate(bases)}
        return ElementTables(tries, np.array(self.atom_names, np.int64), tables, of_bases, judged, self.patterns)


def _pairs(numbers: list[float]) -> Array:
    """f64[n, 2]: nearest doubles and residues."""
    return np.array([split(number) for number in numbers], np.float64).reshape(-1, 2)


def element_tables(vocabulary: Vocabulary) -> ElementTables:
    """The tables of all attributes that have names of other operators than `any =`."""
    forms: dict[bytes, list[tuple[VirtualName, int, int]]] = {}
    for first, start, stop in forms_of(vocabulary.names):
        if first.op is not Op.EQ:
            forms.setdefault(first.base, []).append((first, start, stop))
    builder = _Builder(vocabulary)
    judged = [base for base, of_base in forms.items() if not builder.add(of_base)]
    return builder.built(list(forms), judged)
