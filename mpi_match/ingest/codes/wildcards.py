"""Wildcards in compiled code: the answers of `texts.wildcard.matches`.

A pattern is a string of bytes in which `ANY_TEXT` and `ANY_CHARACTER`, which UTF-8 does not have, stand for `*` and `?`.
"""

from __future__ import annotations

from mpi_match.compute.compile_cache import nested
from mpi_match.compute.memory import load_u8
from mpi_match.texts.wildcard import tokens

ANY_TEXT, ANY_CHARACTER = 0xFF, 0xFE


def wildcard_bytes(pattern: str) -> bytes:
    """The form of a pattern that `wildcard_matches` takes."""
    special = {"*": bytes([ANY_TEXT]), "?": bytes([ANY_CHARACTER])}
    return b"".join(special.get(token) or token[-1].encode() for token in tokens(pattern))


@nested
def _after_character(data: int, at: int, stop: int) -> int:
    """The index after the character at data[at]."""
    at += 1
    while at < stop and load_u8(data, at) & 0xC0 == 0x80:
        at += 1
    return at


@nested
def wildcard_matches(data: int, start: int, stop: int, pattern: int, length: int) -> bool:
    """Tells whether a pattern, `wildcard_bytes` u8[length], matches the text data[start:stop], valid UTF-8.

    If a piece after a star does not fit, it is tried one character later; pieces before that star keep their positions.
    """
    at, i, star, tried = start, 0, -1, start
    while at < stop:
        byte = load_u8(pattern, i) if i < length else -1
        if byte == ANY_TEXT:
            star, tried = i, at
            i += 1
        elif byte == ANY_CHARACTER:
            at = _after_character(data, at, stop)
            i += 1
        elif byte == load_u8(data, at):
            at += 1
            i += 1
        elif star >= 0:
            tried = _after_character(data, tried, stop)
            at, i = tried, star + 1
        else:
            return False
    while i < length and load_u8(pattern, i) == ANY_TEXT:
        i += 1
    return i == length
