"""The cluster: rank 0 is the master, every other rank a worker with one engine.

    rank 0   job ─► table once, then batches, `credits` at a time ─► worker   engine.match
             answers written in event order ◄─ counts and ids ◄────

    dispatch       who gets which batch: pure state, no MPI, no clock
    instructions   all that it can say
    groups         which workers answer together, what they hold, and where the other batches wait
    placement      which filters a worker has: groups, and a table divided by work
    work           how much work a filter is
    regrouping     what becomes of a group that has lost a member
    part           a member's part: its own numbers of filters, everybody's, and the part as bytes
    union          answers of a group's members as one
    launcher       what the environment says about how this process was started
    job            the files of a run, opened and checked before anything else
    extents        which events are in which batch
    output         the answers on their way to the file; a run taken up again
    journal        answers that are safe before the file is whole
    local_output   the same where workers write the answers
    feed           the next batches, read and checked ahead of time
    turns          answers whose turn it is, written while the next ones come
    messages       what the parts of a worker, and of the master, hand to each other
    matcher        a worker's engine, in a thread of its own where that pays
    deadlines      how long batches take, and how long the master waits for a worker
    protocol       what master and workers say to each other
    shares         a host's cores and GPUs, divided among its workers
    patience       how a rank waits
    interruption   SIGTERM is Ctrl-C
    farewell       how a process that ran MPI ends
    alone          a run of one process, which needs no MPI
    supervisor     starts a run, and starts it again, from outside of the launcher
    restarts       whether to: pure decisions
    hostfile       files of hosts, and the same without some

    ranks          a run of many, or the reason why it is none
    roll           who has come how far in set-up, who stands still, and who has left
    consensus      steps that succeed on all ranks or fail on all, with one line of text
    topology       which ranks share a host
    host_memory    memory that the ranks of a host share, and how much may still be taken
    written_here   answers that a worker writes itself, into its parts of the output
    table_copy     the table or its parts, and the events, from the master into one copy per host
    sources        events that a worker has from elsewhere than the master
    channel        how messages travel
    orders         what goes to the workers
    arrivals       what comes from them
    master, worker

Importing those from `mpi_run` on starts MPI; nothing does that before a run has found that it was launched as several
ranks.  `run` is all that the outside calls.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from mpi_match.monitor.status import Standing

PLACEMENTS = ("replicate", "shard", "hybrid")
"""Which filters a worker has.  `replicate`: all of them, so a batch goes to one worker.  `shard`: a part, so a batch goes to
all and their answers are united.  `hybrid`: a part of what its group has, and a batch goes to one group."""
SCHEDULES = ("dynamic", "static")
"""Which worker gets a batch.  `dynamic`: one that has just answered.  `static`: batch k's is k modulo their number."""
FEEDS = ("master", "shared", "file")
"""How a batch comes to a worker.  `master`: the master sends its bytes.  `shared`: every host has all events in memory once,
before the clock starts.  `file`: the worker reads it from the event table, whose path must lead to the same file on every
host.  With these two the master sends numbers."""
RESULTS = ("master", "local")
"""Who writes the answers.  `master`: the master, into one file.  `local`: every worker, into a part of its own beside the
output, in a directory that all hosts share; the output is an index that reads as one file."""

FEW_EVENTS = 16
"""A batch of at most so many events is sooner read or matched than handed to another thread: there are none then."""


class ClusterError(Exception):
    """A run cannot start or go on; the text says why and what to do.

    `exit_code` is what the process should exit with (the command line's table).  `quiet` is set on all ranks but the
    one that is to print the text, so that one failure is one line and not one per rank.
    """

    def __init__(self, text: str, exit_code: int = 1, *, quiet: bool = False) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.quiet = quiet


@dataclass(frozen=True)
class RunOptions:
    """What a run does.

    table, events, output   files; on the master's host, no other rank opens them (but the events, with feed `file`)
    changes                 file of changes that take effect between events (`changes.log`); None: the table stays as it is
    engine                  a name of `engines.ENGINES`, or "auto"
    batch                   events per batch
    schedule, placement, feed, results   see SCHEDULES, PLACEMENTS, FEEDS, RESULTS
    groups                  how many groups of workers there are with placement `hybrid`; None with any other
    memory_limit            bytes that the table, or its part, may take in a worker's memory; None: what there is
    credits                 batches that a worker may hold unanswered
    setup_limit             seconds for which nothing may be heard of a rank before the first batch: see `cluster.roll`
    deadline                seconds after which a batch is given to another worker too; None: see `cluster.deadlines`
    filters                 answer with filters instead of interfaces
    gpu_map                 GPU number for each of a host's workers, in the order of their local ranks, among those that
                            they see; None: 0, 1, ..., from the first again when there are fewer
    share_gpus              may two workers be on one GPU?
    resume                  go on from the journal of a run that did not end, if there is one
    journal                 keep answers safe in a journal while the run lasts
    threads                 CPU threads per worker; None: NUMBA_NUM_THREADS, else the host's cores divided by its workers
    progress                called on rank 0 with (events written, events in all)
    watch                   called on rank 0 with the run's `Standing` when all workers are ready; what it returns is entered
                            before the first batch and left after the last answer, or when the run fails
    """

    table: Path
    events: Path
    output: Path
    changes: Path | None = None
    engine: str = "auto"
    batch: int = 65536
    schedule: str = "dynamic"
    placement: str = "replicate"
    groups: int | None = None
    memory_limit: int | None = None
    feed: str = "master"
    results: str = "master"
    credits: int = 4
    setup_limit: float = 600.0
    deadline: float | None = None
    filters: bool = False
    gpu_map: tuple[int, ...] | None = None
    share_gpus: bool = False
    resume: bool = False
    journal: bool = True
    threads: int | None = None
    progress: Callable[[int, int], None] | None = None
    watch: Callable[[Standing], AbstractContextManager[object]] | None = None

    @property
    def short_batches(self) -> bool:
        """Are batches so short that what is done with one takes less than handing it to another thread?"""
        return self.batch <= FEW_EVENTS

    def check(self) -> None:
        """Raise ClusterError for an option out of its range."""
        for name in ("batch", "credits", "threads", "groups", "memory_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ClusterError(f"{name} is {value}; it must be at least 1", 2)
        for name in ("setup_limit", "deadline"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ClusterError(f"{name} is {seconds:g}; it must be more than 0 seconds", 2)
        registries = {"schedule": SCHEDULES, "placement": PLACEMENTS, "feed": FEEDS, "results": RESULTS}
        for name, choices in registries.items():
            value = getattr(self, name)
            if value not in choices:
                raise ClusterError(f"{name} is {value!r}; there is: {', '.join(choices)}", 2)
        if self.results == "local" and self.placement != "replicate":
            raise ClusterError(
                f"results is 'local', but with placement {self.placement!r} no worker has a whole answer; "
                "use results 'master'",
                2,
            )
        if (self.groups is None) != (self.placement != "hybrid"):
            raise ClusterError(
                "--placement hybrid needs --groups, and no other has it: into how many groups go the workers?", 2
            )
        for path in (self.table, self.events, self.changes):
            if path is not None and self.output.exists() and path.exists() and self.output.samefile(path):
                raise ClusterError(f"the output {self.output} would overwrite an input; give it another name", 2)


@dataclass(frozen=True)
class RunSummary:
    """What a run did.

    events, matches   events answered; (event, interface) pairs, with `filters` (event, filter) pairs
    wall_s            from the first batch until the answers are on disk; loading and building come before that, and with the
                      feed `shared` also reading the events
    engine, device    as the workers report them; "2 x NVIDIA H200" where two say the same
    workers           engines that took part: 1 without a launcher
    round_trip_us     how long batches took from the master, encoded, to a worker and back, answered: `p50` and `p99` in µs
                      (to 1 %); the time that they waited behind others at the worker is in it, so credits matter; None alone
    rejected          events set aside by the run itself; those set aside when the event table was made are not in it
    resumed           events whose answers were taken from the journal of an earlier run; `events_per_s` is without them
    """

    events: int
    matches: int
    wall_s: float
    events_per_s: float
    engine: str
    device: str
    workers: int
    rejected: int
    round_trip_us: dict[str, float] | None = None
    resumed: int = 0


def run(options: RunOptions) -> RunSummary | None:
    """Match all events of a run and write the answers; call it on every rank with the same options.

    Returns the summary on rank 0 and None on the others.  The answers are the same bytes whatever the ranks, the batch
    size, the placement, the schedule and the feed; with the results `local`, the same answers in several files.  A process
    that no launcher started (or one that started only this one) does everything itself and imports no MPI.

    Raises, after all ranks have left and nothing is half written: ClusterError, StorageError, EngineError;
    KeyboardInterrupt when alone (several ranks are ended with code 130).  After a failed run of several ranks MPI is
    finalised.
    """
    from mpi_match.cluster.transport.launcher import found_in

    launch = found_in(os.environ)
    if launch is None or launch.size == 1:
        from mpi_match.cluster.local_run import run_alone

        return run_alone(options)
    from mpi_match.cluster.transport.finalize import before_mpi

    before_mpi()
    try:
        with (
            warnings.catch_warnings()
        ):  # mpi4py's own, of a launcher that is not its library's: `mpi_run` refuses in one line
            warnings.filterwarnings("ignore", "suspicious MPI execution environment")
            from mpi_match.cluster.mpi_run import run_ranks
    except (ImportError, RuntimeError) as error:
        quiet = launch.rank not in (0, None)
        raise ClusterError(
            f"{launch.by} started several ranks, but MPI cannot be loaded: {error}", 5, quiet=quiet
        ) from error
    return run_ranks(options, launch)
