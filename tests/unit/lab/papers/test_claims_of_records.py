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


def claims_at(experiment: str, commit: str, file: str = "gpu", cores: int | None = None) -> dict[str, Claim]:
    of_all = records(file, experiment)
    mine = [r for r in of_all if r["commit"].startswith(commit) and cores in (None, r["machine"]["cores"])]
    assert mine, "the record is kept"
    return {f"{c.printed.subject}, {c.printed.metric}": c for c in claims(EXPERIMENTS[experiment], mine, of_all)}


def test_a_change_of_half_an_axis_is_not_measured() -> None:
    growth = "SE-CP, matching_time_growth"
    half = claims_at("farroukh-figure-15", "c1c2a395")[growth]
    assert half.here == "not measured: filters 2,000,000 to 4,000,000 of 1,000,000 to 5,000,000"
    assert claims_at("farroukh-figure-15", "a0b3b1b8")[growth].measured == pytest.approx(2.27, abs=0.01)
    assert claims_at("farroukh-figure-7", "c1c2a395", cores=8)["SE-CP, useful_threads"].measured is None


def test_a_place_needs_both_ends_and_says_how_much_of_the_curve_there_is() -> None:
    assert claims_at("farroukh-figure-13", "c1c2a395")["SE-CP lock-based, best_block_size"].measured is None
    whole = claims_at("farroukh-figure-13", "a0b3b1b8")["SE-CP lock-based, best_block_size"]
    assert whole.here == "200 (6 of 13 points measured)"
    best = claims_at("tagmatch-figure-7", "c1c2a395")["TagMatch, best_max_p"].here
    assert best.startswith("1,000,000 (at an end of the axis")


def test_latencies_of_a_run_that_is_as_short_as_they_are_do_not_count() -> None:
    found = claims_at("tagmatch-figure-6", "c1c2a395")
    assert {claim.measured for claim in found.values()} == {None}
    assert "has not settled" in found["TagMatch, latency_median"].here
    assert found["TagMatch, throughput"].here == "not measured: events came at a rate"


def test_runs_of_two_workers_are_compared_with_runs_of_one() -> None:
    two = claims_at("mpi-cuda-figure-4", "c1c2a395", "two-h100")["MPI-CUDA, speedup"]
    assert two.measured == pytest.approx(1.80, abs=0.01)
    assert two.why == "with 2 workers"
    mean = claims_at("mpi-cuda-figure-3", "c1c2a395", "two-h100")["MPI-CUDA, speedup_mean"]
    assert mean.measured == pytest.approx(1.35, abs=0.01)
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
    assert claims_at("farroukh-figure-9", "a0b3b1b8")["SE-CP lock-based, phase1_time"].why == (
        "0.00723 to 0.0176 over 4 points or options"
    )
    speedup = claims_at("tagmatch-figure-2", "051a51c3")["TagMatch, speedup"]
    assert speedup.measured == pytest.approx(8.63, abs=0.01), "the median of the ratios at each point"
    assert speedup.why.startswith("6.83 to 9.77 over 4 points or options")
    assert speedup.why.endswith("measured on `tagmatch`, the workload of this experiment then"), "it has another one now"


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
