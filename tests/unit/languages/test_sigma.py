"""Rules of Sigma as rows, by pySigma."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sigma.collection import SigmaCollection
from sigma.processing.pipeline import ProcessingPipeline

from mpi_match.languages.rows import Rule
from mpi_match.languages.sigma import MpiMatchBackend, check_pysigma, rules_in
from mpi_match.model import ModelError

WORDS = [["*", "contains i", "k"], ["*", "wildcard i", "*l*m*"]]
HEAD = "title: T\nlogsource: {category: c}\n"


def rules(tmp_path: Path, text: str) -> list[Rule]:
    path = tmp_path / "rules.yml"
    path.write_text(text, encoding="utf-8")
    return list(rules_in([path]))


def said(tmp_path: Path, detection: str) -> Any:
    """The condition of the only selection of a rule."""
    (rule,) = rules(tmp_path, f"{HEAD}detection:\n  s:\n    {detection}\n  condition: s\n")
    assert rule.row is not None, rule.reason
    parts = [*rule.row.get("constraints", []), *([rule.row["where"]] if "where" in rule.row else [])]
    return parts[0] if len(parts) == 1 else parts


@pytest.mark.parametrize(
    ("detection", "expected"),
    [
        ("a: X", ["a", "= i", "X"]),
        ("a: [x, y]", ["a", "in i", ["x", "y"]]),
        ("a.b|contains: x", ["a.b", "contains i", "x"]),
        ("a|startswith: x", ["a", "prefix i", "x"]),
        ("a|endswith: [x, '*y']", ["a", "suffix i", ["x", "y"]]),
        ("a|contains|all: [x, y]", [["a", "contains i", "x"], ["a", "contains i", "y"]]),
        ("a|cased|contains: X", ["a", "contains", "X"]),
        ("a|contains|cased: X", ["a", "contains", "X"]),
        ("a: 'x*y?z'", ["a", "wildcard i", "x*y?z"]),
        (r"a: 'x\*y*z\\'", ["a", "wildcard i", "x\\*y*z\\\\"]),
        (r"a: 'C:\x\y'", ["a", "= i", "C:\\x\\y"]),
        (r"a: '\\\\x'", ["a", "= i", "\\\\x"]),
        ("a: '*'", ["a", "exists"]),
        ("a|cased: '*'", ["a", "exists"]),
        ("a|cased: '5'", {"or": [["a", "=", 5], ["a", "=", "5"]]}),
        ("a: ['5', '-0.5', x]", {"or": [["a", "in", [5, -0.5]], ["a", "in i", ["5", "-0.5", "x"]]]}),
        ("a: ['05', '5.0', 1e3, '٣']", ["a", "in i", ["05", "5.0", "1e3", "٣"]]),
        ("a: ''", ["a", "= i", ""]),
        ("a: null", ["a", "absent"]),
        ("a: 5", {"or": [["a", "=", 5], ["a", "= i", "5"]]}),
        ("a: [5, 6]", {"or": [["a", "in", [5, 6]], ["a", "in i", ["5", "6"]]]}),
        ("a: true", {"or": [["a", "=", True], ["a", "= i", "true"]]}),
        ("a|re: 'x.*y'", ["a", "regexp", "x.*y"]),
        ("a|re|i|m|s: 'x.*y'", ["a", "regexp", "(?ims)x.*y"]),
        ("a|cidr: [10.0.0.0/8, 'fe80::/10']", ["a", "in net", ["10.0.0.0/8", "fe80::/10"]]),
        ("a|exists: true", ["a", "exists"]),
        ("a|exists: false", {"not": ["a", "exists"]}),
        ("a|lt: 5", ["a", "<", 5]),
        ("a|lte: 5", ["a", "<=", 5]),
        ("a|gt: 5", ["a", ">", 5]),
        ("a|gte: 5.5", ["a", ">=", 5.5]),
        ("a|neq: x", {"not": ["a", "= i", "x"]}),
        ("a|neq: 5", {"not": {"or": [["a", "=", 5], ["a", "= i", "5"]]}}),
        ("a|base64: abc", ["a", "= i", "YWJj"]),
        ("a|wide|base64: ab", ["a", "= i", base64.b64encode(b"a\0b\0").decode()]),
        ("a|base64offset|contains: abc", ["a", "contains i", ["YWJj", "FiY", "hYm"]]),
        ("a|windash|contains: ' -x '", ["a", "contains i", [" -x ", " /x ", " –x ", " —x ", " ―x "]]),
        ("'|contains': x", ["*", "contains i", "x"]),
        ("'|cased': X", ["*", "contains", "X"]),
        ("a: 9007199254740993", {"or": [["a", "=", 2**53 + 1], ["a", "= i", "9007199254740993"]]}),
        ("a: '9007199254740993'", {"or": [["a", "=", 2**53 + 1], ["a", "= i", "9007199254740993"]]}),
        ("a: -0x20000000000001", {"or": [["a", "=", -(2**53) - 1], ["a", "= i", "-9007199254740993"]]}),
        ("a: '18446744073709551615'", {"or": [["a", "=", 2**64 - 1], ["a", "= i", "18446744073709551615"]]}),
        ("a: 18446744073709551616", ["a", "= i", "18446744073709551616"]),
        ("a: '-9223372036854775809'", ["a", "= i", "-9223372036854775809"]),
        ("a|re|contains: x", ["a", "regexp", ".*x.*"]),
    ],
)
def test_leaves(tmp_path: Path, detection: str, expected: object) -> None:
    assert said(tmp_path, detection) == expected


@pytest.mark.parametrize(
    ("detection", "kind"),
    [
        ("a|fieldref: b", "fieldref"),
        ("a|expand: '%b%'", "expand"),
        ("a|re|expand: '%b%'", "expand"),
        ("a|hour: 5", "hour"),
        ("a|foo: 5", "invalid"),
        ("a|re: '('", "invalid"),
        ("a|re|startswith: x", "re|startswith"),
        ("a|re|endswith: x", "re|endswith"),
        ("a|lt: 9007199254740993", "invalid"),
        ("'*': x", "field *"),
        ("'*|exists': true", "field *"),
        ("'*|gt': 5", "field *"),
        ("a|cidr: x", "invalid"),
    ],
)
def test_refusals(tmp_path: Path, detection: str, kind: str) -> None:
    (rule,) = rules(tmp_path, f"{HEAD}detection:\n  s:\n    {detection}\n  condition: s\n")
    assert (rule.row, rule.kind) == (None, kind)
    assert rule.reason


@pytest.mark.parametrize("condition", ["s", "all of them", "1 of s*"])
def test_a_time_frame_is_no_keyword(tmp_path: Path, condition: str) -> None:
    (rule,) = rules(tmp_path, f"{HEAD}detection:\n  s: {{a: x}}\n  timeframe: 5m\n  condition: {condition}\n")
    assert (rule.row, rule.kind) == (None, "timeframe")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s1 and not s2", [["a", "= i", "x"], {"not": ["b", "= i", "y"]}]),
        ("1 of s*", [{"or": [["a", "= i", "x"], ["b", "= i", "y"]]}]),
        ("all of s*", [["a", "= i", "x"], ["b", "= i", "y"]]),
        (
            "1 of them",
            [{"or": [["a", "= i", "x"], ["b", "= i", "y"], ["*", "contains i", "k"], ["*", "wildcard i", "*l*m*"]]}],
        ),
        ("s1 or (s2 and words)", None),
        ("s9", None),
    ],
)
def test_conditions(tmp_path: Path, condition: str, expected: list[Any] | None) -> None:
    (rule,) = rules(
        tmp_path, f"{HEAD}detection:\n  s1: {{a: x}}\n  s2: {{b: y}}\n  words: [k, 'l*m']\n  condition: {condition}\n"
    )
    if condition == "s9":
        assert (rule.row, rule.kind) == (None, "invalid")
        return
    assert rule.row is not None, rule.reason
    if expected is None:
        assert rule.row["where"] == {"or": [["a", "= i", "x"], {"and": [["b", "= i", "y"], {"or": WORDS}]}]}
    else:
        assert [*rule.row.get("constraints", []), *([rule.row["where"]] if "where" in rule.row else [])] == expected


def test_a_list_of_maps_and_several_conditions(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        f"{HEAD}id: 9f8e7d6c-0000-4000-8000-000000000001\ndetection:\n  s: [{{a: x}}, {{b: y}}]\n  condition: [s, not s]\n",
    )
    either = {"or": [["a", "= i", "x"], ["b", "= i", "y"]]}
    assert [each.row and each.row["where"] for each in found] == [either, {"not": either}]
    assert {(each.row or {})["interface"] for each in found} == {"9f8e7d6c-0000-4000-8000-000000000001"}
    assert {(each.row or {})["id"] for each in found} == {"T"}


def test_files_of_several_documents(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        "action: global\nlogsource: {category: c}\ndetection: {condition: s}\n"
        "---\ntitle: A\ndetection: {s: {a: x}}\n"
        "---\naction: repeat\ntitle: B\n"
        "---\naction: reset\n---\n"
        f"{HEAD}detection: {{s: {{a: 1}}, condition: 's | count() > 5'}}\n"
        "---\ntitle: Many\ncorrelation: {type: event_count, rules: [x], group-by: [a], timespan: 5m, condition: {gte: 10}}\n"
        "---\n- 1\n---\ntitle: Nothing\n",
    )
    assert [(each.name, each.line, each.kind) for each in found] == [
        ("A", 5, ""),
        ("B", 8, ""),
        ("T", 13, "aggregation"),
        ("Many", 17, "correlation"),
        ("rules", 20, "invalid"),
        ("Nothing", 22, "invalid"),
    ]
    assert "event_count is over several events" in found[3].reason


CORRELATION = "{type: %s, %sgroup-by: [a], timespan: 5m%s}"


@pytest.mark.parametrize(
    ("correlation", "refused"),
    [
        (CORRELATION % ("event_count", "rules: [first], ", ", condition: {gte: 9}"), ["first"]),
        (CORRELATION % ("event_count", "generate: true, rules: [first], ", ", condition: {gte: 9}"), []),
        (CORRELATION % ("temporal", "rules: [first, 8f3d0000-0000-4000-8000-000000000000], ", ""), ["first", "second"]),
        (CORRELATION % ("temporal", "", ", condition: first and not second"), ["first", "second"]),
    ],
)
def test_rules_of_a_correlation_alert_by_themselves_only_if_it_generates(
    correlation: str, refused: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.yml").write_text(f"title: C\ncorrelation: {correlation}\n", encoding="utf-8")
    (tmp_path / "b.yml").write_text(
        f"{HEAD}name: first\ndetection: {{s: {{a: x}}, condition: s}}\n"
        f"---\n{HEAD}name: second\nid: 8f3d0000-0000-4000-8000-000000000000\ndetection: {{s: {{a: y}}, condition: s}}\n"
        f"---\n{HEAD}name: third\ndetection: {{s: {{a: z}}, condition: s}}\n",
        encoding="utf-8",
    )
    first, *found = rules_in([tmp_path / "a.yml", tmp_path / "b.yml"])
    assert (first.kind, [each.kind for each in found]) == (
        "correlation",
        ["correlation" if each in refused else "" for each in ("first", "second", "third")],
    )
    assert [each.row is None for each in found] == [bool(each.kind) for each in found]
    assert all("the correlation 'C' uses it" in each.reason for each in found if each.kind)


def test_filters_apply_to_rules_of_other_files(tmp_path: Path) -> None:
    rule, filter_ = tmp_path / "rule.yml.gz", tmp_path / "filter.yml"
    rule.write_bytes(gzip.compress(f"{HEAD}name: it\ndetection: {{s: {{a: x}}, condition: s}}\n".encode()))
    filter_.write_text(
        "title: F\nlogsource: {category: c}\nfilter:\n  rules: [it]\n  own: {b: y}\n  condition: not own\n", encoding="utf-8"
    )
    (found,) = rules_in([filter_, rule])
    assert found.row == {
        "interface": "T",
        "id": "T",
        "constraints": [["a", "= i", "x"]],
        "where": {"not": ["b", "= i", "y"]},
    }


def test_what_is_no_yaml_has_its_line(tmp_path: Path) -> None:
    (found,) = rules(tmp_path, "title: x\na: [1\nb: 2\n")
    assert (found.row, found.line) == (None, 3)
    assert found.reason.startswith("not YAML: ")
    assert "not read" not in found.reason


def test_a_fault_of_a_document_leaves_those_before_it_and_their_lines(tmp_path: Path) -> None:
    rule = f"{HEAD}detection: {{s: {{a: x}}, condition: s}}\n"
    found = rules(
        tmp_path, f"{rule}---\n---\ntitle: D\ndate: 2026-99-99\n---\n{rule}---\n- 1\n---\na: [1\nb: 2\n---\n{rule}"
    )
    assert [(each.name, each.line, each.row is None) for each in found] == [
        ("T", 1, False),
        ("rules", 6, True),
        ("T", 9, False),
        ("rules", 13, True),
        ("rules", 16, True),
    ]
    assert found[1].reason == "month must be in 1..12"
    assert found[4].reason.startswith("not YAML: ")
    assert found[4].reason.endswith("; what follows is not read")


@pytest.mark.parametrize(
    ("detection", "reason"),
    [
        ("{s: {a: x, b: y, a: z}, condition: s}", "the key 'a' occurs twice"),
        ("{s: {a: x}, s: {b: y}, condition: s}", "the key 's' occurs twice"),
        ("{s: {1: x, 1: y}, condition: s}", "the key 1 occurs twice"),
        ("{s: {[a]: x}, condition: s}", "found unhashable key"),
        ("{s: {a: x}, condition: 5}", "a condition must be a text, found int 5"),
        ("{s: {a: x}, condition: [s, 5]}", "a condition must be a text, found int 5"),
        (f"{{s: {{a: x}}, condition: '{'s and (' * 200}s{')' * 200}'}}", "conditions are nested too deeply"),
        (
            r"{s: {a|re: '(?=x)'}, condition: s}",
            "column 1: look-ahead, (?=, is not supported: it has no linear-time matcher",
        ),
    ],
)
def test_reasons(tmp_path: Path, detection: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    (found,) = rules(tmp_path, f"{HEAD}detection: {detection}\n")
    assert found.row is None
    assert found.reason.endswith(reason)
    assert capfd.readouterr().err == ""


def test_merged_mappings_may_replace_values(tmp_path: Path) -> None:
    (found,) = rules(tmp_path, f"{HEAD}detection:\n  b: &b {{a: x, c: y}}\n  s: {{<<: *b, a: z}}\n  condition: s\n")
    assert found.row is not None
    assert found.row["constraints"] == [["a", "= i", "z"], ["c", "= i", "y"]]


PIPELINE = """
name: p
priority: 10
transformations:
  - {id: channel, type: add_condition, conditions: {Channel: Sysmon}}
  - {id: rename, type: field_name_mapping, mapping: {a: A}}
"""


def test_pysigma_of_another_version_is_refused() -> None:
    check_pysigma("2.0.1")
    with pytest.raises(
        ModelError, match=r"pySigma 1\.5\.1 is installed, and 2 is needed: .* -m pip install 'pysigma>=2,<3'"
    ):
        check_pysigma("1.5.1")


def test_a_pipeline_that_is_not_installed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(f"{HEAD}detection: {{s: {{a: x}}, condition: s}}\n", encoding="utf-8")
    with pytest.raises(ModelError, match="there is no pipeline 'sysmn', and no such file; installed are: "):
        list(rules_in([path], ["sysmn"]))
    for text, said in (
        ("hi", "not a pipeline of pySigma: "),
        ("[1", "the pipeline"),
        ("transformations: [{type: x}]", "type 'x'"),
    ):
        (tmp_path / "p.yml").write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match=said):
            list(rules_in([path], [str(tmp_path / "p.yml")]))


def test_pipelines_apply(tmp_path: Path) -> None:
    path, rule = tmp_path / "p.yml", tmp_path / "r.yml"
    path.write_text(PIPELINE)
    rule.write_text(f"{HEAD}detection: {{s: {{a: x}}, condition: s}}\n")
    (found,) = rules_in([rule], [str(path)])
    assert found.row is not None
    assert found.row["constraints"] == [["Channel", "= i", "Sysmon"], ["A", "= i", "x"]]


def test_it_is_a_backend_of_pysigma() -> None:
    collection = SigmaCollection.from_yaml(f"{HEAD}detection: {{s: {{a: x}}, condition: s}}\n")
    row = {"interface": "T", "id": "T", "constraints": [["a", "= i", "x"]]}
    assert MpiMatchBackend().convert(collection, "rows") == [row]
    (line,) = MpiMatchBackend(ProcessingPipeline.from_yaml(PIPELINE)).convert(collection)
    assert json.loads(line) == {**row, "constraints": [["Channel", "= i", "Sysmon"], ["A", "= i", "x"]]}
