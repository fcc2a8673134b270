"""The execution of a run: in threads, or in the main thread of each rank alone.

    THREADED          batches are read, matched and written in threads, while the main thread does the communication
    WITHOUT_THREADS   the main thread does everything, for batches so short that waking another thread and being woken by it
                      takes longer than the work on a batch (`at_once`)

A run uses one of them, and `Execution` has every part that differs.  At once, a master first does the work that a worker
waits for: when an answer arrives, it sends the next batch, whose message is prepared; then it takes the answer and prepares
the message after that.  Writing an answer would take as long as two short round trips; so answers are written twenty times a
second, all that have arrived since in one call.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from mpi_match.cluster.at_once.in_place import AtOnce, WriteAtOnce
from mpi_match.cluster.at_once.matcher import InlineRunner, InlineWorkerWriter
from mpi_match.cluster.engine_runner import EngineRunner
from mpi_match.cluster.options import RunOptions
from mpi_match.cluster.prefetch import READERS, MakeWorkers
from mpi_match.cluster.results.worker_writer import MatchedParts, WorkerWriter
from mpi_match.matches.write_behind import WriteBehind, Writer

SHORT_BATCH_EVENTS = 16
"""Most events of a short batch, which takes less time to read or match than to hand to another thread."""


@dataclass(frozen=True)
class Execution:
    """The parts of a rank that differ between the two executions.

    workers     made for a number of threads, reads batches
    n_ahead     batches that a master has read beyond one for each worker
    n_at_once   batches of an event table whose messages are made at a time
    window      batches behind one that is not answered that may be sent, at least
    lends       batches are read by threads into reused buffers, not made into messages (`at_once.messages`)
    writer      calls the function that writes answers, in order
    joins       answers to consecutive events are written in one call
    matcher     a worker's engine
    written     a matcher that returns answers when they are on disk, in at most `most_parts` parts of the output
    spins       the main thread polls for messages without sleeping, if it has a core of its own
    """

    workers: MakeWorkers
    n_ahead: int
    n_at_once: int
    window: int
    lends: bool
    writer: Writer
    joins: bool
    matcher: type[EngineRunner] | type[InlineRunner]
    written: type[MatchedParts]
    most_parts: int
    spins: bool


THREADED = Execution(
    workers=partial(ThreadPoolExecutor, thread_name_prefix="feed"),
    n_ahead=READERS,
    n_at_once=1,
    window=1,
    lends=True,
    writer=WriteBehind,
    joins=False,
    matcher=EngineRunner,
    written=WorkerWriter,
    most_parts=8,  # about so many threads saturate the memory bandwidth
    spins=False,
)
WITHOUT_THREADS = Execution(
    workers=AtOnce,
    n_ahead=0,
    n_at_once=32,
    window=32,
    lends=False,
    writer=WriteAtOnce,
    joins=True,
    matcher=InlineRunner,
    written=InlineWorkerWriter,
    most_parts=1,
    spins=True,
)


def execution_for(options: RunOptions) -> Execution:
    """The execution for the batch size of a run; messages that are made ahead are the same for all members of a group."""
    return WITHOUT_THREADS if not options.follow and not options.route and options.batch <= SHORT_BATCH_EVENTS else THREADED
