"""`translate`, and `--language` where subscriptions are read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_line import mpi_match, only_line

from mpi_match.table.table import Table

RULES = """
title: Shell
id: 8f3d0b1a-5d0a-4b0e-9c1a-1f6f5e6b7a01
logsource: {category: process_creation}
detection:
  s:
    Image|endswith|cased: '/sh'
    Parent|startswith|cased: [/usr/]
  condition: s
---
title: Twins
logsource: {category: process_creation}
detection:
  s: {User|fieldref: ParentUser}
  condition: s
"""
ROW = {
    "interface": "8f3d0b1a-5d0a-4b0e-9c1a-1f6f5e6b7a01",
    "id": "Shell",
    "constraints": [["Image", "suffix", "/sh"], ["Parent", "prefix", "/usr/"]],
}
PATTERNS = '{"name": "running", "pattern": {"state": ["running"]}}\n{"name": "bad", "pattern": {"state": []}}\n'
EVENTS = '{"Image": "/bin/sh", "Parent": "/usr/bin/x", "state": ["idle", "running"]}\n{"Image": "/bin/ls"}\n'


@pytest.fixture
def sigma(tmp_path: Path) -> Path:
    """A directory of directories of rules, of which one of two can be said."""
    path = tmp_path / "rules" / "linux" / "shell.yml"
    path.parent.mkdir(parents=True)
    path.write_text(RULES)
    (path.parent / "README.md").write_text("no rule")
    return tmp_path / "rules"


@pytest.fixture
def patterns(tmp_path: Path) -> Path:
    path = tmp_path / "patterns.jsonl"
    path.write_text(PATTERNS)
    return path


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text(EVENTS)
    return path


def test_rows_are_printed_and_refusals_said(sigma: Path, tmp_path: Path) -> None:
    done = mpi_match("translate", "--language", "sigma", sigma, "--rejects", tmp_path / "refused.jsonl")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [ROW]
    refused, count = done.stderr.splitlines()
    reason = "Twins: fieldref: 'User' is compared with another attribute, 'ParentUser'"
    assert refused == f"refused: {sigma}/linux/shell.yml, line 11: {reason}"
    assert count == "1 row; 1 rule refused: 1 fieldref"
    (kept,) = map(json.loads, (tmp_path / "refused.jsonl").read_text().splitlines())
    assert (kept["reason"], kept["line"], kept["row"]) == (reason, 11, "Twins")


def test_patterns_are_printed(patterns: Path) -> None:
    done = mpi_match("translate", "--language", "eventbridge", patterns)
    row = {"interface": "running", "id": "running", "constraints": [["state", "any =", "running"]]}
    assert [json.loads(line) for line in done.stdout.splitlines()] == [row]
    assert "patterns.jsonl, line 2: bad: state: empty arrays are not allowed" in done.stderr


def test_strict_and_nothing_left_are_bad_input(patterns: Path, tmp_path: Path) -> None:
    strict = mpi_match("translate", "--language", "eventbridge", "--strict", patterns, code=3)
    assert "line 2: bad: state: empty arrays are not allowed (--strict)" in strict.stderr
    patterns.write_text(PATTERNS.splitlines()[1])
    none = mpi_match("translate", "--language", "eventbridge", patterns, code=3)
    assert none.stderr.splitlines()[-1].endswith("patterns.jsonl: no rule can be expressed as rows")
    (tmp_path / "empty").mkdir()
    assert "holds no file of Sigma rules (.yml, .yaml)" in only_line(
        mpi_match("translate", "--language", "sigma", tmp_path / "empty", code=3)
    )
    missing = only_line(mpi_match("translate", "--language", "sigma", tmp_path / "missing.yml", code=3))
    assert "missing.yml" in missing


def test_a_row_that_the_model_refuses_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"a": [1e300, 10**30]}))
    done = mpi_match("translate", "--language", "eventbridge", path, code=3)
    assert "p.json, line 1: p: " in done.stderr
    assert "-2^63" in done.stderr
    assert "1 beyond the row language" in done.stderr


def test_pipelines_are_for_sigma(sigma: Path, patterns: Path, events: Path, tmp_path: Path) -> None:
    pipeline = tmp_path / "p.yml"
    pipeline.write_text(
        "name: p\ntransformations:\n  - {id: r, type: field_name_mapping, mapping: {Image: process.executable}}\n"
    )
    done = mpi_match("translate", "--language", "sigma", "--pipeline", pipeline, sigma)
    assert json.loads(done.stdout)["constraints"][0] == ["process.executable", "suffix", "/sh"]
    refused = mpi_match("translate", "--language", "eventbridge", "--pipeline", pipeline, patterns, code=3)
    assert "have no pipelines; leave out --pipeline" in only_line(refused)
    unknown = mpi_match("translate", "--language", "sigma", "--pipeline", "no-such", sigma, code=3)
    assert "there is no pipeline 'no-such', and no such file" in only_line(unknown)
    mpi_match("match", sigma, events, "-o", "-", "--pipeline", pipeline, code=2)


def test_match_takes_rules(sigma: Path, patterns: Path, events: Path) -> None:
    found = {}
    for language, rules in (("sigma", sigma), ("eventbridge", patterns)):
        done = mpi_match("match", "--language", language, rules, events, "-o", "-", "--engine", "counting")
        found[language] = [json.loads(line)["interfaces"] for line in done.stdout.splitlines()]
        assert "refused: " in done.stderr
    assert found == {"sigma": [[ROW["interface"]], []], "eventbridge": [["running"], []]}
    mpi_match("match", "--language", "sigma", "--strict", sigma, events, "-o", "-", code=3)


def test_compile_takes_rules_without_spark(sigma: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.h5"
    mpi_match("compile", "subscriptions", "--local", "--language", "sigma", sigma, "-o", table)
    assert Table.load(table).filter(0).interface == ROW["interface"]
    by_spark = mpi_match("compile", "subscriptions", "--language", "sigma", sigma, "-o", table, code=2)
    assert "`mpi-match translate` makes JSON lines of them" in by_spark.stderr


def test_without_pysigma_the_command_that_installs_it_is_said(sigma: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "mpi_match.languages.sigma"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sigma.collection", None)
    done = only_line(mpi_match("translate", "--language", "sigma", sigma, code=3))
    assert "Sigma rules need the module 'sigma.collection', which is not installed" in done
    assert "-m pip install 'mpi-match[sigma]'" in done


def test_rules_without_their_language_are_told(sigma: Path, patterns: Path, events: Path) -> None:
    for rules, language in ((sigma, "sigma"), (sigma / "linux" / "shell.yml", "sigma"), (patterns, "eventbridge")):
        for command in (("match", rules, events), ("compile", "subscriptions", "--local", rules)):
            assert only_line(mpi_match(*command, "-o", events.parent / "out.h5", code=3)).endswith(
                f"add --language {language}"
            )
    assert "--language" not in mpi_match("match", events, events, "-o", events.parent / "out.h5", code=3).stderr
