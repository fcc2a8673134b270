"""Open-loop load: events arrive at a rate of their own, whether the engine has answered those before or not.

    arrivals   | |  ||   |  |||  |       Poisson: independent of the engine
    batches    [1][ 2 ][ 3  ][ 4 ]       whatever waits when the engine is free, `most` events at a time at the most

The latency of an event is from its arrival to its answer.  Waiting is part of it, which a loop that sends the next event
after the last answer does not see (coordinated omission).  Above the rate that the engine can serve, events queue and
latencies grow with the length of the run; its `events_per_s` then is less than the rate.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.engines import Engine
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches

SPIN_S = 2e-4
"""The last moments before an arrival are spent spinning: sleeping takes longer than it is told to."""


class Served(NamedTuple):
    """What a run gave: seconds from the first arrival to the last answer; latencies f64[n] in seconds; the answers."""

    seconds: float
    latency_s: Array
    answers: Matches


def arrivals(n: int, rate: float, seed: int) -> Array:
    """Times f64[n] in seconds at which events arrive: a Poisson process of `rate` a second."""
    return np.random.default_rng(seed).exponential(1 / rate, n).cumsum()


def serve(engine: Engine, events: EventBatch, arrival_s: Array, most: int) -> Served:
    """Match events as they arrive, up to `most` at a time."""
    found, latency_s, at, clock = [], np.empty(len(events)), 0, time.perf_counter
    began = clock()
    while at < len(events):
        now = clock() - began
        if now < arrival_s[at]:
            if arrival_s[at] - now > SPIN_S:
                time.sleep(arrival_s[at] - now - SPIN_S)
            continue
        end = min(int(np.searchsorted(arrival_s, now, side="right")), at + most)
        found.append(engine.match(events[at:end]))
        latency_s[at:end] = clock() - began - arrival_s[at:end]
        at = end
    return Served(clock() - began - float(arrival_s[0]), latency_s, Matches.concat(found))
