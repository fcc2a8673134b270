"""The printed values of an experiment beside what was measured here: the same quantity, at the same point.

    printed: SFF, processing_time, 1.035 ms, scenario default    ──► `us_per_event` of `sff` at the scenario's own parameters
    printed: CCM, speedup, 13 x, filters_per_interface 250000    ──► time of `sff` over time of `ccm` at that point

Values that are no times, rates or sizes (hardware, cited systems), and those whose point is not among the measured ones,
have no counterpart; they are shown all the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mpi_match.bench.report import Result, aligned
from mpi_match.bench.sweep_report import value_of
from mpi_match.experiments.catalog import BASELINES, OURS, Experiment
from mpi_match.experiments.published import Printed, printed
from mpi_match.experiments.run import SCALED, without_workers
from mpi_match.workloads.parameters import PER_INTERFACE, listed
from mpi_match.workloads.scenarios import SCENARIOS


class Claim(NamedTuple):
    """A printed value, and the same quantity here, in the same unit: of the engine that it is of, and of our own.

    `why` says why there is no value of that engine.
    """

    printed: Printed
    measured: float | None
    ours: Mapping[str, float]
    why: str = ""


def _step(*names: str) -> Callable[[Result], float | None]:
    """Seconds of an event in some phases of the engine."""

    def seconds(record: Result) -> float | None:
        steps = record.get("steps_s")
        return None if steps is None else sum(steps.get(name, 0.0) for name in names) / record["n_events"]

    return seconds


def _field(name: str) -> Callable[[Result], float | None]:
    return lambda record: record.get(name)


def _deployed(record: Result) -> float | None:
    """Seconds from subscriptions to an engine that can match: table, whose order is part of the index, and engine."""
    return record["table_s"] + record["build_s"] if "build_s" in record else None


def _updated(record: Result) -> float | None:
    """Seconds of a change: of moving a filter, or of deploying again, where an engine takes no changes."""
    return record["one_move_us"] * 1e-6 if "one_move_us" in record else _deployed(record)


_TIMES = {"us": 1e6, "ms": 1e3, "s": 1.0}
_QUANTITIES: dict[str, tuple[Callable[[Result], float | None], Mapping[str, float]]] = {
    "processing_time": (lambda record: record["us_per_event"] * 1e-6, _TIMES),
    "throughput": (_field("events_per_s"), {"events/s": 1.0, "queries/s": 1.0, "thousand queries/s": 1e-3}),
    "partitioning_time": (_field("build_s"), {"s": 1.0}),
    "deployment_time": (_deployed, _TIMES),
    "update_time": (_updated, _TIMES),
    "data_structure_size": (_field("engine_bytes"), {"MB GPU": 1e-6, "MB CPU": 1e-6}),
    "gpu_memory_max": (_field("engine_bytes"), {"MB": 1e-6}),
    "interfaces_selected": (lambda record: record["matches_per_event"] / record["n_interfaces"], {"%": 100.0}),
    "kernel_time": (_step("kernel"), _TIMES),
    "copy_input_time": (_step("copy in", "reset"), _TIMES),
    "phase1_time": (_step("phase 1"), _TIMES),
}
"""Printed quantities: how they are had from a record, and their factor for each unit."""
_RATIOS = {"speedup": "processing_time", "deployment_speedup": "deployment_time", "update_speedup": "update_time"}
_PARAMETERS = {
    "subscriptions": "interfaces",
    "filters_per_subscription": PER_INTERFACE,
    "area_of_filter": "area",
    "predicates_per_subscription_mean": "constraints",
    "attributes_per_event_mean": "attributes",
    "distinct_predicates": "distinct",
    "distinct_attributes": "names",
    "numerical_operators": "number_operators",
}
"""Rows of the papers' tables of parameters: the key of our scenario."""
_BLOCKS = "debs2009-blocks"
"""The scenario of the second column of Farroukh's table 1."""
_WORKLOAD = "workload"
"""The subject of values that are the same for every engine."""


def _as_it_is(value: Any) -> Any:
    return value


_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "attributes_per_event": ("attributes", _as_it_is),
    "constraints_per_filter": ("constraints", _as_it_is),
    PER_INTERFACE: (PER_INTERFACE, _as_it_is),
    "interfaces": ("interfaces", _as_it_is),
    "subscriptions": ("interfaces", _as_it_is),
    "names": ("names", _as_it_is),
    "numerical_share": ("string_share", lambda share: 1 - share / 100),
    "name_distribution": ("name_exponent", lambda name: {"uniform": 0, "zipf": 1}[name]),
    "spatial_distribution": ("place_exponent", lambda name: {"uniform": 0, "zipf": 1}[name]),
    "area": ("area", lambda percent: percent / 100),
    "location": ("area", lambda has: 1e-4 if has else 0),
    "events": ("events", _as_it_is),
    "threads": ("threads", _as_it_is),
    "threads_per_event": ("twophase.group", _as_it_is),
    "sets": ("filters", _as_it_is),
    "share_of_database": ("filters", lambda percent: {10: 20_000_000, 20: 40_000_000}.get(percent, 2_120_000 * percent)),
    "timeout_ms": ("tagmatch.timeout_ms", lambda timeout: timeout or 0),
    "tags_per_set": ("constraints", _as_it_is),
}
"""Printed parameters: key of a sweep, and its value there."""
_OF_NO_POINT = ("scenario", "workload", "filters", "gpu", "gpus", "nodes", "operation", "max_p", "tags_per_query")
"""Printed parameters that choose no point: the default scenario, what follows from others, the papers' machines; what is the
same in all points here."""
RANKS = "ranks"
"""Stands for runs with ranks in the place of an engine: those with the most workers."""
_SUBJECTS: dict[str, tuple[str, Mapping[str, str]]] = {
    "MPI-CUDA": (RANKS, {}),
    "CCM unsorted constraints": ("ccm", {"order": "given"}),
    "CCM constraints sorted by type, operator, value": ("ccm", {"order": "sorted"}),
    "CCM Memset": ("ccm", {"reset": "memset"}),
    "CCM Kernel": ("ccm", {"reset": "kernel"}),
    "centralized": ("twophase", {}),
    "TagMatch": ("tagmatch", {"variant": "hybrid"}),
    "CPU-only, TagMatch": ("tagmatch", {"variant": "cpu"}),
    "GPU-only, plain": ("tagmatch", {"variant": "gpu-plain"}),
    "GPU-only, plain with batching": ("tagmatch", {"variant": "gpu-batched"}),
    **dict.fromkeys(("CPU-only, fast prefix tree", "Prefix tree", "prefix tree"), ("tagmatch", {"variant": "prefix-tree"})),
    **{
        f"{subject}{way}": ("twophase", {"technique": technique} | ({"synchronization": option} if option else {}))
        for subject, technique in (("ME-IP", "me-ip"), ("SE-CP", "se-cp"), ("Hybrid", "me-cp"))
        for way, option in (("", ""), (" static", "static"), (" lock-based", "lock"), (" STM", "retry"))
    },
}


def claims(experiment: Experiment, records: Sequence[Result]) -> list[Claim]:
    """Every result that the paper prints for an experiment, with what the records say."""
    return [_claim(each, records) for each in of_experiment(experiment) if each.kind == "result"]


def of_experiment(experiment: Experiment) -> list[Printed]:
    """What is printed in a table or figure, and in the text about it."""
    named = {experiment.artifact, f"{experiment.artifact}, text", f"{experiment.artifact}a", f"{experiment.artifact}b"}
    return [each for each in printed() if each.system == experiment.system and each.artifact in named]


def parameters(experiment: Experiment) -> list[tuple[Printed, str]]:
    """The parameters that a paper's table prints, each with what our scenario has; "-" where it has no such parameter."""
    of_all = {name: {key: value for key, value, _ in listed(SCENARIOS[name])} for name in (experiment.scenario, _BLOCKS)}
    found = []
    for each in of_experiment(experiment):
        key = _PARAMETERS.get(each.metric, _KEYS.get(each.metric, (each.metric, None))[0])
        name = _BLOCKS if each.parameters.get("workload") == "block size" else experiment.scenario
        found.append((each, of_all[name].get(key, "-")))
    return found


def _claim(each: Printed, records: Sequence[Result]) -> Claim:
    if each.metric == "slowdown_by_location":
        return _slowdown(each, records)
    if each.metric in _CHANGES:
        return _change(each, records)
    if each.metric.endswith("_mean"):
        return _mean(each, records)
    metric = _RATIOS.get(each.metric, each.metric)
    if metric not in _QUANTITIES or (each.metric in _QUANTITIES and each.unit not in _QUANTITIES[metric][1]):
        return Claim(each, None, {}, "not measured")
    at = _at(each, records)
    if not at:
        return Claim(each, None, {}, "no such point here")
    engine, options = _engine_of(each)
    if each.metric in _RATIOS:
        baseline = _baseline_of(each)
        of_baseline = _median(at, baseline, metric)
        if of_baseline is None:
            return Claim(each, None, {}, f"no {baseline or 'baseline'} here")

        def here(name: str, options: Mapping[str, str]) -> float | None:
            found = _median(at, name, metric, options)
            return None if found is None else of_baseline / found
    else:
        factor = _QUANTITIES[metric][1][each.unit]

        def here(name: str, options: Mapping[str, str]) -> float | None:
            found = _median(at, name, metric, options)
            return None if found is None else found * factor

    if each.subject == _WORKLOAD:
        return Claim(each, here(at[0]["engine"], {}), {})
    never = metric == "update_time" and not any("one_move_us" in record for record in at)  # ours are not deployed again
    ours = {name: value for name in OURS if not never and (value := here(name, {})) is not None}
    measured = None if engine is None else here(engine, options)
    return Claim(each, measured, ours, "" if measured is not None else "not run")


def _baseline_of(each: Printed) -> str:
    """The engine that a printed ratio is to; empty where it is none of ours."""
    usual = {"ccm": "SFF", "mpi-cuda": "CCM"}
    return {**BASELINES, "CCM": "ccm"}.get(each.baseline or usual.get(each.system, ""), "")


def _mean(each: Printed, records: Sequence[Result]) -> Claim:
    """The mean of a ratio over all points."""
    one = each._replace(metric=each.metric.removesuffix("_mean"), parameters={})
    points = {repr(point): point for point in map(without_workers, records)}
    ratios = [
        found.measured
        for point in points.values()
        if (found := _claim(one, [r for r in records if without_workers(r) == point])).measured is not None
    ]
    return Claim(each, statistics.mean(ratios) if ratios else None, {}, "" if ratios else "not run")


def _slowdown(each: Printed, records: Sequence[Result]) -> Claim:
    """How many times longer an engine takes with areas than without."""
    engine, _ = _engine_of(each)
    without, with_ = ([r for r in records if bool(value_of(r, "area")) is has] for has in (False, True))

    def here(name: str) -> float | None:
        before, after = (_median(group, name, "processing_time") for group in (without, with_))
        return None if before is None or after is None else after / before

    measured = None if engine is None else here(engine)
    return Claim(each, measured, {name: value for name in OURS if (value := here(name))}, "" if measured else "not run")


def _reduction(first: float, last: float) -> float:
    """By how many percent the second is less."""
    return 100 * (1 - last / first)


_CHANGES: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "matching_time_reduction": ("threads", _reduction),
    "matching_time_growth": ("filters", lambda first, last: last / first),
}
"""Printed changes of the time of an event: the parameter that changes, and the change from its least value to its greatest
one."""


def _change(each: Printed, records: Sequence[Result]) -> Claim:
    """How the time of an event changes from the least to the greatest value of a parameter."""
    key, change = _CHANGES[each.metric]
    engine, options = _engine_of(each)
    only = {name: value for name, value in each.parameters.items() if name == "threads" != key}
    mine = [record for record in records if all(value_of(record, name) == value for name, value in only.items())]
    values = sorted({value for record in mine if (value := value_of(record, key)) is not None})
    if engine is None or len(values) < 2:
        return Claim(each, None, {}, "not run")
    first, last = (
        _median([record for record in mine if value_of(record, key) == value], engine, "processing_time", options)
        for value in (values[0], values[-1])
    )
    measured = None if first is None or last is None else change(first, last)
    return Claim(each, measured, {}, "" if measured is not None else "not run")


def _engine_of(each: Printed) -> tuple[str | None, Mapping[str, str]]:
    if each.subject in _SUBJECTS:
        return _SUBJECTS[each.subject]
    faithful = {"CCM": "ccm", "CLCB": "clcb"}
    return faithful.get(each.subject, BASELINES.get(each.subject)), {}


def _at(each: Printed, records: Sequence[Result]) -> list[Result] | None:
    """The records at the point that a value is printed for; None when it cannot be told."""
    wanted: dict[str, Any] = {}
    for name, value in each.parameters.items():
        if name in _OF_NO_POINT:
            continue
        if name not in _KEYS or (
            isinstance(value, (str, list)) and name not in ("name_distribution", "spatial_distribution")
        ):
            return None
        key, there = _KEYS[name]
        wanted[key] = there(value)
    keys = {key for record in records for key in record.get("parameters") or {} if "." not in key or key in wanted}
    return [record for record in records if _is_at(record, {**_own(records), **wanted}, keys)]


def _own(records: Sequence[Result]) -> dict[str, Any]:
    """The scenario's own value of each parameter that varies, where that is among the points: what "default" means."""
    if not records or records[0]["scenario"] not in SCENARIOS:
        return {}
    own = {key: value_of({"parameters": {key: text}}, key) for key, text, _ in listed(SCENARIOS[records[0]["scenario"]])}
    there = {(key, value_of(record, key)) for record in records for key in record.get("parameters") or {}}
    return {key: value for key, value in own.items() if (key, value) in there}


def _is_at(record: Result, wanted: Mapping[str, Any], keys: set[str]) -> bool:
    scale = record.get("scale", 1.0)
    for key, value in wanted.items():
        if key not in keys:
            continue  # it is the scenario's own in every point
        scaled = max(round(value * scale), 1) if key in (*SCALED, "interfaces") else value
        if value_of(record, key) not in (value, scaled):
            return False
    return True


def _of(records: Sequence[Result], engine: str) -> list[Result]:
    """The records of an engine alone; or of runs with ranks, with the most workers."""
    with_ranks = [record for record in records if record.get("what") == "ranks"]
    if engine == RANKS:
        most = max((record["workers"] for record in with_ranks), default=0)
        return [record for record in with_ranks if record["workers"] == most]
    return [record for record in records if record["engine"] == engine and record.get("what") != "ranks"]


def _median(records: Sequence[Result], engine: str, metric: str, options: Mapping[str, str] | None = None) -> float | None:
    """The median of a quantity over an engine's records with these options; None without any."""
    quantity = _QUANTITIES[metric][0]
    values = [
        value
        for record in _of(records, engine)
        if all(record["engine_options"].get(key) == given for key, given in (options or {}).items())
        and (value := quantity(record)) is not None
    ]
    return statistics.median(values) if values else None


def table(experiment: Experiment, records: Sequence[Result]) -> list[str]:
    """The printed values and the measured ones as lines of text; of a table of parameters, those of our scenario."""
    if not experiment.runs:
        rows = [[each.metric, each.text, own] for each, own in parameters(experiment)]
        return aligned(["parameter", "printed", "here"], rows)
    found = claims(experiment, records)
    if not found:
        return ["# the text prints no value of it"]
    ours = [name for name in OURS if any(name in claim.ours for claim in found)]
    rows = [
        [
            f"{claim.printed.subject}: {claim.printed.metric}" + (f" ({where})" if (where := claim.printed.where) else ""),
            claim.printed.text,
            claim.why if claim.measured is None else f"{claim.measured:.3g}",
            *(f"{claim.ours[name]:.3g}" if name in claim.ours else "-" for name in ours),
        ]
        for claim in found
    ]
    notes = [
        f"# note: {claim.printed.subject}, {claim.printed.metric}: {claim.printed.note}"
        for claim in found
        if claim.printed.note
    ]
    return [*aligned(["value", "printed", "here", *ours], rows), *notes]
