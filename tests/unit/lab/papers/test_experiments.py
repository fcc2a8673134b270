"""The catalogue of experiments: every table and figure, each run checked; printed values beside the right measured ones."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from mpi_match.engines import REGISTRY
from mpi_match.engines.registry import read_options
from mpi_match.errors import EngineError
from mpi_match.gpu import presence
from mpi_match.lab.bench.report import append_json, read_json
from mpi_match.lab.bench.scaling import ScalingPlan
from mpi_match.lab.bench.sweep import Axis, Sweep
from mpi_match.lab.bench.sweep_report import measured, quantity
from mpi_match.lab.papers import run as running
from mpi_match.lab.papers.catalog import CCM_ZIPF, EXPERIMENTS, SYSTEMS, Experiment
from mpi_match.lab.papers.claims import Claim, claims, of_experiment, parameters, table
from mpi_match.lab.papers.published import notes, printed, titles
from mpi_match.lab.papers.run import (
    ExperimentPlan,
    missing,
    not_run,
    rank_points,
    run,
    shares,
    shown_at,
    sweeps,
    with_earlier,
    with_load,
)
from mpi_match.lab.workloads.parameters import PER_INTERFACE
from mpi_match.lab.workloads.scenarios import Scenario

EVERY = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)


def test_every_table_and_figure_has_one_experiment() -> None:
    assert {(each.system, each.artifact) for each in EXPERIMENTS.values()} == set(titles())
    assert len(EXPERIMENTS) == len(titles())
    assert {each.system for each in printed()} == set(SYSTEMS)
    assert any("74 %" in note and "78 %" in note for note in notes()), "contradictions of the papers stay visible"


@EVERY
def test_an_experiment_is_run_or_says_why_not(experiment: Experiment) -> None:
    ways = [bool(experiment.runs), bool(experiment.scenario), bool(experiment.not_rerun)]
    assert ways.count(True) == 1
    assert bool(experiment.runs) == bool(experiment.kept) == bool(experiment.differs)


@EVERY
@pytest.mark.parametrize("scale", [1.0, 0.01, 0.0001])
def test_every_point_can_be(experiment: Experiment, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all engines, on whatever machine this is."""
    monkeypatch.setattr(running, "missing", lambda *_: dict.fromkeys({"sff", "betree"} - REGISTRY.keys(), ""))
    planned = [point for each in sweeps(experiment, ExperimentPlan(scale)) for point in each.points()]
    assert bool(planned) == bool(experiment.runs)
    scenarios = [point.scenario for point in planned if isinstance(point.scenario, Scenario)]
    assert len(scenarios) == len(planned)
    assert all(point.options.n_events >= 50 for point in planned)
    assert all(scenario.n_filters >= scenario.n_interfaces for scenario in scenarios)
    if planned and scale == 0.01:
        assert max(scenario.n_filters for scenario in scenarios) <= 150_000


@EVERY
def test_a_table_of_parameters_names_ours(experiment: Experiment) -> None:
    if experiment.scenario:
        rows = parameters(experiment)
        assert rows
        assert sum(own != "-" for _, own in rows) >= len(rows) / 3


def record(engine: str, us: float, scenario: str = "ccm-strings", **more: Any) -> dict[str, Any]:
    return {
        "scenario": scenario,
        "engine": engine,
        "engine_options": {},
        "us_per_event": us,
        "events_per_s": 1e6 / us,
        "table_s": 0.25,
        "build_s": 0.25,
        "engine_bytes": 5_000_000,
        "n_events": 100,
        "n_interfaces": 10,
        "matches_per_event": 0.5,
        "device": "cpu, 1 thread",
        "parameters": {},
        **more,
    }


def claim_of(name: str, records: list[dict[str, Any]], subject: str, metric: str, **where: Any) -> Claim:
    (found,) = [
        each
        for each in claims(EXPERIMENTS[name], records)
        if (each.printed.subject, each.printed.metric) == (subject, metric)
        and where.items() <= each.printed.parameters.items()
        and each.printed.relation == "="
    ]
    return found


def test_a_printed_value_stands_beside_the_same_quantity_in_its_unit() -> None:
    plain = {"name_exponent": "0"}
    records = [
        record("sff", 2000, parameters=plain),
        record("ccm", 100, parameters=plain),
        record("keyed", 8, parameters=plain),
    ]
    found = claim_of("ccm-table-2", records, "SFF", "processing_time", scenario="default")
    assert found.measured == pytest.approx(2.0)
    assert dict(found.ours) == pytest.approx({"keyed": 0.008})
    deployed = claim_of("ccm-table-2", records, "SFF", "deployment_time", scenario="default")
    assert (deployed.measured, deployed.why) == (500, "0.25 s of it the index, the rest the table that engines share")
    assert claim_of("ccm-table-2", records, "CCM", "data_structure_size", scenario="default").measured == 5
    updated = claim_of("clcb-table-2", [record("sff", 9, "clcb")], "SFF", "update_time", scenario="default")
    assert updated.measured == 500, "it is deployed again"
    ratio = claim_of("ccm-table-2", records, "CCM", "speedup", scenario="default")
    assert ratio.measured == pytest.approx(20)
    assert dict(ratio.ours) == pytest.approx({"keyed": 250})
    unmeasured = claim_of("ccm-table-2", records[2:], "CCM", "processing_time", scenario="default")
    assert (unmeasured.measured, unmeasured.why, list(unmeasured.ours)) == (None, "not run", ["keyed"])


def test_times_of_ccm_have_the_encoding_in_them_and_beside() -> None:
    found = [record(e, us, parameters={"name_exponent": "0"}, encode_s=0.0015) for e, us in (("sff", 45), ("ccm", 20))]
    time = claim_of("ccm-table-2", found, "CCM", "processing_time", scenario="default")
    assert time.here == "0.035 (0.02 without encoding)"
    ratio = claim_of("ccm-table-2", found, "CCM", "speedup", scenario="default")
    assert ratio.measured == pytest.approx(60 / 35)
    assert claim_of("ccm-table-2", found, "SFF", "data_structure_size", scenario="default").here.startswith("not measured")
    whole = [{**each, "shared_bytes": 2_000_000} for each in found]
    assert claim_of("ccm-table-2", whole, "SFF", "data_structure_size", scenario="default").measured == 7
    alone = [record("twophase", 2000, "debs2009", parameters={"threads": "1"}, engine_options={"technique": "me-ip"})]
    alone = [{**each, "encode_s": 1.0} for each in alone]
    assert claim_of("farroukh-figure-5", alone, "ME-IP", "throughput", threads=1).measured == pytest.approx(500)


def test_runs_with_ranks_are_compared_with_one_worker() -> None:
    def runs(us: float, workers: int, **at: str) -> dict[str, Any]:
        values = {**at, "workers": str(workers)}
        return record("ccm", us, "ccm", what="ranks", workers=workers, parameters=values)

    alone = record("ccm", 15, "ccm", parameters={"attributes": "1"}, engine_options={"phases": 3})
    one = runs(36, 1, attributes="1")
    found = claim_of("mpi-cuda-figure-3", [alone, one, runs(24, 2, attributes="1")], "MPI-CUDA", "speedup", attributes="few")
    assert found.measured == pytest.approx(1.5)
    assert found.why == "with 2 workers"
    (few,) = [
        c for c in claims(EXPERIMENTS["mpi-cuda-figure-3"], [alone, one]) if c.printed.parameters == {"attributes": "few"}
    ]
    assert few.measured is None, "one worker against one is no speed-up"


def test_a_latency_is_that_of_a_run_that_has_settled() -> None:
    def came(seconds: float, p50: float, timeout_ms: int = 0, rate: float = 9000.0) -> Claim:
        found = record(
            "tagmatch",
            50,
            "tagmatch",
            parameters={"tagmatch.timeout_ms": str(timeout_ms)},
            engine_options={"variant": "hybrid", "launch": 1, "timeout_ms": timeout_ms},
            latency_us=dict.fromkeys(("p50", "p99", "max"), 1e6 * p50),
            match_s={"median": seconds},
            rate=rate,
        )
        metric = "latency_max" if timeout_ms else "latency_median"
        (claim,) = [c for c in claims(EXPERIMENTS["tagmatch-figure-6"], [found]) if c.printed.metric == metric]
        return claim

    assert came(8, 0.3).measured == pytest.approx(300)
    assert came(0.8, 0.65).here == "not measured: the run of 0.8 s, with a median of 0.65 s, has not settled"
    assert came(8, 0.1, timeout_ms=100).measured == pytest.approx(0.1)
    assert came(1, 0.01, timeout_ms=100).measured is None, "10 time-outs"


def test_throughput_is_not_that_of_events_which_came_at_a_rate() -> None:
    def at(us: float, timeout_ms: int, **more: Any) -> dict[str, Any]:
        options = {"variant": "hybrid", "launch": 1, "timeout_ms": timeout_ms}
        return record(
            "tagmatch", us, "tagmatch", parameters={"tagmatch.timeout_ms": str(timeout_ms)}, engine_options=options, **more
        )

    found = [at(40, 0), at(50, 100), at(99, 100, rate=9000.0)]
    by_metric = {
        (c.printed.metric, c.printed.parameters.get("timeout_ms")): c
        for c in claims(EXPERIMENTS["tagmatch-figure-6"], found)
    }
    assert by_metric["throughput", 100].measured == pytest.approx(20_000)
    assert by_metric["throughput_loss", 100].measured == pytest.approx(20)
    (came, *_) = [c for c in claims(EXPERIMENTS["tagmatch-figure-6"], found[2:]) if c.printed.metric == "throughput"]
    assert came.here == "not measured: events came at a rate"


def test_a_load_is_a_share_of_what_is_served_and_lasts_twenty_time_outs() -> None:
    sweep = Sweep("tagmatch", ("tagmatch",), (Axis.of("tagmatch.timeout_ms=0,100,300"),), {"tagmatch.variant": "cpu"})
    values = {"tagmatch.variant": "cpu", "tagmatch.timeout_ms": "0"}
    served = [record("tagmatch", us, "tagmatch", parameters=values) for us in (50, 40, 60)]
    with_rate = with_load(
        sweep, 0.8, [*served, record("tagmatch", 1, "tagmatch", parameters=values, rate=5.0)], ExperimentPlan()
    )
    assert with_rate.options.rate == 16_000
    assert with_rate.options.n_events == 20 * 0.3 * 16_000 <= 100_000 or with_rate.options.n_events == sweep.options.n_events


def test_a_value_is_looked_for_at_its_point() -> None:
    records = [record("sff", us, parameters={"names": str(names)}) for names, us in ((10, 5), (1000, 30))]
    records += [record("ccm", us, parameters={"names": str(names)}) for names, us in ((10, 5), (1000, 10))]
    assert claim_of("ccm-figure-10", records, "CCM", "speedup", names=1000).measured == pytest.approx(3)
    missing_one = claim_of("ccm-figure-10", [records[0], records[2]], "CCM", "speedup", names=1000)
    assert (missing_one.measured, missing_one.here) == (None, "no such point here; the nearest is names 10: 1 x")
    scaled = [record(e, us, parameters={"filters_per_interface": "2500"}, scale=0.01) for e, us in (("sff", 60), ("ccm", 4))]
    (large,) = [
        each
        for each in claims(EXPERIMENTS["ccm-figure-8"], scaled)
        if each.printed.metric == "speedup" and each.printed.parameters == {"filters_per_interface": 250000}
    ]
    assert large.measured == pytest.approx(15), "a hundredth of the filters, of both"


def test_a_range_has_the_least_and_the_most_of_its_points() -> None:
    def here(engine: str, us: float, filters: str, interfaces: str = "10") -> dict[str, Any]:
        return record(engine, us, parameters={"filters_per_interface": filters, "interfaces": interfaces})

    sizes = [here(*each) for each in (("sff", 60, "250"), ("sff", 80, "500"), ("sff", 90, "1000"), ("ccm", 40, "250"))]
    sizes += [here("ccm", 50, "500"), here("ccm", 1, "1000"), here("keyed", 20, "250")]
    small = [c for c in claims(EXPERIMENTS["ccm-figure-8"], sizes) if c.printed.parameters == {PER_INTERFACE: "<1000"}]
    assert [c.printed.metric for c in small] == ["speedup", "processing_time"]
    assert small[0].measured == pytest.approx((1.5, 1.6))
    assert small[1].measured == pytest.approx((0.04, 0.08)), "of both engines"
    assert small[0].ours == {"keyed": pytest.approx(3)}, "a single point is a number"
    assert small[0].here == "1.5 to 1.6"
    scaled = [{**each, "scale": 0.5} for each in sizes]  # 500 are 1000 of the paper's
    (speedup, _) = [
        c for c in claims(EXPERIMENTS["ccm-figure-8"], scaled) if c.printed.parameters == {PER_INTERFACE: "<1000"}
    ]
    assert speedup.measured == pytest.approx(1.5)
    many = [
        here(e, us, "25000", n) for n, e, us in (("10", "sff", 6), ("10", "ccm", 3), ("100", "sff", 8), ("100", "ccm", 2))
    ]
    beyond = [here("sff", 90, "25000", "1000"), here("ccm", 1, "25000", "1000")]
    found = claim_of("ccm-figure-9", many + beyond, "CCM", "speedup", interfaces=[10, 100])
    assert found.measured == pytest.approx((2, 4))


def test_a_printed_place_is_that_of_the_measured_curve() -> None:
    def blocks(*times: tuple[int, float]) -> dict[str, Claim]:
        chosen = {"technique": "se-cp", "synchronization": "lock"}
        found = [
            record("twophase", us, "debs2009-blocks", parameters={"twophase.access_block": str(n)}, engine_options=chosen)
            for n, us in times
        ]
        return {claim.printed.metric: claim for claim in claims(EXPERIMENTS["farroukh-figure-13"], found)}

    found = blocks((1, 90), (5, 60), (12, 52), (50, 50), (200, 54), (500, 56), (1430, 70))
    places = {metric: claim.measured for metric, claim in found.items()}
    assert places == {"best_block_size": 50, "good_block_sizes": (12, 200), "too_small": 5, "too_large": 500}
    assert found["too_small"].here == "5 (the largest below those within 10% of the best, 7 of 13 points measured)"
    assert blocks((1, 50), (1430, 90))["too_small"].measured is None, "none is"
    assert blocks((1, 50), (1430, 90))["best_block_size"].here == "1 (at an end of the axis, 2 of 13 points measured)"
    assert blocks((1, 50), (5, 90))["best_block_size"].here == "not measured: access_block 1 to 5 of 1 to 1,430"
    assert blocks((1, 50))["best_block_size"].measured is None, "one point is no curve"
    names = [
        record(e, us, parameters={"names": n}) for n, e, us in (("10", "sff", 20), ("10", "ccm", 10), ("30", "sff", 90))
    ]
    names += [record("ccm", 30, parameters={"names": "30"}), record("keyed", 1, parameters={"names": "10"})]
    names += [record(engine, 9, parameters={"names": "1000"}) for engine in ("sff", "ccm")]
    assert claim_of("ccm-figure-10", names, "CCM", "names_of_highest_speedup").measured == 30
    alone = [
        record("twophase", us, "debs2009", parameters={"threads": n}, engine_options={"technique": "se-cp"})
        for n, us in (("1", 90), ("4", 42), ("8", 40))
    ]
    assert claim_of("farroukh-figure-7", alone, "SE-CP", "useful_threads").measured == 4
    areas = [
        record(e, us, "clcb", parameters={"interfaces": str(n), "place_exponent": "0"})
        for n, rtree, clcb in ((100, 9, 8), (1000, 9, 20), (10_000, 30, 20), (1_000_000, 90, 20))
        for e, us in (("rtree", rtree), ("clcb", clcb))
    ]
    even = [c for c in claims(EXPERIMENTS["clcb-figure-3"], areas) if c.printed.metric == "break_even"]
    assert [c.measured for c in even] == [10_000], "at 1,000 it is slower again"


def test_phases_memory_variants_and_scenarios_have_their_quantities() -> None:
    phases = {"copy in": 0.002, "Loc": 0.005, "copy out": 0.001}
    timed = [
        record("clcb", 9, scenario, steps_s=steps, n_interfaces=n)
        for scenario, steps, n in (("clcb", phases, 1), ("clcb-hard", {**phases, "copy out": 0.004}, 1_000_000))
    ]
    found = {claim.printed.metric: claim for claim in claims(EXPERIMENTS["clcb-figure-6"], timed)}
    assert found["copy_time"].measured == pytest.approx(0.03), "of the first scenario"
    assert found["copy_results_time"].measured == pytest.approx(0.04), "of the other one"
    fewer = claims(EXPERIMENTS["clcb-figure-6"], [timed[0], {**timed[1], "n_interfaces": 250_000}])
    assert [c.here for c in fewer if c.measured is None] == [
        "no such point here; the nearest is interfaces 250,000: 0.04 ms"
    ], "what does not vary must be as printed, too"
    (memory,) = claims(EXPERIMENTS["clcb-figure-7"], [record("clcb", 9, "clcb", n_filters=100_000)])
    assert memory.measured == pytest.approx(20e6)
    variants = [
        record("ccm", us, engine_options={"reset": reset}, steps_s={"copy in": 0.001, "kernel": 0.003})
        for reset, us in (("memset", 10), ("kernel", 7))
    ]
    assert claims_by_metric("ccm-figure-5", variants)["gain_of_reset_in_kernel"].measured == pytest.approx(30)
    assert claims_by_metric("ccm-figure-5", variants)["copy_share"].measured == pytest.approx(25)
    other = claims_by_metric("tagmatch-figure-10", [record("tagmatch", 9, "tagmatch", parameters={"filters": "1000000"})])
    assert other["query_time"].why == "no MongoDB 3.2.10 here", "whatever the points"
    few = {"place_exponent": "1", "area": "0.01", "interfaces": "1000"}
    near = [record(e, us, "clcb", parameters=few) for e, us in (("clcb", 2), ("rtree", 9))]
    shown = [c.here for c in claims(EXPERIMENTS["clcb-figure-4"], near) if c.printed.parameters.get("area") == 1]
    assert shown == ["no such point here; the nearest is interfaces 1,000: 4.5 x"]


def test_a_share_of_the_database_is_about_as_many_sets() -> None:
    def here(filters: int, us: float, launch: int = 1) -> dict[str, Any]:
        options = {"variant": "hybrid", "launch": launch}
        return record("tagmatch", us, "tagmatch", parameters={"filters": str(filters)}, engine_options=options)

    tenths = [here(20_000_000, 5), here(40_000_000, 10), here(20_000_000, 2, launch=64)]
    assert (
        claim_of("tagmatch-table-3", tenths, "TagMatch", "throughput", share_of_database=10, operation="match").measured
        == 200
    )
    assert (
        claim_of("tagmatch-table-3", tenths, "TagMatch", "throughput", share_of_database=20, operation="match").measured
        == 100
    )
    beside = claim_of("tagmatch-table-3", tenths, "TagMatch", "throughput", share_of_database=10, operation="match").ours
    assert beside == {"tagmatch launch=64": 500}
    (fifth, _) = [
        c
        for c in claims(EXPERIMENTS["tagmatch-figure-4"], [here(42_400_000, 8), here(84_800_000, 20)])
        if c.printed.parameters.get("share_of_database") == 20 and c.printed.subject == "TagMatch"
    ]
    assert fifth.measured == 125_000


def test_both_operations_are_measured_where_sets_have_several_keys() -> None:
    options = {"variant": "hybrid", "launch": 1}

    def keys(operation: str, sets: int, us: float) -> dict[str, Any]:
        given = {"operation": operation, "sets": str(sets)}
        return record("tagmatch", us, "tagmatch-keys", parameters=given, engine_options=options)

    old = record("tagmatch", 9, "tagmatch", parameters={"filters": "20000000"}, engine_options=options)
    tree = {**old, "engine_options": {"variant": "prefix-tree"}, "us_per_event": 100, "events_per_s": 10_000}
    found = [old, tree, keys("match", 20_000_000, 4), keys("match-unique", 20_000_000, 5), keys("match", 40_000_000, 8)]

    def shown(subject: str, operation: str, share: int = 10) -> object:
        return claim_of(
            "tagmatch-table-3", found, subject, "throughput", share_of_database=share, operation=operation
        ).measured

    assert (shown("TagMatch", "match"), shown("TagMatch", "match-unique")) == (250, 200)
    assert (shown("TagMatch", "match", 20), shown("TagMatch", "match-unique", 20)) == (125, None)
    assert shown("Prefix tree", "match") == shown("Prefix tree", "match-unique") == 10
    ten = [{**each, "matches_per_event": 10} if each["scenario"] == "tagmatch-keys" else each for each in found]
    of = {each.printed.subject: each.why for each in claims(EXPERIMENTS["tagmatch-table-3"], ten) if each.measured}
    both = [keys("match", 212_000_000, 100), keys("match-unique", 212_000_000, 300)]
    trees = [{**each, "engine_options": tree["engine_options"]} for each in both]
    of_tree = [c for c in claims(EXPERIMENTS["tagmatch-figure-4"], trees) if c.printed.subject == "prefix tree"]
    assert [claim.measured for claim in of_tree] == [pytest.approx((1e4 + 1e4 / 3) / 2), None]
    assert (of["TagMatch"], of["Prefix tree"]) == ("10 answers a query", "0.5 answers a query"), "another workload is told"


def test_a_value_of_several_seeds_is_their_median_with_its_interval() -> None:
    def of_seeds(engine: str, *us: float) -> list[dict[str, Any]]:
        return [record(engine, each, seed=seed, encode_s=0.0) for seed, each in enumerate(us)]

    found = [*of_seeds("ccm", 20, 10, 40), *of_seeds("sff", 100, 110, 120)]
    assert [claim.here for claim in _default(found, "processing_time", "CCM")] == ["0.02 (0.01 to 0.04 over 3 seeds)"]
    assert [claim.here for claim in _default(found, "speedup", "CCM")] == ["5.5 (3 to 11 over 3 seeds)"]
    assert [claim.here for claim in _default(found[:1], "processing_time", "CCM")] == ["0.02"]
    assert len({shown_at(each) for each in found}) == 6, "a seed hides another"


def _default(found: list[dict[str, Any]], metric: str, subject: str) -> list[Claim]:
    """What is claimed of CCM's default scenario, in the first place."""
    mine = [
        c for c in claims(EXPERIMENTS["ccm-table-2"], found) if (c.printed.metric, c.printed.subject) == (metric, subject)
    ]
    return [claim for claim in mine if claim.measured is not None][:1]


def test_a_ratio_may_be_to_a_variant_of_the_same_engine() -> None:
    variants = (("hybrid", 20), ("prefix-tree", 300))
    found = [record("tagmatch", us, "tagmatch", engine_options={"variant": each, "launch": 1}) for each, us in variants]
    assert claims_by_metric("tagmatch-figure-2", found)["speedup"].measured == 15
    assert claims_by_metric("tagmatch-figure-2", found[:1])["speedup"].why == "no prefix tree here"


def claims_by_metric(name: str, records: list[dict[str, Any]]) -> dict[str, Claim]:
    return {claim.printed.metric: claim for claim in claims(EXPERIMENTS[name], records)}


def test_options_zipf_locations_shares_and_phases_are_told_apart() -> None:
    zipf = {"name_exponent": CCM_ZIPF}
    records = [
        record("ccm", 7, parameters={"name_exponent": "0"}),
        record("ccm", 20, parameters={**zipf, "ccm.order": "sorted"}, engine_options={"order": "sorted"}),
        record("ccm", 40, parameters={**zipf, "ccm.order": "given"}, engine_options={"order": "given"}),
    ]
    unsorted = claim_of("ccm-table-2", records, "CCM unsorted constraints", "processing_time")
    assert unsorted.measured == pytest.approx(0.04)
    last, first = ({"area": each} for each in ("last", "constraints"))
    located = [
        *(record("sff", us, "clcb", parameters={"area": area}) for area, us in (("0", 10), ("0.0001", 12))),
        record("sff", 80, "clcb", parameters={"area": "0.0001", "sff.area": "constraints"}, engine_options=first),
        record("betree", 15, "clcb", parameters={"area": "0.0001"}, engine_options=last),
        record("clcb", 4, "clcb", parameters={"area": "0.0001"}),
    ]
    assert claim_of("clcb-table-2", located, "SFF", "slowdown_by_location").measured == pytest.approx(8)
    of_clcb = claims(EXPERIMENTS["clcb-table-2"], located)
    of_baselines = {c.printed.baseline: c.measured for c in of_clcb if c.printed.metric == "speedup"}
    assert of_baselines == {"SFF": pytest.approx(20), "BETree": None}
    of_betree = claim_of("clcb-table-2", located, "BETree", "processing_time", location=True)
    assert of_betree.here == "not run with area=constraints", "the paper has areas as constraints"
    assert claim_of("clcb-table-2", located, "SFF", "processing_time", location=True).measured == pytest.approx(0.08)
    fast = [record("keyed", us, "clcb", parameters={"area": area}) for area, us in (("0", 10), ("0.0001", 4))]
    speedups = [c for c in claims(EXPERIMENTS["clcb-table-2"], located + fast) if c.printed.metric == "speedup"]
    assert speedups[0].ours == {"keyed": pytest.approx(20)}, "with locations, as the scenario has them"
    share = [record("keyed", 1, parameters={"string_share": "0"}), record("keyed", 1, parameters={"string_share": "1"})]
    selected = {
        each.printed.parameters["numerical_share"]: each.measured for each in claims(EXPERIMENTS["ccm-figure-11"], share)[:2]
    }
    assert selected == {0: 5.0, 100: 5.0}
    phases = {"copy in": 0.001, "reset": 0.002, "kernel": 0.005, "copy out": 0.001}
    timed = [record("ccm", 9, engine_options={"reset": reset}, steps_s=phases) for reset in ("memset", "kernel")]
    assert claim_of("ccm-figure-5", timed, "CCM Memset", "kernel_time").measured == pytest.approx(0.05)
    assert claim_of("ccm-figure-5", timed, "CCM Kernel", "copy_input_time").measured == pytest.approx(0.03)


def test_techniques_threads_and_changes_of_the_two_phase_matcher() -> None:
    def here(us: float, technique: str, way: str = "lock", **values: str) -> dict[str, Any]:
        chosen = {"technique": technique, "synchronization": way, "group": int(values.get("twophase.group", "2"))}
        return record("twophase", us, "debs2009", parameters=values, engine_options=chosen)

    alone = [here(us, "me-ip", threads=threads) for threads, us in (("1", 2000), ("2", 1250), ("8", 500))]
    assert claim_of("farroukh-figure-5", alone, "ME-IP", "throughput", threads=1).measured == pytest.approx(500)
    (static,) = [c for c in claims(EXPERIMENTS["farroukh-figure-5"], alone) if c.printed.subject == "ME-IP static"]
    assert (static.measured, static.why) == (None, "not run with synchronization=static")
    together = [here(us, "se-cp", threads=threads) for threads, us in (("1", 2000), ("2", 1500), ("8", 500))]
    (reduced,) = [
        c for c in claims(EXPERIMENTS["farroukh-figure-7"], together) if c.printed.metric == "matching_time_reduction"
    ]
    assert reduced.printed.value == 78
    assert reduced.measured == pytest.approx(75)
    groups = [here(us, "me-cp", **{"twophase.group": group, "threads": "8"}) for group, us in (("1", 250), ("8", 500))]
    assert claim_of("farroukh-figure-11", groups, "Hybrid lock-based", "throughput").measured == pytest.approx(4000)
    timed = [{**here(50, "se-cp", threads="8"), "steps_s": {"phase 1": 0.002, "waiting": 1.0, "phase 2": 0.003}}]
    assert claim_of("farroukh-figure-9", timed, "SE-CP lock-based", "phase1_time").measured == pytest.approx(0.02)
    grown = [
        here(us, "se-cp", filters=filters, threads=threads)
        for filters, threads, us in (
            ("1000000", "1", 10),
            ("5000000", "1", 20),
            ("1000000", "8", 5),
            ("5000000", "8", 15),
            ("2000000", "8", 9),
        )
    ]
    growth = {c.printed.subject: c.measured for c in claims(EXPERIMENTS["farroukh-figure-15"], grown)}
    assert growth == {"SE-CP": pytest.approx(3), "centralized": pytest.approx(2)}
    (half, _) = claims(EXPERIMENTS["farroukh-figure-15"], grown[2:])
    assert half.measured == pytest.approx(3)
    (half, _) = claims(EXPERIMENTS["farroukh-figure-15"], grown[3:])
    assert half.here == "not measured: filters 2,000,000 to 5,000,000 of 1,000,000 to 5,000,000"
    merged = [{**each, "engine_options": {**each["engine_options"], "merge": "local"}} for each in grown]
    merged = [{**each, "us_per_event": each["us_per_event"] * (1 + (each["us_per_event"] == 15))} for each in merged]
    (collaborative, _) = claims(EXPERIMENTS["farroukh-figure-15"], grown + merged)
    assert collaborative.measured == pytest.approx(3), "an option that is younger than a record has its default there"
    assert collaborative.ours == {"merged vectors": pytest.approx(6)}


def test_gains_of_variants_that_the_papers_print() -> None:
    def here(engine: str, us: float, scenario: str, **options: object) -> dict[str, Any]:
        return record(engine, us, scenario, engine_options=options)

    inputs = [here("ccm", us, "ccm-strings", input=where) for where, us in (("shared", 97), ("global", 100))]
    (shared,) = claims(EXPERIMENTS["ccm-section-4.2"], inputs)
    assert shared.printed.value == [2, 3]
    assert shared.measured == pytest.approx(3)
    runs = [here("clcb", us, "clcb", runs=n, bloom_bits=32, bloom_hashes=2) for n, us in ((1, 100), (2, 90), (4, 75))]
    other = here("clcb", 10, "clcb", runs=4, bloom_bits=8, bloom_hashes=1)
    found = {claim.printed.metric: claim for claim in claims(EXPERIMENTS["clcb-section-4.3"], [*runs, other])}
    assert found["gain_of_four_runs_per_reset"].measured == pytest.approx(25)


def test_ccms_zipf_exponent_follows_from_its_longest_row() -> None:
    (longest,) = [each for each in printed() if each.metric == "longest_row"]
    share = 1 / sum(rank ** -float(CCM_ZIPF) for rank in range(1, 101))
    assert longest.value / 1_000_000 == pytest.approx(share, abs=0.02)


def test_points_of_smaller_tables_are_found() -> None:
    """Interfaces are fewer below scale 1, and the filters of each are not; half-sized groups of filters are."""
    few = {"place_exponent": "0", "area": "1e-05", "filters_per_interface": "10"}
    found = [
        record(e, us, "clcb", scale=0.01, parameters={**few, "interfaces": "10000"})
        for e, us in (("clcb", 10), ("rtree", 40))
    ]
    at = claim_of("clcb-figure-3", found, "CLCB", "speedup", area=0.001)
    assert at.measured == pytest.approx(4)
    assert shares(EXPERIMENTS["tagmatch-table-1"], ExperimentPlan(0.002)) == [pytest.approx(0.002 * 10 / 212)]
    assert shares(EXPERIMENTS["ccm-table-2"], ExperimentPlan(0.002)) == [0.002]


def test_the_matching_time_of_an_event_and_the_rate_of_matches_follow() -> None:
    def here(technique: str, group: int = 2, device: str = "cpu, 8 threads") -> float | None:
        options = {"technique": technique, "group": group}
        return quantity(record("twophase", 10, "debs2009", engine_options=options, device=device), "matching_us")

    assert [here("me-ip"), here("se-cp"), here("me-cp", 4), here("me-cp", 8)] == [80, 10, 20, 10]
    assert here("me-ip", device="cpu, 1 thread") == 10
    assert quantity(record("tagmatch", 10, "tagmatch"), "matches_per_s") == pytest.approx(50_000)
    assert EXPERIMENTS["farroukh-figure-6"].y == EXPERIMENTS["farroukh-figure-12"].y == "matching_us"
    assert EXPERIMENTS["tagmatch-figure-3"].y == "matches_per_s"
    assert EXPERIMENTS["clcb-figure-6"].x == "interfaces"


def test_what_another_experiment_measured_is_not_measured_again(tmp_path: Path) -> None:
    plan = ExperimentPlan(0.0005, repetitions=1)
    first = EXPERIMENTS["ccm-figure-11"]
    same = first._replace(name="ccm-figure-10")
    measured_before = run(first, plan, tmp_path / "ccm-figure-11.jsonl", lambda text: None)
    told: list[str] = []
    found = run(same, plan, tmp_path / "ccm-figure-10.jsonl", told.append)
    assert told
    assert all(line.endswith("is there already") for line in told)
    assert [{**r, "experiment": "ccm-figure-11"} for r in found] == measured_before
    assert {r["experiment"] for r in read_json(tmp_path / "ccm-figure-10.jsonl")} == {"ccm-figure-10"}


def test_an_engine_may_be_measured_alone_with_fewer_events(tmp_path: Path) -> None:
    path, experiment = tmp_path / "ccm-figure-11.jsonl", EXPERIMENTS["ccm-figure-11"]
    plan = ExperimentPlan(0.0005, repetitions=1, only={"string_share": ("0",)})
    (baseline,) = run(experiment, plan._replace(engines=("sff",)), path, lambda text: None)
    ours = run(experiment, plan._replace(engines=("keyed",), events=7), path, lambda text: None)
    assert [(r["engine"], r["n_events"]) for r in ours] == [("keyed", 7)]
    assert "ratio" not in ours[0], "it is to the first engine, which was not there"
    assert with_earlier(ours, path) == [*ours, baseline], "a figure has what was measured before"
    append_json(path, [{**baseline, "commit": "another"}, {**baseline, "scale": 0.5}])
    assert with_earlier(ours, path) == [*ours, baseline]
    assert list(sweeps(experiment, plan._replace(engines=("betree",)))) == []


@pytest.mark.parametrize(
    ("only", "left"),
    [
        ({"tagmatch.variant": ("hybrid",)}, ["hybrid"] * 2 + ["hybrid 64"] * 2 + ["hybrid"] * 4 + ["hybrid 64"] * 4),
        ({"tagmatch.variant": ("prefix-tree",)}, ["prefix-tree"] * 6),
        ({"tagmatch.launch": ("64",), "filters": ("20000000",)}, ["hybrid 64"]),
        (
            {"tagmatch.max_p": ("200000",), "tagmatch.launch": ("1",)},
            ["hybrid"] * 2 + ["prefix-tree"] * 2 + ["hybrid"] * 4 + ["prefix-tree"] * 4,
        ),
        ({"names": ("200000",), "filters": ("40000000",)}, ["hybrid", "hybrid 64", "prefix-tree"]),
        ({"names": ("10",)}, []),
    ],
)
def test_only_goes_by_what_a_run_does_not_vary_too(
    only: dict[str, tuple[str, ...]], left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "missing", lambda engines, given=None: {})
    points = [
        point for sweep in sweeps(EXPERIMENTS["tagmatch-table-3"], ExperimentPlan(only=only)) for point in sweep.points()
    ]
    options = [read_options("tagmatch", point.options.engine_options) for point in points]
    assert [f"{each['variant']} {each['launch']}".removesuffix(" 1") for each in options] == left


@EVERY
def test_every_printed_result_is_shown(experiment: Experiment) -> None:
    if experiment.runs:
        shown = "\n".join(table(experiment, []))
        assert all(each.text in shown for each in of_experiment(experiment) if each.kind == "result")


def test_an_experiment_is_run_with_what_this_machine_has_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    path, plan = tmp_path / "ccm-figure-10.jsonl", ExperimentPlan(0.0005, repetitions=1)
    told: list[str] = []
    found = run(EXPERIMENTS["ccm-figure-10"], plan, path, told.append)
    able = [name for name in EXPERIMENTS["ccm-figure-10"].runs[0].engines if name not in missing([name])]
    assert [(r["parameters"]["names"], r["engine"]) for r in found[: len(able)]] == [("10", name) for name in able]
    assert len(found) == 8 * len(able)
    assert all(r["checked"] and r["experiment"] == "ccm-figure-10" and r["n_filters"] == 125 for r in found)
    assert read_json(path) == found
    path.write_text("\n".join(path.read_text().splitlines()[: 3 * len(able)]) + "\n")
    told.clear()
    again = run(EXPERIMENTS["ccm-figure-10"], plan, path, told.append)
    of_points = [line for line in told if not line.startswith("  ")]
    assert [line.endswith("is there already") for line in of_points] == [True] * 3 + [False] * 5
    assert len(again) == len(read_json(path)) == 8 * len(able)


def test_what_needs_a_gpu_is_not_run_without_one_nor_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = importlib.import_module("mpi_match.gpu.driver")  # numba-cuda is among what tests need

    def no_gpu() -> None:
        raise EngineError("no GPU is visible; use --engine keyed")

    monkeypatch.setattr(presence, "require_driver", lambda: None)
    monkeypatch.setattr(driver, "visible_gpus", no_gpu)
    assert missing(["ccm", "keyed", "unheard-of"]) == {"ccm": "no GPU is visible", "unheard-of": "no engine of this version"}
    assert missing(["tagmatch"], {"tagmatch.variant": "hybrid"}) == {"tagmatch": "no GPU is visible"}
    assert missing(["tagmatch"], {"tagmatch.variant": "cpu", "threads": "4"}) == {}
    assert list(not_run(EXPERIMENTS["tagmatch-figure-2"])) == [
        "tagmatch is run with tagmatch.variant=prefix-tree only: no GPU is visible"
    ]
    assert list(not_run(EXPERIMENTS["ccm-figure-5"])) == ["ccm is not run: no GPU is visible"]
    monkeypatch.setattr(driver, "visible_gpus", list)
    monkeypatch.setattr(driver, "simulated", True)
    assert missing(["ccm"]) == {"ccm": "the CUDA simulator measures nothing"}
    monkeypatch.setattr(driver, "simulated", False)
    assert missing(["ccm"]) == {}
    monkeypatch.setattr(running, "missing", lambda engines, *_: dict.fromkeys(engines, "no"))
    assert list(sweeps(EXPERIMENTS["ccm-figure-5"], ExperimentPlan())) == []


MPI_CUDA = EXPERIMENTS["mpi-cuda-figure-3"]


def test_workers_are_as_many_as_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    (runs,) = MPI_CUDA.ranks
    monkeypatch.setattr(running, "missing", lambda *_: {})
    monkeypatch.setattr(running, "gpus", lambda: 2)
    points = list(rank_points(runs, ExperimentPlan(0.1)))
    assert [point.values["attributes"] for point in points] == [str(n) for n in range(1, 11)]
    assert points[0].scaling.workers == (1, 2)
    assert (points[0].scaling.batch, points[0].scaling.n_filters, points[0].scaling.n_events) == (1, 25_000, 20_000)
    assert points[0].scaling.how == ("--engine", "ccm", "--credits", "1", "--feed", "master", "--set", "phases=3")
    (of_events,) = EXPERIMENTS["mpi-cuda-figure-4"].ranks
    assert [p.scaling.n_events for p in rank_points(of_events, ExperimentPlan())] == [100_000 * n for n in range(1, 6)]
    (few,) = rank_points(of_events, ExperimentPlan(only={"events": ("100000",)}, events=300))
    assert few.scaling.n_events == 100_000, "what is varied is not cut"
    assert next(rank_points(runs, ExperimentPlan(events=300))).scaling.n_events == 300
    assert list(rank_points(runs, ExperimentPlan(engines=("keyed",)))) == []
    monkeypatch.setattr(running, "gpus", lambda: 0)
    assert list(rank_points(runs, ExperimentPlan())) == []
    monkeypatch.setattr(running, "missing", lambda *_: {"ccm": "no GPU"})
    assert list(rank_points(runs, ExperimentPlan())) == []


def test_runs_with_ranks_are_measured_once_and_set_beside_the_engine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_up(plan: ScalingPlan, directory: Path) -> list[dict[str, Any]]:
        asked.append(dict(plan.parameters))
        warm.append(plan.warm_up)
        rates = {1: 5_000.0, 2: 8_000.0}
        return [
            {
                "scenario": "ccm",
                "workers": workers,
                "n_events": plan.n_events,
                "events_per_s": {"median": rates[workers], "min": rates[workers] / 2, "max": rates[workers] * 2},
                "matches": 7,
                "speed_up": rates[workers] / rates[1],
            }
            for workers in plan.workers
        ]

    asked: list[dict[str, str]] = []
    warm: list[bool] = []
    monkeypatch.setattr(running, "scale", made_up)
    monkeypatch.setattr(running, "missing", lambda *_: {})
    monkeypatch.setattr(running, "gpus", lambda: 2)
    experiment = MPI_CUDA._replace(runs=())
    found = run(experiment, ExperimentPlan(), tmp_path / "figure.jsonl", lambda text: None)
    assert asked == [{"attributes": str(n)} for n in range(1, 11)]
    assert warm == [True] + 9 * [False], "the first has compiled what the others need"
    assert [(r["parameters"], r["us_per_event"]) for r in found[:2]] == [
        ({"attributes": "1", "workers": "1"}, 200.0),
        ({"attributes": "1", "workers": "2"}, 125.0),
    ]
    assert measured(found[:1], "us_per_event") == (None, 200.0, 100.0, 400.0)
    assert run(experiment, ExperimentPlan(), tmp_path / "figure.jsonl", lambda text: None) == found
    assert len(asked) == 10, "what is in the file is not measured again"
    with_seeds = run(experiment, ExperimentPlan(seeds=2), tmp_path / "figure.jsonl", lambda text: None)
    assert [(r["parameters"]["attributes"], r["seed"]) for r in with_seeds[:4:2]] == [("1", 0), ("1", 1)]
    assert len(asked) == 20, "the other seed of each point"
    alone = [
        record("ccm", 500 if n == 10 else 250, "ccm", parameters={"ccm.phases": "3", "attributes": str(n)})
        for n in range(1, 11)
    ]
    by_size = [claim_of("mpi-cuda-figure-3", [*alone, *found], "MPI-CUDA", "speedup", attributes=n) for n in ("few", "many")]
    assert [c.measured for c in by_size] == pytest.approx([1.6, 1.6]), "one against two workers"
    mean = next(c for c in claims(MPI_CUDA, [*alone, *found]) if c.printed.metric == "speedup_mean")
    assert mean.measured == pytest.approx(1.6)
    assert mean.why == "1.6 at its points, with 2 workers"
    (printed_mpi,) = [c for c in claims(EXPERIMENTS["mpi-cuda-table-2"], found[:2]) if c.printed.subject == "MPI-CUDA"]
    assert printed_mpi.measured == pytest.approx(0.125), "the most workers"
