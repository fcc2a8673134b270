"""The shards that a worker holds, the engine for them, and the thread that matches batches with it.

`EngineRunner` matches in a thread of its own, so that a worker receives batch k + 1 and sends answer k - 1 while batch k is
matched.  MPI makes progress with large messages only while it is called, which the main thread does all the time.  A batch
that has arrived is begun before earlier ones have ended, so that a GPU is never idle:

    batch k      begin ─────────────── end │ answer
    batch k + 1          begin ────────────────────── end │ answer

A batch that can end waits at most for the beginning of one other: without another, the oldest is ended.  For short batches
the main thread matches (`at_once.matcher`).  Either way one thread makes all calls of the engine, because a GPU's context
belongs to a thread, and the engine has no MPI.

A batch with changes between its events is matched in pieces (`match_in_order`).  A worker need not have matched the batches
before: with each batch it gets all changes that it has not had yet, in order, those before the batch stamped 0.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, Queue, SimpleQueue
from typing import NamedTuple, Protocol

import numpy as np

from mpi_match.changes.stream import StampedChanges
from mpi_match.cluster.distribution.shard import Shard, ShardEngine, ShardsEngine, unpacked
from mpi_match.cluster.follow.changes import MOST_IDS, ChangingEngine, DueVersions
from mpi_match.cluster.match_in_order import match_changing
from mpi_match.cluster.messages import Matched, Received, SerializedChanges, SerializedShard, Work
from mpi_match.engines.base import MOST_BEGUN, Engine, Pending
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.storage import FileChanged
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary


class ShardsHeld:
    """The shards that a worker holds: one, until other workers have died and it gets the order to load another (`Spares`).

    open_table   opens an engine for a table
    """

    def __init__(self, part: Shard, table: Table, open_table: Callable[[Table], Engine]) -> None:
        self._held = {part.member: (part, table)}
        self.open_table = open_table

    @property
    def whole(self) -> Table:
        """The only shard of a table that is not divided."""
        ((_, found),) = self._held.values()
        return found

    def load(self, part: Shard, table: Table, *, keep: bool) -> None:
        """Hold another shard, in addition to the present ones or instead of them."""
        if not keep:
            self._held.clear()
        self._held[part.member] = part, table

    def open(self) -> Engine:
        """Open an engine for all shards held.  Raises EngineError."""
        engines = []
        for part, table in self._held.values():
            engine = self.open_table(table)
            engines.append(engine if part.n_members == 1 else ShardEngine(engine, part))
        return engines[0] if len(engines) == 1 else ShardsEngine(engines)


class Matcher(Protocol):
    """The matcher of a worker, as `EngineRunner` has it."""

    def engine(self) -> Engine:
        """See `EngineRunner.engine`."""
        ...

    def put(self, work: Work) -> None:
        """See `EngineRunner.put`."""
        ...

    def match_at_once(self, wire: memoryview) -> Matches | None:
        """See `EngineRunner.match_at_once`."""
        ...

    def get(self, timeout_s: float | None = 0) -> Matched | None:
        """See `EngineRunner.get`."""
        ...

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`."""
        ...


class EngineRunner:
    """Matches the batches that are `put`, in order, in a thread, with an engine for a table of the given vocabulary.

    The thread opens the engine for `shards` first, by `opens`.
    """

    def __init__(
        self, shards: ShardsHeld, vocabulary: Vocabulary, *, filters: bool, opens: OpensEngine | None = None
    ) -> None:
        self._open: Callable[[], OpenEngine] = partial(opens or OpenEngine, shards, vocabulary, filters)
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        # Not a SimpleQueue: up to CPython 3.12 its `get` with a timeout of some microseconds may block for ever (when the
        # remaining time becomes negative).
        self._done: Queue[Matched] = Queue()
        self._opened: SimpleQueue[Engine | Exception] = SimpleQueue()
        self._dropping = False
        # A daemon: a process that has to exit does not wait for a batch whose answer is not used.
        self._thread = threading.Thread(target=self._run, name="matcher", daemon=True)
        self._thread.start()

    def engine(self) -> Engine:
        """Wait until the engine is open; call this once, and read only its attributes.  Raises what opening it raised."""
        opened = self._opened.get()
        if isinstance(opened, Exception):
            raise opened
        return opened

    def put(self, work: Work) -> None:
        """Queue a batch, whose memory is lent until it comes back in `Matched`, or a shard to be loaded."""
        self._work.put(work)

    def match_at_once(self, wire: memoryview) -> Matches | None:
        """The answer to a batch without changes, from its wire form, which may be overwritten then.  Raises what matching it
        raised.

        None if the batch has to be `put`, because a thread matches it or other work comes first.
        """
        return None

    def get(self, timeout_s: float | None = 0) -> Matched | None:
        """The next answer, or None if none comes within the time; with the time None, without waiting."""
        try:
            return self._done.get(timeout=timeout_s) if timeout_s else self._done.get_nowait()
        except Empty:
            return None

    def stop(self, timeout_s: float) -> None:
        """Drop the queue, and end the thread if the batches that it has begun end within the time."""
        self._dropping = True
        self._work.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            opened = self._open()
        except Exception as error:
            self._opened.put(error)
            return
        self._opened.put(opened.engine)
        begun: deque[Matched | _Begun] = deque()
        while (work := self._next(begun)) is not None:
            if self._dropping:
                continue
            while begun and not _may_begin(work):
                self._end(begun)
            if isinstance(work, Received):
                begun.append(opened.begin(work))
            else:
                opened.load(work)
        while begun:
            self._end(begun)

    def _next(self, begun: deque[Matched | _Begun]) -> Work | None:
        """The next work item; begun batches are ended while the queue is empty, or while they are too many."""
        while begun:
            if isinstance(begun[0], _Begun) and len(begun) < MOST_BEGUN:
                with suppress(Empty):
                    return self._work.get_nowait()
            self._end(begun)
        return self._work.get()

    def _end(self, begun: deque[Matched | _Begun]) -> None:
        """End the oldest batch."""
        oldest = begun.popleft()
        self._done.put(oldest if isinstance(oldest, Matched) else oldest.end())


def _may_begin(work: Work) -> bool:
    """Tells whether the work may begin while other batches are matched: it does not change the engine, and its events have
    arrived."""
    return isinstance(work, Received) and not work.alters and work.events.is_here()


class OpenEngine:
    """The open engine.  After a failure on a batch the next one is tried; but after a failure on a batch with changes it is
    unknown which of them were applied, and every later batch fails.

    Changes cannot be undone, so a batch that precedes changes already applied is matched with an engine opened anew.
    """

    def __init__(self, shards: ShardsHeld, vocabulary: Vocabulary, filters: bool) -> None:
        self._shards, self._vocabulary, self._filters = shards, vocabulary, filters
        self.engine = shards.open()
        self._broken: Exception | None = None

    def match(self, received: Received) -> Matched:
        """The answer to a batch, or the error."""
        try:
            return self._answer(received, self._found(received))
        except Exception as error:
            if received.alters:
                self._broken = error
            return _failed(received, error)

    def _found(self, received: Received) -> Matches:
        """The matches of a batch, after its changes."""
        if received.afresh:
            self._open_again()
        if self._broken is not None:
            raise self._broken
        events = received.events.get()
        changes = None
        if len(received.changes):  # a copy: engines keep added filters, the buffer is used again
            changes = StampedChanges.from_wire(received.changes.copy(), self._vocabulary)
        return match_changing(self.engine, events, changes, filters=self._filters)

    @staticmethod
    def _answer(received: Received, found: Matches) -> Matched:
        received.events.confirm()
        return Matched(received, found.counts, np.ascontiguousarray(found.ids), report=received.events.report())

    def match_at_once(self, wire: memoryview) -> Matches | None:
        """See `EngineRunner.match_at_once`."""
        if self._broken is not None:
            raise self._broken
        return self.engine.match(EventBatch.from_wire(wire), filters=self._filters)

    def begin(self, received: Received) -> Matched | _Begun:
        """Begin a batch; one that alters the engine is matched at once, after all earlier ones have ended."""
        if received.alters or self._broken is not None:
            return self.match(received)
        try:
            begun = self.engine.begin(received.events.get(), filters=self._filters)
            return self._answer(received, begun) if isinstance(begun, Matches) else _Begun(received, begun, self._answer)
        except Exception as error:
            return _failed(received, error)

    def load(self, shard: SerializedShard | SerializedChanges) -> None:
        """Load a shard and open the engine anew; if that fails, every later batch fails."""
        try:
            assert isinstance(shard, SerializedShard)
            self._shards.load(*unpacked(shard.wire), keep=shard.keep)
            self._open_again()
        except Exception as error:
            self._broken = error

    def _open_again(self) -> None:
        self._broken = None
        self.__dict__.pop("engine", None)  # free its memory first, including frozen cycles
        gc.unfreeze()
        gc.collect()
        self.engine = self._shards.open()


class OpenChangingEngine(OpenEngine):
    """The engine of a run that follows its input, whose table changes: rows of changes come with batches, or alone.

    `renew` is called with the vocabulary for events whenever it has changed.
    """

    def __init__(
        self, renew: Callable[[Vocabulary], None], shards: ShardsHeld, vocabulary: Vocabulary, filters: bool
    ) -> None:
        self._changing = ChangingEngine(shards.whole, shards.open_table, renew, reuse_ids=not filters)
        self._filters, self._broken = filters, None

    @property
    def engine(self) -> Engine:  # type: ignore[override]
        """The engine for the present version."""
        return self._changing.engine

    def _found(self, received: Received) -> Matches:
        if self._broken is not None:
            raise self._broken
        if len(received.changes):
            self._changing.obey(DueVersions.from_wire(received.changes))
        return self.engine.match(received.events.get(), filters=self._filters)

    @staticmethod
    def _answer(received: Received, found: Matches) -> Matched:
        """The answer, in types that stay the same when the table grows."""
        return OpenEngine._answer(received, Matches.from_counts(found.counts, found.ids, MOST_IDS))

    def load(self, shard: SerializedShard | SerializedChanges) -> None:
        """Apply changes that come with no batch; if that fails, every later batch fails."""
        try:
            self._changing.obey(DueVersions.from_wire(shard.wire))
        except Exception as error:
            self._broken = error


OpensEngine = Callable[[ShardsHeld, Vocabulary, bool], OpenEngine]
"""Opens the engine for shards; other arguments are those of `EngineRunner`."""


class _Begun(NamedTuple):
    """A batch that an engine has begun."""

    received: Received
    pending: Pending
    answer: Callable[[Received, Matches], Matched]

    def end(self) -> Matched:
        """The answer, or the error."""
        try:
            return self.answer(self.received, self.pending.end())
        except Exception as error:
            return _failed(self.received, error)


def _failed(received: Received, error: Exception) -> Matched:
    """The failure of a batch: FileChanged if the events' file has changed meanwhile, else the error."""
    try:
        received.events.confirm()
    except FileChanged as changed:
        error = changed
    nothing = np.empty(0, np.uint8)
    return Matched(received, nothing, nothing, error)
