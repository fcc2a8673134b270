"""An R*-tree on the CPU beside our engines, as Cugola & Margara compare them (Middleware 2012, figures 3 to 6): matching and
update times against the number of interfaces, places uniform and in towns, answers checked in the same run.

    python tests/bench/rtree_beside.py [--scenarios clcb clcb-zipf] [--interfaces 10000 ... 250000] [--events 1000]
                                       [--engines keyed_cuda,clcb,keyed] [--at-once 20000]
                                       [-o records.jsonl] [--plot figure.svg]
    python tests/bench/rtree_beside.py --drawn tests/bench/records/h200-areas.jsonl --plot tests/bench/rtree_beside.svg

The R*-tree is that of libspatialindex (PyPI `rtree`; extra `bench`), with its own defaults, loaded in bulk.  It holds the
bounding boxes of all areas; the candidates that it finds for an event are verified exactly, circle and content, by compiled
code.  Where `rtree` is not installed, or an engine does not run, one line says so and the others are measured.

One JSON line for each (scenario, number of interfaces, engine):

    build_s             making the tree, or the engine, from the table
    one_event_us        p50 and p99 of matching one event after the other
    batch_us_per_event  all events in one call, median of three
    one_move_us         giving one filter another area, one after the other, until all have taken effect, per filter: the
                        median of five rounds; `one_move_us_spread` has the least and the most
    batch_move_us       the same in one call, with many more moves; not for the tree, which has no such call

Every interface moves with its ten filters (`Scenario.moves`), so a client's move is ten of these.  All answers must agree,
before and after the moves; a sample is judged by the counting engine on the table as it is then.  A small table comes first
and is not counted, so that nothing is compiled while a clock runs.

The second command draws the figure on the README (`rtree_figure`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numba
import numpy as np
from bench.rtree_figure import draw, records_in

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.engines import EngineError, open_engine
from mpi_match.environment.machine import command, commit, machine, versions
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.model import Change, Op, Type
from mpi_match.table.table import Table
from mpi_match.workloads.sampling import Moves
from mpi_match.workloads.scenarios import SCENARIOS, Scenario

INTERFACES = (10_000, 25_000, 50_000, 100_000, 250_000)
ONE_BY_ONE_S = 2.0
"""Events are matched one by one for at most so long."""
MOVED_ONE_BY_ONE, MOVED_AT_ONCE = 1000, 20_000
"""Interfaces that move."""
ROUNDS = 5
JUDGED = 20
WIDER = 1 + 2.0**-40
"""Boxes are wider than their circles by so much: no place that rounding lets into the circle is outside the box."""


class CodedFilters(NamedTuple):
    """What verifying filters needs: filter f has the rows offsets[f] to offsets[f + 1] of the last four."""

    areas: Array
    interface: Array
    offsets: Array
    name: Array
    lo: Array
    hi: Array
    differs: Array


class CodedEvents(NamedTuple):
    """Columns of an `EventBatch`; a packed attribute has its name from bit `shift` on."""

    bounds: Array
    attributes: Array
    location: Array
    shift: int


class RStarTree:
    """The boxes of a table's areas in an R*-tree, and what verifying its candidates needs.  All filters must have areas, and
    only constraints on numbers with `= != < <= > >=`: those of the clcb scenarios."""

    name, device = "rtree", "cpu, 1 thread"

    def __init__(self, table: Table) -> None:
        from rtree import index

        c, plain = table.constraints, [(Type.NUMBER, op) for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)]
        if len(table.filters.area) != table.n_filters or not set(table.op_counts) <= set(plain):
            raise ValueError("the R*-tree is for tables of areas with constraints on numbers")
        offsets, rows = table.by_filter
        self._areas = table.filters.area.copy()
        self._n_interfaces, self._shift = table.n_interfaces, table.vocabulary.shift
        columns = (c.name_id[rows], c.lo[rows], c.hi[rows], c.op[rows] == Op.NE)
        self._filters = CodedFilters(self._areas, table.filters.interface, offsets, *columns)
        self._code_of = np.full(max(table.vocabulary.n_names, 1), -1, np.int64)
        centre, radius = self._areas[:, :2], self._areas[:, 2:] * WIDER
        low, high = np.ascontiguousarray(centre - radius), np.ascontiguousarray(centre + radius)
        how = index.Property(variant=index.RT_Star)
        self._tree = index.Index((np.arange(table.n_filters), low, high), properties=how)

    def match(self, batch: EventBatch) -> Matches:
        """Matched interfaces of every event, all of which have locations."""
        assert batch.location is not None
        if len(batch) == 1:
            x, y = batch.location[0].tolist()
            found = self._tree.intersection((x, y, x, y))
            candidates, bounds = np.fromiter(found, np.int64), np.zeros(2, np.int64)
            bounds[1] = len(candidates)
        else:
            candidates, counts = self._tree.intersection_v(batch.location, batch.location)
            bounds = np.append(0, np.cumsum(counts.astype(np.int64)))
        events = CodedEvents(batch.bounds, batch.attributes, batch.location, self._shift)
        event, interface = _verified(candidates, bounds, events, self._code_of, self._filters)
        return Matches.from_pairs(event, interface, len(batch), self._n_interfaces)

    def mover(self, filter_id: int, area: Array) -> Callable[[], None]:
        """A function that moves a filter to another circle."""
        return lambda: self._move(filter_id, area)

    def _move(self, filter_id: int, area: Array) -> None:
        self._tree.delete(filter_id, _box(self._areas[filter_id]))
        self._areas[filter_id] = area
        self._tree.insert(filter_id, _box(area))


def _box(area: Array) -> tuple[float, float, float, float]:
    """The box around a circle, as the bulk load makes it."""
    x, y, r = area.tolist()
    r *= WIDER
    return x - r, y - r, x + r, y + r


@numba.njit
def _verified(candidates: Array, bounds: Array, batch: CodedEvents, code_of: Array, filters: CodedFilters) -> Any:
    """(event, interface) pairs of the candidates that match, with repetitions.  `code_of` is -1 for every name, and again
    afterwards."""
    (event_bounds, attributes, location, shift), (areas, interface, offsets, name, lo, hi, differs) = batch, filters
    events, interfaces, n = np.empty(len(candidates), np.int64), np.empty(len(candidates), np.int64), 0
    mask = (1 << shift) - 1
    for event in range(len(bounds) - 1):
        for a in range(event_bounds[event], event_bounds[event + 1]):
            code_of[np.int64(attributes[a]) >> shift] = np.int64(attributes[a]) & mask
        for k in range(bounds[event], bounds[event + 1]):
            f = candidates[k]
            dx, dy = location[event, 0] - areas[f, 0], location[event, 1] - areas[f, 1]
            if not dx * dx + dy * dy <= areas[f, 2] * areas[f, 2]:
                continue
            matched = True
            for row in range(offsets[f], offsets[f + 1]):
                code = code_of[name[row]]
                if code < 0 or (lo[row] <= code <= hi[row]) == differs[row]:
                    matched = False
                    break
            if matched:
                events[n], interfaces[n] = event, interface[f]
                n += 1
        for a in range(event_bounds[event], event_bounds[event + 1]):
            code_of[np.int64(attributes[a]) >> shift] = -1
    return events[:n], interfaces[:n]


class Live:
    """An engine of ours that takes changes, with the methods of the tree."""

    def __init__(self, name: str, table: Table) -> None:
        self._engine = open_engine(name, table, live=True)
        self.name, self.device, self.match = self._engine.name, self._engine.device, self._engine.match
        self._bounds = table.n_filters, table.n_interfaces

    def mover(self, filter_id: int, area: Array) -> Callable[[], None]:
        """A function that moves a filter to another circle."""
        return self.mover_of_many(Moves(np.array([filter_id], np.uint32), area[None]))

    def mover_of_many(self, moves: Moves) -> Callable[[], None]:
        """A function that moves filters, in order; making the changes is not the engine's work and not timed."""
        n = len(moves.filter_id)
        nothing, zeros = np.full(n, -1, np.int32), np.zeros(n, np.uint32)
        kind = np.full(n, Change.MOVE, np.uint8)
        changes = Changes(kind, moves.filter_id, moves.area, nothing, zeros, None, *self._bounds)
        return lambda: self._engine.update(changes)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that it took, and what came out."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def one_by_one(work: Callable[[int], Any], n: int) -> list[float]:
    """Seconds of each of up to n pieces of work, as many as there is time for."""
    seconds: list[float] = []
    while len(seconds) < n and sum(seconds) < ONE_BY_ONE_S:
        seconds.append(timed(lambda: work(len(seconds)))[0])
    return seconds


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Microseconds at the middle and in the tail."""
    return {f"p{p}": round(float(np.percentile(seconds, p)) * 1e6, 2) for p in (50, 99)}


def matching(contender: RStarTree | Live, batch: EventBatch) -> tuple[dict[str, Any], Matches]:
    """Times of matching, and the answers."""
    answers = contender.match(batch)
    events = [batch[i : i + 1] for i in range(len(batch))]
    one_by_one(lambda i: contender.match(events[i]), 20)  # what is made at first use is made here
    ones = one_by_one(lambda i: contender.match(events[i]), len(events))
    many = [timed(lambda: contender.match(batch))[0] for _ in range(3)]
    times = {"one_event_us": spread(ones), "batch_us_per_event": round(statistics.median(many) / len(batch) * 1e6, 3)}
    return times, answers


def moving(contender: RStarTree | Live, moves: Moves, event: EventBatch) -> dict[str, Any]:
    """Times of moving one filter after the other; an event at the end of each round waits for what is still under way."""
    movers = [contender.mover(*each) for each in zip(moves.filter_id.tolist(), moves.area, strict=True)]
    each_us = []
    for first, end in pairwise(np.linspace(0, len(movers), ROUNDS + 1).astype(int).tolist()):
        seconds, _ = timed(partial(_call_and_match, movers[first:end], contender, event))
        each_us.append(round(seconds / (end - first) * 1e6, 2))
    spread_us = {"min": min(each_us), "max": max(each_us)}
    return {"moves": len(movers), "one_move_us": statistics.median(each_us), "one_move_us_spread": spread_us}


def _call_and_match(movers: Sequence[Callable[[], None]], contender: RStarTree | Live, event: EventBatch) -> Matches:
    for mover in movers:
        mover()
    return contender.match(event)


def moving_at_once(contender: Live, before: Moves, moves: Moves, event: EventBatch) -> dict[str, Any]:
    """Times of moving many filters in one call, likewise, after others have moved in another."""
    contender.mover_of_many(before)()
    contender.match(event)
    mover = contender.mover_of_many(moves)
    seconds, _ = timed(partial(_call_and_match, [mover], contender, event))
    return {"batch_moves": len(moves.filter_id), "batch_move_us": round(seconds / len(moves.filter_id) * 1e6, 4)}


def moved(table: Table, moves: Moves) -> Table:
    """The table after moves of its filters, all of which have areas."""
    area = table.filters.area.copy()
    area[moves.filter_id] = moves.area  # where one moves twice, the last stays
    return replace(table, filters=replace(table.filters, area=area))


def check(when: str, table: Table, batch: EventBatch, answers: dict[str, Matches]) -> None:
    """Stop at a difference between engines, or between them and the judge, which judges events with answers first."""
    names = list(answers)
    for name in names[1:]:
        if answers[name] != answers[names[0]]:
            raise SystemExit(f"WRONG ANSWER: {name} and {names[0]} differ {when}")
    found = answers[names[0]]
    sample = np.argsort(found.counts == 0, kind="stable")[:JUDGED].tolist()
    expected = open_engine("counting", table).match(EventBatch.concat([batch[i : i + 1] for i in sample]))
    for at, event in enumerate(sample):
        if found[event].tolist() != expected[at].tolist():
            raise SystemExit(f"WRONG ANSWER: {', '.join(names)}: event {event} {when}")


def point(scenario: Scenario, engines: list[str], n_events: int, n_at_once: int) -> Iterator[dict[str, Any]]:
    """All measurements for a scenario with its number of interfaces, `n_at_once` of which move in one call; no line comes
    before all answers are checked.

    What cannot be measured here is taken off `engines`.
    """
    table = Table.from_subscriptions(scenario.subscriptions(0))
    batch = scenario.events(n_events, 1).encode(table.vocabulary)
    contenders: dict[str, RStarTree | Live] = {}
    results: dict[str, dict[str, Any]] = {}
    for name in list(engines):
        try:
            build_s, contenders[name] = timed(partial(RStarTree, table) if name == "rtree" else partial(Live, name, table))
        except (ImportError, EngineError) as error:
            hint = "; pip install 'mpi-match[bench]'" if isinstance(error, ImportError) else ""
            sys.stderr.write(f"{name} is left out: {error}{hint}\n")
            engines.remove(name)
            continue
        results[name] = {"build_s": round(build_s, 3)}
    answers = {}
    for name, contender in contenders.items():
        times, answers[name] = matching(contender, batch)
        results[name] |= times
    check("before the moves", table, batch, answers)
    few, many, more = scenario.moves(MOVED_ONE_BY_ONE), scenario.moves(n_at_once, 3), scenario.moves(n_at_once, 4)
    for name, contender in contenders.items():
        results[name] |= moving(contender, few, batch[:1])
    table = moved(table, few)
    check("after some moves", table, batch, {name: contender.match(batch) for name, contender in contenders.items()})
    live = {name: contender for name, contender in contenders.items() if isinstance(contender, Live)}
    for name, contender in live.items():
        results[name] |= moving_at_once(contender, many, more, batch[:1])
    if live:
        table = moved(moved(table, many), more)
        check("after many moves", table, batch, {name: each.match(batch) for name, each in live.items()})
    for name, result in results.items():
        yield {
            "what": "rtree beside",
            "scenario": scenario.name,
            "n_interfaces": table.n_interfaces,
            "n_filters": table.n_filters,
            "engine": name,
            "device": contenders[name].device,
            "events": len(batch),
            "matches_per_event": answers[name].n_matches / len(batch),
            **result,
            "checked": {"agree": len(batch), "counting": min(JUDGED, len(batch))},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", default=["clcb", "clcb-zipf"], choices=sorted(SCENARIOS))
    parser.add_argument("--interfaces", nargs="+", type=int, default=INTERFACES)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--engines", nargs="+", default=["clcb", "keyed", "keyed_cuda"], help="apart by spaces or commas")
    parser.add_argument("--at-once", type=int, default=MOVED_AT_ONCE, help="interfaces that move in one call")
    parser.add_argument("--drawn", type=Path, nargs="+", help="measure nothing: draw the records in these files")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.drawn:
        records = [record for path in options.drawn for record in records_in(path)]
    else:
        where = {"machine": machine(), "versions": versions(), "commit": commit(), "command": command()}
        records, engines = [], ["rtree", *(name for words in options.engines for name in words.split(","))]
        list(
            point(SCENARIOS[options.scenarios[0]].scaled(1000), engines, 50, 1000)
        )  # what is compiled at first use is compiled now
        for name in options.scenarios:
            for n_interfaces in options.interfaces:
                each = SCENARIOS[name].n_filters // SCENARIOS[name].n_interfaces
                scenario = SCENARIOS[name].scaled(n_interfaces * each)
                for record in point(scenario, engines, options.events, options.at_once):
                    records.append({**record, **where, "date": datetime.now(UTC).isoformat(timespec="seconds")})
                    line = json.dumps(records[-1])
                    sys.stdout.write(line + "\n")
                    sys.stdout.flush()
                    if options.output:
                        with options.output.open("a", encoding="utf-8") as handle:
                            handle.write(line + "\n")
    if options.plot:
        draw(records, options.plot)


if __name__ == "__main__":
    main()
