"""Steps from token to token of a line: byte by byte on a GPU, or over the tokens that a CPU has found by vectors.

A `TokenReader` is a set of such functions; those of a scanner are made for one of them (`to_codes.row_scanner`) and do the
same with both.  A *cursor* stands for a token: the position of its first byte, or its number (`line_tokens`).  Every line
ends with a line feed, a token of its own, and no function passes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mpi_match.arrays.csr import Int
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import load_i64, load_u8
from mpi_match.compute.vectors import VECTOR_BYTES, fits, lowest_bit, text_ends, word_at, word_by_bytes
from mpi_match.ingest.json.line_tokens import HAS_ESCAPES, find_tokens, has_backslash, token_place
from mpi_match.ingest.json.text import FLAGGED_LINE, after_blanks, character_bytes, hex_digits
from mpi_match.texts.characters import (
    BACKSLASH,
    BLANK,
    LOWER_B,
    LOWER_F,
    LOWER_N,
    LOWER_R,
    LOWER_T,
    LOWER_U,
    QUOTE,
    RETURN,
    SLASH,
    TAB,
)


class TokenReader(NamedTuple):
    """Functions of `data`, an address; `tokens` is that of the tokens, which bytes do not need.

    first(data, at, tokens)             the cursor of the line's first token, which is at `at`, or FLAGGED_LINE
    place(cursor, tokens)               where the token begins
    following(data, cursor, tokens)     the token behind one that is a single byte
    after(data, cursor, end, tokens)    the token behind a number or literal that ends at `end`; FLAGGED_LINE if more follows
                                        there
    after_text(data, cursor, tokens)    the token behind a string, checked to be one; or FLAGGED_LINE
    text_end(data, at)                  the first byte from `at` on that is not plain text of a string: a quote, a backslash,
                                        a control character, a byte of no well-formed UTF-8
    name_end(data, cursor, tokens)      the same for the string at the cursor
    word(data, at, n)                   see `vectors.word_by_bytes`
    """

    first: Callable[[Any, Any, Any], Any]
    place: Callable[[Any, Any], Any]
    following: Callable[[Any, Any, Any], Any]
    after: Callable[[Any, Any, Any, Any], Any]
    after_text: Callable[[Any, Any, Any], Any]
    text_end: Callable[[Any, Any], Any]
    name_end: Callable[[Any, Any, Any], Any]
    word: Callable[[Any, Any, Any], Any]


@nested
def after_escape(data: int, at: int) -> int:
    """The position after the escape that begins at a backslash, or FLAGGED_LINE if it is invalid."""
    byte = load_u8(data, at + 1)
    if byte == LOWER_U:
        return at + 6 if hex_digits(data, at + 2) >= 0 else FLAGGED_LINE
    if (
        byte == QUOTE
        or byte == BACKSLASH
        or byte == SLASH
        or byte == LOWER_N
        or byte == LOWER_T
        or byte == LOWER_R
        or byte == LOWER_B
        or byte == LOWER_F
    ):
        return at + 2
    return FLAGGED_LINE


def _string_end(text_end: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """`string_end(data, at)`: the position after the string at an opening quote, or FLAGGED_LINE if it is invalid."""

    @nested
    def string_end(data: int, at: int) -> int:
        at = text_end(data, at + 1)
        while load_u8(data, at) != QUOTE:
            if load_u8(data, at) != BACKSLASH:
                return FLAGGED_LINE
            at = after_escape(data, at)
            if at == FLAGGED_LINE:
                return FLAGGED_LINE
            at = text_end(data, at)
        return at + 1

    return string_end


@nested
def _text_end_by_bytes(data: int, at: int) -> int:
    while True:
        byte = load_u8(data, at)
        if byte >= 0x80:
            n = character_bytes(data, at)
            if n == 0:
                return at
            at += n
        elif byte == QUOTE or byte == BACKSLASH or byte < BLANK:
            return at
        else:
            at += 1


@nested
def _after_other(data: int, at: int) -> int:
    """The position of the first byte from `at` on that is ASCII, or does not begin a well-formed character."""
    while load_u8(data, at) >= 0x80:
        n = character_bytes(data, at)
        if n == 0:
            return at
        at += n
    return at


@inlined
def _text_end_by_vectors(data: int, at: int) -> int:
    while True:
        address = data + at
        if fits(address):
            ends = text_ends(address)
            if ends == 0:
                at += VECTOR_BYTES
                continue
            at += lowest_bit(ends)
        byte = load_u8(data, at)
        if byte == QUOTE or byte == BACKSLASH or byte < BLANK:
            return at
        if byte < 0x80:
            at += 1
        else:
            after = _after_other(data, at)
            if load_u8(data, after) >= 0x80:
                return after
            at = after


_string_end_by_bytes = _string_end(_text_end_by_bytes)
string_end = _string_end(_text_end_by_vectors)


@inlined
def _first_byte(data: int, at: int, tokens: int) -> int:
    return at


@inlined
def _place_of_byte(cursor: int, tokens: int) -> int:
    return cursor


@inlined
def _following_byte(data: int, cursor: int, tokens: int) -> Int:
    return after_blanks(data, cursor + 1)


@inlined
def _after_byte(data: int, cursor: int, end: int, tokens: int) -> Int:
    return after_blanks(data, end)


@nested
def _after_text_of_bytes(data: int, cursor: int, tokens: int) -> int:
    end = _string_end_by_bytes(data, cursor)
    return FLAGGED_LINE if end == FLAGGED_LINE else after_blanks(data, end)


@inlined
def _name_end_by_bytes(data: int, cursor: int, tokens: int) -> int:
    return _text_end_by_bytes(data, cursor + 1)


@nested
def _first_token(data: int, at: int, tokens: int) -> int:
    return 0 if find_tokens(data, at, tokens) != FLAGGED_LINE else FLAGGED_LINE


@inlined
def _place_of_token(cursor: int, tokens: int) -> Int:
    return token_place(tokens, cursor)


@inlined
def _following_token(data: int, cursor: int, tokens: int) -> int:
    return cursor + 1


@inlined
def _after_token(data: int, cursor: int, end: int, tokens: int) -> int:
    byte = load_u8(data, end)
    if end == token_place(tokens, cursor + 1) or byte == BLANK or byte == TAB or byte == RETURN:
        return cursor + 1
    return FLAGGED_LINE


@inlined
def _name_end_by_tokens(data: int, cursor: int, tokens: int) -> Int:
    start, end = token_place(tokens, cursor) + 1, token_place(tokens, cursor + 1) - 1
    while load_u8(data, end) != QUOTE:
        end -= 1
    if load_i64(tokens, HAS_ESCAPES) != 0 and has_backslash(data, start, end):
        return _text_end_by_bytes(data, start)
    return end


BY_BYTES = TokenReader(
    _first_byte,
    _place_of_byte,
    _following_byte,
    _after_byte,
    _after_text_of_bytes,
    _text_end_by_bytes,
    _name_end_by_bytes,
    word_by_bytes,
)
BY_TOKENS = TokenReader(
    _first_token,
    _place_of_token,
    _following_token,
    _after_token,
    _following_token,
    _text_end_by_vectors,
    _name_end_by_tokens,
    word_at,
)
