"""Runs an experiment: its sweeps, smaller if asked, with the engines that can run here.

An engine that needs a missing GPU is skipped, never simulated, and the result says so.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from mpi_match.engines.registry import REGISTRY, engine_class, of_engine, options_of
from mpi_match.environment.machine import commit, machine
from mpi_match.errors import EngineError
from mpi_match.lab.bench.engines import BenchOptions
from mpi_match.lab.bench.report import append_json, read_json
from mpi_match.lab.bench.scaling import ScalingPlan, scale
from mpi_match.lab.bench.sweep import Axis, Sweep, check_agreement
from mpi_match.lab.bench.workload import KeptWorkloads
from mpi_match.lab.papers.catalog import Experiment, RanksRun, Run
from mpi_match.lab.workloads.parameters import PER_INTERFACE, SETS, listed
from mpi_match.lab.workloads.scenarios import SCENARIOS, Scenario
from mpi_match.model import Json

SCALED = ("filters", PER_INTERFACE, SETS, "tagmatch.max_p")
"""Parameters that `scale` reduces; also interfaces, if they are varied or have filters of their own."""
LEAST_EVENTS = 50
SMALL_SCALE = 0.1
"""Below this share of the filters, a run has fewer events and repetitions: it is a smoke test."""
LARGEST_SCALED = 10_000_000
"""Filters of the largest table of CLCB; TagMatch has 212 million, and a hundredth of that takes minutes to make."""


class ExperimentPlan(NamedTuple):
    """The options of a run of experiments.

    scale        share of the paper's filters
    seeds        of each point
    repetitions  timed runs over all events
    only         values to keep, for some parameters (those of the papers, not scaled)
    engines      engines to run; none: all
    events       limit on the number of events; ignored where that number is varied
    """

    scale: float = 1.0
    seeds: int = 1
    repetitions: int = 3
    only: Mapping[str, tuple[str, ...]] = {}
    engines: tuple[str, ...] = ()
    events: int | None = None

    def n_events(self, of_run: int) -> int:
        """The number of a run's events that are matched."""
        few = max(math.ceil(of_run * min(1.0, 10 * self.scale)), LEAST_EVENTS)
        return few if self.events is None else min(few, self.events)

    def has(self, engine: str) -> bool:
        """Returns whether the plan includes an engine."""
        return not self.engines or engine in self.engines

    def of(self, axis: Axis) -> Axis:
        """The axis with the values that the plan keeps."""
        wanted = self.only.get(axis.key)
        return axis if wanted is None else axis._replace(values=tuple(each for each in axis.values if each in wanted))

    def takes(self, runs: Run) -> bool:
        """Returns whether the plan keeps the constant values of a run."""
        return all((value := fixed_value(runs, key)) is None or value in wanted for key, wanted in self.only.items())


def fixed_value(runs: Run, key: str) -> str | None:
    """The value of a parameter, or of an engine's option, in all points of a run; None if it varies or is unknown."""
    if key in runs.fixed or any(axis.key == key for axis in runs.axes):
        return runs.fixed.get(key)
    owner, _, option = key.rpartition(".")
    if owner in runs.engines:
        known = {each.name: each for each in options_of(owner)}
        return known[option].written(known[option].default) if option in known else None
    return {name: text for name, text, _ in listed(SCENARIOS[runs.scenario])}.get(key)


def missing(engines: Iterable[str], given: Mapping[str, object] = MappingProxyType({})) -> dict[str, str]:
    """The engines that cannot run on this machine with the options `given` as `engine.key`, and the reasons."""
    found = {}
    for name in engines:
        if name not in REGISTRY:
            found[name] = "no engine of this version"
        elif reason := _reason(name, given):
            found[name] = reason
    return found


def not_run(experiment: Experiment) -> Iterator[str]:
    """A line for each engine of an experiment that this machine cannot run; it names the engine's variants that run."""
    reasons: dict[str, str] = {}
    able: dict[str, list[str]] = {}
    for each in experiment.runs:
        unable = missing(each.engines, each.fixed)
        reasons |= unable
        for name in each.engines:
            if name not in unable:
                own = (f"{key}={value}" for key, value in each.fixed.items() if key.partition(".")[0] == name and "." in key)
                able.setdefault(name, []).append(" ".join(own))
    for name, reason in reasons.items():
        but = ", ".join(dict.fromkeys(filter(None, able.get(name, []))))
        yield f"{name} is {f'run with {but} only' if but else 'not run'}: {reason}"


def _reason(name: str, given: Mapping[str, object] = MappingProxyType({})) -> str:
    if not REGISTRY[name].needs_gpu(of_engine(name, given)):
        try:
            engine_class(name)
        except EngineError as error:
            return str(error)
        return ""
    try:
        from mpi_match.gpu import driver, presence

        presence.require_driver()
        driver.visible_gpus()
    except EngineError as error:
        return str(error).partition("; use --engine")[0].partition(". ")[0]
    return "the CUDA simulator measures nothing" if driver.simulated else ""


def gpus() -> int:
    """The number of GPUs of this machine; 0 under the simulator."""
    return 0 if _reason(next(name for name, entry in REGISTRY.items() if entry.runs_on == "GPU")) else _n_gpus()


def _n_gpus() -> int:
    from mpi_match.gpu import driver

    return len(driver.visible_gpus())


def run(
    experiment: Experiment,
    plan: ExperimentPlan,
    path: Path,
    tell: Callable[[str], None],
    workloads: KeptWorkloads | None = None,
) -> list[Json]:
    """Run an experiment and return its records, including those of this commit and machine that `path` already has.

    Each is added to `path` as soon as it is measured.  Points that another experiment has measured, with a file in the same
    directory, are copied, so figures of throughput and of time show the same runs.  `workloads` are shared with other
    experiments.
    Raises what `bench.engines.compare` raises.
    """
    have = read_json(path) if path.exists() else []
    others = [record for file in sorted(path.parent.glob("*.jsonl")) if file != path for record in read_json(file)]
    found: list[dict[str, Any]] = []
    for sweep, share, has_first, load in _planned(experiment, plan):
        if load:
            sweep = with_load(sweep, load, found, plan)
        earlier = sweep.earlier(have)
        copied = [{**record, "experiment": experiment.name} for record in sweep.earlier(others)] if not earlier else []
        append_json(path, copied)
        found += earlier + copied
        earlier = earlier + copied
        for records in sweep.run(earlier, tell, workloads):
            named = [{**record, "experiment": experiment.name, "scale": share} for record in records]
            if not has_first:
                named = [{key: value for key, value in record.items() if key != "ratio"} for record in named]
            check_agreement([*found, *named])  # also with other sweeps of the experiment
            append_json(path, named)
            found += named
    is_compiled = False
    for runs in experiment.ranks:
        for point in rank_points(runs, plan):
            warm = point._replace(scaling=replace(point.scaling, warm_up=not is_compiled))
            of_point, is_new = _of_ranks(experiment.name, warm, plan, path, have, tell)
            found, is_compiled = found + of_point, is_compiled or is_new
    return found


LASTS = 20
"""A run with a load lasts at least this many times as long as its longest time-out."""


def with_load(sweep: Sweep, load: float, found: Sequence[Json], plan: ExperimentPlan) -> Sweep:
    """The sweep with events that come at a share of the rate that was measured, without a load, at its first point."""
    first = sweep.points()[0]
    served = [
        record["events_per_s"]
        for record in found
        if record["engine"] == sweep.engines[0] and record["parameters"] == first.values and not record.get("rate")
    ]
    rate = max(round(load * statistics.median(served)), 1)
    timeouts = [float(value) / 1e3 for axis in sweep.axes if axis.key.endswith("timeout_ms") for value in axis.values]
    least = math.ceil(LASTS * max(timeouts, default=0.0) * rate) if plan.scale >= SMALL_SCALE else 0
    options = replace(sweep.options, n_events=max(sweep.options.n_events, least), rate=float(rate))
    return replace(sweep, options=options)


def with_earlier(found: Sequence[Json], path: Path) -> list[Json]:
    """Records, together with those of other points and engines in their file that share commit, machine and scale."""
    if not path.exists():
        return list(found)
    shown = {shown_at(record) for record in found}
    made = {"commit": commit(), "machine": machine()}
    scales = {record.get("scale") for record in found}
    return list(found) + [
        record
        for record in read_json(path)
        if shown_at(record) not in shown
        and all(record[key] == value for key, value in made.items())
        and (not scales or record.get("scale") in scales)
    ]


def shown_at(record: Mapping[str, Any]) -> str:
    """The key of the place where a record is shown: point, engine and options, seed, and whether events came at a rate.

    An option that is younger than the record has its default there.
    """
    keys = ("what", "scenario", "parameters", "engine", "seed")
    options = {**defaults_of(str(record.get("engine"))), **(record.get("engine_options") or {})}
    return json.dumps([bool(record.get("rate")), *(record.get(key) for key in keys), options], sort_keys=True)


@cache
def defaults_of(engine: str) -> dict[str, object]:
    """The defaults of an engine's options by name; empty for an unknown engine."""
    return {option.name: option.default for option in options_of(engine)} if engine in REGISTRY else {}


class RankPoint(NamedTuple):
    """Runs measured side by side: the engine, the values of the axis, and the plan."""

    engine: str
    values: Mapping[str, str]
    scaling: ScalingPlan


def rank_points(runs: RanksRun, plan: ExperimentPlan) -> Iterator[RankPoint]:
    """The points of runs with ranks, with the numbers of workers for which the engine has enough GPUs."""
    if not plan.has(runs.engine) or missing([runs.engine]):
        return
    on_gpu = REGISTRY[runs.engine].runs_on == "GPU"
    workers = tuple(n for n in runs.workers if not on_gpu or n <= gpus())
    key, texts = plan.of(runs.axis) if runs.axis else ("", ("",))
    for text, seed in itertools.product(texts if workers else (), range(plan.seeds)):
        varied = max(round(int(text) * min(1.0, 10 * plan.scale)), LEAST_EVENTS) if key == "events" else None
        yield RankPoint(
            runs.engine,
            {key: text} if key else {},
            ScalingPlan(
                runs.scenario,
                workers,
                varied or plan.n_events(runs.events),
                n_filters=max(round(SCENARIOS[runs.scenario].n_filters * plan.scale), 1),
                repetitions=plan.repetitions,
                batch=1,
                seed=seed,
                threads=1,
                how=("--engine", runs.engine, *runs.how[2:]),
                kinds=("strong",),
                parameters={key: text} if key and key != "events" else {},
            ),
        )


def _of_ranks(
    name: str,
    point: RankPoint,
    plan: ExperimentPlan,
    path: Path,
    have: Sequence[Mapping[str, object]],
    tell: Callable[[str], None],
) -> tuple[list[Json], bool]:
    """The records of a point, from the file or measured and added to it; and whether they are new."""
    same = {"what": "ranks", "scale": plan.scale, "n_events": point.scaling.n_events, "seed": point.scaling.seed}
    same |= {"commit": commit(), "machine": machine()}
    old = [
        dict(r)
        for r in have
        if all(r.get(key) == value for key, value in same.items()) and without_workers(r) == point.values
    ]
    where = " ".join([point.scaling.scenario, *(f"{key}={value}" for key, value in point.values.items())])
    what = f"{where} with {', '.join(map(str, point.scaling.workers))} workers, seed {point.scaling.seed}"
    if len(old) >= len(point.scaling.workers):
        tell(f"{what}: is there already")
        return old, False
    tell(what)
    with tempfile.TemporaryDirectory(prefix="mpi-match-") as directory:
        results = scale(point.scaling, Path(directory))
    records = [_flat(result, point, {**same, "experiment": name}) for result in results]
    append_json(path, records)
    return records, True


def without_workers(record: Mapping[str, Any]) -> dict[str, str]:
    """A record's parameters without the number of workers."""
    return {key: value for key, value in (record.get("parameters") or {}).items() if key != "workers"}


def _flat(result: Mapping[str, Any], point: RankPoint, more: Mapping[str, Any]) -> dict[str, Any]:
    """A result of scaling as a plain record: the rate is a number, the workers are a parameter."""
    rate, n_events = result["events_per_s"], result["n_events"]
    times = {"median": n_events / rate["median"], "min": n_events / rate["max"], "max": n_events / rate["min"]}
    return {
        **result,
        **more,
        "engine": point.engine,
        "engine_options": {},
        "parameters": {**point.values, "workers": str(result["workers"])},
        "match_s": times,
        "events_per_s": rate["median"],
        "us_per_event": 1e6 / rate["median"],
        "matches_per_event": result["matches"] / n_events,
        "ratio": result["speed_up"],
    }


def sweeps(experiment: Experiment, plan: ExperimentPlan) -> Iterator[Sweep]:
    """The scaled sweeps of an experiment with the engines that can run here; runs without such an engine are left out."""
    return (sweep for sweep, *_ in _planned(experiment, plan))


def shares(experiment: Experiment, plan: ExperimentPlan) -> list[float]:
    """The shares of the paper's filters that an experiment has here, ascending."""
    return sorted({_share(each, plan.scale) for each in experiment.runs})


def _planned(experiment: Experiment, plan: ExperimentPlan) -> Iterator[tuple[Sweep, float, bool, float]]:
    """The sweeps, each with its share of the filters, whether it includes the reference engine of ratios, and its load."""
    for each in experiment.runs:
        unable = missing(each.engines, each.fixed)
        able = [name for name in each.engines if name not in unable]
        engines = tuple(name for name in able if plan.has(name))
        axes = tuple(plan.of(axis) for axis in each.axes if not _is_of(axis.key, unable))
        if engines and plan.takes(each) and all(axis.values for axis in axes):
            share = _share(each, plan.scale)
            own = {key: value for key, value in each.fixed.items() if key.partition(".")[0] in engines or "." not in key}
            sweep = _scaled(each._replace(fixed=own), engines, axes, plan._replace(scale=share))
            yield sweep, share, engines[0] == able[0], each.load


def _share(each: Run, scale: float) -> float:
    """The share of a run's filters; a scale below 1 counts from `LARGEST_SCALED` filters if the largest table has more."""
    of_axes = [value for axis in each.axes if axis.key in ("filters", SETS) for value in axis.values]
    of_run = [each.fixed[key] for key in ("filters", SETS) if key in each.fixed]
    largest = max(map(int, of_axes or of_run or [str(SCENARIOS[each.scenario].n_filters)]))
    return scale if scale == 1 or largest <= LARGEST_SCALED else scale * LARGEST_SCALED / largest


def _is_of(key: str, engines: Iterable[str]) -> bool:
    return key.partition(".")[0] in engines and "." in key


def scaled_keys(scenario: Scenario | None, keys: Collection[str]) -> list[str]:
    """The keys of a point whose values shrink below scale 1."""
    interfaces = scenario is not None and bool(scenario.area) and "interfaces" in keys
    grown = [key for key in SCALED if key in keys and not (key == PER_INTERFACE and interfaces)]
    return [*grown, "interfaces"] if interfaces else grown


def _scaled(each: Run, engines: tuple[str, ...], axes: tuple[Axis, ...], plan: ExperimentPlan) -> Sweep:
    scenario = SCENARIOS[each.scenario]
    grown = scaled_keys(scenario, {*each.fixed, *(axis.key for axis in axes)})
    cores = len(os.sched_getaffinity(0))
    fixed = {key: _less(value, plan.scale) if key in grown else value for key, value in each.fixed.items()}
    if "threads" in fixed:
        fixed["threads"] = str(min(int(fixed["threads"]), cores))
    axes = tuple(axis._replace(values=_up_to(cores, axis.values)) if axis.key == "threads" else axis for axis in axes)
    shrunk = tuple(
        Axis(axis.key, tuple(dict.fromkeys(_less(value, plan.scale) for value in axis.values)))
        if axis.key in grown
        else axis
        for axis in axes
    )
    n_filters = None if grown or plan.scale == 1 else max(round(scenario.n_filters * plan.scale), scenario.n_interfaces, 1)
    if n_filters is not None and scenario.n_interfaces > scenario.n_filters * plan.scale:
        n_filters = max(round(scenario.n_filters * plan.scale), 1)
    options = BenchOptions(
        n_filters=n_filters,
        n_events=plan.n_events(each.events),
        batch=each.batch,
        repetitions=plan.repetitions,
        steps=each.steps,
        moves=each.moves,
        warm_up_s=1.0 if plan.scale == 1 else 0.1 if plan.scale >= SMALL_SCALE else 0.02,
    )
    return Sweep(each.scenario, engines, shrunk, fixed, options, plan.seeds)


def _up_to(most: int, values: Sequence[str]) -> tuple[str, ...]:
    """The numbers up to `most`, or `most` itself if all are larger."""
    return tuple(dict.fromkeys(str(min(int(value), most)) for value in values))


def _less(value: str, scale: float) -> str:
    return str(max(round(int(value) * scale), 1))
