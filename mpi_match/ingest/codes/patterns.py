"""Finds the wildcards and regular expressions that a text satisfies, in compiled code.

Every text that satisfies a pattern contains one of the pattern's *literals*, or ends with one.  The literals of a name are
in the trie of its atoms (`atoms`), those of elements in one of their own, each with the list of the patterns that it belongs
to.  If a literal is found, its patterns are tested (`wildcards`, `regexps`).  So a text costs its pass through the trie, and
the tests of the patterns with literals that it contains.  A pattern without literals belongs to the empty string, and is
tested on every text.

Literals of expressions with `(?i)` are those of the folded text, which is searched in a further trie.  Written in all cases,
literals would be shorter and shared by more patterns.

Literals are numbered after the atoms, unless one is an atom itself, and are in the set of a row's atoms while a text is
read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import constant_i64, load_i64
from mpi_match.ingest.codes.atoms import (
    ATOMS_FOUND,
    N_AUTOMATON_TABLES,
    NO_STATE,
    Tries,
    add_atom,
    found_atom,
    has_overflown,
    place_of,
    take_out,
)
from mpi_match.ingest.codes.folding import fold_table, fold_text
from mpi_match.ingest.codes.regexps import regexp_matches, regexp_table, regexp_words
from mpi_match.ingest.codes.wildcards import wildcard_bytes, wildcard_matches
from mpi_match.operators import PATTERN_OPS, Op
from mpi_match.table.virtual_names import forms_of, parse
from mpi_match.table.vocabulary import Vocabulary
from mpi_match.texts import regexp, regexp_literals, wildcard

(
    FIRST_LITERAL,
    LITERAL_BOUNDS,
    LITERAL_PATTERNS,
    PATTERNS,
    WILDCARD_BYTES,
    REGEXP_AUTOMATA,
    FOLDED_ROOTS,
    FOLD_TABLE,
    N_PATTERN_TABLES,
) = range(N_AUTOMATON_TABLES, N_AUTOMATON_TABLES + 9)
"""Places in the table of addresses, behind those of the automaton, for l literals and p patterns:

    FIRST_LITERAL                      i64[1]: the number of the first literal, which is that of atoms, a
    LITERAL_BOUNDS, LITERAL_PATTERNS   i64[a + l + 1], i64: of each atom and literal, the patterns that it belongs to
    PATTERNS                           i64[p, PATTERN_WORDS]: its atom; where it is in REGEXP_AUTOMATA, or ~ of where its
                                       bytes begin in WILDCARD_BYTES; how many these are
    WILDCARD_BYTES                     u8: `wildcard_bytes` of all
    REGEXP_AUTOMATA                    u64: `regexp_table`
    FOLDED_ROOTS                       i64[tries]: of each trie, the root of its literals of folded texts, or NO_STATE
    FOLD_TABLE                         `folding.fold_table`; empty where no text is folded
"""
PATTERN_ATOM, PATTERN_AT, PATTERN_LENGTH, PATTERN_WORDS = range(4)


_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")
LEAST_LITERAL, MANY_PATTERNS = 2, 1000
"""Bytes of the shortest literal that few texts contain; number of patterns without one that is worth a warning."""


class Pattern(NamedTuple):
    """A pattern: the number of its trie, its atom, WILDCARD or REGEXP, and the operand."""

    trie: int
    atom: int
    op: Op
    operand: bytes


class Literals(NamedTuple):
    """The literals of a pattern; is_end: a text has to end with one; is_folded: the folded text has them."""

    strings: list[bytes]
    is_end: bool
    is_folded: bool = False


def literals_of(op: Op, operand: bytes) -> Literals:
    """The literals of a pattern, the empty string for one without."""
    pattern = operand.decode()
    if op is Op.REGEXP:
        is_folded = _IGNORES_CASE.search(pattern) is not None
        found = sorted(regexp_literals.literals(pattern, is_folded))
        return Literals([each.encode() for each in found], False, is_folded) if found else Literals([b""], True)
    tokens = wildcard.tokens(pattern)
    literal = wildcard.literal(pattern).encode()
    tail = b""
    for token in reversed(tokens):
        if token in ("*", "?"):
            break
        tail = token[-1].encode() + tail
    return Literals([literal], literal == tail)


def n_slow_patterns(vocabulary: Vocabulary) -> int:
    """The number of patterns without literals of LEAST_LITERAL bytes."""
    op, names = vocabulary.atom_op, vocabulary.names
    places = np.flatnonzero(np.isin(op, sorted(PATTERN_OPS)))
    patterns = [(Op(int(op[i])), vocabulary.atoms[i]) for i in places.tolist()]
    for name, first, end in forms_of(names):
        if name.op is not None and name.op in PATTERN_OPS:
            patterns += [(name.op, parse(names[i]).rest) for i in range(first, end)]
    return sum(min(map(len, literals_of(*each).strings)) < LEAST_LITERAL for each in patterns)


def slow_patterns(n: int) -> tuple[str, ...]:
    """The warning that there are n patterns without literals of LEAST_LITERAL bytes; none for few."""
    if n < MANY_PATTERNS:
        return ()
    return (
        f"{n:,} patterns (wildcard, regexp) lack {LEAST_LITERAL} bytes that every text that they match contains: "
        "nearly every text is tested with each of them, which makes events slow",
    )


def pattern_tables(patterns: Sequence[Pattern], tries: Tries, n_atoms: int, folds: bool) -> tuple[Tries, tuple[Array, ...]]:
    """The tries with the literals, and the tables in the order of their places; `folds` if other texts are folded."""
    n_tries, literals = tries.n_tries, list[list[tuple[int, bytes, bool]]]()
    roots = np.full(2 * n_tries, NO_STATE, np.int64)
    for each in patterns:
        strings, is_end, is_folded = literals_of(each.op, each.operand)
        if is_folded and roots[each.trie] == NO_STATE:
            roots[each.trie] = n_tries
            n_tries += 1
        trie = int(roots[each.trie]) if is_folded else each.trie
        literals.append([(trie, literal, is_end) for literal in strings])
    of_atoms = _atoms_among({key for of_pattern in literals for key in of_pattern}, tries)
    numbers: dict[tuple[int, bytes, bool], int] = {}
    belongs: list[tuple[int, int]] = []
    rows = np.zeros((len(patterns), PATTERN_WORDS), np.int64)
    texts, automata, of_regexps = bytearray(), list[regexp.Automaton](), list[int]()
    for k, each in enumerate(patterns):
        rows[k, PATTERN_ATOM] = each.atom
        if each.op is Op.REGEXP:
            automata.append(regexp.compiled(each.operand.decode()))
            of_regexps.append(k)
        else:
            pattern = wildcard_bytes(each.operand.decode())
            rows[k, PATTERN_AT:] = ~len(texts), len(pattern)
            texts += pattern
        for key in literals[k]:
            own = of_atoms[key] if key in of_atoms else numbers.setdefault(key, n_atoms + len(numbers))
            belongs.append((own, k))
    words, places = regexp_table(automata)
    rows[of_regexps, PATTERN_AT] = places
    pairs = np.array(sorted(belongs), np.int64).reshape(-1, 2)
    bounds = offsets_of(np.bincount(pairs[:, 0], minlength=n_atoms + len(numbers)))
    more = Tries(
        n_tries,
        Strings.of([literal for _, literal, _ in numbers]),
        np.array([trie for trie, _, _ in numbers], np.int64),
        np.array([is_end for _, _, is_end in numbers], bool),
        n_atoms + np.arange(len(numbers)),
    )
    first = np.array([n_atoms], np.int64)
    table = fold_table() if folds or n_tries > tries.n_tries else np.zeros(0, np.int32)
    bytes_ = np.frombuffer(bytearray(texts), np.uint8)
    return tries.with_more(more), (first, bounds, pairs[:, 1].copy(), rows, bytes_, words, roots[:n_tries].copy(), table)


def _atoms_among(literals: set[tuple[int, bytes, bool]], tries: Tries) -> dict[tuple[int, bytes, bool], int]:
    """The atoms that are also such literals, each given with its trie and True for an end."""
    sizes = {(trie, len(literal)) for trie, literal, _ in literals}
    lengths, found = np.diff(tries.strings.offsets), dict[tuple[int, bytes, bool], int]()
    most = 1 + max((length for _, length in sizes), default=0)
    alike = np.isin(tries.trie * most + lengths, [trie * most + length for trie, length in sizes]) & (lengths < most)
    for k in np.flatnonzero(alike).tolist():
        key = int(tries.trie[k]), tries.strings[k], bool(tries.is_whole[k])
        if key in literals:
            found[key] = int(tries.atom[k])
    return found


@nested
def literals_behind(root: int, text: tuple[int, int, int], scratch: tuple[int, int], tables: int) -> tuple[int, int]:
    """The root of a trie's literals of folded texts, and the length of the folded text, which is written to the scratch,
    an address and its bytes; NO_STATE and 0 without such literals, and a length of FOLDING_TOO_LONG without room."""
    folded = load_i64(constant_i64(tables, FOLDED_ROOTS), root)
    if folded == NO_STATE:
        return NO_STATE, 0
    source, start, stop = text
    return folded, fold_text(source, start, stop, scratch[0], scratch[1], constant_i64(tables, FOLD_TABLE))


@nested
def find_patterns(first: int, text: tuple[int, int, int], scratch: tuple[int, int], tables: int, found: int) -> bool:
    """Add the patterns that a text, source[start:stop], satisfies to the set `found`, and remove their literals.

    The atoms from index `first` on are those of the text, with all literals, also those of the folded text.  `scratch` is an
    address of u64 and its bytes.  Returns False if an expression needs more.
    """
    source, start, stop = text
    memory, room = scratch
    last = load_i64(found, ATOMS_FOUND)
    if has_overflown(found):
        return True
    bounds, listed = constant_i64(tables, LITERAL_BOUNDS), constant_i64(tables, LITERAL_PATTERNS)
    patterns, n_atoms = constant_i64(tables, PATTERNS), load_i64(constant_i64(tables, FIRST_LITERAL), 0)
    for k in range(first, last):
        literal = found_atom(found, k)
        for i in range(load_i64(bounds, literal), load_i64(bounds, literal + 1)):
            pattern = patterns + 8 * PATTERN_WORDS * load_i64(listed, i)
            atom, at = load_i64(pattern, PATTERN_ATOM), load_i64(pattern, PATTERN_AT)
            if place_of(found, atom) >= 0:
                continue
            if at < 0:
                operand, length = constant_i64(tables, WILDCARD_BYTES) + ~at, load_i64(pattern, PATTERN_LENGTH)
                is_satisfied = wildcard_matches(source, start, stop, operand, length)
            else:
                automaton = constant_i64(tables, REGEXP_AUTOMATA) + 8 * at
                if 8 * regexp_words(automaton) > room:
                    return False
                is_satisfied = regexp_matches(source, start, stop, automaton, memory)
            if is_satisfied:
                add_atom(found, atom)
    take_out(found, first, last, n_atoms)
    return True
