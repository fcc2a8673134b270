"""A benchmark that cannot be wrong quietly: what is timed is what is checked, and a lie is refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_match.compute import compile_cache
from mpi_match.engines import Engine, open_engine
from mpi_match.environment.machine import command, commit, machine, versions
from mpi_match.events.batch import EventBatch
from mpi_match.lab.bench import engines, report
from mpi_match.lab.bench.engines import BenchOptions, WrongAnswer, bench, compare
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.matches import Matches
from mpi_match.table.table import Table

DENSE = replace(SCENARIOS["ccm-10-names"], n_filters=300)
Lie = Callable[[Matches, int], Matches]


class Liar(Engine):
    """The counting engine, whose answers pass through `lie(answers, number of the call)`."""

    name = "liar"
    device = "cpu, 1 thread"
    nbytes = 0

    def __init__(self, table: Table, lie: Lie) -> None:
        self._engine, self._lie, self._calls = open_engine("counting", table), lie, 0

    def match(self, batch: EventBatch, *, filters: bool = False) -> Matches:
        self._calls += 1
        return self._lie(self._engine.match(batch, filters=filters), self._calls)


def forget_one(answers: Matches, call: int) -> Matches:
    """Leave out the last match of the last event that has any."""
    counts = np.diff(answers.offsets)
    counts[np.flatnonzero(counts)[-1]] -= 1
    return Matches.from_counts(counts, answers.ids[:-1], answers.n_ids)


def invent_one(answers: Matches, call: int) -> Matches:
    """Give the first event that lacks one an interface more."""
    found = [answers[i].tolist() for i in range(len(answers))]
    short = next(i for i, ids in enumerate(found) if len(ids) < answers.n_ids)
    found[short] += [next(i for i in range(answers.n_ids) if i not in found[short])]
    return Matches.of(found, answers.n_ids)


def change_mind(answers: Matches, call: int) -> Matches:
    """Right, but not in the third repetition (call 1 warms up)."""
    return forget_one(answers, call) if call == 4 else answers


@pytest.fixture
def liars(monkeypatch: pytest.MonkeyPatch) -> dict[str, Lie]:
    """Engines by name that lie; "counting" and "reference" stay honest unless they are in it."""
    lies: dict[str, Lie] = {}

    def opened(name: str, table: Table, *_: Any, **__: Any) -> Any:
        return Liar(table, lies[name]) if name in lies else open_engine(name, table)

    monkeypatch.setattr(engines, "open_engine", opened)
    return lies


def test_all_filters_may_be_asked_for_and_judged(liars: dict[str, Lie]) -> None:
    """Some keys have the same tags, and an interface has two of them."""
    sets = replace(SCENARIOS["tagmatch-keys"].scaled(300), n_interfaces=30, n_names=500)
    options = BenchOptions(n_events=60, batch=16, repetitions=1, operation="match")
    every, one = (compare(sets, ["counting"], each)[0] for each in (options, replace(options, operation="match-unique")))
    assert (every["operation"], "operation" in one) == ("match", False)
    assert every["matches"] > one["matches"] >= 60
    assert every["checked"] == {"reference": 10, "covers": 10}
    for lie in (forget_one, invent_one):
        liars["counting"] = lie
        with pytest.raises(WrongAnswer, match=r"wrong about event \d+: found \[.*'filter "):
            compare(sets, ["counting"], replace(options, check=60))


def test_a_result_says_what_was_measured_and_how_to_do_it_again() -> None:
    result = bench(DENSE, "counting", BenchOptions(n_events=60, batch=16, repetitions=3))
    assert json.loads(report.json_line(result)) == result
    counts = {"n_filters": 300, "n_interfaces": 10, "n_events": 60, "batch": 16, "repetitions": 3}
    assert {key: result[key] for key in counts} == counts
    assert (result["scenario"], result["engine"], result["device"]) == ("ccm-10-names", "counting", "cpu, 1 thread")
    assert result["checked"] == {"reference": 10, "covers": 10}
    assert result["match_s"]["min"] <= result["match_s"]["median"] <= result["match_s"]["max"]
    assert result["events_per_s"] == pytest.approx(60 / result["match_s"]["median"])
    assert result["us_per_event"] == pytest.approx(1e6 / result["events_per_s"])
    assert result["build_s"] > 0
    assert result["table_s"] > 0
    assert "latency_us" not in result
    table = Table.from_subscriptions(DENSE.subscriptions(0))
    expected = open_engine("reference", table).match(DENSE.events(60, 0).encode(table.vocabulary))
    assert result["matches"] == expected.n_matches > 20


def test_candidates_are_those_of_one_repetition() -> None:
    found = [bench(DENSE, "keyed", BenchOptions(n_events=60, batch=16, repetitions=n, threads=1)) for n in (1, 3)]
    assert found[0]["candidates_per_event"] == found[1]["candidates_per_event"] >= found[0]["matches_per_event"]
    assert "candidates_per_event" not in bench(DENSE, "counting", BenchOptions(n_events=60))
    shown = report.text_table(found)
    each = found[0]["candidates_per_event"] / found[0]["matches_per_event"]
    assert "Candidates/match" in shown
    assert f" {each:.1f} " in shown


def test_a_build_that_compiles_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow_s, opened = 0.2, []

    def compiling(name: str, table: Table, *_: Any, **__: Any) -> Engine:
        opened.append(table)
        if len(opened) == 2:  # the first is a small table
            (tmp_path / "of_a_module").mkdir()
            (tmp_path / "of_a_module" / "large.nbc").touch()
            time.sleep(slow_s)
        return open_engine(name, table)

    monkeypatch.setattr(engines, "open_engine", compiling)
    monkeypatch.setattr(compile_cache, "directory", lambda: tmp_path)
    result = bench("ccm", "counting", BenchOptions(n_filters=100, n_events=5, repetitions=1))
    assert result["build_s"] < slow_s
    assert len(opened) == 4, "for a small table, twice for this one, and the judge"


def test_one_event_at_a_time_is_measured_event_by_event() -> None:
    result = bench(DENSE, "counting", BenchOptions(n_events=20, batch=1, repetitions=2))
    latency = result["latency_us"]
    assert 0 < latency["p50"] <= latency["p99"] <= result["match_s"]["max"] * 1e6


@pytest.mark.parametrize("lie", [forget_one, invent_one])
def test_a_wrong_answer_is_no_result(lie: Lie, liars: dict[str, Lie]) -> None:
    liars["liar"] = lie
    with pytest.raises(WrongAnswer, match=r"liar is wrong about event \d+: found .*, counting says"):
        bench(DENSE, "liar", BenchOptions(n_events=10, check=10))


def test_an_engine_that_changes_its_mind_is_no_result(liars: dict[str, Lie]) -> None:
    liars["liar"] = change_mind
    with pytest.raises(WrongAnswer, match=r"liar contradicts itself on event .* in repetition 3"):
        bench(DENSE, "liar", BenchOptions(n_events=10, check=0))


def test_engines_that_differ_are_no_result(liars: dict[str, Lie]) -> None:
    liars["liar"] = forget_one
    with pytest.raises(WrongAnswer, match="counting and liar differ on event"):
        compare(DENSE, ["counting", "liar"], BenchOptions(n_events=10, check=0))


def test_a_judge_that_lies_too_is_found_out_by_the_naive_matcher(liars: dict[str, Lie]) -> None:
    liars["liar"] = liars["counting"] = forget_one
    with pytest.raises(WrongAnswer, match="covers says"):
        bench(DENSE, "liar", BenchOptions(n_events=1, check=1))


def test_engines_that_are_compared_take_turns(liars: dict[str, Lie]) -> None:
    turns: list[str] = []
    for name in ("left", "right"):
        liars[name] = lambda answers, call, name=name: turns.append(name) or answers  # type: ignore[misc, func-returns-value]
    left, right = compare(DENSE, ["left", "right"], BenchOptions(n_events=10, repetitions=3))
    assert turns[-6:] == ["left", "right"] * 3
    assert left["ratio"] == 1
    assert right["ratio"] == pytest.approx(right["events_per_s"] / left["events_per_s"])


def test_counts_below_one_and_unknown_scenarios_are_refused() -> None:
    with pytest.raises(ValueError, match="batch is 0"):
        bench(DENSE, "counting", BenchOptions(batch=0))
    with pytest.raises(KeyError):
        bench("no-such-scenario", "counting")


def test_the_table_is_aligned_and_has_a_head_for_each_workload() -> None:
    results = compare(DENSE, ["counting", "reference"], BenchOptions(n_events=8, batch=4, repetitions=2))
    results.append(bench(DENSE.scaled(100), "counting", BenchOptions(n_events=8, batch=1, repetitions=2)))
    text = report.text_table(results)
    groups = text.strip().split("\n\n")
    assert len(groups) == 2
    assert "# 300 filters" in groups[0]
    assert "# 100 filters" in groups[1]
    lines = [line for line in groups[0].splitlines() if not line.startswith("# ") or line.startswith("# Engine")]
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1
    assert "p50" not in groups[0]
    assert "p50" in groups[1]


def test_results_are_kept_as_json_lines(tmp_path: Path) -> None:
    results = [bench(DENSE, "counting", BenchOptions(n_events=8, repetitions=1, check=2)) for _ in range(2)]
    path = tmp_path / "results.jsonl"
    for result in results:
        report.append_json(path, [result])
    assert report.read_json(path) == results


def test_a_plot_shows_every_scenario_and_engine(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    results = compare(DENSE, ["counting", "reference"], BenchOptions(n_events=8, repetitions=2))
    results.append(bench("ccm", "counting", BenchOptions(n_filters=100, n_events=8, repetitions=2)))
    report.plot(results, tmp_path / "rates.svg")
    drawn = (tmp_path / "rates.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {word} -->" in drawn for word in ("ccm", "ccm-10-names"))
    assert all(engine in drawn for engine in ("counting", "reference"))


def test_a_record_names_machine_versions_and_commit() -> None:
    here = machine()
    assert here["cpu"]
    assert here["cores"] >= 1
    assert here["memory_gib"] > 0
    assert versions()["numpy"] == np.__version__
    assert commit() is None or re.fullmatch(r"[0-9a-f]{12}(-dirty)?", commit() or "")


def test_a_command_is_recorded_as_someone_else_would_type_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for program, name in (
        ("/somewhere/bin/mpi-match", "mpi-match"),
        ("/somewhere/mpi_match/__main__.py", "python -m mpi_match"),
    ):
        monkeypatch.setattr("sys.argv", [program, "bench", "ccm", "--plot", "my rates.png"])
        assert command() == f"{name} bench ccm --plot 'my rates.png'"
