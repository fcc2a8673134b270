"""`bench --vary`, `--param`, `--parameters`, `--resume`; `plot --x`; `compare`; `generate --param`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import mpi_match, only_line

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
    assert [line.split()[-1] for line in compared[3:]] == ["noise"] * 4
    if plotted:
        mpi_match("plot", results, "--x", "names", "--by", "engine", "-o", tmp_path / "again.svg")
        assert "<!-- counting -->" in (tmp_path / "again.svg").read_text()
        assert "over a parameter: --x KEY" in mpi_match("plot", results, code=2).stderr


def test_parameters_are_listed_for_some_scenarios_and_for_all() -> None:
    some = mpi_match("bench", "ccm", "clcb", "--parameters").stdout
    assert some.count("# ") == 2
    assert "names                  100 " in some
    assert mpi_match("bench", "--parameters").stdout.count("\nnames ") > 10


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--vary", "names"], "'names' is no KEY=VALUE,..."),
        (["--vary", "names=2"], "3 to 5 constraints of a filter do not fit 2 distinct names"),
        (["--param", "names"], "'names' is no KEY=VALUE"),
        (["--param", "surnames=3"], "nothing here is called 'surnames'"),
        (["--resume"], "--resume needs the file of earlier results: -o FILE"),
        (["--engine", "counting"], "an engine stands twice in counting,reference,counting"),
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
