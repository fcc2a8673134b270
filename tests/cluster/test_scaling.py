"""Scaling: simulated runs for the arithmetic, a detected wrong answer, and a small real measurement."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mpirun import environment, execute, needs_mpirun

from mpi_match.environment import mpi_launcher
from mpi_match.events.event_table import EventTable
from mpi_match.lab.bench import scaling
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.bench.scaling import ScalingPlan, launched, scale
from mpi_match.lab.bench.scaling_report import plot_scaling, scaling_table
from mpi_match.lab.workloads.files import repeat_events, write_workload
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.matches import Matches
from mpi_match.model import match_naive
from mpi_match.storage import Reader
from mpi_match.table.table import Table

PLAN = ScalingPlan(
    "ccm-10-names", (1, 2, 4), n_events=60, n_filters=80, repetitions=3, batch=16, how=("--engine", "counting")
)
LAUNCHES_S = 300
"""For eight runs, one after the other."""


def answers(table: Table, events: Path) -> list[list[int]]:
    """The interfaces of each event by the naive matcher."""
    index = {table.label(i): i for i in range(table.n_interfaces)}
    filters = list(table.iter_filters())
    with EventTable(events, table.vocabulary) as published:
        return [sorted(index[label] for label in match_naive(filters, published.event(i))) for i in range(len(published))]


class MadeUp:
    """Runs whose answers are right and whose times are made up: W workers do W ** 0.5 times as many events a second.

    `wrong` is a kind of scaling whose answers for 2 workers lack the last match.
    """

    def __init__(self, wrong: str | None = None) -> None:
        self.order: list[int] = []
        self._wrong = wrong
        self._right: dict[Path, list[list[int]]] = {}  # the naive matcher takes its time: once for each event table

    def __call__(self, plan: ScalingPlan, workers: int, table: Path, events: Path, output: Path) -> dict[str, Any]:
        self.order.append(workers)
        compiled = Table.load(table)
        if events not in self._right:
            self._right[events] = answers(compiled, events)
        found = [list(row) for row in self._right[events]]
        n_events = len(found)
        if workers == 2 and self._wrong == ("strong" if n_events == PLAN.n_events else "weak"):
            last = max(i for i in range(n_events) if found[i])
            found[last].pop()
        digests = {}
        for name, path in (("table", table), ("events", events)):
            with Reader(path, name) as reader:
                digests[f"{name}_digest"] = str(reader.attributes["digest"])
        with MatchesWriter(output, compiled.n_interfaces, compiled.labels, **digests) as writer:  # type: ignore[arg-type]  # names of attributes
            writer.append(Matches.of(found, compiled.n_interfaces))
        return {
            "events": n_events,
            "matches": writer.n_matches,
            "events_per_s": 1000.0 * workers**0.5 * (1 + len(self.order) % 2 / 100),
            "engine": "counting",
            "device": f"{workers} x cpu",
            "round_trip_us": {"p50": 10.0 * workers, "p99": 100.0},
        }


def test_speed_up_and_efficiency_are_against_the_fewest_workers(tmp_path: Path) -> None:
    run = MadeUp()
    results = scale(PLAN, tmp_path, run)
    assert run.order == [1, 2, 4] * 4 * 2, "the numbers of workers alternate; the first round is not counted"
    assert [(r["kind"], r["workers"], r["n_events"]) for r in results] == [
        *(("strong", workers, 60) for workers in (1, 2, 4)),
        *(("weak", workers, 60 * workers) for workers in (1, 2, 4)),
    ]
    for result in results:
        workers = result["workers"]
        assert result["repetitions"] == 3
        assert result["speed_up"] == pytest.approx(workers**0.5, rel=0.02)
        assert result["efficiency"] == pytest.approx(result["speed_up"] / workers)
        assert result["events_per_s_each"] == pytest.approx(result["events_per_s"]["median"] / workers)
        assert result["checked"] == {"verify": 10, "equal": result["n_events"]}
        assert json.loads(json.dumps(result)) == result
    assert {path.name for path in tmp_path.glob("*") if "events" not in path.name} == {"table.h5", "workload.json"}
    warm = MadeUp()
    scale(replace(PLAN, warm_up=False), tmp_path, warm)
    assert warm.order == [1, 2, 4] * 3 * 2, "every round counts"


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_a_wrong_answer_is_no_result(kind: str, tmp_path: Path) -> None:
    with pytest.raises(WrongAnswer, match=f"{kind} scaling with 2 workers: the answers differ"):
        scale(PLAN, tmp_path, MadeUp(wrong=kind))


def test_the_first_answers_are_judged(tmp_path: Path) -> None:
    plan = ScalingPlan("ccm-10-names", (2,), n_events=60, n_filters=80, repetitions=1, check=60)
    with pytest.raises(WrongAnswer, match="the first run has a wrong answer to event"):
        scale(plan, tmp_path, MadeUp(wrong="strong"))


def test_a_workload_is_reused_unless_another_is_asked_for(tmp_path: Path) -> None:
    scale(PLAN, tmp_path, MadeUp())
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "table.h5", tmp_path / "events.h5")}
    scale(PLAN, tmp_path, MadeUp())
    assert all(path.stat().st_mtime_ns == at for path, at in made.items())
    other = ScalingPlan(PLAN.scenario, PLAN.workers, n_events=50, n_filters=80, repetitions=1)
    assert [r["n_events"] for r in scale(other, tmp_path, MadeUp())] == [50, 50, 50, 50, 100, 200]


def test_repeated_events_are_the_same_events(tmp_path: Path) -> None:
    scenario = SCENARIOS["ccm"].scaled(50)
    write_workload(scenario, tmp_path, 30, divided=True)
    repeat_events(tmp_path / "events.h5", 3, tmp_path / "events-x3.h5")
    repeat_events(tmp_path / "events.h5", 3, tmp_path / "events-x3.h5")
    vocabulary = Table.load(tmp_path / "table.h5").vocabulary
    with EventTable(tmp_path / "events.h5", vocabulary) as once, EventTable(tmp_path / "events-x3.h5", vocabulary) as thrice:
        assert len(thrice) == 90
        assert [thrice.event(i) for i in range(90)] == [once.event(i) for i in range(30)] * 3
        assert thrice.encoded_for_vocabulary
        assert thrice.batch(60, 90).attributes.tolist() == once.batch(0, 30).attributes.tolist()


def test_a_worker_has_the_same_threads_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert [ScalingPlan("ccm", workers, 1).threads_each for workers in ((1,), (1, 2, 4), (1, 32))] == [16, 4, 1]
    assert ScalingPlan("ccm", (1, 2), 1, threads=3).threads_each == 3


def test_the_table_has_the_form_of_the_documentation(tmp_path: Path) -> None:
    results = scale(PLAN, tmp_path, MadeUp())
    strong, weak = scaling_table(results).strip().split("\n\n")
    assert strong.splitlines()[0] == (
        "# mpi-match bench --scaling: ccm-10-names, strong: the same 60 events for any number of workers"
    )
    assert weak.splitlines()[0] == "# mpi-match bench --scaling: ccm-10-names, weak: 60 events for each worker"
    for group in (strong, weak):
        comments, rows = [
            [line for line in group.splitlines() if line.startswith("#") is is_one] for is_one in (True, False)
        ]
        assert [row.split()[0] for row in rows] == ["1", "2", "4"]
        assert len({len(line) for line in (comments[-1], *rows)}) == 1, "aligned"
        assert "batches of 16; --engine counting" in comments[1]


def test_the_plot_shows_both_kinds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    plot_scaling(scale(PLAN, tmp_path, MadeUp()), tmp_path / "scaling.svg")
    drawn = (tmp_path / "scaling.svg").read_text(encoding="utf-8")
    assert all(f"<!-- ccm-10-names, {kind} -->" in drawn for kind in scaling.SCALINGS)


@pytest.mark.parametrize("factor", [1.3, 8, 40, 3000])
def test_both_axes_of_the_plot_have_numbers(factor: float, tmp_path: Path) -> None:
    """Where all rates are in one decade, a logarithmic scale has no tick of its own."""
    pytest.importorskip("matplotlib", reason="plots need matplotlib (extra `plot`)")
    results = [
        {
            "scenario": "ccm",
            "kind": "strong",
            "workers": workers,
            "events_per_s": dict.fromkeys(("median", "min", "max"), rate),
            "machine": {"cpu": "a processor", "cores": 2, "gpus": []},
            "commit": "0123456789ab",
            "date": "2026-01-01",
        }
        for workers, rate in ((1, 1.2e6), (2, 1.2e6 * factor))
    ]
    plot_scaling(results, tmp_path / "scaling.svg")
    texts = re.findall(r"<!-- (.*?) -->", (tmp_path / "scaling.svg").read_text(encoding="utf-8"))
    assert 3 <= sum(re.fullmatch(r"[\d.]+[kMG]", text) is not None for text in texts) <= 13, texts


def test_the_launcher_gets_the_flags_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIRUN", "/opt/bin/mpirun")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    words: dict[str, list[str]] = {}
    for name in ("mpirun (Open MPI) 5.0.11", "HYDRA build details:"):
        monkeypatch.setattr(mpi_launcher, "version", lambda name=name: name)
        words[name[:5]] = mpi_launcher.command(3, (), ["run"])
        assert mpi_launcher.command(3, ("--some", "flag"), [])[1:3] == ["--some", "flag"]
    assert {"--oversubscribe", "--allow-run-as-root"} <= set(words["mpiru"])
    assert words["HYDRA"][:8] == ["/opt/bin/mpirun", "-iface", "lo", "-genv", "UCX_TLS", "sm,self", "-n", "3"]
    assert not any("tcp" in word for word in words["mpiru"])


def test_slurm_gets_ranks_and_the_pmi_of_this_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for name, pmi in (("mpirun (Open MPI) 5.0.11", "pmix"), ("HYDRA build details:", "pmi2")):
        monkeypatch.setattr(mpi_launcher, "version", lambda name=name: name)
        words = mpi_launcher.slurm_command(3, (), ["run"])
        assert words[:3] == ["srun", "--ntasks=3", f"--mpi={pmi}"]
        assert mpi_launcher.slurm_command(3, ("--overlap",), [])[2] == "--overlap"
        batch = mpi_launcher.batch_command(3, ("--partition=p",), ["run"], tmp_path / "log")
        assert batch[:2] == ["sbatch", "--wait"]
        assert {"--ntasks=3", f"--output={tmp_path}/log", f"--error={tmp_path}/log.err", "--partition=p"} <= set(batch)
        assert batch[-1] == f"exec {shlex.join(words)}"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for under in ("srun", "sbatch"):
        with pytest.raises(mpi_launcher.LaunchError, match=f"there is no {under} in PATH"):
            launched(ScalingPlan("ccm", (1,), n_events=10, under=under), 1, *(tmp_path / name for name in "teo"))


LEFT = """
import json, os, pathlib, sys
shm = pathlib.Path(os.environ["OMPI_MCA_btl_sm_backing_directory"])
(shm / "sm_segment").touch()
pathlib.Path(sys.argv[1]).write_text(str(shm))
pathlib.Path(sys.argv[2]).write_text(json.dumps({"state": "complete", "run": {"events": 0}}))
"""


def test_shared_memory_of_killed_ranks_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-c", LEFT, str(tmp_path / "where"), str(tmp_path / "o.run.json")]
    monkeypatch.setattr(mpi_launcher, "command", lambda n_ranks, flags, arguments: words)
    assert launched(ScalingPlan("ccm", (1,), n_events=10), 1, *(tmp_path / name for name in "teo")) == {"events": 0}
    shm = Path((tmp_path / "where").read_text())
    assert shm.parent == Path("/dev/shm")
    assert not shm.exists()


def test_without_a_launcher_scaling_is_refused_in_one_line(tmp_path: Path) -> None:
    arguments = ["bench", "ccm", "--scaling", "1", "--events", "10", "--filters", "10"]
    done = execute([sys.executable, "-m", "mpi_match", *arguments], MPIRUN=str(tmp_path / "none"))
    assert done.returncode == 5
    assert re.fullmatch(r"mpi-match: \S+/none --version failed \(.*\); set MPIRUN to a launcher that works\n", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--scaling", "1,x"], "'1,x' is not a list of numbers such as 1,2,4,8"),
        (["--scaling", "0,1"], "'0,1' is not a list of numbers such as 1,2,4,8"),
        (["--scaling", "1", "--device", "0"], "--device cannot be used with --scaling"),
        (["--credits", "2"], "--credits cannot be used without --scaling"),
    ],
)
def test_options_without_effect_are_refused(arguments: list[str], why: str) -> None:
    done = execute([sys.executable, "-m", "mpi_match", "bench", "ccm", *arguments])
    assert done.returncode == 2
    assert why in done.stderr


@pytest.mark.mpi
@needs_mpirun
def test_scaling_of_one_and_two_real_workers(tmp_path: Path) -> None:
    size = ["--filters", "200", "--events", "300", "--batch", "32", "--repetitions", "1"]
    how = ["--engine", "counting", "--schedule", "static", "--results", "local", "--directory", str(tmp_path / "here")]
    words = [sys.executable, "-m", "mpi_match", "bench", "ccm-10-names", "--scaling", "2,1", *size, *how]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LAUNCHES_S, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["kind"], r["workers"], r["n_events"]) for r in results] == [
        ("strong", 1, 300),
        ("strong", 2, 300),
        ("weak", 1, 300),
        ("weak", 2, 600),
    ]
    for result in results:
        assert result["engine"] == "counting"
        assert "--schedule static --placement replicate --feed master --results local" in result["how"]
        assert 0 < result["events_per_s"]["min"] <= result["events_per_s"]["median"] <= result["events_per_s"]["max"]
        assert 0 < result["round_trip_us"]["p50"] <= result["round_trip_us"]["p99"]
        assert result["matches"] == results[0]["matches"] * result["n_events"] // 300 > 0
    assert done.stderr.count("# mpi-match bench --scaling: ccm-10-names") == 2
    assert {path.name for path in (tmp_path / "here" / "ccm-10-names").glob("*.h5")} == {
        "table.h5",
        "events.h5",
        "events-x2.h5",
    }


@pytest.mark.mpi
@needs_mpirun
def test_a_failed_run_is_reported_with_its_standard_error(tmp_path: Path) -> None:
    plan = ScalingPlan("ccm", (1,), n_events=10, n_filters=10, how=("--engine", "no-such-engine"))
    with pytest.raises(mpi_launcher.LaunchError, match=r"a run of 1 workers failed: .*no-such-engine"):
        scale(plan, tmp_path)
