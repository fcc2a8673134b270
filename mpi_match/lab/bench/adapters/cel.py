"""CEL, Google's Common Expression Language, as the package common-expression-language (PyPI, in Rust) evaluates it.

Every filter is a program, compiled once and evaluated for every event.  It has numbers, strings and booleans with
`= != < <= > >= contains prefix suffix exists absent`, and neither areas nor lists.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

from mpi_match.lab.bench.adapters.protocol import Symbols, Unsupported, speak, symbol_of
from mpi_match.model import Json

_SYMBOLS = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_METHODS = {"contains": "contains", "prefix": "startsWith", "suffix": "endsWith"}
_TYPES = {float: "double", str: "string", bool: "bool"}


def expression(row: Json, symbols: Symbols) -> str:
    """A filter as an expression over `e`, the event.  Raises Unsupported."""
    if "area" in row:
        raise Unsupported("there are no areas")
    return " && ".join(_term(symbol_of(name, symbols), op, *rest) for name, op, *rest in row["constraints"]) or "true"


def _term(symbol: str, op: str, operand: object = None) -> str:
    """A constraint; a value of another type than the operand satisfies no constraint, whereas in CEL it satisfies `!=`."""
    there = f"has(e.{symbol})"
    if op in ("exists", "absent"):
        return there if op == "exists" else f"!{there}"
    operand = _plain(operand)
    if type(operand) not in _TYPES or (op not in _SYMBOLS and op not in _METHODS):
        raise Unsupported(f"there is no {op!r} with {operand!r}")
    literal = repr(operand) if isinstance(operand, float) else json.dumps(operand, ensure_ascii=False)
    test = f"e.{symbol}.{_METHODS[op]}({literal})" if op in _METHODS else f"e.{symbol} {_SYMBOLS[op]} {literal}"
    return f"{there} && type(e.{symbol}) == {_TYPES[type(operand)]} && {test}"


def _plain(value: object) -> Any:
    """An attribute's value in CEL: all numbers are doubles; lists equal no operand."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def main() -> None:
    """Speak the protocol."""
    cel: Any = importlib.import_module("cel")  # as this module is called too

    def event_of(attributes: Json) -> Any:
        return cel.Context({"e": {symbol: _plain(value) for symbol, value in attributes.items()}})

    speak(
        lambda row, symbols: cel.compile(expression(row, symbols)), event_of, lambda rule, event: rule.execute(event) is True
    )


if __name__ == "__main__":
    main()
