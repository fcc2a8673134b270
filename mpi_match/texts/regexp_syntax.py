r"""The syntax of regular expressions: RE2's, without `\C` (one byte) and `\p{Greek}` (scripts), read into a program.

A program is in postfix order: `Characters` and `Assertion` push a part, and `InARow`, `OneOf` and `Repeat` take the last
parts and push what they make of them.  So reading a program needs no recursion, however deep groups are nested.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from mpi_match.texts.code_points import (
    EVERY,
    PERL_CLASSES,
    POSIX_CLASSES,
    Ranges,
    category,
    complement,
    union,
    with_variants,
)

MAX_PATTERN = 65_536
"""Most characters of a pattern."""
MAX_GROUPS = 250
"""Most groups around a group."""
MAX_REPEAT = 1000
"""Most times that `{n,m}` repeats."""

NO_BYTE, NEWLINE, WORD, OTHER, N_BYTE_KINDS = range(5)
"""Kinds of bytes beside a boundary: none at the ends of a text, a line feed, ASCII letters, digits and `_`, all others."""


class RegexpError(ValueError):
    """A pattern that is not in the syntax, or beyond a bound; the text has the column, from 1."""


class Characters(NamedTuple):
    """A sequence of characters, one of each set."""

    sets: tuple[Ranges, ...]


class Assertion(NamedTuple):
    """An empty part between two bytes of some kinds: bit N_BYTE_KINDS * before + after is set for the permitted ones."""

    boundaries: int


class InARow(NamedTuple):
    """The last parts, one after another."""

    parts: int


class OneOf(NamedTuple):
    """One of the last parts."""

    parts: int


class Repeat(NamedTuple):
    """The last part, from `low` to `high` times; without end if `high` is None."""

    low: int
    high: int | None


Step = Characters | Assertion | InARow | OneOf | Repeat


def _between(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    return sum(1 << N_BYTE_KINDS * a + b for a in before for b in after)


_KINDS = tuple(range(N_BYTE_KINDS))
_NO_WORD = (NO_BYTE, NEWLINE, OTHER)
AT_ANY_BOUNDARY = Assertion(_between(_KINDS, _KINDS))
AT_BEGIN, AT_END = Assertion(_between((NO_BYTE,), _KINDS)), Assertion(_between(_KINDS, (NO_BYTE,)))
_LINE_BEGIN = Assertion(_between((NO_BYTE, NEWLINE), _KINDS))
_LINE_END = Assertion(_between(_KINDS, (NO_BYTE, NEWLINE)))
_AT_WORD = Assertion(_between((WORD,), _NO_WORD) | _between(_NO_WORD, (WORD,)))
_NOT_AT_WORD = Assertion(_between((WORD,), (WORD,)) | _between(_NO_WORD, _NO_WORD))

_ASSERTIONS = {"A": AT_BEGIN, "z": AT_END, "b": _AT_WORD, "B": _NOT_AT_WORD}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HINTS = {
    "Z": "; \\z is the end of the text",
    "C": "; patterns match characters, not bytes",
    "E": " without a \\Q before it",
}
_HEX = "0123456789abcdefABCDEF"
_NO_LINE_FEED = complement(((10, 10),))
_PLAIN = re.compile(r"[^\\.\[()*+?{|^$]+")
"""Characters that stand for themselves."""
_REFUSED = {
    "=": "look-ahead",
    "!": "look-ahead",
    "<=": "look-behind",
    "<!": "look-behind",
    ">": "an atomic group",
    "#": "a comment",
    "|": "a branch reset",
    "P=": "a back-reference",
    "P>": "a recursion",
    "R": "a recursion",
    "(": "a condition",
    "&": "a recursion",
}


class _Flags(NamedTuple):
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class _Group:
    """An open group: the index of its parenthesis, parts of its last branch, branches before it, flags outside it."""

    def __init__(self, start: int, outside: _Flags) -> None:
        self.start, self.outside = start, outside
        self.parts = self.branches = 0


class Program(NamedTuple):
    """Steps that leave one part, and for each the number of characters that were read when it was added."""

    steps: tuple[Step, ...]
    ends: tuple[int, ...]


@lru_cache(64)  # a pattern's automaton and literals are asked for one after another
def parse(pattern: str) -> Program:
    """The program of a pattern.  Raises RegexpError for what is not in the syntax, and long patterns."""
    if len(pattern) > MAX_PATTERN:
        raise RegexpError(f"the pattern has {len(pattern):,} characters, at most {MAX_PATTERN:,} are allowed; split it")
    return _Parser(pattern).program()


class _Parser:
    """Reads a pattern from left to right; `at` is the index of the next character."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.steps: list[Step] = []
        self.ends: list[int] = []
        """Number of characters read when each step was added."""
        self.flags = _Flags()
        self.groups = [_Group(0, self.flags)]
        self.after_repeat = False
        self.is_run = False
        """True if the last part are plain characters."""

    def refuse(self, start: int, text: str) -> RegexpError:
        """An error at an index."""
        return RegexpError(f"column {start + 1}: {text}")

    def starts(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        """Pass a text if it is next.  Returns whether it was."""
        found = self.starts(text)
        if found:
            self.at += len(text)
        return found

    def program(self) -> Program:
        while self.at < len(self.pattern):
            is_repeat = self.part()
            self.after_repeat = is_repeat
        if len(self.groups) > 1:
            raise self.refuse(self.groups[-1].start, "this '(' has no ')'")
        self.close()
        return Program(tuple(self.steps), tuple(self.ends))

    def part(self) -> bool:
        """Read the next part, or a sign around parts.  Returns True for a repetition."""
        start, char = self.at, self.pattern[self.at]
        if char in "*+?{" and self.repetition():
            return True
        self.at += 1
        if char == "(":
            self.open(start)
        elif char == ")":
            if len(self.groups) == 1:
                raise self.refuse(start, "this ')' has no '('; write \\) for the character")
            self.close()
            self.is_run = False
            self.flags = self.groups.pop().outside
            self.groups[-1].parts += 1
        elif char == "|":
            self.end_branch()
        elif char == "^":
            self.push(_LINE_BEGIN if self.flags.m else AT_BEGIN)
        elif char == "$":
            self.push(_LINE_END if self.flags.m else AT_END)
        elif char == ".":
            self.push_one(EVERY if self.flags.s else _NO_LINE_FEED)
        elif char == "[":
            self.push_one(self.char_class(start))
        elif char == "\\":
            self.escape(start)
        else:
            self.plain(start)
        return False

    def plain(self, start: int) -> None:
        """Read the characters from `start` on that stand for themselves, as one part.  A repetition divides it."""
        found = _PLAIN.match(self.pattern, start)
        self.at = found.end() if found else start + 1
        self.push(Characters(tuple(_alone(char, self.flags.i) for char in self.pattern[start : self.at])))
        self.is_run = True

    def divide(self) -> None:
        """Make the last of the plain characters before here a part of its own."""
        (*before, last), at = self.steps[-1].sets, self.ends[-1]  # type: ignore[union-attr]
        if before:
            self.steps[-1:] = Characters(tuple(before)), Characters((last,))
            self.ends[-1:] = at - 1, at
            self.groups[-1].parts += 1

    def push(self, step: Characters | Assertion) -> None:
        self.add(step)
        self.groups[-1].parts += 1
        self.is_run = False

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.ends.append(self.at)

    def push_one(self, ranges: Ranges) -> None:
        self.push(Characters((ranges,)))

    def folded(self, ranges: Ranges) -> Ranges:
        """The set, with all its variants if case does not count."""
        return with_variants(ranges) if self.flags.i else ranges

    def end_branch(self) -> None:
        """Make one part of those of the last branch."""
        group = self.groups[-1]
        if group.parts != 1:
            self.add(InARow(group.parts))
        group.parts, group.branches = 0, group.branches + 1

    def close(self) -> None:
        """Make one part of the branches of the last group."""
        self.end_branch()
        if self.groups[-1].branches != 1:
            self.add(OneOf(self.groups[-1].branches))

    def repetition(self) -> bool:
        """Read a repetition, if one is here: `{` may be a character as well."""
        start, char = self.at, self.pattern[self.at]
        if char == "{":
            found = self.counts()
            if found is None:
                return False
            low, high = found
        else:
            self.at += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        self.take("?")  # lazy or greedy, the same texts match
        written = self.pattern[start : self.at]
        if not self.groups[-1].parts:
            raise self.refuse(start, f"expected something to repeat before {written!r}; write \\{char} for the character")
        if self.after_repeat:
            raise self.refuse(start, f"{written!r} cannot follow another repetition; put (?:...) around the first")
        if self.is_run:
            self.divide()
        self.is_run = False
        self.add(Repeat(low, high))
        return True

    def counts(self) -> tuple[int, int | None] | None:
        """Read `{n}`, `{n,}` or `{n,m}`.  Returns its numbers, or None for other text."""
        end = self.pattern.find("}", self.at, self.at + 2000)
        low, comma, high = self.pattern[self.at + 1 : max(end, self.at + 1)].partition(",")
        if end < 0 or not _is_number(low) or not (_is_number(high) or not high):
            return None
        most = high if high else low
        if len(most.lstrip("0")) > 4 or len(low.lstrip("0")) > 4 or int(most) > MAX_REPEAT or int(low) > MAX_REPEAT:
            raise self.refuse(
                self.at, f"expected at most {MAX_REPEAT} repetitions, found {_brief(self.pattern[self.at : end + 1])}"
            )
        if int(low) > int(most):
            raise self.refuse(self.at, f"expected {{n,m}} with n <= m, found {_brief(self.pattern[self.at : end + 1])}")
        self.at = end + 1
        return int(low), int(most) if high or not comma else None

    def open(self, start: int) -> None:
        """Begin a group whose parenthesis has been passed, or set flags."""
        outside = self.flags
        if self.take("?"):
            if self.starts("P<") or (self.starts("<") and not self.starts("<=") and not self.starts("<!")):
                self.name()
            else:
                self.refuse_extensions(start)
                if not self.set_flags(start):
                    return
        if len(self.groups) > MAX_GROUPS:
            raise self.refuse(start, f"expected at most {MAX_GROUPS} groups around a group")
        self.groups.append(_Group(start, outside))

    def name(self) -> None:
        """Pass the name of a group, `P<name>` or `<name>`."""
        start = self.at
        self.at = self.pattern.index("<", start) + 1
        end = self.pattern.find(">", self.at)
        name = self.pattern[self.at : end] if end >= 0 else ""
        if not name or not all(char.isalnum() or char == "_" for char in name):
            raise self.refuse(start, "expected the name of a group, letters, digits and _, and '>'")
        self.at = end + 1

    def refuse_extensions(self, start: int) -> None:
        for begin, what in _REFUSED.items():
            if self.starts(begin):
                raise self.refuse(start, f"{what}, (?{begin}, is not supported: it has no linear-time matcher")

    def set_flags(self, start: int) -> bool:
        """Read flags up to `:`, which begins a group, or `)`.  Returns True for a group.  Flags hold in the group, or up to
        the end of the group around them.
        """
        value, seen, flags = True, True, self.flags._asdict()
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            self.at += 1
            if char in flags:
                flags[char], seen = value, True
            elif char == "-" and value:
                value = seen = False
            elif char in ":)" and seen:
                self.flags = _Flags(**flags)
                return char == ":"
            else:
                break
        raise self.refuse(start, "expected (?:, (?P<name>, or flags of i, m, s, U as in (?i) or (?i-s:")

    def escape(self, start: int) -> None:
        """Read the rest of an escape after its backslash, outside a class."""
        char = self.pattern[self.at : self.at + 1]
        if char in _ASSERTIONS and char:
            self.at += 1
            self.push(_ASSERTIONS[char])
        elif char == "Q":
            end = self.pattern.find("\\E", self.at)
            for literal in self.pattern[self.at + 1 : end if end >= 0 else None]:
                self.push_one(_alone(literal, self.flags.i))
            self.at = end + 2 if end >= 0 else len(self.pattern)
        else:
            named = self.named_class(start)
            if named is not None:
                self.push_one(named)
            else:
                self.push_one(_alone(chr(self.character(start)), self.flags.i))

    def named_class(self, start: int) -> Ranges | None:
        r"""Read `\d` or `\pL` after the backslash.  Returns its set, folded, or None for other text."""
        char = self.pattern[self.at : self.at + 1]
        if char and char.lower() in PERL_CLASSES:
            self.at += 1
            found = self.folded(PERL_CLASSES[char.lower()])
            return complement(found) if char.isupper() else found
        if not char or char not in "pP":
            return None
        self.at += 1
        name, self.at = self.pattern[self.at : self.at + 1], self.at + 1
        if name == "{":
            end = self.pattern.find("}", self.at, self.at + 100)
            name, self.at = self.pattern[self.at : end] if end >= 0 else "", end + 1
        negated = name.startswith("^") != (char == "P")
        found_or_none = category(name.removeprefix("^"))
        if found_or_none is None:
            known = "expected a general category such as \\pL, \\p{Lu}, \\pN, \\pP, or \\p{Any}; scripts are not supported"
            raise self.refuse(start, known)
        found = self.folded(found_or_none)
        return complement(found) if negated else found

    def character(self, start: int) -> int:
        """Read the rest of an escaped character after its backslash.  Returns its code point."""
        char = self.pattern[self.at : self.at + 1]
        self.at += 1
        if char in _CONTROLS and char:
            return _CONTROLS[char]
        if char == "x":
            return self.hexadecimal(start)
        if char in ("0", "1", "2", "3", "4", "5", "6", "7") and (char == "0" or self.is_octal()):
            digits = char
            while len(digits) < 3 and self.is_octal():
                digits, self.at = digits + self.pattern[self.at], self.at + 1
            return int(digits, 8)
        if char and char.isascii() and not char.isalnum() and char != "_":
            return ord(char)
        raise self.refuse(start, self.why_no_escape(char))

    def is_octal(self) -> bool:
        return self.at < len(self.pattern) and self.pattern[self.at] in "01234567"

    def why_no_escape(self, char: str) -> str:
        if not char:
            return "a backslash at the end of the pattern; write \\\\ for the character"
        if char.isascii() and char.isdigit():
            return f"\\{char} is a back-reference, which is not supported: it has no linear-time matcher"
        hints = {
            "Z": "; \\z is the end of the text",
            "C": "; patterns match characters, not bytes",
            "E": " without a \\Q before it",
        }
        return f"\\{char} is not an escape of the syntax{hints.get(char, '')}"

    def hexadecimal(self, start: int) -> int:
        r"""Read the digits of `\x7F` or `\x{10FFFF}` after the `x`.  Returns the code point."""
        if self.take("{"):
            end = self.pattern.find("}", self.at, self.at + 20)
            digits, self.at = self.pattern[self.at : max(end, self.at)], end + 1
        else:
            digits, self.at = self.pattern[self.at : self.at + 2], self.at + 2
            digits = digits if len(digits) == 2 else ""
        if not digits or not all(digit in _HEX for digit in digits) or int(digits, 16) > EVERY[0][1]:
            raise self.refuse(start, "expected two hexadecimal digits behind \\x, or a code point as in \\x{10FFFF}")
        return int(digits, 16)

    def char_class(self, start: int) -> Ranges:
        """Read a class after its opening bracket, up to its closing one.  Returns its set."""
        found: list[tuple[int, int]] = []
        negated = self.take("^")
        first = True
        while first or not self.starts("]"):
            if self.at >= len(self.pattern):
                raise self.refuse(start, "this '[' has no ']'; write \\[ for the character")
            found += self.class_item()
            first = False
        self.at += 1
        ranges = union(found)
        return complement(ranges) if negated else ranges

    def class_item(self) -> Ranges:
        """The set of the next item of a class: `[:alpha:]`, an escape, a character or a range."""
        start = self.at
        if self.starts("[:") and (end := self.pattern.find(":]", self.at + 2, self.at + 40)) >= 0:
            name = self.pattern[self.at + 2 : end]
            ranges = POSIX_CLASSES.get(name.removeprefix("^"))
            if ranges is None:
                raise self.refuse(start, f"expected one of [:{':], [:'.join(POSIX_CLASSES)}:]")
            self.at = end + 2
            return complement(self.folded(ranges)) if name.startswith("^") else self.folded(ranges)
        if self.take("\\"):
            named = self.named_class(start)
            if named is not None:
                return named
            self.at -= 1
        low = high = self.class_character()
        if self.starts("-") and not self.starts("-]") and self.at + 1 < len(self.pattern):
            self.at += 1
            high = self.class_character()
            if high < low:
                raise self.refuse(start, f"the range {_brief(self.pattern[start : self.at])} ends before it begins")
        return self.folded(((low, high),))

    def class_character(self) -> int:
        start = self.at
        self.at += 1
        return self.character(start) if self.pattern[start] == "\\" else ord(self.pattern[start])


@lru_cache(4096)
def _alone(char: str, ignore_case: bool) -> Ranges:
    """The set of one character, with all its variants if case does not count."""
    ranges = ((ord(char), ord(char)),)
    return with_variants(ranges) if ignore_case else ranges


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _brief(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
