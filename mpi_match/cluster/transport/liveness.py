"""Which rank has come how far before the first batch, and how long it has been silent; which have come, and which have left.

    worker ── "opening the engine" ──► master          when it begins a step
    master ── are you there? ──► worker ── yes ──►     every second, while both wait
    worker ── ready ──► master                         after the last common step of set-up
    master ── leave ──► worker ── gone ──► master      a worker's last word

The steps of set-up are collective: a rank that stands still in one (it was stopped, its disk hangs) would hold up all others
for ever.  Collective calls do not say who is missing, and those that block cannot be left.  So all of them are started
without blocking, and while a rank waits for one the roll is called: of a rank that waits as well something is heard every
second, whatever it waits for.  One that works says nothing, and may be silent for as long as a step may take.  One that is
silent for longer ends the run, in a line that says which step it had begun.

The master speaks, for all ranks are heard there.  A worker listens for the master alone, and for a little longer, so that
the master has spoken by then if it can.

With a fault-tolerant MPI the roll also tells at once which rank has died.

The first and the last words are no collective calls: the master waits for all workers, and for none for ever.  A run begins
without workers that do not come, and ends without those that do not leave.
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

from mpi_match.arrays.csr import Array
from mpi_match.cluster.signals import LEAVE_S, SignalFlag
from mpi_match.cluster.transport.backoff import Backoff, Silence
from mpi_match.cluster.transport.finalize import abort, rank_was_lost
from mpi_match.cluster.transport.protocol import Answer, Command, Order, Reply, inline_body, words_of
from mpi_match.cluster.transport.time_limit import time_limited
from mpi_match.exit_codes import ExitCode

if TYPE_CHECKING:
    from mpi_match.cluster.transport.channel import Traffic  # which loads MPI

log = logging.getLogger(__name__)

MASTER = 0
CALL_EVERY_S = 1.0
"""How often the master asks who is there."""
GRACE_S = 10.0
"""How much longer than the limit a worker waits for the master."""
MOST_TEXT_WORDS = 200
"""Letters of a step's name that are told."""
MEETING_S = 30.0
"""How long workers may take to leave the last common step, in which they have nothing to do any more."""
LEAVING_S = 30.0
"""How long workers may take to leave before the master leaves without them."""
LATE_LEAVING_S = 5.0
"""The same for workers that have stood still for longer than their deadline, if the job may end without them."""
HASTY_FAREWELL_S = 1.0
"""The same when the master was interrupted, and who did that may soon kill it."""


class RankStalled(Exception):
    """Nothing was heard of a rank for too long; the text says of which, and what it did last.  Empty: others say it."""


class RankDied(Exception):
    """A rank has died, and MPI knows it; the text says which."""


class Request(Protocol):
    """What waiting for MPI needs of a request."""

    def Test(self) -> bool:
        """Is it done?"""
        ...


class StartupBarrier:
    """The roll of a run's set-up on this rank of `traffic`; a rank may be silent for `limit_s` seconds.

    `interrupted` tells whether this rank was asked to end.  The master was perhaps asked as well, and has a few seconds to
    say how.
    """

    def __init__(self, traffic: Traffic, limit_s: float, interrupted: SignalFlag) -> None:
        self._rank, self._limit_s = traffic.rank, limit_s
        self._others = range(1, traffic.size) if traffic.rank == MASTER else range(1)
        self._traffic = traffic
        self._silences = {other: Silence() for other in self._others}
        self._doing = dict.fromkeys(self._others, "(no word yet)")
        self._answered = set(self._others)  # the last call: calls must not pile up where nobody listens
        self._dismissed, self._interrupted = False, interrupted
        self._next_call = 0.0
        for other in self._others:
            self._traffic.listen(other, partial(self._hear, other))

    def begin(self, doing: str) -> None:
        """This rank begins a step, which the words `doing` name."""
        if self._rank != MASTER:
            words = f"on {socket.gethostname()} (its last word: {doing})".encode()[:MOST_TEXT_WORDS]
            self._say(words)

    def wait(self, request: Request) -> None:
        """Wait until MPI is done with something, asleep rather than spinning: the rank that is waited for needs the core.

        Raises StandsStill, Died, and KeyboardInterrupt on a rank that was asked to end.
        """
        backoff = Backoff()
        while not request.Test():
            self._look()
            backoff.wait()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """For the few calls of MPI that can only block: a rank that is held up in one ends the job after the limit."""
        with time_limited(self._limit_s + (GRACE_S if self._rank == MASTER else 2 * GRACE_S), self._give_up):
            yield

    def _give_up(self, asked: bool) -> None:
        if self._rank == MASTER and not asked:
            log.error("a rank stands still before the first batch, and MPI does not say which; start the run again")
        abort(ExitCode.INTERRUPTED if asked else ExitCode.FAILURE)

    def close(self) -> None:
        """Set-up is over."""
        self._traffic.close()

    def _say(self, words: bytes) -> None:
        self._traffic.write(Answer(Reply.PRESENT, n_ids=len(words)), [np.frombuffer(words, np.uint8)], MASTER)

    def _hear(self, other: int, letter: Array) -> bool:
        self._silences[other].broken()
        self._answered.add(other)
        if self._rank == MASTER:
            words = inline_body(letter, Answer(*words_of(letter)).n_ids)
            assert words is not None
            self._doing[other] = words.tobytes().decode(errors="replace") or self._doing[other]
        elif Order(*words_of(letter)).kind == Command.ABANDON:
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
            for other in self._others:  # with a fault-tolerant MPI nobody would tell them
                self._traffic.write(Order(Command.ABANDON), [], other)
            who = ", ".join(f"rank {other} {self._doing[other]}" for other in silent)
            raise RankStalled(
                f"nothing was heard for more than {self._limit_s:g} s of {who}; if that takes so long, raise --setup-limit, "
                "else see to the host and start the run again"
            )
        if silent:
            raise RankStalled(f"nothing was heard of the master for more than {self._limit_s:g} s" * (self._rank == 1))


def absent_of(
    workers: Collection[int], traffic: Traffic, ready: Set[int], let_interruptions_through: Callable[[], None]
) -> dict[int, str]:
    """Wait until all workers are `ready`, or lost; those that are neither when nothing has come for MEETING_S, and why they
    are not waited for any longer, in words.

    `ready` grows while `traffic` is looked at.
    """
    backoff, silence = Backoff(), Silence()
    while absent := set(workers) - ready - traffic.lost.keys():
        let_interruptions_through()
        if traffic.poll():
            silence.broken()
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
    patience_s: float = LEAVING_S,
) -> None:
    """Tell all workers to leave and wait until they have; what still comes in is received and dropped.

    `lost` ones are not waited for, those that are `late` anyway not long, and none for ever: one that does not leave in time
    is left to find out by itself.  `gone` grows while `traffic` is looked at.
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
        elif time.monotonic() - began > (min(patience_s, LATE_LEAVING_S) if late >= set(left) else patience_s):
            log.warning("rank %s did not leave in time; the run ends without it", ", ".join(map(str, left)))
            rank_was_lost()
            return
        else:
            backoff.wait()
