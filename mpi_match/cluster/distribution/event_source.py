"""Sources of events other than the master: an order is then a batch number, and the master reads no event.

    master   the events come with the order, without a source
    shared   every host has them in memory once, as they would travel (`broadcast`)
    file     every worker opens the event table and maps the range of a batch

With `file`, the master's path must name the same file on every host; its digest is compared before the run begins.  Threads
read a batch (bring its pages in, check their CRC, encode it when the file was compiled for another table) as soon as the
order arrives, while the engine matches the batches before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from mpi_match.arrays.csr import Array
from mpi_match.cluster.batches import BatchedEvents, BatchRanges
from mpi_match.cluster.distribution.broadcast import EventCopy
from mpi_match.cluster.execution import Execution
from mpi_match.cluster.options import ClusterError, RunOptions
from mpi_match.cluster.prefetch import Expected, Workers
from mpi_match.events.batch import EventBatch
from mpi_match.events.event_table import EventTable
from mpi_match.exit_codes import ExitCode
from mpi_match.storage import StorageError
from mpi_match.table.vocabulary import Vocabulary


class EventSource(Protocol):
    """A source of a worker's events."""

    @property
    def memory(self) -> Sequence[Array]:
        """Constant arrays that batches are views of; empty where batches are made on request."""
        ...

    def first(self) -> EventBatch | None:
        """The first batch, if there are any.  Raises StorageError when it is damaged."""
        ...

    def expect(self, batch: int) -> Expected[EventBatch]:
        """The events of a batch that will be matched soon.

        `get` raises StorageError when they are damaged, `confirm` FileChanged.
        """
        ...


class SharedSource:
    """The shared copy of the events on this rank's host."""

    def __init__(self, copy: EventCopy) -> None:
        self._copy = copy
        self.memory: Sequence[Array] = [copy.memory]

    def first(self) -> EventBatch | None:
        """See `EventSource.first`."""
        return self.expect(0).get() if self._copy.n_batches else None

    def expect(self, batch: int) -> Expected[EventBatch]:
        """See `EventSource.expect`."""
        return Expected(partial(EventBatch.from_wire, self._copy.wire(batch)))


class EventOffer(NamedTuple):
    """The event table of a run on the master: its file, digest and batches."""

    path: Path
    digest: str
    ranges: BatchRanges


class FileSource:
    """The event table of an offer, opened by this rank, whose batches are read by `workers`."""

    def __init__(self, offer: EventOffer, vocabulary: Vocabulary, workers: Workers) -> None:
        self._events = BatchedEvents(_opened(offer, vocabulary), offer.ranges)
        self._workers = workers

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._events.table.__exit__()

    @property
    def memory(self) -> Sequence[Array]:
        """See `EventSource.memory`."""
        return self._events.table.mapped

    def first(self) -> EventBatch | None:
        """See `EventSource.first`."""
        return self.expect(0).get() if self._events.n_batches else None

    def expect(self, batch: int) -> Expected[EventBatch]:
        """See `EventSource.expect`."""
        reading = self._workers.submit(self._events.read, batch)
        return Expected(reading.result, reading.done, partial(self._events.check_unchanged, batch))


def open_source(
    options: RunOptions,
    offer: EventOffer,
    copy: EventCopy | None,
    vocabulary: Vocabulary,
    execution: Execution,
    n_threads: int,
) -> AbstractContextManager[EventSource | None]:
    """The source for the run's feed, as a context manager: None when events come with the orders.

    Parameters: `copy` with the feed `shared`; with the feed `file` some of this worker's `n_threads` read.  Raises
    StorageError, and ClusterError when the file is missing or another one.
    """
    if copy is not None:
        return nullcontext(SharedSource(copy))
    if options.feed == "master":
        return nullcontext()
    # At most `credits` batches are expected at a time, and the cores are shared with the host's other workers.
    return FileSource(offer, vocabulary, execution.workers(min(options.credits, n_threads)))


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
