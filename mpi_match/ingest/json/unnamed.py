"""Passes values that no filter names: they are checked to be JSON, and otherwise ignored.

Integers of any length, numbers beyond the range of doubles, lone surrogates in escapes, duplicate names, and any depth are
accepted.  Each list or object around the position is one bit, so the code is not recursive and writes only these bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import load_i64, load_u8, load_u64, store_u64
from mpi_match.ingest.json.text import FLAGGED_LINE, literal
from mpi_match.ingest.json.token_reader import TokenReader, string_end
from mpi_match.texts.characters import (
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COLON,
    COMMA,
    LOWER_CASE,
    LOWER_E,
    MINUS,
    NINE,
    OPEN_BRACE,
    OPEN_BRACKET,
    PLUS,
    POINT,
    QUOTE,
    ZERO,
)

_0, _1 = np.uint64(0), np.uint64(1)
NESTING_ROOM, NESTING_WORDS = range(2)
"""Words of the memory for depth: the number of words after this one; the first of them.  A word has 64 levels."""
_WORD_LEVELS = 64


def nesting_memory(levels: int) -> Array:
    """Memory for a number of levels, i64."""
    memory = np.zeros(NESTING_WORDS + levels // _WORD_LEVELS, np.int64)
    memory[NESTING_ROOM] = levels // _WORD_LEVELS
    return memory


@inlined
def digits_end(data: int, at: int) -> int:
    """The position of the first byte from `at` on that is not a digit."""
    while ZERO <= load_u8(data, at) <= NINE:
        at += 1
    return at


@nested
def after_number(data: int, at: int) -> int:
    """The position after the number at `at`, or FLAGGED_LINE if it is invalid."""
    if load_u8(data, at) == MINUS:
        at += 1
    first = at
    at = digits_end(data, at)
    if at == first or (load_u8(data, first) == ZERO and at != first + 1):
        return FLAGGED_LINE
    if load_u8(data, at) == POINT:
        first = at + 1
        at = digits_end(data, first)
        if at == first:
            return FLAGGED_LINE
    if load_u8(data, at) | LOWER_CASE == LOWER_E:
        at += 1
        if load_u8(data, at) == PLUS or load_u8(data, at) == MINUS:
            at += 1
        first = at
        at = digits_end(data, at)
        if at == first:
            return FLAGGED_LINE
    return at


@inlined
def _end_of_other(data: int, at: int) -> int:
    """The end of a value other than a string, list or object, or FLAGGED_LINE."""
    byte = load_u8(data, at)
    if byte == MINUS or ZERO <= byte <= NINE:
        return after_number(data, at)
    found, at = literal(data, at)
    return at if found >= 0 else FLAGGED_LINE


@nested
def scalar_end(data: int, at: int) -> Int:
    """The end of a value other than a list or object, or FLAGGED_LINE; for CPUs."""
    return string_end(data, at) if load_u8(data, at) == QUOTE else _end_of_other(data, at)


def value_skipper(reader: TokenReader) -> Callable[[int, int, int, int], int]:  # noqa: C901  the grammar of JSON
    """The function that passes a value.

    `after_value(data, cursor, tokens, nesting)` gets the cursor of the value and the address of the memory for depth.  It
    returns the cursor of the next token, or FLAGGED_LINE if the value is not JSON, or is nested deeper than there is room
    for.
    """
    place, following, after, after_text = reader.place, reader.following, reader.after, reader.after_text

    @nested
    def after_list_or_object(data: int, cursor: int, tokens: int, nesting: int) -> int:  # noqa: C901
        most = _WORD_LEVELS * load_i64(nesting, NESTING_ROOM)
        depth, objects = 0, _0  # the latter: a bit for each of the innermost levels, the lowest for the innermost
        while True:
            at = place(cursor, tokens)
            byte, is_name = load_u8(data, at), False
            if byte == QUOTE:
                cursor = after_text(data, cursor, tokens)
            elif byte == OPEN_BRACE or byte == OPEN_BRACKET:
                cursor = following(data, cursor, tokens)
                is_name = byte == OPEN_BRACE
                if load_u8(data, place(cursor, tokens)) == byte + 2:
                    cursor = following(data, cursor, tokens)
                    is_name = False
                else:
                    if depth and depth % _WORD_LEVELS == 0:
                        if depth >= most:
                            return FLAGGED_LINE
                        store_u64(nesting, NESTING_WORDS + depth // _WORD_LEVELS - 1, objects)
                    depth += 1
                    objects = objects << _1 | (_1 if is_name else _0)
                    if not is_name:
                        continue
            else:
                end = _end_of_other(data, at)
                if end == FLAGGED_LINE:
                    return FLAGGED_LINE
                cursor = after(data, cursor, end, tokens)
            if cursor == FLAGGED_LINE:
                return FLAGGED_LINE
            while not is_name:
                if depth == 0:
                    return cursor
                byte, is_object = load_u8(data, place(cursor, tokens)), objects & _1 != _0
                if byte == COMMA:
                    cursor = following(data, cursor, tokens)
                    is_name = is_object
                    break
                if byte != (CLOSE_BRACE if is_object else CLOSE_BRACKET):
                    return FLAGGED_LINE
                cursor = following(data, cursor, tokens)
                depth -= 1
                objects >>= _1
                if depth and depth % _WORD_LEVELS == 0:
                    objects = load_u64(nesting, NESTING_WORDS + depth // _WORD_LEVELS - 1)
            if is_name:
                if load_u8(data, place(cursor, tokens)) != QUOTE:
                    return FLAGGED_LINE
                cursor = after_text(data, cursor, tokens)
                if cursor == FLAGGED_LINE or load_u8(data, place(cursor, tokens)) != COLON:
                    return FLAGGED_LINE
                cursor = following(data, cursor, tokens)

    @inlined
    def after_value(data: int, cursor: int, tokens: int, nesting: int) -> Any:
        at = place(cursor, tokens)
        byte = load_u8(data, at)
        if byte == QUOTE:
            return after_text(data, cursor, tokens)
        if byte == OPEN_BRACE or byte == OPEN_BRACKET:
            return after_list_or_object(data, cursor, tokens, nesting)
        end = _end_of_other(data, at)
        return FLAGGED_LINE if end == FLAGGED_LINE else after(data, cursor, end, tokens)

    found: Callable[[Any, Any, Any, Any], Any] = after_value
    return found
