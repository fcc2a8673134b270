"""Unicode simple case folding: one character for each character, so that texts which differ in case alone become equal."""

from __future__ import annotations

from functools import cache

_LAST_CASED = 0x1FFFF
"""The last code point of a character that has a case."""
_NEWER = frozenset(
    [
        *(0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC, 0xA7DD, 0xA7E2, 0xAB6C, 0xAB6D),
        *(0x1DF40, 0x1DF48, 0x1DF4A, 0x1DF4D, 0x1DF51, *range(0x1DF68, 0x1DF70, 2), *range(0x1DF72, 0x1DF80, 2)),
        *(*range(0x10D50, 0x10D66), *range(0x16EA0, 0x16EB9)),
    ]
)
"""Capital letters of Unicode 15 to 18, which only some versions of Python know; all processes must fold alike."""


def fold(text: str) -> str:
    """The text after Unicode simple case folding (statuses C and S of CaseFolding.txt, as of Unicode 14).

    `fold` of the result is the result.  The UTF-8 bytes may become more, or fewer.
    """
    return text.lower() if text.isascii() else text.translate(folds())


@cache
def folds() -> dict[int, int]:
    """The code points that folding changes, about 1,400, each with the one that it becomes."""
    return {code: other for code in range(_LAST_CASED + 1) if code not in _NEWER and (other := _folded(chr(code))) != code}


@cache
def variants() -> dict[int, tuple[int, ...]]:
    """The code points that share their folding with others, about 2,800, each with all that have the same folding."""
    groups: dict[int, list[int]] = {}
    for code, folded in folds().items():
        groups.setdefault(folded, [folded]).append(code)
    return {code: tuple(sorted(group)) for group in groups.values() for code in group}


def _folded(character: str) -> int:
    """The code point that a character folds to."""
    for other in (character.casefold(), character.lower()):
        if len(other) == 1:
            return ord(other)
    return ord(character)
