"""The output of a run: answers are journalled, ordered, written and renamed into place.

    answers of a batch ──► journal ──► file of matches (under a temporary name) ──► its name ──► manifest
                             │                    ▲                                   the journal is removed
                             └── of earlier runs ─┘

Long answers are not written twice: they go to the file alone, and at each sync the journal gets a reference to their place
in the file, and the rest that is not in the file yet, less than a chunk of counts and one of ids:

    appended     ██████████████████████░░░░░░░░░        full chunks are in the file, the rest is in memory
    referenced   ███████████|  at the next sync  |

Answers come in the order of their events.  Answers of an earlier run are copied from the journal at their place in that
order, so the file has the same bytes as that of an uninterrupted run.

Events can be set aside (a batch that was quarantined).  Then the file of matches is not written, the journal keeps the
answers of all other events and records which are missing, and the run is incomplete.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from mpi_match.arrays.csr import Array
from mpi_match.arrays.strings import Strings
from mpi_match.cluster.options import ClusterError
from mpi_match.cluster.results.journal import Journal
from mpi_match.exit_codes import ExitCode
from mpi_match.journal.manifest import COMPLETE, INCOMPLETE, remove_manifest, write_outcome
from mpi_match.journal.reader import EventRange, JournalFile, JournalPart, Placed, Record, RunIdentity, file_of, journal_of
from mpi_match.matches.file import MatchesWriter
from mpi_match.matches.part_index import identity_in, named_by, named_in, parts_beside, remove_parts
from mpi_match.matches.schema import MATCHES
from mpi_match.storage import (
    Column,
    Reader,
    StorageError,
    check_output,
    parts_directory,
    remove_half_written,
    sync_directory,
)

log = logging.getLogger(__name__)

LONG_ANSWER_BYTES = 2**14
"""Answers of at least this size are referenced in the journal and not copied there."""


class _Mark(NamedTuple):
    """A position in a column: its number of rows and their CRC-32."""

    row: int
    crc: int


class _Reference(NamedTuple):
    """Answers without a reference in the journal: their events, and the ends of both columns before and after them."""

    events: EventRange
    before: tuple[_Mark, _Mark]
    after: tuple[_Mark, _Mark]


class AnswersFile:
    """Answers appended to a file in the order of their events, with the `writer` that has been entered.

    One thread appends, and another takes the references.
    """

    def __init__(self, writer: MatchesWriter) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._references: list[_Reference] = []

    def append(self, counts: Array, ids: Array) -> None:
        """Append answers that need no reference in the journal."""
        with self._lock:
            self._writer.append_raw(counts, ids)

    def append_referenced(self, start: int, counts: Array, ids: Array) -> None:
        """Append the answers of the events from `start` on, which need a reference in the journal."""
        with self._lock:
            before = self._marks()
            self._writer.append_raw(counts, ids)
            events, last = EventRange(start, start + len(counts)), self._references[-1] if self._references else None
            if last is not None and last.events.stop == start and last.after == before:
                self._references.pop()
                events, before = EventRange(last.events.start, events.stop), last.before
            self._references.append(_Reference(events, before, self._marks()))

    def _marks(self) -> tuple[_Mark, _Mark]:
        counts, ids = self._writer.columns
        return _Mark(counts.n_rows, counts.crc), _Mark(ids.n_rows, ids.crc)

    def take(self) -> list[Placed]:
        """The places of the answers that have no reference in the journal yet, once.  Raises StorageError."""
        with self._lock:
            placed = [
                Placed(each.events, each.after[1].row - each.before[1].row, *map(_part, self._writer.columns, *each[1:]))
                for each in self._references
            ]
            self._references = []
            return placed

    def sync(self) -> None:
        """Sync the file.  Raises StorageError."""
        self._writer.sync()


def _part(column: Column, before: _Mark, after: _Mark) -> JournalPart:
    return JournalPart(column.place(before.row, after.row), before.crc, after.crc)


def there_already(path: Path, identity: RunIdentity) -> tuple[str, int] | None:
    """Digest and number of matches of an output that is complete for this identity, else None.  An index must have its
    parts."""
    try:
        with Reader(path, MATCHES) as reader:
            parts = {parts_directory(path) / name: size for name, size in named_in(reader).items()}
            if identity_in(reader) == identity and all(_has(part, size) for part, size in parts.items()):
                return str(reader.attribute("digest")), int(reader.attribute("n_matches"))
    except StorageError:
        pass  # no file of matches, or a damaged one
    return None


def _has(path: Path, n_bytes: int) -> bool:
    return path.is_file() and path.stat().st_size >= n_bytes


class RunOutput(ABC):
    """The output of one run, in one file or in parts; `labels` are the names of the ids.

    Within its block write or `set_aside` all events of `unanswered`, then call `finish` and `write_manifest`.

    unanswered   the events to be matched; none when an earlier run has completed the output
    n_answered   events whose answers are written, including those of earlier runs
    n_resumed    events answered by earlier runs
    n_matches    number of (event, id) pairs, after `finish`
    """

    def __init__(self, path: Path, identity: RunIdentity, labels: Strings, *, resume: bool) -> None:
        self.path, self.identity = path, identity
        self._labels, self._resume = labels, resume
        self._without: list[EventRange] = []
        self._finished = False
        self.unanswered: list[EventRange] = []
        self.n_answered = self.n_resumed = self.n_matches = 0
        self.digest = ""

    def _is_there(self) -> bool:
        """Tells whether an earlier run, which this one resumes, has completed the output."""
        found = there_already(self.path, self.identity) if self._resume else None
        if found is None:
            return False
        log.warning("%s holds the answers already; there is nothing left to do", self.path)
        self.n_answered = self.n_resumed = self.identity.n_events
        (self.digest, self.n_matches), self._finished = found, True
        return True

    def finish(self) -> None:
        """Put the output in its place.

        Raises ClusterError, with the exit code of an incomplete run when events were set aside.
        """
        if self._without:
            which = ", ".join(map(str, self._without))
            raise ClusterError(
                f"no answers for the events {which}: all workers that got them died or failed; --resume tries again",
                ExitCode.INCOMPLETE,
            )
        if not self._finished:
            self._put_in_place()
            self._finished = True

    @abstractmethod
    def _put_in_place(self) -> None:
        """Give the answers their final name, and set `digest` and `n_matches`."""

    def _say(self, state: str, **more: object) -> None:
        write_outcome(self.path, state, self.identity, answered=self.n_answered, resumed=self.n_resumed, **more)

    def _say_complete(self, took: Mapping[str, object]) -> None:
        self._say(COMPLETE, matches=self.n_matches, digest=self.digest, run=took)

    def _say_incomplete(self, kept_in: str, error: BaseException) -> None:
        log.warning(
            "%s is incomplete: %s of %s events are answered and kept in %s; go on with --resume",
            self.path,
            f"{self.n_answered:,}",
            f"{self.identity.n_events:,}",
            kept_in,
        )
        with suppress(StorageError):  # the journal is kept, and the reason is raised already
            self._say(INCOMPLETE, set_aside=self._without, reason=str(error) or type(error).__name__)


class Output(RunOutput):
    """The output of one run, which the master writes into one file.

    `with Output(path, identity, labels, resume=True, journalled=True) as output:`, then `write` or `set_aside`, ascending.
    Leaving without `finish` keeps the journal, if it holds answers.
    """

    def __init__(self, path: Path, identity: RunIdentity, labels: Strings, *, resume: bool, journalled: bool) -> None:
        super().__init__(path, identity, labels, resume=resume)
        self._journal = Journal(journal_of(path), identity, resume=resume) if journalled else None
        self._file, self._kept = ExitStack(), ExitStack()
        self._earlier: JournalFile | None = None
        self._is_new = self._is_discarded = False

    def __enter__(self) -> Output:
        """Raises StorageError when the output cannot be written, or the journal is in use or another run's."""
        check_output(self.path)
        with self._kept, self._file:
            if self._journal is not None:
                self._earlier = self._kept.enter_context(self._journal).earlier
                remove_half_written(self.path)  # of killed runs: this one has the lock
            if self._is_there():
                sync_directory(self.path.parent)
                if self._journal is not None:
                    self._journal.remove()
            else:
                self._refuse_parts()
                self._open_file()
                self._begin()
            self._file, self._kept = self._file.pop_all(), self._kept.pop_all()
        return self

    def _refuse_parts(self) -> None:
        """Raise StorageError when there are parts that no index names."""
        if parts_beside(self.path).keys() - named_by(self.path).keys():
            raise StorageError(
                f"{parts_directory(self.path)}: holds answers of a run with --results local that did not end; "
                "go on with that, on two ranks or more, or remove it"
            )

    def _open_file(self) -> None:
        identity, journal = self.identity, self._journal
        digests = {key: value for key, value in asdict(identity).items() if key.endswith("_digest") and value}
        temporary = None if journal is None else file_of(journal.path, journal.number)
        writer = MatchesWriter(self.path, identity.n_ids, self._labels, identity.unit, temporary=temporary, **digests)
        self._writer = self._file.enter_context(writer)
        self._answers = AnswersFile(writer)
        if journal is not None:
            journal.follow(self._answers)

    def _begin(self) -> None:
        earlier, everything = self._earlier, [EventRange(0, self.identity.n_events)]
        self.unanswered = everything if earlier is None else earlier.unanswered()
        self.n_answered = self.n_resumed = 0 if earlier is None else earlier.n_answered
        self._to_replay = deque([] if earlier is None else earlier.answered)
        with self._reported():
            remove_manifest(self.path)
        self._replay(self.unanswered[0].start if self.unanswered else self.identity.n_events)

    def write(self, start: int, counts: Array, ids: Array) -> None:
        """Write the answers of the events from `start` on, in the types of `RunIdentity.types`.

        Raises ClusterError when the disk is full or the directory is gone.
        """
        with self._reported():
            long = self._journal is not None and counts.nbytes + ids.nbytes >= LONG_ANSWER_BYTES
            if self._journal is not None and (self._without or not long):
                self._journal.append(start, counts, ids)
            if not self._without:
                self._replay(start)
                if self._journal is not None and long:
                    self._journal.check()
                    self._answers.append_referenced(start, counts, ids)
                else:
                    self._answers.append(counts, ids)
        self.n_answered += len(counts)

    def set_aside(self, events: EventRange) -> None:
        """Go on without answers for these events.  Raises ClusterError without a journal."""
        if self._journal is None:
            raise ClusterError(f"events {events} are set aside, and without a journal nothing is kept: see --no-journal")
        with self._reported():
            self._journal.set_aside(events)
            if not self._without:
                self._journal.unfollow(synced=True)
        if not self._without:
            self._abandon_file()
        self._without.append(events)

    def discard(self) -> None:
        """Keep no answers when the output is left."""
        if self._journal is not None:
            self._journal.remove()
        self._is_discarded = True

    def _abandon_file(self) -> None:
        abandoned = ClusterError("events are set aside")
        self._file.__exit__(type(abandoned), abandoned, None)

    def _replay(self, stop: int) -> None:
        """Copy the answers of earlier runs to events before `stop` into the file."""
        while self._earlier is not None and self._to_replay and self._to_replay[0].events.start < stop:
            record: Record = self._to_replay.popleft()
            self._answers.append(*self._earlier.answers(record))

    def _put_in_place(self) -> None:
        with self._reported():
            self._replay(self.identity.n_events)
            if self._journal is not None:
                self._journal.unfollow(synced=False)  # closing the file does that
            self._file.close()
        self.digest, self.n_matches = self._writer.digest, self._writer.n_matches
        self._is_new = True

    def write_manifest(self, took: Mapping[str, object]) -> None:
        """Remove the journal, and the parts of an index that the file has replaced, and write the manifest `complete`: the
        last action of a run.  `took` is its summary.
        """
        if self._is_new:
            with self._reported():
                sync_directory(self.path.parent)  # else a power loss could undo the renaming and not the removals
                remove_parts(self.path)
                if self._journal is not None:
                    self._journal.remove()
        self._say_complete(took)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of the file system as ClusterError, with the storage layer's text."""
        try:
            yield
        except (StorageError, OSError) as error:
            if self._journal is not None:
                with suppress(StorageError):  # keep as many answers as possible
                    self._journal.sync()
            kept = self._journal is not None and self._journal.n_written
            text = str(error) if isinstance(error, StorageError) else f"{self.path}: cannot be written: {error.strerror}"
            raise ClusterError(text, ExitCode.INCOMPLETE if kept else ExitCode.FAILURE) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            error = ClusterError("the run was left before its end")
        try:
            self._kept.__exit__(type(error), error, trace)
        finally:
            self._file.__exit__(type(error), error, trace)
        if not (self._finished or self._is_discarded) and self._journal is not None and self._journal.n_answered:
            self.n_answered = self._journal.n_answered
            self._say_incomplete(self._journal.path.name, error)
