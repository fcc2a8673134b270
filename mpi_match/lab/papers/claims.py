"""The printed values of an experiment beside the values measured here, for the same quantity at the same point.

    printed: SFF, processing_time, 1.035 ms, scenario default    ──► `us_per_event` of `sff` at the scenario's own parameters
    printed: CCM, speedup, 13 x, filters_per_interface 250000    ──► time of `sff` over time of `ccm` at that point
    printed: CCM, speedup, 7 to 13 x, interfaces [10, 100]       ──► the least and the most of these over the points between
    printed: SE-CP, best_block_size, 12                          ──► the block size with the least time

Other values (hardware, cited systems), and values at points that were not measured, have no counterpart; they are shown with
the reason, and with the value of the nearest point.

* A value is that of one machine and commit: of several, of the latest that has it.
* A point on a curve, or its change, needs both ends of the experiment's axis.
* A value at several points or options is the median of theirs, with the least and the greatest beside it.
* Times of CCM, CLCB and MPI-CUDA, and of the engines beside them, have the encoding of the event in them: the papers' times
  begin with attributes by their names.  The time without it is beside each.
* A latency needs a run that has settled, and a rate one whose events did not come at a rate.
* Runs with ranks are compared with runs of one worker, both from disk to disk.
"""

from __future__ import annotations

import json
import math
import operator
import re
import statistics
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from mpi_match.humanize import plural
from mpi_match.lab.bench.report import Result, aligned
from mpi_match.lab.bench.sweep_report import quantity, value_of
from mpi_match.lab.papers.catalog import BASELINES, CCM_ZIPF, OURS, Experiment
from mpi_match.lab.papers.published import Printed, printed
from mpi_match.lab.papers.run import defaults_of, scaled_keys, without_workers
from mpi_match.lab.workloads.parameters import SETS, listed
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

EngineOptions = Mapping[str, object]
Value = float | tuple[float, float]
"""A number, or the least and the most of several."""


def in_words(value: Value) -> str:
    """`0.0209`, `47,685`, `1.4 to 9.2`."""
    numbers = value if isinstance(value, tuple) else (value,)
    shown = (f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}" for number in numbers)
    return " to ".join(dict.fromkeys(shown))


class Claim(NamedTuple):
    """A printed value, and the same quantity measured here, in the same unit: for the same engine, and for ours.

    `why` says why that engine has no value, or how to read it; `commit` is that of its records.
    """

    printed: Printed
    measured: Value | None
    ours: Mapping[str, Value]
    why: str = ""
    commit: str = ""

    @property
    def here(self) -> str:
        """The measured value as text, or the reason why there is none."""
        if self.measured is None:
            return self.why
        return in_words(self.measured) + (f" ({self.why})" if self.why else "")


def _step(*names: str) -> Callable[[Result], float | None]:
    """Seconds that an event spends in some phases of the engine."""

    def seconds(record: Result) -> float | None:
        steps = record.get("steps_s")
        return None if steps is None else sum(steps.get(name, 0.0) for name in names) / record["n_events"]

    return seconds


def _field(name: str) -> Callable[[Result], float | None]:
    return lambda record: record.get(name)


ENCODED = ("ccm", "clcb")
"""Begins of the scenarios of papers whose times contain the encoding of an event."""


def encoding(record: Result) -> float:
    """Seconds of encoding an event that are in the paper's times, as far as the record has them; 0 in others."""
    return float(record["encode_s"]) / record["n_events"] if _has_encoding(record) else 0.0


def _has_encoding(record: Result) -> bool:
    return bool(record.get("encode_s")) and record["scenario"].startswith(ENCODED)


def _seconds(record: Result) -> float:
    """Seconds of an event, as the paper counts them."""
    return float(record["us_per_event"]) * 1e-6 + encoding(record)


def _served(record: Result) -> float | None:
    """Events a second as the paper counts them; None where they came at a rate of their own."""
    if record.get("rate"):
        return None
    if encoding(record) or "events_per_s" not in record:
        return 1 / _seconds(record)
    return float(record["events_per_s"])


def _size(record: Result) -> float | None:
    """Bytes of the engine, with the arrays that it shares with the table."""
    return quantity(record, "whole_bytes")


def _deployed(record: Result) -> float | None:
    """Seconds from subscriptions to an engine that can match; the table counts, because its order is part of the index."""
    return record["table_s"] + record["build_s"] if "build_s" in record else None


def _updated(record: Result) -> float | None:
    """Seconds of a change: moving a filter, or deploying again if the engine takes no changes."""
    return record["one_move_us"] * 1e-6 if "one_move_us" in record else _deployed(record)


SETTLED = 20
"""A latency is that of a run which lasts at least this many times as long as a time-out, and as the median latency."""


def _settled(record: Result) -> bool:
    """Tells whether the latencies of a record are independent of the length of its run."""
    least = max(1e-6 * record["latency_us"]["p50"], 1e-3 * float(record["engine_options"].get("timeout_ms", 0.0)))
    return bool(record["match_s"]["median"] >= SETTLED * least)


def _latency(which: str) -> Callable[[Result], float | None]:
    return lambda record: 1e-6 * record["latency_us"][which] if "latency_us" in record and _settled(record) else None


def _copy_share(record: Result) -> float | None:
    """The share of the phases' time that is spent on copies to and from the GPU."""
    copied, spent = _step("copy in", "copy out")(record), _step(*record.get("steps_s", ()))(record)
    return copied / spent if copied is not None and spent else None


def _filters_in_1_gb(record: Result) -> float | None:
    """Number of filters that fit into a gigabyte, extrapolated from the measured index."""
    return record["n_filters"] * 1e9 / record["engine_bytes"] if record.get("engine_bytes") else None


_TIMES = {"us": 1e6, "ms": 1e3, "s": 1.0}
_QUANTITIES: dict[str, tuple[Callable[[Result], float | None], Mapping[str, float]]] = {
    "processing_time": (_seconds, _TIMES),
    "throughput": (_served, {"events/s": 1.0, "queries/s": 1.0, "thousand queries/s": 1e-3}),
    "partitioning_time": (_field("build_s"), {"s": 1.0}),
    "deployment_time": (_deployed, _TIMES),
    "update_time": (_updated, _TIMES),
    "data_structure_size": (_size, {"MB GPU": 1e-6, "MB CPU": 1e-6}),
    "gpu_memory_max": (_size, {"MB": 1e-6}),
    "interfaces_selected": (lambda record: record["matches_per_event"] / record["n_interfaces"], {"%": 100.0}),
    "kernel_time": (_step("kernel"), _TIMES),
    "copy_input_time": (_step("copy in", "reset"), _TIMES),
    "phase1_time": (_step("phase 1"), _TIMES),
    "copy_time": (_step("copy in", "copy out"), _TIMES),
    "copy_results_time": (_step("copy out"), _TIMES),
    "copy_share": (_copy_share, {"%": 100.0}),
    "filters_in_1GB": (_filters_in_1_gb, {"filters": 1.0}),
    "query_time": (lambda record: record["us_per_event"] * 1e-6, _TIMES),
    "index_time": (_field("build_s"), {"s": 1.0}),
    "latency_median": (_latency("p50"), _TIMES),
    "latency_p99": (_latency("p99"), _TIMES),
    "latency_max": (_latency("max"), _TIMES),
}
"""Printed quantities: how to compute each from a record, and its factor for each unit."""
_BLOCKS = "debs2009-blocks"
"""The scenario of the second column of Farroukh's table 1."""
_WORKLOAD = "workload"
"""The subject of values that all engines share."""


_SHARE = "share_of_database"
"""Percentages of TagMatch's 212 million sets, as filters; the paper counts a tenth as 20 million once, and as 21.2 million
elsewhere."""
RANKS, ONE_RANK = "ranks", "one worker"
"""Names used instead of an engine's for runs with ranks: those with the most workers, of two or more; those with one."""
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "remaining_percent": lambda share: 1 - share / 100,
    "exponent": lambda name: {"uniform": 0, "zipf": 1}[name],
    "name_exponent": lambda name: {"uniform": 0, "zipf": float(CCM_ZIPF)}[name],
    "percent": lambda percent: percent / 100,
    "default_area": lambda has: 1e-4 if has else 0,
    "percent_of_database": lambda percent: 2_120_000 * percent,
    "zero_if_none": lambda value: value or 0,
}
"""Conversions of printed values to values of a sweep, by their names in claims.toml."""


class _Names(NamedTuple):
    """The tables of claims.toml, with an engine and its options for each subject."""

    ratios: Mapping[str, str]
    parameters: Mapping[str, str]
    keys: Mapping[str, Mapping[str, str]]
    subjects: Mapping[str, tuple[str, EngineOptions]]
    variants: Mapping[str, Mapping[str, tuple[str, EngineOptions]]]
    scenarios: Mapping[str, str]
    ignored: Sequence[str]


@cache
def _names() -> _Names:
    data = tomllib.loads(files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))

    def engines(table: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, EngineOptions]]:
        return {name: (row["engine"], {k: v for k, v in row.items() if k != "engine"}) for name, row in table.items()}

    variants = {subject: engines(table) for subject, table in data["variants"].items()}
    subjects, ignored = engines(data["subjects"]), data["points"]["ignored"]
    return _Names(data["ratios"], data["parameters"], data["keys"], subjects, variants, data["scenarios"], ignored)


def claims(experiment: Experiment, records: Sequence[Result], among: Sequence[Result] = ()) -> list[Claim]:
    """Every result that the paper prints for an experiment, with the measured value.

    If `records` are a part of all records, `among` are all: the points decide which value is the default.
    """
    shown = [each for each in of_experiment(experiment) if each.kind == "result"]
    states = _states(records)
    return [_of_states(experiment, each, states, among or records) for each in shown]


def _states(records: Sequence[Result]) -> list[Sequence[Result]]:
    """The records of each machine and commit, the latest first; one empty group without records."""
    states: dict[str, list[Result]] = {}
    for record in records:
        states.setdefault(json.dumps([record.get("commit"), record.get("machine")]), []).append(record)
    return sorted(states.values(), key=lambda mine: max(str(record.get("date")) for record in mine), reverse=True) or [[]]


def _of_states(experiment: Experiment, each: Printed, states: Sequence[Sequence[Result]], among: Sequence[Result]) -> Claim:
    """The claim of the latest state that has the value, else that of the state with the most records."""
    found = [
        _claim(experiment, each, mine, among)._replace(commit=str(mine[0].get("commit", "")) if mine else "")
        for mine in states
    ]
    most = max(range(len(states)), key=lambda number: len(states[number]))
    return next((claim for claim in found if claim.measured is not None), found[most])


def of_experiment(experiment: Experiment) -> list[Printed]:
    """The values printed in a table or figure, and in the text about it."""
    named = {experiment.artifact, f"{experiment.artifact}, text", f"{experiment.artifact}a", f"{experiment.artifact}b"}
    return [each for each in printed() if each.system == experiment.system and each.artifact in named]


def parameters(experiment: Experiment) -> list[tuple[Printed, str]]:
    """The parameters that a paper's table prints, each with the value of our scenario, or "-" if it lacks the parameter."""
    of_all = {name: {key: value for key, value, _ in listed(SCENARIOS[name])} for name in (experiment.scenario, _BLOCKS)}
    found = []
    for each in of_experiment(experiment):
        key = _names().parameters.get(each.metric) or _names().keys.get(each.metric, {}).get("key", each.metric)
        name = _BLOCKS if each.parameters.get("workload") == "block size" else experiment.scenario
        found.append((each, of_all[name].get(key, "-")))
    return found


def _claim(experiment: Experiment, each: Printed, records: Sequence[Result], among: Sequence[Result]) -> Claim:
    name = _scenario_of(experiment, each, among)
    mine, all_of_it = ([record for record in some if record["scenario"] == name] for some in (records, among))
    found = _claim_of(experiment, each, mine, all_of_it)
    if found.measured is None or name in {run.scenario for run in experiment.runs}:
        return found
    then = f"measured on `{name}`, the workload of this experiment then"
    return found._replace(why=", ".join(filter(None, [found.why, then])))


def _claim_of(experiment: Experiment, each: Printed, records: Sequence[Result], among: Sequence[Result]) -> Claim:
    """The claim from records of one scenario."""
    if each.metric == "slowdown_by_location":
        return _slowdown(each, records)
    if each.metric == "throughput_loss":
        return _loss(each, records)
    for metrics, rule in ((_CHANGES, _change), (_PLACES, _place)):
        if each.metric in metrics:
            return rule(experiment, each, records, among)
    if each.metric.endswith("_mean"):
        return _mean(experiment, each, records)
    if each.metric.startswith("gain_of_"):
        return _gain(each, records)
    metric = _names().ratios.get(each.metric, each.metric)
    if metric not in _QUANTITIES or (each.metric in _QUANTITIES and each.unit not in _QUANTITIES[metric][1]):
        return Claim(each, None, {}, "not measured")
    wanted = _conditions(each, among)
    at = _at(wanted, records)
    if not at:
        is_here = each.subject == _WORKLOAD or bool(_engines_of(each))
        return Claim(each, None, {}, _why_not(each, wanted, records) if is_here else f"no {each.subject} here")
    baseline = _baseline_of(each)
    if each.metric in _names().ratios and _median(at, baseline[0], metric, baseline[1]) is None:
        return Claim(each, None, {}, f"no {each.baseline or baseline[0] or 'baseline'} here")
    groups = _by([condition.key for condition in wanted if condition.several], at)

    def here(*engines: tuple[str, EngineOptions]) -> Value | None:
        found = (_middle(each, metric, group, *engine) for engine in engines for group in groups)
        return _span(value for value in found if value is not None)

    if each.subject == _WORKLOAD:
        return Claim(each, here((at[0]["engine"], {})), {})
    never = metric == "update_time" and not any("one_move_us" in record for record in at)  # ours are not deployed again
    own = [*((name, (name, {})) for name in OURS), *_beside(each).items()]
    ours = {name: value for name, engine in own if not never and (value := here(engine)) is not None}
    engines = _engines_of(each)
    measured = here(*engines)
    if measured is None:
        return Claim(each, None, ours, _unsettled(metric, at, engines) if engines else f"no {each.subject} here")
    bare = _span(
        value
        for engine in engines
        for group in groups
        if (value := _middle(each, metric, [{**record, "encode_s": 0.0} for record in group], *engine)) is not None
    )
    of_ranks = [record["workers"] for record in _of(at, RANKS)] if engines[0][0] == RANKS else []
    notes = [
        *_of_seeds(each, metric, at, engines),
        *([] if len(groups) > 1 else _of_points(each, metric, at, engines)),
        *([f"{in_words(bare)} without encoding"] if bare not in (None, measured) and metric in _TIMED else []),
        *([_deployment(at, engines)] if metric == "deployment_time" else []),
        *([f"with {plural(of_ranks[0], 'worker')}"] if of_ranks else []),
        *([_workload(at, engines)] if "operation" in each.parameters else []),
    ]
    return Claim(each, measured, ours, ", ".join(filter(None, notes)))


def _of_seeds(
    each: Printed, metric: str, at: Sequence[Result], engines: Sequence[tuple[str, EngineOptions]]
) -> Iterator[str]:
    """The interval of a value over its seeds; nothing for a value of several points, of one seed, or the same with all."""
    (engine, options), *others = engines
    mine = _with(_of(at, engine), options)
    seeds = {record.get("seed") for record in mine}
    if others or len(seeds) == 1 or len(mine) != len(seeds):
        return
    found = (_one(each, metric, [record for record in at if record.get("seed") == seed], engine, options) for seed in seeds)
    values = [value for value in found if value is not None]
    if len(values) == len(seeds) and in_words(min(values)) != in_words(max(values)):
        yield f"{in_words((min(values), max(values)))} over {len(seeds)} seeds"


def _points(records: Sequence[Result], engine: str, options: EngineOptions) -> list[list[Result]]:
    """The records of each point and options at which an engine was measured, together with other engines' at the point."""

    def point(record: Result) -> object:
        return {key: value for key, value in without_workers(record).items() if "." not in key}

    mine = _with(_of(records, engine), options)
    ways = {repr((point(record), record["engine_options"])): record for record in mine}
    return [
        [
            record
            for record in records
            if point(record) == point(one) and (record not in mine or record["engine_options"] == one["engine_options"])
        ]
        for one in ways.values()
    ]


def _at_points(each: Printed, metric: str, records: Sequence[Result], engine: str, options: EngineOptions) -> list[float]:
    """A printed quantity of an engine at each of its points."""
    found = (_one(each, metric, point, engine, options) for point in _points(records, engine, options))
    return [value for value in found if value is not None]


def _middle(each: Printed, metric: str, records: Sequence[Result], engine: str, options: EngineOptions) -> float | None:
    """The median of a printed quantity over an engine's points; None where it was not measured."""
    found = _at_points(each, metric, records, engine, options)
    return statistics.median(found) if found else None


_ALIKE = 0.01
"""Values that differ by less than this share need no interval."""


def _of_points(
    each: Printed, metric: str, at: Sequence[Result], engines: Sequence[tuple[str, EngineOptions]]
) -> Iterator[str]:
    """The interval of a value over several points or options; nothing for one, or where they hardly differ."""
    values = sorted(_at_points(each, metric, at, *engines[0])) if len(engines) == 1 else []
    if len(values) > 1 and values[-1] - values[0] > _ALIKE * abs(values[-1]):
        yield f"{in_words((values[0], values[-1]))} over {len(values)} points or options"


def _workload(at: Sequence[Result], engines: Sequence[tuple[str, EngineOptions]]) -> str:
    """The answers to a query: rates of TagMatch's variants on other workloads than its own are no ratio to each other."""
    found = _span(record["matches_per_event"] for name, how in engines for record in _with(_of(at, name), how))
    return "" if found is None else f"{in_words(found)} answers a query"


_TIMED = ("processing_time", "throughput")
"""Quantities that contain the encoding of events."""


def _deployment(at: Sequence[Result], engines: Sequence[tuple[str, EngineOptions]]) -> str:
    """The part of a deployment that is the engine's own; the table is made once for all engines."""
    own = _span(value for engine in engines if (value := _median(at, engine[0], "index_time", engine[1])) is not None)
    return "" if own is None else f"{in_words(own)} s of it the index, the rest the table that engines share"


def _unsettled(metric: str, at: Sequence[Result], engines: Sequence[tuple[str, EngineOptions]]) -> str:
    """The reason why records of these engines have no value of a quantity."""
    if engines[0][0] == RANKS and _of(at, ONE_RANK):
        return "not measured: one worker is what more are compared with"
    mine = [record for name, options in engines for record in _with(_of(at, name), options)]
    if not mine:
        given = [(name, {key: value}) for name, options in engines for key, value in options.items() if _of(at, name)]
        lacks = [f"{key}={value}" for name, one in given if not _with(_of(at, name), one) for key, value in one.items()]
        return f"not run with {' '.join(lacks)}" if lacks else "not run"
    if metric.startswith("latency_") and (found := [r for r in mine if "latency_us" in r and not _settled(r)]):
        lasted, median = found[0]["match_s"]["median"], 1e-6 * found[0]["latency_us"]["p50"]
        return f"not measured: the run of {lasted:.2g} s, with a median of {median:.2g} s, has not settled"
    if metric == "throughput" and any(record.get("rate") for record in mine):
        return "not measured: events came at a rate"
    if metric in ("data_structure_size", "gpu_memory_max"):
        return "not measured: the record leaves out the arrays that the engine shares with the table"
    return "not run"


def _one(each: Printed, metric: str, records: Sequence[Result], engine: str, options: EngineOptions) -> float | None:
    """A printed quantity of an engine at one point, in its unit; None where it was not measured."""
    found = _median(records, engine, metric, options)
    if found is None or each.metric not in _names().ratios:
        return None if found is None else found * _QUANTITIES[metric][1][each.unit]
    baseline, its_options = _baseline_of(each)
    of_baseline = _median(records, baseline, metric, its_options)
    return None if of_baseline is None else of_baseline / found


def _span(values: Iterable[float]) -> Value | None:
    """A single value, or the least and the greatest of several; None without values."""
    found = sorted(values)
    return None if not found else found[0] if len(found) == 1 else (found[0], found[-1])


def _by(keys: Sequence[str], records: Sequence[Result]) -> list[list[Result]]:
    """Group records by their values of some keys."""
    groups: dict[str, list[Result]] = {}
    for record in records:
        groups.setdefault(repr([_value(record, key) for key in keys]), []).append(record)
    return list(groups.values())


def _baseline_of(each: Printed) -> tuple[str, EngineOptions]:
    """The engine that a printed ratio refers to, with its options; an empty name if it does not exist here."""
    if _names().subjects.get(each.subject) == (RANKS, {}):
        return ONE_RANK, {}
    usual = {"ccm": "SFF", "mpi-cuda": "CCM"}
    name = each.baseline or usual.get(each.system, "")
    engine = {**BASELINES, "CCM": "ccm"}.get(name, "")
    return _names().subjects.get(name) or (engine, _with_areas(each, engine))


def _with_areas(each: Printed, engine: str) -> EngineOptions:
    """The options with which a baseline of CLCB's paper has areas as constraints; none where there are no areas."""
    has_areas = each.system == "clcb" and each.parameters.get("location", True) and each.metric != "update_time"
    return {"area": "constraints"} if has_areas and engine in ("sff", "betree") else {}


def _mean(experiment: Experiment, each: Printed, records: Sequence[Result]) -> Claim:
    """The mean of a ratio over all points, and the least and the greatest."""
    one = each._replace(metric=each.metric.removesuffix("_mean"), parameters={})
    given = list(map(without_workers, records))
    varied = sorted(set.intersection(*map(set, given))) if given else []  # runs with ranks say less of an engine's options
    found = [_claim(experiment, one, point, point) for point in _by(varied, records)]
    ratios = [claim.measured for claim in found if isinstance(claim.measured, float)]
    if not ratios:
        return Claim(each, None, {}, "not run")
    notes = dict.fromkeys([f"{in_words((min(ratios), max(ratios)))} at its points", *(claim.why for claim in found)])
    return Claim(each, statistics.mean(ratios), {}, ", ".join(filter(None, notes)))


def _gain(each: Printed, records: Sequence[Result]) -> Claim:
    """The gain of one variant of an engine over another, in percent: the median over seeds, with the least and greatest."""
    variants = _variants(each)
    if not variants:
        return Claim(each, None, {}, "not measured")

    def gains(records: Sequence[Result]) -> list[float]:
        found = []
        for of_seed in _by_seed(records):
            mine, other = (_median(of_seed, *one) for one in variants)
            if mine is not None and other is not None:
                found.append(_reduction(other, mine))
        return sorted(found)

    found, bare = gains(records), gains([{**record, "encode_s": 0.0} for record in records])
    if not found:
        return Claim(each, None, {}, "not run")
    gain, without = statistics.median(found), statistics.median(bare)
    notes = [
        f"{in_words((found[0], found[-1]))} over {len(found)} seeds" if len(found) > 1 else "",
        "" if without == gain else f"{in_words(without)} without encoding",
    ]
    return Claim(each, gain, {}, ", ".join(filter(None, notes)))


def _by_seed(records: Sequence[Result]) -> list[list[Result]]:
    """The records of each seed."""
    groups: dict[object, list[Result]] = {}
    for record in records:
        groups.setdefault(record.get("seed"), []).append(record)
    return list(groups.values())


def _variants(each: Printed) -> list[tuple[str, str, EngineOptions]]:
    """The engine of a value and its baseline, as `_median` takes them; empty if one of them does not exist here."""
    found = [_names().subjects.get(name) for name in (each.subject, each.baseline)]
    return [(one[0], "processing_time", one[1]) for one in found if one is not None] if None not in found else []


def _loss(each: Printed, records: Sequence[Result]) -> Claim:
    """The loss of throughput by a time-out, in percent of that without one."""
    key, timeout = "tagmatch.timeout_ms", each.parameters["timeout_ms"]
    of = [_median([r for r in records if _value(r, key) == at], "tagmatch", "throughput") for at in (0, timeout)]
    if of[0] is None or of[1] is None:
        return Claim(each, None, {}, _unsettled("throughput", records, [("tagmatch", {})]))
    return Claim(each, _reduction(of[0], of[1]), {})


def _slowdown(each: Printed, records: Sequence[Result]) -> Claim:
    """The slowdown of an engine by areas, as a factor."""
    without, with_ = ([r for r in records if bool(value_of(r, "area")) is has] for has in (False, True))

    def here(name: str, options: EngineOptions) -> float | None:
        before, after = _median(without, name, "processing_time"), _median(with_, name, "processing_time", options)
        return None if before is None or after is None else after / before

    measured = next((value for engine in _engines_of(each) if (value := here(*engine)) is not None), None)
    ours = {name: value for name in OURS if (value := here(name, {})) is not None}
    return Claim(each, measured, ours, "" if measured else "not run with areas as constraints")


def _reduction(first: float, last: float) -> float:
    """The reduction from the first to the second, in percent."""
    return 100 * (1 - last / first)


def _ratio(first: float, last: float) -> float:
    """The first over the second."""
    return first / last


_CHANGES: dict[str, tuple[str, str, Callable[[float, float], float]]] = {
    "thread_speedup": ("threads", "threads", _ratio),
    "matching_time_reduction": ("threads", "threads", _reduction),
    "matching_time_growth": ("subscriptions", "filters", lambda first, last: last / first),
}
"""Printed changes of the time of an event: the varied parameter as printed and here, and the change from end to end."""


def _change(experiment: Experiment, each: Printed, records: Sequence[Result], _: Sequence[Result]) -> Claim:
    """The change of the time of an event from one end of an axis to the other, or between the values that are printed."""
    said, key, change = _CHANGES[each.metric]
    only = {name: value for name, value in each.parameters.items() if name == "threads" != key}
    axis, given = _axis(experiment, key), each.parameters.get(said)
    ends = tuple(given) if isinstance(given, list) else (axis[0], axis[-1])

    def here(engine: str, options: EngineOptions) -> tuple[float | None, str]:
        mine = [
            r
            for r in _with(_of(records, engine), options)
            if all(value_of(r, name) == value for name, value in only.items())
        ]
        if why := _not_to_the_ends(key, ends, mine):
            return None, why
        first, last = (
            _median([r for r in mine if _Condition(key, "=", (end,)).holds(r)], engine, "processing_time") for end in ends
        )
        assert first is not None
        assert last is not None
        return change(first, last), ""

    measured, why = here(*next(iter(_engines_of(each)), ("", {})))
    beside = {name: value for name, way in _beside(each).items() if (value := here(*way)[0]) is not None}
    return Claim(each, measured, beside, why)


def _axis(experiment: Experiment, key: str) -> list[float]:
    """The numbers that an experiment varies a parameter over, ascending."""
    texts = {value for run in experiment.runs for axis in run.axes if axis.key == key for value in axis.values}
    return sorted(int(text) if text.isdecimal() else float(text) for text in texts)


def _not_to_the_ends(key: str, ends: Sequence[float], records: Sequence[Result]) -> str:
    """The reason why records do not reach from one end of an axis to the other; empty if they do."""
    have = _span({value for record in records if isinstance(value := _value(record, key), (int, float))})
    if have is None:
        return "not run"
    if all(any(_Condition(key, "=", (end,)).holds(record) for record in records) for end in ends):
        return ""
    return f"not measured: {key.rpartition('.')[2]} {in_words(have)} of {in_words((ends[0], ends[-1]))}"


_GOOD = 1.1
"""A point is good if its time is at most this factor above the best one."""
_Curve = Sequence[tuple[float, float]]
"""Values of a parameter in order, each with the time of an event, or its share of the baseline's."""


def _best(curve: _Curve) -> Value | None:
    return min(curve, key=lambda point: point[1])[0]


def _good(curve: _Curve) -> list[float]:
    least = min(time for _, time in curve)
    return [at for at, time in curve if time <= _GOOD * least]


def _break_even(curve: _Curve) -> Value | None:
    """The least value from which on the time does not exceed the baseline's."""
    slower = [at for at, time in curve if time > 1]
    return min((at for at, _ in curve if not slower or at > slower[-1]), default=None)


_WITHIN = f"within {_GOOD - 1:.0%} of the best"
_PLACES: dict[str, tuple[str, Callable[[_Curve], Value | None], str]] = {
    "names_of_highest_speedup": ("names", _best, ""),
    "best_block_size": ("twophase.access_block", _best, ""),
    "best_max_p": ("tagmatch.max_p", _best, ""),
    "threads_of_highest_throughput": ("threads", _best, ""),
    "useful_threads": ("threads", lambda curve: _good(curve)[0], f"the fewest {_WITHIN}"),
    "good_block_sizes": ("twophase.access_block", lambda curve: _span(_good(curve)), _WITHIN),
    "too_small": (
        "twophase.access_block",
        lambda curve: max((at for at, _ in curve if at < _good(curve)[0]), default=None),
        f"the largest below those {_WITHIN}",
    ),
    "too_large": (
        "twophase.access_block",
        lambda curve: min((at for at, _ in curve if at > _good(curve)[-1]), default=None),
        f"the smallest above those {_WITHIN}",
    ),
    "break_even": ("interfaces", _break_even, "the least point from which on it is not slower"),
}
"""Printed places on a curve: the parameter, the function that finds the place, and its meaning."""


def _place(experiment: Experiment, each: Printed, records: Sequence[Result], among: Sequence[Result]) -> Claim:
    """The value of a parameter at a place on the curve, such as the best one."""
    key, find, words = _PLACES[each.metric]
    at = _at([condition for condition in _conditions(each, among) if condition.key != key], records)
    baseline, its_options = _baseline_of(each)
    axis = _axis(experiment, key)

    def curve_of(engine: str, options: EngineOptions) -> _Curve:
        curve = []
        for group in _by([key], at):
            time = _median(group, engine, "processing_time", options)
            of_baseline = _median(group, baseline, "processing_time", its_options) if baseline else 1.0
            if time is not None and of_baseline is not None and isinstance(x := _value(group[0], key), (int, float)):
                curve.append((float(x), time / of_baseline))
        return sorted(curve) if len(curve) > 1 else []

    if not at:
        return Claim(each, None, {}, "not run")
    if why := _not_to_the_ends(key, (axis[0], axis[-1]), at):
        return Claim(each, None, {}, why)
    others = [*((name, (name, {})) for name in OURS), *_beside(each).items()]
    ours = {name: value for name, way in others if (curve := curve_of(*way)) and (value := find(curve)) is not None}
    curve = next((curve for engine in _engines_of(each) if (curve := curve_of(*engine))), [])
    found = find(curve) if curve else None
    if found is None:
        return Claim(each, None, ours, "no such point here")
    ends = {curve[0][0], curve[-1][0]} & set(found if isinstance(found, tuple) else (found,))
    notes = [
        words,
        "at an end of the axis" if ends else "",
        f"{len(curve)} of {len(axis)} points measured" if len(curve) < len(axis) else "",
    ]
    return Claim(each, found, ours, ", ".join(filter(None, notes)))


def _beside(each: Printed) -> Mapping[str, tuple[str, EngineOptions]]:
    """Variants of ours that stand beside the engine of a printed value, by the name shown."""
    return _names().variants.get(each.subject, {})


def _engines_of(each: Printed) -> list[tuple[str, EngineOptions]]:
    """The engines of a printed value, with their options; empty if we lack all of them."""
    names = {"CCM": "ccm", "CLCB": "clcb", **BASELINES}
    if each.subject in _names().subjects:
        return [_names().subjects[each.subject]]
    return [(names[name], _with_areas(each, names[name])) for name in each.subject.split(" and ") if name in names]


_KEYS = "tagmatch-keys"
"""The scenario in which both operations of TagMatch are measured."""


def _scenario_of(experiment: Experiment, each: Printed, among: Sequence[Result]) -> str:
    """The scenario of a printed value: the experiment's first, unless the value names another, or is of an operation of
    TagMatch that was measured with several keys.
    """
    have, first = [record["scenario"] for record in among], experiment.runs[0].scenario if experiment.runs else ""
    name = first if first in have else next(iter(have), "")
    if "operation" in each.parameters:
        keyed = [record for record in among if record["scenario"] == _KEYS]
        name = _KEYS if keyed and _claim_of(experiment, each, keyed, keyed).measured is not None else name
    return _names().scenarios.get(str(each.parameters.get("scenario")), name)


_BOTH = "both"
"""Stands for both operations: the value is the median of theirs."""
_ABOUT = 0.1
"""Relative tolerance for values that are printed as round numbers."""
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": math.isclose,
    "~": lambda value, end: math.isclose(value, end, rel_tol=_ABOUT),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_ENDS: dict[Any, Callable[[Iterable[float]], float]] = {"few": min, "many": max}
"""Printed ends of a curve."""


class _Condition(NamedTuple):
    """A condition on a point: one value of a parameter, a range of values, or a bound.

    relation  one of `_RELATIONS`; `to` a range with its ends
    ends      the value, or both ends
    """

    key: str
    relation: str
    ends: tuple[Any, ...]

    @classmethod
    def of(cls, name: str, value: Any) -> _Condition:
        """The condition of a printed parameter, whose value may be `[1, 2]` or `<1000`."""
        row = _names().keys.get(name, {})
        key, there = row.get("key", name), _CONVERSIONS.get(row.get("convert", ""), lambda value: value)
        if isinstance(value, list):
            return cls(key, "to", tuple(sorted(map(there, value))))
        if isinstance(value, str) and (found := re.fullmatch(r"([<>]=?)(\d+)", value)):
            return cls(key, found[1], (there(int(found[2])),))
        return cls(key, "~" if name == _SHARE else "=", (there(value),))

    @property
    def several(self) -> bool:
        """Returns whether several points may fulfil the condition."""
        return self.relation not in ("=", "~")

    def holds(self, record: Result) -> bool:
        """Returns whether a record fulfils the condition; a record without the parameter holds for all values."""
        value = _value(record, self.key)
        scale: float = record.get("scale", 1.0)
        shares: tuple[float, ...] = (1.0,)
        if self.key == "interfaces":
            shares = (1.0, scale)
        elif self.key in scaled_keys(SCENARIOS.get(record["scenario"]), record.get("parameters") or {}):
            shares = (scale,)
        return value is None or any(self._holds(value, share) for share in shares)

    def _holds(self, value: Any, share: float) -> bool:
        ends = [max(round(end * share), 1) if share != 1 and isinstance(end, int) else end for end in self.ends]
        if isinstance(value, str) or any(isinstance(end, str) for end in ends):
            return [value] == ends
        if self.relation == "to":
            return bool(ends[0] <= value <= ends[1])
        return _RELATIONS[self.relation](value, ends[0])

    def of_curve(self, records: Sequence[Result]) -> _Condition:
        """The condition for an end of a curve, `few` or `many`."""
        if self.ends[0] not in _ENDS:
            return self
        have = {value for record in records if isinstance(value := _value(record, self.key), (int, float))}
        return self._replace(ends=(_ENDS[self.ends[0]](have),)) if have else self

    def nearest(self, records: Sequence[Result]) -> _Condition | None:
        """The condition for the nearest measured value; None if values are not numbers."""
        have = {value for record in records if isinstance(value := _value(record, self.key), (int, float))}
        if not have or any(isinstance(end, str) for end in self.ends):
            return None
        return _Condition(self.key, "=", (min(have, key=lambda value: min(abs(value - end) for end in self.ends)),))


def _conditions(each: Printed, records: Sequence[Result]) -> list[_Condition]:
    """The conditions on the points of a printed value: its own parameters, and the scenario's values of all others."""
    given = [(name, value) for name, value in each.parameters.items() if name not in _names().ignored and value != _BOTH]
    said = [_Condition.of(name, value).of_curve(records) for name, value in given]
    if any(SETS in (record.get("parameters") or {}) for record in records):
        said = [condition._replace(key=SETS) if condition.key == "filters" else condition for condition in said]
    keys = {condition.key for condition in said}
    return said + [_Condition(key, "=", (value,)) for key, value in _own(records).items() if key not in keys]


def _at(wanted: Sequence[_Condition], records: Sequence[Result]) -> list[Result]:
    return [record for record in records if all(condition.holds(record) for condition in wanted)]


def _why_not(each: Printed, wanted: Sequence[_Condition], records: Sequence[Result]) -> str:
    """The reason why the point is missing, with the value measured at the nearest one."""
    lacking = [condition for condition in wanted if not any(condition.holds(record) for record in records)]
    at = _at([condition for condition in wanted if condition not in lacking], records)
    near = []
    for condition in lacking:
        nearest = condition.nearest(at)
        if nearest is None:
            return "no such point here"
        near.append(f"{nearest.key} {in_words(nearest.ends[0])}")
        at = _at([nearest], at)
    if not near:
        return "no such point here"
    metric = _names().ratios.get(each.metric, each.metric)
    found = _span(value for engine in _engines_of(each) if (value := _one(each, metric, at, *engine)) is not None)
    return f"no such point here; the nearest is {', '.join(near)}" + (f": {in_words(found)} {each.unit}" if found else "")


def _value(record: Result, key: str) -> object:
    """A record's value of a parameter, else the scenario's, else the engine's; None if there is none."""
    given = record.get("parameters") or {}
    if key in given or key == "interfaces":
        return value_of(record, key)
    return _own_values(record["scenario"]).get(key, record["engine_options"].get(key.rpartition(".")[2]))


@cache
def _own_values(scenario: str) -> Json:
    """A scenario's own values of its parameters."""
    if scenario not in SCENARIOS:
        return {}
    return {key: value_of({"parameters": {key: text}}, key) for key, text, _ in listed(SCENARIOS[scenario])}


def _own(records: Sequence[Result]) -> Json:
    """The scenario's value of each varied parameter, if it is among the points; this is the "default"."""
    own = _own_values(records[0]["scenario"]) if records else {}
    there = {(key, value_of(record, key)) for record in records for key in record.get("parameters") or {}}
    return {key: value for key, value in own.items() if (key, value) in there}


def _of(records: Sequence[Result], engine: str) -> list[Result]:
    """The records of an engine alone; or of runs with ranks, with the most workers."""
    with_ranks = [record for record in records if record.get("what") == "ranks"]
    if engine in (RANKS, ONE_RANK):
        wanted = max((record["workers"] for record in with_ranks if record["workers"] > 1), default=0)
        wanted = 1 if engine == ONE_RANK else wanted
        return [record for record in with_ranks if record["workers"] == wanted]
    return [record for record in records if record["engine"] == engine and record.get("what") != "ranks"]


def _with(records: Sequence[Result], options: EngineOptions | None) -> list[Result]:
    """The records with these options of the engine; an option that is younger than a record has its default there."""
    given = (options or {}).items()
    return [record for record in records if all(_option(record, key) == value for key, value in given)]


def _option(record: Result, key: str) -> object:
    own = record["engine_options"]
    return own[key] if key in own else defaults_of(record["engine"]).get(key)


def _median(records: Sequence[Result], engine: str, metric: str, options: EngineOptions | None = None) -> float | None:
    """The median of a quantity over an engine's records with these options; None without any."""
    number = _QUANTITIES[metric][0]
    values = [value for record in _with(_of(records, engine), options) if (value := number(record)) is not None]
    return statistics.median(values) if values else None


def table(experiment: Experiment, records: Sequence[Result]) -> list[str]:
    """The printed and the measured values as lines of text; for a table of parameters, those of our scenario."""
    if not experiment.runs:
        rows = [[each.metric, each.text, own] for each, own in parameters(experiment)]
        return aligned(["parameter", "printed", "here"], rows)
    found = claims(experiment, records)
    if not found:
        return ["# the text prints no value of it"]
    ours = list(dict.fromkeys(name for claim in found for name in claim.ours))
    rows = [
        [
            f"{claim.printed.subject}: {claim.printed.metric}" + (f" ({where})" if (where := claim.printed.where) else ""),
            claim.printed.text,
            claim.here,
            *(in_words(claim.ours[name]) if name in claim.ours else "-" for name in ours),
        ]
        for claim in found
    ]
    notes = [
        f"# note: {claim.printed.subject}, {claim.printed.metric}: {claim.printed.note}"
        for claim in found
        if claim.printed.note
    ]
    return [*aligned(["value", "printed", "here", *ours], rows), *notes]
