"""The files of a followed run, opened by the one process that accesses them; `run_files.RunFiles` serves other runs."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.cluster.distribution.partition import Division
from mpi_match.cluster.follow.answer_files import AnswerFiles
from mpi_match.cluster.follow.answer_streams import AnswerStream, write_standard_output
from mpi_match.cluster.follow.arrivals import CHANGES_DIRECTORY, EVENTS_DIRECTORY, Arrivals, ArrivedBatch, DirectoryArrivals
from mpi_match.cluster.follow.changes import MOST_IDS, ChangeReader, VersionsOfTable
from mpi_match.cluster.follow.directory import FollowedDirectory
from mpi_match.cluster.follow.latency import Latencies
from mpi_match.cluster.follow.rows import FollowedOffer, RowsOfFiles, no_rows
from mpi_match.cluster.follow.streams import SocketArrivals, StandardInput
from mpi_match.cluster.messages import Written
from mpi_match.cluster.options import RunOptions, RunSummary
from mpi_match.cluster.run_files import Opened
from mpi_match.cluster.scheduling.timeouts import RoundTrips
from mpi_match.errors import MpiMatchError
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.ingest.files.listen import address_of, listener_on
from mpi_match.ingest.rows.formats import endings_of
from mpi_match.ingest.rows.judge import Reject
from mpi_match.ingest.rows.reject_log import RejectLog
from mpi_match.ingest.rows.row_files import STDIN, STDOUT
from mpi_match.journal.manifest import COMPLETE, INCOMPLETE, remove_manifest, write_manifest
from mpi_match.matches.matches import Matches
from mpi_match.monitor.status import RunStatus, Share
from mpi_match.storage import Reader
from mpi_match.table.schema import TABLE
from mpi_match.table.table import Table

if TYPE_CHECKING:
    from mpi_match.cluster.distribution.event_source import EventOffer  # loads MPI, and a run of one process has none
    from mpi_match.matches.json_lines import LineWriter

log = logging.getLogger(__name__)

THIS_PROCESS = 0
"""The rank of a run of one process."""
FOLLOWING = "running"
"""State of the manifest while a run follows its input."""


class ArrivedRanges:
    """The batches that have arrived and are not written yet, by number; `of` gives the events of a batch.

    written_version   of the table, for the last batch that was written
    """

    def __init__(self, first: int) -> None:
        self._batches: dict[int, ArrivedBatch] = {}
        self.n_batches, self._next = 0, first
        self.written_version = 0
        self.n_events = 0

    def add(self, batch: ArrivedBatch) -> None:
        """Add the next batch, which has arrived."""
        self._batches[self.n_batches] = batch
        self.n_batches += 1
        self._next += batch.n_events
        self.n_events += batch.n_events

    def gap_after(self, batch: int) -> int:
        """Nothing: no batch comes after a gap."""
        return sys.maxsize

    def of(self, batch: int) -> tuple[int, int]:
        """First event of a batch, and the one after its last; for a batch that has not arrived, the next event twice."""
        found = self._batches.get(batch)
        return (self._next, self._next) if found is None else (found.first, found.first + found.n_events)

    def rows(self, batch: int) -> RowsOfFiles:
        """The rows of a batch; none when it is written, since another answer to it is not used."""
        found = self._batches.get(batch)
        return no_rows() if found is None else found.rows

    def version(self, batch: int) -> int:
        """The version of the table for a batch."""
        found = self._batches.get(batch)
        return self.written_version if found is None else found.version

    def pop(self, batch: int) -> ArrivedBatch:
        """Remove a batch and release its memory."""
        found = self._batches.pop(batch)
        self.written_version = found.version
        return found


class ArrivedEvents:
    """The events of these batches, as `batches.BatchedEvents` has those of files."""

    table = None

    def __init__(self, ranges: ArrivedRanges) -> None:
        self.ranges = ranges

    @property
    def n_batches(self) -> int:
        """Number of batches so far."""
        return self.ranges.n_batches

    def read(self, batch: int) -> RowsOfFiles:
        """The rows of a batch that is not answered yet."""
        return self.ranges.rows(batch)

    def read_wires(self, batch: int, n: int) -> Iterator[bytes]:
        """The wire form of a batch."""
        yield self.read(batch).to_wire().tobytes()


class FollowedAnswers:
    """Writes the answers of a run, batch by batch, as `answers.BatchedAnswers` does."""

    by_workers = False

    def __init__(
        self, files: AnswerFiles | AnswerStream, ranges: ArrivedRanges, n_ids: int, status: RunStatus, rejects: RejectLog
    ) -> None:
        self.ranges = ranges
        self._files, self._n_ids, self._status, self._log = files, n_ids, status, rejects
        self._rejects: list[Reject] = []
        self.latencies = Latencies()
        self.n_flagged = self.n_on_gpu = self.n_rejected = 0

    def report(self, batch: int, report: bytes | memoryview) -> None:
        """Record the report of the next batch to be written.  Raises ModelError for a bad row under `strict`."""
        found = ScanReport.from_wire(report)
        self.n_flagged += found.n_flagged
        self.n_on_gpu += found.n_on_gpu
        self._rejects += found.rejects
        self._log.extend(found.rejects)

    def write(self, batch: int, counts: Array, ids: Array) -> None:
        """Write the answers of a batch; batches ascend."""
        arrived = self._pop(batch)
        self._files.write(Matches.from_counts(counts, ids, self._n_ids), arrived, self._rejects)
        self._rejects = []
        now = time.monotonic()
        for at, n in arrived.arrivals:
            self.latencies.add(now - at, n)
        self._status.wrote(arrived.n_events, len(ids))

    def _pop(self, batch: int) -> ArrivedBatch:
        """Take a batch, and what its versions of the table say."""
        arrived = self.ranges.pop(batch)
        for version in arrived.versions:
            self._files.name(version.labels)
            self._rejects += version.rejects
            self._log.extend(version.rejects)
        return arrived

    def wrote(self, batch: int, n_ids: int, rank: int, where: Written) -> None:
        """Never called: no worker writes answers of a followed run."""
        raise AssertionError

    def confirm(self, start: int, stop: int) -> None:
        """Do nothing: rows stay in memory until they are answered."""

    def set_aside(self, batch: int) -> None:
        """Keep the rows of a batch that has no answers because workers died of it or failed on it."""
        arrived = self._pop(batch)
        path = self._files.set_aside(arrived)
        first, last = arrived.first, arrived.first + arrived.n_events - 1
        kept = "" if path is None else f"; they are in {path}"
        log.error("events %d to %d have no answers: workers died of them or failed on them%s", first, last, kept)


class FollowedFiles:
    """Table, events to come and output of a followed run; a context manager.

    The attributes that a master needs are those of `RunFiles`; `take_up` takes the events that have arrived.
    """

    places = None

    def __init__(self, options: RunOptions, workers: Sequence[int] = (THIS_PROCESS,)) -> None:
        self.options, self._workers = options, workers
        self._stack = ExitStack()
        self._finished = False
        self._listening = ""

    def __enter__(self) -> FollowedFiles:
        from mpi_match.ingest.files.line_pass import compile_pass  # these load Numba
        from mpi_match.matches.json_lines import LineWriter, compile_lines

        options = self.options
        options.check()
        with self._stack:
            directories = self._directories()  # before the table is read
            self.division = self._stack.enter_context(Division(options, len(self._workers)))
            if options.changes is not None:
                self.n_ids = MOST_IDS
            else:
                self.n_ids = self.division.table.n_filters if options.filters else self.division.table.n_interfaces
            labels = Strings.of(()) if options.filters else self.division.table.labels
            compile_pass()
            compile_lines()
            self.rejects = self._stack.enter_context(RejectLog(options.rejects, options.strict))
            self.rejects.begin(options.events)
            lines = LineWriter("filter" if options.filters else "interface", labels)
            self._output = self._open_output(lines)
            self._stack.enter_context(self._output)
            self._earlier = earlier = self._output.progress
            if options.keeps_answers:
                remove_manifest(options.output)
            taken = {each.number: each.taken for each in directories}
            for key in (*self._output.done, *([] if earlier.reading is None else [earlier.reading[0]])):
                taken[key.directory][key.name] = key
            self._output.is_there = lambda key: taken[key.directory].get(key.name) == key
            self.ranges = ArrivedRanges(earlier.events)
            reader = self.changes = None
            if options.changes is not None:
                assert isinstance(self.division.table, Table)
                earlier_changes = self._output.earlier_changes
                reader = ChangeReader(self.division.table, earlier_changes, reuse_ids=not options.filters)
                if reader.first is not None:
                    self._output.name(reader.first.labels)
                self.changes = VersionsOfTable(self.ranges, self._workers, reader.first)
            self.events = ArrivedEvents(self.ranges)
            given = directories, options.batch, options.max_delay, earlier.events, reader
            self._arrivals: Arrivals
            if options.listen:
                listener = self._stack.enter_context(listener_on(options.listen))
                assert listener is not None
                self._listening = address_of(listener)
                self._arrivals = SocketArrivals(listener, options.limits, log.warning, *given)
            elif options.events == STDIN:
                self._arrivals = StandardInput(*given)
            else:
                self._arrivals = DirectoryArrivals(options.form, earlier.reading, options.feed == "file", *given)
            self._output.send = self._arrivals.answered
            self.status = RunStatus(0, n_resumed=earlier.events)
            self._watch = nullcontext() if options.watch is None else options.watch(self.status)
            self.answers = FollowedAnswers(self._output, self.ranges, self.n_ids, self.status, self.rejects)
            self.status.latency_us = self.answers.latencies.in_us
            self._stack = self._stack.pop_all()
        return self

    def _directories(self) -> list[FollowedDirectory]:
        options = self.options
        found = [] if options.is_stream else [FollowedDirectory(options.events, EVENTS_DIRECTORY)]
        if options.changes is not None:
            endings = endings_of(lambda each: not each.lines and not each.columns)
            found.append(FollowedDirectory(options.changes, CHANGES_DIRECTORY, endings=endings))
        return found

    def _open_output(self, lines: LineWriter) -> AnswerFiles | AnswerStream:
        options = self.options
        if options.keeps_answers:
            return AnswerFiles(options.output, self._identity(), lines, options.file_bytes, options.file_s)
        return AnswerStream(lines, write_standard_output if options.output == STDOUT else None)

    def _identity(self) -> dict[str, object]:
        """The options that must be the same when a later run continues this one."""
        options = self.options
        with Reader(options.table, TABLE) as reader:
            digest = str(reader.attributes["digest"])
        form = {name: value for name, value in options.form._asdict().items() if value}
        return {
            "table": digest,
            "directory of events": options.listen or str(options.events.absolute()),
            "answers in": "filters" if options.filters else "interfaces",
            "form of events": repr(form),
            "directory of changes": None if options.changes is None else str(options.changes.absolute()),
        }

    def offer(self) -> EventOffer:
        """The events to come, for workers."""
        from mpi_match.cluster.distribution.event_source import EventOffer

        return EventOffer(self.options.events.absolute(), "", None, FollowedOffer(self.options.form))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not self._finished:
            self._finished = True
            with suppress(MpiMatchError, OSError):
                self._say(INCOMPLETE, reason=str(error) or type(error).__name__)
        self._stack.__exit__(kind, error, trace)

    def leave(self, error: BaseException) -> None:
        """Close all files at once, as the end of the block would."""
        self.__exit__(type(error), error, error.__traceback__)

    @contextmanager
    def watched(self, workers: Mapping[int, Opened]) -> Iterator[None]:
        """See `RunFiles.watched`."""
        self.status.shares = {rank: Share(each.engine, each.device, each.host) for rank, each in workers.items()}
        with self._watch:
            yield

    def begin(self) -> None:
        """Start the clock, and take what comes from now on."""
        self._stack.enter_context(self._arrivals)
        self._say(FOLLOWING)
        self.status.begin()
        self._started = time.perf_counter()
        log.info("following %s", self._listening or self.options.events)

    def stop(self) -> None:
        """Stop reading events; those that were read are still matched."""
        self._arrivals.stop()

    @property
    def ended(self) -> bool:
        """Tells whether no more events will come."""
        return self._arrivals.ended

    def take_up(self, timeout_s: float = 0.0) -> bool:
        """Take the next batch, if one has arrived within the time.  Raises what reading it raised, and StorageError when
        earlier answers could not be written."""
        self._output.check()
        batch = self._arrivals.take(timeout_s)
        if batch is None:
            return False
        self.ranges.add(batch)
        if self.changes is not None:
            self.changes.add(batch.versions)
        self.status.n_events += batch.n_events
        return True

    def finish(
        self, opened: Sequence[Opened], round_trips: RoundTrips | None = None, routed_share: float | None = None
    ) -> RunSummary:
        """Commit the last answers, and say that the run has ended."""
        self._output.finish()
        untaken, cut_off = self._arrivals.drain()
        self.status.end()
        wall_s = time.perf_counter() - self._started
        progress, earlier = self._output.progress, self._earlier
        summary = RunSummary(
            events=progress.events,
            matches=progress.matches,
            wall_s=wall_s,
            events_per_s=(progress.events - earlier.events) / wall_s,
            engine=", ".join(sorted({each.engine for each in opened})),
            device=", ".join(f"{n} x {it}" if n > 1 else it for it, n in Counter(o.device for o in opened).items()),
            workers=len(opened),
            rejected=progress.rejected,
            first_rejects=tuple(self.rejects.first),
            flagged=self.answers.n_flagged,
            scanned_on_gpu=self.answers.n_on_gpu,
            round_trip_us=None if round_trips is None else round_trips.in_us(),
            routed_share=routed_share,
            latency_us=self.answers.latencies.in_us(),
            resumed=earlier.events,
            untaken=untaken,
            cut_off=cut_off,
            compile_s=max(each.compile_s for each in opened),
            engine_options={each.engine: dict(each.engine_options) for each in opened if each.engine_options},
        )
        self._finished = True
        self._say(INCOMPLETE if progress.set_aside else COMPLETE, set_aside=progress.set_aside, **summary.kept())
        return summary

    def _say(self, state: str, **more: object) -> None:
        if self.options.keeps_answers:
            write_manifest(self.options.output, {"state": state, **self._identity(), **more})
