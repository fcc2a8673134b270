"""Refusals of the model: invalid constraints, filters and events, and the error messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi_match import model
from mpi_match.model import LISTS, OPS_OF_TYPE, ModelError, Op, Type, Unread

UNDEFINED = [
    (op, type_, operand)
    for type_, operand in ((Type.NUMBER, 1), (Type.STRING, "a"), (Type.BOOLEAN, True))
    for op in sorted(set(Op) - OPS_OF_TYPE[type_] - model.PRESENCE)
    if (op, type_) != (Op.BETWEEN, Type.STRING)  # those are instants
]


@pytest.mark.parametrize(
    ("op", "type_", "operand"), UNDEFINED, ids=[f"{t.name.lower()} {op.symbol}" for op, t, _ in UNDEFINED]
)
def test_operator_that_the_type_does_not_have(op: Op, type_: Type, operand: object) -> None:
    given_ = [operand, operand] if op in LISTS or op is Op.BETWEEN else operand
    with pytest.raises(ModelError, match=f"'{op.symbol}' on 'x' is not defined for a {type_.name.lower()}; it has: ="):
        model.constraint("x", op, given_)


@pytest.mark.parametrize("op", sorted(OPS_OF_TYPE[Type.NUMBER]), ids=lambda op: op.symbol)
def test_nan_as_operand(op: Op) -> None:
    operand = [math.nan, 1] if op in LISTS or op is Op.BETWEEN else math.nan
    with pytest.raises(ModelError, match=f"NaN as operand of '{op.symbol}' on 'x'"):
        model.constraint("x", op, operand)


@pytest.mark.parametrize("operand", [2**64, -(2**63) - 1, 10**30])
def test_integer_beyond_64_bits(operand: object) -> None:
    text = rf"the integer {operand} is not between -2\^63 and 2\^64 - 1; send it as a string"
    uses: list[Callable[[], object]] = [
        lambda: model.constraint("x", "=", operand),
        lambda: model.constraint("x", "in", [1, operand]),
        lambda: model.constraint("x", "between", [operand, operand]),
        lambda: model.make_event({"x": operand}),
        lambda: model.make_event({}, [operand, 0]),
        lambda: model.area([0, 0, operand]),
    ]
    for use in uses:
        with pytest.raises(ModelError, match=text):
            use()


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, np.uint64(2**64 - 1)])
def test_a_coordinate_is_a_double(number: object) -> None:
    text = f"the coordinates of an? (area|location) are doubles, and no double equals {number}; round it"
    for use in (lambda: model.make_event({}, [number, 0]), lambda: model.area([0, 0, number])):
        with pytest.raises(ModelError, match=text):
            use()
    assert model.area([0, 0, 2**60]).r == 2.0**60


@pytest.mark.parametrize(
    "use",
    [
        lambda text: model.constraint("x", "=", text),
        lambda text: model.constraint("x", "in", ["a", text]),
        lambda text: model.constraint(text, "exists"),
        lambda text: model.make_event({"x": text}),
        lambda text: model.make_event({text: 1}),
        lambda text: model.make_event({}, None, text),
        lambda text: model.make_filter(text),
        lambda text: model.make_filter("i", [], None, text),
    ],
    ids=[
        "operand",
        "listed operand",
        "constraint's name",
        "value",
        "attribute's name",
        "event's id",
        "interface",
        "filter's id",
    ],
)
def test_lone_surrogate(use: Callable[[str], object]) -> None:
    with pytest.raises(ModelError, match=r"the string 'a\\ud800' is not valid Unicode \(lone surrogate\)"):
        use("a\ud800")


@pytest.mark.parametrize(
    ("name", "op", "operand", "text"),
    [
        ("x", "~", 1, r"unknown operator '~' on 'x'; there are: =, !=, <, <=, >, >=, in, not in, between, prefix"),
        ("x", "==", 1, "unknown operator '==' on 'x'"),
        ("x", 0, 1, "unknown operator 0 on 'x'"),
        ("x", ["="], 1, r"unknown operator \['='\] on 'x'"),
        (5, "=", 1, "a name must be a string, found int 5"),
        (None, "exists", None, "a name must be a string, found null"),
        ("x", "=", None, "'=' on 'x': a value must be a number, a string or a boolean, found null; write 'null'$"),
        ("x", "=", [1], r"'=' on 'x': a value must be a number, .* found list \[1\]; 'in' takes a list$"),
        ("x", "= i", ["a"], r"'=' on 'x': a value must be a number, .* found list \['a'\]; 'in' takes a list$"),
        ("x", "<", 2**64, "^'<' on 'x': the integer 18446744073709551616 is not between"),
        ("x", "in", [1, 2**64], "^'in' on 'x': the integer 18446744073709551616 is not between"),
        ("x", "contains", Unread("the number 1e400 is beyond the range of a double"), "on 'x': the number 1e400 is beyond"),
        ("x", "exists", Unread("the number 1e400 is beyond"), "takes no operand, found the number 1e400 is beyond$"),
        ("x", "not prefix", "a", r"""there is no 'not prefix', on 'x'; write {"not": \[..., "prefix", ...\]}$"""),
        ("x", "not any =", "a", "there is no 'not any =', on 'x'; write"),
        ("x", "not null", None, "there is no 'not null', on 'x'; write"),
        ("x", "not like", "a", "unknown operator 'not like' on 'x'; there are: "),
        ("*", "exists", None, "'exists' on '\\*': operators on '\\*', the strings of an event, need an operand"),
        ("*", "null", None, "'null' on '\\*': operators on"),
        ("*", "regexp", "(", "'regexp' on '\\*': column 1: "),
        ("*", "prefix i", 5, "'prefix' on '\\*' is not defined for a number"),
        ("*", "in net", "x", "'in net' on '\\*': "),
        ("*", "=", 5, "'=' on '\\*', the strings of an event, needs a string, found int 5"),
        ("x", "=", b"a", "a value must be a number, a string or a boolean, found bytes b'a'"),
        ("x", "<", 1j, "a value must be a number, a string or a boolean, found complex 1j"),
        ("x", "=", ["a" * 99], r"found list \['a{55}\.\.\.; 'in' takes a list$"),
        ("x", "exists", 1, "'exists' on 'x' takes no operand, found int 1"),
        ("x", "absent", "", "'absent' on 'x' takes no operand, found str ''"),
        ("x", "in", [], "'in' on 'x' needs at least one value, found 0"),
        ("x", "not in", (), "'not in' on 'x' needs at least one value, found 0"),
        ("x", "in", 5, "'in' on 'x' needs a list of values, found int 5"),
        ("x", "in", "abc", "'in' on 'x' needs a list of values, found str 'abc'"),
        ("x", "not in", None, "'not in' on 'x' needs a list of values, found null"),
        ("x", "in", {"a": 1}, "'in' on 'x' needs a list of values, found dict"),
        ("x", "in", [1, "a"], "'in' on 'x' mixes types: number and string"),
        ("x", "not in", [1, True], "'not in' on 'x' mixes types: boolean and number"),
        ("x", "between", [1, "a"], "'between' on 'x' mixes types: number and string"),
        ("x", "in", [1, None], "a value must be a number, a string or a boolean, found null"),
        ("x", "between", 5, "'between' on 'x' needs a list of values, found int 5"),
        ("x", "between", [], r"'between' on 'x' needs two values, \[low, high\], found 0"),
        ("x", "between", [1], r"'between' on 'x' needs two values, \[low, high\], found 1"),
        ("x", "between", [1, 2, 3], r"'between' on 'x' needs two values, \[low, high\], found 3"),
        ("x", "between", [2, 1], r"'between' on 'x' has its bounds reversed: 2\.0 > 1\.0"),
        ("x", "between", {1, 2}, r"'between' on 'x' needs a list of values, found set"),
    ],
)
def test_constraint_without_meaning(name: object, op: Any, operand: object, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        model.constraint(name, op, operand)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (["x"], r"a constraint is \[name, operator, operand\], found list \['x'\]"),
        (["x", "=", 1, 2], r"a constraint is \[name, operator, operand\], found list"),
        ("x = 1", r"a constraint is \[name, operator, operand\], found str 'x = 1'"),
        ({"x": 1}, "a condition is a constraint, or an object with one of 'and', 'or' and 'not', found dict"),
        (["x", "="], r"the constraint \['x', '='\] has no operand"),
        (["x", "in"], r"the constraint \['x', 'in'\] has no operand"),
        (["x", "any regexp i"], r"the constraint \['x', 'any regexp i'\] has no operand"),
        (["x", "at"], r"the constraint \['x', 'at'\] has no operand"),
        (["x", "exist"], "unknown operator 'exist' on 'x'; there are: "),
        (["x", "not exists"], r"""there is no 'not exists', on 'x'; write {"not": \[..., "exists", ...\]}$"""),
        (["x", 5], "unknown operator 5 on 'x'"),
        (["x", ["="]], r"unknown operator \['='\] on 'x'"),
        ([["x", "=", 1]], r"""found list \[\['x', '=', 1\]\]; several are {"and": \[...\]} or {"or": \[...\]}$"""),
    ],
)
def test_constraint_row_of_the_wrong_shape(raw: object, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        model.make_filter("i", [raw])


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ([1, 2], r"an area is \[x, y, r\], found list \[1, 2\]"),
        ([1, 2, 3, 4], r"an area is \[x, y, r\], found list"),
        ({"x": 1}, r"an area is \[x, y, r\], found dict"),
        ("abc", r"an area is \[x, y, r\], found str 'abc'"),
        ([0, 0, -1], r"the radius of an area must be at least 0, found -1\.0"),
        ([0, 0, -5e-324], "the radius of an area must be at least 0, found -5e-324"),
        ([0, 0, math.nan], "the coordinates of an area must be finite numbers, found float nan"),
        ([0, 0, math.inf], "the coordinates of an area must be finite numbers, found float inf"),
        ([-math.inf, 0, 1], "the coordinates of an area must be finite numbers, found float -inf"),
        ([0, "0", 1], "the coordinates of an area must be finite numbers, found str '0'"),
        ([0, 0, "1"], "the coordinates of an area must be finite numbers, found str '1'"),
        ([0, 0, True], "the coordinates of an area must be finite numbers, found bool True"),
        ([0, 0, None], "a value must be a number, a string or a boolean, found null"),
    ],
)
def test_area_without_meaning(raw: object, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        model.make_filter("i", [], raw)


@pytest.mark.parametrize("raw", [1.0, True, None, ["i"], b"i"], ids=repr)
@pytest.mark.parametrize("what", ["interface", "id"])
def test_label_that_is_no_label(raw: object, what: str) -> None:
    with pytest.raises(ModelError, match=f"^{what} must be a string or an integer, found "):
        model.label(raw, what)
    if raw is None and what == "id":
        assert model.make_filter("i", [], None, raw).id is None
        return
    with pytest.raises(ModelError, match=f"^{what} must be a string or an integer, found "):
        model.make_filter(raw if what == "interface" else "i", [], None, raw if what == "id" else None)


ENDLESS: list[Any] = [1]
ENDLESS.append([ENDLESS])


@pytest.mark.parametrize(
    ("attributes", "location", "text"),
    [
        ({"x": (1, {"y": 1})}, None, "a value must be a number, a string or a boolean, found dict"),
        ({"x": ENDLESS}, None, "a list contains itself"),
        ({"x": [2**64]}, None, "the integer 18446744073709551616 is not between"),
        ({"x": {"y": 1}}, None, "a value must be a number, a string or a boolean, found dict"),
        ({1: 1}, None, "a name must be a string, found int 1"),
        ({}, [1], r"a location is \[x, y\], found list \[1\]"),
        ({}, [1, 2, 3], r"a location is \[x, y\], found list"),
        ({}, "12", r"a location is \[x, y\], found str '12'"),
        ({}, [1, math.nan], "the coordinates of a location must be finite numbers, found float nan"),
        ({}, [math.inf, 1], "the coordinates of a location must be finite numbers, found float inf"),
        ({}, ["1", 2], "the coordinates of a location must be finite numbers, found str '1'"),
    ],
)
def test_event_without_meaning(attributes: Any, location: object, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        model.make_event(attributes, location)


@pytest.mark.parametrize("op", ["wildcard", "wildcard i", "any wildcard", "regexp", "regexp i"])
def test_patterns_beyond_their_bound(op: str) -> None:
    with pytest.raises(ModelError, match=r"on 'x': the pattern has .* characters, at most 65,536 are allowed"):
        model.constraint("x", op, "a" * 10**6)


def test_an_element_that_does_not_satisfy_is_asked_for_otherwise() -> None:
    for op in ("any not prefix", "any not contains i"):
        inner = op.replace("any not", "any")
        with pytest.raises(ModelError, match=f"there is no '{op}', on 'x'; 'any !=' .* 'not' around '{inner}' asks that no"):
            model.constraint("x", op, "a")
    assert model.constraint("x", "any not in", ["a"]).any_element
