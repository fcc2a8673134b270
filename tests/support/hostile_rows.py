"""Lines of subscriptions that once ended a command or hung it, with the present reasons for their rejection."""

from __future__ import annotations

import json

MANY_NAMES = "{" + ", ".join(f'"n{i}": 1' for i in [*range(40_000), 20_000]) + "}"
ENDLESS = b'{"interface": "' + b"a" * (2**24 + 100) + b'"}'


def nested(depth: int) -> str:
    """Nested lists."""
    return "[" * depth + "]" * depth


def predicate(text: str) -> str:
    """A line with a predicate as text."""
    return json.dumps({"interface": "i", "predicate": text})


def constraints(text: str) -> str:
    """A line with these constraints, verbatim."""
    return f'{{"interface": "i", "constraints": {text}}}'


HOSTILE: list[tuple[str | bytes, str]] = [
    (predicate("x > " + "9" * 400), "the integer of 1,329 bits is not between"),
    (predicate("x > " + "9" * 5000), "an integer of thousands of digits; send it as a string, at column 5"),
    (predicate(" or ".join(["x exists"] * 100_001)), "more than 100,000 constraints"),
    (predicate("not " * 300 + "x exists"), "more than 200 parentheses within one another"),
    (constraints('[{"or": []}]'), "'or' needs a list of conditions, one at least"),
    (
        constraints('[{"xor": [["x", "exists"]]}]'),
        "a condition is a constraint, or an object with one of 'and', 'or' and 'not'",
    ),
    (
        constraints("[" + '{"not": ' * 300 + '["x", "exists"]' + "}" * 300 + "]"),
        "more than 200 conditions within one another",
    ),
    (constraints('[["x", "regexp", "(a"]]'), "'regexp' on 'x'"),
    (constraints(f'[["x", "regexp", "{"(a{1000})" * 20}"]]'), "'regexp' on 'x'"),
    (constraints('[["x", "in net", "10.0.0.0/33"]]'), "'in net' on 'x'"),
    (constraints('[["x", "before", "soon"]]'), "'before' on 'x' needs a date, or a date and time with its offset"),
    (predicate("x > 1e-400"), "the number 1e-400 is not 0 and too near to it for a double"),
    (predicate("x > ٣"), "cannot read '٣' here"),
    (constraints('[["x", ">", 1e-400]]'), "the number 1e-400 is not 0 and too near to it for a double"),
    (
        constraints(f'[["x", "=", {nested(90)}]]'),
        "must be a number, a string or a boolean, found list [[[[[[[...]]]]]]]",
    ),
    (constraints(f'[["x", "=", {nested(980)}]]'), "must be a number, a string or a boolean, found list [[[[[[[...]]]]]]]"),
    (constraints(nested(980)), "a constraint is [name, operator, operand], found list [[["),
    (
        constraints(nested(200_000)),
        "more than 1,000 lists and objects within one another, and conditions are 200 deep at most",
    ),
    (f'{{"interface": {nested(980)}, "constraints": []}}', "interface must be a string or an integer, found list [[["),
    (f'{{"interface": "i", "area": {MANY_NAMES}}}', "an area is [x, y, r], found Repeating"),
    ('{"interface": "i", "filters": []}', "'filters' must be a list of one filter at least"),
    ('{"interface": "i", "where": "x > 30"}', "a text such as \"a > 1\" is a 'predicate'"),
    ('"x > 30"', "a subscription must be an object, found str 'x > 30'"),
    (constraints('[["x", "between", ["a", "b"]]]'), "'between' on 'x' needs a date, or a date and time with its offset"),
    ('{"interface": 7.5, "constraints": []}', "interface must be a string or an integer, found float 7.5"),
    ('{"interface": "i", "constraints": [], "id": 7.5}', "id must be a string or an integer, found float 7.5"),
    (ENDLESS, "the line is longer than 16 MiB"),
]
LARGE: list[tuple[str, str]] = [
    (constraints("[" + '{"not":' * 10**6 + '["x", "exists"]' + "}" * 10**6 + "]"), "conditions are 200 deep at most"),
    (predicate("not " * 10**6 + "x exists"), "more than 200 parentheses within one another, at column 805"),
    (predicate("(" * 10**6 + "x exists"), "more than 200 parentheses within one another, at column 202"),
    (constraints(f'[["x", "regexp", "{"a|" * (5 * 10**6)}"]]'), "'regexp' on 'x': the pattern has 10,000,000 characters"),
    (
        constraints(f'[["x", "wildcard", "{"a*" * (5 * 10**6)}"]]'),
        "'wildcard' on 'x': the pattern has 10,000,000 characters",
    ),
    (constraints('[["x", "regexp", "((a{1000}){1000}){1000}"]]'), "'regexp' on 'x': column 16: expected at most 4,096"),
    (
        constraints('[["x", "regexp", "(((a{1,30}){1,30}){1,30}){1,30}"]]'),
        "'regexp' on 'x': column 24: expected at most 4,096",
    ),
    (constraints(json.dumps([["x", "contains i", ["q"] * 10**6]])), "a condition of more than 100,000 constraints"),
]
"""Rows that take long if they are not refused at once, each with the reason."""
GOOD = [
    b'\xef\xbb\xbf{"interface": 7, "constraints": [], "id": 1}',  # after a byte order mark
    rb'{"interface": "7", "predicate": "smile = ' + rb"'\\ud83d\\ude00'" + rb'", "id": "1"}',
]


def lines() -> tuple[list[bytes], list[tuple[int, str]]]:
    """The lines of a file, and the number and the beginning of the reason for each bad one."""
    bad = [(line if isinstance(line, bytes) else line.encode(), said) for line, said in HOSTILE]
    return [GOOD[0], *(line for line, _ in bad), GOOD[1]], [(i, said) for i, (_, said) in enumerate(bad, 2)]
