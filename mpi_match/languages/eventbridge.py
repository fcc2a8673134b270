"""Turns patterns of AWS EventBridge, which are those of Event Ruler, into rows of subscriptions.

    {"source": ["aws.ec2"], "detail": {"state": [{"prefix": "run"}, {"anything-but": ["stopped", "pending"]}]}}

A pattern is an object; its leaves are lists of values and match expressions, one of which must hold.  Names of nested
objects are joined by points.  A leaf holds if *some* element of a list satisfies it, so every leaf becomes a constraint on
elements.  Leaves below one list of objects must hold in one of them, which `arrays` of a row says.

A pattern is refused if Event Ruler refuses it: empty lists and objects, unknown or mixed operands, invalid wildcards.  So is
a pattern in which two leaves have the same path; Event Ruler would keep the last one.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from mpi_match.ingest.rows.flatten import Repeating
from mpi_match.ingest.rows.judge import parse_json
from mpi_match.ingest.rows.packed_files import open_bytes
from mpi_match.languages.rows import (
    ALWAYS,
    NEVER,
    Rule,
    RuleError,
    Tree,
    Wild,
    both,
    either,
    glob,
    row_of,
)
from mpi_match.model import CONSISTENT, EVERY_STRING, MAX_EXACT_INTEGER, ModelError, condition, describe
from mpi_match.table.scopes import shared_paths

OR = "$or"
_RESERVED = frozenset(
    re.split(
        " +",
        "exactly equals-ignore-case prefix suffix anything-but exists wildcard numeric cidr = < <= > >= regex not-wildcard "
        "not-equals-ignore-case date-after date-on-or-after date-before date-on-or-before in-date-range ip-address-in-range "
        "ip-address-not-in-range",
    )
)
"""Names that fields inside `$or` may not have."""
_LEAST = -sys.float_info.max
_NAMES = ("Name", "name")
_OF_AWS = "EventPattern"
"""The name under which AWS lists patterns, also of rules without a name."""
_PATTERNS = (_OF_AWS, "Pattern", "pattern", "rule")


def condition_of(pattern: object) -> Tree:
    """The condition of a pattern.  Raises RuleError for a pattern that Event Ruler refuses, with the path of the fault."""
    return both(_object(pattern, (), set(), inside_or=False) or [ALWAYS])


def _object(pattern: object, path: tuple[str, ...], seen: set[str], *, inside_or: bool) -> list[Tree]:
    """The conditions of an object of a pattern, which must all hold; `seen` are the paths of leaves so far."""
    where = _shown(path)
    if isinstance(pattern, Repeating):
        raise RuleError(f"{where}: the name {pattern.repeated!r} occurs twice")
    if not isinstance(pattern, Mapping):
        raise RuleError(f"{where}: a pattern is an object, found {describe(pattern)}")
    if not pattern:
        raise RuleError(f"{where}: empty objects are not allowed")
    found: list[Tree] = []
    for name, value in pattern.items():
        below = (*path, name)
        if name == OR:
            found.append(_alternatives(value, path, seen))
        elif inside_or and name in _RESERVED:
            raise RuleError(f"{_shown(below)}: {name!r} is reserved and cannot be a field inside of {OR!r}")
        elif isinstance(value, Mapping):
            found += _object(value, below, seen, inside_or=inside_or)
        elif isinstance(value, list):
            joined = ".".join(below)
            if joined == EVERY_STRING:
                raise RuleError(f"{joined}: rows cannot name this field, {joined!r} is all texts of an event there")
            if joined in seen:
                raise RuleError(f"{joined}: the path occurs twice")
            seen.add(joined)
            found.append(_leaf(value, joined))
        else:
            raise RuleError(f"{_shown(below)}: must be an object or an array, found {describe(value)}")
    return found


def _shown(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the pattern"


def _alternatives(value: object, path: tuple[str, ...], seen: set[str]) -> Tree:
    where = _shown((*path, OR))
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise RuleError(f"{where}: must be an array of objects, found {describe(value)}")
    if len(value) < 2:
        raise RuleError(f"{where}: at least 2 objects are needed, found {len(value)}")
    before, found = frozenset(seen), []
    for each in value:
        branch = set(before)
        found.append(both(_object(each, path, branch, inside_or=True)))
        seen |= branch
    return either(found)


def _leaf(values: list[Any], name: str) -> Tree:
    if not values:
        raise RuleError(f"{name}: empty arrays are not allowed")
    return either([_value(each, name) for each in values])


def _value(value: object, name: str) -> Tree:
    if isinstance(value, Mapping):
        return _expression(value, name)
    if value is None:
        return [name, "null"]
    if isinstance(value, str):
        return _text(value, name)
    if isinstance(value, (bool, int, float)):
        return [name, "any =", value]
    raise RuleError(f"{name}: a value must be a string, a number, true, false or null, found {describe(value)}")


def _text(value: str, name: str) -> Tree:
    """An exact text; that of an IPv6 address stands for all texts of the address."""
    exact: Tree = [name, "any =", value]
    try:
        return either([exact, [name, "any in net", value]]) if ":" in value and ip_address(value) else exact
    except ValueError:
        return exact


def _expression(found: Mapping[str, object], name: str) -> Tree:
    operator, operand = _only_item(found, name, "a match expression")
    if operator not in _OPERATORS:
        raise RuleError(f"{name}: unrecognized match type {operator!r}; there are {', '.join(_OPERATORS)}")
    return _OPERATORS[operator](operand, name)


def _only_item(found: Mapping[str, object], name: str, what: str) -> tuple[str, object]:
    if len(found) != 1:
        raise RuleError(f"{name}: {what} has exactly one key, found {len(found)}")
    ((operator, operand),) = found.items()
    return operator, operand


def _string(operand: object, name: str, what: str) -> str:
    if not isinstance(operand, str):
        raise RuleError(f"{name}: {what} needs a string, found {describe(operand)}")
    return operand


def _number(operand: object, name: str, what: str) -> int | float:
    if isinstance(operand, bool) or not isinstance(operand, (int, float)):
        raise RuleError(f"{name}: {what} needs a number, found {describe(operand)}")
    return operand


def _exactly(operand: object, name: str) -> Tree:
    return [name, "any =", _string(operand, name, "exactly")]


def _affix(which: str) -> Callable[[object, str], Tree]:
    def found(operand: object, name: str) -> Tree:
        if not isinstance(operand, Mapping):
            return [name, f"any {which}", _string(operand, name, which)]
        inner, text = _only_item(operand, name, which)
        if inner != "equals-ignore-case":
            raise RuleError(f"{name}: unsupported {which} pattern {inner!r}; there is 'equals-ignore-case'")
        return [name, f"any {which} i", _string(text, name, inner)]

    return found


def _ignoring_case(operand: object, name: str) -> Tree:
    return [name, "any = i", _string(operand, name, "equals-ignore-case")]


def _wildcard(operand: object, name: str) -> Tree:
    operator, text = glob(_pieces(_string(operand, name, "wildcard"), name))
    return [name, f"any {operator}", text]


def _pieces(text: str, name: str) -> list[str | Wild]:
    """The literal characters and the wildcards of a pattern in which `*` is the wildcard and a backslash escapes."""
    found: list[str | Wild] = []
    at = 0
    while at < len(text):
        char, after = text[at], text[at + 1 : at + 2]
        if char == "*" and after == "*":
            raise RuleError(f"{name}: consecutive wildcard characters at position {at}")
        if char == "\\":
            if after not in ("*", "\\"):
                raise RuleError(f"{name}: invalid escape character at position {at}")
            char, at = after, at + 1
            found.append(char)
        else:
            found.append(Wild("*") if char == "*" else char)
        at += 1
    return found


def _cidr(operand: object, name: str) -> Tree:
    text = _string(operand, name, "cidr")
    try:
        ip_network(text, strict=False)
    except ValueError as error:
        raise RuleError(f"{name}: {text!r} is not a CIDR: {error}") from None
    return [name, "any in net", text]


def _numeric(operand: object, name: str) -> Tree:
    if not isinstance(operand, list):
        raise RuleError(f"{name}: numeric needs an array, found {describe(operand)}")
    terms = [(operand[at], *operand[at + 1 : at + 2]) for at in range(0, len(operand), 2)]
    for term in terms:
        if len(term) < 2 or term[0] not in ("=", "<", "<=", ">", ">="):
            raise RuleError(f"{name}: numeric needs an operator and a number, found {describe(list(term))}")
        _number(term[1], name, f"numeric {term[0]}")
    if len(terms) == 1:
        return [name, f"any {terms[0][0]}", terms[0][1]]
    if len(terms) != 2 or terms[0][0] not in (">", ">=") or terms[1][0] not in ("<", "<="):
        raise RuleError(f"{name}: a numeric range is a lower and then an upper bound, found {describe(operand)}")
    (above, low), (below, high) = terms
    if low >= high:
        raise RuleError(
            f"{name}: the lower bound of a numeric range must be less than the upper one, found {low} and {high}"
        )
    bounds = [_next(low, 1) if above == ">" else low, _next(high, -1) if below == "<" else high]
    return [name, "any between", bounds] if bounds[0] <= bounds[1] else NEVER


def _next(number: float, way: int) -> float:
    """The next number of the model above (`way` 1) or below (-1) a number.  One element must be within both bounds."""
    if abs(number) < MAX_EXACT_INTEGER:
        return math.nextafter(number, way * math.inf)
    return int(number) + way


def _exists(operand: object, name: str) -> Tree:
    if not isinstance(operand, bool):
        raise RuleError(f"{name}: exists must be either true or false, found {describe(operand)}")
    present = either([_string_there(name), *_no_string(name)])
    return present if operand else {"not": present}


def _string_there(name: str) -> Tree:
    return [name, "any >=", ""]


def _number_there(name: str) -> Tree:
    return [name, "any >=", _LEAST]


def _no_string(name: str) -> list[Tree]:
    """The kinds of values other than strings; an empty list has none of them, and Event Ruler treats it as absent."""
    return [_number_there(name), [name, "any =", True], [name, "any =", False], [name, "null"]]


def _anything_but(operand: object, name: str) -> Tree:
    """A condition on a value of another type, or a different one of the same type.  A missing attribute does not satisfy
    it."""
    if isinstance(operand, Mapping):
        inner, texts = _only_item(operand, name, "anything-but")
        if inner not in _BUT:
            raise RuleError(f"{name}: unsupported anything-but pattern {inner!r}; there are {', '.join(_BUT)}")
        listed = [_string(each, name, f"anything-but {inner}") for each in (texts if isinstance(texts, list) else [texts])]
        if not listed:
            raise RuleError(f"{name}: empty arrays are not allowed")
        if "" in listed and inner in ("prefix", "suffix"):
            raise RuleError(f"{name}: an empty {inner} is not allowed")
        return either([_BUT[inner](listed, name), *_no_string(name)])
    values = operand if isinstance(operand, list) else [operand]
    if values and all(isinstance(each, str) for each in values):
        return either([[name, "any not in", values], *_no_string(name)])
    if values and all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values):
        return either([[name, "any not in", values], _string_there(name), *_no_string(name)[1:]])
    raise RuleError(f"{name}: anything-but needs strings or numbers, one type of them, found {describe(operand)}")


def _but_ignoring_case(listed: list[str], name: str) -> Tree:
    return [name, "any not in i", listed]


def _but_prefix(listed: list[str], name: str) -> Tree:
    """A condition on a string before the prefix, or after all strings that begin with it; with several prefixes, no string
    may begin with one."""
    if len(listed) > 1:
        return _but_none(listed, name, lambda text: ("prefix", text))
    behind = _after_all_with(listed[0])
    return either([[name, "any <", listed[0]], *([[name, "any >=", behind]] if behind else [])])


def _after_all_with(prefix: str) -> str:
    """The least text after all texts that begin with a prefix, in the order of code points, or ""."""
    while prefix:
        last = ord(prefix[-1]) + 1
        last = 0xE000 if 0xD800 <= last < 0xE000 else last
        if last <= sys.maxunicode:
            return prefix[:-1] + chr(last)
        prefix = prefix[:-1]
    return ""


def _but_suffix(listed: list[str], name: str) -> Tree:
    return _but_none(listed, name, lambda text: ("suffix", text))


def _but_wildcard(listed: list[str], name: str) -> Tree:
    return _but_none(listed, name, lambda text: glob(_pieces(text, name)))


def _but_none(listed: list[str], name: str, how: Callable[[str], tuple[str, str]]) -> Tree:
    """A condition for strings to exist, with none of them like one of `listed`."""
    alike = either([[name, f"any {op}", text] for op, text in map(how, listed)])
    return {"and": [_string_there(name), {"not": alike}]}


_BUT: dict[str, Callable[[list[str], str], Tree]] = {
    "prefix": _but_prefix,
    "suffix": _but_suffix,
    "equals-ignore-case": _but_ignoring_case,
    "wildcard": _but_wildcard,
}
_OPERATORS: dict[str, Callable[[Any, str], Tree]] = {
    "exactly": _exactly,
    "prefix": _affix("prefix"),
    "suffix": _affix("suffix"),
    "equals-ignore-case": _ignoring_case,
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
    "cidr": _cidr,
}


def rules_in(paths: Sequence[Path]) -> Iterator[Rule]:
    """The rules of files, in their order.

    A file holds JSON documents, one to a line or one alone.  Each is a pattern, whose name is that of the file and its line,
    or an object with a name and a pattern ("Name" and "EventPattern", as AWS lists rules, also without a name; "name", and
    "pattern" or "rule"), or `{"Rules": [...]}` of these.  A pattern may be a text that holds its JSON.  Raises OSError.
    """
    for path in paths:
        for line, document, reason in _documents(path):
            name = path.stem if line == 1 else f"{path.stem}:{line}"
            if reason:
                yield Rule(name, path, line, None, reason, "invalid")
                continue
            listed = document.get("Rules") if isinstance(document, Mapping) else None
            for each in listed if isinstance(listed, list) and not _is_pattern(document) else [document]:
                yield _rule(each, name, path, line)


def _is_pattern(document: Any) -> bool:
    """Tells whether a document is a pattern on an attribute "Rules" with values that are not rules."""
    return not any(isinstance(each, Mapping) and any(key in each for key in _PATTERNS) for each in document["Rules"])


def _documents(path: Path) -> Iterator[tuple[int, object, str]]:
    """The documents of a file: the line where each begins, and the document, or the reason why it is invalid."""
    with open_bytes(path) as file:
        content = file.read()
    try:
        yield 1, parse_json(content), ""
        return
    except ModelError as error:
        whole = str(error)
    lines = [(at, line) for at, line in enumerate(content.splitlines(), 1) if line.strip()]
    if len(lines) < 2 or not all(line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}") for _, line in lines[:2]):
        yield 1, None, whole
        return
    for at, line in lines:
        try:
            yield at, parse_json(line), ""
        except ModelError as error:
            yield at, None, str(error)


def _rule(document: object, name: str, path: Path, line: int) -> Rule:
    pattern = document
    if isinstance(document, Mapping):
        own = next((document[key] for key in _NAMES if isinstance(document.get(key), str)), None)
        held = next((document[key] for key in _PATTERNS if isinstance(document.get(key), (str, Mapping))), None)
        if own is not None or isinstance(document.get(_OF_AWS), (str, Mapping)):
            name, pattern = name if own is None else own, held
            if document.get("State") == "DISABLED":
                return Rule(name, path, line, None, "its State is DISABLED, so it is given no events", "disabled")
            if held is None and isinstance(document.get("ScheduleExpression"), str):
                return Rule(name, path, line, None, "it has a schedule and no pattern, so it is given no events", "schedule")
    try:
        if pattern is None:
            raise RuleError(f"a rule with a name has its pattern under one of {', '.join(map(repr, _PATTERNS))}")
        wanted = condition_of(parse_json(pattern) if isinstance(pattern, str) else pattern)
    except ModelError as error:
        return Rule(name, path, line, None, str(error), "invalid")
    row = row_of(name, name, wanted)
    with suppress(ModelError):  # the row is refused later
        if shared_paths(condition(wanted)):
            row |= {"arrays": CONSISTENT}
    return Rule(name, path, line, row)
