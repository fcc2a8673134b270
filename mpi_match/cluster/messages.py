"""The values that the parts of a worker, and those of the master, pass to each other; no MPI and no threads.

worker   orders ──► Received, SerializedShard, SerializedChanges ──► engine ──► Matched (Written) ──► answers
master   answers ──► Body ──► the file
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.prefetch import Expected
from mpi_match.events.batch import EventBatch

WRITTEN_DTYPE = np.dtype(np.int64)
"""Type of the three numbers in the body of a WRITTEN answer."""


_NOTHING = np.empty(0, np.uint8)


class Received(NamedTuple):
    """A batch to be matched.

    batch, attempt   its number, and which sending of the batch it is
    afresh           the engine has to be opened anew for it
    changes          wire form u8 of its changes; empty: none
    events           taken once, in the engine's thread
    buffer           the buffer that it was received into, if any
    """

    batch: int
    attempt: int
    afresh: bool
    changes: Array
    events: Expected[EventBatch]
    buffer: Array | None

    @property
    def alters(self) -> bool:
        """Tells whether matching the batch replaces the engine or changes it."""
        return self.afresh or len(self.changes) > 0


class SerializedShard(NamedTuple):
    """A shard to be loaded (`shard`): in addition to those held (`keep`), or instead of them."""

    wire: Array
    keep: bool


class SerializedChanges(NamedTuple):
    """Changes to be applied that come with no batch (`follow.changes.DueVersions`)."""

    wire: Array


Work = Received | SerializedShard | SerializedChanges
"""The work that a matcher gets from its worker, in order."""


class Written(NamedTuple):
    """The place where a worker has written answers: the number of its part of the output, and the size in bytes that the
    part then had."""

    part: int
    end: int


class Matched(NamedTuple):
    """Answer to a batch: counts and ids as they are sent, or the engine's error; the batch's buffer is free again.

    `written`: where this worker has written them itself.  `report`: see `Expected`.
    """

    received: Received
    counts: Array
    ids: Array
    error: Exception | None = None
    written: Written | None = None
    report: Array = _NOTHING


class Body(NamedTuple):
    """The body of an answer, as bytes: counts and ids, and the report of its batch (see `Expected`).  `buffer`, unless it is
    None, goes back to its pool."""

    first: bytes | memoryview
    second: bytes | memoryview
    report: bytes | memoryview
    buffer: Array | None
