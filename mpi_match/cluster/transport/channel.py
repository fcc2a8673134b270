"""How messages (`protocol`) travel between the master and a worker, and what becomes of them when a rank dies.

The receive for a letter, of the largest size that there is, is posted before anything is sent; the letter says how large a
buffer what follows needs.  So nothing is ever cut off, no large message arrives unexpected, and a batch of one event is one
message there and one back.  Every receive names the rank it expects; MPI keeps the order of messages between two ranks, so a
body needs no number.

A rank may die.  An MPI with fault tolerance (ULFM) then fails every request that has to do with it, within milliseconds,
and no other.  So the requests of each peer are looked at for themselves, and the first error ends the traffic with that
peer: it is `lost`, whatever MPI calls the error (process failure, revoked, plain `OTHER`), for a channel that has skipped a
message cannot be read on.  The other peers notice nothing.  An MPI without it says nothing at all; there a silent peer is
found by who waits for it: the master by a deadline for each batch, a worker by the sign of life that the master gives every
few seconds (`beat`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpi_match.arrays.csr import Array
from mpi_match.cluster.transport.protocol import INLINE_BYTES, LETTER_BYTES, Answer, Command, Order, Tag, letter_of

PIECE_BYTES = 2**30
"""A transfer is cut into pieces of this size, because MPI counts in 31 bits."""


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

    def done(self) -> None:
        """One more piece is; its request is used up."""
        self.n_open -= 1
        if self.n_open == 0 and self.then is not None:
            self.then()


@dataclass
class _Ear:
    """A receive for letters, started again after each until `hear` returns False."""

    request: MPI.Prequest
    letter: Array
    hear: Callable[[Array], bool]


class _Peer:
    """What is under way to and from one rank: the receive for its letters, and transfers, a request for each piece."""

    def __init__(self) -> None:
        self.ear: _Ear | None = None
        self.requests: list[MPI.Request] = []
        self.owners: list[_Transfer] = []
        self.beating = False

    def __len__(self) -> int:
        return len(self.requests) + (self.ear is not None)

    def add(self, request: MPI.Request, owner: _Transfer) -> None:
        """One more piece of a transfer."""
        self.requests.append(request)
        self.owners.append(owner)

    def poll(self) -> bool:
        """Let MPI work and call what was waiting for what is done.  Raises MPI.Exception when a request has failed."""
        busy = False
        ear = self.ear
        if ear is not None and ear.request.Test():
            busy = True
            if ear.hear(ear.letter.copy()):
                ear.request.Start()
            else:
                ear.request.Free()
                self.ear = None
        if self.requests and (done := MPI.Request.Testsome(self.requests)):
            busy = True
            for i in done:
                self.owners[i].done()
            self.requests = [request for i, request in enumerate(self.requests) if i not in done]
            self.owners = [owner for i, owner in enumerate(self.owners) if i not in done]
        return busy


class Traffic:
    """Everything that a rank has under way.  A transfer keeps its arrays until MPI is done with them.  `rank` and `size` are
    those of `comm`.

    What is called when something has come or gone may start transfers, and must not raise: what finished with it would be
    lost.

    `lost`: the ranks that cannot be spoken with any more, and why, in words.  What was under way to or from one of them is
    never called back, and what is written to it is dropped.  Its arrays are kept and not used again, since MPI may still
    write into them; the credits of the lost bound how many those are.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._peers: dict[int, _Peer] = {}  # replaced, never changed: it may be in use further up
        self._kept: list[_Peer] = []
        self.lost: dict[int, str] = {}

    def listen(self, source: int, hear: Callable[[Array], bool]) -> None:
        """Call `hear` with every letter from a rank (u8[LETTER_BYTES], its own to keep) until it returns False."""
        letter = np.empty(LETTER_BYTES, np.uint8)
        try:
            request = self._comm.Recv_init([letter, MPI.BYTE], source, Tag.LETTER)
            request.Start()
        except MPI.Exception as error:
            self._lose(source, error)
            return
        self._peer(source).ear = _Ear(request, letter, hear)

    def write(self, words: Order | Answer, body: Sequence[Array], to: int, then: Callable[[], None] | None = None) -> None:
        """Start sending a letter and its body of contiguous arrays, which must not change until `then`."""
        if to in self.lost:
            if then is not None:
                then()  # MPI has not seen the arrays
            return
        letter = letter_of(words)
        is_short = sum([array.nbytes for array in body]) <= INLINE_BYTES
        if is_short:
            letter = b"".join([letter, *[array.tobytes() for array in body]])
        try:
            request = self._comm.Isend(letter, to, Tag.LETTER)  # bytes as they are: a list with their type takes longer
            if not request.Test():  # a letter usually is gone at once
                self._peer(to).add(request, _Transfer(letter, 1, None))
        except MPI.Exception as error:
            self._lose(to, error)
        if not is_short:
            self._start(to, body, _cut(body), then, lambda piece: self._comm.Isend([piece, MPI.BYTE], to, Tag.BODY))
        elif then is not None:
            then()  # the letter is a copy

    def read(self, body: Sequence[Array], source: int, then: Callable[[], None]) -> None:
        """Fill contiguous arrays, of exactly the sizes that were sent, with the body that follows the last letter."""
        self._start(source, body, _cut(body), then, lambda piece: self._comm.Irecv([piece, MPI.BYTE], source, Tag.BODY))

    def beat(self, to: int) -> None:
        """Give a rank a sign of life.  One that has not taken the last yet gets no other: they must not pile up there."""
        peer = self._peers.get(to)
        if peer is None or peer.beating:
            return
        peer.beating = True
        letter = letter_of(Order(Command.WAIT))
        taken = functools.partial(setattr, peer, "beating", False)
        self._start(to, letter, [letter], taken, lambda piece: self._comm.Issend([piece, MPI.BYTE], to, Tag.LETTER))

    def close(self) -> None:
        """Listen to nobody any more: what still comes stays with MPI.  What is on its way out is kept until it has gone."""
        for peer in self._peers.values():
            if peer.ear is not None:
                with suppress(MPI.Exception):  # of a rank that is dead
                    peer.ear.request.Cancel()
                    peer.ear.request.Wait()
                    peer.ear.request.Free()
        self._kept += self._peers.values()
        self._peers = {}

    def __len__(self) -> int:
        """Pieces under way, receives that nobody has sent to yet among them."""
        return sum(len(peer) for peer in self._peers.values())

    def under_way(self, rank: int) -> int:
        """How many of them are to or from a rank."""
        return len(self._peers[rank]) if rank in self._peers else 0

    def poll(self, looks: int = 1) -> bool:
        """Let MPI work; call what was waiting for what is done.  True when something was, or a rank was found to be lost, in
        one of some looks.
        """
        for _ in range(looks):
            busy = False
            for rank, peer in self._peers.items():
                try:
                    if peer.poll():
                        busy = True
                except MPI.Exception as error:
                    self._lose(rank, error)
                    busy = True
            if busy:
                return True
        return False

    def _start(
        self,
        rank: int,
        arrays: object,
        cut: Sequence[Array | bytes],
        then: Callable[[], None] | None,
        begin: Callable[[Array | bytes], MPI.Request],
    ) -> None:
        if rank in self.lost:
            return
        peer, transfer = self._peer(rank), _Transfer(arrays, len(cut), then)
        try:
            for piece in cut:
                request = begin(piece)
                if request.Test():
                    transfer.done()
                else:
                    peer.add(request, transfer)
        except MPI.Exception as error:
            self._lose(rank, error)

    def _peer(self, rank: int) -> _Peer:
        if rank not in self._peers:
            self._peers = {**self._peers, rank: _Peer()}
        return self._peers[rank]

    def _lose(self, rank: int, error: MPI.Exception) -> None:
        if rank not in self.lost:
            dead = rank in dead_ranks(self._comm)
            self.lost[rank] = "it died" if dead else f"MPI cannot reach it ({error.Get_error_string()})"
            self._kept.append(self._peer(rank))
            self._peers = {each: peer for each, peer in self._peers.items() if each != rank}


def dead_ranks(comm: MPI.Comm) -> list[int]:
    """The ranks that MPI knows to be dead; none where it has no fault tolerance."""
    try:
        failed = comm.Get_failed()
        return sorted(failed.Translate_ranks(None, comm.Get_group()))
    except (MPI.Exception, NotImplementedError):
        return []


def _cut(arrays: Sequence[Array]) -> list[Array]:
    return [piece for array in arrays for piece in pieces(array)]
