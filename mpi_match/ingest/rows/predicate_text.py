r"""The text language of predicates, and its translation to filters.

    area = 'area1' and temp > 30 or wind >= 20 and name prefix 'ab'

The grammar is in docs/predicates.md.  Types and operators are the model's: nothing is converted.

A predicate without complements is brought to disjunctive normal form, one filter for each alternative.  That can multiply:
(a or b) and (c or d) is four filters.  Where it would be more than `MAX_FILTERS_OF_A_PREDICATE` filters or `MAX_OPERANDS`
operands, and where `not` stands before anything but `exists` and `absent`, the predicate is one filter with a condition
(`model.Condition`).

`not temp > 30` is the complement of `temp > 30`: it is satisfied also by an event without temp, or with a text there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any, NamedTuple, NoReturn

from mpi_match.model import (
    EVERY_STRING,
    HAS,
    MAX_CONDITION_DEPTH,
    MAX_LEAVES,
    VIEWS,
    Condition,
    Constraint,
    Join,
    ModelError,
    Op,
    View,
    constraint,
    decimal,
)
from mpi_match.operators import OPERATORS, Takes

MAX_FILTERS_OF_A_PREDICATE = 1000
"""Most filters that one predicate becomes."""
MAX_OPERANDS = 100_000
"""Most constraints that these filters may have together, unless the text has more; a list counts once for each of its
values."""
_UNCOUNTED = 10**24
"""Number up to which filters are counted: more are refused in any case, and their number could have thousands of digits."""
MAX_NESTING = MAX_CONDITION_DEPTH
"""Most levels of nested parentheses and `not`."""
_SHOWN = 70
_SIGNS = {word for record in OPERATORS.values() for word in (record.symbol, *record.spellings) if not word[0].isalpha()}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])
    | (?P<text>'(?:[^'\\]++|''|\\.)*+')
    | (?P<quoted>"(?:[^"]++|"")*+")
    | (?P<word>[^\W\d][\w.]*)
    | (?P<sign>{signs})
    | (?P<end>$)
    )""".replace("{signs}", "|".join(map(re.escape, (*sorted(_SIGNS, key=len, reverse=True), "(", ")", ",")))),
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"''|\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL
)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}


class _Written(NamedTuple):
    """An operator as texts have it.

    symbol        as rows have it
    takes         its operands
    has_any       True if `any` may stand before it
    takes_any_of  True if a list of operands means any of them
    """

    symbol: str
    takes: Takes
    has_any: bool
    takes_any_of: bool


_OPERATORS = {
    **{
        tuple(written.split()): _Written(record.symbol, record.takes, record.has_any, record.takes_any_of)
        for record in OPERATORS.values()
        for written in (record.symbol, *record.spellings)
    },
    **{
        tuple(f"{written} i".split()): _Written(f"{record.symbol} i", record.takes, True, record.takes_any_of)
        for op, record in OPERATORS.items()
        for written in (record.symbol, *record.spellings)
        if record.folds or op is Op.REGEXP
    },
    **{
        tuple(symbol.split()): _Written(symbol, Takes.VALUE, True, view is View.IP)
        for symbol, (view, _) in VIEWS.items()
        if view is not View.FOLD
    },
}
"""Operators by the signs and words that they consist of."""
_ON_ELEMENTS = {words: written for words, written in _OPERATORS.items() if written.has_any}


@cache
def _following(words: tuple[str, ...], *, on_elements: bool) -> frozenset[str]:
    """The words that may stand behind the first words of an operator."""
    known = _ON_ELEMENTS if on_elements else _OPERATORS
    return frozenset(each[len(words)] for each in known if each[: len(words)] == words and len(each) > len(words))


_RESERVED = {"and", "or", "not", "in", "between", "exists", "absent", "prefix", "suffix", "contains", "true", "false"}
"""Words that are names only in quotes.  Words of operators that were added later are not among them, so that no predicate
changes its meaning."""


_OPPOSITES = {Op.EXISTS: Op.ABSENT, Op.ABSENT: Op.EXISTS}
"""Operators whose complements are operators."""


class PredicateError(ModelError):
    """The error of a text that is not a predicate; the message shows the text and marks the position."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The keyword or sign of the token; empty for names, texts and numbers."""
        lower = self.text.lower()
        return lower if self.kind == "sign" or (self.kind == "word" and lower in _RESERVED) else ""


class _Leaf(NamedTuple):
    """A constraint, or its complement."""

    constraint: Constraint
    at: int
    negated: bool = False


class _Branch(NamedTuple):
    """A join of `terms`: all of them (`every`), or any of them."""

    every: bool
    terms: tuple[Any, ...]


class _Not(NamedTuple):
    term: _Term
    at: int


_Term = _Leaf | _Branch | _Not


def parse(text: str) -> list[tuple[Constraint | Condition, ...]]:
    """The alternatives of a predicate, each the constraints of one filter, in the order of the text and without duplicates.

    Raises PredicateError.
    """
    parser = _Parser(text)
    read = parser.predicate(0)
    if parser.token.kind != "end":
        parser.fail(f"expected 'and', 'or' or the end, found {parser.token.text}")
    term = _pushed(read, negated=False)
    size = _size(term)
    if size.leaves > MAX_LEAVES:
        parser.fail(f"more than {MAX_LEAVES:,} constraints", 0)
    is_large = size.filters > MAX_FILTERS_OF_A_PREDICATE or size.operands > max(MAX_OPERANDS, size.written)
    if size.complements or is_large:
        found = _tree(term)
        return [found.parts if isinstance(found, Condition) and found.join is Join.AND else (found,)]
    return list(dict.fromkeys(tuple(dict.fromkeys(item)) for item in _alternatives(term)))


def _tree(term: _Leaf | _Branch) -> Condition | Constraint:
    if isinstance(term, _Leaf):
        return Condition(Join.NOT, (term.constraint,)) if term.negated else term.constraint
    return Condition(Join.AND if term.every else Join.OR, tuple(map(_tree, term.terms)))


def _pushed(term: _Term, *, negated: bool) -> _Leaf | _Branch:
    """The term, or its complement, rewritten so that `not` stands only before constraints."""
    if isinstance(term, _Not):
        return _pushed(term.term, negated=not negated)
    if isinstance(term, _Branch):
        return _Branch(term.every != negated, tuple(_pushed(each, negated=negated) for each in term.terms))
    if negated and (opposite := _OPPOSITES.get(term.constraint.op)) is not None:
        return _Leaf(constraint(term.constraint.name, opposite), term.at)
    return term._replace(negated=negated)


class _Size(NamedTuple):
    """Counts of a term: the filters that it becomes, their operands together, and the operands, constraints and complements
    in the text.

    A constraint without any operand counts as one.
    """

    filters: int
    operands: int
    written: int
    leaves: int
    complements: int


def _size(term: _Leaf | _Branch) -> _Size:
    if isinstance(term, _Leaf):
        n = len(term.constraint.operand) if isinstance(term.constraint.operand, tuple) else 1
        return _Size(1, n, n, 1, int(term.negated))
    filters, operands, written, leaves, complements = int(term.every), 0, 0, 0, 0
    for each in map(_size, term.terms):
        if term.every:  # each filter so far with each filter of this term
            filters, operands = filters * each.filters, operands * each.filters + each.operands * filters
        else:
            filters, operands = filters + each.filters, operands + each.operands
        filters, operands, written = min(filters, _UNCOUNTED), min(operands, _UNCOUNTED), written + each.written
        leaves, complements = leaves + each.leaves, complements + each.complements
    return _Size(filters, operands, written, leaves, complements)


def _alternatives(term: _Leaf | _Branch) -> Iterable[tuple[Constraint, ...]]:
    if isinstance(term, _Leaf):
        return [(term.constraint,)]
    found = [list(_alternatives(each)) for each in term.terms]
    if not term.every:
        return [item for each in found for item in each]
    return [tuple(c for part in parts for c in part) for parts in product(*found)]


class _AnyOf(list[object]):
    """Operands of a constraint that asks for any of them."""


class _Parser:
    """Recursive descent, one method for each line of the grammar; `token` is the current one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._next = 0
        self.token = self._read()

    def _read(self) -> _Token:
        found = _TOKEN.match(self.text, self._next)
        if found is None or found.lastgroup is None:
            at = self._next + len(self.text[self._next :]) - len(self.text[self._next :].lstrip())
            if self.text[at] in "'\"":
                self.fail("the quotes that begin here do not end", at)
            advice = '; the name of all strings is "*", in double quotes' if self.text[at] == EVERY_STRING else ""
            self.fail(f"cannot read {self.text[at]!r} here{advice}", at)
        self._next = found.end()
        return _Token(found.lastgroup, found.group(found.lastgroup), found.start(found.lastgroup))

    def take(self) -> _Token:
        """Return the current token and advance."""
        token, self.token = self.token, self._read()
        return token

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        """Raise with the text and a caret under the position."""
        at = self.token.at if at is None else at
        first = max(0, at - _SHOWN // 2)
        shown = re.sub(r"\s", " ", self.text[first : first + _SHOWN])
        raise PredicateError(f"{what}, at column {at + 1}\n  {shown}\n  {' ' * (at - first)}^")

    def expect(self, word: str, where: str) -> _Token:
        """Consume the keyword or sign `word`."""
        if self.token.word != word:
            self.fail(f"expected {word!r} {where}, found {self.token.text or 'the end'}")
        return self.take()

    def predicate(self, depth: int) -> _Term:
        """`predicate` of the grammar."""
        terms = [self._conjunction(depth)]
        while self.token.word == "or":
            self.take()
            terms.append(self._conjunction(depth))
        return terms[0] if len(terms) == 1 else _Branch(False, tuple(terms))

    def _conjunction(self, depth: int) -> _Term:
        terms = [self._term(depth)]
        while self.token.word == "and":
            self.take()
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else _Branch(True, tuple(terms))

    def _term(self, depth: int) -> _Term:
        if depth > MAX_NESTING:
            self.fail(f"more than {MAX_NESTING} parentheses within one another")
        if self.token.word == "not":
            at = self.take().at
            return _Not(self._term(depth + 1), at)
        if self.token.word == "(":
            self.take()
            found = self.predicate(depth + 1)
            self.expect(")", "to close the parenthesis")
            return found
        return self._comparison()

    def _comparison(self) -> _Leaf | _Branch:
        start = self.token
        if start.kind == "quoted":
            name = self.take().text[1:-1].replace('""', '"')
        elif start.kind == "word" and not start.word:
            name = self.take().text
        else:
            keyword = (
                f'; a name that is a word of the language goes in double quotes: "{start.text}"'
                if start.word.isalpha()
                else ""
            )
            self.fail(f"expected a name, found {start.text or 'the end'}{keyword}")
        symbol, operand = self._condition(name)
        several = operand if isinstance(operand, _AnyOf) else [operand]
        try:
            leaves = tuple(_Leaf(constraint(name, symbol, each), start.at) for each in several)
        except ModelError as error:
            self.fail(str(error), start.at)
        return leaves[0] if len(leaves) == 1 else _Branch(False, leaves)

    def _condition(self, name: str) -> tuple[str, object]:
        named = self.token.text.lower() if self.token.kind == "word" else ""
        if named == HAS:
            self.take()
            return HAS, self._value()
        if named == "any":
            self.take()
            symbol, operand = self._comparison_with(f"{name} any", on_elements=True)
            return f"any {symbol}", operand
        return self._comparison_with(name)

    def _comparison_with(self, name: str, *, on_elements: bool = False) -> tuple[str, object]:
        """An operator and its operand; `name` is what is before it."""
        written = self._operator(name, on_elements=on_elements)
        if written.takes is Takes.NOTHING:
            return written.symbol, None
        if written.takes is Takes.LIST:
            return written.symbol, self._list()
        if written.takes is Takes.VALUE:
            is_listed = written.takes_any_of and self.token.word == "("
            return written.symbol, _AnyOf(self._list()) if is_listed else self._value()
        low = self._value()
        self.expect("and", "between the bounds")
        return written.symbol, [low, self._value()]

    def _operator(self, name: str, *, on_elements: bool) -> _Written:
        """The longest operator that is written here."""
        known = _ON_ELEMENTS if on_elements else _OPERATORS
        words: tuple[str, ...] = ()
        while following := _following(words, on_elements=on_elements):
            word = self.token.text.lower() if self.token.kind in ("sign", "word") else ""
            if word not in following:
                break
            words = (*words, word)
            self.take()
        if words in known:
            return known[words]
        if words == ("not",) and (self.token.text.lower(),) in {each[:1] for each in known}:
            self.fail(f"expected 'in' after '{name} not', found {self.token.text}; a complement is written not {name} ...")
        if words:
            self.expect(sorted(following)[0], f"after '{name} {' '.join(words)}'")
        there = [" ".join(each) for each in known] + ([] if on_elements else [HAS, "any"])
        self.fail(f"expected an operator after '{name}' ({', '.join(there)})")

    def _list(self) -> list[object]:
        self.expect("(", "to begin the list")
        found = [self._value()]
        while self.token.word == ",":
            self.take()
            found.append(self._value())
        self.expect(")", "to end the list")
        return found

    def _value(self) -> object:
        token = self.token
        if token.word in ("true", "false"):
            self.take()
            return token.word == "true"
        if token.kind == "number":
            number = self._number(token)
            self.take()
            return number
        if token.kind == "text":
            value = _ESCAPE.sub(self._unescaped, token.text[1:-1])
            self.take()
            return value
        hint = f"; a text goes in single quotes: '{token.text.strip(chr(34))}'" if token.kind in ("word", "quoted") else ""
        self.fail(f"expected a value, found {token.text or 'the end'}{hint}")

    def _number(self, token: _Token) -> float:
        try:
            return decimal(token.text) if re.search(r"[.eE]", token.text) else int(token.text)
        except ModelError as error:
            self.fail(str(error), token.at)
        except ValueError:  # `int` does not read thousands of digits
            self.fail("an integer of thousands of digits; send it as a string", token.at)

    def _unescaped(self, found: re.Match[str]) -> str:
        high, low, unit, letter = found.groups()
        if high:
            return (chr(int(high, 16)) + chr(int(low, 16))).encode("utf-16", "surrogatepass").decode("utf-16")
        if unit:
            return chr(int(unit, 16))
        if letter is None:
            return "'"
        if letter not in _ESCAPES:
            self.fail(f"unknown escape {found.group()}", self.token.at + 1 + found.start())
        return _ESCAPES[letter]
