"""Events that a worker has from elsewhere than the master: then an order is a number, and the master touches no event.

    master   the events come with the order, and there is no source
    shared   every host has them in memory once, as they would travel (`broadcast`)
    file     every worker has the event table open and maps the range of a batch

With `file`, the master's path must lead every worker to the same file, which is compared by digest before the run begins.
What reading a batch takes (bringing its pages in, checking their CRC, encoding it when the file was compiled for another
table) is done in threads as soon as the order is there, while the engine matches the batches before it.
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
    """Where a worker has its events from."""

    @property
    def memory(self) -> Sequence[Array]:
        """Arrays that batches lie in, and that stay as they are; none where batches are made when they are asked for."""
        ...

    def first(self) -> EventBatch | None:
        """The first batch, if there are any.  Raises StorageError when it is damaged."""
        ...

    def expect(self, batch: int) -> Expected[EventBatch]:
        """The events of a batch that will be matched soon; to get them raises StorageError when they are damaged, and to
        confirm them FileChanged.
        """
        ...


class SharedSource:
    """The copy of the events that this rank's host has."""

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
    """The event table of a run, as the master has it: which file, and which events of it are in which batch."""

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
    """What the run's feed says, for a block: None when events come with the orders.

    Parameters: `copy` with the feed `shared`; of `n_threads` that this worker has, some read with the feed `file`.  Raises
    StorageError, and ClusterError when the file is not here or another one.
    """
    if copy is not None:
        return nullcontext(SharedSource(copy))
    if options.feed == "master":
        return nullcontext()
    # No more batches are expected at a time than there are credits, and cores are shared with the host's other workers.
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
