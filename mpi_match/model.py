"""The words of content-based publish/subscribe, and what they mean.

This module *is* the semantics: every engine is right exactly when it agrees with `match_naive`, the naive matcher below.
The words are Siena's (Carzaniga, Rosenblum, Wolf, 2001):

    attribute   a name and a typed value, or a list of values              temp = 25, tags = ["gpu", "spark"]
    event       a set of attributes, perhaps with a location               {city = "Milan", temp = 25} at (9.2, 45.5)
    constraint  a name, an operator and an operand                         temp > 20
    condition   a tree of and, or, not over constraints                    temp > 20 or not city = "Milan"
    filter      a conjunction of constraints, perhaps with a condition     city = "Milan" and temp > 20
                and an area
    predicate   a disjunction of filters
    interface   where a predicate lives and where events are delivered     "mobile-7"

Four rules decide the corner cases:

* **Types never meet.**  There are numbers, strings (compared by their UTF-8 bytes) and booleans.  A number is never equal
  to a string, and it is not *different* from one either: a constraint of one type is simply not satisfied by a value of
  another.
* **Absent never satisfies.** `!=` and `not in`, too, need an attribute of that name and type.  Only `absent` asks for
  absence.
* **Attributes that no filter names are ignored.** Any JSON object is an event; only an attribute that a filter names, and
  that cannot be read, makes it a bad one.
* **No integer is rounded.**  Numbers are the integers from -2^63 to 2^64 - 1 and the IEEE doubles, compared by their exact
  values: 2^53 + 1 is greater than 2^53 and equal to no double.  Integers beyond are refused, not approximated.  Decimals are
  the doubles that they are read as (`decimal`): 0.1 is the double nearest to it.

A null is absent to every operator but `null`, which nothing else satisfies.

**Views.**  Some operators ask for the meaning of a value: `= i`, `prefix i` and others at a string without regard to case
(Unicode simple case folding), `in net` at the IPv4 or IPv6 address that a string is, `before`, `after`, `at` and `between`
with two texts at the instant that an RFC 3339 text or a native time is.  A value without that view satisfies none of them.
Otherwise the view takes the place of the value (`viewed`): an instant is a number of nanoseconds, an IPv4 address a number
of 32 bits, an IPv6 address the string of its 128 binary digits, so that a net is a range of the one or a prefix of the
other.

**Complements.**  `not` before a constraint or a condition is satisfied whenever that is not, so absent attributes and values
of other types satisfy it.  `!=` and `not in` ask for a value of their type that is different.

The name `*` stands for the list of all strings of an event, at any depth; constraints on it ask for some element.

A list has a type that plain operators do not know: of these it satisfies only `exists`.  `any OP` asks whether some
element satisfies OP (`has` is `any =`); another value counts as a list of one, and an empty list satisfies none.
Names go through lists of objects, lists in lists flatten, and nulls in lists are skipped (`ingest.rows.flatten`).

**Consistent arrays.**  A filter may ask that its constraints on objects in one list hold in one of these objects
(`Filter.consistent`): then one object of each list is chosen, and values in other objects satisfy nothing.  It matches if
some choice makes it true.  This concerns `any OP` and `exists`.  A complement has its own choice: `not` is true if no choice
makes the condition after it true.

NaN satisfies only `exists`; -0.0 equals 0.0.  A filter without constraints matches every event (in its area).

Events are numbered from 0 in the order of the input.  A row that is not an event (a *rejected row*) has a number too, and
matches nothing, not even a filter without constraints.
"""

from __future__ import annotations

import datetime
import enum
import ipaddress
import math
import numbers
import reprlib
import uuid
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode
from mpi_match.operators import OPERATORS as OPERATORS
from mpi_match.operators import Form, Takes, operators_of
from mpi_match.operators import Op as Op
from mpi_match.operators import Type as Type
from mpi_match.operators import View as View
from mpi_match.texts.address import address, network
from mpi_match.texts.folding import fold
from mpi_match.texts.instant import instant, instant_of, text_of_instant

MAX_EXACT_INTEGER = 2**53
"""The largest magnitude up to which every integer is an IEEE double."""
LEAST_INTEGER, GREATEST_INTEGER = -(2**63), 2**64 - 1
"""The least and the greatest integer that are numbers."""


Json: TypeAlias = dict[str, Any]
"""A JSON object as `json.loads` returns it: a row, a record of a measurement, a status."""


class ModelError(MpiMatchError, ValueError):
    """An invalid constraint, filter or event; the text says what is wrong with it.

    It may quote values of any size; a long text keeps its beginning and its end.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= 1000 else f"{text[:700]} ... {text[-200:]}")


OPS: dict[str, Op] = {record.symbol: op for op, record in OPERATORS.items()}
"""The operators, by the symbols that subscriptions use."""
PRESENCE = frozenset(op for op, record in OPERATORS.items() if record.takes is Takes.NOTHING)
"""Operators without operand."""
LISTS = frozenset(op for op, record in OPERATORS.items() if record.takes is Takes.LIST)
"""Operators whose operand is a list of values."""
OPS_OF_TYPE: dict[Type, frozenset[Op]] = {type_: operators_of(type_) for type_ in Type}
"""The operators that each type of operand has."""

VIEWS: dict[str, tuple[View, Op]] = {
    **{f"{record.symbol} i": (View.FOLD, op) for op, record in OPERATORS.items() if record.folds},
    "in net": (View.IP, Op.IN),
    "before": (View.TIME, Op.LT),
    "after": (View.TIME, Op.GT),
    "at": (View.TIME, Op.EQ),
}
"""The operators on views, by the symbols that subscriptions use."""
_OF_VIEWS = {view_op: symbol for symbol, view_op in VIEWS.items()} | {(View.TIME, Op.BETWEEN): Op.BETWEEN.symbol}
EVERY_STRING = "*"
"""The name of the list of all strings of an event."""
RESERVED = chr(0x10FFFF)
"""Names of constraints, labels of interfaces and ids that begin with this noncharacter are the package's own
(`table.conditions`)."""
MAX_CONDITION_DEPTH, MAX_LEAVES = 200, 100_000
"""Most levels of nested conditions, and most constraints in one condition."""

HAS = "has"
"""Another name of `any =`."""
_LISTED = frozenset(op for op, record in OPERATORS.items() if record.takes_any_of)
"""Operators with one operand that take a list of them as well: any of these."""
ANY_OPS: dict[str, Op] = {f"any {op.symbol}": op for op, record in OPERATORS.items() if record.has_any} | {HAS: Op.EQ}
"""Operators on elements, by the symbol that subscriptions use."""
RESIDUE_MASK = 0xFFFF
"""Bits in which a residue (`split`) is kept: they lie between -1,024 and 1,024."""
Time = datetime.date | datetime.time
"""A native time, a value that plain operators ignore; a `datetime` is a `date`, and so is a pandas `Timestamp`."""
Value = float | int | str | bool
"""A value after `value_of`: numbers are floats, whatever they were before, except integers that no float equals."""
Operand = Value | tuple[Value, ...] | None
"""One value; a tuple for operators that take two or a list of them; None for those that take none (`operators.Takes`)."""
Attribute = Value | tuple[Value, ...] | Time | None
"""The value of an event's attribute after `attribute_of`: one value, those of a list, a native time, or None for a null."""


_PLAIN = frozenset((str, float, bool, int))
"""Types of nearly all values, without nulls and lists."""
_NULLS = {"NoneType", "NAType", "NaTType", "MaskedConstant"}


def is_null(raw: object) -> bool:
    """Tells whether a value is a null of Python, pandas (NA, NaT) or NumPy (masked).  NaN is not null: it is a number."""
    name = type(raw).__name__
    return name in _NULLS or (name == "datetime64" and raw != raw)


def value_of(raw: object) -> tuple[Type, Value]:
    """Type and canonical form of a Python value: `(Type.NUMBER, float)`, `(Type.STRING, str)`, `(Type.BOOLEAN, bool)`.

    An integer that no float equals stays an int.  A value of another type than Python's own is converted (`plain`).
    Raises ModelError for an integer below -2^63 or above 2^64 - 1, a fraction or a wider float that no double equals, a
    string that is not Unicode text (a lone surrogate), and any other type.
    """
    kind = type(raw)
    if kind is str:
        if not raw.isascii():  # type: ignore[attr-defined]
            try:
                raw.encode()  # type: ignore[attr-defined]
            except UnicodeEncodeError:
                raise ModelError(f"the string {raw!r} is not valid Unicode (lone surrogate)") from None
        return Type.STRING, raw  # type: ignore[return-value]
    if kind is float:
        return Type.NUMBER, raw + 0.0  # type: ignore[operator]  # -0.0 + 0.0 is 0.0
    if kind is bool:
        return Type.BOOLEAN, raw  # type: ignore[return-value]
    if kind is int:
        if -MAX_EXACT_INTEGER <= raw <= MAX_EXACT_INTEGER:  # type: ignore[operator]
            return Type.NUMBER, float(raw)  # type: ignore[arg-type]
        if not LEAST_INTEGER <= raw <= GREATEST_INTEGER:  # type: ignore[operator]
            shown = raw if abs(raw) < 2**128 else f"of {raw.bit_length():,} bits"  # type: ignore[arg-type, attr-defined]
            raise ModelError(f"the integer {shown} is not between -2^63 and 2^64 - 1; send it as a string")
        return Type.NUMBER, joined(*split(raw))  # type: ignore[arg-type]
    if isinstance(raw, Unread):
        raise ModelError(raw.reason)
    found = plain(raw)
    if type(found) not in (str, float, bool, int):
        raise ModelError(f"a value must be a number, a string or a boolean, found {describe(raw)}")
    return value_of(found)


def split(number: float) -> tuple[float, int]:
    """The double nearest to a number, ties to even, and the residue: the number minus that double, 0 for a float.

    Pairs are ordered as the numbers are.
    """
    nearest = float(number)
    return nearest, 0 if type(number) is float else int(number) - int(nearest)


def joined(nearest: float, residue: int) -> float:
    """The number of a double and the low 16 bits of a residue (`split`): an int if no double equals it."""
    signed = (residue & RESIDUE_MASK ^ 0x8000) - 0x8000
    return int(nearest) + signed if signed else nearest


def plain(raw: object) -> object:
    """The str, float, bool or int that a value of another type stands for; the value itself if it stands for none.

    Subclasses of these stand for their value, whatever their `str()` is, and so do members of an Enum; a Decimal for the
    number that its digits are in JSON (`number_of_digits`); other numbers, NumPy's among them, for the equal integer or
    double; a UUID for its text.  Raises ModelError for a number that no double equals.
    """
    if isinstance(raw, str):
        return str.__str__(raw)
    if isinstance(raw, float):
        return float.__float__(raw)
    if isinstance(raw, int):
        return raw if isinstance(raw, bool) else int.__int__(raw)
    name = type(raw).__name__
    if name == "bool":  # NumPy's
        return bool(raw)
    if isinstance(raw, enum.Enum):
        return plain(raw.value)
    if isinstance(raw, Decimal):
        return number_of_digits(raw)
    if isinstance(raw, numbers.Real) and name != "timedelta64":  # NumPy counts durations among the integers
        return int(raw) if isinstance(raw, numbers.Integral) else _exact_double(raw)
    if isinstance(raw, uuid.UUID):
        return str(raw)
    if name == "ndarray" and getattr(raw, "ndim", 1) == 0:
        return plain(raw[()])  # type: ignore[index]
    return raw


class Unread(NamedTuple):
    """A literal of JSON that no value of the model equals, such as 1e400, and the reason."""

    reason: str


def attribute_of(raw: object) -> Attribute:
    """The canonical form of an attribute's value: that of `value_of`, or for a list the tuple of its elements'.

    A null is None, and a native time stays as it is.  Lists in lists flatten, nulls in lists are skipped.  Raises ModelError
    for what `value_of` refuses, also in a list; for a list that contains itself.
    """
    if type(raw) in _PLAIN:
        return value_of(raw)[1]
    if is_null(raw):
        return None
    if type(raw).__name__ == "datetime64":
        found = raw.astype("datetime64[us]").item()  # type: ignore[attr-defined]
        return found if isinstance(found, Time) else datetime.datetime.max  # beyond the years that Python has
    if isinstance(raw, Time):
        return raw
    if not is_list(raw):
        return value_of(raw)[1]
    return tuple(value_of(element)[1] for element in elements_of(raw))


def is_list(raw: object) -> bool:
    """Lists, tuples and NumPy's arrays, which this module does not import."""
    kind = type(raw)
    if kind is list or kind is tuple:
        return True
    if isinstance(raw, (list, tuple)):
        return kind is not Unread
    return kind.__name__ == "ndarray" and getattr(raw, "ndim", 0) > 0


def elements_of(raw: Any) -> list[Any]:
    """The elements of a list and of the lists in it, to any depth, in their order, without nulls.

    Raises ModelError for a list that contains itself.
    """
    if all(type(item) in _PLAIN for item in raw):  # the usual case
        return list(raw)
    found: list[Any] = []
    path, around = [(iter(raw), id(raw))], {id(raw)}
    while path:
        for item in path[-1][0]:
            if is_list(item):
                if id(item) in around:
                    raise ModelError("a list contains itself")
                path.append((iter(item), id(item)))
                around.add(id(item))
                break
            if not is_null(item):
                found.append(item)
        else:
            around.discard(path.pop()[1])
    return found


def decimal(text: str) -> float:
    """The double that a decimal literal is rounded to, such as `0.1`, `-2.5` or `1e3`.

    It is rounded as `float` does: to the nearest double.  Raises ModelError for overflow, and for numbers other than 0 that
    would be rounded to 0.
    """
    number = float(text)
    if math.isinf(number):
        raise ModelError(f"the number {_brief(text)} is beyond the range of a double")
    if number == 0 and text.lower().partition("e")[0].strip("+-0."):
        raise ModelError(f"the number {_brief(text)} is not 0 and too near to it for a double; send 0, or a string")
    return number


def number_of_digits(raw: Decimal) -> int | float:
    """The number that the digits of a Decimal are in JSON: an integer without decimal point and exponent, else a double.

    Raises ModelError as `decimal` does.
    """
    _, _, exponent = raw.as_tuple()
    if not isinstance(exponent, int):
        return math.nan if raw.is_nan() else math.copysign(math.inf, raw)
    return decimal(str(raw)) if exponent else int(raw)


def _exact_double(raw: numbers.Real) -> float:
    """The double, or else the integer, equal to a fraction or to a float of another width."""
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if value != raw and raw == raw:  # NaN is unequal to itself, and accepted
        whole = int(raw)  # type: ignore[call-overload]
        if whole == raw:
            return whole  # type: ignore[no-any-return]
        raise ModelError(f"a {type(raw).__name__} that has no exact double is not rounded; send a float, or a string")
    return value


class _Quoting(reprlib.Repr):
    """`repr` of values of any size, nested to any depth and possibly containing themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 6, 1000, 1000

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 2**128 else f"<integer of {x.bit_length():,} bits>"  # `repr` has a limit and raises


_quoting = _Quoting()


def describe(raw: object) -> str:
    """Type and beginning of a value, for errors."""
    if isinstance(raw, Unread):
        return raw.reason
    text = _quoting.repr(raw)
    return "null" if raw is None else f"{type(raw).__name__} {_brief(' '.join(text.split()) if chr(10) in text else text)}"


def _brief(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def check_name(name: object) -> str:
    """`name` as a str when it can name an attribute: a string of valid Unicode.  Raises ModelError."""
    if not isinstance(name, str):
        raise ModelError(f"a name must be a string, found {describe(name)}")
    return value_of(name)[1]  # type: ignore[return-value]


class Constraint(NamedTuple):
    """One condition on one attribute, on some element of it (`any_element`), or on a view of either.

    `constraint()` makes one: checked, with its operand in canonical form.  On a view, type, operator and operand are those
    that the view is compared with.
    """

    name: str
    type: Type
    op: Op
    operand: Operand
    any_element: bool = False
    view: View = View.NONE

    def __str__(self) -> str:
        if self.operand is None:
            return f"{self.name} {self.op.symbol}"
        return f"{self.name} {self.symbol} {self.written!r}"

    @property
    def symbol(self) -> str:
        """The operator as written in subscriptions."""
        symbol = self.op.symbol
        if self.view is View.IP:
            symbol = "in net"
        elif self.view is not View.NONE:
            symbol = _OF_VIEWS[self.view, self.op]
        return f"any {symbol}" if self.any_element else symbol

    @property
    def written(self) -> Operand:
        """The operand as written in subscriptions: nets and instants as texts."""
        if self.view is View.IP:
            return text_of_network(self.operand)
        if self.view is View.TIME:
            several = isinstance(self.operand, tuple)
            texts = tuple(text_of_instant(int(each)) for each in (self.operand if several else (self.operand,)))  # type: ignore[union-attr, arg-type]
            return texts if several else texts[0]
        return self.operand


class Join(enum.Enum):
    """The ways in which a condition joins its parts."""

    AND = "and"
    OR = "or"
    NOT = "not"


class Condition(NamedTuple):
    """A tree over constraints: all of its parts, any of them, or not its one part."""

    join: Join
    parts: tuple[Condition | Constraint, ...]

    def __str__(self) -> str:
        shown = [f"({part})" if isinstance(part, Condition) else str(part) for part in self.parts]
        return f"not {shown[0]}" if self.join is Join.NOT else f" {self.join.value} ".join(shown) or "everything"

    def leaves(self) -> Iterator[Constraint]:
        """Its constraints, from left to right."""
        for part in self.parts:
            if isinstance(part, Condition):
                yield from part.leaves()
            else:
                yield part


def constraint(name: object, op: str | Op, operand: object = None) -> Constraint:
    """Check and normalise one constraint.

    Parameters: `name` str; `op` a symbol of `OPS` or `ANY_OPS`, or an `Op`; `operand` a number, string or boolean,
    `[low, high]` for `between`, a non-empty list of one type for `in` and `not in` (kept sorted and distinct), nothing for
    `exists`, `absent` and `null`.  Raises ModelError saying what is wrong.
    """
    name = check_name(name)
    if name.startswith(RESERVED):
        raise ModelError("the name of a constraint must not begin with the noncharacter U+10FFFF")
    return _on_every_string(op, operand) if name == EVERY_STRING else _constraint(name, op, operand)


def _constraint(name: str, op: str | Op, operand: object) -> Constraint:
    """`constraint` on a name that is checked."""
    if isinstance(op, str) and op in ANY_OPS:
        return _constraint(name, ANY_OPS[op], operand)._replace(any_element=True)
    if isinstance(op, str) and op.removeprefix("any ") in VIEWS:
        found = _on_view(name, *VIEWS[op.removeprefix("any ")], operand)
        return found._replace(any_element=op.startswith("any "))
    if op == "any between" or op in ("between", Op.BETWEEN):
        found = _between(name, operand)
        return found._replace(any_element=op == "any between")
    if op in ("regexp i", "any regexp i"):
        return _constraint(name, op[:-2], f"(?i){operand}" if isinstance(operand, str) else operand)
    if not isinstance(op, Op):
        known = OPS.get(op) if isinstance(op, str) else None
        if known is None:
            raise _unknown(op, name)
        op = known
    takes = op.record.takes
    if takes is Takes.NOTHING:
        if operand is not None:
            raise ModelError(f"{op.symbol!r} on {name!r} takes no operand, found {describe(operand)}")
        return Constraint(name, Type.ANY, op, None)
    if takes is not Takes.VALUE:
        return _list_constraint(name, op, operand)
    type_, value = _operand_of(name, op, operand)
    _check_op(name, op, type_)
    if value != value:
        raise ModelError(f"NaN as operand of {op.symbol!r} on {name!r} would never be satisfied")
    if op.record.check is not None:
        try:
            op.record.check(value)  # type: ignore[arg-type]
        except ValueError as error:
            raise ModelError(f"{op.symbol!r} on {name!r}: {error}") from None
    return Constraint(name, type_, op, value)


def _operand_of(name: str, op: Op, raw: object) -> tuple[Type, Value]:
    """The type and the value of an operand (`value_of`).  Raises ModelError, which names the constraint."""
    try:
        return value_of(raw)
    except ModelError as error:
        advice = "; 'in' takes a list" if op is Op.EQ and is_list(raw) else "; write 'null'" if is_null(raw) else ""
        raise ModelError(f"{op.symbol!r} on {name!r}: {error}{advice}") from None


def _unknown(op: object, name: object) -> ModelError:
    """The error of an operator that there is not."""
    if isinstance(op, str) and op.startswith(_ANY_NOT):
        inner = f"any {op.removeprefix(_ANY_NOT)}"
        return ModelError(
            f"there is no {op!r}, on {name!r}; 'any !=' and 'any not in' ask for another element, 'any regexp' for one of a "
            f"form, and 'not' around {inner!r} asks that no element is such"
        )
    if isinstance(op, str) and _is_operator(inner := op.removeprefix(_NOT)) and inner != op:
        return ModelError(f'there is no {op!r}, on {name!r}; write {{"not": [..., "{inner}", ...]}}')
    there = f"{', '.join(OPS)}, and on elements of lists: {HAS}, any =, any <, ...; on views: {', '.join(VIEWS)}"
    return ModelError(f"unknown operator {_quoting.repr(op)} on {name!r}; there are: {there}")


def _on_every_string(op: str | Op, operand: object) -> Constraint:
    """A constraint on the list of all strings, which always asks for some element."""
    symbol = op if isinstance(op, str) else op.symbol
    plain_symbol = symbol.removeprefix("any ") if symbol != HAS else Op.EQ.symbol
    if OPS.get(plain_symbol) in PRESENCE:
        raise ModelError(
            f"{symbol!r} on {EVERY_STRING!r}: operators on {EVERY_STRING!r}, the strings of an event, need an operand"
        )
    found = _constraint(EVERY_STRING, plain_symbol, operand)
    if found.type is not Type.STRING and not (found.view is not View.NONE):
        raise ModelError(
            f"{symbol!r} on {EVERY_STRING!r}, the strings of an event, needs a string, found {describe(operand)}"
        )
    return found._replace(any_element=True)


def _on_view(name: str, view: View, op: Op, operand: object) -> Constraint:
    """A constraint on the view of an attribute.  Raises ModelError."""
    if view is View.FOLD:
        found = _constraint(name, op, operand)
        if found.type is not Type.STRING:
            raise ModelError(f"'{op.symbol} i' on {name!r} needs a string, found {describe(operand)}")
        folded = fold(found.operand) if isinstance(found.operand, str) else sorted({fold(each) for each in found.operand})  # type: ignore[union-attr, arg-type]
        return _constraint(name, op, folded)._replace(view=view)
    if not isinstance(operand, str):
        what = "a text such as '10.0.0.0/8'" if view is View.IP else "a text such as '2026-01-31T12:00:00Z'"
        raise ModelError(f"{_OF_VIEWS[view, op]!r} on {name!r} needs {what}, found {describe(operand)}")
    if view is View.TIME:
        return Constraint(name, Type.NUMBER, op, _instant_operand(name, op, operand), view=view)
    try:
        net = network(operand)
    except ValueError as error:
        raise ModelError(f"'in net' on {name!r}: {error}") from None
    if isinstance(net, str):
        return Constraint(name, Type.STRING, Op.PREFIX, net, view=view)
    return Constraint(name, Type.NUMBER, Op.BETWEEN, (float(net[0]), float(net[1])), view=view)


def _instant_operand(name: str, op: Op, text: str) -> float:
    found = instant(text)
    if found is None:
        raise ModelError(
            f"{_OF_VIEWS[View.TIME, op]!r} on {name!r} needs a date, or a date and time with its offset from UTC, as in RFC "
            f"3339 ('2026-01-31T12:00:00Z'), found {describe(text)}"
        )
    return joined(*split(found))


def _between(name: str, operand: object) -> Constraint:
    """A constraint `between`: on instants if both bounds are texts, else on numbers."""
    if isinstance(operand, (list, tuple)) and len(operand) == 2 and all(isinstance(each, str) for each in operand):
        low, high = (_instant_operand(name, Op.BETWEEN, each) for each in operand)
        if low > high:
            raise ModelError(f"'between' on {name!r} has its bounds reversed: {operand[0]!r} is after {operand[1]!r}")
        return Constraint(name, Type.NUMBER, Op.BETWEEN, (low, high), view=View.TIME)
    return _list_constraint(name, Op.BETWEEN, operand)


def text_of_network(operand: Operand) -> str:
    """The CIDR text of the operand of a constraint on the view IP."""
    if isinstance(operand, str):
        words = int(operand.ljust(128, "0"), 2)
        return f"{ipaddress.IPv6Address(words)}/{len(operand)}"
    low, high = (int(each) for each in operand)  # type: ignore[union-attr]
    return f"{ipaddress.IPv4Address(low)}/{32 - (high - low).bit_length()}"


def condition(raw: object) -> Condition | Constraint:
    """Check and build a condition from plain values: a constraint `[name, operator, operand]`, `{"and": [...]}`, `{"or":
    [...]}` or `{"not": ...}` of conditions.

    A list as the operand of an operator that takes one string means any of them.  Raises ModelError.
    """
    leaves = [0]
    return _condition(raw, 0, leaves)


def _condition(raw: object, depth: int, leaves: list[int]) -> Condition | Constraint:
    if depth > MAX_CONDITION_DEPTH:
        raise ModelError(f"more than {MAX_CONDITION_DEPTH} conditions within one another")
    if isinstance(raw, Condition):
        return raw
    if not isinstance(raw, Mapping):
        found = _constraint_of(raw)
        leaves[0] += len(found.parts) if isinstance(found, Condition) else 1
        if leaves[0] > MAX_LEAVES:
            raise _too_many()
        return found
    if len(raw) != 1 or next(iter(raw)) not in _JOINS:
        raise ModelError(
            f"a condition is a constraint, or an object with one of 'and', 'or' and 'not', found {describe(dict(raw))}"
        )
    [(word, parts)] = raw.items()
    join = _JOINS[word]
    if join is Join.NOT:
        return Condition(join, (_condition(parts, depth + 1, leaves),))
    if not isinstance(parts, (list, tuple)) or (join is Join.OR and not parts):
        raise ModelError(
            f"{word!r} needs a list of conditions{', one at least' * (join is Join.OR)}, found {describe(parts)}"
        )
    return Condition(join, tuple(_condition(part, depth + 1, leaves) for part in parts))


_JOINS = {join.value: join for join in Join}


def _too_many() -> ModelError:
    return ModelError(f"a condition of more than {MAX_LEAVES:,} constraints")


def _list_constraint(name: str, op: Op, operand: object) -> Constraint:
    takes = op.record.takes
    if not isinstance(operand, (list, tuple) if takes is Takes.BOUNDS else (list, tuple, set, frozenset)):
        raise ModelError(f"{op.symbol!r} on {name!r} needs a list of values, found {describe(operand)}")
    if not operand or (takes is Takes.BOUNDS and len(operand) != 2):
        raise ModelError(f"{op.symbol!r} on {name!r} needs {takes.value}, found {len(operand)}")
    type_, values = _values_of_one_type(name, op, operand)
    _check_op(name, op, type_)
    if any(value != value for value in values):
        raise ModelError(f"NaN as operand of {op.symbol!r} on {name!r} would never be satisfied")
    if takes is Takes.BOUNDS:
        low, high = values
        if low > high:  # type: ignore[operator]
            raise ModelError(f"{op.symbol!r} on {name!r} has its bounds reversed: {low!r} > {high!r}")
        if low == high and any(op.record.excludes):
            raise ModelError(f"{op.symbol!r} on {name!r} from {low!r} to {high!r} would never be satisfied")
        return Constraint(name, type_, op, tuple(values))
    return Constraint(name, type_, op, tuple(sorted(set(values))))  # UTF-8 sorts as Python does


def _values_of_one_type(name: str, op: Op, operand: Collection[object]) -> tuple[Type, list[Value]]:
    """The type and the values of a list that is not empty (`value_of`)."""
    if set(map(type, operand)) == {str} and "".join(operand).isascii():  # type: ignore[arg-type]
        return Type.STRING, list(operand)  # type: ignore[arg-type]
    typed = [_operand_of(name, op, raw) for raw in operand]
    types = {type_ for type_, _ in typed}
    if len(types) > 1:
        found = " and ".join(sorted(type_.name.lower() for type_ in types))
        raise ModelError(f"{op.symbol!r} on {name!r} mixes types: {found}")
    return types.pop(), [value for _, value in typed]


def _check_op(name: str, op: Op, type_: Type) -> None:
    if type_ not in op.record.types:
        allowed = ", ".join(o.symbol for o in sorted(OPS_OF_TYPE[type_]))
        raise ModelError(f"{op.symbol!r} on {name!r} is not defined for a {type_.name.lower()}; it has: {allowed}")


class Area(NamedTuple):
    """A circle: centre and radius, in the unit of the events' locations (planar, no projection)."""

    x: float
    y: float
    r: float


def area(raw: object) -> Area:
    """Check `[x, y, r]`: three finite numbers, `r >= 0`.  Raises ModelError."""
    if not isinstance(raw, (list, tuple)) or len(raw) != 3:
        raise ModelError(f"an area is [x, y, r], found {describe(raw)}")
    x, y, r = _coordinates(raw, "an area")
    if r < 0:
        raise ModelError(f"the radius of an area must be at least 0, found {r!r}")
    return Area(x, y, r)


def _coordinates(raw: Iterable[object], what: str) -> list[float]:
    found = []
    for item in raw:
        type_, value = value_of(item)
        if type_ is not Type.NUMBER or not math.isfinite(value):  # type: ignore[arg-type]
            raise ModelError(f"the coordinates of {what} must be finite numbers, found {describe(item)}")
        if type(value) is int:
            raise ModelError(f"the coordinates of {what} are doubles, and no double equals {value}; round it")
        found.append(value)
    return found  # type: ignore[return-value]


class Change(enum.IntEnum):
    """Kinds of changes.  The numbers are part of the file format: append, never renumber."""

    MOVE = 0
    ADD = 1
    REMOVE = 2
    REMOVE_INTERFACE = 3
    CONSOLIDATE = 4


class Filter(NamedTuple):
    """A conjunction of constraints on one interface, perhaps with a condition (`where`), perhaps inside an area.

    `interface` is the label of the interface; `id` is the subscriber's own name for this filter, if it gave one.
    `consistent`: its constraints on objects in one list must hold in one of these objects.
    """

    interface: str
    constraints: tuple[Constraint, ...] = ()
    area: Area | None = None
    id: str | None = None
    where: Condition | None = None
    consistent: bool = False

    def __str__(self) -> str:
        parts = [str(c) for c in self.constraints]
        if self.where is not None:
            parts.append(f"({self.where})")
        if self.area is not None:
            parts.append(f"within {self.area.r!r} of ({self.area.x!r}, {self.area.y!r})")
        return f"{self.interface}: {' and '.join(parts) if parts else 'everything'}"


CONSISTENT = "consistent"
"""The only value of the key `arrays` in a row of subscriptions."""


def make_filter(
    interface: object,
    constraints: Iterable[object] = (),
    area_: object = None,
    id_: object = None,
    where: object = None,
    arrays: object = None,
) -> Filter:
    """Check and build a filter from plain values: `make_filter("mobile-7", [["temp", ">", 30]], [9.2, 45.5, 1.0])`.

    A constraint is `[name, op, operand]`, or `[name, op]` for `exists`, `absent` and `null`; `where`, and any of the
    constraints, may be a condition (`condition`); `arrays` may be "consistent" (`Filter.consistent`).  An interface (and an
    id) is a string or an integer; an integer means its decimal digits.  Raises ModelError.
    """
    found = [condition(raw) for raw in constraints]
    if where is not None:
        found.append(condition(where))
    conditions = tuple(each for each in found if isinstance(each, Condition))
    joined_ = conditions[0] if len(conditions) == 1 else Condition(Join.AND, conditions)
    return Filter(
        label(interface, "interface"),
        tuple(each for each in found if isinstance(each, Constraint)),
        None if area_ is None else area(area_),
        None if id_ is None else id_of_filter(id_),
        joined_ if conditions else None,
        _is_consistent(arrays),
    )


def _is_consistent(arrays: object) -> bool:
    if arrays is not None and arrays != CONSISTENT:
        raise ModelError(f"'arrays' may be {CONSISTENT!r}, found {describe(arrays)}")
    return arrays is not None


def _constraint_of(raw: object) -> Constraint | Condition:
    if isinstance(raw, Constraint):
        return raw
    if not isinstance(raw, (list, tuple)) or not 2 <= len(raw) <= 3:
        is_several = isinstance(raw, (list, tuple)) and raw and isinstance(raw[0], (list, tuple, dict))
        advice = '; several are {"and": [...]} or {"or": [...]}' if is_several else ""
        raise ModelError(f"a constraint is [name, operator, operand], found {describe(raw)}{advice}")
    if len(raw) == 2 and raw[1] not in _WITHOUT_OPERAND:
        if not _is_operator(raw[1]):
            raise _unknown(raw[1], raw[0])
        raise ModelError(f"the constraint {_quoting.repr(raw)} has no operand")
    if len(raw) == 3 and isinstance(raw[2], (list, tuple)) and _takes_any_of(raw[1]):
        if not raw[2]:
            raise ModelError(f"{raw[1]!r} on {raw[0]!r} needs at least one value, found 0")
        if len(raw[2]) > MAX_LEAVES:
            raise _too_many()
        found = tuple(dict.fromkeys(constraint(raw[0], raw[1], operand) for operand in raw[2]))
        return found[0] if len(found) == 1 else Condition(Join.OR, found)
    return constraint(*raw)


def _takes_any_of(op: object) -> bool:
    """Tells whether an operator with one operand also takes a list of them, any of which may hold."""
    if not isinstance(op, str):
        return op in _LISTED
    symbol = op.removeprefix("any ")
    if symbol in ("in net", "regexp i"):
        return True
    return (VIEWS[symbol][1] if symbol in VIEWS and VIEWS[symbol][0] is View.FOLD else OPS.get(symbol)) in _LISTED


def _is_operator(op: object) -> bool:
    """Tells whether there is such an operator."""
    known = isinstance(op, str) and (op in OPS or op in ANY_OPS or op.removeprefix("any ") in (*VIEWS, "regexp i"))
    return known or isinstance(op, Op)


_ANY_NOT = "any not "
"""The beginning of operators that there are not, but for `any not in` and `any not in i`."""
_NOT = "not "
_WITHOUT_OPERAND = (*PRESENCE, *(op.symbol for op in PRESENCE))


def label(raw: object, what: str) -> str:
    """A label (of an interface, of a filter) as a string; integers become their digits.  Raises ModelError."""
    if isinstance(raw, Unread):
        raise ModelError(raw.reason)
    found = plain(raw)
    if type(found) is str:
        value_of(found)
        if what == "interface" and found.startswith(RESERVED):
            raise ModelError(f"{what} must not begin with the noncharacter U+10FFFF")
        return found
    if type(found) is int:
        return str(found)
    raise ModelError(f"{what} must be a string or an integer, found {describe(raw)}")


def id_of_filter(raw: object) -> str:
    """The id of a filter as a string; integers become their digits.  Raises ModelError."""
    found = label(raw, "id")
    if found.startswith(RESERVED):
        raise ModelError("the id of a filter must not begin with the noncharacter U+10FFFF")
    return found


Place = tuple[tuple[int, int], ...]
"""The objects in lists that contain a value, each as the number of the list in the event and the number of the object in the
list."""


class Event(NamedTuple):
    """A set of attributes with distinct names.  `location` is `(x, y)`; `id` is the publisher's own name for the event.

    `left_out` are the attributes that the event has and the model cannot read, each with the reason; None without any.  For
    a filter that names one of them (`is_left_out`), the event is a rejected row.  `places` are those of the elements of each
    attribute whose name goes through a list of objects; None without any.
    """

    attributes: Mapping[str, Attribute]
    location: tuple[float, float] | None = None
    id: str | None = None
    left_out: Mapping[str, str] | None = None
    places: Mapping[str, tuple[Place, ...]] | None = None


def is_left_out(name: str, left_out: Container[str]) -> bool:
    """Tells whether an attribute is among those that were left out.  A name with a point at its end stands for all names
    that begin with it.
    """
    if name in left_out:
        return True
    return any(char == "." and name[: at + 1] in left_out for at, char in enumerate(name))


def make_event(attributes: Mapping[str, object], location: object = None, id_: object = None) -> Event:
    """Check and build an event from plain values.  Raises ModelError for an invalid value, name or location.

    An attribute `*` is left out: in filters that name stands for all strings of a row.
    """
    point = None
    if location is not None:
        if not isinstance(location, (list, tuple)) or len(location) != 2:
            raise ModelError(f"a location is [x, y], found {describe(location)}")
        x, y = _coordinates(location, "a location")
        point = (x, y)
    values = {check_name(name): attribute_of(raw) for name, raw in attributes.items() if name != EVERY_STRING}
    return Event(values, point, None if id_ is None else label(id_, "id"))


def is_satisfied(wanted: Constraint, attributes: Mapping[str, Attribute]) -> bool:
    """Tells whether an event with these attributes satisfies a constraint."""
    if wanted.name not in attributes:
        return wanted.op.record.form is Form.ABSENT
    return satisfies(attributes[wanted.name], wanted)


def satisfies(value: Attribute, wanted: Constraint) -> bool:
    """Tells whether the value of an attribute satisfies a constraint on its name.

    Both sides are canonical (`attribute_of`, `constraint`): strings are text, lists are tuples, a null is None, numbers are
    compared by their exact values, as Python compares floats and ints.
    """
    if wanted.view is not View.NONE:
        seen = _viewed_attribute(value, wanted.view)
        return seen is not None and satisfies(seen, wanted._replace(view=View.NONE))
    record = wanted.op.record
    if value is None:
        return record.form is Form.ABSENT or record.of_nulls
    if record.form is Form.ABSENT or record.of_nulls:
        return False
    if record.form is Form.EXISTS:
        return True
    if isinstance(value, Time):
        return False
    if wanted.any_element:
        elements: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
        return any(satisfies(element, wanted._replace(any_element=False)) for element in elements)
    if isinstance(value, tuple) or _type_of(value) is not wanted.type or value != value:
        return False
    return satisfies_operand(wanted.op, value, wanted.operand)


_TYPE_OF = {str: Type.STRING, float: Type.NUMBER, int: Type.NUMBER, bool: Type.BOOLEAN}


def _type_of(value: Value) -> Type:
    """The type of a canonical value, or of an instant, which may be beyond the integers that are attributes."""
    found = _TYPE_OF.get(type(value))
    return value_of(value)[0] if found is None else found


def viewed(value: Value | Time | None, view: View) -> Value | None:
    """The value of a scalar in a view; None if it has no such view."""
    if view is View.TIME:
        found = instant(value) if isinstance(value, str) else instant_of(value) if isinstance(value, Time) else None
        return None if found is None else joined(*split(found))
    if not isinstance(value, str):
        return None
    if view is View.FOLD:
        return fold(value)
    found_address = address(value)
    return float(found_address) if isinstance(found_address, int) else found_address


def _viewed_attribute(value: Attribute, view: View) -> Attribute:
    """The view of an attribute: of a list, that of each element that has it."""
    if isinstance(value, tuple):
        return tuple(seen for each in value if (seen := viewed(each, view)) is not None)
    return viewed(value, view)


def satisfies_operand(op: Op, value: Value, operand: Operand) -> bool:
    """Tells whether a value satisfies an operator with an operand.  Both are canonical, of the same type, and the value is
    not NaN."""
    if isinstance(value, str):
        return op.record.satisfies(value.encode(), _utf8(operand))
    return op.record.satisfies(value, operand)


def _utf8(text: Any) -> Any:
    """Strings as the bytes they are compared by; tuples of strings likewise."""
    return text.encode() if isinstance(text, str) else tuple(item.encode() for item in text)


SMALL_RADIUS, LARGE_RADIUS = 2.0**-400, 2.0**400
"""Bounds of radii between which squares of similar lengths neither underflow nor overflow."""


def scale_of(r: float) -> float:
    """The power of two by which lengths are multiplied before their squares are compared with that of a radius r;
    mostly 1.
    """
    if r < SMALL_RADIUS:
        return 2.0**600
    if r > LARGE_RADIUS:
        return 2.0**-600
    return 1.0


def inside(location: tuple[float, float] | None, circle: Area) -> bool:
    """`((x-cx)s)² + ((y-cy)s)² <= (rs)²` in double precision, where s is the `scale_of` r.

    An event without a location is in no area.
    """
    if location is None:
        return False
    s = scale_of(circle.r)
    dx, dy, r = (location[0] - circle.x) * s, (location[1] - circle.y) * s, circle.r * s
    return dx * dx + dy * dy <= r * r


def matches(filter_: Filter, event: Event | None) -> bool:
    """Tells whether the filter matches: the event satisfies every constraint, and its location is inside the area if there
    is one.  None stands for a rejected row, which no filter matches.
    """
    if event is None:
        return False
    if filter_.area is not None and not inside(event.location, filter_.area):
        return False
    if filter_.consistent and event.places:
        return holds_consistently(whole_condition(filter_), event)
    if not all(is_satisfied(c, event.attributes) for c in filter_.constraints):
        return False
    return filter_.where is None or holds(filter_.where, event.attributes)


def whole_condition(filter_: Filter) -> Condition:
    """Everything that a filter asks for except its area, as one condition."""
    return Condition(Join.AND, (*filter_.constraints, *(() if filter_.where is None else (filter_.where,))))


def holds(tree: Condition | Constraint, attributes: Mapping[str, Attribute]) -> bool:
    """Tells whether a condition is true of an event with these attributes."""
    if isinstance(tree, Constraint):
        return is_satisfied(tree, attributes)
    if tree.join is Join.NOT:
        return not holds(tree.parts[0], attributes)
    return (all if tree.join is Join.AND else any)(holds(part, attributes) for part in tree.parts)


MOST_CHOICES = 2**15
"""Most steps of a search for objects in lists."""


def holds_consistently(tree: Condition | Constraint, event: Event) -> bool:
    """Tells whether some choice of one object of each list makes a condition true of an event.

    Raises ModelError if `MOST_CHOICES` steps do not decide.
    """
    return _Choices(event).make(tree)


_Rest: TypeAlias = "tuple[Condition | Constraint, _Rest] | None"


class _Choices:
    """A depth-first search: the conditions that must still become true, and the objects chosen so far."""

    def __init__(self, event: Event) -> None:
        self._attributes, self._places = event.attributes, event.places or {}
        self._steps, self._satisfying = 0, dict[int, Iterable[Place]]()

    def make(self, tree: Condition | Constraint) -> bool:
        """Tells whether some choice makes a condition true."""
        todo: list[tuple[_Rest, dict[int, int]]] = [((tree, None), {})]
        seen: dict[tuple[int, frozenset[tuple[int, int]]], _Rest] = {}  # whose numbers are those of objects that are kept
        while todo:
            rest, chosen = todo.pop()
            if rest is None:
                return True
            key = id(rest), frozenset(chosen.items())
            if key in seen:
                continue
            seen[key] = rest
            self._steps += 1
            if self._steps > MOST_CHOICES:
                raise ModelError(f"more than {MOST_CHOICES:,} steps to choose objects in lists for a filter")
            todo += self._after(*rest, chosen)
        return False

    def _after(
        self, tree: Condition | Constraint, rest: _Rest, chosen: dict[int, int]
    ) -> Iterator[tuple[_Rest, dict[int, int]]]:
        """The remaining conditions, for each way in which a condition may be true."""
        if isinstance(tree, Constraint):
            if is_satisfied(tree, self._attributes):
                if id(tree) not in self._satisfying:
                    self._satisfying[id(tree)] = self._places_of(tree)
                for place in self._satisfying[id(tree)]:
                    if all(chosen.get(of, number) == number for of, number in place):
                        yield rest, chosen | dict(place) if place else chosen
        elif tree.join is Join.OR:
            for part in reversed(tree.parts):
                yield (part, rest), chosen
        elif tree.join is Join.NOT:
            if not self.make(tree.parts[0]):
                yield rest, chosen
        elif all(is_satisfied(part, self._attributes) for part in tree.parts if isinstance(part, Constraint)):
            for part in reversed(tree.parts):
                rest = part, rest
            yield rest, chosen

    def _places_of(self, wanted: Constraint) -> Iterable[Place]:
        """The places of the elements that satisfy a constraint, which holds; one place outside all lists if it asks for no
        element."""
        places = self._places.get(wanted.name)
        if not places or not (wanted.any_element or wanted.op.record.form is Form.EXISTS):
            return ((),)
        if not wanted.any_element:
            return dict.fromkeys(places)
        value = self._attributes[wanted.name]
        assert isinstance(value, tuple), "an attribute whose name goes through a list is a list"
        return dict.fromkeys(place for each, place in zip(value, places, strict=True) if satisfies(each, wanted))


def constraints_of(filter_: Filter) -> Iterator[Constraint]:
    """All constraints of a filter, those of its condition included."""
    yield from filter_.constraints
    if filter_.where is not None:
        yield from filter_.where.leaves()


def _is_unread(wanted: Constraint, event: Event) -> bool:
    """Tells whether a constraint asks for a value that cannot be read: an attribute that was left out, or a native time as a
    number or text."""
    if event.left_out and is_left_out(wanted.name, event.left_out):
        return True
    looks_at_it = (wanted.any_element or wanted.type in (Type.NUMBER, Type.STRING)) and wanted.view is not View.TIME
    return looks_at_it and isinstance(event.attributes.get(wanted.name), Time)


def only_of_rows() -> ModelError:
    """The error for events without all of their strings, if a filter asks for these."""
    return ModelError(f"filters ask for {EVERY_STRING!r}, all strings of an event, which only rows have; match the rows")


def match_naive(filters: Iterable[Filter], event: Event | None) -> list[str]:
    """The naive matcher: labels of the matched interfaces, distinct, sorted by their UTF-8 bytes.

    Raises ModelError if a filter asks for all strings of an event that does not have them (`make_event`).
    """
    filters = list(filters)
    asked = [] if event is None else [c for f in filters for c in constraints_of(f)]
    if event is not None and EVERY_STRING not in event.attributes and any(c.name == EVERY_STRING for c in asked):
        raise only_of_rows()
    if event is not None and any(_is_unread(c, event) for c in asked):
        return []
    try:
        return sorted({f.interface for f in filters if matches(f, event)}, key=str.encode)
    except ModelError:  # too many choices of objects in lists: a rejected row
        return []
