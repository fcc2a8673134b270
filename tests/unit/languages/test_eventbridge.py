"""Patterns of EventBridge as rows, and their refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from mpi_match.languages.eventbridge import condition_of, rules_in
from mpi_match.languages.rows import RuleError

LEAST = -1.7976931348623157e308
NO_STRING = [["a", "any >=", LEAST], ["a", "any =", True], ["a", "any =", False], ["a", "null"]]
NO_NUMBER = [["a", "any >=", ""], *NO_STRING[1:]]
THERE = {"or": [["a", "any >=", ""], *NO_STRING]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["x"], ["a", "any =", "x"]),
        (["x", "y", "x"], ["a", "any in", ["x", "y"]]),
        ([1, 2.5], ["a", "any in", [1, 2.5]]),
        ([True], ["a", "any =", True]),
        ([None], ["a", "null"]),
        (["x", 1, None, False], {"or": [["a", "any =", "x"], ["a", "any =", 1], ["a", "null"], ["a", "any =", False]]}),
        (["10.0.0.1"], ["a", "any =", "10.0.0.1"]),
        (["::1"], {"or": [["a", "any =", "::1"], ["a", "any in net", "::1"]]}),
        (["a:b"], ["a", "any =", "a:b"]),
        ([{"exactly": "x"}], ["a", "any =", "x"]),
        ([{"prefix": "x"}], ["a", "any prefix", "x"]),
        ([{"prefix": {"equals-ignore-case": "x"}}], ["a", "any prefix i", "x"]),
        ([{"suffix": "x"}, {"suffix": "y"}], ["a", "any suffix", ["x", "y"]]),
        ([{"suffix": {"equals-ignore-case": "x"}}], ["a", "any suffix i", "x"]),
        ([{"equals-ignore-case": "X"}], ["a", "any = i", "X"]),
        ([{"wildcard": "a*b?c*"}], ["a", "any wildcard", "a*b\\?c*"]),
        ([{"wildcard": "\\*\\\\*x"}], ["a", "any wildcard", "\\*\\\\*x"]),
        ([{"wildcard": "*x"}], ["a", "any suffix", "x"]),
        ([{"wildcard": "x*"}], ["a", "any prefix", "x"]),
        ([{"wildcard": "*x*"}], ["a", "any contains", "x"]),
        ([{"wildcard": "\\*x"}], ["a", "any =", "*x"]),
        ([{"wildcard": "*"}], ["a", "any prefix", ""]),
        ([{"wildcard": ""}], ["a", "any =", ""]),
        ([{"cidr": "10.0.0.7/24"}], ["a", "any in net", "10.0.0.7/24"]),
        ([{"cidr": "fe80::/10"}], ["a", "any in net", "fe80::/10"]),
        ([{"numeric": ["=", 3]}], ["a", "any =", 3]),
        ([{"numeric": ["<", 3]}], ["a", "any <", 3]),
        ([{"numeric": [">=", 1, "<=", 3]}], ["a", "any between", [1, 3]]),
        ([{"numeric": [">", 1, "<", 3]}], ["a", "any between", [math.nextafter(1, 2), math.nextafter(3, 2)]]),
        ([{"numeric": [">", 2**60, "<=", 2**61]}], ["a", "any between", [2**60 + 1, 2**61]]),
        ([{"numeric": [">", 0, "<", 5e-324]}], {"not": {"and": []}}),
        ([{"exists": True}], THERE),
        ([{"exists": False}], {"not": THERE}),
        ([{"anything-but": "x"}], {"or": [["a", "any not in", ["x"]], *NO_STRING]}),
        ([{"anything-but": [1, 2]}], {"or": [["a", "any not in", [1, 2]], *NO_NUMBER]}),
        ([{"anything-but": {"equals-ignore-case": "x"}}], {"or": [["a", "any not in i", ["x"]], *NO_STRING]}),
        ([{"anything-but": {"prefix": "ab"}}], {"or": [["a", "any <", "ab"], ["a", "any >=", "ac"], *NO_STRING]}),
        (
            [{"anything-but": {"prefix": "a\ud7ff"}}],
            {"or": [["a", "any <", "a\ud7ff"], ["a", "any >=", "a\ue000"], *NO_STRING]},
        ),
        ([{"anything-but": {"prefix": "\U0010ffff"}}], {"or": [["a", "any <", "\U0010ffff"], *NO_STRING]}),
        (
            [{"anything-but": {"suffix": ["x", "y"]}}],
            {"or": [{"and": [["a", "any >=", ""], {"not": ["a", "any suffix", ["x", "y"]]}]}, *NO_STRING]},
        ),
        (
            [{"anything-but": {"wildcard": ["x", "*y*"]}}],
            {
                "or": [
                    {
                        "and": [
                            ["a", "any >=", ""],
                            {"not": {"or": [["a", "any =", "x"], ["a", "any contains", "y"]]}},
                        ]
                    },
                    *NO_STRING,
                ]
            },
        ),
    ],
)
def test_leaves(values: list[Any], expected: object) -> None:
    assert condition_of({"a": values}) == expected


def test_names_join_and_fields_must_all_hold() -> None:
    pattern = {"source": ["s"], "detail": {"x.y": {"z": [1]}, "$or": [{"p": [1], "q": [2]}, {"p": [3]}]}}
    assert condition_of(pattern) == {
        "and": [
            ["source", "any =", "s"],
            ["detail.x.y.z", "any =", 1],
            {"or": [{"and": [["detail.p", "any =", 1], ["detail.q", "any =", 2]]}, ["detail.p", "any =", 3]]},
        ]
    }


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ([], "the pattern: a pattern is an object"),
        ({}, "the pattern: empty objects"),
        ({"a": {"b": {}}}, "a.b: empty objects"),
        ({"a": []}, "a: empty arrays"),
        ({"a": "x"}, "a: must be an object or an array, found str 'x'"),
        ({"a": [["x"]]}, "a: a value must be a string"),
        ({"a": [{}]}, "a: a match expression has exactly one key, found 0"),
        ({"a": [{"prefix": "x", "suffix": "y"}]}, "exactly one key, found 2"),
        ({"a": [{"regex": "x"}]}, "a: unrecognized match type 'regex'; there are exactly, prefix"),
        ({"a": [{"prefix": 1}]}, "a: prefix needs a string, found int 1"),
        ({"a": [{"suffix": {"prefix": "x"}}]}, "unsupported suffix pattern 'prefix'"),
        ({"a": [{"wildcard": "a**b"}]}, "consecutive wildcard characters at position 1"),
        ({"a": [{"wildcard": "a\\b"}]}, "invalid escape character at position 1"),
        ({"a": [{"cidr": "10.0.0.0/33"}]}, "is not a CIDR"),
        ({"a": [{"numeric": 5}]}, "numeric needs an array"),
        ({"a": [{"numeric": []}]}, "a numeric range is a lower and then an upper bound"),
        ({"a": [{"numeric": ["=", "5"]}]}, "numeric = needs a number, found str '5'"),
        ({"a": [{"numeric": ["<", True]}]}, "numeric < needs a number"),
        ({"a": [{"numeric": ["!=", 5]}]}, "numeric needs an operator and a number"),
        ({"a": [{"numeric": ["<", 5, ">", 1]}]}, "a lower and then an upper bound"),
        ({"a": [{"numeric": [">", 5, "<", 5]}]}, "the lower bound of a numeric range must be less"),
        ({"a": [{"exists": "yes"}]}, "exists must be either true or false"),
        ({"a": [{"anything-but": []}]}, "anything-but needs strings or numbers"),
        ({"a": [{"anything-but": ["x", 1]}]}, "anything-but needs strings or numbers, one type of them"),
        ({"a": [{"anything-but": None}]}, "anything-but needs strings or numbers"),
        ({"a": [{"anything-but": {"numeric": ["=", 1]}}]}, "unsupported anything-but pattern 'numeric'"),
        ({"a": [{"anything-but": {"prefix": ""}}]}, "an empty prefix is not allowed"),
        ({"a": [{"anything-but": {"suffix": [1]}}]}, "anything-but suffix needs a string"),
        ({"$or": [{"a": ["x"]}]}, "$or: at least 2 objects are needed, found 1"),
        ({"b": {"$or": ["x", "y"]}}, "b.$or: must be an array of objects"),
        ({"$or": [{"prefix": ["x"]}, {"a": ["x"]}]}, "'prefix' is reserved"),
        ({"a.b": ["x"], "a": {"b": ["y"]}}, "a.b: the path occurs twice"),
        ({"a": ["x"], "$or": [{"a": ["y"]}, {"b": ["x"]}]}, "a: the path occurs twice"),
        ({"*": ["x"]}, "*: rows cannot name this field"),
        ({"a": ["x"], "$or": [{"*": ["y"]}, {"b": ["x"]}]}, "*: rows cannot name this field"),
    ],
)
def test_refusals(pattern: object, reason: str) -> None:
    with pytest.raises(RuleError) as error:
        condition_of(pattern)
    assert reason in str(error.value)


def test_files_hold_patterns_named_rules_and_lists_of_rules(tmp_path: Path) -> None:
    bare, lines, listed, broken = (tmp_path / name for name in ("bare.json", "lines.jsonl", "listed.json", "broken.json"))
    bare.write_text(json.dumps({"a": ["x"]}, indent=2))
    lines.write_text(
        '{"name": "one", "rule": {"a": ["x"]}}\n\n{"a": [1]}\n{"a": [}\n{"name": "four"}\n{"a": [1], "a": [2]}\n'
    )
    listed.write_text(json.dumps({"Rules": [{"Name": "n", "EventPattern": '{"a": ["y"]}', "State": "ENABLED"}]}))
    broken.write_text('{"a": [\n"x"')
    rules = list(rules_in([bare, lines, listed, broken]))
    assert [(each.name, each.line, each.row and each.row["constraints"]) for each in rules] == [
        ("bare", 1, [["a", "any =", "x"]]),
        ("one", 1, [["a", "any =", "x"]]),
        ("lines:3", 3, [["a", "any =", 1]]),
        ("lines:4", 4, None),
        ("four", 5, None),
        ("lines:6", 6, None),
        ("n", 1, [["a", "any =", "y"]]),
        ("broken", 1, None),
    ]
    assert rules[0].row == {"interface": "bare", "id": "bare", "constraints": [["a", "any =", "x"]]}
    reasons = [each.reason for each in rules if each.row is None]
    assert reasons[0].startswith("not JSON: Expecting value")
    assert reasons[2:] == ["the pattern: the name 'a' occurs twice", "not JSON: Expecting ',' delimiter at column 4"]
    assert "a rule with a name has its pattern under one of" in rules[4].reason


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"EventPattern": {"a": ["x"]}}, ["a", "any =", "x"]),
        ({"EventPattern": '{"a": ["x"]}', "State": "ENABLED", "Targets": []}, ["a", "any =", "x"]),
        ({"EventPattern": ["x"]}, ["EventPattern", "any =", "x"]),
        ({"pattern": {"a": ["x"]}}, ["pattern.a", "any =", "x"]),
        ({"a": {"*": ["x"]}}, ["a.*", "any =", "x"]),
    ],
)
def test_a_rule_of_aws_needs_no_name(document: object, expected: object, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(document))
    (rule,) = rules_in([tmp_path / "p.json"])
    assert rule.row == {"interface": "p", "id": "p", "constraints": [expected]}


@pytest.mark.parametrize(
    ("state", "kind"), [("ENABLED", ""), ("ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS", ""), ("DISABLED", "disabled")]
)
def test_a_rule_that_is_disabled_or_has_only_a_schedule_is_given_no_events(state: str, kind: str, tmp_path: Path) -> None:
    listed = tmp_path / "listed.json"
    rules = [
        {"Name": "n", "EventPattern": '{"State": ["DISABLED"]}', "State": state},
        {"Name": "timer", "ScheduleExpression": "rate(5 minutes)", "State": "ENABLED"},
        {"Name": "both", "EventPattern": '{"a": ["y"]}', "ScheduleExpression": "rate(5 minutes)"},
    ]
    listed.write_text(json.dumps({"Rules": rules}))
    found = list(rules_in([listed]))
    assert [each.kind for each in found] == [kind, "schedule", ""]
    assert [each.row is None for each in found] == [bool(kind), True, False]


def test_a_pattern_may_have_an_attribute_called_rules(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"Rules": ["x", {"prefix": "y"}]}')
    (rule,) = rules_in([path])
    assert rule.row == {
        "interface": "p",
        "id": "p",
        "where": {"or": [["Rules", "any =", "x"], ["Rules", "any prefix", "y"]]},
    }
