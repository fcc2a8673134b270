"""Events with nested lists, objects in lists, integers of any length and escapes; filters of all operators on them."""

from __future__ import annotations

import json
import random
from typing import Any

from mpi_match.model import make_filter
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary

NAMES = ["a", "b", "a.b", "a.b.c", "tags", "scores", "n", "x", "y", "id", "q", "r", "a.c", "", "é", "x.y"]
_TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "xab",
    "é",
    "日本",
    'a"b',
    "\\",
    "\n\t\u0000",
    "🦀",
    "a long text, longer than 64 bytes " * 3,
    *("A", "AB", "aBc", "É", "ſ", "Ⱥ" * 3, "10.0.0.1", "10.1.0.7", "::1", "::ffff:10.0.0.1", "2001:db8::7"),
    *("2020-01-01", "2020-01-01T00:00:00Z", "1969-12-31T23:59:59.5+01:00", "2300-05-05T10:00:00.123456789Z"),
]
_INTEGERS = [
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    2**54 + 1,
    -(2**63) + 1,
    10**30,
    10**400,
    123456789012345678,
]
_SCALARS: list[list[Any]] = [
    *(_TEXTS, [0, 1, -1, 2, 3, 10, -5, 100], _INTEGERS, [0.5, 1.5, -0.0, 1e300, 5e-324, 2.5, 3.0]),
    *([True, False], [None], ["a", "b", "ab", "ba"], [0, 1, 2, 3, 4]),
]
_OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "in", "not in", "between", "prefix", "suffix", "contains", "exists", "null"]
_FOLDING = ["= i", "!= i", "in i", "not in i", "prefix i", "suffix i", "contains i"]
_NETS = ["10.0.0.0/8", "10.0.0.1", "::/64", "::1", "2001:db8::/32"]
_INSTANTS = ["2020-01-01", "2020-01-01T00:00:00Z", "1970-01-01", "2300-05-05T10:00:00.123456788Z"]
_DEPTHS = (63, 64, 65, 128, 129, 200)
_MOST_DEPTH = 4


def _value(generator: random.Random, depth: int) -> Any:
    kind = generator.randrange(8 if depth == _MOST_DEPTH else 14)
    if kind < 8:
        return generator.choice(_SCALARS[kind])
    if kind < 11:
        return [_value(generator, depth + 1) for _ in range(generator.choice([0, 1, 1, 2, 3, 5]))]
    return nested_object(generator, depth + 1)


def nested_object(generator: random.Random, depth: int = 0) -> dict[str, Any]:
    """An object of a few names, each of them perhaps a list or an object."""
    return {generator.choice(NAMES): _value(generator, depth) for _ in range(generator.choice([0, 1, 2, 3, 4, 6]))}


def nested_line(generator: random.Random) -> bytes:
    """A line with such an object, in one of many ways to write it; sometimes what Python does not write."""
    separators = generator.choice([(",", ":"), (", ", ": "), (" ,  ", "\t: ")])
    row = nested_object(generator)
    line = json.dumps(row, ensure_ascii=generator.random() < 0.5, separators=separators).encode()
    for share, old, new in (
        (0.1, b'"a"', b'"\\u0061"'),
        (0.05, b'"b"', b'"\\ud800"'),
        (0.05, b"1", b"1e400"),
        (0.02, b"1", b"NaN"),
        (0.03, b'"b"', b'"a"'),
    ):
        if generator.random() < share:
            line = line.replace(old, new)
    if generator.random() < 0.02:
        return b'{"z":' + b"[" * generator.choice(_DEPTHS) + b"1" + b"]" * generator.choice(_DEPTHS) + b"}"
    return line


def _constraint(generator: random.Random) -> list[Any]:
    if generator.random() < 0.3:
        return _of_view(generator)
    op = generator.choice(_OPERATORS)
    types = {"prefix": "s", "suffix": "s", "contains": "s", "between": "n", "=": "nsb", "!=": "nsb"}.get(op, "ns")
    type_ = generator.choice(types)

    def value() -> Any:
        values = {
            "n": [0, 1, 2, 3, 0.5, -1, 100, 2**53, 2**53 + 1, 2**64 - 1],
            "s": ["", "a", "ab", "abc", "b", "é", "xa", "日"],
            "b": [True, False],
        }
        return generator.choice(values[type_])  # type: ignore[arg-type]

    name = generator.choice(NAMES)
    if op in ("exists", "null"):
        return [name, op]
    operand = value()
    if op in ("in", "not in"):
        operand = [value() for _ in range(generator.randint(1, 3))]
    elif op == "between":
        operand = sorted([value(), value()])
    return [name, ("any " if generator.random() < 0.6 else "") + op, operand]


def _of_view(generator: random.Random) -> list[Any]:
    name, some = generator.choice(NAMES), "any " if generator.random() < 0.6 else ""
    kind = generator.randrange(6)
    if kind == 4:
        pattern = generator.choice(["*", "a*", "*b", "*A?", "?", "a?c", "*a*b*", "", "x*b", "*é", "\\\\", "*long*64*", "1*"])
        return [name, some + generator.choice(["wildcard", "wildcard i"]), pattern]
    if kind == 5:
        patterns = ["a", "^a", "b$", "^$", "[0-9]+", "(?i)aB", "a.?c|x", "é|日", ".", "(a|b)+b", "lo+ng.*64", "[a-z ]{90}"]
        return [name, some + "regexp", generator.choice(patterns)]
    if kind == 0:
        nets = generator.sample(_NETS, generator.choice([1, 1, 2]))
        return [name, some + "in net", nets[0] if len(nets) == 1 else nets]
    if kind == 1:
        return [name, some + generator.choice(["before", "after", "at"]), generator.choice(_INSTANTS)]
    op = generator.choice(_FOLDING)
    texts = generator.sample(["", "A", "aB", "abc", "b", "É", "s", "ⱥ", "XA", "日"], generator.choice([1, 2, 3]))
    return [name, some + op, texts if op in ("in i", "not in i") else texts[0]]


def _on_every_string(generator: random.Random) -> list[Any]:
    while True:
        _, op, *operand = _constraint(generator)
        texts = operand[0] if operand and isinstance(operand[0], list) else operand
        if texts and all(isinstance(text, str) for text in texts):
            return ["*", op, *operand]


def nested_vocabulary(generator: random.Random) -> Vocabulary:
    """That of a few filters, or of many, on these names."""
    filters = [
        make_filter("i", [_constraint(generator) for _ in range(generator.choice([1, 2, 3]))])
        for _ in range(generator.choice([1, 3, 10, 60, 200]))
    ]
    if generator.random() < 0.4:
        filters += [make_filter("i", [_on_every_string(generator)]) for _ in range(generator.choice([1, 20]))]
    return Table.from_filters(filters).vocabulary
