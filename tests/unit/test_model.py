"""The semantics: every named case against `match_naive`, and laws that tie the operators together.

`cases.json` is the semantics as data.  Its expectations were written from the rules, not read off the matcher, and the same
cases run against every engine.  Three things are held here (what the model refuses is in `test_model_refusals.py`):

* `match_naive` gives what each case expects;
* the cases are complete: every operator meets every type with a match, a refusal, an absent attribute, a value of another
  type, a value on the operand and a value next to it.  `outcomes_of` reads that off the data, so a name proves nothing;
* the operators agree with one another on values that are neighbours: `<=` is `<` or `=`, `in` is any `=`, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import CASES, event_of, filters_of
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, STRINGS, constraints, events, filters, subscriptions_and_events, values

from mpi_match import model
from mpi_match.model import OPS, OPS_OF_TYPE, Constraint, Event, Filter, Op, Type


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    assert model.match_naive(filters_of(case), event_of(case)) == case["expect"], case["why"]


# The cases are well-formed and complete.


def test_cases_are_well_formed() -> None:
    assert len(CASES) >= 140
    for case in CASES:
        assert set(case) - {"location"} == {"name", "subscriptions", "event", "expect", "why"}, case["name"]
        assert case["name"] == case["name"].lower().replace(" ", "-")
        assert case["why"].endswith("."), case["name"]
        assert case["expect"] == sorted(set(case["expect"]), key=str.encode), case["name"]
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names)


MATCH, NO_MATCH, ABSENT, WRONG_TYPE, AT, NEXT_TO, NAN = "match", "no match", "absent", "wrong type", "at", "next to", "NaN"


def outcomes_of(case: dict[str, Any]) -> Iterator[tuple[Op, Type, str]]:
    """What a case shows, by its `expect` alone: filters of one constraint and no area, alone on their interface."""
    event, found = event_of(case), filters_of(case)
    interfaces = [item.interface for item in found]
    for item in found:
        if interfaces.count(item.interface) > 1 or len(item.constraints) != 1 or item.area is not None:
            continue
        (wanted,) = item.constraints
        if wanted.any_element:
            continue
        matched = item.interface in case["expect"]
        for outcome in situations(wanted, event.attributes.get(wanted.name), matched):
            yield wanted.op, wanted.type, outcome


def situations(wanted: Constraint, value: model.Attribute | None, matched: bool) -> Iterator[str]:
    if value is None:
        yield ABSENT
        return
    type_ = Type.LIST if isinstance(value, tuple) else model.value_of(value)[0]
    if value != value:
        yield NAN
    elif wanted.type is Type.ANY:
        yield f"{type_.name.lower()}: {MATCH if matched else NO_MATCH}"
    elif type_ is not wanted.type:
        yield WRONG_TYPE
    else:
        yield MATCH if matched else NO_MATCH
        for operand in wanted.operand if isinstance(wanted.operand, tuple) else (wanted.operand,):
            if operand == value:
                yield AT
            elif adjacent(operand, value):
                yield NEXT_TO


def adjacent(a: Any, b: Any) -> bool:
    """Are two values neighbours: the two booleans, doubles one step apart, strings that differ by a character at an end?"""
    if isinstance(a, bool):
        return True
    if isinstance(a, int):
        return bool(abs(a - b) == 1)
    if isinstance(a, float):
        return b in (math.nextafter(a, math.inf), math.nextafter(a, -math.inf))
    return abs(len(a) - len(b)) <= 1 and (a[1:] == b[1:] or a[:-1] == b[:-1] or a in (b[1:], b[:-1]) or b in (a[1:], a[:-1]))


SHOWN = {shown for case in CASES for shown in outcomes_of(case)}
TYPED = [(op, type_) for type_ in (Type.NUMBER, Type.STRING, Type.BOOLEAN) for op in sorted(OPS_OF_TYPE[type_])]


@pytest.mark.parametrize(("op", "type_"), TYPED, ids=[f"{type_.name.lower()} {op.symbol}" for op, type_ in TYPED])
def test_cases_cover_every_outcome_of(op: Op, type_: Type) -> None:
    wanted = {MATCH, NO_MATCH, ABSENT, WRONG_TYPE, AT, NEXT_TO} | ({NAN} if type_ is Type.NUMBER else set())
    assert wanted - {outcome for o, t, outcome in SHOWN if (o, t) == (op, type_)} == set()


@pytest.mark.parametrize(("op", "seen"), [(Op.EXISTS, MATCH), (Op.ABSENT, NO_MATCH)])
def test_cases_cover_presence(op: Op, seen: str) -> None:
    wanted = {ABSENT, NAN, *(f"{each}: {seen}" for each in ("number", "string", "boolean", "list"))}
    assert {outcome for o, _, outcome in SHOWN if o is op} == wanted


@pytest.mark.untraced
@pytest.mark.parametrize(("op", "type_"), TYPED, ids=[f"{type_.name.lower()} any {op.symbol}" for op, type_ in TYPED])
def test_cases_cover_elements(op: Op, type_: Type) -> None:
    """Each operator on elements is satisfied in some case, and not in another one."""
    found = {
        item.interface in case["expect"]
        for case in CASES
        for item in filters_of(case)
        if [(c.op, c.type, c.any_element) for c in item.constraints] == [(op, type_, True)]
    }
    assert found == {True, False}


# Laws: what one operator says about another.


def says(value: model.Value | None, op: str, operand: object = None) -> bool:
    return model.satisfies(value, model.constraint("x", op, operand))


pairs = st.one_of(*(st.tuples(st.sampled_from(pool), st.sampled_from(pool)) for pool in (NUMBERS, STRINGS)))


@given(pairs)
def test_exactly_one_of_less_equal_greater(pair: tuple[Any, Any]) -> None:
    value, operand = model.value_of(pair[0])[1], pair[1]
    less, equal, greater = (says(value, op, operand) for op in ("<", "=", ">"))
    assert [less, equal, greater].count(True) == 1
    assert says(value, "<=", operand) == (less or equal)
    assert says(value, ">=", operand) == (greater or equal)
    assert says(value, "!=", operand) == (not equal)


@given(st.sampled_from(STRINGS), st.sampled_from(STRINGS))
def test_strings_order_by_code_point(value: str, operand: str) -> None:
    assert says(value, "<", operand) == ([ord(c) for c in value] < [ord(c) for c in operand])


@given(values(), constraints())
def test_a_list_is_its_values_and_between_its_bounds(value: Any, wanted: Constraint) -> None:
    value = model.value_of(value)[1]
    satisfied = model.satisfies(value, wanted)
    operands: Any = wanted.operand
    if wanted.op is Op.IN:
        assert satisfied == any(says(value, "=", operand) for operand in operands)
    elif wanted.op is Op.NOT_IN:
        assert satisfied == all(says(value, "!=", operand) for operand in operands)
    elif wanted.op is Op.BETWEEN:
        assert satisfied == (says(value, ">=", operands[0]) and says(value, "<=", operands[1]))


@given(st.sampled_from(STRINGS), st.sampled_from(STRINGS))
def test_parts_of_strings(value: str, part: str) -> None:
    places = range(len(value) - len(part) + 1)
    at = [place for place in places if value[place : place + len(part)] == part]
    assert says(value, "prefix", part) == (0 in at)
    assert says(value, "suffix", part) == (len(value) - len(part) in at)
    assert says(value, "contains", part) == bool(at)


@given(constraints())
def test_only_absent_is_satisfied_by_nothing_and_null_by_a_null(wanted: Constraint) -> None:
    assert model.is_satisfied(wanted, {}) == (wanted.op is Op.ABSENT)
    assert model.is_satisfied(wanted, {wanted.name: None}) == (wanted.op in (Op.ABSENT, Op.NULL))
    assert model.satisfies(math.nan, wanted) == (wanted.op is Op.EXISTS)


@given(constraints())
def test_a_constraint_is_rebuilt_from_its_parts(wanted: Constraint) -> None:
    assert model.constraint(wanted.name, wanted.symbol, wanted.operand) == wanted
    assert model.constraint(wanted.name, wanted.op, wanted.operand) == wanted._replace(any_element=False)


@given(subscriptions_and_events(), filters())
def test_one_more_filter_adds_at_most_its_interface(inputs: tuple[list[Filter], list[Event | None]], more: Filter) -> None:
    found, batch = inputs
    for event in batch:
        before, after = model.match_naive(found, event), model.match_naive([*found, more], event)
        added = {more.interface} if model.matches(more, event) else set()
        assert set(after) == set(before) | added
        assert after == sorted(set(after), key=str.encode)


@given(filters(), constraints(), events())
def test_one_more_constraint_never_widens_a_filter(item: Filter, more: Constraint, event: Event) -> None:
    narrower = item._replace(constraints=(*item.constraints, more))
    alone = Filter(item.interface, (more,))
    assert model.matches(narrower, event) == (model.matches(item, event) and model.matches(alone, event))


# Canonical forms.


@pytest.mark.parametrize(
    ("raw", "type_", "value"),
    [
        (5, Type.NUMBER, 5.0),
        (np.int64(5), Type.NUMBER, 5.0),
        (np.float32(0.5), Type.NUMBER, 0.5),
        (2**53, Type.NUMBER, 9007199254740992.0),
        (-(2**53), Type.NUMBER, -9007199254740992.0),
        (2**53 + 1, Type.NUMBER, 2**53 + 1),
        (np.uint64(2**64 - 1), Type.NUMBER, 2**64 - 1),
        (2**64 - 2**11, Type.NUMBER, 18446744073709549568.0),
        (-(2**63), Type.NUMBER, -9223372036854775808.0),
        (-(2**63) + 1, Type.NUMBER, -(2**63) + 1),
        (1e300, Type.NUMBER, 1e300),
        (True, Type.BOOLEAN, True),
        (np.bool_(False), Type.BOOLEAN, False),
        ("", Type.STRING, ""),
        (np.str_("né"), Type.STRING, "né"),
    ],
)
def test_value_of(raw: object, type_: Type, value: object) -> None:
    found = model.value_of(raw)
    assert found == (type_, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("raw", [-0.0, np.float64(-0.0), np.float32(-0.0)], ids=["float", "float64", "float32"])
def test_negative_zero_becomes_zero(raw: object) -> None:
    assert math.copysign(1.0, model.value_of(raw)[1]) == 1.0  # type: ignore[arg-type]


def test_lists_are_kept_sorted_and_distinct() -> None:
    assert model.constraint("x", "in", [3, 1, 3.0, -0.0, 0]).operand == (0.0, 1.0, 3.0)
    assert model.constraint("x", "not in", ["\U0001f600", "\uffff", "a"]).operand == ("a", "\uffff", "\U0001f600")
    assert model.constraint("x", "in", {2, 1}).operand == (1.0, 2.0)
    assert model.constraint("x", "between", (1, 2)).operand == (1.0, 2.0)


def test_make_filter_and_its_text() -> None:
    found = model.make_filter(7, [["x", ">", 1], ["y", "exists"], ["z", Op.ABSENT]], [0, 3, 4], 12)
    assert found.interface == "7"
    assert found.id == "12"
    assert found.area == model.Area(0.0, 3.0, 4.0)
    assert str(found) == "7: x > 1.0 and y exists and z absent and within 4.0 of (0.0, 3.0)"
    assert str(model.make_filter("i")) == "i: everything"
    assert model.make_filter("i", found.constraints).constraints == found.constraints


def test_make_event() -> None:
    event = model.make_event({"x": 1, "y": "é", "z": False}, [1, -0.0], 5)
    assert event == Event({"x": 1.0, "y": "é", "z": False}, (1.0, 0.0), "5")


def test_every_operator_has_its_symbol() -> None:
    assert {OPS[op.symbol] for op in Op} == set(Op)
    assert [int(op) for op in Op] == list(range(17)), "operator numbers are part of the file format"


def test_reserved_names_are_refused_only_where_they_would_mean_something() -> None:
    name = "\U0010ffffx"
    assert model.make_event({name: 1}, None, name).attributes == {name: 1.0}
    makers = (
        lambda: model.constraint(name, "=", 1),
        lambda: model.make_filter(name),
        lambda: model.make_filter("i", id_=name),
    )
    for refused in makers:
        with pytest.raises(model.ModelError, match=r"must not begin with the noncharacter U\+10FFFF"):
            refused()
