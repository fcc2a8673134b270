"""Strong and weak scaling: the same run with more and more workers, each through the launcher.

    strong   the same events for any number of workers: how much sooner are they done?
    weak     as many events for each worker: is W times the work of W workers done in the same time?

* **Timed** by the runs themselves: from the first batch read to the last answer on disk.  Starting, loading and building
  come before that.
* **Warm.**  A round of runs, one for each number of workers, is made and not counted; it compiles and fills caches.  Without
  `warm_up` it is left out, for code that is compiled already; files just written are cached.
* **Side by side.**  Numbers of workers take turns, round by round, so a machine that slows down affects all of them.
* **Alike.**  A worker has the same CPU threads in every run, as many as it has in the largest.
* **Checked.**  A sample of the first answers is judged (`verify`); every other run's answers are compared with these, event
  by event.  Weak scaling repeats the events of strong scaling, so its answers repeat too.  One difference raises WrongAnswer
  instead of a result.

Speed-up and efficiency are against the smallest number of workers, in events per second; both kinds have the same scale, an
efficiency of 1 being linear.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpi_match
from mpi_match.environment import mpi_launcher
from mpi_match.environment.machine import origin
from mpi_match.environment.mpi_launcher import LaunchError
from mpi_match.journal.manifest import COMPLETE, read_manifest
from mpi_match.lab.bench.engines import WrongAnswer
from mpi_match.lab.workloads.files import kept_workload, repeat_events
from mpi_match.lab.workloads.parameters import with_parameters
from mpi_match.lab.workloads.scenarios import SCENARIOS, Scenario
from mpi_match.matches.file import MatchesFile
from mpi_match.matches.matches import Matches
from mpi_match.model import Json
from mpi_match.verify.verify import VerifiedFiles, verify

SCALINGS = ("strong", "weak")
SOURCE_ROOT = Path(mpi_match.__file__).parents[1]


@dataclass(frozen=True)
class ScalingPlan:
    """The runs: `n_events` events of a scenario (for each worker, when weak), by `workers` workers, in ascending numbers.

    `how` are options of `mpi-match run` that are the same in all runs; `flags` are the launcher's; `kinds` of `SCALINGS`;
    `parameters` of the scenario that differ from its own (`workloads.parameters`); `under` one of `mpi_launcher.LAUNCHERS`.
    """

    scenario: str
    workers: tuple[int, ...]
    n_events: int
    n_filters: int | None = None
    repetitions: int = 5
    batch: int = 65_536
    seed: int = 0
    check: int = 10
    threads: int | None = None
    how: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    kinds: tuple[str, ...] = SCALINGS
    parameters: Mapping[str, str] = field(default_factory=dict)
    under: str = "mpirun"
    warm_up: bool = True

    @property
    def drawn_from(self) -> Scenario:
        """The scenario with the plan's parameters.  Raises OptionError."""
        of_filters = {} if self.n_filters is None else {"filters": str(self.n_filters)}
        return with_parameters(SCENARIOS[self.scenario], {**of_filters, **self.parameters})

    @property
    def threads_each(self) -> int:
        """CPU threads of a worker."""
        return self.threads or max(len(os.sched_getaffinity(0)) // self.workers[-1], 1)


Run = Callable[[ScalingPlan, int, Path, Path, Path], dict[str, Any]]


def launched(plan: ScalingPlan, workers: int, table: Path, events: Path, output: Path) -> Json:
    """Run one master and `workers` workers; the run's summary.  Raises LaunchError."""
    files = ["--table", str(table), "--events", str(events), "-o", str(output)]
    how = ["--batch", str(plan.batch), "--threads", str(plan.threads_each), *plan.how]
    ranks, arguments, log = workers + 1, ["run", *files, *how], output.with_suffix(".log")
    if plan.under == "sbatch":
        words = mpi_launcher.batch_command(ranks, plan.flags, arguments, log)
    elif plan.under == "srun":
        words = mpi_launcher.slurm_command(ranks, plan.flags, arguments)
    else:
        words = mpi_launcher.command(ranks, plan.flags, arguments)
    with mpi_launcher.own_shared_memory(wanted=plan.under == "mpirun" and not plan.flags) as shm:
        done = subprocess.run(words, env={**importing_this(), **shm}, capture_output=True, text=True, check=False)
    stderr = done.stderr
    if plan.under == "sbatch" and log.exists():
        stderr = log.with_name(f"{log.name}.err").read_text(encoding="utf-8")
    manifest = read_manifest(output)  # a launcher may lose the last line of what a rank prints
    if done.returncode or manifest is None or manifest["state"] != COMPLETE:
        said = own_lines(stderr) or stderr.splitlines()
        raise LaunchError(f"a run of {workers} workers failed: {' '.join(said) or f'exit code {done.returncode}'}")
    found: dict[str, Any] = manifest["run"]
    return found


def own_lines(said: str) -> list[str]:
    """The errors that ranks printed, among what a launcher printed."""
    return [line for line in said.splitlines() if line.startswith("mpi-match")]


def importing_this() -> dict[str, str]:
    """The environment of this process, with which a child's Python finds this package."""
    path = os.pathsep.join([str(SOURCE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def scale(plan: ScalingPlan, directory: Path, run: Run = launched) -> list[Json]:
    """Measure a plan in both kinds; one result for each kind and number of workers.

    The workload is written to `directory` (table, events, answers: room for about 100 bytes an event), and is found there
    again by a later call with the same scenario, filters, events and seed.  A result holds only plain values: `what`
    ("scaling"), `kind`, `scenario`, `n_filters`, `n_constraints`, `workers`, `n_events` (in all), `batch`, `repetitions`,
    `seed`, `threads`, `how`, `mpi`, `engine`, `device`, `events_per_s` (median, min, max over the repetitions),
    `events_per_s_each`, `speed_up`, `efficiency`, `round_trip_us` (p50 and p99, medians), `matches`, `checked`, `machine`,
    `versions`, `commit`, `command`, `date`.  Raises WrongAnswer, LaunchError, StorageError, OSError.
    """
    made = {"mpi": mpi_launcher.version(), **origin()}
    written = _workload(plan, directory)
    table, judged = directory / "table.h5", None
    results = []
    for kind in plan.kinds:
        runs: dict[int, list[dict[str, Any]]] = {workers: [] for workers in plan.workers}
        for round_ in range(0 if plan.warm_up else 1, plan.repetitions + 1):
            for workers in plan.workers:
                times = 1 if kind == "strong" else workers
                events = _events(directory, times)
                with tempfile.TemporaryDirectory(prefix="answers-", dir=directory) as place:
                    output = Path(place) / "matches.h5"
                    summary = run(plan, workers, table, events, output)
                    if judged is None:
                        judged = _judged(plan, table, events, output)
                    _compare(judged, output, times, f"{kind} scaling with {workers} workers")
                if round_:
                    runs[workers].append(summary)
        first = statistics.median(_rates(runs[plan.workers[0]]))
        results += [_result(plan, written, made, kind, workers, runs[workers], first) for workers in plan.workers]
    return results


def _workload(plan: ScalingPlan, directory: Path) -> Json:
    """Write the files of a plan unless they exist; their summary."""
    written = kept_workload(plan.drawn_from, directory, plan.n_events, plan.seed)
    for times in plan.workers:
        if times > 1:
            repeat_events(_events(directory, 1), times, _events(directory, times))
    return written


def _events(directory: Path, times: int) -> Path:
    return directory / ("events.h5" if times == 1 else f"events-x{times}.h5")


def _judged(plan: ScalingPlan, table: Path, events: Path, output: Path) -> Matches:
    """The first answers, after a sample of them has been judged right."""
    if plan.check:
        difference = verify(VerifiedFiles(table, events, output), plan.check, plan.seed).difference
        if difference is not None:
            raise WrongAnswer(f"the first run has a wrong answer to {difference}")
    return MatchesFile.load(output).matches


def _compare(judged: Matches, output: Path, times: int, what: str) -> None:
    """Raise WrongAnswer unless a file repeats the judged answers `times` times."""
    found = MatchesFile.load(output).matches
    for one, all_ in ((judged.counts, found.counts), (judged.ids, found.ids)):
        if all_.size != times * one.size or not (all_.reshape(times, one.size) == one).all():
            raise WrongAnswer(f"{what}: the answers differ from those of the first run")


def _rates(summaries: Sequence[Json]) -> list[float]:
    return [summary["events_per_s"] for summary in summaries]


def _result(
    plan: ScalingPlan,
    written: Json,
    made: Json,
    kind: str,
    workers: int,
    runs: Sequence[Json],
    first: float,
) -> Json:
    rates, last = _rates(runs), runs[-1]
    rate, least = statistics.median(rates), plan.workers[0]
    trips = [run["round_trip_us"] for run in runs if run["round_trip_us"]]
    return {
        "what": "scaling",
        "kind": kind,
        "scenario": plan.scenario,
        "n_filters": written["filters"],
        "n_constraints": written["constraints"],
        "workers": workers,
        "n_events": last["events"],
        "batch": plan.batch,
        "repetitions": len(runs),
        "seed": plan.seed,
        "threads": plan.threads_each,
        "how": " ".join(plan.how),
        "engine": last["engine"],
        "device": last["device"],
        "events_per_s": {"median": rate, "min": min(rates), "max": max(rates)},
        "events_per_s_each": rate / workers,
        "speed_up": rate / first,
        "efficiency": rate / first * least / workers,
        "round_trip_us": {p: statistics.median(trip[p] for trip in trips) for p in ("p50", "p99")} if trips else None,
        "matches": last["matches"],
        "checked": {"verify": plan.check, "equal": last["events"]},
        **made,
    }
