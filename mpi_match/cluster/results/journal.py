"""The journal of a run: answers are durable long before the file of matches is complete.

An HDF5 file is unreadable before it is closed, so a partial file of matches would be useless after a run was killed.  It
leaves its journal (`reader`), from which another run goes on.

Answers are written in groups, after SYNC_S at the latest; then a thread syncs them.  So a killed process loses the answers
of the last half second, which are matched again, and the threads that append answers never wait for the disk.  Long answers
go to the file of matches (`output`), and the journal has references to them: they are synced before their references are.

A lock on the file keeps two runs from writing one output.
"""

from __future__ import annotations

import fcntl
import glob
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

from mpi_match.arrays.csr import Array
from mpi_match.journal.reader import (
    Bytes,
    EventRange,
    JournalFile,
    Kind,
    Placed,
    RunIdentity,
    head_bytes,
    is_bare,
    placed_bytes,
    record_bytes,
    write_at,
)
from mpi_match.storage import StorageError, reported

log = logging.getLogger(__name__)

SYNC_S = 0.5
"""Longest time, in seconds, before answers are synced."""
LOCK_S = 10.0
"""Seconds that a resumed run waits for the lock of the run before it."""
NO_LOCK = "%s: cannot be locked (%s); make sure that no other run writes this output"
GROUP_BYTES = 2**18
"""Bytes of answers that are collected before they are written."""


class Followed(Protocol):
    """A file of matches that is being written, whose answers a journal refers to."""

    def take(self) -> list[Placed]:
        """The places of the answers that have no reference in the journal yet, once.  Raises StorageError."""
        ...

    def sync(self) -> None:
        """Sync the file.  Raises StorageError."""
        ...


class Journal:
    """A journal open for writing.

    `with Journal(path, identity, resume=True) as journal: journal.append(0, counts, ids)`.  `earlier` is the content of an
    earlier run (None: empty), `n_answered` the number of events in it, `number` that of the file of matches of this run.
    Leaving the block keeps the journal and the files that it names, unless it holds no answers or `remove` was called.

    Entering raises StorageError when the journal is another run's, is in use, cannot be written or, without `resume`, holds
    answers.
    """

    def __init__(self, path: Path, identity: RunIdentity, *, resume: bool) -> None:
        self.path = path
        self._identity, self._resume = identity, resume
        self._lock = threading.Lock()
        # Of each answer not written yet: first event, stop event, number of ids, counts, ids.
        self._waiting: list[tuple[int, int, int, bytes, bytes]] = []
        self._n_waiting = 0
        self._followed: Followed | None = None
        self._unrecorded: list[Placed] = []
        self._syncing = threading.Lock()
        self._error: StorageError | None = None
        self._removed = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sync_now_and_then, name="journal", daemon=True)

    def __enter__(self) -> Journal:
        while not self._open_locked():
            pass
        try:
            self.earlier = self._read_earlier()
            self._end = 0 if self.earlier is None else self.earlier.end
            with self._reported():
                os.ftruncate(self._descriptor, self._end)
                if self.earlier is None:
                    self._end = write_at(self._descriptor, [head_bytes(self._identity)], self._end)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.n_answered = 0 if self.earlier is None else self.earlier.n_answered
        self._named = set() if self.earlier is None else set(self.earlier.files)
        self.number = max(self._named, default=0) + 1
        self._remove_files()
        self._thread.start()
        return self

    def _remove_files(self) -> None:
        """Remove files of matches without a reference in the journal: of killed runs, or of this one."""
        for path in self.path.parent.glob(f"{glob.escape(self.path.name)}.*"):
            number = path.name.removeprefix(f"{self.path.name}.")
            if number.isdecimal() and int(number) not in self._named:
                path.unlink(missing_ok=True)

    def _open_locked(self) -> bool:
        """Open the file and take its lock.  False if the run that had the lock has removed the file."""
        with self._reported():
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            self._take_lock()
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._descriptor), self.path.stat()):
                    return True
        except BaseException:
            os.close(self._descriptor)
            raise
        os.close(self._descriptor)
        return False

    def _take_lock(self) -> None:
        deadline = time.monotonic() + (LOCK_S if self._resume else 0)
        while True:
            try:
                return fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    refusal = "another run is writing this output; wait for its end, or end it"
                    raise StorageError(f"{self.path}: {refusal}") from None
                time.sleep(0.1)
            except OSError as error:
                return log.warning(NO_LOCK, self.path, error.strerror)

    def _read_earlier(self) -> JournalFile | None:
        if is_bare(self.path, self._identity):
            return None
        found = JournalFile(self.path, self._descriptor)
        if not found.n_answered:
            return None
        state = f"holds {found.n_answered:,} of {found.identity.n_events:,} events of a run that did not end"
        if not self._resume:
            raise StorageError(f"{self.path}: {state}; go on with --resume, or remove it to begin anew")
        difference = self._identity.difference(found.identity)
        if difference is not None:
            raise StorageError(f"{self.path}: {state}, but of other inputs: {difference}; remove it to begin anew")
        if found.n_torn:
            log.warning("%s: its last %d bytes are torn and are left out", self.path, found.n_torn)
        return found

    def append(self, start: int, counts: Array, ids: Array) -> None:
        """Append the answers of the events from `start` on, which it does not hold yet; the arrays may be reused afterwards.

        Raises StorageError, also for answers appended before.
        """
        n_events, n_bytes = len(counts), counts.nbytes + ids.nbytes
        with self._lock:
            self.check()
            if self._waiting and (start != self._waiting[-1][1] or self._n_waiting + n_bytes > GROUP_BYTES):
                self._write_waiting()
            if n_bytes > GROUP_BYTES:
                self._write(Kind.ANSWERS, EventRange(start, start + n_events), len(ids), [counts.data, ids.data])
            elif n_events:
                self._waiting.append((start, start + n_events, len(ids), counts.tobytes(), ids.tobytes()))
                self._n_waiting += n_bytes
            self.n_answered += n_events

    def set_aside(self, events: EventRange) -> None:
        """Record that these events were set aside.  Raises StorageError."""
        with self._lock:
            self.check()
            self._write(Kind.SET_ASIDE, events, 0, [])

    def follow(self, answers: Followed) -> None:
        """From now on, record references to the answers in the file that `number` names."""
        self._followed = answers

    def unfollow(self, *, synced: bool) -> None:
        """Record the last references and release the file.  Raises StorageError, as `check` does."""
        with self._syncing:
            self.check()
            self._note(synced=synced)
            self._followed = None

    def _note(self, *, synced: bool) -> None:
        """Write references to answers, with `synced` after syncing the file.  References not written are tried again."""
        if self._followed is None:
            return
        self._unrecorded += self._followed.take()
        if synced and self._unrecorded:
            self._followed.sync()
        while self._unrecorded:
            placed = self._unrecorded[0]
            with self._lock, self._reported():
                self._named.add(self.number)
                end = write_at(self._descriptor, placed_bytes(self.number, placed), self._end)
                self._unrecorded.pop(0)
                self._end = end
                self.n_answered += placed.events.n_events

    @property
    def n_written(self) -> int:
        """The number of events with written answers; 0 if the file was removed."""
        return 0 if self._is_gone() else self.n_answered - sum(stop - start for start, stop, *_ in self._waiting)

    def _is_gone(self) -> bool:
        return os.fstat(self._descriptor).st_nlink == 0

    def sync(self) -> None:
        """Sync all that was appended until now.  Raises StorageError."""
        with self._syncing:
            self._note(synced=True)
        with self._lock:
            self._write_waiting()
        with self._reported():
            os.fdatasync(self._descriptor)

    def _sync_now_and_then(self) -> None:
        while not self._closing.wait(SYNC_S):
            try:
                self.sync()
            except StorageError as error:
                self._error = error
                return

    def check(self) -> None:
        """Raise StorageError if a sync has failed: the system reports it once, and the data may be lost."""
        if self._error is not None:
            raise self._error

    def _write_waiting(self) -> None:
        if self._waiting:
            starts, stops, n_ids, counts, ids = zip(*self._waiting, strict=True)
            self._write(Kind.ANSWERS, EventRange(starts[0], stops[-1]), sum(n_ids), [b"".join(counts), b"".join(ids)])
            self._waiting, self._n_waiting = [], 0

    def _write(self, kind: Kind, events: EventRange, n_ids: int, body: Sequence[Bytes]) -> None:
        with self._reported():
            self._end = write_at(self._descriptor, record_bytes(kind, events, n_ids, body), self._end)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of the file system as WriteError."""
        with reported(self.path):
            yield

    def remove(self) -> None:
        """Remove the journal: the answers are in their file.  Raises StorageError."""
        self._named = set()
        with self._reported():
            self._remove_files()
            self.path.unlink(missing_ok=True)
        self._removed = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._thread.join()
        try:
            if self._removed:
                return  # a removed file needs no sync
            with suppress(StorageError):  # no space for the last answers: those written are complete
                self.sync()
            self.n_answered = self.n_written
            if self._is_gone():
                return  # a file of that name is another run's
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            with suppress(OSError):
                self._remove_files()
            if not self.n_answered:
                with suppress(StorageError):
                    self.remove()
        finally:
            os.close(self._descriptor)
