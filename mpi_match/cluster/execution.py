"""What of a rank's work is done in threads of its own: all that can be, or nothing.

    THREADED   batches are read, matched and written in threads, while the main thread talks
    INLINE     the main thread does everything itself, for batches that are so short that to wake another thread and be woken
               by it takes longer than what is done with one

One of them is chosen for a run, and has or makes all that differs.  An inline master does first what a worker waits for:
when an answer comes, the next batch is sent, and the one after that read, with looks for the next answer in between.  That
takes about as long as a short trip, and to write an answer would take as long again; so answers are written every few
milliseconds, all that have come since in one go.
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
from mpi_match.cluster.results.worker_writer import WrittenAtOnce, WrittenHere

SHORT_BATCH_EVENTS = 16
"""A batch of at most so many events is sooner read or matched than handed to another thread."""


@dataclass(frozen=True)
class Execution:
    """What does the work of a rank.

    workers     made for a number of threads, reads batches
    n_ahead     batches that a master has read beyond one for each worker
    lends       does a batch lie in a buffer that is used again, rather than in a copy of its own?
    meanwhile   called with what looks for messages, between two pieces of the main thread's work
    writer      made for what writes answers, calls it in order
    joins       are answers to events that follow each other written in one go?
    matcher     a worker's engine
    written     a matcher whose answers are on disk when they are got, in at most `most_parts` parts of the output
    tireless    does the main thread look for messages without sleeping, if it has a core of its own?
    """

    workers: Callable[[int], Workers]
    n_ahead: int
    lends: bool
    meanwhile: Callable[[Callable[[], object]], object]
    writer: Writer
    joins: bool
    matcher: type[EngineRunner] | type[InlineRunner]
    written: type[WrittenAtOnce]
    most_parts: int
    tireless: bool


THREADED = Execution(
    workers=partial(ThreadPoolExecutor, thread_name_prefix="feed"),
    n_ahead=READERS,
    lends=True,
    meanwhile=lambda _: None,
    writer=WriteBehind,
    joins=False,
    matcher=EngineRunner,
    written=WrittenHere,
    most_parts=8,  # a memory takes the bytes of about so many threads
    tireless=False,
)
INLINE = Execution(
    workers=AtOnce,
    n_ahead=0,
    lends=False,
    meanwhile=lambda look: look(),
    writer=WriteAtOnce,
    joins=True,
    matcher=InlineRunner,
    written=WrittenAtOnce,
    most_parts=1,
    tireless=True,
)


def execution_for(options: RunOptions) -> Execution:
    """The one that suits the size of a run's batches."""
    return INLINE if options.batch <= SHORT_BATCH_EVENTS else THREADED
