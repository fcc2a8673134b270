"""Answers that a worker writes itself (`--results local`), between its matcher and its messages to the master.

    matcher ─► answers in the queue ───┬─► part 0: written, and then synced together ─► WRITTEN
                                       ├─► part 1
                                       └─► ...

A worker reports a batch only after its answers are synced: from then on the worker may die.  While a sync is in progress the
matcher produces the next answers, which are synced together; so a slow disk gets few syncs, and credits bound the memory.

A worker has several parts because one thread at a time writes to a file and computes its checksum, also where the disk is
faster.  Answers go to the first free part, so a second one is used only when one is not enough.

Every worker creates its parts before the first batch, and the master checks that it sees the first part of each: otherwise a
directory that is not shared would be noticed only when the answers are read.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, PriorityQueue, Queue

from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.engine_runner import Matcher
from mpi_match.cluster.messages import Matched, Work, Written
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.results.worker_output import PartPlaces
from mpi_match.engines import Engine
from mpi_match.exit_codes import ExitCode
from mpi_match.journal.reader import EventRange
from mpi_match.matches.matches import Matches
from mpi_match.matches.part_index import PartWriter
from mpi_match.storage import StorageError

DISK_POLL_S = 0.1
"""Seconds between two checks, by the thread that assigns parts, for the end."""
TOGETHER_BYTES = 2**22
"""Least bytes of answers that are worth a sync of their own."""


class MatchedParts(ABC):
    """A matcher that returns answers when they are synced into `parts`, with `Matched.written`; each kind has its `get`."""

    def __init__(self, matcher: Matcher, parts: Sequence[PartWriter], ranges: BatchRanges) -> None:
        self._matcher, self._parts, self._ranges = matcher, parts, ranges

    def engine(self) -> Engine:
        """See `EngineRunner.engine`."""
        return self._matcher.engine()

    def put(self, work: Work) -> None:
        """See `EngineRunner.put`."""
        self._matcher.put(work)

    def match_at_once(self, wire: memoryview) -> Matches | None:
        """See `EngineRunner.match_at_once`: no answer goes out before it is on disk."""
        return None

    @abstractmethod
    def get(self, timeout_s: float | None = 0) -> Matched | None:
        """See `EngineRunner.get`."""

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`; drops the answers that are not written yet."""
        self._matcher.stop(timeout_s)

    def _written(self, number: int, together: Sequence[Matched]) -> Sequence[Matched]:
        """Write and sync answers; returns them with `written`, or with the error of writing."""
        part = self._parts[number]
        try:
            for matched in together:
                if matched.error is None:
                    events = EventRange(*self._ranges.of(matched.received.batch))
                    part.append(events, matched.counts, matched.ids)
            part.sync()
        except StorageError as error:
            # Not caused by the input: another worker may be able to write.
            refusal = ClusterError(str(error), ExitCode.INCOMPLETE)
            refusal.disk_full = error.disk_full
            return [each if each.error is not None else each._replace(error=refusal) for each in together]
        where = Written(number, part.end)
        return [each if each.error is not None else each._replace(written=where) for each in together]


class WorkerWriter(MatchedParts):
    """Writes with several threads, each to the first free part."""

    def __init__(self, matcher: Matcher, parts: Sequence[PartWriter], ranges: BatchRanges) -> None:
        super().__init__(matcher, parts, ranges)
        self._done: Queue[Matched] = Queue()
        self._free: PriorityQueue[int] = PriorityQueue()
        for number in range(len(parts)):
            self._free.put(number)
        self._stopping = False
        self._writers = ThreadPoolExecutor(len(parts), "part")
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float | None = 0) -> Matched | None:
        """See `EngineRunner.get`."""
        try:
            return self._done.get(timeout=timeout_s) if timeout_s else self._done.get_nowait()
        except Empty:
            return None

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`; drops the answers that are not written yet."""
        super().stop(timeout_s)
        self._stopping = True
        self._thread.join(timeout_s)
        self._writers.shutdown(wait=not self._thread.is_alive(), cancel_futures=True)

    def _run(self) -> None:
        while not self._stopping:
            if (matched := self._matcher.get(DISK_POLL_S)) is None:
                continue
            together, number = [matched], self._free.get()
            while sum(map(_n_bytes, together)) < TOGETHER_BYTES and (matched := self._matcher.get()) is not None:
                together.append(matched)
            self._writers.submit(self._write, number, together)

    def _write(self, number: int, together: Sequence[Matched]) -> None:
        for matched in self._written(number, together):
            self._done.put(matched)
        self._free.put(number)


def _n_bytes(matched: Matched) -> int:
    return matched.counts.nbytes + matched.ids.nbytes


def open_parts(places: PartPlaces | None, rank: int, n_parts: int, stack: ExitStack) -> list[PartWriter]:
    """Open `n_parts` parts for a worker; none without `places`.  `stack` closes them.  Raises StorageError."""
    if places is None:
        return []
    paths = [places.part(rank, number) for number in range(n_parts)]
    return [stack.enter_context(PartWriter(path, places.identity)) for path in paths]


def look_for_parts(places: PartPlaces | None, n_ranks: int) -> None:
    """Raise ClusterError when a worker's part is not visible on the master's host."""
    if places is None:
        return
    unseen = [rank for rank in range(1, n_ranks) if not places.part(rank).is_file()]
    if unseen:
        raise ClusterError(
            f"{places.directory}: the part of rank {unseen[0]} is not visible on the master's host; "
            "with --results local the output needs a directory that all hosts share"
        )
