"""One record for each operator, with everything that the package knows of it.

The model, the table, the engines and the readers ask `OPERATORS`.  None of them has a list of operators of its own, and one
that meets an operator without a record raises.

Engines only know the *form* of an operator, and there are few forms.  A form states the condition of a table's row on the
code of an attribute (`table.vocabulary`), so an operator with one of these forms needs no change of an engine:

    form           satisfied by                                                   operators
    EQUAL          the code of the operand                                        =
    UNEQUAL        every other code of its type                                   !=
    BELOW, ABOVE   the codes of its type up to, or from, the operand              < <= > >=
    WITHIN         the codes between two operands                                 between
    PREFIX         the codes of the strings that begin with the operand           prefix
    IN_LIST        the codes of the operands                                      in
    OUT_OF_LIST    every other code of their type                                 not in
    ATOM           strings that `satisfies` says so of, evaluated once for each   suffix contains null
                   one; without operands, nulls
    EXISTS         every code                                                     exists
    ABSENT         no code: the event does not have the name                      absent
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpi_match.texts import regexp, wildcard


class Type(enum.IntEnum):
    """Type of a value.  `ANY` is the type of the constraints without operands (`exists`, `absent`, `null`); no constraint
    has the types `LIST` and `NULL`.
    """

    ANY = 0
    NUMBER = 1
    STRING = 2
    BOOLEAN = 3
    LIST = 4
    NULL = 5


class Form(enum.IntEnum):
    """The forms of a table's rows, see the top of this module.  The file format does not depend on forms."""

    EQUAL = 0
    UNEQUAL = 1
    BELOW = 2
    ABOVE = 3
    WITHIN = 4
    PREFIX = 5
    IN_LIST = 6
    OUT_OF_LIST = 7
    ATOM = 8
    EXISTS = 9
    ABSENT = 10


class View(enum.Enum):
    """The views of a value that constraints ask for: the value itself, or its meaning (`model.viewed`).

    The values are the letters by which names of views begin (`table.virtual_names`).
    """

    NONE = b""
    FOLD = b"f"
    IP = b"i"
    TIME = b"t"


class Takes(enum.Enum):
    """The operands that an operator takes."""

    NOTHING = "no operand"
    VALUE = "one value"
    BOUNDS = "two values, [low, high]"
    LIST = "at least one value"


class Anchor(enum.Enum):
    """The part of a text where an atom's operand must be."""

    END = "end"
    ANYWHERE = "anywhere"


class Op(enum.IntEnum):
    """Operators.  The numbers are part of the table's file format: append, never renumber."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    IN = 6
    NOT_IN = 7
    BETWEEN = 8
    PREFIX = 9
    SUFFIX = 10
    CONTAINS = 11
    EXISTS = 12
    ABSENT = 13
    NULL = 14
    WILDCARD = 15
    REGEXP = 16

    @property
    def record(self) -> Operator:
        """The record of the operator.  Raises KeyError for one without a record."""
        return OPERATORS[self]

    @property
    def symbol(self) -> str:
        """The operator as written in subscriptions: `=`, `!=`, `not in`, ..."""
        return self.record.symbol


@dataclass(frozen=True)
class Operator:
    """The record of an operator.

    symbol       as subscriptions and predicates write it: a sign, or words of lower-case letters
    form         how tables store its constraints, and hence how engines evaluate them
    types        types of its operands; ANY alone if it takes none
    satisfies    tells if a value satisfies it with an operand: both of one of `types`, strings as UTF-8 bytes, several
                 operands as a tuple; not called for operators without operands
    takes        its operands
    excludes     the forms BELOW, ABOVE and WITHIN: does the interval leave out its low operand, and its high one?
    anchor       the form ATOM: a text satisfies it exactly if the operand stands there.  None: only `satisfies` can tell,
                 and events with such a name are judged in Python, not in compiled code, unless it is `of_nulls` or
                 compiled code has a test of its own (`ingest.codes.patterns`)
    element      the byte by which names of `any OP` say which operator they are of (`table.virtual_names`); empty for the
                 forms BELOW and ABOVE, which need none, and for operators without `any`
    spellings    other symbols that predicates may use
    folds        True if it has a form without regard to case, as `=` has `= i`
    takes_any_of True if a list of operands stands for any of them
    check        raises ValueError for a text that is not an operand
    sure_bytes   bytes of the longest text that `check` accepts whatever it says; 0 if it asks more of texts than to be short
    """

    symbol: str
    form: Form
    types: frozenset[Type]
    satisfies: Callable[[Any, Any], bool]
    takes: Takes = Takes.VALUE
    excludes: tuple[bool, bool] = (False, False)
    anchor: Anchor | None = None
    element: bytes = b""
    spellings: tuple[str, ...] = ()
    folds: bool = False
    takes_any_of: bool = False
    check: Callable[[str], object] | None = None
    sure_bytes: int = 0

    @property
    def has_low(self) -> bool:
        """Tells whether an operand bounds the interval of its rows from below."""
        return self.form in _WITH_LOW

    @property
    def has_high(self) -> bool:
        """Tells whether an operand bounds the interval of its rows from above."""
        return self.form in _WITH_HIGH

    @property
    def is_listed(self) -> bool:
        """Tells whether rows of the operator refer to a list of operands."""
        return self.form in (Form.IN_LIST, Form.OUT_OF_LIST)

    @property
    def of_nulls(self) -> bool:
        """Tells whether only nulls satisfy the operator."""
        return self.form is Form.ATOM and self.takes is Takes.NOTHING

    @property
    def is_judged(self) -> bool:
        """Tells whether the operator is an atom of texts that only `satisfies` can evaluate."""
        return self.form is Form.ATOM and self.anchor is None and not self.of_nulls

    @property
    def has_any(self) -> bool:
        """Tells whether the operator may follow `any`, which asks for an element of a list."""
        return bool(self.element) or self.form in (Form.BELOW, Form.ABOVE)


_WITH_LOW = frozenset({Form.EQUAL, Form.UNEQUAL, Form.ABOVE, Form.WITHIN, Form.PREFIX, Form.ATOM})
_WITH_HIGH = frozenset({Form.EQUAL, Form.UNEQUAL, Form.BELOW, Form.WITHIN, Form.PREFIX, Form.ATOM})

_ANY, _STRING = frozenset({Type.ANY}), frozenset({Type.STRING})
_ORDERED, _NUMBER = frozenset({Type.NUMBER, Type.STRING}), frozenset({Type.NUMBER})
_ALL = _ORDERED | {Type.BOOLEAN}


def _of_presence(value: object, operand: object) -> bool:
    raise AssertionError("operators without operands do not look at values")


OPERATORS: dict[Op, Operator] = {
    Op.EQ: Operator("=", Form.EQUAL, _ALL, operator.eq, element=b"=", spellings=("==",), folds=True),
    Op.NE: Operator("!=", Form.UNEQUAL, _ALL, operator.ne, element=b"#", spellings=("<>",), folds=True),
    Op.LT: Operator("<", Form.BELOW, _ORDERED, operator.lt, excludes=(False, True)),
    Op.LE: Operator("<=", Form.BELOW, _ORDERED, operator.le),
    Op.GT: Operator(">", Form.ABOVE, _ORDERED, operator.gt, excludes=(True, False)),
    Op.GE: Operator(">=", Form.ABOVE, _ORDERED, operator.ge),
    Op.IN: Operator(
        "in", Form.IN_LIST, _ORDERED, lambda value, listed: value in listed, Takes.LIST, element=b"@", folds=True
    ),
    Op.NOT_IN: Operator(
        "not in", Form.OUT_OF_LIST, _ORDERED, lambda value, listed: value not in listed, Takes.LIST, element=b"~", folds=True
    ),
    Op.BETWEEN: Operator(
        "between",
        Form.WITHIN,
        _NUMBER,
        lambda value, bounds: bounds[0] <= value <= bounds[1],
        Takes.BOUNDS,
        element=b"[",
    ),
    Op.PREFIX: Operator(
        "prefix",
        Form.PREFIX,
        _STRING,
        lambda value, start: value.startswith(start),
        excludes=(False, True),
        element=b"^",
        folds=True,
        takes_any_of=True,
    ),
    Op.SUFFIX: Operator(
        "suffix",
        Form.ATOM,
        _STRING,
        lambda value, end: value.endswith(end),
        anchor=Anchor.END,
        element=b"$",
        folds=True,
        takes_any_of=True,
    ),
    Op.CONTAINS: Operator(
        "contains",
        Form.ATOM,
        _STRING,
        operator.contains,
        anchor=Anchor.ANYWHERE,
        element=b"*",
        folds=True,
        takes_any_of=True,
    ),
    Op.EXISTS: Operator("exists", Form.EXISTS, _ANY, _of_presence, Takes.NOTHING),
    Op.ABSENT: Operator("absent", Form.ABSENT, _ANY, _of_presence, Takes.NOTHING),
    Op.NULL: Operator("null", Form.ATOM, _ANY, _of_presence, Takes.NOTHING),
    Op.WILDCARD: Operator(
        "wildcard",
        Form.ATOM,
        _STRING,
        wildcard.matches,
        element=b"?",
        folds=True,
        takes_any_of=True,
        check=wildcard.tokens,
        sure_bytes=wildcard.MAX_WILDCARD,
    ),
    Op.REGEXP: Operator(
        "regexp", Form.ATOM, _STRING, regexp.matches, element=b"%", takes_any_of=True, check=regexp.compiled
    ),
}
"""The record of every operator."""
PATTERN_OPS = frozenset({Op.WILDCARD, Op.REGEXP})
"""The operators whose operands are patterns: strings have to contain their literals, see `ingest.codes.patterns`."""


def operators_of(type_: Type) -> frozenset[Op]:
    """The operators whose operands have a type; those without operands for `Type.ANY`."""
    return frozenset(op for op, record in OPERATORS.items() if type_ in record.types)
