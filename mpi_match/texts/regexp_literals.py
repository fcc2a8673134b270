"""Required literals of a regular expression: every matching text contains at least one of them.

They are an over-estimate made in one pass over the program of a pattern.  Each part has either the few strings that it can
match, or the best set of alternatives that one of its own parts requires.  Strings of neighbours are joined.  Where joining
ends, because a part has too many strings, the joined ones are a candidate.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from mpi_match.texts.code_points import Ranges
from mpi_match.texts.folding import fold
from mpi_match.texts.regexp_syntax import Assertion, Characters, InARow, Repeat, parse

_MOST_JOINED = 16
"""Most strings to which a class or a sequence of parts is expanded."""
_MOST_ALTERNATIVES = 128
"""Most alternatives of a result."""
_LONGEST = 200
"""Length, in characters, from which on a string is not joined with others."""

Strings = frozenset[str]


class _Found(NamedTuple):
    """All strings that a part matches, and perhaps more, or None; and alternatives that it requires, or None."""

    all: Strings | None
    required: Strings | None


_EMPTY: Strings = frozenset([""])


def literals(pattern: str, folded: bool = False) -> frozenset[str]:
    """A set of strings such that every text that a pattern matches contains one of them; empty if none is known.

    With `folded`, every text contains one after `folding.fold`, which serves patterns with `(?i)`.  Raises RegexpError for a
    pattern that is not in the syntax.
    """
    stack: list[_Found] = []
    for step in parse(pattern).steps:
        if isinstance(step, Characters):
            stack.append(_characters(step.sets, folded))
        elif isinstance(step, Assertion):
            stack.append(_Found(_EMPTY, None))
        elif isinstance(step, Repeat):
            stack.append(_repeated(stack.pop(), step.low, step.high))
        else:
            taken = stack[len(stack) - step.parts :]
            del stack[len(stack) - step.parts :]
            stack.append(_in_a_row(taken) if isinstance(step, InARow) else _one_of(taken))
    (whole,) = stack
    found = _better(whole.all, whole.required) or frozenset()
    return frozenset(each for each in found if not any(other != each and other in each for other in found))


def _characters(sets: tuple[Ranges, ...], folded: bool) -> _Found:
    """A sequence of characters, one of each set."""
    parts = [_strings(ranges, folded) for ranges in sets]
    if len(parts) <= _LONGEST and all(part is not None and len(part) == 1 for part in parts):
        return _Found(frozenset(["".join(next(iter(part)) for part in parts if part is not None)]), None)
    return _in_a_row([_Found(part, part) for part in parts])


@lru_cache(4096)
def _strings(ranges: Ranges, folded: bool) -> Strings | None:
    """The characters of a set as strings; None for many."""
    if sum(high - low + 1 for low, high in ranges) > 4 * _MOST_JOINED:
        return None
    found = frozenset(chr(code) for low, high in ranges for code in range(low, high + 1) if not 0xD800 <= code < 0xE000)
    found = frozenset(map(fold, found)) if folded else found
    return found if len(found) <= _MOST_JOINED else None


def _repeated(part: _Found, low: int, high: int | None) -> _Found:
    if not low:
        few = part.all is not None and high == 1 and len(part.all) < _MOST_JOINED
        return _Found(part.all | _EMPTY if few and part.all is not None else None, None)
    if low == high == 1 or part.all == _EMPTY:
        return part
    if low == high and part.all is not None and low * max(map(len, part.all), default=0) <= _LONGEST:
        return _in_a_row([part] * low)
    at_least = _in_a_row([part] * min(low, 8))
    return _Found(None, _better(at_least.all, at_least.required))


def _one_of(parts: list[_Found]) -> _Found:
    every: set[str] = set()
    required: set[str] = set()
    has_all = has_required = True
    for part in parts:
        one = _better(part.all, part.required)
        if part.all is None:
            has_all = False
        elif has_all:
            every |= part.all
        if one is None:
            has_required = False
        elif has_required:
            required |= one
        has_all &= len(every) <= _MOST_ALTERNATIVES
        has_required &= len(required) <= _MOST_ALTERNATIVES
    return _Found(frozenset(every) if has_all else None, frozenset(required) if has_required else None)


def _in_a_row(parts: list[_Found]) -> _Found:
    joined: Strings = _EMPTY
    best: Strings | None = None
    is_all = True
    for part in parts:
        if part.all is not None and len(part.all) * len(joined) <= max(_MOST_JOINED, len(part.all), len(joined)):
            longer = frozenset([begin + end for begin in joined for end in part.all])
            if max(map(len, longer), default=0) <= _LONGEST:
                joined = longer
                continue
        best, is_all = _better(best, joined), False
        joined = part.all if part.all is not None else _EMPTY
        if part.all is None:
            best = _better(best, part.required)
    return _Found(joined, None) if is_all else _Found(None, _better(best, joined))


def _better(one: Strings | None, other: Strings | None) -> Strings | None:
    """The better of two sets of alternatives: longer strings, fewer strings; None if both are None or contain an empty
    string."""
    return max((one, other), key=_worth) if _worth(one) > 0 or _worth(other) > 0 else None


@lru_cache(8192)
def _worth(strings: Strings | None) -> float:
    if strings is None or "" in strings:
        return 0.0
    if not strings:  # nothing matches
        return math.inf
    return min(len(each.encode()) for each in strings) / (1 + math.log2(len(strings)) / 8)
