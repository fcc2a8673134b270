"""Printed values beside the kept records: a claim needs the ends of its axis, runs of one kind, and runs that settled."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mpi_match.lab.bench.sweep_report import quantity
from mpi_match.lab.papers.catalog import EXPERIMENTS
from mpi_match.lab.papers.claims import Claim, claims

RECORDS = Path(__file__).resolve().parents[3] / "bench" / "records"


@cache
def records(file: str, experiment: str) -> list[dict[str, Any]]:
    lines = (RECORDS / f"{file}-experiments.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["experiment"] == experiment]


def claims_at(experiment: str, commit: str, file: str = "gpu", **only: str) -> dict[str, Claim]:
    """The claims by the records of a commit, those whose parameters have one of the values `only` for each key given."""
    of_all = records(file, experiment)
    of_commit = [record for record in of_all if record["commit"].startswith(commit)]
    mine = [r for r in of_commit if all(_value(r, key) in values.split(",") for key, values in only.items())]
    assert mine, "the record is kept"
    return of_records(experiment, mine, of_all)


def of_records(experiment: str, mine: list[dict[str, Any]], of_all: list[dict[str, Any]]) -> dict[str, Claim]:
    return {f"{c.printed.subject}, {c.printed.metric}": c for c in claims(EXPERIMENTS[experiment], mine, of_all)}


def _value(record: dict[str, Any], name: str) -> str:
    (value,) = (value for key, value in record["parameters"].items() if key.rpartition(".")[2] == name)
    return str(value)


def test_a_change_of_half_an_axis_is_not_measured() -> None:
    growth = "SE-CP, matching_time_growth"
    half = claims_at("farroukh-figure-15", "6370ca39", filters="3000000,5000000")[growth]
    assert half.here == "not measured: filters 3,000,000 to 5,000,000 of 1,000,000 to 5,000,000"
    assert claims_at("farroukh-figure-15", "6370ca39")[growth].measured == pytest.approx(2.49, abs=0.01)
    assert claims_at("farroukh-figure-7", "6370ca39", threads="3,5,6,7")["SE-CP, useful_threads"].measured is None


def test_a_place_needs_both_ends_and_says_how_much_of_the_curve_there_is() -> None:
    best_block = "SE-CP lock-based, best_block_size"
    assert claims_at("farroukh-figure-13", "6370ca39", access_block="2,5,12,50,200")[best_block].measured is None
    with_ends = claims_at("farroukh-figure-13", "6370ca39", access_block="1,5,12,50,200,1430")
    assert with_ends[best_block].here == "12 (6 of 13 points measured)"
    best = claims_at("tagmatch-figure-7", "6370ca39")["TagMatch, best_max_p"].here
    assert best == "1,000,000 (at an end of the axis)"


def test_latencies_of_a_run_that_is_not_much_longer_do_not_count() -> None:
    of_all = records("gpu", "tagmatch-figure-6")
    found = of_records("tagmatch-figure-6", of_all, of_all)
    assert "has not settled" in found["TagMatch, latency_median"].here, "without a time-out queries wait longest"
    assert found["TagMatch, latency_max"].measured == pytest.approx(0.33, abs=0.01)
    with_load = [record for record in of_all if record.get("rate")]
    at_a_rate = of_records("tagmatch-figure-6", with_load, with_load)
    assert at_a_rate["TagMatch, throughput"].here == "not measured: events came at a rate"


def test_runs_of_two_workers_are_compared_with_runs_of_one() -> None:
    two = claims_at("mpi-cuda-figure-4", "c1c2a395", "two-h100")["MPI-CUDA, speedup"]
    assert two.measured == pytest.approx(1.80, abs=0.01)
    assert two.why == "with 2 workers"
    mean = claims_at("mpi-cuda-figure-3", "c1c2a395", "two-h100")["MPI-CUDA, speedup_mean"]
    assert mean.measured == pytest.approx(1.35, abs=0.01)
    four = claims_at("mpi-cuda-figure-3", "6370ca39")["MPI-CUDA, speedup_mean"]
    assert four.measured == pytest.approx(1.78, abs=0.01), "with four, as in the paper, which prints 1.77"
    alone = claims_at("mpi-cuda-figure-4", "13c5bb45")["MPI-CUDA, speedup"]
    assert alone.here == "not measured: one worker is what more are compared with"


def test_times_have_encoding_and_sizes_what_is_shared() -> None:
    found = claims_at("ccm-table-2", "2558c442")
    assert found["CCM, throughput"].here == "27,058 (47,738 without encoding)"
    assert found["SFF, data_structure_size"].here.startswith("not measured: the record leaves out")
    assert found["SFF, deployment_time"].why.startswith("0.0314 s of it the index")
    (sff, *_) = [r for r in records("gpu", "ccm-table-2") if r["engine"] == "sff"]
    assert quantity(sff, "whole_bytes") is None
    assert quantity({**sff, "shared_bytes": 5}, "whole_bytes") == sff["engine_bytes"] + 5


def test_a_gain_is_that_of_each_seed_with_the_same_commit() -> None:
    of_all = records("gpu", "clcb-section-4.3")
    assert len({record["commit"] for record in of_all}) > 1
    (gain,) = [c for c in claims(EXPERIMENTS["clcb-section-4.3"], of_all) if c.printed.metric.startswith("gain_of_")]
    assert gain.commit.startswith("412e3a70"), "the later commit has no runs with one run a reset"
    assert gain.why.startswith("-14.6 to 6.23 over 5 seeds")
    assert gain.measured == pytest.approx(-5.78, abs=0.01)


def test_a_value_of_several_points_or_options_has_their_interval() -> None:
    assert claims_at("farroukh-figure-9", "6370ca39")["SE-CP lock-based, phase1_time"].why == (
        "0.00631 to 0.0143 over 8 points or options"
    )
    of_all = records("gpu", "tagmatch-figure-2")
    speedup = of_records("tagmatch-figure-2", of_all, of_all)["TagMatch, speedup"]
    assert speedup.measured == pytest.approx(29.0, abs=0.1), "the median of the ratios at each point"
    assert speedup.why.startswith("9.97 to 80 over 10 points or options")
    other = [{**record, "scenario": "tagmatch"} for record in of_all]
    then = of_records("tagmatch-figure-2", other, other)
    assert then["TagMatch, speedup"].why.endswith("measured on `tagmatch`, the workload of this experiment then")


def test_a_value_is_that_of_the_latest_state_that_has_it() -> None:
    of_all = records("gpu", "ccm-figure-11")
    assert len({record["commit"] for record in of_all}) > 1
    found = claims(EXPERIMENTS["ccm-figure-11"], of_all)
    assert {claim.commit[:8] for claim in found if claim.measured is not None} == {"412e3a70"}


def test_an_operation_is_that_of_sets_with_several_keys_where_they_have_its_point() -> None:
    found = claims(EXPERIMENTS["tagmatch-table-1"], records("two-cores", "tagmatch-table-1"))
    trees = [c for c in found if c.printed.subject == "CPU-only, fast prefix tree"]
    here = {c.printed.parameters["sets"]: c.here for c in trees}
    assert here[20_000_000] == "3.1 (9.5 answers a query)"
    assert here[40_000_000] == "0.695 (723 answers a query)", "no such point with several keys"


def test_ccms_record_of_another_exponent_is_not_the_papers_zipf() -> None:
    of_zipf = [c for c in claims_at("ccm-table-2", "2558c442").values() if "name_distribution" in c.printed.parameters]
    assert of_zipf
    assert all(c.measured is None and "name_exponent 1:" in c.here for c in of_zipf)
    measured = [c for c in claims_at("ccm-table-2", "412e3a70").values() if "name_distribution" in c.printed.parameters]
    assert measured
    assert all(c.measured is not None for c in measured), "exponent 1.7 is the paper's"
