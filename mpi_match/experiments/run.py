"""Runs an experiment: its sweeps, smaller if asked, with the engines that can run here.

An engine on a GPU that is not there is not run, and never simulated: the result says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mpi_match.bench.engines import BenchOptions
from mpi_match.bench.report import append_json, read_json
from mpi_match.bench.sweep import Axis, Sweep
from mpi_match.engines.registry import REGISTRY
from mpi_match.errors import EngineError
from mpi_match.experiments.catalog import Experiment, Run
from mpi_match.workloads.parameters import PER_INTERFACE
from mpi_match.workloads.scenarios import SCENARIOS

SCALED = ("filters", PER_INTERFACE)
"""Parameters that `scale` makes smaller; interfaces too where they are what is varied or have filters of their own."""
LEAST_EVENTS = 50


class ExperimentPlan(NamedTuple):
    """How experiments are run: the share of the filters, the seeds and the timed repetitions."""

    scale: float = 1.0
    seeds: int = 1
    repetitions: int = 3


def missing(engines: Iterable[str]) -> dict[str, str]:
    """Of engines those that cannot run on this machine, with the reason."""
    found = {}
    for name in engines:
        if name not in REGISTRY:
            found[name] = "no engine of this version"
        elif reason := _reason(name):
            found[name] = reason
    return found


def _reason(name: str) -> str:
    if not REGISTRY[name].says.startswith("GPU"):
        return ""
    try:
        from mpi_match.gpu import driver

        driver.visible_gpus()
    except EngineError as error:
        return str(error).partition("; use --engine")[0].partition(". ")[0]
    return "the CUDA simulator measures nothing" if driver.simulated else ""


def run(experiment: Experiment, plan: ExperimentPlan, path: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Run an experiment and return its records, those that `path` has already of this commit and machine among them.

    Each is added to `path` as soon as it is measured.  Raises what `bench.engines.compare` raises.
    """
    have = read_json(path) if path.exists() else []
    found: list[dict[str, Any]] = []
    for sweep in sweeps(experiment, plan):
        earlier = sweep.earlier(have)
        found += earlier
        for records in sweep.run(earlier, tell):
            named = [{**record, "experiment": experiment.name, "scale": plan.scale} for record in records]
            append_json(path, named)
            found += named
    return found


def sweeps(experiment: Experiment, plan: ExperimentPlan) -> Iterator[Sweep]:
    """The sweeps of an experiment, scaled, with the engines that can run here; none for a run of which no engine can."""
    for each in experiment.runs:
        unable = missing(each.engines)
        engines = tuple(name for name in each.engines if name not in unable)
        axes = tuple(axis for axis in each.axes if not _is_of(axis.key, unable))
        if engines:
            yield _scaled(each, engines, axes, plan)


def _is_of(key: str, engines: Iterable[str]) -> bool:
    return key.partition(".")[0] in engines and "." in key


def _scaled(each: Run, engines: tuple[str, ...], axes: tuple[Axis, ...], plan: ExperimentPlan) -> Sweep:
    scenario = SCENARIOS[each.scenario]
    keys = {*each.fixed, *(axis.key for axis in axes)}
    grown = [key for key in SCALED if key in keys and not (key == PER_INTERFACE and "interfaces" in keys and scenario.area)]
    if scenario.area and "interfaces" in keys:
        grown.append("interfaces")
    fixed = {key: _less(value, plan.scale) if key in grown else value for key, value in each.fixed.items()}
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
        n_events=max(math.ceil(each.events * min(1.0, 10 * plan.scale)), LEAST_EVENTS),
        batch=each.batch,
        repetitions=plan.repetitions,
        steps=each.steps,
        warm_up_s=1.0 if plan.scale == 1 else 0.1,
    )
    return Sweep(each.scenario, engines, shrunk, fixed, options, plan.seeds)


def _less(value: str, scale: float) -> str:
    return str(max(round(int(value) * scale), 1))
