"""The files of a run: opened, checked and held together, on the one process that touches them.

When a run has changes, its table is the file's in a vocabulary that has the changes' operands as well, and there may be more
ids in its answers than the file has.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.changes.log import CHANGES, ChangeLog
from mpi_match.changes.stream import ChangeStream
from mpi_match.cluster.batches import BatchedChanges, BatchedEvents, BatchRanges
from mpi_match.cluster.distribution.partition import Division
from mpi_match.cluster.messages import Written
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.results.output import Output
from mpi_match.cluster.results.worker_output import LocalOutput
from mpi_match.cluster.scheduling.timeouts import RoundTrips
from mpi_match.events.event_table import EventTable
from mpi_match.journal.reader import EventRange, RunIdentity
from mpi_match.monitor.status import RunStatus, Share
from mpi_match.storage import FileChanged, Reader, StorageError
from mpi_match.storage.schema import Schema
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """An engine that is ready, as its rank describes it; opening it took `opening_s` seconds, `compile_s` to compile it."""

    engine: str
    device: str
    gpu: str | None = None
    host: str = ""
    opening_s: float = 0.0
    compile_s: float = 0.0
    engine_options: Mapping[str, object] = {}


class BatchedAnswers:
    """The answers of a run on their way to its `output`, batch by batch; who watches is told of them.

    No answer is written that may be one to other events than the table had when it was opened (`confirm`).

    by_workers   do the workers write them, so that the master only hears where they are (`wrote`)?
    """

    def __init__(
        self,
        output: Output | LocalOutput,
        events: BatchedEvents,
        status: RunStatus,
        options: RunOptions,
    ) -> None:
        self.ranges, self.by_workers = events.ranges, isinstance(output, LocalOutput)
        self._output, self._table, self._status, self._progress = output, events.table, status, options.progress
        self._workers_confirm = options.feed == "file"

    def write(self, batch: int, counts: Array, ids: Array) -> None:
        """The answers of a batch, and of those behind it as far as they go; batches ascend."""
        assert isinstance(self._output, Output)
        start, _ = self.ranges.of(batch)
        self.confirm(start, start + len(counts))
        self._output.write(start, counts, ids)
        self._tell_of(len(counts), len(ids))

    def wrote(self, batch: int, n_ids: int, rank: int, where: Written) -> None:
        """A worker has written the answers of a batch into its part of the output (see `LocalOutput.wrote`)."""
        events = EventRange(*self.ranges.of(batch))
        assert isinstance(self._output, LocalOutput)
        if not self._workers_confirm:  # before they write
            self.confirm(*events)
        self._output.wrote(events, n_ids, rank, where)
        self._tell_of(events.n_events, n_ids)

    def confirm(self, start: int, stop: int) -> None:
        """Raise FileChanged when the event table, as far as these events are concerned, is not what it was when opened.

        What workers of this run have written is then removed: they may have written before anybody looked.
        """
        try:
            self._table.check_unchanged(start, stop)
        except FileChanged:
            if isinstance(self._output, LocalOutput):
                self._output.discard()
            raise

    def set_aside(self, batch: int) -> None:
        """A batch, in its turn, that has no answers: the run goes on, and ends incomplete (see `Output.set_aside`)."""
        self._output.set_aside(EventRange(*self.ranges.of(batch)))

    def _tell_of(self, n_events: int, n_matches: int) -> None:
        self._status.wrote(n_events, n_matches)
        if self._progress is not None:
            self._progress(self._output.n_answered, self._output.identity.n_events)


class RunFiles:
    """Table, events, changes and output of a run, opened by one process, and what the run makes of them.

    `with RunFiles(options) as files:` raises StorageError or ClusterError before any work is done.  When the block is left
    by an exception, the journal is left behind with the answers until then, and nothing else.

    division          the table and its parts
    events, changes   in batches, those that are left to match; changes None: the table stays as it is
    answers           on their way to the output
    places            where workers write theirs; None when the master does
    n_ids             how many different ids an answer can hold
    status          how the run stands
    """

    def __init__(self, options: RunOptions, n_workers: int = 1) -> None:
        self.options, self._n_workers = options, n_workers
        self._stack = ExitStack()

    def __enter__(self) -> RunFiles:
        options = self.options
        options.check()
        with self._stack:
            self.division = self._stack.enter_context(Division(options, self._n_workers))
            stream = self._load_changes()
            events = self._stack.enter_context(EventTable(options.events, self.division.table.vocabulary))
            if not events.encoded_for_vocabulary:
                why = "compiled for another table" if stream is None else "not compiled for what the changes ask for"
                log.warning("%s was %s: its events are encoded again on the way", options.events, why)
            ids = self.division.table if stream is None else stream
            self.n_ids = ids.n_filters if options.filters else ids.n_interfaces
            self._output = self._open_output(events, ids.labels)
            self._stack.enter_context(self._output)
            ranges = BatchRanges(self._output.unanswered, options.batch)
            self.events = BatchedEvents(events, ranges)
            self.changes = None if stream is None else BatchedChanges(stream, ranges)
            self.status = RunStatus(events.n_events - self._output.n_resumed, n_resumed=self._output.n_resumed)
            self._watch = nullcontext() if options.watch is None else options.watch(self.status)
            self.answers = BatchedAnswers(self._output, self.events, self.status, options)
            self.places = self._output.places if isinstance(self._output, LocalOutput) else None
            self._stack = self._stack.pop_all()
        return self

    def _load_changes(self) -> ChangeStream[Table | RangeReader] | None:
        """The changes, if there are any; the division's table is then the one that they are made to."""
        path = self.options.changes
        if path is None:
            return None
        changes = ChangeLog.load(path)
        try:
            stream = changes.stream(self.division.table)
        except StorageError as error:
            raise StorageError(f"{path}: {error}") from error
        self.division.table = stream.table
        return stream

    def _open_output(self, events: EventTable, labels: Strings) -> Output | LocalOutput:
        options = self.options
        identity = RunIdentity(
            unit="filter" if options.filters else "interface",
            n_ids=self.n_ids,
            n_events=events.n_events,
            table_digest=_digest(options.table, TABLE),
            events_digest=events.digest,
            changes_digest="" if options.changes is None else _digest(options.changes, CHANGES),
        )
        labels = Strings.of(()) if options.filters else labels
        if options.results == "local":
            return LocalOutput(options.output, identity, labels, resume=options.resume)
        return Output(options.output, identity, labels, resume=options.resume, journalled=options.journal)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def leave(self, error: BaseException) -> None:
        """Leave the block's files as its end would, now."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    @contextmanager
    def watched(self, workers: Mapping[int, Opened]) -> Iterator[None]:
        """While the block lasts, whoever wants to watch the run does; `workers` are the engines by rank."""
        self.status.shares = {rank: Share(each.engine, each.device, each.host) for rank, each in workers.items()}
        with self._watch:
            yield

    def begin(self) -> None:
        """Start the clock."""
        self.status.begin()
        self._started = time.perf_counter()

    def finish(self, opened: Sequence[Opened], round_trips: RoundTrips | None = None) -> RunSummary:
        """Put the output in its place, sum up, and say that the run is complete.  Raises FileChanged.

        The clock stops when the answers are in their place: what they have taken the place of is removed behind that.
        """
        self.events.table.check_unchanged(0, self.events.table.n_events)
        self._output.finish()
        self.status.end()
        wall_s = time.perf_counter() - self._started
        resumed = self._output.n_resumed
        n_events = self._output.identity.n_events
        summary = RunSummary(
            events=n_events,
            matches=self._output.n_matches,
            wall_s=wall_s,
            events_per_s=(n_events - resumed) / wall_s,
            engine=", ".join(sorted({each.engine for each in opened})),
            device=", ".join(
                f"{n} x {device}" if n > 1 else device for device, n in Counter(o.device for o in opened).items()
            ),
            workers=len(opened),
            rejected=0,
            round_trip_us=None if round_trips is None else round_trips.in_us(),
            resumed=resumed,
            compile_s=max(each.compile_s for each in opened),
            engine_options={each.engine: dict(each.engine_options) for each in opened if each.engine_options},
        )
        self._output.write_manifest(asdict(summary))
        return summary


def _digest(path: Path, schema: Schema) -> str:
    with Reader(path, schema) as reader:
        return str(reader.attributes["digest"])
