"""The outbox: the dispatcher's instructions to send, as orders with their changes and events.

    Send ─► outbox ─► wait until its events are read ─► changes that the worker has not had, events ─► order
                   `prefetch`, `at_once.messages`                                                  └► deadline, status

A batch waits in the outbox while the feed reads it, and all later ones wait behind it, so every worker gets its batches in
the dispatcher's order.  Credits bound the memory: a buffer is taken when a batch may be sent and given back when it has
been.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.at_once.messages import PreparedMessages
from mpi_match.cluster.distribution.shard import packed
from mpi_match.cluster.execution import Execution
from mpi_match.cluster.followed_files import FollowedFiles
from mpi_match.cluster.prefetch import Buffers, ReadAhead, n_readers
from mpi_match.cluster.run_files import RunFiles
from mpi_match.cluster.scheduling.dispatcher import Dispatcher
from mpi_match.cluster.scheduling.groups import Flight
from mpi_match.cluster.scheduling.instructions import Load, Send
from mpi_match.cluster.scheduling.timeouts import Deadlines
from mpi_match.cluster.transport.channel import Traffic
from mpi_match.cluster.transport.protocol import FIELDS_BYTES, Command, Order
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable

if TYPE_CHECKING:
    from mpi_match.cluster.distribution.routing import Router  # loads Numba

log = logging.getLogger(__name__)

_NOTHING = np.empty(0, np.uint8)
_MATCH = int(Command.MATCH)


class Outbox:
    """Sends a run's batches to its workers; a context manager.

    `opening_s` is the time that opening an engine took; it is added to the deadline of a batch that needs an engine opened
    anew.

    waiting   batches to be sent that are not read yet

    If messages are made ahead (`at_once.messages`) and batches come without changes, the next message of an idle worker
    only has to be sent (`send_prepared`).
    """

    def __init__(
        self,
        files: RunFiles | FollowedFiles,
        execution: Execution,
        traffic: Traffic,
        dispatcher: Dispatcher,
        deadlines: Deadlines,
        opening_s: float,
    ) -> None:
        self.waiting: deque[Send] = deque()
        self._files, self._traffic, self._dispatcher, self._deadlines = files, traffic, dispatcher, deadlines
        self._opening_s = opening_s
        self._execution = execution
        self._wires = Buffers()
        self._n_at_once = execution.n_at_once if isinstance(files.events.table, EventTable) else 1
        self._router: Router | None = None
        if files.division.routes is not None:
            from mpi_match.cluster.distribution.routing import Router  # loads Numba

            self._router = Router(files.division.routes, files.division.table.vocabulary)
        self._parts = {worker: {part} for group in files.division.groups for part, worker in enumerate(group)}
        self._feed: ReadAhead[tuple[Array | list[Array], Array | None]] | PreparedMessages
        if files.options.feed != "master" and not files.options.follow:
            self._feed = PreparedMessages(_read_nothing)
        elif execution.lends:
            self._feed = ReadAhead(self._read, execution.workers(n_readers()))
        else:
            self._feed = PreparedMessages(self._read_wires)
        self._prepared = self._feed if isinstance(self._feed, PreparedMessages) and files.changes is None else None
        self._n_ahead = sum(map(len, files.division.groups)) + max(execution.n_ahead, self._n_at_once - 1)
        n_queues = len(files.division.groups) if files.options.schedule == "static" else 1
        self._most_unlooked, self._n_unlooked = (self._n_at_once - 1) // n_queues, 0
        self._loading: set[int] = set()

    def __enter__(self) -> Outbox:
        self._feed.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._feed.__exit__(kind, error, trace)

    @property
    def routed_share(self) -> float | None:
        """See `RunSummary`."""
        return None if self._router is None else self._router.share

    def send(self, sends: Sequence[Send]) -> None:
        """Send these as soon as they are read."""
        self._feed.want([each.batch for each in sends])
        self.waiting.extend(sends)
        self.send_ready()

    def send_ready(self) -> bool:
        """Send the batches that have been read meanwhile.  Returns False if there were none."""
        sent = False
        while self.waiting:
            batch, attempt = self.waiting[0].batch, self.waiting[0].attempt
            self._feed.want([batch])  # another attempt may have taken it
            if not self._feed.is_ready(batch):
                break
            wires, buffer = self._feed.take(batch)
            flights = []
            while self.waiting and self.waiting[0][1:] == (batch, attempt):
                worker = self.waiting.popleft().worker
                if (flight := self._dispatcher.flight(worker, batch, attempt)) is not None:
                    flights.append((worker, flight))
            given_back = _after(len(flights), functools.partial(self._give_back, buffer))
            for worker, flight in flights:
                self._send(worker, flight, self._wire_for(worker, batch, wires), given_back)
            sent = True
        return sent

    def send_prepared(self, worker: int, batch: int) -> int | None:
        """Send a batch whose message is prepared.  Returns its bytes of events, or None if its message is not prepared."""
        message = None if self._prepared is None or self.waiting else self._prepared.pop(batch)
        if message is None:
            return None
        self._traffic.write_message(message, worker)
        return len(message) - FIELDS_BYTES

    def has_sent(self, n: int = 1) -> None:
        """Count the batches that were sent since the last call."""
        self._n_unlooked = max(self._n_unlooked - n, 0)

    def read_ahead(self) -> None:
        """Start reading the batches that will be sent next; where several are read at a time, not after each."""
        if self._n_unlooked:
            return
        self._n_unlooked = self._most_unlooked
        self._feed.want(self._dispatcher.upcoming(self._n_ahead))

    def load(self, load: Load) -> None:
        """Have a worker load another shard; its next batch comes with all changes to it."""
        worker, division = load.worker, self._files.division
        log.warning("rank %d loads part %d of %d, which a lost one had", worker, load.part + 1, len(division.parts))
        self._files.status.happened("loads", worker)
        self._parts[worker] = {*(self._parts[worker] if load.keep else ()), load.part}
        wire = packed(division.parts[load.part], division.read(division.parts[load.part]))
        if self._files.changes is not None:
            self._files.changes.forget(worker)
        self._loading.add(worker)
        self._traffic.write(Order(Command.LOAD, attempt=int(load.keep), n_events=len(wire)), [wire], worker)

    def _read(self, batch: int) -> tuple[Array | list[Array], Array | None]:
        """Wire form of a batch, or one for each shard, and the buffer that has them; runs in the feed's thread."""
        events = self._files.events.read(batch)
        if self._router is not None:
            assert isinstance(events, EventBatch)
            return self._router.wires(events, self._wires.take)
        buffer = self._wires.take(events.wire_bytes)
        return events.to_wire(buffer), buffer

    def _wire_for(self, worker: int, batch: int, wires: Array | list[Array]) -> Array:
        """The wire form of a batch for the shards that a worker holds."""
        if isinstance(wires, np.ndarray):
            return wires
        parts = self._parts[worker]
        if len(parts) == 1:
            return wires[min(parts)]
        events = self._files.events.read(batch)
        assert self._router is not None
        assert isinstance(events, EventBatch)
        return self._router.wire_of(events, parts)

    def _read_wires(self, batch: int) -> Iterable[bytes]:
        """Wire forms of a batch and of those behind it."""
        if self._n_at_once > 1:
            return self._files.events.read_wires(batch, self._n_at_once)
        return [self._files.events.read(batch).to_wire().tobytes()]

    def _send(self, worker: int, flight: Flight, wire: Array, given_back: Callable[[], None]) -> None:
        flight.sent_at = time.perf_counter()
        batch, attempt = flight.batch, flight.attempt
        afresh, due = (False, None) if self._files.changes is None else self._files.changes.due_with(worker, batch)
        changes = _NOTHING if due is None else due.to_wire()
        order = Order(Command.MATCH_AFRESH if afresh else _MATCH, batch, attempt, len(changes), len(wire))
        self._traffic.write(order, [changes, wire], worker, given_back)
        # The worker need not wait for the rest.
        extra_s = self._opening_s if afresh else 0.0
        if worker in self._loading:
            extra_s = self._files.options.setup_limit
            self._loading.discard(worker)
        self.has_sent()
        self._deadlines.sent(worker, flight, extra_s)
        self._files.status.sent(worker, batch, len(wire))
        if attempt:
            self._files.status.happened("resent", worker, batch)

    def _give_back(self, buffer: Array | None) -> None:
        if buffer is not None:
            self._wires.give(buffer)


def _read_nothing(batch: int) -> list[bytes]:
    """The empty wire form of a batch whose events the worker has from another source."""
    return [b""]


def _after(n: int, then: Callable[[], None]) -> Callable[[], None]:
    """A function that calls `then` when it has been called `n` times; for 0, `then` is called now."""
    left = n

    def called() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    if n == 0:
        then()
    return then if n == 1 else called
