"""An engine that batches are put to and answers got from, in one of two ways.

Matcher        in a thread of its own, so that a worker receives batch k + 1 and sends answer k - 1 while batch k is matched.
               MPI moves large messages only while someone calls it, and the main thread does that all the time.
ShortMatcher   in the thread that gets the answer.  To wake another thread and be woken by it takes longer than to match a
               few events, and their messages need nobody to move them.

Either way the engine lives in one thread from its first call to its last (a GPU's context belongs to a thread), and never
sees MPI.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, Queue, SimpleQueue
from typing import NamedTuple

import numpy as np

from mpi_match.arrays import Array
from mpi_match.batch import EventBatch
from mpi_match.change_stream import StampedChanges
from mpi_match.cluster.changing import match_changing
from mpi_match.cluster.holdings import Holdings
from mpi_match.cluster.parcel import unpacked
from mpi_match.cluster.patience import pause
from mpi_match.engines import Engine
from mpi_match.vocabulary import Vocabulary


class Received(NamedTuple):
    """A batch to be matched: its number and the attempt that it is, whether it is for an engine opened afresh, the wire form
    of its changes (empty: none), what its events are got with (called once, in the engine's thread), and the buffer that it
    was received into, if any.
    """

    batch: int
    attempt: int
    afresh: bool
    changes: Array
    events: Callable[[], EventBatch]
    buffer: Array | None


class Parcel(NamedTuple):
    """A part of the table (`parcel`) that is to be had from now on: besides what there is (`keep`), or instead of it."""

    wire: Array
    keep: bool


class Written(NamedTuple):
    """Where a rank has written answers itself: in which of its parts of the output, and the size that this has with them."""

    part: int
    end: int


class Matched(NamedTuple):
    """Answer to a batch: counts and ids as they travel, or what the engine raised; the batch's buffer is free again.

    `written`: where this rank has written them itself.
    """

    received: Received
    counts: Array
    ids: Array
    error: Exception | None = None
    written: Written | None = None


class Matcher:
    """Matches the batches that are `put`, in order, with an engine for a table of the given vocabulary.

    An engine for what it holds is opened first, in the thread.
    """

    def __init__(self, holdings: Holdings, vocabulary: Vocabulary, *, filters: bool) -> None:
        self._bench_of = holdings, vocabulary, filters
        self._work: SimpleQueue[Received | Parcel | None] = SimpleQueue()
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

    def put(self, work: Received | Parcel) -> None:
        """Have a batch matched, whose memory is lent until it comes back in `Matched`; or a part loaded."""
        self._work.put(work)

    def get(self, timeout_s: float = 0) -> Matched | None:
        """The next answer, or None when there is none within the time."""
        try:
            return self._done.get(timeout=timeout_s) if timeout_s else self._done.get_nowait()
        except Empty:
            return None

    def stop(self, timeout_s: float) -> None:
        """Drop what is queued and end the thread, if the batch that it matches ends within the time."""
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
        while (work := self._work.get()) is not None:
            if self._dropping:
                continue
            if isinstance(work, Parcel):
                bench.load(work)
            else:
                self._done.put(bench.match(work))


class ShortMatcher:
    """The same for short batches: `get` matches the next one."""

    def __init__(self, holdings: Holdings, vocabulary: Vocabulary, *, filters: bool) -> None:
        self._bench_of = holdings, vocabulary, filters
        self._work: deque[Received | Parcel] = deque()

    def engine(self) -> Engine:
        """See `Matcher.engine`."""
        self._bench = _Bench(*self._bench_of)
        return self._bench.engine

    def put(self, work: Received | Parcel) -> None:
        """See `Matcher.put`."""
        self._work.append(work)

    def get(self, timeout_s: float = 0) -> Matched | None:
        """See `Matcher.get`."""
        if self._work:
            work = self._work.popleft()
            if not isinstance(work, Parcel):
                return self._bench.match(work)
            self._bench.load(work)
            return None
        pause(timeout_s)
        return None

    def stop(self, timeout_s: float) -> None:
        """See `Matcher.stop`."""
        self._work.clear()


class _Bench:
    """An engine at work.  If it fails on a batch it may do better on the next one; but if it fails on a batch that has
    changes, nobody knows which of them it has made, and what comes after is not matched.

    Changes cannot be undone, so a batch from before changes that were made is matched with an engine that is opened again.
    """

    def __init__(self, holdings: Holdings, vocabulary: Vocabulary, filters: bool) -> None:
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
            events = received.events()
            changes = None
            if len(received.changes):  # a copy: engines keep added filters, the buffer is used again
                changes = StampedChanges.from_wire(received.changes.copy(), self._vocabulary)
            found = match_changing(self.engine, events, changes, filters=self._filters)
            return Matched(received, found.counts, np.ascontiguousarray(found.ids))
        except Exception as error:
            if received.afresh or len(received.changes):
                self._broken = error
            nothing = np.empty(0, np.uint8)
            return Matched(received, nothing, nothing, error)

    def load(self, parcel: Parcel) -> None:
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
