"""Liveness of ranks before the first batch and after the last: progress, silence, arrival and departure.

    worker ── "opening the engine" ──► master          PRESENT, at the beginning of a step
    master ── WAIT ──► worker ── PRESENT ──► master    a heartbeat every second, while both wait
    worker ── READY ──► master                         after the last common step of set-up
    master ── END ──► worker ── GONE ──► master        a worker's last message

The steps of set-up are collective: a rank that stalls in one (it was stopped, its disk hangs) would block all others for
ever.  Collective calls do not name the missing rank, and a blocking call cannot be left.  So all of them are nonblocking,
and a rank that waits for one takes part in the start-up barrier: a waiting rank answers a heartbeat every second, whatever
it waits for.  A working rank does not answer, and may be silent for as long as a step may take.  A rank that is silent for
longer ends the run, with a message that names the step it had begun.

The master reports the failure, because it hears all ranks.  A worker hears the master alone, and waits a little longer, so
that the master has reported by then if it can.

With a fault-tolerant MPI the barrier also detects at once which rank has died.

READY and GONE are not collective calls: the master waits for all workers, with a limit.  A run begins without workers that
are not ready in time, and ends without those that do not leave in time.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mpi_match.cluster.signals import LEAVE_S, SignalFlag
from mpi_match.cluster.transport.backoff import Backoff, Silence
from mpi_match.cluster.transport.finalize import abort, rank_was_lost
from mpi_match.cluster.transport.protocol import Answer, Command, Order, Reply, fields_of, inline_body
from mpi_match.cluster.transport.time_limit import time_limited
from mpi_match.exit_codes import ExitCode

if TYPE_CHECKING:
    from mpi_match.cluster.transport.channel import Traffic  # which loads MPI

log = logging.getLogger(__name__)

MASTER = 0
CALL_EVERY_S = 1.0
"""Interval of the master's heartbeats."""
GRACE_S = 10.0
"""Seconds that a worker waits for the master beyond the limit."""
MOST_TEXT_WORDS = 200
"""Bytes of a step's name that are sent."""
MEETING_S = 30.0
"""Time limit for workers to leave the last common step, which has no work for them."""
LEAVING_S = 30.0
"""Time limit for workers to leave; then the master leaves without them."""
LATE_LEAVING_S = 5.0
"""The same for stragglers, if the job may end without them."""
INTERRUPTED_LEAVING_S = 1.0
"""The same when the master was interrupted: a launcher follows SIGTERM with SIGKILL."""


class RankStalled(Exception):
    """A rank was silent for too long; the text names the rank and its last step.  Empty: another rank reports it."""


class RankDied(Exception):
    """A rank has died, and MPI knows it; the text says which."""


class Request(Protocol):
    """The part of an MPI request that `StartupBarrier.wait` needs."""

    def Test(self) -> bool:
        """Tells whether the request is complete."""
        ...


class StartupBarrier:
    """The barrier of a run's set-up on this rank of `traffic`; a rank may be silent for `limit_s` seconds.

    `interrupted` is set when this rank was signalled.  The master may have been signalled as well, and has LEAVE_S seconds
    to end the run.  `beat` tells a watchdog that this rank is not stuck in a call.
    """

    def __init__(
        self, traffic: Traffic, limit_s: float, interrupted: SignalFlag, beat: Callable[[], None] = lambda: None
    ) -> None:
        self._beat = beat
        self._rank, self._limit_s = traffic.rank, limit_s
        self._others = range(1, traffic.size) if traffic.rank == MASTER else range(1)
        self._traffic = traffic
        self._silences = {other: Silence() for other in self._others}
        self._doing = dict.fromkeys(self._others, "(no step yet)")
        self._answered = set(self._others)  # the last heartbeat: they must not pile up at a rank that receives none
        self._dismissed, self._interrupted = False, interrupted
        self._next_call = 0.0
        for other in self._others:
            self._traffic.listen(other, partial(self._handle, other))

    def begin(self, doing: str) -> None:
        """Begin a step on this rank, which the words `doing` name."""
        self._beat()
        if self._rank != MASTER:
            words = f"on {socket.gethostname()} (its last step: {doing})".encode()[:MOST_TEXT_WORDS]
            self._say(words)

    def wait(self, request: Request) -> None:
        """Wait until a request is complete, asleep rather than spinning: the rank that is waited for needs the core.

        Raises RankStalled, RankDied, and KeyboardInterrupt on a rank that was signalled.
        """
        backoff = Backoff()
        while not request.Test():
            self._beat()
            self._look()
            backoff.wait()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """A time limit for the few calls of MPI that can only block: a rank that is blocked in one ends the job after the
        limit."""
        with time_limited(self._limit_s + (GRACE_S if self._rank == MASTER else 2 * GRACE_S), self._give_up):
            yield

    def _give_up(self, asked: bool) -> None:
        if self._rank == MASTER and not asked:
            log.error("a rank stalled before the first batch, and MPI does not say which; start the run again")
        abort(ExitCode.INTERRUPTED if asked else ExitCode.FAILURE)

    def close(self) -> None:
        """Set-up is over."""
        self._traffic.close()

    def _say(self, words: bytes) -> None:
        self._traffic.write(Answer(Reply.PRESENT, n_ids=len(words)), [np.frombuffer(words, np.uint8)], MASTER)

    def _handle(self, other: int, message: memoryview) -> bool:
        self._silences[other].reset()
        self._answered.add(other)
        if self._rank == MASTER:
            words = inline_body(message, Answer(*fields_of(message)).n_ids)
            assert words is not None
            self._doing[other] = words.tobytes().decode(errors="replace") or self._doing[other]
        elif Order(*fields_of(message)).kind == Command.ABANDON:
            self._dismissed = True
        else:
            self._say(b"")
        return True

    def _look(self) -> None:
        self._traffic.poll()
        if self._dismissed:
            raise RankStalled("")
        now = time.monotonic()
        if now < self._next_call:
            return
        self._next_call = now + CALL_EVERY_S
        asked_s = self._interrupted.seconds()
        if asked_s is not None and asked_s > LEAVE_S:
            raise KeyboardInterrupt
        for other in self._others:
            if other in self._traffic.lost:
                raise RankDied(f"rank {other} {self._traffic.lost[other]}")
        if self._rank == MASTER:
            for other in self._answered:
                self._traffic.write(Order(Command.WAIT), [], other)
            self._answered = set()
        limit_s = self._limit_s if self._rank == MASTER else self._limit_s + GRACE_S
        silent = [other for other, silence in self._silences.items() if silence.seconds() > limit_s]
        if silent and self._rank == MASTER:
            for other in self._others:  # a fault-tolerant MPI does not end them
                self._traffic.write(Order(Command.ABANDON), [], other)
            stalled = ", ".join(f"rank {other} {self._doing[other]}" for other in silent)
            raise RankStalled(
                f"nothing was heard for more than {self._limit_s:g} s of {stalled}; if that takes so long, raise "
                "--setup-limit, else see to the host and start the run again"
            )
        if silent:
            raise RankStalled(f"nothing was heard of the master for more than {self._limit_s:g} s" * (self._rank == 1))


def absent_of(
    workers: Collection[int], traffic: Traffic, ready: Set[int], let_interruptions_through: Callable[[], None]
) -> dict[int, str]:
    """Wait until all workers are `ready` or lost.  When no message has arrived for MEETING_S, returns the workers that are
    neither, and the reason, in words, why the run begins without them.

    Polling `traffic` adds to `ready`.
    """
    backoff, silence = Backoff(), Silence()
    while absent := set(workers) - ready - traffic.lost.keys():
        let_interruptions_through()
        if traffic.poll():
            silence.reset()
        elif silence.seconds() > MEETING_S:
            return dict.fromkeys(sorted(absent), f"it was not ready {MEETING_S:.0f} s after the others")
        else:
            backoff.wait()
    return {}


def dismiss(
    workers: Collection[int],
    traffic: Traffic,
    order: Order,
    *,
    lost: Set[int],
    late: Set[int],
    gone: Set[int],
    timeout_s: float = LEAVING_S,
) -> None:
    """Send all workers an order to leave and wait until they have; messages that still arrive are received and dropped.

    The master does not wait for `lost` workers, for `late` ones at most LATE_LEAVING_S, and for any other `timeout_s`; a
    worker that does not leave in time detects the missing master itself.  Polling `traffic` adds to `gone`.
    """
    if lost or traffic.lost:
        rank_was_lost()
        order = order._replace(attempt=1)
    for worker in workers:
        traffic.write(order, [], worker)
    backoff, began = Backoff(), time.monotonic()
    while left := [
        worker
        for worker in workers
        if worker not in lost and worker not in traffic.lost and (worker not in gone or traffic.under_way(worker))
    ]:
        if traffic.poll():
            backoff.reset()
        elif time.monotonic() - began > (min(timeout_s, LATE_LEAVING_S) if late >= set(left) else timeout_s):
            log.warning("rank %s did not leave in time; the run ends without it", ", ".join(map(str, left)))
            rank_was_lost()
            return
        else:
            backoff.wait()
