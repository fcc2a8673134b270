"""Ablation: an engine with each value of each of its options."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mpi_match.engines.registry import options_of
from mpi_match.lab.bench.ablation import OWN_SCENARIO, ablate, ablation_table, variants
from mpi_match.lab.bench.engines import BenchOptions
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json


def test_every_choice_of_every_option_is_a_variant() -> None:
    found = set(variants("twophase"))
    choices = {(o.name, value) for o in options_of("twophase") for value in o.choices if value != o.default}
    assert choices <= found
    assert {("access_block", 6), ("access_block", 24), ("group", 1), ("group", 4)} <= found
    defaults = {option.name: option.default for option in options_of("tagmatch")}
    assert all(defaults[name] != value for name, value in variants("tagmatch"))
    assert all(name in SCENARIOS for name in OWN_SCENARIO.values())


def test_each_variant_is_measured_and_compared_with_the_default() -> None:
    options = BenchOptions(n_filters=50, n_events=4, batch=1, repetitions=1, threads=1, warm_up_s=0.0, check=2)
    records = ablate("sff", "ccm-strings", options)
    assert [(r["option"], r["value"]) for r in records] == [(None, None), *variants("sff")]
    for before, record in pairwise(records[1:]):
        assert before["default_events_per_s"][1] == record["default_events_per_s"][0]
        assert record["ratio"] == pytest.approx(record["events_per_s"] / np.mean(record["default_events_per_s"]))
    assert all(record["what"] == "ablation" and record["ratio"] > 0 for record in records)
    shown = ablation_table(records).splitlines()
    assert [line.split()[0] for line in shown if line.startswith("default")] == ["default"]
    assert any(line.startswith("area=constraints") for line in shown)


def test_a_variant_that_cannot_serve_the_workload_is_said() -> None:
    records: list[Json] = [
        {"engine": "ccm", "option": None, "value": None, "events_per_s": 10.0, "us_per_event": 1e5, "ratio": 1.0},
        {"engine": "ccm", "option": "sat", "value": "published", "failure": "the table has lists"},
    ]
    assert ablation_table(records).splitlines()[-1] == "# sat=published: the table has lists"


def test_the_default_may_have_options_of_its_own() -> None:
    given = {"sff.rounds": "4", "betree.area": "last"}
    assert list(variants("sff", given)) == [("rounds", 2), ("rounds", 8), ("area", "constraints")]
    options = BenchOptions(n_filters=50, n_events=4, batch=1, repetitions=1, threads=1, warm_up_s=0.0, check=2)
    records = ablate("sff", "ccm-strings", replace(options, engine_options=given))
    assert [record["engine_options"]["rounds"] for record in records] == [4, 2, 8, 4]


def test_an_engine_that_cannot_serve_the_workload_is_named_once() -> None:
    options = BenchOptions(n_filters=50, n_events=4, batch=1, repetitions=1, threads=1, warm_up_s=0.0, check=2)
    (record,) = ablate("tagmatch", "ccm-strings", replace(options, engine_options={"variant": "cpu"}))
    (engine, _, failed) = ablation_table([record]).splitlines()
    assert engine == "# tagmatch"
    assert failed.startswith("# default: ")
