"""The parts that rule languages share: rules, refusals, and the rows that rules become.

A condition is that of a row: a constraint `[name, op, operand]`, or `{"and": [...]}`, `{"or": [...]}`, `{"not": ...}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpi_match.model import Json, ModelError

Tree = list[Any] | dict[str, Any]
"""A condition in the form of rows."""
ALWAYS: Tree = {"and": []}
"""The condition that every event satisfies."""
NEVER: Tree = {"not": ALWAYS}
"""The condition that no event satisfies."""


class RuleError(ModelError):
    """The error of a rule that is invalid, or that asks for more than matching; the text says what and where in the rule."""


class Rule(NamedTuple):
    """A rule of a file: its row of a subscription, or else the reason why it has none.

    name     its name or title, for people
    file     path of its file
    line     line of the file where it begins, from 1
    row      the subscription, as a row of JSON lines holds it; None for a rule that is refused
    reason   why it is refused; empty for others
    kind     the kind of a refused rule that is counted by itself, such as "correlation"; else empty
    """

    name: str
    file: Path
    line: int
    row: dict[str, Any] | None
    reason: str = ""
    kind: str = ""


def both(parts: Sequence[Tree]) -> Tree:
    """All of some conditions."""
    return parts[0] if len(parts) == 1 else {"and": list(parts)}


def either(parts: Sequence[Tree]) -> Tree:
    """At least one of some conditions, which must not be empty.

    Nested alternatives become one list; alternatives on one attribute with one operator become one constraint.
    """
    flat: list[Tree] = []
    for part in parts:
        flat += part["or"] if isinstance(part, dict) and "or" in part else [part]
    found = _together(flat)
    return found[0] if len(found) == 1 else {"or": found}


_LISTED = {"=": "in", "any =": "any in", "= i": "in i", "any = i": "any in i"}
"""Operators of equality, and those that take a list of operands."""
_LISTS = ("prefix", "suffix", "contains", "wildcard", "regexp", "in net")
"""Operators that take one operand, or a list of them."""


def _together(parts: Sequence[Tree]) -> list[Tree]:
    """Alternatives in which those on one attribute with one operator are one constraint with a list of operands."""
    operands: dict[tuple[str, str, str], list[Any]] = {}
    found: list[Tree | tuple[str, str, str]] = []
    for part in parts:
        if isinstance(part, list) and len(part) == 3 and not isinstance(part[2], (bool, list)):
            name, op, operand = part
            if op in _LISTED or op.removeprefix("any ").removesuffix(" i") in _LISTS:
                key = name, op, "text" if isinstance(operand, str) else "number"
                if key not in operands:
                    found.append(key)
                operands.setdefault(key, []).append(operand)
                continue
        found.append(part)
    return [_listed(each, operands[each]) if isinstance(each, tuple) else each for each in found]


def _listed(key: tuple[str, str, str], operands: list[Any]) -> Tree:
    name, op, _ = key
    distinct = list(dict.fromkeys(operands))
    return [name, op, distinct[0]] if len(distinct) == 1 else [name, _LISTED.get(op, op), distinct]


def row_of(interface: str, id_: str, condition: Tree) -> Json:
    """The row of a rule.  A conjunction of constraints in the condition becomes `constraints`, the rest `where`."""
    plain: list[Tree] = []
    rest: list[Tree] = []
    for part in _conjuncts(condition):
        (plain if isinstance(part, list) else rest).append(part)
    row: dict[str, Any] = {"interface": interface, "id": id_}
    if plain or not rest:
        row["constraints"] = plain
    if rest:
        row["where"] = both(rest)
    return row


def _conjuncts(condition: Tree) -> Iterator[Tree]:
    if isinstance(condition, dict) and "and" in condition:
        for part in condition["and"]:
            yield from _conjuncts(part)
    else:
        yield condition


EVERY_TEXT = ("prefix", "")
"""Operator and operand that every text satisfies (`glob`)."""
SEVERAL, SINGLE = "*", "?"
"""The wildcards among the pieces of a pattern: any characters, and one character."""


class Wild(NamedTuple):
    """A wildcard in a pattern: `SEVERAL` or `SINGLE`."""

    char: str


def glob(pieces: Sequence[str | Wild]) -> tuple[str, str]:
    """The simplest operator, with its operand, for a pattern over a whole text.

    `pieces` are literal texts and wildcards, in their order.
    """
    merged: list[str | Wild] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, str) and isinstance(last, str):
            merged[-1] = last + piece
        elif piece and not (piece == Wild(SEVERAL) and last == piece):
            merged.append(piece)
    any_ = Wild(SEVERAL)
    match merged:
        case []:
            return "=", ""
        case [str() as text]:
            return "=", text
        case [first] if first == any_:
            return EVERY_TEXT
        case [str() as text, last] if last == any_:
            return "prefix", text
        case [first, str() as text] if first == any_:
            return "suffix", text
        case [first, str() as text, last] if first == any_ and last == any_:
            return "contains", text
    escaped = str.maketrans({char: f"\\{char}" for char in f"\\{SEVERAL}{SINGLE}"})
    return "wildcard", "".join(each.char if isinstance(each, Wild) else each.translate(escaped) for each in merged)
