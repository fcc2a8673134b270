"""An engine in a thread of its own, so that a worker receives batch k + 1 and sends answer k - 1 while batch k is matched.

MPI moves large messages only while someone calls it.  The main thread does that all the time; the engine lives in this
thread from its first call to its last (a GPU's context belongs to a thread), and never sees MPI.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, Queue, SimpleQueue

import numpy as np

from mpi_match.arrays import Array
from mpi_match.batch import EventBatch
from mpi_match.engines import Engine
from mpi_match.matches import id_dtype


@dataclass(frozen=True)
class Matched:
    """Answer to a batch: counts and ids as they travel, or what the engine raised; and the batch's buffer, free again."""

    batch: int
    buffer: Array
    counts: Array
    ids: Array
    error: Exception | None = None


class Matcher:
    """Matches the wire forms that are `put`, in order.  `open_engine` is called first, in the thread."""

    def __init__(self, open_engine: Callable[[], Engine], *, filters: bool) -> None:
        self._open, self._filters = open_engine, filters
        self._work: SimpleQueue[tuple[int, Array] | None] = SimpleQueue()
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

    def put(self, batch: int, buffer: Array) -> None:
        """Have a batch matched; `buffer` begins with its wire form and is lent until it comes back in `Matched`."""
        self._work.put((batch, buffer))

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
            engine = self._open()
        except Exception as error:
            self._opened.put(error)
            return
        self._opened.put(engine)
        while (work := self._work.get()) is not None:
            if not self._dropping:
                self._done.put(self._match(engine, *work))

    def _match(self, engine: Engine, batch: int, buffer: Array) -> Matched:
        try:
            found = engine.match(EventBatch.from_wire(buffer), filters=self._filters)
            return Matched(batch, buffer, found.counts, np.ascontiguousarray(found.ids, id_dtype(found.n_ids)))
        except Exception as error:
            nothing = np.empty(0, np.uint8)
            return Matched(batch, buffer, nothing, nothing, error)
