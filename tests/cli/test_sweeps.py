"""`bench --vary`, `--param`, `--parameters`, `--resume`, `--table`; `plot --x`; `compare`; `report`; `generate --param`."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import mpi_match, only_line
from mpirun import TESTS

QUICK = ("--filters", 60, "--events", 20, "--repetitions", 1, "--check", 1, "--engine", "counting,reference")


def test_a_sweep_is_measured_drawn_resumed_and_compared(tmp_path: Path) -> None:
    results, figure = tmp_path / "names.jsonl", tmp_path / "names.svg"
    vary = ("--vary", "names=10,20", "--param", "constraints=2-3")
    plotted = ("--plot", figure) if find_spec("matplotlib") else ()
    first = mpi_match("bench", "ccm", *QUICK, *vary, "-o", results, *plotted)
    assert "2 of 2: ccm constraints=2-3 names=20" in first.stderr
    assert figure.exists() == bool(plotted)
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(r["engine"], r["parameters"]["names"]) for r in found] == [
        ("counting", "10"),
        ("reference", "10"),
        ("counting", "20"),
        ("reference", "20"),
    ]
    again = mpi_match("bench", "ccm", *QUICK, *vary, "-o", results, "--resume")
    assert again.stderr.count("is there already") == 2
    assert len(results.read_text().splitlines()) == 4
    compared = mpi_match("compare", results, results).stdout.splitlines()
    assert [line.split()[-1] for line in compared[3:]] == ["once"] * 4
    if plotted:
        mpi_match("plot", results, "--x", "names", "--by", "engine", "-o", tmp_path / "again.svg")
        assert "<!-- counting -->" in (tmp_path / "again.svg").read_text()
        assert "need --x KEY, the parameter of the x axis" in mpi_match("plot", results, code=2).stderr


def test_parameters_are_listed_for_some_scenarios_and_for_all() -> None:
    some = mpi_match("bench", "ccm", "clcb", "--parameters").stdout
    assert some.count("# ") == 2
    assert "names                  100 " in some
    assert mpi_match("bench", "--parameters").stdout.count("\nnames ") > 10


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--vary", "names"], "'names' is not of the form KEY=VALUE,..."),
        (["--vary", "names=2"], "3 to 5 constraints of a filter do not fit 2 distinct names"),
        (["--param", "names"], "'names' is no KEY=VALUE"),
        (["--param", "surnames=3"], "unknown key 'surnames'"),
        (["--beside", "a"], "'a' is not of the form NAME=COMMAND"),
        (["--beside", "counting=true"], "'counting' names two matchers"),
        (["--resume"], "--resume needs the file of earlier results: -o FILE"),
        (["--engine", "counting"], "an engine is repeated in counting,reference,counting"),
        (["--scaling", "1", "--vary", "names=10", "--seeds", "2"], "--vary, --seeds cannot be used with --scaling"),
    ],
)
def test_what_cannot_be_is_wrong_usage(words: list[str], line: str) -> None:
    assert line in mpi_match("bench", "ccm", *QUICK, *words, code=2).stderr


def test_no_scenario_at_all_is_wrong_usage() -> None:
    assert "Missing argument 'SCENARIO...'" in mpi_match("bench", code=2).stderr


def test_generate_takes_the_same_parameters(tmp_path: Path) -> None:
    given = ("--param", "filters_per_interface=3", "--param", "interfaces=7", "--param", "attributes=2", "--format", "jsonl")
    mpi_match("generate", "ccm", "-o", tmp_path, "--events", 5, *given)
    assert len((tmp_path / "subscriptions.jsonl").read_text().splitlines()) in (7, 21)
    assert all(len(json.loads(line)) == 2 for line in (tmp_path / "events.jsonl").read_text().splitlines())
    assert "ccm has no parameter" in only_line(mpi_match("generate", "ccm", "-o", tmp_path, "--param", "x=1", code=2))


@pytest.fixture(scope="module")
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and its events compiled and as lines, one of them bad."""
    place = tmp_path_factory.mktemp("own")
    size = ("--filters", 60, "--events", 20, "--seed", 5)
    mpi_match("generate", "ccm-10-names", "-o", place, *size)
    mpi_match("generate", "ccm-10-names", "-o", place, *size, "--format", "jsonl")
    lines = (place / "events.jsonl").read_text().splitlines()
    (place / "events.jsonl").write_text("\n".join([*lines[:7], '{"name-1": [{}]}', *lines[7:], ""]))
    return place


def test_own_files_are_measured_and_judged(own_files: Path, tmp_path: Path) -> None:
    results = tmp_path / "own.jsonl"
    quick = ("--repetitions", 1, "--engine", "counting,reference", "-o", results)
    for events in ("events.h5", "events.jsonl"):
        files = ("--table", own_files / "table.h5", "--events", own_files / events)
        mpi_match("bench", *files, *quick, "--vary", "batch=1,8")
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(r["scenario"], r["batch"], r["n_events"]) for r in found] == [
        (f"table.h5 with {events}", batch, n)
        for events, n in (("events.h5", 20), ("events.jsonl", 21))
        for batch in (1, 8)
        for _ in range(2)
    ]
    assert len({r["matches"] for r in found}) == 1
    assert found[0]["matches"] > 0
    assert found[0]["checked"] == {"reference": 10, "covers": 10}
    assert ["rows_per_s" in r for r in found] == [r["scenario"].endswith("jsonl") and r["batch"] == 8 for r in found]
    again = mpi_match("bench", *files, *quick, "--vary", "batch=1,8", "--resume")
    assert again.stderr.count("is there already") == 2
    assert len(results.read_text().splitlines()) == 8
    mpi_match("bench", *files, *quick, "--param", "events=3")
    assert json.loads(results.read_text().splitlines()[-1])["n_events"] == 3


def test_own_rules_are_compiled_and_measured(tmp_path: Path) -> None:
    patterns = [{"name": f"p{k}", "rule": {"a": [{"prefix": str(k)}], "b": [k]}} for k in range(3)]
    (tmp_path / "rules.jsonl").write_text("".join(json.dumps(each) + "\n" for each in patterns))
    (tmp_path / "events.jsonl").write_text('{"a": "1x", "b": 1}\n{"a": "2", "b": 1}\n')
    rules = ("--rules", tmp_path / "rules.jsonl", "--language", "eventbridge", "--events", tmp_path / "events.jsonl")
    found = mpi_match("bench", *rules, "--repetitions", 1, "--engine", "reference")
    assert "3 filters compiled" in found.stderr
    record = json.loads(found.stdout)
    assert (record["scenario"], record["n_events"], record["matches"]) == ("rules.jsonl.h5 with events.jsonl", 2, 1)
    rate = record["rows_per_s"]
    assert 0 < rate["min"] == rate["median"] == rate["max"], "one repetition"
    assert "Rows/s" in found.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["ccm", "--table", "t.h5", "--events", "e.h5"], "--table takes the place of a SCENARIO: leave out ccm"),
        (["--table", "t.h5", "--events", "5"], "--table and --rules need the file of events"),
        (["--table", "t.h5", "--events", "e.h5", "--seeds", "2"], "--seeds cannot be used with --table or --rules"),
        (["--table", "t.h5", "--events", "e.h5", "--scaling", "1"], "--scaling needs a SCENARIO, not files"),
        (["ccm", "--events", "e.h5"], "'e.h5' is not a number of events; a file of events needs --table or --rules"),
        (["--rules", "r", "--events", "5"], "--table and --rules need the file of events"),
        (["--rules", "r", "--table", "t.h5", "--events", "e.h5"], "--table takes the place of --rules"),
        (["ccm", "--language", "sigma"], "--language is for --rules"),
        (["ccm", "--id", "key"], "--id cannot be used without --table"),
        (["ccm", "--events", "0"], "0 is not in the range x>=1"),
    ],
)
def test_files_and_scenarios_are_told_apart(words: list[str], line: str) -> None:
    assert line in mpi_match("bench", *words, code=2).stderr


def test_results_become_columns(own_files: Path, tmp_path: Path) -> None:
    results, table = tmp_path / "names.jsonl", tmp_path / "names.csv"
    mpi_match("bench", "ccm", *QUICK, "--vary", "names=10,20", "-o", results)
    mpi_match("report", results, "-o", table)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [row["engine"] for row in rows] == [r["engine"] for r in found]
    assert [row["parameters.names"] for row in rows] == ["10", "10", "20", "20"]
    assert [float(row["match_s.median"]) for row in rows] == [r["match_s"]["median"] for r in found]
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow (extra `spark`)")
    mpi_match("report", results, "-o", tmp_path / "names.parquet")
    read = parquet.read_table(tmp_path / "names.parquet")
    assert read["match_s.median"].to_pylist() == [r["match_s"]["median"] for r in found]
    assert json.loads(read["machine.gpus"][0].as_py()) == found[0]["machine"]["gpus"]


def test_another_matcher_is_measured_beside(tmp_path: Path) -> None:
    results = tmp_path / "beside.jsonl"
    done = mpi_match("bench", "ccm", *QUICK, "--beside", "gone=false", "-o", results)
    assert "gone dies at subscriptions on ccm: ended at 'subscriptions' with exit code 1" in done.stderr
    assert json.loads(results.read_text().splitlines()[-1])["failure"]["how"] == "dies"
    if find_spec("matplotlib"):
        mpi_match("report", results, "-o", tmp_path / "beside.html")
        assert "gone dies at subscriptions" in (tmp_path / "beside.html").read_text()


def test_two_revisions_are_measured_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    shutil.copytree(TESTS.parent / "mpi_match", source / "mpi_match", ignore=shutil.ignore_patterns("__pycache__"))
    git = ("git", "-C", source, "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["commit", "-qm", "two", "--allow-empty"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.chdir(source)
    done = mpi_match("compare", "HEAD~1", "HEAD", "--rounds", 1, "--", "ccm", *QUICK)
    heads = done.stdout.splitlines()[:2]
    commits = [
        subprocess.run([*git, "rev-parse", "--short=12", each], capture_output=True, text=True, check=True)
        for each in ("HEAD~1", "HEAD")
    ]
    assert [f"commit {each.stdout.strip()};" in line for each, line in zip(commits, heads, strict=True)] == [True, True]
    assert len(done.stdout.splitlines()) == 3 + 2
    assert "nowhere: no revision in" in only_line(mpi_match("compare", "nowhere", "HEAD", "--", "ccm", code=1))
    assert "bench failed: " in mpi_match("compare", "HEAD", "HEAD", "--", "no-scenario", code=1).stderr
