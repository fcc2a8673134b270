"""The files of a run, opened and checked on the one process that accesses them.

When a run has changes, its table is the file's, recoded in a vocabulary that includes the changes' operands, and its answers
may have ids that the file lacks.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from mpi_match.arrays.strings import Strings
from mpi_match.changes.log import CHANGES, ChangeLog
from mpi_match.changes.stream import ChangeStream
from mpi_match.cluster.answers import BatchedAnswers
from mpi_match.cluster.batches import BatchedChanges, BatchedEvents, BatchRanges
from mpi_match.cluster.distribution.partition import Division
from mpi_match.cluster.options import ClusterError, RunOptions, RunSummary, of_rows
from mpi_match.cluster.results.output import Output
from mpi_match.cluster.results.scan_log import ScanLog
from mpi_match.cluster.results.worker_output import LocalOutput
from mpi_match.cluster.scheduling.timeouts import RoundTrips
from mpi_match.events.event_table import EventTable
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.batches.open import open_events
from mpi_match.ingest.batches.scan_report import ScanTotals
from mpi_match.ingest.batches.unnamed import Missing, doubts_of, names_in_events
from mpi_match.ingest.rows.judge import nothing_usable
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.journal.reader import RunIdentity, gaps
from mpi_match.model import ModelError
from mpi_match.monitor.status import RunStatus, Share
from mpi_match.storage import Reader, StorageError, check_output
from mpi_match.storage.schema import Schema
from mpi_match.table.range_reader import RangeReader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """The open engine of a rank; opening it took `opening_s` seconds, compiling it `compile_s`."""

    engine: str
    device: str
    gpu: str | None = None
    host: str = ""
    opening_s: float = 0.0
    compile_s: float = 0.0
    engine_options: Mapping[str, object] = {}


class RunFiles:
    """Table, events, changes and output of a run, opened by one process, with the run's batches, answers and status.

    `with RunFiles(options) as files:` raises StorageError or ClusterError before any work is done.  An exception that leaves
    the block leaves only the journal, with the answers so far.

    division          the table and its parts
    events, changes   those that are left to match, in batches; changes None: the table does not change
    answers           writes answers to the output
    places            where workers write answers; None when the master writes them
    n_ids             number of different ids in answers
    status            of the run, for observers
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
            events = self._open_events()
            self._stack.enter_context(events)
            if isinstance(events, EventTable) and not events.encoded_for_vocabulary:
                why = "compiled for another table" if stream is None else "not compiled for what the changes ask for"
                log.warning("%s was %s: its events are encoded again on the way", options.events, why)
            self.rejects = self._stack.enter_context(RejectLog(options.rejects, options.strict))
            ids = self.division.table if stream is None else stream
            self.n_ids = ids.n_filters if options.filters else ids.n_interfaces
            self._output = self._open_output(events, ids.labels)
            self._stack.enter_context(self._output)
            ranges = BatchRanges(self._output.unanswered, options.batch)
            self.events = BatchedEvents(events, ranges)
            self.changes = None if stream is None else BatchedChanges(stream, ranges)
            self.status = RunStatus(events.n_events - self._output.n_resumed, n_resumed=self._output.n_resumed)
            self._watch = nullcontext() if options.watch is None else options.watch(self.status)
            self._scan_log, self._vocabulary = None, self.division.table.vocabulary
            if not isinstance(events, EventTable):
                earlier = gaps(self._output.unanswered, events.n_events)
                self._scan_log = ScanLog(options.events, events, self.division.table.vocabulary, self.rejects, earlier)
            self.answers = BatchedAnswers(self._output, self.events, self.status, options, self._scan_log)
            self.places = self._output.places if isinstance(self._output, LocalOutput) else None
            self._stack = self._stack.pop_all()
        return self

    def _open_events(self) -> EventTable | LineFiles | ColumnFiles:
        options = self.options
        directory = options.output.absolute().parent
        events = open_events(options.events, self.division.table.vocabulary, options.form, directory)
        try:
            if isinstance(events, EventTable) and not events.n_events:  # of lines the scan log says so
                raise ModelError(nothing_usable(str(options.events), "event", 0, None))
            if isinstance(events, EventTable) and (options.rejects is not None or options.strict):
                raise ClusterError(
                    f"{options.events}: the bad rows of an event table were set aside when it was compiled; "
                    "--rejects and --strict are for files of rows",
                    ExitCode.USAGE,
                )
            if not isinstance(events, EventTable) and events.packed and options.feed == "file":
                raise ClusterError(
                    f"{options.events}: packed files, CSV and pipes are read by the master; "
                    "use --feed master or --feed shared",
                    ExitCode.USAGE,
                )
            if options.rejects is not None and not isinstance(events, EventTable):
                inputs = [options.table, *map(Path, events.index.files)]
                check_output(options.rejects, inputs, others=[options.output], streamed=True)
        except BaseException:
            events.__exit__()
            raise
        return events

    def _load_changes(self) -> ChangeStream[Table | RangeReader] | None:
        """Load the changes, if any; then the division's table is recoded for them."""
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

    def _open_output(self, events: EventTable | LineFiles | ColumnFiles, labels: Strings) -> Output | LocalOutput:
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
        """Close all files at once, as the end of the block would."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    @contextmanager
    def watched(self, workers: Mapping[int, Opened]) -> Iterator[None]:
        """Observers watch the run while the block lasts; `workers` are the engines by rank."""
        self.status.shares = {rank: Share(each.engine, each.device, each.host) for rank, each in workers.items()}
        with self._watch:
            yield

    def begin(self) -> None:
        """Start the clock."""
        self.status.begin()
        self._started = time.perf_counter()

    @property
    def _totals(self) -> ScanTotals:
        """The sums of the scanned rows."""
        return ScanTotals() if self._scan_log is None else self._scan_log.totals

    def _doubts(self) -> tuple[str, ...]:
        """See `doubts_of`."""
        events = self.events.table
        is_named = events.any_named if isinstance(events, EventTable) else self._totals.named or self._totals.located
        files = map(Path, events.index.files) if isinstance(events, LineFiles) else ()
        return doubts_of(self._vocabulary, is_named, lambda: names_in_events(events), files, self.options.form.id)

    def finish(
        self, opened: Sequence[Opened], round_trips: RoundTrips | None = None, routed_share: float | None = None
    ) -> RunSummary:
        """Put the output in its place, sum up, and say that the run is complete.  Raises FileChanged.

        The clock stops when the answers are in their place; files that they replace are removed after that.
        """
        self.events.table.check_unchanged(0, self.events.table.n_events)
        try:
            missing = Missing(() if self._scan_log is None else self._scan_log.finish(), self._doubts())
            if self.options.strict:
                missing.refuse(self.options.events)
        except ModelError:  # also for an input without a good row; of neither anything is kept
            self._output.discard()
            raise
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
            **of_rows(self.rejects, self._totals, missing),
            round_trip_us=None if round_trips is None else round_trips.in_us(),
            routed_share=routed_share,
            resumed=resumed,
            compile_s=max(each.compile_s for each in opened),
            engine_options={each.engine: dict(each.engine_options) for each in opened if each.engine_options},
        )
        self._output.write_manifest(summary.kept())
        return summary


def _digest(path: Path, schema: Schema) -> str:
    with Reader(path, schema) as reader:
        return str(reader.attributes["digest"])
