"""Wildcard patterns, which describe a whole text: `*` stands for any characters, also none, and `?` for one character.

A backslash before `*`, `?` or a backslash takes it as it is; before another character, and at the end, it stands for itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_CACHED = 4096
"""Number of patterns that are kept in parsed form."""
_TOKEN = re.compile(r"\\[*?\\]|.", re.DOTALL)


class _Piece(NamedTuple):
    """The characters between two stars: their number, and an expression for them in which `.` is any character."""

    length: int
    expression: re.Pattern[str]


def matches(value: bytes, pattern: bytes) -> bool:
    """True if the text `value` is one that `pattern` describes; both are UTF-8.

    Each piece between two stars takes its leftmost place, so the time is at most the product of both lengths.
    """
    text, (head, *others) = value.decode(), _pieces(pattern)
    if head.expression.match(text) is None:
        return False
    if not others:
        return len(text) == head.length
    at = head.length
    for piece in others[:-1]:
        found = piece.expression.search(text, at)
        if found is None:
            return False
        at = found.end()
    start = len(text) - others[-1].length
    return start >= at and others[-1].expression.match(text, start) is not None


def tokens(pattern: str) -> list[str]:
    """The characters of a pattern, quoted ones with their backslash; `*` and `?` alone are the wildcards."""
    return _TOKEN.findall(pattern)


def literal(pattern: str) -> str:
    """The longest string, in bytes, that every text of a pattern contains; empty if there is none."""
    runs = [""]
    for token in tokens(pattern):
        if token in ("*", "?"):
            runs.append("")
        else:
            runs[-1] += token[-1]
    return max(runs, key=lambda run: len(run.encode()))


@lru_cache(_CACHED)
def _pieces(pattern: bytes) -> tuple[_Piece, ...]:
    """The pieces between the stars of a pattern: one if there is no star."""
    pieces: list[list[str]] = [[]]
    for token in tokens(pattern.decode()):
        if token == "*":
            pieces.append([])
        else:
            pieces[-1].append("." if token == "?" else re.escape(token[-1]))
    return tuple(_Piece(len(piece), re.compile("".join(piece), re.DOTALL)) for piece in pieces)
