"""A worker: receives batches, matches them, sends the answers.

Three activities overlap: the next batches are received (as many as there are credits), the matcher's thread matches one, and
earlier answers are sent.  Buffers of batches are reused in turn.

A short batch may arrive before a longer one that was sent earlier.  The matcher gets batches in the order in which they were
sent, because they come with changes.

A short batch that comes with its events and without changes, while no other waits, is matched and answered when its message
arrives, from the message's memory.  With one event at a time, the master waits for all of that.

A worker whose master has gone leaves by itself.  A fault-tolerant MPI reports a dead master at once; with any other the
worker detects it by missing heartbeats, after SILENCE_S.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from mpi_match.arrays.csr import Array
from mpi_match.cluster.distribution.event_source import EventSource
from mpi_match.cluster.engine_runner import Matcher
from mpi_match.cluster.messages import Matched, Received, SerializedChanges, SerializedShard, Work
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.prefetch import Buffers, Expected, InOrder
from mpi_match.cluster.signals import LEAVE_S, SignalFlag
from mpi_match.cluster.transport.backoff import Backoff, Silence
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.collectives import Ended, RankFailure
from mpi_match.cluster.transport.finalize import abort, rank_was_lost
from mpi_match.cluster.transport.launcher import survives_deaths
from mpi_match.cluster.transport.liveness import MASTER
from mpi_match.cluster.transport.protocol import (
    INLINE_BYTES,
    Answer,
    Command,
    Order,
    Reply,
    fields_of,
    inline_body,
    message_of,
)
from mpi_match.events.batch import EventBatch
from mpi_match.exit_codes import ExitCode

MASTER_WAIT_S = 5.0
"""Time limit for the batch that the engine is matching when the worker has to leave."""
WORKER_POLL_S = 5e-3
"""Interval of checks that the master is alive."""
SILENCE_S = 600.0
"""Seconds that the master may be silent. It sends a heartbeat every few seconds, unless it waits for a disk."""
LAST_REPLY_S = 10.0
"""Seconds that a worker that has to leave waits without progress for the messages in flight, including its last one."""


_MATCH, _MATCH_AFRESH, _MATCHES = int(Command.MATCH), int(Command.MATCH_AFRESH), int(Reply.MATCHES)


class Worker:
    """A worker's side of the channel.

    `source` is where its events come from; None: they come with the orders.  `interrupted` is set when this rank was
    signalled.  `beat` tells a watchdog that this rank is not stuck in a call.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        matcher: Matcher,
        backoff: Backoff,
        interrupted: SignalFlag,
        source: EventSource | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._rank, self._source, self._beat = comm.rank, source, beat
        self._interrupted, self._silence = interrupted, Silence()
        self._matcher, self._backoff = matcher, backoff
        self._traffic = Traffic(comm)
        self._buffers = Buffers()
        self._in_order: InOrder[Work] = InOrder()
        self._n_received = 0
        self._next_look = 0.0
        self._last: Order | None = None

    def serve(self) -> Order:
        """Match until the master's order to leave, which is returned.

        Raises Ended when the master is gone, and when this rank was signalled and no order arrives within LEAVE_S.
        """
        self._traffic.listen(MASTER, self._obey)
        self._traffic.write(Answer(Reply.READY), [], MASTER)
        backoff = self._backoff
        while self._last is None:
            busy = self._traffic.poll(backoff.looks)
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + WORKER_POLL_S
                self._beat()
                self._see_to_master()
            # This waits for MPI and for the matcher at once: asleep in the matcher's queue, for as long as the backoff says.
            # More in flight than the receive for the next order: its end is near.
            timeout_s = None if busy else backoff.next_s(soon=len(self._traffic) > 1)
            while (matched := self._matcher.get(None if busy else timeout_s)) is not None:
                self._answer(matched)
                busy = True
            if busy:
                backoff.reset(now)
        self._matcher.stop(MASTER_WAIT_S)
        self._traffic.write(Answer(Reply.GONE), [], MASTER)
        deadline = time.monotonic() + LAST_REPLY_S
        while len(self._traffic):
            if self._traffic.poll():
                deadline = time.monotonic() + LAST_REPLY_S
            elif time.monotonic() > deadline:
                rank_was_lost()  # the master, or this one to it
                break
            else:
                backoff.wait(soon=True)
        return self._last

    def _see_to_master(self) -> None:
        asked_s = self._interrupted.seconds()
        if asked_s is not None and asked_s > LEAVE_S:
            if survives_deaths(os.environ):
                abort(ExitCode.INTERRUPTED)  # the master goes on without it
            rank_was_lost()  # this one
            raise Ended(ClusterError(f"rank {self._rank} was interrupted", ExitCode.INTERRUPTED, quiet=True))
        gone = self._traffic.lost.get(MASTER)
        if gone is None and self._silence.seconds() > SILENCE_S:
            gone = f"it sent nothing for {SILENCE_S:.0f} s"
        if gone is not None:
            rank_was_lost()
            raise Ended(ClusterError(f"rank {self._rank} leaves, because the master is gone: {gone}"))

    def _obey(self, message: memoryview) -> bool:
        self._silence.reset()
        fields = fields_of(message)
        kind = fields[0]
        if kind in (_MATCH, _MATCH_AFRESH):
            self._receive(message, fields)
            return True
        order = Order(*fields)
        if kind == Command.LOAD:
            number = self._begin()
            shard = SerializedShard(np.empty(order.n_events, np.uint8), bool(order.attempt))  # kept: the table lies in it
            self._traffic.read([shard.wire], MASTER, lambda: self._take(number, shard))
        elif kind == Command.CHANGE:
            number = self._begin()
            changes = SerializedChanges(np.empty(order.n_changes, np.uint8))
            inline = inline_body(message, order.n_changes)
            if inline is None:
                self._traffic.read([changes.wire], MASTER, lambda: self._take(number, changes))
            else:
                changes.wire[:] = inline
                self._take(number, changes)
        elif kind != Command.WAIT:
            self._last = order
            return False
        return True

    def _receive(self, message: memoryview, fields: tuple[int, ...]) -> None:
        """Receive a batch, by the fields of its order."""
        kind, batch, attempt, n_changes, n_events, _ = fields
        n_bytes = n_changes + n_events
        inline = inline_body(message, n_bytes)
        if inline is not None:
            plain = kind == _MATCH and not n_changes and self._source is None and not self._in_order
            if plain and self._answer_at_once(batch, attempt, inline):
                return
            body = np.array(inline)
            events = self._events(batch, body[n_changes:])
            received = Received(batch, attempt, kind == _MATCH_AFRESH, body[:n_changes], events, None)
            if self._in_order:
                self._take(self._begin(), received)
            else:
                self._matcher.put(received)
            return
        number, buffer = self._begin(), self._buffers.take(n_bytes)
        changes, wire = buffer[:n_changes], buffer[n_changes:n_bytes]
        late = Received(batch, attempt, kind == _MATCH_AFRESH, changes, self._events(batch, wire), buffer)
        self._traffic.read([changes, wire], MASTER, lambda: self._take(number, late))

    def _answer_at_once(self, batch: int, attempt: int, wire: memoryview) -> bool:
        """Match a batch and send its answer before anything else is done.  Returns False if it did nothing."""
        try:
            found = self._matcher.match_at_once(wire)
        except Exception as error:
            self._fail(batch, attempt, error)
            return True
        if found is None:
            return False
        n_events, n_ids, body = len(found.counts), len(found.ids), found.wire
        if len(body) > INLINE_BYTES:
            self._traffic.write(Answer(_MATCHES, batch, attempt, n_events, n_ids), [found.counts, found.ids], MASTER)
        else:
            self._traffic.write_message(message_of((_MATCHES, batch, attempt, n_events, n_ids, 0), body), MASTER)
        return True

    def _begin(self) -> int:
        """Note that a batch or a shard begins to arrive.  Returns its number in the order of sending."""
        number = self._n_received
        self._n_received += 1
        self._in_order.begin(number)
        return number

    def _events(self, batch: int, wire: Array) -> Expected[EventBatch]:
        """A batch's events: from their wire form, which has arrived before they are taken, or from the source."""
        return Expected(partial(EventBatch.from_wire, wire)) if self._source is None else self._source.expect(batch, wire)

    def _take(self, number: int, received: Work) -> None:
        """Pass a batch or a shard that has arrived to the matcher if it is next in order, with those that waited for it."""
        for each in self._in_order.end(number, received):
            self._matcher.put(each)

    def _answer(self, matched: Matched) -> None:
        batch, attempt, _, _, _, buffer = matched.received
        report = matched.report
        if buffer is not None:
            self._buffers.give(buffer)
        if self._last is not None:
            return
        if matched.error is not None:
            self._fail(batch, attempt, matched.error)
            return
        body = [matched.counts, matched.ids, report]
        said = Answer(_MATCHES, batch, attempt, len(matched.counts), len(matched.ids), len(report))
        if matched.written is not None:
            body = [np.array([*matched.written, len(matched.ids)], np.int64), report]
            said = said._replace(kind=Reply.WRITTEN)
        self._traffic.write(said, body, MASTER)

    def _fail(self, batch: int, attempt: int, error: Exception) -> None:
        failure = np.frombuffer(pickle.dumps(RankFailure.of(error, self._rank)), np.uint8)
        self._traffic.write(Answer(Reply.FAILED, batch, attempt, 0, len(failure)), [failure], MASTER)
