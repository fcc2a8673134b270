"""Orders on their way to the workers: what the dispatcher wants sent, as letters with all that belongs to them.

    Send ─► outbox ─► are its events read? ─► changes that the worker has not been told of, events ─► letter
                           `prefetch`                                                                 └► deadline, books

A batch waits in the outbox while the feed reads it, and all behind it, so every worker gets its batches in the dispatcher's
order.  Memory is bounded by credits: a buffer is taken when a batch may be sent and given back when it has been.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.distribution.shard import packed
from mpi_match.cluster.execution import Execution
from mpi_match.cluster.prefetch import AtOnce, Buffers, ReadAhead, n_readers
from mpi_match.cluster.run_files import RunFiles
from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.groups import Flight
from mpi_match.cluster.scheduling.instructions import Load, Send
from mpi_match.cluster.scheduling.timeouts import Deadlines
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.protocol import Command, Order

log = logging.getLogger(__name__)

_NOTHING = np.empty(0, np.uint8)


class Outbox:
    """Orders of a run's batches to its workers; a context manager.

    `opening_s` is what opening an engine took: one that has to open it afresh is waited for so much longer.

    waiting   what is to be sent, and is not read yet
    """

    def __init__(
        self,
        files: RunFiles,
        execution: Execution,
        traffic: Traffic,
        dispatcher: Dispatcher,
        deadlines: Deadlines,
        opening_s: float,
    ) -> None:
        self.waiting: deque[Send] = deque()
        self._files, self._traffic, self._dispatcher, self._deadlines = files, traffic, dispatcher, deadlines
        self._opening_s = opening_s
        self._execution = execution
        reads = files.options.feed == "master"
        self._feed = ReadAhead(self._read, execution.workers(n_readers())) if reads else ReadAhead(_read_nothing, AtOnce())
        self._n_ahead = sum(map(len, files.division.groups)) + execution.n_ahead
        self._wires = Buffers()
        self._loading: set[int] = set()

    def __enter__(self) -> Outbox:
        self._feed.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._feed.__exit__(kind, error, trace)

    def send(self, sends: Sequence[Send]) -> None:
        """Send these when they are read, and at once if they are."""
        self._feed.want([each.batch for each in sends])
        self.waiting.extend(sends)
        self.send_ready()

    def send_ready(self) -> bool:
        """Send what has been read meanwhile; was there anything?"""
        sent = False
        while self.waiting:
            batch, attempt = self.waiting[0].batch, self.waiting[0].attempt
            self._feed.want([batch])  # another attempt may have taken it
            if not self._feed.is_ready(batch):
                break
            wire, buffer = self._feed.take(batch)
            flights = []
            while self.waiting and self.waiting[0][1:] == (batch, attempt):
                worker = self.waiting.popleft().worker
                if (flight := self._dispatcher.flight(worker, batch, attempt)) is not None:
                    flights.append((worker, flight))
            given_back = _after(len(flights), functools.partial(self._give_back, buffer))
            for worker, flight in flights:
                self._send(worker, flight, wire, given_back)
            sent = True
        return sent

    def read_ahead(self) -> None:
        """Have read what will be sent next."""
        self._feed.want(self._dispatcher.upcoming(self._n_ahead))

    def load(self, load: Load) -> None:
        """A worker is to have another part of the table, and to be told of all changes to it."""
        worker, division = load.worker, self._files.division
        log.warning("rank %d loads part %d of %d, which a lost one had", worker, load.part + 1, len(division.parts))
        self._files.standing.happened("loads", worker)
        wire = packed(division.parts[load.part], division.read(division.parts[load.part]))
        if self._files.changes is not None:
            self._files.changes.forget(worker)
        self._loading.add(worker)
        self._traffic.write(Order(Command.LOAD, attempt=int(load.keep), n_events=len(wire)), [wire], worker)

    def _read(self, batch: int) -> tuple[Array, Array | None]:
        """Wire form of a batch, and the buffer it lies in; runs in the feed's thread.

        An answer that comes meanwhile is heard in between.
        """
        self._execution.meanwhile(self._traffic.poll)
        events = self._files.events.read(batch)
        self._execution.meanwhile(self._traffic.poll)
        buffer = self._wires.take(events.wire_bytes) if self._execution.lends else None
        return events.to_wire(buffer), buffer

    def _send(self, worker: int, flight: Flight, wire: Array, given_back: Callable[[], None]) -> None:
        flight.sent_at = time.perf_counter()
        batch, attempt = flight.batch, flight.attempt
        afresh, told = (False, None) if self._files.changes is None else self._files.changes.told_with(worker, batch)
        changes = _NOTHING if told is None else told.to_wire()
        order = Order(Command.MATCH_AFRESH if afresh else Command.MATCH, batch, attempt, len(changes), len(wire))
        self._traffic.write(order, [changes, wire], worker, given_back)
        # What follows the worker need not wait for.
        patience_s = self._files.options.setup_limit if worker in self._loading else self._opening_s if afresh else 0
        self._deadlines.sent(worker, flight, patience_s)
        self._loading.discard(worker)
        self._files.standing.sent(worker, batch, order.n_events)
        if attempt:
            self._files.standing.happened("resent", worker, batch)

    def _give_back(self, buffer: Array | None) -> None:
        if buffer is not None:
            self._wires.give(buffer)


def _read_nothing(batch: int) -> tuple[Array, None]:
    """What is sent of a batch whose events the worker has from elsewhere."""
    return _NOTHING, None


def _after(n: int, then: Callable[[], None]) -> Callable[[], None]:
    """What calls `then` when it has been called `n` times; for 0, `then` is called now."""
    left = n

    def called() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    if n == 0:
        then()
    return then if n == 1 else called
