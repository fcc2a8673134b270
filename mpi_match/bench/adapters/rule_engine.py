"""rule-engine (PyPI): every filter is an expression, compiled once and evaluated for every event.

It has numbers and strings with `= != < <= > >= contains`, and no areas.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

_SYMBOLS = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class Unsupported(Exception):
    """A filter that has no expression; the text says why."""


def expression(row: dict[str, Any], symbols: dict[str, str]) -> str:
    """A filter as an expression; `symbols` has the symbol of each name so far, and gets those of new ones."""
    if "area" in row:
        raise Unsupported("there are no areas")
    terms = []
    for name, op, *operands in row["constraints"]:
        symbol = symbols.setdefault(name, f"n{len(symbols)}")
        literal = json.dumps(operands[0]) if operands else ""
        if op not in _SYMBOLS and op != "contains":
            raise Unsupported(f"there is no operator {op!r}")
        test = f"{literal} in {symbol}" if op == "contains" else f"{symbol} {_SYMBOLS[op]} {literal}"
        terms.append(f"({symbol} != null and {test})")
    return " and ".join(terms) or "true"


def main() -> None:
    """Speak the protocol on standard input and output."""
    import rule_engine

    lines = (json.loads(line) for line in sys.stdin)
    symbols: dict[str, str] = {}
    context = rule_engine.Context(resolver=rule_engine.resolve_item, default_value=None)
    rows: list[dict[str, Any]] = []
    rules: list[tuple[str, Any]] = []
    events: list[dict[str, Any] | None] = []
    answers: list[list[str]] = []
    for line in lines:
        if isinstance(line, dict):
            (what, n), *_ = line.items()
            read = [next(lines) for _ in range(n)]
            if what == "subscriptions":
                rows = read
            else:
                events = [None if each is None else _named(each["attributes"], symbols) for each in read]
            _say("read")
        elif line == "build":
            try:
                rules = [(row["interface"], rule_engine.Rule(expression(row, symbols), context)) for row in rows]
            except Unsupported as error:
                _say({"error": str(error)})
                return
            _say("built")
        elif line == "match":
            answers = [sorted(set(_matched(rules, event, rule_engine.EvaluationError))) for event in events]
            _say("matched")
        else:
            for answer in answers:
                _say(answer)


def _named(attributes: dict[str, Any], symbols: dict[str, str]) -> dict[str, Any]:
    return {symbols[name]: value for name, value in attributes.items() if name in symbols}


def _matched(rules: list[tuple[str, Any]], event: dict[str, Any] | None, mismatch: type[Exception]) -> Iterator[str]:
    """Interfaces; a value of another type than an operand's satisfies nothing."""
    for interface, rule in rules if event is not None else ():
        try:
            if rule.matches(event):
                yield interface
        except mismatch:
            continue


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
