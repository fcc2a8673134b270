"""What master and workers say to each other, and how.

    master → worker   Order   (kind, number, attempt, bytes, bytes)    MATCH: with it changes and events, as they travel
    worker → master   Answer  (kind, batch, attempt, events, ids)      MATCHES: with it counts and ids; FAILED: a Failure

Both are letters: five words, and behind them the body, if it is short.  A longer body follows in messages of its own:

    | words |  body  |            | words |  ►  | body ...        |  ►  | body ... |

The receive for a letter, of the largest size that there is, is posted before anyone sends; the letter says how large a
buffer what follows needs.  So nothing is ever cut off, no large message arrives unexpected, and a batch of one event is one
message there and one back.  Every receive names the rank it expects; MPI keeps the order of messages between two ranks, so a
body needs no number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpi_match.arrays import Array

PIECE_BYTES = 2**30
"""A transfer is cut into pieces of this size, because MPI counts in 31 bits."""
LETTER_BYTES = 1024
"""Size of the largest letter: every MPI sends as much at once, without asking the receiver (eager)."""
_WORDS = struct.Struct("<5q")
INLINE_BYTES = LETTER_BYTES - _WORDS.size
"""A body of so many bytes travels in its letter."""


class Tag(IntEnum):
    """Letters, and bodies that are too long for one."""

    LETTER = 1
    BODY = 2


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
    """Words from the master.  MATCH: batch `number`, for the `attempt`-th time, with a body of `n_changes` bytes of
    changes that come before its last event, and `n_events` bytes of events.  ABANDON: `number` is the exit code.
    """

    kind: int
    number: int = 0
    attempt: int = 0
    n_changes: int = 0
    n_events: int = 0


class Answer(NamedTuple):
    """Words from a worker about a batch, and the attempt that it was ordered as, with a body.  MATCHES: `n_events`
    counts and `n_ids` ids; FAILED: `n_ids` bytes.
    """

    kind: int
    batch: int = 0
    attempt: int = 0
    n_events: int = 0
    n_ids: int = 0


def words_of(letter: Array) -> tuple[int, int, int, int, int]:
    """The words of a letter; an Order or an Answer is made of them."""
    return _WORDS.unpack_from(letter.data)


def inline_body(letter: Array, n_bytes: int) -> Array | None:
    """The body of so many bytes that a letter has with it, u8[n_bytes]; None when it follows (`Traffic.read`)."""
    return letter[_WORDS.size : _WORDS.size + n_bytes] if n_bytes <= INLINE_BYTES else None


def pieces(array: Array) -> Iterator[Array]:
    """A contiguous array as u8 pieces of at most PIECE_BYTES; none for an empty one."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[at : at + PIECE_BYTES] for at in range(0, len(flat), PIECE_BYTES))


@dataclass
class _Transfer:
    """One or more arrays under way; `then` is called when the last piece has gone or come."""

    arrays: object
    n_open: int
    then: Callable[[], None] | None

    def done(self) -> bool:
        """One more piece is; its request is used up."""
        self.n_open -= 1
        if self.n_open == 0 and self.then is not None:
            self.then()
        return False


@dataclass
class _Ear:
    """A receive for letters, started again after each until `hear` returns False."""

    request: MPI.Prequest
    letter: Array
    hear: Callable[[Array], bool]

    def done(self) -> bool:
        """A letter is there."""
        listening = self.hear(self.letter.copy())
        if listening:
            self.request.Start()
        else:
            self.request.Free()
        return listening


class Traffic:
    """Everything that a rank has under way.  A transfer keeps its arrays until MPI is done with them.

    What is called when something has come or gone may start transfers, and must not raise: what finished with it would be
    lost.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._requests: list[MPI.Request] = []
        self._owners: list[_Transfer | _Ear] = []

    def listen(self, source: int, hear: Callable[[Array], bool]) -> None:
        """Call `hear` with every letter from a rank (u8[LETTER_BYTES], its own to keep) until it returns False."""
        letter = np.empty(LETTER_BYTES, np.uint8)
        request = self._comm.Recv_init([letter, MPI.BYTE], source, Tag.LETTER)
        request.Start()
        self._requests.append(request)
        self._owners.append(_Ear(request, letter, hear))

    def write(self, words: Order | Answer, body: Sequence[Array], to: int, then: Callable[[], None] | None = None) -> None:
        """Start sending a letter and its body of contiguous arrays, which must not change until `then`."""
        inline = sum(array.nbytes for array in body) <= INLINE_BYTES
        letter = b"".join([_WORDS.pack(*words), *(array.data for array in body if inline)])
        sent = self._comm.Isend([letter, MPI.BYTE], to, Tag.LETTER)
        self._watch(sent, _Transfer(letter, 1, then if inline else None))
        if not inline:
            self._start(body, then, lambda piece: self._comm.Isend([piece, MPI.BYTE], to, Tag.BODY))

    def read(self, body: Sequence[Array], source: int, then: Callable[[], None]) -> None:
        """Fill contiguous arrays, of exactly the sizes that were sent, with the body that follows the last letter."""
        self._start(body, then, lambda piece: self._comm.Irecv([piece, MPI.BYTE], source, Tag.BODY))

    def _start(
        self, arrays: Sequence[Array], then: Callable[[], None] | None, begin: Callable[[Array], MPI.Request]
    ) -> None:
        cut = [piece for array in arrays for piece in pieces(array)]
        transfer = _Transfer(arrays, len(cut), then)
        for piece in cut:
            self._watch(begin(piece), transfer)

    def _watch(self, request: MPI.Request, transfer: _Transfer) -> None:
        if request.Test():  # a letter usually is gone at once
            transfer.done()
        else:
            self._requests.append(request)
            self._owners.append(transfer)

    def __len__(self) -> int:
        """Pieces under way, receives that nobody has sent to yet among them."""
        return len(self._requests)

    def poll(self, looks: int = 1) -> bool:
        """Let MPI work; call what was waiting for what is done.  True when something was, in one of some looks."""
        done = None
        while self._requests and looks > 0 and not done:
            done = MPI.Request.Testsome(self._requests)
            looks -= 1
        if not done:
            return False
        gone = [i for i in done if not self._owners[i].done()]
        if gone:
            self._requests = [request for i, request in enumerate(self._requests) if i not in gone]
            self._owners = [owner for i, owner in enumerate(self._owners) if i not in gone]
        return True
