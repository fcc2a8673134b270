"""Wildcard patterns, which describe a whole text: `*` stands for any number of characters, and `?` for one character.

A backslash before `*`, `?` or a backslash makes it stand for itself; before another character, and at the end, the backslash
stands for itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

MAX_WILDCARD = 65_536
"""Most characters of a pattern."""
_CACHED = 4096
"""Number of patterns that are kept in parsed form."""
_TOKEN = re.compile(r"\\[*?\\]|.", re.DOTALL)


class _Piece(NamedTuple):
    """The characters between two stars: their number, and the strings among them, with the index of each."""

    length: int
    strings: tuple[tuple[int, str], ...]

    def fits(self, text: str, at: int) -> bool:
        """Tells whether the characters from `at` on are those of the piece."""
        return at + self.length <= len(text) and all(text.startswith(string, at + index) for index, string in self.strings)

    def find(self, text: str, at: int) -> int:
        """The first index, from `at` on, where the piece fits, or -1."""
        if not self.strings:
            return at if at + self.length <= len(text) else -1
        index, string = max(self.strings, key=lambda each: len(each[1]))
        found = text.find(string, at + index)
        while found >= 0 and not self.fits(text, found - index):
            found = text.find(string, found + 1)
        return found - index if found >= 0 else -1


def matches(value: bytes, pattern: bytes) -> bool:
    """Tells whether `pattern` matches the text `value`; both are UTF-8.

    Each piece between two stars takes its leftmost position, so the time is at most proportional to the product of both
    lengths.
    """
    text, (head, *others) = value.decode(), _pieces(pattern)
    if not head.fits(text, 0):
        return False
    if not others:
        return len(text) == head.length
    at = head.length
    for piece in others[:-1]:
        found = piece.find(text, at)
        if found < 0:
            return False
        at = found + piece.length
    start = len(text) - others[-1].length
    return start >= at and others[-1].fits(text, start)


def tokens(pattern: str) -> list[str]:
    """The characters of a pattern, quoted ones with their backslash; `*` and `?` alone are the wildcards.

    Raises ValueError for more than MAX_WILDCARD characters, as all functions here do.
    """
    if len(pattern) > MAX_WILDCARD:
        raise ValueError(f"the pattern has {len(pattern):,} characters, at most {MAX_WILDCARD:,} are allowed")
    return _TOKEN.findall(pattern)


def literal(pattern: str) -> str:
    """The longest string, in bytes, that every text of a pattern contains; empty if there is none."""
    is_wildcard = ("*", "?").__contains__
    runs = ["".join(token[-1] for token in run) for wild, run in groupby(tokens(pattern), is_wildcard) if not wild]
    return max(runs, key=lambda run: len(run.encode()), default="")


@lru_cache(_CACHED)
def _pieces(pattern: bytes) -> tuple[_Piece, ...]:
    """The pieces between the stars of a pattern; one for a pattern without stars."""
    pieces: list[list[str]] = [[]]
    for token in tokens(pattern.decode()):
        if token == "*":
            pieces.append([])
        else:
            pieces[-1].append(token)
    return tuple(map(_piece, pieces))


def _piece(tokens: list[str]) -> _Piece:
    strings, index = [], 0
    for is_any, run in groupby(tokens, "?".__eq__):
        string = "".join(token[-1] for token in run)
        if not is_any:
            strings.append((index, string))
        index += len(string)
    return _Piece(len(tokens), tuple(strings))
