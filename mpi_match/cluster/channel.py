"""What master and workers say to each other, and how.

    master → worker   Order   (kind, batch, bytes, exit code)    MATCH: then the wire form of the batch
    worker → master   Answer  (kind, batch, events, ids)         MATCHES: then counts and ids; FAILED: then a Failure

A header goes first because it is small and of fixed size: its receive is posted before anyone sends, and it says how
large a buffer what follows needs.  So nothing is ever cut off, and no large message arrives unexpected.  Every receive
names the rank it expects; MPI keeps the order of messages between two ranks, so a body needs no number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array

PIECE_BYTES = 2**30
"""A transfer is cut into pieces of this size, because MPI counts in 31 bits."""


class Tag(IntEnum):
    """Which of a channel's four kinds of messages."""

    ORDER = 1
    EVENTS = 2
    ANSWER = 3
    BODY = 4


class Do(IntEnum):
    """Kinds of orders: match a batch; leave, all is done; leave, the run has failed."""

    MATCH = 1
    END = 2
    ABANDON = 3


class Said(IntEnum):
    """Kinds of answers: a batch's matches; what went wrong; the last word of a worker."""

    MATCHES = 1
    FAILED = 2
    GONE = 3


class Order(NamedTuple):
    """Header from the master; `n_bytes` follow.  `exit_code` is for ABANDON."""

    kind: int
    batch: int = 0
    n_bytes: int = 0
    exit_code: int = 0


class Answer(NamedTuple):
    """Header from a worker.  MATCHES: `n_events` counts and `n_ids` ids follow; FAILED: `n_ids` bytes follow."""

    kind: int
    batch: int = 0
    n_events: int = 0
    n_ids: int = 0


HEADER_WORDS = 4


def header(words: Order | Answer) -> Array:
    """The header as it travels: i64[4]."""
    return np.array(words, np.int64)


def pieces(array: Array) -> Iterator[Array]:
    """A contiguous array as u8 pieces of at most PIECE_BYTES; none for an empty one."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[at : at + PIECE_BYTES] for at in range(0, len(flat), PIECE_BYTES))


SPARE_CORES = 8
"""With so many cores a rank may keep one busy."""


class Backoff:
    """Sleeps between looks: 1 µs, twice as long each time, at most 1 ms.

    `soon` is for while a transfer is under way: a large one needs many turns of both sides, so the sleep stays at 32 µs, and
    where cores are plenty there is none (half as much again passes through Open MPI's shared memory then).
    """

    SHORTEST_S, LONGEST_S = 1e-6, 1e-3
    SOON_S = 0.0 if len(os.sched_getaffinity(0)) >= SPARE_CORES else 32e-6

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Something happened: look again soon."""
        self._next_s = self.SHORTEST_S

    def next_s(self, *, soon: bool = False) -> float:
        """How long to sleep now."""
        now_s = min(self._next_s, self.SOON_S) if soon else self._next_s
        self._next_s = min(2 * now_s, self.LONGEST_S)
        return now_s

    def wait(self, *, soon: bool = False) -> None:
        """Sleep that long."""
        time.sleep(self.next_s(soon=soon))


@dataclass
class _Transfer:
    """One or more arrays under way; `then` is called when the last piece has gone or come."""

    arrays: Sequence[Array]
    n_open: int
    then: Callable[[], None] | None

    def piece_done(self) -> None:
        self.n_open -= 1
        if self.n_open == 0 and self.then is not None:
            self.then()


class Traffic:
    """Everything that a rank has under way.  A transfer keeps its arrays until MPI is done with them.

    What is called when a transfer is done may start others, and must not raise: the transfers that finished with it
    would be lost.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._requests: list[MPI.Request] = []
        self._transfers: list[_Transfer] = []

    def send(self, arrays: Sequence[Array], to: int, tag: Tag, then: Callable[[], None] | None = None) -> None:
        """Start sending contiguous arrays, one after the other; they must not change until `then`."""
        self._start(arrays, then, lambda piece: self._comm.Isend([piece, MPI.BYTE], to, tag))

    def receive(self, arrays: Sequence[Array], source: int, tag: Tag, then: Callable[[], None]) -> None:
        """Start receiving into contiguous arrays of exactly the sizes that are sent."""
        self._start(arrays, then, lambda piece: self._comm.Irecv([piece, MPI.BYTE], source, tag))

    def _start(
        self, arrays: Sequence[Array], then: Callable[[], None] | None, begin: Callable[[Array], MPI.Request]
    ) -> None:
        cut = [piece for array in arrays for piece in pieces(array)]
        transfer = _Transfer(arrays, len(cut), then)
        for piece in cut:
            self._requests.append(begin(piece))
            self._transfers.append(transfer)
        if not cut and then is not None:
            then()

    def __len__(self) -> int:
        """Pieces under way, receives that nobody has sent to yet among them."""
        return len(self._requests)

    def poll(self) -> bool:
        """Let MPI work; call what was waiting for what is done.  True when something was."""
        done = MPI.Request.Testsome(self._requests) if self._requests else None
        if not done:
            return False
        finished = [self._transfers[i] for i in done]
        gone = set(done)
        self._requests = [request for i, request in enumerate(self._requests) if i not in gone]
        self._transfers = [transfer for i, transfer in enumerate(self._transfers) if i not in gone]
        for transfer in finished:
            transfer.piece_done()
        return True
