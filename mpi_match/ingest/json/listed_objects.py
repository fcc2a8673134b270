"""Walks through a list, and the objects and lists in it, and puts out an attribute for each name below it: a list.

    "resources": [{"arn": "a"}, {"arn": "b", "tags": [["x"], [null, "y"]]}]

    resources = []     resources.arn = ["a", "b"]     resources.tags = ["x", "y"]

`rows.flatten` defines this.  The elements of all names arrive mixed.  They are kept in this order, each with the index of
the next one of its name, and copied name by name at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import (
    load_i64,
    load_u8,
    load_u64,
    store_f64,
    store_i64,
    store_u8,
    store_u32,
)
from mpi_match.ingest.codes.code_tables import SEED, feed, hash_of, mixed
from mpi_match.ingest.json.every_name import (
    DOTTED_NAME,
    N_EVERY_NAME_TABLES,
    N_SEEN,
    NAME_HASHES_SEEN,
    SEEN_HEADER,
    see,
)
from mpi_match.ingest.json.text import FLAGGED_LINE, SCRATCH_BYTES, after_blanks, copied, decode_string
from mpi_match.model import Type
from mpi_match.texts.characters import POINT

MOST_LIST_LEVELS = 64
"""Most levels of nested lists and objects, including the outermost list."""
(
    LIST_LEVELS,
    LISTED_NAMES,
    LISTED_ORDER,
    MIXED_TYPE,
    MIXED_NUMBER,
    MIXED_STRING,
    MIXED_NEXT,
    N_LIST_TABLES,
) = range(N_EVERY_NAME_TABLES, N_EVERY_NAME_TABLES + 8)
"""Places in the table of addresses of a thread, behind those of `every_name`:

    LIST_LEVELS                              i64[MOST_LIST_LEVELS, LEVEL_WORDS]: the lists and objects around
    LISTED_NAMES                             i64[MOST_NAMES, NAME_WORDS]: the names below the list, as they are first seen
    LISTED_ORDER                             i64[MOST_NAMES]: those that are attributes, in the order of the attributes
    MIXED_TYPE, MIXED_NUMBER, MIXED_STRING   u8, f64, u32: elements of all names, as in `Events`
    MIXED_NEXT                               i64: of each of these, the next one of its name, or NONE
"""
_IS_LIST, _PREFIX_END, _PREFIX_HASH, _OBJECT, _NAME, LEVEL_WORDS = range(6)
"""Words of a level: 1 for a list; length and hash of the beginning of names in it, or for a list of its name; the number of
the object that it is in, or NONE; for a list its name."""
_NUMBER, _LAST_OBJECT, _FIRST, _LAST, NAME_WORDS = range(5)
"""Words of a name: its number in the pool of names, or NONE if it is not an attribute yet; the number of the last object
that has it; its first and last element, or NONE."""
_NONE = -1
_TEXT_QUOTE, _OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT, _COMMA, _COLON = map(ord, '"[]{},:')
_IS_NULL = int(Type.NULL)


@nested
def _begin_name(place: int, work: int) -> None:
    entry = load_i64(work, LISTED_NAMES) + 8 * NAME_WORDS * place
    for word in range(NAME_WORDS):
        store_i64(entry, word, _NONE)


@nested
def _name_at(hash_: np.uint64, first: int, guess: int, work: int) -> int:
    """The index of a name with this hash among the names below the list; their hashes begin at index `first` of the line's.
    FLAGGED_LINE if the line has the name elsewhere, or without room for it."""
    seen = load_i64(work, NAME_HASHES_SEEN)
    hashes, n = seen + 8 * SEEN_HEADER, load_i64(seen, N_SEEN) - first
    if guess < n and load_u64(hashes, first + guess) == hash_:
        return guess
    if see(seen, hash_):
        _begin_name(n, work)
        return n
    for place in range(n):
        if load_u64(hashes, first + place) == hash_:
            return place
    return FLAGGED_LINE


@nested
def _add_element(entry: int, element: tuple[int, float, int], n: int, work: int) -> None:
    """Keep an element, given by its type, number and string, after n others as the next one of a name."""
    type_, number, string = element
    store_u8(load_i64(work, MIXED_TYPE), n, type_)
    store_f64(load_i64(work, MIXED_NUMBER), n, number)
    store_u32(load_i64(work, MIXED_STRING), n, string)
    store_i64(load_i64(work, MIXED_NEXT), n, _NONE)
    last = load_i64(entry, _LAST)
    if last == _NONE:
        store_i64(entry, _FIRST, n)
    else:
        store_i64(load_i64(work, MIXED_NEXT), last, n)
    store_i64(entry, _LAST, n)


def list_scanner(  # noqa: C901  one pass over a list
    number_of_name: Callable[[int, int, np.uint64, int, int], int],
    scan_scalar: Callable[..., tuple[int, int, float, int]],
    put_list: Callable[..., None],
) -> Callable[..., tuple[int, int]]:
    """The function that scans a list.  These are compiled into it:

    number_of_name(dotted, stop, hash, tables, work)   the number of the name dotted[:stop]; negative if not certain
    scan_scalar(data, at, tables, work)                of a value: where it ends, its type, number and string
    put_list(number, first, n, work)                   writes the list of a name, whose elements begin at `first` of
                                                       MIXED_…, as the n-th attribute that is not counted yet
    """

    @nested
    def scan_list(  # noqa: C901
        data: int, at: int, name: tuple[int, int, int, np.uint64], n_attributes: int, tables: int, work: int
    ) -> tuple[int, int]:
        """Put out the list at `at`; its name is the last one that was seen.  Returns where it ends (FLAGGED_LINE if it is
        not certain), and the new number of attributes."""
        source, start, end, hash_ = name
        dotted, levels, names = load_i64(work, DOTTED_NAME), load_i64(work, LIST_LEVELS), load_i64(work, LISTED_NAMES)
        order, first = load_i64(work, LISTED_ORDER), load_i64(load_i64(work, NAME_HASHES_SEEN), N_SEEN) - 1
        if source != dotted:
            if end - start >= SCRATCH_BYTES:
                return FLAGGED_LINE, 0
            end = copied(source, start, end, dotted, 0)
        _begin_name(0, work)
        number = number_of_name(dotted, end, hash_, tables, work)
        if number < 0:
            return FLAGGED_LINE, 0
        store_i64(names, _NUMBER, number)
        store_i64(order, 0, 0)
        n_ordered, n_mixed, n_objects = 1, 0, 0
        top, is_list, object_, place = 0, True, _NONE, 0
        prefix_end, prefix_hash, is_hashed = end, SEED, False
        at = after_blanks(data, at + 1)
        closing = load_u8(data, at) == _CLOSE_LIST
        while True:
            if closing:
                at += 1
                if top == 0:
                    break
                top -= 1
                level = levels + 8 * LEVEL_WORDS * top
                is_list, object_, place = load_i64(level, _IS_LIST) == 1, load_i64(level, _OBJECT), load_i64(level, _NAME)
                prefix_end, prefix_hash = load_i64(level, _PREFIX_END), load_u64(level, _PREFIX_HASH)
            else:
                end, hash_, guess = prefix_end, prefix_hash, place
                if not is_list:
                    if load_u8(data, at) != _TEXT_QUOTE:
                        return FLAGGED_LINE, 0
                    at, end = decode_string(data, at + 1, dotted, prefix_end, SCRATCH_BYTES)
                    if at == FLAGGED_LINE:
                        return FLAGGED_LINE, 0
                    hash_ = hash_of(dotted, prefix_end, end, prefix_hash)
                    guess = _name_at(mixed(hash_), first, place + 1, work)
                    at = after_blanks(data, at)
                    if guess == FLAGGED_LINE or load_u8(data, at) != _COLON:
                        return FLAGGED_LINE, 0
                    place = guess
                    if load_i64(names + 8 * NAME_WORDS * place, _LAST_OBJECT) == object_:
                        return FLAGGED_LINE, 0
                    store_i64(names + 8 * NAME_WORDS * place, _LAST_OBJECT, object_)
                    at = after_blanks(data, at + 1)
                entry, byte = names + 8 * NAME_WORDS * place, load_u8(data, at)
                element, opens = (_IS_NULL, 0.0, 0), byte in (_OPEN_OBJECT, _OPEN_LIST)
                if not opens:
                    at, type_, value, string = scan_scalar(data, at, tables, work)
                    element = (type_, value, string)
                    if at == FLAGGED_LINE:
                        return FLAGGED_LINE, 0
                if load_i64(entry, _NUMBER) == _NONE and (byte == _OPEN_LIST or (not opens and element[0] != _IS_NULL)):
                    number = number_of_name(dotted, end, mixed(hash_), tables, work)
                    if number < 0:
                        return FLAGGED_LINE, 0
                    store_i64(entry, _NUMBER, number)
                    store_i64(order, n_ordered, place)
                    n_ordered += 1
                if opens:
                    if top + 1 == MOST_LIST_LEVELS or end >= SCRATCH_BYTES:
                        return FLAGGED_LINE, 0
                    if not is_hashed:
                        prefix_hash, is_hashed = hash_of(dotted, 0, prefix_end, SEED), True
                        hash_ = prefix_hash if is_list else hash_
                    level = levels + 8 * LEVEL_WORDS * top
                    store_i64(level, _IS_LIST, 1 if is_list else 0)
                    store_i64(level, _PREFIX_END, prefix_end)
                    store_i64(level, _PREFIX_HASH, np.int64(prefix_hash))
                    store_i64(level, _OBJECT, object_)
                    store_i64(level, _NAME, place)
                    top += 1
                    if byte == _OPEN_OBJECT:
                        if is_list:
                            object_ = n_objects
                            n_objects += 1
                        store_u8(dotted, end, POINT)
                        is_list, prefix_end, prefix_hash = False, end + 1, feed(hash_, POINT)
                    else:
                        is_list, prefix_end, prefix_hash = True, end, hash_
                    at = after_blanks(data, at + 1)
                    closing = load_u8(data, at) == (_CLOSE_LIST if is_list else _CLOSE_OBJECT)
                    continue
                if element[0] != _IS_NULL:
                    _add_element(entry, element, n_mixed, work)
                    n_mixed += 1
            at = after_blanks(data, at)
            byte = load_u8(data, at)
            closing = byte == (_CLOSE_LIST if is_list else _CLOSE_OBJECT)
            if byte == _COMMA:
                at = after_blanks(data, at + 1)
            elif not closing:
                return FLAGGED_LINE, 0
        for k in range(n_ordered):
            entry = names + 8 * NAME_WORDS * load_i64(order, k)
            put_list(load_i64(entry, _NUMBER), load_i64(entry, _FIRST), n_attributes, work)
            n_attributes += 1
        return at, n_attributes

    return scan_list
