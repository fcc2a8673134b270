"""Complete answers of the workers, as the master receives them.

    header ─► short: the body is in it ───────────────────────┐
           └► long: a buffer of its size ─► the body follows ─┴► Arrival ─► waits in the queue for the master

Answers are only queued here: a callback of the channel must not raise, and must not send messages with callbacks of their
own.
"""

from __future__ import annotations

import functools
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mpi_match.arrays.csr import Array
from mpi_match.cluster.messages import WRITTEN_DTYPE, Body
from mpi_match.cluster.prefetch import Buffers
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.collectives import RankFailure
from mpi_match.cluster.transport.protocol import Answer, Reply, fields_of, inline_body
from mpi_match.matches.matches import id_dtype

_MATCHES = int(Reply.MATCHES)


class Arrival(NamedTuple):
    """A complete answer: its body, or the failure; `at_s` on the clock of `time.perf_counter`."""

    worker: int
    batch: int
    attempt: int
    body: Body | RankFailure
    at_s: float


class Inbox:
    """Answers of at most `n_ids` ids to an event, from all workers.

    waiting                 answers not processed yet, in order of arrival
    ready, gone             workers whose READY, and whose GONE, has arrived
    count_dtype, id_dtype   of the counts and ids in answers
    """

    def __init__(self, traffic: Traffic, n_ids: int) -> None:
        self.waiting: deque[Arrival] = deque()
        self.ready: set[int] = set()
        self.gone: set[int] = set()
        self.count_dtype, self.id_dtype = id_dtype(n_ids + 1), id_dtype(n_ids)
        self._traffic = traffic
        self._buffers = Buffers()

    def listen(self, workers: Iterable[int]) -> None:
        """Receive the answers of these workers, until they are gone."""
        for worker in workers:
            self._traffic.listen(worker, functools.partial(self._handle, worker))

    def give_back(self, bodies: Iterable[Body]) -> None:
        """Return the buffers of bodies for reuse."""
        for body in bodies:
            if body.buffer is not None:
                self._buffers.give(body.buffer)

    def _handle(self, worker: int, header: Array) -> bool:
        answer = Answer(*fields_of(header))
        if answer.kind == _MATCHES:
            sizes = (answer.n_events * self.count_dtype.itemsize, answer.n_ids * self.id_dtype.itemsize, answer.n_report)
            self._receive(header, sizes, worker, lambda body: self._arrive(worker, answer, body))
        elif answer.kind == Reply.WRITTEN:
            sizes = (0, 3 * WRITTEN_DTYPE.itemsize, answer.n_report)
            self._receive(header, sizes, worker, lambda body: self._arrive(worker, answer, body))
        elif answer.kind == Reply.FAILED:
            self._receive(header, (0, answer.n_ids, 0), worker, lambda body: self._fail(worker, answer, body))
        elif answer.kind == Reply.READY:
            self.ready.add(worker)
        elif answer.kind == Reply.GONE:
            self.gone.add(worker)
        return answer.kind != Reply.GONE

    def _receive(self, header: Array, sizes: tuple[int, int, int], worker: int, then: Callable[[Body], None]) -> None:
        """Call `then` with the parts of a message's body, when they have arrived."""
        inline = inline_body(header, sum(sizes))
        if inline is not None:
            end = sizes[0] + sizes[1]
            then(Body(inline[: sizes[0]], inline[sizes[0] : end], inline[end:], None))
            return
        at = -(-sizes[0] // 8) * 8
        end = at + sizes[1]
        buffer = self._buffers.take(end + sizes[2])
        body = Body(buffer[: sizes[0]], buffer[at:end], buffer[end : end + sizes[2]], buffer)
        self._traffic.read([body.first, body.second, body.report], worker, lambda: then(body))

    def _arrive(self, worker: int, answer: Answer, body: Body | RankFailure) -> None:
        self.waiting.append(Arrival(worker, answer.batch, answer.attempt, body, time.perf_counter()))

    def _fail(self, worker: int, answer: Answer, body: Body) -> None:
        self._arrive(worker, answer, pickle.loads(body.second.tobytes()))
        self.give_back([body])
