"""Answers that a worker writes itself (`--results local`), between its matcher and what it tells the master.

    matcher ─► answers that are there ─┬─► part 0: written, and then all of them synced at once ─► "written"
                                       ├─► part 1
                                       └─► ...

The master hears of a batch when the disk has its answers, and not before: then the worker may die.  While the disk is busy
with some, the matcher makes the next ones, which are synced together; so a slow disk is asked seldom, and memory is bounded
by the credits.

A worker has several parts because a file takes the bytes of one thread at a time, whatever the disk could, and so does a
checksum.  Answers go to the first part that is free, so there is a second only when one is not enough.

Every worker makes its parts before the first batch, and the master looks whether it sees the first of each: that a directory
is each host's own would show only when the answers are read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty, PriorityQueue, Queue

from mpi_match.cluster.batches import BatchRanges
from mpi_match.cluster.engine_runner import EngineRunner, InlineRunner
from mpi_match.cluster.messages import Matched, Received, SerializedShard, Written
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.results.worker_output import PartPlaces
from mpi_match.engines import Engine
from mpi_match.exit_codes import ExitCode
from mpi_match.journal.reader import EventRange
from mpi_match.matches.part_index import PartWriter
from mpi_match.storage import StorageError

DISK_POLL_S = 0.1
"""How often the thread that hands out parts looks whether it is to end."""
TOGETHER_BYTES = 2**22
"""Answers of so many bytes are worth a sync of their own."""


class WrittenAtOnce:
    """A matcher whose answers are on disk when they are got: `Matched.written` says so.

    `get` writes them, to the first of the `parts`.
    """

    def __init__(self, matcher: EngineRunner | InlineRunner, parts: Sequence[PartWriter], ranges: BatchRanges) -> None:
        self._matcher, self._parts, self._ranges = matcher, parts, ranges

    def engine(self) -> Engine:
        """See `EngineRunner.engine`."""
        return self._matcher.engine()

    def put(self, work: Received | SerializedShard) -> None:
        """See `EngineRunner.put`."""
        self._matcher.put(work)

    def get(self, timeout_s: float = 0) -> Matched | None:
        """See `EngineRunner.get`."""
        matched = self._matcher.get(timeout_s)
        return None if matched is None else self._written(0, [matched])[0]

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`; what is not written then never is."""
        self._matcher.stop(timeout_s)

    def _written(self, number: int, together: Sequence[Matched]) -> Sequence[Matched]:
        """The same, when they are on disk; or, of those that have answers, why they are not."""
        part = self._parts[number]
        try:
            for matched in together:
                if matched.error is None:
                    events = EventRange(*self._ranges.of(matched.received.batch))
                    part.append(events, matched.counts, matched.ids)
            part.sync()
        except StorageError as error:
            refusal = ClusterError(str(error), ExitCode.INCOMPLETE)  # not the input's fault: another may be able to write
            return [each if each.error is not None else each._replace(error=refusal) for each in together]
        where = Written(number, part.end)
        return [each if each.error is not None else each._replace(written=where) for each in together]


class WrittenHere(WrittenAtOnce):
    """The same, written in threads, to the first of the parts that is free."""

    def __init__(self, matcher: EngineRunner | InlineRunner, parts: Sequence[PartWriter], ranges: BatchRanges) -> None:
        super().__init__(matcher, parts, ranges)
        self._done: Queue[Matched] = Queue()
        self._free: PriorityQueue[int] = PriorityQueue()
        for number in range(len(parts)):
            self._free.put(number)
        self._stopping = False
        self._writers = ThreadPoolExecutor(len(parts), "part")
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float = 0) -> Matched | None:
        """See `EngineRunner.get`."""
        try:
            return self._done.get(timeout=timeout_s) if timeout_s else self._done.get_nowait()
        except Empty:
            return None

    def stop(self, timeout_s: float) -> None:
        """See `EngineRunner.stop`; what is not written then never is."""
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
    """So many parts for a worker; none without `places`.  `stack` closes them.  Raises StorageError."""
    if places is None:
        return []
    paths = [places.part(rank, number) for number in range(n_parts)]
    return [stack.enter_context(PartWriter(path, places.identity)) for path in paths]


def look_for_parts(places: PartPlaces | None, n_ranks: int) -> None:
    """Raise ClusterError when a worker's part is not to be seen from here, the master's host."""
    if places is None:
        return
    unseen = [rank for rank in range(1, n_ranks) if not places.part(rank).is_file()]
    if unseen:
        raise ClusterError(
            f"{places.directory}: what rank {unseen[0]} writes there is not to be seen on the master's host; "
            "with --results local the output needs a directory that all hosts share"
        )
