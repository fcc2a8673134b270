r"""The text language of predicates, and its way to filters.

    area = 'area1' and temp > 30 or wind >= 20 and name prefix 'ab'

    predicate   = conjunction { "or" conjunction }
    conjunction = term { "and" term }
    term        = "not" term | "(" predicate ")" | name condition
    condition   = operator value                            = == != <> < <= > >= prefix suffix contains
                | operator "(" value { "," value } ")"      in, not in
                | operator value "and" value                between
                | operator                                  exists, absent
                | "has" value
                | "any" (the conditions above but `exists` and `absent`)
    name        = letters, digits, "_" and "." beginning with a letter or "_"; anything else in double quotes ("" is a quote)
    value       = number | 'text' ('' is a quote, and \\ \' \n \r \t \uXXXX are escapes) | true | false
    number      = as in JSON, and also +7, .5 and 5.

Words are read in any case; `has` and `any` are words only where a condition begins.  `has` is `any =`, and `any` asks for
some element of a list.  `not` binds before `and`, and that before `or`.  Types and operators are the model's: nothing is
converted.  As in JSON, two `\uXXXX` that are a surrogate pair are one character, and digits are 0 to 9.

A filter is a conjunction, so a predicate is brought to disjunctive normal form, one filter for each alternative.  That can
multiply: (a or b) and (c or d) is four filters.  Past `MAX_FILTERS_OF_A_PREDICATE` filters or `MAX_OPERANDS` operands in
them it is refused, saying how many there would be, before any of them is made.

`not` is pushed inward (De Morgan) and must end at `exists` or `absent`.  `not (temp > 30)` is *not* `temp <= 30`: an event
without temp, or with a text or NaN there, satisfies the first and not the second, and no filter says "NaN".  Rather than
answer something near it, the language refuses and asks for what is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple, NoReturn

from mpi_match.model import HAS, Constraint, ModelError, Op, constraint, decimal
from mpi_match.operators import OPERATORS, Takes

MAX_FILTERS_OF_A_PREDICATE = 1000
"""Filters that one predicate may become."""
MAX_OPERANDS = 100_000
"""Constraints that these filters may have together, where the text has fewer; a list counts as many as it has values."""
_UNCOUNTED = 10**24
"""Counting stops here: so many filters are refused in any case, and their number would have thousands of digits."""
MAX_NESTING = 100
"""Parentheses and `not` within one another."""
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
_OPERATORS = {
    tuple(written.split()): op for op, record in OPERATORS.items() for written in (record.symbol, *record.spellings)
}
"""Operators by the signs and words that they consist of."""
_RESERVED = {"and", "or", "not", "in", "between", "exists", "absent", "prefix", "suffix", "contains", "true", "false"}
"""Words that are names in quotes only.  Words of later operators are not among them: no predicate changes its meaning."""


_OPPOSITES = {Op.EXISTS: Op.ABSENT, Op.ABSENT: Op.EXISTS}
"""Operators that `not` may stand before, and the operator that both together are."""


class PredicateError(ModelError):
    """A text that is no predicate; the message shows the text and marks the position."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The keyword or sign that this is; nothing for names, texts and numbers."""
        lower = self.text.lower()
        return lower if self.kind == "sign" or (self.kind == "word" and lower in _RESERVED) else ""


class _Leaf(NamedTuple):
    constraint: Constraint
    at: int


class _Branch(NamedTuple):
    """All of `terms` (`every`), or any of them."""

    every: bool
    terms: tuple[Any, ...]


class _Not(NamedTuple):
    term: _Term
    at: int


_Term = _Leaf | _Branch | _Not


def parse(text: str) -> list[tuple[Constraint, ...]]:
    """The alternatives of a predicate, each the constraints of one filter, in the order of the text; no alternative twice.

    Raises PredicateError.
    """
    parser = _Parser(text)
    read = parser.predicate(0)
    if parser.token.kind != "end":
        parser.fail(f"expected 'and', 'or' or the end, found {parser.token.text}")
    term = parser.pushed(read, None)
    size = _size(term)
    if size.filters > MAX_FILTERS_OF_A_PREDICATE:
        n = f"{size.filters:,}" if size.filters < _UNCOUNTED else "more than 10^24"
        parser.fail(f"this would be {n} filters, more than {MAX_FILTERS_OF_A_PREDICATE:,}; write several subscriptions", 0)
    if size.operands > max(MAX_OPERANDS, size.written):
        n = f"{size.filters:,} filters with {size.operands:,} constraints and listed values"
        parser.fail(f"this would be {n}, more than {MAX_OPERANDS:,}; write several subscriptions", 0)
    return list(dict.fromkeys(tuple(dict.fromkeys(item)) for item in _alternatives(term)))


class _Size(NamedTuple):
    """Number of filters that a term becomes, of their operands together, and of operands in the text itself.

    A constraint without any operand counts as one.
    """

    filters: int
    operands: int
    written: int


def _size(term: _Leaf | _Branch) -> _Size:
    if isinstance(term, _Leaf):
        n = len(term.constraint.operand) if isinstance(term.constraint.operand, tuple) else 1
        return _Size(1, n, n)
    filters, operands, written = int(term.every), 0, 0
    for each in map(_size, term.terms):
        if term.every:  # each filter so far with each filter of this term
            filters, operands = filters * each.filters, operands * each.filters + each.operands * filters
        else:
            filters, operands = filters + each.filters, operands + each.operands
        filters, operands, written = min(filters, _UNCOUNTED), min(operands, _UNCOUNTED), written + each.written
    return _Size(filters, operands, written)


def _alternatives(term: _Leaf | _Branch) -> Iterable[tuple[Constraint, ...]]:
    if isinstance(term, _Leaf):
        return [(term.constraint,)]
    found = [list(_alternatives(each)) for each in term.terms]
    if not term.every:
        return [item for each in found for item in each]
    return [tuple(c for part in parts for c in part) for parts in product(*found)]


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
            opened = self.text[at] in "'\""
            self.fail("the quotes that begin here do not end" if opened else f"cannot read {self.text[at]!r} here", at)
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

    def pushed(self, term: _Term, negated: int | None) -> _Leaf | _Branch:
        """The term without any `not`; `negated` is the position of a `not` that applies to all of it, if there is one."""
        if isinstance(term, _Not):
            return self.pushed(term.term, term.at if negated is None else None)
        if isinstance(term, _Branch):
            return _Branch(term.every == (negated is None), tuple(self.pushed(each, negated) for each in term.terms))
        if negated is None:
            return term
        c = term.constraint
        if c.op not in _OPPOSITES:
            self.fail(
                f"'not' before '{c}' has no exact form (absent, other types and NaN would have to match too): "
                "write the opposite comparison, and 'or ... absent' where absence is meant",
                negated,
            )
        return _Leaf(constraint(c.name, _OPPOSITES[c.op]), term.at)

    def _comparison(self) -> _Leaf:
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
        op, operand = self._condition(name)
        try:
            return _Leaf(constraint(name, op, operand), start.at)
        except ModelError as error:
            self.fail(str(error), start.at)

    def _condition(self, name: str) -> tuple[Op | str, object]:
        named = self.token.text.lower() if self.token.kind == "word" else ""
        if named == HAS:
            self.take()
            return HAS, self._value()
        if named == "any":
            self.take()
            op, operand = self._comparison_with(f"{name} any", on_elements=True)
            return f"any {op.symbol}", operand
        return self._comparison_with(name)

    def _comparison_with(self, name: str, *, on_elements: bool = False) -> tuple[Op, object]:
        """An operator and its operand; `name` is what is before it."""
        op = self._operator(name, on_elements=on_elements)
        takes = op.record.takes
        if takes is Takes.NOTHING:
            return op, None
        if takes is Takes.LIST:
            return op, self._list()
        if takes is Takes.VALUE:
            return op, self._value()
        low = self._value()
        self.expect("and", "between the bounds")
        return op, [low, self._value()]

    def _operator(self, name: str, *, on_elements: bool) -> Op:
        """The longest operator that is written here."""
        known = {words: op for words, op in _OPERATORS.items() if op.record.has_any or not on_elements}
        words: tuple[str, ...] = ()
        while following := {each[len(words)] for each in known if each[: len(words)] == words and len(each) > len(words)}:
            word = self.token.text.lower() if self.token.kind in ("sign", "word") else ""
            if word not in following:
                break
            words = (*words, word)
            self.take()
        if words in known:
            return known[words]
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
