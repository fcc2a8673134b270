"""The disk under a file that is being written: free space, errors, and bytes not yet synced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from mpi_match.storage.integrity import WriteError, reason_of

SYNC_BYTES, MOST_UNSYNCED_BYTES = 2**25, 2**28
"""Bytes written between two calls of fsync; also the most bytes that may be waiting for one."""


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
        """Raise errors of the file system, which HDF5 reports as two types, as WriteError."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise WriteError.of(self.path, error, reason_of(error)) from error

    def need(self, n_bytes: int) -> None:
        """Raise WriteError unless the disk has room for `n_bytes` more."""
        with self.reported():
            free = shutil.disk_usage(self.path.parent).free
        if free < n_bytes + 2**16:
            refused = WriteError(
                f"{self.path}: disk full: {n_bytes:,} bytes to write, {free:,} free; make room or write elsewhere"
            )
            refused.disk_full = True
            raise refused

    def wrote(self, n_bytes: int) -> None:
        """Count bytes written.  Every SYNC_BYTES a background thread syncs them, so that the end need not wait for all; a
        disk much slower than the writer is waited for.
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
        """Write everything to the disk."""
        with self.reported():
            os.fdatasync(self.descriptor)

    def end_sync(self) -> None:
        """Wait for a sync in progress.  Raises its error."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def leave(self) -> None:
        """Stop using the file."""
        with suppress(OSError):
            self.end_sync()
        if self._syncer is not None:
            self._syncer.shutdown()
