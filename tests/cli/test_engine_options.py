"""`--set` on `match`, `run` and `bench` reaches the engine, is recorded, and is refused by name; `engines` lists options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import mpi_match, run_in
from tuned_engine import DEFAULTS, ENTRY, opened

from mpi_match.engines import REGISTRY
from mpi_match.engines.registry import options_of
from mpi_match.journal.manifest import read_manifest

FEW = ("ccm", "--filters", 200, "--events", 50, "--repetitions", 1, "--check", 2)


@pytest.fixture(autouse=True)
def _tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "tuned", ENTRY)
    opened.clear()


def test_run_passes_options_to_the_engine_and_records_them(workload: Path) -> None:
    chosen = {**DEFAULTS, "depth": 3, "order": "down"}
    result = run_in(workload, "set.h5", "--engine", "tuned", "--set", "depth=3", "--set", "tuned.order=down", "--json")
    assert opened == [chosen]
    assert json.loads(result.stdout)["engine_options"] == {"tuned": chosen}
    manifest = read_manifest(workload / "set.h5")
    assert manifest is not None
    assert (manifest["state"], manifest["run"]["engine_options"]) == ("complete", {"tuned": chosen})
    assert (workload / "set.h5").read_bytes() == (workload / "matches.h5").read_bytes()


def test_match_passes_options_to_the_engine_and_reports_them(workload: Path, tmp_path: Path) -> None:
    rows = [workload / "subscriptions.jsonl", workload / "events.jsonl"]
    result = mpi_match("match", *rows, "-o", tmp_path / "m.h5", "--engine", "tuned", "--set", "twice=on", "--json")
    assert opened == [{**DEFAULTS, "twice": True}]
    assert json.loads(result.stdout)["engine_options"] == {"tuned": opened[0]}


def test_bench_passes_options_to_the_engines_and_records_them() -> None:
    engines = ["--engine", "counting", "--engine", "tuned"]
    result = mpi_match("bench", *FEW, *engines, "--set", "tuned.share=0.75")
    plain, tuned = (json.loads(line) for line in result.stdout.splitlines())
    assert (plain["engine_options"], tuned["engine_options"]) == ({}, {**DEFAULTS, "share": 0.75})
    assert {each["share"] for each in opened} == {0.75}
    assert "\ntuned share=0.75 " in result.stderr


def test_bench_shows_the_steps_of_an_engine() -> None:
    result = mpi_match("bench", *FEW, "--engine", "tuned", "--engine", "counting", "--steps")
    tuned, plain = (json.loads(line) for line in result.stdout.splitlines())
    assert tuned["steps_s"] == {"look": pytest.approx(50e-3), "count": pytest.approx(150e-3)}
    assert "steps_s" not in plain
    assert "# steps of tuned, for an event: look 1e+03 us (25%), count 3e+03 us (75%)" in result.stderr
    assert "steps_s" not in mpi_match("bench", *FEW, "--engine", "tuned").stdout


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--engine", "tuned", "--set", "deep=1"], "tuned has no option 'deep'; it has: order, depth, share, twice"),
        (["--engine", "tuned", "--set", "depth=9"], "depth is '9'; it can be 1..8"),
        (
            ["--engine", "tuned", "--set", "keyed.depth=1"],
            "'keyed.depth' belongs to an engine that is not used; used: tuned",
        ),
        (["--engine", "tuned", "--set", "depth"], "'depth' is no [ENGINE.]KEY=VALUE"),
        (["--engine", "tuned", "--set", "depth=1", "--set", "depth=2"], "'depth' is set twice"),
        (["--engine", "auto", "--set", "depth=1"], "option 'depth' exists in several engines; write ENGINE.depth"),
    ],
    ids=["option", "value", "engine", "form", "twice", "auto"],
)
def test_an_unknown_engine_option_is_wrong_usage_on_every_command(
    given: list[str], text: str, workload: Path, tmp_path: Path
) -> None:
    rows = [workload / "subscriptions.jsonl", workload / "events.jsonl"]
    for result in (
        mpi_match("match", *rows, "-o", tmp_path / "m.h5", *given, code=2),
        run_in(workload, "never.h5", *given, code=2),
        mpi_match("bench", *FEW, *given, code=2),
        mpi_match("bench", *FEW, *given, "--scaling", "1", code=2),
    ):
        assert text in result.stderr
        assert not result.stdout
    assert not opened
    assert not (tmp_path / "m.h5").exists()
    assert not (workload / "never.h5").exists()


def test_engines_lists_engines_and_their_options() -> None:
    found = json.loads(mpi_match("engines", "--json").stdout)
    assert list(found) == list(REGISTRY)
    for name, engine in found.items():
        assert set(engine["options"]) == {option.name for option in options_of(name)}
    assert found["ccm"]["options"]["reset"] == {
        "values": "kernel|memset",
        "default": "kernel",
        "says": options_of("ccm")[0].says,
        "section": "5, figure 5",
    }
    shown = mpi_match("engines", "tuned").stdout.splitlines()
    assert shown[0].split() == ["tuned", "CPU", "-", "counting", "with", "options"]
    assert shown[1:3] == ["    order=up|down  [up]", "        which way (1)"]
    assert "keyed" not in " ".join(shown)
    assert "there is no 'quick'" in mpi_match("engines", "quick", code=2).stderr
