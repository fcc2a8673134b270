"""Passes values that no filter names: they are checked to be JSON, and otherwise ignored.

Integers of any length, numbers beyond the range of doubles, lone surrogates in escapes, duplicate names, and any depth are
accepted.  Each list or object around the position is one bit, so the code is not recursive and writes only these bits.
"""

from __future__ import annotations

import numpy as np

from mpi_match.arrays.csr import Array, Int
from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_i64, load_u8, load_u64, store_u64
from mpi_match.ingest.json.line_tokens import NESTING_ROOM, NESTING_WORDS, WORD_LEVELS
from mpi_match.ingest.json.text import FLAGGED_LINE, after_blanks, number_or_literal_end, string_end, string_end_by_bytes
from mpi_match.texts.characters import (
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COLON,
    COMMA,
    OPEN_BRACE,
    OPEN_BRACKET,
    QUOTE,
)

_0, _1 = np.uint64(0), np.uint64(1)


def nesting_memory(levels: int) -> Array:
    """Memory for a number of levels, i64."""
    memory = np.zeros(NESTING_WORDS + levels // WORD_LEVELS, np.int64)
    memory[NESTING_ROOM] = levels // WORD_LEVELS
    return memory


@nested
def scalar_end(data: int, at: int) -> Int:
    """The end of a value other than a list or object, or FLAGGED_LINE; for CPUs."""
    return string_end(data, at) if load_u8(data, at) == QUOTE else number_or_literal_end(data, at)


@nested
def _after_text(data: int, at: int) -> int:
    """The position after the string at `at`, and blanks; or FLAGGED_LINE."""
    end = string_end_by_bytes(data, at)
    return FLAGGED_LINE if end == FLAGGED_LINE else after_blanks(data, end)


@nested
def _after_list_or_object(data: int, at: int, nesting: int) -> int:  # noqa: C901  the grammar of JSON
    most = WORD_LEVELS * load_i64(nesting, NESTING_ROOM)
    depth, objects = 0, _0  # the latter: a bit for each of the innermost levels, the lowest for the innermost
    while True:
        byte, is_name = load_u8(data, at), False
        if byte == QUOTE:
            at = _after_text(data, at)
        elif byte == OPEN_BRACE or byte == OPEN_BRACKET:
            at = after_blanks(data, at + 1)
            is_name = byte == OPEN_BRACE
            if load_u8(data, at) == byte + 2:
                at = after_blanks(data, at + 1)
                is_name = False
            else:
                if depth and depth % WORD_LEVELS == 0:
                    if depth >= most:
                        return FLAGGED_LINE
                    store_u64(nesting, NESTING_WORDS + depth // WORD_LEVELS - 1, objects)
                depth += 1
                objects = objects << _1 | (_1 if is_name else _0)
                if not is_name:
                    continue
        else:
            end = number_or_literal_end(data, at)
            if end == FLAGGED_LINE:
                return FLAGGED_LINE
            at = after_blanks(data, end)
        if at == FLAGGED_LINE:
            return FLAGGED_LINE
        while not is_name:
            if depth == 0:
                return at
            byte, is_object = load_u8(data, at), objects & _1 != _0
            if byte == COMMA:
                at = after_blanks(data, at + 1)
                is_name = is_object
                break
            if byte != (CLOSE_BRACE if is_object else CLOSE_BRACKET):
                return FLAGGED_LINE
            at = after_blanks(data, at + 1)
            depth -= 1
            objects >>= _1
            if depth and depth % WORD_LEVELS == 0:
                objects = load_u64(nesting, NESTING_WORDS + depth // WORD_LEVELS - 1)
        if is_name:
            if load_u8(data, at) != QUOTE:
                return FLAGGED_LINE
            at = _after_text(data, at)
            if at == FLAGGED_LINE or load_u8(data, at) != COLON:
                return FLAGGED_LINE
            at = after_blanks(data, at + 1)


@nested
def after_value(data: int, at: int, tokens: int, nesting: int) -> int:
    """The position after the value at `at`, and blanks; FLAGGED_LINE if it is not JSON, or is nested deeper than there is
    room for in the memory for depth at the address `nesting`.  `tokens` is not used: see `token_reader`."""
    byte = load_u8(data, at)
    if byte == QUOTE:
        return _after_text(data, at)
    if byte == OPEN_BRACE or byte == OPEN_BRACKET:
        return _after_list_or_object(data, at, nesting)
    end = number_or_literal_end(data, at)
    return FLAGGED_LINE if end == FLAGGED_LINE else after_blanks(data, end)
