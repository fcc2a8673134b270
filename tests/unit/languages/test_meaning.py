"""What translated rules match, by the naive matcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpi_match.ingest.rows.flatten import Names
from mpi_match.ingest.rows.judge import event_of_row, subscription_filters
from mpi_match.languages.eventbridge import condition_of
from mpi_match.languages.rows import row_of
from mpi_match.languages.sigma import rules_in
from mpi_match.model import Event, match_naive

ABSENT = object()


def event_with(value: object) -> Event:
    """The event whose attribute `a` has a value, with all of its strings."""
    return event_of_row({} if value is ABSENT else {"a": value}, names=Names((), every=True), every=True)


def holds(condition: Any, value: object) -> bool:
    return bool(match_naive(subscription_filters(row_of("r", "r", condition)), event_with(value)))


@pytest.mark.parametrize(
    ("values", "yes", "no"),
    [
        (["x", 5, None], ["x", 5, 5.0, None, ["y", "x"]], ["X", "5", True, [], ABSENT, ["y"]]),
        ([{"exists": True}], ["", 0, False, None, ["x"]], [[], ABSENT, {"b": 1}, [[]]]),
        ([{"exists": False}], [[], ABSENT, {"b": 1}], ["", 0, False, None, ["x"]]),
        ([{"anything-but": "x"}], ["y", 5, True, None, ["x", "y"]], ["x", ["x"], [], ABSENT]),
        ([{"anything-but": [1, 2]}], [3, "1", False, None, [1, 3]], [1, 2.0, [1, 2], [], ABSENT]),
        ([{"anything-but": {"equals-ignore-case": "x"}}], ["y", 1, None, ["X", "y"]], ["x", "X", ["x", "X"], ABSENT]),
        ([{"anything-but": {"prefix": "ab"}}], ["a", "ac", "b", 1, None, ["abc", "b"]], ["ab", "abz", ["ab"], ABSENT]),
        ([{"anything-but": {"prefix": ["a", "c"]}}], ["b", 1, None], ["ax", "c", ABSENT, []]),
        ([{"anything-but": {"suffix": "x"}}], ["xy", 1, None, [1, "x"]], ["x", "ax", ["x"], ABSENT]),
        ([{"anything-but": {"wildcard": "*a*b"}}], ["ba", "", 1, None], ["ab", "xayb", ABSENT]),
        ([{"numeric": [">", 1, "<", 2]}], [1.5, [0, 1.5], [1.0000000000000002]], [1, 2, [0, 3], "1.5", ABSENT]),
        ([{"wildcard": "a?*"}], ["a?", "a?x"], ["ab", "a", "xa?"]),
        ([{"prefix": ""}], ["", "x", ["x"]], [1, None, [], ABSENT]),
        ([{"suffix": {"equals-ignore-case": "É"}}], ["xé", "É"], ["e", "éx"]),
        ([{"cidr": "10.0.0.0/24"}], ["10.0.0.255", ["x", "10.0.0.1"]], ["10.0.1.0", 5, "::1", ABSENT]),
        (["2001:db8::1"], ["2001:db8::1", "2001:DB8:0:0::1"], ["2001:db8::2", "2001:db8::1/128"]),
    ],
)
def test_patterns(values: list[Any], yes: list[object], no: list[object]) -> None:
    condition = condition_of({"a": values})
    assert [each for each in yes if not holds(condition, each)] == []
    assert [each for each in no if holds(condition, each)] == []


@pytest.mark.parametrize(
    ("detection", "yes", "no"),
    [
        ("a: 'x*z'", ["xz", "X-Z"], ["xzy", 5, ABSENT]),
        ("a: 5", [5, 5.0, "5"], ["5.0", 6, ABSENT, True]),
        ("a: true", [True, "TRUE"], [False, 1, "yes", ABSENT]),
        ("a: null", [None, ABSENT], ["", 0]),
        ("a: ''", [""], [None, ABSENT, "x"]),
        ("a|neq: x", ["y", 5, ABSENT], ["x", "X"]),
        ("a|exists: false", [ABSENT, None], ["", 0]),
        ("a|re: '^a.c$'", ["abc"], ["ABC", "xabc", 5]),
        ("a|re|i: 'b.c'", ["aBxC"], ["bc"]),
        ("a|cased|contains: 'B*'", ["aBc"], ["abc"]),
        ("a|cidr: 'fe80::/10'", ["fe80::1", "FEBF::"], ["fec0::", "10.0.0.1"]),
        ("a|gte: 5", [5, 5.5], [4, "6", ABSENT]),
        ("'|contains': 'B?C'", ["xabxcx", ["q", "b-c"], {"c": {"d": "B.C"}}], ["bc", 5, ABSENT]),
    ],
)
def test_sigma(detection: str, yes: list[object], no: list[object], tmp_path: Path) -> None:
    path = tmp_path / "r.yml"
    path.write_text(f"title: T\nlogsource: {{category: c}}\ndetection:\n  s:\n    {detection}\n  condition: s\n", "utf-8")
    (rule,) = rules_in([path])
    assert rule.row is not None, rule.reason
    filters = subscription_filters(rule.row)

    def matched(value: object) -> bool:
        return bool(match_naive(filters, event_with(value)))

    assert [each for each in yes if not matched(each)] == []
    assert [each for each in no if matched(each)] == []
