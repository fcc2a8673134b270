"""Benchmark of engines: what is timed, what is not, and how answers are checked.

    subscriptions ──► table ──► engine ──► answers of all batches, `repetitions` times
           table_s    build_s     match_s: median, least, most

* **Timed apart.**  `table_s` encodes the subscriptions, `build_s` makes the engine's index (and uploads it), `encode_s`
  encodes the events, `match_s` goes from encoded batches in memory to answers in memory, as in a worker: a batch is begun
  before the one before it is ended, and the batches' memory is pinned for a GPU (`Engine.pin`).  Making the workload is
  never timed.
* **From lines.**  Events in files of rows are also scanned and matched batch by batch by each engine, as often and with as
  many threads: `rows_per_s`, from rows in memory to answers in memory.  For a GPU, as many threads as in `match` each scan a
  batch ahead, and the first run is not counted.
* **Warm.**  Before any clock starts, the engine is built for a small table of the same scenario and matches a few events,
  so that code compiled on first use is compiled.  Then it matches batches with the real table for a second, not timed.
* **Checked.**  The answers of the timed runs are the ones that are checked.  All repetitions (and all engines compared) must
  agree on every event, and so must points of a sweep with one workload, as those of an engine's variants
  (`sweep.check_agreement`).  A sample of events, half of them with answers, is judged by a second, simple engine,
  and by the naive matcher if the table is small.  One wrong answer raises WrongAnswer instead of a result.
* **Side by side.**  Engines that are compared take turns, repetition by repetition, so a machine that slows down affects all
  of them.

Not measured: disk, network and MPI (`bench --scaling` measures runs).  `match_s` of a GPU engine includes the copies to and
from the device.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.commands.scan_ahead import ahead_of_gpu
from mpi_match.engines import Engine, match_all, open_engine
from mpi_match.engines.registry import REGISTRY, check_options, of_engine
from mpi_match.environment.machine import origin, peak_bytes
from mpi_match.errors import EngineError, MpiMatchError, OptionError
from mpi_match.events.batch import EventBatch
from mpi_match.humanize import plural
from mpi_match.lab.bench.ahead import batches_ahead
from mpi_match.lab.bench.beside import Beside, measure_beside
from mpi_match.lab.bench.energy import EnergyMeter, Joules
from mpi_match.lab.bench.moves import changes_of, measure_moves, moved
from mpi_match.lab.bench.open_loop import Served, arrivals, serve
from mpi_match.lab.bench.workload import Source, Workload, WorkloadFiles
from mpi_match.lab.workloads.scenarios import SCENARIOS
from mpi_match.matches.matches import Matches
from mpi_match.model import Json, match_naive
from mpi_match.table.table import Table

log = logging.getLogger(__name__)

COVERS_FILTERS = 20_000
"""Number of filters of the largest table that the naive matcher judges as well."""
MAX_BUILDS, MAX_BUILD_S = 3, 3.0
"""An index is built at most this often, and not after this many seconds; `build_s` is the median."""


class WrongAnswer(MpiMatchError):
    """An engine contradicts itself, another engine, or the naive matcher; the message has the event and both answers."""


def require(right: bool, otherwise: str) -> None:
    """Raise WrongAnswer with the text `otherwise` unless `right`."""
    if not right:
        raise WrongAnswer(otherwise)


OPERATIONS = {"match-unique": False, "match": True}
"""The two operations of TagMatch's paper: match-unique finds the interfaces of an event, each once, and match finds all its
filters.  The value tells whether the answers are filters."""


@dataclass
class Contender:
    """One engine in a benchmark: its build time, and the times and answers of its repetitions."""

    engine: Engine
    build_s: float
    runs_s: list[float] = field(default_factory=list)
    rows_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    kernel_s: list[float] = field(default_factory=list)
    steps_s: list[dict[str, float]] = field(default_factory=list)
    joules: list[Joules] = field(default_factory=list)
    candidates: int | None = None
    answers: Matches | None = None
    checked: dict[str, int] = field(default_factory=dict)
    accuracy: dict[str, float] = field(default_factory=dict)
    moves: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchOptions:
    """The way in which engines are measured.

    n_filters        scales the scenario
    batch            events per call of `match`; 1 also measures the latency of each event
    repetitions      timed runs over all events
    device, threads  as in `open_engine`
    check            events whose answers are judged
    engine_options   by `key` or `engine.key`, as in `open_engine`
    steps            engines report the times of their own phases, which may make them slower
    warm_up_s        seconds that an engine matches before it is timed
    rate             events that arrive in a second, independent of the engine (`open_loop`); None: no waiting
    moves            number of interfaces that move afterwards, with all their filters (`moves`); engines then are opened for
                     a table that changes, where they can be
    operation        one of `OPERATIONS`
    beside           external matchers, measured after the engines (`beside`)
    """

    n_filters: int | None = None
    n_events: int = 100_000
    batch: int = 65_536
    repetitions: int = 5
    seed: int = 0
    device: int | None = None
    threads: int | None = None
    check: int = 10
    engine_options: Mapping[str, object] = field(default_factory=dict)
    steps: bool = False
    warm_up_s: float = 1.0
    rate: float | None = None
    moves: int = 0
    beside: tuple[Beside, ...] = ()
    operation: str = "match-unique"

    @property
    def filters(self) -> bool:
        """Tells whether the answers are filters."""
        return OPERATIONS[self.operation]


DEFAULT_OPTIONS = BenchOptions()


class KeptEngines:
    """Measured engines for one table, by `_how_built`, reused for other events.

    Their `build_s` stays as measured.
    """

    def __init__(self) -> None:
        self._table: Table | None = None
        self._kept: dict[tuple[Any, ...], Contender] = {}

    def drop_others(self, table: Table | None, how: Sequence[tuple[object, ...]] = ()) -> None:
        """Free every engine except those for this table with these keys, before new ones are built."""
        wanted = set(how) if table is not None and table is self._table else set()
        self._kept = {key: contender for key, contender in self._kept.items() if key in wanted}
        self._table = table

    def is_for(self, table: Table | None) -> bool:
        """Returns whether engines for this table are kept."""
        return table is not None and table is self._table

    def take(self, how: tuple[object, ...]) -> Contender | None:
        """The kept engine with this key, or None."""
        return self._kept.pop(how, None)

    def keep(self, how: Sequence[tuple[object, ...]], contenders: Sequence[Contender]) -> None:
        """Keep engines for the table of the last `drop_others`."""
        fresh = [Contender(each.engine, each.build_s) for each in contenders]  # without answers
        self._kept = dict(zip(how, fresh, strict=True))


def _how_built(name: str, options: BenchOptions) -> tuple[object, ...]:
    """The key of an engine for a table; an engine that times its steps has its own key."""
    own = sorted((key, str(value)) for key, value in of_engine(name, options.engine_options).items())
    return name, options.device, options.threads, options.steps, bool(options.moves), *own


def bench(scenario: str | Source, engine: str, options: BenchOptions = DEFAULT_OPTIONS) -> Json:
    """Measure one engine on one scenario: `compare` with one engine."""
    (result,) = compare(scenario, [engine], options)
    return result


def compare(
    scenario: str | Source,
    engines: Sequence[str],
    options: BenchOptions = DEFAULT_OPTIONS,
    workload: Workload | None = None,
    tell: Callable[[str], None] = lambda text: None,
    kept: KeptEngines | None = None,
) -> list[Json]:
    """Measure engines side by side on the same events; one result for each, in the order given.

    `scenario` is a name of `SCENARIOS`, a scenario, or files; `workload` is the one that it and the options result in, if it
    already exists.  `tell` takes a line before each engine is built and before its first timed run, so that one that takes
    long has been named.  Engines that are `kept` are not built again, and those built here are kept there.

    A result holds only plain values, for one line of JSON: `scenario`, `engine`, `engine_options`, `device`, counts
    (`n_filters`, `n_constraints`, `n_interfaces`, `n_events`, `batch`, `repetitions`), seconds (`draw_s`, `table_s`,
    `build_s`, `encode_s`; `match_s` with median, min and max over the repetitions; with `steps`, `steps_s` of each phase in
    a repetition, the median), `energy_j` (`cpu` and `gpu` of a repetition, the median; None if not measured),
    `events_per_s` and `us_per_event` of the median, `ratio` to the first engine's `events_per_s`, `rows_per_s` (median, min
    and max; of files of rows), `latency_us` (p50, p99, p99.9, max; with batch 1, and with a `rate`, which is then there
    too), with `moves` what `moves.measure_moves` says, of engines that take them; `matches`, `matches_per_event`,
    `answers_digest` (of all answers, where the engine is exact), `candidates_per_event` (filters verified, where the engine
    counts them), `engine_bytes`, of an engine that is not exact `recall` and `precision` against an exact one beside it,
    `shared_bytes` (arrays of the table that the engine reads, which are not among those of the engine),
    `peak_bytes` (most resident memory of the process so far, with the workload),
    `checked` (judge: events judged), and what is needed to do it again: `seed`, `machine`, `versions`, `commit`, `command`,
    `date`.

    Raises KeyError for an unknown scenario, ValueError for a count below 1, EngineError, OptionError, WrongAnswer.
    """
    numbers = {name: getattr(options, name) for name in ("n_events", "batch", "repetitions")}
    for name, value in (*numbers.items(), ("engines", len(engines))):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    check_options(engines, options.engine_options, measured=True)
    chosen = SCENARIOS[scenario] if isinstance(scenario, str) else scenario
    if options.n_filters is not None and not isinstance(chosen, WorkloadFiles):
        chosen = chosen.scaled(options.n_filters)
    workload = workload or Workload.of(chosen, options.n_events, options.seed)
    kept = KeptEngines() if kept is None else kept
    how_built = [_how_built(name, options) for name in engines]
    kept.drop_others(workload.table, how_built)
    contenders = [
        kept.take(how) or _build(workload, name, options, tell) for name, how in zip(engines, how_built, strict=True)
    ]
    events_of = {id(contender): workload.events_for(contender.engine) for contender in contenders}
    for contender in contenders:
        events = events_of[id(contender)]
        contender.engine.pin(events.columns)
        if options.steps:
            contender.engine.time_steps()
        _warm_up(contender.engine, in_batches(events, options.batch), options)
    gc.collect()  # once: with all that is loaded it takes half a second, and no run is collected
    for _ in range(options.repetitions):
        for contender in contenders:
            if not contender.runs_s:
                tell(f"{contender.engine.name}: first of {plural(options.repetitions, 'run')}")
            events = events_of[id(contender)]
            if options.rate is None:
                batches = in_batches(events, options.batch)
                _repeat(contender, partial(_as_fast_as_it_can, batches=batches, filters=options.filters))
            else:
                when = arrivals(len(events), options.rate, workload.seed + len(contender.runs_s))
                in_time = partial(serve, events=events, arrival_s=when, most=options.batch, filters=options.filters)
                _repeat(contender, in_time)
    _time_rows(workload, contenders, options)
    first = contenders[0]
    for contender in contenders:
        if contender is not first and contender.engine.exact == first.engine.exact:
            _agree(first, contender)
        _judge(workload, contender, options)
        exact = next((each for each in contenders if each.engine.exact), None)
        if exact is not None and not contender.engine.exact:
            contender.accuracy = accuracy_of(contender, exact)
        log.info("%s judged: %s", contender.engine.name, contender.checked)
    if options.moves:
        _move(workload, contenders, options)
    else:
        kept.keep(how_built, contenders)
    more: Json = {} if options.rate is None else {"rate": options.rate}
    more |= {"operation": options.operation} if options.filters else {}
    found = [{**_result(workload, contender, first, options.batch), **more} for contender in contenders]
    return found + [_beside(each, workload, first, options) for each in options.beside]


def _beside(beside: Beside, workload: Workload, first: Contender, options: BenchOptions) -> Json:
    """The result of an external matcher, judged by the answers of the first engine."""
    assert first.answers is not None
    result = measure_beside(beside, workload, first.answers, options.repetitions)
    ratio = {} if "failure" in result else {"ratio": statistics.median(first.runs_s) / result["match_s"]["median"]}
    events = {"n_events": len(workload.events), "batch": len(workload.events), "repetitions": options.repetitions}
    return {"scenario": workload.name, **result, **ratio, **_table_of(workload), **events, **origin()}


def _build(workload: Workload, name: str, options: BenchOptions, tell: Callable[[str], None]) -> Contender:
    """Build a warm engine as often as `MAX_BUILDS`, `MAX_BUILD_S` and the repetitions allow; keeps the last.

    Code that only a large table needs is compiled by the first build, which then does not count.
    """
    from mpi_match.compute.compile_cache import n_compiled  # loads Numba

    tell(f"{name}: index")
    table, events = workload.small()
    device, threads, own = options.device, options.threads, of_engine(name, options.engine_options)
    live = bool(options.moves) and (name == "auto" or REGISTRY[name].takes_changes)
    small = open_engine(name, table, device, threads, live=live, options=own, measured=True)
    if not small.reads_published:  # which compiles with the events of the workload
        small.match(events)
    spent: list[float] = []
    may_compile = True
    while True:
        compiled, started = n_compiled(), time.perf_counter()
        engine = open_engine(name, workload.table, device, threads, live=live, options=own, measured=True)
        spent.append(time.perf_counter() - started)
        log.info("%s ready in %.2f s", name, spent[-1])
        if may_compile and n_compiled() > compiled:
            spent.clear()
            may_compile = False
        elif len(spent) == min(MAX_BUILDS, options.repetitions) or sum(spent) > MAX_BUILD_S:
            return Contender(engine, statistics.median(spent))
        del engine  # its memory, perhaps on a device, is free before the next one needs as much


def in_batches(events: EventBatch, size: int) -> list[EventBatch]:
    """Events in batches of `size`, sharing memory."""
    return [events[at : at + size] for at in range(0, len(events), size)]


def _warm_up(engine: Engine, batches: list[EventBatch], options: BenchOptions) -> None:
    until = time.perf_counter() + options.warm_up_s
    for _ in match_all(engine, takewhile(lambda _: time.perf_counter() < until, batches), filters=options.filters):
        pass


def _repeat(contender: Contender, run: Callable[[Engine], Served]) -> None:
    """One timed run over all events.  Raises WrongAnswer when its answers differ from the previous run's."""
    engine = contender.engine
    before, on_device_s, steps_s = engine.candidates, engine.kernel_s, dict(engine.steps_s)
    gc.disable()
    try:
        meter = EnergyMeter(engine.gpu)
        served = run(engine)
        contender.joules.append(meter.spent())
    finally:
        gc.enable()
    contender.runs_s.append(served.seconds)
    log.info("%s: %s in %.3f s", engine.name, plural(len(served.answers), "event"), served.seconds)
    contender.kernel_s.append(engine.kernel_s - on_device_s)
    contender.steps_s.append({step: spent - steps_s.get(step, 0.0) for step, spent in engine.steps_s.items()})
    contender.latency_s.extend(served.latency_s.tolist())
    _keep(contender, served.answers)
    if before is not None and engine.candidates is not None:
        contender.candidates = engine.candidates - before


def _as_fast_as_it_can(engine: Engine, batches: list[EventBatch], *, filters: bool) -> Served:
    """Match batch after batch; records latencies if a batch is one event."""
    found, clock = [], time.perf_counter
    one_by_one = len(batches[0]) == 1  # else it would not be the latency of an event
    times = [clock()]
    each = (engine.match(batch, filters=filters) for batch in batches)
    for answers in each if one_by_one else match_all(engine, batches, filters=filters):
        found.append(answers)
        times.append(clock())
    return Served(times[-1] - times[0], np.diff(times) if one_by_one else np.empty(0), Matches.concat(found))


def _time_rows(workload: Workload, contenders: Sequence[Contender], options: BenchOptions) -> None:
    """Scan and match the rows of files with each engine, by turns; those of scenarios are not, nor single ones.

    Raises WrongAnswer when the answers differ from those of the events before.
    """
    if workload.lines is None or options.rate is not None or options.batch == 1:
        return
    readers = [
        (each, workload.lines(options.batch, options.threads, each.engine))
        for each in contenders
        if not each.engine.reads_published
    ]
    for contender, scans in readers:
        if contender.engine.gpu is not None:
            _match_rows(contender.engine, scans, options)
    for _ in range(options.repetitions):
        for contender, scans in readers:
            started = time.perf_counter()
            found = _match_rows(contender.engine, scans, options)
            contender.rows_s.append(time.perf_counter() - started)
            _keep(contender, found)


def _match_rows(engine: Engine, scans: Sequence[Callable[[], EventBatch]], options: BenchOptions) -> Matches:
    """Scan batches and match them."""
    if engine.gpu is None:
        return Matches.concat([engine.match(scan(), filters=options.filters) for scan in scans])
    return Matches.concat([*match_all(engine, batches_ahead(scans, ahead_of_gpu().threads), filters=options.filters)])


def _keep(contender: Contender, answers: Matches) -> None:
    """Keep the answers of a repetition.  Raises WrongAnswer when they differ from the previous repetition's."""
    if contender.answers is not None and (at := _first_difference(contender.answers, answers)) is not None:
        raise WrongAnswer(
            f"{contender.engine.name} contradicts itself on event {at}: {contender.answers[at].tolist()} in the "
            f"first repetition, {answers[at].tolist()} in repetition {len(contender.runs_s)}"
        )
    contender.answers = answers


def _agree(first: Contender, other: Contender) -> None:
    assert first.answers is not None
    assert other.answers is not None
    at = _first_difference(first.answers, other.answers)
    if at is not None:
        raise WrongAnswer(
            f"{first.engine.name} and {other.engine.name} differ on event {at}: "
            f"{first.answers[at].tolist()} and {other.answers[at].tolist()}"
        )


def _first_difference(a: Matches, b: Matches) -> int | None:
    """The first event that two answers differ on; None when they are equal."""
    if a == b:
        return None
    if len(a) != len(b):
        return min(len(a), len(b)) - 1
    return next(i for i in range(len(a)) if not np.array_equal(a[i], b[i]))


def _judge(workload: Workload, contender: Contender, options: BenchOptions, *, by_model: bool = True) -> None:
    """Check a sample of the answers.  Raises WrongAnswer; otherwise notes how many events each judge checked."""
    answers, table = contender.answers, workload.table
    assert answers is not None
    sample = _sample(answers, options.check, workload.seed)
    if not len(sample):
        return
    judges = ["reference" if contender.engine.name == "counting" else "counting"]
    if by_model and table.n_filters <= COVERS_FILTERS:
        judges.append("covers")
    for judge in judges:
        filters = options.filters and judge != "covers"  # which knows interfaces only
        found = [_in_words(answers[event], table, options.filters, filters) for event in sample.tolist()]
        _expect(contender, judge, sample, found, _judged(workload, judge, sample.tolist(), filters=filters))


def _judged(workload: Workload, judge: str, numbers: list[int], *, filters: bool) -> list[list[str]]:
    """The verdict of a judge about some events, computed once; engines and points that agree share the sample."""
    key = f"{judge} of filters" if filters else judge, tuple(numbers)
    if key not in workload.judged:
        if judge == "covers":
            found = [match_naive(workload.filters, event) for event in workload.raw(numbers)]
        else:
            batch = EventBatch.concat([workload.events[i : i + 1] for i in numbers])
            answers = open_engine(judge, workload.table).match(batch, filters=filters)
            found = [_in_words(answers[i], workload.table, filters, filters) for i in range(len(numbers))]
        workload.judged[key] = found
    return workload.judged[key]


def _in_words(ids: Array, table: Table, of_filters: bool, as_filters: bool) -> list[str]:
    """An answer, `of_filters` or of interfaces: the numbers of its filters, or the labels of its interfaces, each once."""
    if as_filters:
        return [f"filter {i}" for i in ids.tolist()]
    interfaces = np.unique(table.filters.interface[ids]) if of_filters else ids
    return [table.label(int(i)) for i in interfaces]


def _move(workload: Workload, contenders: Sequence[Contender], options: BenchOptions) -> None:
    """Measure moves of interfaces in the engines that take them, then check their answers on all events."""
    if workload.moves is None:
        raise OptionError(f"{workload.name} has no moves: its filters have no areas, or it is read from files")
    table, few, more = workload.table, workload.moves(options.moves, 2), workload.moves(options.moves, 3)
    one_by_one, at_once = changes_of(few, table), changes_of(more, table)
    able = []
    for contender in contenders:
        try:
            contender.moves = measure_moves(contender.engine, one_by_one, at_once, workload.events[:1])
        except EngineError:
            continue
        answers = contender.engine.match(workload.events, filters=options.filters)
        able.append(Contender(contender.engine, 0.0, answers=answers))
    after = replace(workload, table=moved(moved(table, few), more), judged={})
    for contender in able:
        if contender is not able[0]:
            _agree(able[0], contender)
        _judge(after, contender, options, by_model=False)


def _sample(answers: Matches, check: int, seed: int) -> Array:
    """Up to `check` events: half from those that matched a filter, the rest from all."""
    rng = np.random.default_rng(seed)
    matched = np.flatnonzero(np.diff(answers.offsets))
    some = rng.choice(matched, min(len(matched), check // 2), replace=False)
    others = np.setdiff1d(np.arange(len(answers)), some)
    return np.sort(np.append(some, rng.choice(others, min(len(others), check - len(some)), replace=False)))


def _expect(contender: Contender, judge: str, sample: Array, answers: list[list[str]], expected: list[list[str]]) -> None:
    for event, found, wanted in zip(sample.tolist(), answers, expected, strict=True):
        if not contender.engine.exact:
            found = [label for label in found if label in wanted]  # false positives are no mistake
        if found != wanted:
            raise WrongAnswer(f"{contender.engine.name} is wrong about event {event}: found {found}, {judge} says {wanted}")
    contender.checked[judge] = len(sample)


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Microseconds, up to the longest."""
    found = np.percentile(np.array(seconds) * 1e6, (50, 99, 99.9, 100)).tolist()
    return dict(zip(("p50", "p99", "p99.9", "max"), found, strict=True))


def _result(workload: Workload, contender: Contender, first: Contender, batch: int) -> Json:
    answers, n_events = contender.answers, len(workload.events)
    assert answers is not None
    match_s = statistics.median(contender.runs_s)
    kernel_s = statistics.median(contender.kernel_s)
    steps_s = {step: statistics.median(run[step] for run in contender.steps_s) for step in contender.steps_s[-1]}
    return {
        "scenario": workload.name,
        "engine": contender.engine.name,
        "engine_options": dict(contender.engine.options),
        "device": contender.engine.device,
        **_table_of(workload),
        "n_events": n_events,
        "batch": batch,
        "repetitions": len(contender.runs_s),
        "draw_s": workload.draw_s,
        "table_s": workload.table_s,
        "build_s": contender.build_s,
        "encode_s": workload.encode_s,
        "match_s": {"median": match_s, "min": min(contender.runs_s), "max": max(contender.runs_s)},
        "events_per_s": n_events / match_s,
        "us_per_event": match_s / n_events * 1e6,
        **({"rows_per_s": _rates(contender.rows_s, n_events)} if contender.rows_s else {}),
        "ratio": statistics.median(first.runs_s) / match_s,
        **({"kernel_events_per_s": n_events / kernel_s} if kernel_s else {}),
        **({"latency_us": _percentiles(contender.latency_s)} if contender.latency_s else {}),
        **({"steps_s": steps_s} if steps_s else {}),
        "energy_j": energy_of(contender.joules),
        **contender.moves,
        "matches": answers.n_matches,
        "matches_per_event": answers.n_matches / n_events,
        **({} if contender.candidates is None else {"candidates_per_event": contender.candidates / n_events}),
        **contender.accuracy,
        **({"answers_digest": _digest(answers)} if contender.engine.exact else {}),
        "engine_bytes": contender.engine.nbytes,
        "shared_bytes": contender.engine.shared_nbytes,
        "peak_bytes": peak_bytes(),
        "checked": contender.checked,
        **origin(),
    }


def accuracy_of(contender: Contender, exact: Contender) -> dict[str, float]:
    """The share of the right answers that an engine found (`recall`), and of its answers that are right (`precision`); 1 of
    none."""
    assert contender.answers is not None
    assert exact.answers is not None
    found, right = (_pairs(each) for each in (contender.answers, exact.answers))
    n_both = len(np.intersect1d(found, right, assume_unique=True))
    return {"recall": n_both / len(right) if len(right) else 1.0, "precision": n_both / len(found) if len(found) else 1.0}


def _pairs(answers: Matches) -> Array:
    """i64: the event and the id of each answer, as one number."""
    return np.repeat(np.arange(len(answers)), answers.counts) << 32 | answers.ids.astype(np.int64)


def energy_of(runs: Sequence[Joules]) -> Json:
    """Joules of a run, the median: of the machine's processors (`cpu`) and of the GPU (`gpu`); None if not measured."""
    found: Json = {}
    for name in Joules._fields:
        values = [value for run in runs if (value := getattr(run, name)) is not None]
        found[name] = statistics.median(values) if len(values) == len(runs) else None
    return found


def _digest(answers: Matches) -> str:
    """A digest of all answers, equal for all correct engines."""
    found = hashlib.sha256(np.ascontiguousarray(answers.counts, np.uint32).data)
    found.update(np.ascontiguousarray(answers.ids, np.uint32).data)
    return found.hexdigest()[:16]


def _rates(seconds: Sequence[float], n: int) -> dict[str, float]:
    return {"median": n / statistics.median(seconds), "min": n / max(seconds), "max": n / min(seconds)}


def _table_of(workload: Workload) -> Json:
    table = workload.table
    counts = {name: getattr(table, name) for name in ("n_filters", "n_constraints", "n_interfaces")}
    return {**counts, "seed": workload.seed}
