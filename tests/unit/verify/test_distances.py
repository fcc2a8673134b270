"""Explanations of one event: distances by trying all ways for leaves to turn out, and the text that people read."""

from __future__ import annotations

import datetime
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import subscriptions_and_events

import mpi_match
from mpi_match.model import Condition, Constraint, Event, Filter, Join, ModelError, inside, is_satisfied, matches
from mpi_match.table.table import Table
from mpi_match.verify.explain import Explainer

MOST_LEAVES = 9


def leaves_of(item: Filter) -> list[object]:
    """All leaves of a filter, those of its condition in the order of `value_of`; its area last."""
    tree = [] if item.where is None else list(item.where.leaves())
    return [*item.constraints, *tree, *([] if item.area is None else [item.area])]


def is_true(tree: Condition | Constraint, truth: list[bool]) -> bool:
    """The value of a tree whose leaves take theirs from the front of `truth`."""
    if isinstance(tree, Constraint):
        return truth.pop(0)
    found = [is_true(part, truth) for part in tree.parts]
    return not found[0] if tree.join is Join.NOT else all(found) if tree.join is Join.AND else any(found)


def least_flips(item: Filter, event: Event) -> int | None:
    """The least number of leaves that have to turn out otherwise, tried out; None if no number does."""
    found = [is_satisfied(c, event.attributes) for c in leaves_of(item) if isinstance(c, Constraint)]
    found += [] if item.area is None else [inside(event.location, item.area)]
    for n in range(len(found) + 1):
        for flipped in combinations(range(len(found)), n):
            if turns_out(item, [value != (i in flipped) for i, value in enumerate(found)]):
                return n
    return None


def turns_out(item: Filter, truth: list[bool]) -> bool:
    """The value of a filter whose leaves have these."""
    own, rest = truth[: len(item.constraints)], truth[len(item.constraints) :]
    return all(own) and (item.where is None or is_true(item.where, rest)) and all(rest)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(subscriptions_and_events(max_filters=6, with_conditions=True))
def test_distances_are_those_of_trying_all_ways(given: Any) -> None:
    filters, events = given
    table = Table.from_filters(filters)
    explainer = Explainer(table)
    for event in [each for each in events if each is not None][:3]:
        for number in range(table.n_visible_filters):
            item = table.filter(number)
            if len(leaves_of(item)) > MOST_LEAVES:
                continue
            found = explainer.explain(event, filter=number)
            (explained,) = (*found.matched, *found.nearest)
            assert bool(found) == matches(item, event)
            assert (explained.distance if explained.distance < 2**40 else None) == least_flips(item, event), str(item)
        every = explainer.explain(event, most=table.n_visible_filters)
        assert every.n_matched == sum(matches(item, event) for item in table.iter_filters())
        assert [each.distance for each in every.nearest] == sorted(each.distance for each in every.nearest)


SOC: list[dict[str, Any]] = [
    {
        "interface": "soc",
        "id": "PowerShell",
        "where": {
            "and": [
                ["Image", "suffix i", ["\\powershell.exe", "\\pwsh.exe"]],
                ["Line", "contains i", "-enc"],
                {"not": ["User", "=", "SYSTEM"]},
            ]
        },
    },
    {"interface": "soc", "id": "net", "predicate": "src in net '10.0.0.0/8' and port > 1024"},
    {"interface": "ops", "constraints": [["level", "=", "error"], ["tags", "=", "gpu"]]},
    {"interface": "geo", "constraints": [["temp", ">", 30]], "area": [9, 45, 1]},
]


@pytest.fixture(scope="module")
def soc() -> Explainer:
    return Explainer(mpi_match.make_table(SOC))


@pytest.mark.parametrize(
    ("event", "asked", "line"),
    [
        (
            {"Image": "C:\\cmd.exe", "Line": "-ENC"},
            "PowerShell",
            r"`Image` = 'C:\\cmd.exe', asked: suffix i any of '\\powershell.exe', '\\pwsh.exe'",
        ),
        ({"image": "a\\pwsh.exe"}, "PowerShell", "(there is `image`)"),
        (
            {"Image": "\\PWSH.EXE", "Line": "-enc", "User": "SYSTEM"},
            "PowerShell",
            "`User` = 'SYSTEM', asked: not = 'SYSTEM'",
        ),
        ({"src": "10.0.0.256"}, "net", "`src` = '10.0.0.256', asked: in net '10.0.0.0/8'  (no address)"),
        ({"port": "80"}, "net", "asked: > 1024  (a string, which is never compared with a number)"),
        ({"level": "Error"}, "ops", "`level` = 'Error', asked: = 'error'  (only case differs; `= i` ignores it)"),
        ({"tags": ["gpu", "x"]}, "ops", "`tags` = ['gpu', 'x'], asked: = 'gpu'  (a list; `any =` asks its elements)"),
        ({"level": None}, "ops", "`level` = null, asked: = 'error'  (null is absent to all operators but `null`)"),
        ({"temp": 31}, "geo", "no location, asked: within 1.0 of (9.0, 45.0)"),
        ({"temp": 31, "x": 1, "y": 2}, "geo", "location (1.0, 2.0), asked: within 1.0 of (9.0, 45.0)"),
        ({"other": 1, "x": 1, "y": 2}, "geo", "attributes that no filter names: `other`"),
    ],
)
def test_what_is_missing_is_said(event: dict[str, Any], asked: str, line: str, soc: Explainer) -> None:
    which = {"filter": asked} if asked in ("PowerShell", "net") else {"interface": asked}
    found = mpi_match.explain(soc, event, location="x,y" if "x" in event else None, **which)  # type: ignore[arg-type]
    assert not found
    assert any(each.endswith(line) for each in str(found).splitlines()), str(found)


def test_the_nearest_filter_is_the_one_with_the_fewest_misses_whose_names_are_there(soc: Explainer) -> None:
    found = mpi_match.explain(soc, {"level": "Error", "tags": ["gpu"]}, most=1)
    assert [each.filter.interface for each in found.nearest] == ["ops"]
    found = mpi_match.explain(soc, {"Image": "x\\pwsh.exe", "Line": "-enc"})
    assert [each.filter.id for each in found.matched] == ["PowerShell"]
    assert found.n_matched == 1
    assert not found.nearest


def test_alternatives_are_bounded() -> None:
    texts = [f"text {i}" for i in range(50)]
    ways: list[Any] = [["a", "contains", texts], {"and": [["b", "=", 1], ["c", "=", 1]]}]
    table = mpi_match.make_table([{"interface": "i", "where": {"or": ways}}])
    found = mpi_match.explain(table, {"a": "x" * 1000, "b": 2}, most=3)
    assert list(found.lines(3)) == [
        "it does not match:",
        "filter 0 on i: misses by 1 of 52 constraints",
        "  one of 2:",
        f"  - `a` = '{'x' * 35}…{'x' * 35}', asked: contains any of {', '.join(map(repr, sorted(texts)[:3]))} and 47 more",
        "  - `b` = 2, asked: = 1",
        "    `c` is absent, asked: = 1",
    ]


def test_every_string_native_times_and_rejected_rows() -> None:
    rows: list[dict[str, Any]] = [
        {"interface": "any", "where": ["*", "contains i", "secret"]},
        {"interface": "late", "constraints": [["t", "after", "2026-01-01"]]},
    ]
    table = mpi_match.make_table(rows)
    old = {"t": datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC), "deep": {"x": ["A SECRET"]}}
    assert [each.filter.interface for each in mpi_match.explain(table, old).matched] == ["any"]
    late = mpi_match.explain(table, old, interface="late")
    assert "`t` = 2025-01-01 00:00:00+00:00, asked: after '2026-01-01T00:00:00Z'" in str(late)
    assert mpi_match.explain(table, {"t": 10**30}).rejected.startswith("attribute 't': the integer")
    assert not mpi_match.explain(table, b'{"t":')


def test_unknown_interfaces_and_filters_are_refused(soc: Explainer) -> None:
    for asked, reason in (
        ({"interface": "SOC"}, "the table has no interface 'SOC'; there is `soc`"),
        ({"filter": "powershell"}, "no filter has the id 'powershell'; there is `PowerShell`"),
        ({"filter": 4}, "there is no filter 4; the table has 4, counted from 0"),
        ({"filter": 1, "interface": "soc"}, "an explanation is of an interface or of a filter, not of both"),
    ):
        with pytest.raises(ModelError, match=reason):
            mpi_match.explain(soc, {}, **asked)


def test_a_table_of_tags_and_an_empty_one() -> None:
    table = mpi_match.make_table([{"interface": "a", "constraints": [["x", "exists"], ["y", "exists"]]}])
    assert [each.distance for each in mpi_match.explain(table, {"x": 1}).nearest] == [1]
    assert mpi_match.explain(table, {"x": 1, "y": 2})
    assert str(mpi_match.explain(mpi_match.make_table([]), {})) == "there is no filter"


def test_equal_filters_without_ids_are_each_written_once() -> None:
    """They share their parts, which the table has once for each of them."""
    row = {"interface": "a", "where": {"not": ["x", "null"]}}
    table = Table.from_filters([*mpi_match.make_table([row]).iter_filters()] * 2)
    assert [str(table.filter(i)) for i in range(2)] == ["a: (not x null)"] * 2
    (explained,) = Explainer(table).explain(Event({"x": None}), filter=0).nearest
    assert explained.distance == 1


def test_a_list_of_objects_is_named_by_what_is_asked_of_them() -> None:
    table = mpi_match.make_table([{"interface": "i", "constraints": [["parts.n", "any >", 5]]}])
    for parts, unnamed in (
        ([{"n": 1}, {"m": 2}], ["parts.m"]),
        ([{"n": 1}, 7], ["parts"]),
        ([{"m": 1}], ["parts.m"]),
        ([], []),
    ):
        assert mpi_match.explain(table, {"parts": parts, "x": []}).unnamed == [*unnamed, "x"], parts
