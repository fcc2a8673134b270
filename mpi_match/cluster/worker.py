"""A worker: receives batches, has them matched, sends the answers.

Three things go on at once, none waiting for another: the next batches come in (as many as there are credits), the
matcher's thread matches one, earlier answers go out.  Buffers of batches go round: received into, matched from,
received into again.

A short batch may be here before a longer one that was sent earlier.  The matcher gets them in the order in which they were
sent, because changes come with them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array
from mpi_match.batch import EventBatch
from mpi_match.cluster.channel import Answer, Do, Order, Said, Traffic, inline_body, words_of
from mpi_match.cluster.consensus import Failure
from mpi_match.cluster.feed import Buffers, InOrder
from mpi_match.cluster.matcher import Matched, Matcher, Received, ShortMatcher
from mpi_match.cluster.patience import Backoff
from mpi_match.cluster.sources import Source

MASTER = 0
PATIENCE_S = 5.0
"""How long a worker that has to leave waits for the batch that its engine is matching."""


class Worker:
    """One rank's side of the channel.  `serve` returns the exit code of the run as the master has it: 0 when all is well.

    `source` is where it has its events from; None: they come with the orders.
    """

    def __init__(
        self, comm: MPI.Comm, matcher: Matcher | ShortMatcher, backoff: Backoff, source: Source | None = None
    ) -> None:
        self._rank, self._source = comm.rank, source
        self._matcher, self._backoff = matcher, backoff
        self._traffic = Traffic(comm)
        self._buffers = Buffers()
        self._in_order: InOrder[Received] = InOrder()
        self._last: Order | None = None

    def serve(self) -> int:
        """Match until the master says that it is over."""
        self._traffic.listen(MASTER, self._obey)
        backoff = self._backoff
        while self._last is None or len(self._traffic):
            busy = self._traffic.poll(backoff.looks)
            # Waiting for MPI and for the matcher at once: asleep in the matcher's queue, for as long as the back-off allows.
            patience_s = 0 if busy else backoff.next_s(soon=len(self._traffic) > 1)  # more than the next order
            while (matched := self._matcher.get(0 if busy else patience_s)) is not None:
                self._answer(matched)
                busy = True
            if busy:
                backoff.reset()
        self._matcher.stop(PATIENCE_S)
        self._traffic.write(Answer(Said.GONE), [], MASTER)
        while len(self._traffic):
            if not self._traffic.poll():
                backoff.wait(soon=True)
        return self._last.number

    def _obey(self, letter: Array) -> bool:
        order = Order(*words_of(letter))
        if order.kind != Do.MATCH:
            self._last = order
            return False
        self._in_order.begin(order.number)
        n_changes, n_bytes = order.n_changes, order.n_changes + order.n_events
        inline, events = inline_body(letter, n_bytes), partial(self._events, order.number)
        if inline is not None:
            self._take(Received(order.number, order.attempt, inline[:n_changes], events(inline[n_changes:]), None))
            return True
        buffer = self._buffers.take(n_bytes)
        changes, wire = buffer[:n_changes], buffer[n_changes:n_bytes]
        received = Received(order.number, order.attempt, changes, events(wire), buffer)
        self._traffic.read([changes, wire], MASTER, lambda: self._take(received))
        return True

    def _events(self, batch: int, wire: Array) -> Callable[[], EventBatch]:
        """What gets a batch's events: from their wire form, which may still be on its way, or from the source."""
        return partial(EventBatch.from_wire, wire) if self._source is None else self._source.expect(batch)

    def _take(self, received: Received) -> None:
        """A batch is here whole: have it matched, and those that waited for it, unless it has to wait itself."""
        for batch in self._in_order.end(received.batch, received):
            self._matcher.put(batch)

    def _answer(self, matched: Matched) -> None:
        batch, attempt, _, _, buffer = matched.received
        if buffer is not None:
            self._buffers.give(buffer)
        if self._last is not None:
            return
        body = [matched.counts, matched.ids]
        said = Answer(Said.MATCHES, batch, attempt, len(matched.counts), len(matched.ids))
        if matched.error is not None:
            body = [np.frombuffer(pickle.dumps(Failure.of(matched.error, self._rank)), np.uint8)]
            said = Answer(Said.FAILED, batch, attempt, 0, len(body[0]))
        self._traffic.write(said, body, MASTER)
