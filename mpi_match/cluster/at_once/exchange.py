"""Exchanges a short answer for the next batch of its worker, before anything else is done.

answer arrives ─► `begin`: the prepared message of the next batch is sent ─► `end`: the answer is kept
some of them   ─► `follow_up`: they are counted, and the dispatcher says what else follows
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial

from mpi_match.cluster.messages import Body
from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.groups import Flight
from mpi_match.cluster.scheduling.instructions import Instruction
from mpi_match.cluster.scheduling.timeouts import Deadlines, RoundTrips
from mpi_match.monitor.status import RunStatus

Exchanged = tuple[int, int, int, Body, Flight, int, int, float]
"""A short answer that was exchanged for another batch: worker, batch, events, body; the flight of the other batch, its
number, its bytes of events; and the seconds that the answer took.  A plain tuple, because naming its items takes as long as
sending a message."""


class Exchange:
    """Exchanges answers for batches that `send(worker, batch)` sends, as `Outbox.send_prepared` does.

    begin    `Dispatcher.exchange` with what sends: by worker, batch and attempt; None: nothing was done
    ended    answers that are exchanged and not followed up
    """

    def __init__(
        self,
        send: Callable[[int, int], int | None],
        dispatcher: Dispatcher,
        deadlines: Deadlines,
        status: RunStatus,
        round_trips: RoundTrips,
    ) -> None:
        self.begin: Callable[[int, int, int], tuple[Flight, int] | None] = partial(dispatcher.exchange, send)
        self.ended: list[Exchanged] = []
        self._dispatcher, self._deadlines, self._status, self._round_trips = dispatcher, deadlines, status, round_trips

    def end(self, worker: int, batch: int, n_events: int, body: Body, begun: tuple[Flight, int]) -> None:
        """Keep an answer; `begun` is the start of its exchange."""
        flight, n_bytes = begun
        began_at, flight.sent_at = flight.sent_at, time.perf_counter()
        self.ended.append((worker, batch, n_events, body, flight, flight.batch, n_bytes, flight.sent_at - began_at))

    def follow_up(self, parts: MutableMapping[tuple[int, int], dict[int, Body]]) -> tuple[int, Sequence[Instruction]]:
        """Add the kept answers, one of each group, to `parts`.  Returns their number and the instructions that follow from
        them."""
        exchanged, count, answers = self._deadlines.exchanged, self._status.exchanged, self.ended
        for worker, batch, n_events, body, flight, following, n_bytes, _ in answers:
            exchanged(worker, flight)
            count(worker, batch, n_events, following, n_bytes)
            parts[batch, 0] = {worker: body}
        self._round_trips.add([answer[-1] for answer in answers])
        n = len(answers)
        answers.clear()
        return n, self._dispatcher.proceed()
