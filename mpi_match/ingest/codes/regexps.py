"""Regular expressions in compiled code: the answers of `texts.regexp.matches`.

The sets of an automaton are words of 64 bits, and all automata are in one array.  Bytes that all sets of an automaton treat
alike share a class.  In an automaton with few sets of positions each set is a number, and a table has the next set for each
class of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.compute.bits import popcount
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_i32, load_i64, load_u8, load_u64, store_u64
from mpi_match.texts.characters import LINE_FEED, LOWER_A, LOWER_CASE, LOWER_Z, NINE, UNDERSCORE, ZERO
from mpi_match.texts.regexp import KIND_OF_BYTE, MAX_POSITIONS, Automaton, bits
from mpi_match.texts.regexp_syntax import N_BYTE_KINDS, NEWLINE, NO_BYTE, OTHER, WORD

MAX_REGEXP_WORDS = MAX_POSITIONS // 64
REGEXP_STATE_WORDS = 2 * MAX_REGEXP_WORDS
"""Words u64 of the largest state that `regexp_matches` needs."""
_WORDS, _BY_KIND, _EMPTY, _FIRST, _LAST, _ENTERED, _FOLLOW, _HEADER = range(8)
"""Items of the header: words of a set; 1 if kinds of bytes matter; `Automaton.empty`; places of the sets behind it."""
_IS_TABLE = 0
"""`_WORDS` of an automaton with a table.  _BY_KIND is the number of its classes; _FIRST and _LAST are the places of the
table, i32[states, classes], and of 1 for a state that matches at the end of a text, i32[states]."""
_MATCHED = -1
"""A next state that is not the index of a row."""
MOST_TABLE_ITEMS, MOST_OF_ONE = 2**16, 2**13
"""Most items of all tables, and of one; an automaton that needs more has no table."""
_CLASS_WORDS = 256 // 8
_0, _1 = np.uint64(0), np.uint64(1)


def regexp_table(automata: Sequence[Automaton], most_items: int = MOST_TABLE_ITEMS) -> tuple[Array, Array]:
    """All automata in one array, u64, and i64[n]: the index of each in it.  Tables have `most_items` together, or a few
    more."""
    parts, left = list[Array](), most_items
    for automaton in automata:
        table = _table_of(automaton, MOST_OF_ONE) if left > 0 else None
        left -= MOST_OF_ONE if table is None else 2 * len(table)
        parts.append(_words_of(automaton) if table is None else table)
    ends = np.cumsum([0, *map(len, parts)])
    return np.concatenate([*parts, np.zeros(1, np.uint64)]), ends[:-1].astype(np.int64)


def _asks_for_kinds(automaton: Automaton) -> bool:
    return len({*automaton.first[1:]}) > 1 or len({*automaton.last[1:]}) > 1 or automaton.empty != 0


def _table_of(automaton: Automaton, most: int) -> Array | None:
    """An automaton with a table; None if it has more than `most` items."""
    entered, follow, first, last, empty = automaton
    kinds = KIND_OF_BYTE if _asks_for_kinds(automaton) else bytes([OTHER]) * 256
    classes: dict[tuple[int, int, bool], int] = {}
    keys = [(entered[byte], kinds[byte], byte & 0xC0 != 0x80) for byte in range(256)]
    class_of_byte = bytes([classes.setdefault(key, len(classes)) for key in keys])
    states, rows, ends = {(0, NO_BYTE): 0}, list[int](), list[int]()
    todo = list(states)
    for active, before in todo:  # which grows meanwhile
        behind = first[before]
        for position in bits(active):
            behind |= follow[position]
        at_boundary = empty >> N_BYTE_KINDS * before
        ends.append(int(active & last[NO_BYTE] != 0 or at_boundary >> NO_BYTE & 1))
        if len(rows) + len(classes) > most:
            return None
        for enters, kind, is_boundary in classes:
            if active & last[kind] or (is_boundary and at_boundary >> kind & 1):
                rows.append(_MATCHED)
                continue
            state = behind & enters, kind
            if state not in states:
                states[state] = len(states)
                todo.append(state)
            rows.append(states[state] * len(classes))
    at = _HEADER + _CLASS_WORDS
    header = np.array([_IS_TABLE, len(classes), 0, at, at + -(-len(rows) // 2), 0, 0], np.uint64)
    parts = (class_of_byte, *(np.array(each + [0] * (len(each) % 2), np.int32).tobytes() for each in (rows, ends)))
    return np.concatenate([header, np.frombuffer(b"".join(parts), np.uint64)])


@nested
def _table_matches(data: int, start: int, stop: int, automaton: int) -> bool:
    """`regexp_matches` with a table."""
    n_classes, classes = load_i64(automaton, _BY_KIND), automaton + 8 * _HEADER
    table, state = automaton + 8 * load_i64(automaton, _FIRST), 0
    for at in range(start, stop):
        state = load_i32(table, state + load_u8(classes, load_u8(data, at)))
        if state == _MATCHED:
            return True
    return load_i32(automaton + 8 * load_i64(automaton, _LAST), state // n_classes) != 0


def _words_of(automaton: Automaton) -> Array:
    n_words = max(1, -(-len(automaton.follow) // 64))
    classes: dict[int, int] = {}
    class_of_byte = bytes([classes.setdefault(entered, len(classes)) for entered in automaton.entered])
    sets = (*automaton.first, *automaton.last, *classes, *automaton.follow)
    first = _HEADER + _CLASS_WORDS
    last = first + N_BYTE_KINDS * n_words
    entered = last + N_BYTE_KINDS * n_words
    follow = entered + len(classes) * n_words
    header = np.array([n_words, _asks_for_kinds(automaton), automaton.empty, first, last, entered, follow], np.uint64)
    packed = b"".join([class_of_byte, *(each.to_bytes(8 * n_words, "little") for each in sets)])
    return np.concatenate([header, np.frombuffer(packed, np.uint64)])


@nested
def _kind(byte: int) -> int:
    """The kind of a byte, as in `texts.regexp_syntax`."""
    lower = byte | LOWER_CASE
    if LOWER_A <= lower <= LOWER_Z or ZERO <= byte <= NINE or byte == UNDERSCORE:
        return WORD
    return NEWLINE if byte == LINE_FEED else OTHER


@nested
def _lowest(bits: np.uint64) -> int:
    """The index of the lowest bit that is set."""
    return int(popcount((bits & (~bits + _1)) - _1))


@nested
def _is_empty_match(empty: int, before: int, behind: int) -> bool:
    return empty >> (N_BYTE_KINDS * before + behind) & 1 != 0


@nested
def _behind(active: np.uint64, follow: int) -> np.uint64:
    """The positions that follow some of the first 64."""
    found = _0
    while active:
        found |= load_u64(follow, _lowest(active))
        active &= active - _1
    return found


@nested
def _small_matches(data: int, start: int, stop: int, automaton: int) -> bool:
    """`regexp_matches` for sets of one word."""
    first, last = automaton + 8 * load_i64(automaton, _FIRST), automaton + 8 * load_i64(automaton, _LAST)
    entered, follow = automaton + 8 * load_i64(automaton, _ENTERED), automaton + 8 * load_i64(automaton, _FOLLOW)
    by_kind, empty, classes = load_i64(automaton, _BY_KIND), load_i64(automaton, _EMPTY), automaton + 8 * _HEADER
    active, before = _0, NO_BYTE
    if not by_kind:
        begin, first_inside, last_inside = load_u64(first, NO_BYTE), load_u64(first, OTHER), load_u64(last, OTHER)
        for at in range(start, stop):
            if active & last_inside:
                return True
            active = (begin | _behind(active, follow)) & load_u64(entered, load_u8(classes, load_u8(data, at)))
            begin = first_inside
        return bool(active & load_u64(last, NO_BYTE))
    for at in range(start, stop):
        byte = load_u8(data, at)
        kind = _kind(byte)
        if active & load_u64(last, kind):
            return True
        if empty and byte & 0xC0 != 0x80 and _is_empty_match(empty, before, kind):
            return True
        active = (load_u64(first, before) | _behind(active, follow)) & load_u64(entered, load_u8(classes, byte))
        before = kind
    return bool(active & load_u64(last, NO_BYTE)) or _is_empty_match(empty, before, NO_BYTE)


@nested
def _meet(one: int, other: int, n_words: int) -> bool:
    """Tells whether two sets have a common position."""
    common = _0
    for i in range(n_words):
        common |= load_u64(one, i) & load_u64(other, i)
    return bool(common != _0)


@nested
def _step(active: int, found: int, follow: int, entered: int, n_words: int) -> None:
    """Replace the positions `active` by those that follow them or are in `found` and accept a byte."""
    for word in range(n_words):
        bits = load_u64(active, word)
        while bits:
            row = follow + 8 * n_words * (64 * word + _lowest(bits))
            bits &= bits - _1
            for i in range(n_words):
                store_u64(found, i, load_u64(found, i) | load_u64(row, i))
    for i in range(n_words):
        store_u64(active, i, load_u64(found, i) & load_u64(entered, i))


@nested
def _large_matches(data: int, start: int, stop: int, automaton: int, state: int) -> bool:
    """`regexp_matches` for sets of any number of words."""
    n_words = load_i64(automaton, _WORDS)
    by_kind, empty = load_i64(automaton, _BY_KIND), load_i64(automaton, _EMPTY)
    first, last = automaton + 8 * load_i64(automaton, _FIRST), automaton + 8 * load_i64(automaton, _LAST)
    entered, follow = automaton + 8 * load_i64(automaton, _ENTERED), automaton + 8 * load_i64(automaton, _FOLLOW)
    size, classes, found = 8 * n_words, automaton + 8 * _HEADER, state + 8 * n_words
    for i in range(n_words):
        store_u64(state, i, _0)
    before = NO_BYTE
    for at in range(start, stop):
        byte = load_u8(data, at)
        kind = _kind(byte) if by_kind else OTHER
        if _meet(state, last + size * kind, n_words):
            return True
        if empty and byte & 0xC0 != 0x80 and _is_empty_match(empty, before, kind):
            return True
        for i in range(n_words):
            store_u64(found, i, load_u64(first + size * before, i))
        _step(state, found, follow, entered + size * load_u8(classes, byte), n_words)
        before = kind
    return _meet(state, last + size * NO_BYTE, n_words) or _is_empty_match(empty, before, NO_BYTE)


@nested
def regexp_words(automaton: int) -> int:
    """Words u64 of the state that `regexp_matches` needs for an automaton: none with a table, or if a set is one word."""
    n_words = load_i64(automaton, _WORDS)
    return 2 * n_words if n_words > 1 else 0


@nested
def regexp_matches(data: int, start: int, stop: int, automaton: int, state: int) -> bool:
    """Tells whether an automaton, given by the address of its part of `regexp_table`, matches anywhere in data[start:stop],
    valid UTF-8.

    `state` is u64[`regexp_words`], which is overwritten; at most REGEXP_STATE_WORDS.
    """
    if load_i64(automaton, _WORDS) == _IS_TABLE:
        return _table_matches(data, start, stop, automaton)
    if load_i64(automaton, _WORDS) == 1:
        return _small_matches(data, start, stop, automaton)
    return _large_matches(data, start, stop, automaton, state)
