"""Parses JSON of any depth without recursion, for the few lines on which Python's own parser gives up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_BLANKS = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS = {
    "null": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_LITERAL = re.compile("|".join(_LITERALS))
_string = json.decoder.scanstring  # type: ignore[attr-defined]


class Hooks(NamedTuple):
    """The functions that make an object of its pairs, and a number of its text."""

    object: Callable[[list[tuple[str, Any]]], Any]
    integer: Callable[[str], Any]
    real: Callable[[str], Any]


class TooDeep(ValueError):
    """A JSON text has more lists and objects within one another than its reader takes."""


def parse_deep(text: str, hooks: Hooks, deepest: int | None = None) -> Any:
    """The value of a JSON text, as `json.JSONDecoder` with these hooks reads it.

    Raises json.JSONDecodeError, and TooDeep for more than `deepest` lists and objects within one another.
    """
    around: list[tuple[list[Any], str | None, str]] = []  # `items`, `name` and `end` of the lists and objects around
    items: list[Any] = []  # the values, or pairs, of the innermost one
    end, name = "", None  # the character that ends it; the name of its next value
    at = _after_blanks(text, 0)
    while True:
        opened = text[at : at + 1]
        if opened in ("{", "["):
            around.append((items, name, end))
            if deepest is not None and len(around) > deepest:
                raise TooDeep
            items, end, at = [], "}" if opened == "{" else "]", _after_blanks(text, at + 1)
            is_complete = text[at : at + 1] == end
        else:
            value, at = _scalar(text, at, hooks)
            at, is_complete = _ended(text, at, (name, value), items, end)
        while is_complete:
            if not end:
                return items[0]
            value = hooks.object(items) if end == "}" else items
            items, name, end = around.pop()
            at, is_complete = _ended(text, at + 1, (name, value), items, end)
        if end == "}":
            if text[at : at + 1] != '"':
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
            name, at = _string(text, at + 1, True)
            at = _after_blanks(text, at)
            if text[at : at + 1] != ":":
                raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
            at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]


def _ended(text: str, at: int, pair: tuple[str | None, Any], items: list[Any], end: str) -> tuple[int, bool]:
    """Add a value, which ends at `at`, to the `items` around it.  Returns where the next one begins, or where these end."""
    items.append(pair if end == "}" else pair[1])
    at = _after_blanks(text, at)
    if text[at : at + 1] == end:
        return at, True
    if not end:
        raise json.JSONDecodeError("Extra data", text, at)
    if text[at : at + 1] != ",":
        raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return _after_blanks(text, at + 1), False


def _scalar(text: str, at: int, hooks: Hooks) -> tuple[Any, int]:
    """The value at `at`, other than an object or a list, and its end."""
    if text[at : at + 1] == '"':
        return _string(text, at + 1, True)  # type: ignore[no-any-return]
    if found := _NUMBER.match(text, at):
        is_integer = found[2] is None and found[3] is None
        return hooks.integer(found[1]) if is_integer else hooks.real(found[0]), found.end()
    if found := _LITERAL.match(text, at):
        return _LITERALS[found[0]], found.end()
    raise json.JSONDecodeError("Expecting value", text, at)
