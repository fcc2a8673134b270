"""A soak test: matches events and changes subscriptions for minutes, watches memory and judges answers.

Each round matches a batch of events, applies changes in proportion to its events to a `LiveTable` and the engine, and
matches one event alone, as if it arrived just then.  The `crowd` makes the changes.

At intervals a sample of events, those with answers first, is judged (`judge`).  That time is not counted, nor are the first
rounds, which compile.  The judge's arrays are larger than all changes, so its memory is returned to the system
(`malloc_trim`).

Resident memory (VmRSS) and `engine.nbytes` are recorded every few seconds.  A straight line is fitted to the second half;
memory is not flat if the line rises by more than a bound, a share of the memory after the first half.  The warm-up is that
long because a dictionary keeps the places of deleted keys until Python resizes it: with 200,000 filters that takes 150,000
new ids.

A record:

    memory        for both: MiB after the warm-up, at the end and at most, MiB per hour, the rise of the line as a share
    pauses_ms     changing the table, `engine.update`, the event alone, a batch, and the constant work (`pauses`);
                  p50, tail, maximum
    worst         the longest of each, the second, and how the time was spent (`pauses`)
    over_time     minutes, MiB resident and of the engine, present filters; number of ids of filters and interfaces so far
"""

from __future__ import annotations

import ctypes
import gc
import time
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.changes.changes import Changes
from mpi_match.changes.live_table import LiveTable, Refusal
from mpi_match.engines import open_engine
from mpi_match.environment.machine import origin, resident_bytes
from mpi_match.errors import MpiMatchError
from mpi_match.lab.bench.live.crowd import Crowd, identified
from mpi_match.lab.bench.live.judge import JUDGED_EVENTS, judge
from mpi_match.lab.bench.live.pauses import Pauses
from mpi_match.lab.workloads.scenarios import Scenario
from mpi_match.model import Change, Json
from mpi_match.table.table import Table

WARM_UP = 0.5
ROUNDS_BEFORE = 3
_BATCHES = 16
"""Number of different batches, which are repeated."""
_PARTS = ("batch", "table", "update", "event")
"""The timed parts of a round."""
MIB = 2**20


def _give_back() -> None:
    """Return free memory of the C library to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not every one has it
    if trim is not None:
        trim(0)


class ChangeRefused(MpiMatchError):
    """The live table refused a change that it must take; the text has the change and the reason."""


class Sample(NamedTuple):
    """The readings of one moment."""

    seconds: float
    resident: int
    engine: int
    filters: int
    filter_ids: int
    interface_ids: int


def flatness(seconds: Array, sizes: Array) -> dict[str, float]:
    """The trend of a size i64[n] in bytes after the warm-up, which ends at the first of the times f64[n]."""
    slope = float(np.polyfit(seconds - seconds[0], sizes, 1)[0]) if len(seconds) > 1 else 0.0
    first, last, most = (round(float(size) / MIB, 2) for size in (sizes[0], sizes[-1], sizes.max()))
    risen = slope * float(seconds[-1] - seconds[0]) / max(float(sizes[0]), 1.0)
    return {
        "first_mib": first,
        "last_mib": last,
        "most_mib": most,
        "mib_per_hour": round(slope * 3600 / MIB, 2),
        "risen": round(risen, 5),
    }


class Soak:
    """The table, the engine and the crowd; `run` makes the rounds."""

    def __init__(self, scenario: Scenario, engine: str, batch_events: int, changes: float) -> None:
        table = identified(Table.from_subscriptions(scenario.subscriptions(0)))
        self.live = LiveTable(table)
        self.engine = open_engine(engine, self.live.table, live=True)
        self._crowd, self._rng = Crowd(table, scenario, 5), np.random.default_rng(6)
        self._events = [scenario.event_range(i * batch_events, (i + 1) * batch_events) for i in range(_BATCHES)]
        self._batches = [events.encode(table.vocabulary) for events in self._events]
        self._n_changes = round(changes * batch_events)
        self.pauses = Pauses(*_PARTS)
        self.counts = dict.fromkeys(("events", "matches", "rows", *(kind.name.lower() for kind in Change)), 0)
        self.judged = {"events": 0, "answers": 0}
        self.samples: list[Sample] = []
        for which in range(ROUNDS_BEFORE):
            self._round(which)
        gc.collect()  # as a worker does, so that the collector does not scan millions of ids again
        gc.freeze()

    def run(self, seconds: float, every: float, judge_every: float) -> None:
        """Make rounds for `seconds`, not counting the judge; record sizes and judge at these intervals."""
        turn, spent, start = 0, 0.0, time.perf_counter()
        noted = judged = -np.inf
        while spent < seconds:
            self._count(*self._round(turn % _BATCHES))
            spent += time.perf_counter() - start
            self.pauses.keep(round(spent, 1))
            if spent >= noted + every or spent >= seconds:
                noted = spent
                self._note(spent)
            if spent >= judged + judge_every or spent >= seconds:
                judged = spent
                at = turn % _BATCHES
                self.judged["answers"] += judge(self.live, self.engine, self._events[at], self._batches[at], self._rng)
                self.judged["events"] += min(JUDGED_EVENTS, len(self._batches[at]))
                _give_back()
            turn, start = turn + 1, time.perf_counter()

    def _round(self, which: int) -> tuple[int, Changes]:
        """Match a batch and apply changes; returns the number of matches, and the changes."""
        batch = self._batches[which]
        rows = list(self._crowd.rows(self._n_changes))
        refused: list[Refusal] = []
        self.pauses.start()
        answers = self.engine.match(batch)
        self.pauses.stop()
        changes = self.live.apply(rows, refused)
        self.pauses.stop()
        if refused or changes is None:
            raise ChangeRefused(
                f"{rows[refused[0].place]}: {refused[0].reason}" if refused else "the vocabulary was too small"
            )
        self.engine.update(changes)
        self.pauses.stop()
        self.engine.match(batch[:1])
        self.pauses.stop()
        return answers.n_matches, changes

    def _count(self, matches: int, changes: Changes) -> None:
        self.counts["events"] += len(self._batches[0]) + 1
        self.counts["matches"] += matches
        self.counts["rows"] += self._n_changes
        for kind, n in zip(Change, np.bincount(changes.kind, minlength=len(Change)).tolist(), strict=True):
            self.counts[kind.name.lower()] += n

    def _note(self, spent: float) -> None:
        registry, there = self.live.registry, self._crowd.n_there
        self.samples.append(
            Sample(spent, resident_bytes(), self.engine.nbytes, there, registry.n_filters, registry.n_interfaces)
        )

    def memory(self) -> dict[str, dict[str, float]]:
        """Flatness after the warm-up of resident memory and of `engine.nbytes`."""
        noted = np.array(self.samples, np.float64)
        after = noted[noted[:, 0] >= WARM_UP * noted[-1, 0]]
        return {"resident": flatness(after[:, 0], after[:, 1]), "engine": flatness(after[:, 0], after[:, 2])}

    def over_time(self, most: int = 60) -> dict[str, list[float]]:
        """The samples, thinned to at most `most`."""
        some = [self.samples[i] for i in np.unique(np.linspace(0, len(self.samples) - 1, most).astype(int)).tolist()]
        return {
            "minutes": [round(s.seconds / 60, 3) for s in some],
            "resident_mib": [round(s.resident / MIB, 1) for s in some],
            "engine_mib": [round(s.engine / MIB, 2) for s in some],
            "filters": [s.filters for s in some],
            "filter_ids": [s.filter_ids for s in some],
            "interface_ids": [s.interface_ids for s in some],
        }


class SoakPlan(NamedTuple):
    """The duration and load of a soak.

    changes      for each event; batch_events of a round
    bound        allowed rise of memory after the warm-up, as a share
    note_every   seconds between two looks at memory; judge_every between two samples of answers
    """

    minutes: float = 10.0
    changes: float = 0.1
    batch_events: int = 10_000
    bound: float = 0.02
    note_every: float = 5.0
    judge_every: float = 100.0


def soak(scenario: Scenario, engine: str, plan: SoakPlan) -> Json:
    """Soak an engine with a scenario that has areas; returns the record, with `flat` for its memory.

    Raises EngineError, WrongAnswer, ChangeRefused.
    """
    found = Soak(scenario, engine, plan.batch_events, plan.changes)
    with found.pauses:
        found.run(plan.minutes * 60, plan.note_every, plan.judge_every)
    seconds, memory = found.samples[-1].seconds, found.memory()
    return {
        "what": "soak",
        "scenario": scenario.name,
        "n_filters": scenario.n_filters,
        "n_interfaces": scenario.n_interfaces,
        "engine": found.engine.name,
        "device": found.engine.device,
        "minutes": round(seconds / 60, 2),
        "flat": all(size["risen"] <= plan.bound for size in memory.values()),
        "bound": plan.bound,
        "memory": memory,
        "events_per_s": round(found.counts["events"] / seconds),
        "changes_per_s": round(found.counts["rows"] / seconds),
        "counts": found.counts,
        "pauses_ms": {part: found.pauses.spread(part) for part in found.pauses.parts},
        "worst": {part: found.pauses.longest(part) for part in found.pauses.parts},
        "checked": {"naive": found.judged["events"], "answers": found.judged["answers"]},
        "over_time": found.over_time(),
        **origin(),
    }
