"""The parts of the table that a worker has, an engine for them, and the batches that are put to it.

Answers are got in one of two ways:

EngineRunner   in a thread of its own, so that a worker receives batch k + 1 and sends answer k - 1 while batch k is matched.
               MPI moves large messages only while someone calls it, and the main thread does that all the time.  A batch
               that is there is begun before those before it are ended, so that a GPU has always something to match:

                   batch k      begin ─────────────── end │ answer
                   batch k + 1          begin ────────────────────── end │ answer

               No batch waits for its end longer than another takes to begin: where none is there, the oldest is ended.
InlineRunner   in the thread that gets the answer.  To wake another thread and be woken by it takes longer than to match a
               few events, and their messages need no other thread to move them.

Either way the engine lives in one thread from its first call to its last (a GPU's context belongs to a thread), and never
sees MPI.

A batch that changes fall into is matched in pieces, up to each event that sees something new:

    events of the batch    0 1 2 3 4 5 6 7 8 9           update a, b │ match 0-3 │ update c │ match 4-9
    changes                a       c
                           b

So the size of a batch has nothing to do with when changes take effect, and a worker need not have matched the batches
before: with each batch it gets all changes that it has not been told of yet, in order, those of other workers' batches
stamped 0.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Queue, SimpleQueue
from typing import NamedTuple

import numpy as np

from mpi_match.changes.stream import StampedChanges
from mpi_match.cluster.distribution.shard import Shard, ShardEngine, ShardsEngine, unpacked
from mpi_match.cluster.messages import Matched, Received, SerializedShard
from mpi_match.cluster.transport.backoff import pause
from mpi_match.engines.base import MOST_BEGUN, Engine, Pending
from mpi_match.events.batch import EventBatch
from mpi_match.matches.matches import Matches
from mpi_match.storage import FileChanged
from mpi_match.table.table import Table
from mpi_match.table.vocabulary import Vocabulary


class ShardsHeld:
    """The parts of the table that a worker has: one, until others have died and it is told to load another (`regroup`).

    `open_table` opens an engine for a table.
    """

    def __init__(self, part: Shard, table: Table, open_table: Callable[[Table], Engine]) -> None:
        self._tables = {part: table}
        self._open_table = open_table

    def load(self, part: Shard, table: Table, *, keep: bool) -> None:
        """Have another part, besides what there is or instead of it."""
        if not keep:
            self._tables.clear()
        self._tables[part] = table

    def open(self) -> Engine:
        """An engine for all of it.  Raises EngineError."""
        engines = []
        for part, table in self._tables.items():
            engine = self._open_table(table)
            engines.append(engine if part.n_members == 1 else ShardEngine(engine, part))
        return engines[0] if len(engines) == 1 else ShardsEngine(engines)


def match_changing(engine: Engine, batch: EventBatch, stamped: StampedChanges | None, *, filters: bool) -> Matches:
    """Tell the engine of changes and match, each event with what it sees; stamps count from the batch's first event."""
    if stamped is None:
        return engine.match(batch, filters=filters)
    if not len(stamped):
        engine.update(stamped.changes)  # none, but they say how many ids there are
    found, at = [], 0
    for first, changes in stamped.runs():
        if first > at:
            found.append(engine.match(batch[at:first], filters=filters))
            at = first
        engine.update(changes)
    found.append(engine.match(batch[at:], filters=filters))
    return Matches.concat(found)


class EngineRunner:
    """Matches the batches that are `put`, in order, with an engine for a table of the given vocabulary.

    An engine for what it holds is opened first, in the thread.
    """

    def __init__(self, holdings: ShardsHeld, vocabulary: Vocabulary, *, filters: bool) -> None:
        self._bench_of = holdings, vocabulary, filters
        self._work: SimpleQueue[Received | SerializedShard | None] = SimpleQueue()
        # Not a SimpleQueue, because `get` has a timeout: up to CPython 3.12 one of some microseconds may wait for ever there
        # (when what is left of it becomes negative).
        self._done: Queue[Matched] = Queue()
        self._opened: SimpleQueue[Engine | Exception] = SimpleQueue()
        self._dropping = False
        # A daemon: a process that has to leave does not wait for a batch that nobody wants.
        self._thread = threading.Thread(target=self._run, name="matcher", daemon=True)
        self._thread.start()

    def engine(self) -> Engine:
        """Wait until the engine is open, once; look at its words and numbers only.  Raises what opening it raised."""
        opened = self._opened.get()
        if isinstance(opened, Exception):
            raise opened
        return opened

    def put(self, work: Received | SerializedShard) -> None:
        """Have a batch matched, whose memory is lent until it comes back in `Matched`; or a part loaded."""
        self._work.put(work)

    def get(self, timeout_s: float = 0) -> Matched | None:
        """The next answer, or None when there is none within the time."""
        try:
            return self._done.get(timeout=timeout_s) if timeout_s else self._done.get_nowait()
        except Empty:
            return None

    def stop(self, timeout_s: float) -> None:
        """Drop what is queued and end the thread, if the batches that it has begun end within the time."""
        self._dropping = True
        self._work.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            bench = _Bench(*self._bench_of)
        except Exception as error:
            self._opened.put(error)
            return
        self._opened.put(bench.engine)
        begun: deque[Matched | _Begun] = deque()
        while (work := self._next(begun)) is not None:
            if self._dropping:
                continue
            while begun and not _may_begin(work):
                self._end(begun)
            if isinstance(work, SerializedShard):
                bench.load(work)
            else:
                begun.append(bench.begin(work))
        while begun:
            self._end(begun)

    def _next(self, begun: deque[Matched | _Begun]) -> Received | SerializedShard | None:
        """What was put next; batches that were begun are ended while there is nothing, or while they are too many."""
        while begun:
            if isinstance(begun[0], _Begun) and len(begun) < MOST_BEGUN:
                with suppress(Empty):
                    return self._work.get_nowait()
            self._end(begun)
        return self._work.get()

    def _end(self, begun: deque[Matched | _Begun]) -> None:
        """Give the oldest its answer."""
        oldest = begun.popleft()
        self._done.put(oldest if isinstance(oldest, Matched) else oldest.end())


def _may_begin(work: Received | SerializedShard) -> bool:
    """May it begin while others are matched: neither alters the engine under them nor has them wait for its events?"""
    return isinstance(work, Received) and not work.alters and work.events.is_here()


class InlineRunner:
    """The same for short batches: `get` matches the next one."""

    def __init__(self, holdings: ShardsHeld, vocabulary: Vocabulary, *, filters: bool) -> None:
        self._bench_of = holdings, vocabulary, filters
        self._work: deque[Received | SerializedShard] = deque()

    def engine(self) -> Engine:
        """See `EngineRunner.engine`."""
        self._bench = _Bench(*self._bench_of)
        return self._bench.engine

    def put(self, work: Received | SerializedShard) -> None:
        """See `EngineRunner.put`."""
        self._work.append(work)

    def get(self, timeout_s: float = 0) -> Matched | None:
        """See `EngineRunner.get`."""
        if self._work:
            work = self._work.popleft()
            if not isinstance(work, SerializedShard):
                return self._bench.match(work)
            self._bench.load(work)
            return None
        pause(timeout_s)
        return None

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`."""
        self._work.clear()


class _Bench:
    """An engine at work.  If it fails on a batch it may do better on the next one; but if it fails on a batch that has
    changes, nobody knows which of them it has made, and what comes after is not matched.

    Changes cannot be undone, so a batch from before changes that were made is matched with an engine that is opened again.
    """

    def __init__(self, holdings: ShardsHeld, vocabulary: Vocabulary, filters: bool) -> None:
        self._holdings, self._vocabulary, self._filters = holdings, vocabulary, filters
        self.engine = holdings.open()
        self._broken: Exception | None = None

    def match(self, received: Received) -> Matched:
        """The answer to a batch, or what was raised instead."""
        try:
            if received.afresh:
                self._open_again()
            if self._broken is not None:
                raise self._broken
            events = received.events.get()
            changes = None
            if len(received.changes):  # a copy: engines keep added filters, the buffer is used again
                changes = StampedChanges.from_wire(received.changes.copy(), self._vocabulary)
            found = match_changing(self.engine, events, changes, filters=self._filters)
            return _answer(received, found)
        except Exception as error:
            if received.alters:
                self._broken = error
            return _failed(received, error)

    def begin(self, received: Received) -> Matched | _Begun:
        """The same, or what will be the answer; one that alters the engine is matched when those before it are ended."""
        if received.alters or self._broken is not None:
            return self.match(received)
        try:
            begun = self.engine.begin(received.events.get(), filters=self._filters)
            return _answer(received, begun) if isinstance(begun, Matches) else _Begun(received, begun)
        except Exception as error:
            return _failed(received, error)

    def load(self, parcel: SerializedShard) -> None:
        """Have a part of the table, and an engine for what there is then; batches fail if that cannot be."""
        try:
            self._holdings.load(*unpacked(parcel.wire), keep=parcel.keep)
            self._open_again()
        except Exception as error:
            self._broken = error

    def _open_again(self) -> None:
        self._broken = None
        self.__dict__.pop("engine", None)  # its memory first, also what has cycles and was frozen
        gc.unfreeze()
        gc.collect()
        self.engine = self._holdings.open()


class _Begun(NamedTuple):
    """A batch that an engine has begun."""

    received: Received
    pending: Pending

    def end(self) -> Matched:
        """Its answer, or what was raised instead."""
        try:
            return _answer(self.received, self.pending.end())
        except Exception as error:
            return _failed(self.received, error)


def _answer(received: Received, found: Matches) -> Matched:
    received.events.confirm()
    return Matched(received, found.counts, np.ascontiguousarray(found.ids))


def _failed(received: Received, error: Exception) -> Matched:
    """What was raised; when the events' file has changed meanwhile, that."""
    try:
        received.events.confirm()
    except FileChanged as changed:
        error = changed
    nothing = np.empty(0, np.uint8)
    return Matched(received, nothing, nothing, error)
