"""The master: does what the dispatcher says.

    feed's threads    read, check and copy the next batches into buffers
    main thread       sends them, receives answers, hands them to the dispatcher
    answers' thread   writes what the dispatcher lets go

Short batches are read and written by the main thread.  What the worker waits for is done first then: when an answer comes,
the next batch is sent, and the one after that read, with a look for the next answer in between.  That takes about as long as
a short trip, and to write an answer would take as long again; so answers are written every few milliseconds, all that have
come since in one go.

Memory is bounded by credits: a buffer is taken when a batch may be sent and given back when it has been; answers wait for
earlier ones only within the dispatcher's window, and a few (`WriteBehind`) for being written.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array
from mpi_match.cluster import ClusterError, RunSummary
from mpi_match.cluster.channel import Answer, Do, Order, Said, Traffic, inline_body, words_of
from mpi_match.cluster.consensus import Ended, Failure, exit_code_of
from mpi_match.cluster.deadlines import Deadlines
from mpi_match.cluster.dispatch import Dispatcher
from mpi_match.cluster.farewell import rank_was_lost
from mpi_match.cluster.feed import READERS, Buffers, ReadAhead
from mpi_match.cluster.instructions import Drop, Emit, GiveUp, Instruction, Load, Quarantine, Send
from mpi_match.cluster.job import Job, Opened
from mpi_match.cluster.launcher import survives_deaths
from mpi_match.cluster.matcher import Written
from mpi_match.cluster.parcel import packed
from mpi_match.cluster.patience import Backoff, Silence
from mpi_match.cluster.round_trips import RoundTrips
from mpi_match.cluster.write_behind import WriteBehind
from mpi_match.matches import id_dtype

log = logging.getLogger(__name__)

_NOTHING = np.empty(0, np.uint8)
_WRITTEN = np.dtype(np.int64)
"""Type of the three numbers that come with the word that answers are written."""
BAD_INPUT = 3
"""Exit code of what no other worker would do better."""
LOOK_S = 5e-3
"""How often to look for what goes wrong, and to write short answers: not between any two of them, which may be some
microseconds apart."""
SIGN_OF_LIFE_S = 5.0
"""How often workers are told that there is a master."""
MEETING_S = 30.0
"""How long workers may take to leave the last common step, in which they have nothing to do any more."""
FAREWELL_S = 30.0
"""How long workers may take to leave before the master leaves without them."""
LATE_FAREWELL_S = 5.0
"""The same for workers that have stood still for longer than their deadline, if the job may end without them."""
INTERRUPTED, HASTY_FAREWELL_S = 130, 1.0
"""The same when the master was interrupted, and who did that may soon kill it."""


class _Body(NamedTuple):
    """What came with a letter, u8: of an answer the counts and the ids.  `buffer` is to be given back, unless it is None."""

    first: Array
    second: Array
    buffer: Array | None


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


def _read_nothing(batch: int) -> tuple[Array, None]:
    """What is sent of a batch whose events the worker has from elsewhere."""
    return _NOTHING, None


class _Arrival(NamedTuple):
    """An answer that is here whole: its body, or what went wrong."""

    worker: int
    batch: int
    attempt: int
    body: _Body | Failure
    at_s: float


class Master:
    """Rank 0's side of the channel with every worker."""

    def __init__(self, comm: MPI.Comm, job: Job, backoff: Backoff) -> None:
        self._comm, self._job, self._backoff = comm, job, backoff
        self._workers = range(1, comm.size)
        options = job.options
        self._short = options.short_batches
        self._n_ahead = len(self._workers) + (0 if self._short else READERS)
        self._dispatcher = Dispatcher(
            job.n_batches,
            job.division.groups,
            credits=options.credits,
            schedule=options.schedule,
            ascending=options.changes is not None,
            room=job.division.room,
        )
        if len(job.division.groups[0]) > 1:
            from mpi_match.cluster.union import unite  # loads Numba

            self._unite = unite
        self._traffic = Traffic(comm)
        self._wires, self._bodies = Buffers(), Buffers()
        self._outbox: deque[Send] = deque()
        self._known: dict[int, int] = {}
        self._sent_at: dict[tuple[int, int, int], float] = {}
        self._loading: set[int] = set()
        self._round_trips = RoundTrips()
        self._deadlines = Deadlines(self._dispatcher, self._round_trips, options.deadline)
        self._arrived: deque[_Arrival] = deque()
        self._parts: dict[tuple[int, int], dict[int, _Body]] = {}
        self._count_dtype, self._id_dtype = id_dtype(job.n_ids + 1), id_dtype(job.n_ids)
        self._failures: list[str] = []
        self._ready: set[int] = set()
        self._absent: list[int] = []
        self._gone: set[int] = set()
        self._lost: set[int] = set()
        self._group: list[_Body] = []
        self._group_first = self._group_end = 0
        self._in_groups = self._short and options.results == "master" and len(job.division.groups[0]) == 1
        self._next_look = 0.0
        self._next_sign = time.monotonic() + SIGN_OF_LIFE_S

    def meet(self) -> None:
        """Wait until all workers have left the last common step: in a collective call who dies or stops holds up others.

        The run begins without those that have not after a while.
        """
        for worker in self._workers:
            self._traffic.listen(worker, functools.partial(self._hear, worker))
        backoff, silence = Backoff(), Silence()
        while absent := set(self._workers) - self._ready - self._traffic.lost.keys():
            if self._traffic.poll():
                silence.broken()
            elif silence.seconds() > MEETING_S:
                self._absent = sorted(absent)
                return
            else:
                backoff.wait()

    def run(self, opened: Sequence[Opened]) -> RunSummary:
        """Match all events, after `meet`.  Raises Ended after the workers have left."""
        self._opening_s = max(each.opening_s for each in opened)
        try:
            short = self._short
            read = self._read if self._job.options.feed == "master" else _read_nothing
            with (
                ReadAhead(read, 0 if short or read is _read_nothing else None) as self._feed,
                WriteBehind(self._write, threaded=not short) as self._written,
            ):
                self._job.begin()
                self._match()
                self._written.finish()
            summary = self._job.finish(opened, self._round_trips)
        except KeyboardInterrupt as error:
            self._job.leave(error)  # the journal first: mpirun kills half a second after it has asked
            self._dismiss(Order(Do.ABANDON, INTERRUPTED), HASTY_FAREWELL_S)
            raise
        except Exception as error:
            self._dismiss(Order(Do.ABANDON, exit_code_of(error)))
            raise Ended(error) from error
        self._dismiss(Order(Do.END))
        return summary

    def _match(self) -> None:
        try:
            self._match_all()
        finally:
            self._write_group()

    def _match_all(self) -> None:
        backoff = self._backoff
        for worker in self._absent:
            self._lose(worker, f"it was not ready {MEETING_S:.0f} s after the others")
        self._obey(self._dispatcher.start())
        while not self._dispatcher.finished:
            busy = self._traffic.poll(backoff.looks)
            for _ in range(len(self._arrived)):  # and not those that come meanwhile, without end
                self._obey(self._take(self._arrived.popleft()))
            busy |= self._send_ready() or bool(self._arrived)
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + LOOK_S
                self._look_around(now)
                self._write_group()
            if busy:
                backoff.reset()
            else:
                listening_only = not self._outbox and len(self._traffic) == len(self._workers)
                backoff.wait(soon=not listening_only)

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, Load):
                self._load(each)  # before the batches that are sent behind it
        sends = [each for each in instructions if isinstance(each, Send)]
        self._feed.want([send.batch for send in sends])
        self._outbox.extend(sends)
        self._send_ready()
        for instruction in instructions:
            match instruction:
                case Emit(batch, attempt):
                    self._emit(batch, self._parts.pop((batch, attempt)))
                case Quarantine(batch):
                    self._job.standing.happened("quarantined", batch=batch)
                    self._write_group()
                    self._written.put((batch, {}))
                case Drop(batch, attempt):
                    self._give_back(self._parts.pop((batch, attempt)))
                case GiveUp(why):
                    self._written.finish()
                    start, _ = self._job.extent(self._dispatcher.n_emitted)
                    raise ClusterError("; ".join([f"{why}: the events from {start} on have no answers", *self._failures]), 4)
        if self._short:
            self._traffic.poll()
        self._feed.want(self._dispatcher.upcoming(self._n_ahead))

    # What goes wrong

    def _look_around(self, now: float) -> None:
        for worker in self._traffic.lost.keys() - self._lost:
            self._lose(worker, self._traffic.lost[worker])
        if self._deadlines.look(now):
            self._see_who_is_late()
        if now >= self._next_sign:
            self._next_sign = now + SIGN_OF_LIFE_S
            for worker in self._workers:
                self._traffic.beat(worker)

    def _see_who_is_late(self) -> None:
        for worker, batch in self._deadlines.overdue():
            start, stop = self._job.extent(batch)
            log.warning(
                "rank %d has not answered events %d to %d within %.0f s; they are given to another worker too",
                *(worker, start, stop, self._deadlines.limit_s),
            )
            self._job.standing.happened("overdue", worker, batch)
            self._obey(self._dispatcher.overdue(worker))
        for worker in self._deadlines.hopeless():
            self._lose(worker, f"nothing was heard of it for more than {self._deadlines.limit_s:.0f} s")

    def _lose(self, worker: int, why: str) -> None:
        """A worker is gone; what it had goes to others."""
        log.warning("rank %d is lost: %s", worker, why)
        self._lost.add(worker)
        self._job.standing.happened("lost", worker)
        self._obey(self._dispatcher.lost(worker))

    def _survive(self, worker: int, batch: int, attempt: int, failure: Failure) -> Sequence[Instruction]:
        """An engine raised; what is to be done then.  Raises when it was the input: that is the same for every worker."""
        start, stop = self._job.extent(batch)
        again = any(failure.text in text for text in self._failures)
        error = failure.as_error(quiet=again, what=f", matching events {start} to {stop}")
        if failure.exit_code == BAD_INPUT:
            raise error
        log.warning("%s", error)
        self._failures = [str(error)]
        self._job.standing.happened("failed", worker, batch)
        return self._dispatcher.failed(worker, batch, attempt)

    # Towards the workers

    def _read(self, batch: int) -> tuple[Array, Array]:
        """Wire form of a batch, and the buffer it lies in; runs in the feed's thread."""
        events = self._job.events.batch(*self._job.extent(batch))
        if self._short:
            self._traffic.poll()
        buffer = self._wires.take(events.wire_bytes)
        return events.to_wire(buffer), buffer

    def _send_ready(self) -> bool:
        sent = False
        while self._outbox:
            batch, attempt = self._outbox[0].batch, self._outbox[0].attempt
            self._feed.want([batch])  # another attempt may have taken it
            if not self._feed.is_ready(batch):
                break
            wire, buffer = self._feed.take(batch)
            workers = []
            while self._outbox and self._outbox[0][1:] == (batch, attempt):
                worker = self._outbox.popleft().worker
                if self._dispatcher.holds(worker, batch, attempt):
                    workers.append(worker)
            given_back = _after(len(workers), functools.partial(self._give_back_wire, buffer))
            for worker in workers:
                self._send(worker, batch, attempt, wire, given_back)
            sent = True
        return sent

    def _send(self, worker: int, batch: int, attempt: int, wire: Array, given_back: Callable[[], None]) -> None:
        self._sent_at[worker, batch, attempt] = time.perf_counter()
        afresh = self._job.is_past(batch, self._known.get(worker))
        if afresh:
            del self._known[worker]
        changes = self._changes_for(worker, batch)
        order = Order(Do.MATCH_AFRESH if afresh else Do.MATCH, batch, attempt, len(changes), len(wire))
        self._traffic.write(order, [changes, wire], worker, given_back)
        # What follows the worker need not wait for.
        patience_s = self._job.options.setup_limit if worker in self._loading else self._opening_s if afresh else 0
        self._deadlines.sent(worker, batch, attempt, patience_s)
        self._loading.discard(worker)
        self._job.standing.sent(worker, batch, order.n_events)
        if attempt:
            self._job.standing.happened("resent", worker, batch)

    def _load(self, load: Load) -> None:
        """A worker is to have another part of the table, and to be told of all changes to it."""
        worker, parts = load.worker, self._job.division.parts
        log.warning("rank %d loads part %d of %d, which a lost one had", worker, load.part + 1, len(parts))
        self._job.standing.happened("loads", worker)
        wire = packed(parts[load.part], self._job.division.read(parts[load.part]))
        self._known.pop(worker, None)
        self._loading.add(worker)
        self._traffic.write(Order(Do.LOAD, attempt=int(load.keep), n_events=len(wire)), [wire], worker)

    def _give_back_wire(self, buffer: Array | None) -> None:
        if buffer is not None:
            self._wires.give(buffer)

    def _changes_for(self, worker: int, batch: int) -> Array:
        """Wire form of the changes that a worker must be told of with a batch; empty when there are none.

        It is told of all changes, each once and in order, and from the beginning when it has to open its engine afresh.
        """
        if self._job.options.changes is None:
            return _NOTHING
        changes = self._job.changes_for(batch, self._known.get(worker))
        _, self._known[worker] = self._job.extent(batch)
        return _NOTHING if changes is None else changes.to_wire()

    # From the workers

    def _hear(self, worker: int, letter: Array) -> bool:
        answer = Answer(*words_of(letter))
        if answer.kind == Said.MATCHES:
            sizes = answer.n_events * self._count_dtype.itemsize, answer.n_ids * self._id_dtype.itemsize
            self._receive(letter, sizes, worker, lambda body: self._arrive(worker, answer, body))
        elif answer.kind == Said.WRITTEN:
            self._receive(letter, (0, 3 * _WRITTEN.itemsize), worker, lambda body: self._arrive(worker, answer, body))
        elif answer.kind == Said.FAILED:
            self._receive(letter, (0, answer.n_ids), worker, lambda body: self._fail(worker, answer, body))
        elif answer.kind == Said.READY:
            self._ready.add(worker)
        elif answer.kind == Said.GONE:
            self._gone.add(worker)
        return answer.kind != Said.GONE

    def _receive(self, letter: Array, sizes: tuple[int, int], worker: int, then: Callable[[_Body], None]) -> None:
        """Call `then` with the two parts of a letter's body, when they are here."""
        inline = inline_body(letter, sum(sizes))
        if inline is not None:
            then(_Body(inline[: sizes[0]], inline[sizes[0] :], None))
            return
        at = -(-sizes[0] // 8) * 8
        buffer = self._bodies.take(at + sizes[1])
        body = _Body(buffer[: sizes[0]], buffer[at : at + sizes[1]], buffer)
        self._traffic.read([body.first, body.second], worker, lambda: then(body))

    def _arrive(self, worker: int, answer: Answer, body: _Body | Failure) -> None:
        self._arrived.append(_Arrival(worker, answer.batch, answer.attempt, body, time.perf_counter()))

    def _take(self, arrival: _Arrival) -> Sequence[Instruction]:
        """Keep an answer if it is wanted; what is to be done then."""
        worker, batch, attempt, body, at_s = arrival
        self._deadlines.came(worker, batch, attempt)
        if isinstance(body, Failure):
            return self._survive(worker, batch, attempt, body)
        sent_at = self._sent_at.pop((worker, batch, attempt), None)
        if sent_at is not None and self._dispatcher.wants(worker, batch, attempt):
            self._round_trips.add(at_s - sent_at)
            start, stop = self._job.extent(batch)
            self._job.standing.answered(worker, batch, stop - start)
            self._parts.setdefault((batch, attempt), {})[worker] = body
        else:
            self._job.standing.happened("dropped", worker, batch)
            self._give_back({worker: body})
        return self._dispatcher.answered(worker, batch, attempt)

    def _emit(self, batch: int, parts: dict[int, _Body]) -> None:
        """The answers of the next batch are to be written: by their thread, or with the group that they belong to."""
        if not self._in_groups:
            self._written.put((batch, parts))
            return
        start, stop = self._job.extent(batch)
        if start != self._group_end:
            self._write_group()
        if not self._group:
            self._group_first = batch
        self._group += parts.values()
        self._group_end = stop

    def _write_group(self) -> None:
        """Write short answers to events that follow each other, if there are any."""
        if self._group:
            group, self._group = self._group, []
            counts, ids = b"".join([body.first.data for body in group]), b"".join([body.second.data for body in group])
            self._job.write(self._group_first, np.frombuffer(counts, self._count_dtype), np.frombuffer(ids, self._id_dtype))
            for body in group:
                self._give_back({0: body})

    def _write(self, answers: tuple[int, dict[int, _Body]]) -> None:
        """The answers of the next batch, from the members of a group, or none; runs in the answers' thread."""
        batch, parts = answers
        if not parts:
            self._job.set_aside(batch)
            return
        if self._job.options.results == "local":
            ((worker, said),) = parts.items()
            part, end, n_ids = said.second.view(_WRITTEN).tolist()
            self._job.wrote(batch, n_ids, worker, Written(part, end))
            return
        found = [
            (parts[each].first.view(self._count_dtype), parts[each].second.view(self._id_dtype)) for each in sorted(parts)
        ]
        self._job.write(batch, *(found[0] if len(found) == 1 else self._unite(found)))
        self._give_back(parts)

    def _give_back(self, parts: dict[int, _Body]) -> None:
        for body in parts.values():
            if body.buffer is not None:
                self._bodies.give(body.buffer)

    def _fail(self, worker: int, answer: Answer, body: _Body) -> None:
        self._arrive(worker, answer, pickle.loads(body.second.tobytes()))
        self._give_back({worker: body})

    def _dismiss(self, order: Order, patience_s: float = FAREWELL_S) -> None:
        """Tell all workers to leave and wait until they have; what still comes in is received and dropped.

        Lost ones are not waited for, those that are late anyway not long, and none for ever: one that does not leave in
        time is left to find out by itself.
        """
        dispensable = survives_deaths(os.environ)  # else the launcher ends a job that goes without one of its ranks
        late = {worker for worker in self._workers if dispensable and self._dispatcher.is_overdue(worker)}
        if self._lost or self._traffic.lost:
            rank_was_lost()
            order = order._replace(attempt=1)
        for worker in self._workers:
            self._traffic.write(order, [], worker)
        backoff, began = Backoff(), time.monotonic()
        while left := [
            worker
            for worker in self._workers
            if worker not in self._lost
            and worker not in self._traffic.lost
            and (worker not in self._gone or self._traffic.under_way(worker))
        ]:
            if self._traffic.poll():
                backoff.reset()
            elif time.monotonic() - began > (min(patience_s, LATE_FAREWELL_S) if late.issuperset(left) else patience_s):
                log.warning("rank %s did not leave in time; the run ends without it", ", ".join(map(str, left)))
                rank_was_lost()
                return
            else:
                backoff.wait()
