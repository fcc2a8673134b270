"""A sweep: engines compared at every combination of the values of some parameters.

    --vary names=10,20 --vary ccm.reset=kernel,memset

    names=10 ccm.reset=kernel ──► compare ──► a record for each engine and seed
    names=10 ccm.reset=memset ──► compare ──► ...

A key is a parameter of the scenario (`workloads.parameters`), one of `RUN_KEYS`, or an engine's option, with or without its
engine.  All combinations are checked before the first is measured.  A record has the values of its point as `parameters`.
With `resume`, a point is measured unless the file has its records already, of the same commit and machine.

A point that differs from the one before only in its events has the same table, and the same engines unless one of their
options varies; neither is built again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from mpi_match.engines.registry import check_options, of_engine, read_options
from mpi_match.environment.machine import commit, machine
from mpi_match.errors import OptionError
from mpi_match.lab.bench.engines import DEFAULT_OPTIONS, OPERATIONS, BenchOptions, KeptEngines, WrongAnswer, compare
from mpi_match.lab.bench.report import engine_of
from mpi_match.lab.bench.workload import KeptWorkloads, Source, WorkloadFiles
from mpi_match.lab.workloads.parameters import PER_INTERFACE, SETS, derived_of, parameters_of, with_parameters
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.model import Json

RUN_KEYS = {
    "events": "n_events",
    "batch": "batch",
    "threads": "threads",
    "rate": "rate",
    "moves": "moves",
    "operation": "operation",
}
"""Keys of the measurement that can be varied, each with its field of `BenchOptions`."""
MAX_VALUES = 10_000
_SPAN = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(\d+))?")


class Axis(NamedTuple):
    """A varied parameter, and its values as text."""

    key: str
    values: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Axis:
        """Read `KEY=VALUE,...`; among the values, `1..9` are the whole numbers from 1 to 9 and `0..100..20` every twentieth.

        Raises OptionError.
        """
        key, equals, listed = text.partition("=")
        values: list[str] = []
        for each in listed.split(","):
            if found := _SPAN.fullmatch(each):
                first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
                if step < 1 or not first <= last < first + step * MAX_VALUES:
                    raise OptionError(f"{each!r} in {text!r} is not a range of 1 to {MAX_VALUES:,} values")
                values += map(str, range(first, last + 1, step))
            else:
                values.append(each)
        if not key or not equals or not all(values):
            raise OptionError(f"{text!r} is not of the form KEY=VALUE,... such as names=10,20,50 or constraints=1..9")
        if len(set(values)) < len(values):
            raise OptionError(f"a value is repeated in {text!r}")
        return cls(key, tuple(values))


class Point(NamedTuple):
    """One combination: values by key, with the scenario and the options that they result in."""

    values: dict[str, str]
    scenario: Source
    options: BenchOptions

    def __str__(self) -> str:
        return " ".join([self.scenario.name, *(f"{key}={value}" for key, value in self.values.items())])


@dataclass(frozen=True)
class Sweep:
    """The parameters of a sweep.

    scenario  a name of `SCENARIOS`, or files, which have no parameters
    fixed   parameters of the scenario that differ from its own in every point, by key
    axes    what is varied, the last one fastest
    options of every point; its seed is the first of `seeds`
    """

    scenario: str | WorkloadFiles
    engines: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    fixed: Mapping[str, str] | None = None
    options: BenchOptions = DEFAULT_OPTIONS
    seeds: int = 1

    def points(self) -> list[Point]:
        """All points, checked.  Raises OptionError, EngineError for an impossible one."""
        keys = [*(self.fixed or ()), *(axis.key for axis in self.axes)]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise OptionError(f"{min(twice)!r} is given twice")
        combinations = itertools.product(*(axis.values for axis in self.axes))
        names = [axis.key for axis in self.axes]
        points = [self._point({**(self.fixed or {}), **dict(zip(names, values, strict=True))}) for values in combinations]
        for point in points:
            check_options(self.engines, point.options.engine_options, measured=True)
            if point.options.moves and not getattr(point.scenario, "area", 0):
                raise OptionError(f"{self.name} has no areas to move")
        return points

    @property
    def name(self) -> str:
        """The name of the workload in results."""
        return self.scenario if isinstance(self.scenario, str) else self.scenario.name

    def _point(self, values: dict[str, str]) -> Point:
        base = SCENARIOS[self.scenario] if isinstance(self.scenario, str) else self.scenario
        own = set[str]() if isinstance(base, WorkloadFiles) else {*parameters_of(base), *derived_of(base)}
        of_scenario = {key: value for key, value in values.items() if key in own}
        if self.options.n_filters is not None and not {"filters", PER_INTERFACE, SETS} & of_scenario.keys():
            of_scenario["filters"] = str(self.options.n_filters)
        of_run: dict[str, Any] = {RUN_KEYS[key]: _of_run(key, value) for key, value in values.items() if key in RUN_KEYS}
        of_engines = {key: value for key, value in values.items() if key not in own and key not in RUN_KEYS}
        given = {**self.options.engine_options, **of_engines}
        self._know(of_engines, own)
        options = replace(self.options, n_filters=None, engine_options=given, **of_run)
        if isinstance(base, WorkloadFiles):
            return Point(values, base, replace(options, n_events=min(options.n_events, base.n_events)))
        return Point(values, with_parameters(base, of_scenario), options)

    def _know(self, of_engines: Mapping[str, str], own: set[str]) -> None:
        """Raise OptionError for a key that neither the scenario, the measurement nor an engine has."""
        for key in of_engines:
            if "." not in key and not any(key in read_options(name, {}) for name in self.engines if name != "auto"):
                raise OptionError(
                    f"unknown key {key!r}. Keys of {self.name}: {', '.join(sorted(own)) or 'no parameters'}; "
                    f"of the measurement: {', '.join(RUN_KEYS)}; of engines, `mpi-match engines` lists them"
                )

    def run(
        self,
        have: Sequence[Mapping[str, object]] = (),
        tell: Callable[[str], None] = lambda text: None,
        workloads: KeptWorkloads | None = None,
    ) -> Iterator[list[Json]]:
        """Measure every point with every seed; yields the records of each.

        Parameters: `have` records that exist, whose points are passed over; `tell` takes a line about each point, and
        indented ones about its engines (`compare`); `workloads` of other sweeps too.
        Raises what `points` and `compare` raise.
        """
        done, known = {_identity(record) for record in have}, self.earlier([dict(record) for record in have])
        rounds = [(point, self.options.seed + k) for point in self.points() for k in range(self.seeds)]
        workloads, engines = workloads or KeptWorkloads(), KeptEngines()
        for number, (point, seed) in enumerate(rounds, 1):
            what = f"{number} of {len(rounds)}: {point}" + (f" seed={seed}" if self.seeds > 1 else "")
            if done and all(identity in done for identity in self._identities(point, seed)):
                tell(f"{what}: is there already")
                continue
            tell(what)
            drawn = point.scenario, point.options.n_events, seed
            if not engines.is_for(workloads.table_of(*drawn)):
                engines.drop_others(None)  # before there is another table
            workload = workloads.of(*drawn)
            options = replace(point.options, seed=seed)
            records = compare(point.scenario, self.engines, options, workload, lambda text: tell(f"  {text}"), engines)
            more: dict[str, Any] = {"parameters": point.values} if point.values else {}
            more |= {"drawn_from": _drawn_from(point.scenario)}
            more |= {"moved": point.options.moves} if point.options.moves else {}
            found = [{**record, **more} for record in records]
            known += found
            check_agreement(known)
            yield found

    def earlier(self, have: Sequence[Json]) -> list[Json]:
        """The existing records that belong to this sweep."""
        mine = {
            identity
            for point in self.points()
            for k in range(self.seeds)
            for identity in self._identities(point, self.options.seed + k)
        }
        return [record for record in have if _identity(record) in mine]

    def _identities(self, point: Point, seed: int) -> list[tuple[object, ...]]:
        """The identities of a point's records.  Records name the chosen engine, so `auto` is measured again."""
        names = (*self.engines, *(each.name for each in point.options.beside))
        return [_identity({**_made(), **self._wanted(point, name, seed)}) for name in names]

    def _wanted(self, point: Point, engine: str, seed: int) -> Json:
        given = of_engine(engine, point.options.engine_options)
        beside = {each.name: each.command for each in point.options.beside}.get(engine)
        return {
            "scenario": self.name,
            "drawn_from": _drawn_from(point.scenario),
            **({"parameters": point.values} if point.values else {}),
            "engine": engine,
            "engine_options": {} if engine == "auto" or beside else read_options(engine, given, measured=True),
            "rate": None if beside else point.options.rate,
            "moved": point.options.moves or None,
            "operation": point.options.operation if point.options.filters else None,
            "n_events": point.options.n_events,
            "batch": point.options.n_events if beside else point.options.batch,
            "beside": beside,
            "repetitions": point.options.repetitions,
            "seed": seed,
        }


def check_agreement(records: Iterable[Mapping[str, object]]) -> None:
    """Raise WrongAnswer when records of the same workload have different answers; variants of an engine are measured at
    different times.
    """
    first: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for record in records:
        if "answers_digest" not in record:  # of an engine that is not exact, of others' matchers, of earlier versions
            continue
        workload = tuple(record.get(key) for key in ("scenario", "drawn_from", "n_events", "seed", "operation"))
        other = first.setdefault(workload, record)
        if other["answers_digest"] != record["answers_digest"]:
            one, two = (f"{engine_of(dict(each))}, {each.get('parameters') or {}}," for each in (other, record))
            raise WrongAnswer(f"{one} and {two} answer the same {record['n_events']:,} events of {workload[0]} differently")


@cache
def _made() -> Json:
    return {"commit": commit(), "machine": machine()}


_SAME = (
    *("scenario", "drawn_from", "engine", "beside", "n_events", "batch", "rate", "moved", "operation", "repetitions"),
    *("seed", "commit"),
)


def _identity(record: Mapping[str, object]) -> tuple[object, ...]:
    """The key by which two records measure the same thing, so that one of them suffices."""
    nested = (json.dumps(record.get(key), sort_keys=True) for key in ("parameters", "engine_options", "machine"))
    return *(record.get(key) for key in _SAME), *nested


def _drawn_from(scenario: Source) -> str:
    """A digest of all parameters of a scenario, or of the contents of files."""
    if isinstance(scenario, WorkloadFiles):
        return scenario.digest[:12]
    return hashlib.sha256(repr(scenario).encode()).hexdigest()[:12]


def _of_run(key: str, text: str) -> int | str:
    if key == "operation":
        if text not in OPERATIONS:
            raise OptionError(f"operation is {text!r}; it must be {' or '.join(OPERATIONS)}")
        return text
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"{key} is {text!r}; it must be a whole number of at least 1")
    return int(text)
