"""How a run stands: what its master knows, as plain numbers that others look at while the run goes on.

    master's threads ── sent, answered, wrote, happened ──► Standing ◄── looks, some times a second ── live view, run report

Who looks changes nothing, and nobody waits for who looks.  Every number has one thread that writes it, so a look finds each
of them whole; two of them may be from different moments, a batch apart.  What goes wrong is an `Incident`.  They are counted
without limit and kept up to `KEPT`, so a run that drops a million late answers needs no more memory than one that drops ten.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
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
"""What can go wrong and is survived, by name; in words, in which `worker` and `batch` are numbers."""
KEPT = 1000


class Incident(NamedTuple):
    """One thing that went wrong: the how manyth of its run, from 0 on; seconds since that began; a name of KINDS.

    `worker` and `batch` are None where the words of the kind have none.
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
    """A worker's part in a run: what it is, and what it has done and holds.

    batches, events      answered
    held, held_bytes     batches sent and not answered, and what they were as they travelled
    overdue, lost        does it owe an answer for too long; is it gone for good?
    """

    engine: str
    device: str
    host: str
    batches: int = 0
    events: int = 0
    held: int = 0
    held_bytes: int = 0
    overdue: bool = False
    lost: bool = False


class RunStatus:
    """The numbers of a run over `n_events` events, from `begin` until `end`.

    `shares` has every worker by its rank (0 is a run of one process); `written` are the events whose answers have been given
    to the file, `matches` the ids in them, `n_resumed` events that earlier runs have answered, `happened_so_far` how often
    each kind of incident was, `incidents` the last of them.  `wrote` is for the thread that writes answers; all else that
    changes something is for the main thread of the run.
    """

    def __init__(self, n_events: int, clock: Callable[[], float] = time.perf_counter, *, n_resumed: int = 0) -> None:
        self.n_events, self.n_resumed = n_events, n_resumed
        self.written = self.matches = 0
        self.shares: dict[int, Share] = {}
        self.incidents: deque[Incident] = deque(maxlen=KEPT)
        self.happened_so_far: Counter[str] = Counter()
        self._clock = clock
        self._began: float | None = None
        self._ended: float | None = None
        self._bytes_of: dict[tuple[int, int], int] = {}

    @property
    def at_s(self) -> float:
        """Seconds since the run began: 0 before that, and standing still after its end."""
        if self._began is None:
            return 0.0
        return (self._clock() if self._ended is None else self._ended) - self._began

    def begin(self) -> None:
        """The first batch is about to be sent."""
        self._began = self._clock()

    def end(self) -> None:
        """The last answer is on disk."""
        self._ended = self._clock()

    def sent(self, worker: int, batch: int, n_bytes: int) -> None:
        """A batch is on its way to a worker, as so many bytes."""
        share = self.shares[worker]
        share.held += 1
        share.held_bytes += n_bytes
        self._bytes_of[worker, batch] = n_bytes

    def answered(self, worker: int, batch: int, n_events: int) -> None:
        """A worker's answer to a batch has been accepted."""
        share = self.shares[worker]
        share.batches += 1
        share.events += n_events
        self._given_back(worker, batch)

    def wrote(self, n_events: int, n_matches: int) -> None:
        """The answers to so many more events, with so many ids, have been written."""
        self.written += n_events
        self.matches += n_matches

    def happened(self, kind: str, worker: int | None = None, batch: int | None = None) -> None:
        """Something of KINDS went wrong."""
        self.incidents.append(Incident(self.happened_so_far.total(), self.at_s, kind, worker, batch))
        self.happened_so_far[kind] += 1
        if worker is None:
            return
        if kind == "lost":
            self.shares[worker].lost = True
            for owner, held in [each for each in self._bytes_of if each[0] == worker]:
                self._given_back(owner, held)
        elif kind == "overdue":
            self.shares[worker].overdue = True
        elif kind in ("dropped", "failed") and batch is not None:
            self._given_back(worker, batch)

    def _given_back(self, worker: int, batch: int) -> None:
        """A worker no longer holds a batch; it has answered if it is not lost, so it is not overdue."""
        n_bytes = self._bytes_of.pop((worker, batch), None)
        share = self.shares[worker]
        share.overdue = False
        if n_bytes is not None:
            share.held -= 1
            share.held_bytes -= n_bytes
