"""Who gets which batch: the schedule of a run as a state machine.

It knows no MPI, no clock and no buffer: what happened goes in, what to do comes out.  So every order of events can be
tried in a test, and the master is left with doing what it is told.

    start()                ─► [Send(worker 1, batch 0), Send(worker 2, batch 1), Send(worker 1, batch 2), ...]
    answered(worker 2, 1)  ─► [Send(worker 2, batch 8)]
    answered(worker 1, 0)  ─► [Send(worker 1, batch 9), Emit(batch 0), Emit(batch 1)]

Batches wait in *lanes*.  With the dynamic schedule there is one lane that all workers take from, so the worker that
answers gets the next batch; with the static one each worker has its own, and batch k is in lane k modulo their
number.

Invariants
    a worker never holds more than `credits` unanswered batches
    every batch is sent once, accepted once and emitted once, and batches are emitted in order
    a batch is sent only within `window` of the first one not emitted, so the answers behind a slow one do not pile up
    unless all is emitted, something is under way: the first batch not emitted is always sent or sendable
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Send(NamedTuple):
    """Send a batch to a worker."""

    worker: int
    batch: int


class Emit(NamedTuple):
    """Write the answers of a batch; all earlier ones have been emitted."""

    batch: int


Instruction = Send | Emit


@dataclass
class _Lane:
    """Batches `head`, `head + stride`, ... that no worker has yet."""

    head: int
    stride: int


class Dispatcher:
    """The state of a run of `n_batches` over `workers` (any distinct numbers).

    `window` defaults to twice the credits of all workers together: enough for the others to go on while one batch
    takes twice as long.
    """

    def __init__(
        self,
        n_batches: int,
        workers: Sequence[int],
        *,
        credits: int = 4,
        schedule: str = "dynamic",
        window: int | None = None,
    ) -> None:
        self.n_batches = n_batches
        self.n_emitted = 0
        self.window = window or 2 * credits * len(workers)
        self._credits = credits
        self._held: dict[int, set[int]] = {worker: set() for worker in workers}
        self._answered: set[int] = set()
        if schedule == "static":
            self._lane = {worker: _Lane(i, len(workers)) for i, worker in enumerate(workers)}
        else:
            shared = _Lane(0, 1)
            self._lane = dict.fromkeys(workers, shared)

    @property
    def finished(self) -> bool:
        """Has every batch been emitted?"""
        return self.n_emitted == self.n_batches

    def start(self) -> list[Instruction]:
        """The first instructions."""
        return [*self._sends()]

    def answered(self, worker: int, batch: int) -> list[Instruction]:
        """`worker` has answered `batch`.  Raises ValueError when it does not hold it: never sent, or answered."""
        if batch not in self._held.get(worker, ()):
            raise ValueError(f"worker {worker} answered batch {batch}, which it does not hold")
        self._held[worker].remove(batch)
        self._answered.add(batch)
        emits = []
        while self.n_emitted in self._answered:
            self._answered.remove(self.n_emitted)
            emits.append(Emit(self.n_emitted))
            self.n_emitted += 1
        return [*self._sends(), *emits]  # a worker waits for the one, nobody for the other

    def upcoming(self, n: int) -> list[int]:
        """At most `n` batches that will be sent next, so that their bytes can be made ready."""
        lanes = {id(lane): lane for lane in self._lane.values()}.values()
        ahead = [batch for lane in lanes for batch in range(lane.head, self.n_batches, lane.stride)[:n]]
        return sorted(ahead)[:n]

    def _sends(self) -> list[Send]:
        limit = min(self.n_batches, self.n_emitted + self.window)
        sends: list[Send] = []
        while True:
            free = [w for w, held in self._held.items() if len(held) < self._credits and self._lane[w].head < limit]
            if not free:
                return sends
            worker = min(free, key=lambda w: len(self._held[w]))
            lane = self._lane[worker]
            self._held[worker].add(lane.head)
            sends.append(Send(worker, lane.head))
            lane.head += lane.stride
