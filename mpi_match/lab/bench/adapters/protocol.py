"""The matcher's side of the protocol of `docs/other-matchers.md`, for matchers that try one rule after the other.

Each filter becomes a rule, and each event the input of rules.  Attributes are called n0, n1, ..., because a name may be
invalid in the rule language; `symbols` maps the names seen so far.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mpi_match.model import Json

Symbols = dict[str, str]
"""The symbol of each name; `symbol_of` adds new ones."""


class Unsupported(Exception):
    """A filter that the matcher cannot serve with the same meaning; the text says why."""


def symbol_of(name: str, symbols: Symbols) -> str:
    """The symbol of a name."""
    return symbols.setdefault(name, f"n{len(symbols)}")


def speak(
    rule_of: Callable[[Json, Symbols], object],
    event_of: Callable[[Json], object],
    is_matched: Callable[[Any, Any], bool],
) -> None:
    """Speak the protocol on standard input and output.

    Parameters: `rule_of` makes a rule of a filter's row and raises Unsupported; `event_of` takes attributes by symbol;
    `is_matched(rule, event)` evaluates.
    """
    lines = (json.loads(line) for line in sys.stdin)
    symbols: Symbols = {}
    rows: list[dict[str, Any]] = []
    rules: list[tuple[str, Any]] = []
    events: list[Any] = []
    answers: list[list[str]] = []
    for line in lines:
        if isinstance(line, dict):
            (what, n), *_ = line.items()
            read = [next(lines) for _ in range(n)]
            if what == "subscriptions":
                rows = read
            else:
                events = [None if each is None else event_of(_named(each["attributes"], symbols)) for each in read]
            _say("read")
        elif line == "build":
            try:
                rules = [(row["interface"], rule_of(row, symbols)) for row in rows]
            except Unsupported as error:
                _say({"error": str(error)})
                return
            _say("built")
        elif line == "match":
            answers = [sorted(set(_matched(rules, event, is_matched))) for event in events]
            _say("matched")
        else:
            for answer in answers:
                _say(answer)


def _named(attributes: Json, symbols: Symbols) -> Json:
    return {symbols[name]: value for name, value in attributes.items() if name in symbols}


def _matched(rules: list[tuple[str, object]], event: object, is_matched: Callable[[Any, Any], bool]) -> Iterator[str]:
    for interface, rule in rules if event is not None else ():
        if is_matched(rule, event):
            yield interface


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
