"""Complete answers of the workers, as the master receives them.

    header ─► short: the body is in it ───────────────────────┐
           └► long: a buffer of its size ─► the body follows ─┴► Arrival ─► waits in the queue for the master

Answers are only queued here, and a short one is exchanged for the next batch if nothing has to be decided: a callback of the
channel must not raise, and must not send messages with callbacks of their own.
"""

from __future__ import annotations

import functools
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mpi_match.cluster.at_once.exchange import Exchange
from mpi_match.cluster.messages import WRITTEN_DTYPE, Body
from mpi_match.cluster.prefetch import Buffers
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.collectives import RankFailure
from mpi_match.cluster.transport.protocol import Reply, fields_of, inline_body
from mpi_match.matches.matches import id_dtype

_MATCHES = int(Reply.MATCHES)


class Arrival(NamedTuple):
    """A complete answer to `n_events` events: its body, or the failure; `at_s` on the clock of `time.perf_counter`."""

    worker: int
    batch: int
    attempt: int
    n_events: int
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
        self._count_bytes, self._id_bytes = self.count_dtype.itemsize, self.id_dtype.itemsize
        self._exchange: Exchange | None = None
        self._traffic = traffic
        self._buffers = Buffers()

    def listen(self, workers: Iterable[int]) -> None:
        """Start receiving the answers of these workers, until they leave."""
        for worker in workers:
            self._traffic.listen(worker, functools.partial(self._handle, worker))

    @contextmanager
    def exchanging(self, exchange: Exchange) -> Iterator[None]:
        """Within the block short answers are exchanged as soon as they arrive."""
        self._exchange = exchange
        try:
            yield
        finally:
            self._exchange = None

    def exchange(self, arrival: Arrival) -> bool:
        """Exchange an answer that was waiting.  Returns False, and does nothing, if that is impossible."""
        worker, batch, attempt, n_events, body, _ = arrival
        if self._exchange is None or isinstance(body, RankFailure):
            return False
        begun = self._exchange.begin(worker, batch, attempt)
        if begun is not None:
            self._exchange.end(worker, batch, n_events, body, begun)
        return begun is not None

    def give_back(self, bodies: Iterable[Body]) -> None:
        """Return the buffers of bodies for reuse."""
        for body in bodies:
            if body.buffer is not None:
                self._buffers.give(body.buffer)

    def _handle(self, worker: int, message: memoryview) -> bool:
        kind, batch, attempt, n_events, n_ids, n_report = fields_of(message)
        if kind == _MATCHES:
            n_counts, end = n_events * self._count_bytes, n_events * self._count_bytes + n_ids * self._id_bytes
            inline = inline_body(message, end + n_report)
            if inline is None:
                sizes = n_counts, end - n_counts, n_report
                self._receive(sizes, worker, lambda body: self._arrive(worker, batch, attempt, n_events, body))
                return True
            exchange = self._exchange
            begun = None if exchange is None else exchange.begin(worker, batch, attempt)
            answer = inline.tobytes()
            body = Body(answer[:n_counts], answer[n_counts:end], answer[end:], None)
            if exchange is None or begun is None:
                self._arrive(worker, batch, attempt, n_events, body)
            else:
                exchange.end(worker, batch, n_events, body, begun)
        elif kind == Reply.WRITTEN:
            sizes = (0, 3 * WRITTEN_DTYPE.itemsize, n_report)
            self._take(message, sizes, worker, lambda body: self._arrive(worker, batch, attempt, n_events, body))
        elif kind == Reply.FAILED:
            self._take(message, (0, n_ids, 0), worker, lambda body: self._fail(worker, batch, attempt, body))
        elif kind == Reply.READY:
            self.ready.add(worker)
        elif kind == Reply.GONE:
            self.gone.add(worker)
        return kind != Reply.GONE

    def _take(self, message: memoryview, sizes: tuple[int, int, int], worker: int, then: Callable[[Body], None]) -> None:
        """Call `then` with the parts of a message's body, when they have arrived."""
        inline = inline_body(message, sum(sizes))
        if inline is None:
            self._receive(sizes, worker, then)
        else:
            answer, end = inline.tobytes(), sizes[0] + sizes[1]
            then(Body(answer[: sizes[0]], answer[sizes[0] : end], answer[end:], None))

    def _receive(self, sizes: tuple[int, int, int], worker: int, then: Callable[[Body], None]) -> None:
        """Receive the parts of a body that follows its header, and call `then` with them."""
        at = -(-sizes[0] // 8) * 8
        end = at + sizes[1]
        buffer = self._buffers.take(end + sizes[2])
        parts = buffer[: sizes[0]], buffer[at:end], buffer[end : end + sizes[2]]
        self._traffic.read(parts, worker, lambda: then(Body(parts[0].data, parts[1].data, parts[2].data, buffer)))

    def _arrive(self, worker: int, batch: int, attempt: int, n_events: int, body: Body | RankFailure) -> None:
        self.waiting.append(Arrival(worker, batch, attempt, n_events, body, time.perf_counter()))

    def _fail(self, worker: int, batch: int, attempt: int, body: Body) -> None:
        self._arrive(worker, batch, attempt, 0, pickle.loads(body.second))
        self.give_back([body])
