"""The master: carries out the dispatcher's instructions.

    feed's threads    read, check and copy the next batches into buffers          `outbox`
    main thread       sends them, receives answers, passes them to the dispatcher `inbox`
    writer thread     writes the answers that the dispatcher emits                `answers`

Short batches are read and written by the main thread (`execution`).

Credits bound the memory: answers wait for earlier ones only within the dispatcher's window, and the queue of the writer
(`WriteBehind`) is short.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from mpi4py import MPI

from mpi_match.cluster.answers import OrderedWriter
from mpi_match.cluster.at_once.exchange import Exchange
from mpi_match.cluster.execution import Execution
from mpi_match.cluster.followed_files import FollowedFiles
from mpi_match.cluster.inbox import Arrival, Inbox
from mpi_match.cluster.messages import Body
from mpi_match.cluster.options import ClusterError, RunSummary
from mpi_match.cluster.outbox import Outbox
from mpi_match.cluster.run_files import Opened, RunFiles
from mpi_match.cluster.scheduling.dispatcher import Dispatcher, usual_window
from mpi_match.cluster.scheduling.groups import Flight
from mpi_match.cluster.scheduling.instructions import Drop, Emit, GiveUp, Instruction, Load, Quarantine, Send
from mpi_match.cluster.scheduling.timeouts import Deadlines, RoundTrips
from mpi_match.cluster.signals import Interruptions, RanksNotified, held
from mpi_match.cluster.transport.backoff import Backoff
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.collectives import Ended, RankFailure, exit_code_of
from mpi_match.cluster.transport.launcher import survives_deaths
from mpi_match.cluster.transport.liveness import INTERRUPTED_LEAVING_S, LEAVING_S, absent_of, dismiss
from mpi_match.cluster.transport.protocol import Command, Order
from mpi_match.errors import MpiMatchError
from mpi_match.exit_codes import ExitCode

log = logging.getLogger(__name__)

MASTER_POLL_S = 5e-3
"""Interval of checks for failures; answers may arrive some microseconds apart."""
FLUSH_S = 50e-3
"""Interval of writing short answers: it takes as long as two round trips, for one answer as for a thousand."""
FOLLOWED_TOGETHER = 8
"""Most answers that are exchanged for the next batches before any is followed up."""
HEARTBEAT_S = 5.0
"""Interval of heartbeats to workers."""


class Master:
    """Rank 0's side of the channel with every worker."""

    def __init__(self, comm: MPI.Comm, files: RunFiles | FollowedFiles, execution: Execution, backoff: Backoff) -> None:
        self._files, self._execution, self._backoff = files, execution, backoff
        self._workers = range(1, comm.size)
        options = files.options
        self._dispatcher = Dispatcher(
            files.events.n_batches,
            files.division.groups,
            credits=options.credits,
            schedule=options.schedule,
            ascending=options.changes is not None,
            window=max(usual_window(options.credits, len(files.division.groups)), execution.window),
            room=files.division.room,
            grows=isinstance(files, FollowedFiles),
        )
        self._traffic = Traffic(comm)
        self._round_trips = RoundTrips()
        self._deadlines = Deadlines(self._dispatcher, self._round_trips, options.deadline)
        self._inbox = Inbox(self._traffic, files.n_ids)
        in_parts = len(files.division.parts) > 1
        self._writer = OrderedWriter(files.answers, self._inbox, execution.writer, in_parts=in_parts, joins=execution.joins)
        self._parts: dict[tuple[int, int], dict[int, Body]] = {}
        self._failures: list[str] = []
        self._disk_full = False
        self._absent: dict[int, str] = {}
        self._lost: set[int] = set()
        self._next_look = self._next_flush = 0.0
        self._next_heartbeat = time.monotonic() + HEARTBEAT_S

    def meet(self, interruptions: Interruptions) -> None:
        """Wait until all workers have left the last common step: a rank that dies or stalls in a collective call blocks
        others.

        The run begins without workers that are still in it after MEETING_S.
        """
        self._inbox.listen(self._workers)
        self._absent = absent_of(self._workers, self._traffic, self._inbox.ready, interruptions.let_through)

    def run(self, opened: Sequence[Opened]) -> RunSummary:
        """Match all events, after `meet`.  Raises Ended after the workers have left."""
        opening_s = max(each.opening_s for each in opened)
        try:
            with held() as interruptions:
                self._outbox = Outbox(
                    self._files, self._execution, self._traffic, self._dispatcher, self._deadlines, opening_s
                )
                with self._outbox, self._writer:
                    self._files.begin()
                    self._exchange = Exchange(
                        self._outbox.send_prepared, self._dispatcher, self._deadlines, self._files.status, self._round_trips
                    )
                    with self._inbox.exchanging(self._exchange):
                        self._match(interruptions)
                    self._writer.finish()
                with interruptions.heeded():
                    summary = self._files.finish(opened, self._round_trips, self._outbox.routed_share)
        except KeyboardInterrupt as error:
            self._files.leave(error)  # the journal first: mpirun sends SIGKILL half a second after SIGTERM
            self._dismiss(Order(Command.ABANDON, ExitCode.INTERRUPTED), INTERRUPTED_LEAVING_S)
            raise RanksNotified from error
        except Exception as error:
            if isinstance(error, MpiMatchError):
                error.disk_full |= self._disk_full
            self._dismiss(Order(Command.ABANDON, exit_code_of(error)))
            raise Ended(error) from error
        self._dismiss(Order(Command.END))
        return summary

    def _match(self, interruptions: Interruptions) -> None:
        backoff, arrived, exchanged = self._backoff, self._inbox.waiting, self._exchange.ended
        for worker, why in self._absent.items():
            self._lose(worker, why)
        self._obey(self._dispatcher.start())
        while not self._dispatcher.finished:
            if isinstance(self._files, FollowedFiles):
                busy = self._take_up(self._files, interruptions)
            else:
                interruptions.let_through()
                busy = False
            busy |= self._traffic.poll(backoff.looks)
            if exchanged:
                while len(exchanged) < FOLLOWED_TOGETHER and self._traffic.poll():
                    pass  # a worker waits for what is exchanged now, and none for what follows
                self._follow_up()
            if arrived:
                for _ in range(len(arrived)):  # not those that arrive meanwhile, which may never end
                    self._take(arrived.popleft())
                busy |= bool(arrived)
            if self._outbox.waiting:
                busy |= self._outbox.send_ready()
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + MASTER_POLL_S
                self._look_around(now)
                if now >= self._next_flush:
                    self._next_flush = now + FLUSH_S
                    self._writer.flush()
            if busy:
                backoff.reset(now)
            else:
                listening_only = not self._outbox.waiting and len(self._traffic) == len(self._workers)
                backoff.wait(soon=not listening_only)

    def _take_up(self, files: FollowedFiles, interruptions: Interruptions) -> bool:
        """Send a batch that has arrived, if the window has room; an interruption ends what arrives."""
        if interruptions.heed():
            log.warning("no more events are read; those already read will be answered")
            files.stop()
        if files.changes is not None:
            for worker, due in files.changes.overdue():
                wire = due.to_wire()
                self._traffic.write(Order(Command.CHANGE, n_changes=len(wire)), [wire], worker)
        if files.events.n_batches - self._dispatcher.n_emitted >= self._dispatcher.window:
            return False
        if files.take_up():
            self._obey(self._dispatcher.grow(1))
            return True
        if files.ended:
            self._dispatcher.close()
        return False

    def _follow_up(self) -> None:
        """Take answers that were exchanged for the next batches of their workers."""
        n, instructions = self._exchange.follow_up(self._parts)
        self._outbox.has_sent(n)
        self._obey(instructions)

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        """Carry out instructions; loads and sends come first."""
        sends = []
        for each in instructions:
            if isinstance(each, Send):
                sends.append(each)
            elif isinstance(each, Load):
                self._outbox.load(each)
            else:
                break
        if sends:
            self._outbox.send(sends)
        put, parts = self._writer.put, self._parts
        for instruction in instructions:
            if isinstance(instruction, Emit):  # nearly all are
                batch, attempt = instruction
                put(batch, parts.pop((batch, attempt)))
                continue
            match instruction:
                case Quarantine(batch):
                    self._files.status.happened("quarantined", batch=batch)
                    self._writer.set_aside(batch)
                case Drop(batch, attempt):
                    self._inbox.give_back(self._parts.pop((batch, attempt)).values())
                case GiveUp(why):
                    self._writer.finish()
                    start, _ = self._files.events.ranges.of(self._dispatcher.n_emitted)
                    raise ClusterError(
                        "; ".join([f"{why}: the events from {start} on have no answers", *self._failures]),
                        ExitCode.INCOMPLETE,
                    )
        self._outbox.read_ahead()

    def _take(self, arrival: Arrival) -> None:
        """Take an answer, and do what follows from it."""
        if self._inbox.exchange(arrival):
            self._follow_up()
        else:
            self._obey(self._answered(arrival))

    def _answered(self, arrival: Arrival) -> Sequence[Instruction]:
        """Keep an answer if it is used; returns the instructions that follow."""
        worker, batch, attempt, _, body, _ = arrival
        flight = self._dispatcher.flight(worker, batch, attempt)
        self._deadlines.came(worker, flight)
        if isinstance(body, RankFailure):
            return self._survive(worker, batch, attempt, body)
        if flight is not None and self._dispatcher.wants(worker, batch, attempt):
            self._accept(arrival, flight)
        else:
            self._files.status.happened("dropped", worker, batch)
            self._inbox.give_back([body])
        return self._dispatcher.answered(worker, batch, attempt)

    def _accept(self, arrival: Arrival, flight: Flight) -> None:
        """Keep an answer that is used, and count it."""
        worker, batch, attempt, n_events, body, at_s = arrival
        assert isinstance(body, Body)
        self._round_trips.add([at_s - flight.sent_at])
        self._files.status.answered(worker, batch, n_events)
        self._parts.setdefault((batch, attempt), {})[worker] = body

    # Failures

    def _look_around(self, now: float) -> None:
        for worker in self._traffic.lost.keys() - self._lost:
            self._lose(worker, self._traffic.lost[worker])
        if self._deadlines.look(now):
            self._look_for_stragglers()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            for worker in self._workers:
                self._traffic.send_heartbeat(worker)

    def _look_for_stragglers(self) -> None:
        for worker, batch in self._deadlines.stragglers():
            start, stop = self._files.events.ranges.of(batch)
            log.warning(
                "rank %d has not answered events %d to %d within %.0f s; another worker gets them too",
                *(worker, start, stop, self._deadlines.limit_s),
            )
            self._files.status.happened("overdue", worker, batch)
            self._obey(self._dispatcher.timed_out(worker))
        for worker in self._deadlines.hopeless():
            self._lose(worker, f"it sent nothing for more than {self._deadlines.limit_s:.0f} s")

    def _lose(self, worker: int, why: str) -> None:
        """A worker is lost; its batches go to others."""
        log.warning("rank %d is lost: %s", worker, why)
        self._lost.add(worker)
        if isinstance(self._files, FollowedFiles) and self._files.changes is not None:
            self._files.changes.lost(worker)
        self._files.status.happened("lost", worker)
        self._obey(self._dispatcher.lost(worker))

    def _survive(self, worker: int, batch: int, attempt: int, failure: RankFailure) -> Sequence[Instruction]:
        """An engine raised; returns the instructions that follow.  Raises when the input is the cause."""
        start, stop = self._files.events.ranges.of(batch)
        self._files.answers.confirm(start, stop)  # else the cause may be a changed file
        again = any(failure.text in text for text in self._failures)
        error = failure.as_error(quiet=again, what=f", matching events {start} to {stop}")
        if failure.of_input:
            raise error
        log.warning("%s", error)
        self._failures = [str(error)]
        self._disk_full |= failure.disk_full
        self._files.status.happened("failed", worker, batch)
        return self._dispatcher.failed(worker, batch, attempt)

    def _dismiss(self, order: Order, timeout_s: float = LEAVING_S) -> None:
        dispensable = survives_deaths(os.environ)  # else the launcher ends a job that lacks a rank
        late = {worker for worker in self._workers if dispensable and self._dispatcher.is_straggler(worker)}
        gone = self._inbox.gone
        dismiss(self._workers, self._traffic, order, lost=self._lost, late=late, gone=gone, timeout_s=timeout_s)
