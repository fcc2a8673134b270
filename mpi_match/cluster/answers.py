"""The answers of a run on their way to its output, in the order of their batches.

    answers of a group, by member ─► OrderedWriter ─► BatchedAnswers ─► output
                                     in a thread, or joined     counted, if the events are unchanged

A run of one process needs no order: it gives its answers to `BatchedAnswers`.  `OrderedWriter` writes in two ways:

    long batches    each goes to the writer thread, which merges the answers of a group's members and writes them
    short ones      are kept for a while (`flush`), up to a size, and those of consecutive events are written in one call

Writing an answer takes as long as the round trip of a short batch, so nothing is written between two of these.  Short
answers of several members of a group, or written by workers, cannot be joined: each is written at once.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.batches import BatchedEvents
from mpi_match.cluster.messages import WRITTEN_DTYPE, Body, Written
from mpi_match.cluster.options import RunOptions
from mpi_match.cluster.results.output import Output
from mpi_match.cluster.results.scan_log import ScanLog
from mpi_match.cluster.results.worker_output import LocalOutput
from mpi_match.journal.reader import EventRange
from mpi_match.matches.write_behind import Writer
from mpi_match.monitor.status import RunStatus
from mpi_match.storage import FileChanged

if TYPE_CHECKING:
    from mpi_match.cluster.inbox import Inbox  # which loads MPI, and a run of one process has none

KEPT_BYTES = 2**20
"""Short answers are kept up to this size."""
Parts = dict[int, Body]
"""The answer of a group, by member."""


class Gaps(Protocol):
    """The ranges of batches; `OrderedWriter` asks them where answers cannot be joined."""

    def gap_after(self, batch: int) -> int:
        """See `BatchRanges.gap_after`."""
        ...


class AnswersInOrder(Protocol):
    """The interface of `BatchedAnswers`, by which the answers of a run are written; batches ascend."""

    by_workers: bool

    @property
    def ranges(self) -> Gaps:
        """The ranges of the batches."""
        ...

    def write(self, batch: int, counts: Array, ids: Array) -> None:
        """See `BatchedAnswers.write`."""
        ...

    def wrote(self, batch: int, n_ids: int, rank: int, where: Written) -> None:
        """See `BatchedAnswers.wrote`."""
        ...

    def report(self, batch: int, report: bytes | memoryview) -> None:
        """See `BatchedAnswers.report`."""
        ...

    def set_aside(self, batch: int) -> None:
        """See `BatchedAnswers.set_aside`."""
        ...


class OrderedWriter:
    """The answers of a run; a context manager.  Leaving it without `finish` drops the queue of the thread.

    in_parts   an answer consists of the answers of several members of a group
    joins      where possible, answers to consecutive events are kept, and written in one call by `flush`

    Bodies that are written are given back to `inbox`.  An error of writing is raised by a later call.
    """

    def __init__(self, answers: AnswersInOrder, inbox: Inbox, writer: Writer, *, in_parts: bool, joins: bool) -> None:
        self._answers, self._inbox = answers, inbox
        if in_parts:
            from mpi_match.cluster.distribution.merge import merge  # loads Numba

            self._merge = merge
        self._joins = joins and not in_parts and not answers.by_workers
        self._written = writer(self._write)
        self._kept: list[Body] = []
        self._first = self._until = self._n_bytes = 0

    def __enter__(self) -> OrderedWriter:
        self._written.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.flush()
        finally:
            self._written.__exit__(kind, error, trace)

    def put(self, batch: int, parts: Parts) -> None:
        """Take the answers of the next batch."""
        if not self._joins:
            self._written.put((batch, parts))
            return
        kept = self._kept
        if not kept or batch != self._first + len(kept) or batch >= self._until:
            self.flush()
            kept, self._first, self._until = self._kept, batch, self._answers.ranges.gap_after(batch)
        for body in parts.values():
            kept.append(body)
            self._n_bytes += len(body.first) + len(body.second)
        if self._n_bytes > KEPT_BYTES:
            self.flush()

    def set_aside(self, batch: int) -> None:
        """Record that the next batch has no answers."""
        self.flush()
        self._written.put((batch, {}))

    def flush(self) -> None:
        """Write the short answers that are kept, which are to consecutive events."""
        if self._kept:
            kept, self._kept, self._n_bytes = self._kept, [], 0
            counts, ids = b"".join([body.first for body in kept]), b"".join([body.second for body in kept])
            found = np.frombuffer(counts, self._inbox.count_dtype), np.frombuffer(ids, self._inbox.id_dtype)
            for number, body in enumerate(kept, self._first):
                self._answers.report(number, body.report)
            self._answers.write(self._first, *found)
            self._inbox.give_back(kept)

    def finish(self) -> None:
        """Wait until all are written."""
        self.flush()
        self._written.finish()

    def _write(self, answers: tuple[int, Parts]) -> None:
        """Write the answers of the next batch, given by member, if it has any; runs in the writer thread."""
        batch, parts = answers
        if not parts:
            self._answers.set_aside(batch)
            return
        self._answers.report(batch, next(iter(parts.values())).report)  # all members of a group have scanned the same rows
        if self._answers.by_workers:
            ((worker, said),) = parts.items()
            part, end, n_ids = np.frombuffer(said.second, WRITTEN_DTYPE).tolist()
            self._answers.wrote(batch, n_ids, worker, Written(part, end))
            return
        types = self._inbox.count_dtype, self._inbox.id_dtype
        bodies = [parts[each] for each in sorted(parts)]
        found = [(np.frombuffer(body.first, types[0]), np.frombuffer(body.second, types[1])) for body in bodies]
        self._answers.write(batch, *(found[0] if len(found) == 1 else self._merge(found)))
        self._inbox.give_back(parts.values())


class BatchedAnswers:
    """Writes the answers of a run to its `output`, batch by batch, and counts them in its `status`.

    Answers are written only while the event table is unchanged since it was opened (`confirm`).  The reports of lines
    (`report`) go to `scan_log`, which is None for an event table.

    by_workers   the workers write them, and the master only records their places (`wrote`)
    """

    def __init__(
        self,
        output: Output | LocalOutput,
        events: BatchedEvents,
        status: RunStatus,
        options: RunOptions,
        scan_log: ScanLog | None,
    ) -> None:
        self._scan_log = scan_log
        self.ranges, self.by_workers = events.ranges, isinstance(output, LocalOutput)
        self._output, self._table, self._status, self._progress = output, events.table, status, options.progress
        self._workers_confirm = options.feed == "file"

    def write(self, batch: int, counts: Array, ids: Array) -> None:
        """Write the answers of a batch, or of consecutive batches from it on; batches ascend."""
        assert isinstance(self._output, Output)
        start, _ = self.ranges.of(batch)
        self.confirm(start, start + len(counts))
        self._output.write(start, counts, ids)
        self._count(len(counts), len(ids))

    def wrote(self, batch: int, n_ids: int, rank: int, where: Written) -> None:
        """Record that a worker has written the answers of a batch into its part of the output (see `LocalOutput.wrote`)."""
        events = EventRange(*self.ranges.of(batch))
        assert isinstance(self._output, LocalOutput)
        if not self._workers_confirm:  # workers that read the file confirm before they write
            self.confirm(*events)
        self._output.wrote(events, n_ids, rank, where)
        self._count(events.n_events, n_ids)

    def report(self, batch: int, report: bytes | memoryview) -> None:
        """Take the report of a batch (see `Expected`); batches ascend.  Raises ModelError for a bad row under `strict`."""
        if self._scan_log is not None:
            self._scan_log.add(self.ranges.of(batch)[0], report)

    def confirm(self, start: int, stop: int) -> None:
        """Raise FileChanged when these events of the table have changed since it was opened.

        Parts written by workers of this run are then removed: they may hold answers to the changed events.
        """
        try:
            self._table.check_unchanged(start, stop)
        except FileChanged:
            if isinstance(self._output, LocalOutput):
                self._output.discard()
            raise

    def set_aside(self, batch: int) -> None:
        """Record, in order, a batch without answers: the run goes on and will be incomplete (see `Output.set_aside`)."""
        self._output.set_aside(EventRange(*self.ranges.of(batch)))

    def _count(self, n_events: int, n_matches: int) -> None:
        self._status.wrote(n_events, n_matches)
        if self._progress is not None:
            self._progress(self._output.n_answered, self._output.identity.n_events)
