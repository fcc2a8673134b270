"""The status of a run: counters and gauges of the master, which observers read while the run lasts.

    master's threads ── sent, answered, wrote, happened ──► RunStatus ◄── reads, four a second ── dashboard, report, metrics

Observers change nothing, and the run never waits for them.  Each number is written by one thread, so every read is
consistent; two numbers may be from different moments, a batch apart.  A failure that the run survives is an `Incident`.
Incidents are counted without limit and kept up to `KEPT`, so a run that drops a million late answers needs no more memory
than one that drops ten.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

INCIDENTS = {
    "lost": "worker {worker} is lost",
    "overdue": "worker {worker} has not answered batch {batch} in time",
    "failed": "the engine of worker {worker} failed on batch {batch}",
    "loads": "worker {worker} loads a part of the table that a lost one had",
    "resent": "batch {batch} is sent to worker {worker} again",
    "dropped": "a late answer of worker {worker} to batch {batch} is dropped",
    "quarantined": "batch {batch} is set aside: workers died of it or failed on it",
}
"""The kinds of incidents, each with its text, in which `worker` and `batch` are numbers."""
KEPT = 1000


class Incident(NamedTuple):
    """A failure that the run survived: its number in the run, from 0 on; seconds since the run began; a key of INCIDENTS.

    `worker` and `batch` are None where the text of the kind has none.
    """

    number: int
    at_s: float
    kind: str
    worker: int | None = None
    batch: int | None = None

    def __str__(self) -> str:
        return INCIDENTS[self.kind].format(worker=self.worker, batch=self.batch)


@dataclass
class Share:
    """A worker's share of a run.

    batches, events      answered
    held, held_bytes     batches in flight, and their encoded size
    straggling, lost     tells whether a batch of the worker is past its deadline; whether the worker is lost
    """

    engine: str
    device: str
    host: str
    batches: int = 0
    events: int = 0
    held: int = 0
    held_bytes: int = 0
    straggling: bool = False
    lost: bool = False


class RunStatus:
    """The numbers of a run over `n_events` events, from `begin` until `end`.

    shares           every worker by its rank (0 in a run of one process)
    written          events with answers in the output
    matches          ids in these answers
    latency_us       returns percentiles of the time from the arrival of an event to its answer, in µs, by `p50`, ...; None
                     if events do not arrive during the run
    n_resumed        events that earlier runs have answered
    happened_so_far  number of incidents by kind
    incidents        the last KEPT of them

    The thread that writes answers calls `wrote`; the main thread calls every other method that changes the status.
    """

    def __init__(self, n_events: int, clock: Callable[[], float] = time.perf_counter, *, n_resumed: int = 0) -> None:
        self.n_events, self.n_resumed = n_events, n_resumed
        self.written = self.matches = 0
        self.latency_us: Callable[[], Mapping[str, float] | None] = lambda: None
        self.shares: dict[int, Share] = {}
        self.incidents: deque[Incident] = deque(maxlen=KEPT)
        self.happened_so_far: Counter[str] = Counter()
        self._clock = clock
        self._began: float | None = None
        self._ended: float | None = None
        self._bytes_of: defaultdict[int, dict[int, int]] = defaultdict(dict)  # of batches in flight, by worker

    @property
    def at_s(self) -> float:
        """Seconds since the run began: 0 before that, and constant after its end."""
        if self._began is None:
            return 0.0
        return (self._clock() if self._ended is None else self._ended) - self._began

    def begin(self) -> None:
        """Note that the first batch is about to be sent."""
        self._began = self._clock()

    def end(self) -> None:
        """Note that the last answer is on disk."""
        self._ended = self._clock()

    def sent(self, worker: int, batch: int, n_bytes: int) -> None:
        """Count a batch that was sent to a worker, `n_bytes` encoded."""
        share = self.shares[worker]
        share.held += 1
        share.held_bytes += n_bytes
        self._bytes_of[worker][batch] = n_bytes

    def answered(self, worker: int, batch: int, n_events: int) -> None:
        """Count a worker's answer to a batch, which was accepted."""
        share = self.shares[worker]
        share.batches += 1
        share.events += n_events
        self._given_back(worker, batch)

    def exchanged(self, worker: int, answered: int, n_events: int, sent: int, n_bytes: int) -> None:
        """Do what `answered` and `sent` do: a worker's answer to a batch was accepted, and another batch was sent to it."""
        share, held = self.shares[worker], self._bytes_of[worker]
        share.batches += 1
        share.events += n_events
        share.straggling = False
        share.held_bytes += n_bytes - held.pop(answered, 0)
        held[sent] = n_bytes

    def wrote(self, n_events: int, n_matches: int) -> None:
        """Count the answers to `n_events` more events, with `n_matches` ids, which were written."""
        self.written += n_events
        self.matches += n_matches

    def happened(self, kind: str, worker: int | None = None, batch: int | None = None) -> None:
        """Record an incident of a kind of INCIDENTS."""
        self.incidents.append(Incident(self.happened_so_far.total(), self.at_s, kind, worker, batch))
        self.happened_so_far[kind] += 1
        if worker is None:
            return
        if kind == "lost":
            self.shares[worker].lost = True
            for held in list(self._bytes_of[worker]):
                self._given_back(worker, held)
        elif kind == "overdue":
            self.shares[worker].straggling = True
        elif kind in ("dropped", "failed") and batch is not None:
            self._given_back(worker, batch)

    def _given_back(self, worker: int, batch: int) -> None:
        """Note that a worker holds a batch no longer: it has answered, and so is not a straggler, or it is lost."""
        n_bytes = self._bytes_of[worker].pop(batch, None)
        share = self.shares[worker]
        share.straggling = False
        if n_bytes is not None:
            share.held -= 1
            share.held_bytes -= n_bytes
