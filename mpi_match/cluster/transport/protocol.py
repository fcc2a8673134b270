"""What master and workers say to each other, in bytes.

    master → worker   Order   (kind, number, attempt, bytes, bytes)   MATCH: with it changes and events, as they travel
    worker → master   Answer  (kind, batch, attempt, events, ids)     MATCHES: with it counts and ids; FAILED: a Failure

Both are letters: five words, and behind them the body, if it is short.  A longer body follows in messages of its own:

    | words |  body  |            | words |  ►  | body ...        |  ►  | body ... |
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from mpi_match.arrays.csr import Array

LETTER_BYTES = 1024
"""Size of the largest letter: every MPI sends as much at once, without asking the receiver (eager)."""
_WORDS = struct.Struct("<5q")
INLINE_BYTES = LETTER_BYTES - _WORDS.size
"""A body of so many bytes travels in its letter."""


class Tag(IntEnum):
    """Letters, and bodies that are too long for one."""

    LETTER = 1
    BODY = 2


class Command(IntEnum):
    """Kinds of orders: match a batch; leave, all is done; leave, the run has failed; nothing, the master is alive; match a
    batch from before changes that this worker has made, with an engine that is opened afresh for it; have another part of
    the table.
    """

    MATCH = 1
    END = 2
    ABANDON = 3
    WAIT = 4
    MATCH_AFRESH = 5
    LOAD = 6


class Reply(IntEnum):
    """Kinds of answers: a batch's matches; what went wrong; a worker's last word; that matches are written; a first word;
    before that, what it does (`liveness`).
    """

    MATCHES = 1
    FAILED = 2
    GONE = 3
    WRITTEN = 4
    READY = 5
    PRESENT = 6


class Order(NamedTuple):
    """Words from the master.  MATCH, MATCH_AFRESH: batch `number`, sent for the `attempt`-th time, with a body of
    `n_changes` bytes of changes that come before its last event, and `n_events` bytes of events.  LOAD: a part of the table
    in a body of `n_events` bytes (`shard`), to be had instead of what there is, or with `attempt` not 0 besides.  END,
    ABANDON: `number` is the exit code, and with `attempt` not 0 ranks have been lost, so that MPI must not be finalised.
    """

    kind: int
    number: int = 0
    attempt: int = 0
    n_changes: int = 0
    n_events: int = 0


class Answer(NamedTuple):
    """Words from a worker, with a body.  MATCHES: `n_events` counts and `n_ids` ids; WRITTEN: that they are in the worker's
    parts of the output, with which one, its size and `n_ids` as i64[3]; FAILED, PRESENT: `n_ids` bytes.  `batch` and
    `attempt` are those of the order.
    """

    kind: int
    batch: int = 0
    attempt: int = 0
    n_events: int = 0
    n_ids: int = 0


def letter_of(words: Order | Answer) -> bytes:
    """The words as the beginning of a letter."""
    return _WORDS.pack(*words)


def words_of(letter: Array) -> tuple[int, int, int, int, int]:
    """The words of a letter; an Order or an Answer is made of them."""
    return _WORDS.unpack_from(letter.data)


def inline_body(letter: Array, n_bytes: int) -> Array | None:
    """The body of so many bytes that a letter has with it, u8[n_bytes]; None when it follows (`channel.Traffic.read`)."""
    return letter[_WORDS.size : _WORDS.size + n_bytes] if n_bytes <= INLINE_BYTES else None
