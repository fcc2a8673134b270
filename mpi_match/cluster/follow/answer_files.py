"""The output of a followed run: a directory of files of answers, each committed once by a rename, across restarts.

    OUTPUT/answers-0000000001.jsonl      answers to consecutive events, named in order
    OUTPUT/rejects/rejects-...jsonl      the bad rows among these events, under the same number
    OUTPUT/.journal/commits.jsonl        the journal: one line for each file, and the place in the input where it ends
    OUTPUT/.journal/changes-N.jsonl      changes made to the table; a line of the journal has N, and the bytes that count

A file is committed when it has a size or an age:

    write and sync  .answers-N.jsonl.writing  ─►  write and sync its line in the journal  ─►  rename it

Before its line is in the journal the file does not count: it is removed, and its events are matched again.  From then on it
counts: a later run renames it, if that was not done.  So each event is in one file, once, whenever a rank is killed.

Nothing else is kept: the journal is written anew with its last state when it has many lines, and changes in a file of
another number when they amount to far fewer.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from mpi_match.cluster.follow.arrivals import ArrivedBatch, Position
from mpi_match.cluster.follow.directory import FileKey
from mpi_match.cluster.follow.kept_changes import NO_CHANGES, ToKeep
from mpi_match.ingest.rows.judge import Reject
from mpi_match.matches.matches import Matches
from mpi_match.model import Json
from mpi_match.storage import StorageError, atomic_write, reported, sync_directory

if TYPE_CHECKING:
    from mpi_match.matches.json_lines import LineWriter  # loads Numba

JOURNAL_VERSION = 1
COMPACT_LINES = 4096
"""The journal is written anew after this number of lines, and of done files."""
AGE_POLL_S = 20e-3
"""Longest interval, in seconds, between two checks of the age of a file."""
MOST_FULL = 2
"""Most full files that wait to be committed."""


class Committed(NamedTuple):
    """The state after a commit: the number of the last file of answers; events, their matches, the rejected ones and those
    without answers; the file of events in which they end, and its rows among them; bytes of the changes before them, and the
    number of the file that has these."""

    number: int = 0
    events: int = 0
    matches: int = 0
    rejected: int = 0
    set_aside: int = 0
    reading: tuple[FileKey, int] | None = None
    changes: int = 0
    changes_file: int = 0

    def to_line(self, done: Iterable[FileKey]) -> bytes:
        """The state as a line of the journal, with the files that are done."""
        return json.dumps({**self._asdict(), "done": list(done)}).encode() + b"\n"

    @classmethod
    def of(cls, line: dict[str, Any]) -> tuple[Committed, list[FileKey]]:
        """The state that a line of the journal holds."""
        done, reading = line.pop("done"), line.pop("reading")
        reading = None if reading is None else (FileKey(*reading[0]), reading[1])
        return cls(**line, reading=reading), [FileKey(*each) for each in done]


def journal_directory(output: Path) -> Path:
    """The path of the journal of a followed run."""
    return output / ".journal"


def commits_of(output: Path) -> Path:
    """The journal of a followed run."""
    return journal_directory(output) / "commits.jsonl"


def changes_of(output: Path, number: int = 0) -> Path:
    """The file with this number of the changes that a followed run has made to its table."""
    return journal_directory(output) / f"changes-{number}.jsonl"


def read_progress(path: Path) -> tuple[Json, Committed, dict[FileKey, None]]:
    """The identity that a journal holds, its last state, and the files that are done.  Raises StorageError, OSError."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    try:
        head, *lines = [json.loads(line) for line in content[:whole].splitlines()]
        if head["journal"] != JOURNAL_VERSION:
            raise StorageError(f"{path}: version {head['journal']}, expected {JOURNAL_VERSION}")
        done: dict[FileKey, None] = {}
        progress = Committed()
        for line in lines:
            progress, finished = Committed.of(line)
            done.update(dict.fromkeys(finished))
        return head["identity"], progress, done
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: is not the journal of a followed run, or is damaged; give another -o") from error


def answered_in(output: Path) -> int:
    """The number of events that a followed run has answered; 0 without a journal."""
    try:
        return read_progress(commits_of(output))[1].events
    except (OSError, StorageError):
        return 0


@dataclass
class _Open:
    """A file that is being written, and the counts of what it holds."""

    file: IO[bytes]
    began_at: float
    n_bytes: int = 0
    n_events: int = 0
    n_matches: int = 0
    n_set_aside: int = 0
    finished: list[FileKey] = field(default_factory=list)
    reading: tuple[FileKey, int] | None = None
    rejects: list[Reject] = field(default_factory=list)
    changes: list[ToKeep] = field(default_factory=list)


class AnswerFiles:
    """The output directory `path` of a run with this `identity`; a context manager.

    Files are committed with at least `most_bytes`, or after `most_s` seconds.  Entering takes a lock and raises StorageError
    when the directory is another run's or in use; `progress` is the state at the end of an earlier run, `done` the input
    files that it had finished, `earlier_changes` the rows of changes that it had applied.  Leaving by an exception keeps
    what is committed.

    `is_there` tells whether a done file is still in its directory; from time to time the other ones are forgotten.
    """

    def __init__(
        self, path: Path, identity: Mapping[str, object], lines: LineWriter, most_bytes: int, most_s: float
    ) -> None:
        self.path, self._identity, self._lines = path, dict(identity), lines
        self._most_bytes, self._most_s = most_bytes, most_s
        self._lock = threading.Condition()
        self._open: _Open | None = None
        self._full: list[_Open] = []
        self._error: BaseException | None = None
        self._ending = self._dropping = False
        self._number = self._next_event = 0
        self._n_noted = 0
        self.done: dict[FileKey, None] = {}
        self.is_there: Callable[[FileKey], bool] = lambda key: True
        self.send: Callable[[Any, bytes, int], object] = lambda connection, lines, n_events: None
        self._thread = threading.Thread(target=self._commit_in_time, name="commits", daemon=True)

    def __enter__(self) -> AnswerFiles:
        path, journal = self.path, journal_directory(self.path)
        with reported(path):
            for each in (path, journal):
                each.mkdir(exist_ok=True)
            self._locked = os.open(journal / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            self._take_lock()
            self.progress = self._earlier()
            self.earlier_changes = self._earlier_changes()
            self._remove_others()
            self._compact()
        except BaseException:
            os.close(self._locked)
            raise
        self._number, self._next_event = self.progress.number, self.progress.events
        self._thread.start()
        return self

    def _take_lock(self) -> None:
        deadline = time.monotonic() + 10.0  # the run before it may be ending
        while True:
            try:
                return fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StorageError(
                        f"{self.path}: another run is writing this output; wait for its end, or end it"
                    ) from None
                time.sleep(0.1)

    def _earlier(self) -> Committed:
        """The state that an earlier run has left.  If its last file still has a hidden name, rename it."""
        path = commits_of(self.path)
        if not path.exists():
            if any(self.path.glob("answers-*")):
                raise StorageError(f"{self.path}: holds answers and no journal of a followed run; give another -o")
            return Committed()
        identity, progress, self.done = read_progress(path)
        for name, mine in self._identity.items():
            if identity.get(name) != mine:
                raise StorageError(
                    f"{self.path}: holds the answers of another run: its {name} is {identity.get(name)!r}, not {mine!r}; "
                    "give another -o, or the options of that run"
                )
        self._name(progress.number)
        return progress

    def _earlier_changes(self) -> bytes:
        """The rows of changes that count; others are cut off, other files are removed."""
        path, n_bytes = changes_of(self.path, self.progress.changes_file), self.progress.changes
        for other in journal_directory(self.path).glob("changes-*.jsonl"):
            if other != path:
                other.unlink(missing_ok=True)
        if not path.exists() and not n_bytes:
            return b""
        with reported(path):
            found = path.read_bytes()
            if len(found) < n_bytes:
                raise StorageError(f"{path}: has {len(found):,} bytes, {n_bytes:,} were written; give another -o")
            os.truncate(path, n_bytes)
        return found[:n_bytes]

    def _final(self, number: int) -> tuple[Path, Path]:
        """The names of the files of answers and of rejects with a number."""
        return self.path / f"answers-{number:010}.jsonl", self.path / "rejects" / f"rejects-{number:010}.jsonl"

    def _name(self, number: int) -> None:
        """Rename the files with a number to their final names, unless that was done before."""
        for path in self._final(number):
            with suppress(FileNotFoundError):
                _temporary(path).replace(path)

    def _remove_others(self) -> None:
        """Remove files that killed runs have not committed."""
        for pattern in (".answers-*.writing", "rejects/.rejects-*.writing"):
            for left in self.path.glob(pattern):
                left.unlink(missing_ok=True)

    def _compact(self) -> None:
        """Write the journal anew."""
        path = commits_of(self.path)
        self.done = {key: None for key in self.done if self.is_there(key)}
        with reported(path), atomic_write(path) as temporary, temporary.open("wb") as file:
            file.write(json.dumps({"journal": JOURNAL_VERSION, "identity": self._identity}).encode() + b"\n")
            file.write(self.progress.to_line(self.done))
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)
        self._n_noted = 0

    def write(self, matches: Matches, arrived: ArrivedBatch, rejects: Sequence[Reject] = ()) -> None:
        """Write the answers to the next events, which end at a place in the input.  Raises StorageError, also of earlier
        ones."""
        with self._lock, reported(self.path):
            found = self._opened()
            for piece in self._lines.lines(self._next_event, matches, None):
                found.file.write(piece.data)
                found.n_bytes += len(piece)
            found.n_matches += matches.n_matches
            self._note(found, matches.n_events, arrived.end, rejects)
        self._send(arrived)

    def set_aside(self, arrived: ArrivedBatch) -> Path:
        """Record that the next events have no answers, and write their rows to a file.  Returns the file."""
        with self._lock, reported(self.path):
            path = journal_directory(self.path) / f"set-aside-{self._next_event:012}.jsonl"
            path.write_bytes(arrived.rows.rows.data.tobytes())
            found = self._opened()
            found.n_set_aside += arrived.n_events
            self._note(found, arrived.n_events, arrived.end, ())
        self._send(arrived)
        return path

    def _send(self, arrived: ArrivedBatch) -> None:
        """More may be read of the connections that the events came from."""
        for connection, n in arrived.parts:
            self.send(connection, b"", n)

    def name(self, labels: Mapping[int, str]) -> None:
        """In the next answers interfaces with these ids have these labels."""
        self._lines.name(labels)

    def check(self) -> None:
        """Raise the error of a file that could not be committed."""
        if self._error is not None:
            raise self._error

    def _opened(self) -> _Open:
        """The file to write to.  Waits while too many full ones are not committed."""
        while len(self._full) >= MOST_FULL and self._error is None:
            self._lock.wait()
        self.check()
        if self._open is None:
            self._number += 1
            path = _temporary(self._final(self._number)[0])
            self._open = _Open(path.open("wb"), time.monotonic())
        return self._open

    def _note(self, found: _Open, n_events: int, end: Position, rejects: Sequence[Reject]) -> None:
        found.n_events += n_events
        self._next_event += n_events
        found.finished += end.finished
        found.reading = None if end.reading is None else (end.reading, end.rows)
        found.rejects += rejects
        found.changes.append(end.changes)
        if found.n_bytes >= self._most_bytes:
            self._close()

    def _close(self) -> None:
        """Close the present file: it is large or old enough to be committed."""
        if self._open is not None:
            self._full.append(self._open)
            self._open = None
            self._lock.notify_all()

    def _commit_in_time(self) -> None:
        try:
            while (found := self._next_full()) is not None:
                self._commit(found)
                with self._lock:
                    self._full.pop(0)
                    self._lock.notify_all()
        except BaseException as error:
            with self._lock:
                self._error = error
                self._lock.notify_all()

    def _next_full(self) -> _Open | None:
        """The next file to commit; waits for it.  None at the end."""
        with self._lock:
            while True:
                if self._dropping:
                    return None
                if self._open is not None and (self._ending or time.monotonic() - self._open.began_at >= self._most_s):
                    self._close()
                if self._full:
                    return self._full[0]
                if self._ending:
                    return None
                self._lock.wait(min(AGE_POLL_S, self._most_s))

    def _commit(self, found: _Open) -> None:
        before = self.progress
        number = before.number + 1
        answers, rejects = self._final(number)
        with reported(answers):
            found.file.flush()
            os.fsync(found.file.fileno())
            found.file.close()
        if found.rejects:
            with reported(rejects):
                rejects.parent.mkdir(exist_ok=True)
                with _temporary(rejects).open("w", encoding="utf-8", errors="backslashreplace") as file:
                    file.writelines(json.dumps(each._asdict(), ensure_ascii=False) + "\n" for each in found.rejects)
                    file.flush()
                    os.fsync(file.fileno())
        changes = ToKeep.joined(found.changes)
        changes_file = number if changes.anew else before.changes_file
        if changes != NO_CHANGES:
            path = changes_of(self.path, changes_file)
            with reported(path), path.open("wb" if changes.anew else "ab") as log:
                log.write(changes.rows)
                log.flush()
                os.fsync(log.fileno())
            if changes.anew:
                sync_directory(path.parent)
        after = Committed(
            number,
            before.events + found.n_events,
            before.matches + found.n_matches,
            before.rejected + len(found.rejects),
            before.set_aside + found.n_set_aside,
            found.reading,
            len(changes.rows) + (0 if changes.anew else before.changes),
            changes_file,
        )
        path = commits_of(self.path)
        with reported(path), path.open("ab") as file:
            file.write(after.to_line(found.finished))
            file.flush()
            os.fsync(file.fileno())
        if changes.anew:
            changes_of(self.path, before.changes_file).unlink(missing_ok=True)
        with reported(answers):
            self._name(number)
            sync_directory(self.path)
        self.progress = after
        self.done.update(dict.fromkeys(found.finished))
        self._n_noted += 1 + len(found.finished)
        if self._n_noted > COMPACT_LINES + len(self.done) // 2:
            self._compact()

    def finish(self) -> None:
        """Commit what is written.  Raises StorageError."""
        with self._lock:
            self._ending = True
            self._lock.notify_all()
        self._thread.join()
        self.check()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._dropping = not self._ending
            self._lock.notify_all()
        self._thread.join()
        for left in (*self._full, *([self._open] if self._open is not None else [])):
            left.file.close()
        os.close(self._locked)


def _temporary(path: Path) -> Path:
    """The hidden name that a file has until it is committed, always the same."""
    return path.with_name(f".{path.name}.writing")
