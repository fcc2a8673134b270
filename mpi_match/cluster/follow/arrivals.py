"""Arrivals: a thread that reads what comes and cuts its rows into batches.

    directories ─► files in order ─► blocks of lines ─► batches, a few ─► master
    standard input, connections (`streams`) ─┘

A batch is handed over when it is full, or when its first event has waited for `max_delay` seconds and the master has room;
until then rows that arrive join it.  So batches are short while workers are idle and long when they are busy.  The master
takes a batch only when it may send it soon; until then the thread waits, files stay where they are, and memory is bounded.

A file of changes ends a batch.  It comes with the next one, which has no rows when no event arrives in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

from mpi_match.cluster.follow.changes import ChangeReader, Version
from mpi_match.cluster.follow.directory import Commit, FileKey, FollowedDirectory, committed
from mpi_match.cluster.follow.kept_changes import NO_CHANGES, ToKeep
from mpi_match.cluster.follow.rows import RENAME_WHOLE, BatchBuilder, RowsOfBlock, RowsOfFiles
from mpi_match.cluster.options import ClusterError
from mpi_match.exit_codes import ExitCode
from mpi_match.ingest.files.blocks import read_blocks
from mpi_match.ingest.rows.judge import EventForm
from mpi_match.ingest.rows.row_files import check_lines, is_columnar, is_compiled, is_plain
from mpi_match.model import ModelError
from mpi_match.storage import FileChanged

log = logging.getLogger(__name__)

DIRECTORY_POLL_S = 5e-3
"""Seconds between two looks at the directories."""
EVENTS_DIRECTORY, CHANGES_DIRECTORY = 1, 2
"""The numbers of the directories of events and of changes."""
BATCH_BYTES = 2**21
"""A batch of this many bytes is full.  A block of a large file has more, so it is a batch without being copied."""
QUEUED = 2
"""Most batches that wait for the master."""


class Position(NamedTuple):
    """The end of a batch in its files.

    finished   files that ended since the batch before
    reading    the file within which the batch ends; None: it ends with a file
    rows       rows of that file in this batch and earlier ones
    changes    those that came before the batch, to be kept
    """

    finished: tuple[FileKey, ...]
    reading: FileKey | None = None
    rows: int = 0
    changes: ToKeep = NO_CHANGES


class ArrivedBatch(NamedTuple):
    """A batch of arrived rows: the number of its first event, its rows, the times at which they arrived (by
    `time.monotonic`, each with a number of events), and its end; the version of the table, and the versions since the batch
    before; the connections that its rows came from, in order, each with a number of rows."""

    first: int
    rows: RowsOfFiles
    arrivals: list[tuple[float, int]]
    end: Position
    version: int = 0
    versions: tuple[Version, ...] = ()
    parts: Sequence[tuple[Any, int]] = ()

    @property
    def n_events(self) -> int:
        """Number of events."""
        return self.rows.rows.n_events


class Arrivals:
    """Batches of at most `n_rows` rows; a context manager, in which its thread runs.

    `first` is the number of the first event.  `changes` reads the files of the one of `directories` that has the number
    CHANGES_DIRECTORY.  A subclass has `_follow`.
    """

    def __init__(
        self,
        directories: Sequence[FollowedDirectory],
        n_rows: int,
        max_delay_s: float,
        first: int,
        changes: ChangeReader | None,
    ) -> None:
        self._directories, self._n_rows, self._max_delay_s = directories, n_rows, max_delay_s
        self._first, self._changes = first, changes
        self._versions: list[Version] = []
        self._queue: Queue[ArrivedBatch | None] = Queue(QUEUED)
        self._builder = BatchBuilder()
        self._arrived: deque[tuple[float, int]] = deque()
        self._finished: list[FileKey] = []
        self._reading: tuple[FileKey, int] | None = None
        self._parts: list[tuple[Any, int]] = []
        self._error: Exception | None = None
        self._stopping, self._abandoned = threading.Event(), threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self.ended = False

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """Read no more; the rows that were read are handed over, and then `ended` is True."""
        self._stopping.set()

    def answered(self, connection: Any, lines: bytes, n_events: int) -> None:
        """The next events of a connection are answered, with these lines."""

    def drain(self) -> tuple[int, int]:
        """Wait until answers are taken; returns the numbers of those that were not: on connections that ended, on others."""
        return 0, 0

    def take(self, timeout_s: float = 0.0) -> ArrivedBatch | None:
        """The next batch that is complete within the time, or None.  Raises what reading raised: StorageError, ModelError,
        OSError, ClusterError."""
        if self.ended:
            return None
        try:
            found = self._queue.get(timeout=timeout_s) if timeout_s else self._queue.get_nowait()
        except Empty:
            return None
        if found is None:
            self.ended = True
            if self._error is not None:
                raise self._error
        return found

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            self._error = error
        self._close()

    def _close(self) -> None:
        """Hand over the last rows, and say that no more come."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._hand_over(wait=True)
        finally:
            self._put(None)

    def _follow(self) -> None:
        """Read until `_stopping` is set."""
        raise NotImplementedError

    def _path(self, key: FileKey) -> Path:
        return next(each.path for each in self._directories if each.number == key.directory) / key.name

    def _change(self, commit: Commit) -> None:
        """Read a file of changes, for the next batch."""
        assert self._changes is not None
        key, path = commit.key, self._path(commit.key)
        if self._builder.n_rows:
            self._hand_over(wait=True)
        try:
            self._check(key, path, 0)
            version = self._changes.read(path)
            self._check(key, path, 0)
        except FileNotFoundError:
            raise ClusterError(f"{path}: vanished before its changes were applied", ExitCode.INCOMPLETE) from None
        self._versions.append(version)
        self._arrived.append((commit.arrived_at, 0))
        self._finished.append(key)

    def _check(self, key: FileKey, path: Path, n_rows: int) -> None:
        """Raise FileChanged when a file is not what was committed."""
        if FileKey.of(key.directory, key.name, path.stat()) != key:
            raise _changed(path, n_rows)

    def _add_rows(self, rows: RowsOfBlock, arrived_at: float, connection: Any = None) -> int:
        """Add rows to the batch, as many as it has room for; returns their number.  A full batch is handed over first."""
        if self._is_full:
            self._hand_over(wait=True)
        piece = rows.take(self._n_rows - self._builder.n_rows)
        if piece.n_rows:
            self._builder.add(piece)
            self._arrived.append((arrived_at, piece.n_rows))
            if connection is not None:
                self._parts.append((connection, piece.n_rows))
        return piece.n_rows

    @property
    def _is_full(self) -> bool:
        return self._builder.n_rows >= self._n_rows or self._builder.n_bytes >= BATCH_BYTES

    def _left_s(self) -> float:
        """Seconds until the first event of the batch has waited long enough."""
        return max(self._arrived[0][0] + self._max_delay_s - time.monotonic(), 0.0) if self._arrived else 0.0

    def _hand_over_in_time(self) -> None:
        if self._is_full or not self._left_s():
            self._hand_over(wait=self._is_full)

    def _hand_over(self, *, wait: bool) -> None:
        """Hand the batch over if the queue has room; with `wait`, as soon as it has."""
        if not self._arrived or (self._queue.full() and not wait):
            return
        changes = ToKeep.joined(each.kept for each in self._versions)
        reading, n_rows = self._reading or (None, 0)
        end = Position(tuple(self._finished), reading, n_rows, changes)
        version = 0 if self._changes is None else self._changes.version
        rows, arrived = self._builder.take(), list(self._arrived)
        batch = ArrivedBatch(self._first, rows, arrived, end, version, tuple(self._versions), tuple(self._parts))
        self._finished.clear()
        self._arrived.clear()
        self._versions.clear()
        self._parts.clear()
        self._first += batch.n_events
        self._put(batch)

    def _put(self, batch: ArrivedBatch | None) -> None:
        while not self._abandoned.is_set():
            try:
                return self._queue.put(batch, timeout=0.1)
            except Full:
                continue


class DirectoryArrivals(Arrivals):
    """The rows of files of `form` that are renamed into a directory.

    `begun` is the file in which an earlier run ended, with the number of its rows that are done.  With `by_place` batches
    have the places of their lines, of plain files.  Other parameters are those of `Arrivals`.
    """

    def __init__(self, form: EventForm, begun: tuple[FileKey, int] | None, by_place: bool, *given: Any) -> None:
        super().__init__(*given)
        self._form, self._begun, self._by_place = form, begun, by_place

    def _follow(self) -> None:
        if self._begun is not None:
            self._go_on(*self._begun)
        while not self._stopping.is_set():
            for commit in committed(self._directories):
                if self._stopping.is_set():
                    return
                if commit.key.directory == CHANGES_DIRECTORY:
                    self._change(commit)
                else:
                    self._read(commit, 0)
            self._hand_over_in_time()
            self._stopping.wait(min(DIRECTORY_POLL_S, self._left_s()) if self._arrived else DIRECTORY_POLL_S)

    def _go_on(self, key: FileKey, n_rows: int) -> None:
        """Read the rest of the file in which an earlier run ended."""
        path = self._path(key)
        try:
            found = FileKey.of(key.directory, key.name, path.stat())
        except FileNotFoundError:
            log.warning("%s: vanished when %d of its rows were answered; its other rows have no answers", path, n_rows)
            return
        if found != key:
            raise _changed(path, n_rows)
        self._read(Commit(0, key, time.monotonic()), n_rows)

    def _read(self, commit: Commit, n_done: int) -> None:
        """Read a file, without its first `n_done` rows."""
        key, path = commit.key, self._path(commit.key)
        try:
            _refuse_other_forms(path)
            n_seen, at = 0, 0 if self._by_place and is_plain(path) else None
            for block in read_blocks([path], self._form):
                self._check(key, path, n_seen)
                end = None if at is None or block.overlong else at + len(block.data)
                at = None if end is None or end > key.n_bytes else at
                rows = RowsOfBlock(block, at)
                if n_seen < n_done:
                    n_seen += rows.take(n_done - n_seen).n_rows
                while not rows.is_empty:
                    n_seen += self._add_rows(rows, commit.arrived_at)
                    self._reading = key, n_seen
                at = end
                if self._stopping.is_set():
                    break
            else:
                self._check(key, path, n_seen)
                self._reading = None
                self._finished.append(key)
                self._hand_over_in_time()
        except FileNotFoundError:
            if self._reading is not None or n_done:
                raise ClusterError(f"{path}: vanished while it was read", ExitCode.INCOMPLETE) from None
            log.warning("%s: vanished before it was read", path)


def _refuse_other_forms(path: Path) -> None:
    if is_compiled(path) or is_columnar(path):
        raise ClusterError(
            f"{path}: is an HDF5 file or a file of columns; files that are followed hold lines", ExitCode.BAD_INPUT
        )
    try:
        check_lines(path)
    except ModelError as error:
        raise ClusterError(str(error), ExitCode.BAD_INPUT) from None


def _changed(path: Path, n_rows: int) -> FileChanged:
    return FileChanged(f"{path}: changed after it was committed, when {n_rows:,} of its rows had been read; {RENAME_WHOLE}")
