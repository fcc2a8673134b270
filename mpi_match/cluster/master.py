"""The master: does what the dispatcher says.

    feed's thread   reads, checks and copies the next batches into buffers
    main thread     sends them, receives answers, hands them to the dispatcher, writes what it lets go

Memory is bounded by credits: a buffer is taken when a batch may be sent and given back when it has been; answers wait for
earlier ones only within the dispatcher's window.
"""

from __future__ import annotations

import functools
import logging
import pickle
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array
from mpi_match.cluster import RunSummary
from mpi_match.cluster.channel import HEADER_WORDS, Answer, Backoff, Do, Order, Said, Tag, Traffic, header
from mpi_match.cluster.consensus import Ended, Failure, exit_code_of
from mpi_match.cluster.dispatch import Dispatcher, Instruction, Send
from mpi_match.cluster.feed import Buffers, ReadAhead
from mpi_match.cluster.job import Job, Opened
from mpi_match.matches import id_dtype

log = logging.getLogger(__name__)

FAREWELL_S = 30.0
"""How long workers may take to leave before the master ends them."""


class _Answers(NamedTuple):
    """Counts and ids of a batch, and the buffers that they lie in."""

    counts: Array
    ids: Array
    buffers: tuple[Array, Array]


class Master:
    """Rank 0's side of the channel with every worker."""

    def __init__(self, comm: MPI.Comm, job: Job) -> None:
        self._comm, self._job = comm, job
        self._workers = range(1, comm.size)
        options = job.options
        self._dispatcher = Dispatcher(job.n_batches, self._workers, credits=options.credits, schedule=options.schedule)
        self._traffic = Traffic(comm)
        self._wires, self._bodies = Buffers(), Buffers()
        self._outbox: deque[Send] = deque()
        self._arrived: deque[tuple[int, int]] = deque()
        self._answers: dict[int, _Answers] = {}
        self._count_dtype, self._id_dtype = id_dtype(job.n_ids + 1), id_dtype(job.n_ids)
        self._failure: tuple[int, Failure] | None = None
        self._gone: set[int] = set()

    def run(self, opened: Sequence[Opened]) -> RunSummary:
        """Match all events.  Raises Ended after the workers have left."""
        for worker in self._workers:
            self._listen(worker)
        try:
            with ReadAhead(self._read) as self._feed:
                self._job.begin()
                self._match()
            summary = self._job.finish(opened)
        except Exception as error:
            self._dismiss(Order(Do.ABANDON, exit_code=exit_code_of(error)))
            raise Ended(error) from error
        self._dismiss(Order(Do.END))
        return summary

    def _match(self) -> None:
        backoff = Backoff()
        self._obey(self._dispatcher.start())
        while not self._dispatcher.finished:
            busy = self._traffic.poll()
            if self._failure is not None:
                batch, failure = self._failure
                start, stop = self._job.extent(batch)
                raise failure.as_error(what=f", matching events {start} to {stop}")
            while self._arrived:
                self._obey(self._dispatcher.answered(*self._arrived.popleft()))
            busy |= self._send_ready()
            if busy:
                backoff.reset()
            else:
                listening_only = not self._outbox and len(self._traffic) == len(self._workers)
                backoff.wait(soon=not listening_only)

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                self._feed.want([instruction.batch])
                self._outbox.append(instruction)
            else:
                answers = self._answers.pop(instruction.batch)
                self._job.write(answers.counts, answers.ids)
                for buffer in answers.buffers:
                    self._bodies.give(buffer)
        self._feed.want(self._dispatcher.upcoming(len(self._workers) + 1))

    # Towards the workers

    def _read(self, batch: int) -> tuple[Array, Array]:
        """Wire form of a batch, and the buffer it lies in; runs in the feed's thread."""
        events = self._job.events.batch(*self._job.extent(batch))
        buffer = self._wires.take(events.wire_bytes)
        return events.to_wire(buffer), buffer

    def _send_ready(self) -> bool:
        sent = False
        while self._outbox and self._feed.is_ready(self._outbox[0].batch):
            worker, batch = self._outbox.popleft()
            wire, buffer = self._feed.take(batch)
            self._traffic.send([header(Order(Do.MATCH, batch, len(wire)))], worker, Tag.ORDER)
            self._traffic.send([wire], worker, Tag.EVENTS, functools.partial(self._wires.give, buffer))
            sent = True
        return sent

    # From the workers

    def _listen(self, worker: int) -> None:
        words = np.empty(HEADER_WORDS, np.int64)
        self._traffic.receive([words], worker, Tag.ANSWER, lambda: self._hear(worker, Answer(*words.tolist())))

    def _hear(self, worker: int, answer: Answer) -> None:
        if answer.kind == Said.GONE:
            self._gone.add(worker)
            return
        self._listen(worker)
        if answer.kind == Said.FAILED:
            text = np.empty(answer.n_ids, np.uint8)
            self._traffic.receive([text], worker, Tag.BODY, lambda: self._fail(answer.batch, text))
            return
        counts_bytes, ids_bytes = answer.n_events * self._count_dtype.itemsize, answer.n_ids * self._id_dtype.itemsize
        buffers = self._bodies.take(counts_bytes), self._bodies.take(ids_bytes)
        counts, ids = buffers[0][:counts_bytes].view(self._count_dtype), buffers[1][:ids_bytes].view(self._id_dtype)
        answers = _Answers(counts, ids, buffers)
        self._traffic.receive([counts, ids], worker, Tag.BODY, lambda: self._accept(worker, answer.batch, answers))

    def _accept(self, worker: int, batch: int, answers: _Answers) -> None:
        self._answers[batch] = answers
        self._arrived.append((worker, batch))

    def _fail(self, batch: int, text: Array) -> None:
        self._failure = self._failure or (batch, pickle.loads(text.tobytes()))

    def _dismiss(self, order: Order) -> None:
        """Tell all workers to leave and wait until they have; what still comes in is received and dropped."""
        for worker in self._workers:
            self._traffic.send([header(order)], worker, Tag.ORDER)
        backoff, deadline = Backoff(), time.monotonic() + FAREWELL_S
        while len(self._gone) < len(self._workers) or len(self._traffic):
            if self._traffic.poll():
                backoff.reset()
            elif time.monotonic() > deadline:
                silent = sorted(set(self._workers) - self._gone)
                log.error("ranks %s did not leave within %.0f s; ending the job", silent, FAREWELL_S)
                self._comm.Abort(order.exit_code or 1)
            else:
                backoff.wait()
