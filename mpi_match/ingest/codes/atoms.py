"""Finds the suffixes and contained strings of a string in one pass over its bytes: an Aho-Corasick automaton for each name.

The atoms of a name form a trie; a state is the longest beginning of an atom that ends at the last byte read.  If a state has
no edge for a byte, its *failure link* leads to the next shorter one.  A contained string is found whenever its state is
visited; a suffix when its state, or one reached from there by failure links, is the last.  So a string costs about two
look-ups for each of its bytes, however many atoms there are (Aho and Corasick, "Efficient string matching", 1975).

A text is read by *rows*: the row of a state has the next state for each byte, failure links included, so a byte costs one
look-up.  A row has a place for each byte that the atoms of its trie have, and one for all others.  Rows are in the order of
their states' depth, so those that most texts use stay in the fastest memory.  Only the least deep states have rows.  Where a
text comes to a state without one, reading goes on in the longest state with a row that ends there, and the atoms that begin
with the other state are searched for at once, by edges alone; where there is one edge, a CPU compares bytes.  A CPU finds
atoms of one byte, which nearly every text contains, with vectors.

Each look-up waits for the one before.  A long string is therefore read at eight places at once: in eight stretches, each of
which begins in the root.  Reading continues behind the end of a stretch until its state is no longer than the bytes read
there: from then on the next stretch has the same states.  So each stretch finds the atoms that begin in it.

What elements of an attribute may satisfy (`table.element_names`) is found likewise: a trie of its own for the suffixes and
contained strings, and one for beginnings and for whole strings, which is walked from the first byte as far as it has edges.

The edges of all tries are in one hash table, open addressing by state and byte.  The states with rows are the least deep
ones of each trie; every trie has equally many of them, or all its states.  Those that read every string of an event have
more, and tries of beginnings, which are left at the first byte without an edge, come last.  Bytes that no atom distinguishes
share a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array, offsets_of
from mpi_match.arrays.strings import Strings
from mpi_match.compute.compile_cache import inlined, jit, nested
from mpi_match.compute.memory import any_u32, constant_i64, is_on_cpu, load_i32, load_i64, load_u8, load_u64, store_i64
from mpi_match.compute.vectors import VECTOR_BYTES, fits, lowest_bit, places_of_byte, places_of_word, same_bytes
from mpi_match.compute.words import WORD_BYTES, begins_in_word, place_of_byte, word_from
from mpi_match.ingest.codes.numbers import N_NUMBER_TABLES
from mpi_match.operators import OPERATORS, PATTERN_OPS, Anchor
from mpi_match.table.vocabulary import ATOM_OPS, Vocabulary

NO_ATOM = NO_STATE = -1
(
    ATOM_ROOTS,
    NULL_ATOMS,
    ATOM_NAMES,
    EDGES,
    AUTOMATON_SIZES,
    FAILURE_LINKS,
    CONTAINED,
    NEXT_CONTAINED,
    SUFFIXES,
    NEXT_SUFFIX,
    STATE_DEPTHS,
    WORDS_OF_TRIES,
    TRIE_CLASSES,
    TRIE_ROWS,
    ROW_PLACES,
    SINGLE_BOUNDS,
    SINGLE_BYTES,
    RUNS,
    RUN_BYTES,
    N_AUTOMATON_TABLES,
) = range(N_NUMBER_TABLES, N_NUMBER_TABLES + 20)
"""Places in the table of addresses, behind those of the numbers:

    ATOM_ROOTS                  i64[v]: of each name's trie; NO_STATE for a name without strings and patterns
    NULL_ATOMS                  i64[v]: `Vocabulary.null_atoms`, NO_ATOM for a name without
    ATOM_NAMES                  i64[a]: the name of each atom, of the vocabulary's, then of those of `element_atoms`
    EDGES                       i64[slots, 2]: state * 256 + byte, or NO_STATE in a free slot; where it leads to, *marked*
    AUTOMATON_SIZES             i64: EDGE_MASK, mask for numbers of slots; N_TRIE_ROWS, N_ROW_WORDS, numbers of rows and
                                words in TRIE_ROWS
    FAILURE_LINKS               i64[states]: NO_STATE for a root
    CONTAINED, SUFFIXES         i64[states]: the atom that is this state, or NO_ATOM; in a trie of beginnings the prefix
                                that it is, and the number of the whole string
    NEXT_CONTAINED, NEXT_SUFFIX i64[states]: the first state that is an atom, from here along failure links
    STATE_DEPTHS                i64[states]: bytes of the beginning of an atom that a state is
    WORDS_OF_TRIES              i64[tries, 1 + MOST_WORDS]: how many words follow, and words of four bytes: a long string
                                without any has nothing of the trie; 0 for a trie without such words
    TRIE_CLASSES                u8[tries, 256]: the class of each byte in the rows of a trie
    TRIE_ROWS                   i32: row after row, each the number of its state, then for each class of bytes the place of
                                the next state's row; ~ of that place if the state, or one along its links, is an atom of
                                several bytes; or ~ (N_ROW_WORDS + number) of a state without a row
    ROW_PLACES                  i64[N_TRIE_ROWS]: where the classes of each row begin
    SINGLE_BOUNDS, SINGLE_BYTES i64[tries + 1], i64[., 2]: contained strings of one byte of each trie, and their atoms
    RUNS                        i32[states, RUN_WORDS]: of a state with one edge, the bytes up to the next state that is an
                                atom or has more or no edges: where they are in RUN_BYTES, u8, and their number, which is 0
                                for other states; and that next state

A marked state is 2 * state, and 1 more if it has a NEXT_CONTAINED, which is then not looked up for the others.
"""
EDGE_MASK, N_TRIE_ROWS, N_ROW_WORDS = range(3)
MOST_WORDS, _WORD_BYTES = 4, 4
TRIE_ROW_BYTES, _MOST_WITH_ROWS = 2**24, 2**16
"""Most bytes of TRIE_ROWS; most tries for which there are some."""
RUN_PLACE, RUN_LENGTH, RUN_TO, RUN_WORDS = range(4)
FOUND_STAMP, ATOMS_FOUND, FOUND_ROOM, FOUND_HEADER = range(4)
"""Words of a set of atoms, i64[FOUND_HEADER + FOUND_WORDS * n_atoms]: number of the last row; atoms found in it; 0."""
_STAMP_OF, _PLACE_OF, _FOUND_ATOM, _FOUND_CODE, FOUND_WORDS = range(5)
"""Behind them, for each k: the last row that had atom k, and its place among the atoms of that row; the k-th atom found, and
its code, which is 0 except for extremes of elements.

A set may be smaller, if the third word is its room, the number of atoms that it holds; atoms beyond the room are counted,
perhaps twice, and not kept.  Up to MOST_SEARCHED, there are no numbers of rows, and the found atoms are searched for each
new one.  In a larger set, the first two words of the k-th are those of slot k of a hash table (open addressing by atom), and
must be 0 at first.
"""
MOST_SEARCHED = 64
"""Room of the largest set whose atoms are searched one by one."""
LEAST_OF_CHAINS, LEAST_ON_GPU = 32, 256
"""Bytes of the shortest string that is read at several places at once, on a CPU and by a thread of a GPU, where all wait
for the longest."""
_N_CHAINS, _LEAST_OVERLAP = 8, 6
"""The number of these places; least bytes that are read behind each stretch, while other stretches are still read."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)


_IS_WHOLE, _IS_IN_TRIE, _HAS_TRIE = np.zeros((3, max(OPERATORS) + 1), bool)
"""By operator: whether an atom of it is found at the end of a string; whether it is in a trie; whether it or its literals
are."""
for _op in ATOM_OPS:
    _IS_WHOLE[_op] = _op.record.anchor is Anchor.END
    _IS_IN_TRIE[_op] = _op.record.anchor is not None
    _HAS_TRIE[_op] = _IS_IN_TRIE[_op] or _op in PATTERN_OPS


class Tries(NamedTuple):
    """Strings for tries.

    n_tries       number of tries
    strings       Strings[k]
    trie          i64[k]: the number of the trie
    is_whole      bool[k]: suffixes; in a trie of beginnings, whole strings
    atom          i64[k]: their atoms; of whole strings in a trie of beginnings, their numbers
    """

    n_tries: int
    strings: Strings
    trie: Array
    is_whole: Array
    atom: Array

    @classmethod
    def of_atoms(cls, vocabulary: Vocabulary) -> Tries:
        """The suffixes and contained strings of each name in `names_with_tries`."""
        names, kept = names_with_tries(vocabulary), np.flatnonzero(_IS_IN_TRIE[vocabulary.atom_op])
        trie = np.searchsorted(names, _names_of_atoms(vocabulary, kept))
        is_whole = _IS_WHOLE[vocabulary.atom_op[kept]]
        return cls(len(names), vocabulary.atoms.take(kept), trie, is_whole, kept)

    @classmethod
    def concat(cls, parts: Sequence[Tries]) -> Tries:
        """All of them."""
        n_tries = np.cumsum([0, *(part.n_tries for part in parts)])
        tries = [part.trie + n for part, n in zip(parts, n_tries, strict=False)]
        columns = (tries, [part.is_whole for part in parts], [part.atom for part in parts])
        return cls(int(n_tries[-1]), Strings.concat([part.strings for part in parts]), *map(np.concatenate, columns))

    def with_more(self, other: Tries) -> Tries:
        """The strings of both; those of `others` are in the same tries, or in further ones that are numbered after these."""
        columns = zip(self[2:], other[2:], strict=True)
        return Tries(other.n_tries, Strings.concat([self.strings, other.strings]), *map(np.concatenate, columns))


def names_with_tries(vocabulary: Vocabulary) -> Array:
    """i64, ascending: the names with suffixes, contained strings or patterns, each of which has a trie."""
    return np.unique(_names_of_atoms(vocabulary, np.flatnonzero(_HAS_TRIE[vocabulary.atom_op])))


def _names_of_atoms(vocabulary: Vocabulary, atoms: Array) -> Array:
    return np.searchsorted(vocabulary.atom_offsets, atoms, side="right") - 1


def automaton(vocabulary: Vocabulary, tries: Tries, atom_names: Array, shares: Array) -> tuple[Array, ...]:
    """The tables, in the order of their indices; the tries are those of `Tries.of_atoms`, and others.

    `shares`, f64[tries], not 0, are the numbers of rows that tries have for one of a trie with 1.
    """
    roots = np.full(vocabulary.n_names, NO_STATE, np.int64)
    with_tries = names_with_tries(vocabulary)
    roots[with_tries] = np.arange(len(with_tries))
    if not tries.n_tries:  # nothing is looked up, and nothing needs to be compiled for it
        return roots, vocabulary.null_atoms, atom_names, *[np.zeros(0, np.int64)] * (N_AUTOMATON_TABLES - EDGES)
    n_roots, data = tries.n_tries, np.array(tries.strings.data)
    most_states = n_roots + len(data)
    edges = _free_slots(most_states)
    trie = np.full((most_states, _N_TRIE_COLUMNS), NO_STATE, np.int64)
    trie[:n_roots, _DEPTH] = 0
    strings = np.stack([tries.strings.offsets[:-1], tries.strings.offsets[1:], tries.trie, tries.atom], axis=1)
    n_states = _insert(data, strings, tries.is_whole, edges, trie, n_roots)
    in_order = _in_order_of_rows(trie[:n_states], shares)
    number = np.append(np.argsort(in_order), NO_STATE)  # of the roots it stays
    trie, edges = trie[in_order], _free_slots(n_states)  # fewer than the bound if strings share beginnings
    trie[:, _PARENT], trie[:, _ROOT] = number[trie[:, _PARENT]], number[trie[:, _ROOT]]
    _link(edges, trie)
    _mark(edges, trie)
    of_rows = _rows_of(tries, trie)
    sizes = np.array([len(edges) - 1, len(of_rows[-1]), len(of_rows[1])], np.int64)
    of_states = (*trie.T[_FAILURE : _NEXT_OF_SUFFIXES + 1], trie[:, _DEPTH], _words_of(tries))
    return (
        roots,
        vocabulary.null_atoms,
        atom_names,
        edges,
        sizes,
        *of_states,
        *of_rows,
        *_singles_of(tries),
        _runs_of(trie),
        data,
    )


def _rows_of(tries: Tries, trie: Array) -> tuple[Array, Array, Array]:
    """TRIE_CLASSES, TRIE_ROWS and ROW_PLACES, for the states of all tries in their order."""
    n_tries = tries.n_tries if tries.n_tries <= _MOST_WITH_ROWS else 0
    is_used = np.zeros((n_tries, 256), bool)
    if not n_tries:
        return is_used.view(np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int64)
    is_used[np.repeat(tries.trie, np.diff(tries.strings.offsets).astype(np.int64)), tries.strings.data] = True
    numbers = np.cumsum(is_used, axis=1, dtype=np.int16)
    numbers -= (numbers[:, -1:] == 256).astype(np.int16)  # all 256 bytes need no class for the others
    root = np.where(trie[:, _ROOT] == NO_STATE, np.arange(len(trie)), trie[:, _ROOT])
    ends = np.cumsum(numbers[root, -1].astype(np.int64) + 2)
    n_rows = int(np.searchsorted(ends, TRIE_ROW_BYTES // 4, side="right"))
    places = np.append(0, ends)[:n_rows] + 1
    rows = np.full(ends[n_rows - 1] if n_rows else 0, NO_STATE, np.int32)
    classes = np.where(is_used, numbers, 0).astype(np.uint8)
    _fill_rows(rows, places, classes, root, trie)
    return classes, rows, places


def _singles_of(tries: Tries) -> tuple[Array, Array]:
    """SINGLE_BOUNDS and SINGLE_BYTES."""
    kept = np.flatnonzero((np.diff(tries.strings.offsets) == 1) & ~tries.is_whole)
    kept = kept[np.argsort(tries.trie[kept], kind="stable")]
    singles = np.stack([np.array(tries.strings.data)[tries.strings.offsets[kept]], tries.atom[kept]], axis=1)
    return offsets_of(np.bincount(tries.trie[kept], minlength=tries.n_tries)), singles.astype(np.int64)


_OFTEN = b"e taionsrlcdmupghfwby\\vk.x_-0123456789j/:q()z"
"""Bytes of texts, roughly from the most to the least frequent one."""


def _words_of(tries: Tries) -> Array:
    """WORDS_OF_TRIES: the four rarest bytes of each string, if a trie has few strings and no ends."""
    words = np.zeros((tries.n_tries, 1 + MOST_WORDS), np.int64)
    n_of_trie = np.bincount(tries.trie, minlength=tries.n_tries)
    barred = np.zeros(tries.n_tries, bool)
    barred[tries.trie[tries.is_whole | (np.diff(tries.strings.offsets) < _WORD_BYTES)]] = True
    has_words = (n_of_trie > 0) & (n_of_trie <= MOST_WORDS) & ~barred
    rank = [_OFTEN.find(byte) % 256 for byte in range(256)]
    for k in np.flatnonzero(has_words[tries.trie]).tolist():
        text, row = tries.strings[k], words[tries.trie[k]]
        best = max(range(len(text) - _WORD_BYTES + 1), key=lambda i: sum(rank[each] for each in text[i : i + _WORD_BYTES]))
        row[0] += 1
        row[row[0]] = int.from_bytes(text[best : best + _WORD_BYTES], "little")
    return words


def _in_order_of_rows(trie: Array, shares: Array) -> Array:
    """The states in the order of their new numbers: roots, then in turn as many of each trie as its share, by depth."""
    root = np.where(trie[:, _ROOT] == NO_STATE, np.arange(len(trie)), trie[:, _ROOT])
    by_trie = np.lexsort((trie[:, _DEPTH], root))
    turn = np.empty(len(trie))
    turn[by_trie] = np.arange(len(trie)) - np.searchsorted(root[by_trie], np.arange(len(shares)))[root[by_trie]]
    return np.argsort(turn / shares[root], kind="stable")


def _free_slots(n_states: int) -> Array:
    return np.full((1 << (n_states + n_states // 2).bit_length(), 2), NO_STATE, np.int64)


(
    _PARENT,
    _BYTE,
    _DEPTH,
    _ROOT,
    _FAILURE,
    _AT_CONTAINED,
    _NEXT_OF_CONTAINED,
    _AT_SUFFIX,
    _NEXT_OF_SUFFIXES,
    _PLACE,
    _N_TRIE_COLUMNS,
) = range(11)
"""Columns of a state while the trie is built: parent, byte, depth, root of the trie; five that become tables; where its byte
is in the data of all strings."""


@nested
def _slot(key: int, mask: np.uint64) -> np.uint64:
    """The first slot of the search for an edge."""
    return (np.uint64(key) * _MIX >> _32) & mask


@nested
def _edge(edges: Array, state: int, byte: Any) -> int:
    """The slot of an edge, or the free slot for it."""
    mask = np.uint64(len(edges) - 1)
    slot = _slot(256 * state + byte, mask)
    while edges[slot, 0] != NO_STATE and edges[slot, 0] != 256 * state + byte:
        slot = (slot + np.uint64(1)) & mask
    return int(slot)


@jit
def _insert(data: Array, strings: Array, is_whole: Array, edges: Array, trie: Array, n_states: int) -> int:
    """Insert all strings, given by start, end, root and atom i64[., 4], into the tries, which have their roots.  Returns the
    number of states."""
    for k in range(len(strings)):
        state = strings[k, 2]
        for i in range(strings[k, 0], strings[k, 1]):
            byte = np.int64(data[i])
            slot = _edge(edges, state, byte)
            if edges[slot, 0] == NO_STATE:
                edges[slot, 0], edges[slot, 1] = 256 * state + byte, n_states
                trie[n_states, _PARENT], trie[n_states, _BYTE] = state, byte
                trie[n_states, _DEPTH], trie[n_states, _ROOT] = i - strings[k, 0] + 1, strings[k, 2]
                trie[n_states, _PLACE] = i
                n_states += 1
            state = edges[slot, 1]
        trie[state, _AT_SUFFIX if is_whole[k] else _AT_CONTAINED] = strings[k, 3]
    return n_states


@nested
def _marked(state: int, trie: Array) -> int:
    return 2 * state + (1 if trie[state, _NEXT_OF_CONTAINED] != NO_STATE else 0)


@jit
def _link(edges: Array, trie: Array) -> None:
    """Compute edges, failure links, and the next state of each state that is an atom.

    Links lead to states of smaller numbers.
    """
    for state in range(len(trie)):
        parent, byte = trie[state, _PARENT], trie[state, _BYTE]
        if parent != NO_STATE:
            slot = _edge(edges, parent, byte)
            edges[slot, 0], edges[slot, 1] = 256 * parent + byte, state
    for state in range(len(trie)):
        parent, byte = trie[state, _PARENT], trie[state, _BYTE]
        if parent != NO_STATE:
            link = trie[parent, _FAILURE]
            while link != NO_STATE and edges[_edge(edges, link, byte), 0] == NO_STATE:
                link = trie[link, _FAILURE]
            trie[state, _FAILURE] = trie[state, _ROOT] if link == NO_STATE else edges[_edge(edges, link, byte), 1]
        link = trie[state, _FAILURE]
        for at, following in ((_AT_CONTAINED, _NEXT_OF_CONTAINED), (_AT_SUFFIX, _NEXT_OF_SUFFIXES)):
            if trie[state, at] != NO_ATOM:
                trie[state, following] = state
            elif link != NO_STATE:
                trie[state, following] = trie[link, following]


@jit
def _mark(edges: Array, trie: Array) -> None:
    """Mark the states that edges lead to."""
    for slot in range(len(edges)):
        if edges[slot, 0] != NO_STATE:
            edges[slot, 1] = _marked(edges[slot, 1], trie)


@jit
def _fill_rows(rows: Array, places: Array, classes: Array, root: Array, trie: Array) -> None:
    """Compute TRIE_ROWS, in which no class of bytes has a state, from ROW_PLACES, TRIE_CLASSES and each state's root.

    Links lead to states of smaller numbers.
    """
    n_rows = len(places)
    for state in range(len(trie)):
        parent = trie[state, _PARENT]
        if parent != NO_STATE and parent < n_rows:
            rows[places[parent] + classes[root[parent], trie[state, _BYTE]]] = state
    for state in range(n_rows):
        place, link = places[state], trie[state, _FAILURE]
        rows[place - 1] = state
        for k in range((places[state + 1] - 1 if state + 1 < n_rows else len(rows)) - place):
            if rows[place + k] == NO_STATE:
                rows[place + k] = state if link == NO_STATE else rows[places[link] + k]
    for state in range(n_rows):
        for k in range(places[state], places[state + 1] - 1 if state + 1 < n_rows else len(rows)):
            following = rows[k]
            contained = trie[following, _NEXT_OF_CONTAINED]
            has_atoms = contained != NO_STATE and trie[contained, _DEPTH] > 1
            place = places[following] if following < n_rows else len(rows) + following
            rows[k] = ~place if following >= n_rows or has_atoms else place


@jit
def _runs_of(trie: Array) -> Array:
    """Make RUNS.  A state with one edge that is no atom is inside a string: the bytes of a run are those of one string."""
    runs = np.zeros((len(trie), RUN_WORDS), np.int32)
    n_edges = np.zeros(len(trie), np.int32)
    for state in range(len(trie) - 1, -1, -1):  # edges lead to states of larger numbers
        parent, to, length = trie[state, _PARENT], state, 1
        if n_edges[state] == 1 and trie[state, _AT_CONTAINED] == NO_ATOM and trie[state, _AT_SUFFIX] == NO_ATOM:
            to, length = runs[state, RUN_TO], 1 + runs[state, RUN_LENGTH]
        if n_edges[state] != 1:
            runs[state, RUN_LENGTH] = 0
        if parent != NO_STATE:
            n_edges[parent] += 1
            runs[parent, RUN_PLACE], runs[parent, RUN_LENGTH], runs[parent, RUN_TO] = trie[state, _PLACE], length, to
    return runs


@nested
def _next_state(state: int, byte: int, tables: int) -> int:
    """The state after another byte, marked.  A root that is not left is unmarked, because its atoms are those of the empty
    string."""
    mask = constant_i64(constant_i64(tables, AUTOMATON_SIZES), EDGE_MASK)
    edges, links = constant_i64(tables, EDGES), constant_i64(tables, FAILURE_LINKS)
    while True:
        key = 256 * state + byte
        slot = np.int64(_slot(key, np.uint64(mask)))
        while True:
            found = load_i64(edges, 2 * slot)
            if found == key:
                return load_i64(edges, 2 * slot + 1)
            if found == NO_STATE:
                break
            slot = (slot + 1) & mask
        link = load_i64(links, state)
        if link == NO_STATE:
            return 2 * state
        state = link


@nested
def begin_row(found: int) -> None:
    """Empty a set, for the next row."""
    store_i64(found, FOUND_STAMP, load_i64(found, FOUND_STAMP) + 1)
    store_i64(found, ATOMS_FOUND, 0)


@nested
def found_atom(found: int, k: int) -> int:
    """The k-th atom of a set."""
    return load_i64(found, FOUND_HEADER + FOUND_WORDS * k + _FOUND_ATOM)


@nested
def found_code(found: int, k: int) -> int:
    """The code of the k-th atom of a set."""
    return load_i64(found, FOUND_HEADER + FOUND_WORDS * k + _FOUND_CODE)


@nested
def place_of(found: int, atom: int) -> int:
    """The index of an atom in a set, or -1."""
    room = load_i64(found, FOUND_ROOM)
    if room == 0:
        own = FOUND_HEADER + FOUND_WORDS * atom
        return load_i64(found, own + _PLACE_OF) if load_i64(found, own + _STAMP_OF) == load_i64(found, FOUND_STAMP) else -1
    if room > MOST_SEARCHED:
        slot = _slot_in_set(found, atom, room)
        is_there = slot >= 0 and load_i64(found, slot + _STAMP_OF) == load_i64(found, FOUND_STAMP)
        return load_i64(found, slot + _PLACE_OF) if is_there else -1
    for k in range(min(room, load_i64(found, ATOMS_FOUND))):
        if found_atom(found, k) == atom:
            return k
    return -1


@nested
def _slot_in_set(found: int, atom: int, room: int) -> Any:
    """The first word of an atom's slot in the hash table of a set, or of the free slot for it; -1 if there is neither."""
    stamp = load_i64(found, FOUND_STAMP)
    slot: Any = np.int64((np.uint64(atom) * _MIX >> _32) * np.uint64(room) >> _32)
    for _ in range(room):
        own = FOUND_HEADER + FOUND_WORDS * slot
        if load_i64(found, own + _STAMP_OF) != stamp or found_atom(found, load_i64(found, own + _PLACE_OF)) == atom:
            return own
        slot = slot + 1 if slot + 1 < room else 0
    return -1


@nested
def _enter_in_set(found: int, atom: int, k: int, room: int) -> None:
    """Enter the k-th atom of a set, which is new, in the hash table."""
    own = _slot_in_set(found, atom, room)
    store_i64(found, own + _STAMP_OF, load_i64(found, FOUND_STAMP))
    store_i64(found, own + _PLACE_OF, k)


@nested
def add_with_code(found: int, atom: int, code: int) -> None:
    """Add an atom that a set does not have, with a code."""
    n, room = load_i64(found, ATOMS_FOUND), load_i64(found, FOUND_ROOM)
    if room == 0:
        store_i64(found, FOUND_HEADER + FOUND_WORDS * atom + _STAMP_OF, load_i64(found, FOUND_STAMP))
        store_i64(found, FOUND_HEADER + FOUND_WORDS * atom + _PLACE_OF, n)
    if n < room and room > MOST_SEARCHED:
        _enter_in_set(found, atom, n, room)
    if room == 0 or n < room:
        set_found(found, n, atom, code)
    store_i64(found, ATOMS_FOUND, n + 1)


@nested
def set_found(found: int, k: int, atom: int, code: int) -> None:
    """Make an atom with a code the k-th of a set."""
    store_i64(found, FOUND_HEADER + FOUND_WORDS * k + _FOUND_ATOM, atom)
    store_i64(found, FOUND_HEADER + FOUND_WORDS * k + _FOUND_CODE, code)


@nested
def add_atom(found: int, atom: int) -> None:
    """Add an atom to a set, unless the set has it."""
    if place_of(found, atom) < 0:
        add_with_code(found, atom, 0)


@nested
def has_overflown(found: int) -> bool:
    """Tells whether a set with limited room lacks atoms that were found."""
    room = load_i64(found, FOUND_ROOM)
    return room != 0 and load_i64(found, ATOMS_FOUND) > room


@nested
def take_out(found: int, first: int, last: int, least: int) -> None:
    """Remove those of the atoms `first` to `last` of a set, without the last, that have a number of at least `least`.

    Nothing is removed from a set that has overflown.
    """
    if has_overflown(found):
        return
    is_numbered, kept = load_i64(found, FOUND_ROOM) == 0, first
    for k in range(first, load_i64(found, ATOMS_FOUND)):
        atom = found_atom(found, k)
        own = FOUND_HEADER + FOUND_WORDS * atom
        if k < last and atom >= least:
            if is_numbered:
                store_i64(found, own + _STAMP_OF, 0)
            continue
        if kept < k:
            set_found(found, kept, atom, found_code(found, k))
            if is_numbered:
                store_i64(found, own + _PLACE_OF, kept)
        kept += 1
    n_before, room = load_i64(found, ATOMS_FOUND), load_i64(found, FOUND_ROOM)
    store_i64(found, ATOMS_FOUND, kept)
    if room > MOST_SEARCHED and kept < n_before:
        store_i64(found, FOUND_STAMP, load_i64(found, FOUND_STAMP) + 1)
        for k in range(kept):
            _enter_in_set(found, found_atom(found, k), k, room)


@nested
def _add_all(state: int, atoms: int, following: int, links: int, found: int) -> None:
    """Add the atoms of a state, and of those along its links, that the set lacks."""
    state = load_i64(following, state)
    while state != NO_STATE:
        atom = load_i64(atoms, state)
        if place_of(found, atom) >= 0:
            break  # and so are those behind it
        add_with_code(found, atom, 0)
        state = load_i64(links, state)
        if state != NO_STATE:
            state = load_i64(following, state)


@nested
def _lacks_all(words: int, at: int, end: int) -> bool:
    """Tells whether the text between two addresses has none of the words of a trie (a row of WORDS_OF_TRIES), which has
    some."""
    n_words = load_i64(words, 0)
    if n_words == 0:
        return False
    end -= _WORD_BYTES - 1
    if not is_on_cpu():
        at &= -WORD_BYTES
        word = load_u64(at, 0)
        while at < end:
            following = load_u64(at, 1)
            for k in range(n_words):
                if begins_in_word(word, following, load_i64(words, 1 + k)):
                    return False  # or before the beginning, or behind the end
            word = following
            at += WORD_BYTES
        return True
    while at < end:
        if fits(at) and fits(at + _WORD_BYTES - 1):
            places = np.uint64(0)
            for k in range(n_words):
                places |= places_of_word(at, load_i64(words, 1 + k))
            if places != np.uint64(0):
                return False  # or behind the end
            at += VECTOR_BYTES
        else:
            for k in range(n_words):
                if any_u32(at) == load_i64(words, 1 + k):
                    return False
            at += 1
    return True


@nested
def _add_singles(first: int, last: int, data: int, start: int, stop: int, tables: int, found: int) -> None:
    """Add the atoms SINGLE_BYTES[first:last] that data[start:stop] contains."""
    singles, end = constant_i64(tables, SINGLE_BYTES), data + stop
    for k in range(first, last):
        byte, at = load_i64(singles, 2 * k), data + start
        while at < end:
            if not is_on_cpu():
                place, n_read = place_of_byte(word_from(at), byte), WORD_BYTES
            elif fits(at):
                place, n_read = lowest_bit(places_of_byte(at, byte)), VECTOR_BYTES
            else:
                place, n_read = 0 if load_u8(at, 0) == byte else 1, 1
            if place < n_read:
                if at + place < end:
                    add_atom(found, load_i64(singles, 2 * k + 1))
                break
            at += n_read


@nested
def _add_deeper(state: int, data: int, at: int, stop: int, tables: int, found: int) -> None:
    """Add the atoms that begin with a state, which ends before byte `at`, as far as the string before `stop` has them."""
    mask = constant_i64(constant_i64(tables, AUTOMATON_SIZES), EDGE_MASK)
    edges, contained, marked = constant_i64(tables, EDGES), constant_i64(tables, CONTAINED), 1
    runs = constant_i64(tables, RUNS)
    while True:
        atom = load_i64(contained, state) if marked & 1 else NO_ATOM
        if atom != NO_ATOM:
            add_atom(found, atom)
        if at == stop:
            break
        run = runs + 4 * RUN_WORDS * state
        length = load_i32(run, RUN_LENGTH)
        if is_on_cpu() and length > 0:
            place = constant_i64(tables, RUN_BYTES) + load_i32(run, RUN_PLACE)
            if length > stop - at or not same_bytes(data + at, place, length):
                return
            state, at, marked = load_i32(run, RUN_TO), at + length, 1
            continue
        key = 256 * state + load_u8(data, at)
        slot = np.int64(_slot(key, np.uint64(mask)))
        while load_i64(edges, 2 * slot) != key:
            if load_i64(edges, 2 * slot) == NO_STATE:
                return
            slot = (slot + 1) & mask
        marked = load_i64(edges, 2 * slot + 1)
        state = marked >> 1
        at += 1
    atom = load_i64(constant_i64(tables, SUFFIXES), state)
    if atom != NO_ATOM:
        add_atom(found, atom)


@nested
def _row_after(entry: int, data: int, at: int, stop: int, tables: int, found: int) -> int:
    """The place of the row that a negative entry of TRIE_ROWS leads to, before byte `at`; adds the atoms there.

    For a state without a row it is that of the longest state with a row that ends it; the atoms that begin with the states
    without one are searched for at once.
    """
    links, sizes, place = constant_i64(tables, FAILURE_LINKS), constant_i64(tables, AUTOMATON_SIZES), ~entry
    if place >= load_i64(sizes, N_ROW_WORDS):
        state = place - load_i64(sizes, N_ROW_WORDS)
        while state >= load_i64(sizes, N_TRIE_ROWS):
            _add_deeper(state, data, at, stop, tables, found)
            state = load_i64(links, state)
        place = load_i64(constant_i64(tables, ROW_PLACES), state)
    state = load_i32(constant_i64(tables, TRIE_ROWS), place - 1)
    _add_all(state, constant_i64(tables, CONTAINED), constant_i64(tables, NEXT_CONTAINED), links, found)
    return place


@inlined
def _step(row: Any, byte: Any, classes: int, rows: int) -> Any:
    """The entry of TRIE_ROWS after a row and another byte."""
    return load_i32(rows, row + load_u8(classes, byte))


@nested
def _by_chains(root: int, classes: int, data: int, start: int, stop: int, tables: int, found: int) -> int:
    """Add the atoms of several bytes that a long string contains, and the suffixes without a row; it is read at eight places
    at once.  `root` is the place of the root's row; returns that of the state at the end that has a row.

    The first stretch that meets no other before the end has the state of the whole string.
    """
    rows, depths = constant_i64(tables, TRIE_ROWS), constant_i64(tables, STATE_DEPTHS)
    length = (stop - start - _LEAST_OVERLAP) // _N_CHAINS
    overlap = stop - start - _N_CHAINS * length
    a = b = c = d = e = f = g = h = root
    for i in range(length + overlap):
        first, fifth = data + start + i, data + start + 4 * length + i
        a = _step(a, load_u8(first, 0), classes, rows)
        b = _step(b, load_u8(first, length), classes, rows)
        c = _step(c, load_u8(first, 2 * length), classes, rows)
        d = _step(d, load_u8(first, 3 * length), classes, rows)
        e = _step(e, load_u8(fifth, 0), classes, rows)
        f = _step(f, load_u8(fifth, length), classes, rows)
        g = _step(g, load_u8(fifth, 2 * length), classes, rows)
        h = _step(h, load_u8(fifth, 3 * length), classes, rows)
        if (a | b | c | d | e | f | g | h) < 0:
            for k in range(_N_CHAINS):
                if a < 0:
                    a = _row_after(a, data, start + k * length + i + 1, stop, tables, found)
                a, b, c, d, e, f, g, h = b, c, d, e, f, g, h, a
    states, last = (a, b, c, d, e, f, g, h), NO_STATE
    for k in range(_N_CHAINS):
        row, begin = states[k], start + (k + 1) * length
        at = begin + overlap
        while at < stop and load_i64(depths, load_i32(rows, row - 1)) > at - begin:
            row = _step(row, load_u8(data, at), classes, rows)
            at += 1
            if row < 0:
                row = _row_after(row, data, at, stop, tables, found)
        if last == NO_STATE and (k == _N_CHAINS - 1 or load_i64(depths, load_i32(rows, row - 1)) > at - begin):
            last = row
    return last


@nested
def find_atoms(root: int, data: int, start: int, stop: int, tables: int, found: int) -> None:
    """Add the atoms of a trie that the string data[start:stop] satisfies to the set `found`, in any order."""
    links, contained = constant_i64(tables, FAILURE_LINKS), constant_i64(tables, CONTAINED)
    following = constant_i64(tables, NEXT_CONTAINED)
    state = root
    _add_all(state, contained, following, links, found)
    if root < load_i64(constant_i64(tables, AUTOMATON_SIZES), N_TRIE_ROWS):
        rows, classes = constant_i64(tables, TRIE_ROWS), constant_i64(tables, TRIE_CLASSES) + 256 * root
        singles, row = constant_i64(tables, SINGLE_BOUNDS), load_i64(constant_i64(tables, ROW_PLACES), root)
        if load_i64(singles, root) != load_i64(singles, root + 1):
            _add_singles(load_i64(singles, root), load_i64(singles, root + 1), data, start, stop, tables, found)
        words = constant_i64(tables, WORDS_OF_TRIES) + 8 * (1 + MOST_WORDS) * root
        if stop - start >= LEAST_OF_CHAINS and _lacks_all(words, data + start, data + stop):
            return
        if stop - start >= (LEAST_OF_CHAINS if is_on_cpu() else LEAST_ON_GPU):
            row = _by_chains(row, classes, data, start, stop, tables, found)
        else:
            for i in range(start, stop):
                row = _step(row, load_u8(data, i), classes, rows)
                if row < 0:
                    row = _row_after(row, data, i + 1, stop, tables, found)
        state = load_i32(rows, row - 1)
    else:
        for i in range(start, stop):
            marked = _next_state(state, load_u8(data, i), tables)
            state = marked >> 1
            if marked & 1:
                _add_all(state, contained, following, links, found)
    _add_all(state, constant_i64(tables, SUFFIXES), constant_i64(tables, NEXT_SUFFIX), links, found)


@nested
def find_beginnings(root: int, data: int, start: int, stop: int, tables: int, found: int) -> int:
    """Add the prefixes of a trie that the string data[start:stop] begins with to the set `found`.  Returns the number of the
    whole string, or NO_ATOM."""
    mask = constant_i64(constant_i64(tables, AUTOMATON_SIZES), EDGE_MASK)
    edges, contained = constant_i64(tables, EDGES), constant_i64(tables, CONTAINED)
    state, at = root, start
    while True:
        atom = load_i64(contained, state)
        if atom != NO_ATOM:
            add_atom(found, atom)
        if at == stop:
            return load_i64(constant_i64(tables, SUFFIXES), state)
        key = 256 * state + load_u8(data, at)
        slot = np.int64(_slot(key, np.uint64(mask)))
        while load_i64(edges, 2 * slot) != key:
            if load_i64(edges, 2 * slot) == NO_STATE:
                return NO_ATOM
            slot = (slot + 1) & mask
        state = load_i64(edges, 2 * slot + 1) >> 1
        at += 1
