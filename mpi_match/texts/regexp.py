r"""Regular expressions in RE2's syntax, searched for in linear time: a position automaton over the bytes of UTF-8.

A *position* is one occurrence of a set of bytes in a pattern; the automaton has a state for each, entered by a byte of its
set (Glushkov, "The abstract theory of automata", 1961).  It has no other transitions: the conditions of `^`, `$` and `\b`
depend on the kinds of the bytes before and behind a boundary, so each position has bytes of one kind where that matters, and
the conditions are decided when a pattern is compiled.  Sets of states are bits of integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from mpi_match.texts.code_points import EVERY, Ranges, Tree, utf8
from mpi_match.texts.regexp_syntax import (
    AT_ANY_BOUNDARY,
    AT_BEGIN,
    AT_END,
    N_BYTE_KINDS,
    NEWLINE,
    NO_BYTE,
    OTHER,
    WORD,
    Assertion,
    Characters,
    InARow,
    Program,
    RegexpError,
    Repeat,
    parse,
)

MAX_POSITIONS = 4096
"""Most positions of a pattern: one for a set of ASCII characters, two for `.` and the like, some for other sets."""
_CACHED = 1024
"""Number of patterns that are kept compiled."""
_REMEMBERED = 1000
"""Number of transitions that an automaton remembers."""

_WORD_BYTES = sum(1 << byte for byte in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_BYTES_OF_KIND = {NEWLINE: 1 << 10, WORD: _WORD_BYTES, OTHER: (1 << 256) - 1 & ~_WORD_BYTES & ~(1 << 10)}
KIND_OF_BYTE = bytes(WORD if _WORD_BYTES >> byte & 1 else NEWLINE if byte == 10 else OTHER for byte in range(256))
"""The kind of each byte."""


class Automaton(NamedTuple):
    """A compiled pattern of n positions; sets of positions are integers whose bit p stands for position p.

    entered    256 sets: the positions that each byte enters
    follow     n sets: the positions behind each
    first      for each kind of the byte before, the positions with which a match may begin
    last       for each kind of the byte behind, the positions with which a match may end
    empty      the boundaries at which nothing matches, as in `Assertion`
    """

    entered: tuple[int, ...]
    follow: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    empty: int

    def is_found(self, data: bytes, known: dict[tuple[int, int, int], int] | None = None) -> bool:
        """Tells whether the pattern matches anywhere in valid UTF-8. `known` keeps transitions from one call to the next."""
        known = {} if known is None else known
        entered, follow, first, last, empty = self
        active, before = 0, NO_BYTE
        for byte in data:
            kind = KIND_OF_BYTE[byte]
            if active & last[kind] or (empty and empty >> N_BYTE_KINDS * before + kind & 1 and byte & 0xC0 != 0x80):
                return True
            key = active, before, byte
            found = known.get(key)
            if found is None:
                found = first[before]
                for position in bits(active):
                    found |= follow[position]
                found &= entered[byte]
                if len(known) >= _REMEMBERED:
                    known.clear()
                known[key] = found
            active, before = found, kind
        return bool(active & last[NO_BYTE] or empty >> N_BYTE_KINDS * before + NO_BYTE & 1)


def bits(number: int) -> Iterator[int]:
    """The indices of the bits that are set, in ascending order."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


@lru_cache(_CACHED)
def _places(number: int) -> tuple[int, ...]:
    return tuple(bits(number))


def matches(value: bytes, pattern: bytes) -> bool:
    """Tells whether the pattern matches anywhere in a text; both are UTF-8.  Raises RegexpError as `compiled` does."""
    automaton, known = _remembered(pattern)
    return automaton.is_found(value, known)


@lru_cache(_CACHED)
def _remembered(pattern: bytes) -> tuple[Automaton, dict[tuple[int, int, int], int]]:
    return compiled(pattern.decode()), {}


def compiled(pattern: str) -> Automaton:
    """The automaton of a pattern.  Raises RegexpError for one that is not in the syntax, or too large."""
    return _Compiler(parse(pattern)).automaton()


_Ends = dict[int, int]
"""Sets of positions by the boundaries, as in `Assertion`, that they need before the first, or behind the last of them."""


class _Part(NamedTuple):
    """A part of a pattern, with the positions `begin` to `end` - 1: its first and last ones, and the boundaries at which it
    may be empty."""

    begin: int
    end: int
    first: _Ends
    last: _Ends
    empty: int


class _Compiler:
    """Evaluates a program; each part has positions of its own, in the order of the pattern."""

    def __init__(self, program: Program) -> None:
        self.program, self.column = program, 1
        self.by_kind = any(isinstance(step, Assertion) and step not in (AT_BEGIN, AT_END) for step in program.steps)
        self.present = (NEWLINE, WORD, OTHER) if self.by_kind else (OTHER,)
        """The kinds that positions have."""
        self.sets: list[int] = []
        self.kinds: list[int] = []
        self.follow: list[int] = []
        self.of_kind = [0] * N_BYTE_KINDS
        """Positions by the kind of their bytes; all are OTHER unless `by_kind`."""

    def automaton(self) -> Automaton:
        (whole,) = self.parts()
        entered = [0] * 256
        by_set: dict[int, int] = {}
        for position, found in enumerate(self.sets):
            by_set[found] = by_set.get(found, 0) | 1 << position
        for found, positions in by_set.items():
            for byte in _places(found):
                entered[byte] |= positions
        first, last = [0] * N_BYTE_KINDS, [0] * N_BYTE_KINDS
        for kind in range(N_BYTE_KINDS):
            for needed, positions in whole.first.items():
                first[kind] |= self.among(positions, needed >> N_BYTE_KINDS * kind)
            for needed, positions in whole.last.items():
                before = sum(1 << other for other in range(N_BYTE_KINDS) if needed >> N_BYTE_KINDS * other + kind & 1)
                last[kind] |= self.among(positions, before)
        return Automaton(tuple(entered), tuple(self.follow), tuple(first), tuple(last), whole.empty)

    def parts(self) -> list[_Part]:
        """The parts that the program leaves."""
        stack: list[_Part] = []
        for step, column in zip(*self.program, strict=True):
            self.column = column
            if isinstance(step, Characters):
                stack.append(self.characters(step.sets))
            elif isinstance(step, Assertion):
                stack.append(self.nothing(step.boundaries))
            elif isinstance(step, Repeat):
                stack.append(self.repeated(stack.pop(), step.low, step.high))
            else:
                taken = stack[len(stack) - step.parts :]
                del stack[len(stack) - step.parts :]
                stack.append(self.in_a_row(taken) if isinstance(step, InARow) else _one_of(taken))
        return stack

    def nothing(self, boundaries: int) -> _Part:
        """No character, at some boundaries."""
        at = len(self.sets)
        return _Part(at, at, {}, {}, boundaries)

    def characters(self, sets: tuple[Ranges, ...]) -> _Part:
        """A sequence of characters."""
        begin, first, last, end = len(self.sets), 0, 0, self.column
        for left, ranges in enumerate(sets, 1 - len(sets)):
            template, at = _template(ranges, self.by_kind), len(self.sets)
            self.column = end + left
            self.add(template.sets, template.kinds, template.follow, at)
            entered = template.first << at
            first = entered if left == 1 - len(sets) else first
            for position in bits(last):
                self.follow[position] = entered
            last = template.last << at
        ends = AT_ANY_BOUNDARY.boundaries
        return _Part(begin, len(self.sets), {ends: first}, {ends: last}, 0)

    def add(self, sets: list[int], kinds: list[int], follow: list[int], by: int) -> None:
        """Add positions, which are followed by those of `follow` moved by a number."""
        if len(self.sets) + len(sets) > MAX_POSITIONS:
            raise RegexpError(
                f"column {self.column}: expected at most {MAX_POSITIONS:,} positions up to here: a character needs one, a "
                "repetition {n,m} needs those of m times what it repeats; write it shorter, or split it"
            )
        for kind in kinds:
            self.of_kind[kind] |= 1 << len(self.kinds)
            self.kinds.append(kind)
        self.sets += sets
        self.follow += [each << by for each in follow]

    def copy(self, part: _Part) -> _Part:
        """A copy of the part after all positions."""
        inside, by = slice(part.begin, part.end), len(self.sets) - part.begin
        self.add(self.sets[inside], self.kinds[inside], self.follow[inside], by)
        first, last = ({ends: found << by for ends, found in each.items()} for each in (part.first, part.last))
        return part._replace(begin=part.begin + by, end=part.end + by, first=first, last=last)

    def link(self, last: _Ends, first: _Ends) -> None:
        """Let positions follow others if both need the boundary between them."""
        for behind, sources in last.items():
            for before, targets in first.items():
                for kind in self.present:
                    found = self.among(targets, (behind & before) >> N_BYTE_KINDS * kind)
                    if found:
                        for position in bits(sources & self.of_kind[kind]):
                            self.follow[position] |= found

    def among(self, positions: int, kinds: int) -> int:
        """The positions whose kind has its bit set."""
        found = 0
        for kind in self.present:
            if kinds >> kind & 1:
                found |= positions & self.of_kind[kind]
        return found

    def in_a_row(self, parts: list[_Part]) -> _Part:
        whole = parts[0] if parts else self.nothing(AT_ANY_BOUNDARY.boundaries)
        for part in parts[1:]:
            self.link(whole.last, part.first)
            first = _joined(whole.first, part.first, whole.empty) if whole.empty else whole.first
            last = _joined(part.last, whole.last, part.empty) if part.empty else part.last
            whole = _Part(whole.begin, part.end, first, last, whole.empty & part.empty)
        return whole

    def repeated(self, part: _Part, low: int, high: int | None) -> _Part:
        """Repeat a part, which has the last positions, `low` to `high` times."""
        if part.begin == part.end:  # it is the same however often
            return part if low else self.nothing(AT_ANY_BOUNDARY.boundaries)
        if high == 0:
            self.forget(part.begin)
            return self.nothing(AT_ANY_BOUNDARY.boundaries)
        copies = [part, *(self.copy(part) for _ in range((low or 1) - 1 if high is None else high - 1))]
        if high is None:
            self.link(copies[-1].last, copies[-1].first)
            whole = self.in_a_row(copies)
            return whole if low else _optional(whole)
        tail: list[_Part] = []
        for each in reversed(copies[low:]):  # x{0,2} is (x(x)?)?
            tail = [_optional(self.in_a_row([each, *tail]))]
        return self.in_a_row([*copies[:low], *tail])

    def forget(self, begin: int) -> None:
        """Remove the positions from a number on."""
        del self.sets[begin:], self.kinds[begin:], self.follow[begin:]
        self.of_kind = [each & (1 << begin) - 1 for each in self.of_kind]


def _one_of(parts: list[_Part]) -> _Part:
    first: _Ends = {}
    last: _Ends = {}
    empty = 0
    for part in parts:
        _add(first, part.first)
        _add(last, part.last)
        empty |= part.empty
    return _Part(parts[0].begin, parts[-1].end, first, last, empty)


def _optional(part: _Part) -> _Part:
    return part._replace(empty=AT_ANY_BOUNDARY.boundaries)


def _joined(ends: _Ends, others: _Ends, boundaries: int) -> _Ends:
    """The positions, and others if their boundary is also one of some boundaries."""
    found = dict(ends)
    for needed, positions in others.items():
        if both := needed & boundaries:
            found[both] = found.get(both, 0) | positions
    return found


def _add(ends: _Ends, others: _Ends) -> None:
    for needed, positions in others.items():
        ends[needed] = ends.get(needed, 0) | positions


class _Template(NamedTuple):
    """The positions of one character: their bytes, kinds and followers; the first and the last ones."""

    sets: list[int]
    kinds: list[int]
    follow: list[int]
    first: int
    last: int


@lru_cache(_CACHED)
def _template(ranges: Ranges, by_kind: bool) -> _Template:
    if not by_kind and ranges and ranges[-1][0] <= 0x80 and ranges[-1][1] == EVERY[0][1]:
        return _with_all_beyond_ascii(ranges)
    sets: list[int] = []
    kinds: list[int] = []
    follow: list[int] = []
    known: dict[tuple[int, Tree | None], int] = {}
    last = 0

    def enter(tree: Tree) -> int:
        nonlocal last
        found = 0
        for pair in tree:
            if pair not in known:
                of_kinds = _BYTES_OF_KIND if by_kind else {OTHER: (1 << 256) - 1}
                pieces = [(pair[0] & some, kind) for kind, some in of_kinds.items() if pair[0] & some]
                known[pair] = (1 << len(pieces)) - 1 << len(sets)
                sets.extend(some for some, _ in pieces)
                kinds.extend(kind for _, kind in pieces)
                follow.extend([0] * len(pieces))
                if pair[1] is None:
                    last |= known[pair]
                else:
                    behind = enter(pair[1])
                    for position in bits(known[pair]):
                        follow[position] = behind
            found |= known[pair]
        return found

    return _Template(sets, kinds, follow, enter(utf8(ranges)), last)


def _with_all_beyond_ascii(ranges: Ranges) -> _Template:
    """A first byte and any number of continuation bytes.

    Other positions may follow the first byte of a longer character, but the byte behind it enters none of them.  A match may
    end with it, since the character ends as well; it must not if the kind of the next byte matters.
    """
    first_bytes = sum(1 << byte for byte in (*range(0x80), *range(0xC0, 0x100)) if byte >= 0x80 or _has(ranges, byte))
    continuation = sum(1 << byte for byte in range(0x80, 0xC0))
    return _Template([first_bytes, continuation], [OTHER, OTHER], [0b10, 0b10], 0b01, 0b11)


def _has(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)
