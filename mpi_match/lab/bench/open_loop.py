"""Open-loop load: events arrive at a rate of their own, whether the engine has answered those before or not.

    arrivals   | |  ||   |  |||  |       Poisson: independent of the engine
    batches    [1][ 2 ][ 3  ][ 4 ]       the events that wait when the engine is free, at most `most`

An engine may let events wait for others, to match them together, up to a time-out (`tagmatch --set timeout_ms=...`): a batch
is then answered when the last of its events is, and batches come and go meanwhile.  After the last arrival, events no longer
wait.

The latency of an event is from its arrival to its answer.  It includes waiting, which a closed loop does not see
(coordinated omission).  Above the rate that the engine can serve, events queue and
latencies grow with the length of the run; `events_per_s` is then below the rate.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines import Engine
from mpi_match.engines.base import Waiting
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches

SPIN_S = 2e-4
"""Seconds before an arrival that are spent spinning, because sleep overshoots."""
ASKED_EVERY_S = 1e-3
"""Seconds between two polls for batches that wait in the engine."""


class Served(NamedTuple):
    """The outcome: seconds from the first arrival to the last answer; latencies f64[n] in seconds; the answers."""

    seconds: float
    latency_s: Array
    answers: Matches


def arrivals(n: int, rate: float, seed: int) -> Array:
    """Times f64[n] in seconds at which events arrive: a Poisson process of `rate` a second."""
    return np.random.default_rng(seed).exponential(1 / rate, n).cumsum()


def serve(engine: Engine, events: EventBatch, arrival_s: Array, most: int, *, filters: bool = False) -> Served:
    """Match events as they arrive, up to `most` at a time; the answers are filters, or interfaces."""
    found: dict[int, Matches] = {}
    waiting: dict[int, tuple[Waiting, slice]] = {}
    latency_s, at, n_batches, clock = np.empty(len(events)), 0, 0, time.perf_counter
    began = clock()

    def answered(batch: int, answer: Matches, mine: slice) -> None:
        found[batch] = answer
        latency_s[mine] = clock() - began - arrival_s[mine]

    while at < len(events) or waiting:
        for batch, (begun, mine) in list(waiting.items()):
            if at == len(events) or begun.poll():
                answered(batch, begun.end(), mine)
                del waiting[batch]
        now = clock() - began
        if at == len(events):
            continue
        if now < arrival_s[at]:
            gap = arrival_s[at] - now - SPIN_S
            if gap > 0:
                time.sleep(min(gap, ASKED_EVERY_S) if waiting else gap)
            continue
        end = min(int(np.searchsorted(arrival_s, now, side="right")), at + most)
        mine, started = slice(at, end), engine.begin(events[at:end], filters=filters)
        at, n_batches = end, n_batches + 1
        if isinstance(started, Waiting):
            waiting[n_batches] = started, mine
        else:
            answered(n_batches, started if isinstance(started, Matches) else started.end(), mine)
    answers = Matches.concat([found[batch] for batch in sorted(found)])
    return Served(clock() - began - float(arrival_s[0]), latency_s, answers)
