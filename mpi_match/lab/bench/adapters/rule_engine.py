"""rule-engine (PyPI): every filter is an expression, compiled once and evaluated for every event.

It has numbers and strings with `= != < <= > >= contains`, and no areas.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mpi_match.lab.bench.adapters.protocol import Symbols, Unsupported, speak, symbol_of
from mpi_match.model import Json

if TYPE_CHECKING:
    import rule_engine

_SYMBOLS = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def expression(row: Json, symbols: Symbols) -> str:
    """A filter as an expression.  Raises Unsupported."""
    if "area" in row:
        raise Unsupported("there are no areas")
    terms = []
    for name, op, *operands in row["constraints"]:
        symbol = symbol_of(name, symbols)
        literal = json.dumps(operands[0]) if operands else ""
        if op not in _SYMBOLS and op != "contains":
            raise Unsupported(f"there is no operator {op!r}")
        test = f"{literal} in {symbol}" if op == "contains" else f"{symbol} {_SYMBOLS[op]} {literal}"
        terms.append(f"({symbol} != null and {test})")
    return " and ".join(terms) or "true"


def main() -> None:
    """Speak the protocol."""
    import rule_engine

    context = rule_engine.Context(resolver=rule_engine.resolve_item, default_value=None)

    def is_matched(rule: rule_engine.Rule, event: Json) -> bool:
        try:
            return bool(rule.matches(event))
        except rule_engine.EvaluationError:  # a value of another type than an operand's satisfies nothing
            return False

    speak(lambda row, symbols: rule_engine.Rule(expression(row, symbols), context), lambda event: event, is_matched)


if __name__ == "__main__":
    main()
