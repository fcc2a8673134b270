"""A file that is being written, and the disk that has to take it: room, errors, and what waits to be synced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from mpi_match.storage.integrity import StorageError, reason_of

SYNC_BYTES, MOST_UNSYNCED_BYTES = 2**25, 2**28
"""After how many bytes the disk is asked to take what is written, and how many may wait for it."""


class Disk:
    """The disk under the file that will be `path`; `descriptor` is set when the file is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        self._unsynced = 0
        self._syncer: ThreadPoolExecutor | None = None
        self._syncing: Future[None] | None = None

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Errors of the file system, which HDF5 raises in two shapes, as StorageError."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise StorageError(f"{self.path}: cannot be written: {reason_of(error)}") from error

    def need(self, n_bytes: int) -> None:
        """Raise StorageError unless there is room for so many bytes more."""
        with self.reported():
            free = shutil.disk_usage(self.path.parent).free
        if free < n_bytes + 2**16:
            raise StorageError(
                f"{self.path}: disk full: {n_bytes:,} bytes to write, {free:,} free; make room or write elsewhere"
            )

    def wrote(self, n_bytes: int) -> None:
        """So much was written.  Now and then the disk gets it, in a thread of its own, so that the end does not have to wait
        for all; a disk that is much slower than the writing is waited for.
        """
        self._unsynced += n_bytes
        if self._unsynced < SYNC_BYTES:
            return
        if self._syncing is not None and (self._syncing.done() or self._unsynced >= MOST_UNSYNCED_BYTES):
            self.end_sync()
        if self._syncing is None:
            self._syncer = self._syncer or ThreadPoolExecutor(1, "sync")
            self._syncing = self._syncer.submit(os.fdatasync, self.descriptor)
            self._unsynced = 0

    def sync(self) -> None:
        """Have the disk take all that was written."""
        with self.reported():
            os.fdatasync(self.descriptor)

    def end_sync(self) -> None:
        """Wait for the disk, if it is at work.  Raises what it raised."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def leave(self) -> None:
        """The file is not written any more."""
        with suppress(OSError):
            self.end_sync()
        if self._syncer is not None:
            self._syncer.shutdown()
