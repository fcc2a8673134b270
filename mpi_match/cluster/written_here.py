"""Answers that a worker writes itself (`--results local`), between its matcher and what it tells the master.

    matcher ─► answers that are there ─► part: written, and then all of them synced at once ─► "written"

The master hears of a batch when the disk has its answers, and not before: then the worker may die.  While the disk is busy
with some, the matcher makes the next ones, which are synced together; so a slow disk is asked seldom, and memory is bounded
by the credits.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, Queue

from mpi_match.answer_parts import PartWriter
from mpi_match.cluster import ClusterError
from mpi_match.cluster.extents import Extents
from mpi_match.cluster.matcher import Matched, Matcher, Parcel, Received, ShortMatcher
from mpi_match.cluster.output import INCOMPLETE_CODE
from mpi_match.engines import Engine
from mpi_match.journal_file import Stretch
from mpi_match.storage import StorageError

LOOK_S = 0.1
"""How often the writing thread looks whether it is to end."""


class WrittenHere:
    """A matcher whose answers are on disk when they are got: `Matched.end` says so.  Short batches are written by who gets
    them.
    """

    def __init__(self, matcher: Matcher | ShortMatcher, part: PartWriter, extents: Extents) -> None:
        self._matcher, self._part, self._extents = matcher, part, extents
        self._done: Queue[Matched] = Queue()
        self._stopping = False
        self._thread: threading.Thread | None = None
        if isinstance(matcher, Matcher):
            self._thread = threading.Thread(target=self._run, name="part", daemon=True)
            self._thread.start()

    def engine(self) -> Engine:
        """See `Matcher.engine`."""
        return self._matcher.engine()

    def put(self, work: Received | Parcel) -> None:
        """See `Matcher.put`."""
        self._matcher.put(work)

    def get(self, timeout_s: float = 0) -> Matched | None:
        """See `Matcher.get`."""
        if self._thread is None:
            matched = self._matcher.get(timeout_s)
            return None if matched is None else self._written([matched])[0]
        try:
            return self._done.get(timeout=timeout_s) if timeout_s else self._done.get_nowait()
        except Empty:
            return None

    def stop(self, timeout_s: float) -> None:
        """See `Matcher.stop`; what is not written then never is."""
        self._matcher.stop(timeout_s)
        self._stopping = True
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping:
            together = [matched] if (matched := self._matcher.get(LOOK_S)) is not None else []
            while together and (matched := self._matcher.get()) is not None:
                together.append(matched)
            for matched in self._written(together):
                self._done.put(matched)

    def _written(self, together: Sequence[Matched]) -> Sequence[Matched]:
        """The same, when they are on disk; or, of those that have answers, why they are not."""
        try:
            for matched in together:
                if matched.error is None:
                    events = Stretch(*self._extents.of(matched.received.batch))
                    self._part.append(events, matched.counts, matched.ids)
            if together:
                self._part.sync()
        except StorageError as error:
            refusal = ClusterError(str(error), INCOMPLETE_CODE)  # not the input's fault: another may be able to write
            return [each if each.error is not None else each._replace(error=refusal) for each in together]
        return [each if each.error is not None else each._replace(end=self._part.end) for each in together]
