"""Steps from token to token of a line: byte by byte on a GPU, or over the tokens that a CPU has found by vectors.

A `TokenReader` is a set of such functions; those of a scanner are made for one of them (`to_codes.row_scanner`) and do
the same with both.  A token is given by the position of its first byte.  Every line ends with a line feed, a token of its
own, and no function passes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpi_match.arrays.csr import Int
from mpi_match.compute.compile_cache import inlined, nested
from mpi_match.compute.memory import is_on_cpu, load_u8
from mpi_match.compute.vectors import word_at, word_by_bytes
from mpi_match.compute.words import word_from
from mpi_match.ingest.codes.name_steps import begins_step
from mpi_match.ingest.json.line_tokens import after_brackets, find_tokens, next_token
from mpi_match.ingest.json.text import after_blanks, text_end_by_bytes, text_end_by_vectors
from mpi_match.ingest.json.unnamed import after_value
from mpi_match.texts.characters import OPEN_BRACE, OPEN_BRACKET

_ALL = np.uint64(2**64 - 1)


class TokenReader(NamedTuple):
    """Functions of `data`, an address; `tokens` is that of the tokens, which bytes do not need.

    first(data, at, tokens, nesting)         the line's first token, which is at `at`, or FLAGGED_LINE
    following(data, at, tokens)              the token after one of a single byte
    after(data, at, end, tokens)             the token after a string, number or literal that ends at `end`
    after_value(data, at, tokens, nesting)   the token after a value that has only to be JSON; or FLAGGED_LINE
    begins_step(data, at, beginnings)        see `name_steps.begins_step`; not asked where a name has to be read in any case
    text_end(data, at)                       see `text.text_end_by_bytes`
    word(data, at, n)                        see `vectors.word_by_bytes`

    `defers` tells whether texts may be left to other threads (`to_codes.defer_text`).
    """

    first: Callable[[Any, Any, Any, Any], Any]
    following: Callable[[Any, Any, Any], Any]
    after: Callable[[Any, Any, Any, Any], Any]
    after_value: Callable[[Any, Any, Any, Any], Any]
    begins_step: Callable[[Any, Any, Any], bool]
    text_end: Callable[[Any, Any], Any]
    word: Callable[[Any, Any, Any], Any]
    defers: bool


@inlined
def _first_byte(data: int, at: int, tokens: int, nesting: int) -> int:
    return at


@inlined
def _following(data: int, at: int, tokens: int) -> Int:
    return after_blanks(data, at + 1)


@inlined
def _after(data: int, at: int, end: int, tokens: int) -> Int:
    return after_blanks(data, end)


@inlined
def _may_be_any(data: int, at: int, beginnings: int) -> bool:
    return True


@nested
def _first_token(data: int, at: int, tokens: int, nesting: int) -> Int:
    return find_tokens(data, at, tokens, nesting)


@inlined
def _after_checked_value(data: int, at: int, tokens: int, nesting: int) -> Int:
    byte = load_u8(data, at)
    if byte == OPEN_BRACE or byte == OPEN_BRACKET:
        return after_brackets(at, tokens)
    return next_token(at, tokens)


@nested
def _name_word(data: int, at: int, n: int) -> np.uint64:
    """`vectors.word_by_bytes`; a GPU reads the bytes together."""
    if is_on_cpu():
        return word_by_bytes(data, at, n)
    return word_from(data + at) & (_ALL >> np.uint64(64 - 8 * n)) if n else np.uint64(0)


BY_BYTES = TokenReader(_first_byte, _following, _after, after_value, _may_be_any, text_end_by_bytes, _name_word, True)
_BY_TOKENS = _first_token, _following, _after, _after_checked_value
BY_TOKENS = TokenReader(*_BY_TOKENS, begins_step, text_end_by_vectors, word_at, False)
