"""The messages between master and workers, in bytes.

    master → worker   Order   (kind, number, attempt, bytes, bytes)   MATCH: with it changes and events, as they travel
    worker → master   Answer  (kind, batch, attempt, events, ids)     MATCHES: with it counts and ids; FAILED: a Failure

Both are header messages: six 64-bit fields, and behind them the body, if it is short.  A longer body follows in messages
of its own:

    | fields |  body  |           | fields |  ►  | body ...       |  ►  | body ... |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from mpi_match.arrays.csr import Array

HEADER_BYTES = 1024
"""Size of the largest header message: every MPI sends as much eagerly, without a handshake with the receiver."""
_FIELDS = struct.Struct("<6q")
FIELDS_BYTES = _FIELDS.size
INLINE_BYTES = HEADER_BYTES - FIELDS_BYTES
"""Most bytes of a body that travels in its header message."""


class Tag(IntEnum):
    """Header messages, and bodies that are too long for one."""

    HEADER = 1
    BODY = 2


class Command(IntEnum):
    """Kinds of orders.

    MATCH         match a batch
    END           leave: the run is complete
    ABANDON       leave: the run has failed
    WAIT          a heartbeat
    MATCH_AFRESH  match a batch that precedes changes which the worker has applied, with an engine opened anew for it
    LOAD          load another shard of the table
    CHANGE        apply changes, of a table that changes while the run follows its input
    """

    MATCH = 1
    END = 2
    ABANDON = 3
    WAIT = 4
    MATCH_AFRESH = 5
    LOAD = 6
    CHANGE = 7


class Reply(IntEnum):
    """Kinds of answers.

    MATCHES   a batch's matches
    FAILED    the engine raised on a batch
    GONE      the worker's last message
    WRITTEN   a batch's matches are written
    READY     the worker's set-up is complete
    PRESENT   the step of set-up that the worker has begun, or a heartbeat (`liveness`)
    """

    MATCHES = 1
    FAILED = 2
    GONE = 3
    WRITTEN = 4
    READY = 5
    PRESENT = 6


class Order(NamedTuple):
    """Header fields from the master.  MATCH, MATCH_AFRESH: batch `number`, sent for the `attempt`-th time, with a body of
    `n_changes` bytes of changes that precede its last event, and `n_events` bytes of events.  LOAD: a shard in a body of
    `n_events` bytes (`shard`), which replaces the worker's shards, or with `attempt` not 0 is added to them.  CHANGE: a
    body of `n_changes` bytes.  END, ABANDON: `number` is the exit code, and with `attempt` not 0 ranks have
    been lost, so that MPI must not be finalised.  The last field is always 0: both headers have six.
    """

    kind: int
    number: int = 0
    attempt: int = 0
    n_changes: int = 0
    n_events: int = 0
    unused: int = 0


class Answer(NamedTuple):
    """Header fields from a worker.  The body of MATCHES: `n_events` counts and `n_ids` ids; of WRITTEN: the number of the
    worker's part, its size in bytes and the number of ids, i64[3]; of FAILED and PRESENT: `n_ids` bytes.  Behind the first
    two come `n_report` bytes (`prefetch.Expected`).  `batch` and `attempt` are those of the order.
    """

    kind: int
    batch: int = 0
    attempt: int = 0
    n_events: int = 0
    n_ids: int = 0
    n_report: int = 0


def header_of(fields: Order | Answer) -> bytes:
    """The fields as the beginning of a header message."""
    return _FIELDS.pack(*fields)


def short_message(fields: Order | Answer, body: Sequence[Array]) -> bytes | None:
    """The whole message, where the body of contiguous arrays is short enough to travel in it; None where it follows."""
    if sum([array.nbytes for array in body]) > INLINE_BYTES:
        return None
    return b"".join([_FIELDS.pack(*fields), *[array.data for array in body]])


def message_of(fields: tuple[int, int, int, int, int, int], body: bytes | memoryview) -> bytes:
    """The six fields of an Order or an Answer, and a body in one piece behind them, however long."""
    return _FIELDS.pack(*fields) + body


def body_of(message: bytes) -> memoryview:
    """The body of a `message_of`."""
    return memoryview(message)[_FIELDS.size :]


def fields_of(message: memoryview) -> tuple[int, int, int, int, int, int]:
    """The fields of a header message, for an Order or an Answer."""
    return _FIELDS.unpack_from(message)


def inline_body(message: memoryview, n_bytes: int) -> memoryview | None:
    """The inline body of a header message, in the message's memory; None when it follows (`channel.Traffic.read`)."""
    return message[_FIELDS.size : _FIELDS.size + n_bytes] if n_bytes <= INLINE_BYTES else None
