"""Sets of characters, as sorted ranges of code points: those that regular expressions name, and how UTF-8 writes them."""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache, lru_cache

from mpi_match.texts.folding import variants

Ranges = tuple[tuple[int, int], ...]
"""First and last code points, sorted, with gaps between them."""

_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_DIGIT: Ranges = ((48, 57),)
_ALPHA: Ranges = ((65, 90), (97, 122))
PERL_CLASSES: dict[str, Ranges] = {"d": _DIGIT, "s": ((9, 10), (12, 13), (32, 32)), "w": _WORD}
"""The sets of `\\d`, `\\s` and `\\w`, ASCII alone."""
POSIX_CLASSES: dict[str, Ranges] = {
    "alnum": (*_DIGIT, *_ALPHA),
    "alpha": _ALPHA,
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
"""The sets of `[[:alpha:]]` and the like, ASCII alone."""
EVERY: Ranges = ((0, sys.maxunicode),)


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges, which may overlap and be in any order, in canonical form."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """All other code points."""
    found, start = [], 0
    for low, high in ranges:
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, sys.maxunicode)) if start <= sys.maxunicode else tuple(found)


def with_variants(ranges: Ranges) -> Ranges:
    """The set, with all characters that fold to the same character as one of the set."""
    others, cased = variants(), _cased()
    found = list(ranges)
    for low, high in ranges:
        for code in cased[bisect_left(cased, low) : bisect_left(cased, high + 1)]:
            found += [(other, other) for other in others[code]]
    return union(found)


@cache
def _cased() -> list[int]:
    return sorted(variants())


@cache
def category(name: str) -> Ranges | None:
    """The characters of a general category, such as `L` or `Lu`, or `Any`; None if the category does not exist."""
    if name == "Any":
        return EVERY
    found = [each for kind, each in _categories().items() if kind == name or kind[:1] == name]
    return union(each for ranges in found for each in ranges) if found else None


@cache
def _categories() -> dict[str, Ranges]:
    """The sets of all assigned characters, by their category of two letters."""
    found: dict[str, list[tuple[int, int]]] = {}
    start, before = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 2):
        kind = unicodedata.category(chr(code)) if code <= sys.maxunicode else ""
        if kind != before:
            found.setdefault(before, []).append((start, code - 1))
            start, before = code, kind
    del found["Cn"]
    return {kind: tuple(ranges) for kind, ranges in found.items()}


Tree = tuple[tuple[int, "Tree | None"], ...]
"""Sets of bytes, as numbers whose bit B stands for byte B, each with the tree of what follows it; None after a last byte."""
_LENGTHS = ((1, 0, 0x80, 0), (2, 0x80, 0x800, 0xC0), (3, 0x800, 0x10000, 0xE0), (4, 0x10000, 0x110000, 0xF0))
"""For each length of UTF-8: that length, the least code point, the first that is longer, the least first byte."""


@lru_cache(4096)
def utf8(ranges: Ranges) -> Tree:
    """The UTF-8 of the characters of a set.

    A tree also has bytes of invalid UTF-8 if they save branches: among valid texts it is exact.
    """
    found: list[tuple[int, Tree | None]] = []
    for length, least, end, lead in _LENGTHS:
        inside = [(max(low, least), min(high, end - 1)) for low, high in ranges if low < end and high >= least]
        if inside:
            found += _branches(_with_invalid(inside, length), length - 1, lead)
    return tuple(found)


def _with_invalid(ranges: list[tuple[int, int]], length: int) -> Ranges:
    """The ranges of characters of this length, extended over neighbours that are not characters or have a shorter form."""
    _, least, end, _ = _LENGTHS[length - 1]
    (low, high), *others = ranges
    found = [(0 if low == least else low, high), *others]
    if length == 4 and found[-1][1] == end - 1:
        found[-1] = found[-1][0], 0x13FFFF
    if length == 3:
        found = [(a, 0xDFFF if b == 0xD7FF else b) for a, b in found]
    return union(found)


@lru_cache(4096)
def _branches(ranges: Ranges, depth: int, base: int) -> Tree:
    """The tree of numbers of `depth` + 1 bytes, six bits a byte; `base` is added to the first byte."""
    size = 64**depth
    by_first: dict[int, list[tuple[int, int]]] = {}
    for low, high in ranges:
        for first in range(low // size, high // size + 1):
            at = first * size
            by_first.setdefault(first, []).append((max(low - at, 0), min(high - at, size - 1)))
    by_tree: dict[Tree | None, int] = {}
    for first, inside in by_first.items():
        tree = _branches(tuple(inside), depth - 1, 0x80) if depth else None
        by_tree[tree] = by_tree.get(tree, 0) | 1 << base + first
    return tuple((found, tree) for tree, found in by_tree.items())
