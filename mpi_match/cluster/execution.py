"""Threaded or inline execution: whether a rank reads, matches and writes in threads of its own.

    THREADED   batches are read, matched and written in threads, while the main thread does the communication
    INLINE     the main thread does everything, for batches so short that waking another thread and being woken by it takes
               longer than the work on a batch

A run uses one of them, and `Execution` has every part that differs.  An inline master first does the work that a worker
waits for: when an answer arrives, it sends the next batch, then reads the one after that, and polls for the next answer in
between.  That takes about as long as a short round trip, and writing an answer would take as long again; so answers are
written every few milliseconds, all that have arrived since in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from mpi_match.cluster.engine_runner import EngineRunner, InlineRunner
from mpi_match.cluster.options import RunOptions
from mpi_match.cluster.ordered_writer import WriteAtOnce, WriteBehind, Writer
from mpi_match.cluster.prefetch import READERS, AtOnce, Workers
from mpi_match.cluster.results.worker_writer import InlineWorkerWriter, WorkerWriter

SHORT_BATCH_EVENTS = 16
"""A batch of at most so many events takes less time to read or match than to hand to another thread."""


@dataclass(frozen=True)
class Execution:
    """The parts of a rank that differ between the two executions.

    workers     made for a number of threads, reads batches
    n_ahead     batches that a master has read beyond one for each worker
    lends       does a batch lie in a reused buffer, rather than in a copy of its own?
    meanwhile   called with the function that polls for messages, between two pieces of the main thread's work
    writer      calls the function that writes answers, in order
    joins       are answers to consecutive events written in one call?
    matcher     a worker's engine
    written     a matcher that returns answers when they are on disk, in at most `most_parts` parts of the output
    spins       does the main thread poll for messages without sleeping, if it has a core of its own?
    """

    workers: Callable[[int], Workers]
    n_ahead: int
    lends: bool
    meanwhile: Callable[[Callable[[], object]], object]
    writer: Writer
    joins: bool
    matcher: type[EngineRunner] | type[InlineRunner]
    written: type[InlineWorkerWriter]
    most_parts: int
    spins: bool


THREADED = Execution(
    workers=partial(ThreadPoolExecutor, thread_name_prefix="feed"),
    n_ahead=READERS,
    lends=True,
    meanwhile=lambda _: None,
    writer=WriteBehind,
    joins=False,
    matcher=EngineRunner,
    written=WorkerWriter,
    most_parts=8,  # about so many threads saturate the memory bandwidth
    spins=False,
)
INLINE = Execution(
    workers=AtOnce,
    n_ahead=0,
    lends=False,
    meanwhile=lambda look: look(),
    writer=WriteAtOnce,
    joins=True,
    matcher=InlineRunner,
    written=InlineWorkerWriter,
    most_parts=1,
    spins=True,
)


def execution_for(options: RunOptions) -> Execution:
    """The execution for the batch size of a run."""
    return INLINE if options.batch <= SHORT_BATCH_EVENTS else THREADED
