"""The options, the summary and the error of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from mpi_match.errors import MpiMatchError, OptionError
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.files.listen import Limits
from mpi_match.ingest.rows.judge import PLAIN, EventForm, Reject
from mpi_match.ingest.rows.row_files import STDIN, STDOUT, is_compiled
from mpi_match.monitor.status import RunStatus

if TYPE_CHECKING:
    from mpi_match.ingest.batches.scan_report import ScanTotals
    from mpi_match.ingest.batches.unnamed import Missing
    from mpi_match.ingest.rows.reject_log import RejectLog

PLACEMENTS = ("replicate", "shard", "hybrid")
"""The choices for the filters of a worker.  `replicate`: all of them, so a batch goes to one worker.  `shard`: a part,
so a batch goes to all and their answers are merged.  `hybrid`: a part, and each group has all parts, so a batch goes to one
group."""
SCHEDULES = ("dynamic", "static")
"""The choices for the worker of a batch.  `dynamic`: a worker that has just answered.  `static`: the worker with number k
modulo the number of workers, for batch k."""
FEEDS = ("master", "shared", "file")
"""The ways in which a worker gets the events of a batch, encoded or as lines.  `master`: the master sends them.  `shared`:
every host has one copy of all events in memory, made before the clock starts.  `file`: the worker reads them from the file,
whose path must name the same file on every host.  With the latter two the master sends batch numbers; in a
followed run with `file`, the places of lines.
"""
NOT_EVERYWHERE = "{}; with --feed file every host needs the same files: use --feed master, or copy them"
"""The reason of a worker that does not find the events of a run with the feed `file`, after what it found."""
RESULTS = ("master", "local")
"""The places for answers.  `master`: the master writes them into one file.  `local`: every worker writes a part of its
own beside the output, in a directory that all hosts share; the output is an index that reads as one file.
"""


CONNECTIONS = Path("connections of events")
"""The output of a run whose answers go back to the connections that their events came from."""


class ClusterError(MpiMatchError):
    """A run cannot start or go on; the text says why and what to do.

    `exit_code` is the process's (`ExitCode`).  `quiet` is set on all ranks but the one that prints the text, so that one
    failure is one line and not one per rank.
    """

    def __init__(self, text: str, exit_code: int = ExitCode.FAILURE, *, quiet: bool = False) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.quiet = quiet


@dataclass(frozen=True)
class RunOptions:
    """The options of a run.

    table, events, output   files; on the master's host, no other rank opens them (but the events, with feed `file`); events
                            are an event table, JSON lines, a directory of these, or STDIN
    form                    of the events, where they are lines
    rejects                 file for the bad rows of lines; None: they are counted
    strict                  stop at a bad row
    changes                 file of changes that take effect between events (`changes.log`); with `follow` a directory into
                            which files of changes are renamed; None: the table does not change
    engine                  a name of `engines.REGISTRY`, or "auto"
    engine_options          options of the engine, as in `open_engine`
    batch                   events per batch
    schedule, placement, feed, results   see SCHEDULES, PLACEMENTS, FEEDS, RESULTS
    groups                  number of groups of workers with placement `hybrid`; None with any other
    route                   divide filters by what they ask for, and send an event only to the shards that it can match
    memory_limit            bytes that the table, or its part, may take in a worker's memory; None: no limit
    credits                 batches that a worker may hold unanswered
    setup_limit             seconds for which a rank may be silent before the first batch: see `transport.liveness`
    deadline                seconds after which a batch is sent to another worker too; None: see `scheduling.timeouts`
    filters                 answer with filters instead of interfaces
    gpu_map                 GPU number for each of a host's workers, in the order of their local ranks, among the visible
                            GPUs; None: 0, 1, ..., from the first again when there are fewer
    share_gpus              two workers may use one GPU
    resume                  go on from the journal of an incomplete run, if there is one
    journal                 write answers to a journal while the run lasts
    threads                 CPU threads per worker; None: NUMBA_NUM_THREADS, else the host's cores divided by its workers
    progress                called on rank 0 with (events written, events in all)
    follow                  match what comes, until the run is told to end: `events` is a directory into which files of lines
                            are renamed, or STDIN, and `output` a directory of files of answers, or STDOUT for a stream
    listen                  with `follow`, the address of a socket to listen on, instead of `events`; `output` may then be
                            CONNECTIONS, those that events come from, which have `limits`
    max_delay               seconds that an event waits for others that are matched with it, with `follow`
    file_bytes, file_s  a file of answers ends at this size, or after so many seconds, with `follow`
    watch                   called on rank 0 with the run's `RunStatus` when the files are open; raises StorageError where it
                            cannot write.  What it returns is entered when all workers are ready, before the first batch,
                            and left after the last answer, or when the run fails
    """

    table: Path
    events: Path
    output: Path
    changes: Path | None = None
    form: EventForm = PLAIN
    rejects: Path | None = None
    strict: bool = False
    engine: str = "auto"
    engine_options: Mapping[str, object] = field(default_factory=dict)
    batch: int = 65536
    schedule: str = "dynamic"
    placement: str = "replicate"
    groups: int | None = None
    route: bool = False
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
    follow: bool = False
    listen: str = ""
    limits: Limits = field(default_factory=Limits)
    max_delay: float = 5e-3
    file_bytes: int = 2**26
    file_s: float = 1.0
    progress: Callable[[int, int], None] | None = None
    watch: Callable[[RunStatus], AbstractContextManager[object]] | None = None

    @property
    def is_stream(self) -> bool:
        """Tells if the events of a run that follows its input come in a stream, which cannot be read again."""
        return bool(self.listen) or self.events == STDIN

    @property
    def keeps_answers(self) -> bool:
        """Tells if the answers of a run that follows its input go to a directory, with a journal."""
        return self.output not in (STDOUT, CONNECTIONS)

    def check(self) -> None:
        """Raise ClusterError for an option out of its range, or one that the engine does not have."""
        if self.engine_options:
            from mpi_match.engines.registry import check_options  # loads NumPy

            try:
                check_options([self.engine], self.engine_options)
            except OptionError as error:
                raise ClusterError(str(error), ExitCode.USAGE) from error
        for name in ("batch", "credits", "threads", "groups", "memory_limit", "file_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ClusterError(f"{name} is {value}; it must be at least 1", ExitCode.USAGE)
        for name in ("setup_limit", "deadline", "file_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ClusterError(f"{name} is {seconds:g}; it must be more than 0 seconds", ExitCode.USAGE)
        registries = {"schedule": SCHEDULES, "placement": PLACEMENTS, "feed": FEEDS, "results": RESULTS}
        for name, choices in registries.items():
            value = getattr(self, name)
            if value not in choices:
                raise ClusterError(f"{name} is {value!r}; there is: {', '.join(choices)}", ExitCode.USAGE)
        if self.resume and (self.events == STDIN or self.events.is_fifo()):
            raise ClusterError(
                "standard input and pipes cannot be read again: --resume needs the events in a file", ExitCode.USAGE
            )
        if self.results == "local" and self.placement != "replicate":
            raise ClusterError(
                f"results is 'local', but with placement {self.placement!r} no worker has a whole answer; "
                "use results 'master'",
                ExitCode.USAGE,
            )
        if (self.groups is None) != (self.placement != "hybrid"):
            raise ClusterError(
                "--placement hybrid needs --groups, and no other has it: into how many groups go the workers?",
                ExitCode.USAGE,
            )
        if self.route:
            self._check_routed()
        if self.follow:
            self._check_followed()
        else:
            self._check_files()

    def _check_routed(self) -> None:
        """Raise ClusterError for an option, or events, that do not go with `route`."""
        refused = {
            "--placement replicate, where every worker has all filters; use --placement shard": self.placement
            == "replicate",
            f"--feed {self.feed}, where events do not pass through the master; use --feed master": self.feed != "master",
            "--changes, which could bring a shard filters of any kind; leave one of the two out": self.changes is not None,
            "--follow, where workers encode the rows; leave one of the two out": self.follow,
        }
        for why, is_given in refused.items():
            if is_given:
                raise ClusterError(f"--route does not go with {why}", ExitCode.USAGE)
        if self.events.exists() and not is_compiled(self.events):
            raise ClusterError(
                f"{self.events}: is not an event table, and workers encode its rows, so the master cannot tell which "
                "shards they match; compile it (`mpi-match compile events`), or leave out --route",
                ExitCode.USAGE,
            )

    def _check_files(self) -> None:
        """Raise ClusterError for files that do not go with a run that ends."""
        if self.changes is not None and self.changes.is_dir():
            raise ClusterError(
                f"{self.changes}: is a directory, whose files a run with --follow takes; other runs take one file, which "
                "`mpi-match compile changes` makes",
                ExitCode.BAD_INPUT,
            )
        for path in (self.table, self.events, self.changes):
            if path is not None and self.output.exists() and path.exists() and self.output.samefile(path):
                raise ClusterError(
                    f"the output {self.output} would overwrite an input; give it another name", ExitCode.USAGE
                )

    def _check_followed(self) -> None:
        """Raise ClusterError for an option that does not go with `follow`."""
        refused = {
            "--feed shared (its events come one after the other)": self.feed == "shared",
            "--feed file for a stream": self.feed == "file" and self.is_stream,
            f"--results {self.results}": self.results != "master",
            "--no-journal": not self.journal,
            "--rejects (bad rows are in OUTPUT/rejects)": self.rejects is not None and self.keeps_answers,
        }
        for option, is_given in refused.items():
            if is_given:
                raise ClusterError(f"a run with --follow has no {option}; leave it out", ExitCode.USAGE)
        if not self.max_delay >= 0:
            raise ClusterError(f"max_delay is {self.max_delay:g}; it must be at least 0 seconds", ExitCode.USAGE)
        if not self.keeps_answers and not self.is_stream:
            raise ClusterError(
                "the files of a directory are answered once, which needs a directory of answers: -o DIRECTORY",
                ExitCode.USAGE,
            )
        if self.output == CONNECTIONS and not self.listen:
            raise ClusterError("only events from connections are answered there; give an output", ExitCode.USAGE)
        if self.keeps_answers and self.output.exists() and not self.output.is_dir():
            raise ClusterError(
                f"{self.output}: is not a directory; --follow writes files of answers into one", ExitCode.USAGE
            )
        if self.output.absolute() == self.events.absolute():
            raise ClusterError(f"{self.output}: is the directory of events; give the output another", ExitCode.USAGE)
        if self.changes is not None and self.changes.absolute() in (self.events.absolute(), self.output.absolute()):
            raise ClusterError(f"{self.changes}: is that of events or answers; give changes another", ExitCode.USAGE)
        if self.changes is not None and self.placement != "replicate":
            raise ClusterError(
                f"a run with --follow has no --changes with --placement {self.placement}: an added filter would have no "
                "worker; use --placement replicate",
                ExitCode.USAGE,
            )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of matching.

    events, matches   events answered; (event, interface) pairs, with `filters` (event, filter) pairs
    wall_s            seconds of matching, without loading and building
    engine, device    as the workers report them; "2 x NVIDIA H200" where two say the same
    workers           number of engines: 1 in one process
    engine_options    the options of each engine that has any
    rejected          number of bad rows
    first_rejects     the first of these
    compile_s         seconds of compiling, which are not in `wall_s`
    flagged           lines that the scanner flagged; `rows` judged them, good or bad
    scanned_on_gpu    lines that were scanned on a GPU
    never_seen        attributes named for location and id that no event has
    doubts            warnings about attributes that filters name and no event has (`batches.unnamed`)
    """

    events: int
    matches: int
    wall_s: float
    events_per_s: float
    engine: str
    device: str
    workers: int
    rejected: int
    compile_s: float = 0.0
    flagged: int = 0
    scanned_on_gpu: int = 0
    never_seen: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    first_rejects: tuple[Reject, ...] = ()
    engine_options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def kept(self) -> dict[str, object]:
        """The summary for manifests, reports and JSON, without the rejects: their rows may be long, and they have a file."""
        return {key: value for key, value in asdict(self).items() if key != "first_rejects"}


class RowsSummary(TypedDict):
    """The fields of `Summary` that tell of rows."""

    rejected: int
    first_rejects: tuple[Reject, ...]
    flagged: int
    scanned_on_gpu: int
    never_seen: tuple[str, ...]
    doubts: tuple[str, ...]


def of_rows(log: RejectLog, totals: ScanTotals, missing: Missing) -> RowsSummary:
    """The fields of a summary about rows: bad rows, scanned rows, and names that no row has."""
    return {
        "rejected": log.count,
        "first_rejects": tuple(log.first),
        "flagged": totals.n_flagged,
        "scanned_on_gpu": totals.n_on_gpu,
        "never_seen": missing.never_seen,
        "doubts": missing.doubts,
    }


@dataclass(frozen=True, kw_only=True)
class RunSummary(Summary):
    """The result of a run.

    wall_s            from the first batch until the answers are on disk, without loading and building, and with the feed
                      `shared` also without reading the events
    round_trip_us     time from sending an encoded batch to receiving its answer: `p50` and `p99` in µs (to 1 %), including
                      the time behind other batches at the worker, so it depends on `credits`; None without a launcher
    routed_share      share of the shards that an event was sent to, on average; None without `route`
    latency_us        time from the arrival of an event until its answer is written: `p50`, `p99` and `p99.9` in µs (to 1 %);
                      None without `follow`
    rejected          bad rows among the lines that the run has read, of a resumed run with `rejects` all of them; 0 for an
                      event table, whose bad rows were counted when it was compiled
    resumed           events whose answers were taken from the journal of an earlier run; `events_per_s` is without them
    untaken, cut_off  events on connections that ended before they took the answers, and on those that were ended so
    compile_s         seconds before `wall_s` that a worker spent on compiling its engine, or on waiting for another worker
                      that did; the most of all workers
    """

    round_trip_us: Mapping[str, float] | None = None
    routed_share: float | None = None
    latency_us: Mapping[str, float] | None = None
    resumed: int = 0
    untaken: int = 0
    cut_off: int = 0
