"""`experiment list` and `experiment run`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from command_line import mpi_match

from mpi_match.lab.papers.catalog import EXPERIMENTS


def test_all_are_listed_with_what_is_printed() -> None:
    shown = mpi_match("experiment", "list").stdout.splitlines()
    assert [line.split()[0] for line in shown] == list(EXPERIMENTS)
    data = json.loads(mpi_match("experiment", "list", "--json").stdout)
    assert list(data) == list(EXPERIMENTS)
    assert data["ccm-table-2"]["published"][0]["value"] == 0.144


def test_one_is_run_beside_what_is_printed(tmp_path: Path) -> None:
    quick = ("--scale", 0.0004, "--repetitions", 1, "-o", tmp_path / "results")
    done = mpi_match("experiment", "run", "ccm-figure-11", "tagmatch-figure-11", "mpi-cuda-table-1", *quick)
    assert "ccm-figure-11 5 of 5: ccm-strings string_share=1" in done.stderr
    shown = done.stdout
    assert "# ccm-figure-11: share of numerical constraints 0-100 %; here with 0.0004 of the filters" in shown
    assert "workload: interfaces_selected (numerical_share 100)    ~ 7 %" in shown
    assert "# note: workload, interfaces_selected: DEBS seed-0 workload measured: 280 of 10,000 pairs = 2.8 %" in shown
    assert "# not run: it is of MongoDB alone" in shown
    assert shown.index("mpi-cuda-table-1") < shown.index("tagmatch-figure-11"), "in the order of the papers"
    assert (tmp_path / "results" / "ccm-figure-11.jsonl").exists()
    assert (tmp_path / "results" / "ccm-figure-11.svg").exists() == bool(find_spec("matplotlib"))


def test_an_unknown_one_is_wrong_usage(tmp_path: Path) -> None:
    refused = mpi_match("experiment", "run", "ccm-figure-99", "-o", tmp_path / "results", code=2)
    assert "there is no experiment 'ccm-figure-99'; `mpi-match experiment list` lists them" in refused.stderr
    assert not (tmp_path / "results").exists()


def test_some_points_of_one_are_run(tmp_path: Path) -> None:
    quick = ("--scale", 0.0004, "--repetitions", 1, "-o", tmp_path)
    mpi_match("experiment", "run", "ccm-figure-11", *quick, "--only", "string_share=0,0.5")
    records = [json.loads(line) for line in (tmp_path / "ccm-figure-11.jsonl").read_text().splitlines()]
    assert {record["parameters"]["string_share"] for record in records} == {"0", "0.5"}
    fewer = ("--only", "string_share=0", "--engine", "keyed", "--events", 20)
    shown = mpi_match("experiment", "run", "ccm-figure-11", *quick, *fewer)
    assert "ccm-figure-11 done in " in shown.stderr
    assert [line.split()[:3] for line in shown.stdout.splitlines() if line.startswith("0 ") and "keyed " in line] == [
        ["0", "keyed", "20"]
    ], "in the place of the one with more"
    assert "\n0.5" in shown.stdout, "what the directory had before"
    refused = mpi_match("experiment", "run", "ccm-figure-11", *quick, "--only", "string_share=0.3", code=2)
    assert "no selected experiment has a point string_share=0.3" in refused.stderr
    refused = mpi_match("experiment", "run", "ccm-figure-11", *quick, "--engine", "betree", code=2)
    assert "no selected experiment measures the engine 'betree'; they have: ccm, keyed, keyed_cuda, sff" in refused.stderr
