"""Sweeps: every combination once, checked before the first, resumed where they ended; their tables, figures, comparison."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_match.errors import OptionError
from mpi_match.lab.bench import report, sweep
from mpi_match.lab.bench.comparison import comparison_table, verdict
from mpi_match.lab.bench.engines import BenchOptions, WrongAnswer
from mpi_match.lab.bench.sweep import Axis, Sweep
from mpi_match.lab.bench.sweep_report import Measured, draw, draw_steps, lines, sweep_table, told_apart_by
from mpi_match.lab.bench.workload import KeptWorkloads, Workload
from mpi_match.lab.workloads.parameters import with_parameters
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.storage import StorageError

QUICK = BenchOptions(n_filters=60, n_events=20, batch=8, repetitions=1, check=1)
NAMES = Axis("names", ("10", "20"))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("names=10,20", ("10", "20")),
        ("names=1..4", ("1", "2", "3", "4")),
        ("names=0..10..5,12", ("0", "5", "10", "12")),
        ("attributes=3-5,8-10", ("3-5", "8-10")),
        ("ccm.reset=kernel,memset", ("kernel", "memset")),
        ("number_operators==/!=", ("=/!=",)),
    ],
)
def test_values_of_an_axis(text: str, values: tuple[str, ...]) -> None:
    assert Axis.of(text) == (text.partition("=")[0], values)


@pytest.mark.parametrize(
    "text", ["names", "names=", "=3", "names=1,,2", "names=3..1", "names=1..5..0", "names=0..99999", "a=1,1"]
)
def test_an_axis_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        Axis.of(text)


def test_variants_that_are_measured_one_after_the_other_must_agree() -> None:
    """The points differ in a parameter of the measurement; the second one's answers are others."""
    plan = Sweep("ccm-10-names", ("counting",), (Axis("batch", ("4", "8")),), None, QUICK)
    first, second = (record for records in plan.run() for record in records)
    assert first["answers_digest"] == second["answers_digest"]
    wrong = {**second, "answers_digest": "0"}
    sweep.check_agreement([first, {**wrong, "seed": 1}, second])
    with pytest.raises(WrongAnswer, match="answer the same 20 events of ccm-10-names differently"):
        sweep.check_agreement([first, wrong])
    with pytest.raises(WrongAnswer, match="batch"):  # also one that a file has already
        list(plan.run([wrong]))


def test_workloads_are_kept_up_to_a_number_of_bytes() -> None:
    few, more, most = (SCENARIOS["ccm"].scaled(n) for n in (60, 90, 5_000))
    one_at_a_time, several = KeptWorkloads(), KeptWorkloads(100_000)
    for kept, same in ((one_at_a_time, False), (several, True)):
        first = kept.of(few, 5, 0)
        assert kept.of(few, 5, 0) is first
        assert kept.of(few, 5, 1) is not first
        assert kept.of(more, 5, 0).table.n_filters == 90
        assert (kept.of(few, 5, 0) is first) == same
    assert several.of(most, 5, 0).table.nbytes > 100_000
    assert several.of(few, 5, 0) is first, "what was there is dropped before the next one is made, not after it"
    assert several.of(most, 5, 0) is several.of(most, 5, 0)
    several.of(more, 5, 1)
    assert several.of(few, 5, 0) is not first


@pytest.mark.parametrize(
    ("scenario", "events", "same"),
    [
        ("ccm", {"attributes": "8"}, True),
        ("clcb", {"attributes": "2"}, True),
        ("tagmatch", {"extra_tags": "7"}, True),
        ("ccm", {"names": "50"}, False),
        ("tagmatch", {"constraints": "2"}, False),
        ("ccm-original", {"attributes": "2"}, False),
    ],
)
def test_a_workload_with_other_events_has_the_table_of_a_kept_one(scenario: str, events: dict[str, str], same: bool) -> None:
    own = {"filters": "600"} if scenario != "ccm-original" else {"filters": "600", "interfaces": "10"}
    one, other = (with_parameters(SCENARIOS[scenario], own | more) for more in ({}, events))
    kept = KeptWorkloads()
    first = kept.of(one, 20, 0)
    assert (kept.table_of(other, 20, 0) is first.table) == same
    assert kept.table_of(other, 20, 1) is None
    found, alone = kept.of(other, 20, 0), Workload.of(other, 20, 0)
    assert (found.table is first.table) == same
    assert found.table.digest == alone.table.digest
    assert np.array_equal(found.events.attributes, alone.events.attributes)
    assert not np.array_equal(found.events.attributes, first.events.attributes)


def test_an_index_is_built_again_only_for_another_table_or_other_options() -> None:
    options = replace(QUICK, n_filters=600)
    axes = ("names=10,12", "sff.rounds=0,10", "attributes=3,5", "batch=4,60")
    plan = Sweep("ccm", ("sff", "keyed"), tuple(map(Axis.of, axes)), options=options)
    told: list[str] = []
    found = [record for records in plan.run(tell=told.append) for record in records]
    assert len(found) == 32
    assert [line.strip() for line in told if "index" in line] == ["sff: index", "keyed: index", "sff: index"] * 2
    alone = {}
    for names, attributes in itertools.product(("10", "12"), ("3", "5")):
        point = (Axis("names", (names,)), Axis("attributes", (attributes,)))
        ((record,),) = Sweep("ccm", ("counting",), point, options=options).run()
        alone[names, attributes] = record["answers_digest"]
    assert len(set(alone.values())) == 4
    for record in found:
        assert record["answers_digest"] == alone[record["parameters"]["names"], record["parameters"]["attributes"]]


def test_every_combination_is_measured_with_every_engine_and_seed() -> None:
    plan = Sweep("ccm", ("counting", "reference"), (NAMES, Axis("batch", ("4", "16"))), {"constraints": "2"}, QUICK, seeds=2)
    told: list[str] = []
    found = [record for records in plan.run(tell=told.append) for record in records]
    seen = [(r["parameters"]["names"], r["batch"], r["seed"], r["engine"]) for r in found]
    assert seen == [
        (names, batch, seed, engine)
        for names in ("10", "20")
        for batch in (4, 16)
        for seed in (0, 1)
        for engine in ("counting", "reference")
    ]
    assert all(r["parameters"]["constraints"] == "2" and r["n_constraints"] == 2 * r["n_filters"] == 120 for r in found)
    assert told[0] == "1 of 8: ccm constraints=2 names=10 batch=4 seed=0"


@pytest.mark.parametrize(
    ("axes", "line"),
    [
        ([Axis("names", ("10", "2"))], "3 to 5 constraints of a filter do not fit 2 distinct names"),
        ([NAMES, Axis("constraints", ("3", "15"))], "do not fit 10 distinct names"),
        ([NAMES, NAMES], "'names' is given twice"),
        ([Axis("surnames", ("1",))], "unknown key 'surnames'. Keys of ccm: area,"),
        ([Axis("events", ("0",))], "events is '0'; it must be a whole number of at least 1"),
        ([Axis("ccm.reset", ("kernel",))], "'ccm.reset' belongs to an engine that is not used"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(axes: list[Axis], line: str) -> None:
    with pytest.raises(OptionError) as refused:
        next(Sweep("ccm", ("counting",), tuple(axes), options=QUICK).run())
    assert line in str(refused.value)


def test_options_of_engines_are_varied_too() -> None:
    plan = Sweep(
        "ccm", ("ccm",), (Axis("reset", ("kernel", "memset")), Axis("ccm.order", ("sorted", "given"))), options=QUICK
    )
    given = [dict(point.options.engine_options) for point in plan.points()]
    assert given[1] == {"reset": "kernel", "ccm.order": "given"}
    with pytest.raises(OptionError, match=r"reset is 'never'; it can be kernel\|memset"):
        Sweep("ccm", ("ccm",), (Axis("reset", ("never",)),), options=QUICK).points()


def test_a_sweep_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sweep.jsonl"
    plan = Sweep("ccm", ("counting",), (NAMES,), options=QUICK, seeds=2)
    for _, records in zip(range(3), plan.run(), strict=False):
        report.append_json(path, records)
    with path.open("ab") as file:
        file.write(b'{"scenario": "ccm", "engi')  # it was killed
    have = report.read_json(path)
    assert len(have) == 3
    told: list[str] = []
    rest = list(plan.run(have, told.append))
    assert [record["seed"] for (record,) in rest] == [1]
    assert [line.endswith("is there already") for line in told[:4]] == [True, True, True, False]
    assert told[4:] == ["  counting: index", "  counting: first of 1 run"], "what is measured is named before"
    for records in rest:
        report.append_json(path, records)
    assert len(report.read_json(path)) == 4
    assert plan.earlier(report.read_json(path)) == report.read_json(path)
    assert Sweep("ccm", ("counting",), (Axis("names", ("10", "30")),), options=QUICK).earlier(have) == have[:1]
    larger = replace(plan, options=replace(QUICK, n_filters=61))
    assert larger.earlier(have) == [], "a table of another size is another point"
    monkeypatch.setattr(sweep, "_made", lambda: {"commit": "another", "machine": {}})
    assert len(list(plan.run(have))) == 4, "results of another commit say nothing about this one"


def record(names: int, rate: float, engine: str = "keyed", seed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "scenario": "ccm",
        "parameters": {"names": str(names)},
        "engine": engine,
        "n_filters": 10,
        "n_events": 100,
        "batch": 8,
        "repetitions": 3,
        "seed": seed,
        "match_s": {"median": 1.0, "min": 0.5, "max": 2.0},
        "events_per_s": rate,
        "us_per_event": 1e6 / rate,
        "build_s": 0.5,
        "matches_per_event": 2.0,
        "ratio": 1.0,
        "machine": {"cpu": "a processor", "cores": 2, "gpus": []},
        "commit": "0123456789ab",
        "date": "2026-01-01",
        **more,
    }


def test_a_point_has_the_interval_of_its_seeds_or_of_its_repetitions() -> None:
    found = [record(10, 100), record(10, 300, seed=1), record(10, 200, seed=2), record(9, 50)]
    assert lines(found, "names") == {"keyed": [Measured(9, 50, 25, 100), Measured(10, 200, 100, 300)]}
    assert lines(found, "names", y="us_per_event")["keyed"][0] == Measured(9, 20_000, 10_000, 40_000)


def test_lines_are_told_apart_by_what_differs() -> None:
    found = [record(10, 100), record(10, 300, "ccm"), {**record(10, 9), "parameters": {"names": "10", "batch": "4"}}]
    assert told_apart_by(found, "names") == ["batch", "engine"]
    assert set(lines(found, "names", ["batch", "engine"])) == {"batch 8, keyed", "batch 8, ccm", "batch 4, keyed"}
    for key in ("nothing", "machine"):
        with pytest.raises(StorageError, match=f"no result has a value of {key!r}|a number"):
            lines(found, "names", y=key)
    with pytest.raises(StorageError, match="no result has a value of 'what'; they have: names,"):
        lines(found, "what")


def test_a_legend_says_an_option_once_and_nothing_that_all_have(tmp_path: Path) -> None:
    ways = ("static", "lock")
    found = [
        {
            **record(names, 9, "twophase"),
            "parameters": {"names": str(names), "twophase.synchronization": way},
            "engine_options": {"technique": "me-ip", "synchronization": way},
            "steps_s": {"phase 1": 1e-3, "waiting": 2e-3},
        }
        for names in (10, 20)
        for way in ways
    ]
    by = told_apart_by(found, "names")
    assert by == ["twophase.synchronization"], "there is one engine"
    assert set(lines(found, "names", by)) == {"synchronization static", "synchronization lock"}
    assert set(lines(found, "twophase.synchronization", ["engine"])) == {"twophase"}
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    draw_steps(found, tmp_path / "steps.svg")
    drawn = (tmp_path / "steps.svg").read_text(encoding="utf-8")
    assert all(
        f"<!-- {word} -->" in drawn
        for word in ("phase 1", "waiting", "time of an event (µs)", "names 10, synchronization lock")
    )
    with pytest.raises(StorageError, match="no result has times of phases"):
        draw_steps([record(10, 9)], tmp_path / "none.svg")
    shares = [{**record(10, rate), "parameters": {"share": share}} for share, rate in (("0", 9), ("0.5", 10))]
    draw(shares, tmp_path / "shares.svg", "share")
    drawn = (tmp_path / "shares.svg").read_text(encoding="utf-8")
    assert "<!-- 0.2 -->" in drawn, "not 200m"


def test_a_table_has_a_line_for_each_point_with_its_seeds_together() -> None:
    shown = sweep_table([record(10, 100), record(10, 300, seed=1), record(20, 50), record(20, 70, seed=1)]).splitlines()
    assert shown[1] == "# 100 events; 2 seeds (0, 1), 3 repetitions; intervals have all seeds"
    assert [line.split()[:6] for line in shown[-2:]] == [
        ["10", "keyed", "200", "100", "to", "300"],
        ["20", "keyed", "60", "50", "to", "70"],
    ]


def test_a_table_has_latencies_only_where_they_were_measured() -> None:
    timed = record(10, 100, latency_us={"p50": 1.25, "p99": 2.0, "p99.9": 3.0, "max": 4.0})
    shown = sweep_table([timed, record(20, 50)]).splitlines()
    assert [line.split()[-3:] for line in shown[-2:]] == [["1.2", "2.0", "3.0"], ["-", "-", "-"]]


def test_events_that_came_at_a_rate_have_a_line_of_their_own() -> None:
    timed = {**record(10, 80, latency_us={"p50": 1.25, "p99": 2.0, "p99.9": 3.0, "max": 4.0}), "rate": 75.0}
    shown = sweep_table([record(10, 100), timed]).splitlines()
    assert "Offered/s" in shown[-3]
    assert [line.split()[1:3] for line in shown[-2:]] == [["-", "100"], ["75", "80"]]


def test_a_figure_fits_a_paper(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    found = [record(names, 10.0 * names, engine) for names in (10, 20, 1000) for engine in ("keyed", "ccm")]
    for ending in ("svg", "pdf", "png"):
        draw(found, tmp_path / f"names.{ending}", "names")
    drawn = (tmp_path / "names.svg").read_text(encoding="utf-8")
    for word in (
        "keyed",
        "ccm",
        "names",
        "events per second",
        "100",
        "10k",
        "a processor, 2 cores",
        "commit 0123456789ab; 2026-01-01",
    ):
        assert f"<!-- {word} -->" in drawn, word
    document = (tmp_path / "names.pdf").read_bytes()
    assert b"/Type3" not in document, "publishers refuse fonts of type 3"
    assert b"/CIDFontType2" in document or b"/TrueType" in document
    assert b"pHYs" in (tmp_path / "names.png").read_bytes()
    width = int.from_bytes((tmp_path / "names.png").read_bytes()[16:20], "big")
    assert width == round(3.4 * 300)


def test_many_lines_are_drawn_into_several_axes_which_share_scales_and_legend(tmp_path: Path) -> None:
    """A warning, as of axes without room, is an error in tests; each line is once in the legend."""
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    found = [
        {**record(names, 10.0 * names, engine), "parameters": {"names": str(names), "area": area, "seed": "1"}}
        for names in (10, 20, 1000)
        for area in ("0.1", "1e-05", "0.01")
        for engine in ("keyed", "ccm", "sff")
    ]
    without = record(10, 10.0)  # has no area
    draw([without, *found], tmp_path / "areas.svg", "names", ["area", "engine"])
    drawn = (tmp_path / "areas.svg").read_text(encoding="utf-8")
    words = [word for word in ("area 1e-05", "area 0.01", "area 0.1") if f"<!-- {word} -->" in drawn]
    assert len(words) == 3
    assert words == sorted(words, key=lambda word: drawn.index(f"<!-- {word} -->")), "in the order of the numbers"
    assert [drawn.count(f"<!-- {engine} -->") for engine in ("keyed", "ccm", "sff", "names")] == [1, 1, 1, 1]
    assert drawn.count("<!-- 10k -->") == 2, "a scale for each row of axes"
    draw(found[:6], tmp_path / "few.svg", "names", ["area", "engine"])
    assert "<!-- area 0.1, keyed -->" in (tmp_path / "few.svg").read_text(encoding="utf-8"), "few lines are in one"


@pytest.mark.parametrize("n", [9, 40])
def test_a_figure_of_many_lines_or_bars_has_room_for_its_axes(n: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    found = [record(names, 100.0, f"the engine of the name {k}") for names in (10, 20) for k in range(n)]
    draw(found, tmp_path / "lines.png", "names")
    least = round(2.6 * 300)
    assert int.from_bytes((tmp_path / "lines.png").read_bytes()[20:24], "big") > least, "it grows by its legend"
    report.plot(found, tmp_path / "bars.svg")
    draw_steps([{**each, "steps_s": {"one": 1e-3}} for each in found], tmp_path / "steps.svg")


def test_two_states_are_compared_by_their_intervals() -> None:
    old = [record(10, 100), record(10, 110, seed=1), record(20, 100), record(20, 110, seed=1), record(30, 9), record(40, 9)]
    new = [record(10, 120), record(10, 130, seed=1), record(20, 105), record(20, 90, seed=1), record(30, 9), record(50, 9)]
    table, unmatched = comparison_table(old, new)
    assert [(line.split()[1], line.split()[-1]) for line in table.splitlines()[3:]] == [
        ("names=10", "better"),
        ("names=20", "noise"),
        ("names=30", "noise"),
    ]
    assert unmatched == 2
    once = [{**each, "repetitions": 1} for each in (record(30, 9), record(30, 12))]
    (line,) = comparison_table(once[:1], once[1:])[0].splitlines()[3:]
    assert line.split()[-4:] == ["1.333", "-", "measured", "once"]
    assert verdict(Measured(0, 10, 9, 11), Measured(0, 8, 7, 8.9)) == "worse"
    with pytest.raises(StorageError, match="share no result"):
        comparison_table(old, [record(60, 1)])


def test_results_of_scaling_are_compared_by_workers_and_kind() -> None:
    def scaled(kind: str, workers: int, rate: float, n: int = 3) -> dict[str, Any]:
        spread = {"median": rate, "min": 0.9 * rate, "max": 1.1 * rate}
        return {
            **record(10, 1),
            "what": "scaling",
            "kind": kind,
            "workers": workers,
            "events_per_s": spread,
            "repetitions": n,
            "parameters": None,
        }

    old = [scaled("strong", 1, 100), scaled("strong", 2, 200), scaled("weak", 2, 150), scaled("weak", 4, 10, n=1)]
    new = [scaled("strong", 1, 105), scaled("strong", 2, 300), scaled("weak", 2, 90), scaled("weak", 4, 20, n=1)]
    table, unmatched = comparison_table(old, new)
    assert [line.split()[1:3] for line in table.splitlines()[3:]] == [
        ["kind=strong", "workers=1"],
        ["kind=strong", "workers=2"],
        ["kind=weak", "workers=2"],
        ["kind=weak", "workers=4"],
    ]
    assert [line.split()[-1] for line in table.splitlines()[3:]] == ["noise", "better", "worse", "once"]
    assert unmatched == 0
    twice, _ = comparison_table([*old[:1], scaled("strong", 1, 110)], new[:1])
    assert twice.splitlines()[3].split()[-1] == "noise"


def test_directories_are_all_files_of_results_in_them(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"the directory has no files of results \(\.jsonl\)"):
        report.read_results([tmp_path])
    for name in ("b", "a"):
        report.append_json(tmp_path / f"{name}.jsonl", [record(10, 1, name)])
    (tmp_path / "figure.svg").touch()
    found = report.read_results([tmp_path, tmp_path / "b.jsonl"])
    assert [each["engine"] for (each,) in found] == ["a", "b", "b"]


def test_a_file_of_something_else_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps(record(10, 1)) + "\n[1]\n")
    with pytest.raises(StorageError, match=r"other.jsonl, line 2: not a result of bench"):
        report.read_json(path)
