"""Values that Python programs hand in: what stands for a number, a string or a boolean, in events, filters and ids."""

from __future__ import annotations

import collections
import enum
import json
import math
import types
import uuid
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import mpi_match
from mpi_match import model
from mpi_match.ingest.rows.judge import event_of_row, parse_json


class City(str, enum.Enum):  # noqa: UP042  the kind whose `str()` is not its value
    MILAN = "milan"


class Level(enum.StrEnum):
    HIGH = "high"


class Code(enum.IntEnum):
    OK = 200


class Bits(enum.IntFlag):
    READ = 4


class Colour(enum.Enum):
    RED = "red"
    FIRST = 1
    HALF = 0.5
    NONE = None


class Ratio(float, enum.Enum):
    HALF = 0.5


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


class Odd(int):
    def __int__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "odd"


class Wide(float):
    def __float__(self) -> float:
        return 7.0


NAME = uuid.UUID(int=5)
SAME: list[tuple[Any, Any]] = [
    (City.MILAN, "milan"),
    (Level.HIGH, "high"),
    (Loud("quiet"), "quiet"),
    (np.str_("é"), "é"),
    (Colour.RED, "red"),
    (NAME, str(NAME)),
    (Code.OK, 200),
    (Bits.READ, 4),
    (Odd(5), 5),
    (Wide(0.5), 0.5),
    (Ratio.HALF, 0.5),
    (Colour.FIRST, 1),
    (Colour.HALF, 0.5),
    (np.int8(-5), -5),
    (np.uint64(2**53), 2**53),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.int64(-(2**63) + 1), -(2**63) + 1),
    (Odd(2**53 + 1), 2**53 + 1),
    (Decimal(2**53 + 1), 2**53 + 1),
    (Fraction(2**53 + 1), 2**53 + 1),
    (np.longdouble(2**53) + 1, 2**53 + 1),
    (np.float16(0.5), 0.5),
    (np.float64(0.1), 0.1),
    (np.longdouble(0.5), 0.5),
    (np.array(5), 5),
    (np.array("a"), "a"),
    (np.True_, True),
    (Fraction(1, 2), 0.5),
    (Decimal(5), 5),
    (Decimal("5.00"), 5),
    (Decimal("1E+3"), 1000),
    (Decimal("0.1"), 0.1),
    (Decimal("9007199254740993.0"), 9007199254740993.0),
    (Decimal("-Infinity"), -math.inf),
]


@pytest.mark.parametrize(("raw", "value"), SAME, ids=[repr(raw) for raw, _ in SAME])
def test_a_value_of_another_type_is_what_it_stands_for(raw: Any, value: Any) -> None:
    assert model.value_of(raw) == model.value_of(value)
    assert type(model.value_of(raw)[1]) is type(model.value_of(value)[1])
    assert model.constraint("x", "=", raw) == model.constraint("x", "=", value)
    if not isinstance(value, bool):
        assert model.constraint("x", "in", [raw]) == model.constraint("x", "in", [value])
    expected = model.make_event({"x": value, "l": (value,), "o.x": value})
    assert event_of_row({"x": raw, "l": [raw], "o": {"x": raw}}) == expected
    table = mpi_match.make_table([{"interface": "i", "constraints": [["x", "=", value], ["l", "has", raw]]}])
    assert mpi_match.match(table, [{"x": raw, "l": [raw]}], engine="counting").labels(table.labels) == [["i"]]
    live = mpi_match.LiveMatcher(table, engine="reference")
    assert live.match_one({"x": raw, "l": [raw]}) == ["i"]
    assert live.match({"x": [raw], "l": [[raw]]}) == [["i"]]


def test_a_decimal_without_a_number_is_nan() -> None:
    for text in ("NaN", "sNaN", "-NaN"):
        assert math.isnan(model.value_of(Decimal(text))[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (Decimal("1E+999999999"), "is beyond the range of a double"),
        (Decimal("1E+400"), "is beyond the range of a double"),
        (Decimal("1E-999"), "is not 0 and too near to it"),
        (Decimal(2**64), r"the integer 18446744073709551616 is not between -2\^63 and 2\^64 - 1"),
        (Odd(-(2**63) - 1), r"the integer -9223372036854775809 is not between"),
        (Fraction(10**400), "the integer of 1,329 bits is not between"),
        (Fraction(1, 3), "a Fraction that has no exact double is not rounded"),
        (Colour.NONE, "a value must be a number, a string or a boolean, found Colour"),
        (City("milan"), None),
        (Loud("\ud800"), "is not valid Unicode"),
        (b"bytes", "a value must be a number, a string or a boolean, found bytes"),
        (1j, "a value must be a number, a string or a boolean, found complex"),
        (np.timedelta64(5, "s"), "a value must be a number, a string or a boolean, found timedelta64"),
        (np.datetime64(5, "s"), "a value must be a number, a string or a boolean, found datetime64"),
    ],
    ids=repr,
)
def test_what_stands_for_no_value_is_refused(raw: Any, said: str | None) -> None:
    if said is None:
        assert model.value_of(raw)[1] == "milan"
        return
    with pytest.raises(model.ModelError, match=said):
        model.value_of(raw)


@pytest.mark.parametrize("text", ["9007199254740993.0", "9007199254740993", "0.10", "1E+400", "1E-400", "-0.0", "12.00"])
def test_a_decimal_is_what_its_digits_are_in_json(text: str) -> None:
    results = []
    for row in (lambda: parse_json(f'{{"x": {text}}}'), lambda: {"x": Decimal(text)}):
        try:
            results.append(str(event_of_row(row())))
        except model.ModelError as error:
            results.append("refused " + str(error).partition(" beyond ")[2])
    assert results[0] == results[1]


class Row(Mapping[str, Any]):
    """A mapping that is no dict, such as those of database drivers."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@pytest.mark.parametrize(
    "of", [dict, Row, lambda **k: types.MappingProxyType(k), lambda **k: collections.ChainMap(k)], ids=range(4)
)
def test_a_row_may_be_any_mapping(of: Any) -> None:
    subscription = of(interface=City.MILAN, filters=[of(constraints=[["p.x", "=", Code.OK]], id=NAME)])
    live = mpi_match.LiveMatcher([subscription], engine="reference")
    row = of(p=of(x=200), city=City.MILAN)
    assert live.match([row, {City.MILAN: row}]) == [["milan"], []]
    assert live.match_one(row) == ["milan"]
    live.update([of(add=of(interface="rome", constraints=[["milan.city", "=", "milan"]])), of(remove=str(NAME))])
    assert live.match([row, {City.MILAN: row}]) == [[], ["rome"]]
    rejects: list[mpi_match.Reject] = []
    mpi_match.make_batch(mpi_match.make_table([subscription]), [of(p=of(x=b"?"), y=None)], rejects=rejects)
    assert json.loads(rejects[0].row) == {"p": {"x": "b'?'"}, "y": None}


def test_names_are_strings_of_any_type() -> None:
    event = event_of_row({City.MILAN: 1, Loud("a"): {Loud("b"): 2}})
    assert {type(name): name for name in event.attributes} == {str: "a.b"}
    assert event.attributes == {"milan": 1.0, "a.b": 2.0}
    assert model.constraint(City.MILAN, "=", 1).name == "milan"


LINES = [
    b'{"a": ' + b"[" * 960 + b'"x}',
    b'{"a": ' + b"[" * 960 + b"]" * 960 + b"}",
    b'{"a": ' + b"[" * 300 + b'{"a": 1, "a": 1}' + b"]" * 300 + b"}",
    b'{"a": 1e999, "b": ' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"a":' * 3000,
    b'{"a": "' + b'[\\"{' * 300 + b'"}',
    b'{"a": [' + b"[]," * 300 + b"1]}",
    b'{"a": ' + b"[" * 98 + b"]" * 98 + b"}",
    b'{"a": ' + b"[" * 98 + b'"x}',
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_the_reason_of_a_line_does_not_depend_on_the_stack(line: bytes) -> None:
    def at(depth: int) -> str:
        if depth:
            return at(depth - 1)
        try:
            return str(event_of_row(parse_json(line)))
        except model.ModelError as error:
            return str(error)

    assert len({at(depth) for depth in (0, 60, 300, 600)}) == 1


def test_every_public_name_is_there() -> None:
    for name in mpi_match.__all__:
        assert getattr(mpi_match, name) is not None
