"""Sources of events other than the master: an order is then a batch number, and the master reads no event.

    master   the events come with the order, without a source
    shared   every host has them in memory once, as they would travel (`broadcast`)
    file     every worker opens the event table and reads the range of a batch

With `file`, the master's path must name the same file on every host; the digest of an event table is compared before the run
begins, the size of a file of rows, and the checksums of its blocks when they are read.  Threads read a batch (and check its
CRC, or encode it when the file was compiled for another table) as soon as the order arrives, while the engine matches the
batches before it.  Rows are scanned by the engine's thread, with all threads of the engine, when it takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from mpi_match.arrays.csr import Array
from mpi_match.cluster.batches import BatchedEvents, BatchRanges
from mpi_match.cluster.distribution.broadcast import EventCopy
from mpi_match.cluster.follow.rows import FollowedOffer, RowsOfFiles, RowsOfFilesScanner
from mpi_match.cluster.options import NOT_EVERYWHERE, ClusterError, RunOptions
from mpi_match.cluster.prefetch import Expected, MakeWorkers, ReadWorkers
from mpi_match.engines.base import Engine
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.batches.column_files import ColumnFiles
from mpi_match.ingest.batches.line_files import LineFiles
from mpi_match.ingest.batches.offer import RowsOffer, Scanner
from mpi_match.ingest.batches.row_batch import RowBatch
from mpi_match.ingest.batches.scan_report import ScanReport
from mpi_match.storage import StorageError
from mpi_match.table.vocabulary import Vocabulary

SCANS_AT_ONCE = 2
"""Batches of lines on their way to a GPU: one is copied while another is scanned."""
Read = TypeVar("Read", bound=EventBatch | RowBatch | RowsOfFiles)


class EventSource(Protocol):
    """A source of a worker's events."""

    @property
    def memory(self) -> Sequence[Array]:
        """Constant arrays that batches are views of; empty where batches are made on request."""
        ...

    def open_for(self, engine: Engine) -> None:
        """Make the next batches in the engine's thread, when the engine takes them."""
        ...

    def first(self) -> EventBatch | None:
        """The first batch, or None.  Raises StorageError when it is damaged."""
        ...

    def expect(self, batch: int, wire: Array) -> Expected[EventBatch]:
        """The events of a batch that will be matched soon.  `wire` u8 is what comes with the order; it has arrived by the
        time that the events are taken.

        `get` raises StorageError when they are damaged, `confirm` FileChanged.
        """
        ...


class _Unscanned:
    """A source whose batches are the same for every engine."""

    def open_for(self, engine: Engine) -> None:
        """See `EventSource.open_for`."""


class OrderSource(_Unscanned, Generic[Read]):
    """The wire form that comes with an order."""

    memory: Sequence[Array] = ()

    def __init__(self, decode: Callable[[Array], Read], first: Read | None = None) -> None:
        self._decode, self._first = decode, first

    def first(self) -> Read | None:
        """See `EventSource.first`: no order has arrived yet, so this is the batch that the constructor was given."""
        return self._first

    def expect(self, batch: int, wire: Array) -> Expected[Read]:
        """See `EventSource.expect`."""
        return Expected(partial(self._decode, wire))


class SharedSource(_Unscanned, Generic[Read]):
    """The shared copy of the events on this rank's host."""

    def __init__(self, copy: EventCopy, decode: Callable[[Array], Read]) -> None:
        self._copy, self._decode = copy, decode
        self.memory: Sequence[Array] = [copy.memory]

    def first(self) -> Read | None:
        """See `EventSource.first`."""
        return self._decode(self._copy.wire(0)) if self._copy.n_batches else None

    def expect(self, batch: int, wire: Array) -> Expected[Read]:
        """See `EventSource.expect`."""
        return Expected(partial(self._decode, self._copy.wire(batch)))


class EventOffer(NamedTuple):
    """The events of a run on the master: the file of an event table, its digest, and the batches.  `rows` is set for files
    of rows, and for rows that arrive during the run, in batches that are not known beforehand."""

    path: Path
    digest: str
    ranges: BatchRanges | None
    rows: RowsOffer | FollowedOffer | None


class FileSource:
    """The events of an offer, opened by this rank, whose batches are read by `workers`."""

    def __init__(self, offer: EventOffer, vocabulary: Vocabulary, workers: ReadWorkers) -> None:
        assert offer.ranges is not None
        assert not isinstance(offer.rows, FollowedOffer)
        table = _opened(offer, vocabulary) if offer.rows is None else _opened_rows(offer.rows)
        self._events = BatchedEvents(table, offer.ranges)
        self._workers = workers

    def open_for(self, engine: Engine) -> None:
        """See `EventSource.open_for`: events are read into memory that a GPU copies from."""
        self._events.table.read_into(engine.host_memory)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._events.table.__exit__()

    @property
    def memory(self) -> Sequence[Array]:
        """See `EventSource.memory`: each batch has its own."""
        return ()

    def first(self) -> Any:
        """See `EventSource.first`."""
        return self._events.read(0) if self._events.n_batches else None

    def expect(self, batch: int, wire: Array) -> Expected[Any]:
        """See `EventSource.expect`."""
        reading = self._workers.submit(self._events.read, batch)
        return Expected(reading.result, reading.done, partial(self._events.check_unchanged, batch))


class ScannedSource:
    """Events scanned from the rows of another source, a context manager.

    On a GPU, lines that do not come with an order are scanned in threads of `workers` as soon as they arrive.
    """

    def __init__(
        self,
        rows: OrderSource[Any] | SharedSource[RowBatch] | FileSource,
        scanner: Scanner | RowsOfFilesScanner,
        workers: ReadWorkers,
        another: Callable[[Vocabulary], Scanner | RowsOfFilesScanner] | None = None,
    ) -> None:
        self._rows: Any = rows
        self._scanner, self._another = scanner, another
        self._workers = workers

    def __enter__(self) -> ScannedSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.shutdown(cancel_futures=True)

    @property
    def memory(self) -> Sequence[Array]:
        """See `EventSource.memory`: a GPU that scans lines copies from there."""
        found: Sequence[Array] = self._rows.memory
        return found

    def open_for(self, engine: Engine) -> None:
        """See `EventSource.open_for`."""
        self._scanner.choose(engine.scanner)
        self._rows.open_for(engine)

    def renew(self, vocabulary: Vocabulary) -> None:
        """Scan rows to come into the codes of this vocabulary, after `open_for`."""
        assert self._another is not None
        self._scanner = self._another(vocabulary)

    def first(self) -> EventBatch | None:
        """See `EventSource.first`."""
        rows = self._rows.first()
        return None if rows is None else self._scanner.scan(rows)[0]

    def expect(self, batch: int, wire: Array) -> Expected[EventBatch]:
        """See `EventSource.expect`."""
        rows = self._rows.expect(batch, wire)
        if self._scanner.is_on_gpu and not isinstance(self._rows, OrderSource):
            scanning = self._workers.submit(lambda: self._scanner.scan(rows.get()))
            return Expected(
                lambda: scanning.result()[0], scanning.done, rows.confirm, lambda: scanning.result()[1].to_wire()
            )
        found: list[ScanReport] = []

        def get() -> EventBatch:
            events: EventBatch
            events, report = self._scanner.scan(rows.get())
            found.append(report)
            return events

        return Expected(get, rows.is_here, rows.confirm, lambda: found[0].to_wire())


def open_source(
    options: RunOptions,
    offer: EventOffer,
    copy: EventCopy | None,
    vocabulary: Vocabulary,
    workers: MakeWorkers,
    n_threads: int,
) -> AbstractContextManager[EventSource | None]:
    """The source for the run's feed, as a context manager; it gives None when encoded events come with the orders.

    Parameters: `copy` with the feed `shared`; with the feed `file` some of this worker's `n_threads` read.  Raises
    StorageError, and ClusterError when the file is missing or another one.
    """
    if offer.rows is not None:
        return _scanned(options, offer, offer.rows, copy, vocabulary, workers, n_threads)
    if copy is not None:
        return nullcontext(SharedSource(copy, EventBatch.from_wire))
    return nullcontext() if options.feed == "master" else _file_source(options, offer, vocabulary, workers, n_threads)


def _file_source(
    options: RunOptions, offer: EventOffer, vocabulary: Vocabulary, workers: MakeWorkers, n_threads: int
) -> FileSource:
    # At most `credits` batches are expected at a time, and the cores are shared with the host's other workers.
    return FileSource(offer, vocabulary, workers(min(options.credits, n_threads)))


@contextmanager
def _scanned(
    options: RunOptions,
    offer: EventOffer,
    rows: RowsOffer | FollowedOffer,
    copy: EventCopy | None,
    vocabulary: Vocabulary,
    workers: MakeWorkers,
    n_threads: int,
) -> Iterator[EventSource]:
    with ExitStack() as stack:
        source: OrderSource[Any] | SharedSource[RowBatch] | FileSource
        if isinstance(rows, FollowedOffer):
            source = OrderSource(RowsOfFiles.from_wire, rows.first())
        elif copy is not None:
            source = SharedSource(copy, RowBatch.from_wire)
        elif options.feed == "master":
            source = OrderSource(RowBatch.from_wire)
        else:
            source = stack.enter_context(_file_source(options, offer, vocabulary, workers, n_threads))
        another = partial(rows.scanner, threads=n_threads)
        yield stack.enter_context(ScannedSource(source, another(vocabulary), workers(SCANS_AT_ONCE), another))


def _opened_rows(rows: RowsOffer) -> LineFiles | ColumnFiles:
    for name, n_bytes in zip(rows.content.files, rows.content.n_bytes.tolist(), strict=True):
        found = Path(name).stat().st_size if Path(name).is_file() else None
        if found is None or found < n_bytes:
            what = "no such file" if found is None else f"has {found:,} bytes here, {n_bytes:,} on the master's host"
            raise ClusterError(f"{name}: {NOT_EVERYWHERE.format(what)}", ExitCode.BAD_INPUT)
    return rows.open()


def _opened(offer: EventOffer, vocabulary: Vocabulary) -> EventTable:
    try:
        events = EventTable(offer.path, vocabulary)
    except StorageError as error:
        raise ClusterError(
            f"{error}; with --feed file every host must have the event table there", ExitCode.BAD_INPUT
        ) from error
    if events.digest != offer.digest:
        events.__exit__()
        raise ClusterError(
            f"{offer.path}: is another event table here than on the master's host: found digest {events.digest}, expected "
            f"{offer.digest}; use --feed master, or copy the file",
            ExitCode.BAD_INPUT,
        )
    return events
