"""What the parts of a worker, and those of the master, hand to each other: no MPI, and no thread of its own.

worker   orders ──► Received, SerializedShard ──► engine ──► Matched (Written) ──► answers
master   answers ──► Body ──► the file
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_match.arrays.csr import Array
from mpi_match.cluster.prefetch import Expected
from mpi_match.events.batch import EventBatch

WRITTEN_DTYPE = np.dtype(np.int64)
"""Type of the three numbers that come with the word that answers are written."""


class Received(NamedTuple):
    """A batch to be matched: its number and the attempt that it is, whether it is for an engine opened afresh, the wire form
    of its changes (empty: none), its events (got once, in the engine's thread), and the buffer that it was received into, if
    any.
    """

    batch: int
    attempt: int
    afresh: bool
    changes: Array
    events: Expected[EventBatch]
    buffer: Array | None

    @property
    def alters(self) -> bool:
        """Is the engine another one, or knows of more changes, when it has been matched?"""
        return self.afresh or len(self.changes) > 0


class SerializedShard(NamedTuple):
    """A part of the table (`shard`) that is to be had from now on: besides what there is (`keep`), or instead of it."""

    wire: Array
    keep: bool


class Written(NamedTuple):
    """Where a rank has written answers itself: in which of its parts of the output, and the size that this has with them."""

    part: int
    end: int


class Matched(NamedTuple):
    """Answer to a batch: counts and ids as they travel, or what the engine raised; the batch's buffer is free again.

    `written`: where this rank has written them itself.
    """

    received: Received
    counts: Array
    ids: Array
    error: Exception | None = None
    written: Written | None = None


class Body(NamedTuple):
    """What came with a letter, u8: of an answer the counts and the ids.  `buffer` is to be given back, unless it is None."""

    first: Array
    second: Array
    buffer: Array | None
